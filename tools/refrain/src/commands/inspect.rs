//! `refrain inspect`: what a plan or a tape file holds.

use crate::cli::InspectArgs;
use crate::input::{self, Kind};
use crate::output;
use anyhow::Context;
use refrain_planner::identity::hex;
use refrain_recorder::{file, tape::Entry};
use std::fmt::Write;
use std::path::Path;

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let text = match input::kind(&args.file)? {
        Kind::Tape => tape(&args.file)?,
        _ => refrain_planner::inspect(&input::open_plan(&args.file)?),
    };
    Ok(output::result(&text)?)
}

fn tape(path: &Path) -> anyhow::Result<String> {
    let recording = file::load(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    writeln!(text, "tape      sequence {}", hex(&recording.sequence))?;
    writeln!(
        text,
        "recorded  {} executors at positions {:?}",
        recording.executors(),
        recording.positions()
    )?;
    let Some(first) = recording.tapes.first() else {
        return Ok(text);
    };
    writeln!(
        text,
        "calls     {} at the function table per token",
        first.entries.len()
    )?;
    for (index, entry) in first.entries.iter().enumerate() {
        match entry {
            Entry::Launch(launch) => writeln!(
                text,
                "{index:6} launch {:24} grid {:?} block {:?} LDS {} kernarg {} bytes, {} pointers",
                launch.symbol,
                launch.grid,
                launch.block,
                launch.lds,
                launch.kernarg.len(),
                launch.pointers.len()
            )?,
            other => writeln!(text, "{index:6} {other:?}")?,
        }
    }
    Ok(text)
}
