//! GEMVs: plain, and with something fused: a residual, a bias, a gate, several matrices in one launch.

use super::terms::{
    IN_ROWS, K, M0, M1, M2, M3, R0, R1, granule, habit_of, input, int, output, planes, weight_rows,
};
use crate::{Access, Dtype, Effect, Factor, Grid, KernelRow, Need, Op, Span, Term};

/// Rows of the weight: of one plane nobody asks.
const fn rows_of(dtype: Dtype) -> Factor {
    Factor::Imm(if planes(dtype) == 1 { "r1" } else { "rows" })
}

/// One kernel over the rows `[r0, r1)` of its weights: the weights' names, then the other pointers with
/// their effects.
macro_rules! row_range {
    ($symbol:expr, $dtype:ident, $habit:expr, [$($rows:expr)?], [$($need:expr)?], $op:ident,
     [$($weight:literal),*], [$($pointer:expr),*], [$($effect:expr),*], [$($alias:expr)?]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: $habit,
            args: &[
                $(input($weight),)* input("x"), $($pointer,)* output("y"),
                int("r0"), int("r1"), int("k"), $($rows)?
            ],
            block: 256,
            grid: Grid::Rows { per_block: 16 },
            lds_bytes: 0,
            needs: &[
                Need::Below("r0", "r1"), Need::Positive("k"),
                Need::MultipleOf("k", granule(Dtype::$dtype)), $($need)?
            ],
            effects: {
                const REST: &[Effect] = &[
                    activation!(Read "x", K),
                    $($effect,)*
                    bytes!(Write "y", [4 * R0], [4 * R1]),
                ];
                const WEIGHTS: &[&str] = &[$($weight),*];
                const N: usize = WEIGHTS.len() * planes(Dtype::$dtype) + REST.len();
                const ALL: [Effect; N] = weight_rows(
                    Dtype::$dtype, WEIGHTS, (terms!(1 * R0), terms!(1 * R1)),
                    (rows_of(Dtype::$dtype), K), REST,
                );
                &ALL
            },
            may_alias: &[$($alias)?],
            idle_when_done: false,
        }
    };
}

/// Several whole matrices times one vector: weights and outputs with their row counts, then further
/// pointers with their effects.
macro_rules! several {
    ($symbol:expr, $dtype:ident, $habit:expr, [$($rows:expr)?], [$($need:expr)?], $op:ident,
     [$([$w:literal $y:literal $m:literal $M:ident])*], [$($pointer:expr),*], [$($effect:expr),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: $habit,
            args: &[
                $(input($w),)* input("x"), $($pointer,)* $(output($y),)* $(int($m),)* int("k")
            ],
            block: 256,
            grid: Grid::SumOf { counts: &[$($m),*], per_block: 16 },
            lds_bytes: 0,
            needs: &[
                $(Need::Positive($m),)*
                Need::Positive("k"), Need::MultipleOf("k", granule(Dtype::$dtype)),
            ],
            effects: &[
                $(whole!($w, [$M] K),)*
                activation!(Read "x", K),
                $($effect,)*
                $(bytes!(Write $y, [], [4 * $M]),)*
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// Kernels that only the formats with every kernel have.
macro_rules! only_full {
    ($name:ident = $($t:tt)*) => {
        pub(super) static $name: [KernelRow; 11] = full_formats!($($t)*);
    };
}

/// Kernels of every format.
macro_rules! both {
    ($name:ident, $core:ident = $($t:tt)*) => {
        pub(super) static $name: [KernelRow; 11] = full_formats!($($t)*);
        pub(super) static $core: [KernelRow; 20] = core_formats!($($t)*);
    };
}

both!(
    PLAIN,
    PLAIN_CORE = row_range,
    "gemv",
    Gemv,
    ["w"],
    [],
    [],
    []
);
both!(
    ADD,
    ADD_CORE = row_range,
    "gemv_add",
    GemvAdd,
    ["w"],
    [input("residual")],
    [bytes!(Read "residual", [4 * R0], [4 * R1])],
    [("residual", "y")]
);
both!(
    BIAS,
    BIAS_CORE = row_range,
    "gemv_bias",
    GemvBias,
    ["w"],
    [input("bias")],
    [bytes!(Read "bias", [4 * R0], [4 * R1])],
    []
);
both!(
    SILU,
    SILU_CORE = row_range,
    "gemv_silu",
    GemvSilu,
    ["wg", "wu"],
    [],
    [],
    []
);
only_full!(
    GATED_ADD = row_range,
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
only_full!(TWO = several, "gemv2", Gemv2, [["w0" "y0" "m0" M0] ["w1" "y1" "m1" M1]], [], []);
only_full!(THREE = several, "gemv3", Gemv3,
    [["w0" "y0" "m0" M0] ["w1" "y1" "m1" M1] ["w2" "y2" "m2" M2]], [], []);
only_full!(FOUR = several, "gemv4", Gemv4,
    [["w0" "y0" "m0" M0] ["w1" "y1" "m1" M1] ["w2" "y2" "m2" M2] ["w3" "y3" "m3" M3]], [], []);
only_full!(THREE_BIAS = several, "gemv3_bias", Gemv3Bias,
    [["w0" "y0" "m0" M0] ["w1" "y1" "m1" M1] ["w2" "y2" "m2" M2]],
    [input("b0"), input("b1"), input("b2")],
    [bytes!(Read "b0", [], [4 * M0]), bytes!(Read "b1", [], [4 * M1]),
     bytes!(Read "b2", [], [4 * M2])]);
