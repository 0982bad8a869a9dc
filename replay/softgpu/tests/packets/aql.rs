//! AQL packets that run: results, order, overlap, barriers, signals, the log and the ring.

use crate::harness::{BARRIER_AND, BARRIER_BIT, BARRIER_OR, DEADLINE, DISPATCH, Packet, Rig, put};
use refrain_softgpu::isa::Target;
use refrain_softgpu::{Condition, SoftConfig};
use std::time::Duration;

const TARGETS: [Target; 2] = [Target::Gfx1100, Target::Gfx1201];

fn without_barrier(mut packet: Packet) -> Packet {
    put(&mut packet, 0, &DISPATCH.to_le_bytes());
    packet
}

fn args(rig: &Rig, words: &[u32]) -> u64 {
    rig.memory("kernargs", words)
}

fn pointer(va: u64) -> [u32; 2] {
    [va as u32, (va >> 32) as u32]
}

#[test]
fn kernels_compute_what_their_source_says() {
    for target in TARGETS {
        let rig = Rig::new(target);
        let data = rig.memory("data", &(0..128).collect::<Vec<_>>());
        let [lo, hi] = pointer(data);
        let signal = rig.gpu.create_signal(3).unwrap();
        let bounded = args(&rig, &[lo, hi, 100, 0]);
        let plain = args(&rig, &[lo, hi]);
        rig.run(
            &[
                rig.dispatch("add_one", 4, bounded, signal),
                rig.dispatch("lds_reverse", 2, plain, signal),
                rig.dispatch("via_pointer", 1, plain, signal),
            ],
            signal,
        );
        let added: Vec<u32> = (0..128).map(|i| if i < 100 { i + 1 } else { i }).collect();
        let mut expected: Vec<u32> = added[..64]
            .iter()
            .rev()
            .chain(added[64..].iter().rev())
            .copied()
            .collect();
        expected[..32].fill(33);
        assert_eq!(rig.read(data, 128), expected, "{target}");
        let counters = rig.gpu.counters();
        assert_eq!(
            (
                counters.packets,
                counters.launches,
                counters.groups,
                counters.waves
            ),
            (3, 3, 7, 9),
            "{target}"
        );
    }
}

#[test]
fn three_dimensions() {
    for target in TARGETS {
        let rig = Rig::new(target);
        let groups = [2_u32, 3, 2];
        let count = (groups.iter().product::<u32>() * 64) as usize;
        let data = rig.memory("data", &vec![0; count]);
        let [lo, hi] = pointer(data);
        let signal = rig.gpu.create_signal(1).unwrap();
        let mut packet = rig.dispatch(
            "where",
            1,
            args(&rig, &[lo, hi, groups[0], groups[1]]),
            signal,
        );
        put(&mut packet, 2, &3_u16.to_le_bytes());
        for (index, groups) in groups.into_iter().enumerate() {
            put(&mut packet, 4 + 2 * index, &4_u16.to_le_bytes());
            put(&mut packet, 12 + 4 * index, &(4 * groups).to_le_bytes());
        }
        rig.run(&[packet], signal);
        let mut expected = Vec::new();
        for z in 0..groups[2] {
            for y in 0..groups[1] {
                for x in 0..groups[0] {
                    expected.extend((0..64).map(|i| x << 24 | y << 16 | z << 8 | i));
                }
            }
        }
        assert_eq!(rig.read(data, count), expected, "{target}");
    }
}

#[test]
fn the_barrier_bit_orders_and_its_absence_overlaps() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[1; 32]);
    let other = rig.memory("other", &[1; 32]);
    let [lo, hi] = pointer(data);
    let signal = rig.gpu.create_signal(3).unwrap();
    let one = args(&rig, &[lo, hi, 32, 1]);
    let two = args(&rig, &[lo, hi, 32, 5]);
    let three = args(&rig, &[other as u32, (other >> 32) as u32, 32, 5]);
    // ((1 * 2 + 1) * 2 + 5) only in this order.
    let ordered = [
        rig.dispatch("double_add", 1, one, signal),
        rig.dispatch("double_add", 1, two, signal),
    ];
    rig.submit(&ordered);
    rig.run(
        &[without_barrier(rig.dispatch(
            "double_add",
            1,
            three,
            signal,
        ))],
        signal,
    );
    assert_eq!(rig.read(data, 32), [11; 32]);
    assert_eq!(rig.read(other, 32), [7; 32]);
    assert!(rig.gpu.counters().batches >= 2);

    // Published together and without barrier bits, launches form one batch.
    let before = rig.gpu.counters();
    rig.gpu.store_signal(signal, 8).unwrap();
    let packets: Vec<Packet> = (0..8)
        .map(|_| without_barrier(rig.dispatch("double_add", 1, three, signal)))
        .collect();
    rig.run(&packets, signal);
    let after = rig.gpu.counters();
    assert_eq!(after.launches - before.launches, 8);
    assert_eq!(after.batches - before.batches, 1);
}

#[test]
fn barrier_and_waits_for_five_signals() {
    let rig = Rig::new(Target::Gfx1201);
    let deps: Vec<u64> = (0..5).map(|_| rig.gpu.create_signal(1).unwrap()).collect();
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.submit(&[Rig::barrier(BARRIER_AND, &deps, signal)]);
    for dep in &deps {
        let value = rig
            .gpu
            .wait_signal(signal, Condition::Lt, 1, Duration::from_millis(3))
            .unwrap();
        assert_eq!(value, 1, "passed before all five were 0");
        rig.gpu.store_signal(*dep, 0).unwrap();
    }
    rig.wait(signal);
    assert_eq!(rig.queue.load_read_index(), 1);
}

#[test]
fn barrier_or_passes_with_one_and_with_none() {
    let rig = Rig::new(Target::Gfx1201);
    let deps: Vec<u64> = (0..3).map(|_| rig.gpu.create_signal(7).unwrap()).collect();
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.submit(&[Rig::barrier(
        BARRIER_OR,
        &[deps[0], 0, deps[1], deps[2]],
        signal,
    )]);
    assert_eq!(
        rig.gpu
            .wait_signal(signal, Condition::Lt, 1, Duration::from_millis(3)),
        Ok(1)
    );
    rig.gpu.store_signal(deps[2], 0).unwrap();
    rig.wait(signal);
    rig.gpu.store_signal(signal, 1).unwrap();
    rig.run(&[Rig::barrier(BARRIER_OR, &[], signal)], signal);
}

#[test]
fn a_barrier_that_can_never_pass_blocks_its_queue_only() {
    let rig = Rig::new(Target::Gfx1201);
    let never = rig.gpu.create_signal(1).unwrap();
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.submit(&[
        Rig::barrier(BARRIER_AND, &[never], 0),
        Rig::barrier(BARRIER_AND, &[], signal),
    ]);
    assert_eq!(
        rig.gpu
            .wait_signal(signal, Condition::Lt, 1, Duration::from_millis(30)),
        Ok(1)
    );
    assert_eq!(
        rig.gpu.fault(),
        None,
        "waiting is no fault; the deadline is the waiter's"
    );
    // The handle that is waited for goes away: now it is one.
    rig.gpu.destroy_signal(never).unwrap();
    assert!(rig.fault().to_string().contains("dep_signal[0]"));
}

#[test]
fn queues_wait_for_each_other() {
    let rig = Rig::new(Target::Gfx1201);
    let second = rig
        .gpu
        .create_queue(64, std::sync::Arc::new(|_| {}))
        .unwrap();
    let (a, b) = (
        rig.gpu.create_signal(1).unwrap(),
        rig.gpu.create_signal(1).unwrap(),
    );
    rig.submit(&[Rig::barrier(BARRIER_AND | BARRIER_BIT, &[a], b)]);
    let second = Rig {
        queue: second,
        gpu: rig.gpu.clone(),
        object: rig.object.clone(),
        faults: rig.faults.clone(),
    };
    second.submit(&[Rig::barrier(BARRIER_AND, &[], a)]);
    rig.wait(b);
}

#[test]
fn a_kernel_can_release_a_barrier() {
    let rig = Rig::new(Target::Gfx1201);
    let dep = rig.gpu.create_signal(1).unwrap();
    let signal = rig.gpu.create_signal(1).unwrap();
    let [lo, hi] = pointer(dep + 8);
    let kernarg = args(&rig, &[lo, hi, 0, 0]);
    let packet = without_barrier(rig.dispatch("store_word", 1, kernarg, 0));
    rig.run(&[packet, Rig::barrier(BARRIER_AND, &[dep], signal)], signal);
}

#[test]
fn a_spent_completion_signal_is_named() {
    let rig = Rig::new(Target::Gfx1201);
    let signal = rig.gpu.create_signal(0).unwrap();
    rig.submit(&[Rig::barrier(BARRIER_AND, &[], signal)]);
    assert!(
        rig.fault()
            .to_string()
            .contains("held 0 when the packet completed")
    );
    let rig = Rig::new(Target::Gfx1201);
    let signal = rig.gpu.create_signal(-1).unwrap();
    rig.submit(&[Rig::barrier(BARRIER_AND, &[signal], 0)]);
    assert!(
        rig.fault()
            .to_string()
            .contains("holds -1; a barrier waits for exactly 0")
    );
}

#[test]
fn faults_of_waves_name_packet_kernel_and_memory() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("small buffer", &[0; 16]);
    let [lo, hi] = pointer(data);
    let signal = rig.gpu.create_signal(2).unwrap();
    let bad = args(&rig, &[lo, hi, 32, 0]);
    let good = args(&rig, &[lo, hi, 16, 0]);
    rig.submit(&[
        rig.dispatch("add_one", 1, good, signal),
        rig.dispatch("add_one", 1, bad, signal),
    ]);
    let fault = rig.fault();
    let words = fault.to_string();
    for part in [
        "queue 1, packet 1 (KERNEL_DISPATCH, kernel `add_one`)",
        "`small buffer`",
    ] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(fault.code, 0x2000_0000);
    assert_eq!(
        rig.gpu.load_signal(signal),
        Ok(1),
        "the faulty launch must not complete"
    );
}

#[test]
fn a_wave_that_never_ends_is_stopped_by_its_budget() {
    let rig = Rig::with(SoftConfig {
        threads: 1,
        wave_budget: 10_000,
        ..SoftConfig::new(Target::Gfx1201)
    });
    let data = rig.memory("data", &[0; 16]);
    let [lo, hi] = pointer(data);
    rig.submit(&[rig.dispatch("spin", 1, args(&rig, &[lo, hi]), 0)]);
    let fault = rig.fault();
    assert!(fault.to_string().contains("kernel `spin`"), "{fault}");
    assert_eq!(fault.code, 0x8000_0000, "{fault}");
}

#[test]
fn the_log_keeps_packets_and_kernargs_as_they_ran() {
    let config = SoftConfig {
        threads: 1,
        keep_packet_log: true,
        ..SoftConfig::new(Target::Gfx1201)
    };
    let rig = Rig::with(config);
    let data = rig.memory("data", &[0; 32]);
    let [lo, hi] = pointer(data);
    let kernarg = args(&rig, &[lo, hi, 32, 7]);
    let signal = rig.gpu.create_signal(2).unwrap();
    let packet = rig.dispatch("double_add", 1, kernarg, signal);
    let barrier = Rig::barrier(BARRIER_AND, &[], signal);
    rig.run(&[packet, barrier], signal);
    // Later changes of the kernargs must not show.
    rig.write(kernarg, &[9; 4]);
    let log = rig.gpu.packet_log();
    assert_eq!(log.len(), 2);
    assert_eq!(
        (log[0].queue_id, log[0].packet_id, log[0].bytes),
        (rig.queue.id(), 0, packet)
    );
    assert_eq!(log[0].symbol().map(|symbol| &**symbol), Some("double_add"));
    let bytes: Vec<u8> = [lo, hi, 32, 7]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(log[0].kernarg(), bytes);
    assert_eq!((log[1].bytes, log[1].dispatches.len()), (barrier, 0));
    assert_eq!(rig.gpu.take_packet_log().packets, log);
    assert!(rig.gpu.packet_log().is_empty());
}

#[test]
fn slots_become_invalid_and_the_ring_wraps() {
    let rig = Rig::new(Target::Gfx1201);
    let signal = rig.gpu.create_signal(5_000).unwrap();
    let packets: Vec<Packet> = (0..5_000)
        .map(|_| Rig::barrier(BARRIER_AND, &[], signal))
        .collect();
    rig.run(&packets, signal);
    assert_eq!(
        (rig.queue.load_read_index(), rig.queue.load_write_index()),
        (5_000, 5_000)
    );
    for slot in 0..1024 {
        assert_eq!(
            rig.gpu.memory().read_u32(rig.queue.ring_va() + 64 * slot),
            Ok(1)
        );
    }
}

#[test]
fn a_doorbell_before_the_header_waits_for_the_packet() {
    let rig = Rig::new(Target::Gfx1201);
    let signal = rig.gpu.create_signal(1).unwrap();
    rig.queue.add_write_index(1);
    rig.ring(0);
    assert_eq!(
        rig.gpu
            .wait_signal(signal, Condition::Lt, 1, Duration::from_millis(5)),
        Ok(1)
    );
    let packet = Rig::barrier(BARRIER_AND, &[], signal);
    rig.gpu
        .memory()
        .write_bytes(rig.queue.ring_va(), &packet)
        .unwrap();
    rig.ring(0);
    rig.wait(signal);
}

#[test]
fn eight_tokens_of_a_hundred_packets_in_flight() {
    let rig = Rig::new(Target::Gfx1201);
    let data = rig.memory("data", &[0; 32]);
    let [lo, hi] = pointer(data);
    let kernarg = args(&rig, &[lo, hi, 32, 0]);
    let signals: Vec<u64> = (0..8).map(|_| rig.gpu.create_signal(1).unwrap()).collect();
    for signal in &signals {
        let packets: Vec<Packet> = (0..100)
            .map(|index| rig.dispatch("add_one", 1, kernarg, if index == 99 { *signal } else { 0 }))
            .collect();
        rig.submit(&packets);
    }
    for signal in &signals {
        assert_eq!(
            rig.gpu.wait_signal(*signal, Condition::Lt, 1, DEADLINE),
            Ok(0),
            "{:?}",
            rig.gpu.fault()
        );
    }
    assert_eq!(rig.read(data, 32), [800; 32]);
}

#[test]
fn results_do_not_depend_on_threads_and_repeat_with_the_seed() {
    let run = |seed, threads| {
        let rig = Rig::with(SoftConfig {
            seed,
            threads,
            ..SoftConfig::new(Target::Gfx1201)
        });
        let data = rig.memory("data", &(0..512).collect::<Vec<_>>());
        let [lo, hi] = pointer(data);
        let (add, reverse) = (args(&rig, &[lo, hi, 500, 3]), args(&rig, &[lo, hi]));
        let signal = rig.gpu.create_signal(20).unwrap();
        for _ in 0..10 {
            rig.submit(&[
                rig.dispatch("double_add", 16, add, signal),
                rig.dispatch("lds_reverse", 8, reverse, signal),
            ]);
        }
        rig.wait(signal);
        (rig.read(data, 512), rig.gpu.counters().wave_instructions)
    };
    let reference = run(1, 1);
    assert_eq!(run(1, 2), reference);
    assert_eq!(run(99, 2), reference);
}
