//! What a row of the lowering table says: operations, their launches, where arguments come from.

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
    /// A value that the plain operation changes in place, as a new one that later operations read.
    Fresh(usize, usize),
    /// A temporary of the row.
    Temp(usize),
    /// The int8 form of a value that is written, in which later operations want it.
    Int8(usize, usize),
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
    /// A number.
    Number(u32),
    /// Rows of the cache.
    Context,
    /// Parts that the context is split into.
    Splits,
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
    /// 1 / sqrt(elements per linear-attention head).
    StateScale,
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
    /// Elements of a linear-attention head.
    StateHead,
    /// The int8 form in which later operations want the value that is written.
    Wanted,
}

/// One kernel launch of a row.
#[derive(Debug)]
pub struct Part {
    /// What tells its step apart from the row's other launches; empty where there is one.
    pub suffix: &'static str,
    /// What the catalog calls it.
    pub kernel: KernelOp,
    /// What the kernel is specialised on.
    pub on: On,
    /// A length that the kernel has built in.
    pub fixed: Option<(Dim, u32)>,
    /// Arguments by name.
    pub args: &'static [(&'static str, Source)],
}

/// When a fusion pays, beyond that its kernels exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// Where the context is split into more than one part.
    Split,
    /// Where a later operation wants the value that is written as int8.
    Int8,
}

/// One row: operations and the launches that do them.
#[derive(Debug)]
pub struct Row {
    /// Name by which a fusion is switched off; empty for a plain row.
    pub name: &'static str,
    /// Operations that follow each other in decode order.
    pub ops: &'static [Op],
    /// When it is used.
    pub when: When,
    /// Operands that must be the same value.
    pub same: &'static [(Source, Source)],
    /// Values that the plain operations change in place and these kernels do not: nothing may read
    /// them later. Outputs that no argument takes are found without being named.
    pub dead: &'static [Source],
    /// Values that only these launches use: name, and elements of one part of the context as a
    /// multiple of a length.
    pub temps: &'static [(&'static str, u32, Dim)],
    /// Launches in order.
    pub parts: &'static [Part],
}
