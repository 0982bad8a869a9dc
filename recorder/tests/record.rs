//! Recording a real plan on the software GPU: clean runs, and faults injected where launches enter
//! the stream, each of which reconcile must name.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

use refrain_device::{Buffer, Device, DeviceError, Function, MemoryKind, Stream};
use refrain_kernels::Target;
use refrain_planner::ModelSource;
use refrain_planner::machine::Machine;
use refrain_planner::memory::Memory;
use refrain_planner::plan::{Arg, BufferKind, Plan, StepBody};
use refrain_planner::{CheckedPlan, CompileOptions, compile};
use refrain_recorder::record::{default_positions, record_with};
use refrain_recorder::{
    EagerExecutor, EmbeddedObjects, Expectation, FileSource, Instance, InstanceError, LaunchSink,
    PacketTap, Recorder, Recording, SourceError, Tape, TappedPacket, reconcile, record_positions,
};
use refrain_softgpu::{SoftConfig, SoftGpu};
use std::path::Path;
use std::sync::Arc;

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/models/nano-qwen3.bf16.gguf"
);

struct Tap(Arc<SoftGpu>);

impl PacketTap for Tap {
    fn take(&mut self) -> Vec<TappedPacket> {
        let packets = self.0.take_packet_log().packets.into_iter();
        let launches = packets.flat_map(|packet| {
            let header = u16::from_le_bytes([packet.bytes[0], packet.bytes[1]]);
            let launches = packet.dispatches.into_iter();
            launches.map(move |launch| TappedPacket {
                symbol: launch.symbol.to_string(),
                object: launch.object,
                grid: launch.groups,
                block: launch.group_size,
                lds: launch.lds_bytes,
                header,
                kernarg: launch.kernarg,
            })
        });
        launches.collect()
    }
}

fn gpu() -> Arc<SoftGpu> {
    SoftGpu::new(SoftConfig {
        keep_packet_log: true,
        threads: 1,
        ..SoftConfig::default()
    })
    .unwrap()
}

fn open(gpu: &Arc<SoftGpu>) -> Arc<Device> {
    Device::open(refrain_softgpu::runtime(gpu.clone()), 0).unwrap()
}

fn plan() -> Arc<CheckedPlan> {
    let file = ModelSource::open(MODEL).unwrap();
    let machine = Machine::load(Target::Gfx1201.name()).unwrap();
    let options = CompileOptions {
        context: Some(64),
        ..CompileOptions::default()
    };
    Arc::new(compile(&file, &machine, &options).unwrap())
}

fn instance(device: &Arc<Device>, plan: &Arc<CheckedPlan>) -> (Instance, EagerExecutor) {
    let source = FileSource::open(Path::new(MODEL)).unwrap();
    let instance = Instance::new(device, plan, &source).unwrap();
    let eager = EagerExecutor::new(&instance, &EmbeddedObjects).unwrap();
    (instance, eager)
}

/// What happens to the launches of a token on their way into the stream.
#[derive(Clone, Copy)]
enum Fault<'a> {
    None,
    /// Launch `at` twice.
    Extra {
        at: usize,
    },
    /// Launches `at` and `at + 1` change places.
    Swap {
        at: usize,
    },
    /// A byte of launch `at` is XORed.
    Byte {
        at: usize,
        offset: usize,
        mask: u8,
    },
    /// The pointer at `offset` of launch `at` is replaced.
    Pointer {
        at: usize,
        offset: usize,
        address: u64,
    },
    /// Scratch is filled before launch `at`.
    Memset {
        at: usize,
        instance: &'a Instance,
    },
    /// The control block is read before launch `at`.
    Copy {
        at: usize,
        instance: &'a Instance,
    },
    /// Launch `at` does not happen.
    Lost {
        at: usize,
    },
}

/// A launch that waits for its turn: function, grid, block, dynamic LDS, kernargs.
type Held = (Function, [u32; 3], [u32; 3], u32, Vec<u8>);

struct FaultySink<'a> {
    stream: &'a Stream,
    fault: Fault<'a>,
    launch: usize,
    held: Option<Held>,
}

impl LaunchSink for FaultySink<'_> {
    fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        let index = self.launch;
        self.launch += 1;
        let mut bytes = kernarg.to_vec();
        let mut times = 1;
        match self.fault {
            Fault::Extra { at } if at == index => times = 2,
            Fault::Lost { at } if at == index => times = 0,
            Fault::Swap { at } if at == index => {
                self.held = Some((function.clone(), grid, block, lds, bytes));
                return Ok(());
            }
            Fault::Byte { at, offset, mask } if at == index => bytes[offset] ^= mask,
            Fault::Pointer {
                at,
                offset,
                address,
            } if at == index => {
                bytes[offset..offset + 8].copy_from_slice(&address.to_le_bytes());
            }
            Fault::Memset { at, instance } if at == index => {
                instance.fill(BufferKind::Scratch, 0).unwrap();
            }
            Fault::Copy { at, instance } if at == index => {
                instance.words().unwrap();
            }
            _ => {}
        }
        for _ in 0..times {
            self.stream.launch(function, grid, block, lds, &bytes)?;
        }
        if let Some((function, grid, block, lds, bytes)) = self.held.take() {
            self.stream.launch(&function, grid, block, lds, &bytes)?;
        }
        Ok(())
    }
}

/// Records all positions in two executors; `fault` says what happens to the tokens of an executor
/// at a position.
fn recording<'f>(
    plan: &Arc<CheckedPlan>,
    fault: &dyn Fn(u32, u32, &Arc<Device>) -> Fault<'f>,
    memset_or_copy: Option<fn(&Instance) -> Fault<'_>>,
) -> Recording {
    let gpu = gpu();
    let device = open(&gpu);
    let mut tapes: Vec<Tape> = Vec::new();
    for number in 0..2 {
        let (mut instance, eager) = instance(&device, plan);
        for position in default_positions(plan.options.context) {
            let mut tap = Tap(gpu.clone());
            let recorded = record_with(
                &mut instance,
                number,
                &[position],
                Some(&mut tap),
                &mut |instance| {
                    let fault = match memset_or_copy {
                        Some(make) => make(instance),
                        None => fault(number, position, &device),
                    };
                    let stream = device.stream();
                    let mut sink = FaultySink {
                        stream,
                        fault,
                        launch: 0,
                        held: None,
                    };
                    eager.submit_to(instance, &mut sink)?;
                    eager.wait()
                },
            );
            tapes.extend(recorded.unwrap());
        }
    }
    Recording {
        sequence: plan.identity().sequence.0,
        tapes,
    }
}

fn error_of(plan: &CheckedPlan, recording: &Recording) -> String {
    reconcile(&Expectation::of(plan).unwrap(), recording)
        .unwrap_err()
        .to_string()
}

#[track_caller]
fn names(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "`{word}` not in `{error}`");
    }
}

#[test]
fn a_clean_recording_reconciles_with_ring_and_stays_valid_in_a_file() {
    let plan = plan();
    let recording = recording(&plan, &|_, _, _| Fault::None, None);
    let expectation = Expectation::of(&plan).unwrap();
    let agreement = reconcile(&expectation, &recording).unwrap();
    assert_eq!(
        agreement.positions(),
        default_positions(plan.options.context)
    );
    assert_eq!((agreement.executors(), agreement.ring_tapes()), (2, 6));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nano.tape");
    refrain_recorder::file::store(&path, &recording).unwrap();
    let loaded = refrain_recorder::file::load(&path).unwrap();
    assert_eq!(loaded, recording);
    assert_eq!(reconcile(&expectation, &loaded).unwrap(), agreement);
}

#[test]
fn an_extra_launch_is_named() {
    let plan = plan();
    let recording = recording(&plan, &|_, _, _| Fault::Extra { at: 3 }, None);
    let [launch] = plan.steps[3].body.launches() else {
        panic!("a launch")
    };
    let symbol = plan.kernels[launch.kernel as usize].symbol.clone();
    let before = format!("step 4 ({})", plan.steps[4].name);
    names(
        &error_of(&plan, &recording),
        &["launch 4", &symbol, "belongs to no step", &before],
    );
}

#[test]
fn a_lost_launch_is_named() {
    let plan = plan();
    let recording = recording(&plan, &|_, _, _| Fault::Lost { at: 5 }, None);
    let step = format!("step 5 ({})", plan.steps[5].name);
    names(&error_of(&plan, &recording), &[&step, "was not launched"]);
}

#[test]
fn a_swapped_pair_is_named() {
    let plan = plan();
    let recording = recording(&plan, &|_, _, _| Fault::Swap { at: 2 }, None);
    let first = format!("step 2 ({})", plan.steps[2].name);
    let second = format!("step 3 ({})", plan.steps[3].name);
    names(&error_of(&plan, &recording), &[&first, &second, "swapped"]);
}

#[test]
fn a_memset_is_named() {
    let plan = plan();
    let recording = recording(
        &plan,
        &|_, _, _| Fault::None,
        Some(|instance| Fault::Memset { at: 4, instance }),
    );
    let before = format!("step 4 ({})", plan.steps[4].name);
    names(
        &error_of(&plan, &recording),
        &["memset", "scratch + 0x0", &before],
    );
}

#[test]
fn a_copy_is_named() {
    let plan = plan();
    let recording = recording(
        &plan,
        &|_, _, _| Fault::None,
        Some(|instance| Fault::Copy { at: 1, instance }),
    );
    names(
        &error_of(&plan, &recording),
        &["copy (device to host)", "control + 0x0", "step 1"],
    );
}

/// A step with an immediate argument whose lowest byte may change without harm: its step, the
/// argument's name and offset.
fn harmless_immediate(plan: &CheckedPlan) -> (usize, &'static str, usize) {
    let steps = 0..plan.steps.len() as u32;
    let found = steps.flat_map(|step| {
        let slots = plan.kernarg_layout(step).unwrap();
        slots
            .into_iter()
            .map(move |slot| (step as usize, slot.name, slot.offset as usize))
    });
    found
        .into_iter()
        .find(|(_, name, _)| *name == "eps")
        .unwrap()
}

#[test]
fn a_changed_kernarg_byte_is_named() {
    let plan = plan();
    let (at, name, offset) = harmless_immediate(&plan);
    let recording = recording(
        &plan,
        &|_, _, _| Fault::Byte {
            at,
            offset,
            mask: 1,
        },
        None,
    );
    let step = format!("step {at} ({})", plan.steps[at].name);
    let byte = format!("kernarg byte {offset} (argument {name})");
    names(&error_of(&plan, &recording), &[&step, &byte]);
}

#[test]
fn a_kernarg_that_follows_the_position_is_named() {
    let plan = plan();
    let (at, name, offset) = harmless_immediate(&plan);
    let fault = |_, position, _: &Arc<Device>| Fault::Byte {
        at,
        offset,
        mask: u8::from(position != 0),
    };
    let recording = recording(&plan, &fault, None);
    let step = format!("step {at} ({})", plan.steps[at].name);
    names(
        &error_of(&plan, &recording),
        &[&step, name, "at position 0", "at position 32"],
    );
}

#[test]
fn a_kernarg_that_differs_between_executors_is_named() {
    let plan = plan();
    let (at, name, offset) = harmless_immediate(&plan);
    let fault = |number: u32, _, _: &Arc<Device>| Fault::Byte {
        at,
        offset,
        mask: number as u8,
    };
    let recording = recording(&plan, &fault, None);
    names(
        &error_of(&plan, &recording),
        &[name, "executor 1 has", "executor 0 has"],
    );
}

#[test]
fn a_pointer_outside_every_plan_buffer_is_named() {
    let plan = plan();
    // A weight argument of the first normalisation is pointed at a foreign buffer of zeros.
    let (at, slot) = (0..plan.steps.len())
        .find_map(|step| {
            let slots = plan.kernarg_layout(step as u32).unwrap();
            let weight = slots.into_iter().find(|slot| match slot.arg {
                Arg::Region { buffer, .. } => {
                    slot.name == "w" && plan.buffers[buffer as usize].kind == BufferKind::Weights
                }
                _ => false,
            });
            weight.map(|slot| (step, slot))
        })
        .unwrap();
    let foreign: std::sync::Mutex<Vec<Buffer>> = std::sync::Mutex::default();
    let fault = |_, _, device: &Arc<Device>| {
        let buffer = device
            .alloc(MemoryKind::Device, "foreign", 1 << 20, 256)
            .unwrap();
        device.stream().memset(&buffer, 0, 0, 1 << 20).unwrap();
        let address = buffer.va();
        foreign.lock().unwrap().push(buffer);
        Fault::Pointer {
            at,
            offset: slot.offset as usize,
            address,
        }
    };
    // Making the buffer is a memset before the token's first launch, which would be named first.
    let mut recording = recording(&plan, &fault, None);
    for tape in &mut recording.tapes {
        tape.entries.remove(0);
    }
    let step = format!("step {at} ({})", plan.steps[at].name);
    names(
        &error_of(&plan, &recording),
        &[&step, "argument w", "inside no plan buffer"],
    );
}

#[test]
fn recorders_and_executors_may_move_between_threads() {
    fn send<T: Send>() {}
    send::<Recorder>();
    send::<Instance>();
    send::<EagerExecutor>();
}

#[test]
fn a_recorder_dropped_half_way_leaves_nothing() {
    let plan = plan();
    let device = open(&gpu());
    let (mut instance, eager) = instance(&device, &plan);
    instance.reset_at(0).unwrap();
    let recorder = Recorder::attach(&instance);
    let stream = device.stream();
    eager
        .submit_to(
            &instance,
            &mut FaultySink {
                stream,
                fault: Fault::Lost { at: 1 },
                launch: 0,
                held: None,
            },
        )
        .unwrap();
    drop(recorder);
    eager.wait().unwrap();
    let tapes = record_positions(&mut instance, &eager, 0, &[0], None).unwrap();
    assert_eq!(tapes[0].entries.len(), plan.steps.len());
    // Nobody observes any more: a new recorder sees only what comes after it.
    eager.submit(&instance).unwrap();
    eager.wait().unwrap();
    let mut recorder = Recorder::attach(&instance);
    assert!(recorder.take().is_empty());
}

#[test]
fn sixteen_threads_record_at_once_without_seeing_each_other() {
    let plan = plan();
    let gpu = gpu();
    let expectation = Expectation::of(&plan).unwrap();
    let tapes: Vec<Vec<Tape>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|number| {
                let (plan, gpu) = (&plan, &gpu);
                scope.spawn(move || {
                    let device = open(gpu);
                    let (mut instance, eager) = instance(&device, plan);
                    let positions = default_positions(plan.options.context);
                    record_positions(&mut instance, &eager, number, &positions, None).unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let tapes = tapes.into_iter().flatten().collect();
    let recording = Recording {
        sequence: plan.identity().sequence.0,
        tapes,
    };
    let agreement = reconcile(&expectation, &recording).unwrap();
    assert_eq!(agreement.executors(), 16);
}

/// A log that shows one more dispatch only at its second look after a token, and counts looks.
struct Late {
    tap: Tap,
    looks: usize,
}

impl PacketTap for Late {
    fn take(&mut self) -> Vec<TappedPacket> {
        self.looks += 1;
        let mut packets = self.tap.take();
        // Looks 0 (before), 1 and 2 (after) belong to the first token.
        if self.looks == 3 {
            packets.push(TappedPacket {
                symbol: "late".into(),
                object: [0; 32],
                grid: [1; 3],
                block: [32, 1, 1],
                lds: 0,
                header: 0,
                kernarg: Vec::new(),
            });
        }
        packets
    }
}

#[test]
fn a_dispatch_that_is_logged_late_is_judged_with_its_token() {
    let plan = plan();
    let gpu = gpu();
    let device = open(&gpu);
    let (mut instance, eager) = instance(&device, &plan);
    let mut tap = Late {
        tap: Tap(gpu),
        looks: 0,
    };
    let positions = default_positions(plan.options.context);
    let tapes = record_positions(&mut instance, &eager, 0, &positions, Some(&mut tap)).unwrap();
    let recording = Recording {
        sequence: plan.identity().sequence.0,
        tapes,
    };
    let ordinal = format!("packet {} in the ring", plan.steps.len());
    names(
        &error_of(&plan, &recording),
        &["position 0", &ordinal, "late was dispatched"],
    );
}

#[test]
fn the_packets_of_a_token_carry_lds_and_order() {
    let plan = plan();
    let recording = recording(&plan, &|_, _, _| Fault::None, None);
    let lds: Vec<u32> = plan.kernels.iter().map(|kernel| kernel.lds_bytes).collect();
    assert!(lds.iter().any(|bytes| *bytes > 0), "{lds:?}");
    for tape in &recording.tapes {
        let ring = tape.ring.as_ref().unwrap();
        for (step, packet) in plan.steps.iter().zip(ring) {
            let StepBody::Launch(launch) = &step.body else {
                panic!("a launch")
            };
            assert_eq!(packet.lds, lds[launch.kernel as usize], "{}", step.name);
            assert_eq!(packet.header & 0x1ff, 0x102, "{}", step.name);
        }
    }
}

#[test]
fn changed_metadata_of_the_same_length_is_refused() {
    let plan = plan();
    let device = open(&gpu());
    let good = std::fs::read(MODEL).unwrap();
    Instance::new(&device, &plan, &good).unwrap();
    let header = plan.model.files[0].header_bytes as usize;
    let name = b"tokenizer.ggml.";
    let at = good.windows(name.len()).position(|part| part == name);
    let at = at.unwrap();
    assert!(at < header);
    // A letter of a key, the first and the last byte.
    for at in [at, 0, header - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let error = Instance::new(&device, &plan, &bytes).unwrap_err();
        assert!(
            matches!(&error, InstanceError::Source(SourceError::Header { bytes, .. }) if *bytes == header as u64),
            "byte {at}: {error}"
        );
        names(&error.to_string(), &["make the plan again"]);
    }
}

#[test]
fn a_plan_without_weights_is_refused_before_anything_is_allocated() {
    let gpu = gpu();
    let device = open(&gpu);
    let mut tables: Plan = (**plan()).clone();
    for tensor in &mut tables.model.tensors {
        tensor.digest = None;
    }
    let without = Arc::new(CheckedPlan::check(tables).unwrap());
    let before = gpu.memory().allocations().len();
    let source = FileSource::open(Path::new(MODEL)).unwrap();
    let error = Instance::new(&device, &without, &source).unwrap_err();
    assert!(
        matches!(&error, InstanceError::Source(SourceError::WeightsAbsent { tensors, .. })
            if *tensors == without.model.tensors.len()),
        "{error}"
    );
    names(&error.to_string(), &["unfilled", "make the plan again"]);
    assert_eq!(gpu.memory().allocations().len(), before);
}

/// The plan with a scratch buffer larger than any card.
fn oversized(plan: &Arc<CheckedPlan>) -> Arc<CheckedPlan> {
    let mut tables: Plan = (***plan).clone();
    let mut buffers = tables.buffers.iter_mut();
    let scratch = buffers.find(|buffer| buffer.kind == BufferKind::Scratch);
    scratch.unwrap().bytes = 1 << 38;
    tables.memory = Memory::of(
        tables.kernels[0].target,
        &tables.buffers,
        &tables.kernels,
        &tables.steps,
        &tables.schedule,
    );
    Arc::new(CheckedPlan::check(tables).unwrap())
}

#[test]
fn a_plan_larger_than_the_device_is_refused_before_anything_is_allocated() {
    let gpu = gpu();
    let device = open(&gpu);
    let plan = oversized(&plan());
    let before = gpu.memory().allocations().len();
    let source = FileSource::open(Path::new(MODEL)).unwrap();
    let error = Instance::new(&device, &plan, &source).unwrap_err();
    assert!(
        matches!(&error, InstanceError::Memory { needed, available, .. }
            if *needed >= 1 << 38 && *available == device.info().vram_bytes),
        "{error}"
    );
    assert_eq!(gpu.memory().allocations().len(), before);
}

/// Rows before a recorded position count as decoded, so they must hold the same in every executor.
#[test]
fn starting_in_the_middle_zeroes_every_kv_row() {
    let plan = plan();
    let device = open(&gpu());
    let (mut instance, _) = instance(&device, &plan);
    instance.fill(BufferKind::Kv, 0x5A).unwrap();
    instance.reset_at(9).unwrap();
    let states = instance.snapshot().unwrap();
    let rows = plan.buffers.iter().zip(&states);
    let kv: Vec<_> = rows
        .filter(|(planned, _)| planned.kind == BufferKind::Kv)
        .collect();
    assert!(!kv.is_empty());
    for (planned, state) in kv {
        assert!(
            state.bytes.iter().all(|byte| *byte == 0),
            "{}",
            planned.name
        );
    }
}
