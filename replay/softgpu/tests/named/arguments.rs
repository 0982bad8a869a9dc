//! Kernel arguments while their launch is in flight.

use crate::harness::{BARRIER_BIT, Ib};
use crate::rig::{Named, SYSTEM, both, verdict};
use refrain_softgpu::strict::ReportKind::{KernargChanged, KernargShared};

/// warpfront/hipfire PR 591: the arguments of a captured launch lay on a stack frame that is gone.
#[test]
fn issue_hipfire_591_arguments_on_a_dead_stack_frame() {
    both(|target, fault| {
        for indirect in [false, true] {
            let gpu = Named::new(target);
            let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
            let frame = gpu.args(&[out, x], &[]);
            let packet = if indirect {
                let mut ib = Ib::default();
                ib.state(&gpu.rig, "copy", frame).launch(1).flush();
                gpu.vendor(&ib, SYSTEM, 0)
            } else {
                gpu.packet("copy", 1, frame, BARRIER_BIT | SYSTEM)
            };
            gpu.gated(&[packet], || {
                if fault {
                    // Another frame takes the place.
                    gpu.set_args(frame, &[out, out], &[]);
                }
            });
            let reports: Vec<_> = gpu
                .reports()
                .into_iter()
                .filter(|r| fault || r.kind != KernargChanged)
                .collect();
            let changed: Vec<_> = reports
                .iter()
                .filter(|r| r.kind == KernargChanged)
                .cloned()
                .collect();
            assert_eq!(reports.is_empty(), !fault, "{reports:#?}");
            let names = [
                "kernel copy",
                "arguments",
                "differ from those at the doorbell",
            ];
            verdict("dead frame", fault, &changed, KernargChanged, &names);
        }
    });
}

/// CHIP-SPV/chipStar 782: two nodes of one kernel share arguments.
#[test]
fn issue_chipstar_782_two_packets_in_flight_share_a_slot() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (a, b) = (gpu.buffer("a", 32), gpu.buffer("b", 32));
        let first = gpu.args(&[a], &[1]);
        let second = if fault { first } else { gpu.args(&[b], &[2]) };
        let (gate, open) = gpu.gate();
        gpu.rig
            .submit(&[gate, gpu.packet("fill", 1, first, BARRIER_BIT | SYSTEM)]);
        gpu.set_args(second, &[b], &[2]);
        gpu.rig
            .submit(&[gpu.packet("fill", 1, second, BARRIER_BIT | SYSTEM)]);
        let shared = gpu.reports();
        let names = [
            "packet 2)",
            "arguments",
            "other: kernel fill (queue 1, packet 1)",
            "its own argument slot",
        ];
        verdict("shared slot", fault, &shared, KernargShared, &names);
        gpu.rig.gpu.store_signal(open, 0).unwrap();
        gpu.run(&[]);
    });
}

#[test]
fn replays_of_one_step_share_their_slot() {
    for target in crate::rig::TARGETS {
        let gpu = Named::new(target);
        let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
        let packet = gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM);
        gpu.gated(&[packet, packet, packet], || {});
        gpu.gated(&[packet], || {});
        assert_eq!(gpu.reports(), []);
    }
}

#[test]
fn a_slot_may_be_written_again_once_its_launch_is_known_to_be_finished() {
    for target in crate::rig::TARGETS {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let slot = gpu.args(&[out], &[1]);
        for value in 2..5 {
            gpu.set_args(slot, &[out], &[value]);
            gpu.run(&[gpu.packet("fill", 1, slot, BARRIER_BIT | SYSTEM)]);
        }
        assert_eq!(gpu.reports(), []);
        assert_eq!(gpu.rig.read(out, 2), [4, 4]);
    }
}
