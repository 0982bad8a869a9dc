//! Weights packed for the CPU: sixteen rows interleaved, so that one 64-byte load holds a word of each.
//!
//! Sixteen rows are one contiguous run of bytes, in the order in which the loops read it: for each group
//! of 32 elements what every plane of the device layout holds of it, then for each block the planes with
//! less than one parameter per group; all in units (words of codes, 4 bytes, or single parameters) with
//! sixteen rows side by side. Missing rows of the last sixteen are zero. Bytes per weight are those of the
//! device layout. The order is not taste: a Zen 4 core streams this one as fast as it reads, and drops to
//! two thirds when parameters lie apart from codes (docs/measurements/cpu-gemv.md).
//!
//! A second copy of a weight: who makes one plans and charges it ([`Packed16::bytes_for`]).

use std::ops::Range;

use refrain_kernels::Dtype;
use refrain_kernels::format::{Blocks, Coding};

use super::{Activation, Layout, Sums, Write, group, meet};
use crate::{CpuError, Isa, Matrix};

/// Rows that are interleaved.
pub const ROWS: usize = 16;

/// A view of packed bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packed16<'a> {
    dtype: Dtype,
    rows: usize,
    k: usize,
    bytes: &'a [u8],
}

impl<'a> Packed16<'a> {
    /// Bytes of a packed `[rows][k]` weight.
    ///
    /// # Errors
    /// [`CpuError::Catalog`] if a row does not hold whole blocks or the size leaves u64.
    pub fn bytes_for(dtype: Dtype, rows: u64, k: u64) -> Result<u64, CpuError> {
        let padded = rows.checked_next_multiple_of(ROWS as u64);
        let padded = padded.ok_or(CpuError::Shape {
            dtype: dtype.name(),
            rows,
            k,
        })?;
        Ok(dtype.device_bytes(padded, k)?)
    }

    /// A view of packed bytes, as [`Packed16::pack`] makes them.
    ///
    /// # Errors
    /// As [`Packed16::bytes_for`]; [`CpuError::Habit`] for types that are not multiplied as integers;
    /// [`CpuError::Length`] if `bytes` has another length.
    pub fn new(dtype: Dtype, bytes: &'a [u8], rows: usize, k: usize) -> Result<Self, CpuError> {
        let expected = Self::bytes_for(dtype, rows as u64, k as u64)?;
        if Layout::of(dtype).is_none() {
            return Err(CpuError::Habit {
                dtype: dtype.name(),
                expected: "f32 (exact mode)",
                given: "packed",
            });
        }
        if bytes.len() as u64 != expected {
            return Err(CpuError::Length {
                what: "packed weight (bytes)",
                expected: usize::try_from(expected).unwrap_or(usize::MAX),
                given: bytes.len(),
            });
        }
        Ok(Self {
            dtype,
            rows,
            k,
            bytes,
        })
    }

    /// Packs a weight into `out`, which has [`Packed16::bytes_for`] bytes.
    ///
    /// # Errors
    /// As [`Packed16::new`].
    pub fn pack(w: &Matrix<'_>, out: &'a mut [u8]) -> Result<Self, CpuError> {
        Packed16::new(w.dtype(), out, w.rows(), w.k())?;
        if let Coding::Blocks(storage) = &w.format().coding {
            let blocks = w.k() / w.format().block;
            let run = (ROWS * storage.device_bytes() * blocks).max(1);
            for (index, out) in out.chunks_exact_mut(run).enumerate() {
                pack_rows(w, storage, index * ROWS, out);
            }
        }
        Self::new(w.dtype(), out, w.rows(), w.k())
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.k
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes of sixteen rows from `16 * index` on.
    pub(crate) fn run(&self, index: usize) -> &'a [u8] {
        let runs = self.rows.div_ceil(ROWS).max(1);
        let each = self.bytes.len() / runs;
        &self.bytes[index * each..(index + 1) * each]
    }

    /// Rows of the range times an activation, as [`super::gemv_int8`] and with the same results.
    ///
    /// # Errors
    /// As [`super::gemv_int8`].
    pub fn gemv(
        &self,
        isa: Isa,
        x: &Activation<'_>,
        rows: Range<usize>,
        write: Write,
        y: &mut [f32],
    ) -> Result<(), CpuError> {
        let layout = meet(self.dtype, self.k, x)?;
        crate::matrix::check(self.rows, &rows, y)?;
        group::gemv(isa, (self, &layout), x, rows, write, y);
        Ok(())
    }

    /// The integers of sixteen rows from `16 * index` on: one entry per unit and row. For tests.
    ///
    /// # Errors
    /// As [`super::gemv_int8`].
    pub fn sums(
        &self,
        isa: Isa,
        x: &Activation<'_>,
        index: usize,
    ) -> Result<Vec<[Sums; ROWS]>, CpuError> {
        let layout = meet(self.dtype, self.k, x)?;
        let first = index.saturating_mul(ROWS);
        crate::matrix::check(self.rows, &(first..first.saturating_add(1)), &[0.0])?;
        Ok(group::sums(isa, (self, &layout), x, index))
    }
}

fn pack_rows(w: &Matrix<'_>, storage: &Blocks, first: usize, out: &mut [u8]) {
    let blocks = w.k() / w.format().block;
    let rows = ROWS.min(w.rows() - first);
    out.fill(0);
    let groups = w.format().block / 32;
    let mut at = 0;
    for block in 0..blocks {
        // Group `groups` stands for what belongs to the block as a whole.
        for group in 0..=groups {
            for (number, plane) in storage.planes.iter().enumerate() {
                let grouped = plane.block_bytes / plane.unit_bytes >= groups;
                let (part, bytes) = match (grouped, group == groups) {
                    (true, false) => (group, plane.block_bytes / groups),
                    (false, true) => (0, plane.block_bytes),
                    _ => continue,
                };
                let out = &mut out[at..at + ROWS * bytes];
                for row in 0..rows {
                    let from = ((first + row) * blocks + block) * plane.block_bytes;
                    let stored = &w.plane(number)[from + part * bytes..][..bytes];
                    interleave(stored, plane.unit_bytes, row, out);
                }
                at += ROWS * bytes;
            }
        }
    }
}

/// Writes the units of one row to its places among sixteen.
fn interleave(stored: &[u8], unit: usize, row: usize, out: &mut [u8]) {
    for (index, stored) in stored.chunks_exact(unit).enumerate() {
        let to = (index * ROWS + row) * unit;
        out[to..to + unit].copy_from_slice(stored);
    }
}
