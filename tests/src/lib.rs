//! What the cross-crate tests share: where fixtures lie, oracles, and sessions on software GPUs.
//!
//! The cases themselves are in `tests/cases`. Tests of one crate live in that crate.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod subject;

use refrain_kernels::{Dtype, Target};
use refrain_planner::ModelSource;
use refrain_planner::identity::hex;
use refrain_planner::lowering::fusions;
use refrain_planner::machine::Machine;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_planner::plan::{Activations, Arg, BufferKind, StepBody};
use refrain_planner::{CheckedPlan, CompileOptions, compile};
use refrain_recorder::{BufferState, EmbeddedObjects, FileSource};
use refrain_replay::strict::StrictConfig;
use refrain_replay::{DeviceSpec, OpenedDevice, Route, Session, SessionOptions, SoftOptions};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The trained model in the repository.
pub const AUSTEN: &str = "golden/models/austen-qwen3-4m.q8_0.gguf";
/// The trained model with linear attention in three of four layers.
pub const AUSTEN_LINEAR: &str = "golden/models/austen-qwen35-6m.q8_0.gguf";
/// Byte that state is filled with before runs that are compared.
pub const SCRUB: u8 = 0x5A;

/// A path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Whether the long form of the tests was asked for (`REFRAIN_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1")
}

/// One prompt of the trained model's oracle: dequantised weights, f32 activations, computed by an
/// independent numpy decode.
#[derive(Debug, Deserialize)]
pub struct TextOracle {
    /// Text.
    pub prompt: String,
    /// Its token ids.
    pub prompt_ids: Vec<u32>,
    /// Greedy tokens.
    pub generated: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Logits by generated step.
    pub logits: BTreeMap<u32, Vec<f32>>,
}

/// A nano model's oracle: transformers in f32, decoded token by token.
#[derive(Debug, Deserialize)]
pub struct NanoOracle {
    /// Token ids.
    pub prompt: Vec<u32>,
    /// Greedy tokens.
    pub generated: Vec<u32>,
    /// Logits by position, prompt included.
    pub logits: BTreeMap<u32, Vec<f32>>,
}

/// Reads an oracle from `tests/oracle`.
///
/// # Errors
/// An absent or malformed file.
pub fn oracle<T: for<'a> Deserialize<'a>>(name: &str) -> anyhow::Result<T> {
    let path = repository("tests/oracle").join(name);
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// What a case runs.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Target of the software GPU and of the plan.
    pub target: Target,
    /// Session options.
    pub session: SessionOptions,
    /// Element type of the KV cache.
    pub kv: Dtype,
    /// Form in which activations meet quantised matrices.
    pub activations: Activations,
    /// Tokens of context; `None` for the model's.
    pub context: Option<u32>,
    /// Positions of the plan; `None` for the context.
    pub bucket: Option<u32>,
    /// Whether operations are fused.
    pub fused: bool,
    /// Layers that stay in device memory.
    pub gpu_layers: GpuLayers,
    /// Who multiplies the matrices of the others.
    pub exec: ExecChoice,
    /// Seed of the software GPU.
    pub seed: u64,
    /// Strict mode of the software GPU.
    pub strict: Option<StrictConfig>,
}

impl Setup {
    /// Defaults on a target.
    pub fn on(target: Target) -> Self {
        Self {
            target,
            session: SessionOptions::default(),
            kv: Dtype::F32,
            activations: Activations::Exact,
            context: None,
            bucket: None,
            fused: true,
            gpu_layers: GpuLayers::All,
            exec: ExecChoice::Pcie,
            seed: 0,
            strict: None,
        }
    }
}

/// Compiles a model for a target's built-in machine.
///
/// # Errors
/// Reader and planner errors.
pub fn plan(model: &Path, setup: Setup) -> anyhow::Result<Arc<CheckedPlan>> {
    let source = ModelSource::open(model)?;
    let machine = Machine::load(setup.target.name())?;
    let options = CompileOptions {
        kv_dtype: setup.kv,
        activations: setup.activations,
        context: setup.context,
        bucket: setup.bucket,
        no_fuse: if setup.fused {
            Vec::new()
        } else {
            fusions().map(str::to_owned).collect()
        },
        gpu_layers: setup.gpu_layers,
        exec: setup.exec,
        ..Default::default()
    };
    Ok(Arc::new(compile(&source, &machine, &options)?))
}

/// A session on a software GPU, recorded, reconciled and lowered unless the setup says eager.
///
/// # Errors
/// Anything on the way.
pub fn session(model: &Path, setup: Setup) -> anyhow::Result<Session> {
    let plan = plan(model, setup)?;
    let soft = SoftOptions {
        seed: setup.seed,
        threads: None,
        strict: setup.strict,
    };
    let opened = OpenedDevice::open(DeviceSpec::Soft(setup.target), soft)?;
    let source = FileSource::open(model)?;
    Ok(Session::new(
        opened,
        &plan,
        &source,
        &EmbeddedObjects,
        setup.session,
    )?)
}

/// Gives every buffer that a run writes the same content in every session.
///
/// # Errors
/// Device errors.
pub fn scrub(session: &Session) -> anyhow::Result<()> {
    for kind in [
        BufferKind::Scratch,
        BufferKind::Kv,
        BufferKind::State,
        BufferKind::TokenRing,
        BufferKind::Prompt,
    ] {
        session.instance().fill(kind, SCRUB)?;
    }
    Ok(())
}

/// The logits that the last executed step left: what the launch before the last two reads first.
///
/// # Errors
/// Device errors, or a plan without a sampling launch.
pub fn logits(session: &mut Session) -> anyhow::Result<Vec<f32>> {
    let states = session.snapshot()?;
    logits_of(session.instance().plan(), &states)
}

/// The logits in a snapshot of a plan's buffers.
///
/// # Errors
/// A plan without a sampling launch.
pub fn logits_of(plan: &CheckedPlan, states: &[BufferState]) -> anyhow::Result<Vec<f32>> {
    let vocab = plan.model.geometry.vocab as usize;
    let argmax = plan.steps.iter().rev().find(|step| step.name == "argmax");
    let argmax = argmax.ok_or_else(|| anyhow::anyhow!("the plan has no argmax step"))?;
    let StepBody::Launch(launch) = &argmax.body else {
        anyhow::bail!("the argmax step is no launch");
    };
    let Some(&Arg::Region { buffer, offset }) = launch.args.first() else {
        anyhow::bail!("argmax does not read a region first");
    };
    let bytes = &states[buffer as usize].bytes[offset as usize..][..vocab * 4];
    Ok(bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| f32::from_le_bytes(*word))
        .collect())
}

/// One digest over every buffer's name and bytes.
///
/// # Errors
/// Device errors.
pub fn state_digest(session: &mut Session) -> anyhow::Result<String> {
    Ok(hex(&refrain_recorder::state_digest(&session.snapshot()?)))
}

/// One digest over every buffer but scratch, whose content is dead between tokens.
///
/// # Errors
/// Device errors.
pub fn kept_digest(session: &mut Session) -> anyhow::Result<String> {
    let mut states = session.snapshot()?;
    let buffers = &session.instance().plan().buffers;
    for (state, buffer) in states.iter_mut().zip(buffers) {
        if buffer.kind == BufferKind::Scratch {
            state.bytes.clear();
        }
    }
    Ok(hex(&refrain_recorder::state_digest(&states)))
}

/// Digest of the state after each of `steps` consecutive token steps of a text.
///
/// # Errors
/// Anything on the way.
pub fn state_digests(
    session: &mut Session,
    route: Route,
    prompt: &[u32],
    steps: u32,
) -> anyhow::Result<Vec<String>> {
    scrub(session)?;
    session.start(prompt, steps)?;
    (0..steps)
        .map(|_| {
            session.advance(route, 1, &mut |_| {})?;
            state_digest(session)
        })
        .collect()
}

/// Largest absolute difference; infinite where the lengths differ or a value is not finite.
pub fn largest_difference(found: &[f32], expected: &[f32]) -> f32 {
    if found.len() != expected.len() || found.iter().any(|value| !value.is_finite()) {
        return f32::INFINITY;
    }
    found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}
