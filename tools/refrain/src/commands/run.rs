//! `refrain run`: plan, record, reconcile, lower, and decode a text.
//!
//! Text streams to stdout as it comes, the summary goes to stderr; with `--format json` one object
//! goes to stdout instead of both. Times of the software GPU are labelled and never a GPU's.

use crate::cli::{Format, RetainArg, RunArgs};
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use refrain_kernels::StopReason;
use refrain_planner::container::CheckedPlan;
use refrain_planner::gguf::GgufFile;
use refrain_planner::tokenizer::{SpecialTokens, StreamDecoder, Tokenizer};
use refrain_planner::{compile, identity::hex};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::{
    Counters, Generation, OpenedDevice, Route, Session, SessionOptions, Verification,
};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Eager tokens that are run to state the host time of the form that replay replaces.
const EAGER_SAMPLE: u32 = 4;

/// The JSON object of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Name and version of this object's shape.
    pub schema: &'static str,
    /// Generated token ids.
    pub tokens: Vec<u32>,
    /// Their text; null without a tokenizer.
    pub text: Option<String>,
    /// Why the text ended before the tokens asked for, if it did.
    pub stop: Option<&'static str>,
    /// Device, e.g. `soft:gfx1201`.
    pub device: String,
    /// `aql` or `pm4`; null where nothing was retained.
    pub transport: Option<String>,
    /// Digest of the plan file.
    pub plan_id: String,
    /// Structure and artifacts digest, short form.
    pub sequence_hash: String,
    /// Launches of one token.
    pub launches_per_token: usize,
    /// Distinct kernels.
    pub unique_kernels: usize,
    /// Dwords of one retained token.
    pub dwords: usize,
    /// Token steps replayed, prompt included.
    pub replayed_tokens: u64,
    /// Token steps run eagerly for the output, prompt included.
    pub eager_tokens: u64,
    /// Refusals by code.
    pub refusals: Vec<RefusalRow>,
    /// Whether eager and retained gave the same tokens and bytes; null if not asked.
    pub verified: Option<bool>,
    /// Host time per token.
    pub host_us_per_token: HostTimes,
    /// Generated tokens by wall time of the text, prompt included. On `soft:` a CPU's figure.
    pub tok_s: f64,
    /// Whether a proof covers the packets.
    pub proof: &'static str,
}

/// A refusal and how often.
#[derive(Debug, Serialize)]
pub struct RefusalRow {
    /// `RFxxx`.
    pub code: String,
    /// Times.
    pub count: u64,
}

/// Host microseconds per token, waits excluded.
#[derive(Debug, Serialize)]
pub struct HostTimes {
    /// One HIP launch per step.
    pub eager: Option<f64>,
    /// Pre-encoded packets.
    pub retained: Option<f64>,
}

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
    let source = if planned { None } else { Some(input::open_model(&args.model)?) };
    let opened = super::open_device(&args.device)?;
    let loaded = load(args, source, &opened)?;
    let prompt = prompt(args, loaded.tokenizer.as_ref(), &loaded.plan)?;
    let source = FileSource::open(&loaded.model).with_context(|| loaded.model.display().to_string())?;
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
    let mut verified = None;
    let mut difference = None;
    let generation = if args.verify && session.route() == Route::Retained {
        let result: Verification =
            session.verify(prompt, args.tokens, &mut |token| printer.token(token))?;
        verified = Some(result.verified());
        difference = (!result.verified()).then(|| match &result.difference {
            Some(found) => found.to_string(),
            None => "the tokens".to_owned(),
        });
        result.generation
    } else {
        session.generate(prompt, args.tokens, &mut |token| printer.token(token))?
    };
    let text = printer.finish()?;
    let counters = session.counters();
    let eager_us = match counters.eager_host_us {
        Some(us) => Some(us),
        None => Some(session.sample_eager(prompt, EAGER_SAMPLE)?),
    };
    let report = report(args, loaded, session, &counters, eager_us, generation, text, verified);
    match args.format {
        Format::Json => output::result(&(serde_json::to_string(&report)? + "\n"))?,
        Format::Text => summary(&report, &counters, session),
    }
    match difference {
        Some(found) => Err(CliError::Differs(found).into()),
        None => Ok(()),
    }
}

/// Streams text, or collects it for the JSON object.
struct Printer<'a> {
    decoder: Option<StreamDecoder<'a>>,
    text: String,
    stream: bool,
    error: Option<anyhow::Error>,
}

impl<'a> Printer<'a> {
    fn new(args: &RunArgs, tokenizer: Option<&'a Tokenizer>) -> Self {
        let decoder = tokenizer.map(StreamDecoder::new);
        Self { decoder, text: String::new(), stream: args.format == Format::Text, error: None }
    }

    fn say(&mut self, text: &str) {
        if self.stream
            && self.error.is_none()
            && let Err(error) = output::result(text)
        {
            self.error = Some(error.into());
        }
    }

    fn prompt(&mut self, args: &RunArgs) {
        if let Some(prompt) = &args.prompt {
            self.say(prompt);
        }
    }

    fn token(&mut self, token: u32) {
        let before = self.text.len();
        match &mut self.decoder {
            Some(decoder) => {
                if let Err(error) = decoder.push(token, &mut self.text) {
                    self.error.get_or_insert(error.into());
                }
            }
            None => {
                let separator = if self.text.is_empty() { "" } else { " " };
                self.text.push_str(&format!("{separator}{token}"));
            }
        }
        let new = self.text[before..].to_owned();
        self.say(&new);
    }

    /// The text; null without a tokenizer.
    fn finish(mut self) -> anyhow::Result<Option<String>> {
        let before = self.text.len();
        if let Some(decoder) = &mut self.decoder {
            decoder.finish(&mut self.text);
        }
        let rest = self.text[before..].to_owned() + "\n";
        self.say(&rest);
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.decoder.is_some().then_some(self.text)),
        }
    }
}

fn load(
    args: &RunArgs,
    source: Option<GgufFile>,
    opened: &OpenedDevice,
) -> anyhow::Result<Loaded> {
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
    Ok(Loaded { plan: Arc::new(plan), model, tokenizer })
}

fn fixed_by_plan(args: &RunArgs) -> Result<(), CliError> {
    let flag = match &args.compile {
        compile if compile.machine.is_some() => "machine",
        compile if compile.context.is_some() => "context",
        _ => return Ok(()),
    };
    Err(CliError::PlanFixes { path: args.model.display().to_string(), flag })
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
        (None, Some(text), Some(tokenizer)) => tokenizer.encode_prompt(text, SpecialTokens::AsText)?,
        (None, Some(_), None) => {
            return Err(bad("this model has no tokenizer: give --prompt-ids 1,2,3".to_owned()));
        }
        (None, None, _) => Vec::new(),
    };
    let (vocab, context) = (plan.model.geometry.vocab, plan.options.context);
    if ids.is_empty() {
        return Err(bad("the prompt has no tokens: give at least one character".to_owned()));
    }
    if let Some(at) = ids.iter().position(|&id| id >= vocab) {
        let id = ids[at];
        return Err(bad(format!("prompt token {at} is {id}, the vocabulary has {vocab}: use ids below that")));
    }
    if ids.len() as u64 > u64::from(context) {
        let len = ids.len();
        return Err(bad(format!(
            "the prompt has {len} tokens, the context holds {context}: shorten it or plan a longer context"
        )));
    }
    Ok(ids)
}

#[expect(clippy::too_many_arguments, reason = "one row per field of the report, all needed at once")]
fn report(
    args: &RunArgs,
    loaded: &Loaded,
    session: &Session,
    counters: &Counters,
    eager_us: Option<f64>,
    generation: Generation,
    text: Option<String>,
    verified: Option<bool>,
) -> Report {
    let refusals = counters.refusals.rows().iter();
    let seconds = counters.wall.as_secs_f64();
    let retained = session.route() == Route::Retained;
    Report {
        schema: "refrain.run.v1",
        tokens: generation.tokens,
        text,
        stop: generation.stop.map(StopReason::name),
        device: session.opened().spec.to_string(),
        transport: retained.then(|| args.transport.transport().to_string()),
        plan_id: hex(loaded.plan.id()),
        sequence_hash: loaded.plan.identity().sequence.to_string(),
        launches_per_token: counters.launches_per_token,
        unique_kernels: counters.unique_kernels,
        dwords: counters.dwords,
        replayed_tokens: counters.replayed_tokens,
        eager_tokens: counters.eager_tokens,
        refusals: refusals
            .map(|&(code, count)| RefusalRow { code: code.to_string(), count })
            .collect(),
        verified,
        host_us_per_token: HostTimes { eager: eager_us, retained: counters.retained_host_us },
        tok_s: if seconds > 0.0 { counters.generated as f64 / seconds } else { 0.0 },
        proof: "none",
    }
}

fn summary(report: &Report, counters: &Counters, session: &Session) {
    let soft = session.opened().soft.is_some();
    let transport = report.transport.as_deref().unwrap_or("none (eager)");
    let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.1}"));
    let of_all = counters.replayed_tokens + counters.eager_tokens;
    let speed = if soft { "software GPU on this CPU, not a GPU's speed" } else { "measured" };
    let verified = match report.verified {
        None => "not asked (--verify)",
        Some(true) => "yes: tokens and every buffer equal eager, byte for byte",
        Some(false) => "NO",
    };
    let refused: Vec<String> =
        report.refusals.iter().map(|row| format!("{} x{}", row.code, row.count)).collect();
    let lines = [
        format!("device      {}", report.device),
        format!("transport   {transport}, proof: {}", report.proof),
        format!("plan        {}", report.plan_id),
        format!("sequence    {}", report.sequence_hash),
        format!(
            "per token   {} launches, {} kernels, {} dwords",
            report.launches_per_token, report.unique_kernels, report.dwords
        ),
        format!("replayed    {} of {of_all} tokens (prompt included)", counters.replayed_tokens),
        format!(
            "host µs     {} eager, {} retained per token (calls only, no waiting)",
            us(report.host_us_per_token.eager),
            us(report.host_us_per_token.retained)
        ),
        format!("verified    {verified}"),
        format!("speed       {:.1} tokens/s ({speed})", report.tok_s),
        format!("stopped     {}", report.stop.unwrap_or("after the tokens asked for")),
        format!("refusals    {}", if refused.is_empty() { "none".into() } else { refused.join(", ") }),
    ];
    output::note(&lines.join("\n"));
}
