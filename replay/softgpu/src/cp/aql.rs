//! AQL packets as bytes: header, kernel dispatch, barriers and the vendor PM4-IB packet, each
//! checked field by field (HSA Platform System Architecture 1.2, "AQL"; ROCr's PM4-IB packet). When
//! a packet may run is decided in `processor`.

use super::batch::{Shape, over_budget};
use super::fault::PacketError;
use crate::gpu::Shared;
use crate::memory::Access;
use crate::object::{Kernel, gfx};
use refrain_packet::tables::objects::{barrier, kernel_dispatch as kd, pm4_ib as ib};
use refrain_packet::tables::registers::rsrc2;
use std::sync::Arc;

/// Work-items per work-group that any kernel may have at most.
const MAX_GROUP: u64 = 1024;

/// The 64 bytes of a slot.
pub(crate) struct Packet<'a>(pub &'a [u8; 64]);

impl Packet<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut out = [0; N];
        if let Some(bytes) = self.0.get(offset..offset + N) {
            out.copy_from_slice(bytes);
        }
        out
    }

    pub(crate) fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.bytes(offset))
    }

    pub(crate) fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes(offset))
    }

    pub(crate) fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes(offset))
    }

    fn zero(&self, field: &'static str, offset: usize, value: u64) -> Result<(), PacketError> {
        if value == 0 {
            Ok(())
        } else {
            Err(PacketError::Reserved {
                field,
                offset,
                value,
            })
        }
    }
}

/// A packet type that a queue processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketType {
    Vendor,
    KernelDispatch,
    BarrierAnd,
    BarrierOr,
}

/// The header word, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: PacketType,
    pub barrier: bool,
}

/// Type name of a header, for messages about any packet.
pub(crate) fn type_name(header: u16) -> &'static str {
    let kind = (header & 0xff) as u8;
    let row = refrain_packet::tables::objects::PACKET_TYPES
        .iter()
        .find(|row| row.0 == kind);
    row.map_or("unknown type", |row| row.1)
}

pub(crate) fn header(word: u16) -> Result<Header, PacketError> {
    if word >> 13 != 0 {
        return Err(PacketError::HeaderBits { header: word });
    }
    for (fence, scope) in [("acquire", (word >> 9) & 3), ("release", (word >> 11) & 3)] {
        if scope == 3 {
            return Err(PacketError::Scope { fence });
        }
    }
    let kind = match word & 0xff {
        0 => PacketType::Vendor,
        2 => PacketType::KernelDispatch,
        3 => PacketType::BarrierAnd,
        5 => PacketType::BarrierOr,
        kind => return Err(PacketError::Type { kind: kind as u8 }),
    };
    Ok(Header {
        kind,
        barrier: word & 0x100 != 0,
    })
}

/// Scope of the acquire fence: 0 none, 1 agent, 2 system.
pub(crate) fn acquire(word: u16) -> u16 {
    word >> 9 & 3
}

/// Whether the release fence has system scope.
pub(crate) fn releases(word: u16) -> bool {
    word >> 11 & 3 == 2
}

/// The signals that a barrier packet depends on.
pub(crate) fn dependencies(packet: &Packet<'_>) -> impl Iterator<Item = u64> {
    let all: [u64; 5] = std::array::from_fn(|index| packet.u64(barrier::DEP_SIGNAL + 8 * index));
    all.into_iter().filter(|handle| *handle != 0)
}

/// Checks the completion signal and returns it.
pub(crate) fn completion(packet: &Packet<'_>, shared: &Shared) -> Result<u64, PacketError> {
    let handle = packet.u64(kd::COMPLETION_SIGNAL);
    if handle != 0 && !shared.signals.is_value(handle) {
        return Err(PacketError::Signal {
            field: "completion_signal",
            handle,
        });
    }
    Ok(handle)
}

/// A kernel dispatch, checked.
pub(crate) struct KernelDispatch {
    pub kernel: Arc<Kernel>,
    pub shape: Shape,
    pub kernarg_va: u64,
}

pub(crate) fn kernel_dispatch(
    packet: &Packet<'_>,
    shared: &Shared,
) -> Result<KernelDispatch, PacketError> {
    let va = packet.u64(kd::KERNEL_OBJECT);
    let kernel = shared
        .registry
        .by_descriptor(va)
        .ok_or(PacketError::KernelObject { va })?;
    if let Some(reason) = &kernel.refusal {
        return Err(PacketError::Refused {
            reason: reason.clone(),
        });
    }
    packet.zero("reserved0", kd::RESERVED0, packet.u16(kd::RESERVED0).into())?;
    let (groups, group_size) = geometry(packet, shared, &kernel)?;
    let bytes = packet.u32(kd::PRIVATE_SEGMENT_SIZE);
    if bytes != 0 {
        return Err(PacketError::Scratch { bytes });
    }
    let lds_bytes = packet.u32(kd::GROUP_SEGMENT_SIZE);
    let fixed = kernel.descriptor.group_segment_fixed_size;
    let limit = rsrc2::LDS_GRANULE * rsrc2::LDS_MAX_GRANULES;
    if lds_bytes < fixed || lds_bytes > limit {
        return Err(PacketError::Lds {
            bytes: lds_bytes,
            fixed,
            limit,
        });
    }
    let kernarg_va = kernarg(packet, shared, &kernel)?;
    let mut user_sgprs = [0; 16];
    if let Some(first) = kernel.user_sgprs.kernarg_segment_ptr {
        let pair = user_sgprs.iter_mut().skip(usize::from(first));
        pair.zip([kernarg_va as u32, (kernarg_va >> 32) as u32])
            .for_each(|(sgpr, half)| *sgpr = half);
    }
    let granules = lds_bytes.div_ceil(rsrc2::LDS_GRANULE);
    let descriptor = &kernel.descriptor;
    let rsrc = [
        descriptor.rsrc1,
        descriptor.rsrc2 | (granules << rsrc2::LDS_SHIFT),
        descriptor.rsrc3,
    ];
    let shape = Shape {
        groups,
        group_size,
        lds_bytes,
        scratch_bytes: 0,
        rsrc,
        user_sgprs,
    };
    Ok(KernelDispatch {
        kernel,
        shape,
        kernarg_va,
    })
}

/// Name of the kernel that a dispatch packet means, for messages about it.
pub(crate) fn kernel_name(packet: &Packet<'_>, shared: &Shared) -> Option<Arc<str>> {
    let kernel = shared
        .registry
        .by_descriptor(packet.u64(kd::KERNEL_OBJECT))?;
    Some(Arc::clone(&kernel.name))
}

/// Work-groups and work-group size.
fn geometry(
    packet: &Packet<'_>,
    shared: &Shared,
    kernel: &Kernel,
) -> Result<([u32; 3], [u32; 3]), PacketError> {
    let setup = packet.u16(kd::SETUP);
    let dimensions = u32::from(setup);
    if !(1..=3).contains(&dimensions) {
        return Err(PacketError::Setup { setup });
    }
    let size = [
        kd::WORKGROUP_SIZE_X,
        kd::WORKGROUP_SIZE_Y,
        kd::WORKGROUP_SIZE_Z,
    ]
    .map(|at| u32::from(packet.u16(at)));
    let grid = [kd::GRID_SIZE_X, kd::GRID_SIZE_Y, kd::GRID_SIZE_Z].map(|at| packet.u32(at));
    let limit = kernel.metadata.max_flat_workgroup_size;
    let product: u64 = size.iter().map(|&n| u64::from(n)).product();
    let unused_one = |dims: &[u32; 3]| dims.iter().skip(dimensions as usize).all(|&n| n == 1);
    if product == 0 || product > u64::from(limit).min(MAX_GROUP) || !unused_one(&size) {
        return Err(PacketError::GroupSize {
            size,
            dimensions,
            limit,
        });
    }
    if let Some(required) = kernel
        .metadata
        .reqd_workgroup_size
        .filter(|required| *required != size)
    {
        return Err(PacketError::RequiredGroupSize {
            found: size,
            required,
        });
    }
    let whole = grid
        .iter()
        .zip(&size)
        .all(|(items, group)| *items != 0 && items.is_multiple_of(*group));
    if !whole || !unused_one(&grid) {
        return Err(PacketError::Grid { grid, size });
    }
    let groups = [grid[0] / size[0], grid[1] / size[1], grid[2] / size[2]];
    let target = shared.config.target;
    let limit = gfx(target).map_or(u32::MAX, |gfx| gfx.capability().max_groups_yz.value);
    if groups[1] > limit || groups[2] > limit {
        return Err(PacketError::Groups {
            groups,
            limit,
            target: target.name(),
        });
    }
    match over_budget(shared, groups) {
        Some(groups) => Err(PacketError::Budget {
            groups,
            limit: shared.config.group_budget,
        }),
        None => Ok((groups, size)),
    }
}

fn kernarg(packet: &Packet<'_>, shared: &Shared, kernel: &Kernel) -> Result<u64, PacketError> {
    let va = packet.u64(kd::KERNARG_ADDRESS);
    let (bytes, align) = (kernel.kernarg_size(), kernel.kernarg_align());
    if va == 0 && bytes == 0 {
        return Ok(0);
    }
    if va == 0 || !va.is_multiple_of(u64::from(align)) {
        return Err(PacketError::Kernarg { va, bytes, align });
    }
    let checked = shared.memory.check(va, u64::from(bytes), Access::Read);
    checked
        .map(|()| va)
        .map_err(|fault| PacketError::KernargMemory { fault })
}

/// Whether the dependencies of a barrier packet are met.
pub(crate) fn barrier_met(
    packet: &Packet<'_>,
    shared: &Shared,
    all: bool,
) -> Result<bool, PacketError> {
    packet.zero(
        "reserved0",
        barrier::RESERVED0,
        packet.u16(barrier::RESERVED0).into(),
    )?;
    packet.zero(
        "reserved1",
        barrier::RESERVED1,
        packet.u32(barrier::RESERVED1).into(),
    )?;
    const FIELDS: [&str; 5] = [
        "dep_signal[0]",
        "dep_signal[1]",
        "dep_signal[2]",
        "dep_signal[3]",
        "dep_signal[4]",
    ];
    let (mut named, mut zero) = (0, 0);
    for (index, field) in FIELDS.into_iter().enumerate() {
        let handle = packet.u64(barrier::DEP_SIGNAL + 8 * index);
        if handle == 0 {
            continue;
        }
        if !shared.signals.is_value(handle) {
            return Err(PacketError::Signal { field, handle });
        }
        let value = shared
            .signals
            .load(handle)
            .map_err(|_| PacketError::Signal { field, handle })?;
        if value < 0 {
            return Err(PacketError::NegativeSignal {
                field,
                handle,
                value,
            });
        }
        named += 1;
        zero += i32::from(value == 0);
    }
    // An OR of no signals passes at once, as in AMD's own software processors.
    Ok(if all {
        zero == named
    } else {
        zero > 0 || named == 0
    })
}

/// The indirect buffer that a vendor packet names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndirectBuffer {
    pub va: u64,
    pub dwords: u32,
}

pub(crate) fn indirect_buffer(
    packet: &Packet<'_>,
    shared: &Shared,
) -> Result<IndirectBuffer, PacketError> {
    let vendor = packet.u16(ib::VEN_HDR);
    if vendor & 0xff != 1 {
        return Err(PacketError::VendorFormat {
            format: vendor as u8,
        });
    }
    packet.zero("ven_hdr byte 3", ib::VEN_HDR + 1, u64::from(vendor >> 8))?;
    let word = |field, offset, expected| {
        move |ok: bool, found: u32| {
            if ok {
                Ok(())
            } else {
                Err(PacketError::VendorWord {
                    field,
                    offset,
                    found,
                    expected,
                })
            }
        }
    };
    let jump = packet.u32(ib::IB_JUMP0);
    word("ib_jump[0]", ib::IB_JUMP0, "0xc0023f00 (INDIRECT_BUFFER)")(jump == 0xC002_3F00, jump)?;
    let lo = packet.u32(ib::IB_JUMP1);
    word("ib_jump[1]", ib::IB_JUMP1, "a 4-byte aligned address")(lo & 3 == 0, lo)?;
    let hi = packet.u32(ib::IB_JUMP2);
    word("ib_jump[2]", ib::IB_JUMP2, "address bits 47:32")(hi <= 0xFFFF && (lo | hi) != 0, hi)?;
    let control = packet.u32(ib::IB_JUMP3);
    let dwords = control & 0xF_FFFF;
    let expected =
        "a size of 1 to 0xfffff dwords, VALID (bit 23), a cache policy in 29:28 and nothing else";
    let other = control & !(0xF_FFFF | (1 << 23) | (3 << 28));
    let valid = dwords != 0 && control & (1 << 23) != 0 && other == 0;
    word("ib_jump[3]", ib::IB_JUMP3, expected)(valid, control)?;
    let remain = packet.u32(ib::DW_CNT_REMAIN);
    word("dw_cnt_remain", ib::DW_CNT_REMAIN, "10")(remain == 10, remain)?;
    for offset in (ib::RESERVED..ib::RESERVED + 32).step_by(8) {
        packet.zero("reserved", offset, packet.u64(offset))?;
    }
    let va = u64::from(lo) | u64::from(hi) << 32;
    let checked = shared
        .memory
        .check(va, 4 * u64::from(dwords), Access::Execute);
    checked.map_err(|fault| PacketError::IbMemory { fault })?;
    Ok(IndirectBuffer { va, dwords })
}
