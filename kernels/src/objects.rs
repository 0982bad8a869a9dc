//! The prebuilt code objects: packed bytes, digest of the unpacked ones, compiler, and what the metadata
//! says of each kernel.
//!
//! `cargo xtask kernels` builds them and writes the table next to this file; tests compare the
//! table with the bytes and the bytes with the sources' digest.

use std::sync::OnceLock;

use crate::{ISAS, Isa, Target, objects_table};

/// What a code object's metadata says of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFacts {
    /// Kernel symbol, without `.kd`.
    pub symbol: &'static str,
    /// Bytes of the kernarg segment.
    pub kernarg_bytes: u32,
    /// Static LDS bytes per work-group.
    pub lds_bytes: u32,
    /// Scratch bytes per lane.
    pub scratch_bytes: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Vector registers.
    pub vgprs: u32,
}

/// The machine code for one architecture: an AMDGPU ELF that holds every kernel of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct CodeObject {
    /// The architecture.
    pub isa: &'static Isa,
    /// BLAKE3 of [`CodeObject::bytes`].
    pub digest: [u8; 32],
    /// First line of the compiler's `--version`.
    pub compiler: &'static str,
    /// One entry per kernel, by ascending symbol; of the targets themselves, empty for their relatives.
    pub kernels: &'static [KernelFacts],
    embedded: &'static Embedded,
}

impl CodeObject {
    /// The facts of one kernel.
    #[must_use]
    pub fn kernel(&self, symbol: &str) -> Option<&'static KernelFacts> {
        self.kernels.iter().find(|facts| facts.symbol == symbol)
    }

    /// The ELF file, unpacked on the first call and kept. Empty if the packed bytes are damaged, which
    /// no digest fits.
    #[must_use]
    pub fn bytes(&self) -> &'static [u8] {
        let unpack = || unpack(self.embedded.packed).unwrap_or_default();
        self.embedded.unpacked.get_or_init(unpack)
    }
}

/// Most bytes that an object may have: several times the largest.
const OBJECT_BYTES: usize = 16 << 20;

/// The bytes of a packed object (zlib, RFC 1950); `None` if they are damaged or too many.
#[must_use]
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, OBJECT_BYTES).ok()
}

/// An object as it lies in this program.
#[derive(Debug)]
struct Embedded {
    packed: &'static [u8],
    unpacked: OnceLock<Vec<u8>>,
}

macro_rules! embedded {
    ($($isa:literal),*) => {
        [$(Embedded {
            packed: include_bytes!(concat!("../objects/", $isa, "/refrain.co.z")),
            unpacked: OnceLock::new(),
        }),*]
    };
}

/// In the order of [`ISAS`].
static EMBEDDED: [Embedded; 9] = embedded!(
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1200",
    "gfx1201"
);

/// The code object of a target.
#[must_use]
pub fn code_object(target: Target) -> CodeObject {
    let at = ISAS.iter().position(|isa| isa == target.isa());
    object(at.unwrap_or_default())
}

/// The code objects of every architecture, in the order of [`ISAS`].
pub fn code_objects() -> impl Iterator<Item = CodeObject> {
    (0..ISAS.len()).map(object)
}

const fn object(at: usize) -> CodeObject {
    let table = objects_table::OBJECTS[at];
    CodeObject {
        isa: &ISAS[at],
        digest: table.digest,
        compiler: objects_table::COMPILER,
        kernels: table.kernels,
        embedded: &EMBEDDED[at],
    }
}

/// One object's part of the generated table.
pub(crate) struct ObjectTable {
    pub(crate) digest: [u8; 32],
    pub(crate) kernels: &'static [KernelFacts],
}

#[cfg(test)]
mod tests {
    use super::{OBJECT_BYTES, code_object, code_objects, unpack};
    use crate::{ISAS, Target, catalog};

    #[test]
    fn digests_fit_the_unpacked_bytes() {
        for (object, isa) in code_objects().zip(&ISAS) {
            assert_eq!(object.isa, isa);
            let digest = blake3::hash(object.bytes());
            assert_eq!(digest.as_bytes(), &object.digest, "{isa}");
        }
    }

    /// The budget of the repository: 6 MiB for all objects.
    #[test]
    fn packed_objects_stay_within_their_budget() {
        let packed: usize = super::EMBEDDED.iter().map(|e| e.packed.len()).sum();
        assert!(packed <= 6 << 20, "{packed}");
        let most = code_objects().map(|object| object.bytes().len()).max();
        assert!(most < Some(OBJECT_BYTES / 4), "{most:?}");
    }

    #[test]
    fn damaged_objects_are_refused() {
        let packed = super::EMBEDDED[0].packed;
        assert!(unpack(&packed[..packed.len() - 1]).is_none());
        let mut flipped = packed.to_vec();
        flipped[packed.len() / 2] ^= 1;
        assert!(unpack(&flipped).is_none());
        assert!(unpack(&[]).is_none());
    }

    #[test]
    fn facts_fit_the_catalog() {
        for target in Target::ALL {
            let object = code_object(target);
            assert_eq!(object.kernels.len(), catalog().len(), "{target}");
            for row in catalog() {
                let facts = object.kernel(row.symbol).unwrap();
                assert_eq!(
                    facts.kernarg_bytes,
                    row.kernarg_bytes(),
                    "{target} {}",
                    row.symbol
                );
                assert_eq!(facts.lds_bytes, row.lds_bytes, "{target} {}", row.symbol);
                assert_eq!(facts.scratch_bytes, 0, "{target} {}", row.symbol);
            }
        }
    }
}
