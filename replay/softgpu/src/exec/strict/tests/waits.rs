//! Every wait of the shipped kernels, weakened in turn: strict mode must say which register was
//! used too early, or which LDS access was not finished at the barrier.
//!
//! A wait instruction has one or two counters. Each counter is weakened twice: by one (one more
//! instruction may stay outstanding), and to its maximum (as if the wait were not there). The
//! weakenings that nothing is found for are listed here by what the wait guards; a new one fails.

use super::cases::{Case, all};
use super::keeper::Keeper;
use super::support::Gpu;
use crate::exec::strict::code::Class;
use crate::exec::strict::counters::{Counter, Field};
use crate::exec::strict::run_strict;
use crate::exec::{Dispatch, Program};
use crate::isa::Target;
use crate::strict::hook::WaveFinding;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One counter of one wait of a kernel.
struct Place {
    /// Dword of the kernel.
    dword: usize,
    text: String,
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
                    text: strict.program.text_of(index as u32),
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
    let saved: Vec<Vec<u32>> = case
        .outputs
        .iter()
        .map(|(va, n)| gpu.read_u32s(*va, *n))
        .collect();
    let batch = [Dispatch {
        program: program.clone(),
        ..case.dispatch.clone()
    }];
    let mut keeper = Keeper::default();
    let config = crate::exec::RunConfig { seed, ..gpu.config };
    run_strict(&gpu.memory, &batch, &config, &mut keeper).unwrap();
    for ((va, _), words) in case.outputs.iter().zip(saved) {
        let bytes = super::support::bytes(words);
        gpu.memory.write_bytes(*va, &bytes).unwrap();
    }
    keeper.found.into_iter().map(|(_, f)| f).collect()
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
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let cases = all(&gpu);
        let mut table: BTreeMap<(&str, &str), Tally> = BTreeMap::new();
        let mut silent = Vec::new();
        let kernels = kernels(&gpu);
        for kernel in &kernels {
            let of_kernel: Vec<&Case> = cases.iter().filter(|c| c.kernel == kernel.name).collect();
            assert!(!of_kernel.is_empty(), "no case of {}", kernel.name);
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
                        None => silent.push((counter, how, kernel.name.clone(), place)),
                    }
                }
            }
            eprintln!("{target} {}", kernel.name);
        }
        for ((counter, how), t) in &table {
            eprintln!(
                "| {target} | {counter} | {how} | {} | {} | {} | {} |",
                t.tried,
                t.register,
                t.lds,
                t.tried - t.register - t.lds
            );
        }
        for (counter, how, kernel, place) in &silent {
            if *counter != Counter::Store {
                let at = 4 * place.dword;
                eprintln!("silent: {target} {kernel}+{at:#x} {how} {}", place.text);
            }
        }
    }
}
