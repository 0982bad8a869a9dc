//! Little-endian primitives over the head of a file, read in windows, with every length checked against what is left.
//! Knows nothing of keys and tensors.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::error::GgufError;
use super::limits::{MAX_ARRAY_ELEMENTS, MAX_HEADER_BYTES};
use super::value::StringList;

/// Bytes read from a file at once; a header is usually less than 16 MiB.
const WINDOW_BYTES: usize = 1 << 20;

/// Where the bytes come from.
enum Origin<'a> {
    /// The first bytes of a file, in memory.
    Slice(&'a [u8]),
    /// An open file, read forward.
    File {
        file: &'a mut File,
        path: &'a Path,
        window: Vec<u8>,
        start: u64,
    },
}

/// A forward reader that knows its offset and the length of the file.
pub(super) struct Source<'a> {
    origin: Origin<'a>,
    offset: u64,
    file_bytes: u64,
}

impl<'a> Source<'a> {
    pub(super) fn slice(bytes: &'a [u8], file_bytes: u64) -> Self {
        Source {
            origin: Origin::Slice(bytes),
            offset: 0,
            file_bytes,
        }
    }

    pub(super) fn file(file: &'a mut File, path: &'a Path, file_bytes: u64) -> Self {
        let origin = Origin::File {
            file,
            path,
            window: Vec::new(),
            start: 0,
        };
        Source {
            origin,
            offset: 0,
            file_bytes,
        }
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Refuses `need` bytes of `what` if the file does not have them, before anything is allocated for them.
    pub(super) fn check_left(&self, need: u64, what: &'static str) -> Result<(), GgufError> {
        let (offset, have) = (self.offset, self.file_bytes.saturating_sub(self.offset));
        if need > have {
            return Err(GgufError::Truncated {
                offset,
                what,
                need,
                have,
            });
        }
        if offset.saturating_add(need) > MAX_HEADER_BYTES {
            let found = offset.saturating_add(need);
            return Err(GgufError::Limit {
                offset,
                what: "header length",
                found,
                limit: MAX_HEADER_BYTES,
            });
        }
        if let Origin::Slice(bytes) = &self.origin {
            let given = bytes.len() as u64;
            if need > given.saturating_sub(offset) {
                return Err(GgufError::HeaderIncomplete {
                    offset,
                    what,
                    need,
                    given,
                });
            }
        }
        Ok(())
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<&[u8], GgufError> {
        let need = len as u64;
        self.check_left(need, what)?;
        let (offset, file_bytes) = (self.offset, self.file_bytes);
        self.offset += need;
        let (bytes, at) = match &mut self.origin {
            Origin::Slice(bytes) => (*bytes, offset),
            Origin::File {
                file,
                path,
                window,
                start,
            } => {
                let loaded = *start + window.len() as u64;
                if offset + need > loaded {
                    let len = need.max(WINDOW_BYTES as u64).min(file_bytes - offset);
                    read_at(file, path, offset, len as usize, window)?;
                    *start = offset;
                }
                (window.as_slice(), offset - *start)
            }
        };
        let at = at as usize;
        bytes.get(at..at + len).ok_or(GgufError::Truncated {
            offset,
            what,
            need,
            have: 0,
        })
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count, at most `limit`.
    pub(super) fn count(&mut self, what: &'static str, limit: u64) -> Result<u64, GgufError> {
        let offset = self.offset;
        let found = self.u64(what)?;
        if found > limit {
            return Err(GgufError::Limit {
                offset,
                what,
                found,
                limit,
            });
        }
        Ok(found)
    }

    /// A string: u64 length, then that many bytes of UTF-8.
    pub(super) fn string(&mut self, what: &'static str, limit: u64) -> Result<&str, GgufError> {
        let len = self.count(what, limit)?;
        let offset = self.offset;
        let bytes = self.take(len as usize, what)?;
        std::str::from_utf8(bytes).map_err(|error| GgufError::Utf8 {
            offset,
            what,
            valid: error.valid_up_to() as u64,
            len,
        })
    }

    /// `count` numbers of `N` bytes each.
    pub(super) fn numbers<const N: usize, T>(
        &mut self,
        count: u64,
        read: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        debug_assert!(count <= MAX_ARRAY_ELEMENTS);
        let bytes = self.take((count * N as u64) as usize, "array elements")?;
        Ok(bytes
            .as_chunks::<N>()
            .0
            .iter()
            .map(|chunk| read(*chunk))
            .collect())
    }

    /// `count` strings.
    pub(super) fn strings(&mut self, count: u64, limit: u64) -> Result<StringList, GgufError> {
        // Each string takes at least its length field.
        self.check_left(count.saturating_mul(8), "array elements")?;
        let mut list = StringList::default();
        for _ in 0..count {
            list.push(self.string("array element", limit)?);
        }
        Ok(list)
    }
}

/// Reads exactly `len` bytes at `offset` into `out`, replacing what was there.
pub(super) fn read_at(
    file: &mut File,
    path: &Path,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> Result<(), GgufError> {
    let io = |source| GgufError::Io {
        path: path.to_owned(),
        offset,
        source,
    };
    out.clear();
    out.resize(len, 0);
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    file.read_exact(out).map_err(io)
}
