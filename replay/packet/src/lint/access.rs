//! Rules P08 to P10: cache controls, and packets that read or write memory.

use super::context::{Holds, Range};
use super::rules::{Rule, Severity};
use super::walk::{Walk, Write};
use super::{Place, Sink};
use crate::decode::Located;
use crate::packet::{AcquireMem, Packet, ReleaseMem, WaitRegMem};
use crate::tables::gcr;
use crate::tables::opcodes::event;

/// CS_DONE: ends the pipe without a time stamp.
const CS_DONE: u32 = 0x2F;

/// Checks a packet and records what it writes.
pub(super) fn check(located: &Located<'_>, sink: &mut Sink<'_, '_>, walk: &mut Walk) {
    let place = Place::Dword(located.offset);
    match located.packet {
        Packet::AcquireMem(packet) => acquire(&packet, place, sink),
        Packet::WaitRegMem(packet) => wait_reg_mem(&packet, place, sink, &walk.writes),
        Packet::ReleaseMem(packet) => release(&packet, place, sink),
        Packet::CopyData { control, src, .. } if control & 0xF == 2 => {
            source(control, src, place, sink)
        }
        _ => {}
    }
    if let Some((row, align)) = destination(located, walk.snapshots.len())
        && target(&row, align, is_register(&located.packet), place, sink)
    {
        walk.writes.push(row);
    }
}

/// The write that the packet at a dword was recorded with.
pub(super) fn write_at(dword: u32, walk: &Walk) -> Option<usize> {
    let last = walk.writes.len().checked_sub(1)?;
    (walk.writes.get(last)?.dword == dword).then_some(last)
}

const fn is_register(packet: &Packet<'_>) -> bool {
    match packet {
        Packet::WriteData { control, .. } | Packet::CopyData { control, .. } => {
            *control >> 8 & 0xF == 0
        }
        _ => false,
    }
}

/// What a packet writes, and the alignment in bytes that it needs.
fn destination(located: &Located<'_>, launched: usize) -> Option<(Write, u64)> {
    const WR_CONFIRM: u32 = 1 << 20;
    let (name, base, bytes, align, confirmed, value) = match located.packet {
        Packet::WriteData {
            control,
            address,
            data,
        } => {
            let value = if let [one] = data { Some(*one) } else { None };
            let bytes = data.len() as u64 * 4;
            let confirmed = control & WR_CONFIRM != 0;
            ("WRITE_DATA", address, bytes, 4, confirmed, value)
        }
        Packet::CopyData { control, src, dst } => {
            let bytes = if control >> 16 & 1 != 0 { 8 } else { 4 };
            let immediate = control & 0xF == 5 && bytes == 4;
            let value = immediate.then_some(src as u32);
            let confirmed = control & WR_CONFIRM != 0;
            ("COPY_DATA", dst, bytes, bytes, confirmed, value)
        }
        Packet::AtomicMem {
            control, address, ..
        } => {
            // TC operations from 0x20 on are the 64-bit ones; command 2 waits for the write.
            let bytes = if control & 0x20 != 0 { 8 } else { 4 };
            let confirmed = control >> 8 & 0xF == 2;
            ("ATOMIC_MEM", address, bytes, bytes, confirmed, None)
        }
        Packet::ReleaseMem(packet) => {
            let (bytes, value) = match packet.select >> 29 {
                1 => (4, Some(packet.data as u32)),
                7 => (4, None),
                2..=4 => (8, None),
                _ => return None,
            };
            // It goes on at once; the write follows at the end of the pipe.
            ("RELEASE_MEM", packet.address, bytes, bytes, false, value)
        }
        _ => return None,
    };
    let row = Write {
        dword: located.offset,
        name,
        range: Range::new(base, bytes),
        confirmed,
        end_of_pipe: matches!(located.packet, Packet::ReleaseMem(_)),
        value,
        launched,
    };
    Some((row, align))
}

/// Judges a destination; true when it is memory.
fn target(row: &Write, align: u64, register: bool, place: Place, sink: &mut Sink<'_, '_>) -> bool {
    let range = row.range;
    if register {
        let found = format!("register {:#x}", range.base);
        sink.add(Rule::P09, place, row.name, found, "a memory destination");
        return false;
    }
    if !range.base.is_multiple_of(align) || range.base == 0 {
        let found = format!("{:#x}", range.base);
        let expected = format!("a multiple of {align}, not 0");
        sink.add(Rule::P09, place, row.name, found, expected);
    }
    let declared = sink
        .cx
        .host
        .is_some_and(|host| host.targets.iter().any(|target| target.contains(&range)));
    let allocation = sink.cx.containing(&range);
    if sink.cx.allocations.is_some()
        && !declared
        && allocation.is_none_or(|row| row.holds != Holds::Data)
    {
        let inside = allocation.map_or("no live allocation", |row| row.name.as_str());
        let found = format!("{} bytes at {:#x} in {inside}", range.bytes, range.base);
        let expected = "inside a live, visible data allocation or a declared target";
        sink.add(Rule::P09, place, row.name, found, expected);
    }
    true
}

/// Memory that COPY_DATA reads.
fn source(control: u32, address: u64, place: Place, sink: &mut Sink<'_, '_>) {
    let bytes = if control >> 16 & 1 != 0 { 8 } else { 4 };
    let range = Range::new(address, bytes);
    let dead = sink.cx.allocations.is_some() && sink.cx.containing(&range).is_none();
    if dead || !address.is_multiple_of(bytes) {
        let found = format!("{bytes} bytes at {address:#x}");
        let expected = format!("a multiple of {bytes} inside a live allocation");
        sink.add(Rule::P09, place, "COPY_DATA source", found, expected);
    }
}

fn acquire(packet: &AcquireMem, place: Place, sink: &mut Sink<'_, '_>) {
    let word = packet.gcr;
    let row = sink.cx.target.capability();
    let mut bits = word & (gcr::RESERVED | gcr::GL2_DISCARD | gcr::RANGE_IS_PA);
    bits |= word & (gcr::GL1_RANGE | gcr::GL2_RANGE);
    if word & 3 == 2 {
        bits |= 2;
    }
    if !row.glm.value {
        bits |= word & (gcr::GLM_WB | gcr::GLM_INV);
    }
    if bits != 0 {
        let found = format!("{word:#x} with bits {bits:#x}");
        let expected = format!("for example {:#x}", row.agent_acquire.value);
        sink.add(Rule::P08, place, "GCR_CNTL", found, expected);
    }
    if packet.control != 0 {
        let found = format!("{:#010x}", packet.control);
        sink.add(Rule::P08, place, "dword 1", found, "0");
    }
    if !packet.full_range() {
        let halves = |value: u64| format!("{:#010X}_{:08X}", value >> 32, value & 0xFFFF_FFFF);
        let (base, size) = (halves(packet.base), halves(packet.size));
        let found = format!("base {base}, size {size} pages").replace("0X", "0x");
        let expected = "base 0, size 0x00FFFFFF_FFFFFFFF pages of 256 bytes";
        sink.add(Rule::P08, place, "range", found, expected);
    }
    let mut warn = |name: &'static str, expected: &'static str| {
        let found = format!("{word:#x}");
        sink.add_as(Severity::Warning, Rule::P08, place, name, found, expected);
    };
    if !row.gl1.value && word & gcr::GL1_INV != 0 {
        warn("GL1_INV", "clear: there is no GL1");
    }
    if word & 3 == 3 {
        warn("GLI_INV", "1 (ALL); 3 is FIRST_LAST");
    }
    if row.glm.value && word & (gcr::GLM_WB | gcr::GLM_INV) == gcr::GLM_WB {
        warn("GLM_WB", "together with GLM_INV");
    }
}

/// The controls of RELEASE_MEM that exist and are still refused. Reserved bits and values without
/// a name are judged with the table.
fn release(packet: &ReleaseMem, place: Place, sink: &mut Sink<'_, '_>) {
    const REFUSED: [(u32, &str, &str); 4] = [
        (1 << 7, "WAIT_SYNC", "clear: not usable on compute queues"),
        (3 << 17, "GL2_RANGE", "0, everything"),
        (1 << 19, "GL2_DISCARD", "clear: it drops dirty lines"),
        (1 << 31, "PWS_ENABLE", "clear: graphics queues only"),
    ];
    let word = packet.control;
    for (bits, name, expected) in REFUSED {
        if word & bits != 0 {
            sink.add(Rule::P08, place, name, format!("{word:#010x}"), expected);
        }
    }
    // GLM_WB and GLM_INV.
    if word >> 12 & 3 == 1 && sink.cx.target.capability().glm.value {
        let (warn, found) = (Severity::Warning, format!("{word:#010x}"));
        let expected = "together with GLM_INV";
        sink.add_as(warn, Rule::P08, place, "GLM_WB", found, expected);
    }
    let code = word & 0x3F;
    if event(code as u8).is_some_and(|row| !row.timestamp && code != CS_DONE) {
        let expected = "a time-stamp event or CS_DONE";
        sink.add(
            Rule::P08,
            place,
            "EVENT_TYPE",
            format!("{code:#x}"),
            expected,
        );
    }
}

/// True when a value meets the function of WAIT_REG_MEM.
const fn meets(packet: &WaitRegMem, value: u32) -> bool {
    let (value, reference) = (value & packet.mask, packet.reference & packet.mask);
    match packet.control & 7 {
        0 => true,
        1 => value < reference,
        2 => value <= reference,
        3 => value == reference,
        4 => value != reference,
        5 => value >= reference,
        6 => value > reference,
        _ => false,
    }
}

/// The RELEASE_MEM whose value a WAIT_REG_MEM waits for, as index into `writes`: the dispatches in
/// front of it have ended behind the wait. `None` when it waits for anything else, or when memory may have met it before.
pub(super) fn timeline(packet: &WaitRegMem, writes: &[Write]) -> Option<usize> {
    let range = Range::new(packet.address, 4);
    let (at, row) = writes
        .iter()
        .enumerate()
        .rfind(|(_, row)| row.range.overlaps(&range))?;
    let exact = row.end_of_pipe && row.range == range && row.value == Some(packet.reference);
    let function = matches!(packet.control & 7, 3 | 5);
    let memory = packet.control >> 4 & 0xF == 1;
    let fresh = writes[..at]
        .iter()
        .filter(|row| row.range.overlaps(&range))
        .all(|row| row.value.is_some_and(|value| !meets(packet, value)));
    (exact && function && memory && fresh && packet.mask == u32::MAX).then_some(at)
}

fn wait_reg_mem(packet: &WaitRegMem, place: Place, sink: &mut Sink<'_, '_>, writes: &[Write]) {
    let name = "WAIT_REG_MEM";
    let function = packet.control & 7;
    if packet.control >> 4 & 3 != 1 {
        let found = format!("space {}", packet.control >> 4 & 3);
        sink.add(Rule::P10, place, name, found, "1, memory");
    }
    if packet.control >> 6 & 3 == 1 {
        let expected = "0, wait: operation 1 writes as well";
        sink.add(Rule::P10, place, "OPERATION", "1", expected);
    }
    if !packet.address.is_multiple_of(4) || packet.address == 0 {
        let found = format!("address {:#x}", packet.address);
        sink.add(Rule::P10, place, name, found, "a multiple of 4, not 0");
    }
    let range = Range::new(packet.address, 4);
    let last = writes.iter().rfind(|row| row.range.contains(&range));
    if let Some(host) = sink.cx.host
        && function != 0
        && !host.signals.iter().any(|row| row.contains(&range))
    {
        let never = last.and_then(|row| row.value.filter(|value| !meets(packet, *value)));
        if last.is_none() {
            let found = format!("address {:#x}", packet.address);
            let expected = "memory that an earlier packet or the host writes";
            sink.add(Rule::P10, place, name, found, expected);
        } else if let Some(value) = never {
            let found = format!("{value:#x} written to {:#x}", packet.address);
            let expected = format!(
                "a value that meets function {function} of {:#x}",
                packet.reference
            );
            sink.add(Rule::P10, place, name, found, expected);
        }
    }
    if function == 3 && timeline(packet, writes).is_none() {
        let expected = "an inequality, which a counter cannot skip";
        let severity = Severity::Warning;
        sink.add_as(severity, Rule::P10, place, name, "function EQUAL", expected);
    }
}
