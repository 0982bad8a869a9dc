//! What launches are declared to touch, as data that is evaluated at the words' values of the
//! moment. Where declarations come from (a plan) is left to the callers.

use super::ranges::Ranges;
use std::collections::HashMap;
use std::sync::Arc;

/// A named range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredBuffer {
    /// Name for reports.
    pub name: Arc<str>,
    /// First address.
    pub va: u64,
    /// Bytes.
    pub len: u64,
}

/// How far a declared range reaches. A word is a little-endian u32 in memory, read when the launch
/// starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredExtent {
    /// So many bytes.
    Bytes(u64),
    /// One row: `bytes` bytes at `word * stride`, for words below `count`.
    Row {
        /// Address of the word.
        word: u64,
        /// Bytes between rows.
        stride: u64,
        /// Bytes of a row.
        bytes: u64,
        /// Word values in range.
        count: u32,
    },
    /// All rows up to and including the word, which is below `count`.
    RowsTo {
        /// Address of the word.
        word: u64,
        /// Bytes between rows.
        stride: u64,
        /// Word values in range.
        count: u32,
    },
}

/// Bytes that a launch may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredRange {
    /// First address for a word of 0.
    pub va: u64,
    /// How far.
    pub extent: DeclaredExtent,
}

impl DeclaredRange {
    /// The bytes, given the words. A word out of range reaches nothing: the launch is past its end.
    fn bytes(&self, word: &dyn Fn(u64) -> u32) -> (u64, u64) {
        let (start, len) = match self.extent {
            DeclaredExtent::Bytes(bytes) => (0, bytes),
            DeclaredExtent::Row {
                word: at,
                stride,
                bytes,
                count,
            } => {
                let value = word(at);
                let row = u64::from(value).saturating_mul(stride);
                (row, if value < count { bytes } else { 0 })
            }
            DeclaredExtent::RowsTo {
                word: at,
                stride,
                count,
            } => {
                let rows = u64::from(word(at).min(count.saturating_sub(1))) + 1;
                (0, rows.saturating_mul(stride))
            }
        };
        let start = self.va.saturating_add(start);
        (start, start.saturating_add(len))
    }
}

/// One argument and what the launch may do behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredArg {
    /// Name for reports.
    pub name: Arc<str>,
    /// The pointer that is passed.
    pub va: u64,
    /// Bytes that may be read.
    pub reads: Vec<DeclaredRange>,
    /// Bytes that may be written.
    pub writes: Vec<DeclaredRange>,
}

/// One launch of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredLaunch {
    /// Step name for reports.
    pub step: Arc<str>,
    /// Kernel that the launch must run.
    pub kernel: Arc<str>,
    /// Arguments with effects.
    pub args: Vec<DeclaredArg>,
}

/// A token's launches in order; every queue repeats them from its next launch on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declarations {
    /// Buffers by name.
    pub buffers: Vec<DeclaredBuffer>,
    /// Launches of one token.
    pub launches: Vec<DeclaredLaunch>,
}

/// The declared bytes of one launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) reads: Ranges,
    pub(crate) writes: Ranges,
}

/// Declarations in use.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    table: Declarations,
    /// Where each queue is in the token.
    next: HashMap<u64, Place>,
}

/// Where a queue is in the token.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    next: usize,
    /// What was due when the last launch was another one: that one may have come in between.
    due: Option<usize>,
}

/// Which declared launch a launch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnTaken {
    /// The launch that was due.
    pub(crate) due: usize,
    /// The launch that it is taken for; none where no declared launch runs its kernel.
    pub(crate) taken: Option<usize>,
}

impl Declared {
    pub(crate) fn new(mut table: Declarations) -> Self {
        table.buffers.sort_by_key(|buffer| buffer.va);
        Self {
            table,
            next: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.launches.is_empty()
    }

    /// The turn of a queue's next launch. Where another kernel is due, the launch is taken for the
    /// next one of the token that runs its kernel (the ones between are missing), and the launch
    /// after it may also be the one that was due (it came in between). A kernel that is nowhere
    /// declared passes no turn.
    pub(crate) fn turn(&mut self, queue: u64, kernel: &str) -> Option<TurnTaken> {
        let launches = &self.table.launches;
        let count = launches.len();
        let runs = |number: &usize| launches.get(*number).is_some_and(|l| &*l.kernel == kernel);
        if count == 0 {
            return None;
        }
        let place = self.next.entry(queue).or_default();
        let next = place.next;
        let on_turn = [Some(next), place.due].into_iter().flatten().find(runs);
        if let Some(number) = on_turn {
            let next = (number + 1) % count;
            *place = Place { next, due: None };
            return Some(TurnTaken {
                due: number,
                taken: Some(number),
            });
        }
        let taken = (1..count).map(|ahead| (next + ahead) % count).find(runs);
        if let Some(number) = taken {
            *place = Place {
                next: (number + 1) % count,
                due: Some(next),
            };
        }
        Some(TurnTaken { due: next, taken })
    }

    pub(crate) fn launch(&self, number: usize) -> Option<&DeclaredLaunch> {
        self.table.launches.get(number)
    }

    /// The declared bytes of a launch.
    pub(crate) fn allowed(&self, number: usize, word: &dyn Fn(u64) -> u32) -> Allowed {
        let Some(launch) = self.launch(number) else {
            return Allowed::default();
        };
        let all = |pick: fn(&DeclaredArg) -> &Vec<DeclaredRange>| {
            let ranges = launch.args.iter().flat_map(pick);
            Ranges::of(ranges.map(|range| range.bytes(word)).collect())
        };
        Allowed {
            reads: all(|arg| &arg.reads),
            writes: all(|arg| &arg.writes),
        }
    }

    /// The declared buffer that holds `va`.
    pub(crate) fn buffer(&self, va: u64) -> Option<&DeclaredBuffer> {
        let after = self.table.buffers.partition_point(|buffer| buffer.va <= va);
        let found = self.table.buffers.get(after.checked_sub(1)?)?;
        (va - found.va < found.len).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Declarations, Declared, DeclaredArg, DeclaredExtent, DeclaredLaunch, DeclaredRange,
        TurnTaken,
    };

    #[test]
    fn ranges_follow_their_words() {
        let range = |extent| DeclaredRange { va: 1000, extent };
        let row = DeclaredExtent::Row {
            word: 8,
            stride: 64,
            bytes: 16,
            count: 4,
        };
        let to = DeclaredExtent::RowsTo {
            word: 8,
            stride: 64,
            count: 4,
        };
        for (extent, word, expected) in [
            (DeclaredExtent::Bytes(7), 9, (1000, 1007)),
            (row, 0, (1000, 1016)),
            (row, 3, (1192, 1208)),
            (row, 4, (1256, 1256)),
            (to, 0, (1000, 1064)),
            (to, 9, (1000, 1256)),
        ] {
            assert_eq!(
                range(extent).bytes(&|_| word),
                expected,
                "{extent:?} at {word}"
            );
        }
    }

    #[test]
    fn queues_take_turns_and_a_stranger_passes_none() {
        let launch = |kernel: &str| DeclaredLaunch {
            kernel: kernel.into(),
            args: vec![DeclaredArg::default()],
            ..DeclaredLaunch::default()
        };
        let launches = vec![launch("a"), launch("b")];
        let mut declared = Declared::new(Declarations {
            launches,
            ..Declarations::default()
        });
        let turn = |due, taken| Some(TurnTaken { due, taken });
        assert_eq!(declared.turn(1, "a"), turn(0, Some(0)));
        assert_eq!(declared.turn(2, "x"), turn(0, None));
        assert_eq!(declared.turn(1, "b"), turn(1, Some(1)));
        assert_eq!(declared.turn(1, "a"), turn(0, Some(0)));
        assert_eq!(declared.turn(2, "a"), turn(0, Some(0)));
        assert_eq!(Declared::new(Declarations::default()).turn(1, "a"), None);
    }

    /// The token a b a c with launches left out or put in between: every launch after the fault is
    /// on its turn again.
    #[test]
    fn a_missing_or_extra_launch_costs_one_turn() {
        let launch = |kernel: &str| DeclaredLaunch {
            kernel: kernel.into(),
            ..DeclaredLaunch::default()
        };
        let launches: Vec<_> = ["a", "b", "a", "c"].into_iter().map(launch).collect();
        // Kernels that run; (due, taken) of each launch.
        type Case<'a> = (&'a str, &'a [(usize, Option<usize>)]);
        let cases: [Case<'_>; 5] = [
            (
                "abac",
                &[(0, Some(0)), (1, Some(1)), (2, Some(2)), (3, Some(3))],
            ),
            ("aac", &[(0, Some(0)), (1, Some(2)), (3, Some(3))]),
            (
                "aaba",
                &[(0, Some(0)), (1, Some(2)), (1, Some(1)), (2, Some(2))],
            ),
            (
                "axba",
                &[(0, Some(0)), (1, None), (1, Some(1)), (2, Some(2))],
            ),
            (
                "abaab",
                &[
                    (0, Some(0)),
                    (1, Some(1)),
                    (2, Some(2)),
                    (3, Some(0)),
                    (1, Some(1)),
                ],
            ),
        ];
        for (ran, expected) in cases {
            let mut declared = Declared::new(Declarations {
                launches: launches.clone(),
                ..Declarations::default()
            });
            let kernels = ran.chars().map(|kernel| kernel.to_string());
            let turns = kernels.filter_map(|kernel| declared.turn(1, &kernel));
            let found: Vec<_> = turns.map(|turn| (turn.due, turn.taken)).collect();
            assert_eq!(found, expected, "{ran}");
        }
    }
}
