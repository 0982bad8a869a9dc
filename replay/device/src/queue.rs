//! An AQL queue: reservation, publication in the order that the packet processor relies on, and the
//! doorbell. Nothing on the way from `reserve` to `ring` allocates memory. What a packet says is
//! left to the packet crate.
//!
//! Order of publication (HSA Platform System Architecture, user mode queuing): reserve ids; wait
//! for room; write the body while the header says INVALID; store the first 32 bits (header and
//! setup, or header and vendor format) once with release order; ring the doorbell with the id of
//! the last packet. A header published before its body, or in two stores, lets the processor
//! execute a mixture of two packets.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::DeviceError;
use crate::result::Hip;
use crate::status;
use crate::sys::hsa::{HsaQueue, HsaSignal, HsaStatus};

/// Bytes of an AQL packet.
pub const PACKET_BYTES: usize = 64;
/// First 32 bits of a slot that holds nothing: type INVALID (1), no barrier, no fences.
const INVALID: u32 = 1;
/// Longest wait for room in the ring.
const ROOM_DEADLINE: Duration = Duration::from_secs(30);
/// Polls before a wait for room gives its time slice away.
const SPINS: u32 = 64;

/// The first error that the queues of a device, or one of them, have reported; 0 is none.
#[derive(Default)]
pub(crate) struct Faults(AtomicU32);

impl Faults {
    fn record(&self, status: u32) {
        let _ = self
            .0
            .compare_exchange(0, status, Ordering::Release, Ordering::Relaxed);
    }

    pub(crate) fn check(&self, hip: &Hip) -> Result<(), DeviceError> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            status => {
                let row = status::hsa(status);
                let (name, remedy, reason) = (row.name, row.remedy, hip.fault());
                Err(DeviceError::Queue {
                    status,
                    name,
                    remedy,
                    reason,
                })
            }
        }
    }
}

/// What the error callback of a queue records into.
struct ErrorSink {
    queue: Faults,
    device: Arc<Faults>,
}

unsafe extern "C" fn on_error(status: HsaStatus, _queue: *mut HsaQueue, data: *mut c_void) {
    // SAFETY: `data` is the `ErrorSink` that the `Queue` keeps alive until the queue is destroyed.
    let sink = unsafe { &*data.cast_const().cast::<ErrorSink>() };
    sink.queue.record(status.0);
    sink.device.record(status.0);
}

/// An AQL queue with any number of producers.
pub struct Queue {
    device: Arc<Device>,
    queue: *mut HsaQueue,
    base: *mut u8,
    doorbell: HsaSignal,
    /// Packets in the ring, a power of two.
    size: u64,
    /// First id that is not reserved.
    reserved: AtomicU64,
    /// Makes "is there room" and "reserve" one step; never held while waiting, since those who
    /// have ids must be able to publish them.
    reserving: Mutex<()>,
    /// Highest id rung, plus one: a doorbell never goes back.
    rung: AtomicU64,
    errors: Arc<ErrorSink>,
}

// SAFETY: the queue is of type MULTI: indices and doorbell may be used from any thread, and ring
// slots are touched through atomics only.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed here only; `errors` lives until after this call. A
        // failure leaves nothing to do.
        let _ = unsafe { self.device.hsa.queue_destroy(self.queue) };
    }
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Queue({} packets, read up to {})",
            self.size,
            self.read_index()
        )
    }
}

impl Queue {
    /// A queue with a ring of `packets` packets (a power of two; ROCr takes 64 to 131,072).
    ///
    /// # Errors
    /// The runtime's answer.
    pub fn new(device: &Arc<Device>, packets: u32) -> Result<Self, DeviceError> {
        let device_faults = Arc::clone(&device.faults);
        let errors = Arc::new(ErrorSink {
            queue: Faults::default(),
            device: device_faults,
        });
        let data = Arc::as_ptr(&errors).cast_mut().cast();
        // SAFETY: `on_error` takes an `ErrorSink`, which `errors` keeps until after the queue is
        // destroyed, here or in `drop`.
        let queue = unsafe {
            device
                .hsa
                .queue_create(device.agent, packets, on_error, data)
        }?;
        // SAFETY: the runtime returned a live `hsa_queue_t`, whose public fields never change.
        let HsaQueue {
            base_address,
            doorbell_signal,
            size,
            ..
        } = unsafe { *queue };
        Ok(Self {
            device: Arc::clone(device),
            queue,
            base: base_address.cast(),
            doorbell: doorbell_signal,
            size: u64::from(size),
            reserved: AtomicU64::new(0),
            reserving: Mutex::new(()),
            rung: AtomicU64::new(0),
            errors,
        })
    }

    /// Packets in the ring.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// First id that the packet processor has not consumed. A smaller id says that its slot may be
    /// used again, not that its work is complete.
    #[must_use]
    pub fn read_index(&self) -> u64 {
        // SAFETY: the queue is live as long as `self`.
        unsafe { self.device.hsa.queue_read_index(self.queue) }
    }

    /// The error that stopped the queue, if one did.
    ///
    /// # Errors
    /// [`DeviceError::Queue`].
    pub fn check(&self) -> Result<(), DeviceError> {
        self.errors.queue.check(&self.device.hip)
    }

    fn refused(&self, what: &'static str, id: u64, reserved: u64) -> DeviceError {
        DeviceError::Ring {
            what,
            id,
            size: self.size,
            reserved,
            read: self.read_index(),
        }
    }

    /// Reserves `packets` consecutive ids and returns the first; waits for room up to 30 s.
    ///
    /// # Errors
    /// More packets than the ring holds, a stopped queue, or no room in time; nothing is reserved.
    pub fn reserve(&self, packets: u64) -> Result<u64, DeviceError> {
        self.reserve_within(packets, ROOM_DEADLINE)
    }

    /// [`Queue::reserve`] with its own deadline.
    ///
    /// # Errors
    /// As [`Queue::reserve`].
    pub fn reserve_within(&self, packets: u64, deadline: Duration) -> Result<u64, DeviceError> {
        if packets == 0 || packets > self.size {
            let reserved = self.reserved.load(Ordering::Acquire);
            return Err(self.refused("packets cannot be reserved", packets, reserved));
        }
        let mut start = None;
        for polls in 0u32.. {
            self.check()?;
            if let Some(first) = self.try_reserve(packets) {
                return Ok(first);
            }
            if polls < SPINS {
                core::hint::spin_loop();
                continue;
            }
            if start.get_or_insert_with(Instant::now).elapsed() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        let waited = start.map_or(Duration::ZERO, |start: Instant| start.elapsed());
        let (what, last) = ("room in the ring", self.read_index().cast_signed());
        Err(DeviceError::DeadlineExceeded {
            what,
            waited,
            last,
            reason: self.device.hip.fault(),
        })
    }

    /// Reserves if there is room now.
    fn try_reserve(&self, packets: u64) -> Option<u64> {
        let _one = self
            .reserving
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let end = self.reserved.load(Ordering::Relaxed) + packets;
        if end - self.read_index() > self.size {
            return None;
        }
        // SAFETY: the queue is live as long as `self`.
        let first = unsafe { self.device.hsa.queue_reserve(self.queue, packets) };
        self.reserved.store(first + packets, Ordering::Release);
        Some(first)
    }

    /// The 16 words of the slot of `id`, which must be reserved and not consumed.
    fn slot(&self, id: u64) -> Result<*mut u32, DeviceError> {
        let reserved = self.reserved.load(Ordering::Acquire);
        if id >= reserved || id < self.read_index() {
            return Err(self.refused("packet is not reserved or already consumed", id, reserved));
        }
        let index = (id & (self.size - 1)) as usize;
        Ok(self.base.wrapping_add(index * PACKET_BYTES).cast())
    }

    /// Writes bytes 4..64 of `packet` to the slot of `id`, whose header stays INVALID; bytes 0..4
    /// are ignored, [`Queue::publish`] stores them.
    ///
    /// # Errors
    /// An id that is not reserved, or that the packet processor has consumed.
    pub fn write_body(&self, id: u64, packet: &[u8; PACKET_BYTES]) -> Result<(), DeviceError> {
        let slot = self.slot(id)?;
        let (words, _) = packet.as_chunks::<4>();
        for (index, word) in words.iter().enumerate() {
            let value = if index == 0 {
                INVALID
            } else {
                u32::from_le_bytes(*word)
            };
            // SAFETY: `slot` is the address of 16 aligned words inside the live ring, which hosts
            // and packet processor touch through atomics.
            let cell = unsafe { AtomicU32::from_ptr(slot.add(index)) };
            cell.store(value, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Publishes the packet of `id`: one 32-bit release store of its first four bytes, after which
    /// the packet processor may execute it.
    ///
    /// # Errors
    /// An id that is not reserved, or that the packet processor has consumed.
    pub fn publish(&self, id: u64, header: u32) -> Result<(), DeviceError> {
        let slot = self.slot(id)?;
        // SAFETY: as in `write_body`.
        unsafe { AtomicU32::from_ptr(slot) }.store(header, Ordering::Release);
        Ok(())
    }

    /// Rings the doorbell: packets up to `last` have been published.
    ///
    /// # Errors
    /// An id that is not reserved.
    pub fn ring(&self, last: u64) -> Result<(), DeviceError> {
        let reserved = self.reserved.load(Ordering::Acquire);
        if last >= reserved {
            return Err(self.refused("doorbell beyond the reserved packets", last, reserved));
        }
        let highest = self
            .rung
            .fetch_max(last + 1, Ordering::AcqRel)
            .max(last + 1)
            - 1;
        // SAFETY: the doorbell belongs to the queue, which is live as long as `self`.
        unsafe {
            self.device
                .hsa
                .signal_store_release(self.doorbell, highest.cast_signed())
        };
        Ok(())
    }

    /// Reserves, writes, publishes and rings for `packets` in order; returns the first id.
    ///
    /// # Errors
    /// As [`Queue::reserve`].
    pub fn submit(&self, packets: &[[u8; PACKET_BYTES]]) -> Result<u64, DeviceError> {
        let first = self.reserve(packets.len() as u64)?;
        for (id, packet) in (first..).zip(packets) {
            self.write_body(id, packet)?;
        }
        for (id, packet) in (first..).zip(packets) {
            let [a, b, c, d, ..] = *packet;
            self.publish(id, u32::from_le_bytes([a, b, c, d]))?;
        }
        self.ring(first + packets.len() as u64 - 1)?;
        Ok(first)
    }
}
