//! Architectures as declarations: metadata keys, tensors with their shapes, and the decode step as
//! a list of operations over named values.
//!
//! There is no forward code per model. [`bind`] reads the geometry of a file by the declaration's
//! keys and matches its tensors; `graph` repeats the declared operations for every layer. A further
//! architecture is one file with one [`Arch`] and a row in [`ARCHS`].

mod bind;
mod error;
mod llama;
mod qwen3;

pub(crate) use bind::each_op;
pub use bind::{Bound, BoundWeight, bind, declared};
pub use error::ArchError;

use crate::plan::Geometry;

/// Every architecture that can be planned.
pub const ARCHS: &[&Arch] = &[&llama::LLAMA, &qwen3::QWEN3];

/// The declaration of one architecture.
#[derive(Debug)]
pub struct Arch {
    /// `general.architecture`, which is also the prefix of its metadata keys.
    pub name: &'static str,
    /// Which elements of a head one rotation turns.
    pub rope: RopeStyle,
    /// Metadata keys whose presence with another value than the given one means mathematics that
    /// this declaration does not have.
    pub refused: &'static [RefusedKey],
    /// Operations before the layers, in decode order.
    pub prologue: &'static [OpDecl],
    /// Operations of each layer.
    pub layer: &'static [OpDecl],
    /// Operations after the layers.
    pub epilogue: &'static [OpDecl],
    /// Factors that divide the rotation frequencies, one f32 per pair, if the file has them.
    pub rope_factors: Option<&'static WeightDecl>,
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

/// A length as an expression over the geometry, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// Residual stream width E.
    Hidden,
    /// Query heads x head_dim.
    Query,
    /// Key/value heads x head_dim.
    KeyValue,
    /// Elements per head D.
    Head,
    /// Feed-forward width F.
    Ffn,
    /// Vocabulary rows V.
    Vocab,
    /// Rotated pairs per head, rope_dims / 2.
    RopePairs,
    /// One row.
    One,
}

impl Dim {
    /// Value for a geometry; geometries are bounded so that no product leaves u32 ([`bind`]).
    pub const fn of(self, geometry: &Geometry) -> u32 {
        match self {
            Self::Hidden => geometry.hidden,
            Self::Query => geometry.heads.saturating_mul(geometry.head_dim),
            Self::KeyValue => geometry.kv_heads.saturating_mul(geometry.head_dim),
            Self::Head => geometry.head_dim,
            Self::Ffn => geometry.ffn,
            Self::Vocab => geometry.vocab,
            Self::RopePairs => geometry.rope_dims / 2,
            Self::One => 1,
        }
    }

    /// The expression as text, for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Hidden => "embedding_length",
            Self::Query => "head_count x key_length",
            Self::KeyValue => "head_count_kv x key_length",
            Self::Head => "key_length",
            Self::Ffn => "feed_forward_length",
            Self::Vocab => "vocabulary size",
            Self::RopePairs => "rope.dimension_count / 2",
            Self::One => "1",
        }
    }
}

/// A weight tensor of the declaration.
#[derive(Debug, PartialEq, Eq)]
pub struct WeightDecl {
    /// Name in the file without `.weight`; `{}` stands for the layer.
    pub name: &'static str,
    /// Output rows; [`Dim::One`] for a vector.
    pub rows: Dim,
    /// Contiguous elements per row.
    pub cols: Dim,
    /// Tensor that stands in when this one is absent (a tied head); `None` means it must be there.
    pub tied_to: Option<&'static WeightDecl>,
}

impl WeightDecl {
    /// A vector that must be there.
    pub const fn vector(name: &'static str, len: Dim) -> Self {
        Self {
            name,
            rows: Dim::One,
            cols: len,
            tied_to: None,
        }
    }

    /// A `[rows][cols]` matrix that must be there.
    pub const fn matrix(name: &'static str, rows: Dim, cols: Dim) -> Self {
        Self {
            name,
            rows,
            cols,
            tied_to: None,
        }
    }

    /// Name in the file, for a layer if it has one.
    pub fn file_name(&self, layer: Option<u32>) -> String {
        let stem = match layer {
            Some(layer) => self.name.replace("{}", &layer.to_string()),
            None => self.name.to_owned(),
        };
        stem + ".weight"
    }
}

/// A named activation vector of f32.
#[derive(Debug, PartialEq, Eq)]
pub struct ValueDecl {
    /// Name in plans.
    pub name: &'static str,
    /// Elements.
    pub len: Dim,
}

/// One operation of the declaration. Values are written whole by the operation that names them as
/// output; `QkNorm` and `Rope` change theirs in place.
#[derive(Debug)]
pub enum OpDecl {
    /// `out = table[token]`.
    Embed {
        /// `[vocab][hidden]`.
        table: &'static WeightDecl,
        /// Row, widened to f32.
        out: &'static ValueDecl,
    },
    /// `out = x / sqrt(mean(x^2) + eps) * weight`.
    RmsNorm {
        /// Input.
        x: &'static ValueDecl,
        /// Scale per element.
        weight: &'static WeightDecl,
        /// Output.
        out: &'static ValueDecl,
    },
    /// `out = weight . x (+ residual)`.
    Gemv {
        /// `[out][x]`.
        weight: &'static WeightDecl,
        /// Input.
        x: &'static ValueDecl,
        /// Added last.
        residual: Option<&'static ValueDecl>,
        /// Output.
        out: &'static ValueDecl,
    },
    /// RMS norm of each query and key head, in place.
    QkNorm {
        /// Queries.
        q: &'static ValueDecl,
        /// Keys.
        k: &'static ValueDecl,
        /// Scale of queries.
        q_weight: &'static WeightDecl,
        /// Scale of keys.
        k_weight: &'static WeightDecl,
    },
    /// Rotary position embedding of queries and keys, in place.
    Rope {
        /// Queries.
        q: &'static ValueDecl,
        /// Keys.
        k: &'static ValueDecl,
    },
    /// Appends key and value to the layer's cache at the current position.
    KvWrite {
        /// Keys.
        k: &'static ValueDecl,
        /// Values.
        v: &'static ValueDecl,
    },
    /// Softmax attention over the layer's cache up to the current position.
    Attention {
        /// Queries.
        q: &'static ValueDecl,
        /// Output.
        out: &'static ValueDecl,
    },
    /// `out = silu(gate) * up`.
    SiluMul {
        /// Gate.
        gate: &'static ValueDecl,
        /// Up.
        up: &'static ValueDecl,
        /// Output.
        out: &'static ValueDecl,
    },
    /// Chooses the next token: index of the largest logit.
    Argmax {
        /// Logits.
        logits: &'static ValueDecl,
    },
    /// Moves token and position words on and publishes the token.
    Advance,
}

impl OpDecl {
    /// Weights that the operation reads.
    pub fn weights(&self) -> impl Iterator<Item = &'static WeightDecl> {
        let pair = match self {
            Self::Embed { table, .. } => [Some(*table), None],
            Self::RmsNorm { weight, .. } | Self::Gemv { weight, .. } => [Some(*weight), None],
            Self::QkNorm {
                q_weight, k_weight, ..
            } => [Some(*q_weight), Some(*k_weight)],
            _ => [None, None],
        };
        pair.into_iter().flatten()
    }
}

/// Values and weights that several architectures share.
mod common {
    use super::{Dim, OpDecl, RefusedKey, ValueDecl, WeightDecl};

    pub static STREAM: ValueDecl = ValueDecl {
        name: "x",
        len: Dim::Hidden,
    };
    pub static NORMED: ValueDecl = ValueDecl {
        name: "h",
        len: Dim::Hidden,
    };
    pub static QUERY: ValueDecl = ValueDecl {
        name: "q",
        len: Dim::Query,
    };
    pub static KEY: ValueDecl = ValueDecl {
        name: "k",
        len: Dim::KeyValue,
    };
    pub static VALUE: ValueDecl = ValueDecl {
        name: "v",
        len: Dim::KeyValue,
    };
    pub static ATTENDED: ValueDecl = ValueDecl {
        name: "attn",
        len: Dim::Query,
    };
    pub static GATE: ValueDecl = ValueDecl {
        name: "gate",
        len: Dim::Ffn,
    };
    pub static UP: ValueDecl = ValueDecl {
        name: "up",
        len: Dim::Ffn,
    };
    pub static ACTIVATED: ValueDecl = ValueDecl {
        name: "act",
        len: Dim::Ffn,
    };
    pub static LOGITS: ValueDecl = ValueDecl {
        name: "logits",
        len: Dim::Vocab,
    };

    pub static TOKEN_EMBD: WeightDecl = WeightDecl::matrix("token_embd", Dim::Vocab, Dim::Hidden);
    pub static OUTPUT: WeightDecl = WeightDecl {
        name: "output",
        rows: Dim::Vocab,
        cols: Dim::Hidden,
        tied_to: Some(&TOKEN_EMBD),
    };
    pub static OUTPUT_NORM: WeightDecl = WeightDecl::vector("output_norm", Dim::Hidden);
    pub static ATTN_NORM: WeightDecl = WeightDecl::vector("blk.{}.attn_norm", Dim::Hidden);
    pub static FFN_NORM: WeightDecl = WeightDecl::vector("blk.{}.ffn_norm", Dim::Hidden);
    pub static ATTN_Q: WeightDecl = WeightDecl::matrix("blk.{}.attn_q", Dim::Query, Dim::Hidden);
    pub static ATTN_K: WeightDecl = WeightDecl::matrix("blk.{}.attn_k", Dim::KeyValue, Dim::Hidden);
    pub static ATTN_V: WeightDecl = WeightDecl::matrix("blk.{}.attn_v", Dim::KeyValue, Dim::Hidden);
    pub static ATTN_OUTPUT: WeightDecl =
        WeightDecl::matrix("blk.{}.attn_output", Dim::Hidden, Dim::Query);
    pub static FFN_GATE: WeightDecl = WeightDecl::matrix("blk.{}.ffn_gate", Dim::Ffn, Dim::Hidden);
    pub static FFN_UP: WeightDecl = WeightDecl::matrix("blk.{}.ffn_up", Dim::Ffn, Dim::Hidden);
    pub static FFN_DOWN: WeightDecl = WeightDecl::matrix("blk.{}.ffn_down", Dim::Hidden, Dim::Ffn);

    /// Embedding.
    pub const PROLOGUE: &[OpDecl] = &[OpDecl::Embed {
        table: &TOKEN_EMBD,
        out: &STREAM,
    }];
    /// Final norm, head, greedy choice, advance.
    pub const EPILOGUE: &[OpDecl] = &[
        OpDecl::RmsNorm {
            x: &STREAM,
            weight: &OUTPUT_NORM,
            out: &NORMED,
        },
        OpDecl::Gemv {
            weight: &OUTPUT,
            x: &NORMED,
            residual: None,
            out: &LOGITS,
        },
        OpDecl::Argmax { logits: &LOGITS },
        OpDecl::Advance,
    ];

    const fn refuse(key: &'static str, neutral: &'static str, meaning: &'static str) -> RefusedKey {
        RefusedKey {
            key,
            neutral,
            meaning,
        }
    }
    /// Keys of dense decoders that ask for more than the declared mathematics.
    pub const REFUSED: &[RefusedKey] = &[
        refuse("expert_count", "0", "a mixture of experts"),
        refuse("attention.sliding_window", "0", "sliding-window attention"),
        refuse("attention.causal", "true", "attention that looks ahead"),
        refuse(
            "attention.scale",
            "0",
            "another attention scale than 1/sqrt(key_length)",
        ),
        refuse("attn_logit_softcapping", "0", "capped attention scores"),
        refuse("final_logit_softcapping", "0", "capped logits"),
        refuse("logit_scale", "0", "scaled logits"),
        refuse("residual_scale", "0", "a scaled residual stream"),
        refuse("embedding_scale", "0", "scaled embeddings"),
        refuse(
            "use_parallel_residual",
            "false",
            "parallel residual branches",
        ),
        refuse("rope.scaling.type", "none", "scaled rotary positions"),
        refuse("rope.scale_linear", "1", "linearly scaled rotary positions"),
    ];
}
