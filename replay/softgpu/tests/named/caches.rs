//! What a cache may still hold: invalidations that are missing, in the wrong place or too weak.

use crate::harness::{BARRIER_BIT, Ib, Rig, put};
use crate::rig::{
    ACQUIRE_AGENT, ACQUIRE_SYSTEM, AGENT_GCR, GL2_WB, Named, RELEASE_AGENT, RELEASE_SYSTEM, SYSTEM,
    both, verdict,
};
use refrain_softgpu::isa::Target;
use refrain_softgpu::strict::ReportKind::{LostWrites, NotWrittenBack, StaleRead};

const GL2_INV: u32 = 0x4000;

/// `fill` writes a row, `copy` reads it after the wait; `acquire` is what stands between.
fn write_then_read(target: Target, reader: &str, between: impl FnOnce(&mut Ib)) -> Named {
    let gpu = Named::new(target);
    let (kv, out) = (gpu.buffer("kv.k.0", 32), gpu.buffer("out", 32));
    let writer = gpu.args(&[kv], &[7]);
    let args = gpu.args(&[out, kv], &[]);
    let mut ib = Ib::default();
    ib.state(&gpu.rig, "fill", writer).launch(1);
    between(&mut ib);
    ib.state(&gpu.rig, reader, args).launch(1).flush();
    gpu.run_ib(&ib);
    gpu
}

#[test]
fn a_removed_acquire_after_the_wait_leaves_the_kv_row_stale() {
    both(|target, fault| {
        let gpu = write_then_read(target, "copy", |ib| {
            ib.flush();
            if !fault {
                ib.acquire(AGENT_GCR);
            }
        });
        let bits = match target {
            Target::Gfx1201 => "GLV_INV (GCR_CNTL 0x100)",
            _ => "GLV_INV, GL1_INV (GCR_CNTL 0x300)",
        };
        let names = [
            "kernel copy",
            "kv.k.0 bytes 0..128",
            "other: kernel fill",
            "ACQUIRE_MEM",
            bits,
            "global_load_b32",
        ];
        verdict("removed acquire", fault, &gpu.reports(), StaleRead, &names);
    });
}

#[test]
fn an_acquire_before_the_wait_is_none() {
    both(|target, fault| {
        let gpu = write_then_read(target, "copy", |ib| {
            if fault {
                ib.acquire(AGENT_GCR).flush();
            } else {
                ib.flush().acquire(AGENT_GCR);
            }
        });
        verdict(
            "early acquire",
            fault,
            &gpu.reports(),
            StaleRead,
            &["kv.k.0"],
        );
    });
}

#[test]
fn a_device_written_position_is_stale_in_the_scalar_cache() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (pos, out) = (gpu.buffer("pos", 1), gpu.buffer("out", 32));
        let args = gpu.args(&[out, pos], &[]);
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "advance", gpu.args(&[pos], &[]))
            .launch(1)
            .flush();
        // Vector caches only: enough for vector loads, not for this reader.
        ib.acquire(if fault { 0x300 } else { AGENT_GCR });
        ib.state(&gpu.rig, "broadcast", args).launch(1).flush();
        gpu.run_ib(&ib);
        let names = [
            "kernel broadcast",
            "pos bytes 0..4",
            "scalar cache",
            "GLK_INV",
            "kernel advance",
            "s_load_b32",
        ];
        verdict("scalar position", fault, &gpu.reports(), StaleRead, &names);
    });
}

#[test]
fn gfx12_has_no_l1_to_invalidate_and_gfx11_has() {
    for (target, fault) in [(Target::Gfx1100, true), (Target::Gfx1201, false)] {
        let gpu = write_then_read(target, "copy", |ib| {
            ib.flush().acquire(0x180);
        });
        verdict(
            "0x180",
            fault,
            &gpu.reports(),
            StaleRead,
            &["L1", "GL1_INV (GCR_CNTL 0x200)"],
        );
    }
}

#[test]
fn an_aql_packet_without_an_acquire_fence_reads_stale() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (kv, out) = (gpu.buffer("kv.v.0", 32), gpu.buffer("out", 32));
        let acquire = if fault { 0 } else { ACQUIRE_AGENT };
        gpu.run(&[
            gpu.packet("fill", 1, gpu.args(&[kv], &[7]), BARRIER_BIT | SYSTEM),
            // The head's system acquire covers what the host wrote; arguments are no concern.
            gpu.packet(
                "copy",
                1,
                gpu.args(&[out, kv], &[]),
                BARRIER_BIT | acquire | RELEASE_SYSTEM,
            ),
        ]);
        let names = [
            "kernel copy (queue 1, packet 1)",
            "kv.v.0",
            "give packet 1 an acquire fence of agent scope",
        ];
        verdict("acquire none", fault, &gpu.reports(), StaleRead, &names);
    });
}

/// ROCm/hip 3887: a buffer that the host updates between launches.
#[test]
fn issue_rocm_hip_3887_a_host_update_needs_a_system_acquire() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (index, out) = (gpu.buffer("index", 32), gpu.buffer("out", 32));
        let args = gpu.args(&[out, index], &[]);
        let first = gpu.packet("copy", 1, args, BARRIER_BIT | SYSTEM);
        gpu.run(&[first]);
        gpu.rig.write(index, &[9; 32]);
        let acquire = if fault { ACQUIRE_AGENT } else { ACQUIRE_SYSTEM };
        gpu.run(&[gpu.packet("copy", 1, args, BARRIER_BIT | acquire | RELEASE_SYSTEM)]);
        let names = [
            "kernel copy",
            "index bytes 0..128",
            "L2",
            "other: the host",
            "system scope",
        ];
        verdict("host update", fault, &gpu.reports(), StaleRead, &names);
    });
}

#[test]
fn a_missing_terminal_writeback_shows_when_the_host_reads() {
    // (release of the vendor packet, GL2_WB at the end, fault)
    for target in crate::rig::TARGETS {
        for (release, write_back, fault) in [
            (RELEASE_AGENT, false, true),
            (RELEASE_AGENT, true, false),
            (RELEASE_SYSTEM, false, false),
        ] {
            let gpu = Named::new(target);
            let logits = gpu.buffer("logits", 32);
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "fill", gpu.args(&[logits], &[7]))
                .launch(1)
                .flush();
            if write_back {
                ib.acquire(GL2_WB);
            }
            let signal = gpu.rig.gpu.create_signal(1).unwrap();
            let packet = gpu.vendor(&ib, ACQUIRE_SYSTEM | release, signal);
            gpu.rig.run(&[packet], signal);
            let mut bytes = [0; 128];
            gpu.rig.gpu.memory().read_bytes(logits, &mut bytes).unwrap();
            assert_eq!(bytes[..4], 7u32.to_le_bytes());
            let names = [
                "kernel fill",
                "logits bytes 0..128",
                "GL2_WB",
                "release fence of system scope",
                "the host",
            ];
            verdict("writeback", fault, &gpu.reports(), NotWrittenBack, &names);
        }
    }
}

/// GL2_INV drops what only the L2 has. Written back in the same packet, before it, or by an earlier
/// packet's release fence, nothing is lost; memory that the L2 does not keep is no concern.
#[test]
fn an_l2_invalidation_without_a_writeback_loses_what_was_written() {
    for target in crate::rig::TARGETS {
        for (what, before, gcr, fault) in [
            ("alone", None, GL2_INV, true),
            ("early writeback", Some((GL2_WB, false)), GL2_INV, true),
            ("same packet", None, GL2_INV | GL2_WB, false),
            ("packet before", Some((GL2_WB, true)), GL2_INV, false),
            ("other caches", None, AGENT_GCR, false),
        ] {
            let gpu = Named::new(target);
            let kv = gpu.buffer("kv.k.0", 32);
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "fill", gpu.args(&[kv], &[7]));
            ib.launch(1);
            if let Some((bits, waited)) = before {
                if waited {
                    ib.flush();
                }
                ib.acquire(bits);
            }
            ib.flush().acquire(gcr);
            ib.acquire(GL2_WB);
            gpu.run_ib(&ib);
            let names = [
                "lost-writes: packet ACQUIRE_MEM (queue 1, packet 0, dword",
                "kv.k.0 bytes 0..128",
                "other: kernel fill",
                "set GL2_WB (GCR_CNTL 0x8000) beside GL2_INV",
            ];
            verdict(what, fault, &gpu.reports(), LostWrites, &names);
        }
    }
}

/// The release fence of the packet before is a writeback too.
#[test]
fn a_release_of_system_scope_is_a_writeback() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let kv = gpu.buffer("kv.k.0", 32);
        let release = if fault { RELEASE_AGENT } else { RELEASE_SYSTEM };
        let fill = gpu.args(&[kv], &[7]);
        gpu.run_quietly(&[gpu.packet("fill", 1, fill, BARRIER_BIT | ACQUIRE_SYSTEM | release)]);
        let mut ib = Ib::default();
        ib.acquire(GL2_INV);
        ib.flush();
        gpu.run_ib(&ib);
        let names = ["lost-writes", "kv.k.0", "other: kernel fill"];
        verdict("release", fault, &gpu.reports(), LostWrites, &names);
    });
}

/// ROCm/hip 3902: an index buffer that is written outside the graph is stale in its replay. The same
/// indirect buffer runs twice, and only its own head can see to what the host wrote in between.
#[test]
fn issue_rocm_hip_3902_an_index_written_between_replays_needs_an_acquire_at_the_head() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (index, out) = (gpu.buffer("index", 32), gpu.buffer("out", 32));
        let args = gpu.args(&[out, index], &[]);
        let mut ib = Ib::default();
        if fault {
            ib.acquire(AGENT_GCR);
        } else {
            ib.acquire(AGENT_GCR | GL2_INV | GL2_WB);
        }
        ib.state(&gpu.rig, "copy", args).launch(1).flush();
        let va = gpu.ib(&ib);
        let replay = || {
            let signal = gpu.rig.gpu.create_signal(1).unwrap();
            let mut packet = Rig::vendor(va, ib.0.len(), signal);
            put(
                &mut packet,
                0,
                &(BARRIER_BIT | RELEASE_SYSTEM).to_le_bytes(),
            );
            gpu.rig.run(&[packet], signal);
        };
        // What the host wrote before the first replay is covered by an acquire of its own.
        let mut head = Ib::default();
        head.acquire(AGENT_GCR | GL2_INV | GL2_WB).flush();
        gpu.run_ib(&head);
        replay();
        assert_eq!(gpu.reports(), []);
        gpu.rig.write(index, &[9; 32]);
        replay();
        assert_eq!(gpu.rig.read(out, 1), [9]);
        let names = [
            "kernel copy (queue 1, packet 2, dword",
            "index bytes 0..128",
            "L2",
            "other: the host",
            "ACQUIRE_MEM with GL2_INV (GCR_CNTL 0x4000)",
        ];
        verdict("index", fault, &gpu.reports(), StaleRead, &names);
    });
}
