//! A captured graph: launches that are recorded once on a stream of their own and launched together
//! any number of times. What to capture, and whether it may be repeated, is left to others.

use core::ptr::null_mut;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::module::Function;
use crate::stream::Stream;
use crate::sys::hip::{HipGraph, HipGraphExec};

/// An executable graph on its own stream. It keeps the code of its kernels loaded; the memory that
/// their arguments name is the caller's to keep.
pub struct Graph {
    device: Arc<Device>,
    stream: Stream,
    exec: HipGraphExec,
    functions: Vec<Function>,
}

// SAFETY: the handle is opaque, and HIP's graph calls may be made from any thread; `launch` takes
// the graph exclusively, as HIP demands of one executable graph.
unsafe impl Send for Graph {}
// SAFETY: as above; nothing of a shared graph calls HIP but waiting for its stream.
unsafe impl Sync for Graph {}

impl core::fmt::Debug for Graph {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Graph({} launches)", self.functions.len())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // What still runs must end first. A device that does not answer keeps the graph.
        if self.stream.synchronize().is_ok() {
            // SAFETY: made by `capture`, destroyed here only, and idle. A failure leaves nothing to do.
            let _ = unsafe { self.device.hip.graph_exec_destroy(self.exec) };
        }
    }
}

/// Takes the launches of a graph while it is captured.
pub struct Capture<'a> {
    stream: &'a Stream,
    functions: Vec<Function>,
}

impl core::fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Capture({} launches)", self.functions.len())
    }
}

impl Capture<'_> {
    /// Adds a launch after those before it; as [`Stream::launch`].
    ///
    /// # Errors
    /// As [`Stream::launch`].
    pub fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        self.stream.launch(function, grid, block, lds, kernarg)?;
        self.functions.push(function.clone());
        Ok(())
    }
}

impl Graph {
    /// Captures the launches that `record` makes and instantiates them. Nothing is executed.
    ///
    /// # Errors
    /// [`DeviceError::EntryMissing`] where the runtime has no graphs, its answer, or the error of
    /// `record`; nothing is left of the capture.
    pub fn capture<E: From<DeviceError>>(
        device: &Arc<Device>,
        record: impl FnOnce(&mut Capture<'_>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let stream = Stream::new(&device.hip, device.key)?;
        let hip = &device.hip;
        // SAFETY: the stream lives to the end of this function at least.
        unsafe { hip.capture_begin(stream.handle()) }?;
        let mut capture = Capture {
            stream: &stream,
            functions: Vec::new(),
        };
        let recorded = record(&mut capture);
        let functions = capture.functions;
        // SAFETY: as above.
        let graph = unsafe { hip.capture_end(stream.handle()) };
        if let Err(error) = recorded {
            discard(device, graph.unwrap_or(null_mut()));
            return Err(error);
        }
        let graph = graph?;
        // SAFETY: the graph was just captured.
        let exec = unsafe { hip.graph_instantiate(graph) };
        discard(device, graph);
        Ok(Self {
            device: Arc::clone(device),
            stream,
            exec: exec?,
            functions,
        })
    }

    /// Kernel launches in the graph.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.functions.len()
    }

    /// Launches all of it, after earlier launches of this graph; does not wait. It does not order
    /// itself with the device's stream.
    ///
    /// # Errors
    /// The runtime's answer.
    pub fn launch(&mut self) -> Result<(), DeviceError> {
        let launches = self.functions.len();
        let stream = self.stream.handle();
        // SAFETY: instantiated by `capture` and not destroyed; `functions` keep the modules loaded,
        // and the stream lives as long as `self`.
        unsafe { self.device.hip.graph_launch(self.exec, stream, launches) }
    }

    /// Waits until all launches have ended, up to the device's deadline.
    ///
    /// # Errors
    /// As [`Stream::synchronize`].
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize()
    }
}

/// Destroys a graph that nothing uses any more; an executable one has its own copy.
fn discard(device: &Device, graph: HipGraph) {
    if !graph.is_null() {
        // SAFETY: came from `capture_end` and is destroyed here only. A failure leaves nothing to do.
        let _ = unsafe { device.hip.graph_destroy(graph) };
    }
}
