//! `refrain bench`: opens plans and arms, runs the protocol here or in fresh processes, prints the
//! report, and turns its verdict into an exit code.

use super::subject::{self, Subject};
use crate::bench::args::{BenchArgs, BenchCommand, BenchFormat, BenchRunArgs};
use crate::bench::report::{
    ArmFacts, FailureKind, Metric, RefusedArm, Report, SCHEMA, Settings, Verdict,
};
use crate::bench::{amend, compare, facts, judge, plot, runner, table};
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use refrain_planner::durable;
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::arms::{ArmOptions, Arms, check_span};
use refrain_replay::refusal::Code;
use refrain_replay::{ArmKind, OpenedDevice, Refusal};
use std::ffi::OsString;
use std::path::Path;

/// Longest report that is read, bytes.
const REPORT_BYTES_MAX: u64 = 256 << 20;

pub(super) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    match &args.command {
        Some(BenchCommand::Diff {
            first,
            second,
            format,
        }) => diff(first, second, *format),
        Some(BenchCommand::Amend { report, note }) => {
            let text = amend::amend(&read_text(report)?, note, &facts::now());
            let text = text.with_context(|| report.display().to_string())?;
            durable::write(report, text.as_bytes())?;
            Ok(())
        }
        Some(BenchCommand::Show { report, format }) => {
            let mut report = read(report)?;
            judge::conclude(&mut report);
            print(&report, *format)?;
            judged(&report, None)
        }
        None => measure(&args.run),
    }
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = input::read_up_to(path, REPORT_BYTES_MAX)?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| {
        CliError::Kind {
            path: path.display().to_string(),
            found: "binary file",
            takes: "a report",
        }
        .into()
    })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    amend::read(&read_text(path)?).with_context(|| path.display().to_string())
}

fn diff(first: &Path, second: &Path, format: BenchFormat) -> anyhow::Result<()> {
    let found = compare::compare(&read(first)?, &read(second)?);
    if format == BenchFormat::Json {
        output::result(&(serde_json::to_string(&found)? + "\n"))?;
        return Ok(());
    }
    let mut text = format!("cause      {:?}\n", found.cause).to_lowercase();
    for row in &found.found {
        let class = format!("{:?}", row.cause).to_lowercase();
        text.push_str(&format!("{class:<10} {}\n", row.text));
    }
    for pair in &found.pairs {
        let [first, second] = pair.us;
        let apart = if pair.apart { "apart" } else { "not apart" };
        let ratio = first / second.max(f64::MIN_POSITIVE);
        text.push_str(&format!(
            "{:<10} at {}: {first:.2} and {second:.2} us/token, {ratio:.3}x, intervals {apart}\n",
            pair.arm, pair.context
        ));
    }
    output::result(&text)?;
    Ok(())
}

fn print(report: &Report, format: BenchFormat) -> anyhow::Result<()> {
    let text = match format {
        BenchFormat::Text => table::text(report),
        BenchFormat::Json => amend::write(report)?,
        BenchFormat::Md => table::markdown(report),
    };
    output::result(&text)?;
    Ok(())
}

/// The exit code's error for the gravest failure of a report.
fn judged(report: &Report, refused: Option<&Refusal>) -> anyhow::Result<()> {
    let Some(failure) = report.verdict.failures.first() else {
        return Ok(());
    };
    let text = failure.text.clone();
    Err(match failure.kind {
        FailureKind::State | FailureKind::Tokens => CliError::Differs(text).into(),
        FailureKind::Route | FailureKind::RetainedSlower => {
            let kind = failure.kind.name().to_owned();
            CliError::BenchInvalid { kind, text }.into()
        }
        FailureKind::Refused => match refused {
            Some(refusal) => refusal.clone().into(),
            None => Refusal::new(Code::ReplayShare, text).into(),
        },
        FailureKind::ReplayShare => Refusal::new(Code::ReplayShare, text).into(),
        FailureKind::NotStationary => CliError::NotStationary(text).into(),
        FailureKind::GateSkipped => return Ok(()),
    })
}

fn measure(args: &BenchRunArgs) -> anyhow::Result<()> {
    contradictions(args)?;
    for path in &args.models {
        subject::check(path)?;
    }
    for output in args.output.iter().chain(&args.svg) {
        let inputs: Vec<&Path> = args.models.iter().map(|path| &**path).collect();
        super::not_an_input(output, &inputs)?;
    }
    let (report, refused) = match args.fresh_process {
        1 => here(args, args.process_index.unwrap_or(0))?,
        _ => (in_processes(args)?, None),
    };
    if args.process_index.is_none() {
        if let Some(path) = &args.output {
            durable::write(path, amend::write(&report)?.as_bytes())?;
        }
        if let Some(path) = &args.svg {
            durable::write(path, plot::svg(&report).as_bytes())?;
        }
    }
    print(&report, args.format)?;
    judged(&report, refused.as_ref())
}

fn contradictions(args: &BenchRunArgs) -> Result<(), CliError> {
    let mut kinds = args.arms.clone();
    kinds.dedup();
    kinds.sort_by_key(|kind| *kind as usize);
    kinds.dedup();
    let text = if kinds.len() != args.arms.len() {
        "--arms names an arm twice"
    } else if kinds.iter().any(|kind| kind.row().retained) && !kinds.contains(&ArmKind::Eager) {
        // A retained form's speed is never stated alone.
        "--arms needs eager beside a retained arm"
    } else if args.model_file.is_some() && args.models.len() > 1 {
        "--model-file fits one plan; put the models beside several"
    } else if args.proof.is_some() && args.models.len() > 1 {
        "--proof fits one plan; run several one by one"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(text.to_owned()))
}

/// Runs everything in this process.
fn here(args: &BenchRunArgs, process: usize) -> anyhow::Result<(Report, Option<Refusal>)> {
    let opened = super::open_device(&args.device, None)?;
    let target = opened.device.info().target.clone();
    let mut subjects = Vec::new();
    for path in &args.models {
        let model_file = args.model_file.as_deref();
        subjects.push(subject::open(path, &args.compile, model_file, &target)?);
    }
    let settings = settings(args, &subjects, &opened)?;
    let prompts = prompts(&settings, &subjects);
    let mut report = empty(args, &subjects, settings, &opened);
    report.settings.prompt = facts::token_hash(&prompts.concat());
    let mut refused = None;
    let mut parts = Vec::new();
    for (plan, subject) in subjects.iter().enumerate() {
        let (part, refusal) = prepare(args, subject, plan, &opened, &mut report)?;
        refused = refused.or(refusal);
        parts.push(part);
    }
    report.machine.device = opened.spec.to_string();
    if report.arms.iter().any(|arm| arm.refused.is_none()) {
        let settings = &report.settings;
        let series = runner::run(&mut parts, settings, process, &prompts, &mut |text| {
            tracing::info!("{text}");
        })?;
        report.series = series;
    }
    judge::conclude(&mut report);
    Ok((report, refused))
}

fn settings(
    args: &BenchRunArgs,
    subjects: &[Subject],
    opened: &OpenedDevice,
) -> Result<Settings, Refusal> {
    let soft = opened.soft.is_some();
    let or = |given: Option<u32>, soft_value, value| {
        given.unwrap_or(if soft { soft_value } else { value })
    };
    let shortest = subjects.iter().map(|one| one.plan.options.bucket).min();
    let shortest = shortest.unwrap_or(0);
    let mut tokens = or(args.tokens, 32, 128);
    let contexts = match &args.contexts[..] {
        [] => vec![(shortest / 2).min(128)],
        given => given.to_vec(),
    };
    if args.tokens.is_none() {
        let last = contexts.iter().max().copied().unwrap_or(0);
        tokens = tokens.min(shortest.saturating_sub(last + 1)).max(1);
    }
    for subject in subjects {
        for context in &contexts {
            check_span(&subject.plan, *context, tokens)?;
        }
    }
    Ok(Settings {
        tokens,
        contexts,
        warmup: usize::from(args.warmup),
        rows: usize::from(args.rows),
        in_flight: or(args.in_flight, 1, 8),
        processes: 1,
        seed: args.bootstrap_seed,
        metric: if soft { Metric::Host } else { Metric::Wall },
        gate: (!args.skip_gate).then(|| args.gate.limits()),
        require_replay: args.require_replay,
        prompt: String::new(),
    })
}

/// Prompts that end at each context's first position, in the smallest vocabulary.
fn prompts(settings: &Settings, subjects: &[Subject]) -> Vec<Vec<u32>> {
    let vocabularies = subjects.iter().map(|one| one.plan.model.geometry.vocab);
    let vocab = vocabularies.min().unwrap_or(1);
    let contexts = settings.contexts.iter();
    contexts
        .map(|context| facts::prompt(context.saturating_add(1), vocab))
        .collect()
}

fn empty(
    args: &BenchRunArgs,
    subjects: &[Subject],
    settings: Settings,
    opened: &OpenedDevice,
) -> Report {
    let plans = args.models.iter().zip(subjects).enumerate();
    let plans = plans.map(|(index, (path, subject))| {
        let stem = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let stem = stem.unwrap_or_default();
        let same = args
            .models
            .iter()
            .filter(|other| other.file_stem() == path.file_stem());
        let label = match same.count() {
            1 => stem,
            _ => format!("{stem}#{index}"),
        };
        facts::plan(&label, &subject.plan, &settings.contexts)
    });
    Report {
        schema: SCHEMA.to_owned(),
        started: facts::now(),
        machine: facts::machine(opened),
        plans: plans.collect(),
        settings,
        arms: Vec::new(),
        series: Vec::new(),
        results: Vec::new(),
        verdict: Verdict::default(),
        amendments: Vec::new(),
    }
}

/// Makes the arms of one plan and enters them, refused ones too, into the report.
fn prepare(
    args: &BenchRunArgs,
    subject: &Subject,
    plan: usize,
    opened: &OpenedDevice,
    report: &mut Report,
) -> anyhow::Result<(runner::Subject, Option<Refusal>)> {
    let source = FileSource::open(&subject.model);
    let source = source.with_context(|| subject.model.display().to_string())?;
    let options = ArmOptions {
        in_flight: report.settings.in_flight,
        credentials: super::prove::credentials(args.proof.as_deref(), args.allow_unproven)?,
        ..ArmOptions::default()
    };
    let hosted = subject.plan.barriers().next().is_some();
    let kinds = match (&args.arms[..], hosted) {
        ([], false) => &[ArmKind::Eager, ArmKind::Graph, ArmKind::Aql, ArmKind::Pm4][..],
        ([], true) => &[ArmKind::Eager, ArmKind::Segments],
        (given, _) => given,
    };
    let objects = &EmbeddedObjects;
    let arms = Arms::new(
        opened.clone(),
        &subject.plan,
        &source,
        objects,
        kinds,
        options,
    )?;
    let mut indices = Vec::new();
    for &kind in kinds {
        let made = arms.arms().iter().find(|arm| arm.kind() == kind);
        let refused = arms.refused().iter().find(|row| row.0 == kind);
        if made.is_some() {
            indices.push(report.arms.len());
        }
        report.arms.push(ArmFacts {
            plan,
            kind: kind.row().name.to_owned(),
            retained: kind.row().retained,
            identity: made
                .map(|arm| arm.identity().to_owned())
                .unwrap_or_default(),
            dwords: made.map_or(0, |arm| arm.dwords()),
            proof: made.map_or("none".to_owned(), |arm| arm.standing().to_string()),
            refused: refused.map(|(_, refusal)| RefusedArm {
                code: refusal.code.to_string(),
                detail: refusal.detail.clone(),
            }),
        });
    }
    let refusal = arms.refused().first().map(|(_, refusal)| refusal.clone());
    Ok((runner::Subject { arms, indices }, refusal))
}

/// Runs this very command in fresh processes and puts their rows together.
fn in_processes(args: &BenchRunArgs) -> anyhow::Result<Report> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut whole: Option<Report> = None;
    for process in 0..usize::from(args.fresh_process) {
        let ran = std::process::Command::new(&program)
            .args(std::env::args_os().skip(1))
            .args(
                [
                    "--fresh-process",
                    "1",
                    "--format",
                    "json",
                    "--process-index",
                ]
                .map(OsString::from),
            )
            .arg(process.to_string())
            .output()
            .context("starting a fresh process")?;
        let text = String::from_utf8_lossy(&ran.stdout);
        let report = amend::read(&text).map_err(|_| CliError::Process {
            process,
            code: ran.status.code(),
            said: String::from_utf8_lossy(&ran.stderr).trim().to_owned(),
        })?;
        output::note(&format!(
            "process {process}: {} series",
            report.series.len()
        ));
        match &mut whole {
            None => whole = Some(report),
            Some(whole) => whole.series.extend(report.series),
        }
    }
    let mut report = whole.context("no process ran")?;
    report.settings.processes = usize::from(args.fresh_process);
    judge::conclude(&mut report);
    Ok(report)
}
