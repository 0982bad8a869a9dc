//! Strict mode on all shipped kernels: nothing is found, and the bytes are those of the fast path.

use super::cases::all;
use super::keeper::Keeper;
use super::support::Gpu;
use crate::exec::RunConfig;
use crate::exec::strict::run_strict;
use crate::isa::Target;
use std::sync::atomic::AtomicBool;

/// Another interleaving and other poison never make a finding, nor another result.
#[test]
fn every_seed_gives_the_same_bytes_and_no_finding() {
    let seeds = if std::env::var_os("REFRAIN_LONG").is_some() {
        100
    } else {
        2
    };
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let cases = all(&gpu);
        for case in &cases {
            let mut first = None;
            for seed in 1..=seeds {
                case.restore(&gpu);
                let mut keeper = Keeper::default();
                let config = RunConfig { seed, ..gpu.config };
                let batch = std::slice::from_ref(&case.dispatch);
                run_strict(
                    &gpu.memory,
                    batch,
                    &config,
                    &AtomicBool::new(false),
                    &mut keeper,
                )
                .unwrap();
                assert!(
                    keeper.found.is_empty(),
                    "{target} {}, seed {seed}",
                    case.name
                );
                let got = case.result(&gpu);
                let want = first.get_or_insert_with(|| got.clone());
                assert!(*want == got, "{target} {}, seed {seed}", case.name);
            }
        }
    }
}

#[test]
fn shipped_kernels_are_silent_and_agree_with_the_fast_path() {
    for target in Target::ALL {
        let compilers = || Gpu::of_every_compiler(target).into_iter();
        for ((set, fast), (_, strict)) in compilers().zip(compilers()) {
            silent_and_equal(&format!("{target} {set}"), &fast, &strict);
        }
    }
}

fn silent_and_equal(which: &str, fast: &Gpu, strict: &Gpu) {
    for (f, s) in all(fast).into_iter().zip(all(strict)) {
        let mut keeper = Keeper::default();
        let stats = fast.go(std::slice::from_ref(&f.dispatch)).unwrap();
        let batch = [s.dispatch.clone()];
        let stop = AtomicBool::new(false);
        let got = run_strict(&strict.memory, &batch, &strict.config, &stop, &mut keeper).unwrap();
        assert_eq!(stats, got, "{which} {}", f.name);
        let program = batch[0].program.strict();
        let texts: Vec<String> = keeper
            .found
            .iter()
            .take(6)
            .map(|(who, finding)| {
                let at = program.program.index_of(who.pc).unwrap_or(0);
                format!("{who:x?} {}: {finding:?}", program.program.text_of(at))
            })
            .collect();
        assert!(texts.is_empty(), "{which} {}\n{}", f.name, texts.join("\n"));
        assert!(keeper.loads > 0, "{}", f.name);
        assert!(f.result(fast) == s.result(strict), "{which} {}", f.name);
    }
}
