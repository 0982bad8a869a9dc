//! `refrain trace`: one token on a software GPU as a trace that Chrome and Perfetto open.
//!
//! The host's lane is measured. The other lanes are order and not time: a software GPU has no times
//! to show, so launches between two waits stand side by side, one unit long each. Footprints are the
//! exact bytes that strict mode saw.

use super::subject;
use crate::bench::args::TraceArgs;
use crate::bench::facts;
use crate::exit::CliError;
use crate::output;
use anyhow::Context;
use refrain_planner::container::CheckedPlan;
use refrain_planner::durable;
use refrain_planner::plan::{Hazard, Invalidate, Wait};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::arms::{ArmOptions, Arms};
use refrain_replay::strict::{Footprint, StrictConfig, declarations};
use refrain_replay::{ArmKind, DeviceSpec, OpenedDevice, SoftOptions, Transport};
use serde_json::{Value, json};
use std::time::Duration;

/// Extents listed per launch and direction; more are summed only.
const EXTENTS: usize = 32;
/// Lanes of the trace: process ids and names.
const HOST: u32 = 1;
const QUEUE: u32 = 2;
const LAUNCHES: u32 = 3;

pub(super) fn run(args: &TraceArgs) -> anyhow::Result<()> {
    subject::check(&args.model)?;
    if let Some(output) = &args.output {
        super::not_an_input(output, &[&args.model])?;
    }
    let opened = open(args)?;
    let target = opened.device.info().target.clone();
    let model_file = args.model_file.as_deref();
    let subject = subject::open(&args.model, &args.compile, model_file, &target)?;
    refrain_replay::arms::check_span(&subject.plan, args.position, 1)?;
    let traced = token(args, &subject, &opened)?;
    let text = serde_json::to_string(&trace(&subject.plan, args, &traced))? + "\n";
    match &args.output {
        Some(path) => durable::write(path, text.as_bytes())?,
        None => output::result(&text)?,
    }
    Ok(())
}

fn open(args: &TraceArgs) -> anyhow::Result<OpenedDevice> {
    let spec = match args.device.device {
        DeviceSpec::Soft(target) => DeviceSpec::Soft(target),
        DeviceSpec::Auto => DeviceSpec::Soft(DeviceSpec::DEFAULT_SOFT),
        DeviceSpec::Rocm(_) | DeviceSpec::Cpu => {
            let text = "footprints need the software GPU's strict mode: give --device soft:gfxNNNN";
            return Err(CliError::Usage(text.to_owned()).into());
        }
    };
    let strict = StrictConfig {
        footprints: 1 << 16,
        ..StrictConfig::default()
    };
    let soft = SoftOptions {
        seed: args.device.seed,
        threads: None,
        strict: Some(strict),
    };
    OpenedDevice::open(spec, soft).with_context(|| format!("device {spec}"))
}

/// What was seen of one token.
struct Traced {
    /// Host path of each arm.
    host: Vec<(&'static str, Duration)>,
    footprints: Vec<Footprint>,
    packets: usize,
    tokens: Vec<u32>,
    reports: usize,
}

fn token(
    args: &TraceArgs,
    subject: &subject::Subject,
    opened: &OpenedDevice,
) -> anyhow::Result<Traced> {
    let retained = match args.transport.transport() {
        Transport::Aql => ArmKind::Aql,
        Transport::Pm4 => ArmKind::Pm4,
    };
    let kinds = [ArmKind::Eager, retained];
    let source = FileSource::open(&subject.model);
    let source = source.with_context(|| subject.model.display().to_string())?;
    let (plan, options) = (&subject.plan, ArmOptions::default());
    let made = Arms::new(
        opened.clone(),
        plan,
        &source,
        &EmbeddedObjects,
        &kinds,
        options,
    );
    let mut arms = made?;
    if let Some((_, refusal)) = arms.refused().first() {
        return Err(refusal.clone().into());
    }
    let soft = opened.soft.as_ref();
    if let Some(soft) = soft {
        soft.declare(declarations(arms.instance()));
    }
    let vocab = plan.model.geometry.vocab;
    arms.prefill(&facts::prompt(args.position + 1, vocab))?;
    let mut traced = Traced {
        host: Vec::new(),
        footprints: Vec::new(),
        packets: match retained {
            ArmKind::Aql => plan.launches().count(),
            _ => 1,
        },
        tokens: Vec::new(),
        reports: 0,
    };
    for (index, kind) in kinds.into_iter().enumerate() {
        if let Some(soft) = soft {
            soft.take_footprints();
            soft.take_reports();
        }
        let row = arms.row(index, 1)?;
        traced
            .host
            .extend(row.host.first().map(|host| (kind.row().name, *host)));
        traced.tokens = row.tokens;
        if let Some(soft) = soft {
            traced.footprints = soft.take_footprints();
            traced.reports = soft.take_reports().reports.len();
        }
    }
    Ok(traced)
}

fn name(process: u32, thread: Option<usize>, text: &str) -> Value {
    let what = if thread.is_some() {
        "thread_name"
    } else {
        "process_name"
    };
    json!({"ph": "M", "pid": process, "tid": thread.unwrap_or(0), "name": what, "args": {"name": text}})
}

/// What the footprint of a step says, in bytes.
fn bytes(footprint: Option<&Footprint>) -> (u64, u64, Value) {
    let Some(footprint) = footprint else {
        return (0, 0, Value::Null);
    };
    let list = |extents: &[refrain_softgpu::strict::FootprintExtent]| -> Vec<String> {
        let rows = extents.iter().take(EXTENTS);
        rows.map(|row| format!("{} +{:#x} {}", row.buffer, row.offset, row.len))
            .collect()
    };
    let sum = |extents: &[refrain_softgpu::strict::FootprintExtent]| {
        extents.iter().map(|row| row.len).sum::<u64>()
    };
    let (reads, writes) = (&footprint.reads, &footprint.writes);
    let value = json!({
        "read_bytes": sum(reads), "written_bytes": sum(writes),
        "reads": list(reads), "writes": list(writes),
        "extents": [reads.len(), writes.len()],
        "packet": footprint.packet, "dword": footprint.dword,
    });
    (sum(reads), sum(writes), value)
}

const fn hazard(hazard: Hazard) -> &'static str {
    match hazard {
        Hazard::Raw => "read after write",
        Hazard::War => "write after read",
        Hazard::Waw => "write after write",
    }
}

/// The reason of a wait in words and the step that it waits for.
fn reason(plan: &CheckedPlan, wait: &Wait) -> (String, Option<usize>) {
    let Some(edge) = plan.schedule.edges.get(wait.because as usize) else {
        return (String::new(), None);
    };
    let step = plan
        .steps
        .get(edge.from as usize)
        .map_or("", |step| &step.name);
    let buffer = plan
        .buffers
        .get(edge.buffer as usize)
        .map_or("", |buffer| &buffer.name);
    let text = format!("{} of {buffer} by {step}", hazard(edge.hazard));
    (text, Some(edge.from as usize))
}

fn trace(plan: &CheckedPlan, args: &TraceArgs, traced: &Traced) -> Value {
    let mut events = vec![
        name(HOST, None, "host path, measured"),
        name(QUEUE, None, "queue: packets and waits, order and not time"),
        name(LAUNCHES, None, "launches: order and not time"),
        name(QUEUE, Some(0), "packets"),
        name(QUEUE, Some(1), "waits"),
    ];
    for (thread, (arm, host)) in traced.host.iter().enumerate() {
        events.push(name(HOST, Some(thread), arm));
        events.push(json!({
            "ph": "X", "pid": HOST, "tid": thread, "name": format!("submit, {arm}"), "ts": 0.0,
            "dur": host.as_nanos() as f64 / 1e3,
        }));
    }
    let end = launches(plan, traced, &mut events);
    let count = traced.packets.max(1) as u64;
    for packet in 0..count {
        let (from, to) = (packet * end / count, (packet + 1) * end / count);
        events.push(json!({
            "ph": "X", "pid": QUEUE, "tid": 0, "name": format!("packet {packet}"),
            "ts": from, "dur": to.saturating_sub(from).max(1),
        }));
    }
    json!({
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "schema": "refrain.trace.v1",
            "plan_id": refrain_planner::identity::hex(plan.id()),
            "sequence_hash": plan.identity().sequence.to_string(),
            "transport": args.transport.transport().to_string(),
            "position": args.position,
            "token": traced.tokens.first(),
            "launches": plan.launches().count(),
            "waits": plan.schedule.waits.len(),
            "footprints": traced.footprints.len(),
            "hazards": traced.reports,
            "times": "the host's lane is measured on this CPU; all other lanes are order, one unit per launch",
        },
    })
}

/// Launches by runs between waits, each run one unit after the other; returns the end.
fn launches(plan: &CheckedPlan, traced: &Traced, events: &mut Vec<Value>) -> u64 {
    let mut waits = plan.schedule.waits.iter().peekable();
    let (mut at, mut lane, mut lanes) = (0u64, 0usize, 0usize);
    let (mut read, mut written) = (0, 0);
    let mut started: Vec<(u64, usize)> = Vec::new();
    let footprint = |step: &str| {
        let mut rows = traced.footprints.iter();
        rows.find(|row| row.step.as_deref() == Some(step))
    };
    for (index, step) in plan.steps.iter().enumerate() {
        if let Some(wait) = waits.next_if(|wait| wait.before as usize == index) {
            at += 1;
            lane = 0;
            let (because, from) = reason(plan, wait);
            let invalidates = wait.invalidate == Invalidate::Agent;
            events.push(json!({
                "ph": "X", "pid": QUEUE, "tid": 1, "name": "wait", "ts": at, "dur": 1,
                "args": {"before": step.name, "because": because, "invalidates": invalidates},
            }));
            let flow = from.and_then(|from| started.get(from));
            if let Some((start, thread)) = flow {
                events.push(json!({"ph": "s", "id": index, "cat": "wait", "name": "waits for", "pid": LAUNCHES, "tid": thread, "ts": start}));
                events.push(json!({"ph": "f", "bp": "e", "id": index, "cat": "wait", "name": "waits for", "pid": LAUNCHES, "tid": 0, "ts": at + 1}));
            }
            at += 1;
        }
        let (reads, writes, args) = bytes(footprint(&step.name));
        (read, written) = (read + reads, written + writes);
        let launches = step.body.launches();
        let kernel = launches
            .first()
            .and_then(|launch| plan.kernels.get(launch.kernel as usize));
        let grid = launches.first().map(|launch| launch.grid);
        events.push(json!({
            "ph": "X", "pid": LAUNCHES, "tid": lane, "name": step.name, "ts": at, "dur": 1,
            "args": {"kernel": kernel.map(|kernel| &kernel.symbol), "grid": grid, "layer": step.layer, "footprint": args},
        }));
        events.push(json!({
            "ph": "C", "pid": LAUNCHES, "name": "bytes so far", "ts": at,
            "args": {"read": read, "written": written},
        }));
        started.push((at, lane));
        lane += 1;
        lanes = lanes.max(lane);
    }
    events.extend((0..lanes).map(|lane| name(LAUNCHES, Some(lane), &format!("beside {lane}"))));
    at + 1
}
