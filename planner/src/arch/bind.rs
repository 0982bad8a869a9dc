//! Binds a model file to its declaration: geometry from metadata, tensors by name and shape.
//!
//! Everything in the file is accounted for: a declared tensor that is absent and a tensor that is
//! not declared are both errors, because either would change the numbers silently.

use super::{ARCHS, Arch, ArchError, Dim, LayerKind, OpDecl, RefusedKey, WeightDecl, keys};
use crate::gguf::{Metadata, Value};
use crate::plan::Geometry;
use crate::source::{ModelTable, TensorEntry, TensorType};
use refrain_kernels::{Dtype, catalog};
use std::collections::{BTreeMap, BTreeSet};

/// A model file matched with its declaration.
#[derive(Debug)]
pub struct Bound {
    /// The declaration.
    pub arch: &'static Arch,
    /// Shape facts.
    pub geometry: Geometry,
    /// Kind of each layer, as a position in [`Arch::kinds`].
    pub kinds: Vec<u8>,
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

    /// Kind of a layer.
    pub fn kind(&self, layer: u32) -> &'static LayerKind {
        let kind = self.kinds.get(layer as usize);
        self.arch.kind(kind.copied().unwrap_or_default())
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
    let (geometry, kinds) = keys::read(arch, header)?;
    let mut seen = BTreeSet::new();
    let mut tensors = Vec::new();
    for (layer, op) in each_op(arch, &kinds) {
        for decl in op.operands().weights {
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
    for refused in arch.refused.iter().copied().flatten() {
        check_refused(arch, refused, metadata)?;
    }
    let (geometry, kinds) = keys::read(arch, header)?;
    let eos = metadata.opt::<u32>("tokenizer.ggml.eos_token_id")?;
    if let Some(eos) = eos.filter(|eos| *eos >= geometry.vocab) {
        let rule = format!("below the vocabulary size {}", geometry.vocab);
        return Err(ArchError::Geometry {
            key: "tokenizer.ggml.eos_token_id".to_owned(),
            found: eos.to_string(),
            rule,
        });
    }
    let name = metadata.opt::<&str>("general.name")?.map(str::to_owned);
    let mut bound = Bound {
        arch,
        geometry,
        kinds,
        eos,
        name,
        weights: Vec::new(),
        rope_factors: None,
        by_name: BTreeMap::new(),
    };
    bind_weights(&mut bound, header)?;
    Ok(bound)
}

/// The declared operations in decode order, with the layer of each; `kinds` are those of the layers.
pub(crate) fn each_op(arch: &Arch, kinds: &[u8]) -> Vec<(Option<u32>, &'static OpDecl)> {
    let outside = |ops: &'static [OpDecl]| ops.iter().map(|op| (None, op));
    let layers = kinds.iter().zip(0..).flat_map(|(kind, layer)| {
        let ops = arch.kind(*kind).ops.iter().copied().flatten();
        ops.map(move |op| (Some(layer), op))
    });
    outside(arch.prologue)
        .chain(layers)
        .chain(outside(arch.epilogue))
        .collect()
}

fn bind_weights(bound: &mut Bound, header: &ModelTable) -> Result<(), ArchError> {
    let mut used = BTreeSet::new();
    for (layer, op) in each_op(bound.arch, &bound.kinds) {
        for decl in op.operands().weights {
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
                rows: decl
                    .rows
                    .of(&bound.geometry)
                    .saturating_mul(decl.stack.of(&bound.geometry)),
                cols: decl.cols.of(&bound.geometry),
            });
            bound.weights.len() - 1
        }
    };
    bound.by_name.insert(info.name.clone(), index);
    bound.by_name.insert(name, index);
    Ok(())
}

/// The catalog's type of the same name. Whether a kernel takes it where it stands is for lowering to say.
fn dtype(info: &TensorEntry, ty: TensorType, layer: Option<u32>) -> Result<Dtype, ArchError> {
    let with_kernels = |dtype: &Dtype| catalog().iter().any(|row| row.dtype == Some(*dtype));
    Dtype::parse(&ty.name().to_ascii_lowercase()).ok_or_else(|| ArchError::Dtype {
        tensor: info.name.clone(),
        layer,
        found: ty.name().to_owned(),
        known: {
            let known: Vec<_> = Dtype::ALL.into_iter().filter(with_kernels).collect();
            known
                .iter()
                .map(|dtype| dtype.name())
                .collect::<Vec<_>>()
                .join(", ")
        },
    })
}

fn expected_dims(decl: &WeightDecl, geometry: &Geometry) -> Vec<u64> {
    shape(decl).map(|dim| u64::from(dim.of(geometry))).collect()
}

/// The declared dimensions, contiguous first, without those that are one by declaration.
fn shape(decl: &WeightDecl) -> impl Iterator<Item = Dim> {
    let outer = [decl.rows, decl.stack].into_iter();
    std::iter::once(decl.cols).chain(outer.filter(|dim| *dim != Dim::One))
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
    let expression = shape(decl).map(Dim::text).collect::<Vec<_>>().join(", ");
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
