//! Element types of weights and caches, and the bytes of a tensor in the file and on the device.

use std::fmt;

use crate::CatalogError;

/// The element type of a weight, an embedding table or a key-value cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    non_camel_case_types,
    reason = "the names that GGUF gives its tensor types"
)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Blocks of 32 elements, x = d * q with an f16 d and an i8 q.
    Q8_0,
}

/// One row per type.
struct DtypeRow {
    dtype: Dtype,
    name: &'static str,
    /// Elements of a block.
    block: u64,
    /// Bytes of a block in the GGUF file and, in another order, on the device.
    block_bytes: u64,
}

const DTYPES: [DtypeRow; 4] = [
    DtypeRow {
        dtype: Dtype::F32,
        name: "f32",
        block: 1,
        block_bytes: 4,
    },
    DtypeRow {
        dtype: Dtype::F16,
        name: "f16",
        block: 1,
        block_bytes: 2,
    },
    DtypeRow {
        dtype: Dtype::BF16,
        name: "bf16",
        block: 1,
        block_bytes: 2,
    },
    DtypeRow {
        dtype: Dtype::Q8_0,
        name: "q8_0",
        block: 32,
        block_bytes: 34,
    },
];

impl Dtype {
    /// Every type.
    pub const ALL: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::Q8_0];

    const fn row(self) -> &'static DtypeRow {
        &DTYPES[self as usize]
    }

    /// The name used in kernel symbols.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The type of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Dtype> {
        DTYPES
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.dtype)
    }

    /// Elements per block; a row holds whole blocks.
    #[must_use]
    pub const fn block(self) -> u64 {
        self.row().block
    }

    /// Bytes of one element, for the types without blocks.
    #[must_use]
    pub const fn element_bytes(self) -> Option<u64> {
        match self.row().block {
            1 => Some(self.row().block_bytes),
            _ => None,
        }
    }

    /// Bytes of a `[rows][cols]` tensor in the model file.
    ///
    /// # Errors
    /// [`CatalogError::Block`] if a row does not hold whole blocks, [`CatalogError::Size`] if the
    /// product leaves u64.
    pub fn file_bytes(self, rows: u64, cols: u64) -> Result<u64, CatalogError> {
        let row = self.row();
        if !cols.is_multiple_of(row.block) {
            return Err(CatalogError::Block {
                dtype: row.name,
                cols,
                block: row.block,
            });
        }
        (cols / row.block)
            .checked_mul(row.block_bytes)
            .and_then(|row_bytes| row_bytes.checked_mul(rows))
            .ok_or(CatalogError::Size {
                dtype: row.name,
                rows,
                cols,
            })
    }

    /// Bytes of a `[rows][cols]` tensor in the layout that the kernels read: the file's for plain
    /// types; for Q8_0 planar, quants `i8 [rows][cols]` followed without a gap by scales
    /// `f16 [rows][cols / 32]`. No layout changes the size.
    ///
    /// # Errors
    /// As [`Dtype::file_bytes`].
    pub fn device_bytes(self, rows: u64, cols: u64) -> Result<u64, CatalogError> {
        self.file_bytes(rows, cols)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{DTYPES, Dtype};
    use crate::CatalogError;

    #[test]
    fn table_order_is_the_enum_order() {
        for (index, row) in DTYPES.iter().enumerate() {
            assert_eq!(row.dtype as usize, index);
            assert_eq!(Dtype::ALL[index], row.dtype);
            assert_eq!(Dtype::parse(row.name), Some(row.dtype));
        }
    }

    #[test]
    fn sizes() {
        let cases = [
            (Dtype::F32, 3, 5, 60),
            (Dtype::F16, 3, 5, 30),
            (Dtype::BF16, 3, 5, 30),
            (Dtype::Q8_0, 3, 64, 3 * 2 * 34),
        ];
        for (dtype, rows, cols, bytes) in cases {
            assert_eq!(dtype.file_bytes(rows, cols), Ok(bytes), "{dtype}");
            assert_eq!(dtype.device_bytes(rows, cols), Ok(bytes), "{dtype}");
        }
        assert_eq!(
            Dtype::Q8_0.file_bytes(1, 33),
            Err(CatalogError::Block {
                dtype: "q8_0",
                cols: 33,
                block: 32
            })
        );
        assert!(matches!(
            Dtype::F32.file_bytes(1 << 60, 16),
            Err(CatalogError::Size { .. })
        ));
    }
}
