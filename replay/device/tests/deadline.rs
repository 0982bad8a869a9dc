//! Work that never ends: waits for the stream end at their deadline, later calls answer at once, and
//! nothing blocks on the way out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{control, kv_write_args};
use refrain_device::sys::hip::HipStatus;
use refrain_device::{Buffer, Device, DeviceError, MemoryKind, Module};
use refrain_softgpu::isa::Target;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_millis(80);
const SOON: Duration = Duration::from_secs(2);

struct Hung {
    buffers: Vec<Buffer>,
    device: Arc<Device>,
    module: Module,
}

/// A device whose first launch never ends.
fn hung(device: Arc<Device>, gpu: &refrain_softgpu::SoftGpu) -> Hung {
    device.set_deadline(DEADLINE);
    let alloc = |name| device.alloc(MemoryKind::Device, name, 4096, 64).unwrap();
    let buffers: Vec<Buffer> = ["k", "v", "kcache", "vcache", "control"].map(alloc).into();
    let stream = device.stream();
    stream.copy_to_device(&buffers[4], 0, &control(0)).unwrap();
    let module = Module::load(&device, common::kernels(Target::Gfx1201)).unwrap();
    gpu.arm_faults(&"hang@launch:1".parse().unwrap());
    let args = kv_write_args([0, 1, 2, 3, 4].map(|index: usize| buffers[index].va()), 8);
    let function = module.function("kv_write_f32").unwrap();
    stream
        .launch(&function, [1, 1, 1], [256, 1, 1], 0, &args)
        .unwrap();
    Hung {
        buffers,
        device,
        module,
    }
}

fn is_deadline(result: Result<(), DeviceError>) -> bool {
    matches!(
        result,
        Err(DeviceError::DeadlineExceeded { reason: Some(text), .. }) if text.contains("never ends")
    )
}

#[test]
fn the_first_wait_ends_at_the_deadline_and_later_calls_at_once() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let before = gpu.memory().total_bytes();
    let hung = hung(device, &gpu);
    let stream = hung.device.stream();
    let start = Instant::now();
    assert!(is_deadline(stream.synchronize()));
    assert!(start.elapsed() >= DEADLINE && start.elapsed() < SOON);
    let start = Instant::now();
    assert!(is_deadline(stream.synchronize()));
    assert!(is_deadline(stream.copy_to_device(
        &hung.buffers[0],
        0,
        &[1]
    )));
    assert!(is_deadline(stream.copy_from_device(
        &hung.buffers[0],
        0,
        &mut [0]
    )));
    assert!(is_deadline(stream.memset(&hung.buffers[0], 0, 0, 1)));
    let function = hung.module.function("kv_write_f32").unwrap();
    assert!(is_deadline(stream.launch(
        &function,
        [1, 1, 1],
        [256, 1, 1],
        0,
        &[]
    )));
    assert!(start.elapsed() < DEADLINE);
    drop((function, hung));
    assert!(start.elapsed() < SOON);
    // The device's own stream went with its last user.
    assert!(gpu.memory().total_bytes() <= before);
}

unsafe extern "C" fn blocking_free(_pointer: *mut c_void) -> HipStatus {
    std::thread::sleep(Duration::from_secs(3600));
    HipStatus(0)
}

/// A runtime that would block for ever on the way out, as HIP does behind a hang, is not called.
#[test]
fn on_hardware_nothing_is_given_back_behind_a_hang() {
    let gpu = common::gpu(Target::Gfx1201);
    let runtime = common::changed(&gpu, |hip, _, _| {
        hip.hipFree = blocking_free;
        // What only a software GPU has.
        hip.refrain_fault = None;
        hip.refrain_take_reason = None;
    });
    let hung = hung(Device::open(runtime, 0).unwrap(), &gpu);
    let missed = hung.device.stream().synchronize();
    assert!(matches!(missed, Err(DeviceError::DeadlineExceeded { .. })));
    let start = Instant::now();
    drop(hung);
    assert!(start.elapsed() < SOON);
}
