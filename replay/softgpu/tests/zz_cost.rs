//! x
#![cfg(test)]
#[path = "packets/harness.rs"]
mod harness;
use harness::*;
use refrain_softgpu::isa::Target;
use refrain_softgpu::SoftConfig;
use std::time::Instant;
#[test]
fn cost() {
    for log in [false] {
    let rig = Rig::with(SoftConfig { threads: 1, keep_packet_log: log, ..SoftConfig::new(Target::Gfx1201) });
    let data = rig.memory("data", &[0; 32]);
    for i in 0..300 { rig.memory(&format!("b{i}"), &[0;4]); }
    let k = rig.memory("k", &[data as u32, (data>>32) as u32, 32, 0]);
    let s = rig.gpu.create_signal(1).unwrap();
    for (name, barrier) in [("barrier", true), ("none", false)] {
        let mut p = rig.dispatch("add_one", 1, k, 0);
        if !barrier { put(&mut p, 0, &DISPATCH.to_le_bytes()); }
        let n = 1000;
        let mut ps = vec![p; n];
        ps[n-1] = rig.dispatch("add_one", 1, k, s);
        let t = Instant::now();
        for _ in 0..100 { rig.gpu.store_signal(s, 1).unwrap(); rig.run(&ps, s); }
        println!("{name}: {:.3} us/packet", t.elapsed().as_secs_f64() * 1e6 / (100.0 * n as f64));
    }
    let mut ib = Ib::default();
    for _ in 0..100 { ib.state(&rig, "add_one", k).launch(1).flush().acquire(0x180); }
    let va = rig.memory("ib", &ib.0);
    let t = Instant::now();
    for _ in 0..1000 { rig.gpu.store_signal(s, 1).unwrap(); rig.run(&[Rig::vendor(va, ib.0.len(), s)], s); }
    println!("ib: {:.3} us/dispatch", t.elapsed().as_secs_f64() * 1e6 / 100_000.0);
    // round trip
    let t = Instant::now();
    for _ in 0..20000 { rig.gpu.store_signal(s, 1).unwrap(); rig.run(&[Rig::barrier(3, &[], s)], s); }
    println!("round trip: {:.3} us", t.elapsed().as_secs_f64() * 1e6 / 20_000.0);
    }
}
