//! Captured graphs on the software GPU: what a capture keeps, what a launch executes, what spoils a
//! capture, and a runtime without graphs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{control, kv_write_args};
use refrain_device::sys::hip::{
    HIP_ERROR_ILLEGAL_STATE, HIP_ERROR_STREAM_CAPTURE_INVALIDATED,
    HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED, HIP_STREAM_CAPTURE_THREAD_LOCAL, HIP_SUCCESS,
};
use refrain_device::{
    Buffer, Device, DeviceError, Function, Graph, HipCall, MemoryKind, Module, Observer,
};
use refrain_softgpu::isa::Target;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// Elements of a row that `kv_write_f32` copies.
const DIM: u32 = 96;
const ROW: u64 = DIM as u64 * 4;

/// Two rows in, one cache of four rows, and the control block whose position says which row.
struct Rig {
    device: Arc<Device>,
    buffers: [Buffer; 5],
    function: Function,
}

impl Rig {
    fn new(device: &Arc<Device>, target: Target) -> Self {
        let alloc = |name: &str, bytes| device.alloc(MemoryKind::Device, name, bytes, 64).unwrap();
        let buffers = [
            alloc("k", ROW),
            alloc("v", ROW),
            alloc("kcache", ROW * 4),
            alloc("vcache", ROW * 4),
            alloc("control", 44),
        ];
        let stream = device.stream();
        for (index, value) in [(0, 1), (1, 2), (2, 0), (3, 0)] {
            let len = buffers[index].len();
            stream.memset(&buffers[index], 0, value, len).unwrap();
        }
        let module = Module::load(device, common::kernels(target)).unwrap();
        let function = module.function("kv_write_f32").unwrap();
        let device = Arc::clone(device);
        Self {
            device,
            buffers,
            function,
        }
    }

    fn at(&self, position: u32) {
        let stream = self.device.stream();
        stream
            .copy_to_device(&self.buffers[4], 0, &control(position))
            .unwrap();
    }

    /// A graph that writes the row of the position `times` times.
    fn graph(&self, times: usize) -> Graph {
        let addresses = [0, 1, 2, 3, 4].map(|index: usize| self.buffers[index].va());
        let graph: Result<Graph, DeviceError> = Graph::capture(&self.device, |capture| {
            for _ in 0..times {
                // The argument bytes are gone when the launch returns.
                let args = kv_write_args(addresses, DIM);
                capture.launch(&self.function, [1; 3], [256, 1, 1], 0, &args)?;
            }
            Ok(())
        });
        graph.unwrap()
    }

    fn written_rows(&self) -> Vec<usize> {
        let mut bytes = vec![0; (ROW * 4) as usize];
        let stream = self.device.stream();
        stream
            .copy_from_device(&self.buffers[2], 0, &mut bytes)
            .unwrap();
        let rows = bytes.chunks(ROW as usize).enumerate();
        rows.filter(|(_, row)| row.iter().all(|byte| *byte == 1))
            .map(|(row, _)| row)
            .collect()
    }
}

#[test]
fn a_capture_executes_nothing_and_each_launch_everything() {
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let (gpu, device) = common::device(target);
        let rig = Rig::new(&device, target);
        rig.at(0);
        let before = gpu.counters().launches;
        let mut graph = rig.graph(3);
        assert_eq!(graph.launches(), 3);
        assert_eq!(gpu.counters().launches, before);
        assert_eq!(rig.written_rows(), [] as [usize; 0]);
        for (position, rows) in [(1, vec![1]), (3, vec![1, 3])] {
            rig.at(position);
            graph.launch().unwrap();
            graph.synchronize().unwrap();
            assert_eq!(
                rig.written_rows(),
                rows,
                "arguments are kept, words are read"
            );
        }
        assert_eq!(gpu.counters().launches, before + 6);
    }
}

#[test]
fn a_graph_longer_than_the_ring_and_many_launches_fit() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let rig = Rig::new(&device, Target::Gfx1201);
    rig.at(2);
    let mut graph = rig.graph(1300);
    let before = gpu.counters().launches;
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    graph.synchronize().unwrap();
    assert_eq!(gpu.counters().launches, before + 3 * 1300);
    assert_eq!(rig.written_rows(), [2]);
}

#[test]
fn a_graph_keeps_its_code_and_gives_its_memory_back() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let rig = Rig::new(&device, Target::Gfx1201);
    rig.at(0);
    let before = gpu.memory().allocations().len();
    let mut graph = rig.graph(2);
    assert!(gpu.memory().allocations().len() > before);
    graph.launch().unwrap();
    drop(graph);
    assert_eq!(gpu.memory().allocations().len(), before);
    let Rig {
        device, buffers, ..
    } = rig;
    let graph = {
        let module = Module::load(&device, common::kernels(Target::Gfx1201)).unwrap();
        let function = module.function("kv_write_f32").unwrap();
        let args = kv_write_args([0, 1, 2, 3, 4].map(|index: usize| buffers[index].va()), DIM);
        Graph::capture::<DeviceError>(&device, |capture| {
            capture.launch(&function, [1; 3], [256, 1, 1], 0, &args)
        })
    };
    let mut graph = graph.unwrap();
    graph.launch().unwrap();
    graph.synchronize().unwrap();
}

#[test]
fn an_error_while_capturing_leaves_nothing() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let rig = Rig::new(&device, Target::Gfx1201);
    let before = gpu.memory().allocations().len();
    let failed: Result<Graph, DeviceError> = Graph::capture(&device, |capture| {
        let args = kv_write_args(
            [0, 1, 2, 3, 4].map(|index: usize| rig.buffers[index].va()),
            DIM,
        );
        capture.launch(&rig.function, [1; 3], [256, 1, 1], 0, &args)?;
        capture.launch(&rig.function, [1; 3], [4096, 1, 1], 0, &args)
    });
    assert!(matches!(failed, Err(DeviceError::Call { code: 9, .. })));
    assert_eq!(gpu.memory().allocations().len(), before);
    assert_eq!(rig.graph(1).launches(), 1);
}

#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Observer for Calls {
    fn observe(&self, call: &HipCall<'_>) {
        let text = match call {
            HipCall::Launch { symbol, .. } => (*symbol).to_owned(),
            HipCall::Graph { launches } => format!("graph of {launches}"),
            other => format!("{other:?}"),
        };
        self.0.lock().unwrap().push(text);
    }
}

#[test]
fn observers_see_captured_launches_once_and_each_launch_of_the_graph() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let rig = Rig::new(&device, Target::Gfx1201);
    rig.at(0);
    let calls = Arc::new(Calls::default());
    let _guard = device.attach(calls.clone());
    let mut graph = rig.graph(2);
    graph.launch().unwrap();
    graph.launch().unwrap();
    graph.synchronize().unwrap();
    let expected = ["kv_write_f32", "kv_write_f32", "graph of 2", "graph of 2"];
    assert_eq!(*calls.0.lock().unwrap(), expected);
}

/// The rules of captures, at the tables: what begins, ends and spoils one.
#[test]
fn a_capture_is_spoilt_by_what_cannot_be_captured() {
    let (gpu, _device) = common::device(Target::Gfx1201);
    let hip = *refrain_softgpu::runtime(gpu).hip();
    let entry = |name| format!("{name} is filled by the software GPU");
    let begin = hip.hipStreamBeginCapture.expect(&entry("begin"));
    let end = hip.hipStreamEndCapture.expect(&entry("end"));
    let (mut stream, mut graph) = (null_mut(), null_mut());
    // SAFETY: handles come from the table itself, and each result has its own local.
    unsafe {
        assert_eq!(
            (hip.hipStreamCreateWithFlags)(&raw mut stream, 1),
            HIP_SUCCESS
        );
        let mode = HIP_STREAM_CAPTURE_THREAD_LOCAL;
        assert_eq!(end(stream, &raw mut graph), HIP_ERROR_ILLEGAL_STATE);
        assert_eq!(
            begin(null_mut(), mode),
            HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED
        );
        assert_eq!(begin(stream, mode), HIP_SUCCESS);
        assert_eq!(begin(stream, mode), HIP_ERROR_ILLEGAL_STATE);
        let unsupported = HIP_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        assert_eq!((hip.hipStreamSynchronize)(stream), unsupported);
        assert_eq!((hip.hipStreamQuery)(stream), unsupported);
        let invalid = HIP_ERROR_STREAM_CAPTURE_INVALIDATED;
        assert_eq!(end(stream, &raw mut graph), invalid);
        assert!(graph.is_null());
        assert_eq!((hip.hipStreamSynchronize)(stream), HIP_SUCCESS);
        assert_eq!((hip.hipStreamDestroy)(stream), HIP_SUCCESS);
    }
}

#[test]
fn a_runtime_without_graphs_is_said_by_the_missing_entry() {
    let gpu = common::gpu(Target::Gfx1201);
    let runtime = common::changed(&gpu, |hip, _, _| hip.hipStreamBeginCapture = None);
    let device = Device::open(runtime, 0).unwrap();
    let graph = Graph::capture::<DeviceError>(&device, |_| Ok(()));
    let error = graph.unwrap_err();
    assert!(matches!(
        error,
        DeviceError::EntryMissing {
            call: "hipStreamBeginCapture"
        }
    ));
}

/// sglang issue 29235: a watchdog polls the device from another thread during a capture. It works,
/// and the capture holds only what it was given.
#[test]
fn issue_sglang_29235_other_threads_work_during_a_capture() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let rig = Rig::new(&device, Target::Gfx1201);
    rig.at(1);
    let addresses = [0, 1, 2, 3, 4].map(|index: usize| rig.buffers[index].va());
    let args = kv_write_args(addresses, DIM);
    let launched = gpu.counters().launches;
    let graph = Graph::capture::<DeviceError>(&device, |capture| {
        capture.launch(&rig.function, [1; 3], [256, 1, 1], 0, &args)?;
        std::thread::scope(|scope| {
            let watchdog = scope.spawn(|| {
                let stream = device.stream();
                stream.launch(&rig.function, [1; 3], [256, 1, 1], 0, &args)?;
                stream.synchronize()
            });
            watchdog.join().unwrap()
        })?;
        capture.launch(&rig.function, [1; 3], [256, 1, 1], 0, &args)
    });
    assert_eq!(graph.unwrap().launches(), 2);
    assert_eq!(gpu.counters().launches, launched + 1);
}

/// pytorch issue 87794: a capture on the wrong device. The launch is refused by its name, and
/// nothing of the capture is left.
#[test]
fn issue_pytorch_87794_a_function_of_another_device_is_refused() {
    let (_first, device) = common::device(Target::Gfx1201);
    let (_second, other) = common::device(Target::Gfx1201);
    let rig = Rig::new(&other, Target::Gfx1201);
    let failed = Graph::capture::<DeviceError>(&device, |capture| {
        capture.launch(&rig.function, [1; 3], [256, 1, 1], 0, &[0; 44])
    });
    let error = failed.unwrap_err();
    assert!(matches!(&error, DeviceError::ForeignDevice { what } if what == "kv_write_f32"));
    assert_eq!(rig.graph(1).launches(), 1);
}
