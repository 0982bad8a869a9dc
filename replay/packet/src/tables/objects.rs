//! Memory layouts: AQL packets, kernel descriptor, `amd_queue_v2_t`, `amd_signal_t`.
//!
//! Sources: `hsa.h`, `amd_hsa_queue.h`, `amd_hsa_signal.h`, ROCr's PM4-IB packet, LLVM AMDGPUUsage
//! (kernel descriptor). All values little-endian, offsets and widths in bytes.

use super::Field;

/// What a field of an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A device or host address.
    Address,
    /// Must be zero.
    Reserved,
    /// Zero, or an opaque number that readers ignore.
    Opaque,
}

/// One field of an object in memory.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Field name as the vendor header spells it.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: u16,
    /// Width in bytes; arrays give the whole width.
    pub bytes: u16,
    /// What it is for.
    pub kind: Kind,
    /// Rule or meaning.
    pub note: &'static str,
}

/// An object: its name, size and slots.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Name.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: u16,
    /// Alignment in bytes.
    pub align: u16,
    /// Slots by offset.
    pub slots: &'static [Slot],
}

macro_rules! object {
    ($module:ident, $konst:ident, $name:literal, $doc:literal, $bytes:literal, $align:literal;
     $( $slot:ident $offset:literal $width:literal $kind:ident $note:literal; )*) => {
        #[doc = $doc]
        pub mod $module {
            $(
                #[doc = concat!("Byte offset of `", stringify!($slot), "`: ", $note, ".")]
                pub const $slot: usize = $offset;
            )*
            /// Size in bytes.
            pub const BYTES: usize = $bytes;
        }
        #[doc = $doc]
        pub const $konst: Object = Object {
            name: $name,
            bytes: $bytes,
            align: $align,
            slots: &[ $( Slot {
                name: stringify!($slot),
                offset: $offset,
                bytes: $width,
                kind: Kind::$kind,
                note: $note,
            }, )* ],
        };
    };
}

object! { kernel_dispatch, KERNEL_DISPATCH, "KERNEL_DISPATCH", "AQL kernel dispatch packet.", 64, 64;
    HEADER 0 2 Number "type 2, barrier, fences";
    SETUP 2 2 Number "dimensions 1 to 3 in bits 1:0, rest 0";
    WORKGROUP_SIZE_X 4 2 Number "work-items, at least 1, product at most 1024";
    WORKGROUP_SIZE_Y 6 2 Number "work-items";
    WORKGROUP_SIZE_Z 8 2 Number "work-items";
    RESERVED0 10 2 Reserved "zero";
    GRID_SIZE_X 12 4 Number "work-items, not groups";
    GRID_SIZE_Y 16 4 Number "work-items";
    GRID_SIZE_Z 20 4 Number "work-items";
    PRIVATE_SEGMENT_SIZE 24 4 Number "bytes per work-item";
    GROUP_SEGMENT_SIZE 28 4 Number "bytes of LDS per group, static and dynamic";
    KERNEL_OBJECT 32 8 Address "kernel descriptor, 64-byte aligned";
    KERNARG_ADDRESS 40 8 Address "at least 16-byte aligned";
    RESERVED2 48 8 Opaque "zero, or a profiler's correlation id";
    COMPLETION_SIGNAL 56 8 Address "0 or amd_signal_t";
}

object! { barrier, BARRIER, "BARRIER_AND / BARRIER_OR", "AQL barrier packet.", 64, 64;
    HEADER 0 2 Number "type 3 (and) or 5 (or)";
    RESERVED0 2 2 Reserved "zero";
    RESERVED1 4 4 Reserved "zero";
    DEP_SIGNAL 8 40 Address "five signal handles, null is satisfied (and) or ignored (or)";
    RESERVED2 48 8 Opaque "zero, or a profiler's correlation id";
    COMPLETION_SIGNAL 56 8 Address "0 or amd_signal_t";
}

object! { agent_dispatch, AGENT_DISPATCH, "AGENT_DISPATCH", "AQL agent dispatch packet; GPU queues refuse it.", 64, 64;
    HEADER 0 2 Number "type 4";
    TYPE 2 2 Number "application-defined";
    RESERVED0 4 4 Reserved "zero";
    RETURN_ADDRESS 8 8 Address "result";
    ARG 16 32 Number "four arguments";
    RESERVED2 48 8 Reserved "zero";
    COMPLETION_SIGNAL 56 8 Address "0 or amd_signal_t";
}

object! { pm4_ib, PM4_IB, "VENDOR_SPECIFIC, format 1 (PM4 IB)", "AMD vendor packet that runs a PM4 indirect buffer.", 64, 64;
    HEADER 0 2 Number "type 0, barrier, fences";
    VEN_HDR 2 2 Number "1: format PM4 IB";
    IB_JUMP0 4 4 Number "0xC0023F00, INDIRECT_BUFFER";
    IB_JUMP1 8 4 Address "IB address 31:2";
    IB_JUMP2 12 4 Address "IB address 47:32";
    IB_JUMP3 16 4 Number "size in dwords, VALID, cache policy";
    DW_CNT_REMAIN 20 4 Number "10";
    RESERVED 24 32 Reserved "zero";
    COMPLETION_SIGNAL 56 8 Address "0 or amd_signal_t";
}

object! { barrier_value, BARRIER_VALUE, "VENDOR_SPECIFIC, format 2 (BARRIER_VALUE)", "AMD vendor packet that waits for a signal value; refused.", 64, 64;
    HEADER 0 2 Number "type 0, barrier, fences";
    VEN_HDR 2 2 Number "2: format BARRIER_VALUE";
    RESERVED0 4 4 Reserved "zero";
    SIGNAL 8 8 Address "signal handle, null is satisfied";
    VALUE 16 8 Number "compared with the masked signal value, signed";
    MASK 24 8 Number "applied to the signal value";
    COND 32 4 Number "0 equal, 1 not equal, 2 less, 3 greater or equal";
    RESERVED1 36 4 Reserved "zero";
    RESERVED2 40 8 Reserved "zero";
    RESERVED3 48 8 Reserved "zero";
    COMPLETION_SIGNAL 56 8 Address "0 or amd_signal_t";
}

object! { descriptor, DESCRIPTOR, "kernel descriptor", "Kernel descriptor (LLVM AMDGPUUsage).", 64, 64;
    GROUP_SEGMENT_FIXED_SIZE 0 4 Number "static LDS bytes";
    PRIVATE_SEGMENT_FIXED_SIZE 4 4 Number "bytes per work-item";
    KERNARG_SIZE 8 4 Number "bytes, 0 when unknown or none";
    RESERVED0 12 4 Reserved "zero";
    KERNEL_CODE_ENTRY_BYTE_OFFSET 16 8 Number "entry minus descriptor address, signed; entry 256-byte aligned";
    RESERVED1 24 20 Reserved "zero";
    COMPUTE_PGM_RSRC3 44 4 Number "register word";
    COMPUTE_PGM_RSRC1 48 4 Number "register word";
    COMPUTE_PGM_RSRC2 52 4 Number "register word";
    KERNEL_CODE_PROPERTIES 56 2 Number "enabled user SGPRs, wave size";
    KERNARG_PRELOAD 58 2 Number "length 6:0 and offset 15:7 in dwords; zero up to gfx12.0";
    RESERVED3 60 4 Reserved "zero";
}

object! { signal, SIGNAL, "amd_signal_t", "HSA signal in memory.", 64, 64;
    KIND 0 8 Number "0 invalid, 1 user, -1 doorbell, -2 legacy doorbell";
    VALUE 8 8 Number "value, or hardware_doorbell_ptr";
    EVENT_MAILBOX_PTR 16 8 Address "0 or interrupt mailbox";
    EVENT_ID 24 4 Number "written to the mailbox";
    RESERVED1 28 4 Reserved "zero";
    START_TS 32 8 Number "GPU clock, with profiling";
    END_TS 40 8 Number "GPU clock, with profiling";
    QUEUE_PTR 48 8 Address "queue of a doorbell signal";
    RESERVED3 56 8 Reserved "zero";
}

object! { queue, QUEUE, "amd_queue_v2_t", "AMD queue in memory, version 2.", 2304, 64;
    QUEUE_TYPE 0 4 Number "0 multi, 1 single, 2 cooperative producer";
    FEATURES 4 4 Number "features";
    BASE_ADDRESS 8 8 Address "ring of 64-byte packets";
    DOORBELL_SIGNAL 16 8 Address "signal handle of the doorbell";
    SIZE 24 4 Number "packets, a power of two, 64 to 131072";
    RESERVED1 28 4 Reserved "zero";
    ID 32 8 Number "queue id";
    CAPS 40 4 Number "bit 0 set by the packet processor, bit 1 by ROCr";
    WRITE_DISPATCH_ID 56 8 Number "64-bit, monotonic";
    GROUP_SEGMENT_APERTURE_BASE_HI 64 4 Number "LDS aperture";
    PRIVATE_SEGMENT_APERTURE_BASE_HI 68 4 Number "scratch aperture";
    MAX_CU_ID 72 4 Number "informational";
    MAX_WAVE_ID 76 4 Number "informational";
    MAX_LEGACY_DOORBELL_DISPATCH_ID_PLUS_1 80 8 Number "gfx8 and older";
    LEGACY_DOORBELL_LOCK 88 4 Number "gfx8 and older";
    READ_DISPATCH_ID 128 8 Number "written by the packet processor";
    READ_DISPATCH_ID_FIELD_BASE_BYTE_OFFSET 136 4 Number "128";
    COMPUTE_TMPRING_SIZE 140 4 Number "TMPRING of scratch dispatches";
    SCRATCH_RESOURCE_DESCRIPTOR 144 16 Number "buffer descriptor, gfx10";
    SCRATCH_BACKING_MEMORY_LOCATION 160 8 Address "absolute address";
    SCRATCH_BACKING_MEMORY_BYTE_SIZE 168 8 Number "bytes";
    SCRATCH_WAVE64_LANE_BYTE_SIZE 176 4 Number "bytes per lane for wave64, twice that for wave32";
    QUEUE_PROPERTIES 180 4 Number "0 trap handler, 1 pointers 64-bit, 2 debug SGPRs, 3 profiling, 4 scratch once";
    SCRATCH_MAX_USE_INDEX 184 8 Number "main scratch is valid up to this id";
    QUEUE_INACTIVE_SIGNAL 192 8 Address "error reporting";
    ALT_SCRATCH_MAX_USE_INDEX 200 8 Number "alternative scratch";
    ALT_SCRATCH_RESOURCE_DESCRIPTOR 208 16 Number "alternative scratch";
    ALT_SCRATCH_BACKING_MEMORY_LOCATION 224 8 Address "alternative scratch";
    ALT_SCRATCH_DISPATCH_LIMIT_X 232 4 Number "alternative scratch";
    ALT_SCRATCH_DISPATCH_LIMIT_Y 236 4 Number "alternative scratch";
    ALT_SCRATCH_DISPATCH_LIMIT_Z 240 4 Number "alternative scratch";
    ALT_SCRATCH_WAVE64_LANE_BYTE_SIZE 244 4 Number "alternative scratch";
    ALT_COMPUTE_TMPRING_SIZE 248 4 Number "alternative scratch";
    SCRATCH_LAST_USED_INDEX 256 2048 Number "main and alternative index for 128 compute dies";
}

/// All objects, in the order of the generated page.
pub const OBJECTS: &[&Object] = &[
    &KERNEL_DISPATCH,
    &BARRIER,
    &AGENT_DISPATCH,
    &PM4_IB,
    &BARRIER_VALUE,
    &DESCRIPTOR,
    &SIGNAL,
    &QUEUE,
];

/// `IB_JUMP0` of a PM4-IB packet: the header of INDIRECT_BUFFER with 4 dwords.
pub const IB_JUMP0_WORD: u32 = 0xC002_3F00;
/// `DW_CNT_REMAIN` of a PM4-IB packet: dwords that remain in the packet behind the jump.
pub const DW_CNT_REMAIN: u32 = 10;

/// Fields of an AQL packet header, bits of its 16-bit word.
pub const HEADER_FIELDS: &[Field] = &[
    Field::new("TYPE", 0, 7, 0),
    Field::new("BARRIER", 0, 8, 8),
    Field::new("ACQUIRE_FENCE_SCOPE", 0, 10, 9).named(SCOPES),
    Field::new("RELEASE_FENCE_SCOPE", 0, 12, 11).named(SCOPES),
];
const SCOPES: &[(u32, &str)] = &[(0, "NONE"), (1, "AGENT"), (2, "SYSTEM")];

/// Vendor packet formats (byte 2 of a type 0 packet): format, name, what is done with it.
pub const VENDOR_FORMATS: &[(u8, &str, &str)] = &[
    (1, "PM4_IB", "emitted and read"),
    (
        2,
        "BARRIER_VALUE",
        "refused: support of the firmware is unknown",
    ),
    (
        3,
        "AIE_ERT or extended dispatch",
        "refused: public trees disagree",
    ),
    (200, "reserved", "refused"),
];

/// AQL packet types (header bits 7:0).
pub const PACKET_TYPES: &[(u8, &str)] = &[
    (0, "VENDOR_SPECIFIC"),
    (1, "INVALID"),
    (2, "KERNEL_DISPATCH"),
    (3, "BARRIER_AND"),
    (4, "AGENT_DISPATCH"),
    (5, "BARRIER_OR"),
];

/// Queue error bits stored to `queue_inactive_signal`.
pub const QUEUE_ERRORS: &[(u32, &str)] = &[
    (0x1, "insufficient scratch"),
    (0x2, "invalid dimensions"),
    (0x4, "invalid group memory"),
    (0x8, "invalid code object"),
    (0x20, "invalid packet format"),
    (0x40, "work-group too large"),
    (0x80, "out of VGPRs"),
    (0x100, "vendor packet unsupported"),
    (0x200, "large-scratch reclaim"),
    (0x401, "insufficient scratch, wave32"),
    (0x2000_0000, "memory violation"),
    (0x4000_0000, "illegal instruction"),
    (0x8000_0000, "trap or exception"),
];

/// A kernel code property: bit, name, user SGPRs it takes, meaning for a hand-made dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// Bit of `kernel_code_properties`.
    pub bit: u8,
    /// Name in LLVM AMDGPUUsage without the `ENABLE_SGPR_` prefix.
    pub name: &'static str,
    /// User SGPRs.
    pub sgprs: u8,
    /// What a hand-made dispatch does with it.
    pub rule: &'static str,
}

/// Kernel code properties by bit.
pub const PROPERTIES: &[Property] = &[
    Property {
        bit: 0,
        name: "PRIVATE_SEGMENT_BUFFER",
        sgprs: 4,
        rule: "four zeros on gfx10.3 without scratch; must be 0 with architected flat scratch",
    },
    Property {
        bit: 1,
        name: "DISPATCH_PTR",
        sgprs: 2,
        rule: "refused: would need an AQL packet in memory",
    },
    Property {
        bit: 2,
        name: "QUEUE_PTR",
        sgprs: 2,
        rule: "refused",
    },
    Property {
        bit: 3,
        name: "KERNARG_SEGMENT_PTR",
        sgprs: 2,
        rule: "kernarg address",
    },
    Property {
        bit: 4,
        name: "DISPATCH_ID",
        sgprs: 2,
        rule: "refused: indirect calls",
    },
    Property {
        bit: 5,
        name: "FLAT_SCRATCH_INIT",
        sgprs: 2,
        rule: "refused without scratch",
    },
    Property {
        bit: 6,
        name: "PRIVATE_SEGMENT_SIZE",
        sgprs: 1,
        rule: "refused without scratch",
    },
    Property {
        bit: 7,
        name: "GRID_WORKGROUP_COUNT_X",
        sgprs: 1,
        rule: "refused: reserved bit",
    },
    Property {
        bit: 8,
        name: "GRID_WORKGROUP_COUNT_Y",
        sgprs: 1,
        rule: "refused: reserved bit",
    },
    Property {
        bit: 9,
        name: "GRID_WORKGROUP_COUNT_Z",
        sgprs: 1,
        rule: "refused: reserved bit",
    },
    Property {
        bit: 10,
        name: "WAVEFRONT_SIZE32",
        sgprs: 0,
        rule: "selects CS_W32_EN",
    },
    Property {
        bit: 11,
        name: "USES_DYNAMIC_STACK",
        sgprs: 0,
        rule: "refused",
    },
    Property {
        bit: 12,
        name: "ENABLE_WAVEGROUP",
        sgprs: 0,
        rule: "refused",
    },
];
