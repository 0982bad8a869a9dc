//! Reads any 64 bytes as an AQL packet. Never fails: what is wrong with a packet is the linter's
//! to say.

use super::{Barrier, KernelDispatch, Pm4Ib};
use crate::tables::objects::{
    AGENT_DISPATCH, BARRIER, BARRIER_VALUE, KERNEL_DISPATCH, Kind, Object, PM4_IB, barrier as bar,
    kernel_dispatch as kd, pm4_ib as ib,
};

/// What 64 bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AqlPacket {
    /// Vendor format 1: a PM4 indirect buffer.
    Pm4Ib {
        /// The packet.
        packet: Pm4Ib,
        /// The jump's four dwords as found.
        jump: [u32; 4],
        /// `dw_cnt_remain` as found.
        remain: u32,
    },
    /// Another vendor format.
    Vendor {
        /// Byte 2.
        format: u8,
        /// Byte 3.
        reserved: u8,
    },
    /// An empty slot.
    Invalid,
    /// A kernel dispatch.
    KernelDispatch(KernelDispatch),
    /// Barrier-and.
    BarrierAnd(Barrier),
    /// Agent dispatch.
    AgentDispatch {
        /// Application-defined type.
        kind: u16,
        /// Return address.
        return_address: u64,
        /// Completion signal handle or 0.
        completion_signal: u64,
    },
    /// Barrier-or.
    BarrierOr(Barrier),
    /// A type that does not exist.
    Unknown {
        /// Header bits 7:0.
        kind: u8,
    },
}

/// 64 bytes as read: header bits and packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Header bits as found; see [`super::Header::from_bits`].
    pub header: u16,
    /// The packet.
    pub packet: AqlPacket,
}

fn le<const N: usize>(bytes: &[u8; 64], offset: usize) -> u64 {
    let mut value = 0;
    for (i, byte) in bytes.iter().skip(offset).take(N).enumerate() {
        value |= u64::from(*byte) << (8 * i);
    }
    value
}

fn u16_at(bytes: &[u8; 64], offset: usize) -> u16 {
    le::<2>(bytes, offset) as u16
}

fn u32_at(bytes: &[u8; 64], offset: usize) -> u32 {
    le::<4>(bytes, offset) as u32
}

/// Reads 64 bytes.
pub fn decode(bytes: &[u8; 64]) -> Decoded {
    let header = u16_at(bytes, 0);
    let packet = match header & 0xFF {
        0 if bytes[2] == 1 => vendor_ib(bytes),
        0 => AqlPacket::Vendor {
            format: bytes[2],
            reserved: bytes[3],
        },
        1 => AqlPacket::Invalid,
        2 => AqlPacket::KernelDispatch(dispatch(bytes)),
        3 => AqlPacket::BarrierAnd(barrier(bytes)),
        4 => AqlPacket::AgentDispatch {
            kind: u16_at(bytes, 2),
            return_address: le::<8>(bytes, 8),
            completion_signal: le::<8>(bytes, 56),
        },
        5 => AqlPacket::BarrierOr(barrier(bytes)),
        _ => AqlPacket::Unknown { kind: bytes[0] },
    };
    Decoded { header, packet }
}

fn dispatch(bytes: &[u8; 64]) -> KernelDispatch {
    KernelDispatch {
        dimensions: u16_at(bytes, kd::SETUP),
        workgroup_size: [
            u16_at(bytes, kd::WORKGROUP_SIZE_X),
            u16_at(bytes, kd::WORKGROUP_SIZE_Y),
            u16_at(bytes, kd::WORKGROUP_SIZE_Z),
        ],
        grid_size: [
            u32_at(bytes, kd::GRID_SIZE_X),
            u32_at(bytes, kd::GRID_SIZE_Y),
            u32_at(bytes, kd::GRID_SIZE_Z),
        ],
        private_segment_size: u32_at(bytes, kd::PRIVATE_SEGMENT_SIZE),
        group_segment_size: u32_at(bytes, kd::GROUP_SEGMENT_SIZE),
        kernel_object: le::<8>(bytes, kd::KERNEL_OBJECT),
        kernarg_address: le::<8>(bytes, kd::KERNARG_ADDRESS),
        correlation: le::<8>(bytes, kd::RESERVED2),
        completion_signal: le::<8>(bytes, kd::COMPLETION_SIGNAL),
    }
}

fn barrier(bytes: &[u8; 64]) -> Barrier {
    let mut dep_signal = [0; 5];
    for (i, slot) in dep_signal.iter_mut().enumerate() {
        *slot = le::<8>(bytes, bar::DEP_SIGNAL + 8 * i);
    }
    Barrier {
        dep_signal,
        correlation: le::<8>(bytes, bar::RESERVED2),
        completion_signal: le::<8>(bytes, bar::COMPLETION_SIGNAL),
    }
}

fn vendor_ib(bytes: &[u8; 64]) -> AqlPacket {
    let jump = [
        u32_at(bytes, ib::IB_JUMP0),
        u32_at(bytes, ib::IB_JUMP1),
        u32_at(bytes, ib::IB_JUMP2),
        u32_at(bytes, ib::IB_JUMP3),
    ];
    AqlPacket::Pm4Ib {
        packet: Pm4Ib {
            address: u64::from(jump[1]) | u64::from(jump[2]) << 32,
            dwords: jump[3] & 0xF_FFFF,
            policy: (jump[3] >> 28 & 3) as u8,
            completion_signal: le::<8>(bytes, ib::COMPLETION_SIGNAL),
        },
        jump,
        remain: u32_at(bytes, ib::DW_CNT_REMAIN),
    }
}

/// The layout of a packet, if its type has one.
pub fn layout(bytes: &[u8; 64]) -> Option<&'static Object> {
    match bytes[0] {
        0 if bytes[2] == 1 => Some(&PM4_IB),
        0 if bytes[2] == 2 => Some(&BARRIER_VALUE),
        2 => Some(&KERNEL_DISPATCH),
        3 | 5 => Some(&BARRIER),
        4 => Some(&AGENT_DISPATCH),
        _ => None,
    }
}

/// The first reserved byte that is not zero: (offset, field, value).
pub fn reserved_violation(bytes: &[u8; 64]) -> Option<(usize, &'static str, u8)> {
    let object = layout(bytes)?;
    for slot in object
        .slots
        .iter()
        .filter(|slot| slot.kind == Kind::Reserved)
    {
        let first = usize::from(slot.offset);
        let bytes = bytes
            .iter()
            .copied()
            .enumerate()
            .skip(first)
            .take(usize::from(slot.bytes));
        for (offset, value) in bytes {
            if value != 0 {
                return Some((offset, slot.name, value));
            }
        }
    }
    None
}
