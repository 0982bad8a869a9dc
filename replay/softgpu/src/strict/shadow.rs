//! Which bytes were ever written. Fresh allocations are undefined as a whole; a page that is
//! written in part gets a bitmap, one that is written in full needs nothing. Who writes is left to
//! the callers.

use super::bits::{Bits, EMPTY, FULL_COUNT, PAGE, clear, count, spans, words};
use super::ranges::RangeMap;
use crate::memory::pointer;
use std::collections::HashMap;

/// No bitmap: every byte of the page is defined, or belongs to nobody.
pub(crate) const DEFINED: u32 = u32::MAX;

#[derive(Debug)]
struct Mixed {
    page: u64,
    bits: Box<Bits>,
    /// Defined bytes.
    count: u32,
    /// Host code may write it through plain pointers, which nobody sees.
    host: bool,
}

/// The definedness of guest memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// Whole pages that nobody wrote; the value says whether host code may dereference them.
    fresh: RangeMap<bool>,
    mixed: Vec<Mixed>,
    index: HashMap<u64, u32>,
    free: Vec<u32>,
}

impl Shadow {
    /// A fresh allocation. Bytes of its last page that lie past its end count as defined.
    pub(crate) fn allocate(&mut self, base: u64, len: u64, host: bool) {
        self.release(base, len);
        let whole = (base.next_multiple_of(PAGE), (base + len) / PAGE * PAGE);
        if whole.0 < whole.1 {
            self.fresh.set(whole.0, whole.1, host);
        }
        for (page, from, to) in spans(base, len) {
            if (from, to) != (0, PAGE as u32) {
                let slot = self.slot(page, true, host);
                if let Some(mixed) = self.mixed.get_mut(slot as usize) {
                    clear(&mut mixed.bits, from, to);
                    mixed.count = count(&mixed.bits);
                }
            }
        }
    }

    /// Forgets an allocation.
    pub(crate) fn release(&mut self, base: u64, len: u64) {
        self.define(base, len);
    }

    /// Bytes that were written.
    pub(crate) fn define(&mut self, va: u64, len: u64) {
        for (page, from, to) in spans(va, len) {
            if (from, to) == (0, PAGE as u32) {
                continue;
            }
            let slot = self.page(page);
            if slot != DEFINED {
                self.define_in(slot, from, to);
                self.settle(slot);
            }
        }
        let whole = (
            va.next_multiple_of(PAGE),
            va.saturating_add(len) / PAGE * PAGE,
        );
        if whole.0 < whole.1 {
            self.fresh.remove(whole.0, whole.1);
            self.drop_mixed(whole.0 / PAGE, whole.1 / PAGE);
        }
    }

    fn drop_mixed(&mut self, first: u64, end: u64) {
        if self.index.is_empty() {
            return;
        }
        let few = end - first <= self.index.len() as u64;
        let pages: Vec<u64> = if few {
            (first..end)
                .filter(|page| self.index.contains_key(page))
                .collect()
        } else {
            let inside = |page: &&u64| (first..end).contains(*page);
            self.index.keys().filter(inside).copied().collect()
        };
        for page in pages {
            if let Some(slot) = self.index.remove(&page) {
                self.free.push(slot);
            }
        }
    }

    /// The bitmap of a page, or [`DEFINED`]. Stays valid until [`Self::settle`] frees it.
    pub(crate) fn page(&mut self, page: u64) -> u32 {
        if let Some(&slot) = self.index.get(&page) {
            return slot;
        }
        let fresh = self.fresh.within(page * PAGE, (page + 1) * PAGE).next();
        let Some((_, _, host)) = fresh else {
            return DEFINED;
        };
        self.fresh.remove(page * PAGE, (page + 1) * PAGE);
        self.slot(page, false, host)
    }

    /// A bitmap for a page that has none, or the one that it has.
    fn slot(&mut self, page: u64, defined: bool, host: bool) -> u32 {
        if let Some(&slot) = self.index.get(&page) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or(self.mixed.len() as u32);
        if slot as usize == self.mixed.len() {
            self.mixed.push(Mixed {
                page,
                bits: Box::new(EMPTY),
                count: 0,
                host,
            });
        }
        if let Some(mixed) = self.mixed.get_mut(slot as usize) {
            let value = if defined { u64::MAX } else { 0 };
            mixed.bits.fill(value);
            mixed.page = page;
            mixed.count = if defined { FULL_COUNT } else { 0 };
            mixed.host = host;
        }
        self.index.insert(page, slot);
        slot
    }

    /// Marks bytes of a page with a bitmap as written. Returns whether the page is now defined.
    pub(crate) fn define_in(&mut self, slot: u32, from: u32, to: u32) -> bool {
        let Some(mixed) = self.mixed.get_mut(slot as usize) else {
            return true;
        };
        for (word, mask) in words(from, to) {
            let bits = &mut mixed.bits[word];
            mixed.count += (mask & !*bits).count_ones();
            *bits |= mask;
        }
        mixed.count == FULL_COUNT
    }

    /// Marks bytes as undefined: a wave stored what nothing defined.
    pub(crate) fn undefine(&mut self, va: u64, len: u64) {
        for (page, from, to) in spans(va, len) {
            let slot = match self.page(page) {
                DEFINED => self.slot(page, true, false),
                slot => slot,
            };
            if let Some(mixed) = self.mixed.get_mut(slot as usize) {
                clear(&mut mixed.bits, from, to);
                mixed.count = count(&mixed.bits);
            }
        }
    }

    /// Frees the bitmap of a page that is defined by now. No handle to it may be in use.
    pub(crate) fn settle(&mut self, slot: u32) {
        let Some(mixed) = self.mixed.get(slot as usize) else {
            return;
        };
        if mixed.count == FULL_COUNT && self.index.get(&mixed.page) == Some(&slot) {
            self.index.remove(&mixed.page);
            self.free.push(slot);
        }
    }

    /// Whether every byte of a part of a page with a bitmap is defined. Memory that host code may
    /// write unseen counts as written where it no longer holds the fill pattern.
    pub(crate) fn is_defined(&mut self, slot: u32, from: u32, to: u32) -> bool {
        let Some(mixed) = self.mixed.get_mut(slot as usize) else {
            return true;
        };
        if words(from, to).all(|(word, mask)| mixed.bits[word] & mask == mask) {
            return true;
        }
        if !mixed.host {
            return false;
        }
        let (page, mut all) = (mixed.page, true);
        for word in from / 4..to.div_ceil(4) {
            let (at, mask) = ((word / 16) as usize, 0xf << (word % 16 * 4));
            if mixed.bits[at] & mask == mask {
                continue;
            }
            // SAFETY: a page with a bitmap belongs to a live allocation (its bitmap goes when it is
            // freed), whose host memory exists in whole pages; the host may write at the same time,
            // which a volatile load of an aligned word tolerates.
            let value = unsafe {
                pointer(page * PAGE + u64::from(word) * 4)
                    .cast::<u32>()
                    .read_volatile()
            };
            if value == FILL {
                all = false;
                continue;
            }
            mixed.count += (mask & !mixed.bits[at]).count_ones();
            mixed.bits[at] |= mask;
        }
        all || words(from, to).all(|(word, mask)| mixed.bits[word] & mask == mask)
    }
}

/// A word of fresh memory.
const FILL: u32 = u32::from_ne_bytes([crate::memory::POISON_BYTE; 4]);

#[cfg(test)]
mod tests {
    use super::{DEFINED, PAGE, Shadow};

    fn defined(shadow: &mut Shadow, va: u64, len: u64) -> bool {
        super::spans(va, len).all(|(page, from, to)| match shadow.page(page) {
            DEFINED => true,
            slot => shadow.is_defined(slot, from, to),
        })
    }

    #[test]
    fn bytes_are_undefined_until_written_and_bounds_are_exact() {
        let mut shadow = Shadow::default();
        let base = 100 * PAGE;
        shadow.allocate(base, 3 * PAGE + 100, false);
        assert!(defined(&mut shadow, base - 8, 8));
        assert!(defined(&mut shadow, base + 3 * PAGE + 100, 8));
        assert!(!defined(&mut shadow, base + 3 * PAGE + 99, 1));
        shadow.define(base + 10, 5);
        assert!(defined(&mut shadow, base + 10, 5));
        assert!(!defined(&mut shadow, base + 9, 2) && !defined(&mut shadow, base + 14, 2));
        shadow.define(base, 2 * PAGE);
        assert!(defined(&mut shadow, base, 2 * PAGE) && !defined(&mut shadow, base, 2 * PAGE + 1));
        shadow.define(base + 2 * PAGE, PAGE + 100);
        assert!(defined(&mut shadow, base, 3 * PAGE + 100));
        assert!(shadow.index.is_empty());
        shadow.undefine(base + PAGE - 1, 2);
        assert!(!defined(&mut shadow, base + PAGE, 1) && defined(&mut shadow, base, PAGE - 1));
        shadow.release(base, 3 * PAGE + 100);
        assert!(shadow.index.is_empty() && shadow.fresh.len() == 0);
    }

    #[test]
    fn partial_writes_add_up() {
        let mut shadow = Shadow::default();
        shadow.allocate(0, PAGE, false);
        for at in (0..PAGE).step_by(2) {
            shadow.define(at, 1);
        }
        assert!(!defined(&mut shadow, 4, 2));
        for at in (1..PAGE).step_by(2) {
            shadow.define(at, 1);
        }
        assert!(defined(&mut shadow, 0, PAGE) && shadow.index.is_empty());
    }
}
