//! AMDGPU code objects: an ELF file from untrusted bytes becomes segments in GPU memory, kernels
//! with decoded programs, and a table that packets look kernels up in. Executing them is left to
//! `exec`, and what a packet may say about them to `cp`.

mod elf;
mod error;
mod kernel;
mod load;
mod machine;
mod metadata;
mod msgpack;
mod registry;
mod relocate;

pub use error::{KernelRefusal, ObjectError};
pub(crate) use kernel::gfx;
pub use kernel::{Kernel, KernelSymbol};
pub use metadata::{KernelArg, KernelMetadata};
pub(crate) use registry::Registry;

use crate::isa::Target;
use crate::memory::AddressSpace;
use std::sync::Arc;

/// A code object in GPU memory. Dropping the last handle unloads it.
#[derive(Debug)]
pub struct LoadedObject {
    memory: Arc<AddressSpace>,
    registry: Arc<Registry>,
    base: u64,
    allocations: Vec<u64>,
    kernels: Vec<Arc<Kernel>>,
}

impl LoadedObject {
    pub(crate) fn load(
        memory: &Arc<AddressSpace>,
        registry: &Arc<Registry>,
        target: Target,
        bytes: &[u8],
        label: &str,
    ) -> Result<Arc<Self>, ObjectError> {
        let placed = load::load(memory, target, bytes, label)?;
        registry.add(&placed.kernels);
        Ok(Arc::new(Self {
            memory: Arc::clone(memory),
            registry: Arc::clone(registry),
            base: placed.base,
            allocations: placed.allocations,
            kernels: placed.kernels,
        }))
    }

    /// Address of the image's first page.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// All kernels in metadata order, refused ones included.
    pub fn kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// The kernel called `name` (with or without `.kd`), refused or not.
    pub fn find(&self, name: &str) -> Option<&Arc<Kernel>> {
        let name = name.strip_suffix(".kd").unwrap_or(name);
        self.kernels.iter().find(|kernel| &*kernel.name == name)
    }
}

impl Drop for LoadedObject {
    fn drop(&mut self) {
        self.registry.remove(&self.kernels);
        for &allocation in &self.allocations {
            // Each was allocated by `load` and is freed only here.
            let _ = self.memory.free(allocation);
        }
    }
}

#[cfg(test)]
mod tests;
