//! `refrain prove`: what must hold before a replay, shown on the software GPU and kept as a file.

use crate::cli::{Format, ProveArgs};
use crate::exit::CliError;
use crate::input::{self, Kind};
use crate::output;
use anyhow::Context;
use refrain_planner::container::CheckedPlan;
use refrain_planner::{compile, durable};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::prove::{
    Credentials, PROOF_BYTES_MAX, Proof, ProveOptions, Proved, Slack, Tally, prove,
};
use refrain_replay::{DeviceSpec, Transport};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) fn run(args: &ProveArgs) -> anyhow::Result<()> {
    let (plan, model) = subject(args)?;
    if let Some(output) = &args.output {
        super::not_an_input(output, &[&args.model, &model])?;
    }
    let source = FileSource::open(&model).with_context(|| model.display().to_string())?;
    let options = ProveOptions {
        transports: match args.transport {
            None => Transport::ALL.to_vec(),
            Some(transport) => vec![transport.transport()],
        },
        seeds: args.seeds,
        sample: args.sample,
        ..ProveOptions::default()
    };
    let proved = prove(&Arc::new(plan), &source, &EmbeddedObjects, &options)?;
    let bytes = proved.proof.to_bytes();
    if let Some(output) = &args.output {
        durable::write(output, &bytes)?;
    }
    match args.format {
        Format::Json => output::result(&String::from_utf8_lossy(&bytes))?,
        Format::Text => output::result(&in_words(&proved)?)?,
    }
    Ok(())
}

/// The plan and its model. A proof is of one plan for one target: a device that names another is a
/// contradiction, and a card cannot make one.
fn subject(args: &ProveArgs) -> anyhow::Result<(CheckedPlan, PathBuf)> {
    let target = match args.device {
        None => None,
        Some(DeviceSpec::Soft(target)) => Some(target),
        Some(other) => {
            let text =
                format!("a proof is made on the software GPU, not on {other}: give soft:gfxNNNN");
            return Err(CliError::Usage(text).into());
        }
    };
    let (plan, model) = match input::kind(&args.model)? {
        Kind::Plan => {
            let plan = input::open_plan(&args.model)?;
            input::require_weights(&plan)?;
            let model = input::model_of(&plan, &args.model, args.model_file.as_deref())?;
            (plan, model)
        }
        Kind::Other => {
            let source = input::open_model(&args.model)?;
            let default = target.unwrap_or(DeviceSpec::DEFAULT_SOFT);
            let machine = super::profile(&args.compile, default.name())?;
            let plan = compile(&source, &machine, &super::compile_options(&args.compile)?);
            let plan = plan.with_context(|| args.model.display().to_string())?;
            (plan, args.model.clone())
        }
        Kind::Tape => {
            let (path, takes) = (args.model.display().to_string(), "a model or a plan");
            let found = "tape";
            return Err(CliError::Kind { path, found, takes }.into());
        }
    };
    let planned = plan.machine.target.as_str();
    if let Some(given) = target.filter(|given| given.name() != planned) {
        let shown = args.model.display();
        let text = format!(
            "{shown} is planned for {planned}, --device says soft:{given}: leave --device out"
        );
        return Err(CliError::Usage(text).into());
    }
    Ok((plan, model))
}

/// Reads the proof that a command was given.
pub(super) fn credentials(
    proof: Option<&Path>,
    allow_unproven: bool,
) -> anyhow::Result<Credentials> {
    let read = |path: &Path| {
        let bytes = input::read_up_to(path, PROOF_BYTES_MAX)?;
        let proof = Proof::from_bytes(&bytes);
        proof.with_context(|| path.display().to_string())
    };
    Ok(Credentials {
        proof: proof.map(read).transpose()?,
        allow_unproven,
    })
}

fn in_words(proved: &Proved) -> anyhow::Result<String> {
    let (proof, mut text) = (&proved.proof, String::new());
    let positions: Vec<String> = proof.positions.iter().map(u32::to_string).collect();
    writeln!(
        text,
        "proved      {}, on the software GPU in strict mode",
        proof.target
    )?;
    writeln!(text, "plan        {}", proof.plan)?;
    writeln!(
        text,
        "executed    {} token steps ({} launches) at positions {}, {} seeds: no report",
        proof.token_steps,
        proof.launches,
        positions.join(", "),
        proof.seeds.len()
    )?;
    writeln!(
        text,
        "compared    {} states of every buffer: eager, recorded launches again and each form agree",
        proof.states_compared
    )?;
    writeln!(
        text,
        "scratch     filled between tokens: nothing that is kept changes"
    )?;
    for row in &proof.slack {
        writeln!(text, "{}", slack(row))?;
    }
    for form in &proof.forms {
        writeln!(
            text,
            "{}         {} dwords, encoding {}",
            form.transport, form.dwords, form.encoding
        )?;
        for (part, tally) in &form.omissions {
            writeln!(text, "  {part:<10}{}", tally_in_words(tally))?;
            for place in &tally.redundant {
                writeln!(text, "    not needed: {place}: the schedule is too strong")?;
            }
        }
        let executed = &form.executed;
        writeln!(
            text,
            "  executed  {} of these: {} noticed, {} change nothing as judged, {} only a rule sees",
            executed.tried, executed.noticed, executed.silent, executed.rule_only
        )?;
    }
    writeln!(
        text,
        "took        {:.1} s executing, {:.1} s leaving things out",
        proved.executing.as_secs_f64(),
        proved.omitting.as_secs_f64()
    )?;
    Ok(text)
}

fn slack(row: &Slack) -> String {
    let share = |over: u64, all: u64| over as f64 * 100.0 / all.max(1) as f64;
    let widest = match &row.widest {
        Some((step, bytes)) => format!(", most in {step} ({bytes} bytes)"),
        None => String::new(),
    };
    format!(
        "slack       position {}: {:.2} % of declared reads and {:.2} % of declared writes not touched{widest}",
        row.position,
        share(row.unread, row.declared_reads),
        share(row.unwritten, row.declared_writes)
    )
}

fn tally_in_words(tally: &Tally) -> String {
    let rules: Vec<String> = tally
        .rules
        .iter()
        .map(|(rule, count)| format!("{rule} {count}"))
        .collect();
    let mut text = format!(
        "{} left out: {} caught ({} by the trace, {} by a rule alone, {} by execution alone)",
        tally.tried,
        tally.caught(),
        tally.by_trace,
        tally.by_rule,
        tally.by_execution
    );
    if tally.repeated + tally.unseen > 0 {
        text += &format!(
            ", {} repeat what is there, {} no dispatch sees",
            tally.repeated, tally.unseen
        );
    }
    if !rules.is_empty() {
        text += &format!("; rules: {}", rules.join(", "));
    }
    text
}
