//! Steps whose rows are shared between the GPU and the CPU: who takes how many rows, and how the two
//! sides tell each other that work is there and results are written.
//!
//! * [`share`]: how many rows each side takes, learned from the times of the steps.
//! * [`advice`]: what timings of all forms of step say about a whole plan.
//! * [`handoff`]: the protocol between a host that posts steps and the workers that compute them, the
//!   same code under threads, under a model checker and over words that a device writes.
//!
//! Multiplying, copying and launching are left to the executor; nothing here touches a device or a weight.

#![forbid(unsafe_code)]

pub mod advice;
pub mod handoff;
pub mod share;
