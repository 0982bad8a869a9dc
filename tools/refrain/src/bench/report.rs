//! The report of a benchmark as data: `refrain.bench.v1`. Every timed row is in it as it was
//! measured; what is concluded from the rows stands beside them and can be computed again.
//!
//! Times are microseconds per token. Digests are lower-case hex.

use super::gate::{Limits, Unsettled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name and version of the report's shape.
pub const SCHEMA: &str = "refrain.bench.v1";

/// A whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// `refrain.bench.v1`.
    pub schema: String,
    /// When it began, UTC, ISO 8601.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// How it ran.
    pub settings: Settings,
    /// The plans.
    pub plans: Vec<PlanFacts>,
    /// The arms, in the order asked for; refused ones too.
    pub arms: Vec<ArmFacts>,
    /// Rows by arm, context and process.
    pub series: Vec<Series>,
    /// What the rows say, by arm and context.
    pub results: Vec<Outcome>,
    /// Whether the report may be quoted.
    pub verdict: Verdict,
    /// Corrections. The rest of a report never changes; see `refrain bench amend`.
    pub amendments: Vec<Amendment>,
}

/// Where a report was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Device as a user names it, e.g. `rocm:0` or `soft:gfx1201`.
    pub device: String,
    /// Its own name.
    pub name: String,
    /// Instruction set.
    pub target: String,
    /// Whether it is the software GPU, whose times are a CPU's and never a GPU's.
    pub software: bool,
    /// Compute units.
    pub compute_units: u32,
    /// Bytes of device memory.
    pub vram_bytes: u64,
    /// `domain:bus:device`; null for the software GPU.
    pub pci: Option<String>,
    /// `hipDriverGetVersion`.
    pub driver: String,
    /// `hipRuntimeGetVersion`.
    pub runtime: String,
    /// Firmware, VBIOS, clocks and power as sysfs gives them, by file name; empty for the software GPU.
    pub card: std::collections::BTreeMap<String, String>,
    /// Operating system kernel.
    pub kernel: String,
    /// Host processor.
    pub cpu: String,
    /// Threads that this process may use.
    pub threads: u32,
    /// Version of this program.
    pub program: String,
    /// Compiler of the kernels, from their code objects.
    pub kernel_compiler: String,
}

/// What a row's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Wall time of the row by its tokens.
    Wall,
    /// Median time of a token's host path, waits and the device's execution excluded: all that a
    /// software GPU can be timed for.
    Host,
}

/// How a report was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Tokens of a row.
    pub tokens: u32,
    /// Positions at which rows start.
    pub contexts: Vec<u32>,
    /// Rows before settling, unjudged.
    pub warmup: usize,
    /// Measured rows per arm and process.
    pub rows: usize,
    /// Tokens queued at once.
    pub in_flight: u32,
    /// Processes, each with its own rotation of the order of arms.
    pub processes: usize,
    /// Seed of bootstrap intervals.
    pub seed: u64,
    /// What is judged.
    pub metric: Metric,
    /// Limits of the stationarity gate; null where it was skipped, which no valid report does.
    pub gate: Option<Limits>,
    /// Least share of tokens replayed, percent; null if not asked.
    pub require_replay: Option<f64>,
    /// Digest of the prompts' token ids.
    pub prompt: String,
}

/// One plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFacts {
    /// Short name, unique in the report.
    pub label: String,
    /// Digest of the plan file.
    pub plan_id: String,
    /// Model's own name.
    pub model_name: String,
    /// Bytes of the model's files.
    pub model_bytes: u64,
    /// Identity layer.
    pub model: String,
    /// Identity layer.
    pub structure: String,
    /// Identity layer.
    pub schedule: String,
    /// Identity layer.
    pub artifacts: String,
    /// Structure and artifacts, short form.
    pub sequence_hash: String,
    /// Launches of one token.
    pub launches: usize,
    /// Runs of launches between steps of the host; 1 where there are none.
    pub runs: usize,
    /// Steps of the host of one token.
    pub host_steps: usize,
    /// Distinct kernels.
    pub unique_kernels: usize,
    /// Waits of one token.
    pub waits: usize,
    /// Positions are below this.
    pub bucket: u32,
    /// Element type of the KV cache.
    pub kv: String,
    /// Layers in device memory.
    pub gpu_layers: u32,
    /// Who multiplies the matrices of the others; null where there are none.
    pub exec: Option<String>,
    /// Digests of the code objects.
    pub code_objects: Vec<String>,
    /// Least µs per token by the machine profile's stated bandwidth, per context. Not measured.
    pub bandwidth_bound_us: Vec<Option<f64>>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmFacts {
    /// Index into `plans`.
    pub plan: usize,
    /// Kind: `eager`, `graph`, `aql`, `pm4`, `segments`.
    pub kind: String,
    /// Whether a token of it is something made before.
    pub retained: bool,
    /// Digest of its packets without addresses, or the sequence hash where HIP makes the packets;
    /// empty where refused.
    pub identity: String,
    /// Dwords of one token's packets.
    pub dwords: usize,
    /// Digest of the proof that was shown for its packets, short; `none` without one.
    pub proof: String,
    /// Why there is no such arm.
    pub refused: Option<RefusedArm>,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefusedArm {
    /// `RFxxx`.
    pub code: String,
    /// What was found.
    pub detail: String,
}

/// Rows of one arm at one context in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Index into `arms`.
    pub arm: usize,
    /// Position at which rows start.
    pub context: u32,
    /// Number of the process, from 0.
    pub process: usize,
    /// First difference of the bytes left by this arm from those of the plan's first arm, after the
    /// same tokens from the same state; null if none.
    pub state_differs: Option<String>,
    /// Warm-up and settling rows.
    pub settling: Vec<Row>,
    /// Whether the arm settled; null where the gate was skipped.
    pub settled: Option<bool>,
    /// Why the arm is not stationary, in settling or measured rows.
    pub unsettled: Option<Unsettled>,
    /// Measured rows.
    pub rows: Vec<Row>,
}

/// One timed row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Round in which it ran; rows of one round pair up.
    pub round: usize,
    /// Wall time per token. On the software GPU a CPU's time.
    pub wall_us: f64,
    /// Median host path per token; 0 for eager tokens of a plan with steps of the host, whose calls wait
    /// for the GPU.
    pub host_us: f64,
    /// Slowest host path of a token.
    pub host_us_max: f64,
    /// Load of the host over the last minute when the row began (1 is one busy thread).
    pub load: f64,
    /// Digest of the generated tokens.
    pub token_hash: String,
    /// Which way it took.
    pub route: RouteFacts,
}

impl Row {
    /// The value that is judged.
    pub const fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Wall => self.wall_us,
            Metric::Host => self.host_us,
        }
    }
}

/// What was counted around a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteFacts {
    /// Tokens that completed on the arm's own packets.
    pub replays: u64,
    /// Tokens that completed on other arms' packets.
    pub other_replays: u64,
    /// Kernel launches through HIP.
    pub hip_launches: u64,
    /// Graph launches through HIP.
    pub graph_launches: u64,
    /// Kernel launches that the software GPU started; null on hardware.
    pub device_launches: Option<u64>,
    /// Indirect buffers that it ran; null on hardware.
    pub indirect_buffers: Option<u64>,
    /// Position before the row, from the control block.
    pub first_position: u32,
    /// Position of the last token.
    pub last_position: u32,
    /// What ran.
    pub identity: String,
    /// Digest of the kernel arguments in memory after the row; null where HIP keeps them.
    pub arguments: Option<String>,
}

/// What the rows of one arm at one context say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Index into `arms`.
    pub arm: usize,
    /// Position at which rows start.
    pub context: u32,
    /// Median of the rows' values.
    pub us: f64,
    /// Its 95 % bootstrap interval.
    pub interval: [f64; 2],
    /// Medians of the processes.
    pub process_us: Vec<f64>,
    /// Tokens per second by wall time; null on the software GPU.
    pub tokens_per_s: Option<f64>,
    /// Median host path.
    pub host_us: f64,
    /// The same per launch of the plan.
    pub host_us_per_launch: f64,
    /// Launches of one token.
    pub launches: usize,
    /// Tokens that were replayed, percent of all tokens of the rows.
    pub replayed_percent: f64,
    /// Speed relative to the same plan's eager arm; null without one.
    pub to_eager: Option<Ratio>,
    /// Speed relative to the report's first arm.
    pub to_first: Option<Ratio>,
    /// Rows far from the median, by index over all processes; they are kept.
    pub outliers: Vec<usize>,
    /// Digest of the tokens, if all rows agree.
    pub token_hash: Option<String>,
    /// Most that replay could save per token: the eager arm's whole host path. Null but for eager.
    pub could_save_us: Option<f64>,
}

/// A paired ratio of times; above 1 is faster than what it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Median of the rows' ratios.
    pub median: f64,
    /// Its 95 % bootstrap interval.
    pub interval: [f64; 2],
}

/// Why a report may not be quoted, in the order of judgement: what ran before how fast.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Arms left other bytes than eager execution.
    State,
    /// Rows gave other tokens.
    Tokens,
    /// A row took another way than its arm says.
    Route,
    /// No retained arm could be made.
    Refused,
    /// Fewer tokens were replayed than required.
    ReplayShare,
    /// An arm did not settle, or moved while it was measured.
    NotStationary,
    /// A retained arm is slower than eager.
    RetainedSlower,
    /// The gate was skipped.
    GateSkipped,
}

impl FailureKind {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Tokens => "tokens",
            Self::Route => "route",
            Self::Refused => "refused",
            Self::ReplayShare => "replay_share",
            Self::NotStationary => "not_stationary",
            Self::RetainedSlower => "retained_slower",
            Self::GateSkipped => "gate_skipped",
        }
    }
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Which.
    pub kind: FailureKind,
    /// Where, and both values.
    pub text: String,
}

/// Whether a report may be quoted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Whether nothing failed.
    pub valid: bool,
    /// What failed, gravest first.
    pub failures: Vec<Failure>,
}

/// A dated correction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Amendment {
    /// UTC, ISO 8601.
    pub date: String,
    /// What is corrected, in words.
    pub note: String,
    /// Digest of everything before the amendments, which must not have changed.
    pub original: String,
}
