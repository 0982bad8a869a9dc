//! Sizes and control words of the launches in `cases`, by operation.

use refrain_kernels::Word::{CtxLen, Done, Eos, GenLimit, Generated, Pos, PromptLen, RingMask};
use refrain_kernels::Word::{Sampled, SeedHi, SeedLo, Seq, Token};
use refrain_kernels::{Op, Word};

/// One set of sizes.
pub(super) struct Shape {
    pub(super) ops: &'static [Op],
    /// Integer immediates by name; names that a kernel lacks are passed over.
    pub(super) imms: &'static [(&'static str, u32)],
    /// One launch for each: the control words that are not 0.
    pub(super) at: &'static [&'static [(Word, u32)]],
    /// All logits are +inf.
    pub(super) ties: bool,
}

type Imms = &'static [(&'static str, u32)];
type At = &'static [&'static [(Word, u32)]];

const fn shape(ops: &'static [Op], imms: Imms, at: At) -> Shape {
    Shape {
        ops,
        imms,
        at,
        ties: false,
    }
}

const fn ties(ops: &'static [Op], imms: Imms, at: At) -> Shape {
    Shape {
        ops,
        imms,
        at,
        ties: true,
    }
}

/// One launch with all words 0.
const START: At = &[&[]];
const LAST: u32 = u32::MAX - 5;
/// Around the tile of 32 positions, and where the number of tiles wraps to none.
const POSITIONS: At = &[
    &[],
    &[(Pos, 1)],
    &[(Pos, 31)],
    &[(Pos, 32)],
    &[(Pos, 63)],
    &[(Pos, 300)],
    &[(Pos, LAST)],
];
/// Around the part of 256 positions.
const PARTS: At = &[
    &[],
    &[(Pos, 33)],
    &[(Pos, 300)],
    &[(Pos, 550)],
    &[(Pos, LAST)],
];
const STEPS: At = &[&[], &[(Pos, 1)], &[(Pos, 6)], &[(Pos, 6), (Done, 1)]];
const WRITES: At = &[&[(Pos, 2)], &[(Pos, 2), (Done, 1)]];
const DRAWS: At = &[&[(Pos, 3), (SeedLo, 77), (SeedHi, 5)], &[(Done, 1)]];

const RANGED: &[Op] = &[
    Op::Gemv,
    Op::GemvAdd,
    Op::GemvBias,
    Op::GemvSilu,
    Op::GemvGatedAdd,
];
const INT8: &[Op] = &[Op::RmsNormQuantise, Op::Quantise, Op::Rotate];
const SEVERAL: &[Op] = &[Op::Gemv2, Op::Gemv3, Op::Gemv4, Op::Gemv3Bias];
const PREPARE: &[Op] = &[Op::QkNormRopeKv, Op::RopeKv];
const MERGE: &[Op] = &[Op::AttnMerge, Op::AttnMergeGated];
const DELTA: &[Op] = &[Op::DeltaStep, Op::DeltaNet];
const EXPERTS: &[Op] = &[Op::MoeGemv, Op::MoeGateUp, Op::MoeDownAdd];

#[rustfmt::skip]
pub(super) const SHAPES: &[Shape] = &[
    shape(&[Op::Embed], &[("e", 288), ("rows", 7)], &[&[(Token, 6)]]),
    shape(&[Op::RmsNorm], &[("n", 8)], START),
    shape(&[Op::RmsNorm], &[("n", 260)], START),
    shape(&[Op::RmsNorm], &[("n", 1100)], START),
    shape(INT8, &[("n", 32)], START),
    shape(INT8, &[("n", 1024)], START),
    shape(INT8, &[("n", 4128)], START),
    shape(RANGED, &[("r0", 0), ("r1", 5), ("rows", 5), ("k", 32)], START),
    shape(RANGED, &[("r0", 3), ("r1", 33), ("rows", 33), ("k", 256)], START),
    shape(RANGED, &[("r0", 0), ("r1", 16), ("rows", 16), ("k", 288)], START),
    shape(RANGED, &[("r0", 0), ("r1", 40), ("rows", 40), ("k", 704)], START),
    // 33 blocks of 32: the loop over int8 activations takes two of 16 blocks at a time.
    shape(RANGED, &[("r0", 0), ("r1", 3), ("rows", 3), ("k", 1056)], START),
    shape(SEVERAL, &[("m0", 2), ("m1", 1), ("m2", 1), ("m3", 1), ("k", 1056)], START),
    shape(SEVERAL, &[("m0", 5), ("m1", 3), ("m2", 2), ("m3", 1), ("k", 32)], START),
    shape(SEVERAL, &[("m0", 3), ("m1", 20), ("m2", 17), ("m3", 2), ("k", 256)], START),
    shape(SEVERAL, &[("m0", 17), ("m1", 16), ("m2", 3), ("m3", 30), ("k", 288)], START),
    shape(SEVERAL, &[("m0", 3), ("m1", 20), ("m2", 17), ("m3", 2), ("k", 704)], START),
    shape(&[Op::QkNorm], &[("heads", 3), ("kv_heads", 2), ("head_dim", 64)], START),
    shape(&[Op::QkNorm], &[("heads", 3), ("kv_heads", 2), ("head_dim", 128)], START),
    shape(&[Op::Rope], &[("heads", 2), ("kv_heads", 1), ("head_dim", 64), ("rot_dim", 48),
        ("interleaved", 0)], POSITIONS),
    shape(&[Op::Rope], &[("heads", 2), ("kv_heads", 1), ("head_dim", 64), ("rot_dim", 48),
        ("interleaved", 1)], POSITIONS),
    shape(&[Op::KvWrite], &[("kv_dim", 300), ("ctx", 1024)], WRITES),
    shape(PREPARE, &[("heads", 3), ("kv_heads", 1), ("head_dim", 64), ("q_stride", 128),
        ("rot_dim", 48), ("interleaved", 0)], WRITES),
    shape(PREPARE, &[("heads", 2), ("kv_heads", 2), ("head_dim", 128), ("q_stride", 128),
        ("rot_dim", 128), ("interleaved", 1)], WRITES),
    shape(&[Op::AttnDecode], &[("heads", 4), ("kv_heads", 2), ("ctx", 1024)], POSITIONS),
    shape(&[Op::AttnSplit], &[("heads", 4), ("kv_heads", 2), ("splits", 2), ("ctx", 1024)], PARTS),
    shape(MERGE, &[("heads", 2), ("head_dim", 64), ("splits", 1)], PARTS),
    shape(MERGE, &[("heads", 3), ("head_dim", 128), ("splits", 4)], PARTS),
    shape(MERGE, &[("heads", 2), ("head_dim", 320), ("splits", 2)], PARTS),
    shape(&[Op::QGateSplit], &[("heads", 3), ("head_dim", 80)], START),
    shape(&[Op::SigmoidMul, Op::SiluMul], &[("n", 600)], START),
    shape(&[Op::ConvSilu], &[("channels", 300)], STEPS),
    shape(&[Op::L2Norm], &[("nk", 2), ("head_dim", 32)], START),
    shape(&[Op::L2Norm], &[("nk", 2), ("head_dim", 128)], START),
    shape(&[Op::DeltaGates], &[("nv", 40)], START),
    shape(DELTA, &[("nk", 2), ("nv", 4), ("tiled", 0)], STEPS),
    shape(DELTA, &[("nk", 1), ("nv", 2), ("tiled", 1)], &[&[(Pos, 3)]]),
    shape(&[Op::GatedNorm], &[("heads", 3), ("head_dim", 32)], START),
    shape(&[Op::GatedNorm], &[("heads", 3), ("head_dim", 128)], START),
    shape(&[Op::ShortConv], &[("e", 300)], STEPS),
    shape(&[Op::MoeRoute], &[("n", 5), ("top_k", 1), ("normalize", 1)], START),
    shape(&[Op::MoeRoute], &[("n", 8), ("top_k", 2), ("normalize", 1)], START),
    shape(&[Op::MoeRoute], &[("n", 300), ("top_k", 8), ("normalize", 0)], START),
    shape(&[Op::MoeRoute], &[("n", 1000), ("top_k", 10), ("normalize", 1)], START),
    shape(EXPERTS, &[("experts", 5), ("top_k", 3), ("r0", 1), ("r1", 30), ("m", 32), ("k", 32)],
        START),
    shape(EXPERTS, &[("experts", 5), ("top_k", 3), ("r0", 0), ("r1", 16), ("m", 16), ("k", 256)],
        START),
    shape(EXPERTS, &[("experts", 5), ("top_k", 2), ("r0", 0), ("r1", 16), ("m", 16), ("k", 288)],
        START),
    shape(EXPERTS, &[("experts", 5), ("top_k", 2), ("r0", 0), ("r1", 16), ("m", 16), ("k", 704)],
        START),
    shape(EXPERTS, &[("experts", 2), ("top_k", 1), ("r0", 0), ("r1", 3), ("m", 16), ("k", 1056)],
        START),
    shape(&[Op::GatedAdd], &[("e", 600)], START),
    shape(&[Op::Argmax], &[("n", 1)], &[&[], &[(Done, 1)]]),
    shape(&[Op::Argmax], &[("n", 40)], START),
    shape(&[Op::Argmax], &[("n", 3000)], START),
    shape(&[Op::Sample], &[("n", 50), ("top_k", 8)], DRAWS),
    shape(&[Op::Sample], &[("n", 3000), ("top_k", 40)], DRAWS),
    ties(&[Op::Sample], &[("n", 1500), ("top_k", 60)], DRAWS),
    // Token generated, prompt goes on, end of text, limit, end of the context, done, no token.
    shape(&[Op::Advance], &[], &[
        &[(Pos, 4), (PromptLen, 3), (Generated, 2), (GenLimit, 100), (CtxLen, 64), (Eos, 77),
          (Seq, 2), (RingMask, 7), (Sampled, 55)],
        &[(Pos, 1), (PromptLen, 3), (GenLimit, 100), (CtxLen, 64), (Eos, 77), (RingMask, 7)],
        &[(Pos, 1), (PromptLen, 3), (GenLimit, 100), (CtxLen, 2), (Eos, 77), (RingMask, 7)],
        &[(Pos, 4), (PromptLen, 3), (Generated, 2), (GenLimit, 100), (CtxLen, 64), (Eos, 77),
          (Seq, 2), (RingMask, 7), (Sampled, 77)],
        &[(Pos, 4), (PromptLen, 3), (Generated, 2), (GenLimit, 3), (CtxLen, 64), (Eos, 77),
          (Seq, 2), (RingMask, 7), (Sampled, 55)],
        &[(Pos, 4), (PromptLen, 3), (Generated, 2), (GenLimit, 100), (CtxLen, 5), (Eos, 77),
          (Seq, 2), (RingMask, 7), (Sampled, 55)],
        &[(Pos, 4), (PromptLen, 3), (Done, 2), (RingMask, 7)],
        &[(Pos, 4), (PromptLen, 3), (GenLimit, 100), (CtxLen, 64), (Eos, 77), (RingMask, 7),
          (Sampled, u32::MAX)],
    ]),
];
