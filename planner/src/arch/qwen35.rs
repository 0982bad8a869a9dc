//! `qwen35`: dense Qwen3.5. Three gated DeltaNet layers, then one of gated attention, unless the
//! file says which (models.md 2.3). GGUF files hold norm weights with the 1 already added, `ssm_a`
//! as `-exp(A_log)` and value heads in tiled order: head j goes with key head `j mod group_count`
//! (models.md 2.4).

use super::rows::{
    ATTEND, ATTENDED, ATTN_K, ATTN_OUT, ATTN_V, EPILOGUE, FFN_WIDTH, KEY, MIXER_NORM, NORMED,
    PROLOGUE, QK_NORM, QUERY, REFUSED, REFUSED_DENSE, STREAM, SWIGLU, VALUE,
};
use super::{
    Arch, CountKey, Dim, KeyRule, LayerKind, LayerRule, OpDecl, RopeStyle, State, ValueDecl,
    WeightDecl,
};

const fn matrix(name: &'static str, rows: Dim, cols: Dim) -> WeightDecl {
    WeightDecl::matrix(name, rows, cols)
}
const fn vector(name: &'static str, len: Dim) -> WeightDecl {
    WeightDecl::vector(name, len)
}
const fn value(name: &'static str, len: Dim) -> ValueDecl {
    ValueDecl { name, len }
}

static POST_NORM: WeightDecl = vector("blk.{}.post_attention_norm.weight", Dim::Hidden);
static GATED_Q: WeightDecl = matrix("blk.{}.attn_q.weight", Dim::GatedQuery, Dim::Hidden);
static ATTN_QKV: WeightDecl = matrix("blk.{}.attn_qkv.weight", Dim::StateMix, Dim::Hidden);
static ATTN_GATE: WeightDecl = matrix("blk.{}.attn_gate.weight", Dim::StateValue, Dim::Hidden);
static ALPHA: WeightDecl = matrix("blk.{}.ssm_alpha.weight", Dim::StateHeads, Dim::Hidden);
static BETA: WeightDecl = matrix("blk.{}.ssm_beta.weight", Dim::StateHeads, Dim::Hidden);
static CONV: WeightDecl = matrix("blk.{}.ssm_conv1d.weight", Dim::StateMix, Dim::ConvTaps);
static SSM_A: WeightDecl = vector("blk.{}.ssm_a", Dim::StateHeads);
static DT_BIAS: WeightDecl = vector("blk.{}.ssm_dt.bias", Dim::StateHeads);
static STATE_NORM: WeightDecl = vector("blk.{}.ssm_norm.weight", Dim::StateHead);
static STATE_OUT: WeightDecl = matrix("blk.{}.ssm_out.weight", Dim::Hidden, Dim::StateValue);

static QUERY_GATE: ValueDecl = value("qg", Dim::GatedQuery);
static HEAD_GATE: ValueDecl = value("attn_gate", Dim::Query);
static MIX: ValueDecl = value("mix", Dim::StateMix);
static CONVOLVED: ValueDecl = value("conv", Dim::StateMix);
static Z: ValueDecl = value("z", Dim::StateValue);
static A: ValueDecl = value("a", Dim::StateHeads);
static B: ValueDecl = value("b", Dim::StateHeads);
static DECAY: ValueDecl = value("decay", Dim::StateHeads);
static STRENGTH: ValueDecl = value("beta", Dim::StateHeads);
static RECALLED: ValueDecl = value("delta", Dim::StateValue);
static GATED: ValueDecl = value("gated", Dim::StateValue);

/// Queries with their gates, keys, values.
pub(super) const GATED_QKV: &[OpDecl] = &[
    OpDecl::gemv(&GATED_Q, &NORMED, &QUERY_GATE),
    OpDecl::gemv(&ATTN_K, &NORMED, &KEY),
    OpDecl::gemv(&ATTN_V, &NORMED, &VALUE),
    OpDecl::SplitGate {
        x: &QUERY_GATE,
        q: &QUERY,
        gate: &HEAD_GATE,
    },
];
/// The gates, on what the heads attended to.
pub(super) const HEAD_GATES: &[OpDecl] = &[OpDecl::GateMul {
    x: &ATTENDED,
    gate: &HEAD_GATE,
    out: &ATTENDED,
}];
/// The linear-attention mixer.
pub(super) const DELTA_NET: &[OpDecl] = &[
    OpDecl::gemv(&ATTN_QKV, &NORMED, &MIX),
    OpDecl::gemv(&ATTN_GATE, &NORMED, &Z),
    OpDecl::gemv(&BETA, &NORMED, &B),
    OpDecl::gemv(&ALPHA, &NORMED, &A),
    OpDecl::ConvSilu {
        x: &MIX,
        weight: &CONV,
        out: &CONVOLVED,
    },
    OpDecl::DeltaGates {
        alpha: &A,
        strength: &B,
        a: &SSM_A,
        dt: &DT_BIAS,
        decay: &DECAY,
        beta: &STRENGTH,
    },
    OpDecl::L2Norm { mix: &CONVOLVED },
    OpDecl::DeltaStep {
        mix: &CONVOLVED,
        decay: &DECAY,
        beta: &STRENGTH,
        out: &RECALLED,
    },
    OpDecl::GatedNorm {
        x: &RECALLED,
        z: &Z,
        weight: &STATE_NORM,
        out: &GATED,
    },
    OpDecl::gemv_add(&STATE_OUT, &GATED, &STREAM),
];
/// Norm before the feed-forward part.
pub(super) const POST_NORMED: &[OpDecl] = &[OpDecl::norm(&STREAM, &POST_NORM, &NORMED)];
/// What the linear-attention mixer keeps from token to token.
pub(super) const STATE: &[State] = &[State::Columns(Dim::StateMix), State::Recurrent];

/// Shape of the linear-attention mixer.
pub(super) const SSM: &[CountKey] = &[
    CountKey {
        key: "ssm.conv_kernel",
        most: 16,
        rule: KeyRule::Set(|g, value| g.conv_taps = value),
    },
    CountKey {
        key: "ssm.state_size",
        most: 1 << 12,
        rule: KeyRule::Set(|g, value| g.state_dim = value),
    },
    CountKey {
        key: "ssm.group_count",
        most: 1 << 12,
        rule: KeyRule::Set(|g, value| g.state_key_heads = value),
    },
    CountKey {
        key: "ssm.time_step_rank",
        most: 1 << 12,
        rule: KeyRule::Set(|g, value| g.state_heads = value),
    },
    CountKey {
        key: "ssm.inner_size",
        most: 1 << 24,
        rule: KeyRule::Equal(Dim::StateValue),
    },
];
/// The declaration.
pub static QWEN35: Arch = Arch {
    name: "qwen35",
    rope: RopeStyle::Halves,
    refused: &[REFUSED, REFUSED_DENSE],
    counts: &[&[FFN_WIDTH], SSM],
    prologue: PROLOGUE,
    layers: LayerRule::Recurrent { interval: 4 },
    kinds: &[
        LayerKind::attention(&[
            MIXER_NORM,
            GATED_QKV,
            QK_NORM,
            ATTEND,
            HEAD_GATES,
            ATTN_OUT,
            POST_NORMED,
            SWIGLU,
        ]),
        LayerKind {
            name: "gated DeltaNet",
            state: STATE,
            ops: &[MIXER_NORM, DELTA_NET, POST_NORMED, SWIGLU],
        },
    ],
    epilogue: EPILOGUE,
    rope_factors: None,
};
