//! Who knows what: queues, signals and the host as observers, and the caches of each queue.
//!
//! | what happens | what it orders |
//! |---|---|
//! | the host rings a doorbell | packets up to the id rung know what the host knows |
//! | a packet's barrier bit, CS_PARTIAL_FLUSH | the queue knows its own earlier launches |
//! | a launch or packet completes its signal | the signal knows what that launch knew, and the launch |
//! | a barrier packet's dependencies are met | the queue knows what their values prove |
//! | the host sees a signal's value | the host knows what that value proves (`signals`) |
//! | an acquire fence or ACQUIRE_MEM | each cache that it names is fresh as of what the queue knows |
//! | a release fence of system scope, GL2_WB | the L2 was written back as of what is known there |
//! | WRITE_DATA, COPY_DATA with WR_CONFIRM | the queue knows the write |
//! | RELEASE_MEM writes | the word knows the queue's earlier launches, and its cache operations |
//! | WAIT_REG_MEM passes | the queue knows what the word does (`publish`) |
//!
//! All threads of the host count as one observer: their own synchronisation is theirs to prove.

use super::caches::Caches;
use super::clock::{Author, Clock};
use super::publish::{Published, Words};
use super::signals::Signals;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a launch may rely on, taken when it is dispatched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// What is finished before the launch starts.
    pub(crate) knows: Arc<Clock>,
    /// Per cache, what was finished when it was last invalidated.
    pub(crate) fresh: [Arc<Clock>; Caches::COUNT],
    written_back: Arc<Clock>,
}

impl Snapshot {
    /// The L2 is written back once what is known is finished.
    pub(crate) fn write_back(&mut self) {
        self.written_back = Arc::clone(&self.knows);
    }

    /// What is known to be written back.
    pub(crate) fn written_back(&self) -> &Clock {
        &self.written_back
    }

    /// The caches of `path` that may still hold what was there before `author` wrote.
    pub(crate) fn stale(&self, path: Caches, author: Author) -> Caches {
        path.indices()
            .filter(|index| !self.fresh[*index].knows(author))
            .fold(Caches::NONE, |set, index| set.with(Caches(1 << index)))
    }
}

#[derive(Debug, Default)]
struct QueueOrder {
    id: u64,
    launched: u64,
    now: Snapshot,
    /// Doorbells that the packet processor has not reached: packet id and what the host knew.
    bells: VecDeque<(u64, Arc<Clock>)>,
    gone: bool,
}

/// A signal, or the host.
#[derive(Clone, Debug, Default)]
pub(super) struct Observer {
    knows: Clock,
    written_back: Clock,
}

impl Observer {
    pub(super) fn join(&mut self, other: &Self) {
        self.knows.join(&other.knows);
        self.written_back.join(&other.written_back);
    }
}

/// Every observer of one software GPU.
#[derive(Debug, Default)]
pub(crate) struct Order {
    queues: Vec<QueueOrder>,
    index: HashMap<u64, u16>,
    signals: Signals,
    words: Words,
    host: Observer,
    host_writes: u64,
}

impl Order {
    /// Dense index of a queue. That of a removed queue is used again: its launches go on counting.
    pub(crate) fn index(&mut self, id: u64) -> u16 {
        if let Some(&index) = self.index.get(&id) {
            return index;
        }
        let index = match self.queues.iter().position(|queue| queue.gone) {
            Some(index) => index,
            None => {
                self.queues.push(QueueOrder::default());
                self.queues.len() - 1
            }
        };
        let queue = &mut self.queues[index];
        self.index.remove(&queue.id);
        *queue = QueueOrder {
            id,
            launched: queue.launched,
            ..QueueOrder::default()
        };
        self.index.insert(id, index as u16);
        index as u16
    }

    fn queue(&mut self, id: u64) -> &mut QueueOrder {
        let index = usize::from(self.index(id));
        &mut self.queues[index]
    }

    /// A queue that executes nothing more.
    pub(crate) fn remove(&mut self, id: u64) {
        let queue = self.queue(id);
        queue.gone = true;
        queue.bells.clear();
    }

    /// The host rang for the packets up to `packet`.
    pub(crate) fn rang(&mut self, id: u64, packet: u64) {
        let knows = Arc::new(self.host.knows.clone());
        self.queue(id).bells.push_back((packet, knows));
    }

    /// The packet processor takes `packet`.
    pub(crate) fn take(&mut self, id: u64, packet: u64) {
        let queue = self.queue(id);
        while queue.bells.front().is_some_and(|bell| bell.0 < packet) {
            queue.bells.pop_front();
        }
        if let Some((last, knows)) = queue.bells.front() {
            let (last, knows) = (*last, Arc::clone(knows));
            if last == packet {
                queue.bells.pop_front();
            }
            Arc::make_mut(&mut queue.now.knows).join(&knows);
        }
    }

    /// All earlier launches of the queue have finished.
    pub(crate) fn wait(&mut self, id: u64) {
        let index = self.index(id);
        let queue = &mut self.queues[usize::from(index)];
        Arc::make_mut(&mut queue.now.knows).finish(index, queue.launched);
    }

    /// Caches are invalidated.
    pub(crate) fn invalidate(&mut self, id: u64, caches: Caches) {
        let queue = self.queue(id);
        for index in caches.indices() {
            queue.now.fresh[index] = Arc::clone(&queue.now.knows);
        }
    }

    /// The L2 is written back.
    pub(crate) fn write_back(&mut self, id: u64) {
        let queue = self.queue(id);
        queue.now.written_back = Arc::clone(&queue.now.knows);
    }

    /// What the queue knows to be written back.
    pub(crate) fn written_back(&mut self, id: u64) -> Arc<Clock> {
        Arc::clone(&self.queue(id).now.written_back)
    }

    /// A launch is dispatched.
    pub(crate) fn launch(&mut self, id: u64) -> (Author, Snapshot) {
        let index = self.index(id);
        let queue = &mut self.queues[usize::from(index)];
        queue.launched += 1;
        (Author::launch(index, queue.launched), queue.now.clone())
    }

    /// A launch has finished: its release fence and its completion signal take effect.
    pub(crate) fn finish(&mut self, author: Author, at: &Snapshot, release: bool, signal: u64) {
        let mut seen = Observer {
            knows: (*at.knows).clone(),
            written_back: (*at.written_back).clone(),
        };
        seen.knows.finish_one(author);
        if release {
            seen.written_back = seen.knows.clone();
            if let Some(queue) = author
                .queue()
                .and_then(|q| self.queues.get_mut(usize::from(q)))
            {
                Arc::make_mut(&mut queue.now.written_back).join(&seen.written_back);
            }
        }
        if signal != 0 {
            self.signals.finish(signal, author, seen);
        }
    }

    /// What follows in the queue knows that the packet processor's write is done.
    pub(crate) fn confirm(&mut self, id: u64, author: Author) {
        Arc::make_mut(&mut self.queue(id).now.knows).finish_one(author);
    }

    /// An event at the end of the pipe comes behind everything in front of it in its queue.
    pub(crate) fn end_of_pipe(author: Author, at: &mut Snapshot) {
        if let Some(queue) = author.queue() {
            Arc::make_mut(&mut at.knows).finish(queue, author.number() - 1);
        }
    }

    /// The packet processor has written a word, having known `at` and invalidated `caches`.
    pub(crate) fn publish(
        &mut self,
        author: Author,
        va: u64,
        values: (u32, u32),
        at: &Snapshot,
        caches: Caches,
    ) {
        let mut seen = Observer {
            knows: (*at.knows).clone(),
            written_back: (*at.written_back).clone(),
        };
        seen.knows.finish_one(author);
        let write = Published {
            author,
            values,
            seen,
            caches,
            fresh: Arc::clone(&at.knows),
        };
        self.words.push(va, write);
    }

    /// Words that somebody else than the processor wrote, or that are gone.
    pub(crate) fn forget_words(&mut self, va: u64, len: u64) {
        self.words.forget(va, len);
    }

    /// A wait for a word of memory passes; `host` is the word's writer, if that was the host.
    pub(crate) fn wait_word(
        &mut self,
        id: u64,
        va: u64,
        meets: &dyn Fn(u32) -> bool,
        host: Option<Author>,
    ) {
        let index = self.index(id);
        let now = &mut self.queues[usize::from(index)].now;
        if let Some(author) = host {
            Arc::make_mut(&mut now.knows).finish_one(author);
        }
        let Some(write) = self.words.told(va, &now.knows, meets) else {
            return;
        };
        Arc::make_mut(&mut now.knows).join(&write.seen.knows);
        Arc::make_mut(&mut now.written_back).join(&write.seen.written_back);
        // The caches are modelled per queue; only its own are known to be fresh.
        if write.author.queue() == Some(index) {
            for cache in write.caches.indices() {
                Arc::make_mut(&mut now.fresh[cache]).join(&write.fresh);
            }
        }
    }

    /// The host reads a word; a value that the processor changed tells it of the write.
    pub(crate) fn host_looks(&mut self, va: u64) {
        if let Some(seen) = self.words.last(va) {
            self.host.join(seen);
        }
    }

    /// A packet that is no launch completes.
    pub(crate) fn complete(&mut self, id: u64, release: bool, signal: u64) {
        if release {
            self.write_back(id);
        }
        if signal != 0 {
            let queue = self.queue(id);
            let seen = Observer {
                knows: (*queue.now.knows).clone(),
                written_back: (*queue.now.written_back).clone(),
            };
            let knows = Arc::clone(&queue.now.knows);
            self.signals.complete(signal, id, &knows, seen);
        }
    }

    /// A dispatched launch will complete this signal.
    pub(crate) fn pend(&mut self, id: u64, author: Author, at: &Snapshot, signal: u64) {
        self.signals.pend(signal, id, author, &at.knows);
    }

    /// A barrier packet passes on a signal, whose value was 0.
    pub(crate) fn depend(&mut self, id: u64, signal: u64) {
        if let Some(seen) = self.signals.told(signal, 0).cloned() {
            let queue = self.queue(id);
            Arc::make_mut(&mut queue.now.knows).join(&seen.knows);
            Arc::make_mut(&mut queue.now.written_back).join(&seen.written_back);
        }
    }

    /// The host stores a value to a signal, which forgets what was there.
    pub(crate) fn host_store(&mut self, signal: u64, value: i64) {
        self.signals.store(signal, value, &self.host);
    }

    /// The host adds to a signal; what it acquires by that, [`Self::host_acquire`] says.
    pub(crate) fn host_add(&mut self, signal: u64, amount: i64) {
        self.signals.add(signal, amount, &self.host);
    }

    /// The host saw a signal's value.
    pub(crate) fn host_acquire(&mut self, signal: u64, value: i64) {
        if let Some(seen) = self.signals.told(signal, value) {
            self.host.join(seen);
        }
    }

    /// A signal is destroyed.
    pub(crate) fn forget_signal(&mut self, signal: u64) {
        self.signals.forget(signal);
    }

    /// The host writes.
    pub(crate) fn host_write(&mut self) -> Author {
        self.host_writes += 1;
        let author = Author::host(self.host_writes);
        self.host.knows.finish_one(author);
        author
    }

    /// Whether the host knows that the author's work is finished.
    pub(crate) fn host_knows(&self, author: Author) -> bool {
        self.host.knows.knows(author)
    }

    /// Whether the host knows that the author's writes have left the L2.
    pub(crate) fn host_sees(&self, author: Author) -> bool {
        author.is_host() || self.host.written_back.knows(author)
    }

    /// Whether everything that is still to come knows that `author` is finished.
    pub(crate) fn settled(&self, author: Author) -> bool {
        self.host_knows(author)
            && self.queues.iter().all(|queue| {
                queue.gone
                    || queue.now.knows.knows(author)
                    || match queue.bells.front() {
                        // An idle queue runs nothing before the host rings again.
                        None => true,
                        Some((_, knows)) => knows.knows(author),
                    }
            })
    }

    /// Id of the queue with a dense index.
    #[cfg(test)]
    pub(crate) fn id(&self, index: u16) -> u64 {
        self.queues
            .get(usize::from(index))
            .map_or(0, |queue| queue.id)
    }
}

#[cfg(test)]
mod tests {
    use super::{Caches, Order};

    const A: u64 = 7;
    const B: u64 = 9;

    #[test]
    fn a_wait_orders_and_an_invalidation_after_it_refreshes() {
        let mut order = Order::default();
        let (first, _) = order.launch(A);
        order.invalidate(A, Caches::L0);
        order.wait(A);
        let (_, second) = order.launch(A);
        assert!(second.knows.knows(first));
        // Invalidated before the wait: the writer may have been running still.
        assert_eq!(second.stale(Caches::L0, first), Caches::L0);
        order.invalidate(A, Caches::L0);
        let (_, third) = order.launch(A);
        assert_eq!(
            third.stale(Caches::L0.with(Caches::SCALAR), first),
            Caches::SCALAR
        );
        assert_eq!(order.id(0), A);
    }

    #[test]
    fn signals_carry_order_between_queues_and_to_the_host() {
        let mut order = Order::default();
        let (first, at) = order.launch(A);
        order.host_store(0x100, 1);
        order.pend(A, first, &at, 0x100);
        let (_, unrelated) = order.launch(B);
        assert!(!unrelated.knows.knows(first));
        order.finish(first, &at, true, 0x100);
        order.depend(B, 0x100);
        let (_, after) = order.launch(B);
        assert!(after.knows.knows(first));
        assert!(!order.host_knows(first) && !order.host_sees(first) && !order.settled(first));
        order.host_acquire(0x100, 1);
        assert!(!order.host_knows(first), "nothing has completed at 1");
        order.host_acquire(0x100, 0);
        assert!(order.host_knows(first) && order.host_sees(first) && order.settled(first));
        // A store forgets; the host's own knowledge stays.
        order.host_store(0x100, 1);
        let write = order.host_write();
        order.rang(A, 4);
        order.take(A, 3);
        let (_, rung) = order.launch(A);
        assert!(rung.knows.knows(write));
        let late = order.host_write();
        order.take(A, 4);
        assert!(!order.launch(A).1.knows.knows(late));
    }

    #[test]
    fn without_a_release_the_host_sees_nothing() {
        let mut order = Order::default();
        let (first, at) = order.launch(A);
        order.host_store(0x100, 1);
        order.host_store(0x140, 1);
        order.pend(A, first, &at, 0x100);
        order.finish(first, &at, false, 0x100);
        order.host_acquire(0x100, 0);
        assert!(order.host_knows(first) && !order.host_sees(first));
        order.wait(A);
        order.complete(A, true, 0x140);
        order.host_acquire(0x140, 0);
        assert!(order.host_sees(first));
    }

    /// What a value of one signal that three launches complete tells of them.
    #[test]
    fn a_value_proves_only_what_is_done_in_every_order() {
        // (each launch knows the one before, value, launches that the host then knows)
        for (chain, value, known) in [
            (true, 3, [false; 3]),
            (true, 2, [true, false, false]),
            (true, 1, [true, true, false]),
            (true, 0, [true; 3]),
            (false, 2, [false; 3]),
            (false, 1, [false; 3]),
            (false, 0, [true; 3]),
        ] {
            let mut order = Order::default();
            order.host_store(0x100, 3);
            let launches = [(); 3].map(|()| {
                let (author, at) = order.launch(A);
                order.pend(A, author, &at, 0x100);
                if chain {
                    order.wait(A);
                }
                (author, at)
            });
            for (author, at) in &launches {
                order.finish(*author, at, true, 0x100);
            }
            order.host_acquire(0x100, value);
            let found = launches.map(|(author, _)| order.host_knows(author));
            assert_eq!(found, known, "{chain} {value}");
        }
    }
}
