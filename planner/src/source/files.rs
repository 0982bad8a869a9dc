//! Open model files, read by position; several are addressed as one.

use super::ReadError;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A model file. No memory map, so that a file that shrinks is an error and no signal.
#[derive(Debug)]
pub struct SourceFile {
    path: PathBuf,
    // Seek and read are two calls, so readers take turns.
    file: Mutex<File>,
    bytes: u64,
}

impl SourceFile {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ReadError::Io`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::io(path, 0, source);
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        Ok(Self::of(path.to_owned(), file, bytes))
    }

    pub(crate) fn of(path: PathBuf, file: File, bytes: u64) -> Self {
        Self {
            path,
            file: Mutex::new(file),
            bytes,
        }
    }

    /// The path that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length when it was opened.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`ReadError::Io`].
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        // Every read seeks first, so a reader that failed leaves nothing behind.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read = file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| file.read_exact(out));
        read.map_err(|source| ReadError::io(&self.path, offset, source))
    }

    /// The whole file, which is refused above `limit` bytes before anything is allocated.
    ///
    /// # Errors
    /// [`ReadError::TooLong`], [`ReadError::Io`].
    pub fn read_all(&self, limit: u64) -> Result<Vec<u8>, ReadError> {
        if self.bytes > limit {
            return Err(ReadError::TooLong {
                path: self.path.clone(),
                found: self.bytes,
                limit,
            });
        }
        let mut bytes = vec![0; self.bytes as usize];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }
}

/// Fills `out` from byte `offset` of the files one after the other; `lengths` are those by which
/// offsets count, which may be more than a file really has.
///
/// # Errors
/// [`ReadError::Io`], also where the bytes would cross from one file into the next.
pub fn read_at(
    files: &[SourceFile],
    lengths: &[u64],
    offset: u64,
    out: &mut [u8],
) -> Result<(), ReadError> {
    let mut base = 0u64;
    for (file, length) in files.iter().zip(lengths) {
        let end = base.saturating_add(*length);
        if offset < end || (out.is_empty() && offset == end) {
            let within = offset - base;
            if (out.len() as u64) > end - offset {
                let source = io::ErrorKind::UnexpectedEof.into();
                return Err(ReadError::io(file.path(), within, source));
            }
            return file.read_at(within, out);
        }
        base = end;
    }
    let path = files.last().map_or_else(|| Path::new(""), SourceFile::path);
    let source = io::ErrorKind::UnexpectedEof.into();
    Err(ReadError::io(path, offset, source))
}
