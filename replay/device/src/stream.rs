//! The default stream of a device: launches, copies and memsets in order. Which work to put on it
//! is left to the executor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::DeviceError;
use crate::memory::Buffer;
use crate::module::Function;
use crate::observe::{CopyDirection, HipCall};
use crate::result::Hip;
use crate::sys::hip::HipStream;

/// An in-order stream. It does not order itself with other streams.
pub struct Stream {
    hip: Arc<Hip>,
    handle: HipStream,
    device_key: u64,
}

/// Sleep between polls: what the wait may add to a launch of milliseconds.
const NAP: Duration = Duration::from_micros(20);

// SAFETY: the handle is opaque, and HIP's stream calls may be made from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; HIP serialises calls on one stream itself.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: `handle` came from `stream_create` and is destroyed here only. A failure leaves
        // nothing to do.
        let _ = unsafe { self.hip.stream_destroy(self.handle) };
    }
}

impl Stream {
    pub(crate) fn new(hip: &Arc<Hip>, device_key: u64) -> Result<Self, DeviceError> {
        let handle = hip.stream_create()?;
        Ok(Self {
            hip: Arc::clone(hip),
            handle,
            device_key,
        })
    }

    /// After a wait that ended at its deadline every call answers with its error: HIP itself would
    /// block behind the work that does not end.
    fn usable(&self) -> Result<(), DeviceError> {
        self.hip.hung().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn own(&self, device: &Device, what: &str) -> Result<(), DeviceError> {
        self.usable()?;
        if device.key == self.device_key {
            return Ok(());
        }
        Err(DeviceError::ForeignDevice {
            what: what.to_owned(),
        })
    }

    /// Launches `grid` work-groups of `block` work-items with `lds` bytes of dynamic LDS and
    /// exactly these kernel-argument bytes, after all earlier work of the stream.
    ///
    /// # Errors
    /// A function of another device, or the runtime's answer. An error of a kernel that already
    /// runs comes with [`Stream::synchronize`].
    pub fn launch(
        &self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        let module = function.module();
        self.own(module.device(), function.symbol())?;
        let call = HipCall::Launch {
            module: module.id(),
            image: module.image(),
            symbol: function.symbol(),
            grid,
            block,
            lds,
            kernarg,
        };
        // SAFETY: the function keeps its module loaded, the stream is live as long as `self`, and
        // `call` was built from this function.
        unsafe { self.hip.launch(function.handle(), self.handle, &call) }
    }

    pub(crate) const fn handle(&self) -> HipStream {
        self.handle
    }

    /// Copies `bytes` to `offset` of `buffer` after all earlier work, and waits for it.
    ///
    /// # Errors
    /// Out of bounds, a buffer of another device, or the runtime's answer.
    pub fn copy_to_device(
        &self,
        buffer: &Buffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), DeviceError> {
        self.own(buffer.device(), buffer.name())?;
        buffer.writable()?;
        let dst = buffer.range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.synchronize()?;
        let direction = CopyDirection::HostToDevice;
        let src = bytes.as_ptr().cast();
        // SAFETY: `range` found the bytes in this live buffer, `bytes` outlives the call, which
        // waits for the copy, and the stream is live as long as `self`.
        unsafe {
            self.hip
                .copy(dst.cast(), src, bytes.len(), direction, self.handle)
        }
    }

    /// Copies `out.len()` bytes at `offset` of `buffer` to `out` after all earlier work, and waits.
    ///
    /// # Errors
    /// Out of bounds, a buffer of another device, or the runtime's answer.
    pub fn copy_from_device(
        &self,
        buffer: &Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.own(buffer.device(), buffer.name())?;
        let src = buffer.range(offset, out.len() as u64)?;
        if out.is_empty() {
            return Ok(());
        }
        self.synchronize()?;
        let direction = CopyDirection::DeviceToHost;
        let dst = out.as_mut_ptr().cast();
        // SAFETY: as in `copy_to_device`, with `out` borrowed exclusively until the copy ended.
        unsafe {
            self.hip.copy(
                dst,
                src.cast_const().cast(),
                out.len(),
                direction,
                self.handle,
            )
        }
    }

    /// Copies `bytes` bytes from one buffer to another after all earlier work, and waits for it. One of
    /// the two is pinned host memory, which decides the direction; with both on the device, it is
    /// device to device.
    ///
    /// # Errors
    /// Out of bounds, a sealed destination, a buffer of another device, or the runtime's answer.
    pub fn copy(
        &self,
        from: (&Buffer, u64),
        to: (&Buffer, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let ((source, first), (target, at)) = (from, to);
        self.own(source.device(), source.name())?;
        self.own(target.device(), target.name())?;
        target.writable()?;
        let (src, dst) = (source.range(first, bytes)?, target.range(at, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        self.synchronize()?;
        let direction = match (source.kind().host_visible(), target.kind().host_visible()) {
            (true, _) => CopyDirection::HostToDevice,
            (false, true) => CopyDirection::DeviceToHost,
            (false, false) => CopyDirection::DeviceToDevice,
        };
        let (src, dst) = (src.cast_const().cast(), dst.cast());
        // SAFETY: `range` found the bytes in these two live buffers (so `bytes` fits a usize), the
        // call waits for the copy, and the stream is live as long as `self`.
        unsafe {
            self.hip
                .copy(dst, src, bytes as usize, direction, self.handle)
        }
    }

    /// Sets `len` bytes at `offset` of `buffer` to `value` after all earlier work.
    ///
    /// # Errors
    /// Out of bounds, a buffer of another device, or the runtime's answer.
    pub fn memset(
        &self,
        buffer: &Buffer,
        offset: u64,
        value: u8,
        len: u64,
    ) -> Result<(), DeviceError> {
        self.own(buffer.device(), buffer.name())?;
        buffer.writable()?;
        let dst = buffer.range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.synchronize()?;
        // SAFETY: `range` found the bytes in this live buffer (so `len` fits a usize), and the
        // stream is live as long as `self`.
        unsafe {
            self.hip
                .memset(dst.cast(), value, len as usize, self.handle)
        }
    }

    /// Waits until all work of the stream has ended, up to the device's deadline. HIP's own wait has
    /// none, so the stream is asked again and again.
    ///
    /// # Errors
    /// The first error of that work, or [`DeviceError::DeadlineExceeded`], with which every later
    /// call on this stream answers too.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.usable()?;
        let (start, deadline) = (Instant::now(), self.hip.deadline());
        let polling = self.hip.polling();
        loop {
            // SAFETY: the stream is live as long as `self`.
            if unsafe { self.hip.stream_idle(self.handle) }? {
                return Ok(());
            }
            let waited = start.elapsed();
            if waited >= deadline {
                let error = DeviceError::DeadlineExceeded {
                    what: "the end of the stream's work",
                    waited,
                    last: 0,
                    reason: self.hip.fault(),
                };
                return Err(self.hip.hang(error));
            }
            if waited < polling {
                core::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }
}
