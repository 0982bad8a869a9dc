//! Writes AQL packets.

use super::{Barrier, EncodedPacket, Header, KernelDispatch, PacketType, Pm4Ib};
use crate::tables::objects::{barrier as bar, kernel_dispatch as kd, pm4_ib as ib};
use crate::tables::opcodes::{header, op};

/// First dword of an empty slot.
pub const INVALID_WORD: u32 = PacketType::Invalid as u32;
/// Vendor format of a PM4-IB packet, in the high half of the first dword.
pub const VENDOR_PM4_IB: u16 = 1;
pub use crate::tables::objects::DW_CNT_REMAIN;
/// VALID in the fourth dword of INDIRECT_BUFFER.
pub const IB_VALID: u32 = 1 << 23;

/// Why a packet cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AqlError {
    /// The header's type is not the packet's.
    #[error("header type {found:?} on a {expected:?} packet")]
    Kind {
        /// Type in the header.
        found: PacketType,
        /// Type of the packet.
        expected: PacketType,
    },
    /// Dimensions out of range.
    #[error("{found} dimensions; 1, 2 or 3")]
    Dimensions {
        /// Value.
        found: u16,
    },
    /// Bad group shape.
    #[error("group {size:?}; each 1 or more, the product at most 1024, unused dimensions 1")]
    GroupSize {
        /// Shape.
        size: [u16; 3],
    },
    /// Bad grid.
    #[error("grid {size:?} work-items; each 1 or more, unused dimensions 1")]
    GridSize {
        /// Grid.
        size: [u32; 3],
    },
    /// A misaligned or missing address.
    #[error("{field} {address:#x} must be a multiple of {align} and not 0 where required")]
    Address {
        /// Field.
        field: &'static str,
        /// Address.
        address: u64,
        /// Alignment in bytes.
        align: u64,
    },
    /// IB size out of range.
    #[error("indirect buffer of {dwords} dwords; 1 to 0xFFFFF")]
    IbSize {
        /// Size.
        dwords: u32,
    },
    /// Cache policy out of range.
    #[error("cache policy {policy}; 0 to 3")]
    Policy {
        /// Policy.
        policy: u8,
    },
}

struct Bytes([u8; 64]);

impl Bytes {
    fn new() -> Self {
        let mut bytes = Self([0; 64]);
        bytes.put(0, &INVALID_WORD.to_le_bytes());
        bytes
    }

    fn put(&mut self, offset: usize, value: &[u8]) {
        self.0[offset..offset + value.len()].copy_from_slice(value);
    }

    fn finish(self, header: Header, high: u16) -> EncodedPacket {
        EncodedPacket {
            body: self.0,
            header: u32::from(header.bits()) | u32::from(high) << 16,
        }
    }
}

fn kind(header: Header, expected: PacketType) -> Result<(), AqlError> {
    if header.kind == expected {
        Ok(())
    } else {
        Err(AqlError::Kind {
            found: header.kind,
            expected,
        })
    }
}

fn aligned(field: &'static str, address: u64, align: u64, null: bool) -> Result<(), AqlError> {
    if address.is_multiple_of(align) && (null || address != 0) {
        Ok(())
    } else {
        Err(AqlError::Address {
            field,
            address,
            align,
        })
    }
}

/// An empty slot.
pub fn invalid() -> EncodedPacket {
    EncodedPacket {
        body: Bytes::new().0,
        header: INVALID_WORD,
    }
}

/// A kernel dispatch. A null kernarg address is allowed for kernels without arguments.
///
/// # Errors
/// Shapes, alignment, or a header of another type.
pub fn kernel_dispatch(header: Header, packet: &KernelDispatch) -> Result<EncodedPacket, AqlError> {
    aligned("kernel_object", packet.kernel_object, 64, false)?;
    kernel_dispatch_unbound(header, packet)
}

/// As [`kernel_dispatch`], with addresses that may still be null.
pub(super) fn kernel_dispatch_unbound(
    header: Header,
    packet: &KernelDispatch,
) -> Result<EncodedPacket, AqlError> {
    kind(header, PacketType::KernelDispatch)?;
    let dims = packet.dimensions;
    if !(1..=3).contains(&dims) {
        return Err(AqlError::Dimensions { found: dims });
    }
    let size = packet.workgroup_size;
    let product = size.iter().map(|n| u64::from(*n)).product::<u64>();
    let unused = usize::from(dims)..3;
    if !(1..=1024).contains(&product) || unused.clone().any(|i| size[i] != 1) {
        return Err(AqlError::GroupSize { size });
    }
    let grid = packet.grid_size;
    if grid.contains(&0) || unused.into_iter().any(|i| grid[i] != 1) {
        return Err(AqlError::GridSize { size: grid });
    }
    aligned("kernel_object", packet.kernel_object, 64, true)?;
    aligned("kernarg_address", packet.kernarg_address, 16, true)?;
    aligned("completion_signal", packet.completion_signal, 64, true)?;
    let mut out = Bytes::new();
    let sizes = [
        kd::WORKGROUP_SIZE_X,
        kd::WORKGROUP_SIZE_Y,
        kd::WORKGROUP_SIZE_Z,
    ];
    for (offset, value) in sizes.into_iter().zip(size) {
        out.put(offset, &value.to_le_bytes());
    }
    let grids = [kd::GRID_SIZE_X, kd::GRID_SIZE_Y, kd::GRID_SIZE_Z];
    for (offset, value) in grids.into_iter().zip(grid) {
        out.put(offset, &value.to_le_bytes());
    }
    out.put(
        kd::PRIVATE_SEGMENT_SIZE,
        &packet.private_segment_size.to_le_bytes(),
    );
    out.put(
        kd::GROUP_SEGMENT_SIZE,
        &packet.group_segment_size.to_le_bytes(),
    );
    out.put(kd::KERNEL_OBJECT, &packet.kernel_object.to_le_bytes());
    out.put(kd::KERNARG_ADDRESS, &packet.kernarg_address.to_le_bytes());
    out.put(kd::RESERVED2, &packet.correlation.to_le_bytes());
    out.put(
        kd::COMPLETION_SIGNAL,
        &packet.completion_signal.to_le_bytes(),
    );
    Ok(out.finish(header, dims))
}

/// A barrier; the header's type says AND or OR.
///
/// # Errors
/// Misaligned signals, or a header of another type.
pub fn barrier(header: Header, packet: &Barrier) -> Result<EncodedPacket, AqlError> {
    if header.kind != PacketType::BarrierOr {
        kind(header, PacketType::BarrierAnd)?;
    }
    let mut out = Bytes::new();
    for (i, signal) in packet.dep_signal.iter().enumerate() {
        aligned("dep_signal", *signal, 64, true)?;
        out.put(bar::DEP_SIGNAL + 8 * i, &signal.to_le_bytes());
    }
    aligned("completion_signal", packet.completion_signal, 64, true)?;
    out.put(bar::RESERVED2, &packet.correlation.to_le_bytes());
    out.put(
        bar::COMPLETION_SIGNAL,
        &packet.completion_signal.to_le_bytes(),
    );
    Ok(out.finish(header, 0))
}

/// A vendor packet that runs a PM4 indirect buffer.
///
/// # Errors
/// Address, size or policy out of range, or a header of another type.
pub fn pm4_ib(header: Header, packet: &Pm4Ib) -> Result<EncodedPacket, AqlError> {
    aligned("ib address", packet.address, 4, false)?;
    pm4_ib_unbound(header, packet)
}

/// As [`pm4_ib`], with addresses that may still be null.
pub(super) fn pm4_ib_unbound(header_in: Header, packet: &Pm4Ib) -> Result<EncodedPacket, AqlError> {
    kind(header_in, PacketType::VendorSpecific)?;
    aligned("ib address", packet.address, 4, true)?;
    aligned("completion_signal", packet.completion_signal, 64, true)?;
    if packet.address >> 48 != 0 {
        return Err(AqlError::Address {
            field: "ib address",
            address: packet.address,
            align: 4,
        });
    }
    if packet.dwords == 0 || packet.dwords > 0xF_FFFF {
        return Err(AqlError::IbSize {
            dwords: packet.dwords,
        });
    }
    if packet.policy > 3 {
        return Err(AqlError::Policy {
            policy: packet.policy,
        });
    }
    let control = packet.dwords | IB_VALID | u32::from(packet.policy) << 28;
    let mut out = Bytes::new();
    out.put(
        ib::IB_JUMP0,
        &header::type3(op::INDIRECT_BUFFER, 4).to_le_bytes(),
    );
    out.put(ib::IB_JUMP1, &packet.address.to_le_bytes());
    out.put(ib::IB_JUMP3, &control.to_le_bytes());
    out.put(ib::DW_CNT_REMAIN, &DW_CNT_REMAIN.to_le_bytes());
    out.put(
        ib::COMPLETION_SIGNAL,
        &packet.completion_signal.to_le_bytes(),
    );
    Ok(out.finish(header_in, VENDOR_PM4_IB))
}
