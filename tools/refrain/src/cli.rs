//! The arguments of `refrain`, as data. What each command does stands in [`crate::commands`].

use crate::bench::args::{BenchArgs, SchemaArgs, TraceArgs};
use clap::{Args, Parser, Subcommand, ValueEnum};
use refrain_kernels::Dtype;
use refrain_packet::target::Gfx;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_planner::plan::Activations;
use refrain_planner::source::{RECIPES, Recipe};
use refrain_replay::{DeviceSpec, Retain, Transport};
use std::path::PathBuf;

/// Plans one decode step of a language model ahead of time and replays it on AMD GPUs as AQL
/// packets or one PM4 indirect buffer. With no card, a software GPU executes the same packets.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = exit_code_help())]
pub struct Cli {
    /// Say on stderr what each stage did (REFRAIN_LOG filters in the syntax of tracing).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Plan a model, record and reconcile it, and decode a text.
    Run(RunArgs),
    /// Compile a model into a plan file.
    Plan(PlanArgs),
    /// Print what a plan or tape file holds.
    Inspect(InspectArgs),
    /// Record a plan at three positions, reconcile it, and keep the tape.
    Record(RecordArgs),
    /// Prove a plan on the software GPU: hazards, parity, and that every wait and register counts.
    Prove(ProveArgs),
    /// Sealed records of models on machines: list, verify, seal, explain, package, reproduce.
    Golden(GoldenArgs),
    /// Print every packet of a plan's retained form, or of raw words, with names.
    Dump(PacketArgs),
    /// Judge the packets of a plan's retained form, or raw words, by the packet rules.
    Lint(PacketArgs),
    /// Name the first layer, step and field in which two plans differ.
    Diff(DiffArgs),
    /// Print what a plan costs (memory, launches, waits, bytes per token, a bound on tokens/s), or
    /// the page of a refusal code.
    Explain(ExplainArgs),
    /// Compare eager launches, a HIP graph and retained packets, with proof of which way ran.
    Bench(Box<BenchArgs>),
    /// One token as a trace for Chrome or Perfetto: launches, waits with reasons, footprints.
    Trace(TraceArgs),
    /// Print the JSON schema of an output.
    Schema(SchemaArgs),
    /// Machine profiles: list, show, probe.
    #[command(subcommand)]
    Machine(MachineCommand),
    /// Time every form of step of a plan's spilled layers over the link, on the CPU and split, and say
    /// which exec mode and share are best on this machine.
    OffloadBench(OffloadBenchArgs),
}

/// Arguments of `offload-bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example (no GPU needed; times of the software GPU are not a GPU's):
  refrain plan golden/models/austen-qwen3-4m.q8_0.gguf --context 64 --gpu-layers 4 -o /tmp/spilled.plan
  refrain offload-bench /tmp/spilled.plan --model-file golden/models/austen-qwen3-4m.q8_0.gguf")]
pub struct OffloadBenchArgs {
    /// Plan with spilled layers; its own execution does not matter.
    pub plan: PathBuf,
    /// Model. Default: the one beside the plan that it was made from.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Shares of the GPU in split steps, each timed.
    #[arg(
        long,
        value_name = "SHARE,…",
        value_delimiter = ',',
        default_value = "0.125,0.25,0.375,0.5,0.625,0.75,0.875",
        value_parser = parse_share
    )]
    pub shares: Vec<f32>,
    /// Times that each step is run.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Keep what was found in this machine profile, as starting points of controllers. They pin nothing.
    #[arg(long, value_name = "PROFILE")]
    pub write: Option<PathBuf>,
    /// Device choices.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

fn parse_share(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!(
            "{text:?} is no share of a split: give numbers between 0 and 1"
        )),
    }
}

/// What to do with machine profiles.
#[derive(Debug, Subcommand)]
pub enum MachineCommand {
    /// Name the built-in reference cards.
    List,
    /// Print a profile with the source of each fact.
    Show {
        /// A built-in name or a TOML file.
        machine: String,
    },
    /// Write the profile of this machine: host facts from the system, device facts from the
    /// runtime; each line says where it comes from.
    Probe(ProbeArgs),
}

/// Arguments of `machine probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Name of the profile: 1 to 64 letters, digits, '-', '_', '.'.
    #[arg(long, default_value = "probed")]
    pub name: String,
    /// Where the profile goes; default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Device choices.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// One plan.
    pub first: PathBuf,
    /// Another.
    pub second: PathBuf,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object on stdout.
    Json,
}

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvArg {
    /// Exact mode.
    F32,
    /// Half the cache; logits differ within a stated bound.
    F16,
    /// Blocks of 32 int8 with a scale: about a quarter of the cache.
    #[value(name = "q8_0")]
    Q8_0,
}

impl KvArg {
    /// The element type.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Q8_0 => Dtype::Q8_0,
        }
    }
}

/// Form in which activations meet quantised matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActivationsArg {
    /// f32: every engine gives the same bits.
    Exact,
    /// int8 per block, as ggml does it.
    Int8,
}

impl ActivationsArg {
    /// The plan's option.
    pub const fn of_plan(self) -> Activations {
        match self {
            Self::Exact => Activations::Exact,
            Self::Int8 => Activations::Int8,
        }
    }
}

/// Whether tokens are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RetainArg {
    /// The whole token as one tape; a refusal ends the run with exit code 77, and so do steps of the
    /// host.
    Whole,
    /// Each run of launches between steps of the host (--exec cpu and passback); a refusal ends the
    /// run with exit code 77.
    Segments,
    /// Never: one HIP launch per step.
    None,
}

impl RetainArg {
    /// What a session is asked for. Without the flag a refusal is printed and the run is eager.
    pub const fn retain(value: Option<Self>) -> Retain {
        match value {
            None => Retain::Auto,
            Some(Self::Whole) => Retain::Whole,
            Some(Self::Segments) => Retain::Segments,
            Some(Self::None) => Retain::None,
        }
    }
}

/// How packets reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// One AQL packet per launch.
    Aql,
    /// One PM4 indirect buffer per token, submitted by one vendor AQL packet.
    Pm4,
}

impl TransportArg {
    /// The transport.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Aql => Transport::Aql,
            Self::Pm4 => Transport::Pm4,
        }
    }
}

/// Choices that shape a plan.
#[derive(Debug, Clone, Args)]
pub struct CompileArgs {
    /// Machine profile: a built-in name or a TOML file. Default: the profile of the device's target.
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Tokens of context; default: the model's longest, at most 4096.
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<u32>,
    /// Element type of the KV cache; default: f32, the exact mode.
    #[arg(long, value_enum)]
    pub kv: Option<KvArg>,
    /// Form in which activations meet quantised matrices; default: exact.
    #[arg(long, value_enum)]
    pub activations: Option<ActivationsArg>,
    /// Positions that the plan runs at are below this; default: the whole context.
    #[arg(long, value_name = "TOKENS")]
    pub bucket: Option<u32>,
    /// Launch these operations one by one instead of fused; may be repeated. An unknown name is
    /// answered with all of them.
    #[arg(long, value_name = "NAME")]
    pub no_fuse: Vec<String>,
    /// Layers, from the last, that stay in device memory; `auto` keeps as many as the machine
    /// profile's memory holds. Matrices of the layers before them lie in pinned host memory.
    /// Default: all.
    #[arg(long, value_name = "N|all|auto")]
    pub gpu_layers: Option<GpuLayers>,
    /// Who multiplies the matrices of spilled layers: `pcie` is the GPU over the link, `cpu` the host,
    /// `passback:SHARE` both at the same time, with the GPU's share of the rows from 0 to 1; without a
    /// number it is automatic and starts at a half. Default: pcie.
    #[arg(long, value_name = "EXEC")]
    pub exec: Option<ExecChoice>,
}

/// Which device, and how the software GPU behaves.
#[derive(Debug, Clone, Args)]
pub struct DeviceArgs {
    /// `auto`, `soft:gfx1100`, `soft:gfx1151`, `soft:gfx1201`, `rocm:N`, or for `run` `cpu`.
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: DeviceSpec,
    /// Software GPU: seed of the order of waves and work-groups.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub seed: u64,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain run golden/models/austen-qwen3-4m.q8_0.gguf --prompt \"Emma was\"
  refrain run golden/models/austen-qwen3-4m.q8_0.gguf --prompt \"Emma was\" --transport aql --verify
  refrain run golden/models/austen-qwen3-4m.q8_0.gguf --prompt \"Emma was\" --device cpu --threads 2
  refrain run tests/models/nano-llama.bf16.gguf --prompt-ids 1,2,3 -n 8 --format json")]
pub struct RunArgs {
    /// Model: a GGUF file or any part of one, a Hugging Face folder, an HFQ file; or a plan file
    /// with its model beside it.
    pub model: PathBuf,
    /// Text to continue.
    #[arg(
        long,
        required_unless_present = "prompt_ids",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    pub prompt: Option<String>,
    /// Token ids to continue, for models without a tokenizer.
    #[arg(
        long,
        conflicts_with = "prompt",
        value_delimiter = ',',
        value_name = "ID,…",
        value_parser = parse_id
    )]
    pub prompt_ids: Option<Vec<u32>>,
    /// Tokens to generate at most.
    #[arg(
        short = 'n',
        long = "tokens",
        default_value_t = 64,
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub tokens: u32,
    /// Plan choices.
    #[command(flatten)]
    pub compile: CompileArgs,
    /// Device choices.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Replay, or not. Default: replay, in segments where the plan has steps of the host; if that is
    /// refused, say why and run eagerly.
    #[arg(long, value_enum)]
    pub retain: Option<RetainArg>,
    /// How packets reach the device.
    #[arg(long, value_enum, default_value = "pm4")]
    pub transport: TransportArg,
    /// Ends of buckets, ascending: one plan each and one for the whole context; a text goes on under
    /// the next where its bucket ends.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "TOKENS,…",
        conflicts_with = "bucket"
    )]
    pub buckets: Vec<u32>,
    /// Fail (exit code 77) if fewer tokens were replayed.
    #[arg(long, value_name = "PERCENT", value_parser = crate::bench::args::parse_percent)]
    pub require_replay: Option<f64>,
    /// Tokens queued at once.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub in_flight: u32,
    /// Proof of the packets (`refrain prove`); a card replays nothing without one.
    #[arg(long, value_name = "FILE")]
    pub proof: Option<PathBuf>,
    /// Replay on a card without a proof. It is printed and stands in the report.
    #[arg(long)]
    pub allow_unproven: bool,
    /// Threads of `--device cpu`; more than the machine runs at once count as that many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Run eagerly too and compare tokens and every buffer byte for byte (exit code 80 if they differ).
    #[arg(long)]
    pub verify: bool,
    /// Software GPU: report hazards, races, stale and undefined reads (exit code 1 if there are any);
    /// SEED instead of --seed. One thread, several times slower.
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true)]
    pub strict: Option<Option<u64>>,
    /// Software GPU: a file of faults to inject, `what@event:N` by line or comma, `#` for comments.
    /// Events are counted from the opening of the device.
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Model, if the first argument is a plan. Default: the one beside it that the plan was made from.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

fn parse_id(text: &str) -> Result<u32, String> {
    text.trim()
        .parse()
        .map_err(|error| format!("{error}: give token ids as 1,2,3"))
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain plan golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/austen.plan
  refrain plan golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/austen.plan --machine gfx1100 --kv f16
  refrain plan tests/models/hf/llama -o /tmp/llama.plan
  refrain plan tests/models/hf/llama/config.json --recipe bf16 -o /tmp/llama.plan
  refrain plan tests/models/hf/llama --fill /tmp/llama.plan -o /tmp/filled.plan")]
pub struct PlanArgs {
    /// Model: a GGUF file or any part of one, a Hugging Face folder, an HFQ file.
    pub model: PathBuf,
    /// Where the plan goes.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Plan a model whose files may end after their tensor tables. The plan has no digests of
    /// weights and cannot run.
    #[arg(long)]
    pub header_only: bool,
    /// Plan a Hugging Face configuration without its weights, as if they were quantised by a named
    /// recipe. The plan has no digests of weights and cannot run.
    #[arg(long, value_name = "RECIPE", conflicts_with = "header_only", value_parser = parse_recipe)]
    pub recipe: Option<&'static Recipe>,
    /// Take everything from a plan that was made without weights, and its digests from the model.
    #[arg(
        long,
        value_name = "PLAN",
        conflicts_with_all = ["header_only", "recipe", "machine", "context", "kv", "gpu_layers", "exec"]
    )]
    pub fill: Option<PathBuf>,
    /// Plan choices; the default machine is gfx1201.
    #[command(flatten)]
    pub compile: CompileArgs,
}

fn parse_recipe(text: &str) -> Result<&'static Recipe, String> {
    Recipe::find(text).ok_or_else(|| {
        let known: Vec<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        format!("no recipe {text:?}: known are {}", known.join(", "))
    })
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example (no GPU needed):
  refrain plan golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/austen.plan && refrain inspect /tmp/austen.plan")]
pub struct InspectArgs {
    /// Plan or tape file.
    pub file: PathBuf,
}

/// Arguments of `record`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example (no GPU needed):
  refrain record /tmp/austen.plan --model-file golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/austen.tape")]
pub struct RecordArgs {
    /// Plan file.
    pub plan: PathBuf,
    /// Where the tape goes: a finished file or none.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Model. Default: the one beside the plan that it was made from.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Device choices.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Arguments of `prove`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain prove golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/austen.proof
  refrain prove tests/models/nano-llama.bf16.gguf --device soft:gfx1100 --transport pm4")]
pub struct ProveArgs {
    /// Model or plan file.
    pub model: PathBuf,
    /// Where the proof goes: a finished file or none.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Software GPU: `soft:gfx1100`, `soft:gfx1151` or `soft:gfx1201`. Default: the plan's target, or
    /// soft:gfx1201 for a model.
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<DeviceSpec>,
    /// Retained form. Default: both.
    #[arg(long, value_enum)]
    pub transport: Option<TransportArg>,
    /// Orders of waves and work-groups that are tried.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub seeds: u64,
    /// Omissions per form that are executed to check the judges.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub sample: usize,
    /// Plan choices, for a model.
    #[command(flatten)]
    pub compile: CompileArgs,
    /// Model, if the first argument is a plan. Default: the one beside it that the plan was made from.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `golden`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain golden list
  refrain golden verify --all
  refrain golden explain austen-qwen3-4m.q8_0/gfx1201-resident
  refrain golden package austen-qwen3-4m.q8_0/gfx1201-resident -o /tmp/austen.tar
  refrain golden reproduce /tmp/austen.tar --model-file golden/models/austen-qwen3-4m.q8_0.gguf")]
pub struct GoldenArgs {
    /// Folder that holds golden/registry and the models. Default: the nearest one upwards.
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: GoldenCommand,
}

/// What to do with sealed records.
#[derive(Debug, Subcommand)]
pub enum GoldenCommand {
    /// Name every record with its sequence hash.
    List,
    /// Check records against today's planner, code objects, packets, proofs and tokens, in this order.
    Verify(VerifyArgs),
    /// Make records again from their recipes.
    Seal(SealArgs),
    /// Print what a record holds.
    Explain {
        /// `MODEL` or `MODEL/MACHINE-RESIDENCY`.
        record: String,
    },
    /// Write plan, code objects, record and proof as one reproducible archive.
    Package(PackageArgs),
    /// Plan and run an archive's record here, and say: exact, route-compatible or failed.
    Reproduce(ReproduceArgs),
}

/// Arguments of `golden verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// `MODEL` or `MODEL/MACHINE-RESIDENCY`.
    pub records: Vec<String>,
    /// Every record.
    #[arg(long, conflicts_with = "records")]
    pub all: bool,
    /// Leave the tokens out.
    #[arg(long)]
    pub no_tokens: bool,
    /// Run the tokens by every route, not by PM4 alone.
    #[arg(long, conflicts_with = "no_tokens")]
    pub all_routes: bool,
    /// Say what would be checked.
    #[arg(long)]
    pub dry_run: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

/// Arguments of `golden seal`.
#[derive(Debug, Args)]
pub struct SealArgs {
    /// `MODEL` or `MODEL/MACHINE-RESIDENCY`.
    pub records: Vec<String>,
    /// Every record.
    #[arg(long, conflicts_with = "records")]
    pub all: bool,
    /// Prove again where a proof of these packets is there already.
    #[arg(long)]
    pub reprove: bool,
    /// Seal although files outside the registry have uncommitted changes.
    #[arg(long)]
    pub allow_dirty: bool,
    /// Do everything but write.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `golden package`.
#[derive(Debug, Args)]
pub struct PackageArgs {
    /// `MODEL/MACHINE-RESIDENCY`.
    pub record: String,
    /// Where the archive goes.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Do everything but write.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `golden reproduce`.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Archive.
    pub archive: PathBuf,
    /// Model. Default: the record's file, from here.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Check the archive and run nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// What raw words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SurfaceArg {
    /// A PM4 indirect buffer: dwords.
    Ib,
    /// AQL packets of 64 bytes in ring order.
    Ring,
}

/// Arguments of `dump` and `lint`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain dump --plan /tmp/austen.plan --transport pm4 | head
  refrain dump --plan /tmp/austen.plan --transport pm4 --raw /tmp/austen.ib
  refrain lint /tmp/austen.ib --target gfx1201 --format json")]
pub struct PacketArgs {
    /// Raw little-endian words; leave out with --plan.
    #[arg(required_unless_present = "plan", conflicts_with = "plan")]
    pub file: Option<PathBuf>,
    /// Plan file whose retained form is meant.
    #[arg(long, value_name = "PLAN")]
    pub plan: Option<PathBuf>,
    /// Transport of the plan's retained form.
    #[arg(long, value_enum, default_value = "pm4")]
    pub transport: TransportArg,
    /// Which segment of a plan with steps of the host, from 0: runs of launches between those steps and
    /// beside split steps, in order.
    #[arg(long, value_name = "N", requires = "plan")]
    pub segment: Option<u32>,
    /// What the raw words are.
    #[arg(long = "as", value_enum, default_value = "ib")]
    pub surface: SurfaceArg,
    /// Target: gfx1030, gfx1100, gfx1151, gfx1200 or gfx1201. Raw words: default gfx1201. With
    /// --plan it must be the plan's.
    #[arg(long, value_parser = parse_gfx)]
    pub target: Option<Gfx>,
    /// Write the plan's words, with 0 where an address goes, to a file.
    #[arg(long, value_name = "FILE", requires = "plan")]
    pub raw: Option<PathBuf>,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
}

fn parse_gfx(text: &str) -> Result<Gfx, String> {
    Gfx::from_name(text).ok_or_else(|| {
        let known = Gfx::ALL.map(|gfx| gfx.name()).join(", ");
        format!("no target {text:?}: known are {known}")
    })
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Plan file, or refusal code, e.g. RF007; without one, the list of codes.
    #[arg(value_name = "PLAN|CODE")]
    pub subject: Option<String>,
}

fn exit_code_help() -> String {
    let rows = crate::exit::Exit::ALL.iter();
    let lines: String = rows
        .map(|exit| format!("\n  {:>2}  {}", exit.number(), exit.meaning()))
        .collect();
    format!("Exit codes:{lines}")
}

#[cfg(test)]
mod tests {
    use super::{Cli, Command, RetainArg};
    use clap::{CommandFactory, Parser};
    use refrain_replay::Retain;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn without_the_flag_a_refusal_is_not_an_error() {
        let cli = Cli::parse_from(["refrain", "run", "m.gguf", "--prompt", "x"]);
        let Command::Run(run) = cli.command else {
            panic!("run")
        };
        assert_eq!(RetainArg::retain(run.retain), Retain::Auto);
        assert_eq!(RetainArg::retain(Some(RetainArg::Whole)), Retain::Whole);
        assert_eq!(RetainArg::retain(Some(RetainArg::None)), Retain::None);
    }

    #[test]
    fn a_run_needs_a_prompt() {
        assert!(Cli::try_parse_from(["refrain", "run", "m.gguf"]).is_err());
        assert!(Cli::try_parse_from(["refrain", "run", "m.gguf", "--prompt-ids", "1,2"]).is_ok());
    }
}
