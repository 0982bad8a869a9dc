//! Both sides of the hand-off, over any [`Env`]. One request is in flight at a time.
//!
//! | word | written by | holds |
//! |---|---|---|
//! | request | host | number of the newest request, [`STOP`] at the end |
//! | abort | host | number of the newest request that the host has given up |
//! | done | one worker | number of the newest request whose rows it has written |
//! | fault | that worker, cleared by the host | request number × 4 + [`FaultKind`], 0 if none |
//!
//! Numbers start at 1 and never repeat. Every store is followed by a wake of the other side, always:
//! whether somebody sleeps is the gate's business, so there is no window between looking and sleeping.

use std::sync::Arc;
use std::time::Duration;

use super::error::{FaultKind, HandoffError};
use super::words::{Clock, Env, Gate, Word};

/// Request number that sends workers home.
pub const STOP: u64 = u64::MAX;

/// Largest request number: it must fit a fault word beside its kind.
const LAST: u64 = u64::MAX >> 3;

/// The words and gates of one worker.
pub struct Lane<E: Env> {
    /// Newest finished request.
    pub done: E::Word,
    /// Newest failed request and how it failed.
    pub fault: E::Word,
    /// Where the worker sleeps.
    pub gate: E::Gate,
}

/// Everything both sides see.
pub struct Shared<E: Env> {
    /// Newest request.
    pub request: E::Word,
    /// Newest request that the host has given up.
    pub abort: E::Word,
    /// Where the host sleeps.
    pub gate: E::Gate,
    /// One entry a worker.
    pub lanes: Vec<Lane<E>>,
}

/// Makes the two sides from words that all hold zero: the host's, and one per lane. Both look `spins`
/// times at a word before they sleep.
#[must_use]
pub fn handoff<E: Env>(
    shared: Arc<Shared<E>>,
    clock: E::Clock,
    spins: u32,
) -> (Requester<E>, Vec<Worker<E>>) {
    let workers = (0..shared.lanes.len())
        .map(|index| Worker {
            shared: Arc::clone(&shared),
            index,
            served: 0,
            spins,
        })
        .collect();
    let requester = Requester {
        shared,
        clock,
        spins,
        number: 0,
        state: State::Idle,
    };
    (requester, workers)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    InFlight { step: u32 },
    Late { step: u32 },
}

/// What a worker has said about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    None,
    Done,
    Fault(FaultKind),
}

/// The host's side: posts steps and waits for their rows. Dropping it sends the workers home.
pub struct Requester<E: Env> {
    shared: Arc<Shared<E>>,
    clock: E::Clock,
    spins: u32,
    number: u64,
    state: State,
}

impl<E: Env> Requester<E> {
    /// Asks all workers to compute `step`. Its inputs must be written before the call. Returns the
    /// request's number.
    ///
    /// # Errors
    /// [`HandoffError::Busy`] while a request is in flight, [`HandoffError::Late`] while a worker may
    /// still write the rows of one that was given up, [`HandoffError::Fault`] of kind
    /// [`FaultKind::Gone`] if a worker has left.
    pub fn post(&mut self, step: u32) -> Result<u64, HandoffError> {
        self.ready(step)?;
        self.number = self.next_number();
        self.state = State::InFlight { step };
        self.shared.request.store_release(self.number);
        for lane in &self.shared.lanes {
            lane.gate.unpark();
        }
        Ok(self.number)
    }

    /// Whether [`Requester::post`] would take `step`: then nobody reads or writes its buffers now.
    ///
    /// # Errors
    /// As [`Requester::post`].
    pub fn ready(&self, step: u32) -> Result<(), HandoffError> {
        match self.state {
            State::Idle => {}
            State::InFlight { step: in_flight } => {
                return Err(HandoffError::Busy { step, in_flight });
            }
            State::Late { step: late } => return Err(HandoffError::Late { step, late }),
        }
        for (worker, lane) in self.shared.lanes.iter().enumerate() {
            if lane.fault.load_acquire() & 3 == FaultKind::Gone.code() {
                return Err(HandoffError::Fault {
                    step,
                    request: self.next_number(),
                    worker,
                    kind: FaultKind::Gone,
                });
            }
        }
        Ok(())
    }

    fn next_number(&self) -> u64 {
        (self.number + 1).min(LAST)
    }

    /// Waits until every worker has answered the request in flight. After `Ok` its rows may be read,
    /// and its inputs written again.
    ///
    /// # Errors
    /// [`HandoffError::Fault`] after every worker has answered and one has failed: the next step may be
    /// posted, unless the worker is gone. [`HandoffError::Deadline`] if one has not answered within
    /// `limit`: its buffers may still be written, so [`Requester::settle`] comes before the next step.
    /// [`HandoffError::Corrupt`] if a word holds what no worker writes, treated like a deadline.
    pub fn wait(&mut self, limit: Duration) -> Result<(), HandoffError> {
        let State::InFlight { step } = self.state else {
            return match self.state {
                State::Late { step } => Err(HandoffError::Late { step, late: step }),
                _ => Err(HandoffError::NotPosted),
            };
        };
        let answer = self.answers(step, limit);
        self.state = match answer {
            Err(HandoffError::Deadline { .. } | HandoffError::Corrupt { .. }) => {
                self.shared.abort.store_release(self.number);
                for lane in &self.shared.lanes {
                    lane.gate.unpark();
                }
                State::Late { step }
            }
            _ => State::Idle,
        };
        answer
    }

    /// Waits until no worker computes a request that was given up; nothing to do if there is none.
    /// Afterwards buffers may be used again and steps posted. The rows of that request are never used,
    /// and how it ended is not an error here.
    ///
    /// # Errors
    /// [`HandoffError::Deadline`] or [`HandoffError::Corrupt`] if a worker still has not answered.
    pub fn settle(&mut self, limit: Duration) -> Result<(), HandoffError> {
        let State::Late { step } = self.state else {
            return Ok(());
        };
        match self.answers(step, limit) {
            Ok(()) | Err(HandoffError::Fault { .. }) => {
                self.state = State::Idle;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The step whose rows may still be written although it was given up.
    #[must_use]
    pub fn late(&self) -> Option<u32> {
        match self.state {
            State::Late { step } => Some(step),
            _ => None,
        }
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.shared.lanes.len()
    }

    /// The clock that deadlines are measured with.
    pub fn clock(&self) -> &E::Clock {
        &self.clock
    }

    /// Waits for every lane's answer, then clears the faults of those that serve on and returns the
    /// first. Nothing is cleared before all have answered, so that a second wait sees every answer.
    fn answers(&self, step: u32, limit: Duration) -> Result<(), HandoffError> {
        let began = self.clock.now();
        for worker in 0..self.shared.lanes.len() {
            self.answer(step, worker, began, limit)?;
        }
        let mut first = Ok(());
        for (worker, lane) in self.shared.lanes.iter().enumerate() {
            let Answer::Fault(kind) = self.look(step, worker)? else {
                continue;
            };
            if kind != FaultKind::Gone {
                lane.fault.store_release(0);
            }
            if first.is_ok() {
                first = Err(HandoffError::Fault {
                    step,
                    request: self.number,
                    worker,
                    kind,
                });
            }
        }
        first
    }

    /// Waits until one lane has answered.
    fn answer(
        &self,
        step: u32,
        worker: usize,
        began: Duration,
        limit: Duration,
    ) -> Result<(), HandoffError> {
        let lane = &self.shared.lanes[worker];
        let mut looks = 0;
        loop {
            if self.look(step, worker)? != Answer::None {
                return Ok(());
            }
            if looks < self.spins {
                looks += 1;
                lane.gate.relax();
                continue;
            }
            let waited = self.clock.now().saturating_sub(began);
            if waited >= limit {
                return Err(HandoffError::Deadline {
                    step,
                    request: self.number,
                    worker,
                    limit,
                });
            }
            self.shared.gate.park(Some(limit - waited));
        }
    }

    /// One look at a lane's words.
    fn look(&self, step: u32, worker: usize) -> Result<Answer, HandoffError> {
        let lane = &self.shared.lanes[worker];
        let corrupt = |word, found| HandoffError::Corrupt {
            step,
            request: self.number,
            worker,
            word,
            found,
        };
        let done = lane.done.load_acquire();
        if done == self.number {
            return Ok(Answer::Done);
        }
        if done > self.number {
            return Err(corrupt("done", done));
        }
        let fault = lane.fault.load_acquire();
        if fault == 0 {
            return Ok(Answer::None);
        }
        match FaultKind::parse(fault & 3) {
            Some(FaultKind::Gone) => Ok(Answer::Fault(FaultKind::Gone)),
            Some(kind) if fault >> 2 == self.number => Ok(Answer::Fault(kind)),
            _ => Err(corrupt("fault", fault)),
        }
    }
}

impl<E: Env> Drop for Requester<E> {
    fn drop(&mut self) {
        self.shared.abort.store_release(LAST);
        self.shared.request.store_release(STOP);
        for lane in &self.shared.lanes {
            lane.gate.unpark();
        }
    }
}

/// One worker's side. Dropping it tells the host that it has left.
pub struct Worker<E: Env> {
    shared: Arc<Shared<E>>,
    index: usize,
    served: u64,
    spins: u32,
}

impl<E: Env> Worker<E> {
    /// This worker's index among the lanes.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Sleeps until there is a request; `None` when the host has left. The inputs may be read while
    /// the request is held; it ends by [`Request::finish`] or [`Request::fail`], and counts as a panic
    /// if it is dropped.
    pub fn take(&mut self) -> Option<Request<'_, E>> {
        let lane = &self.shared.lanes[self.index];
        let mut looks = 0;
        let number = loop {
            match self.shared.request.load_acquire() {
                STOP => return None,
                number if number != self.served => break number,
                _ if looks < self.spins => {
                    looks += 1;
                    lane.gate.relax();
                }
                _ => lane.gate.park(None),
            }
        };
        self.served = number;
        Some(Request {
            worker: self,
            number,
            open: true,
        })
    }

    fn answer(&self, word: &E::Word, value: u64) {
        word.store_release(value);
        self.shared.gate.unpark();
    }
}

impl<E: Env> Drop for Worker<E> {
    fn drop(&mut self) {
        let lane = &self.shared.lanes[self.index];
        self.answer(&lane.fault, (self.served << 2) | FaultKind::Gone.code());
    }
}

/// A request that a worker computes.
pub struct Request<'a, E: Env> {
    worker: &'a Worker<E>,
    number: u64,
    open: bool,
}

impl<E: Env> Request<'_, E> {
    /// The request's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the host has given this request up: the worker may leave its rows unfinished and fail.
    #[must_use]
    pub fn given_up(&self) -> bool {
        self.worker.shared.abort.load_acquire() >= self.number
    }

    /// Says that the worker's rows are written.
    pub fn finish(mut self) {
        self.open = false;
        let lane = &self.worker.shared.lanes[self.worker.index];
        self.worker.answer(&lane.done, self.number);
    }

    /// Says that the rows are not valid.
    pub fn fail(mut self) {
        self.close(FaultKind::Failed);
    }

    fn close(&mut self, kind: FaultKind) {
        self.open = false;
        let lane = &self.worker.shared.lanes[self.worker.index];
        self.worker
            .answer(&lane.fault, (self.number << 2) | kind.code());
    }
}

impl<E: Env> Drop for Request<'_, E> {
    fn drop(&mut self) {
        if self.open {
            self.close(FaultKind::Panicked);
        }
    }
}
