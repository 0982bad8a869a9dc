//! `run --strict` and `run --faults`: what they find, how they end, and where they are refused.

use crate::support::{austen, json, refrain, text};
use serde_json::Value;

const PROMPT: [&str; 4] = ["--prompt", "Emma was", "-n", "3"];

fn run<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let head = ["run", model].into_iter().chain(PROMPT);
    head.chain(more.iter().copied()).collect()
}

#[test]
fn strict_finds_nothing_in_a_shipped_form_and_changes_no_token() {
    let path = austen();
    let model = text(&path);
    let fast = json(&run(
        model,
        &["--device", "soft:gfx1100", "--format", "json"],
    ));
    assert_eq!(
        (&fast["strict"], &fast["injected"]),
        (&Value::Null, &Value::Null)
    );
    for strict in ["--strict", "--strict=7"] {
        let device = ["--device", "soft:gfx1100", "--format", "json", strict];
        let found = json(&run(model, &device));
        assert_eq!(found["tokens"], fast["tokens"], "{strict}");
        assert_eq!(found["strict"]["reports"], Value::Array(vec![]), "{strict}");
        assert_eq!(found["strict"]["dropped"], 0);
    }
}

/// A bit of the kernel arguments that turns a pointer, and one that nothing but strict mode sees.
#[test]
fn a_fault_that_strict_mode_sees_ends_with_code_1_and_reports() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("faults.txt");
    std::fs::write(
        &script,
        "# the first launch's first pointer\nflip@kernarg:1.44\n",
    )
    .unwrap();
    let path = austen();
    let faults = [
        "--faults",
        text(&script),
        "--strict",
        "--device",
        "soft:gfx1201",
    ];
    let ran = refrain(&run(text(&path), &faults));
    assert_eq!(ran.code, 1, "{}", ran.err);
    for expected in [
        "injected flip@kernarg:1.44: bit 44",
        "out-of-bounds: ",
        "kernarg-changed: ",
    ] {
        assert!(ran.err.contains(expected), "`{expected}`: {}", ran.err);
    }
}

#[test]
fn a_script_is_read_with_comments_and_judged_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("faults.txt");
    let path = austen();
    for (content, code, expected) in [
        ("", 0, ""),
        ("# nothing\n\n", 0, ""),
        (
            "hang@launch:999999, # far away\n stuck@completion:99999",
            0,
            "",
        ),
        // The form is refused for want of memory and the text runs eagerly.
        ("fail@hip-alloc:1", 0, "injected fail@hip-alloc:1"),
        ("fail@moon:1", 65, "`fail@moon` (fault 1) is no fault"),
        ("hang@launch:0", 65, "N at least 1"),
    ] {
        std::fs::write(&script, content).unwrap();
        let faults = ["--faults", text(&script), "--device", "soft:gfx1201"];
        let ran = refrain(&run(text(&path), &faults));
        assert_eq!(ran.code, code, "{content}: {}", ran.err);
        assert!(ran.err.contains(expected), "{content}: {}", ran.err);
    }
    let ran = refrain(&run(text(&path), &["--faults", "absent"]));
    assert_eq!(ran.code, 66, "{}", ran.err);
}

/// Hardware shows nothing and takes no script: a usage error before any device is looked for.
#[test]
fn both_are_refused_for_hardware() {
    let path = austen();
    for flag in [
        &["--strict"][..],
        &["--strict=3"],
        &["--faults", text(&path)],
    ] {
        let flags = [&["--device", "rocm:0"], flag].concat();
        let ran = refrain(&run(text(&path), &flags));
        assert_eq!(ran.code, 2, "{flag:?}: {}", ran.err);
        assert!(
            ran.err.contains("rocm:0 shows and takes neither"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("--device soft:gfx1201"), "{}", ran.err);
    }
}
