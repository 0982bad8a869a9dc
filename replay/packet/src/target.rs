//! Targets, generations and the capability row of each target.
//!
//! Every fact that differs between targets stands here once, with its confidence and the public
//! source it was read from. No fact was checked on a card by this project. Register positions and
//! packet layouts are in [`crate::tables`].

use std::fmt;

/// How far a hardware fact can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Confidence {
    /// A vendor header or source says so, or two independent sources agree.
    Certain,
    /// One good source, or an inference from code that runs on hardware.
    Likely,
    /// Contested or unknown; only hardware can answer.
    Unknown,
}

impl Confidence {
    /// The word used in dumps and generated pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Likely => "likely",
            Self::Unknown => "unknown",
        }
    }
}

/// A value together with where it was read and how far it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The value.
    pub value: T,
    /// Trust in the value.
    pub confidence: Confidence,
    /// The public source, in words.
    pub provenance: &'static str,
}

/// Register-map generation: one column of the register table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Generation {
    /// RDNA2.
    Gfx10_3,
    /// RDNA3.
    Gfx11,
    /// RDNA3.5.
    Gfx11_5,
    /// RDNA4.
    Gfx12,
}

impl Generation {
    /// All generations, oldest first.
    pub const ALL: [Self; 4] = [Self::Gfx10_3, Self::Gfx11, Self::Gfx11_5, Self::Gfx12];

    /// Lower-case name, for example `gfx11.5`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfx10_3 => "gfx10.3",
            Self::Gfx11 => "gfx11",
            Self::Gfx11_5 => "gfx11.5",
            Self::Gfx12 => "gfx12",
        }
    }

    /// The set that holds only this generation.
    pub const fn set(self) -> GenSet {
        GenSet(1 << self as u8)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of generations for which a table row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GenSet(u8);

impl GenSet {
    /// Every generation.
    pub const ALL: Self = Self(0b1111);
    /// gfx10.3 only.
    pub const G10: Self = Self(0b0001);
    /// gfx11 and gfx11.5.
    pub const G11: Self = Self(0b0110);
    /// gfx12 only.
    pub const G12: Self = Self(0b1000);
    /// gfx11 and later.
    pub const FROM_11: Self = Self(0b1110);
    /// Everything before gfx12.
    pub const BEFORE_12: Self = Self(0b0111);

    /// True when the set holds `generation`.
    pub const fn has(self, generation: Generation) -> bool {
        self.0 & generation.set().0 != 0
    }

    /// True when the two sets share a generation.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Short text such as `all`, `gfx11+` or `gfx12`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0b1111 => "all",
            0b0001 => "gfx10.3",
            0b0110 => "gfx11",
            0b1000 => "gfx12",
            0b1110 => "gfx11+",
            0b0111 => "gfx10.3, gfx11",
            0b1001 => "gfx10.3, gfx12",
            _ => "some",
        }
    }
}

/// A supported target processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Gfx {
    /// RDNA2, Navi 21.
    Gfx1030,
    /// RDNA3, Navi 31.
    Gfx1100,
    /// RDNA3.5, Strix Halo.
    Gfx1151,
    /// RDNA4, Navi 44.
    Gfx1200,
    /// RDNA4, Navi 48.
    Gfx1201,
}

impl Gfx {
    /// All targets, oldest first.
    pub const ALL: [Self; 5] = [
        Self::Gfx1030,
        Self::Gfx1100,
        Self::Gfx1151,
        Self::Gfx1200,
        Self::Gfx1201,
    ];

    /// LLVM processor name, for example `gfx1201`.
    pub const fn name(self) -> &'static str {
        self.capability().name
    }

    /// The target with an LLVM processor name; also accepts the triple form
    /// `amdgcn-amd-amdhsa--gfx1201`.
    pub fn from_name(name: &str) -> Option<Self> {
        let short = name.strip_prefix("amdgcn-amd-amdhsa--").unwrap_or(name);
        Self::ALL.into_iter().find(|gfx| gfx.name() == short)
    }

    /// The target whose `EF_AMDGPU_MACH` (low byte of the ELF `e_flags`) is `mach`.
    pub fn from_elf_mach(mach: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|gfx| gfx.capability().elf_mach == mach)
    }

    /// The register-map generation.
    pub const fn generation(self) -> Generation {
        self.capability().generation
    }

    /// The capability row.
    pub const fn capability(self) -> &'static Capability {
        match self {
            Self::Gfx1030 => &GFX1030,
            Self::Gfx1100 => &GFX1100,
            Self::Gfx1151 => &GFX1151,
            Self::Gfx1200 => &GFX1200,
            Self::Gfx1201 => &GFX1201,
        }
    }
}

impl fmt::Display for Gfx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a wave finds its work-group ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkGroupId {
    /// System SGPRs directly after the user SGPRs.
    Sgpr,
    /// TTMP9 = x, TTMP7 = y in the low and z in the high half.
    Ttmp,
}

impl fmt::Display for WorkGroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sgpr => "SGPRs after the user SGPRs",
            Self::Ttmp => "TTMP9 (x), TTMP7 (y, z)",
        })
    }
}

/// Everything about one target that changes how packets are written or judged.
#[derive(Clone, Copy, Debug)]
pub struct Capability {
    /// LLVM processor name.
    pub name: &'static str,
    /// Register-map generation.
    pub generation: Generation,
    /// `EF_AMDGPU_MACH` of code objects built for exactly this target.
    pub elf_mach: u8,
    /// RSRC1.PRIV must be set by whoever dispatches by hand.
    pub needs_priv: Fact<bool>,
    /// A per-shader-array L1 (GL1) exists between L0 and L2.
    pub gl1: Fact<bool>,
    /// A metadata cache (GLM) exists.
    pub glm: Fact<bool>,
    /// GCR word of the acquire at the head of an IB (system scope).
    pub head_acquire: Fact<u32>,
    /// GCR word between a producer and a consumer on the same agent, scalar loads included.
    pub agent_acquire: Fact<u32>,
    /// GCR word between a producer and a consumer that reads through vector memory only.
    pub vector_acquire: Fact<u32>,
    /// Work-item ids are packed into v0 as x `[9:0]`, y `[19:10]`, z `[29:20]`.
    pub packed_work_item_id: Fact<bool>,
    /// Where work-group ids are found.
    pub work_group_id: Fact<WorkGroupId>,
    /// Largest group count in y and z.
    pub max_groups_yz: Fact<u32>,
    /// Flat scratch is set up by the shader processor input, not by the kernel's prologue.
    pub architected_flat_scratch: Fact<bool>,
    /// Bytes per unit of TMPRING_SIZE.WAVESIZE.
    pub scratch_unit_bytes: Fact<u32>,
    /// Bits of TMPRING_SIZE.WAVESIZE.
    pub scratch_wavesize_bits: Fact<u8>,
    /// CS_PARTIAL_FLUSH waits for all waves with every known firmware.
    pub partial_flush_waits: Fact<bool>,
    /// A writer that reuses a buffer after vector reads needs an acquire as well as a wait.
    pub war_needs_acquire: Fact<bool>,
    /// Largest LDS allocation of one work-group in bytes.
    pub max_lds_bytes: Fact<u32>,
    /// Eliding unchanged registers is known to be safe for results.
    pub elision_exact: Fact<bool>,
}

const fn certain<T>(value: T, provenance: &'static str) -> Fact<T>
where
    T: Copy,
{
    Fact {
        value,
        confidence: Confidence::Certain,
        provenance,
    }
}

const fn likely<T>(value: T, provenance: &'static str) -> Fact<T>
where
    T: Copy,
{
    Fact {
        value,
        confidence: Confidence::Likely,
        provenance,
    }
}

const fn unknown<T>(value: T, provenance: &'static str) -> Fact<T>
where
    T: Copy,
{
    Fact {
        value,
        confidence: Confidence::Unknown,
        provenance,
    }
}

const CACHES_10_11: &str = "LLVM memory model for gfx10/gfx11; PAL gfx9 CmdUtil";
const CACHES_12: &str =
    "PAL gfx12 registers list the GL1 and GLM controls as reserved; LLVM memory model for gfx12";
const LDS: &str = "ROCr WSL translator refuses more than 128 granules of 512 bytes";
const PACKED_ID: &str = "LLVM AMDGPUUsage, initial VGPR state";
const GROUP_ID: &str = "LLVM AMDGPUUsage, initial SGPR state";
const GROUP_ID_12: &str = "LLVM AMDGPUUsage, architected SGPRs; tinygrad gfx12 emulator";
const ELIDED_11: &str = "RADV and PAL re-emit only dirty state; public stateful encoders were bit-exact on gfx1100 and gfx1151";
const ELIDED_12: &str =
    "public stateful encoders were bit-exact on gfx1201; its effect on speed is contested";

const GFX1030: Capability = Capability {
    name: "gfx1030",
    generation: Generation::Gfx10_3,
    elf_mach: 0x36,
    needs_priv: certain(false, "kfdtest sets PRIV on gfx11 parts only"),
    gl1: certain(true, CACHES_10_11),
    glm: certain(true, CACHES_10_11),
    head_acquire: certain(0x1_C3F1, "ROCr WSL translator, every dispatch"),
    agent_acquire: likely(
        0x380,
        "public retained encoders on gfx1100; same cache levels on gfx10.3",
    ),
    vector_acquire: likely(0x300, "LLVM memory model: L0 and L1 serve vector loads"),
    packed_work_item_id: certain(false, PACKED_ID),
    work_group_id: certain(WorkGroupId::Sgpr, GROUP_ID),
    max_groups_yz: certain(u32::MAX, "DISPATCH_DIRECT dimensions are 32-bit"),
    architected_flat_scratch: certain(false, "LLVM AMDGPUUsage, flat scratch"),
    scratch_unit_bytes: certain(1024, "PAL COMPUTE_TMPRING_SIZE"),
    scratch_wavesize_bits: certain(13, "PAL COMPUTE_TMPRING_SIZE"),
    partial_flush_waits: likely(
        true,
        "PAL: CP microcode below 35 returns early when context save is active",
    ),
    war_needs_acquire: likely(false, "LLVM memory model: L0 and L1 are write-through"),
    max_lds_bytes: certain(65_536, LDS),
    elision_exact: likely(true, "RADV and PAL re-emit only dirty state"),
};

const GFX1100: Capability = Capability {
    name: "gfx1100",
    generation: Generation::Gfx11,
    elf_mach: 0x41,
    needs_priv: certain(
        true,
        "kfdtest Dispatch.cpp lists 11.0.0, 11.0.1, 11.0.2, 11.0.5 and multi-array 11.0.3",
    ),
    gl1: certain(true, CACHES_10_11),
    glm: certain(true, CACHES_10_11),
    head_acquire: certain(0x1_C3F1, "ROCr WSL translator; retained PM4 fork of ROCr"),
    agent_acquire: certain(
        0x380,
        "hipEngine on gfx1100: bit-exact; without it state diverged within three steps",
    ),
    vector_acquire: likely(0x300, "LLVM memory model: L0 and L1 serve vector loads"),
    packed_work_item_id: certain(true, PACKED_ID),
    work_group_id: certain(WorkGroupId::Sgpr, GROUP_ID),
    max_groups_yz: certain(u32::MAX, "DISPATCH_DIRECT dimensions are 32-bit"),
    architected_flat_scratch: certain(true, "LLVM AMDGPUUsage, architected flat scratch"),
    scratch_unit_bytes: certain(256, "PAL COMPUTE_TMPRING_SIZE"),
    scratch_wavesize_bits: certain(15, "PAL COMPUTE_TMPRING_SIZE"),
    partial_flush_waits: certain(true, "ROCr WSL translator, RADV and PAL rely on it"),
    war_needs_acquire: likely(false, "LLVM memory model: L0 and L1 are write-through"),
    max_lds_bytes: certain(65_536, LDS),
    elision_exact: certain(true, ELIDED_11),
};

const GFX1151: Capability = Capability {
    name: "gfx1151",
    generation: Generation::Gfx11_5,
    elf_mach: 0x4A,
    needs_priv: unknown(
        false,
        "not in kfdtest's list and the retained PM4 fork ran without it; tinygrad and the WSL translator set it on every gfx11",
    ),
    gl1: certain(true, CACHES_10_11),
    glm: certain(true, CACHES_10_11),
    head_acquire: certain(0x1_C3F1, "retained PM4 fork of ROCr on gfx1151"),
    agent_acquire: certain(0x380, "retained PM4 fork of ROCr on gfx1151"),
    vector_acquire: likely(0x300, "LLVM memory model: L0 and L1 serve vector loads"),
    packed_work_item_id: certain(true, PACKED_ID),
    work_group_id: certain(WorkGroupId::Sgpr, GROUP_ID),
    max_groups_yz: certain(u32::MAX, "DISPATCH_DIRECT dimensions are 32-bit"),
    architected_flat_scratch: certain(true, "LLVM AMDGPUUsage, architected flat scratch"),
    scratch_unit_bytes: certain(256, "PAL COMPUTE_TMPRING_SIZE"),
    scratch_wavesize_bits: certain(15, "PAL COMPUTE_TMPRING_SIZE"),
    partial_flush_waits: certain(true, "ROCr WSL translator, RADV and PAL rely on it"),
    war_needs_acquire: likely(false, "LLVM memory model: L0 and L1 are write-through"),
    max_lds_bytes: certain(65_536, LDS),
    elision_exact: certain(true, ELIDED_11),
};

const fn gfx12(name: &'static str, elf_mach: u8) -> Capability {
    Capability {
        name,
        generation: Generation::Gfx12,
        elf_mach,
        needs_priv: certain(false, "kfdtest sets PRIV on gfx11 parts only"),
        gl1: certain(false, CACHES_12),
        glm: certain(false, CACHES_12),
        head_acquire: likely(
            0x1_C1C1,
            "0x1C3F1 without the bits that PAL lists as reserved on gfx12",
        ),
        agent_acquire: likely(
            0x180,
            "0x380 without GL1, which gfx12 has not; others still send 0x380",
        ),
        vector_acquire: likely(0x100, "LLVM memory model for gfx12: only L0 lies before L2"),
        packed_work_item_id: certain(true, PACKED_ID),
        work_group_id: certain(WorkGroupId::Ttmp, GROUP_ID_12),
        max_groups_yz: likely(65_535, "TTMP7 holds y and z in 16 bits each"),
        architected_flat_scratch: certain(true, "LLVM AMDGPUUsage, architected flat scratch"),
        scratch_unit_bytes: certain(256, "PAL gfx12 COMPUTE_TMPRING_SIZE"),
        scratch_wavesize_bits: certain(18, "PAL gfx12 COMPUTE_TMPRING_SIZE"),
        partial_flush_waits: certain(true, "ROCr WSL translator, RADV and PAL rely on it"),
        war_needs_acquire: unknown(
            true,
            "one public gfx1201 report needed an acquire before a writer that reuses a buffer",
        ),
        max_lds_bytes: certain(65_536, LDS),
        elision_exact: certain(true, ELIDED_12),
    }
}

const GFX1200: Capability = gfx12("gfx1200", 0x48);
const GFX1201: Capability = gfx12("gfx1201", 0x4E);

impl Capability {
    /// Every fact as (name, value in text, confidence, provenance), in declaration order.
    pub fn facts(&self) -> Vec<(&'static str, String, Confidence, &'static str)> {
        fn row<T: fmt::Display>(
            name: &'static str,
            fact: Fact<T>,
        ) -> (&'static str, String, Confidence, &'static str) {
            (
                name,
                fact.value.to_string(),
                fact.confidence,
                fact.provenance,
            )
        }
        fn hex(
            name: &'static str,
            fact: Fact<u32>,
        ) -> (&'static str, String, Confidence, &'static str) {
            (
                name,
                format!("{:#X}", fact.value),
                fact.confidence,
                fact.provenance,
            )
        }
        vec![
            row("needs_priv", self.needs_priv),
            row("gl1", self.gl1),
            row("glm", self.glm),
            hex("head_acquire", self.head_acquire),
            hex("agent_acquire", self.agent_acquire),
            hex("vector_acquire", self.vector_acquire),
            row("packed_work_item_id", self.packed_work_item_id),
            row("work_group_id", self.work_group_id),
            row("max_groups_yz", self.max_groups_yz),
            row("architected_flat_scratch", self.architected_flat_scratch),
            row("scratch_unit_bytes", self.scratch_unit_bytes),
            row("scratch_wavesize_bits", self.scratch_wavesize_bits),
            row("partial_flush_waits", self.partial_flush_waits),
            row("war_needs_acquire", self.war_needs_acquire),
            row("max_lds_bytes", self.max_lds_bytes),
            row("elision_exact", self.elision_exact),
        ]
    }
}
