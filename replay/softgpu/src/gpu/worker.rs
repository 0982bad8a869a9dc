//! The packet processor's thread: serves all queues in id order, spins briefly when there is
//! nothing to do, then parks until a doorbell or a signal wakes it.

use super::config::SoftError;
use super::{QueueState, Shared};
use crate::cp::{Cause, QueueFault, Served};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Looks at the event counter before parking, about 20 microseconds.
const SPINS: u32 = 2_000;
/// Longest sleep while a barrier packet waits: a kernel may store the signal, which rings no bell.
const SIGNAL_NAP: Duration = Duration::from_micros(500);

pub(super) fn start(shared: Arc<Shared>) -> Result<JoinHandle<()>, SoftError> {
    std::thread::Builder::new()
        .name("softgpu-cp".to_owned())
        .spawn(move || run(&shared))
        .map_err(|error| SoftError::Thread {
            what: error.to_string(),
        })
}

fn run(shared: &Shared) {
    let mut queues: Vec<Arc<QueueState>> = Vec::new();
    while !shared.stop.load(Ordering::Acquire) {
        let seen = shared.events.load(Ordering::Acquire);
        queues.clear();
        queues.extend(
            shared
                .queues
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .cloned(),
        );
        let mut progress = false;
        let mut waiting = false;
        for queue in &queues {
            match serve(shared, queue) {
                Served::Progress => progress = true,
                Served::Waiting { progress: some } => {
                    waiting = true;
                    progress |= some;
                }
                Served::Idle => {}
            }
        }
        // Keep no queue alive while parked.
        queues.clear();
        shared.waits_for_signal.store(waiting, Ordering::SeqCst);
        if !progress {
            rest(shared, seen, waiting);
        }
    }
}

fn serve(shared: &Shared, queue: &QueueState) -> Served {
    if queue.poisoned.load(Ordering::Acquire) {
        return Served::Idle;
    }
    let mut processor = queue
        .processor
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if queue.destroyed.load(Ordering::Acquire) {
        return Served::Idle;
    }
    let result = match shared.faults.lost() {
        None => processor.serve(shared, queue),
        Some(what) => Err(lost(queue, what)),
    };
    match result {
        Ok(served) => served,
        // Nobody is left to tell.
        Err(_) if queue.killed.load(Ordering::Acquire) => Served::Idle,
        Err(fault) => {
            poison(shared, queue, &fault);
            drop(processor);
            (queue.on_error)(&fault);
            Served::Progress
        }
    }
}

/// What stops a queue of a device that is gone.
fn lost(queue: &QueueState, what: &str) -> Box<QueueFault> {
    let cause = Cause::Lost {
        what: what.to_owned(),
    };
    Box::new(QueueFault::of_device(queue.id, cause))
}

/// Stops the queue, keeps the text and stores the error bits where HSA looks for them.
fn poison(shared: &Shared, queue: &QueueState, fault: &QueueFault) {
    shared.record_fault(fault.to_string());
    if let Some(strict) = &shared.strict {
        strict.model().fault(fault);
    }
    queue.poisoned.store(true, Ordering::Release);
    // The inactive signal lives as long as the queue, whose lock is held.
    let _ = shared.signals.store(queue.inactive, i64::from(fault.code));
}

fn rest(shared: &Shared, seen: u64, waiting: bool) {
    for _ in 0..SPINS {
        if shared.events.load(Ordering::Acquire) != seen {
            return;
        }
        std::hint::spin_loop();
    }
    if waiting {
        std::thread::park_timeout(SIGNAL_NAP);
    } else if shared.events.load(Ordering::Acquire) == seen {
        // An event that arrives here leaves a token, and the next park returns at once.
        std::thread::park();
    }
}
