//! Constants against an independent source: the tables of an installed tinygrad wheel (0.14.0),
//! generated from AMD's kernel headers. Skipped, and said so, where Python or the wheel is absent;
//! `REFRAIN_REQUIRE_TINYGRAD` turns the skip into a failure.
//!
//! The wheel has gfx11, gfx11.5 and gfx12 register maps, none for gfx10.3.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use refrain_packet::tables::Field;
use refrain_packet::tables::objects::{
    AGENT_DISPATCH, BARRIER, KERNEL_DISPATCH, Object, QUEUE, SIGNAL,
};
use refrain_packet::tables::opcodes::{EVENTS, OPCODES};
use refrain_packet::tables::registers::{REGISTERS, SH_BASE};
use refrain_packet::target::Generation;

const TABLES: [(&str, Generation); 3] = [
    ("gc_11_0_0", Generation::Gfx11),
    ("gc_11_5_0", Generation::Gfx11_5),
    ("gc_12_0_0", Generation::Gfx12),
];

/// The script's lines, or why there are none.
fn lines() -> Result<Vec<Vec<String>>, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tinygrad_constants.py");
    let run = Command::new("python3")
        .arg(script)
        .output()
        .map_err(|e| e.to_string())?;
    if !run.status.success() {
        return Err(String::from_utf8_lossy(&run.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let lines: Vec<Vec<String>> = text
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect();
    match lines.first() {
        Some(first) if first[0] == "absent" => Err(first.join(" ")),
        None => Err("no output".to_owned()),
        Some(_) => Ok(lines),
    }
}

fn source() -> Option<Vec<Vec<String>>> {
    match lines() {
        Ok(lines) => Some(lines),
        Err(reason) => {
            println!("skipped: no tinygrad tables ({reason})");
            assert!(
                std::env::var_os("REFRAIN_REQUIRE_TINYGRAD").is_none(),
                "{reason}"
            );
            None
        }
    }
}

#[test]
fn registers_agree() {
    let Some(lines) = source() else { return };
    let mut compared = 0;
    for (table, generation) in TABLES {
        let theirs: BTreeMap<&str, u16> = lines
            .iter()
            .filter(|row| row[0] == "reg" && row[1] == table)
            .map(|row| (row[2].as_str(), row[3].parse::<u16>().unwrap()))
            // Another name for the CU masks, with another field split.
            .filter(|row| !row.0.starts_with("DESTINATION_EN"))
            .filter(|row| (0x2E00..0x2E80).contains(&row.1))
            .collect();
        let ours: BTreeMap<&str, u16> = REGISTERS
            .iter()
            .filter(|row| row.gens.has(generation))
            .map(|row| (row.name, row.offset + SH_BASE))
            .collect();
        assert_eq!(ours, theirs, "{table}");
        compared += ours.len();
    }
    println!("{compared} register positions agree");
}

#[test]
fn register_fields_agree() {
    let Some(lines) = source() else { return };
    let mut theirs: BTreeMap<(&str, &str, String), (u8, u8)> = BTreeMap::new();
    for row in lines.iter().filter(|row| row[0] == "field") {
        let bits = (row[4].parse().unwrap(), row[5].parse().unwrap());
        theirs.insert((&row[1], &row[2], row[3].to_uppercase()), bits);
    }
    let mut compared = 0;
    let mut missing = BTreeSet::new();
    for (table, generation) in TABLES {
        for row in REGISTERS.iter().filter(|row| row.gens.has(generation)) {
            for field in row.fields.iter().filter(|field| field.gens.has(generation)) {
                let names = [
                    field.name.to_owned(),
                    format!("{}_{}", field.name, &row.name[row.name.len() - 1..]),
                ];
                let found = names
                    .iter()
                    .find_map(|name| theirs.get(&(table, row.name, name.clone())));
                match found {
                    Some(bits) => {
                        assert_eq!(
                            *bits,
                            (field.lo, field.hi),
                            "{table} {} {}",
                            row.name,
                            field.name
                        );
                        compared += 1;
                    }
                    None => {
                        missing.insert(format!("{generation} {}.{}", row.name, field.name));
                    }
                }
            }
        }
    }
    println!("{compared} register fields agree; only here: {missing:?}");
    // FLOAT_MODE is one field there and four here (LLVM names); the rest comes from PAL or LLVM.
    let known = [
        "FLOAT_",
        "DEBUG_MODE",
        "CDBG_USER",
        "WGS_DISPATCH",
        "TTRACE_QUEUE_ID",
    ];
    for name in &missing {
        assert!(
            known.iter().any(|part| name.contains(part)),
            "{name} is not in the wheel"
        );
    }
}

#[test]
fn opcodes_and_packet_fields_agree() {
    let Some(lines) = source() else { return };
    let number = |kind: &str, name: &str, at: usize| {
        lines
            .iter()
            .find(|row| row[0] == kind && row[1] == name)
            .map(|row| row[at].parse::<u64>().unwrap())
    };
    let mut compared = 0;
    let mut missing = Vec::new();
    for row in OPCODES {
        match number("const", row.name, 2) {
            // The kernel header still has the gfx10.1 number; PAL uses 0xFF from gfx10.3 on.
            Some(0x99) if row.name == "AQL_PACKET" => {}
            Some(code) => {
                assert_eq!(code, u64::from(row.code), "{}", row.name);
                compared += 1;
            }
            None => missing.push(row.name),
        }
    }
    println!("{compared} opcodes agree; only here: {missing:?}");
    let mut compared = 0;
    for row in OPCODES {
        for field in row.fields {
            let name = format!("{}__{}", row.name, field.name);
            let Some(mask) = number("mask", &name, 2) else {
                continue;
            };
            if !differs(&name) {
                assert_eq!(mask, u64::from(field.mask()), "{name}");
                compared += 1;
            }
        }
    }
    // Cache controls are shifts there: the value of the field's lowest bit.
    let gcr = refrain_packet::tables::gcr::GCR_FIELDS;
    for field in gcr.iter().filter(|field| field.name != "RANGE_IS_PA") {
        let name = format!("ACQUIRE_MEM_GCR_CNTL_{}", field.name);
        assert_eq!(number("mask", &name, 3), Some(1 << field.lo), "{name}");
        compared += 1;
    }
    let release = OPCODES
        .iter()
        .find(|row| row.name == "RELEASE_MEM")
        .unwrap();
    let lowest = |field: &Field| 1_u64 << field.lo;
    for field in release.fields {
        let name = format!("RELEASE_MEM_GCR_{}", field.name);
        if let Some(bit) = number("const", &name, 2) {
            assert_eq!(bit, lowest(field), "{name}");
            compared += 1;
        }
    }
    println!("{compared} packet fields agree");
    assert!(compared > 50);
}

/// Fields where this table and that header differ on purpose.
fn differs(name: &str) -> bool {
    [
        // The header places the bit at 0; PAL and its own users at 31.
        "EVENT_WRITE__OFFLOAD_ENABLE",
        // 8 bits in the MEC layout; producers send up to 25 and all run.
        "ACQUIRE_MEM__COHER_SIZE_HI",
        // The field has 32 bits; only 48-bit addresses exist.
        "INDIRECT_BUFFER__IB_BASE_HI",
    ]
    .contains(&name)
}

#[test]
fn events_agree() {
    let Some(lines) = source() else { return };
    let mut compared = 0;
    for row in EVENTS {
        for line in lines
            .iter()
            .filter(|line| line[0] == "event" && line[2] == row.name)
        {
            assert_eq!(line[3], row.code.to_string(), "{}", row.name);
            compared += 1;
        }
    }
    println!("{compared} events agree");
    assert!(compared >= EVENTS.len());
}

#[test]
fn memory_layouts_agree() {
    let Some(lines) = source() else { return };
    let objects: [(&str, &Object); 5] = [
        ("amd_queue_v2_t", &QUEUE),
        ("amd_signal_t", &SIGNAL),
        ("hsa_kernel_dispatch_packet_t", &KERNEL_DISPATCH),
        ("hsa_barrier_and_packet_t", &BARRIER),
        ("hsa_agent_dispatch_packet_t", &AGENT_DISPATCH),
    ];
    let mut compared = 0;
    for (name, object) in objects {
        for line in lines
            .iter()
            .filter(|line| line[0] == "slot" && line[1] == name)
        {
            let offset: u16 = line[3].parse().unwrap();
            let slot = object
                .slots
                .iter()
                .find(|slot| slot.name.eq_ignore_ascii_case(&line[2]));
            if let Some(slot) = slot
                && !line[2].starts_with("reserved")
            {
                assert_eq!(slot.offset, offset, "{name} {}", slot.name);
                compared += 1;
            } else {
                assert!(
                    line[2].starts_with("reserved")
                        || ["hsa_queue", "full_header", "hardware_doorbell_ptr"]
                            .contains(&line[2].as_str()),
                    "{name} {} at {offset} has no slot",
                    line[2]
                );
            }
        }
    }
    println!("{compared} slots agree");
    assert!(compared > 50);
}
