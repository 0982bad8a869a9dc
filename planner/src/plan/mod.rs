//! The plan: everything about one decode step of one model on one machine, as pure data.
//!
//! Only types and small derived values live here. `container` turns a plan into bytes and back,
//! `identity` digests it, `lowering` makes it, `schedule` orders it. Nothing here holds a pointer,
//! opens a file or talks to a device; indices (`BufferId`, `KernelId`, …) are positions in the
//! plan's own tables.

mod host;
mod kernarg;
mod segment;

pub use host::{
    ACTIVATION_BYTES, At, HostAdd, HostGemv, HostStep, HostWhy, ROW_ALIGN, Share, SplitStep,
    Transfer,
};
pub use kernarg::{KernargError, KernargSlot};
pub use segment::{Barrier, Piece, Segment, SegmentLaunch};

use crate::machine::Machine;
use crate::memory::Memory;
use crate::source::LoadOp;
use refrain_kernels::{Dtype, Target};
use std::fmt;

/// 32-byte BLAKE3 digest.
pub type Digest = [u8; 32];
/// Index into [`Plan::buffers`].
pub type BufferId = u32;
/// Index into [`Plan::kernels`].
pub type KernelId = u32;
/// Index into [`Plan::steps`].
pub type StepId = u32;

/// One decode step of one model on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Program and version that made the plan; advisory, not part of identity.
    pub producer: String,
    /// The model: architecture, geometry, tensor table.
    pub model: Model,
    /// The machine the plan was made for.
    pub machine: Machine,
    /// Choices that change what is computed or where.
    pub options: Options,
    /// Every byte range of memory that a step may touch.
    pub buffers: Vec<Buffer>,
    /// Every kernel that a step launches, by digest of its code object.
    pub kernels: Vec<Kernel>,
    /// The decode step, in launch order.
    pub steps: Vec<Step>,
    /// Dependences and the waits that honour them.
    pub schedule: Schedule,
    /// Whether and how the steps may be retained, with every reason against it.
    pub eligibility: Eligibility,
    /// Exact bytes by tier and use; follows from the rest and is checked against it.
    pub memory: Memory,
}

/// Architecture, geometry and tensors of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `general.architecture` of the file, e.g. `qwen3`.
    pub arch: String,
    /// `general.name`, or `unnamed`: what the file says, never what it is called.
    pub name: String,
    /// The files of the model. Offsets count through all of them, one after the other.
    pub files: Vec<ModelFile>,
    /// Shape facts that kernels and buffers were sized from.
    pub geometry: Geometry,
    /// Token that ends a text, if the file names one.
    pub eos: Option<u32>,
    /// Every tensor that a step reads, in upload order.
    pub tensors: Vec<Tensor>,
}

/// One file of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelFile {
    /// Length in bytes; where only the header was there, the length that its tensor table asks for.
    pub bytes: u64,
    /// Bytes before its tensor data: metadata, tokenizer, tensor table, padding. All of a file that
    /// holds no tensors.
    pub header_bytes: u64,
    /// Plain BLAKE3 of those bytes, so that whoever opens the file again can refuse another header.
    pub header_digest: Digest,
}

impl Model {
    /// Length of all files together.
    pub fn file_bytes(&self) -> u64 {
        let lengths = self.files.iter().map(|file| file.bytes);
        lengths.fold(0, u64::saturating_add)
    }

    /// Whether the digests of all tensors are known. A plan without them was made from a header or
    /// a recipe and cannot run.
    pub fn has_weights(&self) -> bool {
        self.tensors.iter().all(|tensor| tensor.digest.is_some())
    }
}

/// Shape of a decoder. Counts of parts that a model has not are 0.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Geometry {
    /// Transformer blocks.
    pub layers: u32,
    /// Residual stream width E.
    pub hidden: u32,
    /// Query heads H.
    pub heads: u32,
    /// Key/value heads K.
    pub kv_heads: u32,
    /// Elements per head D.
    pub head_dim: u32,
    /// Feed-forward width F of dense layers.
    pub ffn: u32,
    /// Vocabulary rows V.
    pub vocab: u32,
    /// Rotated elements per head (<= `head_dim`).
    pub rope_dims: u32,
    /// Longest context the model file allows, in tokens.
    pub context_max: u32,
    /// RMSNorm epsilon.
    pub norm_eps: f32,
    /// RoPE base theta.
    pub rope_theta: f32,
    /// Columns of a causal convolution, this step's included.
    pub conv_taps: u32,
    /// Value heads of a linear-attention layer, each with a state of `state_dim` x `state_dim`.
    pub state_heads: u32,
    /// Query and key heads of a linear-attention layer.
    pub state_key_heads: u32,
    /// Elements per head of a linear-attention layer.
    pub state_dim: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Experts that one token uses.
    pub experts_used: u32,
    /// Feed-forward width of one expert.
    pub expert_ffn: u32,
    /// Feed-forward width of the shared expert.
    pub shared_ffn: u32,
}

/// One weight tensor: where it lies in the file and where in device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Name in the model file.
    pub name: String,
    /// Element format, on the device and once loaded.
    pub dtype: Dtype,
    /// Element format in the model file: `dtype`, or a float that is widened to it.
    pub stored: Dtype,
    /// What is done to the elements after they have become `dtype`, in order.
    pub load: Vec<LoadOp>,
    /// Output rows (1 for a vector).
    pub rows: u32,
    /// Contiguous elements per row.
    pub cols: u32,
    /// Byte offset, counted through all files of the model; 0 where it has no place yet.
    pub file_offset: u64,
    /// Bytes in the model files.
    pub file_bytes: u64,
    /// Where further pieces start, if it lies in several of equal length.
    pub more: Vec<u64>,
    /// Digest of the elements as `dtype`, everything of `load` done: the same for every file format.
    /// `None` where the weights were not there.
    pub digest: Option<Digest>,
    /// Buffer that holds it on the device, in the layout of `refrain_kernels::relayout`.
    pub buffer: BufferId,
    /// Byte offset in that buffer.
    pub offset: u64,
    /// Bytes in that buffer.
    pub bytes: u64,
}

/// Choices that change what is computed or where; all of them are part of identity.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Tokens of context this plan allocates KV rows for.
    pub context: u32,
    /// Positions that this plan runs at are below this: the context, or the end of a bucket of a
    /// family of plans that share their buffers' shapes.
    pub bucket: u32,
    /// Element type of the KV cache: `F32` (exact mode), `F16` or `Q8_0`.
    pub kv_dtype: Dtype,
    /// Entries of the token ring, a power of two.
    pub ring_entries: u32,
    /// Layers, counted from the last, whose matrices lie in device memory; those of the layers
    /// before them are spilled to the host.
    pub gpu_layers: u32,
    /// Who multiplies spilled matrices; `None` where nothing is spilled.
    pub exec: Option<Exec>,
    /// Form in which activations meet quantised matrices.
    pub activations: Activations,
}

/// Form in which activations meet quantised matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Activations {
    /// f32: every engine gives the same bits.
    #[default]
    Exact,
    /// int8 where that is the habit of the matrix's format, as in ggml; f32 elsewhere.
    Int8,
}

impl Activations {
    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Int8 => "int8",
        }
    }
}

/// Who multiplies the matrices of spilled layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exec {
    /// The GPU, by the same launches: it reads pinned host memory over the link.
    Pcie,
    /// The host, in steps of its own between launches.
    Cpu,
    /// Both, each some of the rows of a matrix at the same time.
    Passback {
        /// The GPU's part of the rows.
        share: Share,
    },
}

impl Exec {
    /// Name on the command line and in reports, without the share.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcie => "pcie",
            Self::Cpu => "cpu",
            Self::Passback { .. } => "passback",
        }
    }

    /// Whether two runs of a plan may divide rows differently, so that nothing may be compared with
    /// or sealed from it.
    pub const fn is_auto(self) -> bool {
        matches!(self, Self::Passback { share: Share::Auto })
    }

    /// Rows `[0, g)` of a matrix of `rows` rows that the GPU multiplies.
    pub fn gpu_rows(self, rows: u32) -> u32 {
        match self {
            Self::Pcie => rows,
            Self::Cpu => 0,
            Self::Passback { share } => share.gpu_rows(rows),
        }
    }
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Passback { share } => write!(f, ":{share}"),
            Self::Pcie | Self::Cpu => Ok(()),
        }
    }
}

/// A named allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Unique name, e.g. `scratch`, `kv.k.3`, `control`.
    pub name: String,
    /// What it is for; decides memory type and initial content.
    pub kind: BufferKind,
    /// Size in bytes.
    pub bytes: u64,
    /// Alignment in bytes, a power of two.
    pub align: u32,
    /// Content of a [`BufferKind::Constant`] (exactly `bytes` long), empty for every other kind.
    pub content: Vec<u8>,
}

/// What a buffer is for. The memory type of each kind is fixed: see [`crate::memory::TYPES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BufferKind {
    /// Weights, uploaded once, never written by a step.
    Weights,
    /// Weights of a spilled layer: as [`BufferKind::Weights`], in pinned host memory.
    SpilledWeights,
    /// Constant made by the planner, e.g. the RoPE table; its bytes are [`Buffer::content`].
    Constant,
    /// Keys or values of one layer, `[context][kv_dim]`.
    Kv,
    /// What a layer keeps of all tokens so far in a size of its own: convolution columns or a
    /// recurrent state. Zero before a text.
    State,
    /// Activations; content is dead between tokens.
    Scratch,
    /// The control block of words (`refrain_kernels::WORDS`).
    Control,
    /// Prompt token ids, u32 each, `[context]`.
    Prompt,
    /// Token ring: u64 entries written at system scope, read by the host.
    TokenRing,
    /// Activations on their way between GPU and host: what host steps read and write.
    HandOff,
}

/// Where a buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Device memory.
    Device,
    /// Pinned, fine-grained host memory that host and GPU both address.
    HostCoherent,
}

impl BufferKind {
    /// Memory tier of this kind.
    pub fn tier(self) -> Tier {
        crate::memory::type_of(self).tier
    }

    /// Whether tensors may lie in it.
    pub const fn holds_weights(self) -> bool {
        matches!(self, Self::Weights | Self::SpilledWeights)
    }
}

/// A kernel by name and code-object digest, with the facts lowering and admission need.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Symbol without `.kd`.
    pub symbol: String,
    /// Target of the code object.
    pub target: Target,
    /// BLAKE3 of the code object's bytes.
    pub object: Digest,
    /// Kernarg segment bytes.
    pub kernarg_bytes: u32,
    /// Static LDS bytes per work-group.
    pub lds_bytes: u32,
    /// Work-items per work-group.
    pub block: [u32; 3],
}

/// One entry of the plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Unique name, e.g. `blk.0.attn_q`.
    pub name: String,
    /// Layer, if it belongs to one.
    pub layer: Option<u32>,
    /// What is done.
    pub body: StepBody,
}

/// What a step does.
///
/// The last two are barriers: everything before one has finished and is visible to the host when it
/// starts, and everything after one starts when it has finished and sees what it wrote.
#[derive(Debug, Clone, PartialEq)]
pub enum StepBody {
    /// One kernel launch.
    Launch(Launch),
    /// Matrix rows times a vector, computed by the host.
    Cpu(HostStep),
    /// The same with some of the rows computed by launches at the same time.
    Split(SplitStep),
}

impl StepBody {
    /// The launches of this step: one, none, or those of the GPU's rows.
    pub fn launches(&self) -> &[Launch] {
        match self {
            Self::Launch(launch) => std::slice::from_ref(launch),
            Self::Cpu(_) => &[],
            Self::Split(split) => &split.launches,
        }
    }

    /// As [`Self::launches`].
    pub fn launches_mut(&mut self) -> &mut [Launch] {
        match self {
            Self::Launch(launch) => std::slice::from_mut(launch),
            Self::Cpu(_) => &mut [],
            Self::Split(split) => &mut split.launches,
        }
    }

    /// What the host does in this step; `None` for a launch.
    pub const fn host(&self) -> Option<&HostStep> {
        match self {
            Self::Launch(_) => None,
            Self::Cpu(host) => Some(host),
            Self::Split(split) => Some(&split.host),
        }
    }

    /// As [`Self::host`].
    pub const fn host_mut(&mut self) -> Option<&mut HostStep> {
        match self {
            Self::Launch(_) => None,
            Self::Cpu(host) => Some(host),
            Self::Split(split) => Some(&mut split.host),
        }
    }

    /// Whether this step is a barrier.
    pub const fn is_barrier(&self) -> bool {
        !matches!(self, Self::Launch(_))
    }

    /// `launch`, `cpu` or `split`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Launch(_) => "launch",
            Self::Cpu(_) => "cpu",
            Self::Split(_) => "split",
        }
    }
}

/// One kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Which kernel.
    pub kernel: KernelId,
    /// Work-groups in x, y, z.
    pub grid: [u32; 3],
    /// Kernel arguments in order; offsets come from the catalog row.
    pub args: Vec<Arg>,
    /// Declared reads.
    pub reads: Vec<Region>,
    /// Declared writes.
    pub writes: Vec<Region>,
}

/// One kernel argument. Every kernarg byte comes from exactly one of these (padding is zero).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg {
    /// 8-byte address of a byte in a buffer.
    Region {
        /// Buffer.
        buffer: BufferId,
        /// Byte offset.
        offset: u64,
    },
    /// 4-byte immediate, constant for the life of the plan (f32 as bits).
    Imm(u32),
    /// 8-byte address of the control block plus a word's offset; the word itself is read on the device.
    WordAddr {
        /// Byte offset of the word in the control block.
        offset: u32,
    },
}

/// Bytes of a buffer that a step may touch, as a function of a control word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Buffer.
    pub buffer: BufferId,
    /// First byte for word value 0.
    pub offset: u64,
    /// How far it reaches.
    pub extent: Extent,
}

/// Extent of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// `bytes` bytes whatever the words are.
    Fixed {
        /// Length.
        bytes: u64,
    },
    /// One row: `[offset + word*stride, + bytes)`, word in `0..count`.
    Row {
        /// Byte offset of the word in the control block.
        word: u32,
        /// Bytes between rows.
        stride: u64,
        /// Bytes of a row that are touched.
        bytes: u64,
        /// Word values in range.
        count: u32,
    },
    /// All rows up to and including the word: `[offset, offset + (word+1)*stride)`, word in `0..count`.
    RowsTo {
        /// Byte offset of the word in the control block.
        word: u32,
        /// Bytes between rows.
        stride: u64,
        /// Word values in range.
        count: u32,
    },
}

impl Region {
    /// Union over every word value: `(first byte, end)`.
    pub const fn bound(&self) -> (u64, u64) {
        let bytes = match self.extent {
            Extent::Fixed { bytes } => bytes,
            Extent::Row {
                stride,
                bytes,
                count,
                ..
            } => stride
                .saturating_mul(count.saturating_sub(1) as u64)
                .saturating_add(bytes),
            Extent::RowsTo { stride, count, .. } => stride.saturating_mul(count as u64),
        };
        (self.offset, self.offset.saturating_add(bytes))
    }

    /// Whether the two may share a byte for some word values.
    pub const fn may_overlap(&self, other: &Self) -> bool {
        let (a, b) = (self.bound(), other.bound());
        self.buffer == other.buffer && a.0 < b.1 && b.0 < a.1
    }
}

/// Dependences between launches and the waits that honour them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// Direct dependences inside one token, `from < to`, sorted by (`to`, `from`).
    pub edges: Vec<Edge>,
    /// Waits, at most one before each step, sorted by `before`.
    pub waits: Vec<Wait>,
}

/// Why one step must follow another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Earlier step.
    pub from: StepId,
    /// Later step.
    pub to: StepId,
    /// Kind of hazard.
    pub hazard: Hazard,
    /// Buffer that carries it.
    pub buffer: BufferId,
}

/// Kind of a memory hazard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hazard {
    /// Read after write.
    Raw,
    /// Write after read.
    War,
    /// Write after write.
    Waw,
}

/// All launches before `before` have finished when it starts, and the named caches are invalidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The step that waits.
    pub before: StepId,
    /// Caches to invalidate after the wait.
    pub invalidate: Invalidate,
    /// Index into [`Schedule::edges`] of an edge that demands it with this invalidation. The edge
    /// starts before `before` and ends at it, or later where no other wait comes between.
    pub because: u32,
}

/// Which caches a wait invalidates; bits per generation are `refrain_packet`'s business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invalidate {
    /// None (pure write-after-read order).
    None,
    /// Scalar and vector caches up to L2 (pm4-aql: GLK, GLV and GL1 where it exists).
    Agent,
}

/// Whether the plan may be retained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligibility {
    /// One tape holds the whole token.
    Whole,
    /// Each run of launches between barriers is a tape; every reason why it is not one for all.
    Segments(Vec<RefusalReason>),
    /// Not retainable; every reason code with the step it is about.
    Refused(Vec<RefusalReason>),
}

/// One reason against retaining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalReason {
    /// Stable code, `RFxxx`.
    pub code: u16,
    /// Step, if one is to blame.
    pub step: Option<StepId>,
    /// One sentence with both values and the remedy.
    pub detail: String,
}
