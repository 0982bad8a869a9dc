//! Strict against fast on the Q8_0 GEMV, on one core. Only with `REFRAIN_LONG=1`, and meaningful
//! only in a release build on a quiet machine.

use super::keeper::Keeper;
use super::support::{Args, Gpu, Random};
use crate::exec::Dispatch;
use crate::exec::strict::run_strict;
use crate::isa::Target;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn gemv_q8_0(gpu: &Gpu, rows: u32, k: u32) -> Dispatch {
    let mut random = Random(3);
    let weights: Vec<u8> = (0..rows * k).map(|_| random.next() as u8).collect();
    let scales = (0..rows * k / 32).flat_map(|_| 0x2000u16.to_le_bytes());
    let all: Vec<u8> = weights.into_iter().chain(scales).collect();
    let w = gpu.buffer("w", &all);
    let x = gpu.f32s("x", &random.floats(k as usize));
    let y = gpu.empty("y", u64::from(rows) * 4);
    let args = Args::default().ptr(w).ptr(x).ptr(y);
    let args = args.u32(0).u32(rows).u32(k).u32(rows);
    gpu.dispatch("gemv_q8_0", rows.div_ceil(16), 256, &args)
}

fn gemv_f32(gpu: &Gpu, rows: u32, k: u32) -> Dispatch {
    let mut random = Random(3);
    let w = gpu.f32s("w", &random.floats((rows * k) as usize));
    let x = gpu.f32s("x", &random.floats(k as usize));
    let y = gpu.empty("y", u64::from(rows) * 4);
    let args = Args::default().ptr(w).ptr(x).ptr(y);
    let args = args.u32(0).u32(rows).u32(k);
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

/// Processor time of this thread in seconds where the system tells it (proc(5), schedstat), wall
/// time elsewhere: on a busy machine wall time says little.
fn seconds(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let busy = stat.and_then(|s| s.split(' ').next()?.parse::<u64>().ok());
    busy.map_or(start.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

/// Mean rate of each, in M wave-instructions per second. They take turns, so that other work on the
/// machine slows both.
fn rates(mut fast: impl FnMut() -> u64, mut strict: impl FnMut() -> u64) -> (f64, f64) {
    let start = Instant::now();
    let mut sums = [(0, 0.0); 2];
    for _ in 0..20 {
        let runs: [&mut dyn FnMut() -> u64; 2] = [&mut fast, &mut strict];
        for (run, (done, busy)) in runs.into_iter().zip(&mut sums) {
            let from = seconds(start);
            for _ in 0..50 {
                *done += run();
            }
            *busy += seconds(start) - from;
        }
    }
    let [fast, strict] = sums.map(|(done, busy)| done as f64 / busy / 1e6);
    (fast, strict)
}

#[test]
fn strict_is_at_most_five_times_slower() {
    if std::env::var_os("REFRAIN_LONG").is_none() {
        return;
    }
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        for (name, dispatch) in [
            ("gemv_q8_0", gemv_q8_0(&gpu, 512, 256)),
            ("gemv_f32", gemv_f32(&gpu, 512, 256)),
            ("attn_decode", attention(&gpu, 200)),
        ] {
            let batch = [dispatch];
            let mut keeper = Keeper::default();
            let (fast, strict) = rates(
                || gpu.go(&batch).unwrap().instructions,
                || {
                    run_strict(
                        &gpu.memory,
                        &batch,
                        &gpu.config,
                        &AtomicBool::new(false),
                        &mut keeper,
                    )
                    .unwrap()
                    .instructions
                },
            );
            assert!(keeper.found.is_empty(), "{:?}", keeper.found[0]);
            let ratio = fast / strict;
            eprintln!("| {name} | {target} | {fast:.1} | {strict:.1} | {ratio:.2} |");
            if !cfg!(debug_assertions) {
                assert!(ratio <= 5.0, "{name} {target}: {ratio:.2}");
            }
        }
    }
}
