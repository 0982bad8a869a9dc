//! HSA entries of signals and queues. Values and rings live in guest memory; these entries find the
//! software GPU behind a handle and call it. Calls that return a value instead of a status answer
//! `i64::MAX` or `u64::MAX` for an unknown handle, which satisfies no wait and frees no slot.

use super::super::reason;
use super::super::registry::{Entry, registry};
use super::{Answer, TICKS_PER_SECOND, alive, fail, gpu_agent, put, resources, started, status_of};
use crate::cp::{Cause, QueueFault};
use crate::gpu::faults::Event;
use crate::gpu::{Condition, SoftQueue};
use crate::memory::pointer;
use refrain_device::sys::hsa as c;
use refrain_device::sys::hsa::{HsaAgent, HsaQueue, HsaSignal, HsaStatus, QueueCallback};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A queue made by `hsa_queue_create`.
pub(crate) struct QueueEntry {
    pub(crate) entry: Arc<Entry>,
    queue: Arc<SoftQueue>,
    callback: Arc<Callback>,
}

/// The status that ROCr hands to the error callback, by the lowest error bit that is set
/// (`amd_aql_queue.cpp`). A violation is a page fault here, which ROCr reports as MEMORY_FAULT.
const CALLBACK_STATUS: [(u32, HsaStatus); 10] = [
    (0x1, c::HSA_ERROR_OUT_OF_RESOURCES),
    (0x2, HsaStatus(0x100d)),
    (0x4, c::HSA_ERROR_INVALID_ALLOCATION),
    (0x8, c::HSA_ERROR_INVALID_CODE_OBJECT),
    (0x20, c::HSA_ERROR_INVALID_PACKET_FORMAT),
    (0x40, c::HSA_ERROR_INVALID_ARGUMENT),
    (0x80, c::HSA_ERROR_INVALID_ISA),
    (0x2000_0000, c::HSA_ERROR_MEMORY_FAULT),
    (0x4000_0000, c::HSA_ERROR_ILLEGAL_INSTRUCTION),
    (0x8000_0000, HsaStatus(0x1016)),
];

fn callback_status(code: u32) -> HsaStatus {
    let row = CALLBACK_STATUS.iter().find(|(bit, _)| code & bit != 0);
    row.map_or(c::HSA_ERROR, |row| row.1)
}

fn status_of_fault(fault: &QueueFault) -> HsaStatus {
    match fault.cause {
        Cause::Lost { .. } => c::HSA_ERROR_FATAL,
        _ => callback_status(fault.code),
    }
}

/// A caller's callback and its data, called on the packet processor's thread. The lock is held
/// during the call, so that whoever silences the callback has waited for it.
struct Callback {
    function: Mutex<Option<(QueueCallback, *mut c_void)>>,
    /// Address of the `hsa_queue_t`, known once the queue exists.
    queue: AtomicU64,
}

// SAFETY: HSA documents that the callback is called from a thread of the runtime, so the caller has
// made its data fit for that.
unsafe impl Send for Callback {}
// SAFETY: as above; the callback is called once per queue, under the lock.
unsafe impl Sync for Callback {}

impl Callback {
    fn call(&self, fault: &QueueFault) {
        let function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((function, data)) = *function else {
            return;
        };
        let queue = pointer(self.queue.load(Ordering::Acquire)).cast();
        // SAFETY: the caller keeps `data` valid until `hsa_queue_destroy` returns, which silences
        // this callback first, and the lock is held.
        unsafe { function(status_of_fault(fault), queue, data) };
    }

    /// Nothing is called once this has returned.
    fn silence(&self) {
        self.function
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.callback.silence();
    }
}

pub(crate) unsafe extern "C" fn queue_create(
    agent: HsaAgent,
    packets: u32,
    queue_type: u32,
    callback: Option<QueueCallback>,
    data: *mut c_void,
    private_bytes: u32,
    group_bytes: u32,
    out: *mut *mut HsaQueue,
) -> HsaStatus {
    let call = "hsa_queue_create";
    // Hints for scratch and LDS: u32::MAX leaves both to the runtime, and there is no scratch.
    let _ = (private_bytes, group_bytes);
    let answer = started(call)
        .and_then(|()| gpu_agent(call, agent))
        .and_then(|entry| {
            if queue_type > 1 {
                let what = format!("queue type {queue_type} is not modelled");
                return fail(call, c::HSA_ERROR_INVALID_QUEUE_CREATION, what);
            }
            alive(call, &entry)?;
            resources(call, &entry, Event::QueueCreate)?;
            let function = Mutex::new(callback.map(|function| (function, data)));
            let callback = Arc::new(Callback {
                function,
                queue: AtomicU64::new(0),
            });
            let sink = Arc::clone(&callback);
            let made = entry
                .gpu
                .create_queue(packets, Arc::new(move |fault| sink.call(fault)));
            let queue = match made {
                Ok(queue) => queue,
                Err(error) => return fail(call, c::HSA_ERROR_INVALID_QUEUE_CREATION, error),
            };
            let va = queue.queue_va();
            callback.queue.store(va, Ordering::Release);
            // SAFETY: the caller passes null or a pointer's address.
            unsafe { put(call, out, pointer(va).cast()) }?;
            registry()
                .signals
                .insert(queue.doorbell_signal(), Arc::clone(&entry));
            registry().queues.insert(
                va,
                Arc::new(QueueEntry {
                    entry,
                    queue,
                    callback,
                }),
            );
            Ok(())
        });
    status_of(answer)
}

pub(crate) unsafe extern "C" fn queue_destroy(queue: *mut HsaQueue) -> HsaStatus {
    let call = "hsa_queue_destroy";
    let address = queue.addr() as u64;
    status_of(
        started(call).and_then(|()| match registry().queues.remove(&address) {
            Some(found) => {
                registry().signals.remove(&found.queue.doorbell_signal());
                found.callback.silence();
                found.queue.destroy();
                Ok(())
            }
            None => {
                let what = format!("{address:#x} is not a live queue");
                fail(call, c::HSA_ERROR_INVALID_QUEUE, what)
            }
        }),
    )
}

fn with_queue(call: &str, queue: *const HsaQueue, act: impl FnOnce(&SoftQueue) -> u64) -> u64 {
    let address = queue.addr() as u64;
    match registry().queues.get(&address) {
        Some(found) => act(&found.queue),
        None => {
            reason::set(call, format_args!("{address:#x} is not a live queue"));
            u64::MAX
        }
    }
}

pub(crate) unsafe extern "C" fn queue_add_write_index(queue: *const HsaQueue, packets: u64) -> u64 {
    let call = "hsa_queue_add_write_index_screlease";
    with_queue(call, queue, |queue| queue.add_write_index(packets))
}

pub(crate) unsafe extern "C" fn queue_load_read_index(queue: *const HsaQueue) -> u64 {
    with_queue(
        "hsa_queue_load_read_index_scacquire",
        queue,
        SoftQueue::load_read_index,
    )
}

pub(crate) unsafe extern "C" fn signal_create(
    initial: i64,
    count: u32,
    agents: *const HsaAgent,
    out: *mut HsaSignal,
) -> HsaStatus {
    let call = "hsa_signal_create";
    status_of(started(call).and_then(|()| {
        let entry = consumer(call, count, agents)?;
        alive(call, &entry)?;
        resources(call, &entry, Event::SignalCreate)?;
        let handle = match entry.gpu.create_signal(initial) {
            Ok(handle) => handle,
            Err(error) => return fail(call, c::HSA_ERROR_OUT_OF_RESOURCES, error),
        };
        registry().signals.insert(handle, entry);
        // SAFETY: the caller passes null or a signal's address.
        unsafe { put(call, out, HsaSignal { handle }) }
    }))
}

/// The software GPU that a list of consumers means. An empty list means every agent, which is one
/// software GPU only if no other is registered.
fn consumer(call: &str, count: u32, agents: *const HsaAgent) -> Answer<Arc<Entry>> {
    if count > 0 && !agents.is_null() {
        // SAFETY: not null, so `count` agents by the caller's promise.
        let list = unsafe { std::slice::from_raw_parts(agents, count as usize) };
        let mut entries = list.iter().map(|&agent| super::agent(call, agent));
        let Some(first) = entries.next() else {
            return fail(
                call,
                c::HSA_ERROR_INVALID_ARGUMENT,
                "the list of consumers is empty",
            );
        };
        let (first, _) = first?;
        for other in entries {
            if other?.0.ordinal != first.ordinal {
                let what = "a signal shared by two software GPUs is not modelled";
                return fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what);
            }
        }
        return Ok(first);
    }
    let mut live = registry().live();
    match (live.pop(), live.is_empty()) {
        (Some(entry), true) => Ok(entry),
        _ => {
            let what = "without a list of consumers there must be exactly one software GPU";
            fail(call, c::HSA_ERROR_INVALID_ARGUMENT, what)
        }
    }
}

pub(crate) unsafe extern "C" fn signal_destroy(signal: HsaSignal) -> HsaStatus {
    let call = "hsa_signal_destroy";
    status_of(started(call).and_then(|()| {
        let Some(entry) = registry().signals.remove(&signal.handle) else {
            let what = format!("{:#x} is not a live signal", signal.handle);
            return fail(call, c::HSA_ERROR_INVALID_SIGNAL, what);
        };
        let destroyed = entry.gpu.destroy_signal(signal.handle);
        destroyed.or_else(|error| fail(call, c::HSA_ERROR_INVALID_SIGNAL, error))
    }))
}

fn signal_entry(call: &str, signal: HsaSignal) -> Option<Arc<Entry>> {
    let found = registry().signals.get(&signal.handle);
    if found.is_none() {
        reason::set(
            call,
            format_args!("{:#x} is not a live signal", signal.handle),
        );
    }
    found
}

pub(crate) unsafe extern "C" fn signal_load(signal: HsaSignal) -> i64 {
    let call = "hsa_signal_load_scacquire";
    let Some(entry) = signal_entry(call, signal) else {
        return i64::MAX;
    };
    entry
        .gpu
        .load_signal(signal.handle)
        .unwrap_or_else(|error| {
            reason::set(call, error);
            i64::MAX
        })
}

fn store(call: &str, signal: HsaSignal, value: i64) {
    let Some(entry) = signal_entry(call, signal) else {
        return;
    };
    if let Err(error) = entry.gpu.store_signal(signal.handle, value) {
        reason::set(call, error);
    }
}

pub(crate) unsafe extern "C" fn signal_store_relaxed(signal: HsaSignal, value: i64) {
    // A stronger order than asked for is within the contract.
    store("hsa_signal_store_relaxed", signal, value);
}

pub(crate) unsafe extern "C" fn signal_store_release(signal: HsaSignal, value: i64) {
    store("hsa_signal_store_screlease", signal, value);
}

pub(crate) unsafe extern "C" fn signal_wait(
    signal: HsaSignal,
    condition: u32,
    value: i64,
    timeout_ticks: u64,
    _wait_state: u32,
) -> i64 {
    let call = "hsa_signal_wait_scacquire";
    let condition = match condition {
        c::HSA_SIGNAL_CONDITION_EQ => Condition::Eq,
        c::HSA_SIGNAL_CONDITION_NE => Condition::Ne,
        c::HSA_SIGNAL_CONDITION_LT => Condition::Lt,
        c::HSA_SIGNAL_CONDITION_GTE => Condition::Gte,
        _ => {
            reason::set(call, format_args!("condition {condition} does not exist"));
            return i64::MAX;
        }
    };
    let Some(entry) = signal_entry(call, signal) else {
        return i64::MAX;
    };
    const {
        assert!(
            TICKS_PER_SECOND == 1_000_000_000,
            "ticks are taken for nanoseconds"
        )
    };
    let timeout = Duration::from_nanos(timeout_ticks);
    entry
        .gpu
        .wait_signal(signal.handle, condition, value, timeout)
        .unwrap_or_else(|error| {
            reason::set(call, error);
            i64::MAX
        })
}

#[cfg(test)]
mod tests {
    use super::{c, callback_status};

    #[test]
    fn error_bits_become_rocrs_statuses() {
        let cases = [
            (0x401, c::HSA_ERROR_OUT_OF_RESOURCES),
            (0x8, c::HSA_ERROR_INVALID_CODE_OBJECT),
            (0x20, c::HSA_ERROR_INVALID_PACKET_FORMAT),
            (0x100, c::HSA_ERROR),
            (0x2000_0000, c::HSA_ERROR_MEMORY_FAULT),
            (0x4000_0000, c::HSA_ERROR_ILLEGAL_INSTRUCTION),
            (0, c::HSA_ERROR),
        ];
        for (code, expected) in cases {
            assert_eq!(callback_status(code), expected, "{code:#x}");
        }
    }
}
