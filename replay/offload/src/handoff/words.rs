//! What the hand-off asks of its surroundings: words with acquire and release, gates to sleep at, a
//! clock; and all three over `std`.
//!
//! A word that a device writes is one more [`Word`] (an atomic in coherent host memory), with a [`Gate`]
//! that cannot be woken and therefore returns from `park` after a pause; its crate holds the `unsafe`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::gate::TokenGate;

/// A 64-bit word that both sides see.
pub trait Word {
    /// The value, with acquire order: what its writer wrote before is visible afterwards.
    fn load_acquire(&self) -> u64;
    /// Writes the value with release order, visible to every reader of the word (a device included).
    fn store_release(&self, value: u64);
}

/// A place where one thread sleeps. A wake before the sleep must end that sleep; waking for no reason
/// is allowed, so a gate that cannot be woken may return from `park` after a short pause.
pub trait Gate {
    /// Sleeps until woken or until `limit` has passed, whichever is first.
    fn park(&self, limit: Option<Duration>);
    /// Wakes the sleeper, or the next one.
    fn unpark(&self);
    /// The pause between two looks at a word while spinning.
    fn relax(&self);
}

/// A clock that never goes back.
pub trait Clock {
    /// Time since a fixed moment.
    fn now(&self) -> Duration;
}

/// Data that travels with a request, read and written without any order of its own.
pub trait Payload {
    /// Words in each direction.
    fn words(&self) -> usize;
    /// Writes word `index`, which is below [`Payload::words`]; beyond it nothing happens.
    fn put(&self, index: usize, value: u64);
    /// Reads word `index`; zero beyond the end.
    fn get(&self, index: usize) -> u64;
}

/// One set of words, gates and clock.
pub trait Env {
    /// Request, done, fault and abort words.
    type Word: Word;
    /// Where the host and each worker sleep.
    type Gate: Gate;
    /// What deadlines are measured with.
    type Clock: Clock;
}

/// Threads of this process.
#[derive(Debug, Clone, Copy)]
pub struct StdEnv;

impl Env for StdEnv {
    type Word = AtomicU64;
    type Gate = TokenGate;
    type Clock = StdClock;
}

impl Word for AtomicU64 {
    fn load_acquire(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store_release(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

impl Gate for TokenGate {
    fn park(&self, limit: Option<Duration>) {
        TokenGate::park(self, limit);
    }

    fn unpark(&self) {
        TokenGate::unpark(self);
    }

    fn relax(&self) {
        std::hint::spin_loop();
    }
}

/// The monotonic clock of the system.
#[derive(Debug, Clone, Copy)]
pub struct StdClock(Instant);

impl StdClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> StdClock {
        StdClock(Instant::now())
    }
}

impl Clock for StdClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Payload for Vec<AtomicU64> {
    fn words(&self) -> usize {
        self.len()
    }

    fn put(&self, index: usize, value: u64) {
        if let Some(word) = <[AtomicU64]>::get(self, index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn get(&self, index: usize) -> u64 {
        <[AtomicU64]>::get(self, index).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}
