//! HIP entries that capture a stream into a graph, instantiate it and launch it. Only kernel launches
//! can be captured; whatever else is asked of a capturing stream spoils the capture, as documented.
//! An executable graph has its kernel arguments in memory of its own and its packets encoded; how
//! they reach the ring is left to `stream.rs`.

use super::super::registry::{Entry, registry};
use super::super::stream::{GraphPackets, Node};
use super::{
    Answer, current, fail, memory_for, put, selected, status_of, stream_failed, streams, submitted,
};
use crate::gpu::faults::Event;
use refrain_device::sys::hip as c;
use refrain_device::sys::hip::{
    HipGraph, HipGraphExec, HipGraphNode, HipStatus, HipStream, HipStreamCaptureMode,
};
use std::ffi::c_char;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

/// A captured graph: the launches in stream order.
pub(crate) struct GraphEntry {
    pub(crate) ordinal: u32,
    nodes: Vec<Node>,
}

/// An executable graph.
pub(crate) struct GraphExecEntry {
    pub(crate) entry: Arc<Entry>,
    /// Function handle of each launch, which must be loaded at each launch of the graph.
    functions: Vec<u64>,
    packets: GraphPackets,
}

pub(crate) unsafe extern "C" fn stream_begin_capture(
    handle: HipStream,
    mode: HipStreamCaptureMode,
) -> HipStatus {
    let call = "hipStreamBeginCapture";
    let answer = current(call).and_then(|entry| {
        if mode != c::HIP_STREAM_CAPTURE_THREAD_LOCAL {
            let what = format!("capture mode {mode} is not modelled");
            return fail(call, c::HIP_ERROR_NOT_SUPPORTED, what);
        }
        if handle.is_null() {
            let what = "the null stream cannot be captured";
            return fail(call, c::HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED, what);
        }
        match streams::stream(call, &entry, handle)?.begin_capture() {
            true => Ok(()),
            false => fail(
                call,
                c::HIP_ERROR_ILLEGAL_STATE,
                "the stream is captured already",
            ),
        }
    });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn stream_end_capture(
    handle: HipStream,
    out: *mut HipGraph,
) -> HipStatus {
    let call = "hipStreamEndCapture";
    let answer = current(call).and_then(|entry| {
        let stream = streams::stream(call, &entry, handle)?;
        let Some(capture) = stream.end_capture() else {
            return fail(
                call,
                c::HIP_ERROR_ILLEGAL_STATE,
                "the stream is not captured",
            );
        };
        if let Some(what) = capture.spoilt {
            let what = format!("the capture was spoilt by {what}");
            return fail(call, c::HIP_ERROR_STREAM_CAPTURE_INVALIDATED, what);
        }
        let handle = registry().handle();
        // SAFETY: the caller passes null or a handle's address.
        unsafe { put(call, out, without_provenance_mut(handle as usize)) }?;
        let (ordinal, nodes) = (entry.ordinal, capture.nodes);
        let graph = Arc::new(GraphEntry { ordinal, nodes });
        registry().graphs.insert(handle, graph);
        Ok(())
    });
    status_of(answer)
}

fn graph(call: &str, entry: &Entry, handle: HipGraph) -> Answer<Arc<GraphEntry>> {
    let found = registry().graphs.get(&(handle.addr() as u64));
    match found.filter(|graph| graph.ordinal == entry.ordinal) {
        Some(graph) => Ok(graph),
        None => {
            let what = format!("{:#x} is not a graph of this device", handle.addr());
            fail(call, c::HIP_ERROR_INVALID_VALUE, what)
        }
    }
}

fn executable(call: &str, entry: &Entry, handle: HipGraphExec) -> Answer<Arc<GraphExecEntry>> {
    let found = registry().graph_execs.get(&(handle.addr() as u64));
    match found.filter(|exec| exec.entry.ordinal == entry.ordinal) {
        Some(exec) => Ok(exec),
        None => {
            let what = format!(
                "{:#x} is not an executable graph of this device",
                handle.addr()
            );
            fail(call, c::HIP_ERROR_INVALID_VALUE, what)
        }
    }
}

pub(crate) unsafe extern "C" fn graph_instantiate(
    out: *mut HipGraphExec,
    handle: HipGraph,
    error_node: *mut HipGraphNode,
    log: *mut c_char,
    _log_bytes: usize,
) -> HipStatus {
    let call = "hipGraphInstantiate";
    let answer = current(call).and_then(|entry| {
        if !error_node.is_null() || !log.is_null() {
            let what = "neither the node of an error nor a log is modelled; pass null";
            return fail(call, c::HIP_ERROR_NOT_SUPPORTED, what);
        }
        let graph = graph(call, &entry, handle)?;
        memory_for(call, &entry, Event::HipAlloc)?;
        let packets = GraphPackets::new(&entry, &graph.nodes);
        let packets = packets.or_else(|error| stream_failed(call, &error))?;
        let functions = graph.nodes.iter().map(|node| node.function).collect();
        let handle = registry().handle();
        // SAFETY: the caller passes null or a handle's address.
        unsafe { put(call, out, without_provenance_mut(handle as usize)) }?;
        let exec = Arc::new(GraphExecEntry {
            entry,
            functions,
            packets,
        });
        registry().graph_execs.insert(handle, exec);
        Ok(())
    });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn graph_launch(handle: HipGraphExec, stream: HipStream) -> HipStatus {
    let call = "hipGraphLaunch";
    let answer = current(call).and_then(|entry| {
        let exec = executable(call, &entry, handle)?;
        let stream = streams::stream(call, &entry, stream)?;
        if stream.is_capturing() {
            stream.spoil(call);
            let what = "a graph launch inside a capture is not modelled";
            return fail(call, c::HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED, what);
        }
        let functions = &registry().functions;
        if exec.functions.iter().any(|id| functions.get(id).is_none()) {
            let what = "a module of the graph was unloaded";
            return fail(call, c::HIP_ERROR_INVALID_HANDLE, what);
        }
        submitted(call, &entry)?;
        let done = stream.launch_graph(&exec.packets);
        done.or_else(|error| stream_failed(call, &error))
    });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn graph_exec_destroy(handle: HipGraphExec) -> HipStatus {
    let call = "hipGraphExecDestroy";
    status_of(selected(call).and_then(|entry| {
        executable(call, &entry, handle)?;
        // Its kernel arguments stay until no launch can still read them.
        streams::settle_device(&entry);
        registry().graph_execs.remove(&(handle.addr() as u64));
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn graph_destroy(handle: HipGraph) -> HipStatus {
    let call = "hipGraphDestroy";
    status_of(selected(call).and_then(|entry| {
        graph(call, &entry, handle)?;
        registry().graphs.remove(&(handle.addr() as u64));
        Ok(())
    }))
}
