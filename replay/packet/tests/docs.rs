//! The committed page equals the tables; `REFRAIN_BLESS=1` rewrites it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

use std::path::Path;

#[test]
fn page_equals_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/packets.md");
    let want = refrain_packet::docs::markdown();
    if std::env::var_os("REFRAIN_BLESS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    let have = std::fs::read_to_string(&path).unwrap();
    assert!(
        have == want,
        "docs/packets.md differs from the tables; run with REFRAIN_BLESS=1"
    );
}

#[test]
fn tables_are_consistent() {
    use refrain_packet::tables::objects::OBJECTS;
    use refrain_packet::tables::opcodes::{OPCODES, event, opcode};
    use refrain_packet::tables::registers::{REGISTERS, register};
    use refrain_packet::target::Generation;
    for pair in OPCODES.windows(2) {
        assert!(pair[0].code < pair[1].code, "{}", pair[1].name);
    }
    for pair in REGISTERS.windows(2) {
        assert!(pair[0].offset <= pair[1].offset, "{}", pair[1].name);
    }
    for row in REGISTERS {
        for generation in Generation::ALL.into_iter().filter(|g| row.gens.has(*g)) {
            // One name per offset and generation.
            assert_eq!(register(row.offset, generation).unwrap().name, row.name);
        }
    }
    // Fields of one word never overlap on a generation.
    let lists = OPCODES.iter().map(|row| (row.name, row.fields));
    for (name, fields) in lists.chain(REGISTERS.iter().map(|row| (row.name, row.fields))) {
        for (i, a) in fields.iter().enumerate() {
            for b in &fields[i + 1..] {
                let meet = a.word == b.word && a.gens.meets(b.gens) && a.mask() & b.mask() != 0;
                assert!(!meet, "{name}: {} and {}", a.name, b.name);
            }
        }
    }
    for object in OBJECTS {
        let mut end = 0;
        for slot in object.slots {
            assert!(slot.offset >= end, "{} {}", object.name, slot.name);
            end = slot.offset + slot.bytes;
        }
        assert!(end <= object.bytes, "{}", object.name);
    }
    assert_eq!(opcode(0x15).unwrap().name, "DISPATCH_DIRECT");
    assert_eq!(event(7).unwrap().name, "CS_PARTIAL_FLUSH");
}
