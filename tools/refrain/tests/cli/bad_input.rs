//! Bad input: one clear error with offset or name and remedy, the documented exit code, no panic,
//! nothing half-written.

use crate::support::{Ran, austen, refrain_in, text};
use std::path::Path;

/// A damaged model: how, the exit code, and words that the message must have.
struct Case {
    name: &'static str,
    damage: fn(&mut Vec<u8>),
    code: i32,
    words: &'static [&'static str],
}

/// Byte offset of the first place where `needle` stands.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap()
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let at = find(bytes, old);
    bytes[at..at + new.len()].copy_from_slice(new);
}

/// Offset just past a tensor's name in its record: u32 dimensions, u64 each, u32 type, u64 offset.
fn record(bytes: &[u8], name: &str) -> usize {
    let mut needle = (name.len() as u64).to_le_bytes().to_vec();
    needle.extend_from_slice(name.as_bytes());
    find(bytes, &needle) + needle.len()
}

const CASES: &[Case] = &[
    Case {
        name: "empty",
        damage: |b| b.clear(),
        code: 65,
        words: &["0"],
    },
    Case {
        name: "cut in the header",
        damage: |b| b.truncate(1000),
        code: 65,
        words: &["byte"],
    },
    Case {
        name: "cut in the weights",
        damage: |b| b.truncate(3_000_000),
        code: 65,
        words: &["3000000"],
    },
    Case {
        name: "wrong magic",
        damage: |b| b[0] = b'X',
        code: 65,
        words: &["GGUF"],
    },
    Case {
        name: "version 1",
        damage: |b| b[4] = 1,
        code: 65,
        words: &["version", "1"],
    },
    Case {
        name: "big-endian",
        damage: |b| b[4..8].copy_from_slice(&[0, 0, 0, 3]),
        code: 65,
        words: &["big-endian"],
    },
    Case {
        name: "dims of 2^60",
        damage: |b| {
            let at = record(b, "blk.0.ffn_gate.weight") + 4;
            b[at..at + 8].copy_from_slice(&(1u64 << 60).to_le_bytes());
        },
        code: 65,
        words: &["blk.0.ffn_gate.weight"],
    },
    Case {
        name: "offset past the end",
        damage: |b| {
            let at = record(b, "blk.0.ffn_gate.weight") + 4 + 16 + 4;
            b[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        },
        code: 65,
        words: &["blk.0.ffn_gate.weight"],
    },
    Case {
        name: "unknown tensor type",
        damage: |b| {
            let at = record(b, "blk.0.ffn_gate.weight") + 4 + 16;
            b[at..at + 4].copy_from_slice(&999u32.to_le_bytes());
        },
        code: 65,
        words: &["blk.0.ffn_gate.weight", "999"],
    },
    Case {
        name: "missing tensor",
        damage: |b| replace(b, b"blk.3.attn_k.weight", b"blk.3.attn_k.weighs"),
        code: 65,
        words: &["blk.3.attn_k.weight"],
    },
    Case {
        name: "unknown architecture",
        damage: |b| replace(b, b"\x05\0\0\0\0\0\0\0qwen3", b"\x05\0\0\0\0\0\0\0qwerk"),
        code: 65,
        words: &["qwerk", "qwen3", "llama"],
    },
    Case {
        name: "unknown splitting rule",
        damage: |b| replace(b, b"\x05\0\0\0\0\0\0\0qwen2", b"\x05\0\0\0\0\0\0\0qwena"),
        code: 65,
        words: &["qwena", "qwen2"],
    },
];

fn one_error(ran: &Ran, name: &str) {
    assert!(!ran.err.contains("panicked"), "{name}: {}", ran.err);
    assert_eq!(ran.out, "", "{name}");
    let errors = ran
        .err
        .lines()
        .filter(|line| line.starts_with("refrain: "))
        .count();
    assert_eq!(errors, 1, "{name}: {}", ran.err);
}

fn write_model(folder: &Path, damage: fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(austen()).unwrap();
    damage(&mut bytes);
    std::fs::write(folder.join("bad.gguf"), bytes).unwrap();
}

#[test]
fn damaged_models_are_refused_with_name_or_offset() {
    let folder = tempfile::tempdir().unwrap();
    for case in CASES {
        write_model(folder.path(), case.damage);
        let commands: [&[&str]; 2] = [
            &[
                "run",
                "bad.gguf",
                "--prompt",
                "Emma",
                "-n",
                "1",
                "--device",
                "soft:gfx1201",
            ],
            &["plan", "bad.gguf", "-o", "bad.plan"],
        ];
        for command in commands {
            // The splitting rule is read when a text is split, not when a plan is made.
            if case.name == "unknown splitting rule" && command[0] == "plan" {
                continue;
            }
            let ran = refrain_in(folder.path(), command);
            assert_eq!(ran.code, case.code, "{}: {}", case.name, ran.err);
            one_error(&ran, case.name);
            for word in case.words {
                assert!(
                    ran.err.contains(word),
                    "{}: {word:?} is not in {}",
                    case.name,
                    ran.err
                );
            }
        }
        assert!(!folder.path().join("bad.plan").exists(), "{}", case.name);
    }
}

#[test]
fn a_renamed_file_and_bit_flips_never_crash() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.gguf"), "not a model at all").unwrap();
    let ran = refrain_in(folder.path(), &["run", "text.gguf", "--prompt", "Emma"]);
    assert_eq!(ran.code, 65, "{}", ran.err);
    let good = std::fs::read(austen()).unwrap();
    for step in 0..40usize {
        let mut bytes = good.clone();
        bytes[step * 780] ^= 1 << (step % 8);
        std::fs::write(folder.path().join("bad.gguf"), bytes).unwrap();
        let ran = refrain_in(folder.path(), &["plan", "bad.gguf", "-o", "bad.plan"]);
        assert!(
            [0, 65].contains(&ran.code),
            "byte {}: {} {}",
            step * 780,
            ran.code,
            ran.err
        );
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
}

#[test]
fn a_changed_weight_is_not_the_planned_model() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::copy(austen(), &model).unwrap();
    assert_eq!(
        refrain_in(folder.path(), &["plan", "model.gguf", "-o", "a.plan"]).code,
        0
    );
    let mut bytes = std::fs::read(&model).unwrap();
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    std::fs::write(&model, bytes).unwrap();
    let ran = refrain_in(
        folder.path(),
        &[
            "run",
            "a.plan",
            "--prompt",
            "Emma",
            "--device",
            "soft:gfx1201",
        ],
    );
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.err.contains("digest"), "{}", ran.err);
    let ran = refrain_in(
        folder.path(),
        &[
            "record",
            "a.plan",
            "-o",
            "a.tape",
            "--device",
            "soft:gfx1201",
        ],
    );
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(!folder.path().join("a.tape").exists());
}

#[test]
fn damaged_plans_are_refused_with_their_section() {
    let folder = tempfile::tempdir().unwrap();
    let made = refrain_in(folder.path(), &["plan", text(&austen()), "-o", "a.plan"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let good = std::fs::read(folder.path().join("a.plan")).unwrap();
    let inspect = |bytes: &[u8]| {
        std::fs::write(folder.path().join("b.plan"), bytes).unwrap();
        refrain_in(folder.path(), &["inspect", "b.plan"])
    };
    let mut version = good.clone();
    version[8] = 9;
    let ran = inspect(&version);
    assert_eq!(ran.code, 65);
    assert!(
        ran.err.contains("format 9") && ran.err.contains("re-run"),
        "{}",
        ran.err
    );
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    for bytes in [
        &flipped[..],
        &good[..good.len() - 1],
        &[&good[..], b"x"].concat(),
        b"REFRPLAN",
    ] {
        let ran = inspect(bytes);
        assert_eq!(ran.code, 65, "{}", ran.err);
        one_error(&ran, "plan");
    }
}

#[test]
fn prompts_that_do_not_fit_say_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let long = "Emma was ".repeat(40);
    let run = |args: &[&str]| {
        let mut all = vec!["run", text_of_model(), "--device", "soft:gfx1201"];
        all.extend_from_slice(args);
        refrain_in(folder.path(), &all)
    };
    let cases: [(&[&str], i32, &[&str]); 5] = [
        (
            &["--prompt", &long, "--context", "16"],
            65,
            &["16", "tokens", "context"],
        ),
        (&["--prompt", ""], 65, &["no tokens"]),
        (&["--prompt-ids", "1,99999"], 65, &["99999", "1024"]),
        (
            &["--prompt", "Emma", "--context", "5000"],
            2,
            &["5000", "1024"],
        ),
        (
            &["--prompt", "Emma", "--machine", "gfx999"],
            2,
            &["gfx999", "gfx1201"],
        ),
    ];
    for (args, code, words) in cases {
        let ran = run(args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        one_error(&ran, &format!("{args:?}"));
        for word in words {
            assert!(ran.err.contains(word), "{word:?} is not in {}", ran.err);
        }
    }
}

fn text_of_model() -> &'static str {
    concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../golden/models/austen-qwen3-4m.q8_0.gguf"
    )
}

#[test]
fn absent_files_and_folders_have_their_codes() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32); 6] = [
        (&["run", "absent.gguf", "--prompt", "x"], 66),
        (&["inspect", "absent.plan"], 66),
        (&["run", ".", "--prompt", "x"], 74),
        (&["plan", text_of_model(), "-o", "absent/folder/a.plan"], 74),
        (&["run"], 2),
        (&["explain", "RF999"], 2),
    ];
    for (args, code) in cases {
        let ran = refrain_in(folder.path(), args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{args:?}: {}", ran.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_mismatched_machine_is_refused_with_a_code_and_the_code_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "run",
        text_of_model(),
        "--prompt",
        "Emma",
        "--machine",
        "gfx1100",
        "--device",
        "soft:gfx1201",
    ];
    let ran = refrain_in(folder.path(), &args);
    assert_eq!(ran.code, 77, "{}", ran.err);
    assert!(
        ran.err.contains("RF010") && ran.err.contains("gfx1100"),
        "{}",
        ran.err
    );
    let page = refrain_in(folder.path(), &["explain", "rf010"]);
    assert_eq!(page.code, 0);
    assert!(
        page.out.contains("RF010") && page.out.contains("What to do"),
        "{}",
        page.out
    );
    let list = refrain_in(folder.path(), &["explain"]);
    assert!(list.out.lines().count() > 10 && list.out.contains("RF010"));
}
