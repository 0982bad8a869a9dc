//! HSA signals: a 64-bit value that the packet processor decrements and the host waits for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::DeviceError;
use crate::sys::hsa::HsaSignal;

/// Longest single wait inside the runtime: a stopped queue is noticed after it.
const SLICE: Duration = Duration::from_millis(20);

/// A signal. It must outlive every packet that names it.
pub struct Signal {
    device: Arc<Device>,
    signal: HsaSignal,
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed here only; that no packet names it any more is the
        // owner's duty. A failure leaves nothing to do.
        let _ = unsafe { self.device.hsa.signal_destroy(self.signal) };
    }
}

impl core::fmt::Debug for Signal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Signal({:#x} = {})", self.signal.handle, self.load())
    }
}

impl Signal {
    /// A signal with that value.
    ///
    /// # Errors
    /// The runtime's answer.
    pub fn new(device: &Arc<Device>, initial: i64) -> Result<Self, DeviceError> {
        let signal = device.hsa.signal_create(initial, device.agent)?;
        Ok(Self {
            device: Arc::clone(device),
            signal,
        })
    }

    /// The handle that a packet's completion field takes.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.signal.handle
    }

    /// Stores a value without order: what a producer does before it publishes a packet.
    pub fn store(&self, value: i64) {
        // SAFETY: the signal is live as long as `self`.
        unsafe { self.device.hsa.signal_store_relaxed(self.signal, value) }
    }

    /// Stores a value with release order: what the host wrote before is seen by a packet that waited for
    /// it.
    pub fn release(&self, value: i64) {
        // SAFETY: the signal is live as long as `self`.
        unsafe { self.device.hsa.signal_store_release(self.signal, value) }
    }

    /// The value, with acquire order.
    #[must_use]
    pub fn load(&self) -> i64 {
        // SAFETY: the signal is live as long as `self`.
        unsafe { self.device.hsa.signal_load(self.signal) }
    }

    /// Waits until the value is below `value`. No memory is allocated unless it fails.
    ///
    /// # Errors
    /// [`DeviceError::Queue`] as soon as a queue of the device has stopped, and
    /// [`DeviceError::DeadlineExceeded`] with the last value after `deadline`.
    pub fn wait_lt(&self, value: i64, deadline: Duration) -> Result<(), DeviceError> {
        let start = Instant::now();
        loop {
            let left = deadline.saturating_sub(start.elapsed());
            let ticks = self.device.ticks(left.min(SLICE));
            // SAFETY: the signal is live as long as `self`.
            let last = unsafe { self.device.hsa.signal_wait_lt(self.signal, value, ticks) };
            if last < value {
                return Ok(());
            }
            self.device.faults.check(&self.device.hip)?;
            if left.is_zero() {
                let (what, waited) = ("completion", start.elapsed());
                let reason = self.device.hip.fault();
                return Err(DeviceError::DeadlineExceeded {
                    what,
                    waited,
                    last,
                    reason,
                });
            }
        }
    }
}
