//! The process-wide list of software GPUs behind the tables, and the handles given out for them:
//! ordinals, agents, pools, streams, modules, signals, queues, executables. What the handles mean
//! is left to the files that create them.

use super::hip::graphs::{GraphEntry, GraphExecEntry};
use super::hip::module::{FunctionEntry, ModuleEntry};
use super::hsa::code::{ExecutableEntry, ReaderEntry, SymbolEntry};
use super::hsa::queue::QueueEntry;
use super::model::{self, Model};
use super::stream::StreamEntry;
use crate::gpu::SoftGpu;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// A map that several threads look up and few change.
pub(super) struct Shelf<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V: Clone> Shelf<K, V> {
    pub(super) fn insert(&self, key: K, value: V) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, value);
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }

    pub(super) fn remove(&self, key: &K) -> Option<V> {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key)
    }

    /// Shows every value to `look`, which must not change this map.
    pub(super) fn each(&self, look: impl FnMut(&V)) {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .for_each(look);
    }

    /// Takes out what `keep` does not hold. The values are dropped after the lock is released, since
    /// dropping one may call back into this registry.
    pub(super) fn retain(&self, mut keep: impl FnMut(&V) -> bool) {
        let removed: Vec<V> = {
            let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
            map.extract_if(|_, value| !keep(value))
                .map(|(_, value)| value)
                .collect()
        };
        drop(removed);
    }
}

/// One allocation that HIP or HSA made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocated {
    /// By `hipMalloc`, with its bytes.
    Device(u64),
    /// By `hipHostMalloc`.
    Host,
    /// From a memory pool; device rights come with `hsa_amd_agents_allow_access`.
    Pool {
        /// The rights that an agent gets.
        rights: crate::memory::Rights,
        /// Bytes that count as device memory.
        device_bytes: u64,
    },
}

/// One registered software GPU.
pub(super) struct Entry {
    pub(super) ordinal: u32,
    pub(super) gpu: Arc<SoftGpu>,
    pub(super) model: &'static Model,
    pub(super) allocations: Mutex<BTreeMap<u64, Allocated>>,
    /// The stream behind the null handle, made when first used.
    pub(super) null_stream: Mutex<Option<Arc<StreamEntry>>>,
    pub(super) names: AtomicU64,
}

impl Entry {
    /// Bytes of live device allocations.
    pub(super) fn device_bytes(&self) -> u64 {
        let allocations = self
            .allocations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = |allocated: &Allocated| match *allocated {
            Allocated::Device(bytes) => bytes,
            Allocated::Pool { device_bytes, .. } => device_bytes,
            Allocated::Host => 0,
        };
        allocations.values().map(bytes).sum()
    }

    /// A name for what the caller has not named yet.
    pub(super) fn fresh_name(&self, what: &str) -> String {
        format!("{what} {}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// Keeps a software GPU in the list; the last clone takes it out.
pub(super) struct Registration {
    entry: Arc<Entry>,
}

impl Registration {
    pub(super) fn ordinal(&self) -> u32 {
        self.entry.ordinal
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let registry = registry();
        let ordinal = self.entry.ordinal;
        registry.devices.remove(&ordinal);
        // What the user of the raw tables did not destroy goes with the device.
        registry.streams.retain(|stream| stream.ordinal != ordinal);
        registry
            .functions
            .retain(|function| function.entry.ordinal != ordinal);
        registry
            .modules
            .retain(|module| module.entry.ordinal != ordinal);
        registry.graphs.retain(|graph| graph.ordinal != ordinal);
        registry
            .graph_execs
            .retain(|exec| exec.entry.ordinal != ordinal);
        registry
            .queues
            .retain(|queue| queue.entry.ordinal != ordinal);
        registry.signals.retain(|signal| signal.ordinal != ordinal);
        registry
            .executables
            .retain(|executable| !executable.is_on(ordinal));
        registry
            .symbols
            .retain(|symbol| symbol.entry.ordinal != ordinal);
        self.entry
            .null_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

/// Everything that a handle can name.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) devices: Shelf<u32, Arc<Entry>>,
    registrations: Mutex<Vec<(u32, Weak<Registration>)>>,
    next_ordinal: AtomicU32,
    next_handle: AtomicU64,
    /// References that `hsa_init` counted and `hsa_shut_down` gave back.
    pub(super) hsa_references: AtomicU64,
    pub(super) streams: Shelf<u64, Arc<StreamEntry>>,
    pub(super) modules: Shelf<u64, Arc<ModuleEntry>>,
    pub(super) functions: Shelf<u64, Arc<FunctionEntry>>,
    pub(super) graphs: Shelf<u64, Arc<GraphEntry>>,
    pub(super) graph_execs: Shelf<u64, Arc<GraphExecEntry>>,
    /// By signal handle; doorbells too.
    pub(super) signals: Shelf<u64, Arc<Entry>>,
    /// By address of the `hsa_queue_t`.
    pub(super) queues: Shelf<u64, Arc<QueueEntry>>,
    pub(super) readers: Shelf<u64, Arc<ReaderEntry>>,
    pub(super) executables: Shelf<u64, Arc<ExecutableEntry>>,
    pub(super) symbols: Shelf<u64, Arc<SymbolEntry>>,
}

impl Registry {
    /// A handle that no object had before. Multiples of 16 above 4 GiB: no valid pointer of a HIP
    /// caller is mistaken for one, and null is never one.
    pub(super) fn handle(&self) -> u64 {
        (1 << 32) + 16 * self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// One more than the highest ordinal ever given out: ordinals are not used twice.
    pub(super) fn device_count(&self) -> u32 {
        self.next_ordinal.load(Ordering::Acquire)
    }

    /// All live devices by ordinal.
    pub(super) fn live(&self) -> Vec<Arc<Entry>> {
        (0..self.device_count())
            .filter_map(|ordinal| self.devices.get(&ordinal))
            .collect()
    }

    /// The device that has an allocation beginning at `address`.
    pub(super) fn owner(&self, address: u64) -> Option<(Arc<Entry>, Allocated)> {
        self.live().into_iter().find_map(|entry| {
            let allocations = entry
                .allocations
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let found = allocations.get(&address).copied();
            drop(allocations);
            found.map(|allocated| (entry, allocated))
        })
    }
}

/// The one registry of the process.
pub(super) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::default)
}

/// Registers `gpu`, or finds its living registration.
pub(super) fn register(gpu: Arc<SoftGpu>) -> Arc<Registration> {
    let registry = registry();
    let mut list = registry
        .registrations
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    list.retain(|(_, weak)| weak.strong_count() > 0);
    // Dropping a registration locks the shelves, so none is dropped while `list` is locked.
    for (ordinal, weak) in list.iter() {
        let entry = registry.devices.get(ordinal);
        if entry.is_some_and(|entry| Arc::ptr_eq(&entry.gpu, &gpu))
            && let Some(registration) = weak.upgrade()
        {
            return registration;
        }
    }
    let ordinal = registry.next_ordinal.fetch_add(1, Ordering::AcqRel);
    let entry = Arc::new(Entry {
        ordinal,
        model: model::of(gpu.target()),
        gpu,
        allocations: Mutex::default(),
        null_stream: Mutex::default(),
        names: AtomicU64::new(1),
    });
    registry.devices.insert(ordinal, Arc::clone(&entry));
    let registration = Arc::new(Registration { entry });
    list.push((ordinal, Arc::downgrade(&registration)));
    registration
}
