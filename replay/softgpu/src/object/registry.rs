//! All kernels of all loaded objects, by descriptor address and by entry address. The packet
//! processor asks it once per dispatch.

use super::kernel::Kernel;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug, Default)]
struct Maps {
    by_descriptor: HashMap<u64, Arc<Kernel>>,
    by_entry: HashMap<u64, Arc<Kernel>>,
}

/// The table. Shared by the software GPU and the objects that remove themselves from it.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    maps: RwLock<Maps>,
}

impl Registry {
    pub(crate) fn add(&self, kernels: &[Arc<Kernel>]) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        for kernel in kernels {
            maps.by_descriptor
                .insert(kernel.descriptor_va, Arc::clone(kernel));
            maps.by_entry.insert(kernel.entry_va, Arc::clone(kernel));
        }
    }

    pub(crate) fn remove(&self, kernels: &[Arc<Kernel>]) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        for kernel in kernels {
            maps.by_descriptor.remove(&kernel.descriptor_va);
            maps.by_entry.remove(&kernel.entry_va);
        }
    }

    pub(crate) fn by_descriptor(&self, va: u64) -> Option<Arc<Kernel>> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.by_descriptor.get(&va).cloned()
    }

    /// The loaded kernel of that name whose code segment holds `pc`.
    pub(crate) fn at(&self, name: &str, pc: u64) -> Option<Arc<Kernel>> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let inside = |kernel: &Kernel| {
            let base = kernel.program.base();
            (base..base + kernel.program.len()).contains(&pc)
        };
        let mut all = maps.by_entry.values();
        all.find(|kernel| &*kernel.name == name && inside(kernel))
            .cloned()
    }

    pub(crate) fn by_entry(&self, va: u64) -> Option<Arc<Kernel>> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.by_entry.get(&va).cloned()
    }
}
