//! Instructions per second of the executor on one core, and on two, on shipped kernels. Criterion's
//! throughput column counts wave instructions.
#![allow(
    missing_docs,
    reason = "criterion_group! generates an undocumented item"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use refrain_softgpu::exec::Dispatch;
use refrain_softgpu::isa::Target;
use support::{Args, Gpu, Random};

/// Planar Q8_0 matrix times vector.
fn gemv_q8_0(gpu: &Gpu, rows: u32, k: u32) -> Dispatch {
    let mut random = Random(3);
    let weights: Vec<u8> = (0..rows * k).map(|_| random.next() as u8).collect();
    let scales = (0..rows * k / 32).flat_map(|_| 0x2000u16.to_le_bytes());
    let w = gpu.buffer(
        "w",
        &weights.iter().copied().chain(scales).collect::<Vec<_>>(),
    );
    let x = gpu.f32s("x", &random.floats(k as usize));
    let y = gpu.empty("y", u64::from(rows) * 4);
    let args = Args::default()
        .ptr(w)
        .ptr(x)
        .ptr(y)
        .u32(0)
        .u32(rows)
        .u32(k)
        .u32(rows);
    gpu.dispatch("gemv_q8_0", rows.div_ceil(16), 256, &args)
}

fn gemv_f32(gpu: &Gpu, rows: u32, k: u32) -> Dispatch {
    let mut random = Random(3);
    let w = gpu.f32s("w", &random.floats((rows * k) as usize));
    let x = gpu.f32s("x", &random.floats(k as usize));
    let y = gpu.empty("y", u64::from(rows) * 4);
    let args = Args::default().ptr(w).ptr(x).ptr(y).u32(0).u32(rows).u32(k);
    gpu.dispatch("gemv_f32", rows.div_ceil(16), 256, &args)
}

fn attention(gpu: &Gpu, position: u32) -> Dispatch {
    let (heads, kv_heads, dim) = (8u32, 4u32, 64u32);
    let mut random = Random(5);
    let q = gpu.f32s("q", &random.floats((heads * dim) as usize));
    let cache = random.floats(((position + 1) * kv_heads * dim) as usize);
    let (k, v) = (gpu.f32s("k cache", &cache), gpu.f32s("v cache", &cache));
    let control = gpu.u32s("control", &[0, position, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let out = gpu.empty("out", u64::from(heads * dim) * 4);
    let args = Args::default().ptr(q).ptr(k).ptr(v).ptr(control).ptr(out);
    let args = args.u32(heads).u32(kv_heads).f32(0.125);
    gpu.dispatch("attn_decode_f32_d64", heads, 256, &args)
}

/// A larger matrix on one thread and on two: how the executor scales.
fn threads(c: &mut Criterion) {
    let mut gpu = Gpu::shipped(Target::Gfx1201);
    let batch = [gemv_q8_0(&gpu, 4096, 256)];
    let stats = gpu.go(&batch).unwrap();
    let mut group = c.benchmark_group("threads");
    group.throughput(Throughput::Elements(stats.instructions));
    for threads in [1, 2] {
        gpu.config.threads = threads;
        group.bench_function(format!("gemv_q8_0/gfx1201/{threads}"), |b| {
            b.iter(|| gpu.go(&batch).unwrap());
        });
    }
    group.finish();
}

fn bench(c: &mut Criterion) {
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        for (name, dispatch) in [
            ("gemv_q8_0", gemv_q8_0(&gpu, 512, 256)),
            ("gemv_f32", gemv_f32(&gpu, 512, 256)),
            ("attn_decode", attention(&gpu, 200)),
        ] {
            let batch = [dispatch];
            let stats = gpu.go(&batch).unwrap();
            let mut group = c.benchmark_group("exec");
            group.throughput(Throughput::Elements(stats.instructions));
            group.bench_function(format!("{name}/{target}"), |b| {
                b.iter(|| gpu.go(&batch).unwrap());
            });
            group.finish();
        }
    }
}

/// The handlers of CPUs without AVX2 and FMA.
fn baseline(c: &mut Criterion) {
    let gpu = Gpu::with(support::shipped(Target::Gfx1100), true);
    let batch = [gemv_q8_0(&gpu, 512, 256)];
    let stats = gpu.go(&batch).unwrap();
    let mut group = c.benchmark_group("exec");
    group.throughput(Throughput::Elements(stats.instructions));
    group.bench_function("gemv_q8_0/gfx1100/baseline", |b| {
        b.iter(|| gpu.go(&batch).unwrap())
    });
    group.finish();
}

criterion_group!(benches, bench, threads, baseline);
criterion_main!(benches);
