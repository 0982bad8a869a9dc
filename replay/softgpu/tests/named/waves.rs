//! What waves of one group find about each other and about their registers, through the whole
//! device: kernel, packet and remedy. The kernels are pairs in `tests/fixtures/waves.hip`.

use crate::harness::{BARRIER_BIT, Ib, fixture};
use crate::rig::{Named, SYSTEM, both, config, verdict};
use refrain_softgpu::strict::ReportKind::{self, BarrierDivergence, LdsRace, PoisonUse, StaleRead};

/// The kernel with the fault, its twin, and what the report says.
struct Case {
    faulty: &'static str,
    sound: &'static str,
    kind: ReportKind,
    names: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        faulty: "reverse_racing",
        sound: "reverse",
        kind: LdsRace,
        names: &[
            "lds-race: kernel reverse_racing (queue 1, packet 1)",
            "after",
            "with wave",
            "`ds_",
            "put a barrier between the two",
        ],
    },
    Case {
        faulty: "meet_apart",
        sound: "meet",
        kind: BarrierDivergence,
        names: &[
            "barrier-divergence: kernel meet_apart (queue 1, packet 1)",
            "meanwhile",
            "s_barrier",
            "let every wave of the group reach the same barrier",
        ],
    },
    Case {
        faulty: "store_anywhere",
        sound: "store_at",
        kind: PoisonUse,
        names: &[
            "poison-use: kernel store_anywhere (queue 1, packet 1)",
            "holds what nothing defined",
            "used as address",
            "global_store_b32",
            "define the register on every path",
        ],
    },
];

#[test]
fn findings_of_waves_name_kernel_packet_and_remedy() {
    for case in CASES {
        both(|target, fault| {
            let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
            let gpu = Named::with(config(target), &object);
            let (out, x) = (gpu.buffer("out", 64), gpu.buffer("x", 64));
            let kernel = if fault { case.faulty } else { case.sound };
            // A sound launch goes first, so that the packet's number is not the default.
            let header = BARRIER_BIT | SYSTEM;
            gpu.run(&[
                gpu.packet(case.sound, 1, gpu.args(&[out, x], &[]), header),
                gpu.packet(kernel, 1, gpu.args(&[out, x], &[]), header),
            ]);
            verdict(kernel, fault, &gpu.reports(), case.kind, case.names);
        });
    }
}

/// What a wave invalidates for its own compute unit stands in for the packet's ACQUIRE_MEM.
#[test]
fn an_invalidation_in_the_kernel_makes_its_own_reads_fresh() {
    both(|target, fault| {
        let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
        let gpu = Named::with(config(target), &object);
        let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
        let reader = if fault { "copy_plain" } else { "copy_fresh" };
        let args = gpu.args(&[out, x], &[]);
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "set", gpu.args(&[x], &[7]))
            .launch(1)
            .flush();
        ib.state(&gpu.rig, reader, args).launch(1).flush();
        gpu.run_ib(&ib);
        let names = [
            "stale-read: kernel copy_plain (queue 1, packet 0, dword",
            "x bytes 0..128",
            "other: kernel set",
            "global_load_b32",
            "ACQUIRE_MEM",
        ];
        verdict("in-kernel", fault, &gpu.reports(), StaleRead, &names);
    });
}
