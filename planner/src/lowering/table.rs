//! table: which kernel does an operation, or several at once, and where its arguments come from.
//!
//! A row of [`PLAIN`] does one operation; every operation has one. A row of [`FUSED`] does several
//! that follow each other, in place of their plain launches; `select` tries those first, in this
//! order. Arguments are bound by name, so a kernel that takes fewer of them needs no other row.

use crate::arch::Dim;
use crate::graph::Op;
use refrain_kernels::Op as KernelOp;

/// Where an argument comes from. The first number is the operation in the row, the second the
/// operand of it ([`crate::arch::Operands`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A value that is read or changed in place.
    In(usize, usize),
    /// A value that is written.
    Out(usize, usize),
    /// A weight.
    Weight(usize, usize),
    /// Rows of a weight.
    Rows(usize, usize),
    /// Contiguous elements of a weight's row.
    Cols(usize, usize),
    /// Elements of a value that is written.
    Len(usize, usize),
    /// A length of the geometry.
    Size(Dim),
    /// The number 0.
    Zero,
    /// The control block.
    Control,
    /// The prompt.
    Prompt,
    /// The token ring.
    Ring,
    /// The rotation table.
    Rotation,
    /// Whether rotation turns adjacent elements.
    Interleaved,
    /// The norms' epsilon.
    Eps,
    /// 1 / sqrt(elements per head).
    Scale,
    /// The layer's keys.
    Keys,
    /// The layer's values.
    Values,
    /// The layer's buffer number so many that it keeps from token to token.
    State(usize),
}

/// What a kernel is specialised on, beyond the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Nothing: weights are f32.
    Nothing,
    /// The type of these weights, the same for all; others are f32.
    Weights(&'static [(usize, usize)]),
    /// The cache's type.
    Cache,
    /// The cache's type and the head's elements.
    CacheAndHead,
}

/// One row: operations, their kernel, its arguments.
#[derive(Debug)]
pub struct Row {
    /// Name by which a fusion is switched off; also the stem of its steps.
    pub name: &'static str,
    /// Operations that follow each other in decode order.
    pub ops: &'static [Op],
    /// What the catalog calls it.
    pub kernel: KernelOp,
    /// What the kernel is specialised on.
    pub on: On,
    /// Operands that must be the same value.
    pub same: &'static [(Source, Source)],
    /// Values changed in place by the plain operations that this kernel leaves unfinished: nothing
    /// may read them later. Outputs that no argument takes are found without being named.
    pub dead: &'static [Source],
    /// Arguments by name.
    pub args: &'static [(&'static str, Source)],
}

use On::{Cache, CacheAndHead, Nothing, Weights};
use Source::{
    Cols, Control, Eps, In, Interleaved, Keys, Out, Prompt, Ring, Rotation, Rows, Scale, Size,
    Values, Weight, Zero,
};

const fn plain(
    op: &'static [Op],
    kernel: KernelOp,
    on: On,
    args: &'static [(&'static str, Source)],
) -> Row {
    Row {
        name: "",
        ops: op,
        kernel,
        on,
        same: &[],
        dead: &[],
        args,
    }
}

const FIRST: On = Weights(&[(0, 0)]);
const HEADS: (&str, Source) = ("heads", Size(Dim::Heads));
const KV_HEADS: (&str, Source) = ("kv_heads", Size(Dim::KeyValueHeads));
const HEAD_DIM: (&str, Source) = ("head_dim", Size(Dim::Head));
const CONTROL: (&str, Source) = ("control", Control);
const KCACHE: (&str, Source) = ("kcache", Keys);
const VCACHE: (&str, Source) = ("vcache", Values);

/// One row per operation.
pub static PLAIN: &[Row] = &[
    plain(
        &[Op::Embed],
        KernelOp::Embed,
        FIRST,
        &[
            ("table", Weight(0, 0)),
            CONTROL,
            ("out", Out(0, 0)),
            ("e", Cols(0, 0)),
            ("rows", Rows(0, 0)),
        ],
    ),
    plain(
        &[Op::RmsNorm],
        KernelOp::RmsNorm,
        Nothing,
        &[
            ("x", In(0, 0)),
            ("w", Weight(0, 0)),
            ("y", Out(0, 0)),
            ("n", Cols(0, 0)),
            ("eps", Eps),
        ],
    ),
    plain(
        &[Op::Gemv],
        KernelOp::Gemv,
        FIRST,
        &[
            ("w", Weight(0, 0)),
            ("x", In(0, 0)),
            ("y", Out(0, 0)),
            ("r0", Zero),
            ("r1", Rows(0, 0)),
            ("k", Cols(0, 0)),
            ("rows", Rows(0, 0)),
        ],
    ),
    plain(
        &[Op::GemvAdd],
        KernelOp::GemvAdd,
        FIRST,
        &[
            ("w", Weight(0, 0)),
            ("x", In(0, 0)),
            ("residual", In(0, 1)),
            ("y", Out(0, 0)),
            ("r0", Zero),
            ("r1", Rows(0, 0)),
            ("k", Cols(0, 0)),
            ("rows", Rows(0, 0)),
        ],
    ),
    plain(
        &[Op::QkNorm],
        KernelOp::QkNorm,
        Nothing,
        &[
            ("q", In(0, 0)),
            ("k", In(0, 1)),
            ("qw", Weight(0, 0)),
            ("kw", Weight(0, 1)),
            HEADS,
            KV_HEADS,
            HEAD_DIM,
            ("eps", Eps),
        ],
    ),
    plain(
        &[Op::Rope],
        KernelOp::Rope,
        Nothing,
        &[
            ("q", In(0, 0)),
            ("k", In(0, 1)),
            ("table", Rotation),
            CONTROL,
            HEADS,
            KV_HEADS,
            HEAD_DIM,
            ("rot_dim", Size(Dim::RopeDims)),
            ("interleaved", Interleaved),
        ],
    ),
    plain(
        &[Op::KvWrite],
        KernelOp::KvWrite,
        Cache,
        &[
            ("k", In(0, 0)),
            ("v", In(0, 1)),
            KCACHE,
            VCACHE,
            CONTROL,
            ("kv_dim", Size(Dim::KeyValue)),
        ],
    ),
    plain(
        &[Op::Attention],
        KernelOp::AttnDecode,
        CacheAndHead,
        &[
            ("q", In(0, 0)),
            KCACHE,
            VCACHE,
            CONTROL,
            ("out", Out(0, 0)),
            HEADS,
            KV_HEADS,
            ("scale", Scale),
        ],
    ),
    plain(
        &[Op::SiluMul],
        KernelOp::SiluMul,
        Nothing,
        &[
            ("gate", In(0, 0)),
            ("up", In(0, 1)),
            ("out", Out(0, 0)),
            ("n", Source::Len(0, 0)),
        ],
    ),
    plain(
        &[Op::Argmax],
        KernelOp::Argmax,
        Nothing,
        &[("logits", In(0, 0)), CONTROL, ("n", Size(Dim::Vocab))],
    ),
    plain(
        &[Op::Advance],
        KernelOp::Advance,
        Nothing,
        &[CONTROL, ("prompt", Prompt), ("ring", Ring)],
    ),
];

/// Several operations in one launch, tried in this order.
pub static FUSED: &[Row] = &[];
