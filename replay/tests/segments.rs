//! Plans with steps of the host: every execution and every retention gives the same bytes, every step
//! of the host runs once a token, what cannot be retained is refused, and faults name their step.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{MODEL, PROMPT, TRAINED, device, placed};
use refrain_kernels::Target;
use refrain_planner::CheckedPlan;
use refrain_planner::memory::by_layer;
use refrain_planner::placement::ExecChoice::{self, Cpu, Passback, Pcie};
use refrain_planner::plan::BufferKind;
use refrain_recorder::{
    BufferState, CpuError, EagerError, EmbeddedObjects, ExactEngine, FileSource, HostEngine,
    HostError, Product, first_difference,
};
use refrain_replay::strict::{StrictConfig, declarations};
use refrain_replay::{
    Code, DeviceSpec, OpenedDevice, Retain, Route, SegmentError, Session, SessionError,
    SessionOptions, SoftOptions, Transport,
};
use refrain_softgpu::gpu::faults::FaultScript;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Layers of both models.
const LAYERS: [(&str, u32); 2] = [(MODEL, 4), (TRAINED, 6)];
/// A model with linear attention.
const LINEAR: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../golden/models/austen-qwen35-6m.q8_0.gguf"
);
const TOKENS: u32 = 5;

fn options(retain: Retain, transport: Transport) -> SessionOptions {
    SessionOptions {
        retain,
        transport,
        ..SessionOptions::default()
    }
}

fn open(
    model: &str,
    plan: &Arc<CheckedPlan>,
    options: SessionOptions,
) -> Result<Session, SessionError> {
    open_with(model, plan, options, Arc::new(ExactEngine))
}

fn open_with(
    model: &str,
    plan: &Arc<CheckedPlan>,
    options: SessionOptions,
    engine: Arc<dyn HostEngine>,
) -> Result<Session, SessionError> {
    let source = FileSource::open(Path::new(model)).unwrap();
    let opened = device(plan.kernels[0].target);
    Session::with_engine(opened, plan, &source, &EmbeddedObjects, options, engine)
}

/// Buffers that outlive a token and are in every plan of a model.
fn kept(session: &mut Session) -> Vec<BufferState> {
    let plan = session.instance().plan().clone();
    let states = session.snapshot().unwrap();
    let kinds = plan.buffers.iter().map(|buffer| buffer.kind);
    let keeps = |kind| {
        use BufferKind::{Control, Kv, Prompt, State, TokenRing};
        matches!(kind, Kv | State | Control | Prompt | TokenRing)
    };
    let rows = states.into_iter().zip(kinds);
    rows.filter(|(_, kind)| keeps(*kind))
        .map(|row| row.0)
        .collect()
}

/// Tokens of a text, and what it leaves.
fn text(session: &mut Session) -> (Vec<u32>, Vec<BufferState>) {
    for kind in [BufferKind::Kv, BufferKind::State, BufferKind::Scratch] {
        session.instance().fill(kind, 0).unwrap();
    }
    let generation = session.generate(&PROMPT, TOKENS, &mut |_| {}).unwrap();
    (generation.tokens, kept(session))
}

fn same(found: &(Vec<u32>, Vec<BufferState>), expected: &(Vec<u32>, Vec<BufferState>), what: &str) {
    assert_eq!(found.0, expected.0, "{what}");
    let difference = first_difference(&expected.1, &found.1);
    assert!(difference.is_none(), "{what}: {}", difference.unwrap());
}

#[test]
fn every_execution_leaves_the_bytes_of_the_resident_plan() {
    let (model, layers) = LAYERS[1];
    let resident = placed(model, Target::Gfx1201, layers, Pcie);
    let expected =
        text(&mut open(model, &resident, options(Retain::Whole, Transport::Pm4)).unwrap());
    let rows: [(u32, ExecChoice, Retain, Transport); 6] = [
        (layers - 2, Pcie, Retain::Segments, Transport::Pm4),
        (layers - 2, Cpu, Retain::None, Transport::Pm4),
        (layers - 2, Cpu, Retain::Segments, Transport::Aql),
        (
            layers - 1,
            Passback(Some(0.25)),
            Retain::Segments,
            Transport::Pm4,
        ),
        (
            layers - 1,
            Passback(Some(0.5)),
            Retain::Auto,
            Transport::Aql,
        ),
        (0, Passback(Some(0.5)), Retain::Segments, Transport::Pm4),
    ];
    for (on_gpu, exec, retain, transport) in rows {
        let plan = placed(model, Target::Gfx1201, on_gpu, exec);
        let mut session = open(model, &plan, options(retain, transport)).unwrap();
        let what = format!("{on_gpu} {exec} {retain:?} {transport}");
        same(&text(&mut session), &expected, &what);
        let wanted = if retain == Retain::None {
            Route::Eager
        } else {
            Route::Retained
        };
        assert_eq!(session.route(), wanted, "{what}");
    }
}

/// All spill counts and shares, three models, both generations; the short form takes a few. Nothing is
/// spilled on gfx1151, whose memory is unified.
#[test]
fn tokens_do_not_depend_on_execution_share_or_retention() {
    let long = std::env::var_os("REFRAIN_LONG").is_some();
    let shares = [0.0, 0.25, 0.5, 1.0];
    for (model, layers) in LAYERS.into_iter().chain(long.then_some((LINEAR, 8))) {
        let targets = if long {
            &[Target::Gfx1100, Target::Gfx1201][..]
        } else {
            &[Target::Gfx1100][..]
        };
        for &target in targets {
            let resident = placed(model, target, layers, Pcie);
            let whole = options(Retain::Whole, Transport::Aql);
            let expected = text(&mut open(model, &resident, whole).unwrap());
            let counts: Vec<u32> = if long {
                (0..=layers).collect()
            } else {
                vec![layers / 2]
            };
            for on_gpu in counts {
                let mut execs = vec![Pcie, Cpu];
                execs.extend(shares.map(|share| Passback(Some(share))));
                for exec in execs {
                    let plan = placed(model, target, on_gpu, exec);
                    let transports = if long {
                        &Transport::ALL[..]
                    } else {
                        &[Transport::Pm4][..]
                    };
                    for &transport in transports {
                        let retain = options(Retain::Segments, transport);
                        let mut session = open(model, &plan, retain).unwrap();
                        let what = format!("{model} {target} {on_gpu} {exec} {transport}");
                        same(&text(&mut session), &expected, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn eager_and_segments_are_verified_byte_for_byte() {
    let (model, layers) = LAYERS[1];
    for exec in [Cpu, Passback(Some(0.5))] {
        let plan = placed(model, Target::Gfx1201, layers - 1, exec);
        for transport in Transport::ALL {
            let mut session = open(model, &plan, options(Retain::Segments, transport)).unwrap();
            let verified = session.verify(&PROMPT, TOKENS, &mut |_| {}).unwrap();
            assert!(verified.verified(), "{exec} {transport}: {verified:?}");
        }
    }
}

#[test]
fn strict_mode_has_nothing_to_say_about_segments() {
    let (model, layers) = LAYERS[0];
    for exec in [Cpu, Passback(Some(0.5))] {
        for transport in Transport::ALL {
            let plan = placed(model, Target::Gfx1201, layers - 1, exec);
            let soft = SoftOptions {
                strict: Some(StrictConfig::default()),
                ..SoftOptions::default()
            };
            let opened = OpenedDevice::open(DeviceSpec::Soft(Target::Gfx1201), soft).unwrap();
            let gpu = opened.soft.clone().unwrap();
            let source = FileSource::open(Path::new(model)).unwrap();
            let options = options(Retain::Segments, transport);
            let session = Session::new(opened, &plan, &source, &EmbeddedObjects, options);
            let mut session = session.unwrap();
            gpu.declare(declarations(session.instance()));
            session.start(&PROMPT, 2).unwrap();
            session.advance(Route::Retained, 5, &mut |_| {}).unwrap();
            let found = gpu.take_reports();
            let first = found.reports.first().map(ToString::to_string);
            assert_eq!((first, found.dropped), (None, 0), "{exec} {transport}");
        }
    }
}

/// Public bug: a host function in a graph that runs on the first replay only.
#[test]
fn issue_nvidia_cuda_python_790_steps_of_the_host_run_in_every_token() {
    let (model, layers) = LAYERS[0];
    let plan = placed(model, Target::Gfx1201, layers - 1, Cpu);
    let (counted, engine) = Counting::engine();
    let retain = options(Retain::Segments, Transport::Pm4);
    let mut session = open_with(model, &plan, retain, engine).unwrap();
    let recorded = counted.load(Ordering::Relaxed);
    let tokens: u64 = if std::env::var_os("REFRAIN_LONG").is_some() {
        10_000
    } else {
        120
    };
    let per_text = 60;
    let mut ran = 0;
    while ran < tokens {
        let steps = per_text.min(tokens - ran) as u32;
        session.start(&PROMPT, u32::MAX).unwrap();
        session.advance_past_end(Route::Retained, steps).unwrap();
        ran += u64::from(steps);
    }
    let counters = session.counters();
    let barriers = plan.barriers().count() as u64;
    assert_eq!(counters.host.cpu_steps, barriers * tokens);
    assert_eq!(counters.replayed_tokens + counters.past_end_tokens, tokens);
    let products: u64 = plan
        .barriers()
        .map(|(_, step)| step.body.host().unwrap().parts.len() as u64)
        .sum();
    assert_eq!(
        counted.load(Ordering::Relaxed) - recorded,
        products * tokens
    );
}

#[test]
fn figures_of_a_run_are_those_of_the_plan_times_tokens() {
    let (model, layers) = LAYERS[1];
    let plan = placed(model, Target::Gfx1201, layers - 2, Passback(Some(0.25)));
    let retain = options(Retain::Segments, Transport::Aql);
    let mut session = open(model, &plan, retain).unwrap();
    assert_eq!(
        session.counters().host,
        Default::default(),
        "recording is no output"
    );
    session.generate(&PROMPT, TOKENS, &mut |_| {}).unwrap();
    let counters = session.counters();
    let tokens = u64::from(TOKENS) + PROMPT.len() as u64 - 1;
    let splits: Vec<_> = plan
        .barriers()
        .filter(|(_, s)| !s.body.launches().is_empty())
        .collect();
    let arms: usize = splits
        .iter()
        .map(|(_, step)| step.body.launches().len())
        .sum();
    let launches = plan.launches().count();
    assert_eq!(counters.launches_per_token, launches);
    assert_eq!(counters.barriers_per_token, 8);
    assert_eq!(counters.replayed_tokens, tokens);
    // Every launch outside of a split step is replayed.
    assert_eq!(
        counters.replayed_launches,
        (launches - arms) as u64 * tokens
    );
    assert_eq!(counters.replayed_launches, counters.all_launches);
    let host = counters.host;
    assert_eq!(host.split_launches, arms as u64 * tokens);
    assert_eq!(host.cpu_steps + host.split_steps, 8 * tokens);
    let parts = || {
        plan.barriers()
            .flat_map(|(_, step)| &step.body.host().unwrap().parts)
    };
    let rows: u64 = parts().map(|part| u64::from(part.rows())).sum();
    assert_eq!(host.host_rows, rows * tokens);
    let gpu: u64 = parts().map(|part| u64::from(part.first)).sum();
    assert_eq!(host.gpu_rows, gpu * tokens);
    assert!(host.gpu_bytes > 0 && host.host_bytes > host.gpu_bytes);
    let copied: u64 = plan
        .barriers()
        .map(|(_, step)| step.body.host().unwrap().transfer_bytes())
        .sum();
    assert_eq!(host.copied, copied * tokens);
    assert!(!host.copy_time.is_zero() && !host.multiply_time.is_zero());
    assert!(counters.eager_host_us.is_none() && counters.retained_host_us.unwrap() > 0.0);
}

#[test]
fn what_cannot_be_retained_compared_or_divided_is_refused_by_code() {
    let (model, layers) = LAYERS[1];
    let plan = placed(model, Target::Gfx1201, layers - 1, Cpu);
    let refused = |found: Result<Session, SessionError>| {
        let error = found.map(|_| ()).unwrap_err();
        (error.refusal().unwrap().code, error.to_string())
    };
    let (code, text) = refused(open(model, &plan, options(Retain::Whole, Transport::Aql)));
    assert_eq!(code, Code::HostSteps);
    assert!(
        text.contains("4 steps") && text.contains("blk.0.attn_q.host3"),
        "{text}"
    );
    let auto = placed(model, Target::Gfx1201, layers - 1, Passback(None));
    let retain = options(Retain::Segments, Transport::Aql);
    let mut session = open(model, &auto, retain).unwrap();
    let error = session.verify(&PROMPT, 1, &mut |_| {}).unwrap_err();
    assert_eq!(error.refusal().unwrap().code, Code::ShareNotPinned);
    let (nano, layers) = LAYERS[0];
    let small = placed(nano, Target::Gfx1201, layers - 1, Passback(Some(0.001)));
    let (code, _) = refused(open(nano, &small, options(Retain::Auto, Transport::Aql)));
    assert_eq!(code, Code::NothingDivided);
}

#[test]
fn what_is_allocated_is_what_the_plan_says() {
    let (model, layers) = LAYERS[1];
    for exec in [Cpu, Passback(Some(0.5))] {
        for target in [Target::Gfx1100, Target::Gfx1201] {
            let plan = placed(model, target, layers - 2, exec);
            let retain = options(Retain::Segments, Transport::Pm4);
            let session = open(model, &plan, retain).unwrap();
            let (device, pinned) = session.instance().allocated();
            let (kernarg, ib) = session.segments().unwrap().replayer.allocated();
            let memory = plan.memory;
            assert_eq!(
                (device, kernarg, ib),
                (memory.device, memory.kernarg, memory.ib),
                "{exec}"
            );
            assert_eq!(pinned + kernarg + ib, memory.pinned);
            let rows = by_layer(&plan);
            assert_eq!(rows.iter().map(|row| row.device).sum::<u64>(), device);
            assert_eq!(rows.iter().map(|row| row.pinned).sum::<u64>(), pinned);
            let spilling = rows
                .iter()
                .filter(|row| row.layer.is_some() && row.pinned > 0);
            assert_eq!(
                spilling.map(|row| row.layer.unwrap()).collect::<Vec<_>>(),
                [0, 1]
            );
        }
    }
}

/// Public bug: experts on the CPU inside a replayed graph, silently wrong. Here the hand-off is probed
/// first, and a device that fails the probe runs eagerly or not at all.
#[test]
fn issue_flashml_freetoken_350_a_failed_probe_goes_eager_and_is_counted() {
    let (model, layers) = LAYERS[0];
    let plan = placed(model, Target::Gfx1201, layers - 1, Cpu);
    let expected = text(&mut open(model, &plan, options(Retain::None, Transport::Aql)).unwrap());
    let attempt = |retain| {
        let source = FileSource::open(Path::new(model)).unwrap();
        let opened = device(Target::Gfx1201);
        let engine = Arc::new(Arming::after_recording(&opened, &plan));
        let mut options = options(retain, Transport::Aql);
        options.deadline = Duration::from_secs(2);
        Session::with_engine(opened, &plan, &source, &EmbeddedObjects, options, engine)
    };
    let error = attempt(Retain::Segments).map(|_| ()).unwrap_err();
    assert_eq!(error.refusal().unwrap().code, Code::Handshake, "{error}");
    let mut session = attempt(Retain::Auto).unwrap();
    assert_eq!(session.route(), Route::Eager);
    assert_eq!(session.counters().refusals.rows(), [(Code::Handshake, 1)]);
    same(&text(&mut session), &expected, "eager after a failed probe");
}

/// An engine that loses the completion of the packet behind the recording's last one: the probe's.
struct Arming {
    gpu: Arc<refrain_softgpu::SoftGpu>,
    left: AtomicU64,
    fault: String,
}

impl Arming {
    fn after_recording(opened: &OpenedDevice, plan: &CheckedPlan) -> Self {
        let hosts = || plan.barriers().map(|(_, step)| step.body.host().unwrap());
        let products: usize = hosts().map(|host| host.parts.len()).sum();
        let last = plan.barriers().last().unwrap().0 as usize;
        // Two executors at three positions; the last token's launches complete one by one.
        let left = AtomicU64::new(6 * products as u64);
        let fault = format!("stuck@completion:{}", plan.steps.len() - last);
        let gpu = opened.soft.clone().unwrap();
        Self { gpu, left, fault }
    }
}

impl HostEngine for Arming {
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CpuError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.gpu.arm_faults(&script(&self.fault));
        }
        ExactEngine.multiply(product, y)
    }
}

/// An engine that counts products.
struct Counting(Arc<AtomicU64>);

impl Counting {
    fn engine() -> (Arc<AtomicU64>, Arc<dyn HostEngine>) {
        let count = Arc::new(AtomicU64::new(0));
        (count.clone(), Arc::new(Self(count)))
    }
}

impl HostEngine for Counting {
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CpuError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        ExactEngine.multiply(product, y)
    }
}

/// How long a late engine takes; a healthy product takes a thousandth of it.
const LATE: Duration = Duration::from_secs(3);

/// What an engine does in its n-th product, once it is armed.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Panic,
    Sleep,
}

struct Troubled {
    /// Products until the trouble; 0 for never.
    until: AtomicU64,
    trouble: Trouble,
}

impl HostEngine for Troubled {
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CpuError> {
        let left = self.until.load(Ordering::SeqCst);
        if left > 0 {
            self.until.store(left - 1, Ordering::SeqCst);
        }
        if left == 1 {
            match self.trouble {
                Trouble::Panic => panic!("a worker's fault"),
                Trouble::Sleep => std::thread::sleep(LATE),
            }
        }
        ExactEngine.multiply(product, y)
    }
}

#[test]
fn a_worker_that_panics_or_is_late_is_an_error_of_its_step_and_the_next_text_is_right() {
    let (model, layers) = LAYERS[0];
    let plan = placed(model, Target::Gfx1201, layers - 1, Cpu);
    let expected = text(&mut open(model, &plan, options(Retain::None, Transport::Aql)).unwrap());
    for (trouble, word) in [
        (Trouble::Panic, "panicked"),
        (Trouble::Sleep, "did not answer"),
    ] {
        for retain in [Retain::None, Retain::Segments] {
            let until = AtomicU64::new(0);
            let engine = Arc::new(Troubled { until, trouble });
            let mut options = options(retain, Transport::Pm4);
            options.deadline = match trouble {
                Trouble::Panic => Duration::from_secs(60),
                Trouble::Sleep => LATE / 2,
            };
            let mut session = open_with(model, &plan, options, engine.clone()).unwrap();
            // The third product of the text is one of the first step of the host.
            engine.until.store(3, Ordering::SeqCst);
            let error = session.generate(&PROMPT, TOKENS, &mut |_| {}).unwrap_err();
            let text_of = error.to_string();
            assert!(
                text_of.contains(word) && text_of.contains("blk.0.attn_q.host3"),
                "{text_of}"
            );
            let source = match &error {
                SessionError::Segments(SegmentError::Host { source, .. })
                | SessionError::Eager(EagerError::Host(source)) => source,
                other => panic!("{other:?}"),
            };
            let host = matches!(**source, HostError::Worker { .. });
            assert!(host, "{error:?}");
            if retain == Retain::None {
                // Nothing was published: the same session starts over.
                std::thread::sleep(LATE);
                same(&text(&mut session), &expected, word);
            } else {
                let next = session.generate(&PROMPT, 1, &mut |_| {}).unwrap_err();
                assert!(next.to_string().contains("poisoned"), "{next}");
                same(
                    &text(&mut open_with(model, &plan, options, engine.clone()).unwrap()),
                    &expected,
                    word,
                );
            }
        }
    }
}

#[test]
fn a_lost_signal_and_a_lost_device_name_the_step_that_waits() {
    let (model, layers) = LAYERS[1];
    let plan = placed(model, Target::Gfx1201, layers - 1, Passback(Some(0.5)));
    let expected = text(&mut open(model, &plan, options(Retain::None, Transport::Aql)).unwrap());
    let launches_before = |name: &str| {
        let at = plan
            .steps
            .iter()
            .position(|step| step.name == name)
            .unwrap();
        let before = plan.steps[..at].iter();
        before.map(|step| step.body.launches().len()).sum::<usize>()
    };
    let split = "blk.0.ffn_gate.host2";
    let rows = [
        // The first run's completion is lost: the first step of the host waits for it.
        ("stuck@completion:1".to_owned(), "blk.0.attn_q.host3"),
        // The device goes while a split step's own launch is about to run.
        (format!("lost@launch:{}", launches_before(split) + 1), split),
    ];
    for (fault, step) in rows {
        let mut options = options(Retain::Segments, Transport::Aql);
        options.deadline = Duration::from_secs(2);
        let mut session = open(model, &plan, options).unwrap();
        let gpu = session.opened().soft.clone().unwrap();
        gpu.arm_faults(&script(&fault));
        let error = session.generate(&PROMPT, TOKENS, &mut |_| {}).unwrap_err();
        let typed = matches!(error, SessionError::Segments(_));
        assert!(
            typed && error.to_string().contains(step),
            "{fault}: {error}"
        );
        let again = session.generate(&PROMPT, 1, &mut |_| {}).unwrap_err();
        assert!(again.to_string().contains("poisoned"), "{again}");
        drop(session);
        same(
            &text(&mut open(model, &plan, options).unwrap()),
            &expected,
            &fault,
        );
    }
}

fn script(text: &str) -> FaultScript {
    text.parse().unwrap()
}
