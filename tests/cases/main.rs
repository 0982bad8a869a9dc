//! The cross-crate cases: a real model, through plan, recording, packets and the software GPU.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests may panic as tests do"
)]

mod bad_objects;
mod conformance;
mod cpu;
mod golden;
mod in_flight;
mod issues;
mod mutate;
mod oracle;
mod parity;
mod placement;
mod quantised;
mod second;
mod strict;
