//! Threads that work on a batch beside its owner (its mates). Waking a sleeping thread costs tens of microseconds and a token
//! has a hundred batches, so mates look for the next batch for a short while before they sleep,
//! and a batch that is finished before a mate arrives does not wait for it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

/// Turns of the look-out before a mate sleeps: about 100 microseconds (a `pause` is 40 to 140
/// cycles).
const PATIENCE: u32 = 4_000;

/// Most mates that are ever started.
const MAX_MATES: usize = 255;

/// Most threads that work on a batch, its owner among them.
pub(super) const MAX_THREADS: usize = MAX_MATES + 1;

/// `gate`: [63:32] number of the batch, [31] open, [15:0] mates inside.
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = 0xffff;

/// A function that several threads execute at once, and its argument.
struct Pool {
    gate: AtomicU64,
    /// Address of the current batch's `Task`; valid while a mate is inside the gate.
    task: AtomicUsize,
    /// Mates with a lower number than this may enter.
    wanted: AtomicUsize,
    /// Mates that have come to life.
    alive: AtomicUsize,
    /// Held by the thread whose batch this is.
    owner: Mutex<Vec<Thread>>,
}

/// What mates call, with the number of the caller.
type Task<'a> = dyn Fn(usize) + Sync + 'a;

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        gate: AtomicU64::new(0),
        task: AtomicUsize::new(0),
        wanted: AtomicUsize::new(0),
        alive: AtomicUsize::new(0),
        owner: Mutex::new(Vec::new()),
    })
}

/// Calls `task` on this thread and on up to `threads - 1` mates at once; returns when all calls
/// have returned. `task` must cope with being called any number of times from 1 to `threads`; its
/// argument is 0 on this thread and otherwise the mate's own number, below `threads`, so no two
/// calls of one batch have the same. When another batch has the mates, only this thread calls it.
pub(super) fn run(threads: usize, task: &Task<'_>) {
    let mates = threads.saturating_sub(1).min(MAX_MATES);
    let pool = pool();
    let owner = match pool.owner.try_lock() {
        _ if mates == 0 => None,
        Ok(guard) => Some(guard),
        Err(std::sync::TryLockError::Poisoned(p)) => Some(p.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => None,
    };
    let Some(mut known) = owner else {
        task(0);
        return;
    };
    while known.len() < mates {
        let number = known.len();
        let started = std::thread::Builder::new()
            .name(format!("softgpu-{number}"))
            .spawn(move || help(number));
        match started {
            Ok(handle) => known.push(handle.thread().clone()),
            Err(_) => break,
        }
    }
    // A thread allocates while it comes to life; no later batch shall see that.
    while pool.alive.load(Ordering::Acquire) < known.len() {
        std::thread::yield_now();
    }
    let shared: *const Task<'_> = task;
    let boxed: &*const Task<'_> = &shared;
    pool.task.store(
        std::ptr::from_ref(boxed).expose_provenance(),
        Ordering::Relaxed,
    );
    pool.wanted.store(mates, Ordering::Relaxed);
    let number = (pool.gate.load(Ordering::Relaxed) >> 32).wrapping_add(1);
    pool.gate.store(number << 32 | OPEN, Ordering::Release);
    for mate in known.iter().take(mates) {
        mate.unpark();
    }
    // Closes the gate even if `task` panics, so that no mate outlives the borrow.
    let close = Close { pool };
    task(0);
    drop(close);
}

struct Close<'a> {
    pool: &'a Pool,
}

impl Drop for Close<'_> {
    fn drop(&mut self) {
        self.pool.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut turns = 0u32;
        while self.pool.gate.load(Ordering::Acquire) & INSIDE != 0 {
            turns += 1;
            if turns.is_multiple_of(1024) {
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }
}

/// Life of mate `number`.
fn help(number: usize) {
    let pool = pool();
    let mut seen = 0;
    let mut turns = 0;
    pool.alive.fetch_add(1, Ordering::Release);
    loop {
        let gate = pool.gate.load(Ordering::Acquire);
        let fresh = gate & OPEN != 0 && gate >> 32 != seen;
        if !fresh {
            turns += 1;
            if turns < PATIENCE {
                std::hint::spin_loop();
            } else {
                std::thread::park();
            }
            continue;
        }
        turns = 0;
        if number >= pool.wanted.load(Ordering::Relaxed) {
            seen = gate >> 32;
            continue;
        }
        let entered =
            pool.gate
                .compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Acquire);
        if entered.is_err() {
            continue;
        }
        seen = gate >> 32;
        let address = pool.task.load(Ordering::Relaxed);
        // SAFETY: the owner stored the address of a live reference before it opened the gate, and
        // does not return before every mate that entered has left. `wanted` and `task` belong to
        // this batch, because a new one cannot open while a mate is inside.
        let task: &Task<'_> =
            unsafe { &**std::ptr::with_exposed_provenance::<*const Task<'static>>(address) };
        // A panicking task must not leave the owner waiting for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task(number + 1)));
        pool.gate.fetch_sub(1, Ordering::AcqRel);
        drop(result);
    }
}

#[cfg(test)]
mod tests {
    use super::run;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_work_is_done_once() {
        for threads in [1, 2, 4] {
            for _ in 0..200 {
                let next = AtomicUsize::new(0);
                let sum = AtomicUsize::new(0);
                let callers: Vec<_> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                run(threads, &|caller| {
                    callers[caller].fetch_add(1, Ordering::Relaxed);
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= 100 {
                            break;
                        }
                        sum.fetch_add(i, Ordering::Relaxed);
                    }
                });
                assert_eq!(sum.into_inner(), 4950);
                let calls: Vec<_> = callers.into_iter().map(AtomicUsize::into_inner).collect();
                assert_eq!(calls[0], 1);
                assert!(calls.iter().all(|n| *n <= 1), "{calls:?}");
            }
        }
    }
}
