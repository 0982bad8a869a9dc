//! What of the instruction sets is decoded, executed and refused, as data and as the page
//! `docs/isa-coverage.md`.

use super::{ABSENT, FAMILIES, Format, Generation, Target, table};
use crate::exec::refusal;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One decoded opcode of a target.
#[derive(Debug)]
pub struct Coverage {
    /// Its format.
    pub format: Format,
    /// Its number.
    pub opcode: u16,
    /// LLVM's mnemonic.
    pub mnemonic: &'static str,
    /// Why the executor refuses it when it is reached; `None` where it is executed.
    pub refusal: Option<&'static str>,
}

/// Every opcode that a target decodes.
pub fn coverage(target: Target) -> Vec<Coverage> {
    let generation = target.generation();
    table(generation)
        .iter()
        .filter(|row| !row.scalar_float || target.has_scalar_float())
        .filter_map(|row| {
            Some(Coverage {
                format: row.format,
                opcode: row.opcode(generation)?,
                mnemonic: row.mnemonic,
                refusal: refusal(target, row),
            })
        })
        .collect()
}

const OPENING: &str = "# Instruction coverage of the software GPU

Generated from the instruction table by `cargo xtask bless`; do not edit.

*In the set* counts the opcodes of AMD's ISA documents; long forms of VOP1, VOP2 and VOPC use the same
rows and are not counted again. *Decoded* ones have a row. *Executed* ones run without modifiers;
*refused* ones stop with a typed report that names the instruction, when they are reached. What is in a
set and has no row is listed at the end with the reason.

Mnemonics, operands and encodings agree with LLVM 19 (`tests/encodings`) and numbers with the
enumerations of a third project (`tests/tinygrad.rs`).
";

macro_rules! line {
    ($out:expr, $($arg:tt)*) => {
        // Writing to a String cannot fail.
        let _ = writeln!($out, $($arg)*);
    };
}

const fn column(target: Target) -> usize {
    match target.generation() {
        Generation::Gfx11 => 0,
        Generation::Gfx12 => 1,
    }
}

/// The page.
pub fn markdown() -> String {
    let mut out = OPENING.to_owned();
    for target in Target::ALL {
        counts(&mut out, target);
    }
    refusals(&mut out);
    absent(&mut out);
    out
}

/// Size of a format of which only a few opcodes have rows.
fn whole(target: Target, format: Format) -> Option<usize> {
    let of_name = |name: &str| FAMILIES.iter().find(|f| f.name.starts_with(name));
    let family = match format {
        Format::Mubuf => of_name("MUBUF"),
        _ => None,
    };
    family.map(|f| usize::from(f.opcodes[column(target)]))
}

fn counts(out: &mut String, target: Target) {
    let rows = coverage(target);
    line!(out, "\n## {target}\n");
    line!(
        out,
        "| format | in the set | decoded | executed | refused |"
    );
    line!(out, "|---|---:|---:|---:|---:|");
    let mut total = [0; 4];
    for format in Format::ALL {
        let missing = ABSENT
            .iter()
            .filter(|a| a.format == format && a.sets[column(target)])
            .count();
        let of_format: Vec<_> = rows.iter().filter(|r| r.format == format).collect();
        let refused = of_format.iter().filter(|r| r.refusal.is_some()).count();
        let decoded = of_format.len();
        let numbers = [
            whole(target, format).unwrap_or(decoded + missing),
            decoded,
            decoded - refused,
            refused,
        ];
        if numbers[0] > 0 {
            let name = format!("{format:?}").to_uppercase();
            let [set, decoded, executed, refused] = numbers;
            line!(
                out,
                "| {name} | {set} | {decoded} | {executed} | {refused} |"
            );
        }
        for (sum, n) in total.iter_mut().zip(numbers) {
            *sum += n;
        }
    }
    let [set, decoded, executed, refused] = total;
    line!(
        out,
        "| **all** | {set} | {decoded} | {executed} | {refused} |"
    );
}

fn list(out: &mut String, heading: &str, groups: &BTreeMap<&str, Vec<&str>>) {
    line!(out, "\n## {heading}");
    for (reason, names) in groups {
        let shown: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        line!(out, "\n{}: {reason}.\n", names.len());
        line!(out, "{}", shown.join(" "));
    }
}

fn refusals(out: &mut String) {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for target in Target::ALL {
        for row in coverage(target) {
            let Some(reason) = row.refusal else { continue };
            let names = groups.entry(reason).or_default();
            if !names.contains(&row.mnemonic) {
                names.push(row.mnemonic);
            }
        }
    }
    list(out, "Decoded and refused", &groups);
}

fn absent(out: &mut String) {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in ABSENT {
        groups.entry(row.reason).or_default().push(row.mnemonic);
    }
    list(out, "In a set and not in the table", &groups);
    line!(out, "\n## Families that are only named\n");
    line!(out, "| family | opcodes in gfx11 | opcodes in gfx12 |");
    line!(out, "|---|---:|---:|");
    for family in FAMILIES {
        let [a, b] = family.opcodes;
        line!(out, "| {} | {a} | {b} |", family.name);
    }
}
