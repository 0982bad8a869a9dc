//! Every way a packet can be wrong, with the field or dword at fault, what was found, what was
//! expected and the queue error bits that HSA gives it (`amd_queue_t.queue_inactive_signal`).

use crate::exec::ExecError;
use crate::gpu::queue_error_name;
use crate::memory::MemoryFault;
use crate::object::KernelRefusal;
use crate::strict::Report;
use refrain_packet::decode::DecodeError;
use std::fmt;
use std::sync::Arc;

/// Queue error bits (ROCr, `amd_aql_queue.cpp`).
pub(crate) mod code {
    pub(crate) const SCRATCH: u32 = 0x401;
    pub(crate) const DIMENSIONS: u32 = 0x2;
    pub(crate) const GROUP_MEMORY: u32 = 0x4;
    pub(crate) const CODE_OBJECT: u32 = 0x8;
    pub(crate) const PACKET_FORMAT: u32 = 0x20;
    pub(crate) const GROUP_TOO_LARGE: u32 = 0x40;
    pub(crate) const OUT_OF_VGPRS: u32 = 0x80;
    pub(crate) const VENDOR_PACKET: u32 = 0x100;
    pub(crate) const MEMORY_VIOLATION: u32 = 0x2000_0000;
    pub(crate) const ILLEGAL_INSTRUCTION: u32 = 0x4000_0000;
    pub(crate) const EXCEPTION: u32 = 0x8000_0000;
}

/// What stopped a queue.
#[derive(Debug, Clone)]
pub struct QueueFault {
    /// Queue id.
    pub queue: u64,
    /// Id of the packet at fault.
    pub packet: u64,
    /// Name of the packet's type.
    pub packet_type: &'static str,
    /// Kernel that the packet launches, where known.
    pub kernel: Option<Arc<str>>,
    /// Error bits as stored to the queue's inactive signal.
    pub code: u32,
    /// What is wrong.
    pub cause: Cause,
}

impl QueueFault {
    /// A fault of the whole device, which no packet of this queue caused.
    pub(crate) fn of_device(queue: u64, cause: Cause) -> Self {
        Self {
            queue,
            packet: 0,
            packet_type: "none",
            kernel: None,
            code: code::EXCEPTION,
            cause,
        }
    }
}

impl fmt::Display for QueueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            packet,
            packet_type,
            kernel,
            code,
            cause,
        } = self;
        write!(f, "queue {queue}, packet {packet} ({packet_type}")?;
        if let Some(kernel) = kernel {
            write!(f, ", kernel `{kernel}`")?;
        }
        write!(
            f,
            "): {cause} [queue error {code:#x}: {}]",
            queue_error_name(*code)
        )
    }
}

impl std::error::Error for QueueFault {}

/// The kinds of cause.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The ring or the doorbell was used wrongly.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The 64 bytes of the packet are not acceptable.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The packet's PM4 indirect buffer is not acceptable.
    #[error(transparent)]
    Pm4(#[from] Pm4Error),
    /// A wave could not go on.
    #[error(transparent)]
    Exec(ExecError),
    /// Strict mode found something and is to stop at it.
    #[error("{0}")]
    Strict(Box<Report>),
    /// The device is gone; nothing runs on it any more.
    #[error("{what}")]
    Lost {
        /// How it was lost.
        what: String,
    },
    /// A fault script had the packet refused.
    #[error("{what}")]
    Injected {
        /// What the script did.
        what: String,
    },
    /// The packet processor's own access to guest memory was refused.
    #[error("{what}: {fault}")]
    Memory {
        /// What it was doing.
        what: &'static str,
        /// The refused access.
        fault: MemoryFault,
    },
}

/// A ring used against its rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The doorbell names a packet that nobody reserved.
    #[error(
        "the doorbell rang for packet {rung} but only ids below {reserved} are reserved; ring with the id of the last published packet, not the next one"
    )]
    NotReserved {
        /// Id stored to the doorbell.
        rung: i64,
        /// Write index.
        reserved: u64,
    },
    /// More packets were published than the ring has slots.
    #[error(
        "packet {rung} was published while {read} had not been read: the ring of {packets} packets was overrun; wait until id - read index < {packets}"
    )]
    Overrun {
        /// Id stored to the doorbell.
        rung: u64,
        /// Read index.
        read: u64,
        /// Slots.
        packets: u32,
    },
}

/// 64 bytes that are not an acceptable packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Reserved header bits.
    #[error("header {header:#06x} sets reserved bits 15:13; clear them")]
    HeaderBits {
        /// Header word.
        header: u16,
    },
    /// A fence scope of 3.
    #[error("{fence} fence scope is 3, which is reserved; use 0 (none), 1 (agent) or 2 (system)")]
    Scope {
        /// `acquire` or `release`.
        fence: &'static str,
    },
    /// A packet type that a GPU queue does not process.
    #[error(
        "packet type {kind} cannot be processed by a GPU queue; use kernel dispatch (2), barrier-and (3), barrier-or (5) or vendor PM4-IB (0)"
    )]
    Type {
        /// Header bits 7:0.
        kind: u8,
    },
    /// A reserved field is not zero.
    #[error("{field} at byte {offset} is {value:#x}; it is reserved and must be 0")]
    Reserved {
        /// Field name.
        field: &'static str,
        /// Byte offset in the packet.
        offset: usize,
        /// Value found.
        value: u64,
    },
    /// Setup word wrong.
    #[error("setup is {setup:#x}; it must hold 1, 2 or 3 dimensions and nothing else")]
    Setup {
        /// Setup word.
        setup: u16,
    },
    /// Group shape wrong.
    #[error(
        "work-group size {size:?} with {dimensions} dimensions: each must be at least 1 (1 in unused dimensions) and the product at most {limit}"
    )]
    GroupSize {
        /// Sizes found.
        size: [u32; 3],
        /// Dimensions in use.
        dimensions: u32,
        /// Largest product that the kernel allows.
        limit: u32,
    },
    /// The kernel insists on another group shape.
    #[error("work-group size {found:?} differs from the kernel's required {required:?}")]
    RequiredGroupSize {
        /// Sizes found.
        found: [u32; 3],
        /// Sizes required.
        required: [u32; 3],
    },
    /// Grid wrong.
    #[error(
        "grid {grid:?} with work-groups of {size:?}: each must be at least 1 (1 in unused dimensions) and a multiple of the group size, partial work-groups are not executed"
    )]
    Grid {
        /// Work-items found.
        grid: [u32; 3],
        /// Work-group size.
        size: [u32; 3],
    },
    /// Too many groups in y or z.
    #[error("{groups:?} work-groups: y and z are limited to {limit} on {target}")]
    Groups {
        /// Groups found.
        groups: [u32; 3],
        /// Limit in y and z.
        limit: u32,
        /// Target name.
        target: &'static str,
    },
    /// More work-groups than a launch may have here.
    #[error(
        "{groups} work-groups are more than the {limit} that one launch may have; raise SoftConfig::group_budget if this is meant"
    )]
    Budget {
        /// Groups of the launch.
        groups: u64,
        /// The budget.
        limit: u64,
    },
    /// Scratch asked for.
    #[error("private_segment_size is {bytes} bytes; this queue has no scratch memory, pass 0")]
    Scratch {
        /// Bytes per work-item.
        bytes: u32,
    },
    /// LDS size wrong.
    #[error(
        "group_segment_size is {bytes} bytes; the kernel has {fixed} static bytes and a group at most {limit}"
    )]
    Lds {
        /// Bytes found.
        bytes: u32,
        /// Static bytes.
        fixed: u32,
        /// Limit.
        limit: u32,
    },
    /// Not a kernel.
    #[error(
        "kernel_object {va:#x} is not the descriptor of a loaded kernel; pass the address that the symbol query returned and keep the object loaded"
    )]
    KernelObject {
        /// Address found.
        va: u64,
    },
    /// A kernel that is not run.
    #[error("the kernel {reason}")]
    Refused {
        /// Why.
        reason: KernelRefusal,
    },
    /// Kernel arguments misaligned or missing.
    #[error("kernarg_address {va:#x}: the kernel takes {bytes} bytes aligned to {align}")]
    Kernarg {
        /// Address found.
        va: u64,
        /// Bytes that the kernel takes.
        bytes: u32,
        /// Alignment required.
        align: u32,
    },
    /// Kernel arguments not in memory.
    #[error("kernarg_address: {fault}")]
    KernargMemory {
        /// The refused access.
        fault: MemoryFault,
    },
    /// A signal handle that is not one.
    #[error("{field} {handle:#x} is not the handle of a live signal")]
    Signal {
        /// Field name.
        field: &'static str,
        /// Handle found.
        handle: u64,
    },
    /// A signal that should not be negative is.
    #[error(
        "{field} {handle:#x} holds {value}; a barrier waits for exactly 0, store the number of packets that complete it first"
    )]
    NegativeSignal {
        /// Field name.
        field: &'static str,
        /// Handle.
        handle: u64,
        /// Value found.
        value: i64,
    },
    /// A completion signal that had nothing left to count.
    #[error(
        "completion_signal {handle:#x} held {value} when the packet completed; store the number of packets that complete it before publishing them"
    )]
    CompletionSpent {
        /// Handle.
        handle: u64,
        /// Value before the decrement.
        value: i64,
    },
    /// Another vendor format than PM4-IB.
    #[error("vendor packet format {format} is not supported; only 1 (PM4 indirect buffer) is")]
    VendorFormat {
        /// AMD format byte.
        format: u8,
    },
    /// A word of the PM4-IB packet is wrong.
    #[error("{field} at byte {offset} is {found:#010x}; expected {expected}")]
    VendorWord {
        /// Field name.
        field: &'static str,
        /// Byte offset in the packet.
        offset: usize,
        /// Word found.
        found: u32,
        /// What it must be.
        expected: &'static str,
    },
    /// The indirect buffer is not executable memory.
    #[error("indirect buffer: {fault}")]
    IbMemory {
        /// The refused access.
        fault: MemoryFault,
    },
}

impl PacketError {
    /// Queue error bits.
    pub fn code(&self) -> u32 {
        match self {
            Self::Setup { .. } | Self::Grid { .. } | Self::Groups { .. } | Self::Budget { .. } => {
                code::DIMENSIONS
            }
            Self::GroupSize { .. } | Self::RequiredGroupSize { .. } => code::GROUP_TOO_LARGE,
            Self::Scratch { .. } => code::SCRATCH,
            Self::Lds { .. } => code::GROUP_MEMORY,
            Self::KernelObject { .. } | Self::Refused { .. } => code::CODE_OBJECT,
            Self::KernargMemory { .. } | Self::IbMemory { .. } => code::MEMORY_VIOLATION,
            Self::VendorFormat { .. } => code::VENDOR_PACKET,
            _ => code::PACKET_FORMAT,
        }
    }
}

/// A place in an indirect buffer that is not executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Pm4Error {
    /// The words are not a PM4 packet.
    #[error("IB {0}")]
    Decode(#[from] DecodeError),
    /// The packet is well formed but wrong or not executed.
    #[error("IB dword {dword} ({packet}): {reason}")]
    Packet {
        /// Dword offset of the packet's header in the IB.
        dword: u32,
        /// Opcode name, or what stands in its place.
        packet: &'static str,
        /// What is wrong.
        reason: Pm4Reason,
    },
}

/// What can be wrong with a PM4 packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Pm4Reason {
    /// Opcode not in the table.
    #[error("opcode {opcode:#04x} is not known on {target}")]
    Opcode {
        /// Bits 15:8 of the header.
        opcode: u8,
        /// Target name.
        target: &'static str,
    },
    /// Opcode in the table but not executed.
    #[error(
        "this packet is known but not executed; use SET_SH_REG, DISPATCH_DIRECT, EVENT_WRITE, ACQUIRE_MEM, RELEASE_MEM, WAIT_REG_MEM, WRITE_DATA, COPY_DATA and NOP"
    )]
    NotExecuted,
    /// A field of a packet that touches memory.
    #[error("{field} {value:#x} {what}")]
    Field {
        /// Field name.
        field: &'static str,
        /// Value found.
        value: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An address that the packet processor cannot use.
    #[error("address {va:#x} must be a multiple of {align} and not 0")]
    Address {
        /// Address found.
        va: u64,
        /// Alignment required.
        align: u64,
    },
    /// Memory that the packet processor may not touch.
    #[error("{fault}")]
    Memory {
        /// The refused access.
        fault: MemoryFault,
    },
    /// VMID or index bits of SET_SH_REG.
    #[error("VMID shift {vmid_shift} and index {index} must be 0")]
    ShTarget {
        /// Bits 27:23 of word 1.
        vmid_shift: u8,
        /// Bits 31:28 of word 1.
        index: u8,
    },
    /// Register window left.
    #[error("registers {first:#x}..={last:#x}: an IB writes the compute registers 0x200..=0x24f")]
    Window {
        /// First register offset.
        first: u32,
        /// Last register offset.
        last: u32,
    },
    /// No register at this offset.
    #[error("there is no register {offset:#x} on {target}{hint}")]
    NoRegister {
        /// SH offset.
        offset: u16,
        /// Target name.
        target: &'static str,
        /// What was probably meant, if that is known.
        hint: &'static str,
    },
    /// A register that an IB must not write.
    #[error("register {name} ({offset:#x}) is written by {writer} only{hint}")]
    Forbidden {
        /// Register name.
        name: &'static str,
        /// SH offset.
        offset: u16,
        /// Who may write it.
        writer: &'static str,
        /// What the writer probably meant.
        hint: &'static str,
    },
    /// A register that may only be zero.
    #[error("register {name} ({offset:#x}) is {value:#x}; only 0 is executed")]
    OnlyZero {
        /// Register name.
        name: &'static str,
        /// SH offset.
        offset: u16,
        /// Value found.
        value: u32,
    },
    /// Reserved bits in a register value.
    #[error(
        "register {name} ({offset:#x}) is {value:#010x}: bits {bits:#x} are reserved on {target}"
    )]
    RegisterBits {
        /// Register name.
        name: &'static str,
        /// SH offset.
        offset: u16,
        /// Value found.
        value: u32,
        /// Offending bits.
        bits: u32,
        /// Target name.
        target: &'static str,
    },
    /// A register that this IB has not written.
    #[error("register {name} is read before the first write of the IB{}; write it in this IB", .stale.map_or(String::new(), |value| format!(" (an earlier IB left {value:#x}, which nothing guarantees)")))]
    Unset {
        /// Register name.
        name: &'static str,
        /// Value left by an earlier IB of the queue.
        stale: Option<u32>,
    },
    /// DISPATCH_INITIATOR bits that are not executed, or missing.
    #[error("DISPATCH_INITIATOR {value:#x}: {field} {what}")]
    Initiator {
        /// Word found.
        value: u32,
        /// Field name.
        field: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
    /// PGM is not a kernel.
    #[error(
        "PGM {entry:#x} is not the entry of a loaded kernel; program entry >> 8 of a loaded code object"
    )]
    Program {
        /// Entry address.
        entry: u64,
    },
    /// A kernel that is not run.
    #[error("kernel `{kernel}` {reason}")]
    Refused {
        /// Kernel name.
        kernel: Arc<str>,
        /// Why.
        reason: KernelRefusal,
    },
    /// A program resource word differs from the descriptor.
    #[error(
        "{name} is {found:#010x}, the descriptor of kernel `{kernel}` says {expected:#010x} (compared under mask {mask:#010x})"
    )]
    Resource {
        /// Register name.
        name: &'static str,
        /// Kernel name.
        kernel: Arc<str>,
        /// Word found.
        found: u32,
        /// Word of the descriptor.
        expected: u32,
        /// Bits compared.
        mask: u32,
    },
    /// Group shape wrong.
    #[error(
        "NUM_THREAD {size:?} for kernel `{kernel}`: each must be at least 1, PARTIAL and INTERLEAVE 0, the product at most {limit}"
    )]
    GroupSize {
        /// Kernel name.
        kernel: Arc<str>,
        /// Register values found.
        size: [u32; 3],
        /// Largest product.
        limit: u32,
    },
    /// The kernel insists on another group shape.
    #[error("NUM_THREAD {found:?} differs from the {required:?} that kernel `{kernel}` requires")]
    RequiredGroupSize {
        /// Kernel name.
        kernel: Arc<str>,
        /// Sizes found.
        found: [u32; 3],
        /// Sizes required.
        required: [u32; 3],
    },
    /// Dispatch dimensions wrong.
    #[error("dimensions {dims:?} for kernel `{kernel}`: {what}")]
    Dimensions {
        /// Kernel name.
        kernel: Arc<str>,
        /// DIM words found.
        dims: [u32; 3],
        /// What is wrong with them.
        what: &'static str,
    },
    /// More work-groups than a launch may have here.
    #[error(
        "{groups} work-groups are more than the {limit} that one launch may have; raise SoftConfig::group_budget if this is meant"
    )]
    Budget {
        /// Groups of the launch.
        groups: u64,
        /// The budget.
        limit: u64,
    },
    /// START not zero.
    #[error("{name} is {value}; a first work-group other than (0, 0, 0) is not executed")]
    Start {
        /// Register name.
        name: &'static str,
        /// Value found.
        value: u32,
    },
    /// LDS too small or too large.
    #[error(
        "RSRC2.LDS_SIZE gives kernel `{kernel}` {bytes} bytes; it has {fixed} static bytes and a group at most {limit}"
    )]
    Lds {
        /// Kernel name.
        kernel: Arc<str>,
        /// Bytes found.
        bytes: u32,
        /// Static bytes.
        fixed: u32,
        /// Limit.
        limit: u32,
    },
    /// Kernel arguments misaligned or missing.
    #[error(
        "kernarg address {va:#x} in USER_DATA: kernel `{kernel}` takes {bytes} bytes aligned to {align}"
    )]
    Kernarg {
        /// Kernel name.
        kernel: Arc<str>,
        /// Address found.
        va: u64,
        /// Bytes that the kernel takes.
        bytes: u32,
        /// Alignment required.
        align: u32,
    },
    /// Kernel arguments not in memory.
    #[error("kernarg address of kernel `{kernel}`: {fault}")]
    KernargMemory {
        /// Kernel name.
        kernel: Arc<str>,
        /// The refused access.
        fault: MemoryFault,
    },
    /// An event other than CS_PARTIAL_FLUSH.
    #[error(
        "event {event:#x} ({name}) index {index} is not executed; only CS_PARTIAL_FLUSH (7) with index 4 is{hint}"
    )]
    Event {
        /// Event type.
        event: u8,
        /// Its name.
        name: &'static str,
        /// Event index.
        index: u32,
        /// Where the event belongs.
        hint: &'static str,
    },
    /// An ACQUIRE_MEM that is not the full range.
    #[error(
        "control {control:#x}, size {size:#x}, base {base:#x}; only the full range is executed: control and base 0, size 0x00ffffff_ffffffff"
    )]
    Range {
        /// Word 1.
        control: u32,
        /// Words 3 and 2.
        size: u64,
        /// Words 5 and 4.
        base: u64,
    },
    /// GCR bits that do not exist or are not executed.
    #[error("GCR_CNTL {value:#x}: {field} is reserved on {target} or never legal here")]
    Gcr {
        /// GCR word.
        value: u32,
        /// Field name.
        field: &'static str,
        /// Target name.
        target: &'static str,
    },
    /// The IB ended with waves in flight.
    #[error(
        "the IB ends while waves of its dispatch at dword {dispatch} (kernel `{kernel}`) may still run: the completion signal does not wait for them; end the IB with EVENT_WRITE CS_PARTIAL_FLUSH (0x407, index 4)"
    )]
    MissingWait {
        /// Dword offset of the last dispatch.
        dispatch: u32,
        /// Its kernel.
        kernel: Arc<str>,
    },
}

impl Pm4Error {
    /// Queue error bits. Firmware has none for the contents of an IB; the closest of AQL's are
    /// used.
    pub fn code(&self) -> u32 {
        let Self::Packet { reason, .. } = self else {
            return code::PACKET_FORMAT;
        };
        match reason {
            Pm4Reason::Program { .. } | Pm4Reason::Refused { .. } | Pm4Reason::Resource { .. } => {
                code::CODE_OBJECT
            }
            Pm4Reason::Dimensions { .. } | Pm4Reason::Budget { .. } | Pm4Reason::Start { .. } => {
                code::DIMENSIONS
            }
            Pm4Reason::GroupSize { .. } | Pm4Reason::RequiredGroupSize { .. } => {
                code::GROUP_TOO_LARGE
            }
            Pm4Reason::Lds { .. } => code::GROUP_MEMORY,
            Pm4Reason::KernargMemory { .. } | Pm4Reason::Memory { .. } => code::MEMORY_VIOLATION,
            _ => code::PACKET_FORMAT,
        }
    }
}
