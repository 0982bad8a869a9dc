//! What a software GPU is made of, and what can go wrong when asking it for something.

use super::faults::FaultScript;
use crate::isa::Target;
use crate::memory::{AllocError, MemoryFault};
use crate::object::{KernelRefusal, ObjectError};
use crate::strict::StrictConfig;

/// How a software GPU is built and how it runs.
#[derive(Debug, Clone)]
pub struct SoftConfig {
    /// The processor whose code it executes.
    pub target: Target,
    /// Seed of the order of waves and work-groups. Same seed, same packets, same memory contents.
    pub seed: u64,
    /// Threads that run work-groups, the packet processor's own included.
    pub threads: usize,
    /// Instructions that one wave may execute before it counts as hung.
    pub wave_budget: u64,
    /// Work-groups that one launch may have; more is refused, since it would look like a hang.
    pub group_budget: u64,
    /// Whether every packet is kept for [`super::SoftGpu::take_packet_log`].
    pub keep_packet_log: bool,
    /// Most bytes that the packet log holds; the oldest packets are dropped (and counted) past it.
    pub packet_log_bytes: usize,
    /// Strict mode: hazards are looked for, on one thread. `None` for the fast mode.
    pub strict: Option<StrictConfig>,
    /// Faults to inject from the start; see [`super::SoftGpu::arm_faults`] for later ones.
    pub faults: FaultScript,
}

impl SoftConfig {
    /// Default settings for one target.
    pub fn new(target: Target) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            target,
            seed: 0,
            threads,
            wave_budget: 2_000_000_000,
            group_budget: 1 << 24,
            keep_packet_log: false,
            packet_log_bytes: 64 << 20,
            strict: None,
            faults: FaultScript::default(),
        }
    }
}

impl Default for SoftConfig {
    fn default() -> Self {
        Self::new(Target::Gfx1201)
    }
}

/// A request to the software GPU that it refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SoftError {
    /// The code object was not loaded.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// No kernel of that name in the object.
    #[error("no kernel `{name}` in the code object; it has: {known}")]
    NoKernel {
        /// Name asked for.
        name: String,
        /// Names in the object, comma-separated.
        known: String,
    },
    /// The kernel is there but is not run.
    #[error("kernel `{name}` {reason}")]
    KernelRefused {
        /// Kernel name.
        name: String,
        /// Why.
        reason: KernelRefusal,
    },
    /// Memory could not be allocated or administered.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// The software GPU's own access to guest memory was refused.
    #[error("{what}: {fault}")]
    Memory {
        /// What it was doing.
        what: &'static str,
        /// The refused access.
        fault: MemoryFault,
    },
    /// The ring size is not supported.
    #[error("a ring of {packets} packets: the size must be a power of two from 64 to 131072")]
    RingSize {
        /// Packets asked for.
        packets: u32,
    },
    /// The handle is not that of a live signal.
    #[error("{handle:#x} is not the handle of a live signal; create it first and destroy it last")]
    Signal {
        /// The handle passed.
        handle: u64,
    },
    /// The packet processor's thread could not be started.
    #[error("cannot start the packet processor's thread: {what}")]
    Thread {
        /// The operating system's words.
        what: String,
    },
}
