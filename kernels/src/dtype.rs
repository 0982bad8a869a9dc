//! Element types of weights and caches, and the bytes of a tensor in the file and on the device.

use std::fmt;

use crate::CatalogError;
use crate::format::{Coding, Format};

/// The element type of a weight, an embedding table or a key-value cache. What each is made of stands
/// in its row, [`Dtype::format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    non_camel_case_types,
    reason = "the names that GGUF and HFQ give their tensor types"
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
    /// Blocks of 32, x = d * (q - 8) with 4-bit q.
    Q4_0,
    /// Blocks of 32, x = d * q + m with 4-bit q.
    Q4_1,
    /// Blocks of 32, x = d * (q - 16) with 5-bit q.
    Q5_0,
    /// Blocks of 32, x = d * q + m with 5-bit q.
    Q5_1,
    /// Blocks of 256, 8 groups of 4-bit q with 6-bit scales and minimums.
    Q4_K,
    /// Blocks of 256, 8 groups of 5-bit q with 6-bit scales and minimums.
    Q5_K,
    /// Blocks of 256, 16 groups of 6-bit q with i8 scales.
    Q6_K,
    /// Blocks of 32, 4-bit indices into one table of 16 levels.
    IQ4_NL,
    /// Blocks of 32, E2M1 floats with one power of two (OCP microscaling).
    MXFP4,
    /// Blocks of 256, 4-bit q, f32 scale and zero.
    HFQ4_G256,
    /// [`Dtype::HFQ4_G256`] of rotated weights.
    MQ4_G256,
    /// Blocks of 256, 4-bit q, f16 scale and zero per 128, of rotated weights.
    MQ4_G256_V2,
    /// Blocks of 256, 4-bit q, f16 scale and zero, of rotated weights.
    MQ4C_G256,
    /// Blocks of 256, 6-bit q, f32 scale and zero.
    HFQ6_G256,
    /// [`Dtype::HFQ6_G256`] of rotated weights.
    MQ6_G256,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Dtype; 19] = [
        Dtype::F32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::Q8_0,
        Dtype::Q4_0,
        Dtype::Q4_1,
        Dtype::Q5_0,
        Dtype::Q5_1,
        Dtype::Q4_K,
        Dtype::Q5_K,
        Dtype::Q6_K,
        Dtype::IQ4_NL,
        Dtype::MXFP4,
        Dtype::HFQ4_G256,
        Dtype::MQ4_G256,
        Dtype::MQ4_G256_V2,
        Dtype::MQ4C_G256,
        Dtype::HFQ6_G256,
        Dtype::MQ6_G256,
    ];

    /// The row that describes the type.
    #[must_use]
    pub const fn format(self) -> &'static Format {
        &Format::ALL[self as usize]
    }

    /// The name used in kernel symbols.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.format().name
    }

    /// The type of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Dtype> {
        let mut rows = Format::ALL.iter();
        rows.find(|row| row.name == name).map(|row| row.dtype)
    }

    /// Elements per block; a row holds whole blocks.
    #[must_use]
    pub const fn block(self) -> u64 {
        self.format().block as u64
    }

    /// Bytes of one element, for the types without blocks.
    #[must_use]
    pub const fn element_bytes(self) -> Option<u64> {
        match self.format().block {
            1 => Some(self.format().block_bytes as u64),
            _ => None,
        }
    }

    /// Bytes of a `[rows][cols]` tensor in the model file.
    ///
    /// # Errors
    /// [`CatalogError::Block`] if a row does not hold whole blocks, [`CatalogError::Size`] if the
    /// product leaves u64.
    pub fn file_bytes(self, rows: u64, cols: u64) -> Result<u64, CatalogError> {
        self.bytes(self.format().block_bytes, rows, cols)
    }

    /// Bytes of a `[rows][cols]` tensor in the layout that the kernels read: the file's for plain
    /// types, otherwise the planes of [`crate::format`], of which few change the size.
    ///
    /// # Errors
    /// As [`Dtype::file_bytes`].
    pub fn device_bytes(self, rows: u64, cols: u64) -> Result<u64, CatalogError> {
        let block_bytes = match &self.format().coding {
            Coding::Plain(_) => self.format().block_bytes,
            Coding::Blocks(blocks) => blocks.device_bytes(),
        };
        self.bytes(block_bytes, rows, cols)
    }

    fn bytes(self, block_bytes: usize, rows: u64, cols: u64) -> Result<u64, CatalogError> {
        let (dtype, block) = (self.name(), self.block());
        if !cols.is_multiple_of(block) {
            return Err(CatalogError::Block { dtype, cols, block });
        }
        (cols / block)
            .checked_mul(block_bytes as u64)
            .and_then(|row_bytes| row_bytes.checked_mul(rows))
            .ok_or(CatalogError::Size { dtype, rows, cols })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Dtype;
    use crate::CatalogError;
    use crate::format::Format;

    #[test]
    fn table_order_is_the_enum_order() {
        assert_eq!(Format::ALL.len(), Dtype::ALL.len());
        for (index, row) in Format::ALL.iter().enumerate() {
            assert_eq!(row.dtype as usize, index);
            assert_eq!(Dtype::ALL[index], row.dtype);
            assert_eq!(Dtype::parse(row.name), Some(row.dtype));
        }
    }

    /// Columns, then bytes of three rows in the file and on the device.
    #[test]
    fn sizes() {
        let cases = [
            (Dtype::F32, 5, 60, 60),
            (Dtype::F16, 5, 30, 30),
            (Dtype::BF16, 5, 30, 30),
            (Dtype::Q8_0, 64, 3 * 2 * 34, 3 * 2 * 34),
            (Dtype::Q4_0, 64, 3 * 2 * 18, 3 * 2 * 18),
            (Dtype::Q4_1, 64, 3 * 2 * 20, 3 * 2 * 20),
            (Dtype::Q5_0, 64, 3 * 2 * 22, 3 * 2 * 22),
            (Dtype::Q5_1, 64, 3 * 2 * 24, 3 * 2 * 24),
            (Dtype::Q4_K, 512, 3 * 2 * 144, 3 * 2 * 148),
            (Dtype::Q5_K, 512, 3 * 2 * 176, 3 * 2 * 180),
            (Dtype::Q6_K, 512, 3 * 2 * 210, 3 * 2 * 210),
            (Dtype::IQ4_NL, 64, 3 * 2 * 18, 3 * 2 * 18),
            (Dtype::MXFP4, 64, 3 * 2 * 17, 3 * 2 * 17),
            (Dtype::HFQ4_G256, 512, 3 * 2 * 136, 3 * 2 * 136),
            (Dtype::MQ4_G256, 512, 3 * 2 * 136, 3 * 2 * 136),
            (Dtype::MQ4_G256_V2, 512, 3 * 2 * 136, 3 * 2 * 136),
            (Dtype::MQ4C_G256, 512, 3 * 2 * 136, 3 * 2 * 132),
            (Dtype::HFQ6_G256, 512, 3 * 2 * 200, 3 * 2 * 200),
            (Dtype::MQ6_G256, 512, 3 * 2 * 200, 3 * 2 * 200),
        ];
        assert_eq!(cases.len(), Dtype::ALL.len());
        for (dtype, cols, file, device) in cases {
            assert_eq!(dtype.file_bytes(3, cols), Ok(file), "{dtype}");
            assert_eq!(dtype.device_bytes(3, cols), Ok(device), "{dtype}");
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
