//! Sets of byte ranges and maps from bytes to values, both as sorted disjoint intervals. What the
//! bytes mean is left to the callers; all ranges are half open, `[start, end)`.

use std::collections::BTreeMap;

/// Sorted, disjoint, not touching, not empty ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Appends a range that begins at or after the last one's start.
    pub(crate) fn push(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self.0.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// The set of some ranges in any order.
    pub(crate) fn of(mut list: Vec<(u64, u64)>) -> Self {
        list.sort_unstable();
        let mut set = Self::default();
        for (start, end) in list {
            set.push(start, end);
        }
        set
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all ranges.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.iter().map(|(start, end)| end - start).sum()
    }

    /// The union of both.
    pub(crate) fn union(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        Self::of(self.iter().chain(other.iter()).collect())
    }

    /// What `[start, end)` and this set share.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.0.partition_point(|range| range.1 <= start);
        let rest = self.0.get(first..).unwrap_or_default().iter().copied();
        rest.take_while(move |range| range.0 < end)
            .map(move |range| (range.0.max(start), range.1.min(end)))
    }

    /// What both share.
    pub(crate) fn shared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let (few, many) = if self.0.len() <= other.0.len() {
            (self, other)
        } else {
            (other, self)
        };
        few.iter()
            .flat_map(move |(start, end)| many.within(start, end))
    }

    /// What is in this set and not in `other`.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for (start, end) in self.iter() {
            let mut at = start;
            for (from, to) in other.within(start, end) {
                left.push(at, from);
                at = to;
            }
            left.push(at, end);
        }
        left
    }
}

/// A value for some bytes. Neighbours with equal values are merged.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<V> {
    /// By start: end and value.
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            map: BTreeMap::new(),
        }
    }
}

impl<V: Copy + PartialEq> RangeMap<V> {
    /// Number of intervals.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Forgets the values of `[start, end)`.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((&at, &(to, value))) = self.map.range(..start).next_back()
            && to > start
        {
            self.map.insert(at, (start, value));
            if to > end {
                self.map.insert(end, (to, value));
                return;
            }
        }
        while let Some((&at, &(to, value))) = self.map.range(start..end).next() {
            self.map.remove(&at);
            if to > end {
                self.map.insert(end, (to, value));
            }
        }
    }

    /// Gives `[start, end)` a value.
    pub(crate) fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        self.remove(start, end);
        let (mut from, mut to) = (start, end);
        if let Some((&at, &(last, before))) = self.map.range(..start).next_back()
            && last == start
            && before == value
        {
            from = at;
        }
        if let Some(&(last, after)) = self.map.get(&end)
            && after == value
        {
            self.map.remove(&end);
            to = last;
        }
        self.map.insert(from, (to, value));
    }

    /// Parts of `[start, end)` that have a value.
    pub(crate) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, V)> + '_ {
        let before = self.map.range(..start).next_back();
        let before = before.filter(move |(_, (to, _))| *to > start);
        let inside = self.map.range(start..end.max(start));
        before
            .into_iter()
            .chain(inside)
            .map(move |(at, (to, value))| ((*at).max(start), (*to).min(end), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::{RangeMap, Ranges};
    use proptest::prelude::{Just, Strategy, prop, prop_assert_eq, prop_oneof, proptest};

    fn set(ranges: &[(u64, u64)]) -> Vec<bool> {
        let mut bytes = vec![false; 64];
        for (start, end) in ranges {
            bytes[*start as usize..*end as usize].fill(true);
        }
        bytes
    }

    fn some_ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0u64..64, 0u64..64), 0..8).prop_map(|list| {
            list.into_iter()
                .map(|(a, b)| (a.min(b), a.max(b)))
                .filter(|(a, b)| a < b)
                .collect()
        })
    }

    proptest! {
        #[test]
        fn sets_follow_their_bytes(a in some_ranges(), b in some_ranges()) {
            let (x, y) = (Ranges::of(a.clone()), Ranges::of(b.clone()));
            let (a, b) = (set(&a), set(&b));
            let each = |f: fn(bool, bool) -> bool| -> Vec<bool> {
                a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect()
            };
            prop_assert_eq!(set(&x.shared(&y).collect::<Vec<_>>()), each(|a, b| a && b));
            prop_assert_eq!(set(&x.union(&y).0), each(|a, b| a || b));
            prop_assert_eq!(set(&x.without(&y).0), each(|a, b| a && !b));
            prop_assert_eq!(x.bytes(), a.iter().filter(|b| **b).count() as u64);
        }

        #[test]
        fn maps_follow_their_bytes(
            steps in prop::collection::vec(
                (0u64..32, 0u64..32, prop_oneof![Just(0u8), Just(1), Just(2)]), 0..24
            )
        ) {
            let mut map = RangeMap::default();
            let mut bytes = [0u8; 32];
            for (a, b, value) in steps {
                let (start, end) = (a.min(b), a.max(b));
                if value == 0 { map.remove(start, end) } else { map.set(start, end, value) }
                bytes[start as usize..end as usize].fill(value);
            }
            let mut found = [0u8; 32];
            for (start, end, value) in map.within(0, 32) {
                prop_assert_eq!(found[start as usize], 0);
                found[start as usize..end as usize].fill(value);
            }
            prop_assert_eq!(found, bytes);
            let changes = (1..32).filter(|i| bytes[*i] != bytes[i - 1]).count();
            prop_assert_eq!(map.len() <= changes + 1, true);
            let part: Vec<_> = map.within(5, 9).collect();
            for (start, end, value) in part {
                prop_assert_eq!(start >= 5 && end <= 9 && start < end, true);
                prop_assert_eq!(bytes[start as usize], value);
            }
        }
    }
}
