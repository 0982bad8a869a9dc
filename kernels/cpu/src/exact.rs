//! Exact mode: f32 activations, weights decoded to f32, every row summed in the order that the GPU
//! kernels use (kernels/hip/gemv.hpp), so that a row is bit-equal whoever computes it.
//!
//! The order: a row is cut into blocks of 16 consecutive elements; block b belongs to partial b mod 32;
//! a partial goes over its blocks ascending and over the elements of each ascending with
//! acc = fma(w, x, acc) from +0; then partial i and i xor 16, 8, 4, 2, 1 are added in turn.

use refrain_kernels::{CatalogError, Dtype, decode_row};
use std::ops::Range;

/// Elements of a block of the order.
const BLOCK: usize = 16;
/// Partial sums of a row.
const PARTIALS: usize = 32;

/// Rows of a `[rows][k]` matrix in device layout times `x`: `y[i] = dot(W[range.start + i], x)`.
///
/// # Errors
/// [`CatalogError`] if `weights`, `x` or `y` have other lengths than matrix and range ask for, or the
/// matrix lacks a row of the range.
pub fn gemv_exact(
    dtype: Dtype,
    weights: &[u8],
    x: &[f32],
    range: Range<u32>,
    k: u32,
    rows: u32,
    y: &mut [f32],
) -> Result<(), CatalogError> {
    let shape = (u64::from(rows), u64::from(k));
    lengths(x.len(), u64::from(k))?;
    lengths(y.len(), u64::from(range.end.saturating_sub(range.start)))?;
    let mut row = vec![0.0; x.len()];
    for (index, out) in range.zip(y) {
        decode_row(dtype, weights, shape, u64::from(index), &mut row)?;
        *out = dot(&row, x);
    }
    Ok(())
}

fn lengths(found: usize, expected: u64) -> Result<(), CatalogError> {
    if found as u64 == expected {
        return Ok(());
    }
    Err(CatalogError::Bytes {
        dtype: "f32",
        rows: 1,
        cols: expected,
        expected: expected.saturating_mul(4),
        given: (found as u64).saturating_mul(4),
    })
}

/// The dot product of a decoded row in the written order.
fn dot(weights: &[f32], x: &[f32]) -> f32 {
    let mut partials = [0.0_f32; PARTIALS];
    let blocks = weights.chunks(BLOCK).zip(x.chunks(BLOCK));
    for (index, (weights, x)) in blocks.enumerate() {
        let partial = &mut partials[index % PARTIALS];
        for (weight, x) in weights.iter().zip(x) {
            *partial = weight.mul_add(*x, *partial);
        }
    }
    let mut width = PARTIALS / 2;
    while width > 0 {
        for index in 0..width {
            partials[index] += partials[index + width];
        }
        width /= 2;
    }
    partials[0]
}

#[cfg(test)]
mod tests {
    use super::gemv_exact;
    use refrain_kernels::Dtype;

    #[test]
    fn a_row_does_not_depend_on_the_range_and_lengths_are_checked() {
        let (rows, k) = (5_u32, 48_u32);
        let weights: Vec<f32> = (0..rows * k).map(|i| (i as f32 * 0.37).sin()).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        let x: Vec<f32> = (0..k).map(|i| (i as f32 * 0.11).cos()).collect();
        let mut whole = vec![0.0; 5];
        gemv_exact(Dtype::F32, &bytes, &x, 0..5, k, rows, &mut whole).unwrap();
        for row in 0..rows {
            let mut one = [0.0];
            gemv_exact(Dtype::F32, &bytes, &x, row..row + 1, k, rows, &mut one).unwrap();
            assert_eq!(one[0].to_bits(), whole[row as usize].to_bits());
            let exact: f64 = (0..k as usize)
                .map(|i| f64::from(weights[row as usize * k as usize + i]) * f64::from(x[i]))
                .sum();
            assert!((f64::from(one[0]) - exact).abs() < 1e-5);
        }
        let mut two = [0.0; 2];
        assert!(gemv_exact(Dtype::F32, &bytes, &x, 4..6, k, rows, &mut two).is_err());
        assert!(gemv_exact(Dtype::F32, &bytes, &x, 0..1, k, rows, &mut two).is_err());
        assert!(gemv_exact(Dtype::F32, &bytes, &x[1..], 0..2, k, rows, &mut two).is_err());
    }
}
