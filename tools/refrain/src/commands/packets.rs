//! `refrain dump` and `refrain lint`: packets of a plan's retained form, or raw words from anywhere.
//!
//! A dump names everything it knows and marks what it does not; it refuses only bytes that are no
//! whole words. A lint says which rules it could not judge, and exits with 65 when one rejects.

use crate::cli::{Format, PacketArgs, SurfaceArg};
use crate::exit::CliError;
use crate::{input, output};
use refrain_lower::{KernelImages, Lowered, Policy, Transport, kernel_images, lower_segment};
use refrain_packet::aql::packets_of_words;
use refrain_packet::dump::{Dump, DumpContext, dump_ib, dump_packets};
use refrain_packet::lint::{Context, Report, Severity, lint_ib, lint_ring};
use refrain_packet::target::Gfx;
use refrain_planner::container::CheckedPlan;
use refrain_planner::durable;
use refrain_planner::plan::Segment;
use refrain_recorder::EmbeddedObjects;
use refrain_replay::{lifecycle, segments};
use std::fmt::Write;
use std::path::Path;

/// Largest file of raw words: an indirect buffer has at most 4 MiB, a ring at most 8 MiB.
const RAW_BYTES_MAX: u64 = 8 << 20;

pub(super) fn dump(args: &PacketArgs) -> anyhow::Result<()> {
    let dump = match (&args.plan, &args.file) {
        (Some(plan), _) => {
            let (_, _, lowered) = lowered(args, plan)?;
            let encoded = lowered.encoded();
            let context = DumpContext {
                relocations: &encoded.relocations,
                symbols: &encoded.symbols,
                ..DumpContext::bare(encoded.target)
            };
            of_words(lowered.transport(), &encoded.words, &context)
        }
        (None, Some(file)) => {
            let (transport, words) = raw(args, file)?;
            of_words(transport, &words, &DumpContext::bare(raw_target(args)))
        }
        (None, None) => return Err(CliError::Usage("give a file or --plan".to_owned()).into()),
    };
    Ok(output::result(&match args.format {
        Format::Text => dump.to_string(),
        Format::Json => dump.to_json() + "\n",
    })?)
}

pub(super) fn lint(args: &PacketArgs) -> anyhow::Result<()> {
    let report = match (&args.plan, &args.file) {
        (Some(plan), _) => {
            let (plan, images, lowered) = lowered(args, plan)?;
            let kernels = kernel_images(&plan, &images)?;
            refrain_lower::lint(&segment(args, &plan)?, &kernels, &lowered)?
        }
        (None, Some(file)) => {
            let (transport, words) = raw(args, file)?;
            let context = Context::bare(raw_target(args));
            match transport {
                Transport::Pm4 => lint_ib(&words, &context),
                Transport::Aql => lint_ring(&packets_of_words(&words), &context),
            }
        }
        (None, None) => return Err(CliError::Usage("give a file or --plan".to_owned()).into()),
    };
    output::result(&match args.format {
        Format::Text => in_words(&report)?,
        Format::Json => report.to_json(&[]) + "\n",
    })?;
    if report.rejects(&[]) {
        let count = report.count(Severity::Error) + report.count(Severity::Hazard);
        return Err(CliError::Packets(format!("{count} findings reject these packets")).into());
    }
    Ok(())
}

fn in_words(report: &Report) -> Result<String, std::fmt::Error> {
    let mut text = report.to_string();
    writeln!(
        text,
        "{} rules judged ({} of them without some clauses), {} not judged; {} errors, {} hazards, {} warnings",
        report.checked,
        report.partly_checked.len(),
        report.not_checked.len(),
        report.count(Severity::Error),
        report.count(Severity::Hazard),
        report.count(Severity::Warning)
    )?;
    Ok(text)
}

fn of_words(transport: Transport, words: &[u32], context: &DumpContext<'_>) -> Dump {
    match transport {
        Transport::Pm4 => dump_ib(words, context),
        Transport::Aql => dump_packets(&packets_of_words(words), context),
    }
}

fn lowered(args: &PacketArgs, path: &Path) -> anyhow::Result<(CheckedPlan, KernelImages, Lowered)> {
    let plan = input::open_plan(path)?;
    let images = lifecycle::images(&plan, &EmbeddedObjects)?;
    let lowered = lower_segment(
        &segment(args, &plan)?,
        &images,
        args.transport.transport(),
        Policy::default(),
    )?;
    let found = lowered.encoded().target;
    if let Some(given) = args.target.filter(|given| *given != found) {
        let (shown, given, found) = (path.display(), given.name(), found.name());
        let text = format!("{shown} is for {found}, --target says {given}: leave --target out");
        return Err(CliError::Usage(text).into());
    }
    if let Some(file) = &args.raw {
        super::not_an_input(file, &[path])?;
        let words = lowered.encoded().words.iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        durable::write(file, &bytes)?;
    }
    Ok((plan, images, lowered))
}

/// The run of launches that is meant: the only one, or the one asked for.
fn segment<'a>(args: &PacketArgs, plan: &'a CheckedPlan) -> Result<Segment<'a>, CliError> {
    let mut runs = segments::runs(plan);
    let count = runs.len();
    let wanted = match args.segment {
        Some(number) => number as usize,
        None if count == 1 => 0,
        None => count,
    };
    if wanted >= count {
        let last = count.saturating_sub(1);
        let text = format!("the plan has {count} segments: give --segment 0 to {last}");
        return Err(CliError::Usage(text));
    }
    Ok(runs.swap_remove(wanted))
}

fn raw_target(args: &PacketArgs) -> Gfx {
    args.target.unwrap_or(Gfx::Gfx1201)
}

fn raw(args: &PacketArgs, path: &Path) -> anyhow::Result<(Transport, Vec<u32>)> {
    let bytes = input::read_up_to(path, RAW_BYTES_MAX)?;
    let (transport, unit) = match args.surface {
        SurfaceArg::Ib => (Transport::Pm4, 4),
        SurfaceArg::Ring => (Transport::Aql, 64),
    };
    if bytes.is_empty() || bytes.len() % unit != 0 {
        let (shown, len) = (path.display(), bytes.len());
        let text =
            format!("{shown} has {len} bytes, packets come in units of {unit}: cut or wrong file");
        return Err(CliError::Packets(text).into());
    }
    let words = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word));
    Ok((transport, words.collect()))
}
