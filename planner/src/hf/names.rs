//! Tensor names of Hugging Face models and the GGUF names that they become, as rows.
//!
//! A row also says what is done to the tensor (models.md 2.4): GGUF keeps vectors, convolutions and
//! routers in f32, adds 1 to zero-centred norms, pairs the rotated rows of `llama`, and tiles the
//! value heads of gated DeltaNet.

use super::config::Config;
use super::keys::Linear;
use super::{ConfigError, Stored};
use crate::source::{LoadOp, TensorEntry, TensorType};
use std::collections::HashMap;

/// f32 as GGUF names it.
const F32: TensorType = TensorType::new("F32", 1, 4);
/// What a name may start with before the part that the rows hold.
const PREFIXES: &[&str] = &["model.language_model.", "language_model.model.", "model."];
/// Tensors of other towers and heads, which a text decode step never reads (models.md 2.1), and
/// buffers that are computed from the configuration.
const IGNORED_PREFIXES: &[&str] = &[
    "model.visual.",
    "visual.",
    "vision_tower.",
    "mtp.",
    "model.mtp.",
];
const IGNORED_SUFFIXES: &[&str] = &["rotary_emb.inv_freq"];

/// What a row does to its tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Nothing.
    None,
    /// Becomes f32 (vectors do anyway).
    Wide,
    /// A norm weight, which may be zero-centred.
    Norm,
    /// Rows of queries or keys, which may be paired.
    Rotated,
    /// Rows of q, k and v: value heads tiled.
    QkvRows,
    /// Channels of the convolution: as q, k and v, in f32.
    QkvChannels,
    /// One row per element of a value head.
    ValueRows,
    /// One row per value head.
    ValueHeadRows,
    /// One element per value head.
    ValueHeads,
    /// Logarithm of the decay of each value head.
    Decay,
    /// One column per element of a value head.
    ValueColumns,
}

/// Name in GGUF and in Hugging Face files; `{}` stands for the layer.
struct Row(&'static str, &'static str, Change);

const ROWS: &[Row] = &[
    Row("token_embd.weight", "embed_tokens.weight", Change::None),
    Row("output_norm.weight", "norm.weight", Change::Norm),
    Row("output.weight", "lm_head.weight", Change::None),
    Row(
        "blk.{}.attn_norm.weight",
        "layers.{}.input_layernorm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.attn_q.weight",
        "layers.{}.self_attn.q_proj.weight",
        Change::Rotated,
    ),
    Row(
        "blk.{}.attn_q.bias",
        "layers.{}.self_attn.q_proj.bias",
        Change::Wide,
    ),
    Row(
        "blk.{}.attn_k.weight",
        "layers.{}.self_attn.k_proj.weight",
        Change::Rotated,
    ),
    Row(
        "blk.{}.attn_k.bias",
        "layers.{}.self_attn.k_proj.bias",
        Change::Wide,
    ),
    Row(
        "blk.{}.attn_v.weight",
        "layers.{}.self_attn.v_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.attn_v.bias",
        "layers.{}.self_attn.v_proj.bias",
        Change::Wide,
    ),
    Row(
        "blk.{}.attn_output.weight",
        "layers.{}.self_attn.o_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.attn_output.weight",
        "layers.{}.self_attn.out_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.attn_q_norm.weight",
        "layers.{}.self_attn.q_norm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.attn_k_norm.weight",
        "layers.{}.self_attn.k_norm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.ffn_gate.weight",
        "layers.{}.mlp.gate_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_up.weight",
        "layers.{}.mlp.up_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_down.weight",
        "layers.{}.mlp.down_proj.weight",
        Change::None,
    ),
    // Mixture of experts.
    Row(
        "blk.{}.ffn_gate_inp.weight",
        "layers.{}.mlp.gate.weight",
        Change::Wide,
    ),
    Row(
        "blk.{}.ffn_gate_inp_shexp.weight",
        "layers.{}.mlp.shared_expert_gate.weight",
        Change::Wide,
    ),
    Row(
        "blk.{}.ffn_gate_shexp.weight",
        "layers.{}.mlp.shared_expert.gate_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_up_shexp.weight",
        "layers.{}.mlp.shared_expert.up_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_down_shexp.weight",
        "layers.{}.mlp.shared_expert.down_proj.weight",
        Change::None,
    ),
    // Gated DeltaNet.
    Row(
        "blk.{}.attn_qkv.weight",
        "layers.{}.linear_attn.in_proj_qkv.weight",
        Change::QkvRows,
    ),
    Row(
        "blk.{}.attn_gate.weight",
        "layers.{}.linear_attn.in_proj_z.weight",
        Change::ValueRows,
    ),
    Row(
        "blk.{}.ssm_beta.weight",
        "layers.{}.linear_attn.in_proj_b.weight",
        Change::ValueHeadRows,
    ),
    Row(
        "blk.{}.ssm_alpha.weight",
        "layers.{}.linear_attn.in_proj_a.weight",
        Change::ValueHeadRows,
    ),
    Row(
        "blk.{}.ssm_conv1d.weight",
        "layers.{}.linear_attn.conv1d.weight",
        Change::QkvChannels,
    ),
    Row(
        "blk.{}.ssm_dt.bias",
        "layers.{}.linear_attn.dt_bias",
        Change::ValueHeads,
    ),
    Row("blk.{}.ssm_a", "layers.{}.linear_attn.A_log", Change::Decay),
    // Its norm is never zero-centred.
    Row(
        "blk.{}.ssm_norm.weight",
        "layers.{}.linear_attn.norm.weight",
        Change::Wide,
    ),
    Row(
        "blk.{}.ssm_out.weight",
        "layers.{}.linear_attn.out_proj.weight",
        Change::ValueColumns,
    ),
    // Short convolution (lfm2).
    Row(
        "token_embd_norm.weight",
        "embedding_norm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.attn_norm.weight",
        "layers.{}.operator_norm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.ffn_norm.weight",
        "layers.{}.ffn_norm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.attn_q_norm.weight",
        "layers.{}.self_attn.q_layernorm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.attn_k_norm.weight",
        "layers.{}.self_attn.k_layernorm.weight",
        Change::Norm,
    ),
    Row(
        "blk.{}.ffn_gate.weight",
        "layers.{}.feed_forward.w1.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_up.weight",
        "layers.{}.feed_forward.w3.weight",
        Change::None,
    ),
    Row(
        "blk.{}.ffn_down.weight",
        "layers.{}.feed_forward.w2.weight",
        Change::None,
    ),
    Row(
        "blk.{}.shortconv.conv.weight",
        "layers.{}.conv.conv.weight",
        Change::Wide,
    ),
    Row(
        "blk.{}.shortconv.in_proj.weight",
        "layers.{}.conv.in_proj.weight",
        Change::None,
    ),
    Row(
        "blk.{}.shortconv.out_proj.weight",
        "layers.{}.conv.out_proj.weight",
        Change::None,
    ),
];

/// The norm before the feed-forward network, which GGUF calls differently by architecture.
const SECOND_NORM: &str = "layers.{}.post_attention_layernorm.weight";
const SECOND_NORM_CENTRED: Row = Row(
    "blk.{}.post_attention_norm.weight",
    SECOND_NORM,
    Change::Norm,
);
const SECOND_NORM_PLAIN: Row = Row("blk.{}.ffn_norm.weight", SECOND_NORM, Change::Norm);

/// Whether GGUF keeps a tensor of this name in f32 although it is a matrix.
pub(crate) fn always_wide(gguf: &str) -> bool {
    let template = template(gguf, "blk.");
    let mut rows = ROWS.iter().filter(|row| row.0 == template.0);
    rows.any(|row| matches!(row.2, Change::Wide | Change::QkvChannels))
}

/// Whether a text decode step never reads the tensor.
pub(super) fn ignored(name: &str) -> bool {
    IGNORED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || IGNORED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// A name without the prefix of the text model.
pub(super) fn stripped(name: &str) -> &str {
    let mut prefixes = PREFIXES.iter();
    let found = prefixes.find_map(|prefix| name.strip_prefix(prefix));
    found.unwrap_or_else(|| name.strip_prefix("language_model.").unwrap_or(name))
}

/// A name with its layer taken out: `layers.3.x` is (`layers.{}.x`, 3).
pub(super) fn template(name: &str, stem: &str) -> (String, Option<u32>) {
    let numbered = || {
        let rest = name.strip_prefix(stem)?;
        let (number, rest) = rest.split_once('.')?;
        let layer: u32 = number.parse().ok()?;
        // One spelling per layer, so that no two names mean the same tensor.
        (layer.to_string() == number).then(|| (format!("{stem}{{}}.{rest}"), Some(layer)))
    };
    numbered().unwrap_or_else(|| (name.to_owned(), None))
}

/// The rows of one model.
pub(super) struct Names {
    rows: HashMap<&'static str, &'static Row>,
    head_dim: u32,
    paired: bool,
    centred: bool,
    linear: Option<Linear>,
}

impl Names {
    pub(super) fn of(config: &Config<'_>) -> Result<Self, ConfigError> {
        let centred = config.kind.centred_norms;
        let second = match centred {
            true => &SECOND_NORM_CENTRED,
            false => &SECOND_NORM_PLAIN,
        };
        let rows = ROWS
            .iter()
            .chain([second])
            .map(|row| (row.1, row))
            .collect();
        Ok(Self {
            rows,
            head_dim: config.head_dim()?,
            paired: config.kind.paired_heads,
            centred,
            linear: centred.then(|| Linear::of(config)).transpose()?,
        })
    }

    /// The tensor under its GGUF name. One without a row keeps its name and is refused when the
    /// model is bound, which knows what is declared.
    pub(super) fn bind(&self, stored: Stored) -> Result<TensorEntry, ConfigError> {
        let (template, layer) = template(stripped(&stored.name), "layers.");
        let row = self.rows.get(template.as_str());
        let mut dims: Vec<u64> = stored.shape.iter().rev().copied().collect();
        // The channel dimension of a depthwise convolution.
        if let [taps, 1, channels] = dims[..] {
            dims = vec![taps, channels];
        }
        let (name, change) = match (row, layer) {
            (Some(row), Some(layer)) => (row.0.replace("{}", &layer.to_string()), row.2),
            (Some(row), None) => (row.0.to_owned(), row.2),
            (None, _) => (stored.name.clone(), Change::None),
        };
        let wide = matches!(change, Change::Wide | Change::QkvChannels) || dims.len() <= 1;
        if row.is_some() && wide && !matches!(stored.ty.name(), "F32" | "F16" | "BF16") {
            return Err(ConfigError::Dtype {
                tensor: stored.name,
                found: stored.ty.name(),
                needed: "F32, F16 or BF16",
            });
        }
        Ok(TensorEntry {
            ops: self.ops(change),
            ty: if row.is_some() && wide {
                F32
            } else {
                stored.ty
            },
            stored: stored.ty,
            offset: stored.offset,
            bytes: stored.bytes,
            more: Vec::new(),
            name,
            dims,
        })
    }

    fn ops(&self, change: Change) -> Vec<LoadOp> {
        let paired = LoadOp::PairRows {
            head_rows: self.head_dim,
        };
        let tiled = self.linear.filter(|linear| linear.per_key() > 1);
        let rows = |linear: Linear, from, size| LoadOp::TileRows {
            from,
            keys: linear.key_heads,
            per_key: linear.per_key(),
            size,
        };
        let columns = |linear: Linear, size| LoadOp::TileColumns {
            keys: linear.key_heads,
            per_key: linear.per_key(),
            size,
        };
        let moved = tiled.and_then(|linear| {
            let keys = linear.key_heads.saturating_mul(linear.key_dim);
            match change {
                Change::QkvRows | Change::QkvChannels => {
                    Some(rows(linear, keys.saturating_mul(2), linear.value_dim))
                }
                Change::ValueRows => Some(rows(linear, 0, linear.value_dim)),
                Change::ValueHeadRows => Some(rows(linear, 0, 1)),
                Change::ValueHeads | Change::Decay => Some(columns(linear, 1)),
                Change::ValueColumns => Some(columns(linear, linear.value_dim)),
                _ => None,
            }
        });
        let computed = match change {
            Change::Norm if self.centred => Some(LoadOp::AddOne),
            Change::Rotated if self.paired => Some(paired),
            Change::Decay => Some(LoadOp::NegExp),
            _ => None,
        };
        computed.into_iter().chain(moved).collect()
    }
}
