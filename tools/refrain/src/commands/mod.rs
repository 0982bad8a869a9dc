//! The commands, one file each.

mod bench;
mod diff;
mod explain;
mod golden;
mod inspect;
mod machine;
mod offload_bench;
mod packets;
mod plan;
mod prove;
mod record;
pub mod run;
mod schema;
mod subject;
mod trace;

use crate::cli::{ActivationsArg, Command, CompileArgs, DeviceArgs, KvArg};
use crate::exit::CliError;
use crate::output;
use anyhow::Context;
use refrain_planner::CompileOptions;
use refrain_planner::durable;
use refrain_planner::machine::Machine;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_replay::refusal::Code;
use refrain_replay::strict::StrictConfig;
use refrain_replay::{OpenedDevice, Refusal, SoftOptions};
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
        Command::Bench(args) => bench::run(args),
        Command::Trace(args) => trace::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Machine(command) => machine::run(command),
        Command::OffloadBench(args) => offload_bench::run(args),
    }
}

/// Opens the device and says on stderr what `auto` took and why.
/// `strict` asks for strict mode of a software GPU, with a seed or that of `args`.
fn open_device(args: &DeviceArgs, strict: Option<Option<u64>>) -> anyhow::Result<OpenedDevice> {
    let soft = SoftOptions {
        seed: strict.flatten().unwrap_or(args.seed),
        threads: None,
        strict: strict.map(|_| StrictConfig::default()),
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

/// The plan choices.
///
/// # Errors
/// [`Refusal`] of an execution on the host with nothing spilled.
fn compile_options(args: &CompileArgs) -> Result<CompileOptions, Refusal> {
    let gpu_layers = args.gpu_layers.unwrap_or_default();
    if let (GpuLayers::All, Some(exec)) = (gpu_layers, args.exec)
        && exec != ExecChoice::Pcie
    {
        let detail = format!("--exec {exec} with all layers on the GPU");
        return Err(Refusal::new(Code::NothingSpilled, detail));
    }
    Ok(CompileOptions {
        context: args.context,
        kv_dtype: args.kv.unwrap_or(KvArg::F32).dtype(),
        bucket: args.bucket,
        no_fuse: args.no_fuse.clone(),
        gpu_layers,
        exec: args.exec.unwrap_or_default(),
        activations: args
            .activations
            .map_or_else(Default::default, ActivationsArg::of_plan),
        ..Default::default()
    })
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
