//! Which caches lie on an access's path, and what invalidates them: one table per mechanism, with a
//! column per generation.
//!
//! The model is adversarial: every line is resident in every cache from the moment of its last
//! invalidation, so a read sees new bytes only if each cache on its path was invalidated in
//! between. Provenance: documented (LLVM AMDGPUUsage, memory models GFX10-GFX11 and GFX12; PAL and
//! Mesa for the bits of GCR_CNTL). gfx12 has no L1 between L0 and L2. Scalar loads pass the L1 as
//! well. Stores write through to the L2, so a cache is never the only holder of device-written
//! bytes; the L2 may be, as far as the host is concerned.

use super::hook::{Path, WaveInvalidate};
use crate::isa::{Generation, Target};
use crate::memory::Kind;
use refrain_packet::tables::gcr;

/// A set of caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caches(pub(crate) u8);

impl Caches {
    pub(crate) const NONE: Self = Self(0);
    /// Scalar cache, K$.
    pub(crate) const SCALAR: Self = Self(1);
    /// Vector L0.
    pub(crate) const L0: Self = Self(2);
    /// Shader-array L1.
    pub(crate) const L1: Self = Self(4);
    /// L2.
    pub(crate) const L2: Self = Self(8);
    /// Number of caches.
    pub(crate) const COUNT: usize = 4;

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn but(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Indices of the members, for arrays of [`Caches::COUNT`].
    pub(crate) fn indices(self) -> impl Iterator<Item = usize> {
        (0..Self::COUNT).filter(move |index| self.0 >> index & 1 == 1)
    }
}

struct CacheRow {
    cache: Caches,
    name: &'static str,
    gcr: u32,
    gcr_name: &'static str,
    /// The bit of RELEASE_MEM's control word.
    release: u32,
    gfx11: bool,
    gfx12: bool,
}

const fn cache(
    cache: Caches,
    name: &'static str,
    gcr: u32,
    gcr_name: &'static str,
    release: u32,
    gfx12: bool,
) -> CacheRow {
    let gfx11 = true;
    CacheRow {
        cache,
        name,
        gcr,
        gcr_name,
        release,
        gfx11,
        gfx12,
    }
}

const CACHES: [CacheRow; Caches::COUNT] = [
    cache(
        Caches::SCALAR,
        "scalar cache",
        gcr::GLK_INV,
        "GLK_INV",
        1 << 30,
        true,
    ),
    cache(
        Caches::L0,
        "vector L0",
        gcr::GLV_INV,
        "GLV_INV",
        1 << 14,
        true,
    ),
    cache(Caches::L1, "L1", gcr::GL1_INV, "GL1_INV", 1 << 15, false),
    cache(Caches::L2, "L2", gcr::GL2_INV, "GL2_INV", 1 << 20, true),
];

/// The rules of one target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    generation: Generation,
    present: Caches,
}

impl Rules {
    pub(crate) fn of(target: Target) -> Self {
        let generation = target.generation();
        let rules = Self {
            generation,
            present: Caches::NONE,
        };
        let present = rules
            .rows()
            .fold(Caches::NONE, |set, row| set.with(row.cache));
        Self {
            generation,
            present,
        }
    }

    fn rows(self) -> impl Iterator<Item = &'static CacheRow> {
        let gfx12 = self.generation == Generation::Gfx12;
        CACHES
            .iter()
            .filter(move |row| if gfx12 { row.gfx12 } else { row.gfx11 })
    }

    /// The caches that exist.
    pub(crate) const fn present(self) -> Caches {
        self.present
    }

    /// What an ACQUIRE_MEM with this GCR_CNTL invalidates.
    pub(crate) fn by_gcr(self, word: u32) -> Caches {
        self.rows()
            .filter(|row| word & row.gcr != 0)
            .fold(Caches::NONE, |set, row| set.with(row.cache))
    }

    /// What a RELEASE_MEM with this control word invalidates at the end of the pipe.
    pub(crate) fn by_release(self, control: u32) -> Caches {
        self.rows()
            .filter(|row| control & row.release != 0)
            .fold(Caches::NONE, |set, row| set.with(row.cache))
    }

    /// What an AQL acquire fence of a scope (0 none, 1 agent, 2 system) invalidates.
    pub(crate) fn by_scope(self, scope: u16) -> Caches {
        match scope {
            0 => Caches::NONE,
            1 => self.present().but(Caches::L2),
            _ => self.present(),
        }
    }

    /// What an instruction of a wave invalidates for its own compute unit.
    pub(crate) fn by_wave(self, what: WaveInvalidate) -> Caches {
        match what {
            WaveInvalidate::L0 => Caches::L0,
            WaveInvalidate::L1 => Caches::L1,
            WaveInvalidate::Scalar => Caches::SCALAR,
        }
    }

    /// The caches that a load may hit.
    #[inline(always)]
    pub(crate) fn path(self, path: Path) -> Caches {
        let all = self.present();
        match path {
            Path::Scalar { cache } => {
                let scalar = all.but(Caches::L0);
                match self.generation {
                    Generation::Gfx11 => scalar,
                    Generation::Gfx12 => by_scope(scalar, cache),
                }
            }
            Path::Vector { cache } => {
                let vector = all.but(Caches::SCALAR);
                match self.generation {
                    // GLC makes a load miss L0 and L1 ("load atomic monotonic agent").
                    Generation::Gfx11 if cache & 1 != 0 => vector.and(Caches::L2),
                    Generation::Gfx11 => vector,
                    Generation::Gfx12 => by_scope(vector, cache),
                }
            }
        }
    }

    /// Whether L2 and host may disagree about such memory. Documented: kernarg and fine-grained
    /// host memory are not cached in the L2 of discrete cards, and snooped by that of gfx1151.
    pub(crate) fn l2_hides(kind: Kind) -> bool {
        match kind {
            Kind::Device | Kind::HostCoarse => true,
            Kind::Host
            | Kind::Kernarg
            | Kind::Code
            | Kind::Ring
            | Kind::IndirectBuffer
            | Kind::Signal => false,
        }
    }

    /// Caches in words.
    pub(crate) fn names(self, caches: Caches) -> String {
        self.list(caches, |row| row.name)
    }

    /// The GCR_CNTL bits that invalidate them, by name and as a word.
    pub(crate) fn gcr_names(self, caches: Caches) -> (String, u32) {
        let word = self
            .rows()
            .filter(|row| !row.cache.and(caches).is_empty())
            .fold(0, |word, row| word | row.gcr);
        (self.list(caches, |row| row.gcr_name), word)
    }

    fn list(self, caches: Caches, name: fn(&CacheRow) -> &'static str) -> String {
        let names: Vec<&str> = self
            .rows()
            .filter(|row| !row.cache.and(caches).is_empty())
            .map(name)
            .collect();
        names.join(", ")
    }
}

/// What is left of a path on gfx12 with SCOPE (CU, SE, DEV, SYS) in bits 1:0. Scalar loads have the
/// same field (RDNA4 ISA, SMEM encoding), taken to mean the same.
const fn by_scope(path: Caches, cache: u8) -> Caches {
    match cache & 3 {
        0 => path,
        3 => Caches::NONE,
        _ => path.and(Caches::L2),
    }
}

#[cfg(test)]
mod tests {
    use super::{Caches, Path, Rules};
    use crate::isa::Target;

    #[test]
    fn the_words_of_the_field_invalidate_what_they_say() {
        let (k, v, l1, l2) = (Caches::SCALAR, Caches::L0, Caches::L1, Caches::L2);
        for (target, word, expected) in [
            (Target::Gfx1100, 0x380, k.with(v).with(l1)),
            (Target::Gfx1100, 0x300, v.with(l1)),
            (Target::Gfx1100, 0x180, k.with(v)),
            (Target::Gfx1151, 0xC380, k.with(v).with(l1).with(l2)),
            (Target::Gfx1201, 0x180, k.with(v)),
            (Target::Gfx1201, 0x380, k.with(v)),
            (Target::Gfx1201, 0x8000, Caches::NONE),
        ] {
            assert_eq!(
                Rules::of(target).by_gcr(word),
                expected,
                "{target} {word:#x}"
            );
        }
        let rules = Rules::of(Target::Gfx1100);
        assert_eq!(
            rules.gcr_names(v.with(l1)),
            ("GLV_INV, GL1_INV".to_owned(), 0x300)
        );
    }

    #[test]
    fn cache_bits_of_instructions_shorten_the_path() {
        let (k, v, l1, l2) = (Caches::SCALAR, Caches::L0, Caches::L1, Caches::L2);
        for (target, path, expected) in [
            (
                Target::Gfx1100,
                Path::Scalar { cache: 1 },
                k.with(l1).with(l2),
            ),
            (Target::Gfx1201, Path::Scalar { cache: 0 }, k.with(l2)),
            (Target::Gfx1201, Path::Scalar { cache: 4 }, k.with(l2)),
            (Target::Gfx1201, Path::Scalar { cache: 1 }, l2),
            (Target::Gfx1201, Path::Scalar { cache: 2 }, l2),
            (Target::Gfx1201, Path::Scalar { cache: 3 }, Caches::NONE),
            (
                Target::Gfx1100,
                Path::Vector { cache: 0 },
                v.with(l1).with(l2),
            ),
            (Target::Gfx1100, Path::Vector { cache: 1 }, l2),
            (
                Target::Gfx1100,
                Path::Vector { cache: 2 },
                v.with(l1).with(l2),
            ),
            (Target::Gfx1201, Path::Vector { cache: 0 }, v.with(l2)),
            (Target::Gfx1201, Path::Vector { cache: 1 }, l2),
            (Target::Gfx1201, Path::Vector { cache: 3 }, Caches::NONE),
        ] {
            assert_eq!(Rules::of(target).path(path), expected, "{target} {path:?}");
        }
    }
}
