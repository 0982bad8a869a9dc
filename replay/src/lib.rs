//! From a checked plan to replayed tokens: devices, lifecycle, replayer, session, refusals.
//!
//! [`Session`] is what a command line uses. Underneath, [`lifecycle`] takes a plan through
//! recording, reconciliation and lowering, and [`Replayer`] publishes its packets, several tokens
//! in flight. Every reason not to retain has a stable code in [`refusal`].
//!
//! Left to others: making plans (planner), encoding packets (lower, packet), executing them
//! (device, softgpu), printing (tools).
#![forbid(unsafe_code)]

// The fixtures of tests/ name this crate as a user does.
#[cfg(test)]
extern crate self as refrain_replay;

pub mod arms;
pub mod cpu;
pub mod host_time;
pub mod lifecycle;
pub mod open;
pub mod prove;
pub mod refusal;
pub mod replayer;
pub mod segments;
pub mod session;
pub mod spec;
pub mod strict;

pub use arms::{Arm, ArmKind, ArmOptions, Arms};
pub use cpu::{CpuCounters, CpuSession};
pub use lifecycle::{
    Checked, Poisoned, Ready, ReadySegments, Reconciled, Recorded, Stage, StageError,
};
pub use open::{OpenError, OpenedDevice, SoftOptions};
pub use refrain_lower::{Policy, Transport};
pub use refusal::{Code, Refusal, RefusalCounts};
pub use replayer::{ReplayError, Replayer};
pub use segments::{SegmentError, SegmentReplayer};
pub use session::{
    Counters, Generation, Retain, Route, Session, SessionError, SessionOptions, Verification,
    record,
};
pub use spec::{DeviceSpec, DeviceSpecError};
