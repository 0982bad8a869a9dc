//! Compute SH registers: offset, generations, who may write, fields.
//!
//! Sources: PAL merged headers, `gc_10_3_0`/`gc_11_0_0`/`gc_12_0_0` offsets, RADV and the ROCr WSL
//! translator agree (certain). Offsets are SH-relative dwords; the absolute dword address is
//! the offset plus [`SH_BASE`].

use super::Field;
use crate::target::{GenSet, Generation};

/// Absolute dword address of SH offset 0.
pub const SH_BASE: u16 = 0x2C00;
/// First SH offset of the compute block.
pub const COMPUTE_FIRST: u16 = 0x200;
/// Last SH offset of the compute block.
pub const COMPUTE_LAST: u16 = 0x27F;
/// Last SH offset that an IB may write: the end of USER_DATA.
pub const WRITABLE_LAST: u16 = 0x24F;
/// First SH offset outside the SH window.
pub const SH_WINDOW_END: u16 = 0x400;

/// Who may write a register from an indirect buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Writer {
    /// The encoder, as dispatch state.
    Dispatch,
    /// The encoder, but only with zero.
    ZeroOnly,
    /// The encoder when a dispatch needs scratch; otherwise the queue owns it.
    Scratch,
    /// Set by the DISPATCH packet itself.
    Packet,
    /// The queue or the kernel driver.
    Queue,
    /// Nobody outside firmware.
    Never,
}

impl Writer {
    /// The word used in dumps and generated pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::ZeroOnly => "zero only",
            Self::Scratch => "with scratch",
            Self::Packet => "packet",
            Self::Queue => "queue",
            Self::Never => "never",
        }
    }
}

/// One register on some generations.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// Name without the `COMPUTE_` prefix.
    pub name: &'static str,
    /// SH-relative dword offset.
    pub offset: u16,
    /// Generations on which this name lies at this offset.
    pub gens: GenSet,
    /// Who may write it.
    pub writer: Writer,
    /// Named fields; empty when the whole word is one value.
    pub fields: &'static [Field],
}

macro_rules! registers {
    ($( $konst:ident $offset:literal $gens:ident $writer:ident $fields:expr; )*) => {
        /// SH-relative offsets by name.
        pub mod reg {
            $(
                #[doc = concat!("`COMPUTE_", stringify!($konst), "`.")]
                pub const $konst: u16 = $offset;
            )*
        }
        /// The register table, ordered by offset.
        pub const REGISTERS: &[Register] = &[
            $( Register {
                name: stringify!($konst),
                offset: $offset,
                gens: GenSet::$gens,
                writer: Writer::$writer,
                fields: $fields,
            }, )*
        ];
    };
}

registers! {
    DISPATCH_INITIATOR   0x200 ALL Packet INITIATOR_FIELDS;
    DIM_X                0x201 ALL Packet &[];
    DIM_Y                0x202 ALL Packet &[];
    DIM_Z                0x203 ALL Packet &[];
    START_X              0x204 ALL Dispatch &[];
    START_Y              0x205 ALL Dispatch &[];
    START_Z              0x206 ALL Dispatch &[];
    NUM_THREAD_X         0x207 ALL Dispatch NUM_THREAD_XY;
    NUM_THREAD_Y         0x208 ALL Dispatch NUM_THREAD_XY;
    NUM_THREAD_Z         0x209 ALL Dispatch NUM_THREAD_FIELDS;
    PIPELINESTAT_ENABLE  0x20A ALL ZeroOnly &[];
    PERFCOUNT_ENABLE     0x20B ALL ZeroOnly &[];
    PGM_LO               0x20C ALL Dispatch &[];
    PGM_HI               0x20D ALL Dispatch PGM_HI_FIELDS;
    DISPATCH_PKT_ADDR_LO 0x20E ALL ZeroOnly &[];
    DISPATCH_PKT_ADDR_HI 0x20F ALL ZeroOnly &[];
    DISPATCH_SCRATCH_BASE_LO 0x210 ALL Scratch &[];
    DISPATCH_SCRATCH_BASE_HI 0x211 ALL Scratch SCRATCH_HI_FIELDS;
    PGM_RSRC1            0x212 ALL Dispatch RSRC1_FIELDS;
    PGM_RSRC2            0x213 ALL Dispatch RSRC2_FIELDS;
    VMID                 0x214 ALL Never &[];
    RESOURCE_LIMITS      0x215 ALL Dispatch LIMIT_FIELDS;
    STATIC_THREAD_MGMT_SE0 0x216 ALL Queue &[];
    STATIC_THREAD_MGMT_SE1 0x217 ALL Queue &[];
    TMPRING_SIZE         0x218 ALL Scratch TMPRING_FIELDS;
    STATIC_THREAD_MGMT_SE2 0x219 ALL Queue &[];
    STATIC_THREAD_MGMT_SE3 0x21A ALL Queue &[];
    RESTART_X            0x21B ALL ZeroOnly &[];
    RESTART_Y            0x21C ALL ZeroOnly &[];
    RESTART_Z            0x21D ALL ZeroOnly &[];
    THREAD_TRACE_ENABLE  0x21E ALL Never &[];
    MISC_RESERVED        0x21F ALL Never &[];
    DISPATCH_ID          0x220 ALL Never &[];
    THREADGROUP_ID       0x221 ALL Never &[];
    REQ_CTRL             0x222 ALL Never &[];
    STATIC_THREAD_MGMT_SE8 0x223 G12 Queue &[];
    USER_ACCUM_0         0x224 ALL Never &[];
    USER_ACCUM_1         0x225 ALL Never &[];
    USER_ACCUM_2         0x226 ALL Never &[];
    USER_ACCUM_3         0x227 ALL Never &[];
    PGM_RSRC3            0x228 ALL Dispatch RSRC3_FIELDS;
    DDID_INDEX           0x229 ALL Never &[];
    SHADER_CHKSUM        0x22A ALL Never &[];
    RELAUNCH_10          0x22B G10 Never &[];
    STATIC_THREAD_MGMT_SE4 0x22B FROM_11 Queue &[];
    WAVE_RESTORE_ADDR_LO_10   0x22C G10 Never &[];
    STATIC_THREAD_MGMT_SE5 0x22C FROM_11 Queue &[];
    WAVE_RESTORE_ADDR_HI_10   0x22D G10 Never &[];
    STATIC_THREAD_MGMT_SE6 0x22D FROM_11 Queue &[];
    RELAUNCH2_10         0x22E G10 Never &[];
    STATIC_THREAD_MGMT_SE7 0x22E FROM_11 Queue &[];
    DISPATCH_INTERLEAVE  0x22F FROM_11 Queue INTERLEAVE_FIELDS;
    RELAUNCH             0x230 FROM_11 Never &[];
    WAVE_RESTORE_ADDR_LO      0x231 FROM_11 Never &[];
    WAVE_RESTORE_ADDR_HI      0x232 FROM_11 Never &[];
    RELAUNCH2            0x233 FROM_11 Never &[];
    PRESCALED_DIM_X      0x235 G12 Never &[];
    PRESCALED_DIM_Y      0x236 G12 Never &[];
    PRESCALED_DIM_Z      0x237 G12 Never &[];
    USER_DATA_0          0x240 ALL Dispatch &[];
    USER_DATA_1          0x241 ALL Dispatch &[];
    USER_DATA_2          0x242 ALL Dispatch &[];
    USER_DATA_3          0x243 ALL Dispatch &[];
    USER_DATA_4          0x244 ALL Dispatch &[];
    USER_DATA_5          0x245 ALL Dispatch &[];
    USER_DATA_6          0x246 ALL Dispatch &[];
    USER_DATA_7          0x247 ALL Dispatch &[];
    USER_DATA_8          0x248 ALL Dispatch &[];
    USER_DATA_9          0x249 ALL Dispatch &[];
    USER_DATA_10         0x24A ALL Dispatch &[];
    USER_DATA_11         0x24B ALL Dispatch &[];
    USER_DATA_12         0x24C ALL Dispatch &[];
    USER_DATA_13         0x24D ALL Dispatch &[];
    USER_DATA_14         0x24E ALL Dispatch &[];
    USER_DATA_15         0x24F ALL Dispatch &[];
    DISPATCH_TUNNEL      0x27D ALL Never &[];
    DISPATCH_END         0x27E ALL Never &[];
    NOWHERE              0x27F ALL Never &[];
}

/// The register at an SH offset on a generation, if there is one.
pub fn register(offset: u16, generation: Generation) -> Option<&'static Register> {
    REGISTERS
        .iter()
        .find(|row| row.offset == offset && row.gens.has(generation))
}

/// Bits of DISPATCH_INITIATOR.
pub mod initiator {
    /// The dispatch starts compute waves.
    pub const COMPUTE_SHADER_EN: u32 = 1;
    /// Partial work-groups are allowed.
    pub const PARTIAL_TG_EN: u32 = 1 << 1;
    /// The first group is (0, 0, 0) whatever START says.
    pub const FORCE_START_AT_000: u32 = 1 << 2;
    /// Ordered append. Some public encoders set it under the name of bit 6.
    pub const ORDERED_APPEND_ENBL: u32 = 1 << 3;
    /// Ordered append mode.
    pub const ORDERED_APPEND_MODE: u32 = 1 << 4;
    /// Dimensions are work-items instead of groups.
    pub const USE_THREAD_DIMENSIONS: u32 = 1 << 5;
    /// Order mode.
    pub const ORDER_MODE: u32 = 1 << 6;
    /// Waves have 32 lanes.
    pub const CS_W32_EN: u32 = 1 << 15;
    /// What this project sends for wave32.
    pub const WAVE32: u32 = COMPUTE_SHADER_EN | FORCE_START_AT_000 | CS_W32_EN;
    /// What this project sends for wave64.
    pub const WAVE64: u32 = COMPUTE_SHADER_EN | FORCE_START_AT_000;
}

/// Fields of DISPATCH_INITIATOR (PAL merged registers).
pub const INITIATOR_FIELDS: &[Field] = &[
    Field::new("COMPUTE_SHADER_EN", 0, 0, 0),
    Field::new("PARTIAL_TG_EN", 0, 1, 1),
    Field::new("FORCE_START_AT_000", 0, 2, 2),
    Field::new("ORDERED_APPEND_ENBL", 0, 3, 3),
    Field::new("ORDERED_APPEND_MODE", 0, 4, 4),
    Field::new("USE_THREAD_DIMENSIONS", 0, 5, 5),
    Field::new("ORDER_MODE", 0, 6, 6),
    Field::new("SCALAR_L1_INV_VOL", 0, 10, 10),
    Field::new("VECTOR_L1_INV_VOL", 0, 11, 11),
    Field::new("PING_PONG_EN", 0, 12, 12).on(GenSet::G12),
    Field::new("TUNNEL_ENABLE", 0, 13, 13),
    Field::new("RESTORE", 0, 14, 14),
    Field::new("CS_W32_EN", 0, 15, 15),
    Field::new("AMP_SHADER_EN", 0, 16, 16).on(GenSet::FROM_11),
    Field::new("DISABLE_DISP_PREMPT_EN", 0, 17, 17).on(GenSet::FROM_11),
    Field::new("INTERLEAVE_2D_EN", 0, 18, 18).on(GenSet::G12),
    Field::new("WGS_DISPATCH", 0, 19, 19),
    Field::new("TTRACE_QUEUE_ID", 0, 31, 29).on(GenSet::G12),
];

const NUM_THREAD_XY: &[Field] = &[
    Field::new("NUM_THREAD_FULL", 0, 15, 0).on(GenSet::BEFORE_12),
    Field::new("NUM_THREAD_FULL", 0, 12, 0).on(GenSet::G12),
    Field::new("INTERLEAVE_BITS", 0, 15, 13).on(GenSet::G12),
    Field::new("NUM_THREAD_PARTIAL", 0, 31, 16),
];
const NUM_THREAD_FIELDS: &[Field] = &[
    Field::new("NUM_THREAD_FULL", 0, 15, 0),
    Field::new("NUM_THREAD_PARTIAL", 0, 31, 16),
];
const PGM_HI_FIELDS: &[Field] = &[Field::new("DATA", 0, 7, 0)];
const SCRATCH_HI_FIELDS: &[Field] = &[Field::new("DATA", 0, 7, 0)];
const LIMIT_FIELDS: &[Field] = &[
    Field::new("WAVES_PER_SH", 0, 9, 0),
    Field::new("TG_PER_CU", 0, 15, 12),
    Field::new("LOCK_THRESHOLD", 0, 21, 16),
    Field::new("SIMD_DEST_CNTL", 0, 22, 22),
    Field::new("FORCE_SIMD_DIST", 0, 23, 23),
    Field::new("CU_GROUP_COUNT", 0, 26, 24),
];
const TMPRING_FIELDS: &[Field] = &[
    Field::new("WAVES", 0, 11, 0),
    Field::new("WAVESIZE", 0, 24, 12).on(GenSet::G10),
    Field::new("WAVESIZE", 0, 26, 12).on(GenSet::G11),
    Field::new("WAVESIZE", 0, 29, 12).on(GenSet::G12),
];
const INTERLEAVE_FIELDS: &[Field] = &[
    Field::new("INTERLEAVE", 0, 9, 0).on(GenSet::G11),
    Field::new("INTERLEAVE_1D", 0, 9, 0).on(GenSet::G12),
    Field::new("INTERLEAVE_2D_X_SIZE", 0, 19, 16).on(GenSet::G12),
    Field::new("INTERLEAVE_2D_Y_SIZE", 0, 27, 24).on(GenSet::G12),
];

/// COMPUTE_PGM_RSRC1 bits used by code.
pub mod rsrc1 {
    /// Waves run privileged with respect to traps.
    pub const PRIV: u32 = 1 << 20;
}

/// COMPUTE_PGM_RSRC2 bits used by code.
pub mod rsrc2 {
    /// Scratch is enabled.
    pub const SCRATCH_EN: u32 = 1;
    /// Trap handler up to gfx11; DYNAMIC_VGPR on gfx12.
    pub const TRAP_PRESENT: u32 = 1 << 6;
    /// Address-watch and memory-violation exceptions.
    pub const EXCP_EN_MSB: u32 = 3 << 13;
    /// LDS size field, in granules of 512 bytes.
    pub const LDS_SIZE: u32 = 0x1FF << 15;
    /// Lowest bit of LDS_SIZE.
    pub const LDS_SHIFT: u32 = 15;
    /// Exception enables.
    pub const EXCP_EN: u32 = 0x7F << 24;
    /// Bytes per LDS granule.
    pub const LDS_GRANULE: u32 = 512;
    /// Largest LDS_SIZE.
    pub const LDS_MAX_GRANULES: u32 = 128;

    /// The number of user SGPRs that the kernel expects.
    pub const fn user_sgprs(word: u32) -> u32 {
        (word >> 1) & 0x1F
    }

    /// LDS_SIZE in granules.
    pub const fn lds_granules(word: u32) -> u32 {
        (word & LDS_SIZE) >> LDS_SHIFT
    }
}

/// Fields of COMPUTE_PGM_RSRC1 (LLVM AMDGPUUsage; PAL registers).
pub const RSRC1_FIELDS: &[Field] = &[
    Field::new("VGPRS", 0, 5, 0),
    Field::new("SGPRS", 0, 9, 6),
    Field::new("PRIORITY", 0, 11, 10),
    Field::new("FLOAT_ROUND_MODE_32", 0, 13, 12),
    Field::new("FLOAT_ROUND_MODE_16_64", 0, 15, 14),
    Field::new("FLOAT_DENORM_MODE_32", 0, 17, 16),
    Field::new("FLOAT_DENORM_MODE_16_64", 0, 19, 18),
    Field::new("PRIV", 0, 20, 20),
    Field::new("DX10_CLAMP", 0, 21, 21).on(GenSet::BEFORE_12),
    Field::new("WG_RR_EN", 0, 21, 21).on(GenSet::G12),
    Field::new("DEBUG_MODE", 0, 22, 22),
    Field::new("IEEE_MODE", 0, 23, 23).on(GenSet::BEFORE_12),
    Field::new("DISABLE_PERF", 0, 23, 23).on(GenSet::G12),
    Field::new("BULKY", 0, 24, 24),
    Field::new("CDBG_USER", 0, 25, 25),
    Field::new("FP16_OVFL", 0, 26, 26),
    Field::new("WGP_MODE", 0, 29, 29),
    Field::new("MEM_ORDERED", 0, 30, 30),
    Field::new("FWD_PROGRESS", 0, 31, 31),
];

/// Fields of COMPUTE_PGM_RSRC2 (LLVM AMDGPUUsage; PAL registers).
pub const RSRC2_FIELDS: &[Field] = &[
    Field::new("SCRATCH_EN", 0, 0, 0),
    Field::new("USER_SGPR", 0, 5, 1),
    Field::new("TRAP_PRESENT", 0, 6, 6).on(GenSet::BEFORE_12),
    Field::new("DYNAMIC_VGPR", 0, 6, 6).on(GenSet::G12),
    Field::new("TGID_X_EN", 0, 7, 7),
    Field::new("TGID_Y_EN", 0, 8, 8),
    Field::new("TGID_Z_EN", 0, 9, 9),
    Field::new("TG_SIZE_EN", 0, 10, 10),
    Field::new("TIDIG_COMP_CNT", 0, 12, 11),
    Field::new("EXCP_EN_MSB", 0, 14, 13),
    Field::new("LDS_SIZE", 0, 23, 15),
    Field::new("EXCP_EN", 0, 30, 24),
    Field::new("WGP_TAKEOVER", 0, 31, 31).on(GenSet::G12),
];

/// Fields of COMPUTE_PGM_RSRC3 (LLVM AMDGPUUsage; PAL registers).
pub const RSRC3_FIELDS: &[Field] = &[
    Field::new("SHARED_VGPR_CNT", 0, 3, 0).on(GenSet::BEFORE_12),
    Field::new("INST_PREF_SIZE", 0, 9, 4).on(GenSet::G11),
    Field::new("INST_PREF_SIZE", 0, 11, 4).on(GenSet::G12),
    Field::new("TRAP_ON_START", 0, 10, 10).on(GenSet::G11),
    Field::new("TRAP_ON_END", 0, 11, 11).on(GenSet::G11),
    Field::new("GLG_EN", 0, 13, 13).on(GenSet::G12),
    Field::new("IMAGE_OP", 0, 31, 31).on(GenSet::FROM_11),
];
