//! Edges that users meet: outputs over inputs, pipes, closed readers, several candidates, refusals in
//! JSON, models whose numbers break.

use crate::support::{austen, refrain_in, text};
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Stdio};

const SOFT: [&str; 2] = ["--device", "soft:gfx1201"];

fn with_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(austen(), folder.path().join("model.gguf")).unwrap();
    folder
}

#[test]
fn an_output_never_replaces_an_input() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let ran = run(&["plan", "model.gguf", "-o", "model.gguf"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(bytes("model.gguf"), std::fs::read(austen()).unwrap());
    assert_eq!(run(&["plan", "model.gguf", "-o", "a.plan"]).code, 0);
    let plan = bytes("a.plan");
    std::os::unix::fs::symlink("a.plan", folder.path().join("link")).unwrap();
    for output in ["a.plan", "link", "./a.plan"] {
        let ran = run(&["record", "a.plan", "-o", output, SOFT[0], SOFT[1]]);
        assert_eq!(ran.code, 2, "{output}: {}", ran.err);
        let ran = run(&["dump", "--plan", "a.plan", "--raw", output]);
        assert_eq!(ran.code, 2, "{output}: {}", ran.err);
    }
    assert_eq!(bytes("a.plan"), plan);
}

#[test]
fn a_pipe_is_named_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo")
        .arg(folder.path().join("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    for args in [
        &["plan", "pipe", "-o", "a.plan"][..],
        &["inspect", "pipe"],
        &["run", "pipe", "--prompt", "x"],
        &["lint", "pipe"],
    ] {
        let ran = refrain_in(folder.path(), args);
        assert_eq!(ran.code, 74, "{args:?}: {}", ran.err);
        assert!(ran.err.contains("no regular file"), "{}", ran.err);
    }
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_refrain"))
        .args([
            "run",
            text(&austen()),
            "--prompt",
            "Emma",
            "-n",
            "900",
            SOFT[0],
            SOFT[1],
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = [0; 5];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let err = String::from_utf8(output.stderr).unwrap();
    let replayed = err
        .lines()
        .find(|line| line.starts_with("replayed"))
        .unwrap();
    let tokens: u32 = replayed.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(tokens < 200, "decoding went on for nobody: {replayed}");
}

#[test]
fn a_plan_fixes_its_choices_and_its_model() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    assert_eq!(run(&["plan", "model.gguf", "-o", "a.plan"]).code, 0);
    for (flag, value) in [
        ("--kv", "f16"),
        ("--context", "64"),
        ("--machine", "gfx1100"),
        ("--bucket", "64"),
        ("--no-fuse", "gemv3"),
    ] {
        let ran = run(&[
            "run", "a.plan", "--prompt", "x", flag, value, SOFT[0], SOFT[1],
        ]);
        assert_eq!(ran.code, 2, "{flag}: {}", ran.err);
        assert!(ran.err.contains(flag), "{}", ran.err);
    }
    // Another tokenizer or rope base under the same length is another model.
    let mut bytes = std::fs::read(austen()).unwrap();
    let key = b"qwen3.rope.freq_base";
    let at = bytes
        .windows(key.len())
        .position(|window| window == key)
        .unwrap()
        + key.len()
        + 4;
    bytes[at..at + 4].copy_from_slice(&5000f32.to_le_bytes());
    std::fs::write(folder.path().join("other.gguf"), bytes).unwrap();
    let args = [
        "run",
        "a.plan",
        "--prompt",
        "x",
        "--model-file",
        "other.gguf",
        SOFT[0],
        SOFT[1],
    ];
    let ran = run(&args);
    assert_eq!(ran.code, 76, "{}", ran.err);
    // It is no candidate either; an exact copy is, and then the user must choose.
    assert_eq!(
        run(&[
            "run", "a.plan", "--prompt", "x", "-n", "1", SOFT[0], SOFT[1]
        ])
        .code,
        0
    );
    std::fs::copy(austen(), folder.path().join("copy.gguf")).unwrap();
    let ran = run(&[
        "run", "a.plan", "--prompt", "x", "-n", "1", SOFT[0], SOFT[1],
    ]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("copy.gguf") && ran.err.contains("model.gguf"),
        "{}",
        ran.err
    );
}

#[test]
fn the_same_model_under_another_name_gives_the_same_plan() {
    let folder = with_model();
    std::fs::copy(austen(), folder.path().join("renamed.gguf")).unwrap();
    for (model, plan) in [("model.gguf", "a.plan"), ("renamed.gguf", "b.plan")] {
        assert_eq!(
            refrain_in(folder.path(), &["plan", model, "-o", plan]).code,
            0
        );
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a.plan"), read("b.plan"));
}

#[test]
fn a_refusal_in_json_is_an_object_with_its_code() {
    let folder = with_model();
    let args = [
        "run",
        "model.gguf",
        "--prompt",
        "x",
        "--machine",
        "gfx1100",
        "--retain",
        "whole",
        "--format",
        "json",
        SOFT[0],
        SOFT[1],
    ];
    let ran = refrain_in(folder.path(), &args);
    assert_eq!(ran.code, 77, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["schema"], "refrain.run.v1");
    assert_eq!(report["refusals"][0]["code"], "RF010");
    assert_eq!(report["refusals"][0]["count"], 1);
    assert_eq!(report["replayed_tokens"], 0);
}

#[test]
fn verification_cannot_be_empty_and_broken_numbers_are_an_error() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    for extra in [&["-n", "0"][..], &["--retain", "none"]] {
        let args = [
            &["run", "model.gguf", "--prompt", "x", "--verify"][..],
            extra,
        ]
        .concat();
        assert_eq!(run(&args).code, 2, "{extra:?}");
    }
    // Every byte of the weights 0xff: f16 scales and f32 norms are NaN.
    let mut bytes = std::fs::read(austen()).unwrap();
    bytes[31_552..].fill(0xFF);
    std::fs::write(folder.path().join("nan.gguf"), bytes).unwrap();
    let ran = run(&[
        "run", "nan.gguf", "--prompt", "x", "-n", "4", "--verify", SOFT[0], SOFT[1],
    ]);
    assert_eq!(ran.code, 65, "{}", ran.err);
    assert!(ran.err.contains("NaN"), "{}", ran.err);
}

#[test]
fn a_tape_is_inspected_and_named_where_it_does_not_belong() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    assert_eq!(run(&["plan", "model.gguf", "-o", "a.plan"]).code, 0);
    assert_eq!(
        run(&["record", "a.plan", "-o", "a.tape", SOFT[0], SOFT[1]]).code,
        0
    );
    let shown = run(&["inspect", "a.tape"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert_eq!(shown.out.matches(" launch ").count(), 59, "{}", shown.out);
    assert!(shown.out.contains("2 executors"), "{}", shown.out);
    let ran = run(&["run", "a.tape", "--prompt", "x"]);
    assert_eq!(ran.code, 65, "{}", ran.err);
    assert!(ran.err.contains("tape"), "{}", ran.err);
    let mut bytes = std::fs::read(folder.path().join("a.tape")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.path().join("bad.tape"), bytes).unwrap();
    assert_eq!(run(&["inspect", "bad.tape"]).code, 65);
}

#[test]
fn prompts_may_begin_with_a_dash_and_ids_may_have_spaces() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let ran = run(&[
        "run",
        "model.gguf",
        "--prompt",
        "-5 is",
        "-n",
        "1",
        SOFT[0],
        SOFT[1],
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("-5 is"));
    let ran = run(&[
        "run",
        "model.gguf",
        "--prompt-ids",
        "1, 2",
        "-n",
        "1",
        SOFT[0],
        SOFT[1],
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = run(&["run", "model.gguf", "--prompt", "x", "-n", "-1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("invalid value"), "{}", ran.err);
}

#[test]
fn fusions_and_buckets_are_chosen_by_name_and_position() {
    let folder = with_model();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let planned = |extra: &[&str]| {
        let base = ["plan", "model.gguf", "-o", "a.plan", "--machine", "gfx1100"];
        run(&[&base[..], extra].concat())
    };
    let fused = planned(&[]);
    assert!(fused.err.contains("59 steps"), "{}", fused.err);
    let plain = planned(&["--no-fuse", "gemv3", "--no-fuse", "gate_up"]);
    assert_eq!(plain.code, 0, "{}", plain.err);
    // gemv2 takes two of the three projections, and gate and up, in each of the 6 layers.
    assert!(plain.err.contains("71 steps"), "{}", plain.err);
    let unknown = planned(&["--no-fuse", "qkv"]);
    assert_eq!(unknown.code, 2, "{}", unknown.err);
    for text in ["qkv", "gemv3", "qk_norm_rope_kv"] {
        assert!(unknown.err.contains(text), "{}", unknown.err);
    }
    // A bucket of one part needs no merge of parts: one launch less per layer.
    let bucket = planned(&["--bucket", "256"]);
    assert!(bucket.err.contains("53 steps"), "{}", bucket.err);
    let shown = run(&["inspect", "a.plan"]);
    assert!(shown.out.contains("context 1024, positions below 256"));
    for (value, code) in [("0", 2), ("1025", 2), ("x", 2)] {
        let ran = planned(&["--bucket", value]);
        assert_eq!(ran.code, code, "{value}: {}", ran.err);
        assert!(ran.err.contains(value), "{}", ran.err);
    }
}
