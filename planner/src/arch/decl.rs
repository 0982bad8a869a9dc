//! The vocabulary of declarations: lengths over the geometry, weights, values, operations.
//!
//! An operation here is the smallest piece of mathematics that some kernel can do by itself; which
//! of them one launch takes together is `lowering::fuse`'s business.

use crate::plan::Geometry;

/// A length as an expression over the geometry, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// Residual stream width E.
    Hidden,
    /// Query heads x head_dim.
    Query,
    /// Queries with their gates, twice [`Dim::Query`].
    GatedQuery,
    /// Key/value heads x head_dim.
    KeyValue,
    /// Query heads H.
    Heads,
    /// Key/value heads K.
    KeyValueHeads,
    /// Elements per head D.
    Head,
    /// Elements per query head with its gate, 2 D.
    GatedHead,
    /// Feed-forward width F.
    Ffn,
    /// Vocabulary rows V.
    Vocab,
    /// Rotated elements per head.
    RopeDims,
    /// Rotated pairs per head, rope_dims / 2.
    RopePairs,
    /// Columns of a causal convolution, this step's included.
    ConvTaps,
    /// Input, gate and output channels of a short convolution, 3 E.
    ShortConv,
    /// Query and key heads of a linear-attention layer.
    StateKeyHeads,
    /// Value heads of a linear-attention layer.
    StateHeads,
    /// Elements per value head of a linear-attention layer.
    StateHead,
    /// Value heads x their elements.
    StateValue,
    /// Channels of a linear-attention layer's convolution: queries, keys and values.
    StateMix,
    /// Experts.
    Experts,
    /// Experts that one token uses.
    ExpertsUsed,
    /// Feed-forward width of one expert.
    ExpertFfn,
    /// Feed-forward widths of the experts that one token uses.
    ExpertsUsedFfn,
    /// Feed-forward width of the shared expert.
    SharedFfn,
    /// One row.
    One,
}

impl Dim {
    /// Value for a geometry; geometries are bounded so that no product leaves u32 ([`super::bind`]).
    pub const fn of(self, geometry: &Geometry) -> u32 {
        let g = geometry;
        match self {
            Self::Hidden => g.hidden,
            Self::Query => g.heads.saturating_mul(g.head_dim),
            Self::GatedQuery => g.heads.saturating_mul(g.head_dim).saturating_mul(2),
            Self::KeyValue => g.kv_heads.saturating_mul(g.head_dim),
            Self::Heads => g.heads,
            Self::KeyValueHeads => g.kv_heads,
            Self::Head => g.head_dim,
            Self::GatedHead => g.head_dim.saturating_mul(2),
            Self::Ffn => g.ffn,
            Self::Vocab => g.vocab,
            Self::RopeDims => g.rope_dims,
            Self::RopePairs => g.rope_dims / 2,
            Self::ConvTaps => g.conv_taps,
            Self::ShortConv => g.hidden.saturating_mul(3),
            Self::StateKeyHeads => g.state_key_heads,
            Self::StateHeads => g.state_heads,
            Self::StateHead => g.state_dim,
            Self::StateValue => g.state_heads.saturating_mul(g.state_dim),
            Self::StateMix => g
                .state_key_heads
                .saturating_mul(2)
                .saturating_add(g.state_heads)
                .saturating_mul(g.state_dim),
            Self::Experts => g.experts,
            Self::ExpertsUsed => g.experts_used,
            Self::ExpertFfn => g.expert_ffn,
            Self::ExpertsUsedFfn => g.experts_used.saturating_mul(g.expert_ffn),
            Self::SharedFfn => g.shared_ffn,
            Self::One => 1,
        }
    }

    /// The expression as text, for messages.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Hidden => "embedding_length",
            Self::Query => "head_count x key_length",
            Self::GatedQuery => "2 x head_count x key_length",
            Self::KeyValue => "head_count_kv x key_length",
            Self::Heads => "head_count",
            Self::KeyValueHeads => "head_count_kv",
            Self::Head => "key_length",
            Self::GatedHead => "2 x key_length",
            Self::Ffn => "feed_forward_length",
            Self::Vocab => "vocabulary size",
            Self::RopeDims => "rope.dimension_count",
            Self::RopePairs => "rope.dimension_count / 2",
            Self::ConvTaps => "convolution columns",
            Self::ShortConv => "3 x embedding_length",
            Self::StateKeyHeads => "ssm.group_count",
            Self::StateHeads => "ssm.time_step_rank",
            Self::StateHead => "ssm.state_size",
            Self::StateValue => "ssm.time_step_rank x ssm.state_size",
            Self::StateMix => "(2 x ssm.group_count + ssm.time_step_rank) x ssm.state_size",
            Self::Experts => "expert_count",
            Self::ExpertsUsed => "expert_used_count",
            Self::ExpertFfn => "expert_feed_forward_length",
            Self::ExpertsUsedFfn => "expert_used_count x expert_feed_forward_length",
            Self::SharedFfn => "expert_shared_feed_forward_length",
            Self::One => "1",
        }
    }
}

/// A weight tensor of the declaration.
#[derive(Debug, PartialEq, Eq)]
pub struct WeightDecl {
    /// Name in a GGUF file; `{}` stands for the layer.
    pub name: &'static str,
    /// Matrices that lie one after the other; [`Dim::One`] for a single one.
    pub stack: Dim,
    /// Output rows of one matrix; [`Dim::One`] for a vector.
    pub rows: Dim,
    /// Contiguous elements per row.
    pub cols: Dim,
    /// Tensor that stands in when this one is absent (a tied head); `None` means it must be there.
    pub tied_to: Option<&'static WeightDecl>,
}

impl WeightDecl {
    /// A vector that must be there.
    pub const fn vector(name: &'static str, len: Dim) -> Self {
        Self::matrix(name, Dim::One, len)
    }

    /// A `[rows][cols]` matrix that must be there.
    pub const fn matrix(name: &'static str, rows: Dim, cols: Dim) -> Self {
        Self::stack(name, Dim::One, rows, cols)
    }

    /// `stack` matrices `[rows][cols]` that must be there.
    pub const fn stack(name: &'static str, stack: Dim, rows: Dim, cols: Dim) -> Self {
        Self {
            name,
            stack,
            rows,
            cols,
            tied_to: None,
        }
    }

    /// Name in the file, for a layer if it has one.
    pub fn file_name(&self, layer: Option<u32>) -> String {
        match layer {
            Some(layer) => self.name.replace("{}", &layer.to_string()),
            None => self.name.to_owned(),
        }
    }

    /// The name without what says that it is a weight: the stem of step names.
    pub fn stem(&self) -> &'static str {
        self.name.strip_suffix(".weight").unwrap_or(self.name)
    }
}

/// A named activation vector of 4-byte elements.
#[derive(Debug, PartialEq, Eq)]
pub struct ValueDecl {
    /// Name in plans.
    pub name: &'static str,
    /// Elements.
    pub len: Dim,
}

type Value = &'static ValueDecl;
type Weight = &'static WeightDecl;

/// One row per operation: its formula, operands by name, and which of them are read, written and
/// weights, in the order that lowering's table counts them.
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $ty:ty),* $(,)? }
        reads [$($read:ident),*] writes [$($write:ident),*] weights [$($weight:ident),*];
    )*) => {
        /// One operation of the declaration. Values are written whole by the operation that names
        /// them as output; `QkNorm`, `Rope` and `L2Norm` change theirs in place. Mathematics:
        /// models.md 2.3.
        #[derive(Debug)]
        #[expect(missing_docs, reason = "fields are the operands in the formula of their variant")]
        pub enum OpDecl {
            $($(#[$doc])* $name { $($field: $ty),* },)*
        }

        /// What an operation of a declaration is, without its operands.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Op {
            $($(#[$doc])* $name,)*
        }

        impl OpDecl {
            /// The operation and its operands.
            pub fn operands(&self) -> Operands {
                match *self {
                    $(Self::$name { $($field),* } => Operands {
                        op: Op::$name,
                        reads: vec![$($read),*],
                        writes: vec![$($write),*],
                        weights: vec![$($weight),*],
                    },)*
                }
            }
        }
    };
}

operations! {
    /// `out = table[token]`.
    Embed { table: Weight, out: Value }
        reads [] writes [out] weights [table];
    /// `out = x / sqrt(mean(x^2) + eps) * weight`.
    RmsNorm { x: Value, weight: Weight, out: Value }
        reads [x] writes [out] weights [weight];
    /// `out = weight . x`.
    Gemv { weight: Weight, x: Value, out: Value }
        reads [x] writes [out] weights [weight];
    /// `out = residual + weight . x`.
    GemvAdd { weight: Weight, x: Value, residual: Value, out: Value }
        reads [x, residual] writes [out] weights [weight];
    /// `out = weight . x + bias`.
    GemvBias { weight: Weight, bias: Weight, x: Value, out: Value }
        reads [x] writes [out] weights [weight, bias];
    /// Takes the queries out of `[head][query, gate]`, and the gates.
    SplitGate { x: Value, q: Value, gate: Value }
        reads [x] writes [q, gate] weights [];
    /// RMS norm of each query and key head, in place.
    QkNorm { q: Value, k: Value, q_weight: Weight, k_weight: Weight }
        reads [q, k] writes [] weights [q_weight, k_weight];
    /// Rotary position embedding of queries and keys, in place.
    Rope { q: Value, k: Value }
        reads [q, k] writes [] weights [];
    /// Appends key and value to the layer's cache at the current position.
    KvWrite { k: Value, v: Value }
        reads [k, v] writes [] weights [];
    /// Softmax attention over the layer's cache up to the current position.
    Attention { q: Value, out: Value }
        reads [q] writes [out] weights [];
    /// `out = x * sigmoid(gate)`.
    GateMul { x: Value, gate: Value, out: Value }
        reads [x, gate] writes [out] weights [];
    /// `out = silu(gate) * up`.
    SiluMul { gate: Value, up: Value, out: Value }
        reads [gate, up] writes [out] weights [];
    /// `(b, c, u) = x; s = b * u; out = c * conv(s)`, causal and per channel, over the layer's last
    /// columns of `s`.
    ShortConv { x: Value, weight: Weight, out: Value }
        reads [x] writes [out] weights [weight];
    /// `out = silu(conv(x))`, causal and per channel, over the layer's last columns of `x`.
    ConvSilu { x: Value, weight: Weight, out: Value }
        reads [x] writes [out] weights [weight];
    /// `decay = exp(a * softplus(alpha + dt))`, `beta = sigmoid(strength)`, per value head.
    DeltaGates {
        alpha: Value,
        strength: Value,
        a: Weight,
        dt: Weight,
        decay: Value,
        beta: Value,
    }
        reads [alpha, strength] writes [decay, beta] weights [a, dt];
    /// Queries and keys of a linear-attention layer to length 1, queries then times 1/sqrt(head),
    /// in place; `mix` holds queries, keys and values.
    L2Norm { mix: Value }
        reads [mix] writes [] weights [];
    /// One step of the gated delta rule over the layer's state.
    DeltaStep { mix: Value, decay: Value, beta: Value, out: Value }
        reads [mix, decay, beta] writes [out] weights [];
    /// `out = rmsnorm(x) * weight * silu(z)`, head by head.
    GatedNorm { x: Value, z: Value, weight: Weight, out: Value }
        reads [x, z] writes [out] weights [weight];
    /// The experts of a token by descending probability, with their normalised weights.
    TopK { logits: Value, ids: Value, weights: Value }
        reads [logits] writes [ids, weights] weights [];
    /// `out[e] = weight[id_e] . x` for each chosen expert.
    ExpertGemv { weight: Weight, ids: Value, x: Value, out: Value }
        reads [ids, x] writes [out] weights [weight];
    /// `out = residual + sum_e weight_e * down[id_e] . x[e]`.
    ExpertsDown {
        down: Weight,
        ids: Value,
        weights: Value,
        x: Value,
        residual: Value,
        out: Value,
    }
        reads [ids, weights, x, residual] writes [out] weights [down];
    /// `out = residual + sigmoid(gate) * x`; the gate is one number.
    GatedAdd { gate: Value, x: Value, residual: Value, out: Value }
        reads [gate, x, residual] writes [out] weights [];
    /// Chooses the next token: index of the largest logit.
    Argmax { logits: Value }
        reads [logits] writes [] weights [];
    /// Moves token and position words on and publishes the token.
    Advance {}
        reads [] writes [] weights [];
}

impl OpDecl {
    /// `out = weight . x`.
    pub const fn gemv(weight: Weight, x: Value, out: Value) -> Self {
        Self::Gemv { weight, x, out }
    }

    /// `out = weight . x + bias`.
    pub const fn gemv_bias(weight: Weight, bias: Weight, x: Value, out: Value) -> Self {
        Self::GemvBias {
            weight,
            bias,
            x,
            out,
        }
    }

    /// `out = out + weight . x`.
    pub const fn gemv_add(weight: Weight, x: Value, out: Value) -> Self {
        Self::GemvAdd {
            weight,
            x,
            residual: out,
            out,
        }
    }

    /// RMS norm.
    pub const fn norm(x: Value, weight: Weight, out: Value) -> Self {
        Self::RmsNorm { x, weight, out }
    }
}

/// An operation with its operands.
#[derive(Debug)]
pub struct Operands {
    /// What is done.
    pub op: Op,
    /// Values that are read; those of `QkNorm`, `Rope` and `L2Norm` are changed in place.
    pub reads: Vec<Value>,
    /// Values that are written whole.
    pub writes: Vec<Value>,
    /// Weights.
    pub weights: Vec<Weight>,
}
