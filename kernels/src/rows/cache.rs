//! Attention over a cache in Q8_0: append, decode, parts of the context. The cache is a weight of `ctx`
//! rows in the device layout of its type, so both planes' rows are declared by position.

use super::terms::{HEADS, KV_DIM, POS, SPLITS, float, input, int, output, planes, weight_rows};
use crate::{Access, Dtype, Effect, Factor, Grid, KernelRow, Need, Op, Span, Term, Word};

const SHAPE: (Factor, Factor) = (Factor::Imm("ctx"), KV_DIM);
const CACHE_PLANES: usize = 2 * planes(Dtype::Q8_0);

/// Reads of both caches up to the position, then `rest`.
macro_rules! up_to_position {
    ($($rest:expr),*) => {{
        const REST: &[Effect] = &[word!(Read Pos), $($rest),*];
        const ALL: [Effect; CACHE_PLANES + REST.len()] = weight_rows(
            Dtype::Q8_0, &["kcache", "vcache"], (&[], terms!(1 * POS, 1)), SHAPE, REST,
        );
        &ALL
    }};
}

/// `$q` is 4 bytes times the head dimension.
macro_rules! decode {
    ($symbol:literal, $dim:literal, $q:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::AttnDecode,
            dtype: Some(Dtype::Q8_0),
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("q"), input("kcache"), input("vcache"), input("control"), output("out"),
                int("heads"), int("kv_heads"), int("ctx"), int("kv_dim"), float("scale"),
            ],
            block: 256,
            grid: Grid::Sum(&["heads"]),
            lds_bytes: $lds,
            needs: NEEDS,
            effects: up_to_position!(
                bytes!(Read "q", [], [$q * HEADS]), bytes!(Write "out", [], [$q * HEADS])
            ),
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

macro_rules! split {
    ($symbol:literal, $dim:literal, $q:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::AttnSplit,
            dtype: Some(Dtype::Q8_0),
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("q"), input("kcache"), input("vcache"), input("control"), output("part"),
                output("stats"), int("heads"), int("kv_heads"), int("splits"), int("ctx"),
                int("kv_dim"), float("scale"),
            ],
            block: 256,
            grid: Grid::Product { counts: &["heads", "splits"], per_block: 1 },
            lds_bytes: $lds,
            needs: &[
                NEEDS[0], NEEDS[1], NEEDS[2], NEEDS[3], NEEDS[4], NEEDS[5],
                Need::PowerOfTwo("splits"),
            ],
            effects: up_to_position!(
                bytes!(Read "q", [], [$q * HEADS]),
                bytes!(Write "part", [], [$q * HEADS * SPLITS]),
                bytes!(Write "stats", [], [8 * HEADS * SPLITS])
            ),
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

const NEEDS: &[Need] = &[
    Need::Positive("heads"),
    Need::Positive("kv_heads"),
    Need::MultipleOfImm("heads", "kv_heads"),
    Need::Positive("ctx"),
    Need::MultipleOf("kv_dim", 32),
    Need::MultipleOfImm("kv_dim", "kv_heads"),
];

const WRITE: KernelRow = KernelRow {
    symbol: "kv_write_q8_0",
    op: Op::KvWrite,
    dtype: Some(Dtype::Q8_0),
    head_dim: None,
    habit: None,
    args: &[
        input("k"),
        input("v"),
        output("kcache"),
        output("vcache"),
        input("control"),
        int("kv_dim"),
        int("ctx"),
    ],
    block: 256,
    grid: Grid::Elements {
        count: "kv_dim",
        per_block: 256,
    },
    lds_bytes: 0,
    needs: &[
        Need::Positive("kv_dim"),
        Need::MultipleOf("kv_dim", 32),
        Need::Positive("ctx"),
    ],
    effects: &[
        bytes!(Read "k", [], [4 * KV_DIM]),
        bytes!(Read "v", [], [4 * KV_DIM]),
        row_of("kcache", 0),
        row_of("kcache", 1),
        row_of("vcache", 0),
        row_of("vcache", 1),
        word!(Read Pos),
        word!(Read Done),
    ],
    may_alias: &[],
    idle_when_done: true,
};

/// The position's row in a plane.
const fn row_of(arg: &'static str, plane: usize) -> Effect {
    Effect {
        arg,
        access: Access::Write,
        span: Span::Plane {
            plane,
            start: terms!(1 * POS),
            end: terms!(1 * POS, 1),
            rows: SHAPE.0,
            cols: SHAPE.1,
        },
    }
}

/// The rows.
pub(super) static ROWS: [KernelRow; 9] = [
    WRITE,
    decode!("attn_decode_q8_0_d32", 32, 128, 1088),
    decode!("attn_decode_q8_0_d64", 64, 256, 2112),
    decode!("attn_decode_q8_0_d128", 128, 512, 4160),
    decode!("attn_decode_q8_0_d256", 256, 1024, 8256),
    split!("attn_split_q8_0_d32", 32, 128, 1088),
    split!("attn_split_q8_0_d64", 64, 256, 2112),
    split!("attn_split_q8_0_d128", 128, 512, 4160),
    split!("attn_split_q8_0_d256", 256, 1024, 8256),
];
