//! Mixture of experts: the router, and GEMVs over the experts that it chose.
//!
//! Which experts are read depends on data, so the declared span is all of them; ids past the last
//! expert are clamped to it.

use super::terms::{E, EXPERTS, K, M, N, R0, R1, TOP_K, input, int, output};
use crate::{Access, Dtype, Effect, Grid, KernelRow, Need, Op, Span, Term};

const ROUTE: KernelRow = KernelRow {
    symbol: "moe_route",
    op: Op::MoeRoute,
    dtype: None,
    head_dim: None,
    args: &[
        input("logits"),
        output("ids"),
        output("weights"),
        int("n"),
        int("top_k"),
        int("normalize"),
    ],
    block: 256,
    grid: Grid::One,
    lds_bytes: 8256,
    needs: &[
        Need::Positive("n"),
        Need::UpTo("n", 1024),
        Need::Positive("top_k"),
        Need::AtMost("top_k", "n"),
        Need::Flag("normalize"),
    ],
    effects: &[
        bytes!(Read "logits", [], [4 * N]),
        bytes!(Write "ids", [], [4 * TOP_K]),
        bytes!(Write "weights", [], [4 * TOP_K]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

/// Grouped GEMV: `y[j]` from expert `ids[j]`, rows of all chosen experts in one grid.
macro_rules! grouped {
    ($symbol:literal, $op:ident, $dtype:ident, [$($weight:literal),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            args: &[
                $(input($weight),)* input("x"), input("ids"), output("y"), int("experts"),
                int("top_k"), int("m"), int("k"),
            ],
            block: 256,
            grid: Grid::Product { counts: &["top_k", "m"], per_block: 16 },
            lds_bytes: 0,
            needs: &[
                Need::Positive("experts"), Need::Positive("top_k"), Need::Positive("m"),
                Need::MultipleOf("m", 16), Need::Positive("k"),
                Need::MultipleOf("k", granule!($dtype)),
            ],
            effects: &[
                $(whole!($dtype $weight EXPERTS M K),)*
                bytes!(Read "x", [], [4 * K]),
                bytes!(Read "ids", [], [4 * TOP_K]),
                bytes!(Write "y", [], [4 * TOP_K * M]),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// The weighted sum of the chosen experts' down projections, plus the residual.
macro_rules! down {
    ($symbol:literal, $dtype:ident) => {
        KernelRow {
            symbol: $symbol,
            op: Op::MoeDownAdd,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            args: &[
                input("w"), input("x"), input("ids"), input("weights"), input("residual"),
                output("y"), int("r0"), int("r1"), int("experts"), int("top_k"), int("m"), int("k"),
            ],
            block: 256,
            grid: Grid::Rows { per_block: 16 },
            lds_bytes: 0,
            needs: &[
                Need::Below("r0", "r1"), Need::AtMost("r1", "m"), Need::Positive("experts"),
                Need::Positive("top_k"), Need::Positive("k"),
                Need::MultipleOf("k", granule!($dtype)),
            ],
            effects: &[
                whole!($dtype "w" EXPERTS M K),
                bytes!(Read "x", [], [4 * TOP_K * K]),
                bytes!(Read "ids", [], [4 * TOP_K]),
                bytes!(Read "weights", [], [4 * TOP_K]),
                bytes!(Read "residual", [4 * R0], [4 * R1]),
                bytes!(Write "y", [4 * R0], [4 * R1]),
            ],
            may_alias: &[("residual", "y")],
            idle_when_done: false,
        }
    };
}

const GATED_ADD: KernelRow = KernelRow {
    symbol: "gated_add",
    op: Op::GatedAdd,
    dtype: None,
    head_dim: None,
    args: &[
        input("x"),
        input("gate"),
        input("residual"),
        output("y"),
        int("e"),
    ],
    block: 256,
    grid: Grid::Elements {
        count: "e",
        per_block: 256,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("e")],
    effects: &[
        bytes!(Read "x", [], [4 * E]),
        bytes!(Read "gate", [], [4]),
        bytes!(Read "residual", [], [4 * E]),
        bytes!(Write "y", [], [4 * E]),
    ],
    may_alias: &[("residual", "y"), ("x", "y")],
    idle_when_done: false,
};

/// The rows.
pub(super) const ROWS: [KernelRow; 14] = [
    ROUTE,
    grouped!("moe_gemv_f32", MoeGemv, F32, ["w"]),
    grouped!("moe_gemv_f16", MoeGemv, F16, ["w"]),
    grouped!("moe_gemv_bf16", MoeGemv, BF16, ["w"]),
    grouped!("moe_gemv_q8_0", MoeGemv, Q8_0, ["w"]),
    grouped!("moe_gate_up_f32", MoeGateUp, F32, ["wg", "wu"]),
    grouped!("moe_gate_up_f16", MoeGateUp, F16, ["wg", "wu"]),
    grouped!("moe_gate_up_bf16", MoeGateUp, BF16, ["wg", "wu"]),
    grouped!("moe_gate_up_q8_0", MoeGateUp, Q8_0, ["wg", "wu"]),
    down!("moe_down_add_f32", F32),
    down!("moe_down_add_f16", F16),
    down!("moe_down_add_bf16", BF16),
    down!("moe_down_add_q8_0", Q8_0),
    GATED_ADD,
];
