//! PM4 type-3 opcodes, their lengths and fields, and the events of EVENT_WRITE.
//!
//! Sources: PAL `f32_mec_pm4_packets`, ROCr `amd_gpu_pm4.h`, Mesa `sid.h`. Lengths are in dwords
//! with the header.

use std::fmt;

use super::Field;
use super::gcr::{GCR_FIELDS, RANGE, SEQ};
use crate::target::GenSet;

/// How long a packet is, header included, in dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Exactly this long.
    Fixed(u16),
    /// This long or longer.
    AtLeast(u16),
    /// Two or longer, or the one-dword form with count 0x3FFF.
    Nop,
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n} dwords"),
            Self::AtLeast(n) => write!(f, "{n} dwords or more"),
            Self::Nop => f.write_str("1 dword or more"),
        }
    }
}

impl Length {
    /// True when a packet of `dwords` is well formed.
    pub const fn allows(self, dwords: u32) -> bool {
        match self {
            Self::Fixed(n) => dwords == n as u32,
            Self::AtLeast(n) => dwords >= n as u32,
            Self::Nop => dwords >= 1,
        }
    }
}

/// What this project does with an opcode inside a retained IB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The encoder emits it.
    Emit,
    /// Not emitted, accepted when its rules hold.
    Accept,
    /// Refused by rule P03.
    Refuse,
}

impl Use {
    /// The word used in generated pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emit => "emit",
            Self::Accept => "accept",
            Self::Refuse => "refuse",
        }
    }
}

/// One opcode.
#[derive(Clone, Copy, Debug)]
pub struct Opcode {
    /// Vendor name.
    pub name: &'static str,
    /// Bits 15:8 of the header.
    pub code: u8,
    /// Length rule.
    pub length: Length,
    /// What is done with it.
    pub usage: Use,
    /// Generations on which it exists.
    pub gens: GenSet,
    /// Fields; empty when the layout is of no use here.
    pub fields: &'static [Field],
}

macro_rules! opcodes {
    ($( $konst:ident $code:literal $length:expr, $usage:ident $gens:ident $fields:expr; )*) => {
        /// Opcode numbers by name.
        pub mod op {
            $(
                #[doc = concat!("`IT_", stringify!($konst), "`.")]
                pub const $konst: u8 = $code;
            )*
        }
        /// The opcode table, ordered by number.
        pub const OPCODES: &[Opcode] = &[
            $( Opcode {
                name: stringify!($konst),
                code: $code,
                length: $length,
                usage: Use::$usage,
                gens: GenSet::$gens,
                fields: $fields,
            }, )*
        ];
    };
}

use Length::{AtLeast, Fixed};

opcodes! {
    NOP                 0x10 Length::Nop, Emit ALL &[];
    SET_BASE            0x11 AtLeast(2), Refuse ALL &[];
    CLEAR_STATE         0x12 AtLeast(2), Refuse ALL &[];
    DISPATCH_DIRECT     0x15 Fixed(5), Emit ALL DISPATCH_FIELDS;
    DISPATCH_INDIRECT   0x16 AtLeast(2), Refuse ALL &[];
    ATOMIC_MEM          0x1E Fixed(9), Refuse ALL ATOMIC_FIELDS;
    COND_EXEC           0x22 AtLeast(2), Refuse ALL &[];
    PRED_EXEC           0x23 AtLeast(2), Refuse ALL &[];
    WRITE_DATA          0x37 AtLeast(5), Accept ALL WRITE_DATA_FIELDS;
    WAIT_REG_MEM        0x3C Fixed(7), Accept ALL WAIT_FIELDS;
    INDIRECT_BUFFER     0x3F Fixed(4), Refuse ALL IB_FIELDS;
    COPY_DATA           0x40 Fixed(6), Accept ALL COPY_FIELDS;
    EVENT_WRITE         0x46 Fixed(2), Emit ALL EVENT_FIELDS;
    RELEASE_MEM         0x49 Fixed(8), Accept ALL RELEASE_FIELDS;
    DMA_DATA            0x50 Fixed(7), Refuse ALL &[];
    ACQUIRE_MEM         0x58 Fixed(8), Emit ALL ACQUIRE_FIELDS;
    REWIND              0x59 AtLeast(2), Refuse ALL &[];
    PRIME_UTCL2         0x5D AtLeast(2), Refuse ALL &[];
    LOAD_SH_REG         0x5F AtLeast(2), Refuse ALL &[];
    LOAD_SH_REG_INDEX   0x63 AtLeast(2), Refuse ALL &[];
    SET_CONFIG_REG      0x68 AtLeast(3), Refuse ALL &[];
    SET_CONTEXT_REG     0x69 AtLeast(3), Refuse ALL &[];
    SET_SH_REG          0x76 AtLeast(3), Emit ALL SET_SH_FIELDS;
    SET_SH_REG_OFFSET   0x77 AtLeast(2), Refuse ALL &[];
    SET_UCONFIG_REG     0x79 AtLeast(3), Refuse ALL &[];
    WAIT_REG_MEM64      0x93 Fixed(9), Refuse ALL WAIT64_FIELDS;
    HDP_FLUSH           0x95 AtLeast(2), Refuse ALL &[];
    SET_SH_REG_INDEX    0x9B AtLeast(3), Refuse ALL SET_SH_FIELDS;
    DISPATCH_DIRECT_INTERLEAVED   0xA7 AtLeast(2), Refuse G12 &[];
    DISPATCH_INDIRECT_INTERLEAVED 0xA8 AtLeast(2), Refuse G12 &[];
    TIMESTAMP           0xB2 AtLeast(2), Refuse FROM_11 &[];
    SET_SH_REG_PAIRS    0xBA AtLeast(2), Refuse ALL &[];
    SET_SH_REG_PAIRS_PACKED 0xBB AtLeast(2), Refuse G11 &[];
    SET_SH_REG_PAIRS_PACKED_12 0xBC AtLeast(2), Refuse G12 &[];
    SET_SH_REG_PAIRS_PACKED_N 0xBD AtLeast(2), Refuse ALL &[];
    AQL_PACKET          0xFF AtLeast(2), Refuse ALL &[];
}

/// The row of an opcode, if the table knows it.
pub fn opcode(code: u8) -> Option<&'static Opcode> {
    OPCODES.iter().find(|row| row.code == code)
}

/// Bits of a packet header.
pub mod header {
    /// Type 3 in bits 31:30.
    pub const TYPE3: u32 = 3 << 30;
    /// A one-dword filler of type 2.
    pub const TYPE2: u32 = 0x8000_0000;
    /// The one-dword NOP: count 0x3FFF.
    pub const NOP1: u32 = 0xFFFF_1000;
    /// Shader type: 1 = compute. Encoders differ; both run.
    pub const SHADER_TYPE: u32 = 2;
    /// Predicate; refused.
    pub const PREDICATE: u32 = 1;
    /// Reserved low bits, RESET_FILTER_CAM included; refused.
    pub const RESERVED: u32 = 0xFC;
    /// Longest packet in dwords: count 0x3FFE plus two.
    pub const MAX_DWORDS: u32 = 0x4000;

    /// Header of a packet of `dwords` (header included, at least 2).
    pub const fn type3(opcode: u8, dwords: u32) -> u32 {
        TYPE3 | ((dwords.saturating_sub(2) & 0x3FFF) << 16) | ((opcode as u32) << 8)
    }
}

/// An event of EVENT_WRITE or RELEASE_MEM.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Vendor name.
    pub name: &'static str,
    /// Event type.
    pub code: u8,
    /// A time-stamp event: legal in RELEASE_MEM only.
    pub timestamp: bool,
}

/// Known events.
pub const EVENTS: &[Event] = &[
    Event {
        name: "CS_PARTIAL_FLUSH",
        code: 0x07,
        timestamp: false,
    },
    Event {
        name: "CACHE_FLUSH_AND_INV_TS",
        code: 0x14,
        timestamp: true,
    },
    Event {
        name: "WAIT_SYNC",
        code: 0x15,
        timestamp: false,
    },
    Event {
        name: "PERFCOUNTER_START",
        code: 0x17,
        timestamp: false,
    },
    Event {
        name: "PERFCOUNTER_STOP",
        code: 0x18,
        timestamp: false,
    },
    Event {
        name: "PIPELINESTAT_START",
        code: 0x19,
        timestamp: false,
    },
    Event {
        name: "PIPELINESTAT_STOP",
        code: 0x1A,
        timestamp: false,
    },
    Event {
        name: "BOTTOM_OF_PIPE_TS",
        code: 0x28,
        timestamp: true,
    },
    Event {
        name: "CS_DONE",
        code: 0x2F,
        timestamp: false,
    },
    Event {
        name: "THREAD_TRACE_MARKER",
        code: 0x35,
        timestamp: false,
    },
    Event {
        name: "THREAD_TRACE_FINISH",
        code: 0x37,
        timestamp: false,
    },
];

/// The row of an event type.
pub fn event(code: u8) -> Option<&'static Event> {
    EVENTS.iter().find(|row| row.code == code)
}

/// CS_PARTIAL_FLUSH as EVENT_WRITE dword 1: type 7, index 4.
pub const CS_PARTIAL_FLUSH: u32 = 0x407;
/// The same with OFFLOAD_ENABLE, as PAL sends it on compute queues.
pub const CS_PARTIAL_FLUSH_OFFLOAD: u32 = 0x8000_0407;

/// Longest indirect buffer in dwords: IB_SIZE has 20 bits.
pub const IB_MAX_DWORDS: u32 = 0xF_FFFF;

/// ACQUIRE_MEM: full range, in units of 256 bytes, low dword.
pub const FULL_SIZE_LO: u32 = 0xFFFF_FFFF;
/// ACQUIRE_MEM: full range, high dword as this project sends it.
pub const FULL_SIZE_HI: u32 = 0x00FF_FFFF;
/// High dwords of the full range that are accepted (ROCr, RADV, Mesa common).
pub const FULL_SIZE_HI_SEEN: [u32; 3] = [0xFF, 0x00FF_FFFF, 0x01FF_FFFF];
/// ACQUIRE_MEM: poll interval as this project sends it (RADV).
pub const POLL_INTERVAL: u32 = 0xA;

const EVENT_NAMES: &[(u32, &str)] = &[
    (0x07, "CS_PARTIAL_FLUSH"),
    (0x14, "CACHE_FLUSH_AND_INV_TS"),
    (0x15, "WAIT_SYNC"),
    (0x17, "PERFCOUNTER_START"),
    (0x18, "PERFCOUNTER_STOP"),
    (0x19, "PIPELINESTAT_START"),
    (0x1A, "PIPELINESTAT_STOP"),
    (0x28, "BOTTOM_OF_PIPE_TS"),
    (0x2F, "CS_DONE"),
    (0x35, "THREAD_TRACE_MARKER"),
    (0x37, "THREAD_TRACE_FINISH"),
];
const POLICY: &[(u32, &str)] = &[(0, "LRU"), (1, "STREAM"), (2, "BYPASS"), (3, "LAST_USE")];
const FUNCTION: &[(u32, &str)] = &[
    (0, "ALWAYS"),
    (1, "LESS"),
    (2, "LESS_EQUAL"),
    (3, "EQUAL"),
    (4, "NOT_EQUAL"),
    (5, "GREATER_EQUAL"),
    (6, "GREATER"),
];
const SPACE: &[(u32, &str)] = &[(0, "REGISTER"), (1, "MEMORY")];
const OPERATION: &[(u32, &str)] = &[(0, "WAIT"), (1, "WRITE_WAIT_WRITE"), (3, "PREEMPTABLE")];
const COPY_SRC: &[(u32, &str)] = &[
    (0, "REGISTER"),
    (2, "L2_MEMORY"),
    (4, "PERF_COUNTER"),
    (5, "IMMEDIATE"),
    (9, "GPU_CLOCK"),
    (10, "SYSTEM_CLOCK"),
];
const DST: &[(u32, &str)] = &[(0, "REGISTER"), (2, "L2_MEMORY"), (5, "MEMORY")];
const INT_SEL: &[(u32, &str)] = &[
    (0, "NONE"),
    (1, "INTERRUPT_ONLY"),
    (2, "INTERRUPT_ON_CONFIRM"),
    (3, "DATA_ON_CONFIRM"),
];
const DATA_SEL: &[(u32, &str)] = &[
    (0, "NONE"),
    (1, "DATA_32"),
    (2, "DATA_64"),
    (3, "GPU_CLOCK"),
    (4, "SYSTEM_CLOCK"),
    (7, "ATOMIC_ADD_32"),
];
const TC_OP: &[(u32, &str)] = &[
    (0x07, "SWAP_32"),
    (0x08, "CMPSWAP_32"),
    (0x0F, "ADD_32"),
    (0x2F, "ADD_64"),
];
const ATOMIC_COMMAND: &[(u32, &str)] = &[
    (0, "SINGLE"),
    (1, "LOOP"),
    (2, "WAIT_CONFIRM"),
    (3, "SEND_AND_CONTINUE"),
];

const SET_SH_FIELDS: &[Field] = &[
    Field::new("REG_OFFSET", 1, 15, 0),
    Field::new("VMID_SHIFT", 1, 27, 23),
    Field::new("INDEX", 1, 31, 28),
];
const DISPATCH_FIELDS: &[Field] = &[
    Field::new("DIM_X", 1, 31, 0),
    Field::new("DIM_Y", 2, 31, 0),
    Field::new("DIM_Z", 3, 31, 0),
    Field::new("DISPATCH_INITIATOR", 4, 31, 0),
];
const IB_FIELDS: &[Field] = &[
    Field::new("IB_BASE_LO", 1, 31, 2),
    Field::new("IB_BASE_HI", 2, 15, 0),
    Field::new("IB_SIZE", 3, 19, 0),
    Field::new("CHAIN", 3, 20, 20),
    Field::new("OFFLOAD_POLLING", 3, 21, 21),
    Field::new("VALID", 3, 23, 23),
    Field::new("VMID", 3, 27, 24),
    Field::new("CACHE_POLICY", 3, 29, 28).named(POLICY),
    Field::new("INHERIT_VMID", 3, 30, 30),
    Field::new("PRIV", 3, 31, 31),
];
const EVENT_FIELDS: &[Field] = &[
    Field::new("EVENT_TYPE", 1, 5, 0).named(EVENT_NAMES),
    Field::new("EVENT_INDEX", 1, 11, 8),
    Field::new("OFFLOAD_ENABLE", 1, 31, 31),
];
const ACQUIRE_HEAD: [Field; 6] = [
    Field::new("ENGINE_SEL", 1, 31, 31),
    Field::new("COHER_SIZE", 2, 31, 0),
    Field::new("COHER_SIZE_HI", 3, 24, 0),
    Field::new("COHER_BASE_LO", 4, 31, 0),
    Field::new("COHER_BASE_HI", 5, 23, 0),
    Field::new("POLL_INTERVAL", 6, 15, 0),
];
const ACQUIRE_ALL: [Field; 21] = join(&ACQUIRE_HEAD, GCR_FIELDS);
const ACQUIRE_FIELDS: &[Field] = &ACQUIRE_ALL;

/// `a` followed by `b`; the lengths must add up to `N`.
const fn join<const N: usize>(a: &[Field], b: &[Field]) -> [Field; N] {
    let mut out = [Field::new("", 0, 0, 0); N];
    let mut i = 0;
    while i < N {
        out[i] = if i < a.len() { a[i] } else { b[i - a.len()] };
        i += 1;
    }
    out
}

const RELEASE_FIELDS: &[Field] = &[
    Field::new("EVENT_TYPE", 1, 5, 0).named(EVENT_NAMES),
    Field::new("WAIT_SYNC", 1, 7, 7).on(GenSet::FROM_11),
    Field::new("EVENT_INDEX", 1, 11, 8).named(&[(5, "END_OF_PIPE"), (6, "SHADER_DONE")]),
    Field::new("GLM_WB", 1, 12, 12).on(GenSet::BEFORE_12),
    Field::new("GLM_INV", 1, 13, 13).on(GenSet::BEFORE_12),
    Field::new("GLV_INV", 1, 14, 14),
    Field::new("GL1_INV", 1, 15, 15).on(GenSet::BEFORE_12),
    Field::new("GL2_US", 1, 16, 16),
    Field::new("GL2_RANGE", 1, 18, 17).named(RANGE),
    Field::new("GL2_DISCARD", 1, 19, 19),
    Field::new("GL2_INV", 1, 20, 20),
    Field::new("GL2_WB", 1, 21, 21),
    Field::new("SEQ", 1, 23, 22).named(SEQ),
    Field::new("GLK_WB", 1, 24, 24).on(GenSet::FROM_11),
    Field::new("CACHE_POLICY", 1, 26, 25).named(POLICY),
    Field::new("PQ_EXE_STATUS", 1, 28, 28),
    Field::new("GLK_INV", 1, 30, 30).on(GenSet::FROM_11),
    Field::new("PWS_ENABLE", 1, 31, 31),
    Field::new("DST_SEL", 2, 17, 16).named(&[(0, "MEMORY"), (1, "L2")]),
    Field::new("INT_SEL", 2, 26, 24).named(INT_SEL),
    Field::new("DATA_SEL", 2, 31, 29).named(DATA_SEL),
    Field::new("ADDRESS_LO", 3, 31, 0),
    Field::new("ADDRESS_HI", 4, 31, 0),
    Field::new("DATA_LO", 5, 31, 0),
    Field::new("DATA_HI", 6, 31, 0),
    Field::new("INT_CTXID", 7, 31, 0),
];
const WAIT_FIELDS: &[Field] = &[
    Field::new("FUNCTION", 1, 2, 0).named(FUNCTION),
    Field::new("MEM_SPACE", 1, 5, 4).named(SPACE),
    Field::new("OPERATION", 1, 7, 6).named(OPERATION),
    Field::new("CACHE_POLICY", 1, 26, 25).named(POLICY),
    Field::new("ADDRESS_LO", 2, 31, 0),
    Field::new("ADDRESS_HI", 3, 31, 0),
    Field::new("REFERENCE", 4, 31, 0),
    Field::new("MASK", 5, 31, 0),
    Field::new("POLL_INTERVAL", 6, 15, 0),
    Field::new("OPTIMIZE_ACE_OFFLOAD", 6, 31, 31),
];
const WAIT64_FIELDS: &[Field] = &[
    Field::new("FUNCTION", 1, 2, 0).named(FUNCTION),
    Field::new("MEM_SPACE", 1, 5, 4).named(SPACE),
    Field::new("OPERATION", 1, 7, 6).named(OPERATION),
    Field::new("CACHE_POLICY", 1, 26, 25).named(POLICY),
    Field::new("ADDRESS_LO", 2, 31, 0),
    Field::new("ADDRESS_HI", 3, 31, 0),
    Field::new("REFERENCE_LO", 4, 31, 0),
    Field::new("REFERENCE_HI", 5, 31, 0),
    Field::new("MASK_LO", 6, 31, 0),
    Field::new("MASK_HI", 7, 31, 0),
    Field::new("POLL_INTERVAL", 8, 15, 0),
    Field::new("OPTIMIZE_ACE_OFFLOAD", 8, 31, 31),
];
const COPY_FIELDS: &[Field] = &[
    Field::new("SRC_SEL", 1, 3, 0).named(COPY_SRC),
    Field::new("DST_SEL", 1, 11, 8).named(DST),
    Field::new("SRC_POLICY", 1, 14, 13).named(POLICY),
    Field::new("COUNT_64", 1, 16, 16),
    Field::new("WR_CONFIRM", 1, 20, 20),
    Field::new("DST_POLICY", 1, 26, 25).named(POLICY),
    Field::new("PQ_EXE_STATUS", 1, 29, 29),
    Field::new("SRC_LO", 2, 31, 0),
    Field::new("SRC_HI", 3, 31, 0),
    Field::new("DST_LO", 4, 31, 0),
    Field::new("DST_HI", 5, 31, 0),
];
const WRITE_DATA_FIELDS: &[Field] = &[
    Field::new("DST_SEL", 1, 11, 8).named(DST),
    Field::new("ADDR_INCR_OFF", 1, 16, 16),
    Field::new("WR_CONFIRM", 1, 20, 20),
    Field::new("CACHE_POLICY", 1, 26, 25).named(POLICY),
    Field::new("ADDRESS_LO", 2, 31, 0),
    Field::new("ADDRESS_HI", 3, 31, 0),
];
const ATOMIC_FIELDS: &[Field] = &[
    Field::new("ATOMIC", 1, 6, 0).named(TC_OP),
    Field::new("COMMAND", 1, 11, 8).named(ATOMIC_COMMAND),
    Field::new("CACHE_POLICY", 1, 26, 25).named(POLICY),
    Field::new("ADDRESS_LO", 2, 31, 0),
    Field::new("ADDRESS_HI", 3, 31, 0),
    Field::new("SRC_LO", 4, 31, 0),
    Field::new("SRC_HI", 5, 31, 0),
    Field::new("CMP_LO", 6, 31, 0),
    Field::new("CMP_HI", 7, 31, 0),
    Field::new("LOOP_INTERVAL", 8, 12, 0),
];
