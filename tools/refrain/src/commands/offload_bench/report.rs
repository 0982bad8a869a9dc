//! What `offload-bench` prints: the mode, a table of forms, and whose times they are.

use crate::cli::Format;
use refrain_offload::advice::{Advice, Way};
use serde::Serialize;
use std::fmt::{self, Write};

/// Where the times come from.
#[derive(Debug, Serialize)]
pub(super) struct Heading {
    /// As a user would give it.
    pub(super) device: String,
    /// Whether it is a software GPU.
    pub(super) software: bool,
    /// The plan's id.
    pub(super) plan: String,
    /// Repeats of each step.
    pub(super) repeats: u32,
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    heading: &'a Heading,
    /// Nothing but a user's flag pins a share.
    pinned: bool,
    #[serde(flatten)]
    advice: &'a Advice,
}

/// The report; ends with a line break.
pub(super) fn text(format: Format, heading: &Heading, advice: &Advice) -> anyhow::Result<String> {
    match format {
        Format::Json => Ok(serde_json::to_string(&Json {
            heading,
            pinned: false,
            advice,
        })? + "\n"),
        Format::Text => Ok(table(heading, advice)?),
    }
}

fn table(heading: &Heading, advice: &Advice) -> Result<String, fmt::Error> {
    let mut text = String::new();
    writeln!(
        text,
        "device   {}{}",
        heading.device,
        match heading.software {
            true => " (software GPU: its times are not a GPU's, and say nothing about a card)",
            false => "",
        }
    )?;
    let sure = if advice.clear {
        ""
    } else {
        " (quartiles of another mode overlap)"
    };
    writeln!(text, "exec     {}{sure}", advice.mode)?;
    for mode in &advice.modes {
        let token = mode.token;
        writeln!(
            text,
            "         {:<9}{:>12.1} us a token in these steps, quartiles {:.1} to {:.1}",
            mode.mode.name(),
            micros(token.median_ns),
            micros(token.low_ns),
            micros(token.high_ns),
        )?;
    }
    writeln!(
        text,
        "         each its best {:>7.1} us",
        micros(advice.auto_ns)
    )?;
    for step in &advice.steps {
        let share = step
            .share
            .map_or_else(|| "none".into(), |share| format!("{share:.3}"));
        writeln!(
            text,
            "{} k={} {} rows={} x{}: best {}, share of a split {share}{}",
            step.dtype,
            step.k,
            step.form,
            step.rows,
            step.per_token,
            step.best.kind,
            if step.clear { "" } else { ", not clear" },
        )?;
        for way in &step.kinds {
            writeln!(text, "         {}", line(way))?;
        }
    }
    Ok(text)
}

fn line(way: &Way) -> String {
    format!(
        "{:<9}{:>6} rows on the GPU {:>12.1} us, quartiles {:.1} to {:.1}, {} walls",
        way.kind.name(),
        way.gpu_rows,
        micros(way.wall.median_ns),
        micros(way.wall.low_ns),
        micros(way.wall.high_ns),
        way.wall.repeats,
    )
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}
