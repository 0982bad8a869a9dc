//! Running a plan eagerly, recording what passes the function tables, and reconciling it.
//!
//! [`Instance`] holds a plan's buffers, [`EagerExecutor`] launches its steps one by one,
//! [`Recorder`] observes the launches, copies and memsets of single tokens, and [`reconcile()`]
//! judges them against the plan. A recording is evidence and never changes a plan.
//!
//! Left to others: making plans (planner), lowering and replaying them (lower, replay), talking to
//! drivers (device).
#![forbid(unsafe_code)]

pub mod address;
pub mod cpu;
pub mod eager;
pub mod expected;
pub mod file;
pub mod host;
pub mod instance;
pub mod reconcile;
pub mod record;
pub mod source;
pub mod tape;

pub use cpu::{CpuInstance, CpuRunError};
pub use eager::{CodeObjects, EagerError, EagerExecutor, EmbeddedObjects, LaunchSink};
pub use expected::Expectation;
pub use host::{CpuError, ExactEngine, HostCounters, HostEngine, HostError, HostRunner, Product};
pub use instance::{
    BufferState, Difference, Instance, InstanceError, Kept, first_difference, state_digest,
};
pub use reconcile::{ReconcileError, Reconciled, reconcile};
pub use record::{PacketTap, RecordError, Recorder, TappedPacket, record_positions};
pub use source::{FileSource, SourceError, TensorSource};
pub use tape::{Recording, Tape};
