//! `llama`: Llama 2 and 3, Mistral, SmolLM2 and whatever else converts to this name.
//!
//! Heads are stored so that rotation turns adjacent elements (models.md 2.4). Llama 3.1 and later
//! carry their frequency scaling as `rope_freqs.weight`: each frequency is divided by its factor.

use super::common::{
    ACTIVATED, ATTENDED, ATTN_K, ATTN_NORM, ATTN_OUTPUT, ATTN_Q, ATTN_V, EPILOGUE, FFN_DOWN,
    FFN_GATE, FFN_NORM, FFN_UP, GATE, KEY, NORMED, PROLOGUE, QUERY, REFUSED, STREAM, UP, VALUE,
};
use super::{Arch, Dim, OpDecl, RopeStyle, WeightDecl};

static ROPE_FREQS: WeightDecl = WeightDecl::vector("rope_freqs", Dim::RopePairs);

/// The declaration.
pub static LLAMA: Arch = Arch {
    name: "llama",
    rope: RopeStyle::AdjacentPairs,
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
    rope_factors: Some(&ROPE_FREQS),
};
