//! The main job: a model becomes a plan, a tape, packets, and text.

use crate::support::{austen, json, refrain, refrain_in, repository, text};
use serde_json::Value;

const ORACLE: &str = "tests/oracle/austen-qwen3-4m.q8_0.json";

fn oracle() -> Value {
    serde_json::from_slice(&std::fs::read(repository(ORACLE)).unwrap()).unwrap()
}

#[test]
fn run_prints_the_oracle_s_text_on_stdout_and_the_summary_on_stderr() {
    let oracle = oracle();
    let (prompt, expected) = (
        oracle[0]["prompt"].as_str().unwrap(),
        oracle[0]["text"].as_str().unwrap(),
    );
    let tokens = oracle[0]["generated"].as_array().unwrap().len().to_string();
    let ran = refrain(&[
        "run",
        text(&austen()),
        "--prompt",
        prompt,
        "-n",
        &tokens,
        "--device",
        "soft:gfx1201",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out, format!("{prompt}{expected}\n"));
    for line in [
        "device      soft:gfx1201",
        "transport   pm4, proof: none",
        "refusals    none",
        "not a GPU's speed",
    ] {
        assert!(ran.err.contains(line), "{line:?} is not in {}", ran.err);
    }
}

#[test]
fn json_has_every_field_of_its_schema_and_nothing_was_eager() {
    let oracle = oracle();
    let prompt = oracle[0]["prompt"].as_str().unwrap();
    let report = json(&[
        "run",
        text(&austen()),
        "--prompt",
        prompt,
        "-n",
        "16",
        "--device",
        "soft:gfx1100",
        "--transport",
        "aql",
        "--format",
        "json",
    ]);
    assert_eq!(report["schema"], "refrain.run.v1");
    let expected: Vec<Value> = oracle[0]["generated"].as_array().unwrap()[..16].to_vec();
    assert_eq!(report["tokens"].as_array().unwrap(), &expected);
    assert_eq!(report["device"], "soft:gfx1100");
    assert_eq!(report["transport"], "aql");
    assert_eq!(report["verified"], Value::Null);
    assert_eq!(report["refusals"], Value::Array(vec![]));
    assert_eq!(report["eager_tokens"], 0);
    let prompt_tokens = oracle[0]["prompt_ids"].as_array().unwrap().len() as u64;
    // Steps in flight when the last token is read may be more than the text needed.
    let replayed = report["replayed_tokens"].as_u64().unwrap();
    assert_eq!(replayed, prompt_tokens + 15);
    assert_eq!(report["plan_id"].as_str().unwrap().len(), 64);
    assert_eq!(report["sequence_hash"].as_str().unwrap().len(), 16);
    assert!(
        report["launches_per_token"].as_u64().unwrap()
            >= report["unique_kernels"].as_u64().unwrap()
    );
    for time in ["eager", "retained"] {
        assert!(
            report["host_us_per_token"][time].as_f64().unwrap() > 0.0,
            "{time}"
        );
    }
    assert!(report["tok_s"].as_f64().unwrap() > 0.0);
}

/// Fresh processes, both transports, all targets, different orders of waves: the same tokens, and
/// the same bytes in every buffer.
#[test]
fn fresh_processes_transports_and_targets_leave_the_same_bytes() {
    let mut states = Vec::new();
    for (index, (device, transport)) in [
        ("soft:gfx1100", "aql"),
        ("soft:gfx1100", "pm4"),
        ("soft:gfx1151", "pm4"),
        ("soft:gfx1201", "aql"),
        ("soft:gfx1201", "pm4"),
        ("soft:gfx1201", "pm4"),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = index.to_string();
        let report = json(&[
            "run",
            text(&austen()),
            "--prompt",
            "Emma was",
            "-n",
            "60",
            "--device",
            device,
            "--transport",
            transport,
            "--seed",
            &seed,
            "--verify",
            "--format",
            "json",
        ]);
        assert_eq!(report["verified"], true, "{device} {transport}");
        states.push((report["state"].clone(), report["tokens"].clone()));
    }
    assert!(
        states.windows(2).all(|pair| pair[0] == pair[1]),
        "{states:?}"
    );
    let other = json(&[
        "run",
        text(&austen()),
        "--prompt",
        "Emma is",
        "-n",
        "60",
        "--device",
        "soft:gfx1201",
        "--verify",
        "--format",
        "json",
    ]);
    assert_ne!(
        other["state"], states[0].0,
        "another text must leave another state"
    );
}

#[test]
fn a_plan_file_runs_records_and_inspects() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    std::fs::copy(austen(), &model).unwrap();
    let ran = refrain_in(folder.path(), &["plan", "model.gguf", "-o", "austen.plan"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let first = std::fs::read(folder.path().join("austen.plan")).unwrap();
    refrain_in(folder.path(), &["plan", "model.gguf", "-o", "austen.plan"]);
    assert_eq!(
        first,
        std::fs::read(folder.path().join("austen.plan")).unwrap(),
        "the same bytes twice"
    );

    let shown = refrain_in(folder.path(), &["inspect", "austen.plan"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    assert!(
        shown.out.contains("qwen3") && shown.out.contains("gemv_q8_0"),
        "{}",
        shown.out
    );

    let recorded = refrain_in(
        folder.path(),
        &[
            "record",
            "austen.plan",
            "-o",
            "austen.tape",
            "--device",
            "soft:gfx1201",
        ],
    );
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    assert!(
        std::fs::metadata(folder.path().join("austen.tape"))
            .unwrap()
            .len()
            > 1000
    );

    // The model is found beside the plan by its length, under any name.
    let ran = refrain_in(
        folder.path(),
        &[
            "run",
            "austen.plan",
            "--prompt",
            "Emma was",
            "-n",
            "4",
            "--device",
            "soft:gfx1201",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let direct = refrain(&[
        "run",
        text(&austen()),
        "--prompt",
        "Emma was",
        "-n",
        "4",
        "--device",
        "soft:gfx1201",
    ]);
    assert_eq!(ran.out, direct.out);
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(
        files, 3,
        "a model, a plan, a tape, and nothing half-written"
    );
}

#[test]
fn a_model_without_tokenizer_takes_and_gives_ids() {
    let model = repository("tests/models/nano-llama.bf16.gguf");
    let ran = refrain(&[
        "run",
        text(&model),
        "--prompt-ids",
        "1,2,3",
        "-n",
        "3",
        "--device",
        "soft:gfx1201",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ids: Vec<u32> = ran
        .out
        .split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect();
    assert_eq!(ids.len(), 3);
    let ran = refrain(&[
        "run",
        text(&model),
        "--prompt",
        "text",
        "--device",
        "soft:gfx1201",
    ]);
    assert_eq!(ran.code, 65);
    assert!(ran.err.contains("--prompt-ids"), "{}", ran.err);
}
