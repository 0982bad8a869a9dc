//! Every fault that a software GPU injects, on every transport: the layers above answer with a typed
//! error, go on only where that is safe, give back all memory, and the next session works.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{PROMPT, plan, source};
use refrain_device::{Device, DeviceError};
use refrain_kernels::Target;
use refrain_planner::CheckedPlan;
use refrain_recorder::{EagerError, EmbeddedObjects, InstanceError, RecordError};
use refrain_replay::{
    Code, DeviceSpec, OpenedDevice, ReplayError, Retain, Session, SessionError, SessionOptions,
    StageError, Transport,
};
use refrain_softgpu::gpu::faults::FaultScript;
use refrain_softgpu::{SoftConfig, SoftGpu};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a token here; a healthy one takes a hundredth of it.
const DEADLINE: Duration = Duration::from_millis(600);
const TOKENS: u32 = 5;

/// How tokens reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Eager,
    Aql,
    Pm4,
}

const WAYS: [Way; 3] = [Way::Eager, Way::Aql, Way::Pm4];

fn gpu(target: Target) -> Arc<SoftGpu> {
    let target = match target {
        Target::Gfx1100 => refrain_softgpu::isa::Target::Gfx1100,
        Target::Gfx1151 => refrain_softgpu::isa::Target::Gfx1151,
        Target::Gfx1201 => refrain_softgpu::isa::Target::Gfx1201,
    };
    let config = SoftConfig {
        threads: 2,
        keep_packet_log: true,
        ..SoftConfig::new(target)
    };
    SoftGpu::new(config).unwrap()
}

/// A fresh opening of `gpu`.
fn open(gpu: &Arc<SoftGpu>, target: Target) -> Result<OpenedDevice, DeviceError> {
    let device = Device::open(refrain_softgpu::runtime(gpu.clone()), 0)?;
    Ok(OpenedDevice {
        device,
        soft: Some(gpu.clone()),
        spec: DeviceSpec::Soft(target),
        note: None,
    })
}

fn prepare(
    opened: &OpenedDevice,
    plan: &Arc<CheckedPlan>,
    way: Way,
    retain: Retain,
) -> Result<Session, SessionError> {
    let options = SessionOptions {
        retain: if way == Way::Eager {
            Retain::None
        } else {
            retain
        },
        transport: if way == Way::Pm4 {
            Transport::Pm4
        } else {
            Transport::Aql
        },
        in_flight: 3,
        deadline: DEADLINE,
        ..SessionOptions::default()
    };
    Session::new(opened.clone(), plan, &source(), &EmbeddedObjects, options)
}

fn generate(session: &mut Session) -> Result<Vec<u32>, SessionError> {
    let generation = session.generate(&PROMPT, TOKENS, &mut |_| {})?;
    Ok(generation.tokens)
}

fn device_class(error: &DeviceError) -> String {
    match error {
        DeviceError::Call { call, code, .. } => format!("{call} {code:#x}"),
        DeviceError::Queue { status, .. } => format!("queue {status:#x}"),
        DeviceError::DeadlineExceeded { .. } => "deadline".to_owned(),
        other => panic!("{other}"),
    }
}

fn instance_class(error: &InstanceError) -> String {
    match error {
        InstanceError::Device { source, .. } => format!("buffer {}", device_class(source)),
        other => panic!("{other}"),
    }
}

fn eager_class(error: &EagerError) -> String {
    match error {
        EagerError::Launch { source, .. } => format!("launch {}", device_class(source)),
        EagerError::Wait(source) => format!("wait {}", device_class(source)),
        EagerError::Load { source, .. } => format!("load {}", device_class(source)),
        EagerError::Instance(source) => instance_class(source),
        other => panic!("{other}"),
    }
}

/// What an error is, without the parts that change from run to run.
fn class(error: &SessionError) -> String {
    match error {
        SessionError::Replay(ReplayError::Deadline { .. }) => "replay deadline".to_owned(),
        SessionError::Replay(ReplayError::Device { source, .. }) => {
            format!("replay {}", device_class(source))
        }
        SessionError::Replay(ReplayError::Poisoned { .. }) => "poisoned".to_owned(),
        SessionError::Eager(error) => eager_class(error),
        SessionError::Instance(error) => instance_class(error),
        SessionError::Poisoned(poisoned) => {
            let what = match &*poisoned.error {
                StageError::Instance(error) => instance_class(error),
                StageError::Eager(error) => eager_class(error),
                StageError::Record(RecordError::Eager { source, .. }) => eager_class(source),
                StageError::Record(RecordError::Instance { source, .. }) => instance_class(source),
                StageError::Load { source, .. } => format!("load {}", device_class(source)),
                StageError::Allocation { what, source } => {
                    format!("{what} {}", device_class(source))
                }
                other => panic!("{other}"),
            };
            format!("{}: {what}", poisoned.stage)
        }
        other => panic!("{other}"),
    }
}

/// A fault while tokens run.
struct Case {
    script: &'static str,
    /// Expected classes: eager, AQL, PM4; several alternatives are separated by `|`, and an empty
    /// one says that nothing goes wrong because the event does not occur.
    expected: [&'static str; 3],
    /// Whether the device stays usable.
    device_lives: bool,
}

const LOST: &str = "wait hipStreamQuery 0x2cf|launch hipModuleLaunchKernel 0x2cf";

const RUNNING: &[Case] = &[
    Case {
        script: "lost@packet:2",
        expected: [LOST, "replay queue 0x1026", "replay queue 0x1026"],
        device_lives: false,
    },
    Case {
        script: "lost@launch:9",
        expected: [LOST, "replay queue 0x1026", "replay queue 0x1026"],
        device_lives: false,
    },
    Case {
        script: "lost@submit:2",
        expected: [LOST, "replay queue 0x1026", "replay queue 0x1026"],
        device_lives: false,
    },
    Case {
        script: "hang@launch:12",
        expected: ["wait deadline", "replay deadline", "replay deadline"],
        device_lives: true,
    },
    Case {
        script: "stuck@completion:2",
        expected: ["wait deadline", "replay deadline", "replay deadline"],
        device_lives: true,
    },
    Case {
        script: "reject@packet:3",
        expected: [LOST, "replay queue 0x1009", "replay queue 0x1009"],
        device_lives: true,
    },
    Case {
        // The last of the text: a later doorbell would make up for a lost one.
        script: "fail@submit:8",
        expected: [
            "launch hipModuleLaunchKernel 0x2",
            "replay deadline",
            "replay deadline",
        ],
        device_lives: true,
    },
];

/// Runs `act`, which must end soon: nothing may wait for what never comes.
fn soon<T>(what: &str, act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let value = act();
    let took = start.elapsed();
    assert!(took < Duration::from_secs(8), "{what} took {took:?}");
    value
}

fn healthy(plan: &Arc<CheckedPlan>) -> Vec<u32> {
    let target = plan.kernels[0].target;
    let opened = open(&gpu(target), target).unwrap();
    generate(&mut prepare(&opened, plan, Way::Eager, Retain::None).unwrap()).unwrap()
}

#[test]
fn faults_while_tokens_run() {
    let target = Target::Gfx1201;
    let plan = plan(target, 64);
    let tokens = healthy(&plan);
    for case in RUNNING {
        for (way, expected) in WAYS.into_iter().zip(case.expected) {
            let label = format!("{} {way:?}", case.script);
            let gpu = gpu(target);
            let opened = open(&gpu, target).unwrap();
            let before = gpu.memory().total_bytes();
            let mut session = prepare(&opened, &plan, way, Retain::Whole).unwrap();
            gpu.arm_faults(&case.script.parse().unwrap());
            let error = soon(&label, || generate(&mut session)).unwrap_err();
            let found = class(&error);
            assert!(
                expected.split('|').any(|class| class == found),
                "{label}: {found}: {error}"
            );
            let injected = gpu.injected_faults();
            assert_eq!(injected.len(), 1, "{label}: {injected:?}");
            assert!(
                error
                    .to_string()
                    .contains(&format!("(injected: {}", case.script))
                    || found.starts_with("launch"),
                "{label}: {error}"
            );
            assert_eq!(gpu.lost().is_some(), !case.device_lives, "{label}");
            // Nothing is replayed after a failure; an eager launch that was refused may be repeated.
            match soon(&label, || generate(&mut session)) {
                Err(again) if way == Way::Eager => drop(class(&again)),
                Err(again) => assert_eq!(class(&again), "poisoned", "{label}: {again}"),
                Ok(found) => {
                    assert_eq!((case.script, way), ("fail@submit:8", Way::Eager));
                    assert_eq!(found, tokens);
                }
            }
            soon(&label, || drop(session));
            assert_eq!(
                gpu.memory().total_bytes(),
                before,
                "{label}: memory is lost"
            );
            drop(opened);
            again(&gpu, &plan, way, case.device_lives, &tokens, &label);
        }
    }
}

/// A device that lives works again; one that is lost says so to whoever opens it.
fn again(
    gpu: &Arc<SoftGpu>,
    plan: &Arc<CheckedPlan>,
    way: Way,
    lives: bool,
    tokens: &[u32],
    label: &str,
) {
    let target = plan.kernels[0].target;
    let next = if lives {
        open(gpu, target).unwrap()
    } else {
        let error = open(gpu, target).unwrap_err();
        assert_eq!(error.status(), Some(719), "{label}: {error}");
        open(&self::gpu(target), target).unwrap()
    };
    let mut session = prepare(&next, plan, way, Retain::Whole).unwrap();
    assert_eq!(
        generate(&mut session).unwrap(),
        tokens,
        "{label}: the next session"
    );
}

/// Faults while a session is made, and what the error says; the device lives on in all of them.
const PREPARING: &[(&str, Way, &str)] = &[
    ("fail@hip-alloc:1", Way::Eager, "buffer hipMalloc 0x2"),
    (
        "fail@hip-alloc:3",
        Way::Eager,
        "buffer hipMalloc 0x2|buffer hipHostMalloc 0x2",
    ),
    (
        "fail@hip-alloc:2",
        Way::Aql,
        "recording: buffer hipMalloc 0x2|recording: buffer hipHostMalloc 0x2",
    ),
    ("fail@code:1", Way::Eager, "load hipModuleLoadData 0x2"),
    (
        "fail@code:2",
        Way::Pm4,
        "recording: load hipModuleLoadData 0x2",
    ),
    (
        "fail@code:3",
        Way::Aql,
        "lowering: load hsa_executable_load_agent_code_object 0x1008",
    ),
    (
        "fail@kernarg-alloc:1",
        Way::Aql,
        "lowering: kernarg arena hsa_amd_memory_pool_allocate 0x1008",
    ),
    (
        "fail@pool-alloc:1",
        Way::Pm4,
        "lowering: indirect buffer hsa_amd_memory_pool_allocate 0x1008",
    ),
    (
        "fail@queue:1",
        Way::Pm4,
        "lowering: queue hsa_queue_create 0x1008",
    ),
    (
        "fail@signal:2",
        Way::Aql,
        "lowering: completion signals hsa_signal_create 0x1008",
    ),
    ("hang@launch:20", Way::Aql, "recording: wait deadline"),
    ("stuck@completion:7", Way::Pm4, "recording: wait deadline"),
    (
        "reject@packet:5",
        Way::Pm4,
        "recording: launch hipModuleLaunchKernel 0x2cf|recording: wait hipStreamQuery 0x2cf",
    ),
    (
        "fail@submit:4",
        Way::Aql,
        "recording: launch hipModuleLaunchKernel 0x2",
    ),
];

#[test]
fn faults_while_a_session_is_made() {
    let target = Target::Gfx1201;
    let plan = plan(target, 64);
    let tokens = healthy(&plan);
    for &(script, way, expected) in PREPARING {
        let label = format!("{script} {way:?}");
        let gpu = gpu(target);
        let opened = open(&gpu, target).unwrap();
        let before = gpu.memory().total_bytes();
        gpu.arm_faults(&script.parse().unwrap());
        let error = soon(&label, || prepare(&opened, &plan, way, Retain::Whole)).unwrap_err();
        let found = class(&error);
        assert!(
            expected.split('|').any(|class| class == found),
            "{label}: {found}: {error}"
        );
        assert_eq!(gpu.injected_faults().len(), 1, "{label}");
        assert_eq!(
            gpu.memory().total_bytes(),
            before,
            "{label}: memory is lost"
        );
        drop(opened);
        again(&gpu, &plan, way, true, &tokens, &label);
    }
}

/// With `Retain::Auto` a device that gives no memory for the retained form leaves the session eager,
/// with the code.
#[test]
fn an_automatic_session_stays_eager_for_want_of_memory() {
    let target = Target::Gfx1201;
    let plan = plan(target, 64);
    let tokens = healthy(&plan);
    for script in ["fail@kernarg-alloc:1", "fail@queue:1", "fail@signal:1"] {
        let gpu = gpu(target);
        let opened = open(&gpu, target).unwrap();
        gpu.arm_faults(&script.parse().unwrap());
        let mut session = prepare(&opened, &plan, Way::Aql, Retain::Auto).unwrap();
        let refusal = session.refusal().unwrap();
        assert_eq!(refusal.code, Code::Allocation, "{script}: {refusal}");
        assert_eq!(generate(&mut session).unwrap(), tokens, "{script}");
        assert_eq!(session.counters().replayed_tokens, 0);
    }
}

/// A flipped bit either stops the run with a typed error, or verification sees it, or it changed
/// nothing: no run gives other tokens unseen.
#[test]
fn flipped_bits_never_pass_unseen() {
    let target = Target::Gfx1201;
    let plan = plan(target, 64);
    let tokens = healthy(&plan);
    let rounds = if std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1") {
        24
    } else {
        6
    };
    let (mut stopped, mut seen, mut harmless) = (0, 0, 0);
    for round in 0..rounds {
        for (kind, way) in [
            ("flip@ring", Way::Aql),
            ("flip@ring", Way::Pm4),
            ("flip@ib", Way::Pm4),
            ("flip@kernarg", Way::Aql),
            ("flip@kernarg", Way::Pm4),
        ] {
            let random = FaultScript::random(round, 2).faults()[1];
            let script = format!(
                "{kind}:{}.{}",
                1 + random.nth % 2,
                37 * round + u64::from(random.bit)
            );
            let label = format!("{script} {way:?}");
            let gpu = gpu(target);
            let opened = open(&gpu, target).unwrap();
            let before = gpu.memory().total_bytes();
            let mut session = prepare(&opened, &plan, way, Retain::Whole).unwrap();
            // Verification runs eagerly first, which takes packets of its own; tokens are handed out
            // by the retained run only.
            let mut armed = Some(script.parse().unwrap());
            let mut arm = |_| {
                if let Some(script) = armed.take() {
                    gpu.arm_faults(&script);
                }
            };
            let verified = soon(&label, || session.verify(&PROMPT, TOKENS, &mut arm));
            match verified {
                Err(error) => {
                    drop(class(&error));
                    stopped += 1;
                }
                Ok(found) if found.verified() => {
                    assert_eq!(found.generation.tokens, tokens, "{label}");
                    harmless += 1;
                }
                Ok(_) => seen += 1,
            }
            assert_eq!(gpu.injected_faults().len(), 1, "{label}");
            soon(&label, || drop(session));
            assert_eq!(
                gpu.memory().total_bytes(),
                before,
                "{label}: memory is lost"
            );
        }
    }
    assert!(
        stopped > 0,
        "{stopped} stopped, {seen} seen, {harmless} harmless"
    );
}

/// Scripts that nobody thought of: whatever they hit, errors are typed, nothing hangs and no memory
/// is lost.
#[test]
fn random_scripts() {
    let target = Target::Gfx1201;
    let plan = plan(target, 64);
    let tokens = healthy(&plan);
    let rounds = if std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1") {
        120
    } else {
        12
    };
    for seed in 0..rounds {
        let way = WAYS[seed as usize % 3];
        let script = FaultScript::random(seed, 1 + seed as usize % 4);
        let label = format!("seed {seed}, {script} {way:?}");
        let gpu = gpu(target);
        let opened = open(&gpu, target).unwrap();
        let before = gpu.memory().total_bytes();
        // Half of them while the session is made, half while it runs.
        let made = if seed % 2 == 0 {
            gpu.arm_faults(&script);
            soon(&label, || prepare(&opened, &plan, way, Retain::Whole))
        } else {
            let made = prepare(&opened, &plan, way, Retain::Whole);
            gpu.arm_faults(&script);
            made
        };
        match made {
            Err(error) => drop(class(&error)),
            Ok(mut session) => {
                match soon(&label, || generate(&mut session)) {
                    Err(error) => drop(class(&error)),
                    Ok(found) => {
                        // Bits that were flipped may change the text; nothing else may.
                        let flips = gpu.injected_faults();
                        let flipped = flips.iter().any(|row| row.fault.kind.row().has_bit);
                        assert!(flipped || found == tokens, "{label}: {found:?}");
                    }
                }
                soon(&label, || drop(session));
            }
        }
        assert_eq!(
            gpu.memory().total_bytes(),
            before,
            "{label}: memory is lost"
        );
    }
}
