//! Faults that stop a queue: the launch, the argument, the distance and the remedy.

use crate::harness::{BARRIER_BIT, Ib, fixture};
use crate::rig::{Named, SYSTEM, both, config, verdict};
use refrain_softgpu::isa::Target;
use refrain_softgpu::strict::ReportKind::{OutOfBounds, PacketRejected, WaveStopped};
use refrain_softgpu::strict::{
    Declarations, DeclaredArg, DeclaredExtent, DeclaredLaunch, DeclaredRange,
};

/// Dwords of the dispatches in an indirect buffer.
fn dispatches(ib: &Ib) -> Vec<u32> {
    (0_u32..)
        .zip(&ib.0)
        .filter(|(_, word)| **word & !1 == 0xC003_1500)
        .map(|(at, _)| at)
        .collect()
}

/// Two launches of one kernel in one packet, nothing between: either may be the one at fault.
#[test]
fn of_two_launches_of_a_kernel_the_faulty_one_is_named() {
    for at_fault in [0, 1] {
        both(|target, fault| {
            let gpu = Named::new(target);
            let mut buffers = [64, 64];
            if fault {
                buffers[at_fault] = 32;
            }
            let mut ib = Ib::default();
            for (name, words) in ["a", "b"].into_iter().zip(buffers) {
                let args = gpu.args(&[gpu.buffer(name, words)], &[9]);
                ib.state(&gpu.rig, "fill", args).launch(2);
            }
            ib.flush();
            let [first, second] = dispatches(&ib)[..] else {
                unreachable_count(&ib)
            };
            if fault {
                gpu.rig.submit(&[gpu.vendor(&ib, SYSTEM, 0)]);
                gpu.rig.fault();
            } else {
                gpu.run_ib(&ib);
            }
            let dword = [first, second][at_fault];
            let place = format!("kernel fill (queue 1, packet 0, dword {dword})");
            let buffer = format!("{} bytes 128..132", ["a", "b"][at_fault]);
            let names = [
                &*place,
                "argument 0 (offset 0)",
                &*buffer,
                "it reaches 4 bytes past the end",
            ];
            verdict("two fills", fault, &gpu.reports(), OutOfBounds, &names);
        });
    }
}

#[expect(clippy::panic, reason = "this is how a test fails")]
fn unreachable_count(ib: &Ib) -> ! {
    panic!("two dispatches expected in {:x?}", ib.0)
}

/// The declared name goes before the number of the argument; the source is the one that is short.
#[test]
fn the_declared_argument_is_named() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (out, x) = (
            gpu.buffer("out", 64),
            gpu.buffer("x", if fault { 32 } else { 64 }),
        );
        let range = |va| {
            vec![DeclaredRange {
                va,
                extent: DeclaredExtent::Bytes(256),
            }]
        };
        let args = vec![
            DeclaredArg {
                name: "dst".into(),
                va: out,
                reads: vec![],
                writes: range(out),
            },
            DeclaredArg {
                name: "src".into(),
                va: x,
                reads: range(x),
                writes: vec![],
            },
        ];
        gpu.rig.gpu.declare(Declarations {
            buffers: vec![],
            launches: vec![DeclaredLaunch {
                step: "blk.0.copy".into(),
                kernel: "copy".into(),
                args,
            }],
        });
        let packet = gpu.packet("copy", 2, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM);
        if fault {
            gpu.rig.submit(&[packet]);
            gpu.rig.fault();
        } else {
            gpu.run(&[packet]);
        }
        let reports = gpu.reports();
        let names = [
            "step blk.0.copy, kernel copy",
            "argument src",
            "x bytes 128..132",
            "read of 4 bytes",
        ];
        verdict("short source", fault, &reports, OutOfBounds, &names);
    });
}

/// A packet that is refused is named by its own dword, with no step or launch in front of it.
#[test]
fn a_refused_packet_has_a_remedy() {
    for (what, remedy) in [
        ("no wait", "put EVENT_WRITE CS_PARTIAL_FLUSH (0x407) behind"),
        (
            "register",
            "correct or leave out the register write at dword",
        ),
        ("opcode", "correct or leave out the packet at dword"),
    ] {
        for fault in [true, false] {
            let gpu = Named::new(Target::Gfx1100);
            let out = gpu.buffer("out", 32);
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "fill", gpu.args(&[out], &[1]));
            match what {
                "register" if fault => {
                    ib.set(0x24F + 1, &[0]);
                }
                "opcode" if fault => {
                    ib.packet(0x12, &[0]);
                }
                _ => {}
            }
            ib.launch(1);
            if !(fault && what == "no wait") {
                ib.flush();
            }
            if fault {
                gpu.rig.submit(&[gpu.vendor(&ib, SYSTEM, 0)]);
                gpu.rig.fault();
            } else {
                gpu.run_ib(&ib);
            }
            verdict(what, fault, &gpu.reports(), PacketRejected, &[remedy]);
        }
    }
}

/// A branch to where no code is takes the place of every wait for vector loads.
#[test]
fn a_wave_that_stops_has_a_remedy() {
    both(|target, fault| {
        let wait = match target {
            Target::Gfx1201 => 0xBFC0_0000_u32,
            _ => 0xBF89_03F7,
        };
        let mut object = fixture(&format!("tests/fixtures/named.{target}.co"));
        for word in object.as_chunks_mut::<4>().0 {
            if fault && *word == wait.to_le_bytes() {
                *word = 0xBFA0_7000_u32.to_le_bytes();
            }
        }
        let gpu = Named::with(config(target), &object);
        let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        ib.launch(1).flush();
        if fault {
            gpu.rig.submit(&[gpu.vendor(&ib, SYSTEM, 0)]);
            gpu.rig.fault();
        } else {
            gpu.run_ib(&ib);
        }
        let place = format!(
            "kernel copy (queue 1, packet 0, dword {})",
            dispatches(&ib)[0]
        );
        let names = [
            &*place,
            "where no instruction of its object begins",
            "correct the branch or the return address that led there",
        ];
        verdict("branch", fault, &gpu.reports(), WaveStopped, &names);
    });
}
