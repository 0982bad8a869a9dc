//! `qwen3`: dense Qwen3. Queries and keys are normalised per head before the rotation, which turns
//! the halves of a head (models.md 2.3).

use super::common::{
    ACTIVATED, ATTENDED, ATTN_K, ATTN_NORM, ATTN_OUTPUT, ATTN_Q, ATTN_V, EPILOGUE, FFN_DOWN,
    FFN_GATE, FFN_NORM, FFN_UP, GATE, KEY, NORMED, PROLOGUE, QUERY, REFUSED, STREAM, UP, VALUE,
};
use super::{Arch, Dim, OpDecl, RopeStyle, WeightDecl};

static ATTN_Q_NORM: WeightDecl = WeightDecl::vector("blk.{}.attn_q_norm", Dim::Head);
static ATTN_K_NORM: WeightDecl = WeightDecl::vector("blk.{}.attn_k_norm", Dim::Head);

/// The declaration.
pub static QWEN3: Arch = Arch {
    name: "qwen3",
    rope: RopeStyle::Halves,
    refused: REFUSED,
    prologue: PROLOGUE,
    layer: &[
        OpDecl::RmsNorm {
            x: &STREAM,
            weight: &ATTN_NORM,
            out: &NORMED,
        },
        OpDecl::Gemv {
            weight: &ATTN_Q,
            x: &NORMED,
            residual: None,
            out: &QUERY,
        },
        OpDecl::Gemv {
            weight: &ATTN_K,
            x: &NORMED,
            residual: None,
            out: &KEY,
        },
        OpDecl::Gemv {
            weight: &ATTN_V,
            x: &NORMED,
            residual: None,
            out: &VALUE,
        },
        OpDecl::QkNorm {
            q: &QUERY,
            k: &KEY,
            q_weight: &ATTN_Q_NORM,
            k_weight: &ATTN_K_NORM,
        },
        OpDecl::Rope { q: &QUERY, k: &KEY },
        OpDecl::KvWrite { k: &KEY, v: &VALUE },
        OpDecl::Attention {
            q: &QUERY,
            out: &ATTENDED,
        },
        OpDecl::Gemv {
            weight: &ATTN_OUTPUT,
            x: &ATTENDED,
            residual: Some(&STREAM),
            out: &STREAM,
        },
        OpDecl::RmsNorm {
            x: &STREAM,
            weight: &FFN_NORM,
            out: &NORMED,
        },
        OpDecl::Gemv {
            weight: &FFN_GATE,
            x: &NORMED,
            residual: None,
            out: &GATE,
        },
        OpDecl::Gemv {
            weight: &FFN_UP,
            x: &NORMED,
            residual: None,
            out: &UP,
        },
        OpDecl::SiluMul {
            gate: &GATE,
            up: &UP,
            out: &ACTIVATED,
        },
        OpDecl::Gemv {
            weight: &FFN_DOWN,
            x: &ACTIVATED,
            residual: Some(&STREAM),
            out: &STREAM,
        },
    ],
    epilogue: EPILOGUE,
    rope_factors: None,
};
