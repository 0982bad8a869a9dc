//! table: which kernels do an operation, or several at once, and where their arguments come from.
//!
//! A row of [`PLAIN`] does one operation by one launch; every operation has one. A row of [`FUSED`]
//! stands for operations that follow each other, in place of their plain launches; `select` tries
//! those in this order. Arguments are bound by name, so a kernel that takes fewer of them needs no
//! other row. What stands for what, bit by bit: docs/fusions.md.

use super::row::On::{self, Cache, CacheAndHead, Nothing, StateHead, Wanted, Weights};
use super::row::Source::{
    self, Cols, Context, Control, Eps, Fresh, In, Interleaved, Len, Number, Out, Prompt, Ring,
    Rotation, Rows, Scale, Size, Splits, State, StateScale, Temp, Weight,
};
use super::row::{Part, Row, When};
use crate::arch::Dim;
use crate::graph::Op;
use refrain_kernels::Op as KernelOp;

type Arg = (&'static str, Source);

const FIRST: On = Weights(&[(0, 0)]);
const HEADS: Arg = ("heads", Size(Dim::Heads));
const KV_HEADS: Arg = ("kv_heads", Size(Dim::KeyValueHeads));
const HEAD_DIM: Arg = ("head_dim", Size(Dim::Head));
const ROT_DIM: Arg = ("rot_dim", Size(Dim::RopeDims));
const INTERLEAVED: Arg = ("interleaved", Interleaved);
const TABLE: Arg = ("table", Rotation);
const CONTROL: Arg = ("control", Control);
/// Keys come before values among what an attention layer keeps.
const KCACHE: Arg = ("kcache", State(0));
const VCACHE: Arg = ("vcache", State(1));
/// What a cache of several planes takes more.
const CTX: Arg = ("ctx", Context);
const KV_DIM: Arg = ("kv_dim", Size(Dim::KeyValue));
/// Columns come before the matrices among what a linear-attention layer keeps.
const CONV_STATE: Arg = ("conv_state", State(0));
const STATE: Arg = ("state", State(1));
const EPS: Arg = ("eps", Eps);
const NK: Arg = ("nk", Size(Dim::StateKeyHeads));
const NV: Arg = ("nv", Size(Dim::StateHeads));
/// Value heads of GGUF files lie in tiled order.
const TILED: Arg = ("tiled", Number(1));
/// The epsilon inside the root of the length of queries and keys.
const L2_EPS: Arg = ("eps", Number(1e-6f32.to_bits()));
const L2_SCALE: Arg = ("scale", StateScale);
const R0: Arg = ("r0", Number(0));
const R1: Arg = ("r1", Rows(0, 0));
const K: Arg = ("k", Cols(0, 0));
const ROWS: Arg = ("rows", Rows(0, 0));
const FOUR_TAPS: Option<(Dim, u32)> = Some((Dim::ConvTaps, 4));
const THREE_TAPS: Option<(Dim, u32)> = Some((Dim::ConvTaps, 3));

/// `plain!(Operation => Kernel, specialisation, (fixed length,) [arguments])`.
macro_rules! plain {
    ($op:ident => $kernel:ident, $on:expr, [$($arg:expr),* $(,)?]) => {
        plain!($op => $kernel, $on, None, [$($arg),*])
    };
    ($op:ident => $kernel:ident, $on:expr, $fixed:expr, [$($arg:expr),* $(,)?]) => {
        Row {
            name: "",
            ops: &[Op::$op],
            when: When::Always,
            same: &[],
            dead: &[],
            temps: &[],
            parts: &[Part {
                suffix: "",
                kernel: KernelOp::$kernel,
                on: $on,
                fixed: $fixed,
                args: &[$($arg),*],
            }],
        }
    };
}

/// One row per operation.
#[rustfmt::skip]
pub static PLAIN: &[Row] = &[
    plain!(Embed => Embed, FIRST, [
        ("table", Weight(0, 0)), CONTROL, ("out", Out(0, 0)), ("e", Cols(0, 0)), ROWS,
    ]),
    plain!(RmsNorm => RmsNorm, Nothing, [
        ("x", In(0, 0)), ("w", Weight(0, 0)), ("y", Out(0, 0)), ("n", Cols(0, 0)), EPS,
    ]),
    plain!(Gemv => Gemv, FIRST, [
        ("w", Weight(0, 0)), ("x", In(0, 0)), ("y", Out(0, 0)), R0, R1, K, ROWS,
    ]),
    plain!(GemvBias => GemvBias, FIRST, [
        ("w", Weight(0, 0)), ("x", In(0, 0)), ("bias", Weight(0, 1)), ("y", Out(0, 0)),
        R0, R1, K, ROWS,
    ]),
    plain!(GemvAdd => GemvAdd, FIRST, [
        ("w", Weight(0, 0)), ("x", In(0, 0)), ("residual", In(0, 1)), ("y", Out(0, 0)),
        R0, R1, K, ROWS,
    ]),
    plain!(SplitGate => QGateSplit, Nothing, [
        ("qg", In(0, 0)), ("q", Out(0, 0)), ("gate", Out(0, 1)), HEADS, HEAD_DIM,
    ]),
    plain!(QkNorm => QkNorm, Nothing, [
        ("q", In(0, 0)), ("k", In(0, 1)), ("qw", Weight(0, 0)), ("kw", Weight(0, 1)),
        HEADS, KV_HEADS, HEAD_DIM, EPS,
    ]),
    plain!(Rope => Rope, Nothing, [
        ("q", In(0, 0)), ("k", In(0, 1)), TABLE, CONTROL, HEADS, KV_HEADS, HEAD_DIM, ROT_DIM,
        INTERLEAVED,
    ]),
    plain!(KvWrite => KvWrite, Cache, [
        ("k", In(0, 0)), ("v", In(0, 1)), KCACHE, VCACHE, CONTROL,
        CTX, KV_DIM,
    ]),
    plain!(Attention => AttnDecode, CacheAndHead, [
        ("q", In(0, 0)), KCACHE, VCACHE, CONTROL, ("out", Out(0, 0)), HEADS, KV_HEADS,
        CTX, KV_DIM, ("scale", Scale),
    ]),
    plain!(GateMul => SigmoidMul, Nothing, [
        ("x", In(0, 0)), ("gate", In(0, 1)), ("out", Out(0, 0)), ("n", Len(0, 0)),
    ]),
    plain!(SiluMul => SiluMul, Nothing, [
        ("gate", In(0, 0)), ("up", In(0, 1)), ("out", Out(0, 0)), ("n", Len(0, 0)),
    ]),
    plain!(ShortConv => ShortConv, Nothing, THREE_TAPS, [
        ("bcx", In(0, 0)), ("conv_w", Weight(0, 0)), CONV_STATE, CONTROL, ("out", Out(0, 0)),
        ("e", Len(0, 0)),
    ]),
    plain!(ConvSilu => ConvSilu, Nothing, FOUR_TAPS, [
        ("m", In(0, 0)), ("conv_w", Weight(0, 0)), CONV_STATE, CONTROL, ("u", Out(0, 0)),
        ("channels", Len(0, 0)),
    ]),
    plain!(DeltaGates => DeltaGates, Nothing, [
        ("a", In(0, 0)), ("b", In(0, 1)), ("a_log", Weight(0, 0)), ("dt_bias", Weight(0, 1)),
        ("decay", Out(0, 0)), ("beta", Out(0, 1)), NV,
    ]),
    plain!(L2Norm => L2Norm, Nothing, [
        ("u", In(0, 0)), NK, ("head_dim", Size(Dim::StateHead)), L2_EPS, L2_SCALE,
    ]),
    plain!(DeltaStep => DeltaStep, StateHead, [
        ("u", In(0, 0)), ("decay", In(0, 1)), ("beta", In(0, 2)), STATE, CONTROL,
        ("o", Out(0, 0)), NK, NV, TILED,
    ]),
    plain!(GatedNorm => GatedNorm, Nothing, [
        ("o", In(0, 0)), ("norm_w", Weight(0, 0)), ("z", In(0, 1)), ("y", Out(0, 0)),
        ("heads", Size(Dim::StateHeads)), ("head_dim", Size(Dim::StateHead)), ("norm_eps", Eps),
    ]),
    plain!(TopK => MoeRoute, Nothing, [
        ("logits", In(0, 0)), ("ids", Out(0, 0)), ("weights", Out(0, 1)),
        ("n", Size(Dim::Experts)), ("top_k", Size(Dim::ExpertsUsed)), ("normalize", Number(1)),
    ]),
    plain!(ExpertGemv => MoeGemv, FIRST, [
        ("w", Weight(0, 0)), ("x", In(0, 1)), ("ids", In(0, 0)), ("y", Out(0, 0)),
        ("experts", Size(Dim::Experts)), ("top_k", Size(Dim::ExpertsUsed)),
        ("m", Size(Dim::ExpertFfn)), K,
    ]),
    plain!(ExpertsDown => MoeDownAdd, FIRST, [
        ("w", Weight(0, 0)), ("x", In(0, 2)), ("ids", In(0, 0)), ("weights", In(0, 1)),
        ("residual", In(0, 3)), ("y", Out(0, 0)), R0, ("r1", Size(Dim::Hidden)),
        ("experts", Size(Dim::Experts)), ("top_k", Size(Dim::ExpertsUsed)),
        ("m", Size(Dim::Hidden)), K,
    ]),
    plain!(GatedAdd => GatedAdd, Nothing, [
        ("x", In(0, 1)), ("gate", In(0, 0)), ("residual", In(0, 2)), ("y", Out(0, 0)),
        ("e", Len(0, 0)),
    ]),
    plain!(Argmax => Argmax, Nothing, [("logits", In(0, 0)), CONTROL, ("n", Size(Dim::Vocab))]),
    plain!(Advance => Advance, Nothing, [CONTROL, ("prompt", Prompt), ("ring", Ring)]),
];

/// `fused!("name", [Operations], same [pairs], (when,) (dead [values],) (temps [values],)
/// parts [("suffix", Kernel, specialisation, fixed length, [arguments]), ...])`.
macro_rules! fused {
    ($name:literal, [$($op:ident),*], when $when:ident, same [$($same:expr),* $(,)?],
     dead [$($dead:expr),*], temps [$($temp:expr),*],
     parts [$(($suffix:literal, $kernel:ident, $on:expr, $fixed:expr, [$($arg:expr),* $(,)?])),* $(,)?]) => {
        Row {
            name: $name,
            ops: &[$(Op::$op),*],
            when: When::$when,
            same: &[$($same),*],
            dead: &[$($dead),*],
            temps: &[$($temp),*],
            parts: &[$(Part {
                suffix: $suffix,
                kernel: KernelOp::$kernel,
                on: $on,
                fixed: $fixed,
                args: &[$($arg),*],
            }),*],
        }
    };
}

/// One vector for two and more matrices.
const SAME_X: [(Source, Source); 3] = [
    (In(0, 0), In(1, 0)),
    (In(0, 0), In(2, 0)),
    (In(0, 0), In(3, 0)),
];
const X: Arg = ("x", In(0, 0));
const fn w(name: &'static str, op: usize) -> Arg {
    (name, Weight(op, 0))
}
const fn y(name: &'static str, op: usize) -> Arg {
    (name, Out(op, 0))
}
const fn m(name: &'static str, op: usize) -> Arg {
    (name, Rows(op, 0))
}
const TWO: On = Weights(&[(0, 0), (1, 0)]);
const THREE: On = Weights(&[(0, 0), (1, 0), (2, 0)]);
const FOUR: On = Weights(&[(0, 0), (1, 0), (2, 0), (3, 0)]);
/// Parts of an attention over a split context: sums, and maximum and divisor of each.
const PARTS: (&str, u32, Dim) = ("attn_part", 1, Dim::Query);
const STATS: (&str, u32, Dim) = ("attn_stats", 2, Dim::Heads);
const SPLITS: Arg = ("splits", Splits);
const PART: Arg = ("part", Temp(0));
const STAT: Arg = ("stats", Temp(1));

/// Several operations in one go, tried in this order.
#[rustfmt::skip]
pub static FUSED: &[Row] = &[
    // Heads with their gates beside them are taken apart by nobody: the kernels read every other one.
    fused!("gated_attention", [SplitGate, QkNorm, Rope, KvWrite, Attention, GateMul], when Always,
        same [
            (Out(0, 0), In(1, 0)), (In(1, 0), In(2, 0)), (In(1, 1), In(2, 1)),
            (In(2, 1), In(3, 0)), (In(1, 0), In(4, 0)), (Out(4, 0), In(5, 0)),
            (Out(0, 1), In(5, 1)),
        ],
        dead [In(1, 1)], temps [PARTS, STATS],
        parts [
            ("prepare", QkNormRopeKv, Cache, None, [
                ("q", In(0, 0)), ("k", In(1, 1)), ("v", In(3, 1)), ("qw", Weight(1, 0)),
                ("kw", Weight(1, 1)), TABLE, CONTROL, ("q_out", Out(0, 0)), KCACHE, VCACHE,
                HEADS, KV_HEADS, HEAD_DIM, ("q_stride", Size(Dim::GatedHead)), ROT_DIM,
                INTERLEAVED, EPS,
            ]),
            ("split", AttnSplit, CacheAndHead, None, [
                ("q", Out(0, 0)), KCACHE, VCACHE, CONTROL, PART, STAT, HEADS, KV_HEADS, SPLITS,
                CTX, KV_DIM, ("scale", Scale),
            ]),
            ("merge", AttnMergeGated, Nothing, None, [
                PART, STAT, ("qg", In(0, 0)), CONTROL, ("out", Out(5, 0)), HEADS, HEAD_DIM,
                SPLITS,
            ]),
        ]),
    fused!("delta_net", [ConvSilu, DeltaGates, L2Norm, DeltaStep, GatedNorm], when Always,
        same [
            (Out(0, 0), In(2, 0)), (Out(0, 0), In(3, 0)), (Out(1, 0), In(3, 1)),
            (Out(1, 1), In(3, 2)), (Out(3, 0), In(4, 0)),
        ],
        dead [], temps [],
        parts [("", DeltaNet, StateHead, FOUR_TAPS, [
            ("m", In(0, 0)), ("z", In(4, 1)), ("a", In(1, 0)), ("b", In(1, 1)),
            ("conv_w", Weight(0, 0)), ("a_log", Weight(1, 0)), ("dt_bias", Weight(1, 1)),
            ("norm_w", Weight(4, 0)), CONV_STATE, STATE, CONTROL, ("y", Out(4, 0)), NK, NV,
            TILED, L2_EPS, L2_SCALE, ("norm_eps", Eps),
        ])]),
    fused!("gemv4", [Gemv, Gemv, Gemv, Gemv], when Always,
        same [SAME_X[0], SAME_X[1], SAME_X[2]], dead [], temps [],
        parts [("", Gemv4, FOUR, None, [
            w("w0", 0), w("w1", 1), w("w2", 2), w("w3", 3), X, y("y0", 0), y("y1", 1),
            y("y2", 2), y("y3", 3), m("m0", 0), m("m1", 1), m("m2", 2), m("m3", 3), K,
        ])]),
    fused!("gate_up", [Gemv, Gemv, SiluMul], when Always,
        same [SAME_X[0], (Out(0, 0), In(2, 0)), (Out(1, 0), In(2, 1))], dead [], temps [],
        parts [("", GemvSilu, TWO, None, [
            w("wg", 0), w("wu", 1), X, y("y", 2), R0, R1, K, ROWS,
        ])]),
    fused!("expert_gate_up", [ExpertGemv, ExpertGemv, SiluMul], when Always,
        same [
            SAME_X[0], (In(0, 1), In(1, 1)), (Out(0, 0), In(2, 0)), (Out(1, 0), In(2, 1)),
        ],
        dead [], temps [],
        parts [("", MoeGateUp, TWO, None, [
            w("wg", 0), w("wu", 1), ("x", In(0, 1)), ("ids", In(0, 0)), y("y", 2),
            ("experts", Size(Dim::Experts)), ("top_k", Size(Dim::ExpertsUsed)),
            ("m", Size(Dim::ExpertFfn)), K,
        ])]),
    fused!("qk_norm_rope_kv", [QkNorm, Rope, KvWrite], when Always,
        same [(In(0, 0), In(1, 0)), (In(0, 1), In(1, 1)), (In(1, 1), In(2, 0))],
        dead [In(0, 1)], temps [],
        parts [("", QkNormRopeKv, Cache, None, [
            ("q", In(0, 0)), ("k", In(0, 1)), ("v", In(2, 1)), ("qw", Weight(0, 0)),
            ("kw", Weight(0, 1)), TABLE, CONTROL, ("q_out", Fresh(0, 0)), KCACHE, VCACHE,
            HEADS, KV_HEADS, HEAD_DIM, ("q_stride", Size(Dim::Head)), ROT_DIM, INTERLEAVED, EPS,
        ])]),
    fused!("gemv3", [Gemv, Gemv, Gemv], when Always,
        same [SAME_X[0], SAME_X[1]], dead [], temps [],
        parts [("", Gemv3, THREE, None, [
            w("w0", 0), w("w1", 1), w("w2", 2), X, y("y0", 0), y("y1", 1), y("y2", 2),
            m("m0", 0), m("m1", 1), m("m2", 2), K,
        ])]),
    fused!("gemv3_bias", [GemvBias, GemvBias, GemvBias], when Always,
        same [SAME_X[0], SAME_X[1]], dead [], temps [],
        parts [("", Gemv3Bias, THREE, None, [
            w("w0", 0), w("w1", 1), w("w2", 2), X, ("b0", Weight(0, 1)), ("b1", Weight(1, 1)),
            ("b2", Weight(2, 1)), y("y0", 0), y("y1", 1), y("y2", 2), m("m0", 0), m("m1", 1),
            m("m2", 2), K,
        ])]),
    fused!("rope_kv", [Rope, KvWrite], when Always,
        same [(In(0, 1), In(1, 0))], dead [In(0, 1)], temps [],
        parts [("", RopeKv, Cache, None, [
            ("q", In(0, 0)), ("k", In(0, 1)), ("v", In(1, 1)), TABLE, CONTROL,
            ("q_out", Fresh(0, 0)), KCACHE, VCACHE, HEADS, KV_HEADS, HEAD_DIM,
            ("q_stride", Size(Dim::Head)), ROT_DIM, INTERLEAVED,
        ])]),
    fused!("gemv_gated_add", [Gemv, GatedAdd], when Always,
        same [(Out(0, 0), In(1, 1))], dead [], temps [],
        parts [("", GemvGatedAdd, FIRST, None, [
            w("w", 0), X, ("gate", In(1, 0)), ("residual", In(1, 2)), y("y", 1), R0, R1, K, ROWS,
        ])]),
    fused!("gemv2", [Gemv, Gemv], when Always,
        same [SAME_X[0]], dead [], temps [],
        parts [("", Gemv2, TWO, None, [
            w("w0", 0), w("w1", 1), X, y("y0", 0), y("y1", 1), m("m0", 0), m("m1", 1), K,
        ])]),
    fused!("norm_quantise", [RmsNorm], when Int8, same [], dead [], temps [],
        parts [("", RmsNormQuantise, Wanted, None, [
            ("x", In(0, 0)), ("w", Weight(0, 0)), ("y", Out(0, 0)), ("q", Source::Int8(0, 0)),
            ("n", Cols(0, 0)), EPS,
        ])]),
    fused!("attn_split", [Attention], when Split, same [], dead [], temps [PARTS, STATS],
        parts [
            ("split", AttnSplit, CacheAndHead, None, [
                ("q", In(0, 0)), KCACHE, VCACHE, CONTROL, PART, STAT, HEADS, KV_HEADS, SPLITS,
                CTX, KV_DIM, ("scale", Scale),
            ]),
            ("merge", AttnMerge, Nothing, None, [
                PART, STAT, CONTROL, ("out", Out(0, 0)), HEADS, HEAD_DIM, SPLITS,
            ]),
        ]),
];
