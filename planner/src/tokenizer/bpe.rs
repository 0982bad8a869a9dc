//! Byte-pair merging of one piece: always the pair of lowest rank, the leftmost of equals.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Merge table: pair of token ids to rank and merged token id.
#[derive(Debug, Clone, Default)]
pub(super) struct Merges {
    by_pair: HashMap<(u32, u32), (u32, u32)>,
}

/// One symbol of the piece, in a doubly linked list by index.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    prev: usize,
    next: usize,
    gone: bool,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// A possible merge: rank, index of the left symbol, both ids when it was found, id of the merged token.
type Candidate = Reverse<(u32, usize, u32, u32, u32)>;

impl Merges {
    /// Adds a merge. The first of two equal pairs wins, as it has the lower rank.
    pub(super) fn insert(&mut self, pair: (u32, u32), rank: u32, merged: u32) {
        self.by_pair.entry(pair).or_insert((rank, merged));
    }

    /// Makes room for `more` merges.
    pub(super) fn reserve(&mut self, more: usize) {
        self.by_pair.reserve(more);
    }

    /// Number of merges.
    pub(super) fn len(&self) -> usize {
        self.by_pair.len()
    }

    /// Merges `ids`, one per byte of the piece, and appends the result to `out`.
    pub(super) fn apply(&self, ids: &[u32], out: &mut Vec<u32>) {
        let last = ids.len().saturating_sub(1);
        let link = |(at, id): (usize, &u32)| Symbol {
            id: *id,
            prev: at.checked_sub(1).unwrap_or(NONE),
            next: if at == last { NONE } else { at + 1 },
            gone: false,
        };
        let mut symbols: Vec<Symbol> = ids.iter().enumerate().map(link).collect();
        let mut queue = BinaryHeap::new();
        for at in 0..last {
            self.offer(&symbols, at, &mut queue);
        }
        while let Some(Reverse((_, at, left, right, merged))) = queue.pop() {
            let Some(symbol) = symbols.get(at).copied() else {
                continue;
            };
            let next = symbols.get(symbol.next).copied();
            let Some(next) = next.filter(|next| next.id == right) else {
                continue;
            };
            if symbol.gone || symbol.id != left {
                continue;
            }
            if let Some(absorbed) = symbols.get_mut(symbol.next) {
                absorbed.gone = true;
            }
            if let Some(grown) = symbols.get_mut(at) {
                (grown.id, grown.next) = (merged, next.next);
            }
            if let Some(after) = symbols.get_mut(next.next) {
                after.prev = at;
            }
            self.offer(&symbols, symbol.prev, &mut queue);
            self.offer(&symbols, at, &mut queue);
        }
        out.extend(
            symbols
                .iter()
                .filter(|symbol| !symbol.gone)
                .map(|symbol| symbol.id),
        );
    }

    /// Queues the merge of the symbol at `at` with its successor, if the table has it.
    fn offer(&self, symbols: &[Symbol], at: usize, queue: &mut BinaryHeap<Candidate>) {
        let Some(left) = symbols.get(at) else { return };
        let Some(right) = symbols.get(left.next) else {
            return;
        };
        if let Some((rank, merged)) = self.by_pair.get(&(left.id, right.id)) {
            queue.push(Reverse((*rank, at, left.id, right.id, *merged)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word for word: while a pair has a rank, merge the leftmost of the lowest rank.
    fn by_definition(merges: &Merges, ids: &[u32]) -> Vec<u32> {
        let mut ids = ids.to_vec();
        loop {
            let ranked = ids.windows(2).enumerate().filter_map(|(at, pair)| {
                let (rank, merged) = merges.by_pair.get(&(pair[0], pair[1]))?;
                Some((*rank, at, *merged))
            });
            let Some((_, at, merged)) = ranked.min() else {
                return ids;
            };
            ids.splice(at..at + 2, [merged]);
        }
    }

    /// A merge that was queued before its left symbol grew must not be done although its right symbol looks right.
    #[test]
    fn stale_merges_are_dropped() {
        let mut merges = Merges::default();
        let (x, y, r, w, z, bad) = (0, 1, 2, 3, 4, 5);
        merges.insert((y, r), 0, w);
        merges.insert((x, w), 1, z);
        merges.insert((x, y), 2, bad);
        let mut found = Vec::new();
        merges.apply(&[x, y, r, y], &mut found);
        assert_eq!(found, [z, y]);
        assert_eq!(found, by_definition(&merges, &[x, y, r, y]));
    }

    proptest! {
        #[test]
        fn equals_the_definition(
            table in proptest::collection::vec((0u32..12, 0u32..12), 0..12),
            ids in proptest::collection::vec(0u32..4, 0..40),
        ) {
            let mut merges = Merges::default();
            for (rank, pair) in table.into_iter().enumerate() {
                merges.insert(pair, rank as u32, 4 + rank as u32);
            }
            let mut found = Vec::new();
            merges.apply(&ids, &mut found);
            prop_assert_eq!(found, by_definition(&merges, &ids));
        }
    }
}
