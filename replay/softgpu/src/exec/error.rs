//! Why a batch could not be executed: the launch itself is impossible, or a wave cannot go on.

use crate::isa::IsaError;
use crate::memory::MemoryFault;
use std::fmt;
use std::sync::Arc;

/// A dispatch that could not be finished. Stores of waves that ran before stay done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// The dispatch cannot be started.
    #[error("{kernel}: {problem}")]
    Launch {
        /// Kernel name.
        kernel: Arc<str>,
        /// `Dispatch::tag`.
        tag: u64,
        /// What is wrong.
        problem: LaunchProblem,
    },
    /// A wave cannot go on.
    #[error(transparent)]
    Wave(Box<WaveError>),
}

impl ExecError {
    /// `Dispatch::tag` of the dispatch that failed.
    pub fn tag(&self) -> u64 {
        match self {
            Self::Launch { tag, .. } => *tag,
            Self::Wave(e) => e.tag,
        }
    }

    /// The refused memory access, if it was one.
    pub fn memory(&self) -> Option<&MemoryFault> {
        match self {
            Self::Wave(e) => match &e.fault {
                WaveFault::Memory { fault, .. } => Some(fault),
                _ => None,
            },
            Self::Launch { .. } => None,
        }
    }
}

/// Why a dispatch cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchProblem {
    /// The queue was destroyed while launches ran.
    #[error("given up with the launches beside it: their queue was destroyed")]
    Stopped,
    /// No instruction begins at the entry address.
    #[error(
        "no instruction begins at entry {entry:#x} (code {base:#x}, {len} bytes); use the descriptor's entry offset"
    )]
    Entry {
        /// The entry address.
        entry: u64,
        /// First byte of the program.
        base: u64,
        /// Bytes of the program.
        len: u64,
    },
    /// Work-group size outside what a work-group can be.
    #[error(
        "work-group of {size:?} work-items; each dimension must be at least 1 and the product at most 1024"
    )]
    GroupSize {
        /// Work-items per dimension.
        size: [u32; 3],
    },
    /// Grid outside what the target can count.
    #[error(
        "grid of {groups:?} work-groups; each dimension must be at least 1, and on gfx12 y and z at most 65535"
    )]
    Grid {
        /// Work-groups per dimension.
        groups: [u32; 3],
    },
    /// More LDS than a work-group can have.
    #[error("{bytes} bytes of LDS; a work-group has at most {max}")]
    Lds {
        /// Bytes asked for.
        bytes: u32,
        /// Largest size, in bytes.
        max: u32,
    },
    /// The code names more vector registers than RSRC1 allocates.
    #[error(
        "the code uses v0..v{last}, RSRC1 allocates {allocated} vector registers; take RSRC1 from the kernel descriptor"
    )]
    Registers {
        /// Highest register used.
        last: u32,
        /// Registers allocated.
        allocated: u32,
    },
    /// More user SGPRs than there are.
    #[error("{count} user SGPRs, of which RSRC2 announces {announced}; there are at most 16")]
    UserSgprs {
        /// Registers to load.
        count: u32,
        /// `RSRC2.USER_SGPR`.
        announced: u32,
    },
    /// More scratch memory than a work-item can have.
    #[error("{bytes} bytes of scratch per work-item; there are at most {max}")]
    Scratch {
        /// Bytes asked for.
        bytes: u32,
        /// Largest size.
        max: u32,
    },
}

/// A wave that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaveError {
    /// Kernel name.
    pub kernel: Arc<str>,
    /// `Dispatch::tag`.
    pub tag: u64,
    /// Work-group.
    pub group: [u32; 3],
    /// Wave within the work-group.
    pub wave: u32,
    /// Guest address of the instruction.
    pub pc: u64,
    /// The instruction in LLVM's syntax.
    pub instruction: String,
    /// What happened.
    pub fault: WaveFault,
}

impl std::error::Error for WaveError {}

impl fmt::Display for WaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.group;
        write!(
            f,
            "{}: group ({x}, {y}, {z}) wave {} at {:#x} `{}`: {}",
            self.kernel, self.wave, self.pc, self.instruction, self.fault
        )
    }
}

/// What stopped a wave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaveFault {
    /// A memory access was refused.
    #[error("lane {lane}: {fault}")]
    Memory {
        /// Lane, 0 for scalar accesses.
        lane: u32,
        /// The refused access.
        fault: MemoryFault,
    },
    /// An LDS access outside the work-group's allocation.
    #[error(
        "lane {lane}: {length} bytes at LDS offset {address:#x} of {size}; raise group_segment_size or check the index"
    )]
    Lds {
        /// Lane.
        lane: u32,
        /// Byte offset.
        address: u32,
        /// Bytes accessed.
        length: u32,
        /// Bytes that the work-group has.
        size: u32,
    },
    /// A scratch access outside what the launch gave each work-item.
    #[error(
        "lane {lane}: {length} bytes at scratch offset {address:#x} of {size}; raise private_segment_size or check the index"
    )]
    Scratch {
        /// Lane.
        lane: u32,
        /// Byte offset.
        address: u32,
        /// Bytes accessed.
        length: u32,
        /// Bytes that each work-item has.
        size: u32,
    },
    /// An instruction whose effect is not modelled here.
    #[error("not modelled: {0}")]
    Unsupported(&'static str),
    /// Words that are no instruction of the target's table.
    #[error("{0}")]
    Undecodable(IsaError),
    /// A jump to where no instruction begins.
    #[error("jump to {place}, where no instruction of its object begins")]
    Jump {
        /// Target address.
        address: u64,
        /// The target in words: kernel and offset where the object is known, and the allocation.
        place: String,
    },
    /// The instruction budget is used up.
    #[error("no end after {budget} instructions; the kernel hangs, or needs a larger wave budget")]
    Budget {
        /// `RunConfig::wave_budget`.
        budget: u64,
    },
    /// The queue was destroyed while the wave ran.
    #[error("stopped: its queue was destroyed")]
    Stopped,
    /// A barrier that can never complete.
    #[error("deadlock: {waiting} waves wait at the barrier, {ended} have ended, none can signal")]
    Deadlock {
        /// Waves at the barrier.
        waiting: u32,
        /// Waves that ended.
        ended: u32,
    },
}
