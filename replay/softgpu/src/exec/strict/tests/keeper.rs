//! A memory side for tests: exact footprints of all launches together in 4-byte cells, ranges that
//! nobody wrote, and the findings.

use crate::strict::hook::{Access, AtomicKind, Path, Watch, WaveFinding, WaveInvalidate, Who};
use std::collections::HashMap;

/// Bits of one 4-KiB page: cells read, cells written.
pub(super) struct Page {
    read: [u64; 16],
    written: [u64; 16],
}

/// See the module.
#[derive(Default)]
pub(super) struct Keeper {
    last: Option<(u64, usize)>,
    list: Vec<Page>,
    numbers: HashMap<u64, usize>,
    /// Ranges that are uninitialised until stored to.
    pub(super) undefined: Vec<(u64, u64)>,
    pub(super) found: Vec<(Who, WaveFinding)>,
    pub(super) loads: u64,
    pub(super) stores: u64,
    /// Atomics with their kind.
    pub(super) atomics: Vec<AtomicKind>,
    pub(super) invalidated: Vec<WaveInvalidate>,
    /// Every access in order, when asked for.
    pub(super) log: Option<Vec<(Who, u64, u32, bool)>>,
}

impl Keeper {
    fn page(&mut self, number: u64) -> &mut Page {
        let at = match self.last {
            Some((n, at)) if n == number => at,
            _ => {
                let list = &mut self.list;
                let at = *self.numbers.entry(number).or_insert_with(|| {
                    list.push(Page {
                        read: [0; 16],
                        written: [0; 16],
                    });
                    list.len() - 1
                });
                self.last = Some((number, at));
                at
            }
        };
        &mut self.list[at]
    }

    /// Marks `[from, from + len)`.
    fn mark(&mut self, from: u64, len: u64, write: bool) {
        let (mut cell, last) = (from / 4, (from + len - 1) / 4);
        while cell <= last {
            let end = last.min(cell | 63);
            let bits = (u64::MAX >> (63 - (end - cell))) << (cell % 64);
            let page = self.page(cell / 1024);
            let word = (cell / 64 % 16) as usize;
            if write {
                page.written[word] |= bits;
            } else {
                page.read[word] |= bits;
            }
            cell = end + 1;
        }
    }

    fn touch(&mut self, a: &Access<'_>, write: bool) {
        let first = a.at[a.lanes.trailing_zeros() as usize & 31];
        let each = u64::from(a.bytes);
        let mut wrong = 0;
        for (i, at) in a.at.iter().enumerate() {
            wrong |= at ^ a.at[0].wrapping_add(i as u64 * each);
        }
        if a.lanes == u32::MAX && wrong == 0 {
            self.mark(first, 32 * each, write);
        } else {
            let mut left = a.lanes;
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                left &= left - 1;
                self.mark(a.at[i], each, write);
            }
        }
        if let Some(log) = &mut self.log {
            log.push((a.who, first, a.lanes, write));
        }
    }

    fn bad(&self, a: &Access<'_>) -> u32 {
        if self.undefined.is_empty() {
            return 0;
        }
        let mut lanes = 0;
        for i in (0..32).filter(|i| a.lanes >> i & 1 == 1) {
            let (from, to) = (a.at[i], a.at[i] + u64::from(a.bytes));
            let hit = self.undefined.iter().any(|(s, e)| from < *e && to > *s);
            lanes |= u32::from(hit) << i;
        }
        lanes
    }
}

impl Watch for Keeper {
    fn load(&mut self, access: &Access<'_>) -> u32 {
        self.loads += 1;
        if matches!(access.path, Path::Scalar { .. }) {
            assert_eq!(access.lanes, 1);
        }
        self.touch(access, false);
        self.bad(access)
    }

    fn undefined(&mut self, access: &Access<'_>) -> u32 {
        self.bad(access)
    }

    fn store(&mut self, access: &Access<'_>, _poison: u32) {
        self.stores += 1;
        self.touch(access, true);
    }

    fn atomic(&mut self, access: &Access<'_>, kind: AtomicKind, _poison: u32) -> u32 {
        self.atomics.push(kind);
        self.touch(access, true);
        self.bad(access)
    }

    fn invalidate(&mut self, _who: Who, what: WaveInvalidate) {
        self.invalidated.push(what);
    }

    fn found(&mut self, who: Who, finding: WaveFinding) {
        self.found.push((who, finding));
    }
}
