//! Models of other formats than one GGUF file, and plans without weights.

use crate::support::{json, refrain, refrain_in, repository, text};
use serde_json::Value;
use std::path::Path;

const FOLDER: &str = "tests/models/hf/llama";

fn copy_model(to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(repository(FOLDER).join(name), to.join(name)).unwrap();
    }
}

fn edit_config(folder: &Path, edit: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
}

/// Prompt and greedy tokens of the nano llama, by transformers.
fn oracle() -> (String, Vec<Value>) {
    let path = repository("tests/oracle/nano-llama.json");
    let oracle: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let prompt = oracle["prompt"].as_array().unwrap();
    let ids: Vec<String> = prompt.iter().map(Value::to_string).collect();
    (
        ids.join(","),
        oracle["generated"].as_array().unwrap().clone(),
    )
}

#[test]
fn a_hugging_face_folder_gives_the_oracle_s_tokens() {
    let (prompt, generated) = oracle();
    let folder = repository(FOLDER);
    for model in [
        folder.clone(),
        folder.join("model.safetensors"),
        folder.join("config.json"),
    ] {
        let tokens = generated.len().to_string();
        let report = json(&[
            "run",
            text(&model),
            "--prompt-ids",
            &prompt,
            "-n",
            &tokens,
            "--device",
            "soft:gfx1201",
            "--verify",
            "--format",
            "json",
        ]);
        assert_eq!(report["tokens"].as_array().unwrap(), &generated);
        assert_eq!(report["verified"], true);
    }
}

#[test]
fn a_folder_and_its_gguf_file_have_one_sequence_hash() {
    let run = |model: &str| {
        let report = json(&[
            "run",
            text(&repository(model)),
            "--prompt-ids",
            "1",
            "-n",
            "1",
            "--device",
            "soft:gfx1201",
            "--format",
            "json",
        ]);
        report["sequence_hash"].as_str().unwrap().to_owned()
    };
    assert_eq!(run(FOLDER), run("tests/models/nano-llama.bf16.gguf"));
}

#[test]
fn a_plan_finds_the_folder_beside_it_and_refuses_a_changed_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("llama");
    copy_model(&model);
    let made = refrain_in(folder.path(), &["plan", "llama", "-o", "a.plan"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let run = || {
        refrain_in(
            folder.path(),
            &["run", "a.plan", "--prompt-ids", "1,2", "-n", "2"],
        )
    };
    let ran = run();
    assert_eq!(ran.code, 0, "{}", ran.err);
    // Another end token is another model, though every tensor is the same.
    edit_config(&model, |config| config["eos_token_id"] = 3.into());
    assert_eq!(run().code, 66);
    let named = [
        "run",
        "a.plan",
        "--prompt-ids",
        "1,2",
        "-n",
        "2",
        "--model-file",
        "llama",
    ];
    let ran = refrain_in(folder.path(), &named);
    assert_eq!(ran.code, 76, "{}", ran.err);
}

/// What a plan without weights may and may not do.
fn cannot_run(folder: &Path, plan: &str) {
    let shown = refrain_in(folder, &["inspect", plan]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(shown.out.contains("weights: absent"), "{}", shown.out);
    for command in [&["dump", "--plan", plan][..], &["lint", "--plan", plan]] {
        let ran = refrain_in(folder, command);
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
    }
    for command in [
        &["run", plan, "--prompt-ids", "1"][..],
        &["run", plan, "--prompt-ids", "1", "--retain", "none"],
        &["record", plan, "-o", "a.tape"],
    ] {
        let ran = refrain_in(folder, command);
        assert_eq!(ran.code, 77, "{command:?}: {}", ran.err);
        for word in ["RF023", "unfilled", "make the plan again"] {
            assert!(ran.err.contains(word), "{word:?}: {}", ran.err);
        }
        assert_eq!(ran.out, "");
        assert!(!folder.join("a.tape").exists());
    }
}

#[test]
fn a_plan_of_a_header_has_the_sequence_of_the_whole_and_cannot_run() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(repository("tests/models/nano-llama.bf16.gguf")).unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("whole.gguf"), &bytes).unwrap();
    std::fs::write(at("head.gguf"), &bytes[..4096]).unwrap();
    let refused = refrain_in(folder.path(), &["plan", "head.gguf", "-o", "head.plan"]);
    assert_eq!(refused.code, 65);
    assert!(refused.err.contains("--header-only"), "{}", refused.err);
    assert!(!at("head.plan").exists());
    let whole = refrain_in(folder.path(), &["plan", "whole.gguf", "-o", "whole.plan"]);
    let head = refrain_in(
        folder.path(),
        &["plan", "head.gguf", "--header-only", "-o", "head.plan"],
    );
    assert_eq!(head.code, 0, "{}", head.err);
    assert!(head.err.contains("weights: absent"), "{}", head.err);
    assert!(!whole.err.contains("absent"), "{}", whole.err);
    let sequence = |err: &str| {
        let after = err.split("sequence ").nth(1).unwrap();
        after[..16].to_owned()
    };
    assert_eq!(sequence(&whole.err), sequence(&head.err));
    cannot_run(folder.path(), "head.plan");
}

#[test]
fn a_configuration_is_planned_by_a_recipe() {
    let folder = tempfile::tempdir().unwrap();
    let config = repository(FOLDER).join("config.json");
    std::fs::copy(config, folder.path().join("config.json")).unwrap();
    let plan = |extra: &[&str]| {
        let args = [&["plan", "config.json", "-o", "a.plan"][..], extra].concat();
        refrain_in(folder.path(), &args)
    };
    let missing = plan(&[]);
    assert_eq!(missing.code, 66, "{}", missing.err);
    assert!(missing.err.contains("recipe"), "{}", missing.err);
    let unknown = plan(&["--recipe", "q9"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("q8_0"), "{}", unknown.err);
    assert_eq!(plan(&["--recipe", "q8_0", "--header-only"]).code, 2);
    let made = plan(&["--recipe", "q8_0"]);
    assert_eq!(made.code, 0, "{}", made.err);
    cannot_run(folder.path(), "a.plan");
    let gguf = repository("tests/models/nano-llama.bf16.gguf");
    let ran = refrain_in(
        folder.path(),
        &["plan", text(&gguf), "--recipe", "q8_0", "-o", "b.plan"],
    );
    assert_eq!(ran.code, 65, "{}", ran.err);
}

#[test]
fn a_plan_without_weights_is_filled_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    copy_model(&folder.path().join("m"));
    let (prompt, generated) = oracle();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let made = run(&["plan", "m/config.json", "--recipe", "bf16", "-o", "a.plan"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let filled = run(&["plan", "m", "--fill", "a.plan", "-o", "b.plan"]);
    assert_eq!(filled.code, 0, "{}", filled.err);
    let whole = run(&["plan", "m", "-o", "c.plan"]);
    assert_eq!(whole.code, 0, "{}", whole.err);
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("b.plan") == read("c.plan"));
    let ran = run(&[
        "run",
        "b.plan",
        "--prompt-ids",
        &prompt,
        "-n",
        "3",
        "--format",
        "json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["tokens"].as_array().unwrap()[..], generated[..3]);

    let again = run(&["plan", "m", "--fill", "b.plan", "-o", "d.plan"]);
    assert_eq!(again.code, 65, "{}", again.err);
    let other = repository("tests/models/nano-qwen3.bf16.gguf");
    let other = run(&["plan", text(&other), "--fill", "a.plan", "-o", "d.plan"]);
    assert_eq!(other.code, 76, "{}", other.err);
    for word in ["architecture", "qwen3", "llama"] {
        assert!(other.err.contains(word), "{}", other.err);
    }
    assert_eq!(
        run(&[
            "plan", "m", "--fill", "a.plan", "--kv", "f16", "-o", "d.plan"
        ])
        .code,
        2
    );
    assert_eq!(
        run(&["plan", "m", "--fill", "a.plan", "-o", "a.plan"]).code,
        2
    );
    assert!(!folder.path().join("d.plan").exists());
}

#[test]
fn the_refusal_has_a_page() {
    let page = refrain(&["explain", "RF023"]);
    assert_eq!(page.code, 0);
    assert!(page.out.contains("without weights"), "{}", page.out);
}

/// What is done to a folder, the exit code, and words of the message.
type Case = (fn(&Path), i32, &'static [&'static str]);

const BAD_FOLDERS: &[Case] = &[
    (
        |f| std::fs::remove_file(f.join("config.json")).unwrap(),
        74,
        &["a folder without config.json"],
    ),
    (
        |f| std::fs::remove_file(f.join("model.safetensors")).unwrap(),
        66,
        &["model.safetensors", "recipe"],
    ),
    (
        |f| std::fs::write(f.join("config.json"), "{").unwrap(),
        65,
        &["config.json", "JSON"],
    ),
    (
        |f| edit_config(f, |c| c["hidden_size"] = Value::Null),
        65,
        &["hidden_size is missing"],
    ),
    (
        |f| edit_config(f, |c| c["num_key_value_heads"] = 3.into()),
        65,
        &["num_attention_heads is 4", "num_key_value_heads is 3"],
    ),
    (
        |f| edit_config(f, |c| c["model_type"] = "bert".into()),
        65,
        &["\"bert\"", "llama"],
    ),
    (
        |f| edit_config(f, |c| c["vocab_size"] = 255.into()),
        65,
        &["256", "255"],
    ),
    (
        |f| std::fs::write(f.join("model.safetensors"), 100_000_000u64.to_le_bytes()).unwrap(),
        65,
        &["model.safetensors", "100000000", "33554432"],
    ),
    (
        |f| {
            let path = f.join("model.safetensors");
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        },
        65,
        &["model.norm.weight", "cut off"],
    ),
];

#[test]
fn bad_folders_are_refused_in_one_sentence() {
    for (damage, code, words) in BAD_FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        copy_model(&folder.path().join("m"));
        damage(&folder.path().join("m"));
        for command in [
            &["plan", "m", "-o", "m.plan"][..],
            &["run", "m", "--prompt-ids", "1"],
        ] {
            let ran = refrain_in(folder.path(), command);
            assert_eq!(ran.code, *code, "{}", ran.err);
            for word in *words {
                assert!(
                    ran.err.contains(word),
                    "{word:?} is missing in: {}",
                    ran.err
                );
            }
            let errors = ran.err.lines().filter(|line| line.starts_with("refrain: "));
            assert_eq!(errors.count(), 1, "{}", ran.err);
            assert_eq!(ran.out, "");
        }
        assert!(!folder.path().join("m.plan").exists());
    }
}

#[test]
fn a_missing_part_of_a_split_model_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let part = "nano-00002-of-00003.gguf";
    std::fs::copy(
        repository("tests/models/nano-llama.bf16.gguf"),
        folder.path().join(part),
    )
    .unwrap();
    let ran = refrain_in(folder.path(), &["plan", part, "-o", "a.plan"]);
    assert_eq!(ran.code, 66);
    assert!(ran.err.contains("nano-00001-of-00003.gguf"), "{}", ran.err);
}

#[test]
fn the_plan_never_replaces_a_file_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    copy_model(folder.path());
    let before = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    let ran = refrain_in(
        folder.path(),
        &["plan", "config.json", "-o", "model.safetensors"],
    );
    assert_eq!(ran.code, 2, "{}", ran.err);
    let made = refrain_in(folder.path(), &["plan", "config.json", "-o", "a.plan"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let args = [
        "record",
        "a.plan",
        "--model-file",
        ".",
        "-o",
        "model.safetensors",
    ];
    let ran = refrain_in(folder.path(), &args);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let after = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    assert!(before == after);
}
