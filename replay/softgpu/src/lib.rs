//! The software GPU: executes real gfx11 and gfx12 code objects, AQL packets and PM4 indirect
//! buffers, behind the same HIP and HSA function tables that a ROCm installation fills.
//!
//! [`memory`] is the guest address space, [`isa`] the instruction sets, [`exec`] runs waves,
//! [`object`] loads code objects, [`cp`] processes packets, [`strict`] finds hazards, [`gpu`] ties
//! them into a [`gpu::SoftGpu`], and [`api`] fills the function tables. Unknown input of any kind is an error
//! that names itself. What it is not: it has no notion of time, it does not reproduce a card's
//! transcendental bits, and it is not firmware; what hardware does beyond its documentation it
//! cannot show.

// Test support is shared with the integration tests, which name the crate.
#[cfg(test)]
extern crate self as refrain_softgpu;

pub mod api;
pub mod cp;
pub mod exec;
pub mod gpu;
pub mod isa;
pub mod memory;
pub mod object;
pub mod strict;

pub use api::runtime;
pub use gpu::{Condition, Counters, ErrorSink, SoftConfig, SoftError, SoftGpu, SoftQueue};
