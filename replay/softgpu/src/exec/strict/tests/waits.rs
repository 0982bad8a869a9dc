//! Every wait and every barrier of the kernels in `cases`, weakened in turn: strict mode must say which register was
//! used too early, or which LDS access was not finished at the barrier.
//!
//! A wait instruction has one or two counters. Each counter is weakened twice: by one (one more
//! instruction may stay outstanding), and to its maximum (as if the wait were not there). Every
//! fifth wait by default, all of them with `REFRAIN_LONG=1`; the counts are printed as rows of
//! `docs/measurements/strict-mode.md`. What is proved unneeded stands in `unneeded.txt`.

use super::cases::{Case, all};
use super::keeper::Keeper;
use super::support::Gpu;
use crate::exec::strict::code::Class;
use crate::exec::strict::counters::Field;
use crate::exec::strict::run_strict;
use crate::exec::{Dispatch, Program};
use crate::isa::Target;
use crate::isa::op::Op;
use crate::strict::hook::WaveFinding;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One counter of one wait of a kernel.
struct Place {
    /// Dword of the kernel.
    dword: usize,
    field: &'static Field,
    allowed: u32,
}

/// A kernel's code with its waits.
struct Kernel {
    name: String,
    entry: u64,
    code: Vec<u8>,
    places: Vec<Place>,
}

fn kernels(gpu: &Gpu) -> Vec<Kernel> {
    let mut entries: Vec<(u64, String)> = gpu
        .code
        .kernels
        .iter()
        .map(|(name, k)| (k.entry, name.clone()))
        .collect();
    entries.sort();
    let ends = entries.iter().skip(1).map(|(e, _)| *e);
    let ends: Vec<u64> = ends.chain([gpu.code.text.len() as u64]).collect();
    entries
        .into_iter()
        .zip(ends)
        .map(|((entry, name), end)| {
            let code = gpu.code.text[entry as usize..end as usize].to_vec();
            let places = places(gpu, entry, &code);
            Kernel {
                name,
                entry,
                code,
                places,
            }
        })
        .collect()
}

fn places(gpu: &Gpu, entry: u64, code: &[u8]) -> Vec<Place> {
    let base = gpu.program.base() + entry;
    let program = Program::decode(gpu.code.target, base, code).unwrap();
    let strict = program.strict();
    let mut places = Vec::new();
    for (index, site) in strict.sites.iter().enumerate() {
        if site.class != Class::Wait {
            continue;
        }
        let known = &strict.insts[site.inst as usize];
        let at = strict.program.address_of(index as u32) - base;
        for field in known.waits {
            let allowed = field.allowed(known.inst.imm as u32);
            if allowed < most(field) {
                places.push(Place {
                    dword: at as usize / 4,
                    field,
                    allowed,
                });
            }
        }
    }
    places
}

fn most(field: &Field) -> u32 {
    (1 << field.bits) - 1
}

/// The kernel with one counter of one wait at another value.
fn weakened(gpu: &Gpu, kernel: &Kernel, place: &Place, allowed: u32) -> Arc<Program> {
    let mut code = kernel.code.clone();
    let at = 4 * place.dword;
    let word = u32::from_le_bytes(code[at..at + 4].try_into().unwrap());
    let field = place.field;
    let changed = word & !(most(field) << field.low) | allowed << field.low;
    code[at..at + 4].copy_from_slice(&changed.to_le_bytes());
    let base = gpu.program.base() + kernel.entry;
    Arc::new(Program::decode(gpu.code.target, base, &code).unwrap())
}

/// What strict mode finds when `program` stands in for the kernel of `case`.
fn findings(gpu: &Gpu, case: &Case, program: &Arc<Program>, seed: u64) -> Vec<WaveFinding> {
    case.restore(gpu);
    let batch = [Dispatch {
        program: program.clone(),
        ..case.dispatch.clone()
    }];
    let mut keeper = Keeper::default();
    let config = crate::exec::RunConfig { seed, ..gpu.config };
    // What was found stands even if the mutant then faults, on an address out of a raced LDS.
    let stop = AtomicBool::new(false);
    let _ = run_strict(&gpu.memory, &batch, &config, &stop, &mut keeper);
    keeper.found.into_iter().map(|(_, f)| f).collect()
}

/// Every barrier of the shipped kernels, taken out in turn: the waves race for the LDS.
#[test]
fn removed_barriers_are_caught() {
    let mut unneeded = Unneeded::read();
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let cases = all(&gpu);
        let mut removed = 0;
        for kernel in &kernels(&gpu) {
            let of_kernel: Vec<&Case> = cases.iter().filter(|c| c.kernel == kernel.name).collect();
            if of_kernel.is_empty() {
                continue;
            }
            for words in barriers(&gpu, kernel) {
                removed += 1;
                let program = without(&gpu, kernel, &words);
                let caught = of_kernel.iter().any(|case| {
                    findings(&gpu, case, &program, 1)
                        .iter()
                        .any(|f| matches!(f, WaveFinding::LdsRace { .. }))
                });
                if !caught {
                    unneeded.silent(
                        format!("{target} {} barrier removed", kernel.name),
                        words[0],
                    );
                }
            }
        }
        eprintln!("{target}: {removed} barriers");
        assert!(removed > 40, "{target}: {removed}");
    }
    unneeded.check("barrier removed", true);
}

/// The dwords of each barrier; on gfx12 the signal with the wait after it.
fn barriers(gpu: &Gpu, kernel: &Kernel) -> Vec<Vec<usize>> {
    let base = gpu.program.base() + kernel.entry;
    let program = Program::decode(gpu.code.target, base, &kernel.code).unwrap();
    let strict = program.strict();
    let mut all: Vec<Vec<usize>> = Vec::new();
    for (index, site) in strict.sites.iter().enumerate() {
        if site.class != Class::Barrier {
            continue;
        }
        let dword = (strict.program.address_of(index as u32) - base) as usize / 4;
        let op = strict.insts[site.inst as usize].inst.row.op;
        match all.last_mut() {
            Some(last) if op == Op::SBarrierWait => last.push(dword),
            _ => all.push(vec![dword]),
        }
    }
    all
}

/// The kernel with these dwords replaced by `s_nop 0`.
fn without(gpu: &Gpu, kernel: &Kernel, dwords: &[usize]) -> Arc<Program> {
    let mut code = kernel.code.clone();
    for dword in dwords {
        code[4 * dword..4 * dword + 4].copy_from_slice(&0xbf80_0000u32.to_le_bytes());
    }
    let base = gpu.program.base() + kernel.entry;
    Arc::new(Program::decode(gpu.code.target, base, &code).unwrap())
}

/// What is not needed, from `unneeded.txt`: lines of `count target kernel what how`, each with the
/// number of places in the kernel whose weakening changes nothing. The reasons stand above them.
struct Unneeded {
    listed: BTreeMap<String, usize>,
    found: BTreeMap<String, Vec<usize>>,
}

impl Unneeded {
    fn read() -> Self {
        let path = "src/exec/strict/tests/unneeded.txt";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let listed = lines
            .filter_map(|line| line.split_once(' '))
            .map(|(count, key)| (key.to_owned(), count.parse().unwrap()))
            .collect();
        Self {
            listed,
            found: BTreeMap::new(),
        }
    }

    /// Nothing was found without the wait or barrier at this dword.
    fn silent(&mut self, key: String, dword: usize) {
        self.found.entry(key).or_default().push(4 * dword);
    }

    /// Every silence is listed; with `complete`, every listed one was found.
    fn check(&self, suffix: &str, complete: bool) {
        let mut wrong = Vec::new();
        for (key, at) in self.found.iter().filter(|(key, _)| key.ends_with(suffix)) {
            let listed = self.listed.get(key).copied().unwrap_or(0);
            if at.len() > listed {
                wrong.push(format!("not found: {} {key} at {at:x?}", at.len()));
            }
        }
        for (key, count) in self.listed.iter().filter(|(key, _)| key.ends_with(suffix)) {
            let found = self.found.get(key).map_or(0, Vec::len);
            if complete && found < *count {
                wrong.push(format!("listed {count} times, silent {found} times: {key}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Per counter: weakenings tried, caught as a missing wait, caught as an LDS race.
#[derive(Default, Clone, Copy)]
struct Tally {
    tried: u32,
    register: u32,
    lds: u32,
}

#[test]
fn weakened_waits_are_caught() {
    let long = std::env::var_os("REFRAIN_LONG").is_some();
    let mut unneeded = Unneeded::read();
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let cases = all(&gpu);
        let mut table: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
        let kernels = kernels(&gpu);
        for kernel in &kernels {
            let of_kernel: Vec<&Case> = cases.iter().filter(|c| c.kernel == kernel.name).collect();
            if of_kernel.is_empty() {
                continue;
            }
            for (number, place) in kernel.places.iter().enumerate() {
                if !long && number % 5 != 0 {
                    continue;
                }
                let counter = place.field.counter;
                for (how, allowed) in [
                    ("by one", place.allowed + 1),
                    ("removed", most(place.field)),
                ] {
                    let program = weakened(&gpu, kernel, place, allowed);
                    let found = of_kernel.iter().find_map(|case| {
                        let found = findings(&gpu, case, &program, 1);
                        (!found.is_empty()).then_some(found)
                    });
                    let tally = table
                        .entry((counter.name(target.generation()), how))
                        .or_default();
                    tally.tried += 1;
                    match found.as_deref() {
                        Some([WaveFinding::LdsRace { .. }, ..]) => tally.lds += 1,
                        Some(_) => tally.register += 1,
                        None => unneeded.silent(
                            format!(
                                "{target} {} {} {how}",
                                kernel.name,
                                counter.name(target.generation())
                            ),
                            place.dword,
                        ),
                    }
                }
            }
        }
        for ((counter, how), t) in &table {
            eprintln!(
                "| {target} | {counter} | {how} | {} | {} | {} |",
                t.tried, t.register, t.lds
            );
        }
        let tried: u32 = table.values().map(|t| t.tried).sum();
        assert!(tried > 100, "{target}: only {tried} weakenings");
    }
    unneeded.check("cnt by one", long);
    unneeded.check("cnt removed", long);
}
