//! The raw tables, entry by entry: what is not modelled is refused by name, null results are
//! refused, nothing works before `hsa_init` or after the device is gone. The tests share one
//! process-wide registry, so none of them assumes that its device is the only one.

use super::registry::registry;
use super::{reason, runtime, tables};
use crate::gpu::{SoftConfig, SoftGpu};
use crate::isa::Target;
use refrain_device::sys::hip::{self, HipStatus};
use refrain_device::sys::hsa::{self, HsaAgent, HsaSignal, HsaStatus};
use refrain_device::{Origin, Runtime};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HIP: refrain_device::sys::HipTable = tables::HIP;
const HSA: refrain_device::sys::HsaTable = tables::HSA;

/// `hsa_init` counts for the process, so tests that look at the count go one by one.
fn one_by_one() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn soft(target: Target) -> (Runtime, c_int) {
    let config = SoftConfig {
        threads: 1,
        ..SoftConfig::new(target)
    };
    let runtime = runtime(SoftGpu::new(config).unwrap());
    let Origin::Soft { ordinal, .. } = *runtime.origin() else {
        panic!("not soft")
    };
    let ordinal = c_int::try_from(ordinal).unwrap();
    // SAFETY: no precondition.
    assert_eq!(unsafe { (HIP.hipSetDevice)(ordinal) }, hip::HIP_SUCCESS);
    (runtime, ordinal)
}

fn agents(ordinal: c_int) -> [HsaAgent; 2] {
    [1, 2].map(|role| HsaAgent {
        handle: (ordinal as u64 + 1) << 8 | role,
    })
}

fn hip_refuses(status: HipStatus, expected: HipStatus, text: &str) {
    let reason = reason::take().unwrap_or_default();
    assert_eq!(status, expected, "{reason}");
    assert_eq!(reason, text);
}

fn hsa_refuses(status: HsaStatus, expected: HsaStatus, text: &str) {
    let reason = reason::take().unwrap_or_default();
    assert_eq!(status, expected, "{reason}");
    assert_eq!(reason, text);
}

#[test]
fn hip_refuses_by_name_what_it_does_not_model() {
    let (_runtime, ordinal) = soft(Target::Gfx1201);
    let (mut int, mut pointer, mut size) = (0, null_mut(), 0usize);
    let value = hip::HIP_ERROR_INVALID_VALUE;
    let unsupported = hip::HIP_ERROR_NOT_SUPPORTED;
    let handle = hip::HIP_ERROR_INVALID_HANDLE;
    let wrong: *mut c_void = without_provenance_mut(64);
    // SAFETY: every pointer is null, an address that is only looked up, or a local of its type.
    unsafe {
        hip_refuses((HIP.hipInit)(4), value, "hipInit: flags 0x4, not 0");
        hip_refuses(
            (HIP.hipSetDevice)(30_000),
            hip::HIP_ERROR_INVALID_DEVICE,
            "hipSetDevice: device 30000 is not one of the living software GPUs",
        );
        hip_refuses(
            (HIP.hipDeviceGetAttribute)(&raw mut int, 93, ordinal),
            unsupported,
            "hipDeviceGetAttribute: attribute 93 is not modelled",
        );
        hip_refuses(
            (HIP.hipHostMalloc)(&raw mut pointer, 16, 0x2000_0004),
            unsupported,
            "hipHostMalloc: flags 0x20000004 are not modelled",
        );
        hip_refuses(
            (HIP.hipStreamCreateWithFlags)(&raw mut pointer, 8),
            unsupported,
            "hipStreamCreateWithFlags: flags 0x8 are not modelled",
        );
        hip_refuses(
            (HIP.hipMemcpy)(wrong, wrong, 4, 9),
            hip::HIP_ERROR_INVALID_MEMCPY_DIRECTION,
            "hipMemcpy: direction 9 is not modelled",
        );
        hip_refuses(
            (HIP.hipFree)(wrong),
            value,
            "hipFree: 0x40 is not the beginning of a live allocation",
        );
        let text = format!("hipStreamSynchronize: 0x40 is not a stream of device {ordinal}");
        hip_refuses((HIP.hipStreamSynchronize)(wrong), handle, &text);
        hip_refuses(
            (HIP.hipModuleUnload)(wrong),
            handle,
            "hipModuleUnload: 0x40 is not a live module",
        );
        hip_refuses(
            (HIP.hipStreamDestroy)(null_mut()),
            handle,
            "hipStreamDestroy: the null stream is never destroyed",
        );
        hip_refuses(
            (HIP.hipMemGetInfo)(null_mut(), &raw mut size),
            value,
            "hipMemGetInfo: the address of the result is null",
        );
        hip_refuses(
            (HIP.hipModuleLoadData)(&raw mut pointer, null()),
            hip::HIP_ERROR_INVALID_IMAGE,
            "hipModuleLoadData: the image is not an ELF64 file",
        );
    }
}

#[test]
fn graphs_refuse_by_name_what_they_do_not_model() {
    let (_runtime, _) = soft(Target::Gfx1201);
    let wrong: *mut c_void = without_provenance_mut(64);
    let (mut handle, mut node) = (null_mut(), null_mut());
    let value = hip::HIP_ERROR_INVALID_VALUE;
    let instantiate = HIP.hipGraphInstantiate.unwrap();
    // SAFETY: handles are only looked up; results have locals of their type.
    unsafe {
        hip_refuses(
            HIP.hipStreamBeginCapture.unwrap()(wrong, 0),
            hip::HIP_ERROR_NOT_SUPPORTED,
            "hipStreamBeginCapture: capture mode 0 is not modelled",
        );
        hip_refuses(
            instantiate(&raw mut handle, wrong, null_mut(), null_mut(), 0),
            value,
            "hipGraphInstantiate: 0x40 is not a graph of this device",
        );
        hip_refuses(
            instantiate(&raw mut handle, wrong, &raw mut node, null_mut(), 0),
            hip::HIP_ERROR_NOT_SUPPORTED,
            "hipGraphInstantiate: neither the node of an error nor a log is modelled; pass null",
        );
        hip_refuses(
            HIP.hipGraphLaunch.unwrap()(wrong, null_mut()),
            value,
            "hipGraphLaunch: 0x40 is not an executable graph of this device",
        );
        hip_refuses(
            HIP.hipGraphExecDestroy.unwrap()(wrong),
            value,
            "hipGraphExecDestroy: 0x40 is not an executable graph of this device",
        );
        hip_refuses(
            HIP.hipGraphDestroy.unwrap()(wrong),
            value,
            "hipGraphDestroy: 0x40 is not a graph of this device",
        );
    }
}

#[test]
fn launches_refuse_by_name_what_they_do_not_model() {
    let (_runtime, _) = soft(Target::Gfx1201);
    let wrong: *mut c_void = without_provenance_mut(64);
    // SAFETY: handles are only looked up; the lists live across their call.
    unsafe {
        let mut params = [null_mut::<c_void>()];
        let params = params.as_mut_ptr();
        hip_refuses(
            (HIP.hipModuleLaunchKernel)(wrong, 1, 1, 1, 1, 1, 1, 0, null_mut(), params, null_mut()),
            hip::HIP_ERROR_NOT_SUPPORTED,
            "hipModuleLaunchKernel: kernelParams are not modelled; pass the argument bytes through extra",
        );
        let mut extra = [without_provenance_mut::<c_void>(7), null_mut()];
        let extra = extra.as_mut_ptr();
        hip_refuses(
            (HIP.hipModuleLaunchKernel)(wrong, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), extra),
            hip::HIP_ERROR_INVALID_VALUE,
            "hipModuleLaunchKernel: launch parameter 0x7 is not modelled",
        );
    }
}

#[test]
fn every_hip_call_with_a_result_refuses_a_null_address() {
    let (_runtime, ordinal) = soft(Target::Gfx1100);
    let no: *mut c_void = null_mut();
    // SAFETY: the results are null, which every entry checks; the sizes of texts are 0.
    let calls = unsafe {
        [
            ("hipDriverGetVersion", (HIP.hipDriverGetVersion)(null_mut())),
            (
                "hipRuntimeGetVersion",
                (HIP.hipRuntimeGetVersion)(null_mut()),
            ),
            ("hipGetDeviceCount", (HIP.hipGetDeviceCount)(null_mut())),
            ("hipGetDevice", (HIP.hipGetDevice)(null_mut())),
            (
                "hipDeviceGetName",
                (HIP.hipDeviceGetName)(null_mut(), 9, ordinal),
            ),
            (
                "hipDeviceGetAttribute",
                (HIP.hipDeviceGetAttribute)(null_mut(), 87, ordinal),
            ),
            (
                "hipDeviceTotalMem",
                (HIP.hipDeviceTotalMem)(null_mut(), ordinal),
            ),
            ("hipMemGetInfo", (HIP.hipMemGetInfo)(null_mut(), null_mut())),
            ("hipMalloc", (HIP.hipMalloc)(no.cast(), 0)),
            ("hipHostMalloc", (HIP.hipHostMalloc)(no.cast(), 0, 0)),
            ("hipStreamCreate", (HIP.hipStreamCreate)(no.cast())),
        ]
    };
    for (call, status) in calls {
        assert_eq!(status, hip::HIP_ERROR_INVALID_VALUE, "{call}");
    }
    let reason = reason::take().unwrap();
    assert_eq!(reason, "hipStreamCreate: the address of the result is null");
}

#[test]
fn hsa_refuses_by_name_what_it_does_not_model() {
    let _one = one_by_one();
    let (_runtime, ordinal) = soft(Target::Gfx1201);
    let [cpu, gpu] = agents(ordinal);
    let argument = hsa::HSA_ERROR_INVALID_ARGUMENT;
    let mut value = 0u64;
    let out: *mut c_void = (&raw mut value).cast();
    let mut pointer: *mut hsa::HsaQueue = null_mut();
    // SAFETY: every pointer is null, an address that is only looked up, or a local of its type.
    unsafe {
        assert_eq!((HSA.hsa_init)(), hsa::HSA_SUCCESS);
        hsa_refuses(
            (HSA.hsa_system_get_info)(77, out),
            argument,
            "hsa_system_get_info: attribute 0x4d is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_agent_get_info)(gpu, 0xa0ff, out),
            argument,
            "hsa_agent_get_info: attribute 0xa0ff of a GPU agent is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_agent_get_info)(cpu, hsa::HSA_AMD_AGENT_INFO_BDFID, out),
            argument,
            "hsa_agent_get_info: attribute 0xa006 of a CPU agent is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_agent_get_info)(HsaAgent { handle: 7 }, 0, out),
            hsa::HSA_ERROR_INVALID_AGENT,
            "hsa_agent_get_info: 0x7 is not an agent of a living software GPU",
        );
        hsa_refuses(
            (HSA.hsa_executable_create_alt)(0, 0, null(), null_mut()),
            argument,
            "hsa_executable_create_alt: profile 0 with rounding 0 is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_executable_create_alt)(1, 0, c"-x".as_ptr(), null_mut()),
            argument,
            "hsa_executable_create_alt: options are not modelled",
        );
        let queue = &raw mut pointer;
        hsa_refuses(
            (HSA.hsa_queue_create)(gpu, 64, 2, None, null_mut(), 0, 0, queue),
            hsa::HSA_ERROR_INVALID_QUEUE_CREATION,
            "hsa_queue_create: queue type 2 is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_queue_create)(cpu, 64, 0, None, null_mut(), 0, 0, queue),
            hsa::HSA_ERROR_INVALID_AGENT,
            "hsa_queue_create: the agent is a CPU",
        );
        hsa_refuses(
            (HSA.hsa_signal_destroy)(HsaSignal { handle: 64 }),
            hsa::HSA_ERROR_INVALID_SIGNAL,
            "hsa_signal_destroy: 0x40 is not a live signal",
        );
        hsa_refuses(
            (HSA.hsa_memory_copy)(without_provenance_mut(64), without_provenance_mut(64), 4),
            argument,
            "hsa_memory_copy: neither address is memory of a software GPU",
        );
        assert_eq!(
            (HSA.hsa_signal_load_scacquire)(HsaSignal { handle: 64 }),
            i64::MAX
        );
        let text = "hsa_signal_load_scacquire: 0x40 is not a live signal";
        assert_eq!(reason::take().as_deref(), Some(text));
        assert_eq!((HSA.hsa_queue_load_read_index_scacquire)(null()), u64::MAX);
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
    }
}

#[test]
fn pools_refuse_by_name_what_they_do_not_model() {
    let _one = one_by_one();
    let (_runtime, ordinal) = soft(Target::Gfx1201);
    let [_, gpu] = agents(ordinal);
    let argument = hsa::HSA_ERROR_INVALID_ARGUMENT;
    let mut value = 0u64;
    let out: *mut c_void = (&raw mut value).cast();
    let mut pointer = null_mut();
    let pool = |role: u64| hsa::HsaMemoryPool {
        handle: gpu.handle & !0xff | role,
    };
    // SAFETY: every pointer is a local of its type.
    unsafe {
        assert_eq!((HSA.hsa_init)(), hsa::HSA_SUCCESS);
        hsa_refuses(
            (HSA.hsa_amd_memory_pool_get_info)(pool(0x10), 999, out),
            argument,
            "hsa_amd_memory_pool_get_info: attribute 999 is not modelled",
        );
        hsa_refuses(
            (HSA.hsa_amd_memory_pool_allocate)(pool(0x11), 64, 8, &raw mut pointer),
            argument,
            "hsa_amd_memory_pool_allocate: flags 0x8 of the kernarg pool are not modelled",
        );
        let bad = pool(0x55);
        hsa_refuses(
            (HSA.hsa_amd_memory_pool_allocate)(bad, 64, 0, &raw mut pointer),
            hsa::HSA_ERROR_INVALID_MEMORY_POOL,
            &format!(
                "hsa_amd_memory_pool_allocate: {:#x} is not a pool of a living software GPU",
                bad.handle
            ),
        );
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
    }
}

#[test]
fn nothing_works_before_hsa_init() {
    let _one = one_by_one();
    let (_runtime, ordinal) = soft(Target::Gfx1201);
    let [_, gpu] = agents(ordinal);
    let none = hsa::HSA_ERROR_NOT_INITIALIZED;
    let mut signal = HsaSignal::default();
    let mut value = [0u8; 64];
    // SAFETY: locals of the right types.
    unsafe {
        let mut create = || (HSA.hsa_signal_create)(0, 1, &raw const gpu, &raw mut signal);
        let text = "hsa_signal_create: hsa_init has not been called";
        hsa_refuses(create(), none, text);
        hsa_refuses(
            (HSA.hsa_shut_down)(),
            none,
            "hsa_shut_down: hsa_init has not been called",
        );
        let mut ask = || (HSA.hsa_agent_get_info)(gpu, 0, value.as_mut_ptr().cast());
        hsa_refuses(
            ask(),
            none,
            "hsa_agent_get_info: hsa_init has not been called",
        );
        // Counted: two starts need two ends.
        assert_eq!([(HSA.hsa_init)(), (HSA.hsa_init)()], [hsa::HSA_SUCCESS; 2]);
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
        assert_eq!(ask(), hsa::HSA_SUCCESS);
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
        assert_eq!(ask(), none);
    }
    assert_eq!(&value[..8], b"gfx1201\0");
}

#[test]
fn access_is_granted_not_given() {
    let _one = one_by_one();
    let (runtime, ordinal) = soft(Target::Gfx1201);
    let [cpu, gpu] = agents(ordinal);
    let entry = registry().devices.get(&(ordinal as u32)).unwrap();
    let memory = entry.gpu.memory();
    let pool = hsa::HsaMemoryPool {
        handle: gpu.handle & !0xff | 0x10,
    };
    let mut pointer = null_mut();
    // SAFETY: locals of the right types; the allocation is freed once.
    unsafe {
        assert_eq!((HSA.hsa_init)(), hsa::HSA_SUCCESS);
        let made = (HSA.hsa_amd_memory_pool_allocate)(pool, 100, 0, &raw mut pointer);
        assert_eq!(made, hsa::HSA_SUCCESS);
        let va = pointer.addr() as u64;
        let allow = |agent: HsaAgent| {
            (HSA.hsa_amd_agents_allow_access)(1, &raw const agent, null(), pointer)
        };
        assert!(
            memory.read_u32(va).is_err(),
            "fresh host memory is not the GPU's"
        );
        assert_eq!(allow(cpu), hsa::HSA_SUCCESS);
        assert!(
            memory.read_u32(va).is_err(),
            "access of the CPU is not access of the GPU"
        );
        assert_eq!(allow(gpu), hsa::HSA_SUCCESS);
        assert!(memory.read_u32(va).is_ok());
        assert_eq!(
            (HIP.hipFree)(pointer),
            hip::HIP_ERROR_INVALID_VALUE,
            "wrong call"
        );
        assert_eq!((HSA.hsa_amd_memory_pool_free)(pointer), hsa::HSA_SUCCESS);
        let again = (HSA.hsa_amd_memory_pool_free)(pointer);
        assert_eq!(again, hsa::HSA_ERROR_INVALID_ALLOCATION);
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
    }
    drop(runtime);
}

#[test]
fn a_device_goes_with_its_last_runtime_and_takes_its_handles_along() {
    let _one = one_by_one();
    let (runtime, ordinal) = soft(Target::Gfx1151);
    let gpu = registry()
        .devices
        .get(&(ordinal as u32))
        .unwrap()
        .gpu
        .clone();
    let twin = super::runtime(gpu.clone());
    assert_eq!(twin.origin(), runtime.origin(), "one GPU has one ordinal");
    let [_, agent] = agents(ordinal);
    let (mut stream, mut queue) = (null_mut(), null_mut());
    let mut signal = HsaSignal::default();
    // SAFETY: locals of the right types.
    unsafe {
        assert_eq!((HSA.hsa_init)(), hsa::HSA_SUCCESS);
        assert_eq!((HIP.hipStreamCreate)(&raw mut stream), hip::HIP_SUCCESS);
        assert_eq!((HIP.hipDeviceSynchronize)(), hip::HIP_SUCCESS);
        let made = (HSA.hsa_signal_create)(5, 1, &raw const agent, &raw mut signal);
        assert_eq!(made, hsa::HSA_SUCCESS);
        let made = (HSA.hsa_queue_create)(agent, 64, 0, None, null_mut(), 0, 0, &raw mut queue);
        assert_eq!(made, hsa::HSA_SUCCESS);
        assert_eq!((HSA.hsa_signal_load_scacquire)(signal), 5);
        drop(runtime);
        assert_eq!(
            (HSA.hsa_signal_load_scacquire)(signal),
            5,
            "the twin keeps the device"
        );
        drop(twin);
        assert_eq!((HSA.hsa_signal_load_scacquire)(signal), i64::MAX);
        assert_eq!((HSA.hsa_queue_destroy)(queue), hsa::HSA_ERROR_INVALID_QUEUE);
        assert_eq!(
            (HIP.hipStreamSynchronize)(stream),
            hip::HIP_ERROR_INVALID_DEVICE
        );
        assert_eq!((HIP.hipSetDevice)(ordinal), hip::HIP_ERROR_INVALID_DEVICE);
        assert_eq!((HSA.hsa_shut_down)(), hsa::HSA_SUCCESS);
    }
    assert_eq!(
        std::sync::Arc::strong_count(&gpu),
        1,
        "nothing else holds the GPU"
    );
}

#[test]
fn copies_check_both_sides() {
    let (_runtime, _) = soft(Target::Gfx1201);
    let mut device = null_mut();
    let mut host = [7u8; 32];
    let at = host.as_mut_ptr().cast::<c_void>();
    // SAFETY: `device` has 32 bytes once allocated, `host` too; refused copies touch nothing.
    unsafe {
        assert_eq!((HIP.hipMalloc)(&raw mut device, 32), hip::HIP_SUCCESS);
        let copy = |dst, src: *mut c_void, bytes, kind| (HIP.hipMemcpy)(dst, src, bytes, kind);
        assert_eq!(
            copy(device, at, 32, hip::HIP_MEMCPY_HOST_TO_DEVICE),
            hip::HIP_SUCCESS
        );
        host.fill(0);
        assert_eq!(
            copy(at, device, 32, hip::HIP_MEMCPY_DEFAULT),
            hip::HIP_SUCCESS
        );
        assert_eq!(host, [7; 32]);
        let bad = hip::HIP_ERROR_INVALID_VALUE;
        assert_eq!(copy(device, at, 33, hip::HIP_MEMCPY_HOST_TO_DEVICE), bad);
        assert!(
            reason::take().unwrap().contains("hip allocation"),
            "the buffer is named"
        );
        assert_eq!(copy(at, at, 4, hip::HIP_MEMCPY_DEFAULT), bad);
        assert_eq!(copy(device, at, 4, hip::HIP_MEMCPY_DEVICE_TO_DEVICE), bad);
        assert_eq!((HIP.hipMemset)(device, 0x1ff, 33), bad);
        assert_eq!((HIP.hipMemset)(device, 0x1ab, 32), hip::HIP_SUCCESS);
        assert_eq!(
            copy(at, device, 32, hip::HIP_MEMCPY_DEVICE_TO_HOST),
            hip::HIP_SUCCESS
        );
        assert_eq!(host, [0xab; 32], "a memset takes the low byte");
        assert_eq!((HIP.hipFree)(device), hip::HIP_SUCCESS);
        assert_eq!((HIP.hipFree)(null_mut()), hip::HIP_SUCCESS);
    }
}

#[test]
fn names_and_sentences_of_statuses_are_c_strings() {
    // SAFETY: both entries return static strings for any status.
    unsafe {
        let name = |code| CStr::from_ptr((HIP.hipGetErrorName)(HipStatus(code)));
        assert_eq!(name(0), c"hipSuccess");
        assert_eq!(name(700), c"hipErrorIllegalAddress");
        assert_eq!(name(12_345), c"unknown");
        let mut text = null();
        let status = (HSA.hsa_status_string)(hsa::HSA_ERROR_INVALID_QUEUE, &raw mut text);
        assert_eq!(status, hsa::HSA_SUCCESS);
        let text = CStr::from_ptr(text).to_str().unwrap();
        assert!(
            text.starts_with("HSA_STATUS_ERROR_INVALID_QUEUE: "),
            "{text}"
        );
    }
}
