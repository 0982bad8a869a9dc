//! The prebuilt code objects: bytes, digest, compiler, and what their metadata says of each kernel.
//!
//! `cargo xtask kernels` builds them and writes the table next to this file; tests compare the
//! table with the bytes and the bytes with the sources' digest.

use crate::{Target, objects_table};

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

/// The machine code for one target: an AMDGPU ELF that holds every kernel of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct CodeObject {
    /// The target.
    pub target: Target,
    /// The ELF file.
    pub bytes: &'static [u8],
    /// BLAKE3 of `bytes`.
    pub digest: [u8; 32],
    /// First line of the compiler's `--version`.
    pub compiler: &'static str,
    /// One entry per kernel, by ascending symbol.
    pub kernels: &'static [KernelFacts],
}

impl CodeObject {
    /// The facts of one kernel.
    #[must_use]
    pub fn kernel(&self, symbol: &str) -> Option<&'static KernelFacts> {
        self.kernels.iter().find(|facts| facts.symbol == symbol)
    }
}

/// The code object of a target.
#[must_use]
pub fn code_object(target: Target) -> CodeObject {
    let (bytes, table): (&[u8], _) = match target {
        Target::Gfx1100 => (
            include_bytes!("../objects/gfx1100/refrain.co"),
            &objects_table::GFX1100,
        ),
        Target::Gfx1151 => (
            include_bytes!("../objects/gfx1151/refrain.co"),
            &objects_table::GFX1151,
        ),
        Target::Gfx1201 => (
            include_bytes!("../objects/gfx1201/refrain.co"),
            &objects_table::GFX1201,
        ),
    };
    CodeObject {
        target,
        bytes,
        digest: table.digest,
        compiler: objects_table::COMPILER,
        kernels: table.kernels,
    }
}

/// One target's part of the generated table.
pub(crate) struct ObjectTable {
    pub(crate) digest: [u8; 32],
    pub(crate) kernels: &'static [KernelFacts],
}

#[cfg(test)]
mod tests {
    use super::code_object;
    use crate::{Target, catalog};

    #[test]
    fn digests_and_facts_fit_the_embedded_bytes() {
        for target in Target::ALL {
            let object = code_object(target);
            assert_eq!(
                blake3::hash(object.bytes).as_bytes(),
                &object.digest,
                "{target}"
            );
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
