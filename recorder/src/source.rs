//! Weights from a model file: bytes by offset, checked against the plan's digests, in the layout
//! of the kernels.
//!
//! Parsing the file is the planner's work; here the plan already says where every tensor lies.

use refrain_kernels::{CatalogError, relayout};
use refrain_planner::identity::hex;
use refrain_planner::plan::{Model, Tensor};
use refrain_planner::source::{LoadError, ReadError, SourceFile, load, locate, pieces, read_at};
use std::borrow::Cow;
use std::path::Path;

/// Bytes of a model file's header that are read at once.
const HEADER_PART: u64 = 1 << 20;

/// Why a tensor could not be taken from the model file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Bytes are not there.
    #[error("{name}, byte {offset}: {source}")]
    Io {
        /// The model.
        name: String,
        /// Byte offset.
        offset: u64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The files of a model on disk cannot be found, opened or read.
    #[error(transparent)]
    Files(Box<ReadError>),
    /// A plan that was made without weights.
    #[error(
        "the plan of {model} was made without weights: the digests of its {tensors} tensors are unfilled; fill them from the whole model, or make the plan again"
    )]
    WeightsAbsent {
        /// Model.
        model: String,
        /// Its tensors.
        tensors: usize,
    },
    /// A tensor cannot be brought into the form of the plan.
    #[error("tensor {tensor}: {source}")]
    Load {
        /// Tensor.
        tensor: String,
        /// Why.
        source: LoadError,
    },
    /// Another file than the plan was made from.
    #[error(
        "{name} has {found} bytes, the plan was made from a file of {expected}; make the plan again"
    )]
    Length {
        /// The file.
        name: String,
        /// Bytes by the plan.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// Metadata or tensor table are not those the plan was made from.
    #[error(
        "{name}: the {bytes} bytes from byte {start} on (metadata and tensor table) have digest {found}, the plan says {expected}; make the plan again or restore the file"
    )]
    Header {
        /// The file.
        name: String,
        /// First byte of the part, counted through all files.
        start: u64,
        /// Length of the part in bytes.
        bytes: u64,
        /// Digest by the plan, hex.
        expected: String,
        /// Digest found, hex.
        found: String,
    },
    /// A tensor's bytes are not those the plan was made from.
    #[error(
        "tensor {tensor} at byte {offset}: digest {found}, the plan says {expected}; make the plan again or restore the file"
    )]
    Digest {
        /// Tensor.
        tensor: String,
        /// Byte offset in the file.
        offset: u64,
        /// Digest by the plan, hex.
        expected: String,
        /// Digest found, hex.
        found: String,
    },
    /// Type and shape do not give the bytes of the plan.
    #[error("tensor {tensor}: {source}")]
    Layout {
        /// Tensor.
        tensor: String,
        /// The catalog's answer.
        source: CatalogError,
    },
    /// The device layout has another length than the plan reserved.
    #[error(
        "tensor {tensor}: {found} bytes in device layout, the plan reserves {expected}; make the plan again"
    )]
    Reserved {
        /// Tensor.
        tensor: String,
        /// Bytes reserved.
        expected: u64,
        /// Bytes needed.
        found: u64,
    },
}

impl From<ReadError> for SourceError {
    fn from(error: ReadError) -> Self {
        Self::Files(Box::new(error))
    }
}

/// Random access to the bytes of a model: of all its files, one after the other.
pub trait TensorSource: Send + Sync {
    /// Name for messages.
    fn name(&self) -> String;

    /// Length of all files in bytes.
    ///
    /// # Errors
    /// [`SourceError::Io`], [`SourceError::Files`].
    fn file_bytes(&self) -> Result<u64, SourceError>;

    /// Fills `out` from byte `offset` on.
    ///
    /// # Errors
    /// [`SourceError::Io`], [`SourceError::Files`], also when a file ends early.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError>;
}

/// The files of a model on disk, addressed as one.
#[derive(Debug)]
pub struct FileSource {
    name: String,
    files: Vec<SourceFile>,
    lengths: Vec<u64>,
}

impl FileSource {
    /// Opens the files of the model that `path` belongs to; none is parsed.
    ///
    /// # Errors
    /// [`SourceError::Files`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let located = locate(path)?;
        let files = located.files();
        let files = files.iter().map(|path| SourceFile::open(path));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: path.display().to_string(),
            lengths: files.iter().map(SourceFile::bytes).collect(),
            files,
        })
    }

    /// The files, in the order in which offsets count through them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(SourceFile::path)
    }
}

impl TensorSource for FileSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn file_bytes(&self) -> Result<u64, SourceError> {
        Ok(self
            .lengths
            .iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        Ok(read_at(&self.files, &self.lengths, offset, out)?)
    }
}

/// A model file in memory.
impl TensorSource for Vec<u8> {
    fn name(&self) -> String {
        "model in memory".into()
    }

    fn file_bytes(&self) -> Result<u64, SourceError> {
        Ok(self.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let part = self.get(start..).and_then(|rest| rest.get(..out.len()));
        match part {
            Some(part) => {
                out.copy_from_slice(part);
                Ok(())
            }
            None => {
                let source = std::io::ErrorKind::UnexpectedEof.into();
                Err(SourceError::Io {
                    name: self.name(),
                    offset,
                    source,
                })
            }
        }
    }
}

/// Refuses a file whose length is not the one the plan was made from.
///
/// # Errors
/// [`SourceError::Length`] or [`SourceError::Io`].
pub fn check_length(source: &dyn TensorSource, model: &Model) -> Result<(), SourceError> {
    let (expected, found) = (model.file_bytes(), source.file_bytes()?);
    if expected == found {
        return Ok(());
    }
    Err(SourceError::Length {
        name: source.name(),
        expected,
        found,
    })
}

/// Refuses a plan that was made without weights, before anything of a model is looked at.
///
/// # Errors
/// [`SourceError::WeightsAbsent`].
pub fn check_weights(model: &Model) -> Result<(), SourceError> {
    if model.has_weights() {
        return Ok(());
    }
    Err(SourceError::WeightsAbsent {
        model: model.name.clone(),
        tensors: model.tensors.len(),
    })
}

/// Refuses a model whose metadata or tensor tables are not those the plan was made from: geometry,
/// end-of-sequence token and tokenizer come from there.
///
/// # Errors
/// [`SourceError::Header`], [`SourceError::Io`] or [`SourceError::Files`].
pub fn check_header(source: &dyn TensorSource, model: &Model) -> Result<(), SourceError> {
    let mut base = 0u64;
    for file in &model.files {
        let mut hasher = blake3::Hasher::new();
        // In parts: the length comes from a file.
        let mut part = vec![0; HEADER_PART.min(file.header_bytes) as usize];
        let mut done = 0;
        while done < file.header_bytes {
            let left = (file.header_bytes - done).min(part.len() as u64);
            let part = part.get_mut(..left as usize).unwrap_or_default();
            source.read(base.saturating_add(done), part)?;
            hasher.update(part);
            done += left;
        }
        let found = hasher.finalize();
        if *found.as_bytes() != file.header_digest {
            return Err(SourceError::Header {
                name: source.name(),
                start: base,
                bytes: file.header_bytes,
                expected: hex(&file.header_digest),
                found: hex(found.as_bytes()),
            });
        }
        base = base.saturating_add(file.bytes);
    }
    Ok(())
}

/// The bytes of all pieces of a tensor.
fn stored(source: &dyn TensorSource, tensor: &Tensor) -> Result<Vec<u8>, SourceError> {
    let length = source.file_bytes()?;
    let pieces = || pieces(tensor.file_offset, tensor.file_bytes, &tensor.more);
    // Before the buffer is allocated: offsets and lengths come from a file.
    let outside = pieces().find(|(offset, bytes)| *bytes > length.saturating_sub(*offset));
    if let Some((offset, _)) = outside {
        return Err(SourceError::Io {
            name: source.name(),
            offset,
            source: std::io::ErrorKind::UnexpectedEof.into(),
        });
    }
    let mut bytes = vec![0; tensor.file_bytes as usize];
    let mut rest = bytes.as_mut_slice();
    for (offset, length) in pieces() {
        let Some((piece, after)) = rest.split_at_mut_checked(length as usize) else {
            break;
        };
        source.read(offset, piece)?;
        rest = after;
    }
    Ok(bytes)
}

/// The stored bytes of a tensor as its type in the plan.
fn loaded(tensor: &Tensor, bytes: Vec<u8>) -> Result<Vec<u8>, SourceError> {
    if tensor.load.is_empty() && tensor.stored == tensor.dtype {
        return Ok(bytes);
    }
    let shape = (u64::from(tensor.rows), u64::from(tensor.cols));
    let types = (tensor.stored.into(), tensor.dtype.into());
    load::apply(&tensor.load, types, shape, bytes).map_err(|source| SourceError::Load {
        tensor: tensor.name.clone(),
        source,
    })
}

/// Reads a tensor, checks its digest, and gives its bytes in device layout to `place`.
///
/// # Errors
/// Any [`SourceError`]; those of `place` are passed through.
pub fn load_tensor<E: From<SourceError>>(
    source: &dyn TensorSource,
    tensor: &Tensor,
    place: impl FnOnce(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = loaded(tensor, stored(source, tensor)?)?;
    let found = blake3::hash(&bytes);
    if Some(*found.as_bytes()) != tensor.digest {
        return Err(SourceError::Digest {
            tensor: tensor.name.clone(),
            offset: tensor.file_offset,
            expected: tensor
                .digest
                .map_or_else(|| "none".to_owned(), |digest| hex(&digest)),
            found: hex(found.as_bytes()),
        }
        .into());
    }
    let (rows, cols) = (u64::from(tensor.rows), u64::from(tensor.cols));
    let device: Cow<'_, [u8]> =
        relayout(tensor.dtype, &bytes, rows, cols).map_err(|source| SourceError::Layout {
            tensor: tensor.name.clone(),
            source,
        })?;
    if device.len() as u64 != tensor.bytes {
        let (expected, found) = (tensor.bytes, device.len() as u64);
        return Err(SourceError::Reserved {
            tensor: tensor.name.clone(),
            expected,
            found,
        }
        .into());
    }
    place(&device)
}
