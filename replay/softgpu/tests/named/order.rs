//! What nothing orders: launches without a wait between them, queues without a signal, the host
//! without a wait, work-groups of one launch.

use crate::harness::{BARRIER_AND, BARRIER_BIT, Ib, Rig, fixture};
use crate::rig::{AGENT_GCR, Named, SYSTEM, both, config, verdict};
use refrain_softgpu::SoftConfig;
use refrain_softgpu::gpu::faults::FaultScript;
use refrain_softgpu::isa::Target;
use refrain_softgpu::strict::ReportKind::{
    AtomicOrder, GroupsShare, ReadAfterWrite, WriteAfterRead, WriteAfterWrite,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Two launches of an indirect buffer with or without a wait and an invalidation between them.
fn pair(
    target: Target,
    wait: bool,
    launches: impl FnOnce(&Named) -> [(&'static str, u64); 2],
) -> Named {
    let gpu = Named::new(target);
    let [first, second] = launches(&gpu);
    let mut ib = Ib::default();
    ib.state(&gpu.rig, first.0, first.1).launch(1);
    if wait {
        ib.flush().acquire(AGENT_GCR);
    }
    ib.state(&gpu.rig, second.0, second.1).launch(1).flush();
    gpu.run_ib(&ib);
    gpu
}

#[test]
fn a_rotate_buffer_rewritten_while_it_is_read() {
    both(|target, fault| {
        let gpu = pair(target, !fault, |gpu| {
            let (rotate, out) = (gpu.buffer("rotate", 32), gpu.buffer("out", 32));
            [
                ("copy", gpu.args(&[out, rotate], &[])),
                ("fill", gpu.args(&[rotate], &[7])),
            ]
        });
        let names = [
            "kernel fill",
            "rotate bytes 0..128",
            "other: kernel copy",
            "CS_PARTIAL_FLUSH",
            "128 bytes",
            "global_store_b32",
        ];
        verdict("rotate", fault, &gpu.reports(), WriteAfterRead, &names);
    });
}

#[test]
fn rope_into_the_kv_ring_without_a_wait() {
    both(|target, fault| {
        let gpu = pair(target, !fault, |gpu| {
            let (ring, out) = (gpu.buffer("kv.k.0", 32), gpu.buffer("out", 32));
            [
                ("fill", gpu.args(&[ring], &[7])),
                ("copy", gpu.args(&[out, ring], &[])),
            ]
        });
        let names = [
            "kernel copy",
            "kv.k.0",
            "other: kernel fill",
            "CS_PARTIAL_FLUSH",
            "ACQUIRE_MEM",
            "dword",
        ];
        verdict("kv ring", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn two_writers_without_a_wait() {
    both(|target, fault| {
        let gpu = pair(target, !fault, |gpu| {
            let out = gpu.buffer("out", 32);
            [
                ("fill", gpu.args(&[out], &[7])),
                ("fill", gpu.args(&[out], &[8])),
            ]
        });
        verdict(
            "two writers",
            fault,
            &gpu.reports(),
            WriteAfterWrite,
            &["out bytes 0..128"],
        );
    });
}

#[test]
fn disjoint_launches_need_no_wait() {
    for target in crate::rig::TARGETS {
        let gpu = pair(target, false, |gpu| {
            let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 64));
            [
                ("copy", gpu.args(&[out, x], &[])),
                ("copy", gpu.args(&[out + 128, x], &[])),
            ]
        });
        assert_eq!(gpu.reports(), []);
    }
}

/// pytorch 170604: the output of one run is overwritten by the next while it is still read.
#[test]
fn issue_pytorch_170604_the_next_token_overwrites_what_this_one_reads() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (hidden, out) = (gpu.buffer("hidden", 32), gpu.buffer("out", 32));
        let barrier = if fault { 0 } else { BARRIER_BIT };
        gpu.run(&[
            gpu.packet(
                "copy",
                1,
                gpu.args(&[out, hidden], &[]),
                BARRIER_BIT | SYSTEM,
            ),
            gpu.packet("fill", 1, gpu.args(&[hidden], &[1]), barrier | SYSTEM),
        ]);
        let names = [
            "packet 1)",
            "hidden",
            "kernel copy (queue 1, packet 0)",
            "set the barrier bit of packet 1",
        ];
        verdict("next token", fault, &gpu.reports(), WriteAfterRead, &names);
    });
}

#[test]
fn queues_are_ordered_by_signals_only() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let (done, end) = (
            gpu.rig.gpu.create_signal(1).unwrap(),
            gpu.rig.gpu.create_signal(1).unwrap(),
        );
        let other = gpu.rig.gpu.create_queue(64, Arc::new(|_| {})).unwrap();
        let second = Rig {
            gpu: Arc::clone(&gpu.rig.gpu),
            object: Arc::clone(&gpu.rig.object),
            queue: other,
            faults: Arc::default(),
        };
        let reader = gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM);
        let dependencies: &[u64] = if fault { &[] } else { &[done] };
        let last = BARRIER_AND | BARRIER_BIT | SYSTEM;
        second.submit(&[
            Rig::barrier(last, dependencies, 0),
            reader,
            Rig::barrier(last, &[], end),
        ]);
        let mut writer = gpu.packet("fill", 1, gpu.args(&[x], &[7]), BARRIER_BIT | SYSTEM);
        crate::harness::put(&mut writer, 56, &done.to_le_bytes());
        gpu.rig.submit(&[writer]);
        let (wait, limit) = (
            |signal| {
                while gpu.rig.gpu.load_signal(signal).unwrap() > 0 {
                    std::thread::yield_now();
                }
            },
            end,
        );
        wait(done);
        wait(limit);
        let reports = gpu.reports();
        let kind = reports.first().map_or(ReadAfterWrite, |report| report.kind);
        assert!(matches!(kind, ReadAfterWrite | WriteAfterRead));
        verdict(
            "queues",
            fault,
            &reports,
            kind,
            &[
                "x bytes 0..128",
                "barrier packet of queue",
                "completion signal",
            ],
        );
        drop(second);
    });
}

#[test]
fn the_host_writes_what_a_launch_in_flight_reads() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        let mut packet = gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM);
        crate::harness::put(&mut packet, 56, &signal.to_le_bytes());
        gpu.rig.submit(&[packet]);
        if fault {
            // Finished, but the host does not know it from the signal.
            while gpu.rig.gpu.counters().launches == 0 {
                std::thread::yield_now();
            }
        } else {
            gpu.rig.wait(signal);
        }
        gpu.rig.write(x, &[5]);
        let names = [
            "the host",
            "x bytes 0..4",
            "other: kernel copy",
            "wait for a completion signal",
        ];
        verdict("host write", fault, &gpu.reports(), WriteAfterRead, &names);
    });
}

/// A gate that the host opens orders what the host wrote before it.
#[test]
fn a_signal_of_the_host_orders_its_writes() {
    for target in crate::rig::TARGETS {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let packet = gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM);
        gpu.gated(&[packet], || gpu.rig.write(x, &[5]));
        assert_eq!(gpu.reports(), []);
        assert_eq!(gpu.rig.read(out, 1), [5]);
    }
}

#[test]
fn the_host_reads_before_it_waited() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        let mut packet = gpu.packet("fill", 1, gpu.args(&[out], &[7]), BARRIER_BIT | SYSTEM);
        crate::harness::put(&mut packet, 56, &signal.to_le_bytes());
        gpu.rig.submit(&[packet]);
        if fault {
            // Finished, but the host does not know it from the signal.
            while gpu.rig.gpu.counters().launches == 0 {
                std::thread::yield_now();
            }
        } else {
            gpu.rig.wait(signal);
        }
        gpu.rig.gpu.memory().read_bytes(out, &mut [0; 8]).unwrap();
        let names = [
            "the host",
            "out bytes 0..8",
            "kernel fill",
            "wait for a completion signal",
        ];
        verdict("host read", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

/// warpfront/hipfire 19: float atomics whose order changes the sum.
#[test]
fn issue_hipfire_19_float_atomics_depend_on_order() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (sum, x) = (gpu.buffer("sum", 1), gpu.buffer("x", 128));
        let kernel = if fault { "atomic_sum" } else { "atomic_count" };
        gpu.run(&[gpu.packet(kernel, 4, gpu.args(&[sum, x], &[]), BARRIER_BIT | SYSTEM)]);
        let names = [
            "kernel atomic_sum",
            "sum bytes 0..4",
            "global_atomic_add_f32",
            "written order",
        ];
        verdict("float atomics", fault, &gpu.reports(), AtomicOrder, &names);
    });
}

/// Two launches that nothing orders count into one word: integer sums come out the same either way,
/// float sums do not, and a plain access of the word is a race.
#[test]
fn atomics_of_two_launches_commute_or_not() {
    for target in crate::rig::TARGETS {
        for (second, expected) in [
            ("atomic_count", None),
            ("atomic_sum", Some(AtomicOrder)),
            ("copy", Some(ReadAfterWrite)),
        ] {
            let gpu = pair(target, false, |gpu| {
                let (sum, x) = (gpu.buffer("sum", 32), gpu.buffer("x", 128));
                let out = gpu.buffer("out", 32);
                let args = if second == "copy" {
                    [out, sum]
                } else {
                    [sum, x]
                };
                let count = ("atomic_count", gpu.args(&[sum, x], &[]));
                [count, (second, gpu.args(&args, &[]))]
            });
            let mut reports = gpu.reports();
            // Lanes of one float sum contend as well; here the two launches count.
            reports.retain(|report| report.other.is_some());
            let second = format!("kernel {second}");
            let names = [&*second, "sum bytes 0..4", "other: kernel atomic_count"];
            let kind = expected.unwrap_or(AtomicOrder);
            verdict("counts", expected.is_some(), &reports, kind, &names);
        }
    }
}

#[test]
fn groups_of_one_launch_write_the_same_words() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let groups = if fault { 2 } else { 1 };
        gpu.run(&[gpu.packet(
            "same_words",
            groups,
            gpu.args(&[out], &[1]),
            BARRIER_BIT | SYSTEM,
        )]);
        let names = [
            "kernel same_words",
            "out bytes 0..4",
            "writes over what group",
        ];
        verdict("groups", fault, &gpu.reports(), GroupsShare, &names);
    });
}

/// tinygrad 14278: the input is the output, shifted by one group.
#[test]
fn issue_tinygrad_14278_input_and_output_overlap() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let x = gpu.buffer("x", 512);
        // Shifted, each group reads what its neighbour writes; in place, each its own.
        let shift = if fault { 128 } else { 0 };
        let args = gpu.args(&[x + shift, x], &[]);
        gpu.run(&[gpu.packet("copy", 8, args, BARRIER_BIT | SYSTEM)]);
        let names = ["kernel copy", "x bytes", "reads what group"];
        verdict("alias", fault, &gpu.reports(), GroupsShare, &names);
    });
}

/// The same with two groups: whichever of them the seed runs first.
#[test]
fn overlapping_groups_are_found_in_either_order() {
    both(|target, fault| {
        let mut seen = BTreeSet::new();
        for seed in 0..12 {
            let object = fixture(&format!("tests/fixtures/named.{target}.co"));
            let gpu = Named::with(
                SoftConfig {
                    seed,
                    ..config(target)
                },
                &object,
            );
            let x = gpu.buffer("x", 512);
            let args = gpu.args(&[if fault { x + 128 } else { x }, x], &[]);
            gpu.run(&[gpu.packet("copy", 2, args, BARRIER_BIT | SYSTEM)]);
            let reports = gpu.reports();
            verdict(
                "either order",
                fault,
                &reports,
                GroupsShare,
                &["x bytes 128.."],
            );
            seen.extend(reports.into_iter().map(|report| report.detail));
        }
        let expected: &[&str] = if fault {
            &[
                "group 0 writes over what group 1 read",
                "group 1 reads what group 0 wrote",
            ]
        } else {
            &[]
        };
        assert_eq!(Vec::from_iter(&seen), expected);
    });
}

/// One signal for two launches, and a completion that is lost: the value 1 says that one of them is
/// done. If the second waits for the first it must be that one; if nothing orders them it may be either.
#[test]
fn a_signal_tells_only_what_its_value_proves() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (first, second) = (gpu.buffer("first", 32), gpu.buffer("second", 32));
        let signal = gpu.rig.gpu.create_signal(2).unwrap();
        let script: FaultScript = "stuck@completion:2".parse().unwrap();
        gpu.rig.gpu.arm_faults(&script);
        let barrier = if fault { 0 } else { BARRIER_BIT };
        let packets = [(first, BARRIER_BIT), (second, barrier)].map(|(out, header)| {
            let mut packet = gpu.packet("fill", 1, gpu.args(&[out], &[7]), header | SYSTEM);
            crate::harness::put(&mut packet, 56, &signal.to_le_bytes());
            packet
        });
        gpu.rig.submit(&packets);
        while gpu.rig.gpu.injected_faults().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(gpu.rig.gpu.load_signal(signal).unwrap(), 1);
        gpu.rig.gpu.memory().read_bytes(first, &mut [0; 8]).unwrap();
        let names = [
            "the host",
            "first bytes 0..8",
            "kernel fill",
            "wait for a completion signal",
        ];
        verdict(
            "value 1 of 2",
            fault,
            &gpu.reports(),
            ReadAfterWrite,
            &names,
        );
    });
}
