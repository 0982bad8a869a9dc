//! Where a model comes from: one table of metadata and tensors, whatever the file format.
//!
//! [`locate`] finds the files of a model, [`ModelSource::open`] reads their heads into a
//! [`ModelTable`] with the names, key names and element order of GGUF, so that architectures are
//! declared once. What a format stores otherwise is named per tensor as [`LoadOp`]s and done when
//! the tensor is loaded. The files are addressed as one: offsets count through all of them in order.
//! Reading the formats is left to `gguf`, `safetensors`, `hf` and `hfq`.

mod error;
mod files;
mod locate;
mod open;
mod recipe;
mod split;
mod table;

pub mod load;

pub use error::ReadError;
pub use files::{SourceFile, read_at};
pub use load::{LoadError, LoadOp};
pub use locate::{FolderFiles, Located, locate};
pub use recipe::{RECIPES, Recipe};
pub use table::{FileHead, Format, ModelTable, TensorEntry, TensorType, pieces};

use crate::gguf::Metadata;
use std::path::{Path, PathBuf};

/// How a model is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// Accept files that end after their tensor table: the model then has no weights.
    pub header_only: bool,
    /// Make the tensor table from the configuration by this recipe; weight files are not looked at.
    pub recipe: Option<&'static Recipe>,
}

/// An open model: its table, and its files for reading weights.
#[derive(Debug)]
pub struct ModelSource {
    files: Vec<SourceFile>,
    table: ModelTable,
}

impl ModelSource {
    /// Opens a whole model: a GGUF file or any part of a split one, a Hugging Face folder, its
    /// `config.json` or one of its `.safetensors` files, or an HFQ file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_with(path, OpenOptions::default())
    }

    /// As [`ModelSource::open`], also without weights.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, ReadError> {
        open::open(path.as_ref(), options)
    }

    /// What the model says about itself and its tensors.
    #[must_use]
    pub fn table(&self) -> &ModelTable {
        &self.table
    }

    /// Metadata by GGUF key.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.table.metadata
    }

    /// The files, in the order in which offsets count through them.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let paths = self.files.iter().map(|file| file.path().to_owned());
        paths.collect()
    }

    /// Fills `out` with the bytes from `offset` on; a read never crosses the end of a file.
    ///
    /// # Errors
    /// [`ReadError::Io`], also where the file ends before `out` is full.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        read_at(&self.files, &self.table.lengths(), offset, out)
    }

    /// The bytes of a tensor as its type says, all [`LoadOp`]s done.
    ///
    /// # Errors
    /// [`ReadError::Io`], [`ReadError::Load`], [`ReadError::WeightsAbsent`].
    pub fn tensor_bytes(&self, tensor: &TensorEntry) -> Result<Vec<u8>, ReadError> {
        let lengths = self.table.lengths();
        let total = lengths
            .iter()
            .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        for (offset, bytes) in tensor.pieces() {
            if !self.table.weights && !self.holds(offset, bytes) {
                return Err(ReadError::WeightsAbsent {
                    tensor: tensor.name.clone(),
                });
            }
            let end = offset.saturating_add(bytes);
            if end > total {
                return Err(ReadError::Foreign {
                    tensor: tensor.name.clone(),
                    end,
                    bytes: total,
                });
            }
        }
        let mut stored = vec![0; tensor.bytes as usize];
        let mut rest = stored.as_mut_slice();
        for (offset, bytes) in tensor.pieces() {
            let Some((piece, after)) = rest.split_at_mut_checked(bytes as usize) else {
                break;
            };
            read_at(&self.files, &lengths, offset, piece)?;
            rest = after;
        }
        tensor.load(stored)
    }

    /// Whether the files at hand really hold the bytes, which matters where they end early.
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.saturating_add(bytes);
        let mut base = 0u64;
        for (file, head) in self.files.iter().zip(&self.table.files) {
            if offset >= base && bytes > 0 && end <= base.saturating_add(file.bytes()) {
                return true;
            }
            base = base.saturating_add(head.bytes);
        }
        false
    }
}
