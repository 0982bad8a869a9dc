//! Observation of the calls that make work on a device: launches, copies and memsets, told at the
//! one place where the table's entries are invoked. What to make of them is left to the observer.

use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::sys::hip::{
    HIP_MEMCPY_DEVICE_TO_DEVICE, HIP_MEMCPY_DEVICE_TO_HOST, HIP_MEMCPY_HOST_TO_DEVICE,
    HipMemcpyKind,
};

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyDirection {
    /// Host memory to a buffer.
    HostToDevice,
    /// Buffer to host memory.
    DeviceToHost,
    /// Buffer to buffer.
    DeviceToDevice,
}

impl CopyDirection {
    pub(crate) fn hip_kind(self) -> HipMemcpyKind {
        match self {
            Self::HostToDevice => HIP_MEMCPY_HOST_TO_DEVICE,
            Self::DeviceToHost => HIP_MEMCPY_DEVICE_TO_HOST,
            Self::DeviceToDevice => HIP_MEMCPY_DEVICE_TO_DEVICE,
        }
    }
}

/// One call that the runtime accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HipCall<'a> {
    /// A kernel launch.
    Launch {
        /// Number of the module on its device, see [`crate::Module::id`].
        module: u64,
        /// Bytes of the code object that the module was loaded from.
        image: &'a [u8],
        /// Kernel symbol.
        symbol: &'a str,
        /// Work-groups per dimension.
        grid: [u32; 3],
        /// Work-items per work-group and dimension.
        block: [u32; 3],
        /// Dynamic LDS, bytes.
        lds: u32,
        /// The kernel arguments, byte for byte.
        kernarg: &'a [u8],
    },
    /// A captured graph, launched once. Its launches were told one by one when they were captured.
    Graph {
        /// Kernel launches in it.
        launches: usize,
    },
    /// A copy.
    Copy {
        /// First address written.
        dst: u64,
        /// First address read.
        src: u64,
        /// Bytes copied.
        bytes: u64,
        /// Which side is the device.
        direction: CopyDirection,
    },
    /// A memset.
    Memset {
        /// First address written.
        dst: u64,
        /// Byte written.
        value: u8,
        /// Bytes written.
        bytes: u64,
    },
}

/// Sees every launch, graph, copy and memset of a device, on the thread that made the call, after the
/// runtime accepted it. It may be called from several threads at once.
pub trait Observer: Send + Sync {
    /// Called once per accepted call.
    fn observe(&self, call: &HipCall<'_>);
}

type List = Vec<(u64, Arc<dyn Observer>)>;

#[derive(Default)]
struct Attached {
    next: u64,
    list: Arc<List>,
}

/// The observers of one device.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<RwLock<Attached>>);

impl Observers {
    pub(crate) fn attach(&self, observer: Arc<dyn Observer>) -> ObserverGuard {
        let mut attached = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = attached.next;
        attached.next += 1;
        Arc::make_mut(&mut attached.list).push((id, observer));
        ObserverGuard {
            id,
            observers: Arc::downgrade(&self.0),
        }
    }

    /// The list is copied out (one reference count) so that an observer may attach or detach.
    pub(crate) fn tell(&self, call: &HipCall<'_>) {
        let list = {
            let attached = self.0.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&attached.list)
        };
        for (_, observer) in list.iter() {
            observer.observe(call);
        }
    }
}

/// Detaches its observer when dropped. It may outlive the device.
#[must_use = "dropping the guard detaches the observer"]
pub struct ObserverGuard {
    id: u64,
    observers: Weak<RwLock<Attached>>,
}

impl Drop for ObserverGuard {
    fn drop(&mut self) {
        let Some(observers) = self.observers.upgrade() else {
            return;
        };
        let mut attached = observers.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut attached.list).retain(|(id, _)| *id != self.id);
    }
}
