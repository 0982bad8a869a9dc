//! Host path of one token: eager launches, a captured graph, AQL packets, one PM4 indirect buffer,
//! side by side. The device's execution is not timed: each arm counts only its launch calls, or its
//! signal store, packet stores and doorbell. On the software GPU that is the cost of driving the same
//! function tables that ROCm fills, and not the cost of a ROCm driver.
//!
//! Criterion measures each arm by itself; the table after it states medians of interleaved rows
//! beside the budgets: 5 µs + 10 ns per launch for PM4, 5 µs + 60 ns per launch for AQL.
#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a bench is a failed bench"
)]
#![allow(
    missing_docs,
    reason = "criterion's macro makes an undocumented function"
)]

use criterion::{Criterion, criterion_group, criterion_main};
use refrain_kernels::Target;
use refrain_planner::machine::Machine;
use refrain_planner::{CheckedPlan, CompileOptions, ModelSource, compile};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::arms::{ArmKind, ArmOptions, Arms};
use refrain_replay::{DeviceSpec, OpenedDevice, SoftOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MODELS: [&str; 3] = [
    "tests/models/nano-qwen3.bf16.gguf",
    "tests/models/nano-qwen3_5_moe.bf16.gguf",
    "golden/models/austen-qwen3-4m.q8_0.gguf",
];
const CONTEXT: u32 = 160;
const TOKENS: u32 = 32;
/// Interleaved rows behind the table.
const ROUNDS: usize = 12;

/// Most nanoseconds of a token's host path.
fn budget(kind: ArmKind, launches: usize) -> Option<f64> {
    let per_launch = match kind {
        ArmKind::Pm4 => 10.0,
        ArmKind::Aql => 60.0,
        ArmKind::Eager | ArmKind::Graph | ArmKind::Segments => return None,
    };
    Some(5000.0 + per_launch * launches as f64)
}

fn arms(model: &str, target: Target) -> Arms {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(model);
    let source = ModelSource::open(&path).unwrap();
    let options = CompileOptions {
        context: Some(CONTEXT),
        ..CompileOptions::default()
    };
    let machine = Machine::load(target.name()).unwrap();
    let plan: Arc<CheckedPlan> = Arc::new(compile(&source, &machine, &options).unwrap());
    let opened = OpenedDevice::open(DeviceSpec::Soft(target), SoftOptions::default()).unwrap();
    let kinds = [ArmKind::Eager, ArmKind::Graph, ArmKind::Aql, ArmKind::Pm4];
    let weights = FileSource::open(&path).unwrap();
    let options = ArmOptions::default();
    let made = Arms::new(opened, &plan, &weights, &EmbeddedObjects, &kinds, options);
    let mut arms = made.unwrap();
    let prompt: Vec<u32> = (0..32).map(|at| (at * 37 + 5) % 90).collect();
    arms.prefill(&prompt).unwrap();
    arms
}

fn median(mut values: Vec<u128>) -> f64 {
    values.sort_unstable();
    values[values.len() / 2] as f64
}

/// Medians of interleaved rows, in nanoseconds.
fn interleaved(arms: &mut Arms) -> Vec<(ArmKind, f64)> {
    let count = arms.arms().len();
    let mut host: Vec<Vec<u128>> = vec![Vec::new(); count];
    for round in 0..ROUNDS {
        for place in 0..count {
            let index = if round % 2 == 0 {
                place
            } else {
                count - 1 - place
            };
            let row = arms.row(index, TOKENS).unwrap();
            host[index].extend(row.host.iter().map(Duration::as_nanos));
        }
    }
    let kinds: Vec<ArmKind> = arms.arms().iter().map(|arm| arm.kind()).collect();
    kinds
        .into_iter()
        .zip(host.into_iter().map(median))
        .collect()
}

fn host_overhead(criterion: &mut Criterion) {
    let mut table = String::from(
        "\nmodel, arm, launches, host ns per token (median), budget, ns per launch, eager / arm\n",
    );
    for model in MODELS {
        let mut arms = arms(model, Target::Gfx1201);
        let stem = Path::new(model)
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let launches = arms.launches();
        let mut group = criterion.benchmark_group(format!("host path/{stem}"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(2));
        group.warm_up_time(Duration::from_millis(500));
        for index in 0..arms.arms().len() {
            let name = arms.arms()[index].kind().row().name;
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|tokens| {
                    let (mut left, mut sum) = (tokens, Duration::ZERO);
                    while left > 0 {
                        let now = left.min(u64::from(TOKENS)) as u32;
                        let row = arms.row(index, now).unwrap();
                        sum += row.host.iter().sum::<Duration>();
                        left -= u64::from(now);
                    }
                    sum
                });
            });
        }
        group.finish();
        let found = interleaved(&mut arms);
        let eager = found.iter().find(|row| row.0 == ArmKind::Eager).unwrap().1;
        for (kind, ns) in found {
            let budget = budget(kind, launches);
            let within = budget.map_or("-".to_owned(), |most| {
                format!("{most:.0} ({})", if ns <= most { "kept" } else { "BROKEN" })
            });
            table.push_str(&format!(
                "{stem}, {}, {launches}, {ns:.0}, {within}, {:.1}, {:.2}\n",
                kind.row().name,
                ns / launches as f64,
                eager / ns
            ));
        }
    }
    std::io::stdout().write_all(table.as_bytes()).unwrap();
}

criterion_group!(benches, host_overhead);
criterion_main!(benches);
