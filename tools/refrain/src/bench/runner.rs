//! Runs arms and fills a report: identity first, then warm-up, settling until stationary, measured
//! rows; arms interleaved forwards and backwards. What the rows mean is left to [`super::judge`].

use super::facts;
use super::gate::{Gate, Limits, Phase};
use super::order::round_order;
use super::report::{Metric, RouteFacts, Row, Series, Settings};
use super::stats::median;
use refrain_planner::identity::hex;
use refrain_recorder::{BufferState, first_difference};
use refrain_replay::SessionError;
use refrain_replay::arms::{Arms, Row as Timed};
use std::time::Duration;

/// What is run, and where an arm's rows go in the report.
pub struct Subject {
    /// The arms of one plan.
    pub arms: Arms,
    /// Report index of each arm, in the order of [`Arms::arms`].
    pub indices: Vec<usize>,
}

/// Rows of one arm while they are made.
struct Lane {
    subject: usize,
    /// Index in the subject's arms.
    arm: usize,
    series: Series,
    gate: Option<Gate>,
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}

/// A timed row as the report states it.
fn row(timed: Timed, round: usize, load: f64) -> Row {
    let host: Vec<f64> = timed.host.iter().map(|host| micros(*host)).collect();
    let observed = timed.observed;
    Row {
        round,
        wall_us: micros(timed.wall) / (timed.host.len().max(1) as f64),
        host_us: median(&host).unwrap_or(0.0),
        host_us_max: host.iter().copied().fold(0.0, f64::max),
        load,
        token_hash: facts::token_hash(&timed.tokens),
        route: RouteFacts {
            replays: observed.replays,
            other_replays: observed.other_replays,
            hip_launches: observed.hip_launches,
            graph_launches: observed.graph_launches,
            device_launches: observed.device_launches,
            indirect_buffers: observed.indirect_buffers,
            first_position: timed.first_position,
            last_position: timed.last_position,
            identity: timed.identity,
            arguments: timed.arguments.map(|digest| hex(&digest)),
        },
    }
}

/// Runs every arm at every context as process `process`; `say` hears what happens.
///
/// # Errors
/// [`SessionError`] of the first row that fails.
pub fn run(
    subjects: &mut [Subject],
    settings: &Settings,
    process: usize,
    prompts: &[Vec<u32>],
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Series>, SessionError> {
    let mut all = Vec::new();
    for (context, prompt) in settings.contexts.iter().zip(prompts) {
        for subject in subjects.iter_mut() {
            subject.arms.prefill(prompt)?;
        }
        let mut lanes = lanes(subjects, settings, *context, process);
        compare_states(subjects, &mut lanes, settings.tokens)?;
        let mut round = 0;
        for _ in 0..settings.warmup {
            play(subjects, &mut lanes, settings, &mut round, process, false)?;
        }
        if let Some(limits) = settings.gate {
            settle(subjects, &mut lanes, settings, limits, &mut round, process)?;
        }
        for _ in 0..settings.rows {
            play(subjects, &mut lanes, settings, &mut round, process, true)?;
        }
        for lane in lanes {
            let series = finish(lane, settings.metric);
            let settled = match series.settled {
                Some(true) => "settled",
                Some(false) => "not stationary",
                None => "gate skipped",
            };
            say(&format!(
                "arm {} at {context}: {} settling rows, {settled}",
                series.arm,
                series.settling.len()
            ));
            all.push(series);
        }
    }
    Ok(all)
}

fn lanes(subjects: &[Subject], settings: &Settings, context: u32, process: usize) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for (subject, part) in subjects.iter().enumerate() {
        for (arm, &index) in part.indices.iter().enumerate() {
            lanes.push(Lane {
                subject,
                arm,
                series: Series {
                    arm: index,
                    context,
                    process,
                    state_differs: None,
                    settling: Vec::new(),
                    settled: None,
                    unsettled: None,
                    rows: Vec::new(),
                },
                gate: settings.gate.map(Gate::new),
            });
        }
    }
    lanes
}

/// The bytes that each arm leaves against those of the plan's first, from scrubbed scratch.
fn compare_states(
    subjects: &mut [Subject],
    lanes: &mut [Lane],
    tokens: u32,
) -> Result<(), SessionError> {
    let mut first: Option<(usize, Vec<BufferState>)> = None;
    for lane in lanes {
        let Some(subject) = subjects.get_mut(lane.subject) else {
            continue;
        };
        subject.arms.scrub()?;
        subject.arms.row(lane.arm, tokens)?;
        let state = subject.arms.snapshot()?;
        match &first {
            Some((known, expected)) if *known == lane.subject => {
                let difference = first_difference(expected, &state);
                lane.series.state_differs = difference.map(|found| found.to_string());
            }
            _ => first = Some((lane.subject, state)),
        }
    }
    Ok(())
}

/// One round: each arm once.
fn play(
    subjects: &mut [Subject],
    lanes: &mut [Lane],
    settings: &Settings,
    round: &mut usize,
    process: usize,
    measured: bool,
) -> Result<(), SessionError> {
    for index in round_order(lanes.len(), *round, process) {
        let Some(lane) = lanes.get_mut(index) else {
            continue;
        };
        let Some(subject) = subjects.get_mut(lane.subject) else {
            continue;
        };
        let load = facts::load();
        let timed = subject.arms.row(lane.arm, settings.tokens)?;
        let made = row(timed, *round, load);
        match measured {
            true => lane.series.rows.push(made),
            false => lane.series.settling.push(made),
        }
    }
    *round += 1;
    Ok(())
}

/// Rounds until every arm has settled or one has reached the cap.
fn settle(
    subjects: &mut [Subject],
    lanes: &mut [Lane],
    settings: &Settings,
    limits: Limits,
    round: &mut usize,
    process: usize,
) -> Result<(), SessionError> {
    for _ in 0..limits.cap {
        let phases: Vec<Phase> = lanes
            .iter()
            .filter_map(|lane| lane.gate.as_ref().map(Gate::phase))
            .collect();
        let over = |phase: &Phase| matches!(phase, Phase::Settled | Phase::NotStationary(_));
        let hopeless = phases
            .iter()
            .any(|phase| matches!(phase, Phase::NotStationary(_)));
        if hopeless || phases.iter().all(over) {
            break;
        }
        play(subjects, lanes, settings, round, process, false)?;
        for lane in lanes.iter_mut() {
            let value = lane
                .series
                .settling
                .last()
                .map(|row| row.value(settings.metric));
            if let (Some(gate), Some(value)) = (&mut lane.gate, value) {
                gate.push(value);
            }
        }
    }
    Ok(())
}

fn finish(lane: Lane, metric: Metric) -> Series {
    let mut series = lane.series;
    if let Some(gate) = lane.gate {
        let values: Vec<f64> = series.rows.iter().map(|row| row.value(metric)).collect();
        series.settled = Some(gate.phase() == Phase::Settled);
        series.unsettled = gate.measured(&values).err();
    }
    series
}
