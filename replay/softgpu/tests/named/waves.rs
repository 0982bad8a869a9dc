//! What waves of one group find about each other and about their registers, through the whole
//! device: kernel, packet and remedy. The kernels are pairs in `tests/fixtures/waves.hip`.

use crate::harness::{BARRIER_BIT, Ib, fixture};
use crate::rig::{AGENT_GCR, Named, SYSTEM, both, config, verdict};
use refrain_softgpu::SoftConfig;
use refrain_softgpu::isa::Target;
use refrain_softgpu::strict::ReportKind::{
    self, BarrierDivergence, LdsRace, PoisonUse, ReadAfterWrite, StaleRead, WaveStopped, WavesShare,
};

/// The kernel with the fault, its twin, and what the report says.
struct Case {
    faulty: &'static str,
    sound: &'static str,
    kind: ReportKind,
    names: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        faulty: "pass_on_racing",
        sound: "pass_on",
        kind: WavesShare,
        names: &[
            "waves-share: kernel pass_on_racing (queue 1, packet 1)",
            "out bytes ",
            "of its group",
            "no barrier between them; at +0x",
            "put a barrier between the two",
        ],
    },
    Case {
        faulty: "turn_racing",
        sound: "turn",
        kind: WavesShare,
        names: &[
            "waves-share: kernel turn_racing (queue 1, packet 1)",
            "out bytes ",
            "no barrier between them",
        ],
    },
    Case {
        faulty: "take_over_racing",
        sound: "take_over",
        kind: WavesShare,
        names: &[
            "waves-share: kernel take_over_racing (queue 1, packet 1)",
            "writes over what wave",
            "wrote, no barrier between them",
            "global_store_b32",
        ],
    },
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
            let (out, x) = (gpu.buffer("out", 128), gpu.buffer("x", 64));
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

/// Whatever order the seed runs the two waves in: one of them reads before or after the other wrote.
#[test]
fn waves_that_share_memory_are_found_in_either_order() {
    both(|target, fault| {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..12 {
            let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
            let config = SoftConfig {
                seed,
                ..config(target)
            };
            let gpu = Named::with(config, &object);
            let x = gpu.buffer("x", 64);
            let kernel = if fault { "turn_racing" } else { "turn" };
            // Several groups under way at once, each on words of its own.
            let more = gpu.buffer("more", 64);
            let header = BARRIER_BIT | SYSTEM;
            gpu.run(&[
                gpu.packet(kernel, 1, gpu.args(&[x], &[]), header),
                gpu.packet("turn", 1, gpu.args(&[more], &[]), SYSTEM),
            ]);
            let reports = gpu.reports();
            verdict("either order", fault, &reports, WavesShare, &["x bytes "]);
            seen.extend(reports.into_iter().map(|report| report.detail));
        }
        let kinds = ["reads what", "writes over what"];
        for kind in kinds.into_iter().filter(|_| fault) {
            assert!(seen.iter().any(|text| text.contains(kind)), "{seen:?}");
        }
    });
}

/// A scalar load of device scope passes the scalar cache on gfx12; on gfx11 there is no such load.
#[test]
fn the_scope_of_a_scalar_load_shortens_its_path() {
    for (target, kernel, fault) in [
        (Target::Gfx1201, "broadcast_plain", true),
        (Target::Gfx1201, "broadcast_device", false),
        (Target::Gfx1100, "broadcast_plain", true),
        (Target::Gfx1100, "broadcast_device", true),
    ] {
        let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
        let gpu = Named::with(config(target), &object);
        let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "set", gpu.args(&[x], &[7]))
            .launch(1)
            .flush();
        // Everything but the scalar cache.
        ib.acquire(0x300);
        ib.state(&gpu.rig, kernel, gpu.args(&[out, x], &[]))
            .launch(1)
            .flush();
        gpu.run_ib(&ib);
        let names = ["x bytes 0..4", "scalar cache", "GLK_INV", "s_load_b32"];
        let what = format!("{target} {kernel}");
        verdict(&what, fault, &gpu.reports(), StaleRead, &names);
    }
}

/// Four instructions are remembered per page; a report says when there were more.
#[test]
fn a_report_says_when_instructions_were_left_out() {
    for (kernel, more) in [("six_rows", true), ("copy_plain", false)] {
        both(|target, fault| {
            let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
            let gpu = Named::with(config(target), &object);
            let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 192));
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "set", gpu.args(&[x], &[7])).launch(1);
            if !fault {
                ib.flush().acquire(AGENT_GCR);
            }
            ib.state(&gpu.rig, kernel, gpu.args(&[out, x], &[]))
                .launch(1)
                .flush();
            gpu.run_ib(&ib);
            let reports = gpu.reports();
            verdict(kernel, fault, &reports, ReadAfterWrite, &["x bytes 0..128"]);
            for report in reports {
                let text = "more instructions touch these 4 KiB than are remembered";
                assert_eq!(report.to_string().contains(text), more, "{report}");
                let key = "\"instructions_left_out\":true";
                assert_eq!(report.json().contains(key), more, "{report}");
            }
        });
    }
}

/// The target of a jump is named by object, kernel and offset, not by an address.
#[test]
fn a_jump_fault_names_object_and_kernel() {
    both(|target, fault| {
        let object = fixture(&format!("tests/fixtures/waves.{target}.co"));
        let gpu = Named::with(config(target), &object);
        let out = gpu.buffer("out", 32);
        let kernel = if fault { "jump_inside" } else { "set" };
        let packet = gpu.packet(kernel, 1, gpu.args(&[out], &[1]), BARRIER_BIT | SYSTEM);
        if fault {
            gpu.rig.submit(&[packet]);
            gpu.rig.fault();
        } else {
            gpu.run(&[packet]);
        }
        let names = [
            "kernel jump_inside",
            "jump to jump_inside+0x",
            ", byte ",
            " of ",
            "where no instruction of its object begins",
        ];
        let reports = gpu.reports();
        verdict("jump", fault, &reports, WaveStopped, &names);
        for report in reports {
            assert!(!report.detail.contains(": 0x") && !report.detail.contains("to 0x"));
        }
    });
}
