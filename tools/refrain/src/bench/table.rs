//! A report in words: a table for people, and Markdown rows of the shape that users of llama-bench
//! paste into issues.

use super::judge::name;
use super::report::{Outcome, Ratio, Report};
use std::fmt::{self, Write};

fn ratio(value: Option<Ratio>) -> String {
    value.map_or("-".to_owned(), |ratio| {
        let [low, high] = ratio.interval;
        format!("{:.3} [{low:.3}, {high:.3}]", ratio.median)
    })
}

/// The report for a terminal.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_text(&mut out, report);
    out
}

fn write_text(out: &mut String, report: &Report) -> fmt::Result {
    let (machine, settings) = (&report.machine, &report.settings);
    writeln!(out, "device     {} ({})", machine.device, machine.name)?;
    if machine.software {
        writeln!(
            out,
            "times      host path only, on {}: the software GPU has no speed of its own",
            machine.cpu
        )?;
    }
    for plan in &report.plans {
        writeln!(
            out,
            "plan       {} {}, sequence {}, {} launches, {} waits, {} steps of the host",
            plan.label,
            plan.model_name,
            plan.sequence_hash,
            plan.launches,
            plan.waits,
            plan.host_steps
        )?;
    }
    writeln!(
        out,
        "rows       {} of {} tokens, {} queued at once, ABBA, {} process(es)",
        settings.rows, settings.tokens, settings.in_flight, settings.processes
    )?;
    writeln!(
        out,
        "\n{:<16} {:>7} {:>10} {:>21} {:>24} {:>9} {:>9} {:>8} {:>9}",
        "arm",
        "context",
        "us/token",
        "95 %",
        "x eager",
        "host us",
        "us/launch",
        "launches",
        "replayed"
    )?;
    for outcome in &report.results {
        let [low, high] = outcome.interval;
        writeln!(
            out,
            "{:<16} {:>7} {:>10.2} {:>21} {:>24} {:>9.2} {:>9.4} {:>8} {:>8.1}%",
            name(report, outcome.arm),
            outcome.context,
            outcome.us,
            format!("[{low:.2}, {high:.2}]"),
            ratio(outcome.to_eager),
            outcome.host_us,
            outcome.host_us_per_launch,
            outcome.launches,
            outcome.replayed_percent
        )?;
    }
    notes(out, report)
}

fn notes(out: &mut String, report: &Report) -> fmt::Result {
    for outcome in &report.results {
        if let Some(most) = outcome.could_save_us {
            writeln!(
                out,
                "replay could save at most {most:.2} us/token of {} at {}: its whole host path",
                name(report, outcome.arm),
                outcome.context
            )?;
        }
        if !outcome.outliers.is_empty() {
            let arm = name(report, outcome.arm);
            writeln!(out, "outliers kept, {arm}: rows {:?}", outcome.outliers)?;
        }
    }
    for (index, arm) in report.arms.iter().enumerate() {
        if let Some(refused) = &arm.refused {
            let arm = name(report, index);
            writeln!(out, "no {arm}: {} {}", refused.code, refused.detail)?;
        }
    }
    odd_processes(out, report)?;
    for amendment in &report.amendments {
        writeln!(out, "amended {}: {}", amendment.date, amendment.note)?;
    }
    match report.verdict.valid {
        true => writeln!(out, "valid: tokens, bytes, routes and stationarity hold"),
        false => {
            writeln!(out, "NOT VALID as a speed:")?;
            for failure in &report.verdict.failures {
                writeln!(out, "  {}: {}", failure.kind.name(), failure.text)?;
            }
            Ok(())
        }
    }
}

/// Modes that are fixed when a process starts show as medians of processes far apart.
fn odd_processes(out: &mut String, report: &Report) -> fmt::Result {
    for outcome in &report.results {
        let largest = outcome.process_us.iter().copied().fold(f64::MIN, f64::max);
        let smallest = outcome.process_us.iter().copied().fold(f64::MAX, f64::min);
        if outcome.process_us.len() > 1 && largest > smallest * 1.05 {
            writeln!(
                out,
                "processes differ, {}: medians {:.2?} us",
                name(report, outcome.arm),
                outcome.process_us
            )?;
        }
    }
    Ok(())
}

/// Speed of one row of the Markdown table. A software GPU has none.
fn speed(outcome: &Outcome) -> String {
    let Some(tokens) = outcome.tokens_per_s else {
        return "n/a (software GPU)".to_owned();
    };
    let [low, high] = outcome.interval;
    // The interval of the time, as one of the speed: half its width, relative to the median.
    let half = tokens * (high - low) / 2.0 / outcome.us.max(f64::MIN_POSITIVE);
    format!("{tokens:.2} ± {half:.2}")
}

/// Markdown with the columns of llama-bench and those that say what ran.
pub fn markdown(report: &Report) -> String {
    let mut out = String::from(
        "| model | size | backend | ngl | mode | test | t/s | launches/token | host us/token | replayed % |\n\
         | --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for outcome in &report.results {
        let Some(arm) = report.arms.get(outcome.arm) else {
            continue;
        };
        let Some(plan) = report.plans.get(arm.plan) else {
            continue;
        };
        // Names come from files and must not break the table.
        let model = plan.model_name.replace(['|', '\n', '\r'], " ");
        out.push_str(&format!(
            "| {model} {} | {:.2} MiB | {} | {} | {} | tg{} @ d{} | {} | {} | {:.2} | {:.1} |\n",
            plan.label,
            plan.model_bytes as f64 / f64::from(1 << 20),
            report.machine.device,
            plan.gpu_layers,
            arm.kind,
            report.settings.tokens,
            outcome.context,
            speed(outcome),
            outcome.launches,
            outcome.host_us,
            outcome.replayed_percent
        ));
    }
    if !report.verdict.valid {
        out.push_str("\nNot valid as a speed; the JSON report says why.\n");
    }
    out
}
