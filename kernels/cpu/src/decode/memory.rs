//! Host memory of a plan's buffers, at made-up device addresses, so that kernel arguments are the
//! same bytes as on a GPU; and the disjoint borrows of it that one launch needs.

use std::ops::Range;

use super::DecodeError;
use crate::{Bytes, CpuError};

/// Alignment of buffers and distance between them, in bytes: a page, so that an address past the end
/// of one is in none.
const PAGE: u64 = 4096;

#[derive(Debug)]
struct Buffer {
    base: u64,
    bytes: Bytes,
}

/// Buffers of a plan, zero at first.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Buffer>,
}

impl Memory {
    /// Adds a buffer of zeros and returns its index.
    ///
    /// # Errors
    /// [`DecodeError::Memory`].
    pub fn add(&mut self, bytes: u64) -> Result<usize, DecodeError> {
        let failed = |reason: String| DecodeError::Cpu(CpuError::Memory { bytes, reason });
        let len = usize::try_from(bytes).map_err(|e| failed(e.to_string()))?;
        let end = self
            .buffers
            .last()
            .map_or(0, |last| last.base.saturating_add(last.bytes.len() as u64));
        let base = end
            .checked_add(2 * PAGE)
            .map(|next| next / PAGE * PAGE)
            .filter(|base| base.checked_add(bytes).is_some())
            .ok_or_else(|| failed("the address space is full".to_owned()))?;
        let bytes = Bytes::zeroed(len)?;
        self.buffers.push(Buffer { base, bytes });
        Ok(self.buffers.len() - 1)
    }

    /// Address of a buffer; 0 for one that does not exist.
    #[must_use]
    pub fn base(&self, buffer: usize) -> u64 {
        self.buffers.get(buffer).map_or(0, |buffer| buffer.base)
    }

    /// All bytes of a buffer; empty for one that does not exist.
    #[must_use]
    pub fn bytes(&self, buffer: usize) -> &[u8] {
        let found = self.buffers.get(buffer);
        found.map_or(&[], |buffer| &buffer.bytes)
    }

    /// The same, to be written.
    #[must_use]
    pub fn bytes_mut(&mut self, buffer: usize) -> &mut [u8] {
        let found = self.buffers.get_mut(buffer);
        found.map_or(&mut [], |buffer| &mut buffer.bytes)
    }

    /// Writes bytes into a buffer.
    ///
    /// # Errors
    /// [`DecodeError::Buffer`].
    pub fn write(&mut self, buffer: usize, offset: u64, from: &[u8]) -> Result<(), DecodeError> {
        let to = self.bytes_mut(buffer);
        let error = DecodeError::Buffer {
            buffer,
            offset,
            end: offset.saturating_add(from.len() as u64),
            bytes: to.len() as u64,
        };
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(from.len())?));
        match range.and_then(|range| to.get_mut(range)) {
            Some(to) => to.copy_from_slice(from),
            None => return Err(error),
        }
        Ok(())
    }

    /// Bytes of a buffer.
    ///
    /// # Errors
    /// [`DecodeError::Buffer`].
    pub fn read(&self, buffer: usize, offset: u64, bytes: u64) -> Result<&[u8], DecodeError> {
        let all = self.bytes(buffer);
        let end = offset.saturating_add(bytes);
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let found = range.and_then(|(start, end)| all.get(start..end));
        found.ok_or(DecodeError::Buffer {
            buffer,
            offset,
            end,
            bytes: all.len() as u64,
        })
    }

    /// Buffer and byte of `[address + start, address + end)`, if one buffer holds it all.
    pub(super) fn locate(&self, address: u64, span: &Range<u64>) -> Option<(usize, Range<usize>)> {
        let index = self.buffers.partition_point(|b| b.base <= address);
        let index = index.checked_sub(1)?;
        let buffer = self.buffers.get(index)?;
        let from = address - buffer.base;
        let start = usize::try_from(from.checked_add(span.start)?).ok()?;
        let end = usize::try_from(from.checked_add(span.end)?).ok()?;
        (start <= end && end <= buffer.bytes.len()).then_some((index, start..end))
    }

    /// Borrows every piece at once. Pieces are in order of buffer and start, and disjoint; others than
    /// that come back as `None`.
    pub(super) fn carve<'m, const N: usize>(
        &'m mut self,
        pieces: &[Piece],
    ) -> [Option<Carved<'m>>; N] {
        let mut out = [const { None }; N];
        let mut buffers = self.buffers.iter_mut();
        let mut next = 0;
        let mut current: Option<(usize, usize, &'m mut [u8])> = None;
        for (slot, piece) in out.iter_mut().zip(pieces) {
            if current
                .as_ref()
                .is_none_or(|(index, ..)| *index != piece.buffer)
            {
                let Some(skip) = piece.buffer.checked_sub(next) else {
                    continue;
                };
                next = piece.buffer + 1;
                let bytes = buffers.nth(skip).map(|buffer| &mut buffer.bytes[..]);
                current = bytes.map(|bytes| (piece.buffer, 0, bytes));
            }
            let Some((index, at, rest)) = current.take() else {
                continue;
            };
            let gap = piece.range.start.checked_sub(at);
            let Some(gap) = gap.filter(|gap| gap + piece.range.len() <= rest.len()) else {
                current = Some((index, at, rest));
                continue;
            };
            let (_, rest) = rest.split_at_mut(gap);
            let (taken, rest) = rest.split_at_mut(piece.range.len());
            current = Some((index, piece.range.end, rest));
            *slot = Some(if piece.write {
                Carved::Write(taken)
            } else {
                Carved::Read(taken)
            });
        }
        out
    }
}

/// Bytes of a buffer that a launch reads or writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub buffer: usize,
    pub range: Range<usize>,
    pub write: bool,
}

/// A borrowed piece.
#[derive(Debug)]
pub(super) enum Carved<'m> {
    Read(&'m [u8]),
    Write(&'m mut [u8]),
}

#[cfg(test)]
mod tests {
    use super::{Carved, Memory, Piece};

    #[test]
    fn addresses_past_an_end_are_in_no_buffer() {
        let mut memory = Memory::default();
        for bytes in [100, 0, 4096, 1] {
            memory.add(bytes).unwrap();
        }
        let base = memory.base(2);
        assert_eq!(base % 4096, 0);
        assert_eq!(memory.locate(base + 4, &(0..4092)), Some((2, 4..4096)));
        assert_eq!(memory.locate(base + 4, &(0..4093)), None);
        assert_eq!(memory.locate(base - 1, &(0..0)), None);
        assert_eq!(memory.locate(0, &(0..1)), None);
        assert_eq!(memory.locate(u64::MAX, &(0..2)), None);
        assert!(memory.write(3, 0, &[7]).is_ok());
        assert!(memory.write(3, 1, &[7]).is_err());
        assert!(memory.write(9, 0, &[7]).is_err());
    }

    #[test]
    fn pieces_are_borrowed_in_order_and_others_are_left_out() {
        let mut memory = Memory::default();
        for _ in 0..3 {
            memory.add(16).unwrap();
        }
        memory.write(2, 8, &[9; 8]).unwrap();
        let piece = |buffer, range, write| Piece {
            buffer,
            range,
            write,
        };
        let pieces = [
            piece(0, 0..4, true),
            piece(0, 4..8, false),
            piece(0, 6..9, false),
            piece(2, 8..16, false),
            piece(2, 16..17, true),
            piece(1, 0..1, true),
        ];
        let carved: [Option<Carved<'_>>; 6] = memory.carve(&pieces);
        assert!(matches!(&carved[0], Some(Carved::Write(b)) if b.len() == 4));
        assert!(matches!(&carved[1], Some(Carved::Read(b)) if b.len() == 4));
        assert!(matches!(&carved[3], Some(Carved::Read(b)) if **b == [9; 8]));
        assert!(carved[2].is_none() && carved[4].is_none() && carved[5].is_none());
    }
}
