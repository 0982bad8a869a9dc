//! The targets that the software GPU executes, and the instruction set that each one decodes.

use std::fmt;

/// A GPU target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// RDNA3, gfx1100.
    Gfx1100,
    /// RDNA3.5, gfx1151: the RDNA3 set and scalar floating point.
    Gfx1151,
    /// RDNA4, gfx1201.
    Gfx1201,
}

/// An instruction set: the encodings that a target decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// RDNA3 and RDNA3.5.
    Gfx11,
    /// RDNA4.
    Gfx12,
}

struct Entry {
    target: Target,
    name: &'static str,
    /// `EF_AMDGPU_MACH` of the ELF header's `e_flags` (LLVM AMDGPUUsage).
    mach: u32,
    generation: Generation,
    scalar_float: bool,
}

const TARGETS: [Entry; 3] = [
    Entry {
        target: Target::Gfx1100,
        name: "gfx1100",
        mach: 0x41,
        generation: Generation::Gfx11,
        scalar_float: false,
    },
    Entry {
        target: Target::Gfx1151,
        name: "gfx1151",
        mach: 0x4a,
        generation: Generation::Gfx11,
        scalar_float: true,
    },
    Entry {
        target: Target::Gfx1201,
        name: "gfx1201",
        mach: 0x4e,
        generation: Generation::Gfx12,
        scalar_float: true,
    },
];

impl Target {
    /// All targets.
    pub const ALL: [Self; 3] = [Self::Gfx1100, Self::Gfx1151, Self::Gfx1201];

    const fn entry(self) -> &'static Entry {
        match self {
            Self::Gfx1100 => &TARGETS[0],
            Self::Gfx1151 => &TARGETS[1],
            Self::Gfx1201 => &TARGETS[2],
        }
    }

    /// LLVM's processor name.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// `EF_AMDGPU_MACH` value.
    pub const fn elf_mach(self) -> u32 {
        self.entry().mach
    }

    /// The target of that LLVM processor name.
    pub fn from_name(name: &str) -> Option<Self> {
        TARGETS.iter().find(|e| e.name == name).map(|e| e.target)
    }

    /// The target of an ELF header's `e_flags`; only the low byte (mach) is looked at.
    pub fn from_elf_mach(flags: u32) -> Option<Self> {
        TARGETS
            .iter()
            .find(|e| e.mach == flags & 0xff)
            .map(|e| e.target)
    }

    /// The instruction set.
    pub const fn generation(self) -> Generation {
        self.entry().generation
    }

    /// Whether the scalar unit has floating point (RDNA3.5 and later).
    pub const fn has_scalar_float(self) -> bool {
        self.entry().scalar_float
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn names_and_machs_are_inverse() {
        for t in Target::ALL {
            assert_eq!(Target::from_name(t.name()), Some(t));
            assert_eq!(Target::from_elf_mach(0x500 | t.elf_mach()), Some(t));
        }
        assert_eq!(Target::from_name("gfx1030"), None);
        assert_eq!(Target::from_elf_mach(0x36), None);
    }
}
