//! Every dword of the golden model's indirect buffer, mutated: the linter catches it, the register
//! model proves it equivalent, or only execution can tell. The long form mutates every dword, the
//! short one a sample; the counts are printed, and what is left may not grow.

use refrain_kernels::Target;
use refrain_lower::{Policy, Transport, kernel_images, lower, mutation_survey, whole};
use refrain_recorder::EmbeddedObjects;
use refrain_replay::lifecycle;
use refrain_tests::{AUSTEN, Setup, long, plan, repository};

/// Dwords between mutated ones in the short form; prime, so that it meets every field of a launch.
const SAMPLE: usize = 61;

#[test]
fn every_dword_of_the_golden_models_buffer() {
    let every = if long() { 1 } else { SAMPLE };
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let plan = plan(&repository(AUSTEN), Setup::on(target)).unwrap();
        let images = lifecycle::images(&plan, &EmbeddedObjects).unwrap();
        let lowered = lower(&plan, &images, Transport::Pm4, Policy::default()).unwrap();
        let kernels = kernel_images(&plan, &images).unwrap();
        let mut words = std::collections::BTreeMap::new();
        let count = mutation_survey(
            &whole(&plan).unwrap(),
            &kernels,
            &lowered,
            every,
            |mutant| {
                *words.entry(mutant.original).or_insert(0u32) += 1;
            },
        )
        .unwrap();
        println!("{target}: {count:?}");
        for (word, times) in words {
            println!("  left to execution: {times} mutants of {word:#010x}");
        }
        assert!(count.mutants >= lowered.dwords().div_ceil(every) * 33);
        let sum = count.caught + count.warned + count.equivalent + count.left;
        assert_eq!(sum, count.mutants);
        assert!(
            count.caught * 100 > count.mutants * 90,
            "{target}: {count:?}"
        );
        assert!(count.left * 100 < count.mutants * 3, "{target}: {count:?}");
    }
}
