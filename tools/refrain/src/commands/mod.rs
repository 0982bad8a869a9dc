//! The commands, one file each.

mod diff;
mod explain;
mod golden;
mod inspect;
mod machine;
mod packets;
mod plan;
mod prove;
mod record;
pub mod run;

use crate::cli::{ActivationsArg, Command, CompileArgs, DeviceArgs, KvArg};
use crate::exit::CliError;
use crate::output;
use anyhow::Context;
use refrain_planner::CompileOptions;
use refrain_planner::durable;
use refrain_planner::machine::Machine;
use refrain_replay::{OpenedDevice, SoftOptions};
use std::path::Path;

/// Runs one command.
///
/// # Errors
/// Any error; [`crate::exit::code_of`] gives its exit code.
pub fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Record(args) => record::run(args),
        Command::Prove(args) => prove::run(args),
        Command::Golden(args) => golden::run(args),
        Command::Dump(args) => packets::dump(args),
        Command::Lint(args) => packets::lint(args),
        Command::Diff(args) => diff::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Machine(command) => machine::run(command),
    }
}

/// Opens the device and says on stderr what `auto` took and why.
fn open_device(args: &DeviceArgs) -> anyhow::Result<OpenedDevice> {
    let soft = SoftOptions {
        seed: args.seed,
        threads: None,
        strict: None,
    };
    let opened =
        OpenedDevice::open(args.device, soft).with_context(|| format!("device {}", args.device))?;
    if let Some(note) = &opened.note {
        output::note(first_clauses(note));
        tracing::info!("{note}");
    }
    Ok(opened)
}

fn profile(args: &CompileArgs, default: &str) -> anyhow::Result<Machine> {
    Ok(Machine::load(args.machine.as_deref().unwrap_or(default))?)
}

fn compile_options(args: &CompileArgs) -> CompileOptions {
    CompileOptions {
        context: args.context,
        kv_dtype: args.kv.unwrap_or(KvArg::F32).dtype(),
        bucket: args.bucket,
        no_fuse: args.no_fuse.clone(),
        gpu_layers: args.gpu_layers.unwrap_or_default(),
        exec: args.exec.unwrap_or_default(),
        activations: args
            .activations
            .map_or_else(Default::default, ActivationsArg::of_plan),
        ..Default::default()
    }
}

/// What was taken and the bare reason; the whole text, with its remedies, is for `-v`.
fn first_clauses(note: &str) -> &str {
    note.match_indices(": ")
        .nth(2)
        .map_or(note, |(at, _)| &note[..at])
}

/// Refuses an output that is one of the inputs.
fn not_an_input(output: &Path, inputs: &[&Path]) -> Result<(), CliError> {
    match inputs
        .iter()
        .find(|input| durable::same_file(output, input))
    {
        None => Ok(()),
        Some(_) => Err(CliError::Usage(format!(
            "{} is an input of this command; give another name with -o",
            output.display()
        ))),
    }
}
