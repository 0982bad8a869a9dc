//! Opcode numbers against an independent source: the enumerations of an installed tinygrad wheel
//! (0.14.0), generated from AMD's machine-readable ISA. Every opcode of the wheel is in the table
//! under the same number and name, or in the list of what is absent and why; the table has no other.
//! Skipped, and said so, where Python or the wheel is absent; `REFRAIN_REQUIRE_TINYGRAD` turns the
//! skip into a failure.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it compared"
)]

use refrain_softgpu::isa::{ABSENT, FAMILIES, Format, Generation, Target, opcodes};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The wheel's enumerations of the modelled formats.
const FORMATS: [(&str, Format); 20] = [
    ("SOP1Op", Format::Sop1),
    ("SOP2Op", Format::Sop2),
    ("SOPCOp", Format::Sopc),
    ("SOPKOp", Format::Sopk),
    ("SOPPOp", Format::Sopp),
    ("SMEMOp", Format::Smem),
    ("VOP1Op", Format::Vop1),
    ("VOP2Op", Format::Vop2),
    ("VOPCOp", Format::Vopc),
    ("VOP3Op", Format::Vop3),
    ("VOP3SDOp", Format::Vop3sd),
    ("VOP3POp", Format::Vop3p),
    ("VOPDOp", Format::Vopd),
    ("DSOp", Format::Ds),
    ("FLATOp", Format::Flat),
    ("VFLATOp", Format::Flat),
    ("GLOBALOp", Format::Global),
    ("VGLOBALOp", Format::Global),
    ("SCRATCHOp", Format::Scratch),
    ("VSCRATCHOp", Format::Scratch),
];

/// One line of the script.
struct Theirs {
    set: usize,
    enumeration: String,
    number: u16,
    name: String,
}

fn theirs() -> Option<Vec<Theirs>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad_opcodes.py");
    let run = Command::new("python3").arg(script).output().ok();
    let text = run.map(|run| String::from_utf8_lossy(&run.stdout).into_owned());
    let text = text.filter(|text| !text.is_empty() && !text.starts_with("absent"));
    let Some(text) = text else {
        println!("skipped: no tinygrad tables");
        assert!(
            std::env::var_os("REFRAIN_REQUIRE_TINYGRAD").is_none(),
            "no tinygrad tables"
        );
        return None;
    };
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let mut next = || fields.next().unwrap().to_owned();
        Theirs {
            set: usize::from(next() == "gfx12"),
            enumeration: next(),
            number: next().parse().unwrap(),
            name: next(),
        }
    };
    Some(text.lines().map(line).collect())
}

/// The wheel repeats short instructions in the enumeration of their long form.
fn repeated(format: Format, row: &Theirs) -> bool {
    match format {
        Format::Vop1 | Format::Vop2 | Format::Vopc => row.name.ends_with("_e64"),
        Format::Vop3 | Format::Vop3sd => row.number < 0x140 || (0x180..0x200).contains(&row.number),
        _ => false,
    }
}

#[test]
fn every_number_and_name_agrees() {
    let Some(theirs) = theirs() else { return };
    for (set, target) in [(0, Target::Gfx1151), (1, Target::Gfx1201)] {
        let mut ours: BTreeMap<(Format, u16), &str> = opcodes(target)
            .map(|(format, number, mnemonic)| ((format, number), mnemonic))
            .collect();
        let all = ours.len();
        let mut absent: BTreeSet<(Format, &str)> = ABSENT
            .iter()
            .filter(|row| row.sets[set])
            .map(|row| (row.format, row.mnemonic))
            .collect();
        let listed = absent.len();
        let mut wrong = Vec::new();
        for row in theirs.iter().filter(|row| row.set == set) {
            let format = FORMATS.iter().find(|(e, _)| *e == row.enumeration);
            let Some(&(_, format)) = format else { continue };
            if repeated(format, row) {
                continue;
            }
            let name = row.name.trim_end_matches("_e32");
            match ours.remove(&(format, row.number)) {
                Some(mnemonic) if mnemonic == name => {}
                None if absent.remove(&(format, name)) => {}
                other => wrong.push((format, row.number, name.to_owned(), other)),
            }
        }
        // A family of which only the cache controls have rows.
        ours.retain(|(format, _), _| *format != Format::Mubuf);
        println!("{target}: {all} opcodes, {listed} absent with a reason");
        assert!(all >= 500, "{target}: only {all} opcodes");
        assert!(wrong.is_empty(), "{target}: {wrong:?}");
        assert!(ours.is_empty(), "{target}: not in the wheel: {ours:?}");
        assert!(absent.is_empty(), "{target}: not in the wheel: {absent:?}");
    }
}

#[test]
fn whole_families_have_the_stated_size() {
    let Some(theirs) = theirs() else { return };
    for (set, generation) in [(0, Generation::Gfx11), (1, Generation::Gfx12)] {
        let mut counts: BTreeMap<&str, u16> = BTreeMap::new();
        for row in theirs.iter().filter(|row| row.set == set) {
            if FORMATS.iter().all(|(e, _)| *e != row.enumeration) {
                *counts.entry(row.enumeration.as_str()).or_default() += 1;
            }
        }
        for (enumeration, count) in counts {
            // VDSDIR and VEXPORT are the gfx12 names of LDSDIR and EXP.
            let name = match enumeration.trim_end_matches("Op") {
                "VDSDIR" => "LDSDIR",
                "VEXPORT" => "EXP",
                name => name,
            };
            let family = FAMILIES
                .iter()
                .find(|f| f.name.split(' ').next() == Some(name));
            let size = family.map(|f| f.opcodes[set]);
            assert_eq!(size, Some(count), "{generation:?} {enumeration}");
        }
    }
}
