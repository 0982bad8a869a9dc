//! Executes decoded programs: 32 lanes at a time, work-groups over threads.
//!
//! A [`Program`] is machine code decoded once into micro-operations. [`run_batch`] runs dispatches
//! that have no wait between them. Waves start as [`init`] documents, everything else poisoned.
//! Memory is reached through a checked snapshot of the address space; faults are typed and name
//! kernel, group, wave, instruction and lane. What this is not: no timing, no caches, and not the
//! last bits of a card's transcendental functions (`float`). Packets, registers and signals are the
//! command processor's.

mod atomic;
mod batch;
mod bytes;
mod compare;
mod context;
mod control;
mod cross;
mod error;
mod flat;
mod float;
mod fp8;
mod global;
mod group;
mod guest;
mod halves;
mod hwreg;
mod init;
mod lanes;
mod lds;
mod level;
mod lower;
mod masks;
mod moded;
mod modified;
mod packed;
mod pool;
mod program;
mod relative;
mod scalar;
mod softfloat;
mod strict;
#[cfg(test)]
mod tests;
mod uop;
#[cfg(test)]
mod vectors;
mod wave;

pub use batch::{run_batch, run_batch_until};
pub use error::{ExecError, LaunchProblem, WaveError, WaveFault};
pub(crate) use lower::refusal;
pub use program::Program;
pub(crate) use strict::run_strict;

use std::sync::Arc;

/// One kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The code.
    pub program: Arc<Program>,
    /// Guest address of the first instruction.
    pub entry_va: u64,
    /// Kernel name, for messages.
    pub name: Arc<str>,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3; all of its fields are hints here.
    pub rsrc3: u32,
    /// Values of the user SGPRs, s0 first.
    pub user_sgprs: [u32; 16],
    /// How many of them are loaded; the others hold poison.
    pub user_sgpr_count: u32,
    /// Work-groups per dimension.
    pub groups: [u32; 3],
    /// Work-items per work-group and dimension.
    pub group_size: [u32; 3],
    /// LDS bytes per work-group, static and dynamic.
    pub lds_bytes: u32,
    /// Scratch bytes per work-item; at most [`MAX_SCRATCH`].
    pub scratch_bytes: u32,
    /// Handed back in errors.
    pub tag: u64,
}

/// Work-groups of a grid, saturating.
pub(crate) fn group_count(groups: [u32; 3]) -> u64 {
    groups
        .iter()
        .fold(1, |count, n| count.saturating_mul(u64::from(*n)))
}

/// Largest scratch memory of a work-item, in bytes.
pub const MAX_SCRATCH: u32 = 16 * 1024;

/// How a batch runs.
#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    /// Decides the order of work-groups and waves, and the poison.
    pub seed: u64,
    /// Threads used, the caller's included.
    pub threads: usize,
    /// Instructions that a wave may execute before it counts as hung.
    pub wave_budget: u64,
}

/// What ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Architectural wave instructions: waits and no-ops count, a VOPD counts once.
    pub instructions: u64,
    /// Waves.
    pub waves: u64,
    /// Work-groups.
    pub groups: u64,
}
