//! The table of formats.

use half::{bf16, f16};

use super::affine;
use super::planes::{Plane, PlaneKind};
use super::split;
use super::{Blocks, Coding, Format, Habit, Levels};
use crate::Dtype;

/// ggml's `kvalues_iq4nl` (ggml-common.h).
const IQ4_NL: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// Twice the values of OCP MXFP4's E2M1, so that they are integers (ggml's `kvalues_mxfp4`).
const MXFP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

const fn codes(kind: PlaneKind, block_bytes: usize, holds: &'static str) -> Plane {
    Plane {
        kind,
        block_bytes,
        unit_bytes: 4,
        holds,
    }
}

const fn params(block_bytes: usize, unit_bytes: usize, holds: &'static str) -> Plane {
    Plane {
        kind: PlaneKind::Params,
        block_bytes,
        unit_bytes,
        holds,
    }
}

const CODES_32: Plane = codes(PlaneKind::Bytes, 32, "i8 q[32]");
const LOW_32: Plane = codes(PlaneKind::Nibbles, 16, "u4 low[32]");
const LOW_256: Plane = codes(PlaneKind::Nibbles, 128, "u4 low[8][32]");
const BIT4_32: Plane = codes(PlaneKind::Bit4, 4, "u1 high[32]");
const BIT4_256: Plane = codes(PlaneKind::Bit4, 32, "u1 high[8][32]");
const BITS45_256: Plane = codes(PlaneKind::Bits45, 64, "u2 high[16][16]");
const D: Plane = params(2, 2, "f16 d");
const D_M: Plane = params(4, 2, "f16 d, f16 m");
const E: Plane = params(1, 1, "u8 e");
const K_SCALES: Plane = params(16, 1, "(u8 scale, u8 min)[8]");
const K_MINS: Plane = params(4, 2, "f16 d, f16 dmin");
const K_SIGNED: Plane = params(16, 1, "i8 scale[16]");
const SINGLES: Plane = params(8, 4, "f32 scale, f32 zero");
const HALVES: Plane = params(8, 2, "(f16 scale, f16 zero)[2]");
const HALF_PAIR: Plane = params(4, 2, "f16 scale, f16 zero");

macro_rules! blocks {
    ($planes:expr, $levels:expr, $mins:ident per $group:literal, $affine:ident,
        $split:expr, $join:expr) => {
        blocks!($planes, $levels, $mins per $group, $affine, $split, $join, (0, 0))
    };
    ($planes:expr, $levels:expr, $mins:ident per $group:literal, $affine:ident,
        $split:expr, $join:expr, $reserved:expr) => {
        Coding::Blocks(Blocks {
            planes: &$planes,
            levels: $levels,
            group: $group,
            mins: blocks!(@$mins),
            reserved: $reserved,
            split: $split,
            join: $join,
            affine: affine::$affine,
        })
    };
    (@scale) => { false };
    (@scale_and_min) => { true };
}

fn f32_of(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn f16_of(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn bf16_of(bytes: &[u8]) -> f32 {
    bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

const UNSIGNED: Levels = Levels::Offset(0);
const Q8_0: Option<Habit> = Some(Habit::Q8_0);
const Q8_1: Option<Habit> = Some(Habit::Q8_1);
const Q8_K: Option<Habit> = Some(Habit::Q8_K);

const fn row(
    dtype: Dtype,
    name: &'static str,
    (ggml, hfq): (Option<u32>, Option<u8>),
    (block, block_bytes): (usize, usize),
    habit: Option<Habit>,
    coding: Coding,
) -> Format {
    Format {
        dtype,
        name,
        ggml,
        hfq,
        block,
        block_bytes,
        habit,
        rotated: false,
        coding,
    }
}

const fn rotated(format: Format) -> Format {
    Format {
        rotated: true,
        ..format
    }
}

/// Type numbers: `enum ggml_type` of ggml.h; hipfire's quant type register.
///
/// Bytes per block are the same in file and device layout but for Q4_K and Q5_K, whose 6-bit scales
/// become bytes (+4), and MQ4C, whose four zero bytes are left out (-4).
#[rustfmt::skip]
pub(super) const FORMATS: &[Format] = &[
    row(Dtype::F32, "f32", (Some(0), Some(2)), (1, 4), None,
        Coding::Plain(f32_of)),
    row(Dtype::F16, "f16", (Some(1), Some(1)), (1, 2), None,
        Coding::Plain(f16_of)),
    row(Dtype::BF16, "bf16", (Some(30), Some(16)), (1, 2), None,
        Coding::Plain(bf16_of)),
    row(Dtype::Q8_0, "q8_0", (Some(8), Some(3)), (32, 34), Q8_0,
        blocks!([CODES_32, D], Levels::Signed, scale per 32, d, split::bytes32::<2>, split::join_bytes32::<2>)),
    row(Dtype::Q4_0, "q4_0", (Some(2), None), (32, 18), Q8_0,
        blocks!([LOW_32, D], Levels::Offset(8), scale per 32, d, split::four32::<2>, split::join_four32::<2>)),
    row(Dtype::Q4_1, "q4_1", (Some(3), None), (32, 20), Q8_1,
        blocks!([LOW_32, D_M], UNSIGNED, scale_and_min per 32, dm, split::four32::<4>, split::join_four32::<4>)),
    row(Dtype::Q5_0, "q5_0", (Some(6), None), (32, 22), Q8_0,
        blocks!([LOW_32, BIT4_32, D], Levels::Offset(16), scale per 32, d, split::five32::<2>, split::join_five32::<2>)),
    row(Dtype::Q5_1, "q5_1", (Some(7), None), (32, 24), Q8_1,
        blocks!([LOW_32, BIT4_32, D_M], UNSIGNED, scale_and_min per 32, dm, split::five32::<4>, split::join_five32::<4>)),
    row(Dtype::Q4_K, "q4_k", (Some(12), Some(4)), (256, 144), Q8_K,
        blocks!([LOW_256, K_SCALES, K_MINS], UNSIGNED, scale_and_min per 32, k_mins, split::q4_k, split::join_q4_k)),
    row(Dtype::Q5_K, "q5_k", (Some(13), None), (256, 176), Q8_K,
        blocks!([LOW_256, BIT4_256, K_SCALES, K_MINS], UNSIGNED, scale_and_min per 32, k_mins, split::q5_k, split::join_q5_k)),
    row(Dtype::Q6_K, "q6_k", (Some(14), None), (256, 210), Q8_K,
        blocks!([LOW_256, BITS45_256, K_SIGNED, D], Levels::Offset(32), scale per 16, k_signed, split::q6_k, split::join_q6_k)),
    row(Dtype::IQ4_NL, "iq4_nl", (Some(20), None), (32, 18), Q8_0,
        blocks!([LOW_32, D], Levels::Table(&IQ4_NL), scale per 32, d, split::four32::<2>, split::join_four32::<2>)),
    row(Dtype::MXFP4, "mxfp4", (Some(39), None), (32, 17), Q8_0,
        blocks!([LOW_32, E], Levels::Table(&MXFP4), scale per 32, e8m0, split::four32::<1>, split::join_four32::<1>)),
    row(Dtype::HFQ4_G256, "hfq4_g256", (None, Some(6)), (256, 136), Q8_K,
        blocks!([LOW_256, SINGLES], UNSIGNED, scale_and_min per 256, singles, split::pairs256::<8>, split::join_pairs256::<8>)),
    rotated(row(Dtype::MQ4_G256, "mq4_g256", (None, Some(13)), (256, 136), Q8_K,
        blocks!([LOW_256, SINGLES], UNSIGNED, scale_and_min per 256, singles, split::pairs256::<8>, split::join_pairs256::<8>))),
    rotated(row(Dtype::MQ4_G256_V2, "mq4_g256_v2", (None, Some(44)), (256, 136), Q8_K,
        blocks!([LOW_256, HALVES], UNSIGNED, scale_and_min per 128, halves, split::pairs256::<8>, split::join_pairs256::<8>))),
    rotated(row(Dtype::MQ4C_G256, "mq4c_g256", (None, Some(45)), (256, 136), Q8_K,
        blocks!([LOW_256, HALF_PAIR], UNSIGNED, scale_and_min per 256, dm, split::pairs256::<4>, split::join_pairs256::<4>, (4, 8)))),
    row(Dtype::HFQ6_G256, "hfq6_g256", (None, Some(8)), (256, 200), Q8_K,
        blocks!([LOW_256, BITS45_256, SINGLES], UNSIGNED, scale_and_min per 256, singles, split::six256, split::join_six256)),
    rotated(row(Dtype::MQ6_G256, "mq6_g256", (None, Some(15)), (256, 200), Q8_K,
        blocks!([LOW_256, BITS45_256, SINGLES], UNSIGNED, scale_and_min per 256, singles, split::six256, split::join_six256))),
];
