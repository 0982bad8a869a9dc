//! Shape facts from the metadata of a model file, by the keys of its declaration.
//!
//! Every count is bounded, so that no product of two leaves u32 and none with the context 2^60.

use super::{Arch, ArchError, CountKey, KeyRule, LayerRule};
use crate::gguf::{FromValue, Metadata, Value};
use crate::plan::Geometry;
use crate::source::ModelTable;
use refrain_kernels::RingEntry;

fn bad(key: impl Into<String>, found: impl ToString, rule: impl Into<String>) -> ArchError {
    ArchError::Geometry {
        key: key.into(),
        found: found.to_string(),
        rule: rule.into(),
    }
}

/// Metadata of one architecture, by key without its prefix.
struct Keys<'a> {
    arch: &'static Arch,
    metadata: &'a Metadata,
}

impl Keys<'_> {
    fn full(&self, key: &str) -> String {
        format!("{}.{key}", self.arch.name)
    }

    fn opt<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>, ArchError> {
        Ok(self.metadata.opt(&self.full(key))?)
    }

    /// A count in `1..=most`.
    fn count(&self, key: &str, default: Option<u32>, most: u32) -> Result<u32, ArchError> {
        let full = self.full(key);
        let value = match (self.metadata.opt(&full)?, default) {
            (Some(value), _) => value,
            (None, Some(value)) => value,
            (None, None) => self.metadata.get(&full)?,
        };
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        Err(bad(full, value, format!("from 1 to {most}")))
    }

    /// A count that may be given per layer but is the same in all of them.
    fn uniform(
        &self,
        key: &str,
        default: Option<u32>,
        layers: u32,
        most: u32,
    ) -> Result<u32, ArchError> {
        let full = self.full(key);
        let values = match (self.metadata.entry(&full), default) {
            (None, Some(value)) => vec![value],
            _ => self.metadata.per_layer(&full, layers as usize)?,
        };
        let first = values.first().copied().unwrap_or_default();
        if let Some(layer) = values.iter().position(|value| *value != first) {
            return Err(self.differ(key, first, values[layer], layer));
        }
        if (1..=most).contains(&first) {
            return Ok(first);
        }
        Err(bad(full, first, format!("from 1 to {most}")))
    }

    /// A finite positive number.
    fn positive(&self, key: &str, default: Option<f32>) -> Result<f32, ArchError> {
        let full = self.full(key);
        let value: f32 = match (self.metadata.opt(&full)?, default) {
            (Some(value), _) => value,
            (None, Some(value)) => value,
            (None, None) => self.metadata.get(&full)?,
        };
        if value.is_finite() && value > 0.0 {
            return Ok(value);
        }
        Err(bad(full, value, "finite and positive"))
    }
}

/// Bounds of the geometry: products of two stay below 2^32, products with the context below 2^60.
const MOST_LAYERS: u32 = 4096;
const MOST_WIDTH: u32 = 1 << 20;
const MOST_HEADS: u32 = 1 << 12;
const MOST_HEAD_DIM: u32 = 1 << 12;
/// Positions are exact in f32 below this, which the rotation relies on (kernels/hip/refrain.hpp).
const MOST_CONTEXT: u32 = 1 << 24;

/// Geometry of a file and the kind of each of its layers, as positions in [`Arch::kinds`].
pub(super) fn read(
    arch: &'static Arch,
    header: &ModelTable,
) -> Result<(Geometry, Vec<u8>), ArchError> {
    let keys = Keys {
        arch,
        metadata: &header.metadata,
    };
    let layers = keys.count("block_count", None, MOST_LAYERS)?;
    let hidden = keys.count("embedding_length", None, MOST_WIDTH)?;
    let heads = keys.uniform("attention.head_count", None, layers, MOST_HEADS)?;
    let kv_heads = keys.kv_heads(layers, heads)?;
    let quotient = hidden.is_multiple_of(heads).then_some(hidden / heads);
    let head_dim = keys.count("attention.key_length", quotient, MOST_HEAD_DIM)?;
    let value_dim = keys.count("attention.value_length", Some(head_dim), MOST_HEAD_DIM)?;
    if value_dim != head_dim {
        let rule = format!("equal to attention.key_length {head_dim}");
        return Err(bad(keys.full("attention.value_length"), value_dim, rule));
    }
    let rope_dims = keys.count("rope.dimension_count", Some(head_dim), head_dim)?;
    if !rope_dims.is_multiple_of(2) {
        return Err(bad(keys.full("rope.dimension_count"), rope_dims, "even"));
    }
    let mut geometry = Geometry {
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        vocab: vocabulary(&keys, header)?,
        rope_dims,
        context_max: keys.count("context_length", None, MOST_CONTEXT)?,
        norm_eps: keys.positive("attention.layer_norm_rms_epsilon", None)?,
        // The base that llama.cpp takes where a file names none.
        rope_theta: keys.positive("rope.freq_base", Some(10_000.0))?,
        ..Geometry::default()
    };
    for count in arch.counts.iter().copied().flatten() {
        keys.apply(count, &mut geometry)?;
    }
    keys.related(&geometry)?;
    Ok((geometry, keys.kinds(layers)?))
}

impl Keys<'_> {
    /// Key/value heads: the same in all layers that have any, and a divisor of the query heads.
    fn kv_heads(&self, layers: u32, heads: u32) -> Result<u32, ArchError> {
        const KEY: &str = "attention.head_count_kv";
        let kv_heads = if self.arch.layers == LayerRule::KeyValueHeads {
            let values = self.metadata.per_layer(&self.full(KEY), layers as usize)?;
            let mut some = values
                .into_iter()
                .enumerate()
                .filter(|(_, count)| *count > 0);
            let Some((_, first)) = some.next() else {
                return Err(bad(self.full(KEY), 0, "above 0 in at least one layer"));
            };
            if let Some((layer, other)) = some.find(|(_, count)| *count != first) {
                return Err(self.differ(KEY, first, other, layer));
            }
            first
        } else {
            self.uniform(KEY, Some(heads), layers, MOST_HEADS)?
        };
        if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
            let rule = format!("a divisor of head_count {heads}");
            return Err(bad(self.full(KEY), kv_heads, rule));
        }
        Ok(kv_heads)
    }

    fn apply(&self, count: &CountKey, geometry: &mut Geometry) -> Result<(), ArchError> {
        let value = self.uniform(count.key, None, geometry.layers, count.most)?;
        match count.rule {
            KeyRule::Set(set) => set(geometry, value),
            KeyRule::Equal(dim) if dim.of(geometry) == value => {}
            KeyRule::Equal(dim) => {
                let rule = format!("{} = {}", dim.text(), dim.of(geometry));
                return Err(bad(self.full(count.key), value, rule));
            }
        }
        Ok(())
    }

    /// Counts that must divide or bound one another.
    fn related(&self, g: &Geometry) -> Result<(), ArchError> {
        if g.state_heads > 0 && !g.state_heads.is_multiple_of(g.state_key_heads) {
            let rule = format!("a multiple of ssm.group_count {}", g.state_key_heads);
            return Err(bad(self.full("ssm.time_step_rank"), g.state_heads, rule));
        }
        if g.experts_used > g.experts {
            let rule = format!("at most expert_count {}", g.experts);
            return Err(bad(self.full("expert_used_count"), g.experts_used, rule));
        }
        Ok(())
    }

    fn kinds(&self, layers: u32) -> Result<Vec<u8>, ArchError> {
        match self.arch.layers {
            LayerRule::Alike => Ok(vec![0; layers as usize]),
            LayerRule::KeyValueHeads => {
                let key = self.full("attention.head_count_kv");
                let heads = self.metadata.per_layer(&key, layers as usize)?;
                Ok(heads.iter().map(|count| u8::from(*count == 0)).collect())
            }
            LayerRule::Recurrent { interval } => {
                const KEY: &str = "attention.recurrent_layers";
                let Some(list) = self.opt::<&[bool]>(KEY)? else {
                    let interval =
                        self.count("full_attention_interval", Some(interval), MOST_LAYERS)?;
                    let kind = |layer: u32| u8::from(!(layer + 1).is_multiple_of(interval));
                    return Ok((0..layers).map(kind).collect());
                };
                if list.len() != layers as usize {
                    let rule = format!("one per layer, {layers}");
                    return Err(bad(self.full(KEY), format!("{} flags", list.len()), rule));
                }
                Ok(list.iter().map(|recurrent| u8::from(*recurrent)).collect())
            }
        }
    }

    fn differ(&self, key: &str, first: u32, other: u32, layer: usize) -> ArchError {
        ArchError::LayersDiffer {
            key: self.full(key),
            arch: self.arch.name,
            first,
            other,
            layer,
        }
    }
}

/// Rows of the embedding, which key and tokenizer must confirm where they say anything.
fn vocabulary(keys: &Keys<'_>, header: &ModelTable) -> Result<u32, ArchError> {
    let embedding = match header.tensors.is_empty() {
        // A model whose tensors are still to be declared has only its metadata.
        true => None,
        false => Some(header.tensor("token_embd.weight")?),
    };
    let rows = match embedding {
        Some(embedding) => embedding.rows(),
        None => header.metadata.get::<u64>(&keys.full("vocab_size"))?,
    };
    let stated = keys
        .opt::<u64>("vocab_size")?
        .map(|n| (keys.full("vocab_size"), n));
    let tokens = match header
        .metadata
        .entry("tokenizer.ggml.tokens")
        .map(|entry| &entry.value)
    {
        Some(Value::Array(array)) => Some(("tokenizer.ggml.tokens".to_owned(), array.len() as u64)),
        _ => None,
    };
    for (second_of, second) in stated.into_iter().chain(tokens) {
        if second != rows {
            let first_of = embedding.map_or_else(|| keys.full("vocab_size"), |e| e.name.clone());
            return Err(ArchError::Vocabulary {
                first_of,
                first: rows,
                second_of,
                second,
            });
        }
    }
    match u32::try_from(rows) {
        Ok(rows) if rows < RingEntry::TOKEN_LIMIT => Ok(rows),
        _ => Err(bad(
            "token_embd.weight rows",
            rows,
            format!("below {}, the ring's 24 bits", RingEntry::TOKEN_LIMIT),
        )),
    }
}
