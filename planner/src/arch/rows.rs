//! table: values, weights and groups of operations that several architectures share.

use super::decl::{Dim, OpDecl, ValueDecl, WeightDecl};
use super::{CountKey, KeyRule, RefusedKey};

const fn value(name: &'static str, len: Dim) -> ValueDecl {
    ValueDecl { name, len }
}
const fn matrix(name: &'static str, rows: Dim, cols: Dim) -> WeightDecl {
    WeightDecl::matrix(name, rows, cols)
}
const fn vector(name: &'static str, len: Dim) -> WeightDecl {
    WeightDecl::vector(name, len)
}

pub static STREAM: ValueDecl = value("x", Dim::Hidden);
pub static NORMED: ValueDecl = value("h", Dim::Hidden);
pub static QUERY: ValueDecl = value("q", Dim::Query);
pub static KEY: ValueDecl = value("k", Dim::KeyValue);
pub static VALUE: ValueDecl = value("v", Dim::KeyValue);
pub static ATTENDED: ValueDecl = value("attn", Dim::Query);
pub static GATE: ValueDecl = value("gate", Dim::Ffn);
pub static UP: ValueDecl = value("up", Dim::Ffn);
pub static ACTIVATED: ValueDecl = value("act", Dim::Ffn);
pub static LOGITS: ValueDecl = value("logits", Dim::Vocab);

pub static TOKEN_EMBD: WeightDecl = matrix("token_embd.weight", Dim::Vocab, Dim::Hidden);
pub static OUTPUT: WeightDecl = WeightDecl {
    tied_to: Some(&TOKEN_EMBD),
    ..matrix("output.weight", Dim::Vocab, Dim::Hidden)
};
pub static OUTPUT_NORM: WeightDecl = vector("output_norm.weight", Dim::Hidden);
pub static ATTN_NORM: WeightDecl = vector("blk.{}.attn_norm.weight", Dim::Hidden);
pub static FFN_NORM: WeightDecl = vector("blk.{}.ffn_norm.weight", Dim::Hidden);
pub static ATTN_Q: WeightDecl = matrix("blk.{}.attn_q.weight", Dim::Query, Dim::Hidden);
pub static ATTN_K: WeightDecl = matrix("blk.{}.attn_k.weight", Dim::KeyValue, Dim::Hidden);
pub static ATTN_V: WeightDecl = matrix("blk.{}.attn_v.weight", Dim::KeyValue, Dim::Hidden);
pub static ATTN_OUTPUT: WeightDecl = matrix("blk.{}.attn_output.weight", Dim::Hidden, Dim::Query);
pub static ATTN_Q_NORM: WeightDecl = vector("blk.{}.attn_q_norm.weight", Dim::Head);
pub static ATTN_K_NORM: WeightDecl = vector("blk.{}.attn_k_norm.weight", Dim::Head);
pub static FFN_GATE: WeightDecl = matrix("blk.{}.ffn_gate.weight", Dim::Ffn, Dim::Hidden);
pub static FFN_UP: WeightDecl = matrix("blk.{}.ffn_up.weight", Dim::Ffn, Dim::Hidden);
pub static FFN_DOWN: WeightDecl = matrix("blk.{}.ffn_down.weight", Dim::Hidden, Dim::Ffn);

/// Embedding.
pub const PROLOGUE: &[OpDecl] = &[OpDecl::Embed {
    table: &TOKEN_EMBD,
    out: &STREAM,
}];
/// Final norm, head, greedy choice, advance.
pub const EPILOGUE: &[OpDecl] = &[
    OpDecl::norm(&STREAM, &OUTPUT_NORM, &NORMED),
    OpDecl::gemv(&OUTPUT, &NORMED, &LOGITS),
    OpDecl::Argmax { logits: &LOGITS },
    OpDecl::Advance {},
];
/// Norm before the mixer.
pub const MIXER_NORM: &[OpDecl] = &[OpDecl::norm(&STREAM, &ATTN_NORM, &NORMED)];
/// Queries, keys and values without biases.
pub const QKV: &[OpDecl] = &[
    OpDecl::gemv(&ATTN_Q, &NORMED, &QUERY),
    OpDecl::gemv(&ATTN_K, &NORMED, &KEY),
    OpDecl::gemv(&ATTN_V, &NORMED, &VALUE),
];
/// RMS norm of each head.
pub const QK_NORM: &[OpDecl] = &[OpDecl::QkNorm {
    q: &QUERY,
    k: &KEY,
    q_weight: &ATTN_Q_NORM,
    k_weight: &ATTN_K_NORM,
}];
/// Rotation, cache and softmax attention.
pub const ATTEND: &[OpDecl] = &[
    OpDecl::Rope { q: &QUERY, k: &KEY },
    OpDecl::KvWrite { k: &KEY, v: &VALUE },
    OpDecl::Attention {
        q: &QUERY,
        out: &ATTENDED,
    },
];
/// Back into the stream.
pub const ATTN_OUT: &[OpDecl] = &[OpDecl::gemv_add(&ATTN_OUTPUT, &ATTENDED, &STREAM)];
/// Norm before the feed-forward part, under its usual name.
pub const FFN_NORMED: &[OpDecl] = &[OpDecl::norm(&STREAM, &FFN_NORM, &NORMED)];
/// Gated feed-forward part.
pub const SWIGLU: &[OpDecl] = &[
    OpDecl::gemv(&FFN_GATE, &NORMED, &GATE),
    OpDecl::gemv(&FFN_UP, &NORMED, &UP),
    OpDecl::SiluMul {
        gate: &GATE,
        up: &UP,
        out: &ACTIVATED,
    },
    OpDecl::gemv_add(&FFN_DOWN, &ACTIVATED, &STREAM),
];

/// Width of a dense feed-forward part.
pub const FFN_WIDTH: CountKey = CountKey {
    key: "feed_forward_length",
    most: 1 << 20,
    rule: KeyRule::Set(|g, value| g.ffn = value),
};

const fn refuse(key: &'static str, neutral: &'static str, meaning: &'static str) -> RefusedKey {
    RefusedKey {
        key,
        neutral,
        meaning,
    }
}

/// Keys of every decoder that ask for more than the declared mathematics.
pub const REFUSED: &[RefusedKey] = &[
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
    refuse(
        "nextn_predict_layers",
        "0",
        "layers that predict further tokens",
    ),
    refuse("rope.scaling.type", "none", "scaled rotary positions"),
    refuse("rope.scale_linear", "1", "linearly scaled rotary positions"),
];
/// Keys that only a mixture of experts has.
pub const REFUSED_DENSE: &[RefusedKey] = &[refuse("expert_count", "0", "a mixture of experts")];
/// Keys of mixtures of experts that ask for another routing than softmax, top-k and division by
/// the sum.
pub const REFUSED_EXPERTS: &[RefusedKey] = &[
    refuse("expert_gating_func", "1", "another routing than softmax"),
    refuse("expert_weights_scale", "1", "scaled expert weights"),
    refuse("expert_weights_norm", "true", "expert weights as they are"),
    refuse("expert_group_count", "1", "routing by groups"),
    refuse("leading_dense_block_count", "0", "dense layers in front"),
];
