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
        self.isa().name
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
        self.isa().mach
    }
}

/// An instruction-set architecture with a prebuilt code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    /// The name that compiler and driver use.
    pub name: &'static str,
    /// EF_AMDGPU_MACH, the low byte of the ELF header's `e_flags`.
    pub mach: u32,
    /// The target whose instructions and registers it has. The object of that target itself is executed
    /// in tests; those of its relatives are decoded and linted.
    pub like: Target,
}

const fn isa(name: &'static str, mach: u32, like: Target) -> Isa {
    Isa { name, mach, like }
}

/// Every architecture that objects are built for: the GPUs of RDNA3, RDNA3.5 and RDNA4 in LLVM
/// AMDGPUUsage, "Processors" and "AMDGPU e_flags".
pub const ISAS: [Isa; 9] = [
    isa("gfx1100", 0x41, Target::Gfx1100),
    isa("gfx1101", 0x46, Target::Gfx1100),
    isa("gfx1102", 0x47, Target::Gfx1100),
    isa("gfx1103", 0x44, Target::Gfx1100),
    isa("gfx1150", 0x43, Target::Gfx1151),
    isa("gfx1151", 0x4A, Target::Gfx1151),
    isa("gfx1152", 0x55, Target::Gfx1151),
    isa("gfx1200", 0x48, Target::Gfx1201),
    isa("gfx1201", 0x4E, Target::Gfx1201),
];

impl Target {
    /// The target's own architecture.
    #[must_use]
    pub const fn isa(self) -> &'static Isa {
        match self {
            Target::Gfx1100 => &ISAS[0],
            Target::Gfx1151 => &ISAS[5],
            Target::Gfx1201 => &ISAS[8],
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{ISAS, Target};

    #[test]
    fn each_target_is_its_own_architecture() {
        for target in Target::ALL {
            let own: Vec<_> = ISAS
                .iter()
                .filter(|isa| isa.like == target && isa.name == target.name())
                .collect();
            assert_eq!(own, [target.isa()]);
            assert!(format!("{target:?}").eq_ignore_ascii_case(target.name()));
        }
    }

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
