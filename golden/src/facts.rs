//! What planner and lowering say about a plan today: identity layers, counts, encodings, and a short
//! digest of every step, by which a mismatch can name the first step that differs.

use crate::world::World;
use refrain_lower::{
    KernelImages, LowerError, Lowered, Policy, Transport, form_digest, lower_runs,
};
use refrain_planner::container::CheckedPlan;
use refrain_planner::container::codec::Codec;
use refrain_planner::identity::hex;
use refrain_planner::plan::{Invalidate, Plan, Step, Tier};
use serde::Deserialize;
use std::fmt::Write;

/// Bytes of a step's digest that are kept: enough to find a step, never to prove one.
const STEP_BYTES: usize = 4;
/// Domain of a step's digest.
const STEP: &str = "refrain.golden.step.v1";

/// Why a plan has no facts.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// The code object of a kernel is not at hand.
    #[error("the code object of kernel {symbol} is absent; rebuild the kernels")]
    ObjectAbsent {
        /// The kernel.
        symbol: String,
    },
    /// A code object cannot be used.
    #[error(transparent)]
    Image(#[from] refrain_lower::ImageError),
    /// No packets.
    #[error(transparent)]
    Lower(Box<LowerError>),
}

/// Digests of the layers of identity, hex.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identities {
    /// Plan file.
    pub plan: String,
    /// What the numbers come from.
    pub model: String,
    /// What is launched.
    pub structure: String,
    /// Edges and waits.
    pub schedule: String,
    /// Code objects.
    pub artifacts: String,
    /// Structure and artifacts.
    pub sequence: String,
}

/// Sizes of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Tokens of context.
    pub context: u64,
    /// Positions of the plan are below this.
    pub bucket: u64,
    /// Launches of one token.
    pub launches: u64,
    /// Steps of the host.
    pub barriers: u64,
    /// Distinct kernels.
    pub kernels: u64,
    /// Waits.
    pub waits: u64,
    /// Waits that invalidate caches.
    pub invalidations: u64,
    /// Bytes of device memory.
    pub device_bytes: u64,
    /// Bytes of pinned host memory.
    pub host_bytes: u64,
}

/// One retained form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoding {
    /// `aql` or `pm4`.
    pub transport: String,
    /// Encoding policy.
    pub policy: String,
    /// Dwords of a token.
    pub dwords: u64,
    /// Digest of the address-independent words, hex.
    pub digest: String,
}

/// Everything about a plan that a record holds and that needs no execution.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Digests.
    pub identity: Identities,
    /// Sizes.
    pub counts: Counts,
    /// Retained forms.
    pub encodings: Vec<Encoding>,
    /// Short digests of steps: one line per run of steps of one layer, `LAYER DIGEST…`.
    pub steps: Vec<String>,
    /// Waits: the step that waits, `a` behind it where caches are invalidated.
    pub waits: String,
}

impl Facts {
    /// The facts of a plan.
    ///
    /// # Errors
    /// [`FactsError`].
    pub fn of(plan: &CheckedPlan, world: &dyn World) -> Result<Self, FactsError> {
        Ok(Self {
            encodings: encodings(plan, world)?,
            ..Self::without_packets(plan)
        })
    }

    /// The facts that need no code objects; no encodings.
    pub fn without_packets(plan: &CheckedPlan) -> Self {
        let identity = plan.identity();
        Self {
            identity: Identities {
                plan: plan.id_hex(),
                model: hex(&identity.model),
                structure: hex(&identity.structure),
                schedule: hex(&identity.schedule),
                artifacts: hex(&identity.artifacts),
                sequence: hex(&identity.sequence.0),
            },
            counts: counts(plan),
            encodings: Vec::new(),
            steps: steps(plan),
            waits: waits(plan),
        }
    }
}

fn counts(plan: &Plan) -> Counts {
    let mut symbols: Vec<_> = plan.kernels.iter().map(|k| (&k.symbol, k.object)).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let waits = &plan.schedule.waits;
    let invalidations = waits.iter();
    let invalidations = invalidations.filter(|wait| wait.invalidate == Invalidate::Agent);
    let of_tier = |tier: Tier| {
        let buffers = plan.buffers.iter();
        let bytes = buffers.filter(|buffer| buffer.kind.tier() == tier);
        bytes.map(|buffer| buffer.bytes).sum()
    };
    Counts {
        context: u64::from(plan.options.context),
        bucket: u64::from(plan.options.bucket),
        launches: plan.launches().count() as u64,
        barriers: plan.barriers().count() as u64,
        kernels: symbols.len() as u64,
        waits: waits.len() as u64,
        invalidations: invalidations.count() as u64,
        device_bytes: of_tier(Tier::Device),
        host_bytes: of_tier(Tier::HostCoherent),
    }
}

fn encodings(plan: &CheckedPlan, world: &dyn World) -> Result<Vec<Encoding>, FactsError> {
    let mut images = KernelImages::new();
    let mut seen = Vec::new();
    for kernel in &plan.kernels {
        if !seen.contains(&kernel.object) {
            let absent = || FactsError::ObjectAbsent {
                symbol: kernel.symbol.clone(),
            };
            images.add(world.object(&kernel.object).ok_or_else(absent)?)?;
            seen.push(kernel.object);
        }
    }
    let form = |transport: Transport| {
        let runs = lower_runs(plan, &images, transport, Policy::default());
        let runs = runs.map_err(|error| FactsError::Lower(Box::new(error)))?;
        let policy = runs.first().map_or("", |run| run.encoded().policy);
        Ok(Encoding {
            transport: transport.name().to_owned(),
            policy: policy.to_owned(),
            dwords: runs.iter().map(|run| Lowered::dwords(run) as u64).sum(),
            digest: hex(&form_digest(&runs)),
        })
    };
    Transport::ALL.into_iter().map(form).collect()
}

/// Name and layer do not stand in a step's digest: they show beside it.
fn step_digest(plan: &Plan, step: &Step) -> String {
    let mut bytes = Vec::new();
    step.put(&mut bytes);
    for launch in step.body.launches() {
        let kernel = plan.kernels.get(launch.kernel as usize);
        let symbol = kernel.map_or("", |kernel| &kernel.symbol);
        symbol.to_owned().put(&mut bytes);
    }
    let digest = blake3::derive_key(STEP, &bytes);
    hex(digest.get(..STEP_BYTES).unwrap_or_default())
}

fn steps(plan: &Plan) -> Vec<String> {
    let runs = plan.steps.chunk_by(|a, b| a.layer == b.layer);
    let line = |run: &[Step]| {
        let layer = run.first().and_then(|step| step.layer);
        let mut line = layer.map_or("-".to_owned(), |layer| layer.to_string());
        for step in run {
            line.push(' ');
            line.push_str(&step_digest(plan, step));
        }
        line
    };
    runs.map(line).collect()
}

fn waits(plan: &Plan) -> String {
    let mut text = String::new();
    for wait in &plan.schedule.waits {
        let mark = match wait.invalidate {
            Invalidate::None => "",
            Invalidate::Agent => "a",
        };
        // Writing to a string does not fail.
        let _ = write!(text, " {}{mark}", wait.before);
    }
    text.trim_start().to_owned()
}

/// Digests of steps in order, from the lines of a record.
pub fn step_digests(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .flat_map(|line| line.split(' ').skip(1))
        .collect()
}
