//! The table that every reader fills: metadata by GGUF key, tensors by GGUF name.

use super::load::{self, LoadOp};
use super::{OpenOptions, ReadError};
use crate::gguf::{GgmlType, GgufError, Metadata};
use refrain_kernels::Dtype;
use std::collections::HashMap;

/// An element type of some file format: whole blocks, one after the other along a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorType {
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
}

impl TensorType {
    /// A type by its name and block.
    #[must_use]
    pub const fn new(name: &'static str, block_elements: u64, block_bytes: u64) -> Self {
        Self {
            name,
            block_elements,
            block_bytes,
        }
    }

    /// Name, as its format writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Elements of one block; 1 for a type without blocks.
    #[must_use]
    pub const fn block_elements(self) -> u64 {
        self.block_elements
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        self.block_bytes
    }

    /// Bytes of a row of `elements`, or `None` if that is no whole number of blocks or overflows.
    #[must_use]
    pub const fn row_bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_elements) {
            return None;
        }
        (elements / self.block_elements).checked_mul(self.block_bytes)
    }

    /// Bytes of all `dims`, the contiguous one first.
    #[must_use]
    pub fn bytes(self, dims: &[u64]) -> Option<u64> {
        let row = self.row_bytes(dims.first().copied().unwrap_or(1))?;
        dims.iter()
            .skip(1)
            .try_fold(row, |bytes, dim| bytes.checked_mul(*dim))
    }
}

impl From<GgmlType> for TensorType {
    fn from(ty: GgmlType) -> Self {
        Self::new(ty.name(), ty.block_elements(), ty.block_bytes())
    }
}

impl From<Dtype> for TensorType {
    fn from(dtype: Dtype) -> Self {
        let bytes = dtype.file_bytes(1, dtype.block()).unwrap_or_default();
        Self::new(dtype.name(), dtype.block(), bytes)
    }
}

/// One tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorEntry {
    /// GGUF name, unique in the model; a tensor without a GGUF name keeps its own.
    pub name: String,
    /// Dimensions in elements, the contiguous one first: a weight `[in, out]`.
    pub dims: Vec<u64>,
    /// Element type once loaded.
    pub ty: TensorType,
    /// Element type in the file.
    pub stored: TensorType,
    /// What is done to the stored elements, in order, after they have become `ty`.
    pub ops: Vec<LoadOp>,
    /// First byte, counted through all files; 0 where the tensor has no place yet.
    pub offset: u64,
    /// Bytes in the files.
    pub bytes: u64,
    /// Where further pieces start, if the tensor lies in several of equal length: experts that
    /// their file holds one by one.
    pub more: Vec<u64>,
}

impl TensorEntry {
    /// Number of rows: the product of all dimensions but the contiguous one.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Offset and length of each piece in the files.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        pieces(self.offset, self.bytes, &self.more)
    }

    /// Refuses changes that do not fit type or shape, without the bytes.
    ///
    /// # Errors
    /// [`ReadError::Load`].
    pub fn check_loading(&self) -> Result<(), ReadError> {
        let row = self.dims.first().copied().unwrap_or(1);
        let types = (self.stored, self.ty);
        load::check(&self.ops, types, (self.rows(), row)).map_err(|source| ReadError::Load {
            tensor: self.name.clone(),
            source,
        })
    }

    /// Stored bytes as loaded ones.
    pub(super) fn load(&self, bytes: Vec<u8>) -> Result<Vec<u8>, ReadError> {
        if self.ops.is_empty() && self.ty == self.stored {
            return Ok(bytes);
        }
        let row = self.dims.first().copied().unwrap_or(1);
        let shape = (self.rows(), row);
        load::apply(&self.ops, (self.stored, self.ty), shape, bytes).map_err(|source| {
            ReadError::Load {
                tensor: self.name.clone(),
                source,
            }
        })
    }
}

/// Offset and length of each of `1 + more.len()` equal pieces of `bytes` together.
pub fn pieces(offset: u64, bytes: u64, more: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let each = bytes / (more.len() as u64 + 1);
    let offsets = std::iter::once(offset).chain(more.iter().copied());
    offsets.map(move |offset| (offset, each))
}

/// Format of a model's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// GGUF, in one file or in parts.
    Gguf,
    /// Hugging Face folder.
    Safetensors,
    /// HFQ container.
    Hfq,
    /// A configuration and a recipe, no weights.
    Recipe,
}

/// Length of a file and of its part that is no tensor data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHead {
    /// Length of the file; where it ends early, the length that its table asks for.
    pub bytes: u64,
    /// Bytes from its start that decide the plan: header, or all of a configuration.
    pub header_bytes: u64,
}

/// Everything about a model but its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTable {
    /// Format it was read from.
    pub format: Format,
    /// Metadata by GGUF key.
    pub metadata: Metadata,
    /// Tensors in file order.
    pub tensors: Vec<TensorEntry>,
    /// The files, in the order in which offsets count through them.
    pub files: Vec<FileHead>,
    /// Factors that divide the rotation frequencies, where no tensor holds them.
    pub rope_factors: Option<Vec<f32>>,
    /// Whether the weights are there.
    pub weights: bool,
    by_name: HashMap<String, usize>,
}

impl ModelTable {
    pub(crate) fn new(
        format: Format,
        metadata: Metadata,
        tensors: Vec<TensorEntry>,
        files: Vec<FileHead>,
        options: OpenOptions,
    ) -> Result<Self, ReadError> {
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (index, tensor) in tensors.iter().enumerate() {
            if by_name.insert(tensor.name.clone(), index).is_some() {
                return Err(ReadError::DuplicateTensor {
                    tensor: tensor.name.clone(),
                });
            }
        }
        Ok(Self {
            format,
            metadata,
            tensors,
            files,
            rope_factors: None,
            weights: !options.header_only && options.recipe.is_none(),
            by_name,
        })
    }

    /// Lengths by which offsets count.
    pub(crate) fn lengths(&self) -> Vec<u64> {
        self.files.iter().map(|file| file.bytes).collect()
    }

    /// The tensor called `name`.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&TensorEntry, GgufError> {
        self.find_tensor(name)
            .ok_or_else(|| GgufError::MissingTensor {
                tensor: name.to_owned(),
            })
    }

    /// The tensor called `name`, if there is one.
    #[must_use]
    pub fn find_tensor(&self, name: &str) -> Option<&TensorEntry> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// `general.architecture`, for example `qwen3`.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::KeyType`].
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.metadata.get("general.architecture")
    }
}
