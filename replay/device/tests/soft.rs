//! A device on the software GPU: memory, streams, modules, launches, observers, lifetimes, threads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{control, kv_write_args};
use proptest::prelude::{
    ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use refrain_device::{
    Buffer, CopyDirection, Device, DeviceError, Executable, HipCall, MemoryKind, Module, Observer,
    Queue, Signal,
};
use refrain_softgpu::isa::Target;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KINDS: [MemoryKind; 4] = [
    MemoryKind::Device,
    MemoryKind::HostCoherent,
    MemoryKind::Kernarg,
    MemoryKind::Executable,
];

/// Elements of a row that `kv_write_f32` copies.
const DIM: u32 = 96;
/// Rows of the caches.
const ROWS: u64 = 4;

/// Everything that one `kv_write_f32` launch needs, with recognisable contents.
struct KvWrite {
    device: Arc<Device>,
    module: Module,
    buffers: [Buffer; 5],
    /// The kernel arguments as HIP gets them: 44 bytes.
    args: Vec<u8>,
}

impl KvWrite {
    fn new(device: &Arc<Device>, target: Target, pos: u32, salt: u8) -> Self {
        let row = u64::from(DIM) * 4;
        let alloc = |name: &str, bytes| device.alloc(MemoryKind::Device, name, bytes, 64).unwrap();
        let buffers = [
            alloc("k", row),
            alloc("v", row),
            alloc("kcache", row * ROWS),
            alloc("vcache", row * ROWS),
            alloc("control", 44),
        ];
        let stream = device.stream();
        stream
            .copy_to_device(&buffers[0], 0, &row_bytes(salt))
            .unwrap();
        stream
            .copy_to_device(&buffers[1], 0, &row_bytes(salt ^ 0x5a))
            .unwrap();
        stream.memset(&buffers[2], 0, 0, row * ROWS).unwrap();
        stream.memset(&buffers[3], 0, 0, row * ROWS).unwrap();
        stream
            .copy_to_device(&buffers[4], 0, &control(pos))
            .unwrap();
        let args = kv_write_args([0, 1, 2, 3, 4].map(|index: usize| buffers[index].va()), DIM);
        let module = Module::load(device, common::kernels(target)).unwrap();
        Self {
            device: Arc::clone(device),
            module,
            buffers,
            args,
        }
    }

    fn launch(&self) -> Result<(), DeviceError> {
        let function = self.module.function("kv_write_f32")?;
        self.device
            .stream()
            .launch(&function, [1, 1, 1], [256, 1, 1], 0, &self.args)
    }

    fn check(&self, pos: u64, salt: u8) {
        for (index, expected) in [(2, row_bytes(salt)), (3, row_bytes(salt ^ 0x5a))] {
            let mut found = vec![0; expected.len() * ROWS as usize];
            self.device
                .stream()
                .copy_from_device(&self.buffers[index], 0, &mut found)
                .unwrap();
            for (row, bytes) in found.chunks(expected.len()).enumerate() {
                let zeros = vec![0; expected.len()];
                assert_eq!(
                    bytes,
                    if row as u64 == pos { &expected } else { &zeros },
                    "row {row}"
                );
            }
        }
    }
}

fn row_bytes(salt: u8) -> Vec<u8> {
    // Small finite floats: the kernel copies values, and a signalling NaN might be quieted.
    (0..DIM)
        .flat_map(|i| (i as f32 + f32::from(salt)).to_le_bytes())
        .collect()
}

#[test]
fn info_describes_each_target() {
    for target in Target::ALL {
        let (_gpu, device) = common::device(target);
        let info = device.info();
        assert_eq!(info.name, format!("soft:{target}"));
        assert_eq!(info.target, target.name());
        assert_eq!(info.wave_size, 32);
        assert!(
            info.compute_units >= 32 && info.vram_bytes >= 1 << 33,
            "{info:?}"
        );
        let (free, total) = device.memory_info().unwrap();
        assert_eq!((free, total), (info.vram_bytes, info.vram_bytes));
        let _buffer = device.alloc(MemoryKind::Device, "b", 1 << 20, 256).unwrap();
        assert_eq!(device.memory_info().unwrap().0, total - (1 << 20));
    }
}

#[test]
fn buffers_have_their_alignment_bounds_and_content() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    for kind in KINDS {
        for align in [1, 64, 256, 4096, 65_536, 2 << 20] {
            let buffer = device.alloc(kind, "buffer", 1000, align).unwrap();
            assert_eq!(buffer.va() % align, 0, "{kind} {align}");
            assert_eq!(
                (buffer.len(), buffer.kind(), buffer.name()),
                (1000, kind, "buffer")
            );
            let error = buffer.write(999, &[0; 2]).unwrap_err();
            if kind.host_visible() {
                assert!(matches!(
                    error,
                    DeviceError::OutOfBounds {
                        offset: 999,
                        bytes: 2,
                        ..
                    }
                ));
                let data: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
                buffer.write(0, &data).unwrap();
                let mut back = vec![0; 997];
                buffer.read(3, &mut back).unwrap();
                assert_eq!(back, data[3..]);
                buffer.store_u32_release(996, 0xdead_beef).unwrap();
                assert_eq!(buffer.load_u64(992).unwrap() >> 32, 0xdead_beef);
                assert!(matches!(
                    buffer.load_u64(4),
                    Err(DeviceError::Misaligned { .. })
                ));
                assert!(matches!(
                    buffer.load_u64(993),
                    Err(DeviceError::OutOfBounds { .. })
                ));
                assert!(matches!(
                    buffer.load_u64(u64::MAX),
                    Err(DeviceError::OutOfBounds { .. })
                ));
            } else {
                assert!(
                    matches!(error, DeviceError::NotHostVisible { .. }),
                    "{error}"
                );
            }
        }
        for (bytes, align) in [(0, 16), (16, 0), (16, 3), (16, 4 << 20), (u64::MAX, 4096)] {
            let error = device.alloc(kind, "bad", bytes, align).unwrap_err();
            assert!(
                matches!(error, DeviceError::BadAllocation { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn too_much_device_memory_is_refused_with_the_numbers() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let vram = device.info().vram_bytes;
    let error = device
        .alloc(MemoryKind::Device, "weights", vram + 1, 64)
        .unwrap_err();
    assert_eq!(error.status(), Some(2), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("{vram} bytes are in use")),
        "{error}"
    );
    assert!(!error.is_no_device());
}

#[test]
fn copies_and_memsets_move_exactly_their_bytes() {
    let (_gpu, device) = common::device(Target::Gfx1100);
    let stream = device.stream();
    for kind in [MemoryKind::Device, MemoryKind::HostCoherent] {
        let buffer = device.alloc(kind, "data", 300, 16).unwrap();
        stream.memset(&buffer, 0, 0x11, 300).unwrap();
        stream.copy_to_device(&buffer, 7, &[1, 2, 3]).unwrap();
        stream.memset(&buffer, 9, 0xfe, 2).unwrap();
        let mut all = [0; 300];
        stream.copy_from_device(&buffer, 0, &mut all).unwrap();
        assert_eq!(all[6..12], [0x11, 1, 2, 0xfe, 0xfe, 0x11]);
        stream.copy_to_device(&buffer, 300, &[]).unwrap();
        stream.memset(&buffer, 300, 1, 0).unwrap();
        let bounds = |result: Result<(), DeviceError>| {
            assert!(
                matches!(result, Err(DeviceError::OutOfBounds { .. })),
                "{result:?}"
            );
        };
        bounds(stream.copy_to_device(&buffer, 299, &[0; 2]));
        bounds(stream.copy_from_device(&buffer, u64::MAX, &mut [0; 2]));
        bounds(stream.memset(&buffer, 0, 0, 301));
    }
}

#[test]
fn a_launch_writes_what_the_kernel_says() {
    for target in Target::ALL {
        let (gpu, device) = common::device(target);
        let work = KvWrite::new(&device, target, 2, 9);
        work.launch().unwrap();
        device.stream().synchronize().unwrap();
        work.check(2, 9);
        let log = common::log(&gpu, 1);
        assert_eq!(log.len(), 1, "one packet per launch, nothing else");
        assert_eq!(log[0].symbol().map(|name| &**name), Some("kv_write_f32"));
        assert_eq!(
            log[0].kernarg()[..44],
            work.args[..],
            "kernargs as executed"
        );
    }
}

#[test]
fn many_launches_reuse_ring_and_slab() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let work = KvWrite::new(&device, Target::Gfx1201, 0, 1);
    // More than the 1,024 packets and the 256 KiB of arguments of a stream.
    for _ in 0..2500 {
        work.launch().unwrap();
    }
    device.synchronize().unwrap();
    work.check(0, 1);
}

/// Keeps what it sees as text.
#[derive(Default)]
struct Tape(Mutex<Vec<String>>);

impl Observer for Tape {
    fn observe(&self, call: &HipCall<'_>) {
        let line = match call {
            HipCall::Launch {
                symbol,
                grid,
                block,
                lds,
                kernarg,
                image,
                module,
            } => {
                assert!(image.starts_with(b"\x7fELF"));
                format!("launch {module} {symbol} {grid:?} {block:?} {lds} {kernarg:?}")
            }
            HipCall::Copy {
                dst,
                bytes,
                direction: CopyDirection::HostToDevice,
                ..
            } => {
                format!("copy to {dst:#x} {bytes}")
            }
            HipCall::Graph { launches } => format!("graph of {launches}"),
            HipCall::Copy { src, bytes, .. } => format!("copy from {src:#x} {bytes}"),
            HipCall::Memset { dst, value, bytes } => format!("memset {dst:#x} {value} {bytes}"),
        };
        self.0.lock().unwrap().push(line);
    }
}

#[test]
fn an_observer_sees_every_call_in_order_with_the_exact_kernargs() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let work = KvWrite::new(&device, Target::Gfx1201, 1, 3);
    let tape = Arc::new(Tape::default());
    let guard = device.attach(Arc::clone(&tape) as Arc<dyn Observer>);
    let stream = device.stream();
    let va = work.buffers[0].va();
    stream.copy_to_device(&work.buffers[0], 4, &[0; 8]).unwrap();
    work.launch().unwrap();
    stream.memset(&work.buffers[0], 16, 7, 32).unwrap();
    stream
        .copy_from_device(&work.buffers[0], 0, &mut [0; 12])
        .unwrap();
    // Refused calls are not told.
    assert!(stream.memset(&work.buffers[0], 0, 0, 1 << 40).is_err());
    let function = work.module.function("kv_write_f32").unwrap();
    assert!(
        stream
            .launch(&function, [0, 1, 1], [256, 1, 1], 0, &work.args)
            .is_err()
    );
    drop(guard);
    work.launch().unwrap();
    let launch = format!(
        "launch 0 kv_write_f32 [1, 1, 1] [256, 1, 1] 0 {:?}",
        work.args
    );
    assert_eq!(
        *tape.0.lock().unwrap(),
        [
            format!("copy to {:#x} 8", va + 4),
            launch,
            format!("memset {:#x} 7 32", va + 16),
            format!("copy from {va:#x} 12"),
        ]
    );
}

#[test]
fn observers_are_per_opening_and_may_detach_while_observing() {
    struct Detach(Mutex<Option<refrain_device::ObserverGuard>>);
    impl Observer for Detach {
        fn observe(&self, _call: &HipCall<'_>) {
            self.0.lock().unwrap().take();
        }
    }
    let (gpu, first) = common::device(Target::Gfx1201);
    let second = Device::open(refrain_softgpu::runtime(gpu), 0).unwrap();
    let (on_first, on_second) = (Arc::new(Tape::default()), Arc::new(Tape::default()));
    let _a = first.attach(Arc::clone(&on_first) as Arc<dyn Observer>);
    let _b = second.attach(Arc::clone(&on_second) as Arc<dyn Observer>);
    let detach = Arc::new(Detach(Mutex::new(None)));
    let guard = first.attach(Arc::clone(&detach) as Arc<dyn Observer>);
    *detach.0.lock().unwrap() = Some(guard);
    let buffer = first.alloc(MemoryKind::Device, "b", 64, 64).unwrap();
    first.stream().memset(&buffer, 0, 0, 64).unwrap();
    first.stream().memset(&buffer, 0, 0, 64).unwrap();
    assert!(detach.0.lock().unwrap().is_none());
    assert_eq!(on_first.0.lock().unwrap().len(), 2);
    assert_eq!(on_second.0.lock().unwrap().len(), 0);
    let error = second.stream().memset(&buffer, 0, 0, 64).unwrap_err();
    assert!(
        matches!(error, DeviceError::ForeignDevice { .. }),
        "{error}"
    );
}

#[test]
fn refused_launches_name_the_kernel_and_the_numbers() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let work = KvWrite::new(&device, Target::Gfx1201, 0, 0);
    let function = work.module.function("kv_write_f32").unwrap();
    let stream = device.stream();
    /// Grid, block, LDS bytes, kernarg bytes, status, words of the message.
    type Case = ([u32; 3], [u32; 3], u32, usize, u32, &'static str);
    let cases: [Case; 6] = [
        (
            [0, 1, 1],
            [256, 1, 1],
            0,
            44,
            9,
            "kv_write_f32: a grid of [0, 1, 1]",
        ),
        (
            [1, 1, 1],
            [512, 1, 1],
            0,
            44,
            9,
            "512 work-items in a group, the code allows 256",
        ),
        ([1, 1, 1], [256, 1, 1], 70_000, 44, 9, "70000 bytes of LDS"),
        (
            [1, 1, 1],
            [256, 1, 1],
            0,
            40,
            1,
            "takes 44 bytes of arguments, 40 were passed",
        ),
        (
            [1, 1, 1],
            [256, 1, 1],
            0,
            64,
            1,
            "takes 44 bytes of arguments, 64 were passed",
        ),
        ([u32::MAX, 1, 1], [256, 1, 1], 0, 44, 999, "exceed 2^32"),
    ];
    for (grid, block, lds, args, status, text) in cases {
        let args = vec![0; args];
        let error = stream
            .launch(&function, grid, block, lds, &args)
            .unwrap_err();
        assert_eq!(error.status(), Some(status), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = work.module.function("no_such_kernel").unwrap_err();
    assert_eq!(error.status(), Some(500), "{error}");
    assert!(
        error.to_string().contains("kv_write_f32"),
        "lists what there is: {error}"
    );
    assert!(matches!(
        work.module.function("a\0b"),
        Err(DeviceError::BadName { .. })
    ));
}

#[test]
fn damaged_code_objects_are_refused() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let good = common::kernels(Target::Gfx1201);
    for image in [
        &b""[..],
        b"\x7fELF",
        &good[..64],
        &good[..good.len() / 2],
        b"not an elf file",
    ] {
        for error in [
            Module::load(&device, image).map(drop).unwrap_err(),
            Executable::load(&device, image).map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, DeviceError::BadImage { .. }), "{error}");
        }
    }
    let other = common::kernels(Target::Gfx1100);
    assert_eq!(
        Module::load(&device, other).map(drop).unwrap_err().status(),
        Some(200)
    );
    assert_eq!(
        Executable::load(&device, other)
            .map(drop)
            .unwrap_err()
            .status(),
        Some(0x1010)
    );
}

#[test]
fn executables_describe_their_kernels() {
    let (_gpu, device) = common::device(Target::Gfx1151);
    let executable = Executable::load(&device, common::kernels(Target::Gfx1151)).unwrap();
    let kernel = executable.kernel("kv_write_f32").unwrap();
    assert_eq!(kernel.kernel_object % 64, 0);
    assert_eq!(
        (
            kernel.kernarg_size,
            kernel.private_bytes,
            kernel.group_bytes
        ),
        (44, 0, 0)
    );
    assert!(!kernel.dynamic_stack && kernel.kernarg_align >= 8);
    let error = executable.kernel("missing").unwrap_err();
    assert_eq!(error.status(), Some(0x1013), "{error}");
}

#[test]
fn a_packet_through_hsa_does_what_a_launch_through_hip_does() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let work = KvWrite::new(&device, Target::Gfx1201, 3, 8);
    let executable = Executable::load(&device, common::kernels(Target::Gfx1201)).unwrap();
    let kernel = executable.kernel("kv_write_f32").unwrap();
    let kernarg = device
        .alloc(MemoryKind::Kernarg, "kernargs", 64, 64)
        .unwrap();
    kernarg.write(0, &work.args).unwrap();
    let signal = Signal::new(&device, 1).unwrap();
    let mut packet = [0u8; 64];
    // Kernel dispatch, barrier, system fences; one dimension; 256 work-items in one group.
    packet[..4].copy_from_slice(&(2u32 | 1 << 8 | 2 << 9 | 2 << 11 | 1 << 16).to_le_bytes());
    packet[4..10].copy_from_slice(&[0, 1, 1, 0, 1, 0]);
    packet[12..24].copy_from_slice(&[0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    packet[32..40].copy_from_slice(&kernel.kernel_object.to_le_bytes());
    packet[40..48].copy_from_slice(&kernarg.va().to_le_bytes());
    packet[56..].copy_from_slice(&signal.handle().to_le_bytes());
    let queue = Queue::new(&device, 64).unwrap();
    queue.submit(&[packet]).unwrap();
    signal.wait_lt(1, Duration::from_secs(20)).unwrap();
    work.check(3, 8);
}

#[test]
fn a_kernel_that_leaves_its_buffer_is_named_with_the_buffer() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    // Position 9 of caches with 4 rows.
    let work = KvWrite::new(&device, Target::Gfx1201, 9, 8);
    work.launch().unwrap();
    let error = device.stream().synchronize().unwrap_err();
    assert_eq!(error.status(), Some(700), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("kv_write_f32") && text.contains("cache"),
        "{text}"
    );
    assert!(
        device
            .fault()
            .is_some_and(|fault| fault.contains("kv_write_f32"))
    );
    assert!(work.launch().is_err(), "a failed stream takes no more");
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    for order in 0..6 {
        let (gpu, device) = common::device(Target::Gfx1201);
        let work = KvWrite::new(&device, Target::Gfx1201, 0, 5);
        let function = work.module.function("kv_write_f32").unwrap();
        let executable = Executable::load(&device, common::kernels(Target::Gfx1201)).unwrap();
        let queue = Queue::new(&device, 64).unwrap();
        let signal = Signal::new(&device, 0).unwrap();
        let guard = device.attach(Arc::new(Tape::default()));
        work.launch().unwrap();
        let mut things: Vec<Box<dyn Send>> = vec![
            Box::new(gpu.clone()),
            Box::new(device),
            Box::new(work),
            Box::new((executable, queue)),
            Box::new((signal, guard)),
            Box::new(function),
        ];
        things.rotate_left(order);
        things.into_iter().for_each(drop);
        let left = gpu.memory().allocations();
        let left: Vec<_> = left
            .iter()
            .filter(|info| &*info.name != "signals")
            .collect();
        assert!(left.is_empty(), "order {order} leaves {left:?}");
    }
}

#[test]
fn a_function_keeps_its_module_and_its_device() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let work = KvWrite::new(&device, Target::Gfx1201, 1, 2);
    let function = work.module.function("kv_write_f32").unwrap();
    let KvWrite {
        module,
        buffers,
        args,
        ..
    } = work;
    drop(module);
    device
        .stream()
        .launch(&function, [1, 1, 1], [256, 1, 1], 0, &args)
        .unwrap();
    drop(function);
    device.stream().synchronize().unwrap();
    let mut row = vec![0; DIM as usize * 4];
    device
        .stream()
        .copy_from_device(&buffers[2], u64::from(DIM) * 4, &mut row)
        .unwrap();
    assert_eq!(row, row_bytes(2));
}

#[test]
fn one_device_serves_several_threads() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    std::thread::scope(|scope| {
        for salt in 0..8u8 {
            let device = &device;
            scope.spawn(move || {
                let pos = u32::from(salt % 4);
                let work = KvWrite::new(device, Target::Gfx1201, pos, salt);
                for _ in 0..20 {
                    work.launch().unwrap();
                }
                work.check(u64::from(pos), salt);
            });
        }
    });
}

#[test]
fn sixteen_devices_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for salt in 0..16u8 {
            scope.spawn(move || {
                let target = Target::ALL[usize::from(salt) % 3];
                let (gpu, device) = common::device(target);
                let work = KvWrite::new(&device, target, 2, salt);
                for _ in 0..10 {
                    work.launch().unwrap();
                }
                work.check(2, salt);
                assert_eq!(common::log(&gpu, 10).len(), 10);
                assert_eq!(device.info().target, target.name());
            });
        }
    });
}

#[test]
fn a_fault_of_one_device_leaves_the_other_working() {
    let (_a, bad) = common::device(Target::Gfx1201);
    let (_b, good) = common::device(Target::Gfx1201);
    let broken = KvWrite::new(&bad, Target::Gfx1201, 100, 1);
    broken.launch().unwrap();
    assert!(bad.stream().synchronize().is_err());
    let work = KvWrite::new(&good, Target::Gfx1201, 1, 1);
    work.launch().unwrap();
    work.check(1, 1);
    assert!(good.fault().is_none());
}

#[test]
fn opening_twice_gives_the_same_device_and_ordinals_are_checked() {
    let (gpu, first) = common::device(Target::Gfx1100);
    let runtime = refrain_softgpu::runtime(Arc::clone(&gpu));
    let second = Device::open(runtime.clone(), 0).unwrap();
    assert_eq!(first.info(), second.info());
    let a = first.alloc(MemoryKind::HostCoherent, "a", 64, 64).unwrap();
    drop(first);
    a.write(0, &[1; 64]).unwrap();
    let error = Device::open(runtime, 1).unwrap_err();
    assert!(error.is_no_device(), "{error}");
    assert!(
        error
            .to_string()
            .contains("there is no device 1: the runtime lists 1"),
        "{error}"
    );
}

/// One change of a buffer.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Copy(u64, Vec<u8>),
    Set(u64, u8, u64),
    Store(u64, u32),
}

fn change(len: u64) -> impl Strategy<Value = Change> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..70);
    prop_oneof![
        (0..len + 8, bytes()).prop_map(|(at, bytes)| Change::Write(at, bytes)),
        (0..len + 8, bytes()).prop_map(|(at, bytes)| Change::Copy(at, bytes)),
        (0..len + 8, any::<u8>(), 0..70u64).prop_map(|(at, byte, n)| Change::Set(at, byte, n)),
        (0..len + 8, any::<u32>()).prop_map(|(at, value)| Change::Store(at, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_sequence_of_changes_leaves_what_a_vector_would_hold(
        changes in proptest::collection::vec(change(200), 1..20)
    ) {
        let (_gpu, device) = common::device(Target::Gfx1201);
        let buffer = device.alloc(MemoryKind::HostCoherent, "b", 200, 8).unwrap();
        buffer.write(0, &[0; 200]).unwrap();
        let mut model = vec![0u8; 200];
        for change in changes {
            let (at, bytes, done) = match change {
                Change::Write(at, bytes) => {
                    let done = buffer.write(at, &bytes);
                    (at, bytes, done)
                }
                Change::Copy(at, bytes) => {
                    let done = device.stream().copy_to_device(&buffer, at, &bytes);
                    (at, bytes, done)
                }
                Change::Set(at, byte, n) => {
                    let done = device.stream().memset(&buffer, at, byte, n);
                    (at, vec![byte; n as usize], done)
                }
                Change::Store(at, value) => {
                    let done = buffer.store_u32_release(at, value);
                    let aligned = at % 4 == 0 || at + 4 > 200;
                    prop_assert!(aligned || done.is_err());
                    if !aligned {
                        continue;
                    }
                    (at, value.to_le_bytes().to_vec(), done)
                }
            };
            let end = at as usize + bytes.len();
            prop_assert_eq!(done.is_ok(), end <= 200, "{:?}", done);
            if end <= 200 {
                model[at as usize..end].copy_from_slice(&bytes);
            }
        }
        let (mut host, mut copied) = (vec![0; 200], vec![0; 200]);
        buffer.read(0, &mut host).unwrap();
        device.stream().copy_from_device(&buffer, 0, &mut copied).unwrap();
        prop_assert_eq!(&host, &model);
        prop_assert_eq!(&copied, &model);
    }
}
