//! PM4 indirect buffers.

use super::{Dump, DumpContext, DumpEntry, DumpField, word_text};
use crate::decode::{Located, packets};
use crate::packet::Packet;
use crate::state::ShState;
use crate::tables::gcr;
use crate::tables::opcodes::opcode;
use crate::tables::registers::{INITIATOR_FIELDS, reg, register};

/// Dumps an indirect buffer.
pub fn dump_ib(words: &[u32], cx: &DumpContext<'_>) -> Dump {
    let mut entries = Vec::new();
    let mut state = ShState::default();
    for item in packets(words) {
        match item {
            Ok(located) => {
                state.apply(&located.packet);
                entries.push(packet(&located, &state, cx));
            }
            Err(error) => {
                let first = error.offset() as usize;
                let last = first
                    .saturating_add(error.skip().max(1) as usize)
                    .min(words.len());
                entries.push(DumpEntry {
                    offset: error.offset(),
                    name: "unknown".to_owned(),
                    words: words.get(first..last).unwrap_or(&[]).to_vec(),
                    fields: Vec::new(),
                    note: Some(error.to_string()),
                    unknown: true,
                });
            }
        }
    }
    Dump {
        target: cx.target,
        surface: "pm4",
        entries,
    }
}

fn packet(located: &Located<'_>, state: &ShState, cx: &DumpContext<'_>) -> DumpEntry {
    let code = located.packet.opcode();
    let row = code.and_then(opcode);
    let name = match (code, row) {
        (None, _) => "TYPE2".to_owned(),
        (Some(_), Some(row)) => row.name.to_owned(),
        (Some(code), None) => format!("opcode {code:#04x}"),
    };
    let mut fields = match located.packet {
        Packet::SetShReg { offset, values, .. } | Packet::SetShRegIndex { offset, values, .. } => {
            registers(offset, values, located, state, cx)
        }
        _ => plain(located, cx),
    };
    for field in &mut fields {
        let at = located.offset as usize + field.at as usize;
        if let Some(text) = cx.relocation(at) {
            field.note = Some(match field.note.take() {
                Some(note) => format!("{note}; {text}"),
                None => text,
            });
        }
    }
    let unknown = code.is_some() && row.is_none();
    DumpEntry {
        offset: located.offset,
        name,
        words: located.words.to_vec(),
        fields,
        note: if unknown {
            Some("opcode without a row in the table".to_owned())
        } else {
            None
        },
        unknown,
    }
}

fn registers(
    offset: u16,
    values: &[u32],
    located: &Located<'_>,
    state: &ShState,
    cx: &DumpContext<'_>,
) -> Vec<DumpField> {
    let generation = cx.target.generation();
    let target = located.words.get(1).copied().unwrap_or(0);
    let mut out = vec![DumpField {
        at: 1,
        name: "REG_OFFSET".to_owned(),
        value: u64::from(offset),
        note: if target >> 16 != 0 {
            Some(format!("high half {:#x}", target >> 16))
        } else {
            None
        },
    }];
    for (i, value) in values.iter().enumerate() {
        // At most 0x3FFF values, and offsets are 16 bits wide.
        let at = u32::from(offset) + i as u32;
        let row = u16::try_from(at)
            .ok()
            .and_then(|at| register(at, generation));
        let name = row.map_or_else(|| format!("SH {at:#x}"), |row| row.name.to_owned());
        let note = match row {
            Some(row) => word_text(row.fields, 0, *value, cx.target)
                .or_else(|| pointer(row.offset, state, cx)),
            None => Some("no register of this generation".to_owned()),
        };
        out.push(DumpField {
            at: 2 + i as u32,
            name,
            value: u64::from(*value),
            note,
        });
    }
    out
}

/// What a register pair points at, once both halves are there.
fn pointer(offset: u16, state: &ShState, cx: &DumpContext<'_>) -> Option<String> {
    if offset == reg::PGM_LO {
        return cx.address(state.entry_va()?);
    }
    let index = offset.checked_sub(reg::USER_DATA_0)?;
    let lo = u64::from(state.user_data(index)?);
    let hi = u64::from(state.user_data(index.checked_add(1)?)?);
    cx.address(lo | hi << 32)
}

fn plain(located: &Located<'_>, cx: &DumpContext<'_>) -> Vec<DumpField> {
    let row = located.packet.opcode().and_then(opcode);
    let mut out = Vec::new();
    let body = located.words.iter().enumerate().skip(1);
    for (at, value) in body {
        let word = u8::try_from(at).ok();
        let named = row.and_then(|row| {
            let mut here = row.fields.iter().filter(|field| Some(field.word) == word);
            let first = here.next()?;
            Some((first, here.next().is_none()))
        });
        let fields = row.map_or(&[][..], |row| row.fields);
        let (name, note) = match named {
            Some((first, true)) if first.mask() == u32::MAX => (first.name.to_owned(), None),
            Some(_) => {
                let word = word.unwrap_or(0);
                let name = word_name(fields, word);
                (name, word_text(fields, word, *value, cx.target))
            }
            None => (format!("body[{}]", at - 1), None),
        };
        let note = note.or_else(|| special(&name, *value, located, at, cx));
        out.push(DumpField {
            at: at as u32,
            name,
            value: u64::from(*value),
            note,
        });
    }
    if let Packet::AcquireMem(packet) = located.packet
        && let (Some(last), Some(known)) = (out.last_mut(), gcr::known(packet.gcr))
    {
        last.name = "GCR_CNTL".to_owned();
        let note = last.note.take().unwrap_or_default();
        last.note = Some(format!("{note} ({known})"));
    }
    out
}

fn word_name(fields: &[crate::tables::Field], word: u8) -> String {
    let mut here = fields.iter().filter(|field| field.word == word);
    match (here.next(), here.next()) {
        (Some(one), None) => one.name.to_owned(),
        _ => "CONTROL".to_owned(),
    }
}

/// Initiator bits and addresses of memory packets.
fn special(
    name: &str,
    value: u32,
    located: &Located<'_>,
    at: usize,
    cx: &DumpContext<'_>,
) -> Option<String> {
    if name == "DISPATCH_INITIATOR" {
        return word_text(INITIATOR_FIELDS, 0, value, cx.target);
    }
    let low = matches!(name, "ADDRESS_LO" | "DST_LO" | "SRC_LO");
    if !low {
        return None;
    }
    let high = located.words.get(at + 1).copied().unwrap_or(0);
    cx.address(u64::from(value) | u64::from(high) << 32)
}
