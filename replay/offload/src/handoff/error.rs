//! Why a hand-off gave no result. Each error names the step, the request number and the worker.

use std::time::Duration;

use thiserror::Error;

/// How a worker failed; its number is what stands in the low bits of a fault word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The work panicked; the worker serves on.
    Panicked,
    /// The work returned an error; the worker serves on.
    Failed,
    /// The worker has left and will not come back.
    Gone,
}

impl FaultKind {
    const TABLE: [(u64, FaultKind); 3] = [
        (1, FaultKind::Panicked),
        (2, FaultKind::Failed),
        (3, FaultKind::Gone),
    ];

    /// The low two bits of a fault word.
    pub(crate) fn code(self) -> u64 {
        match self {
            FaultKind::Panicked => 1,
            FaultKind::Failed => 2,
            FaultKind::Gone => 3,
        }
    }

    /// The kind that those bits name.
    pub(crate) fn parse(code: u64) -> Option<FaultKind> {
        Self::TABLE
            .iter()
            .find_map(|(number, kind)| (*number == code).then_some(*kind))
    }
}

/// Why a request was not posted or has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HandoffError {
    /// A second request while one is in flight.
    #[error("step {step} posted while step {in_flight} is in flight: wait for it first")]
    Busy {
        /// The step that was refused.
        step: u32,
        /// The step in flight.
        in_flight: u32,
    },
    /// A wait without a request.
    #[error("nothing was posted: post a step before waiting for it")]
    NotPosted,
    /// A request while a worker still computes a step that was given up.
    #[error(
        "step {step} posted while a worker still computes step {late}, which missed its deadline: \
         settle first, its buffers may still be written"
    )]
    Late {
        /// The step that was refused.
        step: u32,
        /// The step that was given up.
        late: u32,
    },
    /// No answer in time.
    #[error(
        "step {step} (request {request}): worker {worker} did not answer within {limit:?}; \
         raise the deadline or run the step on the GPU"
    )]
    Deadline {
        /// The step.
        step: u32,
        /// Its request number.
        request: u64,
        /// The first worker without an answer.
        worker: usize,
        /// The deadline, from the start of the wait.
        limit: Duration,
    },
    /// A worker failed.
    #[error("step {step} (request {request}): worker {worker} {}; its rows are not valid", match kind {
        FaultKind::Panicked => "panicked",
        FaultKind::Failed => "returned an error",
        FaultKind::Gone => "is gone, make a new crew",
    })]
    Fault {
        /// The step.
        step: u32,
        /// Its request number.
        request: u64,
        /// The first worker that failed.
        worker: usize,
        /// How.
        kind: FaultKind,
    },
    /// A word holds what the protocol never writes.
    #[error(
        "step {step} (request {request}): the {word} word of worker {worker} holds {found:#x}; \
         something else writes to it"
    )]
    Corrupt {
        /// The step.
        step: u32,
        /// Its request number.
        request: u64,
        /// The worker.
        worker: usize,
        /// Name of the word.
        word: &'static str,
        /// Its value.
        found: u64,
    },
}
