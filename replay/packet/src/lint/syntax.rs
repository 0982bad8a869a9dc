//! Rules P01 to P10: packets one by one.

use super::context::Range;
use super::rules::{Rule, Severity};
use super::walk::{Step, Walk};
use super::{Place, Sink};
use crate::decode::{DecodeError, Located, packets};
use crate::packet::{AcquireMem, Packet, WaitRegMem};
use crate::state::{ShState, Snapshot};
use crate::tables::gcr;
use crate::tables::opcodes::{Use, event, op, opcode};
use crate::tables::registers::{COMPUTE_FIRST, WRITABLE_LAST, Writer, reg, register};
use crate::target::Generation;

/// Checks P rules and returns what the other rules look at.
pub(super) fn check(words: &[u32], sink: &mut Sink<'_, '_>) -> Walk {
    let mut walk = Walk::default();
    let mut state = ShState::default();
    let mut written: Vec<Range> = Vec::new();
    let mut styles = (None, None);
    whole(words, sink);
    for item in packets(words) {
        let located = match item {
            Ok(located) => located,
            Err(error) => {
                undecodable(&error, sink);
                continue;
            }
        };
        if located.packet != Packet::Filler {
            let seen = if located.shader_type {
                &mut styles.0
            } else {
                &mut styles.1
            };
            seen.get_or_insert(located.offset);
        }
        one(&located, sink, &mut written);
        state.apply(&located.packet);
        step(&located, &state, &mut walk);
    }
    if let (Some(with), Some(without)) = styles {
        sink.add_as(
            Severity::Warning,
            Rule::P01,
            Place::Dword(with.max(without)),
            "shader-type bit",
            "set in some packets and clear in others",
            "one style in a buffer",
        );
    }
    walk
}

fn whole(words: &[u32], sink: &mut Sink<'_, '_>) {
    if words.is_empty() {
        sink.add(Rule::P06, Place::Whole, "length", "0 dwords", "1 or more");
    }
    if let Some(ib) = sink.cx.ib
        && u64::from(ib.declared) != words.len() as u64
    {
        let found = format!("{} dwords", words.len());
        sink.add(
            Rule::P06,
            Place::Whole,
            "length",
            found,
            format!("{} declared", ib.declared),
        );
    }
    if let Some(policy) = sink.cx.policy
        && policy.pad
        && !words.len().is_multiple_of(8)
    {
        sink.add_as(
            Severity::Warning,
            Rule::P06,
            Place::Whole,
            "length",
            format!("{} dwords", words.len()),
            format!("a multiple of 8 under policy {}", policy.name),
        );
    }
}

fn undecodable(error: &DecodeError, sink: &mut Sink<'_, '_>) {
    let place = Place::Dword(error.offset());
    match *error {
        DecodeError::Type { word, .. } => {
            let found = format!("{word:#010x}, type {}", word >> 30);
            sink.add(Rule::P01, place, "header", found, "type 3, or 0x80000000");
        }
        DecodeError::Header { word, bits, .. } => {
            let found = format!("{word:#010x} with bits {bits:#04x}");
            sink.add(Rule::P01, place, "header", found, "bits 7:2 and 0 clear");
        }
        DecodeError::PastEnd {
            name, dwords, left, ..
        } => {
            let found = format!("{dwords} dwords");
            sink.add(
                Rule::P02,
                place,
                name,
                found,
                format!("at most {left}, the rest"),
            );
        }
        DecodeError::Length {
            opcode,
            name,
            dwords,
            expected,
            ..
        } => {
            let sh = matches!(opcode, op::SET_SH_REG | op::SET_SH_REG_INDEX);
            let rule = if sh { Rule::P04 } else { Rule::P02 };
            sink.add(
                rule,
                place,
                name,
                format!("{dwords} dwords"),
                format!("{expected:?}"),
            );
        }
        DecodeError::Reserved {
            opcode,
            name,
            word,
            value,
            bits,
            ..
        } => {
            let found = format!("word {word} {value:#010x}");
            let expected = format!("reserved bits {bits:#010x} clear");
            sink.add(reserved_rule(opcode), place, name, found, expected);
        }
    }
}

/// The rule that owns the reserved bits of an opcode.
const fn reserved_rule(opcode: u8) -> Rule {
    match opcode {
        op::SET_SH_REG | op::SET_SH_REG_INDEX => Rule::P04,
        op::EVENT_WRITE => Rule::P07,
        op::ACQUIRE_MEM => Rule::P08,
        op::WAIT_REG_MEM | op::WAIT_REG_MEM64 => Rule::P10,
        op::INDIRECT_BUFFER => Rule::P03,
        _ => Rule::P09,
    }
}

fn one(located: &Located<'_>, sink: &mut Sink<'_, '_>, written: &mut Vec<Range>) {
    let place = Place::Dword(located.offset);
    vocabulary(&located.packet, place, sink);
    match located.packet {
        Packet::SetShReg {
            offset,
            vmid_shift,
            index,
            values,
        }
        | Packet::SetShRegIndex {
            offset,
            vmid_shift,
            index,
            values,
        } => {
            let bits = (vmid_shift, index);
            set_sh(offset, bits, values, located.offset, sink);
        }
        Packet::EventWrite { control } => event_write(&located.packet, control, place, sink),
        Packet::AcquireMem(packet) => acquire(&packet, place, sink),
        Packet::WaitRegMem(packet) => wait_reg_mem(&packet, place, sink, written),
        packet => {
            if let Some(destination) = destination(&packet) {
                target(&destination, place, sink, written);
            }
        }
    }
}

/// Where a memory packet writes.
struct Destination {
    name: &'static str,
    register: bool,
    range: Range,
    align: u64,
}

fn destination(packet: &Packet<'_>) -> Option<Destination> {
    let (name, register, base, bytes, align) = match *packet {
        Packet::WriteData {
            control,
            address,
            data,
        } => {
            let bytes = data.len() as u64 * 4;
            ("WRITE_DATA", control >> 8 & 0xF == 0, address, bytes, 4)
        }
        Packet::CopyData { control, dst, .. } => {
            let bytes = if control >> 16 & 1 != 0 { 8 } else { 4 };
            ("COPY_DATA", control >> 8 & 0xF == 0, dst, bytes, bytes)
        }
        Packet::AtomicMem {
            control, address, ..
        } => {
            // TC operations from 0x20 on are the 64-bit ones.
            let bytes = if control & 0x20 != 0 { 8 } else { 4 };
            ("ATOMIC_MEM", false, address, bytes, bytes)
        }
        Packet::ReleaseMem(packet) => {
            let bytes = match packet.select >> 29 {
                0 => return None,
                1 | 7 => 4,
                _ => 8,
            };
            ("RELEASE_MEM", false, packet.address, bytes, bytes)
        }
        _ => return None,
    };
    Some(Destination {
        name,
        register,
        range: Range::new(base, bytes),
        align,
    })
}

fn vocabulary(packet: &Packet<'_>, place: Place, sink: &mut Sink<'_, '_>) {
    let Some(code) = packet.opcode() else { return };
    let row = opcode(code);
    let name = row.map_or("unknown opcode", |row| row.name);
    let here = row.is_some_and(|row| row.gens.has(sink.cx.target.generation()));
    let usable = row.is_some_and(|row| row.usage != Use::Refuse);
    if !usable || !here {
        let found = format!("opcode {code:#04x}");
        sink.add(
            Rule::P03,
            place,
            name,
            found,
            "the vocabulary of this generation",
        );
    }
}

fn set_sh(offset: u16, bits: (u8, u8), values: &[u32], dword: u32, sink: &mut Sink<'_, '_>) {
    let place = Place::Dword(dword);
    if bits != (0, 0) {
        let found = format!("VMID shift {}, index {}", bits.0, bits.1);
        sink.add(Rule::P04, place, "SET_SH_REG", found, "both 0");
    }
    // A packet has at most 0x3FFF values, so the sum stays far below 2^32.
    let last = u32::from(offset) + values.len() as u32 - u32::from(!values.is_empty());
    if offset < COMPUTE_FIRST || last > u32::from(WRITABLE_LAST) {
        let found = format!("offsets {offset:#x} to {last:#x}");
        let expected = format!("{COMPUTE_FIRST:#x} to {WRITABLE_LAST:#x}");
        sink.add(Rule::P04, place, "SET_SH_REG", found, expected);
    }
    for (i, (at, value)) in (offset..=WRITABLE_LAST).zip(values).enumerate() {
        if at >= COMPUTE_FIRST {
            // Values start behind header and offset.
            let place = Place::Dword(dword.saturating_add(2 + i as u32));
            write(at, *value, place, sink);
        }
    }
}

/// The register positions of a map that circulated for gfx12 and is wrong.
fn wrong_map(at: u16) -> Option<&'static str> {
    match at {
        0x216 => {
            Some("the wrong gfx12 map: TMPRING_SIZE lies at 0x218, this is the CU mask of SE0")
        }
        0x223 => Some("the wrong gfx12 map: PGM_RSRC3 lies at 0x228, this is the CU mask of SE8"),
        0x230..=0x233 => Some(
            "the wrong gfx12 map: the CU masks lie at 0x216 to 0x21A and 0x22B to 0x22E, this is RELAUNCH and WAVE_RESTORE",
        ),
        _ => None,
    }
}

fn write(at: u16, value: u32, place: Place, sink: &mut Sink<'_, '_>) {
    let generation = sink.cx.target.generation();
    let mut found = format!("offset {at:#x} = {value:#010x}");
    if generation == Generation::Gfx12
        && let Some(diagnosis) = wrong_map(at)
    {
        found.push_str(", ");
        found.push_str(diagnosis);
    }
    let Some(row) = register(at, generation) else {
        sink.add(
            Rule::P05,
            place,
            "no register",
            found,
            "a register of this generation",
        );
        return;
    };
    let expected = match row.writer {
        Writer::Dispatch | Writer::Scratch => return,
        Writer::ZeroOnly if value == 0 => return,
        Writer::ZeroOnly => "zero",
        Writer::Packet => "left to the DISPATCH packet",
        Writer::Queue => "left to the queue",
        Writer::Never => "never written",
    };
    sink.add(Rule::P05, place, row.name, found, expected);
}

fn event_write(packet: &Packet<'_>, control: u32, place: Place, sink: &mut Sink<'_, '_>) {
    if packet.is_wait() {
        return;
    }
    let row = event((control & 0x3F) as u8);
    let name = row.map_or("unknown event", |row| row.name);
    let expected = if row.is_some_and(|row| row.timestamp) {
        "RELEASE_MEM for a time-stamp event"
    } else {
        "0x407 or 0x80000407"
    };
    sink.add(Rule::P07, place, name, format!("{control:#010x}"), expected);
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
        let found = format!("base {:#x}, size {:#x}", packet.base, packet.size);
        sink.add(
            Rule::P08,
            place,
            "range",
            found,
            "base 0, size 0xFFFFFFFF_00FFFFFF pages",
        );
    }
    let warn = Severity::Warning;
    if !row.gl1.value && word & gcr::GL1_INV != 0 {
        let found = format!("{word:#x}");
        sink.add_as(
            warn,
            Rule::P08,
            place,
            "GL1_INV",
            found,
            "clear: there is no GL1",
        );
    }
    if word & 3 == 3 {
        let found = format!("{word:#x}");
        sink.add_as(
            warn,
            Rule::P08,
            place,
            "GLI_INV",
            found,
            "1 (ALL); 3 is FIRST_LAST",
        );
    }
    if word & (gcr::GLM_WB | gcr::GLM_INV) == gcr::GLM_WB {
        let found = format!("{word:#x}");
        sink.add_as(
            warn,
            Rule::P08,
            place,
            "GLM_WB",
            found,
            "together with GLM_INV",
        );
    }
}

fn target(
    destination: &Destination,
    place: Place,
    sink: &mut Sink<'_, '_>,
    written: &mut Vec<Range>,
) {
    let Destination {
        name,
        register,
        range,
        align,
    } = *destination;
    if register {
        let found = format!("register {:#x}", range.base);
        sink.add(Rule::P09, place, name, found, "a memory destination");
        return;
    }
    if !range.base.is_multiple_of(align) || range.base == 0 {
        let found = format!("{:#x}", range.base);
        sink.add(
            Rule::P09,
            place,
            name,
            found,
            format!("a multiple of {align}, not 0"),
        );
    }
    if sink.cx.allocations.is_some() && sink.cx.containing(&range).is_none() {
        let found = format!("{} bytes at {:#x}", range.bytes, range.base);
        sink.add(
            Rule::P09,
            place,
            name,
            found,
            "inside a live, visible allocation",
        );
    }
    written.push(range);
}

fn wait_reg_mem(packet: &WaitRegMem, place: Place, sink: &mut Sink<'_, '_>, written: &[Range]) {
    let name = "WAIT_REG_MEM";
    let function = packet.control & 7;
    if function > 6 {
        sink.add(
            Rule::P10,
            place,
            name,
            format!("function {function}"),
            "0 to 6",
        );
    }
    if packet.control >> 4 & 3 != 1 {
        let found = format!("space {}", packet.control >> 4 & 3);
        sink.add(Rule::P10, place, name, found, "1, memory");
    }
    let range = Range::new(packet.address, 4);
    let met = written.iter().any(|row| row.contains(&range));
    if let Some(host) = sink.cx.host
        && !met
        && function != 0
        && !host.signals.iter().any(|row| row.contains(&range))
    {
        let found = format!("address {:#x}", packet.address);
        sink.add(
            Rule::P10,
            place,
            name,
            found,
            "memory that an earlier packet or the host writes",
        );
    }
    if function == 3 {
        sink.add_as(
            Severity::Warning,
            Rule::P10,
            place,
            name,
            "function EQUAL",
            "an inequality, which a counter cannot skip",
        );
    }
}

fn step(located: &Located<'_>, state: &ShState, walk: &mut Walk) {
    let offset = located.offset;
    let kind = match located.packet {
        Packet::Filler | Packet::Nop { .. } => return,
        Packet::SetShReg {
            offset: first,
            values,
            ..
        }
        | Packet::SetShRegIndex {
            offset: first,
            values,
            ..
        } => {
            let ring = reg::TMPRING_SIZE;
            if first <= ring && usize::from(ring - first) < values.len() {
                walk.tmpring_written.get_or_insert(offset);
            }
            Step::Other
        }
        Packet::DispatchDirect { dim, initiator } => {
            walk.snapshots.push(Snapshot {
                offset,
                dim,
                initiator,
                state: *state,
            });
            Step::Dispatch(walk.snapshots.len() - 1)
        }
        Packet::AcquireMem(packet) => Step::Acquire(packet.gcr),
        // RELEASE_MEM carries GL2_WB in bit 21.
        Packet::ReleaseMem(packet) if packet.control >> 21 & 1 != 0 => Step::WriteBack,
        _ if located.packet.is_wait() => Step::Wait,
        _ => Step::Other,
    };
    walk.steps.push((offset, kind));
}
