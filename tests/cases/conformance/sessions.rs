//! A whole model: eager, AQL and PM4 give the same tokens and the same state, seed after seed.

use super::case;
use refrain_kernels::Target;
use refrain_planner::CheckedPlan;
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::{DeviceSpec, OpenedDevice, Retain, Route, Session, SessionOptions, Transport};
use refrain_tests::conformance::{Case, Done, Trouble, ensure};
use refrain_tests::subject::Subject;
use refrain_tests::{Setup, plan, repository};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) const CASES: &[Case<Subject>] = &[
    case("session/eager", eager),
    case("session/aql", |subject| verified(subject, Transport::Aql)),
    case("session/pm4", |subject| verified(subject, Transport::Pm4)),
    case("session/one-in-flight", one_in_flight),
];

const MODEL: &str = "tests/models/nano-qwen3.bf16.gguf";
const PROMPT: [u32; 4] = [1, 7, 42, 3];

/// The small model's plan for the subject's target; made once per process.
pub(super) fn model_plan(subject: &Subject) -> Result<Arc<CheckedPlan>, Trouble> {
    static PLANS: Mutex<Vec<(Target, Arc<CheckedPlan>)>> = Mutex::new(Vec::new());
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(row) = plans.iter().find(|row| row.0 == subject.target) {
        return Ok(row.1.clone());
    }
    let setup = Setup {
        context: Some(32),
        // The packet cases launch one plain kernel of the plan.
        fused: false,
        ..Setup::on(subject.target)
    };
    let made = plan(&repository(MODEL), setup);
    let made = made.map_err(|error| Trouble::Failed(error.to_string()))?;
    plans.push((subject.target, made.clone()));
    Ok(made)
}

pub(super) fn session(subject: &Subject, options: SessionOptions) -> Result<Session, Trouble> {
    let plan = model_plan(subject)?;
    let source = FileSource::open(&repository(MODEL))?;
    let opened = OpenedDevice {
        device: subject.device.clone(),
        soft: subject.soft.clone(),
        spec: DeviceSpec::Soft(subject.target),
        note: None,
    };
    Ok(Session::new(
        opened,
        &plan,
        &source,
        &EmbeddedObjects,
        options,
    )?)
}

fn eager(subject: &Subject) -> Done {
    let options = SessionOptions {
        retain: Retain::None,
        ..SessionOptions::default()
    };
    let mut session = session(subject, options)?;
    let first = session.run(Route::Eager, &PROMPT, 6, &mut |_| {})?;
    let second = session.run(Route::Eager, &PROMPT, 6, &mut |_| {})?;
    ensure(first == second && first.tokens.len() == 6, || {
        format!("{first:?} and {second:?}")
    })
}

fn verified(subject: &Subject, transport: Transport) -> Done {
    let options = SessionOptions {
        retain: Retain::Whole,
        transport,
        ..SessionOptions::default()
    };
    let found = session(subject, options)?.verify(&PROMPT, 6, &mut |_| {})?;
    ensure(found.verified(), || format!("{found:?}"))
}

fn one_in_flight(subject: &Subject) -> Done {
    let mut texts = Vec::new();
    for in_flight in [1, 8] {
        let options = SessionOptions {
            retain: Retain::Whole,
            in_flight,
            ..SessionOptions::default()
        };
        texts.push(session(subject, options)?.generate(&PROMPT, 6, &mut |_| {})?);
    }
    ensure(texts[0] == texts[1], || format!("{texts:?}"))
}
