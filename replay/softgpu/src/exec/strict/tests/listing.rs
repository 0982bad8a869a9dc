//! Runs the programs of `programs.txt` under strict mode and puts findings into words.

use super::keeper::Keeper;
use crate::exec::strict::run_strict;
use crate::exec::{Dispatch, ExecError, Program, RunConfig, RunStats};
use crate::isa::{Target, disassemble};
use crate::memory::{AddressSpace, Kind, Rights};
use crate::strict::hook::WaveFinding;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Guest address of every program: no memory is needed for code that is already decoded.
const BASE: u64 = 0x10_0000;

/// A machine with two buffers, in s[0:1] and s[2:3].
pub(super) struct Bench {
    pub(super) memory: AddressSpace,
    pub(super) input: u64,
    pub(super) output: u64,
}

/// How a program is launched.
#[derive(Clone, Copy)]
pub(super) struct Launch {
    pub(super) name: &'static str,
    pub(super) waves: u32,
    pub(super) groups: u32,
    pub(super) lds: u32,
}

impl Launch {
    pub(super) const fn of(name: &'static str, waves: u32) -> Self {
        Self {
            name,
            waves,
            groups: 1,
            lds: 512,
        }
    }
}

/// Words and text of a program, checked against the disassembler.
pub(super) fn program(name: &str) -> Arc<Program> {
    let mut lines = include_str!("programs.txt").lines();
    let header = lines
        .find(|l| l.starts_with('[') && l[1..].split(' ').next() == Some(name))
        .unwrap_or_else(|| panic!("no program {name}"));
    let target = Target::ALL
        .into_iter()
        .find(|t| header.contains(t.name()))
        .unwrap();
    let body: Vec<(&str, &str)> = lines
        .take_while(|l| !l.is_empty())
        .map(|l| l.split_once(" | ").unwrap())
        .collect();
    let code: Vec<u8> = body
        .iter()
        .flat_map(|(words, _)| words.split(' '))
        .flat_map(|w| u32::from_str_radix(w, 16).unwrap().to_le_bytes())
        .collect();
    let listing = disassemble(target, BASE, &code).unwrap();
    let texts: Vec<String> = listing.into_iter().map(|l| l.text.unwrap()).collect();
    let plain = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
    for ((_, want), got) in body.iter().zip(&texts) {
        // Branch targets and the fields of s_waitcnt_depctr are spelled in several ways.
        if !want.contains("branch") && !want.contains("depctr") {
            assert_eq!(plain(got), plain(want), "{name}");
        }
    }
    assert_eq!(texts.len(), body.len(), "{name}");
    Arc::new(Program::decode(target, BASE, &code).unwrap())
}

impl Bench {
    pub(super) fn new() -> Self {
        let memory = AddressSpace::new();
        let buffer = |name| {
            let va = memory
                .alloc(name, 4096, 256, Rights::READ_WRITE, Kind::Device)
                .unwrap();
            memory.fill(va, 4096, 0).unwrap();
            va
        };
        let (input, output) = (buffer("input"), buffer("output"));
        // The input begins with its own address, for programs that load one.
        memory.write_bytes(input, &input.to_le_bytes()).unwrap();
        Self {
            input,
            output,
            memory,
        }
    }

    pub(super) fn dispatch(&self, launch: Launch) -> Dispatch {
        let mut user_sgprs = [0; 16];
        for (k, va) in [self.input, self.output].into_iter().enumerate() {
            user_sgprs[2 * k] = va as u32;
            user_sgprs[2 * k + 1] = (va >> 32) as u32;
        }
        Dispatch {
            program: program(launch.name),
            entry_va: BASE,
            name: launch.name.into(),
            // 64 vector registers, denormals kept, IEEE and DX10_CLAMP.
            rsrc1: 7 | 15 << 16 | 1 << 21 | 1 << 23,
            // Four user SGPRs.
            rsrc2: 4 << 1,
            rsrc3: 0,
            user_sgprs,
            user_sgpr_count: 4,
            groups: [launch.groups, 1, 1],
            group_size: [32 * launch.waves, 1, 1],
            lds_bytes: launch.lds,
            scratch_bytes: 64,
            tag: 0,
        }
    }

    pub(super) fn run(
        &self,
        launches: &[Launch],
        seed: u64,
        keeper: &mut Keeper,
    ) -> Result<RunStats, ExecError> {
        let batch: Vec<Dispatch> = launches.iter().map(|l| self.dispatch(*l)).collect();
        let config = RunConfig {
            seed,
            threads: 1,
            wave_budget: 100_000,
        };
        run_strict(
            &self.memory,
            &batch,
            &config,
            &AtomicBool::new(false),
            keeper,
        )
    }
}

/// A finding in words, with addresses from the start of the program.
pub(super) fn say(finding: &WaveFinding) -> String {
    match finding {
        WaveFinding::MissingWait {
            register,
            counter,
            at_most,
            load,
        } => format!(
            "{register} needs {counter}({at_most}) after +{:#x}",
            load - BASE
        ),
        WaveFinding::Poison {
            register,
            place,
            lanes,
        } => format!("{register} in {place}, {lanes:#x}"),
        WaveFinding::LdsRace { bytes, what, .. } => format!("{what}, {bytes} bytes of LDS"),
        WaveFinding::BarrierDivergence { other_pc, .. } => {
            format!("barriers apart, other at +{:#x}", other_pc - BASE)
        }
    }
}

/// All different findings of a program, in words.
pub(super) fn findings(launch: Launch, seed: u64) -> Vec<String> {
    let mut keeper = Keeper::default();
    Bench::new()
        .run(&[launch], seed, &mut keeper)
        .unwrap_or_else(|e| panic!("{}: {e}", launch.name));
    let mut all: Vec<String> = keeper.found.iter().map(|(_, f)| say(f)).collect();
    all.sort();
    all.dedup();
    all
}
