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
use refrain_packet::decode::packets;
use refrain_packet::lint::Context;
use refrain_packet::packet::Packet;
use refrain_packet::state::{Snapshot, snapshots};

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    mutants: usize,
    caught: usize,
    warned: usize,
    equivalent: usize,
    left: usize,
}

/// What decides the work of a buffer: snapshots, and the order of waits and invalidates between
/// dispatches.
type Work = (Vec<Snapshot>, Vec<(usize, u32)>);

fn work(words: &[u32]) -> Option<Work> {
    let shots = snapshots(words).ok()?;
    let mut order = Vec::new();
    let mut dispatches = 0;
    for item in packets(words) {
        match item.ok()?.packet {
            Packet::DispatchDirect { .. } => dispatches += 1,
            Packet::AcquireMem(row) if row.control == 0 && row.full_range() => {
                order.push((dispatches, row.gcr));
            }
            Packet::Nop { .. } | Packet::Filler | Packet::SetShReg { .. } => {}
            packet if packet.is_wait() => order.push((dispatches, u32::MAX)),
            // Anything else does something the model does not know.
            _ => return None,
        }
    }
    Some((shots, order))
}

fn same(a: &Work, b: &Work) -> bool {
    a.1 == b.1 && a.0.len() == b.0.len() && a.0.iter().zip(&b.0).all(|(a, b)| a.same_work(b))
}

fn mutants(word: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..32).map(|bit| word ^ 1 << bit).collect();
    all.extend([0, u32::MAX, word.wrapping_add(1), word.wrapping_sub(1)]);
    all.retain(|other| *other != word);
    all.sort_unstable();
    all.dedup();
    all
}

fn survey(target: Gfx) -> (Count, Vec<(usize, u32, u32)>) {
    let mut world = World::with(target, refrain_packet::pm4::Policy::DEFAULT, 8);
    let base = work(&world.words).unwrap();
    let mut count = Count::default();
    let mut left = Vec::new();
    for at in 0..world.words.len() {
        let original = world.words[at];
        for mutant in mutants(original) {
            world.words[at] = mutant;
            count.mutants += 1;
            // Without the reference stream: the rules alone must find it.
            let report = refrain_packet::lint::lint_ib(
                &world.words,
                &Context {
                    reference: None,
                    ..world.context()
                },
            );
            let equal = work(&world.words).is_some_and(|found| same(&found, &base));
            if report.rejects(&[]) {
                count.caught += 1;
            } else if equal {
                count.equivalent += 1;
            } else if !report.findings.is_empty() {
                count.warned += 1;
            } else {
                count.left += 1;
                left.push((at, original, mutant));
            }
        }
        world.words[at] = original;
    }
    (count, left)
}

#[test]
fn every_dword_of_one_buffer() {
    for target in [Gfx::Gfx1030, Gfx::Gfx1100, Gfx::Gfx1201] {
        let (count, left) = survey(target);
        println!("{target}: {count:?}");
        for (at, original, mutant) in &left {
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
