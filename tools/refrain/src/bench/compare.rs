//! Two reports side by side: how their speeds differ, and the first class of cause in which the runs
//! differ, from what ran to where it ran. A cause that both share explains nothing.

use super::judge::name;
use super::report::{ArmFacts, Machine, PlanFacts, Report};
use serde::Serialize;

/// A class of causes, in the order of explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Another model.
    Model,
    /// Other launches or kernel arguments.
    Structure,
    /// Other waits.
    Schedule,
    /// Other machine code.
    Artifacts,
    /// Other packets of the same plan.
    Encoding,
    /// Other rows: tokens, contexts, tokens in flight, gate.
    Settings,
    /// Another card.
    Card,
    /// Another driver, runtime, firmware or kernel of the system.
    Software,
    /// Another processor or program.
    Host,
    /// Another load or clock.
    Load,
    /// A report that is not valid.
    Invalid,
    /// Nothing that a report knows of.
    Nothing,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Its class.
    pub cause: Cause,
    /// What differs, and both values.
    pub text: String,
}

/// Speeds of an arm in both reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Arm.
    pub arm: String,
    /// Context.
    pub context: u32,
    /// µs per token in both.
    pub us: [f64; 2],
    /// Whether the 95 % intervals are apart.
    pub apart: bool,
}

/// The comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// First class in which the runs differ.
    pub cause: Cause,
    /// Every difference, in the order of explanation.
    pub found: Vec<Found>,
    /// Arms of both.
    pub pairs: Vec<Pair>,
}

fn differ<T: PartialEq + std::fmt::Display>(
    found: &mut Vec<Found>,
    cause: Cause,
    what: &str,
    first: &T,
    second: &T,
) {
    if first != second {
        let text = format!("{what}: {first} and {second}");
        found.push(Found { cause, text });
    }
}

fn plans(found: &mut Vec<Found>, first: &PlanFacts, second: &PlanFacts) {
    let rows = [
        (Cause::Model, "model", &first.model, &second.model),
        (
            Cause::Structure,
            "structure",
            &first.structure,
            &second.structure,
        ),
        (
            Cause::Schedule,
            "schedule",
            &first.schedule,
            &second.schedule,
        ),
        (
            Cause::Artifacts,
            "artifacts",
            &first.artifacts,
            &second.artifacts,
        ),
    ];
    for (cause, what, first, second) in rows {
        differ(found, cause, what, first, second);
    }
}

fn machines(found: &mut Vec<Found>, first: &Machine, second: &Machine) {
    let (mut card, mut software) = (first.card.clone(), second.card.clone());
    // Clocks are a matter of load, firmware of software.
    let clocks = |table: &mut std::collections::BTreeMap<String, String>| {
        let moving = ["pp_dpm_sclk", "pp_dpm_mclk"];
        let taken = moving.map(|key| table.remove(key).unwrap_or_default());
        taken.join(", ")
    };
    let (first_clocks, second_clocks) = (clocks(&mut card), clocks(&mut software));
    let text = |table: &std::collections::BTreeMap<String, String>| format!("{table:?}");
    let rows = [
        (
            Cause::Card,
            "target",
            first.target.clone(),
            second.target.clone(),
        ),
        (Cause::Card, "card", first.name.clone(), second.name.clone()),
        (
            Cause::Software,
            "driver",
            first.driver.clone(),
            second.driver.clone(),
        ),
        (
            Cause::Software,
            "runtime",
            first.runtime.clone(),
            second.runtime.clone(),
        ),
        (
            Cause::Software,
            "firmware and link",
            text(&card),
            text(&software),
        ),
        (
            Cause::Software,
            "system",
            first.kernel.clone(),
            second.kernel.clone(),
        ),
        (
            Cause::Software,
            "kernel compiler",
            first.kernel_compiler.clone(),
            second.kernel_compiler.clone(),
        ),
        (
            Cause::Host,
            "processor",
            first.cpu.clone(),
            second.cpu.clone(),
        ),
        (
            Cause::Host,
            "threads",
            first.threads.to_string(),
            second.threads.to_string(),
        ),
        (
            Cause::Host,
            "program",
            first.program.clone(),
            second.program.clone(),
        ),
        (Cause::Load, "clocks", first_clocks, second_clocks),
    ];
    for (cause, what, first, second) in &rows {
        differ(found, *cause, what, first, second);
    }
}

fn settings(found: &mut Vec<Found>, first: &Report, second: &Report) {
    let text = |report: &Report| {
        let settings = &report.settings;
        format!(
            "{} tokens from {:?}, {} in flight, {} process(es), prompt {}",
            settings.tokens,
            settings.contexts,
            settings.in_flight,
            settings.processes,
            settings.prompt.get(..8).unwrap_or_default()
        )
    };
    differ(found, Cause::Settings, "rows", &text(first), &text(second));
}

/// Mean load of the measured rows, in whole busy threads.
fn load(report: &Report) -> f64 {
    let rows = || report.series.iter().flat_map(|series| &series.rows);
    let count = rows().count().max(1) as f64;
    (rows().map(|row| row.load).sum::<f64>() / count).round()
}

fn same_arm(first: &ArmFacts, second: &ArmFacts) -> bool {
    first.kind == second.kind && first.plan == second.plan
}

/// Compares the arms that both have.
fn arms(found: &mut Vec<Found>, first: &Report, second: &Report) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (index, arm) in first.arms.iter().enumerate() {
        let Some(other) = second.arms.iter().position(|other| same_arm(arm, other)) else {
            let text = format!("only one has {}", name(first, index));
            found.push(Found {
                cause: Cause::Settings,
                text,
            });
            continue;
        };
        if let Some(facts) = second.arms.get(other) {
            let what = format!("packets of {}", name(first, index));
            differ(
                found,
                Cause::Encoding,
                &what,
                &arm.identity,
                &facts.identity,
            );
        }
        for outcome in first.results.iter().filter(|row| row.arm == index) {
            let mut rows = second.results.iter();
            let same = rows.find(|row| row.arm == other && row.context == outcome.context);
            if let Some(same) = same {
                pairs.push(Pair {
                    arm: name(first, index),
                    context: outcome.context,
                    us: [outcome.us, same.us],
                    apart: outcome.interval[1] < same.interval[0]
                        || same.interval[1] < outcome.interval[0],
                });
            }
        }
    }
    pairs
}

/// Compares two reports.
pub fn compare(first: &Report, second: &Report) -> Comparison {
    let mut found = Vec::new();
    differ(
        &mut found,
        Cause::Structure,
        "plans",
        &first.plans.len(),
        &second.plans.len(),
    );
    for (one, other) in first.plans.iter().zip(&second.plans) {
        plans(&mut found, one, other);
    }
    let pairs = arms(&mut found, first, second);
    settings(&mut found, first, second);
    machines(&mut found, &first.machine, &second.machine);
    differ(
        &mut found,
        Cause::Load,
        "mean load",
        &load(first),
        &load(second),
    );
    for (which, report, other) in [("first", first, second), ("second", second, first)] {
        let shared = &other.verdict.failures;
        for failure in &report.verdict.failures {
            if shared.iter().any(|known| known.kind == failure.kind) {
                continue;
            }
            let text = format!("only the {which} is not valid: {}", failure.text);
            found.push(Found {
                cause: Cause::Invalid,
                text,
            });
        }
    }
    found.sort_by_key(|row| row.cause);
    Comparison {
        cause: found.first().map_or(Cause::Nothing, |row| row.cause),
        found,
        pairs,
    }
}

#[cfg(test)]
mod tests;
