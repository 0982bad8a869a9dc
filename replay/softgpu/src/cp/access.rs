//! PM4 packets with which the packet processor itself touches memory: WRITE_DATA, COPY_DATA,
//! RELEASE_MEM and WAIT_REG_MEM. Fields are those of `refrain_packet::tables::opcodes`; what a field
//! asks for and is not done here (registers, clocks, interrupts, ranges) is refused by name.
//!
//! Like hardware, the processor does not wait for waves in flight before it reads or writes;
//! RELEASE_MEM alone writes behind them. When a buffer goes on is decided in `pm4`.

use super::fault::Pm4Reason;
use crate::memory::{Access, AddressSpace, MemoryFault};
use crate::strict::Accesses;
use refrain_packet::packet::{ReleaseMem, WaitRegMem};
use refrain_packet::tables::opcodes::{op, opcode};
use refrain_packet::tables::reserved_mask;
use refrain_packet::target::Generation;
use std::sync::atomic::Ordering;

/// WRITE_DATA and COPY_DATA destinations: memory through L2, and memory.
const MEMORY: [u32; 2] = [2, 5];
/// Events of RELEASE_MEM: CACHE_FLUSH_AND_INV_TS, BOTTOM_OF_PIPE_TS, CS_DONE.
const END_OF_PIPE: [u32; 3] = [0x14, 0x28, 0x2F];

fn field<T>(field: &'static str, value: u32, what: &'static str) -> Result<T, Pm4Reason> {
    Err(Pm4Reason::Field { field, value, what })
}

/// Refuses bits of RELEASE_MEM's control word that exist on other generations only; the reader has
/// refused those that exist on none.
fn reserved(control: u32, generation: Generation) -> Result<(), Pm4Reason> {
    let fields = opcode(op::RELEASE_MEM).map_or(&[] as &[_], |row| row.fields);
    match control & reserved_mask(fields, 1, generation) {
        0 => Ok(()),
        bits => field("reserved bits", bits, "must be 0"),
    }
}

fn place(
    memory: &AddressSpace,
    va: u64,
    bytes: u64,
    align: u64,
    access: Access,
) -> Result<(), Pm4Reason> {
    if va == 0 || !va.is_multiple_of(align) {
        return Err(Pm4Reason::Address { va, align });
    }
    let checked = memory.check(va, bytes, access);
    checked.map_err(|fault| Pm4Reason::Memory { fault })
}

fn memory(fault: MemoryFault) -> Pm4Reason {
    Pm4Reason::Memory { fault }
}

/// WR_CONFIRM of WRITE_DATA and COPY_DATA.
const WR_CONFIRM: u32 = 1 << 20;

/// The word at `va` for strict mode; what cannot be read is refused elsewhere.
fn word(space: &AddressSpace, va: u64) -> u32 {
    space.load_u32(va, Ordering::Acquire).unwrap_or_default()
}

/// WRITE_DATA to memory.
pub(super) fn write_data(
    space: &AddressSpace,
    control: u32,
    address: u64,
    data: &[u32],
) -> Result<Accesses, Pm4Reason> {
    let destination = control >> 8 & 15;
    if !MEMORY.contains(&destination) {
        return field("DST_SEL", destination, "is not written; use memory, 2 or 5");
    }
    let step = if control >> 16 & 1 == 0 { 4 } else { 0 };
    let bytes = 4 + step * (data.len() as u64).saturating_sub(1);
    place(space, address, bytes, 4, Access::Write)?;
    let before = word(space, address);
    for (word, at) in data.iter().zip((0..).map(|index| address + step * index)) {
        store(space, at, 4, u64::from(*word)).map_err(memory)?;
    }
    Ok(Accesses {
        read: None,
        write: Some((address, bytes)),
        values: (before, word(space, address)),
        confirmed: control & WR_CONFIRM != 0,
    })
}

/// COPY_DATA from memory or of an immediate to memory.
pub(super) fn copy_data(
    space: &AddressSpace,
    control: u32,
    src: u64,
    dst: u64,
) -> Result<Accesses, Pm4Reason> {
    let (source, destination) = (control & 15, control >> 8 & 15);
    if !MEMORY.contains(&destination) {
        return field("DST_SEL", destination, "is not written; use memory, 2 or 5");
    }
    let bytes = if control >> 16 & 1 == 0 { 4 } else { 8 };
    let value = match source {
        2 => {
            place(space, src, bytes, bytes, Access::Read)?;
            load(space, src, bytes).map_err(memory)?
        }
        5 => src,
        _ => {
            return field(
                "SRC_SEL",
                source,
                "is not read; use memory, 2, or an immediate, 5",
            );
        }
    };
    place(space, dst, bytes, bytes, Access::Write)?;
    let before = word(space, dst);
    store(space, dst, bytes, value).map_err(memory)?;
    Ok(Accesses {
        read: (source == 2).then_some((src, bytes)),
        write: Some((dst, bytes)),
        values: (before, word(space, dst)),
        confirmed: control & WR_CONFIRM != 0,
    })
}

fn load(space: &AddressSpace, va: u64, bytes: u64) -> Result<u64, MemoryFault> {
    match bytes {
        8 => space.load_u64(va, Ordering::Acquire),
        _ => space.load_u32(va, Ordering::Acquire).map(u64::from),
    }
}

fn store(space: &AddressSpace, va: u64, bytes: u64, value: u64) -> Result<(), MemoryFault> {
    match bytes {
        8 => space.cell_u64(va, Access::Write, |cell| {
            cell.store(value, Ordering::Release)
        }),
        _ => space.cell_u32(va, Access::Write, |cell| {
            cell.store(value as u32, Ordering::Release)
        }),
    }
}

/// What RELEASE_MEM writes once all earlier waves have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Release {
    pub address: u64,
    /// 4 or 8.
    pub bytes: u64,
    value: u64,
    /// Adds instead of storing.
    add: bool,
}

impl Release {
    /// Writes; gives the low words before and after.
    pub(super) fn perform(&self, space: &AddressSpace) -> Result<(u32, u32), MemoryFault> {
        if self.add {
            let before = space.cell_u32(self.address, Access::Atomic, |cell| {
                cell.fetch_add(self.value as u32, Ordering::AcqRel)
            });
            return before.map(|before| (before, before.wrapping_add(self.value as u32)));
        }
        let before = word(space, self.address);
        store(space, self.address, self.bytes, self.value)?;
        Ok((before, self.value as u32))
    }
}

/// Checks a RELEASE_MEM; `None` when it writes nothing.
pub(super) fn release_mem(
    space: &AddressSpace,
    generation: Generation,
    packet: &ReleaseMem,
) -> Result<Option<Release>, Pm4Reason> {
    let ReleaseMem {
        control, select, ..
    } = *packet;
    reserved(control, generation)?;
    let event = control & 0x3f;
    if !END_OF_PIPE.contains(&event) {
        return field(
            "EVENT_TYPE",
            event,
            "is not an end of pipe; use 0x28 or 0x2f",
        );
    }
    // (field, value, where it must be 0 and why)
    let refused = [
        (
            "EVENT_INDEX",
            u32::from(!matches!(control >> 8 & 15, 5 | 6)),
            "must be 5 or 6",
        ),
        (
            "WAIT_SYNC",
            control >> 7 & 1,
            "is not usable on compute queues",
        ),
        (
            "GL2_RANGE",
            control >> 17 & 3,
            "is not executed; use 0, everything",
        ),
        ("GL2_DISCARD", control >> 19 & 1, "drops dirty lines"),
        ("PWS_ENABLE", control >> 31, "belongs to graphics queues"),
        (
            "DST_SEL",
            u32::from(select >> 16 & 3 > 1),
            "must be 0 or 1, memory",
        ),
        (
            "INT_SEL",
            u32::from(matches!(select >> 24 & 7, 1 | 2 | 4..)),
            "asks for an interrupt, and nobody takes it; use 0 or 3",
        ),
    ];
    if let Some(&(name, value, what)) = refused.iter().find(|row| row.1 != 0) {
        return field(name, value, what);
    }
    let (bytes, add) = match select >> 29 {
        0 => return Ok(None),
        1 => (4, false),
        2 => (8, false),
        7 => (4, true),
        other => {
            return field(
                "DATA_SEL",
                other,
                "is not written; clocks have no meaning here",
            );
        }
    };
    let access = if add { Access::Atomic } else { Access::Write };
    place(space, packet.address, bytes, bytes, access)?;
    Ok(Some(Release {
        address: packet.address,
        bytes,
        value: packet.data,
        add,
    }))
}

/// Checks a WAIT_REG_MEM and says whether memory meets it now.
pub(super) fn wait_reg_mem(space: &AddressSpace, packet: &WaitRegMem) -> Result<bool, Pm4Reason> {
    let control = packet.control;
    let (function, space_bits, operation) = (control & 7, control >> 4 & 3, control >> 6 & 3);
    if space_bits != 1 {
        return field("MEM_SPACE", space_bits, "is not read; use 1, memory");
    }
    if operation != 0 {
        return field("OPERATION", operation, "is not executed; use 0, wait");
    }
    place(space, packet.address, 4, 4, Access::Read)?;
    let value = space.load_u32(packet.address, Ordering::Acquire);
    let value = value.map_err(memory)?;
    if function > 6 {
        return field("FUNCTION", function, "does not exist; 0 to 6 do");
    }
    Ok(meets(packet, value))
}

/// Whether a word meets a WAIT_REG_MEM.
pub(super) fn meets(packet: &WaitRegMem, value: u32) -> bool {
    let (value, reference) = (value & packet.mask, packet.reference & packet.mask);
    match packet.control & 7 {
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => true,
    }
}
