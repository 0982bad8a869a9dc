//! Threads that share the rows of one product.
//!
//! A product takes tens to hundreds of microseconds, so waking a sleeping thread would cost as much as it
//! brings: workers look for the next job for a short while before they park. Rows are claimed in small
//! runs, so a thread that loses its core to another process holds up at most one run; a worker that has
//! not arrived when the last run is claimed is not waited for. Which thread computes which rows changes
//! no result: a row's sum has one written order.
//!
//! Why not `rayon`: decision 0026.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::CpuError;

/// Looks at the next job, or at the end of one, before a thread parks; about 20 microseconds.
const SPINS: u32 = 2_000;

/// The job is open: workers may enter. The lower bits count those inside.
const OPEN: u64 = 1 << 32;

/// A job as workers see it: calls the closure behind the pointer.
struct Job {
    call: unsafe fn(*const ()),
    data: *const (),
}

/// What the owner and the workers share.
struct Shared {
    /// Number of the newest job.
    epoch: AtomicU64,
    /// [`OPEN`] and the number of workers inside.
    state: AtomicU64,
    /// The open job; valid while [`OPEN`] is set or a worker is inside.
    job: AtomicPtr<Job>,
    /// The owner is parked or about to.
    waiting: AtomicBool,
    owner: Mutex<Option<Thread>>,
    panicked: AtomicBool,
    stop: AtomicBool,
}

/// A fixed number of threads, of which the caller is one.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One job at a time.
    turn: Mutex<()>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool of {}", self.threads())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads, the caller's included; at least one, at most as many as this process
    /// may run at once.
    ///
    /// # Errors
    /// [`CpuError::Thread`] if the system gives no thread.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        let most = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            epoch: AtomicU64::new(0),
            state: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            waiting: AtomicBool::new(false),
            owner: Mutex::new(None),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self {
            shared,
            workers: Vec::new(),
            turn: Mutex::new(()),
        };
        for index in 1..threads.clamp(1, most) {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("refrain-cpu-{index}"));
            let worker = builder.spawn(move || work(&shared));
            pool.workers.push(worker.map_err(|error| CpuError::Thread {
                reason: error.to_string(),
            })?);
        }
        Ok(pool)
    }

    /// Threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `f` for runs of `rows` until all are done, on all threads. A run ends at a multiple of `per`
    /// or at the end; `f` gets it with its part of `y`, which has one element per row.
    ///
    /// # Errors
    /// The first error of `f`; [`CpuError::Length`] if `y` has another length; [`CpuError::Worker`] if a
    /// worker panicked (what it had claimed is then not in `y`).
    pub fn rows(
        &self,
        rows: Range<usize>,
        per: usize,
        y: &mut [f32],
        f: impl Fn(Range<usize>, &mut [f32]) -> Result<(), CpuError> + Sync,
    ) -> Result<(), CpuError> {
        if y.len() != rows.len() {
            return Err(CpuError::Length {
                what: "y",
                expected: rows.len(),
                given: y.len(),
            });
        }
        let per = per.max(1);
        let left = Mutex::new((rows.start, y));
        let failed = Mutex::new(None);
        let claim = || {
            let mut left = lock(&left);
            let first = left.0;
            let take = (per - first % per).min(left.1.len());
            let (run, rest) = std::mem::take(&mut left.1).split_at_mut(take);
            *left = (first + take, rest);
            (take > 0).then_some((first..first + take, run))
        };
        let drain = || {
            while let Some((run, y)) = claim() {
                if let Err(error) = f(run, y) {
                    lock(&failed).get_or_insert(error);
                    return;
                }
            }
        };
        if self.workers.is_empty() || rows.len() <= per {
            drain();
        } else {
            self.run(&drain)?;
        }
        lock(&failed).take().map_or(Ok(()), Err)
    }

    /// Runs `f` on the caller and on every worker that arrives before the caller is done.
    fn run<F: Fn() + Sync>(&self, f: &F) -> Result<(), CpuError> {
        unsafe fn call<F: Fn()>(data: *const ()) {
            // SAFETY: `data` is the `f` of `run`, which outlives the job (see `Close`).
            unsafe { (*data.cast::<F>())() }
        }
        let _turn = lock(&self.turn);
        let shared = &*self.shared;
        let mut job = Job {
            call: call::<F>,
            data: std::ptr::from_ref(f).cast(),
        };
        *lock(&shared.owner) = Some(thread::current());
        shared.panicked.store(false, Ordering::Relaxed);
        shared.job.store(&raw mut job, Ordering::Relaxed);
        // Whoever sees OPEN sees the job.
        shared.state.store(OPEN, Ordering::Release);
        shared.epoch.fetch_add(1, Ordering::Release);
        let close = Close(shared);
        for worker in &self.workers {
            worker.thread().unpark();
        }
        f();
        drop(close);
        if shared.panicked.load(Ordering::Relaxed) {
            return Err(CpuError::Worker);
        }
        Ok(())
    }
}

/// Closes the job and waits until no worker is inside, also when the owner's own call unwinds: only then
/// may the job and what it borrows go away.
struct Close<'a>(&'a Shared);

impl Drop for Close<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.fetch_and(!OPEN, Ordering::AcqRel);
        for _ in 0..SPINS {
            if state.load(Ordering::Acquire) == 0 {
                return;
            }
            std::hint::spin_loop();
        }
        // SeqCst: either the last worker sees `waiting`, or this thread sees that it has left.
        self.0.waiting.store(true, Ordering::SeqCst);
        while state.load(Ordering::SeqCst) != 0 {
            thread::park();
        }
        self.0.waiting.store(false, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.epoch.fetch_add(1, Ordering::Release);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of jobs; there is nothing else to report.
            let _: Result<(), Box<dyn Any + Send>> = worker.join();
        }
    }
}

fn work(shared: &Shared) {
    let mut seen = 0;
    loop {
        seen = next(shared, seen);
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let enter = |state: u64| (state & OPEN != 0).then_some(state + 1);
        let state = &shared.state;
        if state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, enter)
            .is_err()
        {
            continue;
        }
        let job = shared.job.load(Ordering::Relaxed);
        let call = || {
            // SAFETY: this worker is counted in `state` since OPEN was set, so `Close` keeps the owner,
            // and with it the job and its closure, in place until this worker has left.
            unsafe { ((*job).call)((*job).data) }
        };
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            shared.panicked.store(true, Ordering::Relaxed);
        }
        let before = state.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && shared.waiting.load(Ordering::SeqCst) {
            let owner = lock(&shared.owner);
            owner.iter().for_each(Thread::unpark);
        }
    }
}

/// Waits for a job after `seen` and returns its number.
fn next(shared: &Shared, seen: u64) -> u64 {
    let mut spins = 0;
    loop {
        let epoch = shared.epoch.load(Ordering::Acquire);
        if epoch != seen {
            return epoch;
        }
        if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            // The owner unparks after it has raised the epoch, so a wake-up is never lost.
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use crate::CpuError;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn every_row_is_done_once_and_runs_end_where_they_should() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            assert!(pool.threads() <= threads.max(1));
            for (start, end, per) in [
                (0, 1000, 16),
                (7, 990, 16),
                (0, 0, 16),
                (5, 6, 0),
                (3, 40, 64),
            ] {
                let mut y = vec![0.0f32; end - start];
                pool.rows(start..end, per, &mut y, |run, y| {
                    assert_eq!(run.len(), y.len());
                    assert!(run.end == end || run.end.is_multiple_of(per.max(1)));
                    y.iter_mut().zip(run).for_each(|(y, row)| *y += row as f32);
                    Ok(())
                })
                .unwrap();
                let want: Vec<f32> = (start..end).map(|row| row as f32).collect();
                assert_eq!(y, want, "{threads} threads");
            }
        }
    }

    #[test]
    fn many_short_jobs_and_parked_workers() {
        let pool = Pool::new(2).unwrap();
        let mut y = [0.0f32; 64];
        for job in 0..20_000 {
            if job % 5_000 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let count = AtomicUsize::new(0);
            pool.rows(0..64, 16, &mut y, |run, _| {
                count.fetch_add(run.len(), Ordering::Relaxed);
                Ok(())
            })
            .unwrap();
            assert_eq!(count.into_inner(), 64);
        }
    }

    #[test]
    fn errors_and_panics_come_back() {
        let pool = Pool::new(2).unwrap();
        let mut y = [0.0f32; 640];
        let refuse = |_: std::ops::Range<usize>, _: &mut [f32]| Err(CpuError::Worker);
        assert_eq!(pool.rows(0..640, 16, &mut y, refuse), Err(CpuError::Worker));
        let short = pool.rows(0..641, 16, &mut y, |_, _| Ok(()));
        assert!(matches!(short, Err(CpuError::Length { given: 640, .. })));
        if pool.threads() > 1 {
            let owner = std::thread::current().id();
            // The owner holds its first run until a worker has panicked over another.
            let hit = AtomicUsize::new(0);
            let result = pool.rows(0..640, 16, &mut y, |_, _| {
                if std::thread::current().id() != owner {
                    hit.store(1, Ordering::Relaxed);
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                while hit.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                Ok(())
            });
            assert_eq!(result, Err(CpuError::Worker));
        }
        // The pool serves on.
        pool.rows(0..640, 16, &mut y, |_, y| {
            y.fill(1.0);
            Ok(())
        })
        .unwrap();
        assert_eq!(y, [1.0; 640]);
    }

    /// The owner's own panic waits for workers before it goes on.
    #[test]
    fn an_unwinding_owner_leaves_nothing_behind() {
        let pool = Pool::new(2).unwrap();
        let owner = std::thread::current().id();
        let inside = AtomicUsize::new(0);
        let mut y = [0.0f32; 640];
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = pool.rows(0..640, 16, &mut y, |_, _| {
                if std::thread::current().id() == owner {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                inside.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(3));
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
        }));
        assert!(caught.is_err());
        assert_eq!(inside.load(Ordering::SeqCst), 0);
        pool.rows(0..640, 16, &mut y, |_, _| Ok(())).unwrap();
    }
}
