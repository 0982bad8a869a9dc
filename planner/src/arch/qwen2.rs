//! `qwen2`: Qwen2 and 2.5. Biases on queries, keys and values, none elsewhere; rotation turns the
//! halves of a head (models.md 2.3).

use super::rows::{
    ATTEND, ATTN_K, ATTN_OUT, ATTN_Q, ATTN_V, EPILOGUE, FFN_NORMED, FFN_WIDTH, KEY, MIXER_NORM,
    NORMED, PROLOGUE, QUERY, REFUSED, REFUSED_DENSE, SWIGLU, VALUE,
};
use super::{Arch, Dim, LayerKind, LayerRule, OpDecl, RopeStyle, WeightDecl};

static Q_BIAS: WeightDecl = WeightDecl::vector("blk.{}.attn_q.bias", Dim::Query);
static K_BIAS: WeightDecl = WeightDecl::vector("blk.{}.attn_k.bias", Dim::KeyValue);
static V_BIAS: WeightDecl = WeightDecl::vector("blk.{}.attn_v.bias", Dim::KeyValue);

const QKV: &[OpDecl] = &[
    OpDecl::gemv_bias(&ATTN_Q, &Q_BIAS, &NORMED, &QUERY),
    OpDecl::gemv_bias(&ATTN_K, &K_BIAS, &NORMED, &KEY),
    OpDecl::gemv_bias(&ATTN_V, &V_BIAS, &NORMED, &VALUE),
];

/// The declaration.
pub static QWEN2: Arch = Arch {
    name: "qwen2",
    rope: RopeStyle::Halves,
    refused: &[REFUSED, REFUSED_DENSE],
    counts: &[&[FFN_WIDTH]],
    prologue: PROLOGUE,
    layers: LayerRule::Alike,
    kinds: &[LayerKind::attention(&[
        MIXER_NORM, QKV, ATTEND, ATTN_OUT, FFN_NORMED, SWIGLU,
    ])],
    epilogue: EPILOGUE,
    rope_factors: None,
};
