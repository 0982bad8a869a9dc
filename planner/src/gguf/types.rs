//! The ggml tensor types as one table: id, name, elements of a block, bytes of a block.
//! Decoding blocks is left to the quant codecs.

macro_rules! ggml_types {
    ($(($id:literal, $variant:ident, $name:literal, $elements:literal, $bytes:literal)),* $(,)?) => {
        /// A ggml tensor type. A row is stored as whole blocks, one after the other.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "the names are ggml's own")]
        pub enum GgmlType {
            $(
                #[doc = concat!($name, ": ", stringify!($elements), " elements in ", stringify!($bytes), " bytes.")]
                $variant,
            )*
        }

        impl GgmlType {
            /// Every known type, by ascending id.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant),*];

            const ROWS: &'static [(u32, &'static str, u64, u64)] = &[$(($id, $name, $elements, $bytes)),*];

            const fn row(self) -> (u32, &'static str, u64, u64) {
                match self {
                    $(GgmlType::$variant => ($id, $name, $elements, $bytes),)*
                }
            }
        }
    };
}

// ggml/include/ggml.h `enum ggml_type`, block structs of ggml/src/ggml-common.h. Q8_1 is 36 bytes there
// (two halves and 32 bytes); gguf-py says 40, its size before d and s became halves.
ggml_types! {
    (0, F32, "F32", 1, 4),
    (1, F16, "F16", 1, 2),
    (2, Q4_0, "Q4_0", 32, 18),
    (3, Q4_1, "Q4_1", 32, 20),
    (6, Q5_0, "Q5_0", 32, 22),
    (7, Q5_1, "Q5_1", 32, 24),
    (8, Q8_0, "Q8_0", 32, 34),
    (9, Q8_1, "Q8_1", 32, 36),
    (10, Q2_K, "Q2_K", 256, 84),
    (11, Q3_K, "Q3_K", 256, 110),
    (12, Q4_K, "Q4_K", 256, 144),
    (13, Q5_K, "Q5_K", 256, 176),
    (14, Q6_K, "Q6_K", 256, 210),
    (15, Q8_K, "Q8_K", 256, 292),
    (16, IQ2_XXS, "IQ2_XXS", 256, 66),
    (17, IQ2_XS, "IQ2_XS", 256, 74),
    (18, IQ3_XXS, "IQ3_XXS", 256, 98),
    (19, IQ1_S, "IQ1_S", 256, 50),
    (20, IQ4_NL, "IQ4_NL", 32, 18),
    (21, IQ3_S, "IQ3_S", 256, 110),
    (22, IQ2_S, "IQ2_S", 256, 82),
    (23, IQ4_XS, "IQ4_XS", 256, 136),
    (24, I8, "I8", 1, 1),
    (25, I16, "I16", 1, 2),
    (26, I32, "I32", 1, 4),
    (27, I64, "I64", 1, 8),
    (28, F64, "F64", 1, 8),
    (29, IQ1_M, "IQ1_M", 256, 56),
    (30, BF16, "BF16", 1, 2),
    (34, TQ1_0, "TQ1_0", 256, 54),
    (35, TQ2_0, "TQ2_0", 256, 66),
    (39, MXFP4, "MXFP4", 32, 17),
    (40, NVFP4, "NVFP4", 64, 36),
    (41, Q1_0, "Q1_0", 128, 18),
    (42, Q2_0, "Q2_0", 64, 18),
}

/// Type ids that were withdrawn: id, former name, type to use instead (comments of `enum ggml_type`).
pub const REMOVED_TYPES: &[(u32, &str, &str)] = &[
    (4, "Q4_2", "Q4_0"),
    (5, "Q4_3", "Q4_1"),
    (31, "Q4_0_4_4", "Q4_0"),
    (32, "Q4_0_4_8", "Q4_0"),
    (33, "Q4_0_8_8", "Q4_0"),
    (36, "IQ4_NL_4_4", "IQ4_NL"),
    (37, "IQ4_NL_4_8", "IQ4_NL"),
    (38, "IQ4_NL_8_8", "IQ4_NL"),
];

impl GgmlType {
    /// The type of an id in a file, or `None` for an unknown or withdrawn one.
    #[must_use]
    pub fn from_id(id: u32) -> Option<GgmlType> {
        let row = Self::ROWS.binary_search_by_key(&id, |row| row.0).ok()?;
        Self::ALL.get(row).copied()
    }

    /// The type of a name such as `Q8_0`, in upper case as ggml writes its constants.
    #[must_use]
    pub fn from_name(name: &str) -> Option<GgmlType> {
        Self::ALL.iter().copied().find(|ty| ty.name() == name)
    }

    /// Id in a GGUF file.
    #[must_use]
    pub const fn id(self) -> u32 {
        self.row().0
    }

    /// Name, for example `Q8_0`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements of one block; 1 for a type without blocks.
    #[must_use]
    pub const fn block_elements(self) -> u64 {
        self.row().2
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        self.row().3
    }

    /// Bytes of a row of `elements`, or `None` if that is no whole number of blocks or overflows.
    #[must_use]
    pub const fn row_bytes(self, elements: u64) -> Option<u64> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_and_round_trip() {
        for pair in GgmlType::ALL.windows(2) {
            assert!(pair[0].id() < pair[1].id());
        }
        for ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(*ty));
            assert_eq!(GgmlType::from_name(ty.name()), Some(*ty));
        }
        for (id, ..) in REMOVED_TYPES {
            assert_eq!(GgmlType::from_id(*id), None);
        }
    }

    /// The same table seen from the other side: fields of the block structs in bytes, ggml/src/ggml-common.h.
    #[test]
    fn blocks_are_as_long_as_their_fields() {
        let structs: [(&str, u64, &[u64]); 35] = [
            ("F32", 1, &[4]),
            ("F16", 1, &[2]),
            ("Q4_0", 32, &[2, 16]),
            ("Q4_1", 32, &[2, 2, 16]),
            ("Q5_0", 32, &[2, 4, 16]),
            ("Q5_1", 32, &[2, 2, 4, 16]),
            ("Q8_0", 32, &[2, 32]),
            ("Q8_1", 32, &[2, 2, 32]),
            ("Q2_K", 256, &[16, 64, 2, 2]),
            ("Q3_K", 256, &[32, 64, 12, 2]),
            ("Q4_K", 256, &[2, 2, 12, 128]),
            ("Q5_K", 256, &[2, 2, 12, 32, 128]),
            ("Q6_K", 256, &[128, 64, 16, 2]),
            ("Q8_K", 256, &[4, 256, 32]),
            ("IQ2_XXS", 256, &[2, 64]),
            ("IQ2_XS", 256, &[2, 64, 8]),
            ("IQ3_XXS", 256, &[2, 96]),
            ("IQ1_S", 256, &[2, 32, 16]),
            ("IQ4_NL", 32, &[2, 16]),
            ("IQ3_S", 256, &[2, 64, 8, 32, 4]),
            ("IQ2_S", 256, &[2, 64, 8, 8]),
            ("IQ4_XS", 256, &[2, 2, 4, 128]),
            ("I8", 1, &[1]),
            ("I16", 1, &[2]),
            ("I32", 1, &[4]),
            ("I64", 1, &[8]),
            ("F64", 1, &[8]),
            ("IQ1_M", 256, &[32, 16, 8]),
            ("BF16", 1, &[2]),
            ("TQ1_0", 256, &[48, 4, 2]),
            ("TQ2_0", 256, &[64, 2]),
            ("MXFP4", 32, &[1, 16]),
            ("NVFP4", 64, &[4, 32]),
            ("Q1_0", 128, &[2, 16]),
            ("Q2_0", 64, &[2, 16]),
        ];
        assert_eq!(structs.len(), GgmlType::ALL.len());
        for ((name, elements, fields), ty) in structs.iter().zip(GgmlType::ALL) {
            let found = (ty.name(), ty.block_elements(), ty.block_bytes());
            assert_eq!(found, (*name, *elements, fields.iter().sum::<u64>()));
        }
    }

    #[test]
    fn row_bytes_refuses_part_blocks_and_overflow() {
        assert_eq!(GgmlType::Q8_0.row_bytes(256), Some(272));
        assert_eq!(GgmlType::Q8_0.row_bytes(33), None);
        assert_eq!(GgmlType::F64.row_bytes(u64::MAX), None);
    }
}
