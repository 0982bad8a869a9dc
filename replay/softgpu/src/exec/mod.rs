//! Executes decoded programs.
use crate::isa::{IsaError, Target};
use crate::memory::{AddressSpace, MemoryFault};
use std::sync::Arc;

/// Machine code, decoded once.
#[derive(Debug)]
pub struct Program {
    target: Target,
}

impl Program {
    /// Decodes `code`, which is mapped at `code_va`.
    pub fn decode(target: Target, code_va: u64, code: &[u8]) -> Result<Self, IsaError> {
        let _ = (code_va, code);
        Ok(Self { target })
    }
    /// Its target.
    pub fn target(&self) -> Target {
        self.target
    }
}

/// One kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The code.
    pub program: Arc<Program>,
    /// Address of the first instruction.
    pub entry_va: u64,
    /// Kernel name for messages.
    pub name: Arc<str>,
    /// COMPUTE_PGM_RSRC1.
    pub rsrc1: u32,
    /// COMPUTE_PGM_RSRC2.
    pub rsrc2: u32,
    /// COMPUTE_PGM_RSRC3.
    pub rsrc3: u32,
    /// Values of the user SGPRs.
    pub user_sgprs: [u32; 16],
    /// How many of them are loaded.
    pub user_sgpr_count: u32,
    /// Work-groups per dimension.
    pub groups: [u32; 3],
    /// Work-items per group and dimension.
    pub group_size: [u32; 3],
    /// LDS bytes per group.
    pub lds_bytes: u32,
    /// Handed back in errors.
    pub tag: u64,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct RunConfig {
    /// Order of work-groups and waves, and poison.
    pub seed: u64,
    /// Threads used, the caller's included.
    pub threads: usize,
    /// Instructions a wave may execute.
    pub wave_budget: u64,
}

/// What ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Wave instructions.
    pub instructions: u64,
    /// Waves.
    pub waves: u64,
    /// Work-groups.
    pub groups: u64,
}

/// A dispatch that could not be finished.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecError {
    /// A memory access was refused.
    #[error("{0}")]
    Memory(MemoryFault),
}

/// Executes dispatches that have no wait between them.
pub fn run_batch(
    memory: &AddressSpace,
    batch: &[Dispatch],
    config: &RunConfig,
) -> Result<RunStats, ExecError> {
    let _ = (memory, batch, config);
    Ok(RunStats::default())
}
