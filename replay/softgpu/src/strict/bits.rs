//! One bit per byte of a 4 KiB page.

/// Bytes of a page, as [`crate::memory::PAGE`].
pub(crate) const PAGE: u64 = crate::memory::PAGE;
/// Bits of a full page.
pub(crate) const FULL_COUNT: u32 = PAGE as u32;

/// A bitmap of a page; bit `i % 64` of word `i / 64` is byte `i`.
pub(crate) type Bits = [u64; (PAGE / 64) as usize];

/// No byte.
pub(crate) const EMPTY: Bits = [0; (PAGE / 64) as usize];

/// The words and masks of bytes `[from, to)` of a page.
#[inline(always)]
pub(crate) fn words(from: u32, to: u32) -> impl Iterator<Item = (usize, u64)> {
    let (first, last) = (from / 64, to.div_ceil(64));
    (first..last.min(64)).map(move |word| {
        let low = from.saturating_sub(word * 64);
        let high = (to - word * 64).min(64);
        let mask = (u64::MAX >> (64 - (high - low))) << low;
        (word as usize, mask)
    })
}

/// The pages that `[va, va + len)` touches, each with its part `[from, to)`.
#[inline(always)]
pub(crate) fn spans(va: u64, len: u64) -> impl Iterator<Item = (u64, u32, u32)> {
    let end = va.saturating_add(len);
    let pages = if len == 0 {
        0..0
    } else {
        va / PAGE..end.div_ceil(PAGE)
    };
    pages.map(move |page| {
        let start = page * PAGE;
        let from = va.saturating_sub(start) as u32;
        let to = (end - start).min(PAGE) as u32;
        (page, from, to)
    })
}

/// Sets bytes `[from, to)`, at least one.
#[inline(always)]
pub(crate) fn set(bits: &mut Bits, from: u32, to: u32) {
    let word = (from / 64) as usize & 63;
    if (to - 1) / 64 == from / 64 {
        let unused = (64 - (to - from) % 64) % 64;
        bits[word] |= (u64::MAX >> unused) << (from % 64);
        return;
    }
    for (word, mask) in words(from, to) {
        bits[word] |= mask;
    }
}

/// Clears bytes `[from, to)`.
pub(crate) fn clear(bits: &mut Bits, from: u32, to: u32) {
    for (word, mask) in words(from, to) {
        bits[word] &= !mask;
    }
}

/// Whether bytes `[from, to)` are all set.
#[inline(always)]
pub(crate) fn all(bits: &Bits, from: u32, to: u32) -> bool {
    let (first, last) = ((from / 64) as usize, ((to - 1) / 64) as usize);
    let low = u64::MAX << (from % 64);
    let high = u64::MAX >> (63 - (to - 1) % 64);
    if first == last {
        return bits[first & 63] & (low & high) == low & high;
    }
    let mut missing = (!bits[first & 63] & low) | (!bits[last & 63] & high);
    for word in &bits[(first + 1).min(last)..last] {
        missing |= !word;
    }
    missing == 0
}

/// Whether any of bytes `[from, to)` is set.
#[inline(always)]
pub(crate) fn any(bits: &Bits, from: u32, to: u32) -> bool {
    words(from, to).any(|(word, mask)| bits[word] & mask != 0)
}

/// Set bits.
pub(crate) fn count(bits: &Bits) -> u32 {
    bits.iter().map(|word| word.count_ones()).sum()
}

/// Calls `found` with each maximal run `[from, to)` of set bits, ascending.
pub(crate) fn runs(bits: &Bits, mut found: impl FnMut(u32, u32)) {
    let mut open: Option<u32> = None;
    for (index, &word) in (0u32..).zip(bits) {
        let base = index * 64;
        match (word, open) {
            (0, None) | (u64::MAX, Some(_)) => continue,
            (u64::MAX, None) => {
                open = Some(base);
                continue;
            }
            _ => {}
        }
        let mut at = 0;
        while at < 64 {
            let rest = word >> at;
            match open {
                None if rest == 0 => break,
                None => {
                    at += rest.trailing_zeros();
                    open = Some(base + at);
                }
                Some(from) => {
                    let ones = rest.trailing_ones();
                    if ones >= 64 - at {
                        break;
                    }
                    at += ones;
                    found(from, base + at);
                    open = None;
                }
            }
        }
    }
    if let Some(from) = open {
        found(from, PAGE as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::{Bits, EMPTY, all, any, clear, count, runs, set, spans};
    use proptest::prelude::{prop, prop_assert_eq, proptest};

    fn plain(bits: &Bits) -> Vec<bool> {
        (0..4096)
            .map(|i| bits[i / 64] >> (i % 64) & 1 == 1)
            .collect()
    }

    proptest! {
        #[test]
        fn bitmaps_follow_their_bytes(
            steps in prop::collection::vec((0u32..4096, 1u32..300, prop::bool::ANY), 0..20),
            probe in (0u32..4095, 1u32..300),
        ) {
            let (mut bits, mut bytes) = (EMPTY, vec![false; 4096]);
            for (from, len, value) in steps {
                let to = (from + len).min(4096);
                if value { set(&mut bits, from, to) } else { clear(&mut bits, from, to) }
                bytes[from as usize..to as usize].fill(value);
            }
            prop_assert_eq!(plain(&bits), bytes.clone());
            let (from, to) = (probe.0 as usize, (probe.0 + probe.1).min(4096) as usize);
            prop_assert_eq!(all(&bits, from as u32, to as u32), bytes[from..to].iter().all(|b| *b));
            prop_assert_eq!(any(&bits, from as u32, to as u32), bytes[from..to].iter().any(|b| *b));
            prop_assert_eq!(count(&bits) as usize, bytes.iter().filter(|b| **b).count());
            let mut again = vec![false; 4096];
            let mut last = 0;
            runs(&bits, |from, to| {
                assert!(from >= last && from < to && (from == 0 || !again[from as usize - 1]));
                last = to;
                again[from as usize..to as usize].fill(true);
            });
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn spans_split_at_pages() {
        let parts = |va, len| spans(va, len).collect::<Vec<_>>();
        assert_eq!(parts(4096, 4096), [(1, 0, 4096)]);
        assert_eq!(parts(4090, 10), [(0, 4090, 4096), (1, 0, 4)]);
        assert_eq!(parts(5, 0), []);
    }
}
