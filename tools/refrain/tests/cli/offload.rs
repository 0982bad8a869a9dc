//! `refrain offload-bench`: every form of step is timed in every way, and what it refuses.

use crate::support::{austen, refrain_in, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command with a folder for locks of its own.
fn bench(folder: &Path, more: &[&str]) -> Output {
    let model = austen();
    Command::new(env!("CARGO_BIN_EXE_refrain"))
        .args(["offload-bench", "x.plan", "--model-file", text(&model)])
        .args(["--device", "soft:gfx1201"])
        .args(more)
        .current_dir(folder)
        .env("TMPDIR", folder)
        .env_remove("REFRAIN_LOG")
        .output()
        .unwrap()
}

fn plan(folder: &Path, more: &[&str]) {
    let model = austen();
    let all = [
        &["plan", text(&model), "-o", "x.plan", "--context", "64"],
        more,
    ]
    .concat();
    let ran = refrain_in(folder, &all);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn every_form_is_timed_in_every_way() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), &["--gpu-layers", "4"]);
    let more = ["--shares", "0.25,0.5", "--repeats", "1", "--format", "json"];
    let output = bench(folder.path(), &more);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["software"], true);
    assert_eq!(report["pinned"], false);
    assert_eq!(report["modes"].as_array().unwrap().len(), 3);
    let steps = report["steps"].as_array().unwrap();
    // Two spilled layers, each with queries, keys and values in one step, gate and up in one, output
    // and down with their residual.
    let forms: Vec<_> = steps
        .iter()
        .map(|step| {
            (
                step["form"].as_str().unwrap(),
                step["per_token"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        forms,
        [
            ("several", 2),
            ("residual", 2),
            ("several", 2),
            ("residual", 2)
        ]
    );
    for step in steps {
        let kinds: Vec<_> = step["kinds"]
            .as_array()
            .unwrap()
            .iter()
            .map(|way| way["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["pcie", "cpu", "passback"], "{step}");
        for way in step["kinds"].as_array().unwrap() {
            assert!(way["wall"]["median_ns"].as_u64().unwrap() > 0, "{step}");
            assert_eq!(way["wall"]["repeats"], 2, "two layers, once each: {step}");
        }
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), &[]);
    let resident = bench(folder.path(), &[]);
    assert_eq!(resident.status.code(), Some(77));
    assert!(String::from_utf8_lossy(&resident.stderr).contains("RF031"));

    plan(folder.path(), &["--gpu-layers", "5"]);
    let profile = refrain_in(folder.path(), &["machine", "show", "gfx1201"]);
    std::fs::write(folder.path().join("m.toml"), profile.out).unwrap();
    let lock = folder
        .path()
        .join("refrain-offload-bench-soft-gfx1201.lock");
    let held = std::fs::File::create(lock).unwrap();
    held.lock().unwrap();
    for (more, code, said) in [
        (&["--write", "m.toml"][..], 2, "software GPU"),
        (&["--write", "none.toml"], 66, "none.toml"),
        (&["--write", "x.plan"], 2, "is an input"),
        (&["--shares", "1.0"], 2, "between 0 and 1"),
        (&["--repeats", "0"], 2, "repeats"),
        (&[], 69, "another offload-bench"),
    ] {
        let output = bench(folder.path(), more);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {err}");
        assert!(err.contains(said), "{more:?}: {err}");
    }
}
