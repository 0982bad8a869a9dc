//! HIP entries that allocate, free, copy and set memory. Rights: the host may touch host memory
//! directly, device memory only through copies.

use super::super::registry::{Allocated, Entry, registry};
use super::streams;
use super::{Answer, NULL_STREAM, current, fail, memory_for, put, status_of};
use crate::gpu::faults::Event;
use crate::memory::{Kind, Rights, pointer};
use refrain_device::sys::hip as c;
use refrain_device::sys::hip::{HipMemcpyKind, HipStatus, HipStream};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::PoisonError;

/// Alignment of an allocation that HIP documents, bytes.
const ALIGN: u64 = 256;
/// `hipHostMallocPortable`: visible to all devices, which all software GPUs' host memory is not.
const HOST_FLAGS: c_uint = c::HIP_HOST_MALLOC_MAPPED | c::HIP_HOST_MALLOC_COHERENT;

fn address(pointer: *const c_void) -> u64 {
    pointer.addr() as u64
}

pub(crate) unsafe extern "C" fn malloc(out: *mut *mut c_void, bytes: usize) -> HipStatus {
    let call = "hipMalloc";
    status_of(current(call).and_then(|entry| {
        if bytes == 0 {
            // Documented: no memory is allocated and the address is null.
            // SAFETY: the caller passes null or a pointer's address.
            return unsafe { put(call, out, null_mut()) };
        }
        memory_for(call, &entry, Event::HipAlloc)?;
        let used = entry.device_bytes();
        let vram = entry.model.vram_bytes;
        if used.saturating_add(bytes as u64) > vram {
            let what = format!("{bytes} bytes do not fit: {used} of {vram} bytes are in use");
            return fail(call, c::HIP_ERROR_OUT_OF_MEMORY, what);
        }
        let allocated = Allocated::Device(bytes as u64);
        let made = make(
            call,
            &entry,
            bytes as u64,
            Rights::READ_WRITE,
            Kind::Device,
            allocated,
        )?;
        // SAFETY: the caller passes null or a pointer's address.
        unsafe { put(call, out, made) }
    }))
}

pub(crate) unsafe extern "C" fn host_malloc(
    out: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> HipStatus {
    let call = "hipHostMalloc";
    status_of(current(call).and_then(|entry| {
        if flags & !HOST_FLAGS != 0 {
            let what = format!("flags {:#x} are not modelled", flags & !HOST_FLAGS);
            return fail(call, c::HIP_ERROR_NOT_SUPPORTED, what);
        }
        if bytes == 0 {
            // SAFETY: the caller passes null or a pointer's address.
            return unsafe { put(call, out, null_mut()) };
        }
        memory_for(call, &entry, Event::HipAlloc)?;
        let made = make(
            call,
            &entry,
            bytes as u64,
            Rights::SHARED,
            Kind::Host,
            Allocated::Host,
        )?;
        // SAFETY: the caller passes null or a pointer's address.
        unsafe { put(call, out, made) }
    }))
}

fn make(
    call: &str,
    entry: &Entry,
    bytes: u64,
    rights: Rights,
    kind: Kind,
    allocated: Allocated,
) -> Answer<*mut c_void> {
    let name = entry.fresh_name("hip allocation");
    match entry.gpu.memory().alloc(&name, bytes, ALIGN, rights, kind) {
        Ok(base) => {
            let mut list = entry
                .allocations
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            list.insert(base, allocated);
            Ok(pointer(base).cast())
        }
        Err(error) => fail(call, c::HIP_ERROR_OUT_OF_MEMORY, error),
    }
}

/// Frees what `call` may free; all work of the device ends first, as HIP documents.
fn release(call: &str, address: u64, device: bool) -> Answer {
    if address == 0 {
        return Ok(());
    }
    let found = registry().owner(address);
    let (entry, allocated) = match found {
        Some(found) => found,
        None => {
            let what = format!("{address:#x} is not the beginning of a live allocation");
            return fail(call, c::HIP_ERROR_INVALID_VALUE, what);
        }
    };
    if matches!(allocated, Allocated::Device(_)) != device
        || matches!(allocated, Allocated::Pool { .. })
    {
        let what = format!("{address:#x} was not allocated by the call that goes with it");
        return fail(call, c::HIP_ERROR_INVALID_VALUE, what);
    }
    streams::settle_device(&entry);
    entry
        .allocations
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&address);
    entry
        .gpu
        .memory()
        .free(address)
        .or_else(|error| fail(call, c::HIP_ERROR_INVALID_VALUE, error))
}

pub(crate) unsafe extern "C" fn free(pointer: *mut c_void) -> HipStatus {
    status_of(release("hipFree", address(pointer), true))
}

pub(crate) unsafe extern "C" fn host_free(pointer: *mut c_void) -> HipStatus {
    status_of(release("hipHostFree", address(pointer), false))
}

/// Copies after what the caller waited for.
///
/// # Safety
/// A side that the direction calls host, and that is not memory of the device, is valid for `bytes`
/// bytes.
unsafe fn copy(
    call: &str,
    entry: &Entry,
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: HipMemcpyKind,
) -> Answer {
    let memory = entry.gpu.memory();
    let known = [dst.cast_const(), src].map(|side| memory.find(address(side)).is_some());
    let (dst_device, src_device) = match kind {
        c::HIP_MEMCPY_HOST_TO_DEVICE => (true, known[1]),
        c::HIP_MEMCPY_DEVICE_TO_HOST => (known[0], true),
        c::HIP_MEMCPY_DEVICE_TO_DEVICE => (true, true),
        c::HIP_MEMCPY_DEFAULT => (known[0], known[1]),
        _ => {
            let what = format!("direction {kind} is not modelled");
            return fail(call, c::HIP_ERROR_INVALID_MEMCPY_DIRECTION, what);
        }
    };
    if dst.is_null() || src.is_null() {
        return fail(call, c::HIP_ERROR_INVALID_VALUE, "an address is null");
    }
    let done = match (dst_device, src_device) {
        (true, true) => memory.copy(address(dst), address(src), bytes as u64),
        (true, false) => {
            // SAFETY: plain host memory, which the caller vouches for.
            let bytes = unsafe { std::slice::from_raw_parts(src.cast(), bytes) };
            memory.write_bytes(address(dst), bytes)
        }
        (false, true) => {
            // SAFETY: plain host memory, which the caller vouches for and does not touch meanwhile.
            let bytes = unsafe { std::slice::from_raw_parts_mut(dst.cast(), bytes) };
            memory.read_bytes(address(src), bytes)
        }
        (false, false) => {
            let what = "neither address is memory of this device";
            return fail(call, c::HIP_ERROR_INVALID_VALUE, what);
        }
    };
    done.or_else(|fault| fail(call, c::HIP_ERROR_INVALID_VALUE, fault))
}

pub(crate) unsafe extern "C" fn memcpy(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: HipMemcpyKind,
) -> HipStatus {
    let call = "hipMemcpy";
    status_of(current(call).and_then(|entry| {
        streams::wait_stream(call, &entry, NULL_STREAM)?;
        // SAFETY: the caller's promise to hipMemcpy.
        unsafe { copy(call, &entry, dst, src, bytes, kind) }
    }))
}

pub(crate) unsafe extern "C" fn memcpy_async(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: HipMemcpyKind,
    stream: HipStream,
) -> HipStatus {
    let call = "hipMemcpyAsync";
    status_of(current(call).and_then(|entry| {
        // A copy that waits for its predecessors and ends before it returns is within what the
        // caller may expect of an asynchronous one.
        streams::wait_stream(call, &entry, stream)?;
        // SAFETY: the caller's promise to hipMemcpyAsync.
        unsafe { copy(call, &entry, dst, src, bytes, kind) }
    }))
}

fn set(call: &str, dst: *mut c_void, value: c_int, bytes: usize, stream: HipStream) -> Answer {
    let entry = current(call)?;
    streams::wait_stream(call, &entry, stream)?;
    // C semantics: the value is converted to unsigned char.
    let filled = entry
        .gpu
        .memory()
        .fill(address(dst), bytes as u64, value as u8);
    filled.or_else(|fault| fail(call, c::HIP_ERROR_INVALID_VALUE, fault))
}

pub(crate) unsafe extern "C" fn memset(dst: *mut c_void, value: c_int, bytes: usize) -> HipStatus {
    status_of(set("hipMemset", dst, value, bytes, NULL_STREAM))
}

pub(crate) unsafe extern "C" fn memset_async(
    dst: *mut c_void,
    value: c_int,
    bytes: usize,
    stream: HipStream,
) -> HipStatus {
    status_of(set("hipMemsetAsync", dst, value, bytes, stream))
}

pub(crate) unsafe extern "C" fn set_name(
    at: *const c_void,
    name: *const u8,
    bytes: usize,
) -> HipStatus {
    let call = "refrain_set_name";
    let Some((entry, _)) = registry().owner(address(at)) else {
        let what = format!(
            "{:#x} is not the beginning of a live allocation",
            address(at)
        );
        return status_of(fail(call, c::HIP_ERROR_INVALID_VALUE, what));
    };
    // SAFETY: the caller passes `bytes` bytes at `name`.
    let name = String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(name, bytes) });
    let renamed = entry.gpu.memory().rename(address(at), &name);
    status_of(renamed.or_else(|error| fail(call, c::HIP_ERROR_INVALID_VALUE, error)))
}
