//! Hand-off of a step to workers and of its results back: one request word, one done word a worker.
//!
//! The host writes the inputs, then the request number with release order; a worker that reads the
//! number with acquire order may read the inputs. The worker writes its rows, then the same number into
//! its done word with release order; the host that reads it with acquire order may read the rows. A
//! done word is written for finished work only: failures go to a word of their own, so a device that
//! waits for the done word never goes on with a result that was not written.
//!
//! * [`words`]: what the protocol asks of its surroundings, and the implementation over `std`.
//! * [`protocol`]: both sides of the protocol.
//! * [`probe`]: round trips with a pattern, to be passed before the protocol is trusted.
//! * [`crew`]: threads that run jobs over the protocol.
//!
//! `tests/loom.rs` runs `words`' gate and `protocol` under a model checker. Payloads are the caller's.

pub mod crew;
mod error;
pub mod gate;
pub mod probe;
pub mod protocol;
pub mod words;

/// The primitives that [`gate`] is built on; the model checker puts its own in this place.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex};
}

pub use crew::Crew;
pub use error::{FaultKind, HandoffError};
pub use gate::TokenGate;
pub use probe::{ProbeError, ProbeReport};
pub use protocol::{Request, Requester, Worker, handoff};
pub use words::{Clock, Env, Gate, Payload, StdEnv, Word};
