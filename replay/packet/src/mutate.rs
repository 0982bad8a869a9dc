//! Single-dword mutants of an indirect buffer, sorted by who notices: the linter, the register
//! model (which proves a mutant does the same work), or only execution.
//!
//! A survey measures the linter; it accepts nothing. What is left to execution is the business of a
//! proof on the software GPU.

use crate::decode::packets;
use crate::lint::{Context, lint_ib};
use crate::packet::Packet;
use crate::state::{Snapshot, snapshots};

/// How many mutants each judge noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Mutants judged.
    pub mutants: usize,
    /// Rejected by the linter.
    pub caught: usize,
    /// Accepted by the linter, with a warning.
    pub warned: usize,
    /// Accepted, and proved to do the same work by the register model.
    pub equivalent: usize,
    /// Accepted without a word, and not proved equivalent.
    pub left: usize,
}

/// A mutant that is left to execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Dword index.
    pub at: usize,
    /// The word as encoded.
    pub original: u32,
    /// The word in the mutant.
    pub mutant: u32,
}

/// What decides the work of a buffer: the register state of each dispatch, and the order of waits
/// and invalidates between dispatches.
struct Work {
    dispatches: Vec<Snapshot>,
    order: Vec<(usize, u32)>,
}

/// Stands for a wait in [`Work::order`], where an invalidate stands as its GCR word.
const WAIT: u32 = u32::MAX;

impl Work {
    /// `None` for words that do something the model does not know.
    fn of(words: &[u32]) -> Option<Self> {
        let dispatches = snapshots(words).ok()?;
        let mut order = Vec::new();
        let mut seen = 0;
        for item in packets(words) {
            match item.ok()?.packet {
                Packet::DispatchDirect { .. } => seen += 1,
                Packet::AcquireMem(row) if row.control == 0 && row.full_range() => {
                    order.push((seen, row.gcr));
                }
                Packet::Nop { .. } | Packet::Filler | Packet::SetShReg { .. } => {}
                packet if packet.is_wait() => order.push((seen, WAIT)),
                _ => return None,
            }
        }
        Some(Self { dispatches, order })
    }

    fn same(&self, other: &Self) -> bool {
        let pairs = self.dispatches.iter().zip(&other.dispatches);
        self.order == other.order
            && self.dispatches.len() == other.dispatches.len()
            && pairs.into_iter().all(|(a, b)| a.same_work(b))
    }
}

/// The mutants of a word: each bit flipped, 0, all ones, plus and minus 1; each once.
pub fn mutants(word: u32) -> Vec<u32> {
    let mut all: Vec<u32> = (0..32).map(|bit| word ^ 1 << bit).collect();
    all.extend([0, u32::MAX, word.wrapping_add(1), word.wrapping_sub(1)]);
    all.retain(|other| *other != word);
    all.sort_unstable();
    all.dedup();
    all
}

/// Mutates every `every`-th dword of an indirect buffer, one at a time, under the context's rules;
/// `left` is told of each mutant that only execution can judge.
pub fn survey(
    words: &[u32],
    cx: &Context<'_>,
    every: usize,
    mut left: impl FnMut(Mutant),
) -> Survey {
    let base = Work::of(words);
    let mut words = words.to_vec();
    let mut count = Survey::default();
    for at in (0..words.len()).step_by(every.max(1)) {
        let original = words[at];
        for mutant in mutants(original) {
            words[at] = mutant;
            count.mutants += 1;
            let report = lint_ib(&words, cx);
            let same = || {
                let found = Work::of(&words);
                base.as_ref()
                    .zip(found)
                    .is_some_and(|(base, found)| base.same(&found))
            };
            if report.rejects(&[]) {
                count.caught += 1;
            } else if same() {
                count.equivalent += 1;
            } else if !report.findings.is_empty() {
                count.warned += 1;
            } else {
                count.left += 1;
                left(Mutant {
                    at,
                    original,
                    mutant,
                });
            }
        }
        words[at] = original;
    }
    count
}
