//! Dumps cover every word, name what is known and mark what is not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::{Random, World};
use refrain_packet::Gfx;
use refrain_packet::dump::{DumpContext, dump_ib, dump_packets};
use serde_json::Value;

#[test]
fn text_names_registers_enums_and_addresses() {
    let world = World::new(Gfx::Gfx1201);
    let cx = DumpContext {
        allocations: &world.allocations,
        kernels: &world.kernels,
        ..DumpContext::bare(world.target)
    };
    let dump = dump_ib(&world.words, &cx);
    assert_eq!(dump.unknown_words(), 0);
    let text = dump.to_string();
    for part in [
        "ACQUIRE_MEM",
        "GLK_INV GLV_INV GL2_INV GL2_WB SEQ=FORWARD",
        "system scope on gfx12 without reserved bits",
        "EVENT_TYPE=CS_PARTIAL_FLUSH EVENT_INDEX=0x4",
        "kernel_1 entry",
        "kernargs+0x40",
        "COMPUTE_SHADER_EN FORCE_START_AT_000 CS_W32_EN",
        "USER_SGPR=0x2",
        "NUM_THREAD_FULL=0x100",
    ] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    let text = dump_packets(&world.ring, &cx).to_string();
    for part in [
        "KERNEL_DISPATCH",
        "kernel_0 descriptor",
        "ib+0x0",
        "acquire system",
    ] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
}

#[test]
fn address_free_form_shows_relocations() {
    let world = World::new(Gfx::Gfx1100);
    let cx = DumpContext {
        relocations: &world.free.relocations,
        symbols: &world.free.symbols,
        ..DumpContext::bare(world.target)
    };
    let text = dump_ib(&world.free.words, &cx).to_string();
    assert!(
        text.contains("relocation entry>>8 of kernel_1 + 0x0"),
        "{text}"
    );
    assert!(
        text.contains("relocation kernarg.lo of kernarg arena + 0x40"),
        "{text}"
    );
}

#[test]
fn json_is_well_formed_and_complete() {
    let mut world = World::new(Gfx::Gfx1151);
    world.words.extend([0x1234_5678, 0xC000_0100, 7]);
    let dump = dump_ib(&world.words, &DumpContext::bare(world.target));
    let json: Value = serde_json::from_str(&dump.to_json()).unwrap();
    assert_eq!(json["schema"], "refrain.dump.v1");
    let entries = json["entries"].as_array().unwrap();
    let words: usize = entries
        .iter()
        .map(|e| e["words"].as_array().unwrap().len())
        .sum();
    assert_eq!(words, world.words.len());
    let unknown: Vec<_> = entries.iter().filter(|e| e["unknown"] == true).collect();
    assert_eq!(unknown.len(), 2);
    assert!(unknown[0]["note"].as_str().unwrap().contains("type 0"));
    let report: Value = serde_json::from_str(&world.lint_ib().to_json(&[])).unwrap();
    assert_eq!(report["rejects"], true);
    assert_eq!(report["findings"][0]["severity"], "error");
}

#[test]
fn every_word_of_random_input_is_shown() {
    let mut random = Random::new(11);
    for _ in 0..500 {
        let words: Vec<u32> = (0..random.below(64))
            .map(|_| {
                if random.below(2) == 0 {
                    random.word()
                } else {
                    0xC001_7600
                }
            })
            .collect();
        for target in Gfx::ALL {
            let dump = dump_ib(&words, &DumpContext::bare(target));
            let shown: Vec<u32> = dump.entries.iter().flat_map(|e| e.words.clone()).collect();
            assert_eq!(shown, words);
            serde_json::from_str::<Value>(&dump.to_json()).unwrap();
        }
    }
}
