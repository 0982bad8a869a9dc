//! Rows of a weight times an activation, as the GEMVs and the experts share it.

use std::ops::Range;

use refrain_kernels::format::Coding;
use refrain_kernels::{Dtype, Habit};

use super::DecodeError;
use super::launch::{Call, Input};
use crate::int8::{Activation, Write};
use crate::{CpuError, Matrix};

/// What rows are multiplied with.
#[derive(Debug)]
pub(super) enum Vector<'m> {
    /// f32, in exact mode.
    Exact(&'m [f32]),
    /// int8 in the kernel's form.
    Codes(Activation<'m>),
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

/// The vector of `k` elements behind an argument.
pub(super) fn vector<'m>(
    call: &Call<'_>,
    x: &Input<'m>,
    k: usize,
) -> Result<Vector<'m>, DecodeError> {
    let Some(habit) = call.row.habit else {
        return Ok(Vector::Exact(x.floats(0..k)?));
    };
    let bytes = x.slice(0..habit.bytes(k)?)?;
    let codes = Activation::new(habit, bytes, k);
    Ok(Vector::Codes(
        codes.map_err(|source| refused(call, source))?,
    ))
}

/// Bytes of vector `index` of `count` in one int8 buffer, as a buffer of its own.
pub(super) fn one_of(
    x: &[u8],
    habit: Habit,
    (index, count): (usize, usize),
    k: usize,
) -> Result<Vec<u8>, DecodeError> {
    let all = count * k;
    let mut out = Vec::with_capacity(habit.bytes(k)?);
    // Codes, scales, and sums where the form has them: each is one array over all vectors.
    let starts = [
        0,
        habit.scales_at(all),
        habit.sums_at(all),
        habit.bytes(all)?,
    ];
    for part in starts.windows(2) {
        let each = (part[1] - part[0]) / count;
        let from = part[0] + index * each;
        out.extend_from_slice(x.get(from..from + each).unwrap_or_default());
    }
    Ok(out)
}

pub(super) fn refused(call: &Call<'_>, source: CpuError) -> DecodeError {
    DecodeError::Engine {
        symbol: call.row.symbol,
        source,
    }
}

/// `y = W[rows] x`, rows divided over the threads.
pub(super) fn multiply(
    call: &Call<'_>,
    w: &Matrix<'_>,
    x: &Vector<'_>,
    rows: Range<usize>,
    y: &mut [f32],
) -> Result<(), DecodeError> {
    let done = match x {
        Vector::Exact(x) => call.engine.gemv_exact(w, x, rows, y),
        Vector::Codes(x) => call.engine.gemv_int8(w, x, rows, Write::Set, y),
    };
    done.map_err(|source| refused(call, source))
}
