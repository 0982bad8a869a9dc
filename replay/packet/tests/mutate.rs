//! Every dword of one indirect buffer is mutated (32 bit flips, 0, all ones, plus and minus 1):
//! each mutant is caught by the linter, proved equivalent by the register model, or left to
//! execution. Nothing panics.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::World;
use refrain_packet::Gfx;
use refrain_packet::lint::Context;
use refrain_packet::mutate::{Mutant, Survey, mutants, survey};

fn of_eight_launches(target: Gfx) -> (Survey, Vec<Mutant>) {
    let world = World::with(target, refrain_packet::pm4::Policy::DEFAULT, 8);
    // Without the reference stream: the rules alone must find it.
    let context = Context {
        reference: None,
        ..world.context()
    };
    let mut left = Vec::new();
    let count = survey(&world.words, &context, 1, |mutant| left.push(mutant));
    (count, left)
}

#[test]
fn the_mutants_of_a_word_are_others_and_each_once() {
    for word in [0, 1, u32::MAX, 0x8000_0000, 0x1234_5678] {
        let all = mutants(word);
        assert!(!all.contains(&word) && all.windows(2).all(|pair| pair[0] < pair[1]));
        assert!((33..=36).contains(&all.len()), "{word:#x}: {}", all.len());
    }
}

#[test]
fn every_dword_of_one_buffer() {
    for target in [Gfx::Gfx1030, Gfx::Gfx1100, Gfx::Gfx1201] {
        let (count, left) = of_eight_launches(target);
        println!("{target}: {count:?}");
        for Mutant {
            at,
            original,
            mutant,
        } in &left
        {
            println!("  left: dword {at} {original:#010x} -> {mutant:#010x}");
        }
        let sum = count.caught + count.warned + count.equivalent + count.left;
        assert_eq!(sum, count.mutants);
        assert!(
            count.caught * 100 > count.mutants * 75,
            "{target}: {count:?}"
        );
        // What is left is known: hints and sizes that only execution can judge.
        assert!(count.left * 100 < count.mutants * 3, "{target}: {count:?}");
    }
}
