//! Placement, comparison of plans, explanation and machine profiles on the command line.

use crate::support::{austen, json, refrain, refrain_in, repository, text};
use refrain::planner::machine::Machine;
use serde_json::Value;

fn plan(folder: &std::path::Path, name: &str, more: &[&str]) {
    let model = austen();
    let all = [&["plan", text(&model), "-o", name, "--context", "64"], more].concat();
    let ran = refrain_in(folder, &all);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[test]
fn a_run_with_spilled_layers_gives_the_same_text() {
    let model = austen();
    let run = |more: &[&str]| {
        let base = ["run", text(&model), "--prompt-ids", "5,6,7", "-n", "6"];
        let rest = ["--device", "soft:gfx1201", "--format", "json"];
        json(&[&base[..], &rest, more].concat())
    };
    let (resident, spilled) = (run(&[]), run(&["--gpu-layers", "2", "--verify"]));
    assert_eq!(resident["tokens"], spilled["tokens"]);
    assert_ne!(resident["sequence_hash"], spilled["sequence_hash"]);
}

#[test]
fn a_run_with_steps_of_the_host_gives_the_same_text_and_says_who_did_what() {
    let model = austen();
    let run = |more: &[&str]| {
        let base = ["run", text(&model), "--prompt-ids", "5,6,7", "-n", "6"];
        let rest = ["--device", "soft:gfx1201", "--format", "json"];
        json(&[&base[..], &rest, more].concat())
    };
    let resident = run(&[]);
    assert_eq!(resident["offload"], Value::Null);
    let rows: [(&[&str], u64, u64); 4] = [
        (&["--exec", "cpu", "--verify"], 8, 0),
        (&["--exec", "cpu", "--retain", "segments"], 8, 0),
        (&["--exec", "passback:0.5", "--transport", "aql"], 8, 1),
        (&["--exec", "passback:0.5", "--retain", "none"], 8, 1),
    ];
    for (args, barriers, splits) in rows {
        let found = run(&[args, &["--gpu-layers", "4"]].concat());
        assert_eq!(found["tokens"], resident["tokens"], "{args:?}");
        let offload = &found["offload"];
        assert_eq!(offload["barriers_per_token"], barriers, "{offload}");
        assert_eq!(offload["share_pinned"], true);
        let steps =
            offload["cpu_steps"].as_u64().unwrap() + offload["split_steps"].as_u64().unwrap();
        assert_eq!(steps, barriers * 8, "{offload}");
        assert_eq!(u64::from(offload["split_steps"].as_u64() > Some(0)), splits);
        assert!(offload["host"]["rows"].as_u64() > Some(0), "{offload}");
        let replayed = found["replayed_launches"].as_u64().unwrap();
        let eager = args.contains(&"none");
        assert_eq!(
            replayed == found["all_launches"].as_u64().unwrap(),
            !eager,
            "{found}"
        );
        assert_eq!(replayed == 0, eager);
    }
}

#[test]
fn tapes_comparisons_and_packets_of_plans_with_steps_of_the_host() {
    let model = austen();
    let base = [
        "run",
        text(&model),
        "--prompt-ids",
        "5,6,7",
        "-n",
        "2",
        "--gpu-layers",
        "4",
    ];
    let soft = ["--device", "soft:gfx1201"];
    let rows: [(&[&str], &str); 3] = [
        (&["--exec", "cpu", "--retain", "whole"], "RF028"),
        (&["--exec", "passback", "--verify"], "RF030"),
        (&["--exec", "passback:0.0001"], "RF032"),
    ];
    for (args, code) in rows {
        let ran = refrain(&[&base[..], &soft, args].concat());
        assert!(
            ran.code == 77 && ran.err.contains(code),
            "{args:?}: {}",
            ran.err
        );
    }
    let folder = tempfile::tempdir().unwrap();
    plan(
        folder.path(),
        "a.plan",
        &["--gpu-layers", "4", "--exec", "passback:0.5"],
    );
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    for command in ["lint", "dump"] {
        let all = run(&[command, "--plan", "a.plan"]);
        assert!(
            all.code == 2 && all.err.contains("--segment 0 to"),
            "{}",
            all.err
        );
        for transport in ["aql", "pm4"] {
            for segment in ["0", "1", "2"] {
                let args = [command, "--plan", "a.plan", "--segment", segment];
                let ran = run(&[&args[..], &["--transport", transport]].concat());
                assert_eq!(ran.code, 0, "{command} {segment} {transport}: {}", ran.err);
            }
        }
    }
}

#[test]
fn what_cannot_be_placed_is_refused_with_its_code() {
    let (model, moe) = (
        austen(),
        repository("tests/models/nano-qwen3_5_moe.bf16.gguf"),
    );
    let folder = tempfile::tempdir().unwrap();
    let small = Machine::load("gfx1201").unwrap();
    let mut small = small.to_toml();
    small = small.replace("pinned_bytes = 17179869184", "pinned_bytes = 4096");
    std::fs::write(folder.path().join("small.toml"), small).unwrap();
    let rows: [(&[&str], i32, &str); 9] = [
        (&["--machine", "gfx1151", "--gpu-layers", "1"], 77, "RF024"),
        (&["--exec", "cpu"], 77, "RF031"),
        (
            &["--gpu-layers", "1", "--exec", "cpu", "--activations", "int8"],
            77,
            "RF034",
        ),
        (
            &["--gpu-layers", "all", "--exec", "passback:0.5"],
            77,
            "RF031",
        ),
        (
            &["--gpu-layers", "1", "--machine", "small.toml"],
            77,
            "RF027",
        ),
        (&["--gpu-layers", "99"], 2, "the model has 6"),
        (&["--exec", "passback:1.5"], 2, "0 to 1"),
        (&["--exec", "magic"], 2, "passback"),
        (&["--gpu-layers", "many"], 2, "auto"),
    ];
    for (args, code, said) in rows {
        let base = ["plan", text(&model), "-o", "x.plan"];
        let ran = refrain_in(folder.path(), &[&base[..], args].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
        assert!(!folder.path().join("x.plan").exists(), "{args:?}");
    }
    let ran = refrain(&["plan", text(&moe), "-o", "x.plan", "--gpu-layers", "0"]);
    assert!(ran.code == 77 && ran.err.contains("RF025"), "{}", ran.err);
}

#[test]
fn plans_are_compared_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), "a.plan", &[]);
    plan(folder.path(), "b.plan", &[]);
    plan(folder.path(), "c.plan", &["--gpu-layers", "4"]);
    let run = |args: &[&str]| refrain_in(folder.path(), args);
    let same = run(&["diff", "a.plan", "b.plan"]);
    assert_eq!(same.code, 0, "{}", same.err);
    assert_eq!(same.out.matches(" same\n").count(), 4, "{}", same.out);
    let other = run(&["diff", "a.plan", "c.plan"]);
    assert_eq!(other.code, 76, "{}", other.err);
    let expected = "structure  differs at options: gpu_layers is 6 and 4\n";
    assert!(other.out.contains(expected), "{}", other.out);
    assert!(other.out.contains("first step: step "), "{}", other.out);
    let report = run(&["diff", "a.plan", "c.plan", "--format", "json"]);
    assert_eq!(report.code, 76);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    assert_eq!(report["layers"][0]["layer"], "structure");
    assert_eq!(report["layers"][0]["difference"]["field"], "gpu_layers");

    let costs = run(&["explain", "c.plan"]);
    assert_eq!(costs.code, 0, "{}", costs.err);
    for said in [
        "4 of 6 on the GPU",
        "tokens/s",
        "owners",
        "nothing was measured",
    ] {
        assert!(costs.out.contains(said), "{said}: {}", costs.out);
    }
    assert_eq!(run(&["explain", "RF026"]).code, 0);
    assert_eq!(run(&["explain", "nothing"]).code, 2);
    assert_eq!(run(&["explain", "a.plan.absent"]).code, 2);
}

#[test]
fn machines_are_listed_shown_and_probed() {
    let listed = refrain(&["machine", "list"]);
    assert_eq!(listed.out.lines().count(), 3, "{}", listed.out);
    let shown = refrain(&["machine", "show", "gfx1100"]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let built_in = Machine::load("gfx1100").unwrap();
    assert_eq!(Machine::parse("shown", &shown.out).unwrap(), built_in);
    assert_eq!(refrain(&["machine", "show", "gfx9999"]).code, 2);
    let folder = tempfile::tempdir().unwrap();
    let probe = [
        "machine",
        "probe",
        "--device",
        "soft:gfx1201",
        "-o",
        "here.toml",
    ];
    let ran = refrain_in(folder.path(), &probe);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let here = Machine::open(&folder.path().join("here.toml")).unwrap();
    assert!(here.provenance["host"].starts_with("probed"), "{here:?}");
    assert!(
        here.provenance["vram_bytes"].starts_with("no card here"),
        "{here:?}"
    );
    plan(folder.path(), "here.plan", &["--machine", "here.toml"]);
    let bad = [
        "machine",
        "probe",
        "--device",
        "soft:gfx1201",
        "--name",
        "a b",
    ];
    assert_eq!(refrain(&bad).code, 65);
}
