//! GEMVs with something fused: a bias, a gate, several matrices in one launch.

use super::terms::{K, M0, M1, M2, M3, R0, R1, ROWS as ROW_COUNT, input, int, output};
use crate::{Access, Dtype, Effect, Grid, KernelRow, Need, Op, Span, Term};

/// The rows `[r0, r1)` of a weight, and in brackets what follows: the plain types need nothing more,
/// Q8_0 has a second plane behind `rows` rows of quants.
macro_rules! ranged {
    (F32 $arg:literal) => { bytes!(Read $arg, [4 * R0 * K], [4 * R1 * K]) };
    (F16 $arg:literal) => { bytes!(Read $arg, [2 * R0 * K], [2 * R1 * K]) };
    (BF16 $arg:literal) => { bytes!(Read $arg, [2 * R0 * K], [2 * R1 * K]) };
    (Q8_0 $arg:literal) => { bytes!(Read $arg, [1 * R0 * K], [1 * R1 * K]) };
}
macro_rules! scales {
    ($arg:literal) => {
        bytes!(
            Read $arg,
            [1 * ROW_COUNT * K, 1 * R0 * K / 16], [1 * ROW_COUNT * K, 1 * R1 * K / 16]
        )
    };
}

/// One kernel over the rows `[r0, r1)` of its weights, for the four types. `$name` and the weights'
/// names, then the other pointers with their effects.
macro_rules! row_range {
    ($name:literal, $op:ident, [$($weight:literal),*], [$($pointer:expr),*], [$($effect:expr),*],
     [$($alias:expr)?]) => {
        [
            row_range!(@ F32, concat!($name, "_f32"), $op, [$($weight),*], [$($pointer),*],
                [$($effect),*], [$($alias)?], [], [], []),
            row_range!(@ F16, concat!($name, "_f16"), $op, [$($weight),*], [$($pointer),*],
                [$($effect),*], [$($alias)?], [], [], []),
            row_range!(@ BF16, concat!($name, "_bf16"), $op, [$($weight),*], [$($pointer),*],
                [$($effect),*], [$($alias)?], [], [], []),
            row_range!(@ Q8_0, concat!($name, "_q8_0"), $op, [$($weight),*], [$($pointer),*],
                [$($effect),*], [$($alias)?], [int("rows")], [Need::AtMost("r1", "rows")],
                [$(scales!($weight)),*]),
        ]
    };
    (@ $dtype:ident, $symbol:expr, $op:ident, [$($weight:literal),*], [$($pointer:expr),*],
     [$($effect:expr),*], [$($alias:expr)?], [$($rows:expr)?], [$($need:expr)?],
     [$($scales:expr),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            args: &[
                $(input($weight),)* input("x"), $($pointer,)* output("y"),
                int("r0"), int("r1"), int("k"), $($rows)?
            ],
            block: 256,
            grid: Grid::Rows { per_block: 16 },
            lds_bytes: 0,
            needs: &[
                Need::Below("r0", "r1"), Need::Positive("k"),
                Need::MultipleOf("k", granule!($dtype)), $($need)?
            ],
            effects: &[
                $(ranged!($dtype $weight),)*
                $($scales,)*
                bytes!(Read "x", [], [4 * K]),
                $($effect,)*
                bytes!(Write "y", [4 * R0], [4 * R1]),
            ],
            may_alias: &[$($alias)?],
            idle_when_done: false,
        }
    };
}

/// Several whole matrices times one vector, for the four types: weights and outputs with their row
/// counts, then further pointers with their effects.
macro_rules! several {
    ($name:literal, $op:ident, $([$w:literal $y:literal $m:literal $M:ident]),* ;
     [$($pointer:expr),*], [$($effect:expr),*]) => {
        [
            several!(@ F32, concat!($name, "_f32"), $op, [$([$w $y $m $M])*], [$($pointer),*],
                [$($effect),*]),
            several!(@ F16, concat!($name, "_f16"), $op, [$([$w $y $m $M])*], [$($pointer),*],
                [$($effect),*]),
            several!(@ BF16, concat!($name, "_bf16"), $op, [$([$w $y $m $M])*], [$($pointer),*],
                [$($effect),*]),
            several!(@ Q8_0, concat!($name, "_q8_0"), $op, [$([$w $y $m $M])*], [$($pointer),*],
                [$($effect),*]),
        ]
    };
    (@ $dtype:ident, $symbol:expr, $op:ident, [$([$w:literal $y:literal $m:literal $M:ident])*],
     [$($pointer:expr),*], [$($effect:expr),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            args: &[
                $(input($w),)* input("x"), $($pointer,)* $(output($y),)* $(int($m),)* int("k")
            ],
            block: 256,
            grid: Grid::SumOf { counts: &[$($m),*], per_block: 16 },
            lds_bytes: 0,
            needs: &[
                $(Need::Positive($m),)*
                Need::Positive("k"), Need::MultipleOf("k", granule!($dtype)),
            ],
            effects: &[
                $(whole!($dtype $w $M K),)*
                bytes!(Read "x", [], [4 * K]),
                $($effect,)*
                $(bytes!(Write $y, [], [4 * $M]),)*
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

const BIAS: [KernelRow; 4] = row_range!(
    "gemv_bias",
    GemvBias,
    ["w"],
    [input("bias")],
    [bytes!(Read "bias", [4 * R0], [4 * R1])],
    []
);
const SILU: [KernelRow; 4] = row_range!("gemv_silu", GemvSilu, ["wg", "wu"], [], [], []);
const GATED_ADD: [KernelRow; 4] = row_range!(
    "gemv_gated_add",
    GemvGatedAdd,
    ["w"],
    [input("gate"), input("residual")],
    [
        bytes!(Read "gate", [], [4]),
        bytes!(Read "residual", [4 * R0], [4 * R1])
    ],
    [("residual", "y")]
);
const TWO: [KernelRow; 4] = several!(
    "gemv2", Gemv2, ["w0" "y0" "m0" M0], ["w1" "y1" "m1" M1]; [], []
);
const THREE: [KernelRow; 4] = several!(
    "gemv3", Gemv3, ["w0" "y0" "m0" M0], ["w1" "y1" "m1" M1], ["w2" "y2" "m2" M2]; [], []
);
const FOUR: [KernelRow; 4] = several!(
    "gemv4", Gemv4, ["w0" "y0" "m0" M0], ["w1" "y1" "m1" M1], ["w2" "y2" "m2" M2],
    ["w3" "y3" "m3" M3]; [], []
);
const THREE_BIAS: [KernelRow; 4] = several!(
    "gemv3_bias", Gemv3Bias, ["w0" "y0" "m0" M0], ["w1" "y1" "m1" M1], ["w2" "y2" "m2" M2];
    [input("b0"), input("b1"), input("b2")],
    [bytes!(Read "b0", [], [4 * M0]), bytes!(Read "b1", [], [4 * M1]),
     bytes!(Read "b2", [], [4 * M2])]
);

/// The rows.
#[rustfmt::skip]
pub(super) const ROWS: [KernelRow; 28] = [
    BIAS[0], BIAS[1], BIAS[2], BIAS[3],
    SILU[0], SILU[1], SILU[2], SILU[3],
    GATED_ADD[0], GATED_ADD[1], GATED_ADD[2], GATED_ADD[3],
    TWO[0], TWO[1], TWO[2], TWO[3],
    THREE[0], THREE[1], THREE[2], THREE[3],
    FOUR[0], FOUR[1], FOUR[2], FOUR[3],
    THREE_BIAS[0], THREE_BIAS[1], THREE_BIAS[2], THREE_BIAS[3],
];
