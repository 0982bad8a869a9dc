//! Rules P01 to P07: framing, vocabulary, registers and events, packet by packet.

use super::access;
use super::rules::{Rule, Severity};
use super::walk::{Step, Walk};
use super::{Place, Sink};
use crate::decode::{DecodeError, Located, packets};
use crate::packet::Packet;
use crate::state::{ShState, Snapshot};
use crate::tables::opcodes::{IB_MAX_DWORDS, Opcode, Use, event, op, opcode};
use crate::tables::registers::{COMPUTE_FIRST, WRITABLE_LAST, Writer, reg, register};
use crate::tables::reserved_mask;
use crate::target::Generation;

/// Checks P rules and returns what the other rules look at.
pub(super) fn check(words: &[u32], sink: &mut Sink<'_, '_>) -> Walk {
    let mut walk = Walk::default();
    let mut state = ShState::default();
    let mut styles = (None, None);
    whole(words, sink);
    // What lies beyond the size field cannot run.
    let words = words.get(..IB_MAX_DWORDS as usize).unwrap_or(words);
    let generation = sink.cx.target.generation();
    walk.wrong_map = generation == Generation::Gfx12 && has_wrong_map(words);
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
        one(&located, sink, &mut walk);
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
    if words.len() > IB_MAX_DWORDS as usize {
        let found = format!("{} dwords", words.len());
        let expected = format!("at most {IB_MAX_DWORDS:#x}, 20 bits of IB_SIZE");
        sink.add(Rule::P06, Place::Whole, "length", found, expected);
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
                expected.to_string(),
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
            sink.add(field_rule(opcode, word), place, name, found, expected);
        }
    }
}

/// The rule that owns the bits of a word of an opcode.
const fn field_rule(opcode: u8, word: u32) -> Rule {
    match opcode {
        op::SET_SH_REG | op::SET_SH_REG_INDEX => Rule::P04,
        op::EVENT_WRITE => Rule::P07,
        op::ACQUIRE_MEM => Rule::P08,
        op::RELEASE_MEM if word == 1 => Rule::P08,
        op::WAIT_REG_MEM | op::WAIT_REG_MEM64 => Rule::P10,
        op::INDIRECT_BUFFER => Rule::P03,
        _ => Rule::P09,
    }
}

/// True when a stream writes registers that only the wrong gfx12 map sends there.
fn has_wrong_map(words: &[u32]) -> bool {
    packets(words).flatten().any(|located| {
        let Packet::SetShReg { offset, values, .. } = located.packet else {
            return false;
        };
        let last = u32::from(offset) + values.len() as u32;
        (0x223..0x224)
            .chain(0x230..0x234)
            .any(|at| (u32::from(offset)..last).contains(&at))
    })
}

fn one(located: &Located<'_>, sink: &mut Sink<'_, '_>, walk: &mut Walk) {
    let place = Place::Dword(located.offset);
    vocabulary(&located.packet, place, sink);
    if let Some(row) = located.packet.opcode().and_then(opcode) {
        words(row, located, sink);
    }
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
            set_sh(offset, bits, values, located.offset, walk.wrong_map, sink);
        }
        Packet::EventWrite { control } => event_write(&located.packet, control, place, sink),
        _ => access::check(located, sink, walk),
    }
}

/// Every word that the table describes: reserved bits of this generation, and values without a
/// name in fields whose values have names.
fn words(row: &Opcode, located: &Located<'_>, sink: &mut Sink<'_, '_>) {
    // EVENT_WRITE has a rule of its own that knows every legal word.
    if row.code == op::EVENT_WRITE {
        return;
    }
    let generation = sink.cx.target.generation();
    let place = Place::Dword(located.offset);
    let described = row.fields.iter().map(|field| field.word).max().unwrap_or(0);
    for (word, value) in (1..=described).zip(located.words.iter().skip(1).copied()) {
        let rule = field_rule(row.code, word.into());
        // Caches that a generation lacks are judged more mildly where producers still name them.
        let bits = value & reserved_mask(row.fields, word, generation);
        if bits != 0 && row.code != op::ACQUIRE_MEM {
            let found = format!("word {word} {value:#010x} with bits {bits:#010x}");
            let expected = format!("clear: reserved on {generation}");
            sink.add(rule, place, row.name, found, expected);
        }
        for field in row.fields {
            let here = field.word == word && field.gens.has(generation);
            let number = field.get(value);
            if here && !field.values.is_empty() && field.value_name(number).is_none() {
                let names = field
                    .values
                    .iter()
                    .map(|row| format!("{} {}", row.0, row.1));
                let names = names.collect::<Vec<_>>().join(", ");
                let found = format!("{number:#x} in {}", row.name);
                sink.add(rule, place, field.name, found, names);
            }
        }
    }
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

fn set_sh(
    offset: u16,
    bits: (u8, u8),
    values: &[u32],
    dword: u32,
    wrong_map: bool,
    sink: &mut Sink<'_, '_>,
) {
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
            write(at, *value, wrong_map, place, sink);
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

fn write(at: u16, value: u32, wrong: bool, place: Place, sink: &mut Sink<'_, '_>) {
    let generation = sink.cx.target.generation();
    let mut found = format!("offset {at:#x} = {value:#010x}");
    // 0x216 is a CU mask, which some producers write as one; only zero is a misplaced TMPRING_SIZE.
    if generation == Generation::Gfx12
        && (wrong || value == 0)
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
        Packet::WaitRegMem(packet) => {
            let release = access::timeline(&packet, &walk.writes);
            release.map_or(Step::Other, |at| {
                walk.ended.push((offset, at));
                Step::Wait(walk.writes.get(at).map_or(0, |row| row.launched))
            })
        }
        Packet::ReleaseMem(packet) => {
            if let Some(at) = access::write_at(located.offset, walk) {
                walk.steps.push((offset, Step::Write(at)));
            }
            // RELEASE_MEM carries GL2_WB in bit 21.
            if packet.control >> 21 & 1 == 0 {
                return;
            }
            Step::WriteBack
        }
        _ if located.packet.is_wait() => Step::Wait(walk.snapshots.len()),
        _ => access::write_at(located.offset, walk).map_or(Step::Other, Step::Write),
    };
    walk.steps.push((offset, kind));
}
