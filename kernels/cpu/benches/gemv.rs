//! GB/s of weights for every format, on one and two threads, beside what plain reading of the same bytes
//! gives in the same run.
//!
//! First a table of pairs: reading and multiplying by turns, 4 MB at a time (REFRAIN_BENCH_PIECE_MB),
//! through a working set that no cache holds (REFRAIN_BENCH_MB, default 640), REFRAIN_BENCH_ROUNDS times
//! (default 3); then criterion's own measurements of the products. The memory of a shared machine changes
//! speed within a run, which only such a pair takes out: bounds are on the ratio.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and prints its figures"
)]

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput};
use refrain_cpu::int8::{Activation, Packed16, Write};
use refrain_cpu::{Bytes, Engine, Matrix};
use refrain_kernels::{Dtype, quantise};

const K: usize = 4096;

fn setting(name: &str, default: usize) -> usize {
    let value = std::env::var(name).ok().and_then(|text| text.parse().ok());
    value.unwrap_or(default)
}

/// Reads all bytes on the engine's threads.
fn read(engine: &Engine, bytes: &[u8], y: &mut [f32]) {
    let each = bytes.len() / y.len();
    let sum = |rows: Range<usize>, y: &mut [f32]| {
        let mut acc = [0u64; 32];
        let (words, _) = bytes[rows.start * each..rows.end * each].as_chunks::<256>();
        for words in words {
            let (words, _) = words.as_chunks::<8>();
            for (acc, word) in acc.iter_mut().zip(words) {
                *acc ^= u64::from_le_bytes(*word);
            }
        }
        y[0] = acc.iter().fold(0, |a, b| a ^ b) as f32;
        Ok(())
    };
    engine.pool().rows(0..y.len(), 256, y, sum).unwrap();
    black_box(y);
}

/// A weight of about the working set's size, packed or in device layout, and its activation.
struct Case {
    dtype: Dtype,
    rows: usize,
    bytes: Bytes,
    x: Vec<u8>,
    packed: bool,
}

impl Case {
    fn new(dtype: Dtype, packed: bool, working_set: usize) -> Self {
        let row = dtype.device_bytes(16, K as u64).unwrap() as usize / 16;
        let rows = (working_set / row / 16 * 16).max(16);
        let mut bytes = Bytes::zeroed(rows * row).unwrap();
        // Small scales; any codes. Speed does not depend on values.
        let mut state = 1u64;
        for word in bytes.as_chunks_mut::<8>().0 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            *word = (state >> 3 & 0x2f2f_2f2f_2f2f_2f2f).to_le_bytes();
        }
        let habit = dtype.format().habit.unwrap();
        let values: Vec<f32> = (0..K).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut x = vec![0; habit.bytes(K).unwrap()];
        quantise(habit, &values, &mut x).unwrap();
        Self {
            dtype,
            rows,
            bytes,
            x,
            packed,
        }
    }

    fn activation(&self) -> Activation<'_> {
        Activation::new(self.dtype.format().habit.unwrap(), &self.x, K).unwrap()
    }

    fn gemv(&self, engine: &Engine, x: &Activation<'_>, rows: Range<usize>, y: &mut [f32]) {
        if self.packed {
            let w = Packed16::new(self.dtype, &self.bytes, self.rows, K).unwrap();
            engine.gemv_packed(&w, x, rows, Write::Set, y).unwrap();
        } else {
            let w = Matrix::new(self.dtype, &self.bytes, self.rows as u64, K as u64).unwrap();
            engine.gemv_int8(&w, x, rows, Write::Set, y).unwrap();
        }
        black_box(y);
    }

    fn exact(&self, engine: &Engine, x: &[f32], y: &mut [f32]) {
        let w = Matrix::new(self.dtype, &self.bytes, self.rows as u64, K as u64).unwrap();
        engine.gemv_exact(&w, x, 0..self.rows, y).unwrap();
        black_box(y);
    }
}

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// The value below which a tenth (1 thread: half) of the times lie. On one thread a median is what an
/// undisturbed core does even where other processes take the core now and then; two threads are
/// disturbed more often.
fn typical(mut times: Vec<f64>, threads: usize) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / if threads == 1 { 2 } else { 10 }]
}

/// Reading and multiplying by turns, piece by piece through the working set; what is read is half the
/// set away from what is multiplied, so that neither finds the other's bytes in a cache.
fn pairs(formats: &[(Dtype, bool)], threads: &[usize]) {
    let working_set = setting("REFRAIN_BENCH_MB", 640) * 1_000_000;
    let piece = setting("REFRAIN_BENCH_PIECE_MB", 4) * 1_000_000;
    let rounds = setting("REFRAIN_BENCH_ROUNDS", 3);
    println!("| format | layout | threads | GB/s | read GB/s | ratio |\n|---|---|---|---|---|---|");
    for (dtype, packed) in formats {
        let case = Case::new(*dtype, *packed, working_set);
        let row = case.bytes.len() / case.rows;
        let rows = (piece / row / 16 * 16).clamp(16, case.rows);
        let gb = (rows * row) as f64 / 1e9;
        let mut y = vec![0.0; rows];
        let pieces = case.rows / rows;
        let x = case.activation();
        for threads in threads {
            let engine = Engine::new(*threads).unwrap();
            let (mut product, mut plain) = (Vec::new(), Vec::new());
            for index in 0..rounds * pieces {
                let first = index % pieces * rows;
                let away = (index + pieces / 2) % pieces * rows * row;
                let bytes = &case.bytes[away..][..rows * row];
                plain.push(seconds(|| read(&engine, bytes, &mut y)));
                product.push(seconds(|| {
                    case.gemv(&engine, &x, first..first + rows, &mut y)
                }));
            }
            let (product, plain) = (typical(product, *threads), typical(plain, *threads));
            println!(
                "| {dtype} | {} | {} | {:.1} | {:.1} | {:.2} |",
                if *packed { "packed" } else { "device" },
                engine.threads(),
                gb / product,
                gb / plain,
                plain / product
            );
        }
    }
}

/// Exact mode by the same measure; no bound is set for it.
fn exact_pairs(threads: &[usize]) {
    for dtype in [Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K] {
        let case = Case::new(dtype, false, 64_000_000);
        let x: Vec<f32> = (0..K).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut y = vec![0.0; case.rows];
        for threads in threads {
            let engine = Engine::new(*threads).unwrap();
            let times = (0..5).map(|_| seconds(|| case.exact(&engine, &x, &mut y)));
            let best = times.fold(f64::MAX, f64::min);
            let speed = case.bytes.len() as f64 / 1e9 / best;
            println!("| {dtype} | device, exact mode | {threads} | {speed:.1} | | |");
        }
    }
}

fn main() {
    let integer = |dtype: &Dtype| dtype.format().habit.is_some();
    let types: Vec<Dtype> = Dtype::ALL.into_iter().filter(integer).collect();
    let mut formats: Vec<(Dtype, bool)> = types.iter().map(|dtype| (*dtype, true)).collect();
    formats
        .extend([Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_K, Dtype::Q6_K].map(|dtype| (dtype, false)));
    if let Ok(only) = std::env::var("REFRAIN_BENCH_ONLY") {
        formats.retain(|(dtype, _)| only.split(',').any(|name| name == dtype.name()));
    }
    let threads = [1, 2];
    // `cargo test --benches` and `--list` run none of it.
    if !std::env::args().any(|arg| arg == "--test" || arg == "--list") {
        pairs(&formats, &threads);
        exact_pairs(&threads);
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let mut group = criterion.benchmark_group("gemv");
    for dtype in types {
        let case = Case::new(dtype, true, 64_000_000);
        group.throughput(Throughput::Bytes(case.bytes.len() as u64));
        let mut y = vec![0.0; case.rows];
        let x = case.activation();
        for threads in threads {
            let engine = Engine::new(threads).unwrap();
            let id = BenchmarkId::new(dtype.name(), threads);
            group.bench_function(id, |bencher| {
                bencher.iter(|| case.gemv(&engine, &x, 0..case.rows, &mut y))
            });
        }
    }
    group.finish();
    criterion.final_summary();
}
