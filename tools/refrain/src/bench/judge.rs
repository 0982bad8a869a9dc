//! What a report's rows prove and what they say, as pure functions of the report.
//!
//! Order of judgement: bytes and tokens, then route, then share of replays, then stationarity, and
//! only then speed. A row that took another way than its arm is named for proves nothing about the
//! arm, however fast it was.

use super::report::{
    ArmFacts, Failure, FailureKind, Metric, Outcome, PlanFacts, Ratio, Report, RouteFacts, Row,
    Series, Verdict,
};
use super::stats::{bootstrap, median, outliers, paired_ratios};
use refrain_replay::ArmKind;

/// Computes results and verdict anew from arms, series and settings.
pub fn conclude(report: &mut Report) {
    report.results = results(report);
    report.verdict = verdict(report);
}

/// Name of an arm in messages: its kind, and the plan where there are several.
pub fn name(report: &Report, arm: usize) -> String {
    let Some(facts) = report.arms.get(arm) else {
        return format!("arm {arm}");
    };
    match (report.plans.len(), report.plans.get(facts.plan)) {
        (2.., Some(plan)) => format!("{} {}", plan.label, facts.kind),
        _ => facts.kind.clone(),
    }
}

fn verdict(report: &Report) -> Verdict {
    let mut failures = Vec::new();
    states(report, &mut failures);
    tokens(report, &mut failures);
    routes(report, &mut failures);
    refusals(report, &mut failures);
    stationarity(report, &mut failures);
    speeds(report, &mut failures);
    failures.sort_by_key(|failure| failure.kind);
    Verdict {
        valid: failures.is_empty(),
        failures,
    }
}

fn fail(failures: &mut Vec<Failure>, kind: FailureKind, text: String) {
    failures.push(Failure { kind, text });
}

fn states(report: &Report, failures: &mut Vec<Failure>) {
    for series in &report.series {
        if let Some(difference) = &series.state_differs {
            let arm = name(report, series.arm);
            let text = format!("{arm} at {}: {difference}", series.context);
            fail(failures, FailureKind::State, text);
        }
    }
}

fn all_rows(series: &Series) -> impl Iterator<Item = &Row> {
    series.settling.iter().chain(&series.rows)
}

/// What rows of equal model and cache type must agree in.
fn numbers<'a>(report: &'a Report, series: &Series) -> Option<(&'a str, &'a str, u32)> {
    let arm = report.arms.get(series.arm)?;
    let plan = report.plans.get(arm.plan)?;
    Some((&plan.model, &plan.kv, series.context))
}

/// The first row with some numbers.
struct Known<'a> {
    key: (&'a str, &'a str, u32),
    hash: &'a str,
    place: String,
}

fn tokens(report: &Report, failures: &mut Vec<Failure>) {
    let mut known: Vec<Known<'_>> = Vec::new();
    for series in &report.series {
        let Some(key) = numbers(report, series) else {
            continue;
        };
        for row in all_rows(series) {
            let here = format!(
                "{} at {}, process {}, round {}",
                name(report, series.arm),
                series.context,
                series.process,
                row.round
            );
            let (hash, first) = (&row.token_hash, known.iter().find(|one| one.key == key));
            match first {
                None => known.push(Known {
                    key,
                    hash,
                    place: here,
                }),
                Some(one) if one.hash == hash => {}
                Some(one) => {
                    let text = format!("{here}: tokens {hash}, but {} {}", one.hash, one.place);
                    fail(failures, FailureKind::Tokens, text);
                    // One odd row says it; all raw rows are in the report.
                    break;
                }
            }
        }
    }
}

/// What a row of an arm must have counted.
///
/// # Errors
/// What differs, with both values.
pub fn check_route(
    kind: ArmKind,
    plan: &PlanFacts,
    tokens: u32,
    context: u32,
    route: &RouteFacts,
) -> Result<(), String> {
    let count = u64::from(tokens);
    let all = count.saturating_mul(plan.launches as u64);
    let row = kind.row();
    let buffers = match kind {
        ArmKind::Pm4 => count,
        ArmKind::Segments => count.saturating_mul(plan.runs as u64),
        ArmKind::Eager | ArmKind::Graph | ArmKind::Aql => 0,
    };
    let own = row.transport.is_some();
    let eagerly = row.retained && route.hip_launches == all && route.replays == 0;
    if eagerly && route.graph_launches == 0 {
        return Err(format!(
            "every token was executed eagerly: {all} HIP launches, no replay"
        ));
    }
    let expected = |when: bool, value: u64| if when { value } else { 0 };
    let rows = [
        ("replays", route.replays, expected(own, count)),
        ("replays of other arms", route.other_replays, 0),
        (
            "HIP launches",
            route.hip_launches,
            expected(!row.retained, all),
        ),
        (
            "graph launches",
            route.graph_launches,
            expected(row.retained && !own, count),
        ),
        (
            "launches on the device",
            route.device_launches.unwrap_or(all),
            all,
        ),
        (
            "indirect buffers",
            route.indirect_buffers.unwrap_or(buffers),
            buffers,
        ),
        (
            "first position",
            u64::from(route.first_position),
            u64::from(context),
        ),
        (
            "last position",
            u64::from(route.last_position),
            (u64::from(context) + count).saturating_sub(1),
        ),
    ];
    match rows.iter().find(|(_, found, wanted)| found != wanted) {
        None => Ok(()),
        Some((what, found, wanted)) => Err(format!("{found} {what}, not {wanted}")),
    }
}

fn arm_and_plan(report: &Report, arm: usize) -> Option<(&ArmFacts, &PlanFacts, ArmKind)> {
    let facts = report.arms.get(arm)?;
    let plan = report.plans.get(facts.plan)?;
    Some((facts, plan, ArmKind::parse(&facts.kind)?))
}

fn routes(report: &Report, failures: &mut Vec<Failure>) {
    let mut arguments: Vec<(usize, usize, &Option<String>)> = Vec::new();
    for series in &report.series {
        let Some((facts, plan, kind)) = arm_and_plan(report, series.arm) else {
            let text = format!("rows of arm {}, which the report does not have", series.arm);
            fail(failures, FailureKind::Route, text);
            continue;
        };
        for row in all_rows(series) {
            let (tokens, route) = (report.settings.tokens, &row.route);
            let first = arguments
                .iter()
                .find(|(arm, process, _)| (*arm, *process) == (series.arm, series.process));
            let moved = first.is_some_and(|(_, _, known)| **known != route.arguments);
            if first.is_none() {
                arguments.push((series.arm, series.process, &route.arguments));
            }
            let checked = check_route(kind, plan, tokens, series.context, route)
                .and_then(|()| match route.identity == facts.identity {
                    true => Ok(()),
                    false => Err(format!("{} ran, not {}", route.identity, facts.identity)),
                })
                .and_then(|()| match moved {
                    false => Ok(()),
                    true => Err("kernel arguments changed between rows".to_owned()),
                });
            if let Err(what) = checked {
                let arm = name(report, series.arm);
                let text = format!("{arm} at {}, round {}: {what}", series.context, row.round);
                fail(failures, FailureKind::Route, text);
                break;
            }
        }
    }
}

fn refusals(report: &Report, failures: &mut Vec<Failure>) {
    let retained = || report.arms.iter().filter(|arm| arm.retained);
    if retained().next().is_some() && retained().all(|arm| arm.refused.is_some()) {
        let codes = retained().filter_map(|arm| arm.refused.as_ref());
        let codes: Vec<&str> = codes.map(|refused| refused.code.as_str()).collect();
        let text = format!("no retained arm could be made: {}", codes.join(", "));
        fail(failures, FailureKind::Refused, text);
    }
    if let Some(required) = report.settings.require_replay {
        let found = replayed_percent(report);
        if found < required {
            let text = format!(
                "{found:.1} % of the retained arms' tokens were replayed, {required} % are required"
            );
            fail(failures, FailureKind::ReplayShare, text);
        }
    }
}

/// Tokens replayed, percent, over every retained arm that was asked for; a refused arm counts as
/// none of as many tokens as the others had.
pub fn replayed_percent(report: &Report) -> f64 {
    let shares: Vec<f64> = report
        .arms
        .iter()
        .enumerate()
        .filter(|(_, arm)| arm.retained)
        .map(|(index, _)| share(report, index))
        .collect();
    match shares.len() {
        0 => 0.0,
        count => shares.iter().sum::<f64>() / count as f64,
    }
}

/// Percent of an arm's tokens that were replayed, packets or graph.
fn share(report: &Report, arm: usize) -> f64 {
    let series = report.series.iter().filter(|series| series.arm == arm);
    let rows: Vec<&Row> = series.flat_map(|series| &series.rows).collect();
    let all = rows.len() as f64 * f64::from(report.settings.tokens);
    let replayed = rows
        .iter()
        .map(|row| (row.route.replays + row.route.graph_launches) as f64);
    if all > 0.0 {
        100.0 * replayed.sum::<f64>() / all
    } else {
        0.0
    }
}

fn stationarity(report: &Report, failures: &mut Vec<Failure>) {
    if report.settings.gate.is_none() {
        let text = "no speed of this report may be quoted (--skip-gate)".to_owned();
        fail(failures, FailureKind::GateSkipped, text);
        return;
    }
    for series in &report.series {
        if let Some(why) = series.unsettled {
            let arm = name(report, series.arm);
            let text = format!("{arm} at {}: {why}", series.context);
            fail(failures, FailureKind::NotStationary, text);
        }
    }
}

fn speeds(report: &Report, failures: &mut Vec<Failure>) {
    for outcome in &report.results {
        let retained = report.arms.get(outcome.arm).is_some_and(|arm| arm.retained);
        let slower = outcome.to_eager.filter(|ratio| ratio.median < 1.0);
        if let (true, Some(ratio)) = (retained, slower) {
            let arm = name(report, outcome.arm);
            let text = format!(
                "{arm} at {}: {:.3}x of eager",
                outcome.context, ratio.median
            );
            fail(failures, FailureKind::RetainedSlower, text);
        }
    }
}

/// Values of an arm at a context: process, round, value; in that order.
fn values(report: &Report, arm: usize, context: u32) -> Vec<(usize, usize, f64)> {
    let metric = report.settings.metric;
    let series = report.series.iter();
    let mut values: Vec<(usize, usize, f64)> = series
        .filter(|series| series.arm == arm && series.context == context)
        .flat_map(|series| {
            let rows = series.rows.iter();
            rows.map(|row| (series.process, row.round, row.value(metric)))
        })
        .collect();
    values.sort_by_key(|row| (row.0, row.1));
    values
}

fn ratio(report: &Report, base: usize, arm: usize, context: u32) -> Option<Ratio> {
    let (base, other) = (values(report, base, context), values(report, arm, context));
    let key = |row: &(usize, usize, f64)| (row.0, row.1);
    let paired = other.iter().filter_map(|row| {
        let partner = base.iter().find(|partner| key(partner) == key(row))?;
        // An eager call that waits for the GPU has no host path to compare with.
        (partner.2 > 0.0).then_some((partner.2, row.2))
    });
    let (first, second): (Vec<f64>, Vec<f64>) = paired.unzip();
    let ratios = paired_ratios(&first, &second);
    let (low, high) = bootstrap(&ratios, report.settings.seed)?;
    Some(Ratio {
        median: median(&ratios)?,
        interval: [low, high],
    })
}

fn results(report: &Report) -> Vec<Outcome> {
    let contexts = &report.settings.contexts;
    let arms = 0..report.arms.len();
    let cells = arms.flat_map(|arm| contexts.iter().map(move |context| (arm, *context)));
    cells
        .filter_map(|(arm, context)| result(report, arm, context))
        .collect()
}

fn result(report: &Report, arm: usize, context: u32) -> Option<Outcome> {
    let (facts, plan, kind) = arm_and_plan(report, arm)?;
    let found = values(report, arm, context);
    let all: Vec<f64> = found.iter().map(|row| row.2).collect();
    let us = median(&all)?;
    let (low, high) = bootstrap(&all, report.settings.seed)?;
    let process_us = (0..report.settings.processes).filter_map(|process| {
        let own = found.iter().filter(|row| row.0 == process);
        median(&own.map(|row| row.2).collect::<Vec<f64>>())
    });
    let rows: Vec<&Row> = report
        .series
        .iter()
        .filter(|series| series.arm == arm && series.context == context)
        .flat_map(|series| &series.rows)
        .collect();
    let host = median(&rows.iter().map(|row| row.host_us).collect::<Vec<f64>>())?;
    let wall = median(&rows.iter().map(|row| row.wall_us).collect::<Vec<f64>>())?;
    let first_hash = rows.first().map(|row| row.token_hash.clone());
    let agreed = rows
        .iter()
        .all(|row| Some(&row.token_hash) == first_hash.as_ref());
    let eager = report
        .arms
        .iter()
        .position(|other| other.plan == facts.plan && other.kind == ArmKind::Eager.row().name);
    let hardware = report.settings.metric == Metric::Wall;
    Some(Outcome {
        arm,
        context,
        us,
        interval: [low, high],
        process_us: process_us.collect(),
        tokens_per_s: (hardware && wall > 0.0).then(|| 1e6 / wall),
        host_us: host,
        host_us_per_launch: host / (plan.launches.max(1) as f64),
        launches: plan.launches,
        replayed_percent: share(report, arm),
        to_eager: eager
            .filter(|eager| *eager != arm)
            .and_then(|eager| ratio(report, eager, arm, context)),
        to_first: (arm != 0).then(|| ratio(report, 0, arm, context)).flatten(),
        outliers: outliers(&all),
        token_hash: first_hash.filter(|_| agreed),
        could_save_us: (kind == ArmKind::Eager && host > 0.0).then_some(host),
    })
}

#[cfg(test)]
pub(crate) mod tests;
