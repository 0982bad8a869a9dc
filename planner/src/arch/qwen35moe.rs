//! `qwen35moe`: Qwen3.5 and 3.6 with a mixture of experts in every layer: softmax over all experts, the
//! best few with weights divided by their sum, and one expert that every token uses behind a
//! sigmoid gate (models.md 2.3). The mixers are those of `qwen35`.

use super::qwen35::{DELTA_NET, GATED_QKV, HEAD_GATES, POST_NORMED, SSM, STATE};
use super::rows::{
    ATTEND, ATTN_OUT, EPILOGUE, MIXER_NORM, NORMED, PROLOGUE, QK_NORM, REFUSED, REFUSED_EXPERTS,
    STREAM,
};
use super::{
    Arch, CountKey, Dim, KeyRule, LayerKind, LayerRule, OpDecl, RopeStyle, ValueDecl, WeightDecl,
};

const fn matrix(name: &'static str, rows: Dim, cols: Dim) -> WeightDecl {
    WeightDecl::matrix(name, rows, cols)
}
const fn experts(name: &'static str, rows: Dim, cols: Dim) -> WeightDecl {
    WeightDecl::stack(name, Dim::Experts, rows, cols)
}
const fn value(name: &'static str, len: Dim) -> ValueDecl {
    ValueDecl { name, len }
}

static ROUTER: WeightDecl = matrix("blk.{}.ffn_gate_inp.weight", Dim::Experts, Dim::Hidden);
static EXPERT_GATE: WeightDecl =
    experts("blk.{}.ffn_gate_exps.weight", Dim::ExpertFfn, Dim::Hidden);
static EXPERT_UP: WeightDecl = experts("blk.{}.ffn_up_exps.weight", Dim::ExpertFfn, Dim::Hidden);
static EXPERT_DOWN: WeightDecl =
    experts("blk.{}.ffn_down_exps.weight", Dim::Hidden, Dim::ExpertFfn);
static SHARED_GATE: WeightDecl = matrix("blk.{}.ffn_gate_inp_shexp.weight", Dim::One, Dim::Hidden);
static GATE_SHEXP: WeightDecl = matrix("blk.{}.ffn_gate_shexp.weight", Dim::SharedFfn, Dim::Hidden);
static UP_SHEXP: WeightDecl = matrix("blk.{}.ffn_up_shexp.weight", Dim::SharedFfn, Dim::Hidden);
static DOWN_SHEXP: WeightDecl = matrix("blk.{}.ffn_down_shexp.weight", Dim::Hidden, Dim::SharedFfn);

static ROUTES: ValueDecl = value("routes", Dim::Experts);
static CHOSEN: ValueDecl = value("chosen", Dim::ExpertsUsed);
static SHARES: ValueDecl = value("shares", Dim::ExpertsUsed);
static EXPERT_GATED: ValueDecl = value("expert_gate", Dim::ExpertsUsedFfn);
static EXPERT_RAISED: ValueDecl = value("expert_up", Dim::ExpertsUsedFfn);
static EXPERT_ACT: ValueDecl = value("expert_act", Dim::ExpertsUsedFfn);
static SHARED_GATED: ValueDecl = value("shared_gate", Dim::SharedFfn);
static SHARED_UP: ValueDecl = value("shared_up", Dim::SharedFfn);
static SHARED_ACT: ValueDecl = value("shared_act", Dim::SharedFfn);
static SHARED_OUT: ValueDecl = value("shared_out", Dim::Hidden);
static SHARED_SHARE: ValueDecl = value("shared_share", Dim::One);

const MIXTURE: &[OpDecl] = &[
    OpDecl::gemv(&ROUTER, &NORMED, &ROUTES),
    OpDecl::gemv(&SHARED_GATE, &NORMED, &SHARED_SHARE),
    OpDecl::TopK {
        logits: &ROUTES,
        ids: &CHOSEN,
        weights: &SHARES,
    },
    OpDecl::gemv(&GATE_SHEXP, &NORMED, &SHARED_GATED),
    OpDecl::gemv(&UP_SHEXP, &NORMED, &SHARED_UP),
    OpDecl::SiluMul {
        gate: &SHARED_GATED,
        up: &SHARED_UP,
        out: &SHARED_ACT,
    },
    OpDecl::gemv(&DOWN_SHEXP, &SHARED_ACT, &SHARED_OUT),
    OpDecl::GatedAdd {
        gate: &SHARED_SHARE,
        x: &SHARED_OUT,
        residual: &STREAM,
        out: &STREAM,
    },
    OpDecl::ExpertGemv {
        weight: &EXPERT_GATE,
        ids: &CHOSEN,
        x: &NORMED,
        out: &EXPERT_GATED,
    },
    OpDecl::ExpertGemv {
        weight: &EXPERT_UP,
        ids: &CHOSEN,
        x: &NORMED,
        out: &EXPERT_RAISED,
    },
    OpDecl::SiluMul {
        gate: &EXPERT_GATED,
        up: &EXPERT_RAISED,
        out: &EXPERT_ACT,
    },
    OpDecl::ExpertsDown {
        down: &EXPERT_DOWN,
        ids: &CHOSEN,
        weights: &SHARES,
        x: &EXPERT_ACT,
        residual: &STREAM,
        out: &STREAM,
    },
];

/// The declaration.
pub static QWEN35MOE: Arch = Arch {
    name: "qwen35moe",
    rope: RopeStyle::Halves,
    refused: &[REFUSED, REFUSED_EXPERTS],
    counts: &[
        SSM,
        &[
            CountKey {
                key: "expert_count",
                most: 1 << 12,
                rule: KeyRule::Set(|g, value| g.experts = value),
            },
            CountKey {
                key: "expert_used_count",
                most: 1 << 8,
                rule: KeyRule::Set(|g, value| g.experts_used = value),
            },
            CountKey {
                key: "expert_feed_forward_length",
                most: 1 << 20,
                rule: KeyRule::Set(|g, value| g.expert_ffn = value),
            },
            CountKey {
                key: "expert_shared_feed_forward_length",
                most: 1 << 20,
                rule: KeyRule::Set(|g, value| g.shared_ffn = value),
            },
        ],
    ],
    prologue: PROLOGUE,
    layers: LayerRule::Recurrent { interval: 4 },
    kinds: &[
        LayerKind::attention(&[
            MIXER_NORM,
            GATED_QKV,
            QK_NORM,
            ATTEND,
            HEAD_GATES,
            ATTN_OUT,
            POST_NORMED,
            MIXTURE,
        ]),
        LayerKind {
            name: "gated DeltaNet",
            state: STATE,
            ops: &[MIXER_NORM, DELTA_NET, POST_NORMED, MIXTURE],
        },
    ],
    epilogue: EPILOGUE,
    rope_factors: None,
};
