//! `bench`, `trace`, `schema`, and what `run` counts: reports fit their schema, exit codes are those
//! of the verdict, and a doctored report is judged by its rows.

use crate::support::{json, refrain, refrain_in, repository, text};
use serde_json::{Value, json as value};
use std::path::{Path, PathBuf};

fn nano() -> PathBuf {
    repository("tests/models/nano-qwen3.bf16.gguf")
}

/// A short run without a gate: what ran is judged, nothing is said about speed.
fn quick(more: &[&str]) -> Vec<String> {
    let model = nano();
    let fixed = ["bench", text(&model), "--context", "64", "--contexts", "8"];
    let short = ["-n", "6", "--rows", "2", "--warmup", "0"];
    let all = fixed.iter().chain(&short).chain(more);
    all.map(|word| (*word).to_owned()).collect()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn report() -> Value {
    json(&words(&quick(&["--skip-gate", "--format", "json"])))
}

fn store(folder: &Path, report: &Value) -> PathBuf {
    let path = folder.join("report.json");
    std::fs::write(&path, report.to_string()).unwrap();
    path
}

fn kinds(report: &Value) -> Vec<&str> {
    let failures = report["verdict"]["failures"].as_array().unwrap();
    failures
        .iter()
        .map(|row| row["kind"].as_str().unwrap())
        .collect()
}

#[test]
fn a_report_fits_the_schema_that_is_printed_and_every_row_proves_its_route() {
    let schema = json(&["schema", "bench"]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut report = report();
    let errors: Vec<String> = validator
        .iter_errors(&report)
        .map(|error| error.to_string())
        .collect();
    assert_eq!(errors, [] as [String; 0]);
    assert_eq!(kinds(&report), ["gate_skipped"]);
    let series = report["series"].as_array().unwrap();
    assert_eq!(series.len(), 4);
    let launches = report["plans"][0]["launches"].as_u64().unwrap();
    for (series, arm) in series.iter().zip(["eager", "graph", "aql", "pm4"]) {
        for row in series["rows"].as_array().unwrap() {
            let route = &row["route"];
            let eager = u64::from(arm == "eager");
            assert_eq!(route["hip_launches"], 6 * launches * eager, "{arm}");
            let replays = u64::from(arm == "aql" || arm == "pm4") * 6;
            assert_eq!(route["replays"], replays, "{arm}");
            assert_eq!(
                (&route["first_position"], &route["last_position"]),
                (&value!(8), &value!(13))
            );
            assert_eq!(row["token_hash"], report["results"][0]["token_hash"]);
        }
    }
    assert!(
        report["results"][0]["tokens_per_s"].is_null(),
        "a software GPU has no speed"
    );
    // The schema is strict: no key may be missing, and none may be unknown.
    report["more"] = value!(1);
    assert!(!validator.is_valid(&report));
    report.as_object_mut().unwrap().remove("more");
    report.as_object_mut().unwrap().remove("machine");
    assert!(!validator.is_valid(&report));
}

#[test]
fn reports_are_kept_shown_amended_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--skip-gate", "-o", "a.json", "--svg", "a.svg"];
    let ran = refrain_in(folder.path(), &words(&quick(&more)));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("NOT VALID as a speed"), "{}", ran.out);
    assert!(ran.out.contains("host path only"), "{}", ran.out);
    let picture = std::fs::read_to_string(folder.path().join("a.svg")).unwrap();
    assert!(picture.contains("</svg>"));
    let before = std::fs::read_to_string(folder.path().join("a.json")).unwrap();
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let table = run(&["bench", "show", "a.json", "--format", "md"]);
    assert_eq!(
        (table.code, table.out.lines().count()),
        (0, 8),
        "{}",
        table.err
    );
    assert_eq!(
        run(&["bench", "amend", "a.json", "--note", "was warm"]).code,
        0
    );
    let after = std::fs::read_to_string(folder.path().join("a.json")).unwrap();
    let body = before.split("\"amendments\"").next().unwrap();
    assert!(after.starts_with(body) && after.contains("was warm"));
    assert!(run(&["bench", "show", "a.json"]).out.contains("was warm"));
    let same = run(&["bench", "diff", "a.json", "a.json"]);
    assert!(same.out.starts_with("cause      nothing"), "{}", same.out);
    std::fs::write(
        folder.path().join("a.json"),
        after.replacen("eager", "lager", 1),
    )
    .unwrap();
    let edited = run(&["bench", "show", "a.json"]);
    assert_eq!(edited.code, 76, "{}", edited.err);
    assert_eq!(run(&["bench", "amend", "a.json", "--note", ""]).code, 2);
    std::fs::write(folder.path().join("b.json"), "{}").unwrap();
    assert_eq!(run(&["bench", "show", "b.json"]).code, 65);
    assert_eq!(run(&["bench", "show", "c.json"]).code, 66);
}

#[test]
fn an_arm_that_does_not_settle_ends_with_75_and_its_report() {
    let more = [
        "--window",
        "2",
        "--max-rows",
        "4",
        "--max-spread",
        "0",
        "--format",
        "json",
    ];
    let ran = refrain(&words(&quick(&more)));
    assert_eq!(ran.code, 75, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(kinds(&report).iter().all(|kind| *kind == "not_stationary"));
    assert!(report["series"][0]["settling"].as_array().unwrap().len() >= 2);
}

#[test]
fn a_doctored_report_is_judged_by_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let good = report();
    let eager = good["series"][0]["rows"][0]["route"].clone();
    let mut routes = good.clone();
    for row in routes["series"][2]["rows"].as_array_mut().unwrap() {
        row["route"] = eager.clone();
    }
    let mut tokens = good.clone();
    tokens["series"][3]["rows"][1]["token_hash"] = value!("00");
    let mut slower = good.clone();
    for row in slower["series"][1]["rows"].as_array_mut().unwrap() {
        row["host_us"] = value!(1e6);
    }
    let mut share = good.clone();
    share["settings"]["require_replay"] = value!(100.5);
    for (report, code, said) in [
        (&good, 0, ""),
        (&routes, 1, "every token was executed eagerly"),
        (&tokens, 80, "tokens 00"),
        (&slower, 1, "retained_slower"),
        (&share, 77, "RF049"),
    ] {
        let path = store(folder.path(), report);
        let ran = refrain(&["bench", "show", text(&path)]);
        assert_eq!(ran.code, code, "{said}: {}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
    }
}

#[test]
fn fresh_processes_are_rotated_and_their_rows_kept_apart() {
    let more = [
        "--skip-gate",
        "--fresh-process",
        "2",
        "--format",
        "json",
        "--arms",
        "eager,pm4",
    ];
    let report = json(&words(&quick(&more)));
    assert_eq!(report["settings"]["processes"], 2);
    let series = report["series"].as_array().unwrap();
    let cells = series
        .iter()
        .map(|row| (row["process"].as_u64(), row["arm"].as_u64()));
    let expected = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (Some(a), Some(b)));
    assert_eq!(cells.collect::<Vec<_>>(), expected);
    assert_eq!(
        report["results"][1]["process_us"].as_array().unwrap().len(),
        2
    );
    assert_eq!(kinds(&report), ["gate_skipped"]);
}

#[test]
fn what_cannot_run_is_refused_at_the_start() {
    let model = nano();
    let bench = |more: &[&str]| {
        let fixed = ["bench", text(&model), "--context", "64"];
        let all: Vec<&str> = fixed.iter().chain(more).copied().collect();
        refrain(&all)
    };
    for (more, code, said) in [
        (&["--contexts", "60", "-n", "8"][..], 77, "RF047"),
        (&["--arms", "pm4"], 2, "needs eager"),
        (&["--arms", "eager,eager"], 2, "twice"),
        (
            &["--arms", "eager,vulkan"],
            2,
            "known are eager, graph, aql, pm4, segments",
        ),
        (&["-n", "0"], 2, "0 is not in"),
        (
            &["--exec", "cpu", "--gpu-layers", "2", "--arms", "eager,pm4"],
            77,
            "RF028",
        ),
    ] {
        let ran = bench(more);
        assert_eq!(ran.code, code, "{more:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{more:?}: {}", ran.err);
        // Where only the arms were refused, the report says so.
        assert_eq!(ran.out.is_empty(), said != "RF028", "{more:?}: {}", ran.out);
    }
    assert_eq!(refrain(&["bench", "absent.gguf"]).code, 66);
    assert_eq!(refrain(&["bench"]).code, 2);
    let trace = refrain(&["trace", text(&model), "--context", "64", "--position", "64"]);
    assert!(
        trace.code == 77 && trace.err.contains("RF047"),
        "{}",
        trace.err
    );
    let card = refrain(&["trace", text(&model), "--device", "rocm:0"]);
    assert!(
        card.code == 2 && card.err.contains("strict mode"),
        "{}",
        card.err
    );
}

/// Spilled and resident plans as arms of one run: the same tokens, ratios against the first arm.
#[test]
fn several_plans_are_arms_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("nano.gguf");
    std::fs::copy(nano(), &model).unwrap();
    for (name, layers) in [("all", "all"), ("half", "2")] {
        let output = format!("{name}.plan");
        let args = [
            "plan",
            "nano.gguf",
            "-o",
            &output,
            "--context",
            "64",
            "--gpu-layers",
            layers,
        ];
        let ran = refrain_in(folder.path(), &args);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let args = [
        "bench",
        "all.plan",
        "half.plan",
        "--arms",
        "eager,pm4",
        "--contexts",
        "8,20",
    ];
    let more = ["-n", "5", "--rows", "2", "--skip-gate", "--format", "json"];
    let all: Vec<&str> = args.iter().chain(&more).copied().collect();
    let ran = refrain_in(folder.path(), &all);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(kinds(&report), ["gate_skipped"]);
    assert_eq!(report["plans"][1]["label"], "half");
    assert_eq!(report["plans"][1]["gpu_layers"], 2);
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 8);
    assert!(
        results.last().unwrap()["to_first"]["median"]
            .as_f64()
            .unwrap()
            > 0.0
    );
}

#[test]
fn a_trace_has_every_launch_with_its_bytes_and_every_wait_with_its_reason() {
    let model = nano();
    for transport in ["pm4", "aql"] {
        let trace = json(&[
            "trace",
            text(&model),
            "--context",
            "64",
            "--transport",
            transport,
        ]);
        let data = &trace["otherData"];
        assert_eq!(
            (&data["hazards"], &data["position"]),
            (&value!(0), &value!(8))
        );
        let events = trace["traceEvents"].as_array().unwrap();
        let spans = |process: u64, thread: Option<u64>| -> Vec<&Value> {
            let all = events
                .iter()
                .filter(|row| row["ph"] == "X" && row["pid"] == process);
            all.filter(|row| thread.is_none_or(|thread| row["tid"] == thread))
                .collect()
        };
        let launches = spans(3, None);
        assert_eq!(launches.len() as u64, data["launches"].as_u64().unwrap());
        for launch in launches {
            let footprint = &launch["args"]["footprint"];
            assert!(footprint["written_bytes"].as_u64().unwrap() > 0, "{launch}");
        }
        let waits = spans(2, Some(1));
        assert_eq!(waits.len() as u64, data["waits"].as_u64().unwrap());
        assert!(
            waits
                .iter()
                .all(|wait| wait["args"]["because"].as_str().unwrap().contains(" by "))
        );
        let packets = if transport == "pm4" {
            1
        } else {
            data["launches"].as_u64().unwrap()
        };
        assert_eq!(spans(2, Some(0)).len() as u64, packets);
        assert_eq!(spans(1, None).len(), 2, "one host span per arm");
    }
}

#[test]
fn a_run_over_buckets_switches_and_the_share_of_replays_is_required() {
    let model = nano();
    let fixed = [
        "run",
        text(&model),
        "--context",
        "64",
        "--prompt-ids",
        "1,2,3",
        "-n",
        "40",
    ];
    let run = |more: &[&str]| {
        let all: Vec<&str> = fixed.iter().chain(more).copied().collect();
        json(&all)
    };
    let whole = run(&["--format", "json"]);
    let buckets = run(&[
        "--format",
        "json",
        "--buckets",
        "8,24",
        "--require-replay",
        "100",
    ]);
    assert_eq!(whole["tokens"], buckets["tokens"]);
    assert_eq!(
        (&whole["bucket_switches"], &buckets["bucket_switches"]),
        (&value!(0), &value!(3))
    );
    assert_eq!(
        (&buckets["replayed_tokens"], &buckets["fallbacks"]),
        (&value!(42), &value!(0))
    );
    let eager: Vec<&str> = fixed
        .iter()
        .chain(&["--retain", "none", "--require-replay", "95"])
        .copied()
        .collect();
    let ran = refrain(&eager);
    assert!(ran.code == 77 && ran.err.contains("RF049"), "{}", ran.err);
    assert!(ran.err.contains("replayed 0 of 42 tokens"), "{}", ran.err);
}
