//! `lfm2`: short convolutions in most layers, attention as in Qwen3 in the others. A layer with no
//! key/value heads is a convolution (models.md 2.3).

use super::rows::{
    ATTEND, ATTN_OUT, FFN_NORMED, FFN_WIDTH, LOGITS, MIXER_NORM, NORMED, OUTPUT, PROLOGUE, QK_NORM,
    QKV, REFUSED, REFUSED_DENSE, STREAM, SWIGLU,
};
use super::{
    Arch, CountKey, Dim, KeyRule, LayerKind, LayerRule, OpDecl, RopeStyle, State, ValueDecl,
    WeightDecl,
};

static IN_PROJ: WeightDecl = WeightDecl::matrix(
    "blk.{}.shortconv.in_proj.weight",
    Dim::ShortConv,
    Dim::Hidden,
);
static CONV: WeightDecl =
    WeightDecl::matrix("blk.{}.shortconv.conv.weight", Dim::Hidden, Dim::ConvTaps);
static OUT_PROJ: WeightDecl =
    WeightDecl::matrix("blk.{}.shortconv.out_proj.weight", Dim::Hidden, Dim::Hidden);
/// Norm after the last layer, whatever its name says.
static FINAL_NORM: WeightDecl = WeightDecl::vector("token_embd_norm.weight", Dim::Hidden);

static MIX: ValueDecl = ValueDecl {
    name: "bcu",
    len: Dim::ShortConv,
};
static CONVOLVED: ValueDecl = ValueDecl {
    name: "conv",
    len: Dim::Hidden,
};

const SHORT_CONV: &[OpDecl] = &[
    OpDecl::gemv(&IN_PROJ, &NORMED, &MIX),
    OpDecl::ShortConv {
        x: &MIX,
        weight: &CONV,
        out: &CONVOLVED,
    },
    OpDecl::gemv_add(&OUT_PROJ, &CONVOLVED, &STREAM),
];
const EPILOGUE: &[OpDecl] = &[
    OpDecl::norm(&STREAM, &FINAL_NORM, &NORMED),
    OpDecl::gemv(&OUTPUT, &NORMED, &LOGITS),
    OpDecl::Argmax { logits: &LOGITS },
    OpDecl::Advance {},
];

/// The declaration.
pub static LFM2: Arch = Arch {
    name: "lfm2",
    rope: RopeStyle::Halves,
    refused: &[REFUSED, REFUSED_DENSE],
    counts: &[
        &[FFN_WIDTH],
        &[CountKey {
            key: "shortconv.l_cache",
            most: 16,
            rule: KeyRule::Set(|g, value| g.conv_taps = value),
        }],
    ],
    prologue: PROLOGUE,
    layers: LayerRule::KeyValueHeads,
    kinds: &[
        LayerKind::attention(&[
            MIXER_NORM, QKV, QK_NORM, ATTEND, ATTN_OUT, FFN_NORMED, SWIGLU,
        ]),
        LayerKind {
            name: "short convolution",
            state: &[State::Columns(Dim::Hidden)],
            ops: &[MIXER_NORM, SHORT_CONV, FFN_NORMED, SWIGLU],
        },
    ],
    epilogue: EPILOGUE,
    rope_factors: None,
};
