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
    /// An activation of another form than the format multiplies with.
    #[error(
        "{dtype} is multiplied with {expected} activations, {given} given; quantise the activation to that form"
    )]
    Habit {
        /// Element type of the weight.
        dtype: &'static str,
        /// Form by the format.
        expected: &'static str,
        /// Form given.
        given: &'static str,
    },
    /// A code of an activation that no quantiser makes.
    #[error(
        "activation code {at} is -128, codes are -127 to 127; the buffer was overwritten or never quantised"
    )]
    Code {
        /// Element.
        at: usize,
    },
    /// No thread to be had.
    #[error("a worker thread could not be started: {reason}; use fewer threads")]
    Thread {
        /// What the system said.
        reason: String,
    },
    /// A worker panicked.
    #[error(
        "a worker of the pool panicked, the product is incomplete; this is a bug of the engine"
    )]
    Worker,
    /// No memory to be had.
    #[error("{bytes} bytes could not be mapped: {reason}; plan fewer packed weights")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said.
        reason: String,
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
