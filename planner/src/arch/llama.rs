//! `llama`: Llama 2 and 3, Mistral, SmolLM2 and whatever else converts to this name.
//!
//! Heads are stored so that rotation turns adjacent elements (models.md 2.4). Llama 3.1 and later
//! carry their frequency scaling as `rope_freqs.weight`: each frequency is divided by its factor.

use super::rows::{
    ATTEND, ATTN_OUT, EPILOGUE, FFN_NORMED, FFN_WIDTH, MIXER_NORM, PROLOGUE, QKV, REFUSED,
    REFUSED_DENSE, SWIGLU,
};
use super::{Arch, Dim, LayerKind, LayerRule, RopeStyle, WeightDecl};

static ROPE_FREQS: WeightDecl = WeightDecl::vector("rope_freqs.weight", Dim::RopePairs);

/// The declaration.
pub static LLAMA: Arch = Arch {
    name: "llama",
    rope: RopeStyle::AdjacentPairs,
    refused: &[REFUSED, REFUSED_DENSE],
    counts: &[&[FFN_WIDTH]],
    prologue: PROLOGUE,
    layers: LayerRule::Alike,
    kinds: &[LayerKind::attention(&[
        MIXER_NORM, QKV, ATTEND, ATTN_OUT, FFN_NORMED, SWIGLU,
    ])],
    epilogue: EPILOGUE,
    rope_factors: Some(&ROPE_FREQS),
};
