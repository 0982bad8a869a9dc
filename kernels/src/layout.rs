//! From the bytes of a model file to the layout that the kernels read, and back.
//!
//! Plain types are the same in both. The others become the planes of their row in [`crate::format`]:
//! a Q8_0 block of a GGUF file, for example, is 34 bytes, so its quants are never 16-byte aligned,
//! where its first plane, i8 `[rows][cols]`, is.

use std::borrow::Cow;

use crate::format::{Block, Blocks, Coding};
use crate::{CatalogError, Dtype};

/// Refuses bytes that are not exactly the tensor.
fn checked(
    dtype: Dtype,
    bytes: &[u8],
    expected: u64,
    rows: u64,
    cols: u64,
) -> Result<(), CatalogError> {
    if bytes.len() as u64 != expected {
        return Err(CatalogError::Bytes {
            dtype: dtype.name(),
            rows,
            cols,
            expected,
            given: bytes.len() as u64,
        });
    }
    Ok(())
}

/// Where each plane of a tensor of `blocks` blocks starts, and where its bytes of a block's parameters
/// start among the block's parameters.
fn places(storage: &Blocks, blocks: usize) -> Vec<(usize, usize)> {
    let (mut at, mut param) = (0, 0);
    let mut places = Vec::with_capacity(storage.planes.len());
    for plane in storage.planes {
        places.push((at, param));
        at += plane.block_bytes * blocks;
        if plane.kind == crate::format::PlaneKind::Params {
            param += plane.block_bytes;
        }
    }
    places
}

/// Byte at which plane `plane` of a `[rows][cols]` tensor starts in device layout; 0 for plain types.
///
/// # Errors
/// As [`Dtype::device_bytes`].
pub fn plane_offset(dtype: Dtype, plane: usize, rows: u64, cols: u64) -> Result<u64, CatalogError> {
    dtype.device_bytes(rows, cols)?;
    let Coding::Blocks(storage) = &dtype.format().coding else {
        return Ok(0);
    };
    let before = storage.planes.iter().take(plane);
    let block_bytes: usize = before.map(|plane| plane.block_bytes).sum();
    Ok(cols / dtype.block() * rows * block_bytes as u64)
}

/// The device layout of a `[rows][cols]` tensor given in file layout. Plain types are borrowed.
///
/// # Errors
/// [`CatalogError::Bytes`] if `file` is not exactly the tensor, [`CatalogError::Reserved`] if a byte is
/// set that the device layout leaves out, otherwise as [`Dtype::file_bytes`].
pub fn relayout(
    dtype: Dtype,
    file: &[u8],
    rows: u64,
    cols: u64,
) -> Result<Cow<'_, [u8]>, CatalogError> {
    checked(dtype, file, dtype.file_bytes(rows, cols)?, rows, cols)?;
    let format = dtype.format();
    let Coding::Blocks(storage) = &format.coding else {
        return Ok(Cow::Borrowed(file));
    };
    let blocks = file.len() / format.block_bytes;
    let mut device = vec![0; storage.device_bytes() * blocks];
    let places = places(storage, blocks);
    let mut block = Block::default();
    for (index, bytes) in file.chunks_exact(format.block_bytes).enumerate() {
        let reserved = &bytes[storage.reserved.0..storage.reserved.1];
        if let Some(set) = reserved.iter().position(|byte| *byte != 0) {
            let offset = index * format.block_bytes + storage.reserved.0 + set;
            return Err(CatalogError::Reserved {
                dtype: format.name,
                offset: offset as u64,
                value: reserved[set],
            });
        }
        storage.split(bytes, &mut block);
        for (plane, (at, param)) in storage.planes.iter().zip(&places) {
            let out = &mut device[at + index * plane.block_bytes..][..plane.block_bytes];
            plane.put(&block, *param, out);
        }
    }
    Ok(Cow::Owned(device))
}

/// Block `index`, counted through all rows, of a tensor in device layout.
fn gather(storage: &Blocks, places: &[(usize, usize)], device: &[u8], index: usize) -> Block {
    let mut block = Block::default();
    for (plane, (at, param)) in storage.planes.iter().zip(places) {
        let bytes = &device[at + index * plane.block_bytes..][..plane.block_bytes];
        plane.take(bytes, *param, &mut block);
    }
    block
}

/// The file layout of a `[rows][cols]` tensor given in device layout: the inverse of [`relayout`].
///
/// # Errors
/// As [`relayout`]; [`CatalogError::NoFileForm`] for a block that no file holds, for example a Q4_K
/// scale above 63.
pub fn file_layout(
    dtype: Dtype,
    device: &[u8],
    rows: u64,
    cols: u64,
) -> Result<Cow<'_, [u8]>, CatalogError> {
    checked(dtype, device, dtype.device_bytes(rows, cols)?, rows, cols)?;
    let format = dtype.format();
    let Coding::Blocks(storage) = &format.coding else {
        return Ok(Cow::Borrowed(device));
    };
    let blocks = device.len() / storage.device_bytes();
    let places = places(storage, blocks);
    let mut file = vec![0; format.block_bytes * blocks];
    let mut back = Block::default();
    for (index, bytes) in file.chunks_exact_mut(format.block_bytes).enumerate() {
        let block = gather(storage, &places, device, index);
        storage.join(&block, bytes);
        storage.split(bytes, &mut back);
        if block.params != back.params {
            return Err(CatalogError::NoFileForm {
                dtype: format.name,
                block: index as u64,
            });
        }
    }
    Ok(Cow::Owned(file))
}

/// Row `row` of a `[rows][cols]` tensor in device layout, decoded to f32 as [`crate::Format::decode`]
/// decodes its file blocks: the values that exact mode multiplies with.
///
/// # Errors
/// [`CatalogError::Bytes`] if `device` is not exactly the tensor or `out` not `cols` long,
/// [`CatalogError::Row`] if there is no such row, otherwise as [`Dtype::device_bytes`].
pub fn decode_row(
    dtype: Dtype,
    device: &[u8],
    (rows, cols): (u64, u64),
    row: u64,
    out: &mut [f32],
) -> Result<(), CatalogError> {
    checked(dtype, device, dtype.device_bytes(rows, cols)?, rows, cols)?;
    if row >= rows {
        let dtype = dtype.name();
        return Err(CatalogError::Row {
            dtype,
            row,
            rows,
            cols,
        });
    }
    if out.len() as u64 != cols {
        return Err(CatalogError::Bytes {
            dtype: "f32",
            rows: 1,
            cols,
            expected: cols.saturating_mul(4),
            given: 4 * out.len() as u64,
        });
    }
    let format = dtype.format();
    let blocks = (cols / dtype.block()) as usize;
    let first = row as usize * blocks;
    match &format.coding {
        Coding::Plain(value) => {
            let bytes = device.chunks_exact(format.block_bytes).skip(first);
            out.iter_mut().zip(bytes).for_each(|(x, b)| *x = value(b));
        }
        Coding::Blocks(storage) => {
            let places = places(storage, rows as usize * blocks);
            for (index, out) in out.chunks_exact_mut(format.block).enumerate() {
                let block = gather(storage, &places, device, first + index);
                storage.values(&block, out);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use proptest::prelude::{any, proptest};

    use super::{decode_row, file_layout, plane_offset, relayout};
    use crate::format::Coding;
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

    /// The words that a kernel unpacks: low nibbles by one mask, high bits by one shift and mask.
    #[test]
    fn codes_unpack_by_words() {
        for dtype in [Dtype::Q5_K, Dtype::Q6_K] {
            let format = dtype.format();
            let Coding::Blocks(storage) = &format.coding else {
                unreachable!()
            };
            let file: Vec<u8> = (0..format.block_bytes)
                .map(|i| (i * 37 + 11) as u8)
                .collect();
            let device = relayout(dtype, &file, 1, 256).unwrap();
            let mut block = crate::format::Block::default();
            storage.split(&file, &mut block);
            let word = |at: usize| u32::from_le_bytes(device[at..at + 4].try_into().unwrap());
            for element in (0..256).step_by(4) {
                let (group, inside) = (element / 32, element % 32);
                let low = word(16 * group + inside % 16);
                let low = if inside < 16 { low } else { low >> 4 } & 0x0f0f_0f0f;
                let high = if dtype == Dtype::Q5_K {
                    word(128 + 4 * group) >> (inside / 4) & 0x0101_0101
                } else {
                    word(128 + 4 * (element / 16)) >> (2 * (element % 16 / 4)) & 0x0303_0303
                };
                let codes = (low | high << 4).to_le_bytes();
                assert_eq!(
                    codes,
                    block.codes[element..element + 4],
                    "{dtype} {element}"
                );
            }
        }
    }

    #[test]
    fn rows_of_the_first_plane_are_aligned() {
        for dtype in Dtype::ALL {
            let Coding::Blocks(storage) = &dtype.format().coding else {
                continue;
            };
            assert!(storage.planes[0].block_bytes.is_multiple_of(16), "{dtype}");
            let cols = dtype.block() * 3;
            let mut at = 0;
            for (index, plane) in storage.planes.iter().enumerate() {
                assert_eq!(plane_offset(dtype, index, 5, cols), Ok(at), "{dtype}");
                at += 15 * plane.block_bytes as u64;
            }
            assert_eq!(dtype.device_bytes(5, cols), Ok(at));
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
        let mut out = [0.0; 32];
        assert!(decode_row(Dtype::Q8_0, &file, (2, 32), 1, &mut out).is_ok());
        assert!(decode_row(Dtype::Q8_0, &file, (2, 32), 2, &mut out).is_err());
        assert!(decode_row(Dtype::Q8_0, &file, (2, 32), 1, &mut out[1..]).is_err());
    }

    #[test]
    fn what_one_layout_cannot_hold_is_refused() {
        let mut file = vec![0; 2 * 136];
        file[136 + 5] = 9;
        assert_eq!(
            relayout(Dtype::MQ4C_G256, &file, 2, 256),
            Err(CatalogError::Reserved {
                dtype: "mq4c_g256",
                offset: 141,
                value: 9
            })
        );
        let mut device = vec![0; 2 * 148];
        device[2 * 128 + 16] = 64;
        assert_eq!(
            file_layout(Dtype::Q4_K, &device, 2, 256),
            Err(CatalogError::NoFileForm {
                dtype: "q4_k",
                block: 1
            })
        );
    }

    proptest! {
        #[test]
        fn file_layout_inverts_relayout(
            rows in 1u64..5, blocks in 1u64..3, seed in any::<u64>(), dtype in 0usize..19,
        ) {
            let dtype = Dtype::ALL[dtype];
            let format = dtype.format();
            let cols = blocks * 256;
            let length = dtype.file_bytes(rows, cols).unwrap();
            let mut state = seed;
            let mut file: Vec<u8> = (0..length).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            }).collect();
            if let Coding::Blocks(storage) = &format.coding {
                for block in file.chunks_exact_mut(format.block_bytes) {
                    block[storage.reserved.0..storage.reserved.1].fill(0);
                }
            }
            let device = relayout(dtype, &file, rows, cols).unwrap();
            let back = file_layout(dtype, &device, rows, cols).unwrap();
            assert_eq!(back.as_ref(), &file[..]);
            // The last row decodes alike from both.
            let mut from_device = vec![0.0; cols as usize];
            decode_row(dtype, &device, (rows, cols), rows - 1, &mut from_device).unwrap();
            let row = &file[file.len() - file.len() / rows as usize..];
            let mut want = vec![0.0; format.block];
            for (bytes, got) in row.chunks(format.block_bytes).zip(from_device.chunks(format.block)) {
                format.decode(bytes, &mut want).unwrap();
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(got), bits(&want), "{}", dtype);
            }
        }
    }
}
