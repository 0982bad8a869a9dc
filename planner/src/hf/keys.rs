//! Fields of `config.json` by architecture, and the GGUF keys that they become.
//!
//! One [`Kind`] per architecture: the rows of plain fields, the fields that ask for other mathematics,
//! and which groups of derived keys it has. Derived keys are computed as llama.cpp's converter does
//! (`convert_hf_to_gguf.py`; models.md 2.2 and 2.4).

use super::config::{Config, form, insert, missing};
use super::{ConfigError, Json, rope};
use crate::gguf::{Array, Metadata, Value};

/// Kind of a layer in `layer_types`.
const FULL: &str = "full_attention";

/// One architecture as Hugging Face configures it.
#[derive(Debug)]
pub(super) struct Kind {
    /// Values of `model_type`.
    pub(super) model_types: &'static [&'static str],
    /// `general.architecture` of the same model as GGUF.
    pub(super) arch: &'static str,
    /// Plain fields.
    keys: &'static [&'static [KeyRow]],
    /// Groups of derived keys.
    derived: &'static [Derived],
    /// Names that `layer_types` may hold.
    layer_types: &'static [&'static str],
    /// Whether the class has a default head size of its own, so that the field must be given.
    pub(super) needs_head_dim: bool,
    /// Whether the head is the embedding where the configuration does not say.
    pub(super) tied_by_default: bool,
    /// Whether rows of queries and keys are stored in pairs in GGUF (models.md 2.4).
    pub(super) paired_heads: bool,
    /// Whether norm weights are stored as the difference to 1.
    pub(super) centred_norms: bool,
}

/// A field that is copied.
#[derive(Debug)]
struct KeyRow {
    field: &'static str,
    /// Key without the architecture.
    key: &'static str,
    form: Form,
    required: bool,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Count,
    Float,
}

/// Keys that are computed from several fields.
#[derive(Debug, Clone, Copy)]
enum Derived {
    /// `attention.key_length`, `attention.value_length`.
    HeadLength,
    /// `ssm.*`, `attention.recurrent_layers`, `full_attention_interval`.
    DeltaNet,
    /// `attention.head_count_kv` per layer, `feed_forward_length`.
    ShortConv,
}

const fn row(field: &'static str, key: &'static str, form: Form, required: bool) -> KeyRow {
    KeyRow {
        field,
        key,
        form,
        required,
    }
}

const DECODER: &[KeyRow] = &[
    row("num_hidden_layers", "block_count", Form::Count, true),
    row(
        "max_position_embeddings",
        "context_length",
        Form::Count,
        true,
    ),
    row("hidden_size", "embedding_length", Form::Count, true),
    row(
        "num_attention_heads",
        "attention.head_count",
        Form::Count,
        true,
    ),
    row("vocab_size", "vocab_size", Form::Count, true),
];
const KEY_VALUE_HEADS: &[KeyRow] = &[row(
    "num_key_value_heads",
    "attention.head_count_kv",
    Form::Count,
    true,
)];
/// As many as query heads where the configuration does not say (`LlamaConfig`).
const OPTIONAL_KEY_VALUE_HEADS: &[KeyRow] = &[row(
    "num_key_value_heads",
    "attention.head_count_kv",
    Form::Count,
    false,
)];
const DENSE: &[KeyRow] = &[row(
    "intermediate_size",
    "feed_forward_length",
    Form::Count,
    true,
)];
const RMS: &[KeyRow] = &[row(
    "rms_norm_eps",
    "attention.layer_norm_rms_epsilon",
    Form::Float,
    true,
)];
const NORM_EPS: &[KeyRow] = &[row(
    "norm_eps",
    "attention.layer_norm_rms_epsilon",
    Form::Float,
    true,
)];
const EXPERTS: &[KeyRow] = &[
    row("num_experts", "expert_count", Form::Count, true),
    row(
        "num_experts_per_tok",
        "expert_used_count",
        Form::Count,
        true,
    ),
    row(
        "moe_intermediate_size",
        "expert_feed_forward_length",
        Form::Count,
        true,
    ),
    row(
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
        Form::Count,
        true,
    ),
];
const CONV_CACHE: &[KeyRow] = &[row("conv_L_cache", "shortconv.l_cache", Form::Count, true)];

/// Every architecture that a configuration can name.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        model_types: &["llama", "mistral"],
        arch: "llama",
        keys: &[DECODER, OPTIONAL_KEY_VALUE_HEADS, DENSE, RMS],
        derived: &[Derived::HeadLength],
        layer_types: &[FULL],
        needs_head_dim: false,
        tied_by_default: false,
        paired_heads: true,
        centred_norms: false,
    },
    Kind {
        model_types: &["qwen2"],
        arch: "qwen2",
        keys: &[DECODER, KEY_VALUE_HEADS, DENSE, RMS],
        derived: &[],
        layer_types: &[FULL],
        needs_head_dim: false,
        tied_by_default: false,
        paired_heads: false,
        centred_norms: false,
    },
    Kind {
        model_types: &["qwen3"],
        arch: "qwen3",
        keys: &[DECODER, KEY_VALUE_HEADS, DENSE, RMS],
        derived: &[Derived::HeadLength],
        layer_types: &[FULL],
        needs_head_dim: true,
        tied_by_default: false,
        paired_heads: false,
        centred_norms: false,
    },
    Kind {
        model_types: &["qwen3_5_text", "qwen3_5"],
        arch: "qwen35",
        keys: &[DECODER, KEY_VALUE_HEADS, DENSE, RMS],
        derived: &[Derived::HeadLength, Derived::DeltaNet],
        layer_types: &[FULL, "linear_attention"],
        needs_head_dim: true,
        tied_by_default: false,
        paired_heads: false,
        centred_norms: true,
    },
    Kind {
        model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
        arch: "qwen35moe",
        keys: &[DECODER, KEY_VALUE_HEADS, EXPERTS, RMS],
        derived: &[Derived::HeadLength, Derived::DeltaNet],
        layer_types: &[FULL, "linear_attention"],
        needs_head_dim: true,
        tied_by_default: false,
        paired_heads: false,
        centred_norms: true,
    },
    Kind {
        model_types: &["lfm2"],
        arch: "lfm2",
        keys: &[DECODER, NORM_EPS, CONV_CACHE],
        derived: &[Derived::ShortConv],
        layer_types: &[FULL, "conv"],
        needs_head_dim: false,
        tied_by_default: true,
        paired_heads: false,
        centred_norms: false,
    },
];

/// Fields that must be absent or hold a value that changes nothing: field, value, meaning of others.
const REFUSED: &[(&str, &str, &str)] = &[
    ("hidden_act", "\"silu\"", "another activation"),
    (
        "attention_bias",
        "false",
        "biases on the attention projections",
    ),
    ("mlp_bias", "false", "biases in the feed-forward network"),
    ("conv_bias", "false", "a bias on the convolution"),
    ("attn_output_gate", "true", "attention without its gate"),
    ("final_logit_softcapping", "null", "capped logits"),
    ("attn_logit_softcapping", "null", "capped attention scores"),
    (
        "quantization_config",
        "null",
        "weights in a quantisation of their own",
    ),
];

/// The metadata of a configuration.
pub(super) fn metadata(config: &Config<'_>) -> Result<Metadata, ConfigError> {
    for (field, neutral, meaning) in REFUSED {
        refuse(config, field, neutral, meaning)?;
    }
    if config.flag("use_sliding_window", true)? {
        refuse(config, "sliding_window", "null", "attention over a window")?;
    }
    let mut metadata = Metadata::default();
    let arch = config.kind.arch;
    insert(
        &mut metadata,
        "general.architecture",
        Value::String(arch.to_owned()),
    );
    let mut set = Keys {
        arch,
        metadata: &mut metadata,
    };
    for row in config.kind.keys.iter().copied().flatten() {
        let value = match row.form {
            _ if !row.required && config.some(row.field).is_none() => continue,
            Form::Count => Value::U32(config.count(row.field)?),
            Form::Float => Value::F32(config.float(row.field)?),
        };
        set.put(row.key, value);
    }
    heads(config)?;
    let layers = config.positive("num_hidden_layers")?;
    let kinds = layer_kinds(config, layers)?;
    rope::keys(config, &mut set)?;
    for derived in config.kind.derived {
        match derived {
            Derived::HeadLength => {
                let length = Value::U32(config.head_dim()?);
                set.put("attention.key_length", length.clone());
                set.put("attention.value_length", length);
            }
            Derived::DeltaNet => delta_net(config, layers, kinds.as_deref(), &mut set)?,
            Derived::ShortConv => short_conv(config, layers, kinds.as_deref(), &mut set)?,
        }
    }
    tokens(config, &mut metadata)?;
    Ok(metadata)
}

/// Metadata under the keys of one architecture.
pub(super) struct Keys<'a> {
    arch: &'static str,
    metadata: &'a mut Metadata,
}

impl Keys<'_> {
    pub(super) fn put(&mut self, key: &str, value: Value) {
        insert(self.metadata, &format!("{}.{key}", self.arch), value);
    }
}

fn refuse(
    config: &Config<'_>,
    field: &'static str,
    neutral: &'static str,
    meaning: &'static str,
) -> Result<(), ConfigError> {
    match config.some(field) {
        Some(value) if value.shown() != neutral => Err(ConfigError::Refused {
            key: field,
            found: value.shown(),
            meaning,
            model_type: config.model_type.to_owned(),
            neutral,
        }),
        _ => Ok(()),
    }
}

fn heads(config: &Config<'_>) -> Result<(), ConfigError> {
    let heads = config.positive("num_attention_heads")?;
    let Some(kv) = config.opt_count("num_key_value_heads")? else {
        return Ok(());
    };
    if kv == 0 || !heads.is_multiple_of(kv) {
        return Err(ConfigError::Contradiction {
            first: "num_attention_heads",
            first_value: heads.to_string(),
            second: "num_key_value_heads",
            second_value: kv.to_string(),
            rule: "the first must be a multiple of the second",
        });
    }
    Ok(())
}

/// The kind of each layer, if it is listed and all are known.
fn layer_kinds<'a>(config: &Config<'a>, layers: u32) -> Result<Option<Vec<&'a str>>, ConfigError> {
    let Some(kinds) = config.layer_types(layers)? else {
        return Ok(None);
    };
    let known = config.kind.layer_types;
    if let Some(other) = kinds.iter().find(|kind| !known.contains(kind)) {
        return Err(ConfigError::Form {
            key: "layer_types".to_owned(),
            found: format!("{other:?} in one layer"),
            rule: format!(
                "one of {} in each layer of {}",
                known.join(", "),
                config.model_type
            ),
        });
    }
    Ok(Some(kinds))
}

/// Head counts and sizes of the linear attention of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Linear {
    pub(super) key_heads: u32,
    pub(super) value_heads: u32,
    pub(super) key_dim: u32,
    pub(super) value_dim: u32,
}

impl Linear {
    pub(super) fn of(config: &Config<'_>) -> Result<Self, ConfigError> {
        let linear = Self {
            key_heads: config.positive("linear_num_key_heads")?,
            value_heads: config.positive("linear_num_value_heads")?,
            key_dim: config.positive("linear_key_head_dim")?,
            value_dim: config.positive("linear_value_head_dim")?,
        };
        if !linear.value_heads.is_multiple_of(linear.key_heads) {
            return Err(ConfigError::Contradiction {
                first: "linear_num_value_heads",
                first_value: linear.value_heads.to_string(),
                second: "linear_num_key_heads",
                second_value: linear.key_heads.to_string(),
                rule: "the first must be a multiple of the second",
            });
        }
        Ok(linear)
    }

    /// Value heads per key head.
    pub(super) const fn per_key(self) -> u32 {
        self.value_heads / self.key_heads
    }
}

fn delta_net(
    config: &Config<'_>,
    layers: u32,
    kinds: Option<&[&str]>,
    set: &mut Keys<'_>,
) -> Result<(), ConfigError> {
    const INTERVAL: u32 = 4;
    let linear = Linear::of(config)?;
    let inner = linear.value_heads.checked_mul(linear.value_dim);
    let inner = inner.ok_or_else(|| {
        form(
            "linear_value_head_dim",
            &Json::Integer(linear.value_dim.into()),
            "smaller",
        )
    })?;
    let conv = config.positive("linear_conv_kernel_dim")?;
    let interval = config.opt_count("full_attention_interval")?;
    let every = interval.unwrap_or(INTERVAL).max(1);
    let recurrent: Vec<bool> = match kinds {
        Some(kinds) => kinds.iter().map(|kind| *kind != FULL).collect(),
        // Layers come from a file: as many as the plan's own bound allows.
        None => (0..layers.min(1 << 16))
            .map(|layer| !(layer + 1).is_multiple_of(every))
            .collect(),
    };
    if let (Some(stated), Some(_)) = (interval, kinds) {
        let by_interval = |layer: usize| !(layer as u32 + 1).is_multiple_of(every);
        if let Some(layer) =
            (0..recurrent.len()).find(|at| recurrent.get(*at) != Some(&by_interval(*at)))
        {
            return Err(ConfigError::Contradiction {
                first: "full_attention_interval",
                first_value: stated.to_string(),
                second: "layer_types",
                second_value: format!("another kind in layer {layer}"),
                rule: "both must place full attention in the same layers",
            });
        }
    }
    for (key, value) in [
        ("ssm.conv_kernel", conv),
        ("ssm.state_size", linear.key_dim),
        ("ssm.group_count", linear.key_heads),
        ("ssm.time_step_rank", linear.value_heads),
        ("ssm.inner_size", inner),
        ("full_attention_interval", every),
    ] {
        set.put(key, Value::U32(value));
    }
    set.put(
        "attention.recurrent_layers",
        Value::Array(Array::Bool(recurrent)),
    );
    Ok(())
}

fn short_conv(
    config: &Config<'_>,
    layers: u32,
    kinds: Option<&[&str]>,
    set: &mut Keys<'_>,
) -> Result<(), ConfigError> {
    let kv = config.positive("num_key_value_heads")?;
    let full: Vec<bool> = match (kinds, config.some("full_attn_idxs")) {
        (Some(kinds), _) => kinds.iter().map(|kind| *kind == FULL).collect(),
        (None, Some(list)) => {
            let ids: Option<Vec<u64>> = list
                .list()
                .and_then(|list| list.iter().map(Json::unsigned).collect());
            let ids = ids.ok_or_else(|| form("full_attn_idxs", list, "a list of layers"))?;
            (0..layers.min(1 << 16))
                .map(|layer| ids.contains(&layer.into()))
                .collect()
        }
        (None, None) => return Err(missing("layer_types")),
    };
    let counts = full.into_iter().map(|full| if full { kv } else { 0 });
    set.put(
        "attention.head_count_kv",
        Value::Array(Array::U32(counts.collect())),
    );
    set.put("feed_forward_length", Value::U32(adjusted_ffn(config)?));
    Ok(())
}

/// Feed-forward width of `Lfm2MLP` (models.md 2.3, lfm2).
fn adjusted_ffn(config: &Config<'_>) -> Result<u32, ConfigError> {
    let field = match config.some("block_ff_dim") {
        Some(_) => "block_ff_dim",
        None => "intermediate_size",
    };
    let width = config.count(field)?;
    if !config.flag("block_auto_adjust_ff_dim", false)? {
        return Ok(width);
    }
    let mut adjusted = u64::from(width) * 2 / 3;
    if config.some("block_ffn_dim_multiplier").is_some() {
        let factor = config.float("block_ffn_dim_multiplier")?;
        adjusted = (f64::from(factor) * adjusted as f64) as u64;
    }
    let multiple = u64::from(config.positive("block_multiple_of")?);
    let adjusted = adjusted.div_ceil(multiple).saturating_mul(multiple);
    let rule = "a width below 2^32 once adjusted";
    u32::try_from(adjusted).map_err(|_| form(field, &Json::Integer(width.into()), rule))
}

fn tokens(config: &Config<'_>, metadata: &mut Metadata) -> Result<(), ConfigError> {
    let vocabulary = config.count("vocab_size")?;
    let ends = ["eos_token_id", "eot_token_id", "eom_token_id"];
    let rows = [
        ("bos_token_id", &["bos_token_id"][..]),
        ("eos_token_id", &ends[..]),
    ];
    for (field, keys) in rows {
        let ids = config.tokens(field)?;
        if let Some(id) = ids.iter().find(|id| **id >= vocabulary) {
            return Err(ConfigError::Contradiction {
                first: field,
                first_value: id.to_string(),
                second: "vocab_size",
                second_value: vocabulary.to_string(),
                rule: "the first must be below the second",
            });
        }
        for (key, id) in keys.iter().zip(ids) {
            insert(metadata, &format!("tokenizer.ggml.{key}"), Value::U32(id));
        }
    }
    Ok(())
}
