//! HIP entries that create, destroy and wait for streams. The null stream waits for the blocking
//! ones; what a stream is made of is left to `stream.rs`.

use super::super::registry::{Entry, registry};
use super::super::stream::StreamEntry;
use super::{Answer, current, fail, memory_for, put, selected, status_of, stream_failed};
use crate::gpu::faults::Event;
use refrain_device::sys::hip as c;
use refrain_device::sys::hip::{HipStatus, HipStream};
use std::ffi::c_uint;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, PoisonError};

/// The stream behind a handle of the device.
pub(super) fn stream(call: &str, entry: &Entry, handle: HipStream) -> Answer<Arc<StreamEntry>> {
    if handle.is_null() {
        let mut null = entry
            .null_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*null {
            return Ok(Arc::clone(stream));
        }
        let made = StreamEntry::new(entry, false);
        let made = made.or_else(|error| stream_failed(call, &error))?;
        return Ok(Arc::clone(null.insert(Arc::new(made))));
    }
    let found = registry().streams.get(&(handle.addr() as u64));
    match found.filter(|stream| stream.ordinal == entry.ordinal) {
        Some(stream) => Ok(stream),
        None => {
            let what = format!(
                "{:#x} is not a stream of device {}",
                handle.addr(),
                entry.ordinal
            );
            fail(call, c::HIP_ERROR_INVALID_HANDLE, what)
        }
    }
}

/// All streams of the device that `which` takes.
fn streams_of(entry: &Entry, which: impl Fn(&StreamEntry) -> bool) -> Vec<Arc<StreamEntry>> {
    let mut found = Vec::new();
    registry().streams.each(|stream| {
        if stream.ordinal == entry.ordinal && which(stream) {
            found.push(Arc::clone(stream));
        }
    });
    found.extend(
        entry
            .null_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
    );
    found
}

/// Waits for a stream; for the null stream, also for every blocking one.
pub(super) fn wait_stream(call: &str, entry: &Entry, handle: HipStream) -> Answer {
    if handle.is_null() {
        for stream in streams_of(entry, |stream| !stream.non_blocking) {
            stream.wait().or_else(|error| stream_failed(call, &error))?;
        }
        return Ok(());
    }
    let stream = stream(call, entry, handle)?;
    uncaptured(call, &stream)?;
    stream.wait().or_else(|error| stream_failed(call, &error))
}

/// Refuses what may not be asked of a stream that is captured, and spoils the capture.
pub(super) fn uncaptured(call: &str, stream: &StreamEntry) -> Answer {
    if !stream.is_capturing() {
        return Ok(());
    }
    stream.spoil(call);
    let what = "the stream is captured: only launches can be";
    fail(call, c::HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED, what)
}

/// Waits for all work of the device.
pub(super) fn wait_device(call: &str, entry: &Entry) -> Answer {
    for stream in streams_of(entry, |_| true) {
        uncaptured(call, &stream)?;
        stream.wait().or_else(|error| stream_failed(call, &error))?;
    }
    Ok(())
}

/// Waits until no work of the device is running, or none ever will.
pub(super) fn settle_device(entry: &Entry) {
    for stream in streams_of(entry, |_| true) {
        stream.settle();
    }
}

fn create(call: &str, out: *mut HipStream, flags: c_uint) -> Answer {
    if flags & !c::HIP_STREAM_NON_BLOCKING != 0 {
        let what = format!("flags {flags:#x} are not modelled");
        return fail(call, c::HIP_ERROR_NOT_SUPPORTED, what);
    }
    let entry = current(call)?;
    memory_for(call, &entry, Event::QueueCreate)?;
    let made = StreamEntry::new(&entry, flags & c::HIP_STREAM_NON_BLOCKING != 0);
    let made = made.or_else(|error| stream_failed(call, &error))?;
    let handle = registry().handle();
    // SAFETY: the caller passes null or a handle's address.
    unsafe { put(call, out, without_provenance_mut(handle as usize)) }?;
    registry().streams.insert(handle, Arc::new(made));
    Ok(())
}

pub(crate) unsafe extern "C" fn stream_create(out: *mut HipStream) -> HipStatus {
    status_of(create("hipStreamCreate", out, 0))
}

pub(crate) unsafe extern "C" fn stream_create_with_flags(
    out: *mut HipStream,
    flags: c_uint,
) -> HipStatus {
    status_of(create("hipStreamCreateWithFlags", out, flags))
}

pub(crate) unsafe extern "C" fn stream_destroy(handle: HipStream) -> HipStatus {
    let call = "hipStreamDestroy";
    status_of(selected(call).and_then(|entry| {
        if handle.is_null() {
            return fail(
                call,
                c::HIP_ERROR_INVALID_HANDLE,
                "the null stream is never destroyed",
            );
        }
        let stream = stream(call, &entry, handle)?;
        registry().streams.remove(&(handle.addr() as u64));
        // A stream that has failed is still destroyed; its error was told when it was waited for.
        stream.settle();
        Ok(())
    }))
}

pub(crate) unsafe extern "C" fn stream_synchronize(handle: HipStream) -> HipStatus {
    let call = "hipStreamSynchronize";
    status_of(current(call).and_then(|entry| wait_stream(call, &entry, handle)))
}

pub(crate) unsafe extern "C" fn stream_query(handle: HipStream) -> HipStatus {
    let call = "hipStreamQuery";
    let answer = current(call).and_then(|entry| {
        let waited_for = match handle.is_null() {
            true => streams_of(&entry, |stream| !stream.non_blocking),
            false => vec![stream(call, &entry, handle)?],
        };
        for stream in waited_for {
            uncaptured(call, &stream)?;
            match stream.idle() {
                Ok(true) => {}
                // No failure, so no reason either.
                Ok(false) => return Err(c::HIP_ERROR_NOT_READY),
                Err(error) => return stream_failed(call, &error),
            }
        }
        Ok(())
    });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn device_synchronize() -> HipStatus {
    let call = "hipDeviceSynchronize";
    status_of(current(call).and_then(|entry| wait_device(call, &entry)))
}
