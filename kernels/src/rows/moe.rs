//! Mixture of experts: the router, and GEMVs over the experts that it chose.
//!
//! Which experts are read depends on data, so the declared span is all of them; ids past the last
//! expert are clamped to it.

use super::terms::{E, EXPERTS, K, M, N, R0, R1, TOP_K, granule, habit_of, input, int, output};
use crate::{Access, Dtype, Effect, Grid, KernelRow, Need, Op, Span, Term};

const ROUTE: KernelRow = KernelRow {
    symbol: "moe_route",
    op: Op::MoeRoute,
    dtype: None,
    head_dim: None,
    habit: None,
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
    ($symbol:expr, $dtype:ident, $habit:expr, [$($rows:expr)?], [$($need:expr)?], $op:ident,
     [$($weight:literal),*]) => {
        KernelRow {
            symbol: $symbol,
            op: Op::$op,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: $habit,
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
                Need::MultipleOf("k", granule(Dtype::$dtype)),
            ],
            effects: &[
                $(whole!($weight, [EXPERTS, M] K),)*
                activation!(Read "x", K),
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
    ($symbol:expr, $dtype:ident, $habit:expr, [$($rows:expr)?], [$($need:expr)?], down) => {
        KernelRow {
            symbol: $symbol,
            op: Op::MoeDownAdd,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: $habit,
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
                Need::MultipleOf("k", granule(Dtype::$dtype)),
            ],
            effects: &[
                whole!("w", [EXPERTS, M] K),
                activation!(Read "x", TOP_K, K),
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
    habit: None,
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

pub(super) static GEMV: [KernelRow; 11] = full_formats!(grouped, "moe_gemv", MoeGemv, ["w"]);
pub(super) static GEMV_CORE: [KernelRow; 20] = core_formats!(grouped, "moe_gemv", MoeGemv, ["w"]);
pub(super) static GATE_UP: [KernelRow; 11] =
    full_formats!(grouped, "moe_gate_up", MoeGateUp, ["wg", "wu"]);
pub(super) static GATE_UP_CORE: [KernelRow; 20] =
    core_formats!(grouped, "moe_gate_up", MoeGateUp, ["wg", "wu"]);
pub(super) static DOWN: [KernelRow; 11] = full_formats!(down, "moe_down_add", down);
pub(super) static DOWN_CORE: [KernelRow; 20] = core_formats!(down, "moe_down_add", down);

/// Rows without a weight.
pub(super) static ROWS: [KernelRow; 2] = [ROUTE, GATED_ADD];
