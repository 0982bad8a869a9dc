//! A checked view of a weight in device layout: type, shape and bytes fit each other.

use std::ops::Range;

use refrain_kernels::format::{Coding, Plane, PlaneKind};
use refrain_kernels::{Dtype, Format};

use crate::CpuError;

/// Most planes of a format.
const PLANES: usize = 4;

/// A weight `[rows][k]` in device layout.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    dtype: Dtype,
    rows: usize,
    k: usize,
    bytes: &'a [u8],
    /// First byte of each plane; the end of the bytes for planes that the format does not have.
    starts: [usize; PLANES],
}

impl<'a> Matrix<'a> {
    /// A view of exactly the tensor's bytes.
    ///
    /// # Errors
    /// [`CpuError::Catalog`] if a row does not hold whole blocks or `bytes` has another length,
    /// [`CpuError::Shape`] if rows times k leaves the address space.
    pub fn new(dtype: Dtype, bytes: &'a [u8], rows: u64, k: u64) -> Result<Self, CpuError> {
        let expected = dtype.device_bytes(rows, k)?;
        if expected != bytes.len() as u64 {
            return Err(CpuError::Catalog(refrain_kernels::CatalogError::Bytes {
                dtype: dtype.name(),
                rows,
                cols: k,
                expected,
                given: bytes.len() as u64,
            }));
        }
        let elements = rows.checked_mul(k).filter(|n| usize::try_from(*n).is_ok());
        let sizes = (usize::try_from(rows), usize::try_from(k), elements);
        let (Ok(rows), Ok(k), Some(_)) = sizes else {
            let dtype = dtype.name();
            return Err(CpuError::Shape { dtype, rows, k });
        };
        let mut starts = [bytes.len(); PLANES];
        starts[0] = 0;
        if let Coding::Blocks(blocks) = &dtype.format().coding {
            let count = k / dtype.format().block * rows;
            let mut at = 0;
            for (start, plane) in starts.iter_mut().zip(blocks.planes) {
                *start = at;
                at += plane.block_bytes * count;
            }
        }
        Ok(Self {
            dtype,
            rows,
            k,
            bytes,
            starts,
        })
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

    pub(crate) const fn format(&self) -> &'static Format {
        self.dtype.format()
    }

    /// Planes of the format; none for plain types.
    pub(crate) const fn planes(&self) -> &'static [Plane] {
        match &self.format().coding {
            Coding::Blocks(blocks) => blocks.planes,
            Coding::Plain(_) => &[],
        }
    }

    /// The planes of parameters, each from its start; empty where there is none.
    pub(crate) fn params(&self) -> (&'a [u8], &'a [u8]) {
        let is = |plane: &Plane| plane.kind == PlaneKind::Params;
        let Some(first) = self.planes().iter().position(is) else {
            return (&[], &[]);
        };
        let last = first + 1;
        let last = if last < self.planes().len() {
            self.plane(last)
        } else {
            &[]
        };
        (self.plane(first), last)
    }

    /// Bytes of plane `index` from its start; empty where the format has no such plane.
    pub(crate) fn plane(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.starts[index]..]
    }

    /// Bytes of `elements` elements from element `at` (through all rows) of the plane of this kind.
    pub(crate) fn bits(&self, kind: PlaneKind, at: usize, elements: usize) -> Option<&'a [u8]> {
        let Coding::Blocks(blocks) = &self.format().coding else {
            return None;
        };
        let of_kind = |plane: &Plane| plane.kind == kind;
        let index = blocks.planes.iter().position(of_kind)?;
        let (bytes, block) = (blocks.planes[index].block_bytes, self.format().block);
        let first = at * bytes / block;
        Some(&self.plane(index)[first..first + elements * bytes / block])
    }

    /// Refuses rows past the end and an output of another length.
    pub(crate) fn check(&self, rows: &Range<usize>, y: &[f32]) -> Result<(), CpuError> {
        check(self.rows, rows, y)
    }
}

/// Refuses rows past the end of `rows` and an output of another length.
pub(crate) fn check(rows: usize, range: &Range<usize>, y: &[f32]) -> Result<(), CpuError> {
    if range.start > range.end || range.end > rows {
        return Err(CpuError::Rows {
            start: range.start,
            end: range.end,
            rows,
        });
    }
    if y.len() != range.len() {
        return Err(CpuError::Length {
            what: "y",
            expected: range.len(),
            given: y.len(),
        });
    }
    Ok(())
}
