//! `qwen3`: dense Qwen3. Queries and keys are normalised per head before the rotation, which turns
//! the halves of a head (models.md 2.3).

use super::rows::{
    ATTEND, ATTN_OUT, EPILOGUE, FFN_NORMED, FFN_WIDTH, MIXER_NORM, PROLOGUE, QK_NORM, QKV, REFUSED,
    REFUSED_DENSE, SWIGLU,
};
use super::{Arch, LayerKind, LayerRule, RopeStyle};

/// The declaration.
pub static QWEN3: Arch = Arch {
    name: "qwen3",
    rope: RopeStyle::Halves,
    refused: &[REFUSED, REFUSED_DENSE],
    counts: &[&[FFN_WIDTH]],
    prologue: PROLOGUE,
    layers: LayerRule::Alike,
    kinds: &[LayerKind::attention(&[
        MIXER_NORM, QKV, QK_NORM, ATTEND, ATTN_OUT, FFN_NORMED, SWIGLU,
    ])],
    epilogue: EPILOGUE,
    rope_factors: None,
};
