//! The one error type of the engine.

use refrain_kernels::CatalogError;
use thiserror::Error;

/// Why a product cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CpuError {
    /// Bytes, type and shape do not fit each other.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A shape that memory cannot hold.
    #[error("{dtype} [{rows}][{k}] has more elements than this machine addresses; check the shape")]
    Shape {
        /// Element type.
        dtype: &'static str,
        /// Rows.
        rows: u64,
        /// Columns.
        k: u64,
    },
    /// A vector of another length.
    #[error("{what} has {given} elements where {expected} are needed; pass the step's own buffer")]
    Length {
        /// Which vector.
        what: &'static str,
        /// Elements by the shape.
        expected: usize,
        /// Elements given.
        given: usize,
    },
    /// Rows past the end.
    #[error("rows {start}..{end} of a matrix of {rows}; check the split")]
    Rows {
        /// First row asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// Rows of the matrix.
        rows: usize,
    },
}
