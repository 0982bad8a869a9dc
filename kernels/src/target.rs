//! The GPU targets that code objects are built for.

use std::fmt;

/// Lanes of a wave on every target: all kernels are compiled for wave32.
pub const WAVE_LANES: u32 = 32;

/// A GPU instruction-set target with prebuilt code objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// RDNA3 (Navi 31).
    Gfx1100,
    /// RDNA3.5 (Strix Halo).
    Gfx1151,
    /// RDNA4 (Navi 48).
    Gfx1201,
}

impl Target {
    /// Every target, in ascending order.
    pub const ALL: [Target; 3] = [Target::Gfx1100, Target::Gfx1151, Target::Gfx1201];

    /// The name that compiler and driver use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Target::Gfx1100 => "gfx1100",
            Target::Gfx1151 => "gfx1151",
            Target::Gfx1201 => "gfx1201",
        }
    }

    /// The target of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|target| target.name() == name)
    }

    /// EF_AMDGPU_MACH, the low byte of the ELF header's `e_flags` (LLVM AMDGPUUsage, table
    /// "AMDGPU e_flags"; a test compares it with the built objects).
    #[must_use]
    pub const fn mach(self) -> u32 {
        match self {
            Target::Gfx1100 => 0x41,
            Target::Gfx1151 => 0x4A,
            Target::Gfx1201 => 0x4E,
        }
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
    fn names_parse_back_and_nothing_else_does() {
        for target in Target::ALL {
            assert_eq!(Target::parse(target.name()), Some(target));
            assert_eq!(Target::parse(&target.name().to_uppercase()), None);
        }
        assert_eq!(Target::parse("gfx1030"), None);
        assert_eq!(Target::parse(""), None);
    }
}
