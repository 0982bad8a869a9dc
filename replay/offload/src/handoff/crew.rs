//! Threads that run jobs over the protocol: one host, any number of workers, panics and deadlines typed.
//!
//! A job is shared by all workers of a request and owned until they have answered; each gives a result
//! of its own. Which rows a worker takes, and how it multiplies, is the job's.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::error::HandoffError;
use super::gate::TokenGate;
use super::protocol::{Lane, Requester, Shared, Worker, handoff};
use super::words::{StdClock, StdEnv};

/// What a worker is called with: its index, the job, and whether the host has given the request up.
pub struct Task<'a, J> {
    /// Index of the worker, below the crew's size.
    pub worker: usize,
    /// The job that was posted.
    pub job: &'a J,
    given_up: &'a dyn Fn() -> bool,
}

impl<J> Task<'_, J> {
    /// Whether the host has given this request up; a long job may look now and then, and return early.
    #[must_use]
    pub fn given_up(&self) -> bool {
        (self.given_up)()
    }
}

impl<J: fmt::Debug> fmt::Debug for Task<'_, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("worker", &self.worker)
            .field("job", self.job)
            .finish_non_exhaustive()
    }
}

/// The work of a crew: its error ends the request with [`super::FaultKind::Failed`].
type Work<J, R> = dyn Fn(Task<'_, J>) -> Result<R, String> + Send + Sync;

/// Where jobs and results lie between the two sides; the protocol says whose turn it is, so the locks
/// are never waited for.
struct Slots<J, R> {
    job: Mutex<Option<Arc<J>>>,
    results: Vec<Mutex<Option<Result<R, String>>>>,
}

/// Worker threads that wait for jobs.
pub struct Crew<J, R> {
    requester: Option<Requester<StdEnv>>,
    slots: Arc<Slots<J, R>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J, R> fmt::Debug for Crew<J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}

impl<J: Send + Sync + 'static, R: Send + 'static> Crew<J, R> {
    /// Starts `workers` threads, at least one. Each side looks `spins` times at its word before it
    /// sleeps: about a microsecond per hundred looks, worth it only with a core to spare.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(
        workers: usize,
        spins: u32,
        work: impl Fn(Task<'_, J>) -> Result<R, String> + Send + Sync + 'static,
    ) -> io::Result<Crew<J, R>> {
        let lanes = (0..workers.max(1))
            .map(|_| Lane {
                done: AtomicU64::new(0),
                fault: AtomicU64::new(0),
                gate: TokenGate::new(),
            })
            .collect::<Vec<_>>();
        let slots = Arc::new(Slots {
            job: Mutex::new(None),
            results: lanes.iter().map(|_| Mutex::new(None)).collect(),
        });
        let shared = Arc::new(Shared::<StdEnv> {
            request: AtomicU64::new(0),
            abort: AtomicU64::new(0),
            gate: TokenGate::new(),
            lanes,
        });
        let work: Arc<Work<J, R>> = Arc::new(work);
        let (requester, sides) = handoff(shared, StdClock::start(), spins);
        let mut crew = Crew {
            requester: Some(requester),
            slots,
            threads: Vec::new(),
        };
        for side in sides {
            let (slots, work) = (Arc::clone(&crew.slots), Arc::clone(&work));
            let thread = Builder::new()
                .name(format!("offload-{}", side.index()))
                .spawn(move || serve(side, &slots, &*work))?;
            crew.threads.push(thread);
        }
        Ok(crew)
    }

    /// Hands `job` to every worker as the rows of `step`.
    ///
    /// # Errors
    /// As [`Requester::post`].
    pub fn post(&mut self, step: u32, job: J) -> Result<(), HandoffError> {
        let requester = self.requester.as_mut().ok_or(HandoffError::NotPosted)?;
        requester.ready(step)?;
        *lock(&self.slots.job) = Some(Arc::new(job));
        requester.post(step)?;
        Ok(())
    }

    /// Waits for all workers and takes their results, in the order of the workers. The job is dropped.
    ///
    /// # Errors
    /// As [`Requester::wait`]; why a worker returned an error is in [`Crew::complaints`].
    pub fn wait(&mut self, limit: Duration) -> Result<Vec<R>, HandoffError> {
        let requester = self.requester.as_mut().ok_or(HandoffError::NotPosted)?;
        requester.wait(limit)?;
        *lock(&self.slots.job) = None;
        let results = self.slots.results.iter();
        Ok(results.filter_map(|slot| lock(slot).take()?.ok()).collect())
    }

    /// What the workers whose last job failed said about it, with their index. Taken, not copied.
    #[must_use]
    pub fn complaints(&mut self) -> Vec<(usize, String)> {
        if self.late().is_some() {
            return Vec::new();
        }
        let results = self.slots.results.iter().enumerate();
        results
            .filter_map(|(worker, slot)| {
                let mut slot = lock(slot);
                match &*slot {
                    Some(Err(_)) => slot.take().and_then(Result::err),
                    _ => None,
                }
                .map(|complaint| (worker, complaint))
            })
            .collect()
    }

    /// As [`Requester::settle`]: waits for workers that compute a step which was given up.
    ///
    /// # Errors
    /// As [`Requester::settle`].
    pub fn settle(&mut self, limit: Duration) -> Result<(), HandoffError> {
        match &mut self.requester {
            Some(requester) => requester.settle(limit),
            None => Ok(()),
        }
    }

    /// The step that was given up and may still be computed.
    #[must_use]
    pub fn late(&self) -> Option<u32> {
        self.requester.as_ref().and_then(Requester::late)
    }
}

impl<J, R> Drop for Crew<J, R> {
    fn drop(&mut self) {
        let late = self.requester.as_ref().and_then(Requester::late).is_some();
        drop(self.requester.take());
        // A worker that missed its deadline may never come back: it keeps what it owns, and the
        // process's end takes it.
        if !late {
            for thread in self.threads.drain(..) {
                // Panics were caught and told; there is nobody left to tell here.
                let _ = thread.join();
            }
        }
    }
}

fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    match slot.lock() {
        Ok(guard) => guard,
        // Values are moved in and out under the lock, nothing is half-written by a panic.
        Err(poisoned) => poisoned.into_inner(),
    }
}

fn serve<J, R>(mut side: Worker<StdEnv>, slots: &Slots<J, R>, work: &Work<J, R>) {
    let worker = side.index();
    while let Some(request) = side.take() {
        let Some(job) = lock(&slots.job).clone() else {
            request.fail();
            continue;
        };
        let given_up = || request.given_up();
        let task = Task {
            worker,
            job: &*job,
            given_up: &given_up,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(task)));
        drop(job);
        match outcome {
            Ok(result) => {
                let valid = result.is_ok();
                *lock(&slots.results[worker]) = Some(result);
                if valid {
                    request.finish();
                } else {
                    request.fail();
                }
            }
            // Dropped without an end, the request tells the host of the panic.
            Err(_) => drop(request),
        }
    }
}
