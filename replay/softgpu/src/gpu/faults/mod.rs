//! Faults on demand: what may go wrong on a software GPU, when, and what did.
//!
//! A [`FaultScript`] is a list of faults, each at the n-th event of its kind since the script was
//! armed; `rows` holds one row per kind of fault, `script` the text form and random scripts, `state`
//! counts and decides. Doing the damage is left to the packet processor (`cp::inject`) and to the
//! function tables (`api`), which ask here.

mod rows;
mod script;
mod state;

pub use rows::{FaultKind, FaultRow};
pub use script::{Fault, FaultScript, ScriptError};
pub(crate) use state::Faults;
pub use state::InjectedFault;

/// What is counted to decide when a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A packet that the packet processor is about to read.
    Packet,
    /// A kernel launch, by AQL packet or by DISPATCH_DIRECT, that is about to start.
    Launch,
    /// An indirect buffer that is about to be read.
    IndirectBuffer,
    /// A completion signal that is about to be decremented.
    Completion,
    /// A doorbell rung through HSA, or a launch through HIP.
    Submit,
    /// `hipMalloc` or `hipHostMalloc` of at least one byte.
    HipAlloc,
    /// `hsa_amd_memory_pool_allocate` from any pool but the kernarg one.
    PoolAlloc,
    /// `hsa_amd_memory_pool_allocate` from the kernarg pool.
    KernargAlloc,
    /// `hipModuleLoadData` or `hsa_executable_load_agent_code_object`.
    CodeLoad,
    /// `hsa_queue_create` or `hipStreamCreate`.
    QueueCreate,
    /// `hsa_signal_create`.
    SignalCreate,
}

impl Event {
    /// Number of kinds of event.
    pub(crate) const COUNT: usize = Self::SignalCreate as usize + 1;
}
