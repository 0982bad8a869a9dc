//! User-mode queues: a ring of 64-byte slots and an `amd_queue_v2_t` in guest memory. Producers
//! reserve ids, write packets and ring the doorbell; consuming them is left to `cp`.

use super::config::SoftError;
use super::signal::Signals;
use super::{Shared, SoftGpu};
use crate::cp::{QueueFault, QueueProcessor};
use crate::memory::{AddressSpace, Kind, PAGE, Rights};
use refrain_packet::tables::objects::{QUEUE_ERRORS, queue as at};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of one slot.
pub(crate) const SLOT: u64 = 64;
/// Header and setup of a slot that holds no packet: type 1 (INVALID), everything else 0.
pub(crate) const INVALID_SLOT: u32 = 1;
/// Ring sizes that ROCr accepts for GPU queues, in packets.
const RING_SIZES: std::ops::RangeInclusive<u32> = 64..=131_072;

/// Called once, on the packet processor's thread, when a queue stops because of an error. No lock
/// of the software GPU is held during the call.
pub type ErrorSink = Arc<dyn Fn(&QueueFault) + Send + Sync>;

/// The queue as the packet processor sees it.
pub(crate) struct QueueState {
    pub id: u64,
    pub packets: u32,
    pub ring_va: u64,
    pub queue_va: u64,
    pub doorbell: u64,
    /// Signal that receives the error bits.
    pub inactive: u64,
    doorbell_va: u64,
    /// Last packet id rung, -1 before the first.
    pub rung: AtomicI64,
    pub poisoned: AtomicBool,
    /// Something of the queue will never complete.
    pub stuck: AtomicBool,
    pub destroyed: AtomicBool,
    /// What runs is given up.
    pub killed: Arc<AtomicBool>,
    pub processor: Mutex<QueueProcessor>,
    pub on_error: ErrorSink,
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueState")
            .field("id", &self.id)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

impl QueueState {
    /// Address of the slot of packet `id`.
    pub(crate) fn slot(&self, id: u64) -> u64 {
        self.ring_va + (id & u64::from(self.packets - 1)) * SLOT
    }

    fn create(
        memory: &AddressSpace,
        signals: &Signals,
        id: u64,
        packets: u32,
        on_error: ErrorSink,
    ) -> Result<Self, SoftError> {
        if !RING_SIZES.contains(&packets) || !packets.is_power_of_two() {
            return Err(SoftError::RingSize { packets });
        }
        let places = allocate(memory, id, packets)?;
        let made = Self::fill(memory, signals, id, packets, places, on_error);
        made.inspect_err(|_| free(memory, &places))
    }

    /// Fills the queue's memory: ring, `amd_queue_v2_t`, doorbell.
    fn fill(
        memory: &AddressSpace,
        signals: &Signals,
        id: u64,
        packets: u32,
        [ring_va, queue_va, doorbell_va]: [u64; 3],
        on_error: ErrorSink,
    ) -> Result<Self, SoftError> {
        let fault = |fault| SoftError::Memory {
            what: "initialising a queue",
            fault,
        };
        for slot in 0..u64::from(packets) {
            memory
                .store_u32(ring_va + slot * SLOT, INVALID_SLOT, Ordering::Release)
                .map_err(fault)?;
        }
        memory
            .store_u64(doorbell_va, (-1_i64).cast_unsigned(), Ordering::Release)
            .map_err(fault)?;
        let doorbell = signals.create_doorbell(id, doorbell_va)?;
        let inactive = signals.create(0).inspect_err(|_| {
            // Made above and known to nobody.
            let _ = signals.destroy(doorbell);
        })?;
        let mut image = [0; at::BYTES];
        let mut put = |offset: usize, bytes: &[u8]| {
            image[offset..offset + bytes.len()].copy_from_slice(bytes)
        };
        // features bit 0: kernel dispatch (HSA_QUEUE_FEATURE_KERNEL_DISPATCH).
        put(at::FEATURES, &1_u32.to_le_bytes());
        put(at::BASE_ADDRESS, &ring_va.to_le_bytes());
        put(at::DOORBELL_SIGNAL, &doorbell.to_le_bytes());
        put(at::SIZE, &packets.to_le_bytes());
        put(at::ID, &id.to_le_bytes());
        let read_offset = at::READ_DISPATCH_ID as u32;
        put(
            at::READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET,
            &read_offset.to_le_bytes(),
        );
        // queue_properties bit 1: pointers are 64 bits wide (AMD_QUEUE_PROPERTIES_IS_PTR64).
        put(at::QUEUE_PROPERTIES, &2_u32.to_le_bytes());
        put(at::QUEUE_INACTIVE_SIGNAL, &inactive.to_le_bytes());
        memory.write_bytes(queue_va, &image).map_err(fault)?;
        let killed = Arc::new(AtomicBool::new(false));
        Ok(Self {
            id,
            packets,
            ring_va,
            queue_va,
            doorbell,
            inactive,
            doorbell_va,
            rung: AtomicI64::new(-1),
            poisoned: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
            processor: Mutex::new(QueueProcessor::new(Arc::clone(&killed))),
            killed,
            on_error,
        })
    }
}

/// Memory of a queue's ring, its `amd_queue_v2_t` and its doorbell; all of it or none.
fn allocate(memory: &AddressSpace, id: u64, packets: u32) -> Result<[u64; 3], SoftError> {
    let rows = [
        (
            format!("queue {id} ring"),
            u64::from(packets) * SLOT,
            PAGE,
            Kind::Ring,
        ),
        (format!("queue {id}"), at::BYTES as u64, 64, Kind::Ring),
        (format!("queue {id} doorbell"), 8, 8, Kind::Ring),
    ];
    let mut places = [0; 3];
    for (index, (name, bytes, align, kind)) in rows.into_iter().enumerate() {
        let made = memory.alloc(&name, bytes, align, Rights::SHARED, kind);
        places[index] = made.inspect_err(|_| free(memory, &places[..index]))?;
    }
    Ok(places)
}

fn free(memory: &AddressSpace, places: &[u64]) {
    for &base in places {
        // Allocated by `allocate`; nobody else frees them.
        let _ = memory.free(base);
    }
}

/// A queue of a software GPU. Dropping the handle destroys it; packets that have not started are
/// lost.
#[derive(Debug)]
pub struct SoftQueue {
    state: Arc<QueueState>,
    shared: Arc<Shared>,
}

impl SoftGpu {
    /// Creates a queue of `packets` slots (a power of two, 64 to 131072). `on_error` is told of the
    /// first error, after which the queue executes nothing more.
    pub fn create_queue(
        self: &Arc<Self>,
        packets: u32,
        on_error: ErrorSink,
    ) -> Result<Arc<SoftQueue>, SoftError> {
        let shared = self.shared();
        let id = shared.next_queue.fetch_add(1, Ordering::Relaxed);
        let state = QueueState::create(&shared.memory, &shared.signals, id, packets, on_error)?;
        let state = Arc::new(state);
        shared
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&state));
        shared.wake();
        Ok(Arc::new(SoftQueue {
            state,
            shared: Arc::clone(shared),
        }))
    }
}

impl SoftQueue {
    /// Queue id, as in `hsa_queue_t.id`.
    pub fn id(&self) -> u64 {
        self.state.id
    }

    /// Slots of the ring.
    pub fn packets(&self) -> u32 {
        self.state.packets
    }

    /// Address of the `amd_queue_v2_t`, which begins with the `hsa_queue_t`.
    pub fn queue_va(&self) -> u64 {
        self.state.queue_va
    }

    /// Address of slot 0.
    pub fn ring_va(&self) -> u64 {
        self.state.ring_va
    }

    /// Handle of the doorbell signal; store the id of the last published packet to it.
    pub fn doorbell_signal(&self) -> u64 {
        self.state.doorbell
    }

    /// Handle of the signal that receives the error bits, 0 while the queue runs.
    pub fn inactive_signal(&self) -> u64 {
        self.state.inactive
    }

    /// Reserves `count` packet ids and returns the first (acquire and release).
    pub fn add_write_index(&self, count: u64) -> u64 {
        let va = self.state.queue_va + at::WRITE_DISPATCH_ID as u64;
        // The queue's own structure is live and writable until the handle is dropped.
        self.shared
            .memory
            .fetch_add_u64(va, count, Ordering::AcqRel)
            .unwrap_or(u64::MAX)
    }

    /// The next id to be reserved (acquire).
    pub fn load_write_index(&self) -> u64 {
        let va = self.state.queue_va + at::WRITE_DISPATCH_ID as u64;
        self.shared
            .memory
            .load_u64(va, Ordering::Acquire)
            .unwrap_or(u64::MAX)
    }

    /// The id of the first packet whose slot may not be reused yet (acquire).
    pub fn load_read_index(&self) -> u64 {
        let va = self.state.queue_va + at::READ_DISPATCH_ID as u64;
        self.shared
            .memory
            .load_u64(va, Ordering::Acquire)
            .unwrap_or(u64::MAX)
    }

    /// Whether an error has stopped the queue.
    pub fn is_poisoned(&self) -> bool {
        self.state.poisoned.load(Ordering::Acquire)
    }

    /// Whether waiting for all of the queue's work would last for ever: an injected fault hung a
    /// launch or withheld a completion.
    pub fn is_stuck(&self) -> bool {
        self.state.is_stuck()
    }

    /// Stops the queue and frees its memory. Waves of it that are executing are given up. Further
    /// calls do nothing.
    pub fn destroy(&self) {
        if self.state.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        let queues = &self.shared.queues;
        queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|queue| queue.id != self.state.id);
        self.state.killed.store(true, Ordering::Release);
        // Whoever executes a packet of this queue holds the lock.
        drop(
            self.state
                .processor
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        if let Some(strict) = &self.shared.strict {
            strict.model().queue_gone(self.state.id);
        }
        for signal in [self.state.doorbell, self.state.inactive] {
            let _ = self.shared.signals.destroy(signal);
        }
        let QueueState {
            ring_va,
            queue_va,
            doorbell_va,
            ..
        } = *self.state;
        free(&self.shared.memory, &[ring_va, queue_va, doorbell_va]);
    }
}

impl Drop for SoftQueue {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// The meaning of an error code of `queue_inactive_signal`.
pub fn queue_error_name(code: u32) -> &'static str {
    QUEUE_ERRORS
        .iter()
        .find(|row| row.0 == code)
        .map_or("unknown", |row| row.1)
}
