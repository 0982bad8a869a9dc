//! Arms of a benchmark and changes of a session: every arm gives the same tokens and leaves the same
//! bytes, its counts prove its route; families, jumps and swaps happen with nothing in flight or are
//! refused by code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{MODEL, PROMPT, device, plan, session, source};
use refrain_device::{Device, HipCall, Observer};
use refrain_kernels::Target;
use refrain_planner::machine::Machine;
use refrain_planner::{CheckedPlan, CompileOptions, ModelSource, compile, compile_family};
use refrain_recorder::{EmbeddedObjects, FileSource, first_difference};
use refrain_replay::arms::{ArmKind, ArmOptions, Arms, Observed};
use refrain_replay::prove::Credentials;
use refrain_replay::{Code, Retain, Route, Session, SessionError, SessionOptions, Transport};
use std::path::Path;
use std::sync::Arc;

const RECURRENT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/models/nano-qwen3_5.bf16.gguf"
);
const TOKENS: u32 = 12;

fn kinds() -> [ArmKind; 4] {
    [ArmKind::Eager, ArmKind::Graph, ArmKind::Aql, ArmKind::Pm4]
}

fn recurrent_plan(target: Target, context: u32) -> Arc<CheckedPlan> {
    let file = ModelSource::open(RECURRENT).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    let options = CompileOptions {
        context: Some(context),
        ..CompileOptions::default()
    };
    Arc::new(compile(&file, &machine, &options).unwrap())
}

fn arms(plan: &Arc<CheckedPlan>, source: &FileSource, in_flight: u32) -> Arms {
    let opened = device(plan.kernels[0].target);
    let options = ArmOptions {
        in_flight,
        ..ArmOptions::default()
    };
    Arms::new(opened, plan, source, &EmbeddedObjects, &kinds(), options).unwrap()
}

/// What a row of `kind` must have counted.
fn expected(kind: ArmKind, launches: u64) -> Observed {
    let tokens = u64::from(TOKENS);
    let all = Some(tokens * launches);
    let none = Observed {
        device_launches: all,
        indirect_buffers: Some(0),
        ..Observed::default()
    };
    match kind {
        ArmKind::Eager => Observed {
            hip_launches: tokens * launches,
            ..none
        },
        ArmKind::Graph => Observed {
            graph_launches: tokens,
            ..none
        },
        ArmKind::Aql => Observed {
            replays: tokens,
            ..none
        },
        ArmKind::Pm4 | ArmKind::Segments => Observed {
            replays: tokens,
            indirect_buffers: Some(tokens),
            ..none
        },
    }
}

#[test]
fn every_arm_gives_the_same_tokens_and_counts_prove_its_route() {
    for (target, in_flight) in [(Target::Gfx1201, 1), (Target::Gfx1100, 5)] {
        let plans = [
            (plan(target, 64), source()),
            (
                recurrent_plan(target, 64),
                FileSource::open(Path::new(RECURRENT)).unwrap(),
            ),
        ];
        for (plan, source) in plans {
            let mut arms = arms(&plan, &source, in_flight);
            assert_eq!(arms.refused(), []);
            arms.prefill(&PROMPT).unwrap();
            let launches = plan.steps.len() as u64;
            let mut first = None;
            let mut identities = Vec::new();
            for _ in 0..2 {
                for index in 0..arms.arms().len() {
                    let kind = arms.arms()[index].kind();
                    arms.scrub().unwrap();
                    let row = arms.row(index, TOKENS).unwrap();
                    assert_eq!(row.observed, expected(kind, launches), "{kind:?}");
                    assert_eq!((row.first_position, row.last_position), (3, 14));
                    assert_eq!(row.host.len(), TOKENS as usize);
                    let state = arms.snapshot().unwrap();
                    let (tokens, bytes) = first.get_or_insert((row.tokens.clone(), state.clone()));
                    assert_eq!(*tokens, row.tokens, "{kind:?}");
                    assert_eq!(first_difference(bytes, &state), None, "{kind:?}");
                    identities.push((kind, row.identity, row.arguments));
                }
            }
            assert_eq!(first.unwrap().0.len(), TOKENS as usize);
            let (once, twice) = identities.split_at(4);
            assert_eq!(once, twice, "one identity for all rows of an arm");
        }
    }
}

/// A plan with steps of the host: segments replay, and nothing that would freeze a step is made.
#[test]
fn segments_are_the_only_retained_arm_of_a_plan_with_steps_of_the_host() {
    let file = ModelSource::open(MODEL).unwrap();
    let machine = Machine::load("gfx1201").unwrap();
    let options = CompileOptions {
        context: Some(64),
        gpu_layers: "2".parse().unwrap(),
        exec: "cpu".parse().unwrap(),
        ..CompileOptions::default()
    };
    let plan = Arc::new(compile(&file, &machine, &options).unwrap());
    let kinds = ArmKind::ROWS.map(|row| row.kind);
    let (opened, options) = (device(Target::Gfx1201), ArmOptions::default());
    let made = Arms::new(opened, &plan, &source(), &EmbeddedObjects, &kinds, options);
    let mut arms = made.unwrap();
    let refused: Vec<_> = arms
        .refused()
        .iter()
        .map(|row| (row.0, row.1.code))
        .collect();
    let tapes = [ArmKind::Graph, ArmKind::Aql, ArmKind::Pm4];
    assert_eq!(refused, tapes.map(|kind| (kind, Code::HostSteps)));
    arms.prefill(&PROMPT).unwrap();
    let launches = plan.launches().count() as u64 * u64::from(TOKENS);
    let (eager, segments) = (arms.row(0, TOKENS).unwrap(), arms.row(1, TOKENS).unwrap());
    assert_eq!(eager.tokens, segments.tokens);
    assert_eq!(
        (eager.observed.hip_launches, eager.host.len()),
        (launches, 0)
    );
    let runs = refrain_replay::segments::runs(&plan).len() as u64;
    let expected = Observed {
        replays: u64::from(TOKENS),
        device_launches: Some(launches),
        indirect_buffers: Some(runs * u64::from(TOKENS)),
        ..Observed::default()
    };
    assert_eq!(segments.observed, expected);
}

#[test]
fn rows_beyond_the_plan_and_without_a_prompt_are_refused_before_anything_runs() {
    let plan = plan(Target::Gfx1201, 32);
    let mut arms = arms(&plan, &source(), 1);
    let code = |error: SessionError| error.refusal().map(|refusal| refusal.code);
    let refused = arms.row(0, 4).unwrap_err();
    assert_eq!(code(refused), Some(Code::Transition));
    arms.prefill(&PROMPT).unwrap();
    assert_eq!(arms.row(0, 28).unwrap().tokens.len(), 28);
    let before = arms.opened().soft.as_ref().unwrap().counters();
    let refused = arms.row(0, 29).unwrap_err();
    assert_eq!(code(refused), Some(Code::BeyondContext));
    let after = arms.opened().soft.as_ref().unwrap().counters();
    assert_eq!(before, after);
}

/// A runtime without graphs takes only that arm away, by its code.
#[test]
fn an_arm_that_cannot_be_made_is_refused_and_the_others_run() {
    let plan = plan(Target::Gfx1201, 64);
    let mut opened = device(Target::Gfx1201);
    let base = refrain_softgpu::runtime(opened.soft.clone().unwrap());
    let (mut hip, hsa, origin) = (*base.hip(), *base.hsa(), base.origin().clone());
    hip.hipGraphInstantiate = None;
    // SAFETY: the entries are those of the software GPU; `base` keeps it registered.
    let runtime = unsafe { refrain_device::Runtime::from_tables(hip, hsa, origin, Arc::new(base)) };
    opened.device = Device::open(runtime, 0).unwrap();
    let options = ArmOptions::default();
    let arms = Arms::new(
        opened,
        &plan,
        &source(),
        &EmbeddedObjects,
        &kinds(),
        options,
    );
    let mut arms = arms.unwrap();
    let [(ArmKind::Graph, refusal)] = arms.refused() else {
        panic!("{:?}", arms.refused())
    };
    assert_eq!(refusal.code, Code::GraphAbsent);
    arms.prefill(&PROMPT).unwrap();
    let rows = [0, 1, 2].map(|index| arms.row(index, 4).unwrap().tokens);
    assert!(rows.iter().all(|tokens| *tokens == rows[0]));
}

/// llama-cpp-turboquant PR 297, legacy-rocm-build 4614: a capture or a recording leaves no state
/// behind, in whichever thread it is made or dropped.
#[test]
fn issue_legacy_rocm_build_4614_and_llama_cpp_turboquant_297() {
    let plan = plan(Target::Gfx1201, 64);
    let opened = device(Target::Gfx1201);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (plan, opened) = (&plan, opened.clone());
            scope.spawn(move || {
                let options = ArmOptions::default();
                let kinds = [ArmKind::Graph];
                let made = Arms::new(opened, plan, &source(), &EmbeddedObjects, &kinds, options);
                drop(made.unwrap());
            });
        }
    });
    let options = ArmOptions::default();
    let kinds = [ArmKind::Eager, ArmKind::Graph];
    let arms = Arms::new(opened, &plan, &source(), &EmbeddedObjects, &kinds, options);
    let mut arms = arms.unwrap();
    arms.prefill(&PROMPT).unwrap();
    let (eager, graph) = (arms.row(0, 6).unwrap(), arms.row(1, 6).unwrap());
    assert_eq!(eager.tokens, graph.tokens);
}

/// hipfire PR 591: the kernel arguments of a captured launch are the graph's own; those it was
/// captured from may change or go.
#[test]
fn issue_hipfire_591_captured_arguments_are_kept() {
    #[derive(Default)]
    struct Quiet;
    impl Observer for Quiet {
        fn observe(&self, _call: &HipCall<'_>) {}
    }
    let plan = plan(Target::Gfx1100, 64);
    let mut arms = arms(&plan, &source(), 1);
    let _guard = arms.opened().device.attach(Arc::new(Quiet));
    arms.prefill(&PROMPT).unwrap();
    let graph = arms
        .arms()
        .iter()
        .position(|arm| arm.kind() == ArmKind::Graph);
    let first = arms.row(graph.unwrap(), TOKENS).unwrap();
    let eager = arms.row(0, TOKENS).unwrap();
    let again = arms.row(graph.unwrap(), TOKENS).unwrap();
    assert_eq!(first.tokens, eager.tokens);
    assert_eq!(first.tokens, again.tokens);
}

/// rocm-systems issue 10713: kernel arguments of replays take ever more memory. All are placed once.
#[test]
fn issue_rocm_systems_10713_rows_take_no_memory() {
    let plan = plan(Target::Gfx1201, 64);
    let mut arms = arms(&plan, &source(), 4);
    arms.prefill(&PROMPT).unwrap();
    let soft = arms.opened().soft.clone().unwrap();
    let before = (
        soft.memory().allocations().len(),
        soft.memory().total_bytes(),
    );
    for _ in 0..8 {
        for index in 0..arms.arms().len() {
            arms.row(index, TOKENS).unwrap();
        }
    }
    let after = (
        soft.memory().allocations().len(),
        soft.memory().total_bytes(),
    );
    assert_eq!(before, after);
}

fn family(target: Target, buckets: &[u32]) -> Vec<Arc<CheckedPlan>> {
    let file = ModelSource::open(MODEL).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    let options = CompileOptions {
        context: Some(64),
        ..CompileOptions::default()
    };
    let plans = compile_family(&file, &machine, &options, buckets).unwrap();
    plans.into_iter().map(Arc::new).collect()
}

#[test]
fn a_family_switches_tapes_where_a_bucket_ends() {
    let plans = family(Target::Gfx1201, &[8, 24]);
    let whole = session(&plans[2], Transport::Pm4, 4)
        .generate(&PROMPT, 40, &mut |_| {})
        .unwrap();
    for (transport, retain) in [
        (Transport::Pm4, Retain::Whole),
        (Transport::Aql, Retain::Auto),
        (Transport::Aql, Retain::None),
    ] {
        let options = SessionOptions {
            retain,
            transport,
            in_flight: 4,
            ..SessionOptions::default()
        };
        let (opened, none) = (device(Target::Gfx1201), Credentials::default());
        let made = Session::family(opened, &plans, &source(), &EmbeddedObjects, options, &none);
        let mut session = made.unwrap();
        for texts in 1..3 {
            let found = session.generate(&PROMPT, 40, &mut |_| {}).unwrap();
            assert_eq!(found, whole, "{transport} {retain:?}");
            let counters = session.counters();
            // Two up per text, and one down to the first bucket per text.
            assert_eq!(counters.bucket_switches, 3 * texts);
            let all = [counters.replayed_tokens, counters.eager_tokens];
            let expected = match retain {
                Retain::None => [0, 43 * texts],
                _ => [43 * texts, 0],
            };
            assert_eq!(all, expected);
        }
    }
}

#[test]
fn a_family_of_other_buffers_is_refused() {
    let plans = [plan(Target::Gfx1201, 32), plan(Target::Gfx1201, 64)];
    let options = SessionOptions::default();
    let (opened, none) = (device(Target::Gfx1201), Credentials::default());
    let larger_first = [plans[1].clone(), plans[0].clone()];
    let made = Session::family(
        opened,
        &larger_first,
        &source(),
        &EmbeddedObjects,
        options,
        &none,
    );
    let error = made.unwrap_err().to_string();
    assert!(error.contains("bytes, not"), "{error}");
}

#[test]
fn positions_go_back_where_no_state_forbids_it() {
    let plan = plan(Target::Gfx1201, 64);
    let mut session = session(&plan, Transport::Aql, 3);
    let text = session.generate(&PROMPT, 20, &mut |_| {}).unwrap().tokens;
    // The token at position p + 1 is the one generated at p; the prompt ends at 3.
    session.jump(10, text[6]).unwrap();
    let mut again = Vec::new();
    session
        .advance(Route::Retained, 8, &mut |token| again.push(token))
        .unwrap();
    assert_eq!(again, text[7..15]);
    let code = |result: Result<(), SessionError>| result.unwrap_err().refusal().unwrap().code;
    assert_eq!(code(session.jump(60, 1)), Code::Transition);
    assert_eq!(code(session.require_context(65)), Code::BeyondContext);
    session.require_context(64).unwrap();

    let recurrent = recurrent_plan(Target::Gfx1201, 64);
    let source = FileSource::open(Path::new(RECURRENT)).unwrap();
    let options = SessionOptions::default();
    let mut session = session_swap(session, &recurrent, &source, options);
    session.generate(&PROMPT, 10, &mut |_| {}).unwrap();
    assert_eq!(code(session.jump(5, 1)), Code::Transition);
}

/// Another model on the same device, and back: the tokens are those of fresh sessions.
fn session_swap(
    first: Session,
    plan: &Arc<CheckedPlan>,
    source: &FileSource,
    options: SessionOptions,
) -> Session {
    let mut fresh = Session::new(
        device(Target::Gfx1201),
        plan,
        source,
        &EmbeddedObjects,
        options,
    )
    .unwrap();
    let expected = fresh.generate(&PROMPT, 10, &mut |_| {}).unwrap();
    let memory = first.opened().soft.clone().unwrap();
    let before = memory.memory().allocations().len();
    let mut swapped = first.swap(plan, source, &EmbeddedObjects, options).unwrap();
    assert_eq!(
        swapped.generate(&PROMPT, 10, &mut |_| {}).unwrap(),
        expected
    );
    assert!(before > 0);
    swapped
}
