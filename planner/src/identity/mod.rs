//! Identity of a plan in layers: which part of it another plan shares.
//!
//! Each layer is BLAKE3 in a domain of its own (key-derivation mode, version in the context string)
//! over the canonical encoding of the fields that belong to it. Left out everywhere: the producer,
//! the model's display name, its place and size in a file, the digest of that file's header, and the
//! machine's profile beyond its target. The header holds names, the tokenizer and where tensors lie;
//! none of them changes a number that a step computes, and what does (geometry, end token, tensor
//! types and shapes) is in the model layer by itself. The `encoding` and `environment` layers belong to proofs and goldens, not to plans.

use crate::container::codec::Codec;
use crate::plan::{BufferKind, Digest, Plan, StepBody};
use std::fmt;

/// A layer of identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// What the numbers come from: architecture, geometry, stop token, every tensor's type, shape
    /// and content, and the constants derived from them.
    Model,
    /// What is launched: options, buffers, places of tensors, kernels' shapes, steps with arguments,
    /// grids and regions.
    Structure,
    /// Edges and waits.
    Schedule,
    /// Target and code objects.
    Artifacts,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 4] = [
        Self::Model,
        Self::Structure,
        Self::Schedule,
        Self::Artifacts,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Structure => "structure",
            Self::Schedule => "schedule",
            Self::Artifacts => "artifacts",
        }
    }

    /// BLAKE3 context string; the version is raised when fields or their encoding change.
    const fn context(self) -> &'static str {
        match self {
            Self::Model => "refrain.identity.model.v2",
            Self::Structure => "refrain.identity.structure.v1",
            Self::Schedule => "refrain.identity.schedule.v1",
            Self::Artifacts => "refrain.identity.artifacts.v1",
        }
    }
}

/// Digests of a plan's layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// [`Layer::Model`].
    pub model: Digest,
    /// [`Layer::Structure`].
    pub structure: Digest,
    /// [`Layer::Schedule`].
    pub schedule: Digest,
    /// [`Layer::Artifacts`].
    pub artifacts: Digest,
    /// Structure and artifacts together: the same launches of the same machine code.
    pub sequence: SequenceHash,
}

/// Digest of structure and artifacts. Shown short, as 16 hex digits; compared whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceHash(pub Digest);

impl SequenceHash {
    const CONTEXT: &'static str = "refrain.identity.sequence.v1";
    /// Bytes shown by `Display`.
    const SHORT: usize = 8;
}

impl fmt::Display for SequenceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(Self::SHORT)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SequenceHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A digest or other bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Identity {
    /// Identity of a plan.
    pub fn of(plan: &Plan) -> Self {
        let model = digest(Layer::Model.context(), &model_bytes(plan));
        let structure = digest(Layer::Structure.context(), &structure_bytes(plan));
        let mut schedule = Vec::new();
        plan.schedule.put(&mut schedule);
        plan.eligibility.put(&mut schedule);
        let schedule = digest(Layer::Schedule.context(), &schedule);
        let artifacts = digest(Layer::Artifacts.context(), &artifact_bytes(plan));
        let sequence = [structure, artifacts].concat();
        let sequence = SequenceHash(digest(SequenceHash::CONTEXT, &sequence));
        Self {
            model,
            structure,
            schedule,
            artifacts,
            sequence,
        }
    }

    /// Digest of one layer.
    pub const fn layer(&self, layer: Layer) -> &Digest {
        match layer {
            Layer::Model => &self.model,
            Layer::Structure => &self.structure,
            Layer::Schedule => &self.schedule,
            Layer::Artifacts => &self.artifacts,
        }
    }

    /// Layers in which two plans differ.
    pub fn differing(&self, other: &Self) -> Vec<Layer> {
        let differs = |layer: &Layer| self.layer(*layer) != other.layer(*layer);
        Layer::ALL.into_iter().filter(differs).collect()
    }
}

fn digest(context: &str, bytes: &[u8]) -> Digest {
    blake3::derive_key(context, bytes)
}

fn model_bytes(plan: &Plan) -> Vec<u8> {
    let mut out = Vec::new();
    let model = &plan.model;
    model.arch.put(&mut out);
    model.geometry.put(&mut out);
    model.eos.put(&mut out);
    for tensor in &model.tensors {
        tensor.name.put(&mut out);
        tensor.dtype.put(&mut out);
        tensor.rows.put(&mut out);
        tensor.cols.put(&mut out);
        // Of the loaded elements, so that every file format gives the same; `None` is encoded as such,
        // and no digest of bytes can stand in for it.
        tensor.digest.put(&mut out);
    }
    for buffer in plan
        .buffers
        .iter()
        .filter(|buffer| buffer.kind == BufferKind::Constant)
    {
        buffer.name.put(&mut out);
        buffer.content.put(&mut out);
    }
    out
}

fn structure_bytes(plan: &Plan) -> Vec<u8> {
    let mut out = Vec::new();
    plan.options.put(&mut out);
    for buffer in &plan.buffers {
        buffer.name.put(&mut out);
        buffer.kind.put(&mut out);
        buffer.bytes.put(&mut out);
        buffer.align.put(&mut out);
    }
    for tensor in &plan.model.tensors {
        tensor.buffer.put(&mut out);
        tensor.offset.put(&mut out);
        tensor.bytes.put(&mut out);
    }
    for kernel in &plan.kernels {
        kernel.symbol.put(&mut out);
        kernel.kernarg_bytes.put(&mut out);
        kernel.lds_bytes.put(&mut out);
        kernel.block.put(&mut out);
    }
    for step in &plan.steps {
        step.name.put(&mut out);
        step.layer.put(&mut out);
        match &step.body {
            StepBody::Launch(launch) => launch.put(&mut out),
            barrier => {
                // No launch begins so: its kernel's number is far below.
                u32::MAX.put(&mut out);
                barrier.put(&mut out);
            }
        }
    }
    out
}

fn artifact_bytes(plan: &Plan) -> Vec<u8> {
    let mut out = Vec::new();
    plan.machine.target.put(&mut out);
    for kernel in &plan.kernels {
        kernel.symbol.put(&mut out);
        kernel.target.put(&mut out);
        kernel.object.put(&mut out);
    }
    out
}
