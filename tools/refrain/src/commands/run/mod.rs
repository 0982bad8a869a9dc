//! `refrain run`: plan, record, reconcile, lower, and decode a text.
//!
//! Text streams to stdout as it comes, the summary goes to stderr; with `--format json` one object
//! goes to stdout instead of both. Times of the software GPU are labelled and never a GPU's.

mod cpu;
mod printer;
mod report;
mod soft;

use crate::cli::{CompileArgs, Format, RetainArg, RunArgs};
use crate::exit::CliError;
use crate::input::{self, Kind};
use crate::output;
use anyhow::Context;
use printer::Printer;
use refrain_kernels::StopReason;
use refrain_planner::container::CheckedPlan;
use refrain_planner::tokenizer::{SpecialTokens, Tokenizer};
use refrain_planner::{ModelSource, compile, compile_family, identity::hex};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::prove::presented;
use refrain_replay::{
    Code, DeviceSpec, Refusal, Retain, Session, SessionOptions, Verification,
};
use report::{Outcome, Report};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Eager tokens that are run to state the host time of the form that replay replaces.
const EAGER_SAMPLE: u32 = 4;

struct Loaded {
    plan: Arc<CheckedPlan>,
    /// Plans of all buckets, ascending; the last is `plan`.
    family: Vec<Arc<CheckedPlan>>,
    model: PathBuf,
    tokenizer: Option<Tokenizer>,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    contradictions(args)?;
    soft::check(args)?;
    let faults = args.faults.as_deref().map(soft::script).transpose()?;
    // Inputs are judged before a device is opened, except that a model's default machine is the device's.
    let source = match input::kind(&args.model)? {
        Kind::Plan => None,
        Kind::Other => Some(input::open_model(&args.model)?),
        Kind::Tape => {
            let (path, takes) = (args.model.display().to_string(), "a model or a plan");
            return Err(CliError::Kind {
                path,
                found: "tape",
                takes,
            }
            .into());
        }
    };
    if args.device.device == DeviceSpec::Cpu {
        return cpu::run(args, source);
    }
    let credentials = super::prove::credentials(args.proof.as_deref(), args.allow_unproven)?;
    if args.verify || matches!(args.retain, Some(RetainArg::Whole | RetainArg::Segments)) {
        // A card that is named is not touched for what its packets could not change.
        let card = matches!(args.device.device, DeviceSpec::Rocm(_));
        presented(card, &credentials)?;
    }
    let opened = super::open_device(&args.device, args.strict)?;
    soft::arm(args, &opened, faults.as_ref())?;
    let loaded = load(args, source, &opened.device.info().target)?;
    let prompt = prompt(args, loaded.tokenizer.as_ref(), &loaded.plan)?;
    let source =
        FileSource::open(&loaded.model).with_context(|| loaded.model.display().to_string())?;
    let options = SessionOptions {
        // What is to be verified must be retained: falling back would verify nothing.
        retain: match (args.verify, args.retain) {
            (true, None) if loaded.plan.barriers().next().is_some() => Retain::Segments,
            (true, None) => Retain::Whole,
            (_, retain) => RetainArg::retain(retain),
        },
        transport: args.transport.transport(),
        in_flight: args.in_flight,
        ..SessionOptions::default()
    };
    let device = opened.clone();
    let (family, objects) = (&loaded.family, &EmbeddedObjects);
    let session = Session::family(opened, family, &source, objects, options, &credentials);
    let mut session = match session {
        Ok(session) => session,
        Err(error) => {
            if let (Format::Json, Some(refusal)) = (args.format, error.refusal()) {
                let report = report::refused(&loaded.plan, device.spec, &refusal);
                output::result(&(serde_json::to_string(&report)? + "\n"))?;
            }
            soft::injected(args, &device);
            soft::findings(args, &device)?;
            return Err(error.into());
        }
    };
    soft::declare(args, &session);
    if let Some(refusal) = session.refusal() {
        output::note(&format!("not replayed: {refusal}"));
    }
    decode(args, &loaded, &mut session, &prompt)
}

fn contradictions(args: &RunArgs) -> Result<(), CliError> {
    let text = match args {
        RunArgs {
            verify: true,
            retain: Some(RetainArg::None),
            ..
        } => "--verify compares eager and retained runs; leave out --retain none",
        RunArgs {
            verify: true,
            tokens: 0,
            ..
        } => "--verify with -n 0 would compare nothing; ask for at least one token",
        RunArgs {
            threads: Some(_),
            device,
            ..
        } if device.device != DeviceSpec::Cpu => "--threads is for --device cpu; leave it out",
        _ => return Ok(()),
    };
    Err(CliError::Usage(text.to_owned()))
}

fn decode(
    args: &RunArgs,
    loaded: &Loaded,
    session: &mut Session,
    prompt: &[u32],
) -> anyhow::Result<()> {
    let mut printer = Printer::new(args, loaded.tokenizer.as_ref(), session.cancel_handle());
    printer.prompt(args);
    let mut on_token = |token| printer.token(token);
    let generated = if args.verify {
        let result = session.verify(prompt, args.tokens, &mut on_token);
        result.map(|result| (result.generation.clone(), Some(result)))
    } else {
        let result = session.generate(prompt, args.tokens, &mut on_token);
        result.map(|generation| (generation, None))
    };
    if generated.is_err() {
        // What was found until then says why.
        soft::injected(args, session.opened());
        soft::findings(args, session.opened())?;
    }
    let (generation, verification) = generated?;
    let text = printer.finish()?;
    let state = match &verification {
        Some(_) => Some(hex(&refrain_recorder::state_digest(&session.snapshot()?))),
        None => None,
    };
    let counters = session.counters();
    // With steps of the host an eager token's calls wait for the GPU: there is no such figure.
    if counters.eager_host_us.is_none() && counters.barriers_per_token == 0 {
        session.sample_eager(prompt, EAGER_SAMPLE)?;
    }
    let compared = verification.as_ref().filter(|found| !found.cancelled);
    let verified = compared.map(Verification::verified);
    let outcome = Outcome {
        generation,
        text,
        verified,
        state,
    };
    let mut report = report::report(&loaded.plan, session, outcome);
    report.injected = soft::injected(args, session.opened());
    report.strict = soft::findings(args, session.opened())?;
    match args.format {
        Format::Json => output::result(&(serde_json::to_string(&report)? + "\n"))?,
        Format::Text => report::summary(&report),
    }
    require_replay(args, &report)?;
    judge(&report, verification)
}

/// Refuses a run that replayed less than was required.
fn require_replay(args: &RunArgs, report: &Report) -> Result<(), Refusal> {
    let (replayed, all) = (
        report.replayed_tokens,
        report.replayed_tokens + report.eager_tokens,
    );
    let found = 100.0 * replayed as f64 / all.max(1) as f64;
    match args.require_replay {
        Some(required) if found < required => {
            let text = format!(
                "replayed {replayed} of {all} tokens ({found:.1} %), {required} % are required"
            );
            Err(Refusal::new(Code::ReplayShare, text))
        }
        _ => Ok(()),
    }
}

/// What makes a finished run a failure.
fn judge(report: &Report, verification: Option<Verification>) -> anyhow::Result<()> {
    // A reader that left ended the run before it could be compared; that is no difference.
    let compared = verification.filter(|found| !found.cancelled);
    if let Some(found) = compared.filter(|found| !found.verified()) {
        let difference = found.difference.map(|difference| difference.to_string());
        let difference = difference.unwrap_or_else(|| "the tokens".to_owned());
        return Err(CliError::Differs(difference).into());
    }
    if let Some(found) = &report.strict
        && (!found.reports.is_empty() || found.dropped > 0)
    {
        let count = found.reports.len() as u64 + found.dropped;
        return Err(CliError::Reported { count }.into());
    }
    if report.stop == Some(StopReason::NotFinite.name()) {
        let tokens = report.tokens.len();
        return Err(CliError::NotFinite { tokens }.into());
    }
    Ok(())
}

fn load(
    args: &RunArgs,
    source: Option<ModelSource>,
    target: &str,
) -> anyhow::Result<Loaded> {
    let (plans, model) = match &source {
        None => {
            fixed_by_plan(&args.compile, &args.model)?;
            if !args.buckets.is_empty() {
                let path = args.model.display().to_string();
                let flag = "buckets";
                return Err(CliError::PlanFixes { path, flag }.into());
            }
            let plan = input::open_plan(&args.model)?;
            input::require_weights(&plan)?;
            let model = input::model_of(&plan, &args.model, args.model_file.as_deref())?;
            (vec![plan], model)
        }
        Some(source) => {
            let machine = super::profile(&args.compile, target)?;
            let options = super::compile_options(&args.compile)?;
            let plans = match &args.buckets[..] {
                [] => compile(source, &machine, &options).map(|plan| vec![plan]),
                buckets => compile_family(source, &machine, &options, buckets),
            };
            let plans = plans.with_context(|| args.model.display().to_string())?;
            (plans, args.model.clone())
        }
    };
    let source = match source {
        Some(source) => source,
        None => input::open_model(&model)?,
    };
    let family: Vec<Arc<CheckedPlan>> = plans.into_iter().map(Arc::new).collect();
    let plan = family.last().context("a family has a plan")?.clone();
    let tokenizer = tokenizer(&source, &plan, &model)?;
    Ok(Loaded {
        plan,
        family,
        model,
        tokenizer,
    })
}

pub(super) fn fixed_by_plan(compile: &CompileArgs, path: &Path) -> Result<(), CliError> {
    let flag = match compile {
        compile if compile.machine.is_some() => "machine",
        compile if compile.context.is_some() => "context",
        compile if compile.kv.is_some() => "kv",
        compile if compile.bucket.is_some() => "bucket",
        compile if !compile.no_fuse.is_empty() => "no-fuse",
        compile if compile.gpu_layers.is_some() => "gpu-layers",
        compile if compile.exec.is_some() => "exec",
        _ => return Ok(()),
    };
    Err(CliError::PlanFixes {
        path: path.display().to_string(),
        flag,
    })
}

fn tokenizer(
    source: &ModelSource,
    plan: &CheckedPlan,
    model: &Path,
) -> anyhow::Result<Option<Tokenizer>> {
    let shown = || model.display().to_string();
    let tokenizer = Tokenizer::from_metadata(source.metadata()).with_context(shown)?;
    if let Some(tokenizer) = &tokenizer {
        let rows = u64::from(plan.model.geometry.vocab);
        tokenizer.check_embedding_rows(rows).with_context(shown)?;
    }
    Ok(tokenizer)
}

fn prompt(
    args: &RunArgs,
    tokenizer: Option<&Tokenizer>,
    plan: &CheckedPlan,
) -> anyhow::Result<Vec<u32>> {
    let bad = |text: String| anyhow::Error::from(CliError::Prompt(text));
    let ids = match (&args.prompt_ids, &args.prompt, tokenizer) {
        (Some(ids), _, _) => ids.clone(),
        (None, Some(text), Some(tokenizer)) => {
            tokenizer.encode_prompt(text, SpecialTokens::AsText)?
        }
        (None, Some(_), None) => {
            return Err(bad(
                "this model has no tokenizer: give --prompt-ids 1,2,3".to_owned()
            ));
        }
        (None, None, _) => Vec::new(),
    };
    let (vocab, context) = (plan.model.geometry.vocab, plan.options.bucket);
    if ids.is_empty() {
        return Err(bad(
            "the prompt has no tokens: give at least one character".to_owned()
        ));
    }
    if let Some(at) = ids.iter().position(|&id| id >= vocab) {
        let id = ids[at];
        return Err(bad(format!(
            "prompt token {at} is {id}, the vocabulary has {vocab}: use ids below that"
        )));
    }
    if ids.len() as u64 > u64::from(context) {
        let len = ids.len();
        return Err(bad(format!(
            "the prompt has {len} tokens, the context holds {context}: shorten it or plan a longer context"
        )));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::judge;
    use super::report::tests::finished;
    use crate::exit::{Exit, code_of};
    use refrain_recorder::Difference;
    use refrain_replay::{Generation, Verification};

    fn verification(same_tokens: bool, difference: Option<Difference>) -> Verification {
        let generation = Generation {
            tokens: vec![1],
            stop: None,
        };
        Verification {
            generation,
            same_tokens,
            difference,
            cancelled: false,
        }
    }

    #[test]
    fn a_run_that_did_not_verify_is_a_failure_with_its_own_code() {
        let differs = Difference {
            buffer: "kv.k.0".into(),
            offset: 7,
            first: 1,
            second: 2,
        };
        let report = finished(None);
        assert!(judge(&report, None).is_ok());
        assert!(judge(&report, Some(verification(true, None))).is_ok());
        for found in [verification(false, None), verification(true, Some(differs))] {
            let error = judge(&report, Some(found)).unwrap_err();
            assert_eq!(code_of(&error), Exit::Differs);
        }
        assert_eq!(
            code_of(&judge(&finished(Some("not_finite")), None).unwrap_err()),
            Exit::Data
        );
    }
}
