//! `dump` and `lint`, on a plan's packets and on raw words.

use crate::support::{austen, refrain_in, text};
use serde_json::Value;

#[test]
fn a_plan_s_packets_dump_and_lint_and_so_do_their_raw_words() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    assert_eq!(run(&["plan", text(&austen()), "-o", "a.plan"]).code, 0);

    let dump = run(&["dump", "--plan", "a.plan", "--raw", "a.ib"]);
    assert_eq!(dump.code, 0, "{}", dump.err);
    let launches = dump.out.matches(" DISPATCH_DIRECT\n").count();
    assert_eq!(launches, 59);
    assert_eq!(dump.out.matches("entry>>8 of gemv3_q8_0 ").count(), 6);
    let last = dump
        .out
        .lines()
        .rev()
        .find(|line| !line.starts_with("        ") && !line.ends_with(" NOP"))
        .unwrap();
    assert!(last.ends_with("EVENT_WRITE"), "ends in a wait: {last}");

    let ring = run(&[
        "dump",
        "--plan",
        "a.plan",
        "--transport",
        "aql",
        "--format",
        "json",
    ]);
    let ring: Value = serde_json::from_str(&ring.out).unwrap();
    assert_eq!(ring["schema"], "refrain.dump.v1");
    assert_eq!(ring["entries"].as_array().unwrap().len(), launches);

    for transport in ["aql", "pm4"] {
        let lint = run(&["lint", "--plan", "a.plan", "--transport", transport]);
        assert_eq!(lint.code, 0, "{}", lint.out);
        assert!(
            lint.out.contains("0 errors, 0 hazards, 0 warnings"),
            "{}",
            lint.out
        );
    }
}

#[test]
fn a_plan_s_target_is_checked_and_a_full_disk_is_an_io_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    assert_eq!(run(&["plan", text(&austen()), "-o", "a.plan"]).code, 0);
    assert_eq!(
        run(&["dump", "--plan", "a.plan", "--target", "gfx1201"]).code,
        0
    );
    let other = run(&["dump", "--plan", "a.plan", "--target", "gfx1100"]);
    assert_eq!(other.code, 2);
    assert!(
        other.err.contains("gfx1201") && other.err.contains("gfx1100"),
        "{}",
        other.err
    );
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = std::process::Command::new(env!("CARGO_BIN_EXE_refrain"))
        .args(["dump", "--plan", "a.plan"])
        .current_dir(folder.path())
        .stdout(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(74));
}

#[test]
fn raw_words_are_judged_and_a_forbidden_register_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    assert_eq!(run(&["plan", text(&austen()), "-o", "a.plan"]).code, 0);
    assert_eq!(run(&["dump", "--plan", "a.plan", "--raw", "a.ib"]).code, 0);
    let good = run(&["lint", "a.ib", "--format", "json"]);
    let report: Value = serde_json::from_str(&good.out).unwrap();
    // Addresses are 0 in an address-free form, so kernels and kernargs cannot be right.
    assert_eq!(report["schema"], "refrain.lint.v1");
    let mut bytes = std::fs::read(folder.path().join("a.ib")).unwrap();
    // RESOURCE_LIMITS (0x215) becomes STATIC_THREAD_MGMT_SE0 (0x216), as in a wrong gfx12 map.
    assert_eq!(bytes[14 * 4..14 * 4 + 2], [0x15, 0x02]);
    bytes[14 * 4] = 0x16;
    std::fs::write(folder.path().join("bad.ib"), &bytes).unwrap();
    let bad = run(&["lint", "bad.ib"]);
    assert_eq!(bad.code, 65, "{}", bad.out);
    assert!(
        bad.out.contains("P05") && bad.out.contains("0x216"),
        "{}",
        bad.out
    );
    let dump = run(&["dump", "bad.ib"]);
    assert_eq!(dump.code, 0, "a dump refuses nothing: {}", dump.err);
}

#[test]
fn bytes_that_are_no_words_are_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("odd"), [0u8; 65]).unwrap();
    for args in [&["dump", "odd"][..], &["lint", "odd", "--as", "ring"]] {
        let ran = refrain_in(folder.path(), args);
        assert_eq!(ran.code, 65, "{}", ran.err);
        assert!(ran.err.contains("65 bytes"), "{}", ran.err);
    }
    std::fs::write(folder.path().join("junk"), [0xABu8; 4096]).unwrap();
    for target in ["gfx1030", "gfx1100", "gfx1151", "gfx1200", "gfx1201"] {
        for surface in ["ib", "ring"] {
            let args = ["junk", "--as", surface, "--target", target];
            assert_eq!(
                refrain_in(folder.path(), &[&["dump"], &args[..]].concat()).code,
                0
            );
            assert_eq!(
                refrain_in(folder.path(), &[&["lint"], &args[..]].concat()).code,
                65
            );
        }
    }
}
