//! What words in memory tell who waits for them: the processor's writes as releases, WAIT_REG_MEM as
//! the acquire that goes with them. Judged like everything else by what must have happened, not by
//! what one interleaving did: a wait tells of the first write that could have let it pass.

use super::caches::Caches;
use super::clock::{Author, Clock};
use super::order::Observer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Writes remembered per word; with the oldest forgotten a wait tells of a later one at most.
const KEPT: usize = 32;
/// Words remembered.
const WORDS: usize = 4096;

/// A write of the packet processor that a wait may look for.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) author: Author,
    /// The word before and after.
    pub(crate) values: (u32, u32),
    /// What whoever sees the write knows.
    pub(super) seen: Observer,
    /// Caches invalidated at the end of the pipe, and what was finished then.
    pub(crate) caches: Caches,
    pub(crate) fresh: Arc<Clock>,
}

/// By address, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Words(BTreeMap<u64, VecDeque<Published>>);

impl Words {
    pub(crate) fn push(&mut self, va: u64, write: Published) {
        if self.0.len() >= WORDS && !self.0.contains_key(&va) {
            self.0.pop_first();
        }
        let list = self.0.entry(va).or_default();
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(write);
    }

    /// Somebody else wrote there, or the memory is gone.
    pub(crate) fn forget(&mut self, va: u64, len: u64) {
        let first = va.saturating_sub(3);
        let list: Vec<u64> = self
            .0
            .range(first..va.saturating_add(len))
            .map(|(at, _)| *at)
            .collect();
        for at in list {
            self.0.remove(&at);
        }
    }

    /// The write that a wait of somebody who knows `knows` tells of: values from before the last
    /// write that he knows cannot be seen any more.
    pub(crate) fn told(
        &self,
        va: u64,
        knows: &Clock,
        meets: &dyn Fn(u32) -> bool,
    ) -> Option<&Published> {
        let list = self.0.get(&va)?;
        let known = list.iter().rposition(|write| knows.knows(write.author));
        if known.is_none() && list.front().is_some_and(|write| meets(write.values.0)) {
            return None;
        }
        let mut candidates = list.iter().skip(known.unwrap_or(0));
        candidates.find(|write| meets(write.values.1))
    }

    /// The last write of a word, if it changed the word.
    pub(super) fn last(&self, va: u64) -> Option<&Observer> {
        let last = self.0.get(&va)?.back()?;
        (last.values.0 != last.values.1).then_some(&last.seen)
    }
}
