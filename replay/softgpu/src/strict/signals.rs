//! What the value of a signal proves to whoever sees it.
//!
//! Each completion takes one from the value, so a value tells how many of the signal's packets are
//! done, not which. A completion counts as proven if it must be among that many in every order that
//! the packets could have finished in: those that come after it for certain do not count against it,
//! all others do, also those that are dispatched and not finished. Packets that the processor has not
//! taken yet are not known here. The last store, and additions by the host, are told by any value.

use super::clock::{Author, Clock};
use super::order::Observer;
use std::collections::HashMap;
use std::sync::Arc;

/// Completions remembered per signal; of more, the oldest is told by any value.
const KEPT: usize = 64;

/// A packet that takes one from the value when it completes.
#[derive(Debug)]
struct Completion {
    queue: u64,
    /// The launch; a barrier packet or an indirect buffer is none.
    author: Option<Author>,
    /// What is finished before the packet starts.
    knows: Arc<Clock>,
    /// What the signal tells of it, once it is done.
    seen: Option<Observer>,
}

impl Completion {
    /// Whether `later`, which was dispatched after this, starts only when this is done.
    fn before(&self, later: &Self) -> bool {
        match self.author {
            Some(author) => later.knows.knows(author),
            // The processor completes such a packet before it takes the next of the queue.
            None => self.queue == later.queue,
        }
    }
}

#[derive(Debug, Default)]
struct Signal {
    /// The value with no completion taken off.
    base: i64,
    /// What any value tells.
    any: Observer,
    /// What a value of `base` or less tells.
    seen: Observer,
    /// In the order of dispatch.
    list: Vec<Completion>,
}

impl Signal {
    /// Makes what any value below `base` by `done` proves part of what any value tells.
    fn prove(&mut self, done: i64) {
        let proven: Vec<bool> = (0..self.list.len())
            .map(|index| {
                let (before, after) = (&self.list[..=index], &self.list[index + 1..]);
                let mine = &self.list[index];
                let rivals = after.iter().filter(|other| !mine.before(other)).count();
                mine.seen.is_some() && (before.len() + rivals) as i64 <= done
            })
            .collect();
        let mut index = 0;
        for proven in proven {
            if proven {
                self.fold(index);
            } else {
                index += 1;
            }
        }
    }

    fn fold(&mut self, index: usize) {
        let completion = self.list.remove(index);
        self.base -= 1;
        if let Some(seen) = completion.seen {
            self.seen.join(&seen);
        }
    }

    fn push(&mut self, completion: Completion) {
        if self.list.len() == KEPT {
            self.fold(0);
        }
        self.list.push(completion);
    }
}

/// Every signal that somebody uses.
#[derive(Debug, Default)]
pub(super) struct Signals(HashMap<u64, Signal>);

impl Signals {
    /// The host stores a value, which tells what the host knows and forgets what was there.
    pub(super) fn store(&mut self, handle: u64, value: i64, host: &Observer) {
        let signal = self.0.entry(handle).or_default();
        signal.base = value;
        signal.any = host.clone();
        signal.seen = host.clone();
        signal.list.retain(|completion| completion.seen.is_none());
    }

    /// The host adds to the value.
    pub(super) fn add(&mut self, handle: u64, amount: i64, host: &Observer) {
        let signal = self.0.entry(handle).or_default();
        signal.base = signal.base.wrapping_add(amount);
        signal.any.join(host);
        signal.seen.join(host);
    }

    /// A launch is dispatched whose completion will take one from the value.
    pub(super) fn pend(&mut self, handle: u64, queue: u64, author: Author, knows: &Arc<Clock>) {
        self.0.entry(handle).or_default().push(Completion {
            queue,
            author: Some(author),
            knows: Arc::clone(knows),
            seen: None,
        });
    }

    /// A pending launch is done.
    pub(super) fn finish(&mut self, handle: u64, author: Author, seen: Observer) {
        let signal = self.0.entry(handle).or_default();
        let pending = |completion: &&mut Completion| completion.author == Some(author);
        match signal.list.iter_mut().find(pending) {
            Some(completion) => completion.seen = Some(seen),
            // It was folded for want of room.
            None => signal.seen.join(&seen),
        }
    }

    /// A packet that is no launch is done.
    pub(super) fn complete(&mut self, handle: u64, queue: u64, knows: &Arc<Clock>, seen: Observer) {
        self.0.entry(handle).or_default().push(Completion {
            queue,
            author: None,
            knows: Arc::clone(knows),
            seen: Some(seen),
        });
    }

    /// What `value` proves.
    pub(super) fn told(&mut self, handle: u64, value: i64) -> Option<&Observer> {
        let signal = self.0.get_mut(&handle)?;
        signal.prove(signal.base.wrapping_sub(value));
        // Who looked before somebody else saw a lower value learns nothing of that.
        let known = value <= signal.base;
        Some(if known { &signal.seen } else { &signal.any })
    }

    pub(super) fn forget(&mut self, handle: u64) {
        self.0.remove(&handle);
    }
}
