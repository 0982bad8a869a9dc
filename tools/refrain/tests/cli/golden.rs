//! `refrain golden` on the committed registry, and on copies of it with something changed.

use crate::support::{Ran, austen, refrain, refrain_in, repository, text};
use std::fs;
use std::path::{Path, PathBuf};

const RECORD: &str = "austen-qwen3-4m.q8_0/gfx1201-resident";

fn golden(root: &Path, args: &[&str]) -> Ran {
    let mut all = vec!["golden", "--root", text(root)];
    all.extend(args);
    refrain(&all)
}

/// A copy of registry, models and configurations that may be changed.
fn copy() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for part in ["golden/registry", "golden/models", "tests/configs"] {
        copy_tree(&repository(part), &folder.path().join(part));
    }
    folder
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        match from.is_dir() {
            true => copy_tree(&from, &to),
            false => drop(fs::copy(&from, &to).unwrap()),
        }
    }
}

fn record(root: &Path) -> PathBuf {
    root.join("golden/registry").join(format!("{RECORD}.toml"))
}

#[test]
fn every_committed_record_is_listed_and_holds() {
    let ran = golden(&repository(""), &["list"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let listed: Vec<&str> = ran.out.lines().collect();
    assert!(
        listed.len() > 20 && !ran.out.contains("not sealed"),
        "{}",
        ran.out
    );
    for word in ["refused RF024", "structure", "whole"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    let ran = golden(&repository(""), &["verify", "--all", "--no-tokens"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(
        ran.out.matches("holds ").count(),
        listed.len(),
        "{}",
        ran.out
    );
}

#[test]
fn tokens_of_a_record_are_run_and_the_registry_is_found_upwards() {
    let ran = refrain_in(
        &repository("golden/registry"),
        &["golden", "verify", RECORD],
    );
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let order = [
        "record",
        "model",
        "plan",
        "artifacts",
        "encoding",
        "proof",
        "tokens",
    ];
    let states: Vec<String> = order.iter().map(|layer| format!("{layer}: same")).collect();
    assert!(ran.out.contains(&states.join(", ")), "{}", ran.out);
    let ran = golden(&repository(""), &["explain", RECORD]);
    for word in ["whole", "pm4", "tokens", "software GPU", "floors      none"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
}

#[test]
fn what_is_not_as_sealed_is_named_and_classified_with_exit_76() {
    let folder = copy();
    let root = folder.path();
    let verify = || golden(root, &["verify", RECORD, "--no-tokens"]);
    // A weight of the model.
    let model = root.join("golden/models/austen-qwen3-4m.q8_0.gguf");
    let good = fs::read(&model).unwrap();
    let mut bytes = good.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&model, bytes).unwrap();
    let ran = verify();
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.out.contains("model: model: sealed"), "{}", ran.out);
    assert!(ran.out.contains("(other model)"), "{}", ran.out);
    fs::write(&model, good).unwrap();
    // Its proof.
    let proof = record(root).with_extension("proof");
    fs::remove_file(&proof).unwrap();
    let ran = verify();
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(
        ran.out.contains("no proof beside the record"),
        "{}",
        ran.out
    );
    // A byte of the record itself, and a record that nobody asked for.
    let text = fs::read_to_string(record(root)).unwrap();
    fs::write(
        record(root),
        text.replacen("launches = ", "launches = 1", 1),
    )
    .unwrap();
    assert_eq!(verify().code, 65);
    fs::remove_file(record(root)).unwrap();
    let ran = verify();
    assert!(
        ran.code == 76 && ran.out.contains("nothing is sealed"),
        "{}",
        ran.out
    );
    fs::write(root.join("golden/registry/lfm2.5-350m.q8_0/x.toml"), "").unwrap();
    let ran = golden(root, &["verify", "--all", "--no-tokens"]);
    assert!(
        ran.code == 76 && ran.out.contains("does not name it"),
        "{}",
        ran.out
    );
}

#[test]
fn sealing_again_changes_nothing_and_a_dry_run_writes_nothing() {
    let folder = copy();
    let root = folder.path();
    let before = fs::read(record(root)).unwrap();
    let ran = golden(root, &["seal", RECORD, "qwen3.5-2b.q8_0"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out.matches(": unchanged,").count(), 4, "{}", ran.out);
    assert_eq!(fs::read(record(root)).unwrap(), before);
    let shape = root.join("golden/registry/lfm2.5-350m.q8_0/gfx1100-resident.toml");
    let sealed = fs::read(&shape).unwrap();
    fs::remove_file(&shape).unwrap();
    let name = "lfm2.5-350m.q8_0/gfx1100-resident";
    let ran = golden(root, &["seal", name, "--dry-run"]);
    assert!(
        ran.code == 0 && ran.out.contains("would be written"),
        "{}",
        ran.out
    );
    assert!(!shape.exists());
    assert_eq!(golden(root, &["seal", name]).code, 0);
    assert_eq!(fs::read(&shape).unwrap(), sealed);
}

#[test]
fn a_tree_with_uncommitted_changes_is_not_sealed() {
    let folder = copy();
    let root = folder.path();
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
        let mut git = std::process::Command::new("git");
        git.arg("-C").arg(root).args(identity).args(args);
        git.output().is_ok_and(|output| output.status.success())
    };
    if !git(&["init", "-q"]) {
        eprintln!("skipped: no git");
        return;
    }
    assert!(git(&["add", "-A"]) && git(&["commit", "-q", "-m", "all"]));
    let seal = |more: &[&str]| {
        let mut args = vec!["seal", "lfm2.5-350m.q8_0", "--dry-run"];
        args.extend(more);
        golden(root, &args)
    };
    assert_eq!(seal(&[]).code, 0);
    fs::write(root.join("tests/configs/README.md"), "changed").unwrap();
    let ran = seal(&[]);
    assert_eq!(ran.code, 77, "{}", ran.err);
    assert!(
        ran.err.contains("RF041") && ran.err.contains("README.md"),
        "{}",
        ran.err
    );
    assert_eq!(seal(&["--allow-dirty"]).code, 0);
    // The registry itself is what sealing changes.
    assert!(git(&["checkout", "-q", "."]));
    fs::write(record(root), "").unwrap();
    assert_eq!(seal(&[]).code, 0);
}

#[test]
fn an_archive_is_reproducible_and_another_folder_attests_it() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
    for file in [&first, &second] {
        let ran = golden(&repository(""), &["package", RECORD, "-o", text(file)]);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap());
    let reproduce = |model: &Path, more: &[&str]| {
        let mut args = vec!["golden", "reproduce", text(&first)];
        args.extend(["--model-file", text(model)]);
        args.extend(more);
        refrain_in(folder.path(), &args)
    };
    let ran = reproduce(&austen(), &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("gfx1201-resident exact"), "{}", ran.out);
    let other = repository("tests/models/nano-qwen3.bf16.gguf");
    let ran = reproduce(&other, &[]);
    assert_eq!(ran.code, 76, "{}", ran.err);
    assert!(ran.out.contains("failed: model"), "{}", ran.out);
    assert_eq!(reproduce(&austen(), &["--dry-run"]).code, 0);
    let mut bytes = fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&first, bytes).unwrap();
    assert_eq!(reproduce(&austen(), &[]).code, 65);
}

#[test]
fn names_that_are_no_records_are_usage_errors() {
    let root = repository("");
    for args in [
        &["verify"][..],
        &["verify", "nobody"],
        &["seal", "nobody/gfx1100-resident"],
        &["package", "austen-qwen3-4m.q8_0", "-o", "x.tar"],
        &["verify", "--all", RECORD],
    ] {
        assert_eq!(golden(&root, args).code, 2, "{args:?}");
    }
    let ran = refrain(&["golden", "list"]);
    assert_eq!(ran.code, 66, "{}", ran.err);
}
