//! HIP entries: devices and errors here; memory, modules and launches, streams, graphs in the files
//! below.
//! Each entry is the function of its name in `hip_runtime_api.h`.

pub(super) mod graphs;
pub(super) mod memory;
pub(super) mod module;
pub(super) mod streams;

use super::model::{LDS_BYTES, MAX_GROUP, WAVE_SIZE};
use super::reason;
use super::registry::{Entry, registry};
use super::stream::StreamError;
use crate::gpu::faults::Event;
use refrain_device::status;
use refrain_device::sys::hip as c;
use refrain_device::sys::hip::{HipDeviceAttribute, HipDevicePropR0600, HipStatus};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::fmt::Display;
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The device that this thread selected.
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// Queue error bits of a memory violation (`amd_queue_t.queue_inactive_signal`).
const MEMORY_VIOLATION: u32 = 0x2000_0000;

type Answer<T = ()> = Result<T, HipStatus>;

/// Records the reason of a failure and passes its status on.
fn fail<T>(call: &str, status: HipStatus, what: impl Display) -> Answer<T> {
    reason::set(call, what);
    Err(status)
}

fn status_of(answer: Answer) -> HipStatus {
    answer.err().unwrap_or(c::HIP_SUCCESS)
}

/// The registered device of that ordinal.
fn device(call: &str, ordinal: c_int) -> Answer<Arc<Entry>> {
    let found = u32::try_from(ordinal)
        .ok()
        .and_then(|at| registry().devices.get(&at));
    match found {
        Some(entry) => Ok(entry),
        None => fail(
            call,
            c::HIP_ERROR_INVALID_DEVICE,
            format_args!("device {ordinal} is not one of the living software GPUs"),
        ),
    }
}

/// The selected device, if it still works.
fn current(call: &str) -> Answer<Arc<Entry>> {
    let entry = selected(call)?;
    match entry.gpu.lost() {
        None => Ok(entry),
        Some(what) => fail(call, c::HIP_ERROR_LAUNCH_FAILURE, what),
    }
}

/// The selected device, lost or not: what only gives back goes on working.
fn selected(call: &str) -> Answer<Arc<Entry>> {
    device(call, CURRENT.get())
}

/// Counts an event that a fault script may have fail for want of memory.
fn memory_for(call: &str, entry: &Entry, event: Event) -> Answer {
    match entry.gpu.shared().faults.refuse(event, call) {
        None => Ok(()),
        Some(what) => fail(call, c::HIP_ERROR_OUT_OF_MEMORY, what),
    }
}

/// Counts a submission, which a fault script may have fail.
fn submitted(call: &str, entry: &Entry) -> Answer {
    if entry.gpu.shared().faults.is_armed()
        && let Err(what) = entry.gpu.shared().submit(call)
    {
        let status = match entry.gpu.lost() {
            None => c::HIP_ERROR_OUT_OF_MEMORY,
            Some(_) => c::HIP_ERROR_LAUNCH_FAILURE,
        };
        return fail(call, status, what);
    }
    Ok(())
}

/// Stores a result; null is an error.
///
/// # Safety
/// `out` is null or valid for a write of `T`.
unsafe fn put<T>(call: &str, out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return fail(
            call,
            c::HIP_ERROR_INVALID_VALUE,
            "the address of the result is null",
        );
    }
    // SAFETY: not null, so valid by the caller's promise; C callers may hand over any alignment.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// The status that HIP gives to a failed stream.
fn stream_failed<T>(call: &str, error: &StreamError) -> Answer<T> {
    let status = match error.code {
        0 => c::HIP_ERROR_UNKNOWN,
        code if code & MEMORY_VIOLATION != 0 => c::HIP_ERROR_ILLEGAL_ADDRESS,
        _ => c::HIP_ERROR_LAUNCH_FAILURE,
    };
    fail(call, status, &error.text)
}

pub(super) unsafe extern "C" fn init(flags: c_uint) -> HipStatus {
    status_of(match (flags, registry().device_count()) {
        (0, 0) => fail(
            "hipInit",
            c::HIP_ERROR_NO_DEVICE,
            "no software GPU is registered",
        ),
        (0, _) => Ok(()),
        _ => fail(
            "hipInit",
            c::HIP_ERROR_INVALID_VALUE,
            format_args!("flags {flags:#x}, not 0"),
        ),
    })
}

/// Version of this crate, encoded as HIP encodes its own.
fn crate_version() -> c_int {
    let part = |text: &str| text.parse::<c_int>().unwrap_or(0);
    part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000_000
        + part(env!("CARGO_PKG_VERSION_MINOR")) * 100_000
        + part(env!("CARGO_PKG_VERSION_PATCH"))
}

pub(super) unsafe extern "C" fn driver_get_version(version: *mut c_int) -> HipStatus {
    // SAFETY: the caller passes null or an int's address.
    status_of(unsafe { put("hipDriverGetVersion", version, crate_version()) })
}

pub(super) unsafe extern "C" fn runtime_get_version(version: *mut c_int) -> HipStatus {
    // SAFETY: the caller passes null or an int's address.
    status_of(unsafe { put("hipRuntimeGetVersion", version, crate_version()) })
}

pub(super) unsafe extern "C" fn get_device_count(count: *mut c_int) -> HipStatus {
    let devices = c_int::try_from(registry().device_count()).unwrap_or(c_int::MAX);
    // SAFETY: the caller passes null or an int's address.
    status_of(unsafe { put("hipGetDeviceCount", count, devices) })
}

pub(super) unsafe extern "C" fn set_device(ordinal: c_int) -> HipStatus {
    status_of(device("hipSetDevice", ordinal).map(|entry| {
        drop(entry);
        CURRENT.set(ordinal);
    }))
}

pub(super) unsafe extern "C" fn get_device(ordinal: *mut c_int) -> HipStatus {
    // SAFETY: the caller passes null or an int's address.
    status_of(unsafe { put("hipGetDevice", ordinal, CURRENT.get()) })
}

/// The name that a software GPU gives itself.
fn name(entry: &Entry) -> String {
    format!(
        "software GPU {} (as {})",
        entry.gpu.target(),
        entry.model.product
    )
}

pub(super) unsafe extern "C" fn device_get_name(
    out: *mut c_char,
    len: c_int,
    ordinal: c_int,
) -> HipStatus {
    let call = "hipDeviceGetName";
    status_of(device(call, ordinal).and_then(|entry| {
        let len = usize::try_from(len).unwrap_or(0);
        if out.is_null() || len == 0 {
            return fail(call, c::HIP_ERROR_INVALID_VALUE, "no room for the name");
        }
        // SAFETY: the caller passes room for `len` bytes; one is kept for the NUL.
        let written = unsafe { reason::copy_out(&name(&entry), out.cast(), len - 1) };
        // SAFETY: `written` is at most `len - 1`.
        unsafe { out.add(written).write(0) };
        Ok(())
    }))
}

/// The value of an attribute; `None` is "not modelled".
fn attribute(entry: &Entry, attribute: HipDeviceAttribute) -> Option<c_int> {
    let pci = PciPlace::of(entry.ordinal);
    let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    Some(match attribute {
        c::HIP_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | c::HIP_ATTRIBUTE_CONCURRENT_KERNELS
        | c::HIP_ATTRIBUTE_UNIFIED_ADDRESSING => 1,
        c::HIP_ATTRIBUTE_INTEGRATED => c_int::from(entry.model.integrated),
        c::HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => entry.model.capability.0,
        c::HIP_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => entry.model.capability.1,
        c::HIP_ATTRIBUTE_MAX_BLOCK_DIM_X
        | c::HIP_ATTRIBUTE_MAX_BLOCK_DIM_Y
        | c::HIP_ATTRIBUTE_MAX_BLOCK_DIM_Z
        | c::HIP_ATTRIBUTE_MAX_THREADS_PER_BLOCK => MAX_GROUP,
        c::HIP_ATTRIBUTE_MAX_GRID_DIM_X => c_int::MAX,
        c::HIP_ATTRIBUTE_MAX_GRID_DIM_Y | c::HIP_ATTRIBUTE_MAX_GRID_DIM_Z => 65_535,
        c::HIP_ATTRIBUTE_MULTIPROCESSOR_COUNT => number(entry.model.compute_units / 2),
        c::HIP_ATTRIBUTE_PCI_BUS_ID => number(pci.bus),
        c::HIP_ATTRIBUTE_PCI_DEVICE_ID => number(pci.device),
        c::HIP_ATTRIBUTE_PCI_DOMAIN_ID => number(pci.domain),
        c::HIP_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => LDS_BYTES,
        c::HIP_ATTRIBUTE_WARP_SIZE => WAVE_SIZE,
        _ => return None,
    })
}

/// A place on a PCI domain that no machine has, distinct for each ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PciPlace {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
}

impl PciPlace {
    pub(super) fn of(ordinal: u32) -> Self {
        // PCI domains have 16 bits; these begin above them.
        Self {
            domain: 0x1_0000 + (ordinal >> 13),
            bus: ordinal >> 5 & 0xff,
            device: ordinal & 0x1f,
        }
    }
}

pub(super) unsafe extern "C" fn device_get_attribute(
    value: *mut c_int,
    what: HipDeviceAttribute,
    ordinal: c_int,
) -> HipStatus {
    let call = "hipDeviceGetAttribute";
    status_of(
        device(call, ordinal).and_then(|entry| match attribute(&entry, what) {
            // SAFETY: the caller passes null or an int's address.
            Some(found) => unsafe { put(call, value, found) },
            None => fail(
                call,
                c::HIP_ERROR_NOT_SUPPORTED,
                format_args!("attribute {what} is not modelled"),
            ),
        }),
    )
}

pub(super) unsafe extern "C" fn get_device_properties(
    properties: *mut HipDevicePropR0600,
    ordinal: c_int,
) -> HipStatus {
    // A struct of 120 fields, most of them not modelled, cannot say which of them mean anything.
    let _ = (properties, ordinal);
    status_of(fail(
        "hipGetDevicePropertiesR0600",
        c::HIP_ERROR_NOT_SUPPORTED,
        "not modelled; ask hipDeviceGetAttribute and the HSA agent",
    ))
}

pub(super) unsafe extern "C" fn device_total_mem(bytes: *mut usize, ordinal: c_int) -> HipStatus {
    let call = "hipDeviceTotalMem";
    status_of(device(call, ordinal).and_then(|entry| {
        let total = usize::try_from(entry.model.vram_bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller passes null or a size_t's address.
        unsafe { put(call, bytes, total) }
    }))
}

pub(super) unsafe extern "C" fn mem_get_info(free: *mut usize, total: *mut usize) -> HipStatus {
    let call = "hipMemGetInfo";
    status_of(current(call).and_then(|entry| {
        let vram = entry.model.vram_bytes;
        let left = vram.saturating_sub(entry.device_bytes());
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller passes null or a size_t's address.
        unsafe { put(call, free, size(left)) }?;
        // SAFETY: as above.
        unsafe { put(call, total, size(vram)) }
    }))
}

/// Names and sentences of the statuses as C strings, made once.
struct Texts {
    rows: Vec<(u32, CString, CString)>,
    unknown: CString,
}

fn texts() -> &'static Texts {
    static TEXTS: OnceLock<Texts> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let rows = status::HIP.iter();
        let rows = rows.map(|row| (row.code, text(row.name), text(row.remedy)));
        let success = (0, text("hipSuccess"), text("no error"));
        Texts {
            rows: std::iter::once(success).chain(rows).collect(),
            unknown: text("unknown"),
        }
    })
}

pub(super) unsafe extern "C" fn get_error_name(status: HipStatus) -> *const c_char {
    let texts = texts();
    let row = texts.rows.iter().find(|row| row.0 == status.0);
    row.map_or(&texts.unknown, |row| &row.1).as_ptr()
}

pub(super) unsafe extern "C" fn get_error_string(status: HipStatus) -> *const c_char {
    let texts = texts();
    let row = texts.rows.iter().find(|row| row.0 == status.0);
    row.map_or(&texts.unknown, |row| &row.2).as_ptr()
}

/// The null-stream handle.
const NULL_STREAM: *mut c_void = std::ptr::null_mut();

pub(super) unsafe extern "C" fn take_reason(out: *mut u8, capacity: usize) -> usize {
    let Some(text) = reason::take() else { return 0 };
    // SAFETY: the caller passes room for `capacity` bytes.
    unsafe { reason::copy_out(&text, out, capacity) }
}

pub(super) unsafe extern "C" fn fault(ordinal: c_int, out: *mut u8, capacity: usize) -> usize {
    let found = u32::try_from(ordinal)
        .ok()
        .and_then(|at| registry().devices.get(&at));
    let Some(text) = found.and_then(|entry| entry.gpu.fault()) else {
        return 0;
    };
    // SAFETY: the caller passes room for `capacity` bytes.
    unsafe { reason::copy_out(&text, out, capacity) }
}

#[cfg(test)]
mod tests {
    use super::PciPlace;

    #[test]
    fn ordinals_have_distinct_places() {
        let mut places: Vec<PciPlace> = (0..20_000).map(PciPlace::of).collect();
        places.sort_by_key(|place| (place.domain, place.bus, place.device));
        places.dedup();
        assert_eq!(places.len(), 20_000);
    }
}
