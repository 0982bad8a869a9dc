//! What the kernels cost in wave-instructions and in load widths: ceilings, so that a compiler or a
//! source change that makes a kernel dearer is seen. Figures: docs/measurements/kernel-cost.md
//! (`cargo test -p refrain-softgpu --test kernels_cost -- --nocapture` prints them).

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and this one reports its figures"
)]

mod support;
#[path = "support/launch.rs"]
mod tools;

use refrain_kernels::Dtype;
use refrain_softgpu::isa::{Target, disassemble};
use support::{Gpu, Random};
use tools::{control, gemv_types, launch, nans, weight};

const TARGETS: [Target; 2] = [Target::Gfx1100, Target::Gfx1201];

/// Instructions of a launch over `units`, with a ceiling.
fn within(gpu: &Gpu, what: &str, instructions: u64, units: u64, ceiling: f64) {
    let each = instructions as f64 / units as f64;
    println!("{} {what}: {each:.4}", gpu.code.target);
    assert!(
        each <= ceiling,
        "{} {what}: {each} > {ceiling}",
        gpu.code.target
    );
}

#[test]
fn wave_instructions_per_weight() {
    let (rows, k) = (32usize, 4096usize);
    let mut random = Random(83);
    let values: Vec<Vec<f32>> = (0..rows).map(|_| random.floats(k)).collect();
    let x = random.floats(k);
    for target in TARGETS {
        let gpu = Gpu::shipped(target);
        let xv = gpu.f32s("x", &x);
        for (dtype, ceiling) in gemv_types().zip([0.11, 0.105, 0.125, 0.225]) {
            let w = gpu.buffer("w", &weight(dtype, &values).bytes);
            let mut imms = vec![("r0", 0), ("r1", rows as u32), ("k", k as u32)];
            if dtype == Dtype::Q8_0 {
                imms.push(("rows", rows as u32));
            }
            let y = nans(&gpu, "y", rows as u64 * 4);
            let name = format!("gemv_{}", dtype.name());
            let plain = launch(&gpu, &name, &[("w", w), ("x", xv), ("y", y)], &imms);
            within(&gpu, &name, plain.instructions, (rows * k) as u64, ceiling);
            let name = format!("gemv_silu_{}", dtype.name());
            let pointers = [("wg", w), ("wu", w), ("x", xv), ("y", y)];
            let pair = launch(&gpu, &name, &pointers, &imms);
            within(
                &gpu,
                &name,
                pair.instructions,
                2 * (rows * k) as u64,
                ceiling,
            );
        }
    }
}

#[test]
fn wave_instructions_of_a_delta_step() {
    let mut random = Random(89);
    for target in TARGETS {
        let gpu = Gpu::shipped(target);
        let (nk, nv, d) = (1usize, 2usize, 128usize);
        let mut floats = |name: &str, n: usize| gpu.f32s(name, &random.floats(n));
        let channels = (2 * nk + nv) * d;
        let pointers = [
            ("m", floats("m", channels)),
            ("z", floats("z", nv * d)),
            ("a", floats("a", nv)),
            ("b", floats("b", nv)),
            ("conv_w", floats("conv_w", 4 * channels)),
            ("a_log", floats("a_log", nv)),
            ("dt_bias", floats("dt_bias", nv)),
            ("norm_w", floats("norm_w", d)),
            ("conv_state", floats("conv_state", 4 * channels)),
            ("state", floats("state", nv * d * d)),
            ("control", control(&gpu, 9, 0)),
            ("y", nans(&gpu, "y", (nv * d) as u64 * 4)),
        ];
        let one = 1.0f32.to_bits();
        let imms = [
            ("nk", nk as u32),
            ("nv", nv as u32),
            ("tiled", 1),
            ("eps", one),
            ("scale", one),
            ("norm_eps", one),
        ];
        let net = launch(&gpu, "delta_net_d128", &pointers, &imms);
        within(
            &gpu,
            "delta_net_d128",
            net.instructions,
            (nv * d * d) as u64,
            0.5,
        );
    }
}

#[test]
fn wave_instructions_of_attention_and_router() {
    let mut random = Random(97);
    for target in TARGETS {
        let gpu = Gpu::shipped(target);
        let d = 128usize;
        let mut floats = |name: &str, n: usize| gpu.f32s(name, &random.floats(n));
        let (heads, kv_heads, len) = (2usize, 1usize, 512usize);
        let pointers = [
            ("q", floats("q", heads * d)),
            ("kcache", floats("k", len * kv_heads * d)),
            ("vcache", floats("v", len * kv_heads * d)),
            ("control", control(&gpu, len as u32 - 1, 0)),
            ("part", nans(&gpu, "part", (heads * 2 * d) as u64 * 4)),
            ("stats", nans(&gpu, "stats", heads as u64 * 16)),
        ];
        let imms = [
            ("heads", heads as u32),
            ("kv_heads", kv_heads as u32),
            ("splits", 2),
            ("scale", 0.1f32.to_bits()),
        ];
        let split = launch(&gpu, "attn_split_f32_d128", &pointers, &imms);
        within(
            &gpu,
            "attn_split_f32_d128 per head and position",
            split.instructions,
            (heads * len) as u64,
            36.0,
        );

        for (n, top_k, ceiling) in [(256u32, 8u32, 4_400.0), (512, 10, 5_800.0)] {
            let pointers = [
                ("logits", floats("logits", n as usize)),
                ("ids", nans(&gpu, "ids", 64)),
                ("weights", nans(&gpu, "weights", 64)),
            ];
            let imms = [("n", n), ("top_k", top_k), ("normalize", 1)];
            let route = launch(&gpu, "moe_route", &pointers, &imms);
            within(
                &gpu,
                &format!("moe_route of {n}"),
                route.instructions,
                1,
                ceiling,
            );
        }
    }
}

/// Every kernel that reads weights reads them 16 bytes at a time: no other vector load in it but the
/// halves of Q8_0 scales and single words (gates, biases, residuals, ids).
#[test]
fn weights_are_loaded_16_bytes_at_a_time() {
    for target in [Target::Gfx1100, Target::Gfx1151, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let lines = disassemble(target, gpu.code.text_va, &gpu.code.text).unwrap();
        let mut entries: Vec<u64> = gpu.code.kernels.values().map(|k| k.entry).collect();
        entries.push(gpu.code.text.len() as u64);
        entries.sort_unstable();
        let mut seen = 0;
        for (name, kernel) in &gpu.code.kernels {
            if !name.starts_with("gemv") && !name.starts_with("moe_g") && !name.starts_with("moe_d")
            {
                continue;
            }
            seen += 1;
            let end = entries.iter().find(|e| **e > kernel.entry).unwrap();
            let range = gpu.code.text_va + kernel.entry..gpu.code.text_va + end;
            let mut wide = 0;
            for line in lines.iter().filter(|l| range.contains(&l.address)) {
                let Ok(text) = &line.text else { continue };
                let Some(rest) = text.strip_prefix("global_load_") else {
                    continue;
                };
                let width = rest.split_whitespace().next().unwrap();
                match width {
                    "b128" => wide += 1,
                    "u16" | "d16_b16" if name.contains("q8_0") => {}
                    "b32" => {}
                    _ => panic!("{target} {name}: {text}"),
                }
            }
            assert!(wide >= 5, "{target} {name}: {wide} loads of 16 bytes");
        }
        assert_eq!(seen, 48, "{target}");
    }
}
