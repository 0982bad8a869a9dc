//! The packet processor: takes packets from a ring in id order, decides what may overlap, and runs
//! them. `aql` reads AQL packets, `pm4` runs indirect buffers, `batch` collects launches that
//! nothing waits for. Unknown input of any kind is an error that names itself, never a no-op.

mod access;
mod aql;
mod batch;
mod fault;
mod inject;
mod pm4;
mod processor;
mod record;
mod registers;

pub use fault::{Cause, PacketError, Pm4Error, Pm4Reason, QueueFault, RingError};
pub(crate) use processor::{QueueProcessor, Served};
