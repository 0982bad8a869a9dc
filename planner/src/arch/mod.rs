//! Architectures as declarations: metadata keys, tensors with their shapes, and the decode step as
//! lists of operations over named values.
//!
//! There is no forward code per model. [`bind`] reads the geometry of a file by the declaration's
//! keys and matches its tensors; `graph` writes the declared operations out layer by layer. A further
//! architecture is one file with one [`Arch`] and a row in [`ARCHS`]; what several of them share
//! stands in `rows`.

mod bind;
mod decl;
mod error;
mod keys;
mod lfm2;
mod llama;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen35moe;
mod rows;

pub(crate) use bind::each_op;
pub use bind::{Bound, BoundWeight, bind, declared};
pub use decl::{Dim, Op, OpDecl, Operands, ValueDecl, WeightDecl};
pub use error::ArchError;

use crate::plan::Geometry;

/// Every architecture that can be planned.
pub const ARCHS: &[&Arch] = &[
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen35::QWEN35,
    &qwen35moe::QWEN35MOE,
    &lfm2::LFM2,
];

/// The declaration of one architecture.
#[derive(Debug)]
pub struct Arch {
    /// `general.architecture`, which is also the prefix of its metadata keys.
    pub name: &'static str,
    /// Which elements of a head one rotation turns.
    pub rope: RopeStyle,
    /// Metadata keys whose presence with another value than the given one means mathematics that
    /// this declaration does not have.
    pub refused: &'static [&'static [RefusedKey]],
    /// Shape facts beyond those that every architecture has.
    pub counts: &'static [&'static [CountKey]],
    /// Operations before the layers, in decode order.
    pub prologue: &'static [OpDecl],
    /// How a file says which kind each layer is.
    pub layers: LayerRule,
    /// Kinds of layer; attention comes first.
    pub kinds: &'static [LayerKind],
    /// Operations after the layers.
    pub epilogue: &'static [OpDecl],
    /// Factors that divide the rotation frequencies, one f32 per pair, if the file has them.
    pub rope_factors: Option<&'static WeightDecl>,
}

impl Arch {
    /// Kind of that number; `keys` numbers no kind that the declaration has not.
    pub(crate) fn kind(&self, number: u8) -> &'static LayerKind {
        &self.kinds[usize::from(number).min(self.kinds.len() - 1)]
    }
}

/// One kind of layer.
#[derive(Debug)]
pub struct LayerKind {
    /// Name in messages.
    pub name: &'static str,
    /// What a layer of this kind keeps from token to token.
    pub state: &'static [State],
    /// Its operations in decode order, in groups.
    pub ops: &'static [&'static [OpDecl]],
}

impl LayerKind {
    /// A layer that keeps keys and values.
    pub const fn attention(ops: &'static [&'static [OpDecl]]) -> Self {
        Self {
            name: "attention",
            state: &[State::KeyValue],
            ops,
        }
    }
}

/// What a layer keeps from token to token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Keys and values, a row of each per position.
    KeyValue,
    /// The last inputs of a causal convolution over so many channels.
    Columns(Dim),
    /// One matrix per value head.
    Recurrent,
}

/// How a file says which kind each layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerRule {
    /// All layers are of the first kind.
    Alike,
    /// `attention.recurrent_layers` by layer, else every `full_attention_interval`-th layer is of
    /// the first kind and the others of the second.
    Recurrent {
        /// Interval where the file names none.
        interval: u32,
    },
    /// Layers without key/value heads are of the second kind.
    KeyValueHeads,
}

/// Which elements of a head one rotation turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Elements 2j and 2j+1 (how GGUF stores `llama` heads).
    AdjacentPairs,
    /// Elements j and j + rope_dims/2 (NeoX, "rotate half").
    Halves,
}

/// A metadata key that must be absent or hold one of the accepted values.
#[derive(Debug)]
pub struct RefusedKey {
    /// Key without the architecture prefix.
    pub key: &'static str,
    /// Value that changes nothing, as text or number.
    pub neutral: &'static str,
    /// What another value would mean.
    pub meaning: &'static str,
}

/// A count that an architecture has beyond those of every decoder, the same in all layers.
#[derive(Debug)]
pub struct CountKey {
    /// Key without the architecture prefix.
    pub key: &'static str,
    /// Largest accepted value.
    pub most: u32,
    /// What becomes of it.
    pub rule: KeyRule,
}

/// What becomes of a count.
#[derive(Debug, Clone, Copy)]
pub enum KeyRule {
    /// It is a field of the geometry.
    Set(fn(&mut Geometry, u32)),
    /// It must be what the counts before it say.
    Equal(Dim),
}
