//! Opening a device as on ROCm, over tables of the software GPU that answer as a machine without
//! driver, without visible card, or with an unknown card would.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use refrain_device::sys::hip::{HIP_SUCCESS, HipStatus};
use refrain_device::sys::hsa::{
    HSA_AMD_AGENT_INFO_BDFID, HSA_ISA_INFO_NAME, HSA_ISA_INFO_NAME_LENGTH, HSA_SUCCESS, HsaAgent,
    HsaIsa, HsaStatus,
};
use refrain_device::sys::{HipTable, HsaTable};
use refrain_device::{Device, DeviceError, MemoryKind, Origin};
use refrain_softgpu::isa::Target;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;

type AgentInfo = unsafe extern "C" fn(HsaAgent, u32, *mut c_void) -> HsaStatus;

thread_local! {
    static AGENT_INFO: Cell<Option<AgentInfo>> = const { Cell::new(None) };
}

unsafe extern "C" fn no_card(_flags: c_uint) -> HipStatus {
    HipStatus(101)
}

unsafe extern "C" fn no_count(count: *mut c_int) -> HipStatus {
    // SAFETY: the device crate passes the address of an int.
    unsafe { count.write(0) };
    HipStatus(100)
}

unsafe extern "C" fn zero_count(count: *mut c_int) -> HipStatus {
    // SAFETY: the device crate passes the address of an int.
    unsafe { count.write(0) };
    HIP_SUCCESS
}

unsafe extern "C" fn no_init() -> HsaStatus {
    HsaStatus(0x1008)
}

unsafe extern "C" fn old_isa(_isa: HsaIsa, attribute: u32, value: *mut c_void) -> HsaStatus {
    let name = b"amdgcn-amd-amdhsa--gfx906:sramecc+:xnack-\0";
    match attribute {
        // SAFETY: the attribute is a uint32_t.
        HSA_ISA_INFO_NAME_LENGTH => unsafe { value.cast::<u32>().write(name.len() as u32) },
        // SAFETY: the caller has the room that it was told.
        HSA_ISA_INFO_NAME => unsafe {
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(name.as_ptr(), name.len());
        },
        _ => return HsaStatus(0x1001),
    }
    HSA_SUCCESS
}

unsafe extern "C" fn elsewhere(agent: HsaAgent, attribute: u32, value: *mut c_void) -> HsaStatus {
    let original = AGENT_INFO.get().expect("set by the test");
    // SAFETY: the arguments are the caller's own.
    let status = unsafe { original(agent, attribute, value) };
    if attribute == HSA_AMD_AGENT_INFO_BDFID && status == HSA_SUCCESS {
        // SAFETY: the attribute is a uint32_t.
        unsafe { *value.cast::<u32>() ^= 0xff00 };
    }
    status
}

/// Opens a software GPU as if its tables came from ROCm.
fn open(change: impl FnOnce(&mut HipTable, &mut HsaTable)) -> Result<Arc<Device>, DeviceError> {
    let gpu = common::gpu(Target::Gfx1100);
    let mut own = 0;
    let runtime = common::changed(&gpu, |hip, hsa, origin| {
        let Origin::Soft { ordinal, .. } = *origin else {
            panic!("{origin:?}")
        };
        own = ordinal;
        let path = |name: &str| PathBuf::from(format!("/lib/{name}"));
        *origin = Origin::Rocm {
            hip_path: path("hip"),
            hsa_path: path("hsa"),
        };
        change(hip, hsa);
    });
    Device::open(runtime, own)
}

#[test]
fn the_rocm_path_works_over_any_complete_tables() {
    let device = open(|_, _| ()).unwrap();
    let info = device.info();
    assert_eq!(info.name, "software GPU gfx1100 (as Radeon RX 7900 XTX)");
    assert_eq!(
        (&*info.target, info.compute_units, info.wave_size),
        ("gfx1100", 96, 32)
    );
    assert_eq!(
        (info.vram_bytes, &*info.runtime_version),
        (24 << 30, "0.1.0")
    );
    let buffer = device
        .alloc(MemoryKind::Kernarg, "kernargs", 64, 64)
        .unwrap();
    buffer.write(0, &[1; 64]).unwrap();
}

#[test]
fn every_way_of_having_no_device_is_told_apart() {
    type Change = fn(&mut HipTable, &mut HsaTable);
    let cases: [(&str, Change, &str, &str); 6] = [
        (
            "hsa",
            |_, hsa| hsa.hsa_init = no_init,
            "hsa_init answered 0x1008",
            "kfd",
        ),
        (
            "init",
            |hip, _| hip.hipInit = no_card,
            "hipInit answered 101",
            "kfd",
        ),
        (
            "count",
            |hip, _| hip.hipGetDeviceCount = no_count,
            "answered 100",
            "kfd",
        ),
        (
            "zero",
            |hip, _| hip.hipGetDeviceCount = zero_count,
            "the runtime lists 0",
            "devices",
        ),
        (
            "isa",
            |_, hsa| hsa.hsa_isa_get_info_alt = old_isa,
            "is a gfx906, which is not supported",
            "gfx1100, gfx1151 or gfx1201",
        ),
        (
            "agent",
            |_, hsa| {
                AGENT_INFO.set(Some(hsa.hsa_agent_get_info));
                hsa.hsa_agent_get_info = elsewhere;
            },
            "has no HSA agent",
            "ROCR_VISIBLE_DEVICES",
        ),
    ];
    for (name, change, reason, remedy) in cases {
        let error = open(change).unwrap_err();
        assert!(error.is_no_device(), "{name}: {error}");
        let text = error.to_string();
        assert!(text.contains(reason), "{name}: {text}");
        if remedy != "kfd" {
            assert!(text.contains(remedy), "{name}: {text}");
        } else if !Path::new("/dev/kfd").exists() {
            assert!(text.contains("/dev/kfd does not exist"), "{name}: {text}");
            assert!(text.contains("modprobe amdgpu"), "{name}: {text}");
        }
    }
}

#[test]
fn a_failed_open_gives_everything_back() {
    let gpu = common::gpu(Target::Gfx1201);
    for _ in 0..3 {
        let runtime = common::changed(&gpu, |_, hsa, _| hsa.hsa_isa_get_info_alt = old_isa);
        assert!(Device::open(runtime, 0).is_err());
    }
    assert!(
        gpu.memory().allocations().is_empty(),
        "{:?}",
        gpu.memory().allocations()
    );
    assert_eq!(Arc::strong_count(&gpu), 1);
}
