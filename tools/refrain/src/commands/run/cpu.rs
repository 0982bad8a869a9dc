//! `refrain run --device cpu`: the same plan, executed on this machine's CPU.

use super::printer::Printer;
use super::report::{self, Outcome};
use super::{judge, load, prompt};
use crate::cli::{Format, RetainArg, RunArgs};
use crate::output;
use anyhow::Context;
use refrain_planner::ModelSource;
use refrain_recorder::FileSource;
use refrain_replay::{CpuSession, DeviceSpec, Refusal, cpu};

/// What the flags ask of a command processor.
fn refused(args: &RunArgs) -> Option<Refusal> {
    let asked = match args {
        RunArgs { verify: true, .. } => "--verify compares with a retained form",
        RunArgs { proof: Some(_), .. } => "--proof is of a retained form",
        RunArgs { retain, .. } if !matches!(retain, None | Some(RetainArg::None)) => {
            "--retain asks for a retained form"
        }
        _ => return None,
    };
    Some(cpu::refuse(asked))
}

pub(super) fn run(args: &RunArgs, source: Option<ModelSource>) -> anyhow::Result<()> {
    if let Some(refusal) = refused(args) {
        return Err(refusal.into());
    }
    let loaded = load(args, source, DeviceSpec::DEFAULT_SOFT.name())?;
    let prompt = prompt(args, loaded.tokenizer.as_ref(), &loaded.plan)?;
    let source =
        FileSource::open(&loaded.model).with_context(|| loaded.model.display().to_string())?;
    let threads = args.threads.map_or(1, usize::from);
    let mut session = CpuSession::new(&loaded.plan, &source, threads)?;
    let mut printer = Printer::new(args, loaded.tokenizer.as_ref(), session.cancel_handle());
    printer.prompt(args);
    let mut on_token = |token| printer.token(token);
    let generation = session.generate(&prompt, args.tokens, &mut on_token)?;
    let outcome = Outcome {
        generation,
        text: printer.finish()?,
        verified: None,
        state: None,
    };
    let report = report::of_cpu(&loaded.plan, &session, outcome);
    match args.format {
        Format::Json => output::result(&(serde_json::to_string(&report)? + "\n"))?,
        Format::Text => report::summary_of_cpu(&report),
    }
    judge(&report, None)
}
