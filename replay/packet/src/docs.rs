//! The page `docs/packets.md`, written from the tables.

use std::fmt::Write as _;

use crate::lint::RULES;
use crate::pm4::POLICIES;
use crate::tables::gcr::{GCR_FIELDS, KNOWN_GCR};
use crate::tables::objects::{
    HEADER_FIELDS, OBJECTS, PACKET_TYPES, PROPERTIES, QUEUE_ERRORS, VENDOR_FORMATS,
};
use crate::tables::opcodes::{EVENTS, Length, OPCODES};
use crate::tables::registers::{INITIATOR_FIELDS, REGISTERS, SH_BASE};
use crate::tables::{Field, opcodes};
use crate::target::{Capability, Gfx};

/// A Markdown table.
fn table<const N: usize>(
    out: &mut String,
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) {
    let line = |out: &mut String, cells: &[&str]| {
        out.push('|');
        for cell in cells {
            out.push(' ');
            // A bar inside a cell would end it.
            out.push_str(&cell.replace('|', "\\|"));
            out.push_str(" |");
        }
        out.push('\n');
    };
    line(out, &head);
    line(out, &["---"; N]);
    for row in rows {
        line(out, &row.each_ref().map(String::as_str));
    }
    out.push('\n');
}

fn heading(out: &mut String, title: &str, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "## {title}\n\n{text}\n");
}

fn bits(field: &Field) -> String {
    if field.hi == field.lo {
        format!("{}", field.lo)
    } else {
        format!("{}:{}", field.hi, field.lo)
    }
}

fn values(field: &Field) -> String {
    let named = field
        .values
        .iter()
        .map(|row| format!("{} {}", row.0, row.1));
    named.collect::<Vec<_>>().join(", ")
}

/// The whole page.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Packets\n\nGenerated from the tables of `refrain-packet`; edit those. Regenerate with \
         `REFRAIN_BLESS=1 cargo test -p refrain-packet --test docs`.\n\nEverything here restates \
         public documents and sources. Nothing was measured on a card by this project.\n\n",
    );
    targets(&mut out);
    registers(&mut out);
    packets(&mut out);
    caches(&mut out);
    objects(&mut out);
    policies(&mut out);
    rules(&mut out);
    // One newline ends the file.
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn targets(out: &mut String) {
    heading(
        out,
        "Targets",
        "One capability row per target; every fact with trust and source.",
    );
    for gfx in Gfx::ALL {
        let row: &Capability = gfx.capability();
        let _ = writeln!(
            out,
            "### {} ({}, ELF machine {:#04x})\n",
            row.name,
            row.generation.name(),
            row.elf_mach
        );
        let facts = row.facts().into_iter().map(|(name, value, trust, source)| {
            [
                name.to_owned(),
                value,
                trust.name().to_owned(),
                source.to_owned(),
            ]
        });
        table(out, ["fact", "value", "trust", "source"], facts);
    }
}

fn registers(out: &mut String) {
    heading(
        out,
        "Compute registers",
        "Offsets are SH-relative dwords. *Writer* says who may write the register from an \
         indirect buffer. Names are without the `COMPUTE_` prefix; a `_10` suffix marks the gfx10.3 position.",
    );
    let rows = REGISTERS.iter().map(|row| {
        [
            row.name.to_owned(),
            format!("{:#X}", row.offset),
            format!("{:#X}", SH_BASE + row.offset),
            row.gens.name().to_owned(),
            row.writer.name().to_owned(),
        ]
    });
    table(
        out,
        ["register", "offset", "absolute", "generations", "writer"],
        rows,
    );
    heading(
        out,
        "Register fields",
        "Bits that no row covers are reserved.",
    );
    // Registers that share one layout would repeat it.
    let with_fields = REGISTERS
        .iter()
        .filter(|row| !row.fields.is_empty() && row.name != "DISPATCH_INITIATOR");
    let rows = with_fields.flat_map(|row| row.fields.iter().map(|field| (row.name, field)));
    let initiator = INITIATOR_FIELDS
        .iter()
        .map(|field| ("DISPATCH_INITIATOR", field));
    let rows = initiator.chain(rows).map(|(name, field)| {
        [
            name.to_owned(),
            field.name.to_owned(),
            bits(field),
            field.gens.name().to_owned(),
        ]
    });
    table(out, ["register", "field", "bits", "generations"], rows);
}

fn packets(out: &mut String) {
    heading(
        out,
        "PM4 packets",
        "Lengths in dwords with the header. *emit*: the encoder writes it; *accept*: rules \
         apply; *refuse*: rule P03.",
    );
    let rows = OPCODES.iter().map(|row| {
        let length = match row.length {
            Length::Fixed(n) => n.to_string(),
            Length::AtLeast(n) => format!("{n} or more"),
            Length::Nop => "1 or more".to_owned(),
        };
        [
            row.name.to_owned(),
            format!("{:#04X}", row.code),
            length,
            row.gens.name().to_owned(),
            row.usage.name().to_owned(),
        ]
    });
    table(
        out,
        ["packet", "opcode", "dwords", "generations", "use"],
        rows,
    );
    heading(out, "PM4 fields", "Dword 0 is the header.");
    let rows = OPCODES.iter().flat_map(|row| {
        row.fields.iter().map(|field| {
            [
                row.name.to_owned(),
                field.word.to_string(),
                bits(field),
                field.name.to_owned(),
                field.gens.name().to_owned(),
                values(field),
            ]
        })
    });
    table(
        out,
        ["packet", "dword", "bits", "field", "generations", "values"],
        rows,
    );
    let text = format!(
        "EVENT_WRITE carries {:#x} (or {:#x}); time-stamp events belong in RELEASE_MEM.",
        opcodes::CS_PARTIAL_FLUSH,
        opcodes::CS_PARTIAL_FLUSH_OFFLOAD
    );
    heading(out, "Events", &text);
    let rows = EVENTS.iter().map(|row| {
        let kind = if row.timestamp { "time-stamp" } else { "" };
        [
            row.name.to_owned(),
            format!("{:#04X}", row.code),
            kind.to_owned(),
        ]
    });
    table(out, ["event", "type", "kind"], rows);
}

fn caches(out: &mut String) {
    heading(out, "GCR_CNTL", "Cache controls of ACQUIRE_MEM, dword 7.");
    let rows = GCR_FIELDS.iter().map(|field| {
        [
            bits(field),
            field.name.to_owned(),
            field.gens.name().to_owned(),
            values(field),
        ]
    });
    table(out, ["bits", "field", "generations", "values"], rows);
    heading(out, "GCR words in the field", "What public producers send.");
    let rows = KNOWN_GCR
        .iter()
        .map(|row| [format!("{:#X}", row.0), row.1.to_owned(), row.2.to_owned()]);
    table(out, ["word", "meaning", "who"], rows);
}

fn objects(out: &mut String) {
    heading(
        out,
        "AQL packet types",
        "Header bits 7:0. A zero-filled slot is type 0, not empty.",
    );
    let rows = PACKET_TYPES
        .iter()
        .map(|row| [row.0.to_string(), row.1.to_owned()]);
    table(out, ["type", "name"], rows);
    heading(
        out,
        "AQL header",
        "Bits of the first 16-bit word; bits 15:13 are zero.",
    );
    let rows = HEADER_FIELDS
        .iter()
        .map(|field| [bits(field), field.name.to_lowercase(), values(field)]);
    table(out, ["bits", "field", "values"], rows);
    heading(
        out,
        "AMD vendor formats",
        "Byte 2 of a type 0 packet; byte 3 is zero.",
    );
    let rows = VENDOR_FORMATS
        .iter()
        .map(|row| [row.0.to_string(), row.1.to_owned(), row.2.to_owned()]);
    table(out, ["format", "name", "use"], rows);
    for object in OBJECTS {
        let text = format!("{} bytes, aligned to {}.", object.bytes, object.align);
        heading(out, object.name, &text);
        let rows = object.slots.iter().map(|slot| {
            [
                slot.offset.to_string(),
                slot.bytes.to_string(),
                slot.name.to_lowercase(),
                slot.note.to_owned(),
            ]
        });
        table(out, ["offset", "bytes", "field", "rule"], rows);
    }
    heading(
        out,
        "Kernel code properties",
        "User SGPRs follow in this order.",
    );
    let rows = PROPERTIES.iter().map(|row| {
        [
            row.bit.to_string(),
            row.name.to_owned(),
            row.sgprs.to_string(),
            row.rule.to_owned(),
        ]
    });
    table(
        out,
        ["bit", "property", "SGPRs", "in a hand-made dispatch"],
        rows,
    );
    heading(
        out,
        "Queue errors",
        "Stored to the queue's inactive signal.",
    );
    let rows = QUEUE_ERRORS
        .iter()
        .map(|row| [format!("{:#X}", row.0), row.1.to_owned()]);
    table(out, ["value", "meaning"], rows);
}

fn policies(out: &mut String) {
    heading(
        out,
        "Encoding policies",
        "The name is part of the encoding identity.",
    );
    let rows = POLICIES.iter().map(|row| {
        [
            row.name.to_owned(),
            row.gens.name().to_owned(),
            format!("{:?}", row.emission).to_lowercase(),
            row.pacing.to_string(),
            row.pad.to_string(),
            format!("{:?}", row.privilege).to_lowercase(),
            row.confidence.name().to_owned(),
            row.provenance.to_owned(),
        ]
    });
    let head = [
        "policy",
        "generations",
        "registers",
        "pacing dwords",
        "pad",
        "PRIV",
        "trust",
        "source",
    ];
    table(out, head, rows);
}

fn rules(out: &mut String) {
    heading(
        out,
        "Rules",
        "A: AQL ring. P: PM4 syntax. D: dispatch semantics. H: hazards between dispatches. \
         Without what it *needs*, a rule is reported as not checked; without what it *wants*, as partly checked.",
    );
    let rows = RULES.iter().map(|row| {
        let parts = |list: &[crate::lint::Part]| {
            list.iter()
                .map(|part| part.name())
                .collect::<Vec<_>>()
                .join(", ")
        };
        [
            row.id.to_owned(),
            row.severity.name().to_owned(),
            row.title.to_owned(),
            row.remedy.to_owned(),
            parts(row.needs),
            parts(row.wants),
        ]
    });
    table(
        out,
        ["rule", "severity", "fires when", "remedy", "needs", "wants"],
        rows,
    );
}
