//! AQL packets.

use super::{Dump, DumpContext, DumpEntry, DumpField, word_text};
use crate::aql::decode::{AqlPacket, decode, layout};
use crate::aql::{Header, Scope};
use crate::tables::objects::{Kind, PACKET_TYPES, Slot, pm4_ib};
use crate::tables::opcodes::{op, opcode};

/// Dumps the packets of a ring.
pub fn dump_packets(packets: &[[u8; 64]], cx: &DumpContext<'_>) -> Dump {
    let entries = packets
        .iter()
        .enumerate()
        .map(|(index, bytes)| packet(index, bytes, cx))
        .collect();
    Dump {
        target: cx.target,
        surface: "aql",
        entries,
    }
}

fn packet(index: usize, bytes: &[u8; 64], cx: &DumpContext<'_>) -> DumpEntry {
    let decoded = decode(bytes);
    let object = layout(bytes);
    let kind = PACKET_TYPES
        .iter()
        .find(|row| row.0 == bytes[0])
        .map(|row| row.1);
    let name = match (object, kind) {
        (Some(object), _) if bytes[0] == 0 => object.name.to_owned(),
        (_, Some(kind)) => kind.to_owned(),
        (_, None) => format!("type {}", bytes[0]),
    };
    let mut fields = vec![DumpField {
        at: 0,
        name: "HEADER".to_owned(),
        value: u64::from(decoded.header),
        note: Some(header_text(decoded.header)),
    }];
    for slot in object.map_or(&[][..], |object| object.slots).iter().skip(1) {
        push(slot, bytes, index, cx, &mut fields);
    }
    let words = bytes
        .chunks_exact(4)
        .map(|chunk| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
        .collect();
    let unknown = object.is_none() && bytes[0] != 1;
    DumpEntry {
        offset: u32::try_from(index).unwrap_or(u32::MAX),
        name,
        words,
        fields,
        note: if unknown {
            Some("no layout for this type and format".to_owned())
        } else {
            None
        },
        unknown,
    }
}

fn header_text(bits: u16) -> String {
    let scope = |scope| match scope {
        Scope::None => "none",
        Scope::Agent => "agent",
        Scope::System => "system",
    };
    match Header::from_bits(bits) {
        Ok(row) => format!(
            "barrier {}, acquire {}, release {}",
            u8::from(row.barrier),
            scope(row.acquire),
            scope(row.release)
        ),
        Err(error) => error.to_string(),
    }
}

/// Adds a slot; arrays of addresses become one field each, zero reserved slots none.
fn push(
    slot: &Slot,
    bytes: &[u8; 64],
    index: usize,
    cx: &DumpContext<'_>,
    out: &mut Vec<DumpField>,
) {
    let width = usize::from(slot.bytes).min(8);
    let count = usize::from(slot.bytes) / width;
    for i in 0..count {
        let at = usize::from(slot.offset) + i * width;
        let value = bytes
            .iter()
            .skip(at)
            .take(width)
            .rev()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        let note = match slot.kind {
            Kind::Reserved if value == 0 => continue,
            Kind::Reserved => Some("reserved, must be 0".to_owned()),
            Kind::Address if width == 4 => jump_address(at, bytes, cx),
            Kind::Address if value != 0 => cx.address(value),
            Kind::Number if bytes[0] == 0 && at == pm4_ib::IB_JUMP3 => {
                let fields = opcode(op::INDIRECT_BUFFER).map_or(&[][..], |row| row.fields);
                // Four bytes wide, so the cast keeps the value.
                word_text(fields, 3, value as u32, cx.target)
            }
            _ => None,
        };
        let note = cx.relocation(index * 16 + at / 4).or(note);
        let name = if count == 1 {
            slot.name.to_owned()
        } else {
            format!("{}[{i}]", slot.name)
        };
        // Offsets inside a 64-byte packet.
        out.push(DumpField {
            at: at as u32,
            name,
            value,
            note,
        });
    }
}

/// Where the jump of a PM4-IB packet goes; shown at its low half.
fn jump_address(at: usize, bytes: &[u8; 64], cx: &DumpContext<'_>) -> Option<String> {
    match decode(bytes).packet {
        AqlPacket::Pm4Ib { packet, .. } if at == pm4_ib::IB_JUMP1 => cx.address(packet.address),
        _ => None,
    }
}
