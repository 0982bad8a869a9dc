//! Attention with something fused or split: query/key preparation in one launch, attention split
//! over the context, output gates.

use super::terms::{
    HEAD_DIM, HEADS, KV_HEADS, N, POS, Q_STRIDE, ROT_DIM, SPLITS, float, input, int, output,
};
use crate::{Access, Dtype, Effect, Grid, KernelRow, Need, Op, Span, Term, Word};

/// Rotary embedding of queries and keys and the append to the cache, with (`$norm`) or without the
/// per-head normalisation before it. Query head `h` starts at element `h * q_stride` of `q`.
macro_rules! prepare {
    ($symbol:literal, $op:ident, $dtype:ident, $bytes:literal, [$($norm:expr),*],
     [$($eps:expr)?], [$($effect:expr),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: None,
            args: &[
                input("q"), input("k"), input("v"), $($norm,)* input("table"), input("control"),
                output("q_out"), output("kcache"), output("vcache"), int("heads"),
                int("kv_heads"), int("head_dim"), int("q_stride"), int("rot_dim"),
                int("interleaved"), $($eps)?
            ],
            block: 32,
            grid: Grid::Sum(&["heads", "kv_heads"]),
            lds_bytes: 0,
            needs: &[
                Need::Positive("heads"), Need::Positive("kv_heads"), Need::Positive("head_dim"),
                Need::MultipleOf("head_dim", 32), Need::AtMost("head_dim", "q_stride"),
                Need::Positive("rot_dim"), Need::MultipleOf("rot_dim", 2),
                Need::AtMost("rot_dim", "head_dim"), Need::Flag("interleaved"),
            ],
            effects: &[
                bytes!(Read "q", [], [4 * HEADS * Q_STRIDE]),
                bytes!(Read "k", [], [4 * KV_HEADS * HEAD_DIM]),
                bytes!(Read "v", [], [4 * KV_HEADS * HEAD_DIM]),
                $($effect,)*
                bytes!(Read "table", [], [4 * ROT_DIM]),
                word!(Read Pos),
                word!(Read Done),
                bytes!(Write "q_out", [], [4 * HEADS * HEAD_DIM]),
                bytes!(
                    Write "kcache",
                    [$bytes * POS * KV_HEADS * HEAD_DIM],
                    [$bytes * POS * KV_HEADS * HEAD_DIM, $bytes * KV_HEADS * HEAD_DIM]
                ),
                bytes!(
                    Write "vcache",
                    [$bytes * POS * KV_HEADS * HEAD_DIM],
                    [$bytes * POS * KV_HEADS * HEAD_DIM, $bytes * KV_HEADS * HEAD_DIM]
                ),
            ],
            may_alias: &[],
            idle_when_done: true,
        }
    };
}
macro_rules! normed {
    ($symbol:literal, $dtype:ident, $bytes:literal) => {
        prepare!(
            $symbol, QkNormRopeKv, $dtype, $bytes, [input("qw"), input("kw")], [float("eps")],
            [bytes!(Read "qw", [], [4 * HEAD_DIM]), bytes!(Read "kw", [], [4 * HEAD_DIM])]
        )
    };
}

/// Part of the context per work-group. `$q` is 4 bytes times the head dimension, `$row` the element
/// size times it.
macro_rules! split {
    ($symbol:literal, $dtype:ident, $dim:literal, $q:literal, $row:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::AttnSplit,
            dtype: Some(Dtype::$dtype),
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("q"), input("kcache"), input("vcache"), input("control"), output("part"),
                output("stats"), int("heads"), int("kv_heads"), int("splits"), float("scale"),
            ],
            block: 256,
            grid: Grid::Product { counts: &["heads", "splits"], per_block: 1 },
            lds_bytes: $lds,
            needs: &[
                Need::Positive("heads"), Need::Positive("kv_heads"),
                Need::MultipleOfImm("heads", "kv_heads"), Need::PowerOfTwo("splits"),
            ],
            effects: &[
                bytes!(Read "q", [], [$q * HEADS]),
                bytes!(Read "kcache", [], [$row * POS * KV_HEADS, $row * KV_HEADS]),
                bytes!(Read "vcache", [], [$row * POS * KV_HEADS, $row * KV_HEADS]),
                word!(Read Pos),
                bytes!(Write "part", [], [$q * HEADS * SPLITS]),
                bytes!(Write "stats", [], [8 * HEADS * SPLITS]),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// Merge of the parts, with or without an output gate.
macro_rules! merge {
    ($symbol:literal, $op:ident, [$($pointer:expr)?], [$($effect:expr)?]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: None,
            head_dim: None,
            habit: None,
            args: &[
                input("part"), input("stats"), $($pointer,)? input("control"), output("out"),
                int("heads"), int("head_dim"), int("splits"),
            ],
            block: 256,
            grid: Grid::Sum(&["heads"]),
            lds_bytes: 0,
            needs: &[
                Need::Positive("heads"), Need::Positive("head_dim"), Need::PowerOfTwo("splits"),
            ],
            effects: &[
                bytes!(Read "part", [], [4 * HEADS * SPLITS * HEAD_DIM]),
                bytes!(Read "stats", [], [8 * HEADS * SPLITS]),
                $($effect,)?
                word!(Read Pos),
                bytes!(Write "out", [], [4 * HEADS * HEAD_DIM]),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

const Q_GATE_SPLIT: KernelRow = KernelRow {
    symbol: "q_gate_split",
    op: Op::QGateSplit,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("qg"),
        output("q"),
        output("gate"),
        int("heads"),
        int("head_dim"),
    ],
    block: 32,
    grid: Grid::Sum(&["heads"]),
    lds_bytes: 0,
    needs: &[Need::Positive("heads"), Need::Positive("head_dim")],
    effects: &[
        bytes!(Read "qg", [], [8 * HEADS * HEAD_DIM]),
        bytes!(Write "q", [], [4 * HEADS * HEAD_DIM]),
        bytes!(Write "gate", [], [4 * HEADS * HEAD_DIM]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

const SIGMOID_MUL: KernelRow = KernelRow {
    symbol: "sigmoid_mul",
    op: Op::SigmoidMul,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[input("x"), input("gate"), output("out"), int("n")],
    block: 256,
    grid: Grid::Elements {
        count: "n",
        per_block: 256,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("n")],
    effects: &[
        bytes!(Read "x", [], [4 * N]),
        bytes!(Read "gate", [], [4 * N]),
        bytes!(Write "out", [], [4 * N]),
    ],
    may_alias: &[("x", "out"), ("gate", "out")],
    idle_when_done: false,
};

/// The rows.
pub(super) const ROWS: [KernelRow; 16] = [
    normed!("qk_norm_rope_kv_f32", F32, 4),
    normed!("qk_norm_rope_kv_f16", F16, 2),
    prepare!("rope_kv_f32", RopeKv, F32, 4, [], [], []),
    prepare!("rope_kv_f16", RopeKv, F16, 2, [], [], []),
    split!("attn_split_f32_d32", F32, 32, 128, 128, 1088),
    split!("attn_split_f32_d64", F32, 64, 256, 256, 2112),
    split!("attn_split_f32_d128", F32, 128, 512, 512, 4160),
    split!("attn_split_f32_d256", F32, 256, 1024, 1024, 8256),
    split!("attn_split_f16_d32", F16, 32, 128, 64, 1088),
    split!("attn_split_f16_d64", F16, 64, 256, 128, 2112),
    split!("attn_split_f16_d128", F16, 128, 512, 256, 4160),
    split!("attn_split_f16_d256", F16, 256, 1024, 512, 8256),
    merge!("attn_merge", AttnMerge, [], []),
    merge!(
        "attn_merge_gated",
        AttnMergeGated,
        [input("qg")],
        [bytes!(Read "qg", [], [8 * HEADS * HEAD_DIM])]
    ),
    Q_GATE_SPLIT,
    SIGMOID_MUL,
];
