//! The HIP and HSA function tables over software GPUs: what `libamdhip64` and `libhsa-runtime64` are
//! for a card. Every entry of both tables exists; what an entry does not model (an attribute, a
//! flag, a pool) is an error whose text names the call and the value, readable through
//! `refrain_take_reason`. Nothing is a silent no-op.
//!
//! Neither API has a handle for the whole device, so each software GPU is registered in the process
//! under a HIP ordinal and two HSA agents of its own. Launches through HIP become AQL packets on a
//! queue of the software GPU, so the eager path shows in its ring. Executing packets, memory rights
//! and loading code are left to the rest of this crate.

mod hip;
mod hsa;
mod model;
mod reason;
mod registry;
mod stream;
mod tables;

use crate::gpu::SoftGpu;
use refrain_device::{Origin, Runtime};
use std::sync::Arc;

/// The function tables of `gpu`, ready for `refrain_device::Device::open(runtime, 0)`. Calling it
/// again for the same GPU gives the same ordinal. The GPU lives as long as any copy of the runtime.
pub fn runtime(gpu: Arc<SoftGpu>) -> Runtime {
    let target = gpu.target().name().to_owned();
    let registration = registry::register(gpu);
    let origin = Origin::Soft {
        target,
        ordinal: registration.ordinal(),
    };
    // SAFETY: the entries implement the vendor's documented behaviour or answer with an error, may
    // be called from any thread, and are code of this crate, which is never unloaded.
    unsafe { Runtime::from_tables(tables::HIP, tables::HSA, origin, registration) }
}

#[cfg(test)]
mod tests;
