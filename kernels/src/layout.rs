//! From the bytes of a model file to the layout that the kernels read, and back.
//!
//! Only Q8_0 differs. A GGUF block is 34 bytes, f16 d then 32 i8 q, so its quants are never
//! 16-byte aligned; the planar layout keeps quants and scales apart: i8 `[rows][cols]`, then at byte
//! `rows * cols` f16 `[rows][cols / 32]`. `rows * cols` is a multiple of 32, so both planes stay
//! aligned when the tensor is.

use std::borrow::Cow;

use crate::{CatalogError, Dtype};

/// Bytes of a GGUF Q8_0 block: f16 scale, then 32 i8 quants.
const BLOCK_BYTES: usize = 34;
/// Bytes of its scale.
const SCALE_BYTES: usize = 2;
/// Its elements.
const BLOCK: usize = 32;

fn checked(dtype: Dtype, bytes: &[u8], rows: u64, cols: u64) -> Result<usize, CatalogError> {
    let expected = dtype.file_bytes(rows, cols)?;
    if bytes.len() as u64 != expected {
        return Err(CatalogError::Bytes {
            dtype: dtype.name(),
            rows,
            cols,
            expected,
            given: bytes.len() as u64,
        });
    }
    Ok(bytes.len() / BLOCK_BYTES * BLOCK)
}

/// The device layout of a `[rows][cols]` tensor given in file layout. Plain types are borrowed.
///
/// # Errors
/// [`CatalogError::Bytes`] if `file` is not exactly the tensor, otherwise as
/// [`Dtype::file_bytes`].
pub fn relayout(
    dtype: Dtype,
    file: &[u8],
    rows: u64,
    cols: u64,
) -> Result<Cow<'_, [u8]>, CatalogError> {
    let quant_bytes = checked(dtype, file, rows, cols)?;
    if dtype != Dtype::Q8_0 {
        return Ok(Cow::Borrowed(file));
    }
    let mut device = vec![0; file.len()];
    let (quants, scales) = device.split_at_mut(quant_bytes);
    let planes = quants
        .chunks_exact_mut(BLOCK)
        .zip(scales.chunks_exact_mut(SCALE_BYTES));
    for (block, (quant, scale)) in file.chunks_exact(BLOCK_BYTES).zip(planes) {
        let (d, q) = block.split_at(SCALE_BYTES);
        scale.copy_from_slice(d);
        quant.copy_from_slice(q);
    }
    Ok(Cow::Owned(device))
}

/// The file layout of a `[rows][cols]` tensor given in device layout: the inverse of [`relayout`].
///
/// # Errors
/// As [`relayout`].
pub fn file_layout(
    dtype: Dtype,
    device: &[u8],
    rows: u64,
    cols: u64,
) -> Result<Cow<'_, [u8]>, CatalogError> {
    let quant_bytes = checked(dtype, device, rows, cols)?;
    if dtype != Dtype::Q8_0 {
        return Ok(Cow::Borrowed(device));
    }
    let (quants, scales) = device.split_at(quant_bytes);
    let mut file = Vec::with_capacity(device.len());
    for (quant, scale) in quants
        .chunks_exact(BLOCK)
        .zip(scales.chunks_exact(SCALE_BYTES))
    {
        file.extend_from_slice(scale);
        file.extend_from_slice(quant);
    }
    Ok(Cow::Owned(file))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::{any, proptest};

    use super::{file_layout, relayout};
    use crate::{CatalogError, Dtype};

    #[test]
    fn q8_0_planes_are_where_the_kernels_look() {
        // Two rows of two blocks; block b has scale bytes (b, 0x80 + b) and quants 32 b + i.
        let mut file = Vec::new();
        for block in 0..4u8 {
            file.extend([block, 0x80 + block]);
            file.extend((0..32).map(|i| block * 32 + i));
        }
        let device = relayout(Dtype::Q8_0, &file, 2, 64).unwrap();
        for (row, col) in [(0usize, 0usize), (0, 33), (1, 0), (1, 63)] {
            assert_eq!(usize::from(device[row * 64 + col]), row * 64 + col);
            let scale = 2 * 64 + (row * 2 + col / 32) * 2;
            let block = (row * 2 + col / 32) as u8;
            assert_eq!(device[scale..scale + 2], [block, 0x80 + block]);
        }
    }

    #[test]
    fn plain_types_are_borrowed() {
        let file = [1, 2, 3, 4, 5, 6, 7, 8];
        assert!(matches!(
            relayout(Dtype::F16, &file, 2, 2),
            Ok(Cow::Borrowed(_))
        ));
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let file = vec![0; 68];
        for (rows, cols) in [(1, 32), (3, 32), (2, 64), (0, 32)] {
            assert!(
                matches!(
                    relayout(Dtype::Q8_0, &file, rows, cols),
                    Err(CatalogError::Bytes { given: 68, .. })
                ),
                "[{rows}][{cols}]"
            );
        }
        assert!(matches!(
            relayout(Dtype::Q8_0, &file, 2, 34),
            Err(CatalogError::Block { .. })
        ));
        assert!(relayout(Dtype::F32, &file, 1 << 62, 1 << 62).is_err());
    }

    proptest! {
        #[test]
        fn file_layout_inverts_relayout(
            rows in 1u64..5, blocks in 1u64..5, seed in any::<u8>(), dtype in 0usize..4,
        ) {
            let dtype = Dtype::ALL[dtype];
            let cols = blocks * 32;
            let length = dtype.file_bytes(rows, cols).unwrap();
            let file: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
            let device = relayout(dtype, &file, rows, cols).unwrap();
            let back = file_layout(dtype, &device, rows, cols).unwrap();
            assert_eq!(back.as_ref(), &file[..]);
        }
    }
}
