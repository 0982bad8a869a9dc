//! Time to compile a plan from a configuration alone: growth over 100 to 20,000 launches, and the
//! largest real shape in the repository.
#![allow(
    missing_docs,
    reason = "criterion's macros generate undocumented items"
)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use refrain_planner::machine::Machine;
use refrain_planner::source::{ModelSource, OpenOptions, Recipe};
use refrain_planner::{CompileOptions, compile};
use std::path::Path;

/// Layers of a small qwen3; each is 8 launches, and 5 are outside the layers.
const LAYERS: [u32; 4] = [12, 125, 1250, 2500];

fn small(layers: u32) -> String {
    format!(
        r#"{{"model_type": "qwen3", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": {layers}, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": 256,
        "tie_word_embeddings": true}}"#
    )
}

fn open(folder: &Path) -> Option<ModelSource> {
    let options = OpenOptions {
        recipe: Recipe::find("q8_0"),
        ..OpenOptions::default()
    };
    ModelSource::open_with(folder, options).ok()
}

fn growth(c: &mut Criterion) {
    let (Ok(machine), Ok(folder)) = (Machine::load("gfx1151"), tempfile::tempdir()) else {
        return;
    };
    let mut group = c.benchmark_group("compile by launches");
    group.sample_size(10);
    for layers in LAYERS {
        if std::fs::write(folder.path().join("config.json"), small(layers)).is_err() {
            return;
        }
        let options = CompileOptions::default();
        let Some(plan) = open(folder.path()).and_then(|s| compile(&s, &machine, &options).ok())
        else {
            return;
        };
        let launches = plan.steps.len();
        group.throughput(Throughput::Elements(launches as u64));
        group.bench_function(BenchmarkId::from_parameter(launches), |b| {
            b.iter(|| open(folder.path()).and_then(|s| compile(&s, &machine, &options).ok()));
        });
    }
    group.finish();
}

fn real(c: &mut Criterion) {
    let Ok(machine) = Machine::load("gfx1151") else {
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/configs/qwen3.6-35b-a3b");
    c.bench_function("compile Qwen3.6-35B-A3B from its configuration", |b| {
        b.iter(|| {
            open(&folder).and_then(|s| compile(&s, &machine, &CompileOptions::default()).ok())
        });
    });
}

criterion_group!(benches, growth, real);
criterion_main!(benches);
