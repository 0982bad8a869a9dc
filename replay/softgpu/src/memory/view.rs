//! An immutable snapshot of the address space: what a running wave checks its addresses against.
//! A view keeps the memory it lists alive, so a free during a run cannot pull it away.

use super::backing::Backing;
use super::{Access, Rights};
use std::sync::Arc;

/// One live range of a view.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) rights: Rights,
    pub(super) _keep: Arc<Backing>,
}

/// The live allocations at one moment, sorted by address.
#[derive(Debug, Default)]
pub struct View {
    pub(super) spans: Vec<Span>,
    pub(super) epoch: u64,
}

/// The range that the last check hit; most accesses hit the same one again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastHit {
    pub(crate) base: u64,
    pub(crate) end: u64,
    pub(crate) rights: Rights,
}

impl Default for LastHit {
    fn default() -> Self {
        Self {
            base: 1,
            end: 0,
            rights: Rights::NONE,
        }
    }
}

impl LastHit {
    #[inline(always)]
    fn holds(&self, va: u64, len: u64, need: Rights) -> bool {
        // `end - base` cannot wrap: spans are built with base <= end.
        va >= self.base && va <= self.end && self.end - va >= len && self.rights.contains(need)
    }
}

impl LastHit {
    /// Whether `each` bytes at every one of 32 addresses lie in this range.
    #[inline(always)]
    fn holds_all(&self, at: &[u64; 32], each: u64, need: Rights) -> bool {
        let Some(room) = self
            .end
            .checked_sub(self.base)
            .and_then(|len| len.checked_sub(each))
        else {
            return false;
        };
        // A range is shorter than 2^63, so the sign bit tells an address before or past it.
        let mut outside = 0;
        for a in at {
            let offset = a.wrapping_sub(self.base);
            outside |= offset | room.wrapping_sub(offset);
        }
        outside >> 63 == 0 && self.rights.contains(need)
    }
}

impl View {
    /// Number of this snapshot; it grows with every alloc, free and change of rights.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether `[va, va+len)` lies in one allocation that grants `access`.
    #[inline(always)]
    pub(crate) fn allows(&self, hit: &mut LastHit, va: u64, len: u64, need: Rights) -> bool {
        hit.holds(va, len, need) || self.search(hit, va, len, need)
    }

    /// Whether `each` bytes at every one of 32 addresses lie in one allocation that grants `need`.
    #[inline(always)]
    pub(crate) fn allows_all(
        &self,
        hit: &mut LastHit,
        at: &[u64; 32],
        each: u64,
        need: Rights,
    ) -> bool {
        hit.holds_all(at, each, need)
            || (self.search(hit, at[0], each, need) && hit.holds_all(at, each, need))
    }

    #[inline(never)]
    fn search(&self, hit: &mut LastHit, va: u64, len: u64, need: Rights) -> bool {
        let at = self.spans.partition_point(|s| s.base <= va);
        let Some(span) = at.checked_sub(1).and_then(|i| self.spans.get(i)) else {
            return false;
        };
        let found = LastHit {
            base: span.base,
            end: span.end,
            rights: span.rights,
        };
        if found.holds(va, len, need) {
            *hit = found;
            return true;
        }
        false
    }

    /// Whether `[va, va+len)` lies in one allocation that grants `access` (slow path, no cache).
    pub fn contains(&self, va: u64, len: u64, access: Access) -> bool {
        self.allows(&mut LastHit::default(), va, len, access.needs())
    }
}
