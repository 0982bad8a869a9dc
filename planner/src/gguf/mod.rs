//! Own reader of GGUF model files, versions 2 and 3.
//!
//! [`GgufHeader`] is the head of a file, parsed from bytes or from a path; that is all that planning needs.
//! [`GgufFile`] also reads tensor bytes by position. No memory map, so a file that shrinks is an error and no signal.
//! What the numbers mean for a model is left to the architectures, decoding blocks to the quant codecs.

mod error;
mod header;
pub mod limits;
mod source;
mod types;
mod value;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use error::GgufError;
use header::Extent;
pub use header::{GgufHeader, TensorInfo};
pub use types::{GgmlType, REMOVED_TYPES};
pub use value::{Array, Entry, FromValue, Metadata, Mismatch, StringList, Value};

/// An open GGUF file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    file: Mutex<File>,
    header: GgufHeader,
}

impl GgufFile {
    /// Opens `path` and reads its header, in windows of 1 MiB.
    ///
    /// # Errors
    /// [`GgufError`].
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile, GgufError> {
        Self::open_as(path.as_ref(), Extent::Whole)
    }

    /// As [`GgufFile::open`], for a file that may end anywhere after its tensor table. The header's
    /// [`GgufHeader::file_bytes`] is then the length that the table asks for.
    ///
    /// # Errors
    /// [`GgufError`].
    pub fn open_header(path: impl AsRef<Path>) -> Result<GgufFile, GgufError> {
        Self::open_as(path.as_ref(), Extent::HeaderOnly)
    }

    fn open_as(path: &Path, extent: Extent) -> Result<GgufFile, GgufError> {
        let io = |source| GgufError::Io {
            path: path.to_owned(),
            offset: 0,
            source,
        };
        let mut file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        let header = GgufHeader::read(
            &mut source::Source::file(&mut file, path, file_bytes),
            extent,
        )?;
        Ok(GgufFile {
            path: path.to_owned(),
            file: Mutex::new(file),
            header,
        })
    }

    /// The parsed header.
    #[must_use]
    pub fn header(&self) -> &GgufHeader {
        &self.header
    }

    /// The path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn into_parts(self) -> (PathBuf, File, GgufHeader) {
        let file = self
            .file
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        (self.path, file, self.header)
    }

    /// The bytes of a tensor of this file, as stored.
    ///
    /// # Errors
    /// [`GgufError::PastEnd`] if `tensor` is of another, longer file; [`GgufError::Io`].
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Vec<u8>, GgufError> {
        let end = tensor.offset.saturating_add(tensor.bytes);
        if end > self.header.file_bytes {
            let (offset, name) = (tensor.record_offset, tensor.name.clone());
            return Err(GgufError::PastEnd {
                offset,
                tensor: name,
                end,
                file_bytes: self.header.file_bytes,
            });
        }
        let mut bytes = vec![0; tensor.bytes as usize];
        self.read_at(tensor.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`GgufError::Io`], also if the file ends before `out` is full.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), GgufError> {
        let io = |source| GgufError::Io {
            path: self.path.clone(),
            offset,
            source,
        };
        // Every read seeks first, so a reader that failed leaves nothing behind that could mislead the next.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset)).map_err(io)?;
        file.read_exact(out).map_err(io)
    }
}
