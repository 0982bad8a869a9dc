//! The arguments of `bench`, `trace` and `schema`, as data.

use super::gate::Limits;
use crate::cli::{CompileArgs, DeviceArgs, TransportArg};
use clap::{Args, Subcommand, ValueEnum};
use refrain_replay::ArmKind;
use std::path::PathBuf;

/// Arguments of `bench`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples (no GPU needed; the software GPU times the host path only):
  refrain bench golden/models/austen-qwen3-4m.q8_0.gguf --skip-gate --rows 3
  refrain bench /tmp/all.plan /tmp/half.plan --arms eager,pm4 --fresh-process 5 -o report.json
  refrain bench diff yesterday.json today.json"
)]
pub struct BenchArgs {
    /// What to do with reports; without one, run.
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
    /// What to run.
    #[command(flatten)]
    pub run: BenchRunArgs,
}

/// What to do with reports.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Name the first class of cause in which two reports differ, and how their speeds do.
    Diff {
        /// One report.
        first: PathBuf,
        /// Another.
        second: PathBuf,
        /// How it is printed.
        #[arg(long, value_enum, default_value = "text")]
        format: BenchFormat,
    },
    /// Add a dated note to a report. The report itself never changes.
    Amend {
        /// The report.
        report: PathBuf,
        /// What is corrected, in words.
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Print a report again, judged anew from its rows.
    Show {
        /// The report.
        report: PathBuf,
        /// How it is printed.
        #[arg(long, value_enum, default_value = "text")]
        format: BenchFormat,
    },
}

/// How a report is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchFormat {
    /// For people.
    Text,
    /// One JSON object, `refrain.bench.v1`.
    Json,
    /// A Markdown table of the shape of llama-bench.
    Md,
}

/// What is run.
#[derive(Debug, Args)]
pub struct BenchRunArgs {
    /// Models, or plan files with their models beside them. Several are compared with each other.
    #[arg(required = true, value_name = "MODEL|PLAN")]
    pub models: Vec<PathBuf>,
    /// Arms, the first is what the others are compared with: eager, graph, aql, pm4, segments. Default:
    /// eager,graph,aql,pm4; eager,segments for a plan with steps of the host.
    #[arg(long, value_delimiter = ',', value_parser = parse_arm)]
    pub arms: Vec<ArmKind>,
    /// Positions at which rows start. Default: 128, or the middle of a shorter plan.
    #[arg(long, value_delimiter = ',', value_name = "POSITION,…")]
    pub contexts: Vec<u32>,
    /// Tokens of a row. Default: 128, on the software GPU 32.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Measured rows per arm.
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rows: u16,
    /// Rows before settling.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub warmup: u16,
    /// Tokens queued at once on every arm. Default: 8, on the software GPU 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub in_flight: Option<u32>,
    /// Run everything in that many fresh processes, one after the other, each with another order.
    #[arg(long, default_value_t = 1, overrides_with = "fresh_process", value_name = "K", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub fresh_process: u16,
    /// Do not wait until arms are stationary. The report is then never valid as a speed.
    #[arg(long)]
    pub skip_gate: bool,
    /// The stationarity gate.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Fail (exit code 77) if fewer of the retained arms' tokens were replayed.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub require_replay: Option<f64>,
    /// Seed of the bootstrap intervals.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub bootstrap_seed: u64,
    /// Plan choices, for models.
    #[command(flatten)]
    pub compile: CompileArgs,
    /// Device choices.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Model of the plan, if only one plan is given. Default: the one beside it.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Proof of the packets (`refrain prove`), if only one plan is given; a card replays nothing without.
    #[arg(long, value_name = "FILE")]
    pub proof: Option<PathBuf>,
    /// Replay on a card without a proof. It stands in the report.
    #[arg(long)]
    pub allow_unproven: bool,
    /// Keep the report (JSON) in a file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keep a picture of all rows in a file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How the report is printed.
    #[arg(long, value_enum, default_value = "text", overrides_with = "format")]
    pub format: BenchFormat,
    /// Number of a fresh process; set by --fresh-process itself.
    #[arg(long, hide = true, value_name = "N")]
    pub process_index: Option<usize>,
}

/// Limits of the stationarity gate.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Rows that are looked at together, and that must confirm.
    #[arg(long, default_value_t = 10, value_name = "ROWS", value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub window: u16,
    /// Most settling rows; then the run is not stationary (exit code 75).
    #[arg(long, default_value_t = 120, value_name = "ROWS", value_parser = clap::value_parser!(u16).range(4..))]
    pub max_rows: u16,
    /// Largest slope, percent a row.
    #[arg(long, default_value_t = 0.05, value_name = "PERCENT", value_parser = parse_percent)]
    pub max_slope: f64,
    /// Largest spread, percent.
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT", value_parser = parse_percent)]
    pub max_spread: f64,
    /// Largest distance of medians, percent.
    #[arg(long, default_value_t = 0.5, value_name = "PERCENT", value_parser = parse_percent)]
    pub max_drift: f64,
}

impl GateArgs {
    /// As shares.
    pub fn limits(&self) -> Limits {
        let rows = usize::from(self.window);
        Limits {
            window: rows,
            min_rows: rows,
            confirm: rows,
            cap: usize::from(self.max_rows),
            slope: self.max_slope / 100.0,
            spread: self.max_spread / 100.0,
            drift: self.max_drift / 100.0,
        }
    }
}

fn parse_arm(text: &str) -> Result<ArmKind, String> {
    ArmKind::parse(text.trim()).ok_or_else(|| {
        let known: Vec<&str> = ArmKind::ROWS.iter().map(|row| row.name).collect();
        format!("no arm {text:?}: known are {}", known.join(", "))
    })
}

/// A percentage.
///
/// # Errors
/// What it is not.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    let inside = value.filter(|value| (0.0..=1000.0).contains(value));
    inside.ok_or_else(|| format!("{text:?} is no percentage from 0 to 1000"))
}

/// Arguments of `trace`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples (no GPU needed):
  refrain trace golden/models/austen-qwen3-4m.q8_0.gguf -o /tmp/token.json
  refrain trace tests/models/nano-llama.bf16.gguf --position 20 --transport aql | jq .otherData")]
pub struct TraceArgs {
    /// Model, or plan file with its model beside it.
    pub model: PathBuf,
    /// Position of the token.
    #[arg(long, default_value_t = 8, value_name = "POSITION")]
    pub position: u32,
    /// How its packets reach the device.
    #[arg(long, value_enum, default_value = "pm4")]
    pub transport: TransportArg,
    /// Where the trace goes (Chrome's JSON; Perfetto opens it). Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Plan choices, for a model.
    #[command(flatten)]
    pub compile: CompileArgs,
    /// Device choices: a software GPU, whose strict mode sees every byte.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Model of a plan. Default: the one beside it.
    #[arg(long = "model-file", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which output.
    #[arg(value_enum)]
    pub output: SchemaOf,
}

/// Outputs with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The report of `bench`: refrain.bench.v1.
    Bench,
}
