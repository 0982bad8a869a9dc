//! A HIP stream as an AQL queue of the software GPU: kernel arguments go to a slab, launches to the
//! ring with barrier and system fences (as clr does), and one signal counts what is in flight.
//! Checking what a caller passes is left to the HIP entries.

use super::registry::Entry;
use crate::cp::QueueFault;
use crate::gpu::{Condition, SoftGpu, SoftQueue};
use crate::memory::{Access, Kind, Rights, pointer};
use crate::object::KernelSymbol;
use refrain_packet::aql::{Header, KernelDispatch, PacketType, encode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Packets of a stream's ring.
const PACKETS: u32 = 1024;
/// Bytes of a stream's kernarg slab; when it is used up, the stream waits for its launches.
const SLAB_BYTES: u64 = 256 << 10;
/// Alignment of kernel arguments in the slab, bytes: a cache line of their own.
const KERNARG_ALIGN: u64 = 256;
/// Longest single wait; a stopped queue is noticed after it.
const SLICE: Duration = Duration::from_millis(50);

/// What makes a stream fail.
#[derive(Clone, Debug)]
pub(super) struct StreamError {
    /// Queue error bits of the fault, 0 if the software GPU refused a request.
    pub(super) code: u32,
    /// In words.
    pub(super) text: String,
}

/// The first error of the stream's queue.
#[derive(Default)]
struct Fault {
    code: AtomicU32,
    text: OnceLock<String>,
}

/// Launches that have been made and not been waited for.
struct Progress {
    /// Bytes of the slab in use.
    used: u64,
}

/// One stream.
pub(super) struct StreamEntry {
    /// HIP ordinal of the device.
    pub(super) ordinal: u32,
    gpu: Arc<SoftGpu>,
    queue: Arc<SoftQueue>,
    /// Counts the launches in flight.
    pending: u64,
    slab: u64,
    fault: Arc<Fault>,
    progress: Mutex<Progress>,
    /// Does not wait for, nor hold up, the null stream.
    pub(super) non_blocking: bool,
}

impl Drop for StreamEntry {
    fn drop(&mut self) {
        self.queue.destroy();
        // Both were made by `new` and are given back here only.
        let _ = self.gpu.destroy_signal(self.pending);
        let _ = self.gpu.memory().free(self.slab);
    }
}

impl StreamEntry {
    pub(super) fn new(entry: &Entry, non_blocking: bool) -> Result<Self, StreamError> {
        let gpu = Arc::clone(&entry.gpu);
        let refused = |text: String| StreamError { code: 0, text };
        let fault = Arc::new(Fault::default());
        let sink = Arc::clone(&fault);
        let on_error = move |error: &QueueFault| {
            // The text first: who sees the code finds the text.
            let _ = sink.text.set(error.to_string());
            sink.code.store(error.code.max(1), Ordering::Release);
        };
        let queue = gpu.create_queue(PACKETS, Arc::new(on_error));
        let queue = queue.map_err(|error| refused(error.to_string()))?;
        let pending = gpu
            .create_signal(0)
            .map_err(|error| refused(error.to_string()))?;
        let name = entry.fresh_name("hip kernel arguments");
        let rights = Rights::READ.union(Rights::HOST);
        let slab = gpu
            .memory()
            .alloc(&name, SLAB_BYTES, KERNARG_ALIGN, rights, Kind::Kernarg);
        let slab = match slab {
            Ok(slab) => slab,
            Err(error) => {
                let _ = gpu.destroy_signal(pending);
                return Err(refused(error.to_string()));
            }
        };
        let progress = Mutex::new(Progress { used: 0 });
        let ordinal = entry.ordinal;
        Ok(Self {
            ordinal,
            gpu,
            queue,
            pending,
            slab,
            fault,
            progress,
            non_blocking,
        })
    }

    /// The stream's error, if its queue has stopped.
    pub(super) fn check(&self) -> Result<(), StreamError> {
        match self.fault.code.load(Ordering::Acquire) {
            0 => Ok(()),
            code => {
                let text = self.fault.text.get().cloned().unwrap_or_default();
                Err(StreamError { code, text })
            }
        }
    }

    /// Waits until every launch has completed.
    pub(super) fn wait(&self) -> Result<(), StreamError> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        self.drain(&mut progress)
    }

    /// Whether every launch has completed.
    pub(super) fn idle(&self) -> Result<bool, StreamError> {
        self.check()?;
        let value = self.gpu.load_signal(self.pending);
        let value = value.map_err(|error| StreamError {
            code: 0,
            text: error.to_string(),
        })?;
        self.check()?;
        Ok(value < 1)
    }

    /// Waits until every launch has completed, or none that has not ever will: the queue has
    /// stopped, or hangs. A driver gets there by resetting the queue.
    pub(super) fn settle(&self) {
        while let Ok(value) = self.gpu.wait_signal(self.pending, Condition::Lt, 1, SLICE)
            && value >= 1
            && !self.queue.is_stuck()
            && !self.queue.is_poisoned()
        {}
    }

    fn drain(&self, progress: &mut Progress) -> Result<(), StreamError> {
        loop {
            let value = self.gpu.wait_signal(self.pending, Condition::Lt, 1, SLICE);
            let value = value.map_err(|error| StreamError {
                code: 0,
                text: error.to_string(),
            })?;
            self.check()?;
            if value < 1 {
                progress.used = 0;
                return Ok(());
            }
        }
    }

    /// Launches `groups` work-groups of `group` work-items with exactly these argument bytes.
    pub(super) fn launch(
        &self,
        kernel: &KernelSymbol,
        groups: [u32; 3],
        group: [u32; 3],
        lds_bytes: u32,
        kernarg: &[u8],
    ) -> Result<(), StreamError> {
        let refused = |text: String| StreamError { code: 0, text };
        self.check()?;
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let room = (kernarg.len() as u64).next_multiple_of(KERNARG_ALIGN);
        if room > SLAB_BYTES {
            return Err(refused(format!(
                "{} bytes of kernel arguments",
                kernarg.len()
            )));
        }
        let full = self.queue.load_write_index() - self.queue.load_read_index() >= PACKETS.into();
        if full || progress.used + room > SLAB_BYTES {
            self.drain(&mut progress)?;
        }
        let packet = self.packet(kernel, groups, group, lds_bytes, self.slab + progress.used);
        let packet = packet.map_err(refused)?;
        let memory = self.gpu.memory();
        let fault = |error: crate::memory::MemoryFault| refused(error.to_string());
        let at = self.slab + progress.used;
        memory
            .check(at, kernarg.len() as u64, Access::HostWrite)
            .map_err(fault)?;
        // SAFETY: `check` found the bytes in the slab, which lives as long as `self`; the launches
        // that read this part of it have completed.
        unsafe { pointer(at).copy_from_nonoverlapping(kernarg.as_ptr(), kernarg.len()) };
        progress.used += room;
        let counted = self.gpu.add_signal(self.pending, 1);
        counted.map_err(|error| refused(error.to_string()))?;
        let id = self.queue.add_write_index(1);
        let slot = self.queue.ring_va() + (id % u64::from(PACKETS)) * 64;
        // The slot's header says INVALID until the last store.
        memory
            .write_bytes(slot + 4, &packet.body()[4..])
            .map_err(fault)?;
        memory
            .store_u32(slot, packet.header_word(), Ordering::Release)
            .map_err(fault)?;
        let rung = self
            .gpu
            .ring_doorbell(self.queue.doorbell_signal(), id.cast_signed());
        rung.map_err(|error| refused(error.to_string()))
    }

    fn packet(
        &self,
        kernel: &KernelSymbol,
        groups: [u32; 3],
        group: [u32; 3],
        lds_bytes: u32,
        kernarg_va: u64,
    ) -> Result<refrain_packet::aql::EncodedPacket, String> {
        let mut workgroup_size = [0u16; 3];
        let mut grid_size = [0u32; 3];
        for axis in 0..3 {
            let (count, size) = (groups[axis], group[axis]);
            let items = count.checked_mul(size);
            let too_large = || format!("{count} groups of {size} work-items exceed 2^32");
            grid_size[axis] = items.ok_or_else(too_large)?;
            workgroup_size[axis] =
                u16::try_from(size).map_err(|_| format!("{size} work-items in a group"))?;
        }
        let body = KernelDispatch {
            dimensions: 3,
            workgroup_size,
            grid_size,
            private_segment_size: kernel.private_bytes,
            group_segment_size: kernel.group_bytes + lds_bytes,
            kernel_object: kernel.descriptor_va,
            kernarg_address: if kernel.kernarg_size == 0 {
                0
            } else {
                kernarg_va
            },
            correlation: 0,
            completion_signal: self.pending,
        };
        let header = Header::system(PacketType::KernelDispatch);
        encode::kernel_dispatch(header, &body).map_err(|error| error.to_string())
    }
}
