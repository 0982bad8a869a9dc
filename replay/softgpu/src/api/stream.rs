//! A HIP stream as an AQL queue of the software GPU: kernel arguments go to a slab, launches to the
//! ring with barrier and system fences (as clr does), and one signal counts what is in flight.
//! Checking what a caller passes is left to the HIP entries.

use super::registry::Entry;
use crate::cp::QueueFault;
use crate::gpu::{Condition, SoftGpu, SoftQueue};
use crate::memory::{Access, Kind, Rights, pointer};
use crate::object::KernelSymbol;
use refrain_packet::aql::{EncodedPacket, Header, KernelDispatch, PacketType, encode};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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

/// One captured launch.
#[derive(Clone)]
pub(super) struct Node {
    /// Handle of its function.
    pub(super) function: u64,
    pub(super) kernel: KernelSymbol,
    pub(super) groups: [u32; 3],
    pub(super) group: [u32; 3],
    pub(super) lds_bytes: u32,
    /// The argument bytes, copied when the launch was captured.
    pub(super) kernarg: Vec<u8>,
}

/// What a stream has captured so far.
#[derive(Default)]
pub(super) struct Captured {
    pub(super) nodes: Vec<Node>,
    /// The first call that may not be captured.
    pub(super) spoilt: Option<String>,
}

/// The encoded packets of an executable graph. They name no completion signal: that is the
/// launching stream's.
pub(super) struct GraphPackets {
    gpu: Arc<SoftGpu>,
    /// Address of the kernel arguments of all launches.
    kernargs: u64,
    packets: Vec<EncodedPacket>,
}

impl Drop for GraphPackets {
    fn drop(&mut self) {
        // Made by `new` and given back here only.
        let _ = self.gpu.memory().free(self.kernargs);
    }
}

impl GraphPackets {
    /// Places the arguments of the launches and encodes their packets.
    pub(super) fn new(entry: &Entry, nodes: &[Node]) -> Result<Self, StreamError> {
        let room = |node: &Node| (node.kernarg.len() as u64).next_multiple_of(KERNARG_ALIGN);
        let bytes = nodes.iter().map(room).sum::<u64>().max(KERNARG_ALIGN);
        let gpu = Arc::clone(&entry.gpu);
        let name = entry.fresh_name("hip graph kernel arguments");
        let rights = Rights::READ.union(Rights::HOST);
        let memory = gpu.memory();
        let kernargs = memory.alloc(&name, bytes, KERNARG_ALIGN, rights, Kind::Kernarg);
        let kernargs = kernargs.map_err(|error| refused(error.to_string()))?;
        let mut made = Self {
            gpu: Arc::clone(&entry.gpu),
            kernargs,
            packets: Vec::with_capacity(nodes.len()),
        };
        let mut at = kernargs;
        for node in nodes {
            let bytes = &node.kernarg;
            let placed = memory.check(at, bytes.len() as u64, Access::HostWrite);
            placed.map_err(|error| refused(error.to_string()))?;
            // SAFETY: `check` found the bytes in the allocation just made, which nothing reads yet.
            unsafe { pointer(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            let (groups, group) = (node.groups, node.group);
            let packet = packet(&node.kernel, groups, group, node.lds_bytes, at, 0);
            made.packets.push(packet.map_err(refused)?);
            at += room(node);
        }
        Ok(made)
    }
}

fn refused(text: String) -> StreamError {
    StreamError { code: 0, text }
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
    capture: Mutex<Option<Captured>>,
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
            capture: Mutex::default(),
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
        let at = self.slab + progress.used;
        let packet = packet(kernel, groups, group, lds_bytes, at, self.pending);
        let packet = packet.map_err(refused)?;
        let memory = self.gpu.memory();
        let fault = |error: crate::memory::MemoryFault| refused(error.to_string());
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

    fn capture(&self) -> MutexGuard<'_, Option<Captured>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a capture; false while one runs.
    pub(super) fn begin_capture(&self) -> bool {
        let mut capture = self.capture();
        let begins = capture.is_none();
        if begins {
            *capture = Some(Captured::default());
        }
        begins
    }

    /// Ends the capture that runs.
    pub(super) fn end_capture(&self) -> Option<Captured> {
        self.capture().take()
    }

    pub(super) fn is_capturing(&self) -> bool {
        self.capture().is_some()
    }

    /// Adds a launch to the capture that runs; false where none does.
    pub(super) fn captures(&self, node: impl FnOnce() -> Node) -> bool {
        match &mut *self.capture() {
            Some(capture) => {
                capture.nodes.push(node());
                true
            }
            None => false,
        }
    }

    /// Makes the capture that runs useless.
    pub(super) fn spoil(&self, call: &str) {
        if let Some(capture) = &mut *self.capture() {
            capture.spoilt.get_or_insert_with(|| call.to_owned());
        }
    }

    /// Launches a graph: its packets enter the ring as they are, half a ring at a time, one doorbell
    /// each.
    pub(super) fn launch_graph(&self, graph: &GraphPackets) -> Result<(), StreamError> {
        let fault = |error: crate::memory::MemoryFault| refused(error.to_string());
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        for packets in graph.packets.chunks(PACKETS as usize / 2) {
            self.check()?;
            let count = packets.len() as u64;
            let used = self.queue.load_write_index() - self.queue.load_read_index();
            if used + count > PACKETS.into() {
                self.drain(&mut progress)?;
            }
            let counted = self.gpu.add_signal(self.pending, count.cast_signed());
            counted.map_err(|error| refused(error.to_string()))?;
            let first = self.queue.add_write_index(count);
            let slot = |id: u64| self.queue.ring_va() + (id % u64::from(PACKETS)) * 64;
            let memory = self.gpu.memory();
            for (id, packet) in (first..).zip(packets) {
                let mut body = *packet.body();
                // The completion signal is the last field of a dispatch packet (HSA 1.2, 2.9.6).
                body[56..].copy_from_slice(&self.pending.to_le_bytes());
                memory
                    .write_bytes(slot(id) + 4, &body[4..])
                    .map_err(fault)?;
            }
            for (id, packet) in (first..).zip(packets) {
                let stored = memory.store_u32(slot(id), packet.header_word(), Ordering::Release);
                stored.map_err(fault)?;
            }
            let last = (first + count - 1).cast_signed();
            let rung = self.gpu.ring_doorbell(self.queue.doorbell_signal(), last);
            rung.map_err(|error| refused(error.to_string()))?;
        }
        Ok(())
    }
}

/// A dispatch with barrier and system fences, as clr puts one on a stream.
fn packet(
    kernel: &KernelSymbol,
    groups: [u32; 3],
    group: [u32; 3],
    lds_bytes: u32,
    kernarg_va: u64,
    completion_signal: u64,
) -> Result<EncodedPacket, String> {
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
        completion_signal,
    };
    let header = Header::system(PacketType::KernelDispatch);
    encode::kernel_dispatch(header, &body).map_err(|error| error.to_string())
}
