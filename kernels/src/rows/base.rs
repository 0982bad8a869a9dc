//! Kernels of a plain transformer decode step, and the end of every step.

use super::terms::{
    E, HEAD_DIM, HEADS, KV_DIM, KV_HEADS, N, POS, PROMPT_LEN, ROT_DIM, ROWS as ROW_COUNT, TOKEN,
    float, granule, inout, input, int, output, planes, weight_rows,
};
use crate::{Access, Dtype, Effect, Grid, Habit, KernelRow, Need, Op, Span, Term, Word};

/// Plain embedding tables; `$bytes` is the element size.
macro_rules! embed {
    ($symbol:literal, $dtype:ident, $bytes:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::Embed,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: None,
            args: &[input("table"), input("control"), output("out"), int("e")],
            block: 256,
            grid: Grid::Elements { count: "e", per_block: 256 },
            lds_bytes: 0,
            needs: &[Need::Positive("e")],
            effects: &[
                bytes!(Read "table", [$bytes * TOKEN * E], [$bytes * TOKEN * E, $bytes * E]),
                word!(Read Token),
                bytes!(Write "out", [], [4 * E]),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// Tables in blocks: 16 elements to a thread.
macro_rules! embed_blocks {
    ($symbol:expr, $dtype:ident) => {
        KernelRow {
            symbol: $symbol,
            op: Op::Embed,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: None,
            args: &[
                input("table"),
                input("control"),
                output("out"),
                int("e"),
                int("rows"),
            ],
            block: 256,
            grid: Grid::Elements {
                count: "e",
                per_block: 4096,
            },
            lds_bytes: 0,
            needs: &[
                Need::Positive("e"),
                Need::MultipleOf("e", granule(Dtype::$dtype)),
                Need::Positive("rows"),
            ],
            effects: {
        const REST: &[Effect] = &[word!(Read Token), bytes!(Write "out", [], [4 * E])];
                const N: usize = planes(Dtype::$dtype) + REST.len();
                const ALL: [Effect; N] = weight_rows(
                    Dtype::$dtype,
                    &["table"],
                    (terms!(1 * TOKEN), terms!(1 * TOKEN, 1)),
                    (ROW_COUNT, E),
                    REST,
                );
                &ALL
            },
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// Tables in blocks.
pub(super) static TABLES: [KernelRow; 12] = table_formats!(embed_blocks, "embed");

const RMSNORM: KernelRow = KernelRow {
    symbol: "rmsnorm",
    op: Op::RmsNorm,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[input("x"), input("w"), output("y"), int("n"), float("eps")],
    block: 256,
    grid: Grid::One,
    lds_bytes: 32,
    needs: &[Need::Positive("n"), Need::MultipleOf("n", 4)],
    effects: &[
        bytes!(Read "x", [], [4 * N]),
        bytes!(Read "w", [], [4 * N]),
        bytes!(Write "y", [], [4 * N]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

/// A vector of `n`, normalised and also as int8.
macro_rules! rmsnorm_quantise {
    ($symbol:literal, $habit:ident) => {
        KernelRow {
            symbol: $symbol,
            op: Op::RmsNormQuantise,
            dtype: None,
            head_dim: None,
            habit: Some(Habit::$habit),
            args: &[
                input("x"), input("w"), output("y"), output("q"), int("n"), float("eps"),
            ],
            block: 256,
            grid: Grid::One,
            lds_bytes: 32,
            needs: &[
                Need::Positive("n"), Need::MultipleOf("n", Habit::$habit.block() as u32),
            ],
            effects: &[
                bytes!(Read "x", [], [4 * N]),
                bytes!(Read "w", [], [4 * N]),
                bytes!(Write "y", [], [4 * N]),
                activation!(Write "q", N),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

/// A vector of `n` as int8.
macro_rules! quantise {
    ($symbol:literal, $habit:ident) => {
        KernelRow {
            symbol: $symbol,
            op: Op::Quantise,
            dtype: None,
            head_dim: None,
            habit: Some(Habit::$habit),
            args: &[input("x"), output("q"), int("n")],
            block: 256,
            grid: Grid::Elements { count: "n", per_block: 2048 },
            lds_bytes: 0,
            needs: &[
                Need::Positive("n"), Need::MultipleOf("n", Habit::$habit.block() as u32),
            ],
            effects: &[bytes!(Read "x", [], [4 * N]), activation!(Write "q", N)],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

const ROTATE: KernelRow = KernelRow {
    symbol: "rotate_256",
    op: Op::Rotate,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[input("x"), output("y"), int("n")],
    block: 256,
    grid: Grid::Elements {
        count: "n",
        per_block: 2048,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("n"), Need::MultipleOf("n", 256)],
    effects: &[
        bytes!(Read "x", [], [4 * N]),
        bytes!(Write "y", [], [4 * N]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

const QK_NORM: KernelRow = KernelRow {
    symbol: "qk_norm",
    op: Op::QkNorm,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        inout("q"),
        inout("k"),
        input("qw"),
        input("kw"),
        int("heads"),
        int("kv_heads"),
        int("head_dim"),
        float("eps"),
    ],
    block: 32,
    grid: Grid::Sum(&["heads", "kv_heads"]),
    lds_bytes: 0,
    needs: &[
        Need::Positive("heads"),
        Need::Positive("kv_heads"),
        Need::Positive("head_dim"),
        Need::MultipleOf("head_dim", 32),
    ],
    effects: &[
        bytes!(ReadWrite "q", [], [4 * HEADS * HEAD_DIM]),
        bytes!(ReadWrite "k", [], [4 * KV_HEADS * HEAD_DIM]),
        bytes!(Read "qw", [], [4 * HEAD_DIM]),
        bytes!(Read "kw", [], [4 * HEAD_DIM]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

const ROPE: KernelRow = KernelRow {
    symbol: "rope",
    op: Op::Rope,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        inout("q"),
        inout("k"),
        input("table"),
        input("control"),
        int("heads"),
        int("kv_heads"),
        int("head_dim"),
        int("rot_dim"),
        int("interleaved"),
    ],
    block: 32,
    grid: Grid::Sum(&["heads", "kv_heads"]),
    lds_bytes: 0,
    needs: &[
        Need::Positive("heads"),
        Need::Positive("kv_heads"),
        Need::Positive("rot_dim"),
        Need::MultipleOf("rot_dim", 2),
        Need::AtMost("rot_dim", "head_dim"),
        Need::Flag("interleaved"),
    ],
    effects: &[
        bytes!(ReadWrite "q", [], [4 * HEADS * HEAD_DIM]),
        bytes!(ReadWrite "k", [], [4 * KV_HEADS * HEAD_DIM]),
        bytes!(Read "table", [], [4 * ROT_DIM]),
        word!(Read Pos),
    ],
    may_alias: &[],
    idle_when_done: false,
};

macro_rules! kv_write {
    ($symbol:literal, $dtype:ident, $bytes:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::KvWrite,
            dtype: Some(Dtype::$dtype),
            head_dim: None,
            habit: None,
            args: &[
                input("k"),
                input("v"),
                output("kcache"),
                output("vcache"),
                input("control"),
                int("kv_dim"),
            ],
            block: 256,
            grid: Grid::Elements { count: "kv_dim", per_block: 256 },
            lds_bytes: 0,
            needs: &[Need::Positive("kv_dim")],
            effects: &[
                bytes!(Read "k", [], [4 * KV_DIM]),
                bytes!(Read "v", [], [4 * KV_DIM]),
                bytes!(
                    Write "kcache",
                    [$bytes * POS * KV_DIM], [$bytes * POS * KV_DIM, $bytes * KV_DIM]
                ),
                bytes!(
                    Write "vcache",
                    [$bytes * POS * KV_DIM], [$bytes * POS * KV_DIM, $bytes * KV_DIM]
                ),
                word!(Read Pos),
                word!(Read Done),
            ],
            may_alias: &[],
            idle_when_done: true,
        }
    };
}

/// `$q` is 4 bytes times the head dimension, `$row` the element size times it.
macro_rules! attn_decode {
    ($symbol:literal, $dtype:ident, $dim:literal, $q:literal, $row:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::AttnDecode,
            dtype: Some(Dtype::$dtype),
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("q"),
                input("kcache"),
                input("vcache"),
                input("control"),
                output("out"),
                int("heads"),
                int("kv_heads"),
                float("scale"),
            ],
            block: 256,
            grid: Grid::Sum(&["heads"]),
            lds_bytes: $lds,
            needs: &[
                Need::Positive("heads"),
                Need::Positive("kv_heads"),
                Need::MultipleOfImm("heads", "kv_heads"),
            ],
            effects: &[
                bytes!(Read "q", [], [$q * HEADS]),
                bytes!(Read "kcache", [], [$row * POS * KV_HEADS, $row * KV_HEADS]),
                bytes!(Read "vcache", [], [$row * POS * KV_HEADS, $row * KV_HEADS]),
                word!(Read Pos),
                bytes!(Write "out", [], [$q * HEADS]),
            ],
            may_alias: &[],
            idle_when_done: false,
        }
    };
}

const SILU_MUL: KernelRow = KernelRow {
    symbol: "silu_mul",
    op: Op::SiluMul,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[input("gate"), input("up"), output("out"), int("n")],
    block: 256,
    grid: Grid::Elements {
        count: "n",
        per_block: 256,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("n")],
    effects: &[
        bytes!(Read "gate", [], [4 * N]),
        bytes!(Read "up", [], [4 * N]),
        bytes!(Write "out", [], [4 * N]),
    ],
    may_alias: &[("gate", "out"), ("up", "out")],
    idle_when_done: false,
};

const ARGMAX: KernelRow = KernelRow {
    symbol: "argmax",
    op: Op::Argmax,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[input("logits"), inout("control"), int("n")],
    block: 1024,
    grid: Grid::One,
    lds_bytes: 256,
    needs: &[Need::Positive("n")],
    effects: &[
        bytes!(Read "logits", [], [4 * N]),
        word!(Read Done),
        word!(Write Sampled),
    ],
    may_alias: &[],
    idle_when_done: true,
};

const SAMPLE: KernelRow = KernelRow {
    symbol: "sample",
    op: Op::Sample,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("logits"),
        inout("control"),
        int("n"),
        int("top_k"),
        float("inv_temperature"),
        float("top_p"),
    ],
    block: 1024,
    grid: Grid::One,
    lds_bytes: 10432,
    // Bits of a positive f32 grow with its value: largest finite, and 1.
    needs: &[
        Need::Positive("n"),
        Need::Positive("top_k"),
        Need::UpTo("top_k", 256),
        Need::AtMost("top_k", "n"),
        Need::Positive("inv_temperature"),
        Need::UpTo("inv_temperature", 0x7F7F_FFFF),
        Need::Positive("top_p"),
        Need::UpTo("top_p", 0x3F80_0000),
    ],
    effects: &[
        bytes!(Read "logits", [], [4 * N]),
        word!(Read Done),
        word!(Read Pos),
        word!(Read SeedLo),
        word!(Read SeedHi),
        word!(Write Sampled),
    ],
    may_alias: &[],
    idle_when_done: true,
};

const ADVANCE: KernelRow = KernelRow {
    symbol: "advance",
    op: Op::Advance,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[inout("control"), input("prompt"), output("ring")],
    block: 32,
    grid: Grid::One,
    lds_bytes: 0,
    needs: &[],
    effects: &[
        word!(Write Token),
        word!(ReadWrite Pos),
        word!(ReadWrite Done),
        word!(Read PromptLen),
        word!(ReadWrite Generated),
        word!(Read GenLimit),
        word!(Read CtxLen),
        word!(Read Eos),
        word!(ReadWrite Seq),
        word!(Read RingMask),
        word!(Read Sampled),
        bytes!(Read "prompt", [], [4 * PROMPT_LEN]),
        Effect {
            arg: "ring",
            access: Access::Write,
            span: Span::NextRingEntry,
        },
    ],
    may_alias: &[],
    idle_when_done: true,
};

/// The rows of a plain decode step.
pub(super) const ROWS: [KernelRow; 27] = [
    embed!("embed_f32", F32, 4),
    embed!("embed_f16", F16, 2),
    embed!("embed_bf16", BF16, 2),
    RMSNORM,
    rmsnorm_quantise!("rmsnorm_quantise_q8_0", Q8_0),
    rmsnorm_quantise!("rmsnorm_quantise_q8_1", Q8_1),
    rmsnorm_quantise!("rmsnorm_quantise_q8_k", Q8_K),
    quantise!("quantise_q8_0", Q8_0),
    quantise!("quantise_q8_1", Q8_1),
    quantise!("quantise_q8_k", Q8_K),
    ROTATE,
    QK_NORM,
    ROPE,
    kv_write!("kv_write_f32", F32, 4),
    kv_write!("kv_write_f16", F16, 2),
    attn_decode!("attn_decode_f32_d32", F32, 32, 128, 128, 1088),
    attn_decode!("attn_decode_f32_d64", F32, 64, 256, 256, 2112),
    attn_decode!("attn_decode_f32_d128", F32, 128, 512, 512, 4160),
    attn_decode!("attn_decode_f32_d256", F32, 256, 1024, 1024, 8256),
    attn_decode!("attn_decode_f16_d32", F16, 32, 128, 64, 1088),
    attn_decode!("attn_decode_f16_d64", F16, 64, 256, 128, 2112),
    attn_decode!("attn_decode_f16_d128", F16, 128, 512, 256, 4160),
    attn_decode!("attn_decode_f16_d256", F16, 256, 1024, 512, 8256),
    SILU_MUL,
    ARGMAX,
    SAMPLE,
    ADVANCE,
];
