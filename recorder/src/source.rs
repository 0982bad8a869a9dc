//! Weights from a model file: bytes by offset, checked against the plan's digests, in the layout
//! of the kernels.
//!
//! Parsing the file is the planner's work; here the plan already says where every tensor lies.

use refrain_kernels::{CatalogError, relayout};
use refrain_planner::identity::hex;
use refrain_planner::plan::{Model, Tensor};
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Bytes of a model file's header that are read at once.
const HEADER_PART: u64 = 1 << 20;

/// Why a tensor could not be taken from the model file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be opened or read.
    #[error("{name}, byte {offset}: {source}")]
    Io {
        /// The file.
        name: String,
        /// Byte offset.
        offset: u64,
        /// The system's answer.
        source: std::io::Error,
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
        "{name}: the first {bytes} bytes (metadata and tensor table) have digest {found}, the plan says {expected}; make the plan again or restore the file"
    )]
    Header {
        /// The file.
        name: String,
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

/// Random access to the bytes of a model file.
pub trait TensorSource: Send + Sync {
    /// Name for messages.
    fn name(&self) -> String;

    /// Length of the file in bytes.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    fn file_bytes(&self) -> Result<u64, SourceError>;

    /// Fills `out` from byte `offset` on.
    ///
    /// # Errors
    /// [`SourceError::Io`], also when the file ends early.
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError>;
}

/// A model file on disk.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    // Seek and read are two calls, so readers take turns.
    file: Mutex<File>,
}

impl FileSource {
    /// Opens the file.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let file = File::open(path).map_err(|source| SourceError::Io {
            name: path.display().to_string(),
            offset: 0,
            source,
        })?;
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(file),
        })
    }

    fn with<T>(
        &self,
        offset: u64,
        action: impl FnOnce(&mut File) -> std::io::Result<T>,
    ) -> Result<T, SourceError> {
        // A reader that panicked left only a file position behind, which every read sets anew.
        let mut file = self
            .file
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        action(&mut file).map_err(|source| SourceError::Io {
            name: self.name(),
            offset,
            source,
        })
    }
}

impl TensorSource for FileSource {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn file_bytes(&self) -> Result<u64, SourceError> {
        self.with(0, |file| Ok(file.metadata()?.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.with(offset, |file| {
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(out)
        })
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
    let (expected, found) = (model.file_bytes, source.file_bytes()?);
    if expected == found {
        return Ok(());
    }
    Err(SourceError::Length {
        name: source.name(),
        expected,
        found,
    })
}

/// Refuses a file whose metadata or tensor table is not the one the plan was made from: geometry,
/// end-of-sequence token and tokenizer come from there.
///
/// # Errors
/// [`SourceError::Header`] or [`SourceError::Io`].
pub fn check_header(source: &dyn TensorSource, model: &Model) -> Result<(), SourceError> {
    let mut hasher = blake3::Hasher::new();
    // In parts: the length comes from a file.
    let mut part = vec![0; HEADER_PART.min(model.header_bytes) as usize];
    let mut offset = 0;
    while offset < model.header_bytes {
        let left = (model.header_bytes - offset).min(part.len() as u64);
        let part = part.get_mut(..left as usize).unwrap_or_default();
        source.read(offset, part)?;
        hasher.update(part);
        offset += left;
    }
    let found = hasher.finalize();
    if *found.as_bytes() == model.header_digest {
        return Ok(());
    }
    Err(SourceError::Header {
        name: source.name(),
        bytes: model.header_bytes,
        expected: hex(&model.header_digest),
        found: hex(found.as_bytes()),
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
    let left = source.file_bytes()?.saturating_sub(tensor.file_offset);
    if tensor.file_bytes > left {
        // Before the buffer is allocated: the length comes from a file.
        let source_error = std::io::ErrorKind::UnexpectedEof.into();
        let (name, offset) = (source.name(), tensor.file_offset);
        return Err(SourceError::Io {
            name,
            offset,
            source: source_error,
        }
        .into());
    }
    let mut bytes = vec![0; tensor.file_bytes as usize];
    source.read(tensor.file_offset, &mut bytes)?;
    let found = blake3::hash(&bytes);
    if *found.as_bytes() != tensor.digest {
        return Err(SourceError::Digest {
            tensor: tensor.name.clone(),
            offset: tensor.file_offset,
            expected: hex(&tensor.digest),
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
