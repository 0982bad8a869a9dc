//! Text and JSON of a dump.

use std::fmt;

use super::{Dump, DumpEntry};
use crate::json::Json;

impl Dump {
    /// One JSON object: `schema`, `target`, `surface`, `entries`.
    pub fn to_json(&self) -> String {
        let mut json = Json::default();
        json.object(|json| {
            json.text("schema", "refrain.dump.v1");
            json.text("target", self.target.name());
            json.text("surface", self.surface);
            json.array("entries", |json| {
                for entry in &self.entries {
                    json.object(|json| entry_json(entry, json));
                }
            });
        });
        json.finish()
    }

    /// Words that no table row explains.
    pub fn unknown_words(&self) -> usize {
        self.entries
            .iter()
            .filter(|row| row.unknown)
            .map(|row| row.words.len())
            .sum()
    }
}

fn entry_json(entry: &DumpEntry, json: &mut Json) {
    json.number("offset", u64::from(entry.offset));
    json.text("name", &entry.name);
    json.flag("unknown", entry.unknown);
    json.maybe("note", entry.note.as_deref());
    json.array("words", |json| {
        for word in &entry.words {
            json.item(&format!("{word:#010x}"));
        }
    });
    json.array("fields", |json| {
        for field in &entry.fields {
            json.object(|json| {
                json.number("at", u64::from(field.at));
                json.text("name", &field.name);
                json.text("value", &format!("{:#x}", field.value));
                json.maybe("note", field.note.as_deref());
            });
        }
    });
}

impl fmt::Display for Dump {
    /// One line per packet and one per named value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.entries {
            let mark = if entry.unknown { "?" } else { " " };
            let first = entry.words.first().copied().unwrap_or(0);
            write!(f, "{:6}{mark} {first:08x} {}", entry.offset, entry.name)?;
            if let Some(note) = &entry.note {
                write!(f, "  ; {note}")?;
            }
            writeln!(f)?;
            for field in &entry.fields {
                write!(
                    f,
                    "        +{:<3} {:24} {:#x}",
                    field.at, field.name, field.value
                )?;
                if let Some(note) = &field.note {
                    write!(f, "  ; {note}")?;
                }
                writeln!(f)?;
            }
            if entry.unknown {
                let unit = if self.surface == "aql" { 4 } else { 1 };
                for (index, word) in entry.words.iter().enumerate().skip(1) {
                    let at = index * unit;
                    // Fields have shown the others.
                    if !entry
                        .fields
                        .iter()
                        .any(|row| row.at as usize / unit == index)
                    {
                        writeln!(f, "        +{at:<3} {:24} {word:#010x}", "?")?;
                    }
                }
            }
        }
        Ok(())
    }
}
