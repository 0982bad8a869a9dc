//! Binds a model file to its declaration: geometry from metadata, tensors by name and shape.
//!
//! Everything in the file is accounted for: a declared tensor that is absent and a tensor that is
//! not declared are both errors, because either would change the numbers silently.

use super::{ARCHS, Arch, ArchError, Dim, OpDecl, RefusedKey, WeightDecl};
use crate::gguf::{FromValue, Metadata, Value};
use crate::plan::Geometry;
use crate::source::{ModelTable, TensorEntry, TensorType};
use refrain_kernels::{Dtype, RingEntry};
use std::collections::{BTreeMap, BTreeSet};

/// A model file matched with its declaration.
#[derive(Debug)]
pub struct Bound {
    /// The declaration.
    pub arch: &'static Arch,
    /// Shape facts.
    pub geometry: Geometry,
    /// End-of-sequence token, if the file names one.
    pub eos: Option<u32>,
    /// `general.name`, if the file has one.
    pub name: Option<String>,
    /// Weights that operations read, layer by layer in decode order; each tensor once.
    pub weights: Vec<BoundWeight>,
    /// Tensor of rotation factors, if there is one.
    pub rope_factors: Option<TensorEntry>,
    /// Position in `weights` by the declaration's file name.
    by_name: BTreeMap<String, usize>,
}

/// One weight tensor of the file.
#[derive(Debug, Clone)]
pub struct BoundWeight {
    /// Its record in the file.
    pub info: TensorEntry,
    /// Layer it belongs to.
    pub layer: Option<u32>,
    /// Element type, once loaded.
    pub dtype: Dtype,
    /// Element type in the file.
    pub stored: Dtype,
    /// Output rows.
    pub rows: u32,
    /// Contiguous elements per row.
    pub cols: u32,
}

impl Bound {
    /// Position in [`Bound::weights`] of a declared weight, following ties.
    pub fn weight(&self, decl: &WeightDecl, layer: Option<u32>) -> Option<usize> {
        self.by_name.get(&decl.file_name(layer)).copied()
    }
}

/// The declaration of a model.
fn declaration(header: &ModelTable) -> Result<&'static Arch, ArchError> {
    let found = header.architecture()?;
    let Some(arch) = ARCHS.iter().copied().find(|arch| arch.name == found) else {
        let known = ARCHS
            .iter()
            .map(|arch| arch.name)
            .collect::<Vec<_>>()
            .join(", ");
        return Err(ArchError::UnknownArch {
            found: found.to_owned(),
            known,
        });
    };
    Ok(arch)
}

/// Names and dimensions of the tensors that a model of this metadata has, for a model whose tensors
/// are not there. A head that is `tied` to the embedding is none of them.
pub fn declared(header: &ModelTable, tied: bool) -> Result<Vec<(String, Vec<u64>)>, ArchError> {
    let arch = declaration(header)?;
    let geometry = geometry(arch, header)?;
    let mut seen = BTreeSet::new();
    let mut tensors = Vec::new();
    for (layer, op) in each_op(arch, geometry.layers) {
        for decl in op.weights() {
            let name = decl.file_name(layer.filter(|_| decl.name.contains("{}")));
            let left_out = tied && decl.tied_to.is_some();
            if !left_out && seen.insert(name.clone()) {
                tensors.push((name, expected_dims(decl, &geometry)));
            }
        }
    }
    Ok(tensors)
}

/// Binds what a model says about itself.
pub fn bind(header: &ModelTable) -> Result<Bound, ArchError> {
    let arch = declaration(header)?;
    let metadata = &header.metadata;
    for refused in arch.refused {
        check_refused(arch, refused, metadata)?;
    }
    let geometry = geometry(arch, header)?;
    let eos = metadata.opt::<u32>("tokenizer.ggml.eos_token_id")?;
    if let Some(eos) = eos.filter(|eos| *eos >= geometry.vocab) {
        let rule = format!("below the vocabulary size {}", geometry.vocab);
        return Err(bad("tokenizer.ggml.eos_token_id", eos, rule));
    }
    let name = metadata.opt::<&str>("general.name")?.map(str::to_owned);
    let mut bound = Bound {
        arch,
        geometry,
        eos,
        name,
        weights: Vec::new(),
        rope_factors: None,
        by_name: BTreeMap::new(),
    };
    bind_weights(&mut bound, header)?;
    Ok(bound)
}

/// Visits the declared operations in decode order, with the layer of each.
pub(crate) fn each_op(arch: &Arch, layers: u32) -> impl Iterator<Item = (Option<u32>, &OpDecl)> {
    let before = arch.prologue.iter().map(|op| (None, op));
    let layer = move |layer| arch.layer.iter().map(move |op| (Some(layer), op));
    let after = arch.epilogue.iter().map(|op| (None, op));
    before.chain((0..layers).flat_map(layer)).chain(after)
}

fn bind_weights(bound: &mut Bound, header: &ModelTable) -> Result<(), ArchError> {
    let mut used = BTreeSet::new();
    for (layer, op) in each_op(bound.arch, bound.geometry.layers) {
        for decl in op.weights() {
            // A weight outside the layers keeps its name whatever operation reads it.
            let layer = layer.filter(|_| decl.name.contains("{}"));
            bind_weight(bound, header, decl, layer, &mut used)?;
        }
    }
    if let Some(decl) = bound.arch.rope_factors
        && let Some(info) = header.find_tensor(&decl.file_name(None))
    {
        check_shape(info, decl, &bound.geometry)?;
        used.insert(info.name.clone());
        bound.rope_factors = Some(info.clone());
    }
    match header
        .tensors
        .iter()
        .find(|info| !used.contains(&info.name))
    {
        None => Ok(()),
        Some(info) if info.name.ends_with(".bias") => Err(ArchError::Bias {
            tensor: info.name.clone(),
            arch: bound.arch.name,
        }),
        Some(info) => Err(ArchError::UnexpectedTensor {
            tensor: info.name.clone(),
            shape: dims_text(&info.dims),
            arch: bound.arch.name,
        }),
    }
}

fn bind_weight(
    bound: &mut Bound,
    header: &ModelTable,
    decl: &'static WeightDecl,
    layer: Option<u32>,
    used: &mut BTreeSet<String>,
) -> Result<(), ArchError> {
    let name = decl.file_name(layer);
    if bound.by_name.contains_key(&name) {
        return Ok(());
    }
    let found = header.find_tensor(&name).map(|info| (info, decl));
    let tied = || {
        let tie = decl.tied_to?;
        header
            .find_tensor(&tie.file_name(layer))
            .map(|info| (info, tie))
    };
    let Some((info, decl)) = found.or_else(tied) else {
        return Err(ArchError::MissingTensor {
            tensor: name,
            shape: dims_text(&expected_dims(decl, &bound.geometry)),
            arch: bound.arch.name,
        });
    };
    let index = match bound.by_name.get(&info.name) {
        Some(index) => *index,
        None => {
            check_shape(info, decl, &bound.geometry)?;
            used.insert(info.name.clone());
            bound.weights.push(BoundWeight {
                info: info.clone(),
                layer,
                dtype: dtype(info, info.ty, layer)?,
                stored: dtype(info, info.stored, layer)?,
                rows: decl.rows.of(&bound.geometry),
                cols: decl.cols.of(&bound.geometry),
            });
            bound.weights.len() - 1
        }
    };
    bound.by_name.insert(info.name.clone(), index);
    bound.by_name.insert(name, index);
    Ok(())
}

/// The catalog's type of the same name.
fn dtype(info: &TensorEntry, ty: TensorType, layer: Option<u32>) -> Result<Dtype, ArchError> {
    Dtype::parse(&ty.name().to_ascii_lowercase()).ok_or_else(|| ArchError::Dtype {
        tensor: info.name.clone(),
        layer,
        found: ty.name().to_owned(),
        known: Dtype::ALL.map(Dtype::name).join(", "),
    })
}

fn expected_dims(decl: &WeightDecl, geometry: &Geometry) -> Vec<u64> {
    let cols = u64::from(decl.cols.of(geometry));
    match decl.rows {
        Dim::One => vec![cols],
        rows => vec![cols, u64::from(rows.of(geometry))],
    }
}

fn check_shape(
    info: &TensorEntry,
    decl: &WeightDecl,
    geometry: &Geometry,
) -> Result<(), ArchError> {
    let expected = expected_dims(decl, geometry);
    // Trailing dimensions of 1 say nothing; some converters write them.
    let ones = info.dims.iter().rev().take_while(|dim| **dim == 1).count();
    let stripped = &info.dims[..info.dims.len() - ones.min(info.dims.len() - 1)];
    if stripped == expected || info.dims == expected {
        return Ok(());
    }
    let expression = match decl.rows {
        Dim::One => decl.cols.text().to_owned(),
        rows => format!("{}, {}", decl.cols.text(), rows.text()),
    };
    Err(ArchError::Shape {
        tensor: info.name.clone(),
        found: dims_text(&info.dims),
        expected: dims_text(&expected),
        expression,
    })
}

fn dims_text(dims: &[u64]) -> String {
    format!("{dims:?}")
}

fn check_refused(
    arch: &'static Arch,
    refused: &RefusedKey,
    metadata: &Metadata,
) -> Result<(), ArchError> {
    let key = format!("{}.{}", arch.name, refused.key);
    let Some(entry) = metadata.entry(&key) else {
        return Ok(());
    };
    let found = match &entry.value {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::Array(array) => format!("{} of {}", array.type_name(), array.len()),
        other => other
            .as_integer()
            .map_or_else(String::new, |number| number.to_string()),
    };
    if found == refused.neutral {
        return Ok(());
    }
    let (meaning, neutral) = (refused.meaning, refused.neutral);
    Err(ArchError::Refused {
        key,
        found,
        meaning,
        arch: arch.name,
        neutral,
    })
}

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
            let (arch, other) = (self.arch.name, values[layer]);
            return Err(ArchError::LayersDiffer {
                key: full,
                arch,
                first,
                other,
                layer,
            });
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

fn geometry(arch: &'static Arch, header: &ModelTable) -> Result<Geometry, ArchError> {
    let keys = Keys {
        arch,
        metadata: &header.metadata,
    };
    let layers = keys.count("block_count", None, MOST_LAYERS)?;
    let hidden = keys.count("embedding_length", None, MOST_WIDTH)?;
    let heads = keys.uniform("attention.head_count", None, layers, MOST_HEADS)?;
    let kv_heads = keys.uniform("attention.head_count_kv", Some(heads), layers, MOST_HEADS)?;
    if kv_heads > heads || !heads.is_multiple_of(kv_heads) {
        let rule = format!("a divisor of head_count {heads}");
        return Err(bad(keys.full("attention.head_count_kv"), kv_heads, rule));
    }
    let quotient = hidden.is_multiple_of(heads).then_some(hidden / heads);
    let head_dim = keys.count("attention.key_length", quotient, MOST_HEAD_DIM)?;
    let value_dim = keys.count("attention.value_length", Some(head_dim), MOST_HEAD_DIM)?;
    if value_dim != head_dim {
        let rule = format!("equal to attention.key_length {head_dim}");
        return Err(bad(keys.full("attention.value_length"), value_dim, rule));
    }
    let ffn = keys.uniform("feed_forward_length", None, layers, MOST_WIDTH)?;
    let rope_dims = keys.count("rope.dimension_count", Some(head_dim), head_dim)?;
    if !rope_dims.is_multiple_of(2) {
        return Err(bad(keys.full("rope.dimension_count"), rope_dims, "even"));
    }
    Ok(Geometry {
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab: vocabulary(&keys, header)?,
        rope_dims,
        context_max: keys.count("context_length", None, MOST_CONTEXT)?,
        norm_eps: keys.positive("attention.layer_norm_rms_epsilon", None)?,
        // The base that llama.cpp takes where a file names none.
        rope_theta: keys.positive("rope.freq_base", Some(10_000.0))?,
    })
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
