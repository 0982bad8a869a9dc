//! temporary
mod support;
use refrain_softgpu::isa::Target;
use support::{Args, Gpu, Random};
fn cpu() -> u64 { std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse().unwrap() }
#[test]
#[ignore]
fn speed() {
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let gpu = Gpu::shipped(target);
        let mut random = Random(3);
        let (rows, k) = (512u32, 256u32);
        let weights: Vec<u8> = (0..rows * k).map(|_| random.next() as u8).collect();
        let scales = (0..rows * k / 32).flat_map(|_| 0x2000u16.to_le_bytes());
        let w = gpu.buffer("w", &weights.iter().copied().chain(scales).collect::<Vec<_>>());
        let wf = gpu.f32s("w", &random.floats((rows * k) as usize));
        let x = gpu.f32s("x", &random.floats(k as usize));
        let y = gpu.empty("y", u64::from(rows) * 4);
        let a = Args::default().ptr(w).ptr(x).ptr(y).u32(0).u32(rows).u32(k).u32(rows);
        let d1 = gpu.dispatch("gemv_q8_0", rows.div_ceil(16), 256, &a);
        let a = Args::default().ptr(wf).ptr(x).ptr(y).u32(0).u32(rows).u32(k);
        let d2 = gpu.dispatch("gemv_f32", rows.div_ceil(16), 256, &a);
        let (heads, kv_heads, dim, position) = (8u32, 4u32, 64u32, 200u32);
        let q = gpu.f32s("q", &random.floats((heads * dim) as usize));
        let cache = random.floats(((position + 1) * kv_heads * dim) as usize);
        let (kc, vc) = (gpu.f32s("k cache", &cache), gpu.f32s("v cache", &cache));
        let control = gpu.u32s("control", &[0, position, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let out = gpu.empty("out", u64::from(heads * dim) * 4);
        let a = Args::default().ptr(q).ptr(kc).ptr(vc).ptr(control).ptr(out).u32(heads).u32(kv_heads).f32(0.125);
        let d3 = gpu.dispatch("attn_decode_f32_d64", heads, 256, &a);
        for (n, d) in [("q8", d1), ("f32", d2), ("attn", d3)] {
            let b = [d];
            gpu.go(&b).unwrap();
            let mut best = f64::MAX; let mut ins = 0;
            for _ in 0..20 {
                let t = cpu(); ins = 0;
                for _ in 0..20 { ins += gpu.go(&b).unwrap().instructions; }
                best = best.min((cpu() - t) as f64);
            }
            println!("{target} {n}: {:.1} M/s ({} instr)", ins as f64 / best * 1e3, ins / 20);
        }
    }
}
