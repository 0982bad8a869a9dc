//! Real shapes, planned from their configurations alone: committed summaries, and bounds on launches,
//! waits and plan size.
//!
//! Summaries are renewed by `INSTA_UPDATE=always cargo test -p refrain-planner --test plans`.

use crate::schedules::longest_chain;
use refrain_planner::machine::Machine;
use refrain_planner::plan::{BufferKind, Invalidate, Plan, StepBody};
use refrain_planner::schedule::verify;
use refrain_planner::source::{ModelSource, OpenOptions, Recipe};
use refrain_planner::{CheckedPlan, CompileOptions, compile};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const MACHINES: [&str; 3] = ["gfx1100", "gfx1151", "gfx1201"];

/// Model, and the most launches of the layers and the head on each machine (embedding, sampling and
/// advance are apart) where there is a bound to hold: what hipfire launches for the same model.
const SHAPES: &[(&str, Option<[usize; 3]>)] = &[
    ("qwen3.5-2b", None),
    ("qwen3.5-9b", None),
    ("qwen3.5-27b", None),
    ("qwen3.6-35b-a3b", Some([603, 604, 693])),
    ("lfm2.5-350m", Some([161, 161, 161])),
];

/// Plans a configuration with Q8_0 matrices. No memory is refused: placement is not what this is about.
fn planned(model: &str, machine: &str) -> CheckedPlan {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/configs");
    let options = OpenOptions {
        recipe: Recipe::find("q8_0"),
        ..OpenOptions::default()
    };
    let source = ModelSource::open_with(root.join(model), options).unwrap();
    let mut machine = Machine::load(machine).unwrap();
    machine.vram_bytes = 1 << 40;
    compile(&source, &machine, &CompileOptions::default()).unwrap()
}

#[test]
fn real_shapes_stay_within_launches_and_bytes() {
    let mut text = String::new();
    for (model, most) in SHAPES {
        for (index, machine) in MACHINES.iter().enumerate() {
            let plan = planned(model, machine);
            let apart = ["embed", "argmax", "advance"];
            let counted = |name: &str| !apart.contains(&name);
            let launches = plan.steps.iter().filter(|step| counted(&step.name)).count();
            if let Some(most) = most {
                assert!(launches <= most[index], "{model} on {machine}: {launches}");
            }
            let bytes = plan.to_bytes().len();
            assert!(bytes < 1 << 20, "{model} on {machine}: {bytes}");
            assert_eq!(verify(&plan), Ok(()));
            let chain = longest_chain(&plan.steps);
            assert_eq!(plan.schedule.waits.len(), chain - 1, "{model} on {machine}");
            summarise(&mut text, model, &plan, launches);
        }
    }
    insta::assert_snapshot!(text);
}

fn summarise(out: &mut String, model: &str, plan: &Plan, launches: usize) {
    let invalidations = plan.schedule.waits.iter();
    let invalidations = invalidations.filter(|wait| wait.invalidate == Invalidate::Agent);
    writeln!(
        out,
        "{model}, q8_0, {}, context {}: {launches} launches and 3, {} waits ({} invalidate), {} edges",
        plan.machine.name,
        plan.options.context,
        plan.schedule.waits.len(),
        invalidations.count(),
        plan.schedule.edges.len(),
    )
    .unwrap();
    write!(out, "  bytes").unwrap();
    for (name, kind) in [
        ("weights", BufferKind::Weights),
        ("kv", BufferKind::Kv),
        ("state", BufferKind::State),
        ("scratch", BufferKind::Scratch),
    ] {
        let of_kind = plan.buffers.iter().filter(|buffer| buffer.kind == kind);
        let total: u64 = of_kind.clone().map(|buffer| buffer.bytes).sum();
        write!(out, " {name} {total} in {},", of_kind.count()).unwrap();
    }
    out.pop();
    out.push('\n');
    let mut alike: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut layers: BTreeMap<u32, String> = BTreeMap::new();
    let mut outside = String::new();
    for (id, step) in plan.steps.iter().enumerate() {
        let StepBody::Launch(launch) = &step.body else {
            panic!("a launch")
        };
        let waits = plan
            .schedule
            .waits
            .iter()
            .any(|wait| wait.before == id as u32);
        let text = step
            .layer
            .map_or(&mut outside, |layer| layers.entry(layer).or_default());
        let mark = if waits { " | " } else { " " };
        let symbol = &plan.kernels[launch.kernel as usize].symbol;
        write!(text, "{mark}{symbol}x{}", launch.grid[0]).unwrap();
    }
    for (layer, text) in layers {
        alike.entry(text).or_default().push(layer);
    }
    for (text, layers) in alike {
        writeln!(out, "  layers {}:{text}", ranges(&layers)).unwrap();
    }
    writeln!(out, "  others:{outside}\n").unwrap();
}

/// Ascending numbers as `0-2 4-6`.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u32]| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    runs.map(run).collect::<Vec<_>>().join(" ")
}
