//! Sessions on the software GPU: every route leaves the same bytes, in flight or not, past the end
//! or not; refusals before the device is touched.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{PROMPT, device, plan, session, source};
use refrain_kernels::{StopReason, Target};
use refrain_planner::CheckedPlan;
use refrain_planner::plan::{BufferKind, Plan};
use refrain_recorder::{
    BufferState, EmbeddedObjects, FileSource, InstanceError, SourceError, TensorSource,
    first_difference,
};
use refrain_replay::{
    Code, Retain, Route, Session, SessionError, SessionOptions, StageError, Transport,
};
use refrain_softgpu::SoftGpu;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One hash per buffer, with its name.
fn hashes(states: &[BufferState]) -> Vec<(String, u64)> {
    let hash = |state: &BufferState| {
        let mut hasher = DefaultHasher::new();
        state.bytes.hash(&mut hasher);
        (state.name.clone(), hasher.finish())
    };
    states.iter().map(hash).collect()
}

/// Buffer hashes after each of `count` token steps.
fn trace(session: &mut Session, route: Route, count: u32) -> Vec<Vec<(String, u64)>> {
    for kind in [BufferKind::Scratch, BufferKind::Kv] {
        session.instance().fill(kind, 0x5A).unwrap();
    }
    session.start(&PROMPT, u32::MAX).unwrap();
    (0..count)
        .map(|_| {
            session.advance(route, 1, &mut |_| {}).unwrap();
            hashes(&session.snapshot().unwrap())
        })
        .collect()
}

#[test]
fn eager_aql_and_pm4_leave_the_same_bytes_at_64_positions() {
    for target in Target::ALL {
        let plan = plan(target, 96);
        let mut aql = session(&plan, Transport::Aql, 1);
        // Eager first, so that scratch of the retained run starts from another state.
        let eager = trace(&mut aql, Route::Eager, 64);
        let mut pm4 = session(&plan, Transport::Pm4, 1);
        // A session's own first token leaves gaps between regions of scratch as they were, so
        // each transport is compared with eager execution in its own buffers.
        let eager_pm4 = trace(&mut pm4, Route::Eager, 64);
        for (name, session, eager) in [("aql", &mut aql, &eager), ("pm4", &mut pm4, &eager_pm4)] {
            let retained = trace(session, Route::Retained, 64);
            for (position, (want, have)) in eager.iter().zip(&retained).enumerate() {
                assert_eq!(want, have, "{target} {name}: position {position}");
            }
        }
        // Between the two sessions everything but scratch gaps must agree as well.
        for (position, (a, b)) in eager.iter().zip(&eager_pm4).enumerate() {
            let rows = a.iter().zip(b).filter(|(x, _)| x.0 != "scratch");
            for (x, y) in rows {
                assert_eq!(x, y, "{target}: position {position}");
            }
        }
    }
}

#[test]
fn verification_agrees_and_counts() {
    let plan = plan(Target::Gfx1201, 64);
    for transport in Transport::ALL {
        let mut session = session(&plan, transport, 8);
        let mut streamed = Vec::new();
        let verified = session
            .verify(&PROMPT, 12, &mut |token| streamed.push(token))
            .unwrap();
        assert!(verified.verified(), "{transport}: {verified:?}");
        assert_eq!(verified.generation.tokens, streamed);
        let counters = session.counters();
        assert_eq!(counters.launches_per_token, plan.steps.len());
        assert_eq!(counters.unique_kernels, plan.kernels.len());
        assert!(counters.dwords > plan.steps.len() * 10);
        assert_eq!((counters.eager_tokens, counters.replayed_tokens), (0, 15));
        assert!(counters.eager_host_us.unwrap() > 0.0 && counters.retained_host_us.unwrap() > 0.0);
        assert!(counters.refusals.rows().is_empty());
        assert_eq!(session.agreement().unwrap().ring_tapes(), 6);
    }
}

/// State after a text and `past` more token steps, with a number of tokens in flight.
fn state_past_end(
    transport: Transport,
    in_flight: u32,
    context: u32,
    limit: u32,
    past: u32,
) -> (Vec<BufferState>, Option<StopReason>) {
    let plan = plan(Target::Gfx1201, context);
    let mut session = session(&plan, transport, in_flight);
    session.instance().fill(BufferKind::Scratch, 0).unwrap();
    session.start(&PROMPT, limit).unwrap();
    session
        .advance_past_end(
            Route::Retained,
            PROMPT.len() as u32 - 1 + limit.min(context) + past,
        )
        .unwrap();
    let stop = session.stop();
    let mut states = session.snapshot().unwrap();
    // Activations are dead between tokens: kernels that write state too do nothing past the end.
    for (state, buffer) in states.iter_mut().zip(&plan.buffers) {
        if buffer.kind == BufferKind::Scratch {
            state.bytes.clear();
        }
    }
    (states, stop)
}

#[test]
fn eight_in_flight_past_the_end_leave_what_one_in_flight_leaves() {
    let rows = [
        (Transport::Aql, 64, 5, StopReason::Limit, 300),
        (Transport::Aql, 16, u32::MAX, StopReason::ContextEnd, 100),
        (Transport::Pm4, 64, 5, StopReason::Limit, 100),
        (Transport::Pm4, 16, u32::MAX, StopReason::ContextEnd, 100),
    ];
    for (transport, context, limit, reason, past) in rows {
        let (one, stop_one) = state_past_end(transport, 1, context, limit, 0);
        let (many, stop_many) = state_past_end(transport, 8, context, limit, past);
        assert_eq!(
            (stop_one, stop_many),
            (Some(reason), Some(reason)),
            "{transport}"
        );
        assert_eq!(
            first_difference(&one, &many),
            None,
            "{transport} {reason:?}"
        );
    }
}

#[test]
fn a_text_streams_late_but_whole_with_any_number_in_flight() {
    let plan = plan(Target::Gfx1201, 64);
    let mut texts = Vec::new();
    for in_flight in [1, 3, 8] {
        let mut session = session(&plan, Transport::Aql, in_flight);
        let text = session.generate(&PROMPT, 20, &mut |_| {}).unwrap();
        // A second text in the same session starts afresh.
        assert_eq!(text, session.generate(&PROMPT, 20, &mut |_| {}).unwrap());
        texts.push(text);
    }
    assert_eq!(texts[0].tokens.len(), 20);
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn an_eager_session_replays_nothing_and_says_so() {
    let plan = plan(Target::Gfx1201, 64);
    let options = SessionOptions {
        retain: Retain::None,
        ..SessionOptions::default()
    };
    let opened = device(Target::Gfx1201);
    let mut session = Session::new(opened, &plan, &source(), &EmbeddedObjects, options).unwrap();
    let text = session.generate(&PROMPT, 4, &mut |_| {}).unwrap();
    assert_eq!(text.tokens.len(), 4);
    let counters = session.counters();
    assert_eq!(
        (
            counters.eager_tokens,
            counters.replayed_tokens,
            counters.dwords
        ),
        (7, 0, 0)
    );
    assert!(matches!(
        session.run(Route::Retained, &PROMPT, 4, &mut |_| {}),
        Err(SessionError::NotRetained { .. })
    ));
}

#[test]
fn a_plan_for_another_target_is_refused() {
    let plan = plan(Target::Gfx1100, 64);
    for retain in [Retain::Whole, Retain::Auto] {
        let options = SessionOptions {
            retain,
            ..SessionOptions::default()
        };
        let opened = device(Target::Gfx1201);
        let error = Session::new(opened, &plan, &source(), &EmbeddedObjects, options).unwrap_err();
        match error {
            SessionError::Poisoned(poisoned) => {
                assert_eq!(poisoned.error.code(), Some(Code::TargetMismatch));
            }
            // `Auto` goes on eagerly after a refusal, which fails for the same reason.
            SessionError::Instance(InstanceError::Target { .. }) => {
                assert_eq!(retain, Retain::Auto)
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn another_model_file_is_refused() {
    let plan = plan(Target::Gfx1201, 64);
    let other = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/models/nano-llama.bf16.gguf"
    );
    let other = FileSource::open(Path::new(other)).unwrap();
    let options = SessionOptions {
        retain: Retain::Whole,
        ..SessionOptions::default()
    };
    let opened = device(Target::Gfx1201);
    let error = Session::new(opened, &plan, &other, &EmbeddedObjects, options).unwrap_err();
    assert_eq!(error.refusal().unwrap().code, Code::ModelDiffers);
    // One flipped byte in a tensor of the right file.
    let mut bytes = std::fs::read(common::MODEL).unwrap();
    let tensor = &plan.model.tensors[3];
    bytes[tensor.file_offset as usize + 5] ^= 1;
    let opened = device(Target::Gfx1201);
    let error = Session::new(opened, &plan, &bytes, &EmbeddedObjects, options).unwrap_err();
    assert!(error.to_string().contains(&tensor.name), "{error}");
    assert_eq!(error.refusal().unwrap().code, Code::ModelDiffers);
}

#[test]
fn the_shortest_contexts_are_recorded_whole() {
    for context in [1, 2, 3] {
        let plan = plan(Target::Gfx1201, context);
        let mut session = session(&plan, Transport::Pm4, 2);
        let positions = session.agreement().unwrap().positions().to_vec();
        assert_eq!(positions, (0..context).collect::<Vec<_>>());
        let text = session.generate(&PROMPT[..1], 9, &mut |_| {}).unwrap();
        let tokens = context as usize;
        assert_eq!(
            (text.tokens.len(), text.stop),
            (tokens, Some(StopReason::ContextEnd))
        );
    }
}

#[test]
fn sessions_may_move_between_threads() {
    fn send<T: Send>() {}
    send::<Session>();
}

#[test]
fn prompts_are_checked() {
    let plan = plan(Target::Gfx1201, 16);
    let mut session = session(&plan, Transport::Aql, 2);
    let vocab = plan.model.geometry.vocab;
    let long = [1; 17];
    for (prompt, words) in [
        (&[][..], "no token"),
        (&long[..], "17 tokens, the plan has a context of 16"),
        (&[1, vocab][..], "prompt token 1"),
    ] {
        let error = session
            .generate(prompt, 1, &mut |_| {})
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    // A refused prompt leaves the session usable; a prompt that fills the context yields one token.
    let full = vec![1; 16];
    let text = session.generate(&full, 5, &mut |_| {}).unwrap();
    assert_eq!(
        (text.tokens.len(), text.stop),
        (1, Some(StopReason::ContextEnd))
    );
}

#[test]
fn ineligible_plans_are_refused_with_their_reasons() {
    use refrain_planner::plan::{Eligibility, RefusalReason};
    let mut tables = (**plan(Target::Gfx1201, 16)).clone();
    let reason = RefusalReason {
        code: 1,
        step: Some(2),
        detail: "by hand".into(),
    };
    tables.eligibility = Eligibility::Refused(vec![reason]);
    let Ok(plan) = CheckedPlan::check(tables) else {
        return;
    };
    let plan = Arc::new(plan);
    let options = SessionOptions {
        retain: Retain::Whole,
        ..SessionOptions::default()
    };
    let opened = device(Target::Gfx1201);
    let error =
        Session::new(opened.clone(), &plan, &source(), &EmbeddedObjects, options).unwrap_err();
    assert!(
        matches!(&error, SessionError::Poisoned(p) if matches!(*p.error, StageError::Ineligible(_)))
    );
    assert!(error.to_string().contains("by hand"), "{error}");
    let options = SessionOptions {
        retain: Retain::Auto,
        ..options
    };
    let mut session = Session::new(opened, &plan, &source(), &EmbeddedObjects, options).unwrap();
    assert_eq!(session.refusal().unwrap().code, Code::NotEligible);
    assert_eq!(
        session
            .generate(&PROMPT, 2, &mut |_| {})
            .unwrap()
            .tokens
            .len(),
        2
    );
    assert_eq!(session.counters().refusals.rows(), [(Code::NotEligible, 1)]);
}

/// A plan like `base` with another end-of-sequence token.
fn with_eos(base: &CheckedPlan, eos: u32) -> Arc<CheckedPlan> {
    let mut tables: Plan = (**base).clone();
    tables.model.eos = Some(eos);
    Arc::new(CheckedPlan::check(tables).unwrap())
}

#[test]
fn steps_past_the_end_are_counted_apart() {
    let prompt = PROMPT.len() as u64 - 1;
    let long = plan(Target::Gfx1201, 64);
    let short = plan(Target::Gfx1201, 16);
    let text = session(&long, Transport::Aql, 1)
        .generate(&PROMPT, 20, &mut |_| {})
        .unwrap();
    // A token ends a text where it occurs first; the latest such place.
    let at = (0..20)
        .rev()
        .find(|at| !text.tokens[..*at].contains(&text.tokens[*at]))
        .unwrap();
    let eos = text.tokens[at];
    let ended = with_eos(&long, eos);
    let rows = [
        ("limit", &long, 5, None),
        ("context", &short, u32::MAX, Some(StopReason::ContextEnd)),
        ("eos", &ended, 40, Some(StopReason::Eos)),
    ];
    for (name, plan, limit, stop) in rows {
        for (transport, in_flight) in [
            (Transport::Aql, 1),
            (Transport::Aql, 8),
            (Transport::Pm4, 3),
        ] {
            let mut session = session(plan, transport, in_flight);
            for times in 1..=2 {
                let text = session.generate(&PROMPT, limit, &mut |_| {}).unwrap();
                assert_eq!(text.stop, stop, "{name}");
                let live = times * (prompt + text.tokens.len() as u64);
                let counters = session.counters();
                let found = (counters.replayed_tokens, counters.eager_tokens);
                assert_eq!(found, (live, 0), "{name} {transport} {in_flight}");
                assert!(counters.past_end_tokens < times * u64::from(in_flight) + 1);
            }
            session
                .run(Route::Eager, &PROMPT, limit, &mut |_| {})
                .unwrap();
            let counters = session.counters();
            let live = counters.replayed_tokens / 2;
            assert_eq!(counters.eager_tokens, live, "{name}");
            // Exactly the steps submitted after the end, on either route.
            let before = counters.past_end_tokens;
            session.advance_past_end(Route::Retained, 7).unwrap();
            session.advance_past_end(Route::Eager, 2).unwrap();
            let after = session.counters();
            assert_eq!(after.past_end_tokens, before + 9, "{name}");
            let found = (after.replayed_tokens, after.eager_tokens);
            assert_eq!(found, (2 * live, live), "{name}");
        }
    }
}

#[test]
fn a_cancelled_text_hands_out_nothing_more_and_leaves_the_session_usable() {
    let plan = plan(Target::Gfx1201, 64);
    for (transport, in_flight) in [
        (Transport::Aql, 1),
        (Transport::Aql, 8),
        (Transport::Pm4, 3),
    ] {
        let mut session = session(&plan, transport, in_flight);
        let whole = session.generate(&PROMPT, 16, &mut |_| {}).unwrap();
        let steps = session.counters().replayed_tokens;
        let cancel = session.cancel_handle();
        let mut seen = 0;
        let text = session
            .generate(&PROMPT, 16, &mut |_| {
                seen += 1;
                cancel.store(seen == 3, Ordering::Relaxed);
            })
            .unwrap();
        assert_eq!((&text.tokens[..], text.stop), (&whole.tokens[..3], None));
        assert!(session.cancelled());
        assert_eq!(session.replayer().unwrap().in_flight(), 0);
        let more = session.counters().replayed_tokens - steps;
        let prompt = PROMPT.len() as u64 - 1;
        assert!(
            (prompt + 3..=prompt + 3 + u64::from(in_flight)).contains(&more),
            "{more}"
        );
        // While it is set nothing runs; cleared, a cancelled text stays ended.
        cancel.store(true, Ordering::Relaxed);
        let none = session.generate(&PROMPT, 16, &mut |_| {}).unwrap();
        assert!(none.tokens.is_empty() && session.cancelled());
        cancel.store(false, Ordering::Relaxed);
        session.advance(Route::Retained, 9, &mut |_| {}).unwrap();
        assert_eq!(session.counters().replayed_tokens, steps + more);
        // A verification that is cancelled verified nothing.
        let half = session
            .verify(&PROMPT, 16, &mut |_| cancel.store(true, Ordering::Relaxed))
            .unwrap();
        assert!(half.cancelled && !half.verified());
        cancel.store(false, Ordering::Relaxed);
        let again = session.verify(&PROMPT, 16, &mut |_| {}).unwrap();
        assert!(!again.cancelled);
        assert!(again.verified(), "{again:?}");
        assert_eq!(again.generation, whole);
    }
}

/// A model that counts, whenever it is read, how many instances are alive.
struct Watching {
    file: FileSource,
    gpu: Arc<SoftGpu>,
    control: String,
    most: AtomicUsize,
}

impl TensorSource for Watching {
    fn name(&self) -> String {
        self.file.name()
    }

    fn file_bytes(&self) -> Result<u64, SourceError> {
        self.file.file_bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let rows = self.gpu.memory().allocations();
        let alive = rows.iter().filter(|row| *row.name == *self.control).count();
        self.most.fetch_max(alive, Ordering::Relaxed);
        self.file.read(offset, out)
    }
}

/// Two instances that are never alive together may get the same addresses, and an address kept
/// from the first would then pass in the second.
#[test]
fn where_memory_holds_both_the_recorded_instances_are_alive_together() {
    let plan = plan(Target::Gfx1201, 64);
    let opened = device(Target::Gfx1201);
    let control = plan.control_buffer().unwrap() as usize;
    let watching = Watching {
        file: source(),
        gpu: opened.soft.clone().unwrap(),
        control: plan.buffers[control].name.clone(),
        most: AtomicUsize::new(0),
    };
    refrain_replay::record(&opened, &plan, &watching, &EmbeddedObjects).unwrap();
    assert_eq!(watching.most.into_inner(), 2);
}
