//! Decode speed of a model on the CPU: tokens per second, weight bytes per second, and what the memory
//! gives to a plain read in the same process.
//!
//! ```text
//! cargo run --release -p refrain-recorder --example cpu_decode -- MODEL exact|int8 THREADS TOKENS ROUNDS
//! ```
//!
//! One round is a read sample, then TOKENS steps from position 0.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measuring program prints and may panic"
)]

use refrain_cpu::Bytes;
use refrain_planner::machine::Machine;
use refrain_planner::plan::Activations;
use refrain_planner::{CompileOptions, ModelSource, compile};
use refrain_recorder::{CpuInstance, FileSource};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// GB/s of one thread that reads 512 MiB, best of three.
fn read_bandwidth(bytes: &Bytes) -> f64 {
    let pass = || {
        let start = Instant::now();
        let mut sums = [0u64; 32];
        for words in bytes.as_chunks::<256>().0 {
            for (sum, word) in sums.iter_mut().zip(words.as_chunks::<8>().0) {
                *sum ^= u64::from_le_bytes(*word);
            }
        }
        std::hint::black_box(sums);
        bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..3).map(|_| pass()).fold(0.0, f64::max)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| -> u32 { args[at].parse().unwrap() };
    let (model, threads, tokens, rounds) = (Path::new(&args[1]), number(3), number(4), number(5));
    let source = ModelSource::open(model).unwrap();
    let activations = match args[2].as_str() {
        "int8" => Activations::Int8,
        _ => Activations::Exact,
    };
    let options = CompileOptions {
        activations,
        ..CompileOptions::default()
    };
    let plan = compile(&source, &Machine::load("gfx1201").unwrap(), &options).unwrap();
    let plan = Arc::new(plan);
    let file = FileSource::open(model).unwrap();
    let mut cpu = CpuInstance::new(&plan, &file, threads as usize).unwrap();
    // A table is read one row a token, unless it is the head as well.
    let embedding = |name: &str| name.starts_with("token_embd");
    let head = plan
        .model
        .tensors
        .iter()
        .any(|t| t.name.starts_with("output.w"));
    let read = plan.model.tensors.iter();
    let read = read.filter(|tensor| !(head && embedding(&tensor.name)));
    let bytes: u64 = read.map(|tensor| tensor.bytes).sum();
    println!(
        "{}, {} activations, {} threads, {}, {} launches, {:.1} MB of weights a token",
        model.display(),
        activations.name(),
        cpu.threads(),
        cpu.isa().name(),
        cpu.launches(),
        bytes as f64 / 1e6
    );
    let sample = {
        let mut sample = Bytes::zeroed(512 << 20).unwrap();
        sample.fill(1);
        sample
    };
    for round in 0..rounds {
        let bandwidth = read_bandwidth(&sample);
        cpu.reset(&[1], u32::MAX).unwrap();
        let mut times = Vec::new();
        for _ in 0..tokens {
            let start = Instant::now();
            cpu.step().unwrap();
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[times.len() / 2]);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        println!(
            "round {round}: {:.2} tok/s mean, {:.2} median, {:.2} best token; {:.1} GB/s of weights (median), plain read {bandwidth:.1}",
            1.0 / mean,
            1.0 / median,
            1.0 / best,
            bytes as f64 / median / 1e9
        );
    }
}
