//! Happens-before: who wrote something, and which of that an observer knows to be finished.
//!
//! Each queue numbers its launches, the host numbers its writes. A [`Clock`] is what one observer
//! knows: per queue the number up to which every launch is finished, single launches beyond it (a
//! completion signal tells of one launch, not of those before it), and the last host write.

use std::fmt;

/// Author of a write: a launch or the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Author(u64);

/// Bits of the number; the queue's index plus one lies above, 0 there is the host.
const NUMBER_BITS: u32 = 48;

impl Author {
    /// Launch `number` (from 1) of the queue with dense index `queue`.
    pub(crate) const fn launch(queue: u16, number: u64) -> Self {
        Self((queue as u64 + 1) << NUMBER_BITS | number)
    }

    /// Host write `number` (from 1).
    pub(crate) const fn host(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn number(self) -> u64 {
        self.0 & ((1 << NUMBER_BITS) - 1)
    }

    /// The queue's index, `None` for the host.
    pub(crate) const fn queue(self) -> Option<u16> {
        ((self.0 >> NUMBER_BITS) as u16).checked_sub(1)
    }

    pub(crate) const fn is_host(self) -> bool {
        self.0 >> NUMBER_BITS == 0
    }
}

impl fmt::Debug for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.queue() {
            Some(queue) => write!(f, "{queue}.{}", self.number()),
            None => write!(f, "host.{}", self.number()),
        }
    }
}

/// What an observer knows to be finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    done: Vec<u64>,
    /// Sorted; each beyond its queue's `done`.
    single: Vec<Author>,
    host: u64,
}

impl Clock {
    /// Whether the author's work is known to be finished.
    pub(crate) fn knows(&self, author: Author) -> bool {
        match author.queue() {
            None => author.number() <= self.host,
            Some(queue) => {
                let done = self.done.get(usize::from(queue)).copied().unwrap_or(0);
                author.number() <= done || self.single.binary_search(&author).is_ok()
            }
        }
    }

    /// Up to which number all launches of a queue are finished.
    pub(crate) fn done(&self, queue: u16) -> u64 {
        self.done.get(usize::from(queue)).copied().unwrap_or(0)
    }

    /// All launches of a queue up to `number` are finished.
    pub(crate) fn finish(&mut self, queue: u16, number: u64) {
        let queue = usize::from(queue);
        if self.done.len() <= queue {
            self.done.resize(queue + 1, 0);
        }
        if self.done[queue] < number {
            self.done[queue] = number;
            self.prune();
        }
    }

    /// One launch is finished.
    pub(crate) fn finish_one(&mut self, author: Author) {
        if self.knows(author) {
            return;
        }
        match author.queue() {
            None => self.host = author.number(),
            Some(queue) if self.done(queue) + 1 == author.number() => {
                self.finish(queue, author.number());
            }
            Some(_) => {
                if let Err(at) = self.single.binary_search(&author) {
                    self.single.insert(at, author);
                }
            }
        }
    }

    /// Everything that `other` knows is known too.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.done.len() < other.done.len() {
            self.done.resize(other.done.len(), 0);
        }
        for (mine, theirs) in self.done.iter_mut().zip(&other.done) {
            *mine = (*mine).max(*theirs);
        }
        self.host = self.host.max(other.host);
        if !other.single.is_empty() {
            self.single.extend_from_slice(&other.single);
            self.single.sort_unstable();
            self.single.dedup();
        }
        self.prune();
    }

    fn prune(&mut self) {
        if self.single.is_empty() {
            return;
        }
        let mut single = std::mem::take(&mut self.single);
        // Ascending, so a run that continues the prefix is absorbed in one pass.
        single.retain(|author| {
            let Some(queue) = author.queue() else {
                return false;
            };
            let done = self.done(queue);
            if author.number() == done + 1 {
                let index = usize::from(queue);
                if self.done.len() <= index {
                    self.done.resize(index + 1, 0);
                }
                self.done[index] = author.number();
                return false;
            }
            author.number() > done
        });
        self.single = single;
    }
}

#[cfg(test)]
mod tests {
    use super::{Author, Clock};

    #[test]
    fn single_launches_become_a_prefix_when_the_gap_closes() {
        let at = |number| Author::launch(1, number);
        let mut clock = Clock::default();
        clock.finish_one(at(3));
        assert!(clock.knows(at(3)) && !clock.knows(at(2)) && !clock.knows(at(1)));
        let mut other = Clock::default();
        other.finish_one(at(2));
        other.finish_one(Author::host(4));
        clock.join(&other);
        assert!(clock.knows(at(2)) && !clock.knows(at(1)));
        assert!(clock.knows(Author::host(4)) && !clock.knows(Author::host(5)));
        clock.finish(1, 1);
        let mut expected = Clock::default();
        expected.finish(1, 3);
        expected.finish_one(Author::host(4));
        assert_eq!(clock, expected);
        assert!(!clock.knows(Author::launch(0, 1)));
    }
}
