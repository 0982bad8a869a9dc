//! Finds special tokens written out in a text: the leftmost, and of those the longest.

use std::collections::HashMap;
use std::ops::Range;

/// A special token.
#[derive(Debug, Clone)]
struct Special {
    text: String,
    id: u32,
    /// Whether it is also found where special tokens are not asked for (user-defined tokens).
    always: bool,
}

/// Special tokens by their first byte, the longest first.
#[derive(Debug, Clone, Default)]
pub(super) struct SpecialFinder {
    by_first: HashMap<u8, Vec<Special>>,
}

impl SpecialFinder {
    pub(super) fn add(&mut self, text: &str, id: u32, always: bool) {
        let Some(first) = text.as_bytes().first() else {
            return;
        };
        let list = self.by_first.entry(*first).or_default();
        let at = list.partition_point(|other| other.text.len() >= text.len());
        list.insert(
            at,
            Special {
                text: text.to_owned(),
                id,
                always,
            },
        );
    }

    /// The next special token of `text` at or after byte `from`.
    pub(super) fn next(&self, text: &str, from: usize, parse: bool) -> Option<(Range<usize>, u32)> {
        if self.by_first.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        (from..bytes.len()).find_map(|at| {
            let rest = bytes.get(at..)?;
            let candidates = self.by_first.get(rest.first()?)?;
            let wanted = |special: &&Special| {
                (parse || special.always) && rest.starts_with(special.text.as_bytes())
            };
            let found = candidates.iter().find(wanted)?;
            Some((at..at + found.text.len(), found.id))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftmost_then_longest() {
        let mut finder = SpecialFinder::default();
        finder.add("<a>", 1, false);
        finder.add("<a><b>", 2, false);
        finder.add("<b>", 3, false);
        finder.add("", 4, true);
        finder.add("é", 5, true);
        assert_eq!(finder.next("x<a><b>", 0, true), Some((1..7, 2)));
        assert_eq!(finder.next("x<a><b>", 2, true), Some((4..7, 3)));
        assert_eq!(finder.next("x<a><b>", 0, false), None);
        assert_eq!(finder.next("<a>é", 0, false), Some((3..5, 5)));
    }
}
