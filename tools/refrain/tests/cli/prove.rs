//! `refrain prove`, and what `run` does with the file: the software GPU says it, a card demands it.

use crate::support::{refrain, refrain_in, repository, text};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn nano() -> PathBuf {
    repository("tests/models/nano-llama.bf16.gguf")
}

/// Proves the nano model with a context of four tokens.
fn prove(folder: &Path, name: &str, more: &[&str]) -> PathBuf {
    let file = folder.join(name);
    let model = nano();
    let fixed = ["--context", "4", "--seeds", "1", "--sample", "2", "-o"];
    let mut args = vec!["prove", text(&model), "--transport", "pm4"];
    args.extend(fixed);
    args.push(text(&file));
    args.extend(more);
    let ran = refrain(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for word in ["proved ", "no report", "register", "caught", "took"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    file
}

fn run(folder: &Path, more: &[&str]) -> crate::support::Ran {
    let model = nano();
    let mut args = vec!["run", text(&model), "--prompt-ids", "1,2", "-n", "1"];
    args.extend(["--context", "4"]);
    args.extend(more);
    refrain_in(folder, &args)
}

#[test]
fn a_run_says_whether_there_is_a_proof_and_refuses_one_of_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let proof = prove(folder.path(), "nano.proof", &[]);
    let content: Value = serde_json::from_slice(&std::fs::read(&proof).unwrap()).unwrap();
    assert_eq!(content["schema"], "refrain.proof.v1");
    let digest = content["digest"].as_str().unwrap();
    let with = |more: &[&str]| {
        let mut args = vec!["--proof", text(&proof), "--format", "json"];
        args.extend(more);
        run(folder.path(), &args)
    };
    let ran = with(&[]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["proof"], digest[..16]);
    let ran = run(folder.path(), &["--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["proof"], "none");
    // Packets that it does not cover, and another plan.
    for more in [&["--transport", "aql"][..], &["--device", "soft:gfx1100"]] {
        let ran = with(&[more, &["--retain", "whole"]].concat());
        assert_eq!(ran.code, 77, "{more:?}: {}", ran.err);
        assert!(ran.err.contains("RF039"), "{}", ran.err);
    }
    let mut bytes = std::fs::read(&proof).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&proof, bytes).unwrap();
    let ran = with(&[]);
    assert_eq!(ran.code, 65, "{}", ran.err);
}

#[test]
fn a_card_is_not_touched_without_a_proof() {
    let folder = tempfile::tempdir().unwrap();
    let card = ["--device", "rocm:0", "--retain", "whole"];
    let ran = run(folder.path(), &card);
    assert_eq!(ran.code, 77, "{}", ran.err);
    assert!(
        ran.err.contains("RF038") && ran.err.contains("--allow-unproven"),
        "{}",
        ran.err
    );
    if Path::new("/dev/kfd").exists() {
        eprintln!("skipped: this machine has /dev/kfd");
        return;
    }
    // The user's word opens the gate; behind it there is no card.
    let ran = run(folder.path(), &[&card[..], &["--allow-unproven"]].concat());
    assert_eq!(ran.code, 69, "{}", ran.err);
    let ran = run(folder.path(), &card[..2]);
    assert_eq!(ran.code, 69, "{}", ran.err);
}

#[test]
fn a_share_that_is_measured_is_not_proved() {
    let model = crate::support::austen();
    let spilled = ["--gpu-layers", "3", "--exec", "passback"];
    let ran = refrain(&[&["prove", text(&model)], &spilled[..]].concat());
    assert!(ran.code == 77 && ran.err.contains("RF030"), "{}", ran.err);
}

#[test]
fn contradictions_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("nano.plan");
    let model = nano();
    let args = [
        "plan",
        text(&model),
        "-o",
        text(&plan),
        "--machine",
        "gfx1100",
    ];
    assert_eq!(refrain(&args).code, 0);
    let rows: [(&[&str], &str); 3] = [
        (&["--device", "rocm:0"], "software GPU"),
        (&["--device", "soft:gfx1201"], "gfx1100"),
        (&["-o", text(&plan)], "input"),
    ];
    for (more, word) in rows {
        let mut args = vec!["prove", text(&plan), "--model-file", text(&model)];
        args.extend(more);
        let ran = refrain(&args);
        assert_eq!(ran.code, 2, "{more:?}: {}", ran.err);
        assert!(ran.err.contains(word), "{more:?}: {}", ran.err);
    }
}
