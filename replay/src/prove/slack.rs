//! Declared bytes against observed ones: how much wider than the truth declarations are.
//!
//! Strict mode reports every byte outside a declaration; what a declaration has too much is no fault,
//! but costs waits, so it is counted and shown.

use refrain_kernels::{WORDS, WordValues};
use refrain_planner::plan::{Extent, Plan, Region};
use refrain_softgpu::strict::TracedLaunch;
use serde::{Deserialize, Serialize};

/// Declared and observed bytes of one token at one position, summed over its launches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    /// Position of the token.
    pub position: u32,
    /// Bytes that launches may read.
    pub declared_reads: u64,
    /// Of those, bytes that they did not read (nor write before).
    pub unread: u64,
    /// Bytes that launches may write.
    pub declared_writes: u64,
    /// Of those, bytes that they did not write.
    pub unwritten: u64,
    /// The step with the most bytes declared too many, and how many.
    pub widest: Option<(String, u64)>,
}

/// Compares one token's trace with the plan. `base` gives a buffer's address, `words` the control
/// words when the token started.
pub(super) fn slack(
    plan: &Plan,
    position: u32,
    words: &WordValues,
    base: &dyn Fn(u32) -> u64,
    trace: &[TracedLaunch],
) -> Slack {
    let mut sum = Slack {
        position,
        declared_reads: 0,
        unread: 0,
        declared_writes: 0,
        unwritten: 0,
        widest: None,
    };
    let launches = plan.launches();
    for ((step, launch), traced) in launches.zip(trace) {
        let step = plan.steps.get(step as usize);
        let declared = |regions: &[Region]| {
            let ranges = regions.iter().map(|region| bytes(region, words, base));
            union(ranges.collect())
        };
        let writes: Vec<_> = traced.writes().collect();
        let touched = union(traced.reads().chain(writes.iter().copied()).collect());
        let (reads, wanted) = (declared(&launch.reads), declared(&launch.writes));
        let unread = length(&reads) - shared(&reads, &touched);
        let unwritten = length(&wanted) - shared(&wanted, &writes);
        sum.declared_reads += length(&reads);
        sum.declared_writes += length(&wanted);
        sum.unread += unread;
        sum.unwritten += unwritten;
        let wide = unread + unwritten;
        let most = sum.widest.as_ref().map_or(0, |row| row.1);
        if wide > most {
            sum.widest = step.map(|step| (step.name.clone(), wide));
        }
    }
    sum
}

/// The addresses of a region for the words' values; nothing for a word past its end.
fn bytes(region: &Region, words: &WordValues, base: &dyn Fn(u32) -> u64) -> (u64, u64) {
    let word = |offset: u32| {
        let row = WORDS.iter().find(|row| row.offset == offset);
        row.map_or(0, |row| words.get(row.word))
    };
    let (first, length) = match region.extent {
        Extent::Fixed { bytes } => (0, bytes),
        Extent::Row {
            word: at,
            stride,
            bytes,
            count,
        } => {
            let value = word(at);
            let inside = value < count;
            (u64::from(value) * stride, if inside { bytes } else { 0 })
        }
        Extent::RowsTo {
            word: at,
            stride,
            count,
        } => {
            let rows = u64::from(word(at).min(count.saturating_sub(1))) + 1;
            (0, rows * stride)
        }
    };
    let start = base(region.buffer) + region.offset + first;
    (start, start + length)
}

/// Sorted and disjoint.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ if start < end => out.push((start, end)),
            _ => {}
        }
    }
    out
}

fn length(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// Bytes in both of two sorted disjoint lists.
fn shared(first: &[(u64, u64)], second: &[(u64, u64)]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(a), Some(b)) = (first.get(i), second.get(j)) {
        sum += a.1.min(b.1).saturating_sub(a.0.max(b.0));
        if a.1 <= b.1 { i += 1 } else { j += 1 }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{bytes, length, shared, union};
    use refrain_kernels::{Word, WordValues};
    use refrain_planner::plan::{Extent, Region};

    #[test]
    fn bytes_are_counted_once_and_shared_ones_only_where_both_are() {
        let a = union(vec![(8, 12), (0, 4), (10, 20), (30, 30)]);
        assert_eq!(a, [(0, 4), (8, 20)]);
        assert_eq!(length(&a), 16);
        assert_eq!(shared(&a, &[(2, 10), (19, 40)]), 2 + 2 + 1);
        assert_eq!(shared(&a, &[]), 0);
    }

    #[test]
    fn regions_are_evaluated_at_the_words() {
        let mut words = WordValues::default();
        words.set(Word::Pos, 3);
        let word = Word::Pos.offset();
        let rows: [(Extent, (u64, u64)); 4] = [
            (Extent::Fixed { bytes: 7 }, (110, 117)),
            (
                Extent::Row {
                    word,
                    stride: 10,
                    bytes: 4,
                    count: 8,
                },
                (140, 144),
            ),
            (
                Extent::Row {
                    word,
                    stride: 10,
                    bytes: 4,
                    count: 3,
                },
                (140, 140),
            ),
            (
                Extent::RowsTo {
                    word,
                    stride: 10,
                    count: 3,
                },
                (110, 140),
            ),
        ];
        for (extent, expected) in rows {
            let region = Region {
                buffer: 1,
                offset: 10,
                extent,
            };
            assert_eq!(bytes(&region, &words, &|id| u64::from(id) * 100), expected);
        }
    }
}
