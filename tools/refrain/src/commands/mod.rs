//! The commands, one file each.

mod explain;
mod inspect;
mod packets;
mod plan;
mod record;
pub mod run;

use crate::cli::{Command, CompileArgs, DeviceArgs};
use crate::output;
use anyhow::Context;
use refrain_planner::CompileOptions;
use refrain_planner::machine::Machine;
use refrain_replay::{OpenedDevice, SoftOptions};

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
        Command::Dump(args) => packets::dump(args),
        Command::Lint(args) => packets::lint(args),
        Command::Explain(args) => explain::run(args),
    }
}

/// Opens the device and says on stderr what `auto` took and why.
fn open_device(args: &DeviceArgs) -> anyhow::Result<OpenedDevice> {
    let soft = SoftOptions {
        seed: args.seed,
        threads: None,
    };
    let opened =
        OpenedDevice::open(args.device, soft).with_context(|| format!("device {}", args.device))?;
    if let Some(note) = &opened.note {
        output::note(note);
    }
    Ok(opened)
}

fn machine(args: &CompileArgs, default: &str) -> anyhow::Result<Machine> {
    Ok(Machine::load(args.machine.as_deref().unwrap_or(default))?)
}

fn compile_options(args: &CompileArgs) -> CompileOptions {
    CompileOptions {
        context: args.context,
        kv_dtype: args.kv.dtype(),
        ..Default::default()
    }
}
