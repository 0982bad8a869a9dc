//! Dumps: every word of an indirect buffer or ring with its names. Nothing is refused; what
//! cannot be decoded is shown and marked unknown.

mod aql;
mod ib;
mod render;

pub use aql::dump_packets;
pub use ib::dump_ib;

use crate::lint::{Allocation, KnownKernel};
use crate::reloc::{Relocation, RelocationKind};
use crate::target::Gfx;

/// What a dump may know to annotate addresses.
#[derive(Clone, Copy, Debug)]
pub struct DumpContext<'a> {
    /// Target whose names are used.
    pub target: Gfx,
    /// Allocations by address.
    pub allocations: &'a [Allocation],
    /// Loaded kernels.
    pub kernels: &'a [KnownKernel],
    /// Relocations of an address-independent form.
    pub relocations: &'a [Relocation],
    /// Kernel symbols that relocations name.
    pub symbols: &'a [String],
}

impl<'a> DumpContext<'a> {
    /// A context that knows only the target.
    pub const fn bare(target: Gfx) -> Self {
        Self {
            target,
            allocations: &[],
            kernels: &[],
            relocations: &[],
            symbols: &[],
        }
    }

    /// What lies at an address: a kernel's entry or descriptor, or an allocation and offset.
    pub fn address(&self, address: u64) -> Option<String> {
        for kernel in self.kernels {
            if kernel.entry_va() == address {
                return Some(format!("{} entry", kernel.symbol));
            }
            if kernel.descriptor_va == address {
                return Some(format!("{} descriptor", kernel.symbol));
            }
        }
        self.allocations
            .iter()
            .find(|row| address >= row.range.base && address - row.range.base < row.range.bytes)
            .map(|row| format!("{}+{:#x}", row.name, address - row.range.base))
    }

    /// The relocation of a word in text.
    fn relocation(&self, word: usize) -> Option<String> {
        let row = self
            .relocations
            .iter()
            .find(|row| row.word as usize == word)?;
        let kernel = matches!(
            row.kind,
            RelocationKind::EntryLo
                | RelocationKind::EntryHi
                | RelocationKind::ObjectLo
                | RelocationKind::ObjectHi
        );
        let symbol = if kernel {
            self.symbols.get(row.symbol as usize)
        } else {
            None
        };
        let symbol = symbol.cloned().unwrap_or_else(|| match row.kind {
            RelocationKind::KernargLo | RelocationKind::KernargHi => "kernarg arena".to_owned(),
            RelocationKind::SignalLo | RelocationKind::SignalHi => format!("signal {}", row.symbol),
            RelocationKind::IbLo | RelocationKind::IbHi => {
                format!("indirect buffer {}", row.symbol)
            }
            _ => format!("kernel {}", row.symbol),
        });
        Some(format!(
            "relocation {} of {symbol} + {:#x}",
            row.kind.name(),
            row.addend
        ))
    }
}

/// One named value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpField {
    /// Word inside the packet (dword for PM4; byte offset for AQL).
    pub at: u32,
    /// Name.
    pub name: String,
    /// Value.
    pub value: u64,
    /// Named value, fields or address.
    pub note: Option<String>,
}

/// One packet, or words that are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpEntry {
    /// Dword offset in the buffer, or packet number in the ring.
    pub offset: u32,
    /// Packet name.
    pub name: String,
    /// Raw words.
    pub words: Vec<u32>,
    /// Named values.
    pub fields: Vec<DumpField>,
    /// Why the words are unknown, or a remark.
    pub note: Option<String>,
    /// The words could not be decoded.
    pub unknown: bool,
}

/// A whole dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Target whose names were used.
    pub target: Gfx,
    /// `pm4` or `aql`.
    pub surface: &'static str,
    /// Entries in order; their words cover the input.
    pub entries: Vec<DumpEntry>,
}

/// The named fields of a word that are not zero, as `NAME=value` separated by blanks.
fn word_text(fields: &[crate::tables::Field], word: u8, value: u32, target: Gfx) -> Option<String> {
    let generation = target.generation();
    let mut out = String::new();
    for row in fields
        .iter()
        .filter(|row| row.word == word && row.gens.has(generation))
    {
        let part = row.get(value);
        if part == 0 {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(row.name);
        match row.value_name(part) {
            Some(name) => out.push_str(&format!("={name}")),
            None if row.hi != row.lo => out.push_str(&format!("={part:#x}")),
            None => {}
        }
    }
    let mut reserved = crate::tables::reserved_mask(fields, word, generation) & value;
    if fields.iter().all(|row| row.word != word) {
        reserved = 0;
    }
    if reserved != 0 {
        out.push_str(&format!(" reserved={reserved:#x}"));
    }
    if out.is_empty() {
        None
    } else {
        Some(out.trim_start().to_owned())
    }
}
