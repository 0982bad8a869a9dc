//! `refrain run`: plan, record, reconcile, lower, and decode a text.
//!
//! Text streams to stdout as it comes, the summary goes to stderr; with `--format json` one object
//! goes to stdout instead of both. Times of the software GPU are labelled and never a GPU's.

mod printer;
mod report;

use crate::cli::{Format, RetainArg, RunArgs};
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use printer::Printer;
use refrain_planner::container::CheckedPlan;
use refrain_planner::gguf::GgufFile;
use refrain_planner::tokenizer::{SpecialTokens, Tokenizer};
use refrain_planner::{compile, identity::hex};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::{OpenedDevice, Route, Session, SessionOptions, Verification};
use report::Outcome;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Eager tokens that are run to state the host time of the form that replay replaces.
const EAGER_SAMPLE: u32 = 4;

struct Loaded {
    plan: Arc<CheckedPlan>,
    model: PathBuf,
    tokenizer: Option<Tokenizer>,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<()> {
    if args.verify && args.retain == Some(RetainArg::None) {
        let text = "--verify compares eager and retained runs; leave out --retain none";
        return Err(CliError::Usage(text.to_owned()).into());
    }
    // Inputs are judged before a device is opened, except that a model's default machine is the device's.
    let planned = input::is_plan(&args.model)?;
    let source = if planned {
        None
    } else {
        Some(input::open_model(&args.model)?)
    };
    let opened = super::open_device(&args.device)?;
    let loaded = load(args, source, &opened)?;
    let prompt = prompt(args, loaded.tokenizer.as_ref(), &loaded.plan)?;
    let source =
        FileSource::open(&loaded.model).with_context(|| loaded.model.display().to_string())?;
    let options = SessionOptions {
        retain: RetainArg::retain(args.retain),
        transport: args.transport.transport(),
        in_flight: args.in_flight,
        ..SessionOptions::default()
    };
    let mut session = Session::new(opened, &loaded.plan, &source, &EmbeddedObjects, options)?;
    if let Some(refusal) = session.refusal() {
        output::note(&format!("not replayed: {refusal}"));
    }
    decode(args, &loaded, &mut session, &prompt)
}

fn decode(
    args: &RunArgs,
    loaded: &Loaded,
    session: &mut Session,
    prompt: &[u32],
) -> anyhow::Result<()> {
    let mut printer = Printer::new(args, loaded.tokenizer.as_ref());
    printer.prompt(args);
    let verify = args.verify && session.route() == Route::Retained;
    let mut on_token = |token| printer.token(token);
    let (generation, verification) = if verify {
        let result = session.verify(prompt, args.tokens, &mut on_token)?;
        (result.generation.clone(), Some(result))
    } else {
        (session.generate(prompt, args.tokens, &mut on_token)?, None)
    };
    let text = printer.finish()?;
    let state = match &verification {
        Some(_) => Some(hex(&refrain_recorder::state_digest(&session.snapshot()?))),
        None => None,
    };
    if session.counters().eager_host_us.is_none() {
        session.sample_eager(prompt, EAGER_SAMPLE)?;
    }
    let verified = verification.as_ref().map(Verification::verified);
    let report = report::report(
        &loaded.plan,
        session,
        Outcome {
            generation,
            text,
            verified,
            state,
        },
    );
    match args.format {
        Format::Json => output::result(&(serde_json::to_string(&report)? + "\n"))?,
        Format::Text => report::summary(&report),
    }
    match verification {
        Some(found) if !found.verified() => {
            let difference = found.difference.map(|difference| difference.to_string());
            Err(CliError::Differs(difference.unwrap_or_else(|| "the tokens".to_owned())).into())
        }
        _ => Ok(()),
    }
}

fn load(args: &RunArgs, source: Option<GgufFile>, opened: &OpenedDevice) -> anyhow::Result<Loaded> {
    let (plan, model) = match &source {
        None => {
            fixed_by_plan(args)?;
            let plan = input::open_plan(&args.model)?;
            let model = input::model_of(&plan, &args.model, args.model_file.as_deref())?;
            (plan, model)
        }
        Some(source) => {
            let machine = super::machine(&args.compile, &opened.device.info().target)?;
            let plan = compile(source, &machine, &super::compile_options(&args.compile))
                .with_context(|| args.model.display().to_string())?;
            (plan, args.model.clone())
        }
    };
    let source = match source {
        Some(source) => source,
        None => input::open_model(&model)?,
    };
    let tokenizer = tokenizer(&source, &plan, &model)?;
    Ok(Loaded {
        plan: Arc::new(plan),
        model,
        tokenizer,
    })
}

fn fixed_by_plan(args: &RunArgs) -> Result<(), CliError> {
    let flag = match &args.compile {
        compile if compile.machine.is_some() => "machine",
        compile if compile.context.is_some() => "context",
        _ => return Ok(()),
    };
    Err(CliError::PlanFixes {
        path: args.model.display().to_string(),
        flag,
    })
}

fn tokenizer(
    source: &GgufFile,
    plan: &CheckedPlan,
    model: &Path,
) -> anyhow::Result<Option<Tokenizer>> {
    let shown = || model.display().to_string();
    let tokenizer = Tokenizer::from_gguf(source.header()).with_context(shown)?;
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
    let (vocab, context) = (plan.model.geometry.vocab, plan.options.context);
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
