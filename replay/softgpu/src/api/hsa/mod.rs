//! HSA entries: life of the runtime, agents and instruction sets here; memory pools, signals and
//! queues, code in the files below. Each entry is the function of its name in `hsa.h` or
//! `hsa_ext_amd.h`.
//!
//! Every software GPU has two agents: a CPU agent with the host's pools, listed right before the GPU
//! agent that belongs to it.

pub(super) mod code;
pub(super) mod memory;
pub(super) mod queue;

use super::hip::PciPlace;
use super::model::{QUEUE_PACKETS, WAVE_SIZE};
use super::reason;
use super::registry::{Entry, registry};
use crate::gpu::faults::Event;
use refrain_device::status;
use refrain_device::sys::hsa as c;
use refrain_device::sys::hsa::{AgentCallback, HsaAgent, HsaIsa, HsaStatus, IsaCallback};
use std::ffi::{CString, c_char, c_void};
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Timestamp ticks per second: nanoseconds.
pub(super) const TICKS_PER_SECOND: u64 = 1_000_000_000;
/// Bytes of the fixed text attributes of an agent (`char[64]`).
const TEXT: usize = 64;

type Answer<T = ()> = Result<T, HsaStatus>;

/// Records the reason of a failure and passes its status on.
fn fail<T>(call: &str, status: HsaStatus, what: impl Display) -> Answer<T> {
    reason::set(call, what);
    Err(status)
}

fn status_of(answer: Answer) -> HsaStatus {
    answer.err().unwrap_or(c::HSA_SUCCESS)
}

/// Refuses a call before `hsa_init`.
fn started(call: &str) -> Answer {
    if registry().hsa_references.load(Ordering::Acquire) == 0 {
        return fail(
            call,
            c::HSA_ERROR_NOT_INITIALIZED,
            "hsa_init has not been called",
        );
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
            c::HSA_ERROR_INVALID_ARGUMENT,
            "the address of the result is null",
        );
    }
    // SAFETY: not null, so valid by the caller's promise; attribute values are untyped memory of
    // the caller, which may have any alignment.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Stores a text into `char[64]`, filled up with NULs.
///
/// # Safety
/// `out` is null or valid for writes of 64 bytes.
unsafe fn put_text(call: &str, out: *mut c_void, text: &str) -> Answer {
    let mut bytes = [0u8; TEXT];
    let len = text.len().min(TEXT - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    // SAFETY: the caller vouches for 64 bytes.
    unsafe { put(call, out.cast::<[u8; TEXT]>(), bytes) }
}

/// What an agent or pool handle names: `(ordinal + 1) << 8 | role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Cpu = 1,
    Gpu = 2,
    Isa = 3,
}

fn handle(ordinal: u32, role: u8) -> u64 {
    (u64::from(ordinal) + 1) << 8 | u64::from(role)
}

/// The device and the role behind a handle.
fn split(handle: u64) -> Option<(Arc<Entry>, u8)> {
    let ordinal = u32::try_from((handle >> 8).checked_sub(1)?).ok()?;
    Some((registry().devices.get(&ordinal)?, (handle & 0xff) as u8))
}

/// The device and the role of an agent.
fn agent(call: &str, agent: HsaAgent) -> Answer<(Arc<Entry>, Role)> {
    match split(agent.handle) {
        Some((entry, role)) if role == Role::Cpu as u8 => Ok((entry, Role::Cpu)),
        Some((entry, role)) if role == Role::Gpu as u8 => Ok((entry, Role::Gpu)),
        _ => {
            let what = format!(
                "{:#x} is not an agent of a living software GPU",
                agent.handle
            );
            fail(call, c::HSA_ERROR_INVALID_AGENT, what)
        }
    }
}

/// Refuses work on a device that is gone.
fn alive(call: &str, entry: &Entry) -> Answer {
    match entry.gpu.lost() {
        None => Ok(()),
        Some(what) => fail(call, c::HSA_ERROR_FATAL, what),
    }
}

/// Counts an event that a fault script may have fail for want of resources.
fn resources(call: &str, entry: &Entry, event: Event) -> Answer {
    match entry.gpu.shared().faults.refuse(event, call) {
        None => Ok(()),
        Some(what) => fail(call, c::HSA_ERROR_OUT_OF_RESOURCES, what),
    }
}

/// The device of a GPU agent.
fn gpu_agent(call: &str, handle: HsaAgent) -> Answer<Arc<Entry>> {
    match agent(call, handle)? {
        (entry, Role::Gpu) => Ok(entry),
        _ => fail(call, c::HSA_ERROR_INVALID_AGENT, "the agent is a CPU"),
    }
}

pub(super) unsafe extern "C" fn init() -> HsaStatus {
    registry().hsa_references.fetch_add(1, Ordering::AcqRel);
    c::HSA_SUCCESS
}

pub(super) unsafe extern "C" fn shut_down() -> HsaStatus {
    let less = |count: u64| count.checked_sub(1);
    let given = registry()
        .hsa_references
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    status_of(given.map(drop).or_else(|_| started("hsa_shut_down")))
}

pub(super) unsafe extern "C" fn status_string(
    status: HsaStatus,
    out: *mut *const c_char,
) -> HsaStatus {
    static TEXTS: OnceLock<Vec<(u32, CString)>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let text = |name: &str, remedy: &str| CString::new(format!("{name}: {remedy}"));
        let rows = status::HSA.iter();
        let rows = rows.map(|row| (row.code, text(row.name, row.remedy).unwrap_or_default()));
        let success = (0, CString::from(c"HSA_STATUS_SUCCESS"));
        std::iter::once(success).chain(rows).collect()
    });
    let call = "hsa_status_string";
    status_of(match texts.iter().find(|row| row.0 == status.0) {
        // SAFETY: the caller passes null or a pointer's address.
        Some((_, text)) => unsafe { put(call, out, text.as_ptr()) },
        None => fail(
            call,
            c::HSA_ERROR_INVALID_ARGUMENT,
            format_args!("status {:#x} does not exist", status.0),
        ),
    })
}

pub(super) unsafe extern "C" fn system_get_info(attribute: u32, value: *mut c_void) -> HsaStatus {
    let call = "hsa_system_get_info";
    status_of(started(call).and_then(|()| match attribute {
        c::HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY => {
            // SAFETY: the attribute is a uint64_t, which the caller has room for.
            unsafe { put(call, value.cast::<u64>(), TICKS_PER_SECOND) }
        }
        _ => {
            let what = format!("attribute {attribute:#x} is not modelled");
            fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what)
        }
    }))
}

pub(super) unsafe extern "C" fn iterate_agents(
    callback: AgentCallback,
    data: *mut c_void,
) -> HsaStatus {
    let call = "hsa_iterate_agents";
    status_of(started(call).and_then(|()| {
        for entry in registry().live() {
            for role in [Role::Cpu, Role::Gpu] {
                let agent = HsaAgent {
                    handle: handle(entry.ordinal, role as u8),
                };
                // SAFETY: the caller's callback takes its own data.
                match unsafe { callback(agent, data) } {
                    c::HSA_SUCCESS => {}
                    other => return Err(other),
                }
            }
        }
        Ok(())
    }))
}

pub(super) unsafe extern "C" fn agent_get_info(
    handle: HsaAgent,
    attribute: u32,
    value: *mut c_void,
) -> HsaStatus {
    let call = "hsa_agent_get_info";
    let answer = started(call)
        .and_then(|()| agent(call, handle))
        .and_then(|(entry, role)| {
            let gpu = role == Role::Gpu;
            if let Some(text) = agent_text(&entry, gpu, attribute) {
                // SAFETY: the attribute is a char[64], which the caller has room for.
                return unsafe { put_text(call, value, &text) };
            }
            match agent_number(&entry, gpu, attribute) {
                // SAFETY: the attribute is 32 bits wide, which the caller has room for.
                Some(number) => unsafe { put(call, value.cast::<u32>(), number) },
                None => {
                    let kind = if gpu { "GPU" } else { "CPU" };
                    let what =
                        format!("attribute {attribute:#x} of a {kind} agent is not modelled");
                    fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what)
                }
            }
        });
    status_of(answer)
}

fn agent_text(entry: &Entry, gpu: bool, attribute: u32) -> Option<String> {
    Some(match (attribute, gpu) {
        (c::HSA_AGENT_INFO_NAME, true) => entry.gpu.target().name().to_owned(),
        (c::HSA_AGENT_INFO_NAME, false) => "host".to_owned(),
        (c::HSA_AGENT_INFO_VENDOR_NAME, _) => "Refrain".to_owned(),
        (c::HSA_AMD_AGENT_INFO_PRODUCT_NAME, true) => {
            format!("software GPU (as {})", entry.model.product)
        }
        _ => return None,
    })
}

fn agent_number(entry: &Entry, gpu: bool, attribute: u32) -> Option<u32> {
    let pci = PciPlace::of(entry.ordinal);
    Some(match (attribute, gpu) {
        (c::HSA_AGENT_INFO_DEVICE, true) => c::HSA_DEVICE_TYPE_GPU,
        (c::HSA_AGENT_INFO_DEVICE, false) => c::HSA_DEVICE_TYPE_CPU,
        (c::HSA_AGENT_INFO_WAVEFRONT_SIZE, true) => WAVE_SIZE.unsigned_abs(),
        (c::HSA_AGENT_INFO_QUEUE_MIN_SIZE, true) => QUEUE_PACKETS.0,
        (c::HSA_AGENT_INFO_QUEUE_MAX_SIZE, true) => QUEUE_PACKETS.1,
        (c::HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT, true) => entry.model.compute_units,
        (c::HSA_AMD_AGENT_INFO_BDFID, true) => pci.bus << 8 | pci.device << 3,
        (c::HSA_AMD_AGENT_INFO_DOMAIN, true) => pci.domain,
        _ => return None,
    })
}

pub(super) unsafe extern "C" fn agent_iterate_isas(
    handle_in: HsaAgent,
    callback: IsaCallback,
    data: *mut c_void,
) -> HsaStatus {
    let call = "hsa_agent_iterate_isas";
    let answer = started(call)
        .and_then(|()| gpu_agent(call, handle_in))
        .and_then(|entry| {
            let isa = HsaIsa {
                handle: handle(entry.ordinal, Role::Isa as u8),
            };
            // SAFETY: the caller's callback takes its own data.
            match unsafe { callback(isa, data) } {
                c::HSA_SUCCESS => Ok(()),
                other => Err(other),
            }
        });
    status_of(answer)
}

pub(super) unsafe extern "C" fn isa_get_info_alt(
    isa: HsaIsa,
    attribute: u32,
    value: *mut c_void,
) -> HsaStatus {
    let call = "hsa_isa_get_info_alt";
    status_of(started(call).and_then(|()| {
        let entry = match split(isa.handle) {
            Some((entry, role)) if role == Role::Isa as u8 => entry,
            _ => {
                let what = format!("{:#x} is not an instruction set", isa.handle);
                return fail(call, c::HSA_ERROR_INVALID_ISA, what);
            }
        };
        let name = format!("amdgcn-amd-amdhsa--{}", entry.gpu.target());
        match attribute {
            c::HSA_ISA_INFO_NAME_LENGTH => {
                // SAFETY: the attribute is a uint32_t, which the caller has room for.
                unsafe { put(call, value.cast::<u32>(), name.len() as u32 + 1) }
            }
            c::HSA_ISA_INFO_NAME if !value.is_null() => {
                // SAFETY: the caller has room for the length that NAME_LENGTH told it.
                let len = unsafe { reason::copy_out(&name, value.cast(), name.len()) };
                // SAFETY: as above: the length counts the NUL.
                unsafe { value.cast::<u8>().add(len).write(0) };
                Ok(())
            }
            _ => {
                let what = format!("attribute {attribute} is not modelled");
                fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what)
            }
        }
    }))
}
