//! Recurrent mixers: the gated delta rule in parts and in one launch, and the short convolution.
//!
//! The convolution's state is a ring of four columns `[4][channels]`, column `pos & 3` being this
//! step's, so that no column is read and written in one launch. Taps before position 0 count as
//! zero, and at position 0 the recurrent state is taken as zero, whatever the buffers hold: a text
//! that starts at position 0 needs no clearing.

use super::terms::{E, HEADS, NK, NV, float, inout, input, int, output};
use crate::{Access, Effect, Factor, Grid, KernelRow, Need, Op, Span, Term, Word};

const CHANNELS: Factor = Factor::Imm("channels");
const HEAD_DIM: Factor = Factor::Imm("head_dim");

const CONV_SILU: KernelRow = KernelRow {
    symbol: "conv_silu_k4",
    op: Op::ConvSilu,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("m"),
        input("conv_w"),
        inout("conv_state"),
        input("control"),
        output("u"),
        int("channels"),
    ],
    block: 256,
    grid: Grid::Elements {
        count: "channels",
        per_block: 256,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("channels")],
    effects: &[
        bytes!(Read "m", [], [4 * CHANNELS]),
        bytes!(Read "conv_w", [], [16 * CHANNELS]),
        bytes!(ReadWrite "conv_state", [], [16 * CHANNELS]),
        word!(Read Pos),
        word!(Read Done),
        bytes!(Write "u", [], [4 * CHANNELS]),
    ],
    may_alias: &[],
    idle_when_done: true,
};

const SHORT_CONV: KernelRow = KernelRow {
    symbol: "short_conv_k3",
    op: Op::ShortConv,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("bcx"),
        input("conv_w"),
        inout("conv_state"),
        input("control"),
        output("out"),
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
        bytes!(Read "bcx", [], [12 * E]),
        bytes!(Read "conv_w", [], [12 * E]),
        bytes!(ReadWrite "conv_state", [], [16 * E]),
        word!(Read Pos),
        word!(Read Done),
        bytes!(Write "out", [], [4 * E]),
    ],
    may_alias: &[],
    idle_when_done: true,
};

const L2_NORM: KernelRow = KernelRow {
    symbol: "l2_norm",
    op: Op::L2Norm,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        inout("u"),
        int("nk"),
        int("head_dim"),
        float("eps"),
        float("scale"),
    ],
    block: 32,
    grid: Grid::Sum(&["nk", "nk"]),
    lds_bytes: 0,
    needs: &[
        Need::Positive("nk"),
        Need::Positive("head_dim"),
        Need::MultipleOf("head_dim", 32),
    ],
    effects: &[bytes!(ReadWrite "u", [], [8 * NK * HEAD_DIM])],
    may_alias: &[],
    idle_when_done: false,
};

const DELTA_GATES: KernelRow = KernelRow {
    symbol: "delta_gates",
    op: Op::DeltaGates,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("a"),
        input("b"),
        input("a_log"),
        input("dt_bias"),
        output("decay"),
        output("beta"),
        int("nv"),
    ],
    block: 32,
    grid: Grid::Elements {
        count: "nv",
        per_block: 32,
    },
    lds_bytes: 0,
    needs: &[Need::Positive("nv")],
    effects: &[
        bytes!(Read "a", [], [4 * NV]),
        bytes!(Read "b", [], [4 * NV]),
        bytes!(Read "a_log", [], [4 * NV]),
        bytes!(Read "dt_bias", [], [4 * NV]),
        bytes!(Write "decay", [], [4 * NV]),
        bytes!(Write "beta", [], [4 * NV]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

const GATED_NORM: KernelRow = KernelRow {
    symbol: "gated_norm",
    op: Op::GatedNorm,
    dtype: None,
    head_dim: None,
    habit: None,
    args: &[
        input("o"),
        input("norm_w"),
        input("z"),
        output("y"),
        int("heads"),
        int("head_dim"),
        float("norm_eps"),
    ],
    block: 32,
    grid: Grid::Sum(&["heads"]),
    lds_bytes: 0,
    needs: &[
        Need::Positive("heads"),
        Need::Positive("head_dim"),
        Need::MultipleOf("head_dim", 32),
    ],
    effects: &[
        bytes!(Read "o", [], [4 * HEADS * HEAD_DIM]),
        bytes!(Read "norm_w", [], [4 * HEAD_DIM]),
        bytes!(Read "z", [], [4 * HEADS * HEAD_DIM]),
        bytes!(Write "y", [], [4 * HEADS * HEAD_DIM]),
    ],
    may_alias: &[],
    idle_when_done: false,
};

/// One step of the recurrence, one work-group per value head. Literals are 4 and 8 bytes times the
/// head dimension, and 4 times its square.
macro_rules! step {
    ($symbol:literal, $dim:literal, $x4:literal, $x8:literal, $state:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::DeltaStep,
            dtype: None,
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("u"),
                input("decay"),
                input("beta"),
                inout("state"),
                input("control"),
                output("o"),
                int("nk"),
                int("nv"),
                int("tiled"),
            ],
            block: 256,
            grid: Grid::Sum(&["nv"]),
            lds_bytes: $lds,
            needs: &[
                Need::Positive("nk"),
                Need::Positive("nv"),
                Need::MultipleOfImm("nv", "nk"),
                Need::Flag("tiled"),
            ],
            effects: &[
                bytes!(Read "u", [], [$x8 * NK, $x4 * NV]),
                bytes!(Read "decay", [], [4 * NV]),
                bytes!(Read "beta", [], [4 * NV]),
                bytes!(ReadWrite "state", [], [$state * NV]),
                word!(Read Pos),
                word!(Read Done),
                bytes!(Write "o", [], [$x4 * NV]),
            ],
            may_alias: &[],
            idle_when_done: true,
        }
    };
}

/// Convolution, gates, normalisation of queries and keys, step and gated norm in one launch.
macro_rules! delta_net {
    ($symbol:literal, $dim:literal, $x4:literal, $x8:literal, $x16:literal, $x32:literal,
     $state:literal, $lds:literal) => {
        KernelRow {
            symbol: $symbol,
            op: Op::DeltaNet,
            dtype: None,
            head_dim: Some($dim),
            habit: None,
            args: &[
                input("m"),
                input("z"),
                input("a"),
                input("b"),
                input("conv_w"),
                input("a_log"),
                input("dt_bias"),
                input("norm_w"),
                inout("conv_state"),
                inout("state"),
                input("control"),
                output("y"),
                int("nk"),
                int("nv"),
                int("tiled"),
                float("eps"),
                float("scale"),
                float("norm_eps"),
            ],
            block: 256,
            grid: Grid::Sum(&["nv"]),
            lds_bytes: $lds,
            needs: &[
                Need::Positive("nk"),
                Need::Positive("nv"),
                Need::MultipleOfImm("nv", "nk"),
                Need::Flag("tiled"),
            ],
            effects: &[
                bytes!(Read "m", [], [$x8 * NK, $x4 * NV]),
                bytes!(Read "z", [], [$x4 * NV]),
                bytes!(Read "a", [], [4 * NV]),
                bytes!(Read "b", [], [4 * NV]),
                bytes!(Read "conv_w", [], [$x32 * NK, $x16 * NV]),
                bytes!(Read "a_log", [], [4 * NV]),
                bytes!(Read "dt_bias", [], [4 * NV]),
                bytes!(Read "norm_w", [], [$x4]),
                bytes!(ReadWrite "conv_state", [], [$x32 * NK, $x16 * NV]),
                bytes!(ReadWrite "state", [], [$state * NV]),
                word!(Read Pos),
                word!(Read Done),
                bytes!(Write "y", [], [$x4 * NV]),
            ],
            may_alias: &[],
            idle_when_done: true,
        }
    };
}

/// The rows.
pub(super) const ROWS: [KernelRow; 11] = [
    CONV_SILU,
    L2_NORM,
    DELTA_GATES,
    step!("delta_step_d32", 32, 128, 256, 4096, 8832),
    step!("delta_step_d64", 64, 256, 512, 16384, 9472),
    step!("delta_step_d128", 128, 512, 1024, 65536, 10752),
    GATED_NORM,
    delta_net!("delta_net_d32", 32, 128, 256, 512, 1024, 4096, 8832),
    delta_net!("delta_net_d64", 64, 256, 512, 1024, 2048, 16384, 9472),
    delta_net!("delta_net_d128", 128, 512, 1024, 2048, 4096, 65536, 10752),
    SHORT_CONV,
];
