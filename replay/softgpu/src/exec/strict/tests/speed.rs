//! Strict against fast on the Q8_0 GEMV, on one core. Only with `REFRAIN_LONG=1`, and meaningful
//! only in a release build on a quiet machine.

use super::keeper::Keeper;
use super::support::{Args, Gpu, Random};
use crate::exec::Dispatch;
use crate::exec::strict::run_strict;
use crate::isa::Target;
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

fn best(mut run: impl FnMut() -> u64) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..15 {
        let start = Instant::now();
        let mut done = 0;
        for _ in 0..100 {
            done += run();
        }
        best = best.max(done as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    best
}

#[test]
fn strict_is_at_most_five_times_slower() {
    if std::env::var_os("REFRAIN_LONG").is_none() {
        return;
    }
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let batch = [gemv_q8_0(&gpu, 512, 256)];
        let fast = best(|| gpu.go(&batch).unwrap().instructions);
        let mut keeper = Keeper::default();
        let strict = best(|| {
            run_strict(&gpu.memory, &batch, &gpu.config, &mut keeper)
                .unwrap()
                .instructions
        });
        assert!(keeper.found.is_empty(), "{:?}", keeper.found[0]);
        let ratio = fast / strict;
        eprintln!("{target}: fast {fast:.1} M/s, strict {strict:.1} M/s, ratio {ratio:.2}");
        if !cfg!(debug_assertions) {
            assert!(ratio <= 5.0, "{target}: {ratio:.2}");
        }
    }
}
