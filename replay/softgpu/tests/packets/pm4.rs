//! Indirect buffers that run: the same results as AQL, overlap and waits, state across buffers, and
//! memory that stays flat over replays.

use crate::harness::{Ib, Packet, Rig};
use refrain_softgpu::SoftConfig;
use refrain_softgpu::isa::Target;

fn pointer(va: u64) -> [u32; 2] {
    [va as u32, (va >> 32) as u32]
}

/// acquire, add_one, wait, acquire, lds_reverse, wait
fn two_kernels(rig: &Rig, data: u64) -> Ib {
    let [lo, hi] = pointer(data);
    let bounded = rig.memory("kernargs", &[lo, hi, 100, 0]);
    let plain = rig.memory("kernargs", &[lo, hi]);
    let (head, edge) = if rig.gpu.target() == Target::Gfx1201 {
        (0x1_C1C1, 0x180)
    } else {
        (0x1_C3F1, 0x380)
    };
    let mut ib = Ib::default();
    ib.acquire(head)
        .state(rig, "add_one", bounded)
        .launch(4)
        .flush()
        .acquire(edge);
    ib.state(rig, "lds_reverse", plain).launch(2).flush();
    ib
}

#[test]
fn a_buffer_computes_what_aql_computes() {
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let rig = Rig::new(target);
        let data = rig.memory("data", &(0..128).collect::<Vec<_>>());
        let ib = two_kernels(&rig, data);
        let va = rig.memory("ib", &ib.0);
        let signal = rig.gpu.create_signal(1).unwrap();
        rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
        let added: Vec<u32> = (0..128).map(|i| if i < 100 { i + 1 } else { i }).collect();
        let expected: Vec<u32> = added[..64]
            .iter()
            .rev()
            .chain(added[64..].iter().rev())
            .copied()
            .collect();
        assert_eq!(rig.read(data, 128), expected, "{target}");
        let counters = rig.gpu.counters();
        assert_eq!(
            (
                counters.indirect_buffers,
                counters.launches,
                counters.acquires
            ),
            (1, 2, 2),
            "{target}"
        );
    }
}

#[test]
fn the_flush_orders_and_its_absence_overlaps() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[1; 32]);
    let [lo, hi] = pointer(data);
    let one = rig.memory("kernargs", &[lo, hi, 32, 1]);
    let two = rig.memory("kernargs", &[lo, hi, 32, 5]);
    let mut ib = Ib::default();
    ib.state(&rig, "double_add", one)
        .launch(1)
        .flush()
        .state(&rig, "double_add", two)
        .launch(1)
        .flush();
    let va = rig.memory("ib", &ib.0);
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
    assert_eq!(rig.read(data, 32), [11; 32]);
    assert_eq!(rig.gpu.counters().batches, 2);
    // Without the wait in the middle both launches run together.
    let mut ib = Ib::default();
    ib.state(&rig, "double_add", one)
        .launch(1)
        .launch(1)
        .launch(1)
        .flush();
    let va = rig.memory("ib", &ib.0);
    rig.gpu.store_signal(signal, 1).unwrap();
    rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
    assert_eq!(
        (rig.gpu.counters().batches, rig.gpu.counters().launches),
        (3, 5)
    );
}

#[test]
fn foreign_styles_run() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[1; 96]);
    let [lo, hi] = pointer(data);
    let kernarg = rig.memory("kernargs", &[lo, hi, 96, 0]);
    let mut ib = Ib::default();
    ib.state(&rig, "add_one", kernarg);
    // Shader-type bit, work-item dimensions with ORDER_MODE, an offloaded flush, both kinds of
    // filler.
    ib.0[0] |= 2;
    ib.packet(0x15, &[96, 1, 1, 0x8065])
        .packet(0x10, &[1, 2, 3]);
    ib.0.extend([0x8000_0000, 0xFFFF_1000]);
    ib.packet(0x46, &[0x8000_0407]);
    let va = rig.memory("ib", &ib.0);
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
    assert_eq!(rig.read(data, 96), [2; 96]);
}

#[test]
fn state_of_an_earlier_buffer_is_stale() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[1; 32]);
    let [lo, hi] = pointer(data);
    let kernarg = rig.memory("kernargs", &[lo, hi, 32, 0]);
    let mut first = Ib::default();
    first.state(&rig, "add_one", kernarg).launch(1).flush();
    let mut second = Ib::default();
    second.launch(1).flush();
    let (a, b) = (
        rig.memory("first ib", &first.0),
        rig.memory("second ib", &second.0),
    );
    rig.submit(&[
        Rig::vendor(a, first.0.len(), 0),
        Rig::vendor(b, second.0.len(), 0),
    ]);
    let words = rig.fault().to_string();
    assert!(words.contains("packet 1 (VENDOR_SPECIFIC): IB dword 0 (DISPATCH_DIRECT): register PGM_LO is read before"), "{words}");
    assert!(words.contains("an earlier IB left"), "{words}");
}

#[test]
fn buffers_and_dispatches_share_a_ring() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[1; 32]);
    let [lo, hi] = pointer(data);
    let kernarg = rig.memory("kernargs", &[lo, hi, 32, 1]);
    let mut ib = Ib::default();
    ib.state(&rig, "double_add", kernarg).launch(1).flush();
    let va = rig.memory("ib", &ib.0);
    let signal = rig.gpu.create_signal(40).unwrap();
    let packets: Vec<Packet> = (0..20)
        .flat_map(|_| {
            [
                Rig::vendor(va, ib.0.len(), signal),
                rig.dispatch("double_add", 1, kernarg, signal),
            ]
        })
        .collect();
    rig.run(&packets, signal);
    let expected = (0..40).fold(1_u32, |value, _| value.wrapping_mul(2).wrapping_add(1));
    assert_eq!(rig.read(data, 32), [expected; 32]);
}

#[test]
fn the_log_shows_the_launches_of_a_buffer() {
    let rig = Rig::with(SoftConfig {
        keep_packet_log: true,
        threads: 1,
        ..SoftConfig::new(Target::Gfx1201)
    });
    let data = rig.memory("data", &[0; 128]);
    let ib = two_kernels(&rig, data);
    let va = rig.memory("ib", &ib.0);
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
    let log = rig.gpu.packet_log();
    let names: Vec<&str> = log[0]
        .dispatches
        .iter()
        .map(|dispatch| &*dispatch.symbol)
        .collect();
    assert_eq!((log.len(), names), (1, vec!["add_one", "lds_reverse"]));
    assert_eq!(log[0].dispatches[0].kernarg.len(), 12);
    assert_eq!(log[0].dispatches[1].groups, [2, 1, 1]);
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * statm
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
}

#[test]
fn a_thousand_replays_leave_memory_flat() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[0; 128]);
    let ib = two_kernels(&rig, data);
    let va = rig.memory("ib", &ib.0);
    let signal = rig.gpu.create_signal(1).unwrap();
    let replay = || {
        rig.gpu.store_signal(signal, 1).unwrap();
        rig.run(&[Rig::vendor(va, ib.0.len(), signal)], signal);
    };
    (0..50).for_each(|_| replay());
    let (guest, host) = (rig.gpu.memory().total_bytes(), resident_bytes());
    (0..1_000).for_each(|_| replay());
    assert_eq!(rig.gpu.memory().total_bytes(), guest);
    // Other tests of this process run at the same time; a leak of 4 KiB per replay would be 4 MB.
    let grown = resident_bytes().saturating_sub(host);
    assert!(grown < 64 << 20, "{grown} bytes more after 1000 replays");
    assert_eq!(rig.gpu.counters().indirect_buffers, 1_050);
}
