//! PM4 packets as values: what a writer writes and a reader reads.
//!
//! Types only. [`crate::pm4::Writer`] turns them into words and [`crate::decode`] turns words
//! into them; the two share nothing else but the tables.

/// One PM4 packet. Slices borrow the words that follow the fixed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Type-2 filler, one dword.
    Filler,
    /// NOP; the body is ignored by the packet processor.
    Nop {
        /// Words after the header.
        body: &'a [u32],
    },
    /// SET_SH_REG.
    SetShReg {
        /// First register, SH-relative.
        offset: u16,
        /// Bits 27:23.
        vmid_shift: u8,
        /// Bits 31:28.
        index: u8,
        /// Values of consecutive registers.
        values: &'a [u32],
    },
    /// SET_SH_REG_INDEX.
    SetShRegIndex {
        /// First register, SH-relative.
        offset: u16,
        /// Bits 27:23.
        vmid_shift: u8,
        /// Bits 31:28.
        index: u8,
        /// Values of consecutive registers.
        values: &'a [u32],
    },
    /// DISPATCH_DIRECT.
    DispatchDirect {
        /// Groups, or work-items when USE_THREAD_DIMENSIONS is set.
        dim: [u32; 3],
        /// DISPATCH_INITIATOR.
        initiator: u32,
    },
    /// EVENT_WRITE without an address.
    EventWrite {
        /// Dword 1.
        control: u32,
    },
    /// ACQUIRE_MEM.
    AcquireMem(AcquireMem),
    /// RELEASE_MEM.
    ReleaseMem(ReleaseMem),
    /// WAIT_REG_MEM.
    WaitRegMem(WaitRegMem),
    /// WAIT_REG_MEM64.
    WaitRegMem64(WaitRegMem64),
    /// COPY_DATA.
    CopyData {
        /// Dword 1.
        control: u32,
        /// Source address, register or immediate.
        src: u64,
        /// Destination address or register.
        dst: u64,
    },
    /// WRITE_DATA.
    WriteData {
        /// Dword 1.
        control: u32,
        /// Destination.
        address: u64,
        /// Words to write.
        data: &'a [u32],
    },
    /// ATOMIC_MEM.
    AtomicMem {
        /// Dword 1.
        control: u32,
        /// Target.
        address: u64,
        /// Operand.
        src: u64,
        /// Compare value.
        compare: u64,
        /// Loop interval.
        interval: u16,
    },
    /// INDIRECT_BUFFER.
    IndirectBuffer {
        /// Address.
        address: u64,
        /// Dword 3: size, VALID, cache policy.
        control: u32,
    },
    /// An opcode without a layout of its own.
    Other {
        /// The opcode.
        opcode: u8,
        /// Words after the header.
        body: &'a [u32],
    },
}

/// ACQUIRE_MEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireMem {
    /// Dword 1; only the graphics queue uses it.
    pub control: u32,
    /// Size in units of 256 bytes, two dwords.
    pub size: u64,
    /// Base in units of 256 bytes, two dwords.
    pub base: u64,
    /// Poll interval.
    pub poll: u16,
    /// GCR_CNTL.
    pub gcr: u32,
}

/// RELEASE_MEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseMem {
    /// Dword 1: event, index, cache controls.
    pub control: u32,
    /// Dword 2: destination, interrupt, data selectors.
    pub select: u32,
    /// Address.
    pub address: u64,
    /// Data.
    pub data: u64,
    /// Interrupt context id.
    pub context: u32,
}

/// WAIT_REG_MEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRegMem {
    /// Dword 1: function, space, operation.
    pub control: u32,
    /// Address or register.
    pub address: u64,
    /// Reference.
    pub reference: u32,
    /// Mask.
    pub mask: u32,
    /// Dword 6.
    pub poll: u32,
}

/// WAIT_REG_MEM64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRegMem64 {
    /// Dword 1: function, space, operation.
    pub control: u32,
    /// Address or register.
    pub address: u64,
    /// Reference.
    pub reference: u64,
    /// Mask.
    pub mask: u64,
    /// Dword 8.
    pub poll: u32,
}

impl AcquireMem {
    /// True when base and size cover everything.
    pub fn full_range(&self) -> bool {
        use crate::tables::opcodes::{FULL_SIZE_HI_SEEN, FULL_SIZE_LO};
        let hi = (self.size >> 32) as u32;
        self.base == 0
            && self.size & 0xFFFF_FFFF == u64::from(FULL_SIZE_LO)
            && FULL_SIZE_HI_SEEN.contains(&hi)
    }
}

impl Packet<'_> {
    /// The opcode; none for the type-2 filler.
    pub const fn opcode(&self) -> Option<u8> {
        use crate::tables::opcodes::op;
        Some(match self {
            Self::Filler => return None,
            Self::Nop { .. } => op::NOP,
            Self::SetShReg { .. } => op::SET_SH_REG,
            Self::SetShRegIndex { .. } => op::SET_SH_REG_INDEX,
            Self::DispatchDirect { .. } => op::DISPATCH_DIRECT,
            Self::EventWrite { .. } => op::EVENT_WRITE,
            Self::AcquireMem(_) => op::ACQUIRE_MEM,
            Self::ReleaseMem(_) => op::RELEASE_MEM,
            Self::WaitRegMem(_) => op::WAIT_REG_MEM,
            Self::WaitRegMem64(_) => op::WAIT_REG_MEM64,
            Self::CopyData { .. } => op::COPY_DATA,
            Self::WriteData { .. } => op::WRITE_DATA,
            Self::AtomicMem { .. } => op::ATOMIC_MEM,
            Self::IndirectBuffer { .. } => op::INDIRECT_BUFFER,
            Self::Other { opcode, .. } => *opcode,
        })
    }

    /// True for CS_PARTIAL_FLUSH in either accepted form.
    pub const fn is_wait(&self) -> bool {
        use crate::tables::opcodes::{CS_PARTIAL_FLUSH, CS_PARTIAL_FLUSH_OFFLOAD};
        matches!(
            self,
            Self::EventWrite {
                control: CS_PARTIAL_FLUSH | CS_PARTIAL_FLUSH_OFFLOAD
            }
        )
    }
}
