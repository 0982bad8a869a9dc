//! Rows of a weight times an activation, as the GEMVs and the experts share it.

use std::ops::Range;

use refrain_kernels::Dtype;
use refrain_kernels::format::Coding;

use super::DecodeError;
use super::launch::{Call, Input};
use crate::{CpuError, Matrix, gemv_exact};

/// A vector that rows are multiplied with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Vector<'m> {
    /// f32, in exact mode.
    Exact(&'m [f32]),
}

/// Element type of the kernel's weights.
pub(super) fn dtype(call: &Call<'_>) -> Dtype {
    call.row.dtype.unwrap_or(Dtype::F32)
}

/// Rows of the weight of a kernel over the rows up to `end`: of a plain type nobody asks.
pub(super) fn rows(call: &Call<'_>, end: usize) -> Result<usize, DecodeError> {
    match dtype(call).format().coding {
        Coding::Plain(_) => Ok(end),
        Coding::Blocks(_) => call.size("rows"),
    }
}

/// The weight `[rows][k]` behind an argument.
pub(super) fn matrix<'m>(
    call: &mut Call<'m>,
    arg: &'static str,
    rows: usize,
    k: usize,
) -> Result<Matrix<'m>, DecodeError> {
    let dtype = dtype(call);
    let (rows, k) = (rows as u64, k as u64);
    let bytes = dtype.device_bytes(rows, k)?;
    let input = call.input(arg)?;
    // It lies in a buffer of this length.
    let bytes = input.slice(0..bytes as usize)?;
    Matrix::new(dtype, bytes, rows, k).map_err(|source| refused(call, source))
}

/// Vector `index` of as many elements, of `count` that lie behind the argument.
pub(super) fn vector<'m>(
    x: &Input<'m>,
    index: usize,
    count: usize,
    k: usize,
) -> Result<Vector<'m>, DecodeError> {
    debug_assert!(index < count);
    Ok(Vector::Exact(x.floats(index * k..(index + 1) * k)?))
}

pub(super) fn refused(call: &Call<'_>, source: CpuError) -> DecodeError {
    DecodeError::Engine {
        symbol: call.row.symbol,
        source,
    }
}

/// `y = W[rows] x`, rows divided over the team.
pub(super) fn multiply(
    call: &Call<'_>,
    w: &Matrix<'_>,
    x: Vector<'_>,
    rows: Range<usize>,
    y: &mut [f32],
) -> Result<(), DecodeError> {
    let isa = call.isa;
    let done = call.team.rows(y, |first, y| {
        let start = rows.start + first;
        match x {
            Vector::Exact(x) => gemv_exact(isa, w, x, start..start + y.len(), y),
        }
    });
    done.map_err(|source| refused(call, source))
}
