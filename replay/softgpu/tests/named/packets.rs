//! What a packet relies on, and what code relies on.

use crate::harness::{BARRIER_BIT, Ib, fixture};
use crate::rig::{Named, SYSTEM, both, config, verdict};
use refrain_softgpu::isa::Target;
use refrain_softgpu::strict::ReportKind::{
    MissingWaitcnt, PacketRejected, PrefetchPastEnd, RegisterUnset,
};
use refrain_softgpu::strict::StrictConfig;

/// Runs an indirect buffer that stops the queue, or runs to its end.
fn run_or_fault(gpu: &Named, fault: bool, ib: &Ib) {
    if fault {
        gpu.rig.submit(&[gpu.vendor(ib, SYSTEM, 0)]);
        gpu.rig.fault();
    } else {
        gpu.run_ib(ib);
    }
}

#[test]
fn the_wrong_gfx12_register_map_is_named() {
    for (register, hint) in [
        (0x223, "PGM_RSRC3 is 0x228"),
        (0x216, "TMPRING_SIZE is 0x218"),
        (0x230, "shader-engine masks are 0x216"),
    ] {
        for fault in [true, false] {
            let gpu = Named::new(Target::Gfx1201);
            let out = gpu.buffer("out", 32);
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "fill", gpu.args(&[out], &[1]));
            if fault {
                ib.set(register, &[0xFFFF_FFFF]);
            }
            ib.launch(1).flush();
            run_or_fault(&gpu, fault, &ib);
            verdict(
                "register map",
                fault,
                &gpu.reports(),
                PacketRejected,
                &[hint, "dword"],
            );
        }
    }
}

#[test]
fn a_register_that_only_an_earlier_buffer_wrote() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let args = gpu.args(&[out], &[1]);
        let mut whole = Ib::default();
        whole.state(&gpu.rig, "fill", args).launch(1).flush();
        gpu.run_ib(&whole);
        // The second buffer leaves RESOURCE_LIMITS to the first.
        let mut second = Ib::default();
        second.state(&gpu.rig, "fill", args).launch(1).flush();
        if fault {
            let at = second
                .0
                .windows(2)
                .position(|pair| pair == [0xC001_7600, 0x215 - 0x200]);
            let at = at.or_else(|| {
                second
                    .0
                    .windows(2)
                    .position(|pair| pair == [0xC001_7600, 0x215])
            });
            second.0.drain(at.unwrap()..at.unwrap() + 3);
        }
        run_or_fault(&gpu, fault, &second);
        verdict(
            "register",
            fault,
            &gpu.reports(),
            RegisterUnset,
            &[
                "RESOURCE_LIMITS",
                "earlier IB left",
                "with SET_SH_REG in the same indirect buffer, before dword",
            ],
        );
    });
}

#[test]
fn instruction_prefetch_past_the_end_of_the_mapping() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 2);
        // The last kernel of the object; the largest prefetch reaches past the code.
        let kernel = gpu.rig.object.find("store_word").unwrap();
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "store_word", gpu.args(&[out], &[1, 0]));
        if fault {
            let field = if target == Target::Gfx1201 {
                0xff0
            } else {
                0x3f0
            };
            ib.set(0x228, &[kernel.descriptor.rsrc3 | field]);
        }
        ib.launch(1).flush();
        gpu.run_ib(&ib);
        let names = [
            "kernel store_word",
            "INST_PREF_SIZE",
            "past the end of the mapping",
            "256 bytes",
        ];
        verdict("prefetch", fault, &gpu.reports(), PrefetchPastEnd, &names);
    });
}

#[test]
fn a_wait_that_is_taken_out_of_the_code_is_missed() {
    both(|target, fault| {
        // s_waitcnt vmcnt(0), on gfx12 s_wait_loadcnt 0; an s_nop takes its place in every kernel.
        let (word, counter) = match target {
            Target::Gfx1201 => (0xBFC0_0000_u32, "loadcnt"),
            _ => (0xBF89_03F7, "vmcnt"),
        };
        let mut object = fixture(&format!("tests/fixtures/named.{target}.co"));
        if fault {
            let wait = word.to_le_bytes();
            let mut found = 0;
            for at in (0..object.len() - 3).step_by(4) {
                if object[at..at + 4] == wait {
                    object[at..at + 4].copy_from_slice(&0xBF80_0000_u32.to_le_bytes());
                    found += 1;
                }
            }
            assert!(found > 0);
        }
        let gpu = Named::with(config(target), &object);
        let (out, x) = (gpu.buffer("out", 32), gpu.buffer("x", 32));
        gpu.run(&[gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM)]);
        let remedy = format!("wait until {counter} is at most 0 before this instruction");
        let names = [
            "missing-waitcnt: kernel copy (queue 1, packet 0)",
            &*remedy,
            "global_store_b32",
        ];
        verdict("waitcnt", fault, &gpu.reports(), MissingWaitcnt, &names);
    });
}

#[test]
fn the_first_report_stops_the_queue_if_it_is_to() {
    let mut config = config(Target::Gfx1100);
    config.strict = Some(StrictConfig {
        stop_at_first: true,
        ..StrictConfig::default()
    });
    let gpu = Named::with(config, &fixture("tests/fixtures/named.gfx1100.co"));
    let (out, x) = (gpu.buffer("out", 32), gpu.empty("x", 32));
    gpu.rig
        .submit(&[gpu.packet("copy", 1, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM)]);
    let fault = gpu.rig.fault().to_string();
    assert!(fault.contains("uninitialised-read: kernel copy"), "{fault}");
    assert!(gpu.rig.queue.is_poisoned());
}

/// The LLVM 19 miscompile of `v_permlanex16_b32`: no hazard, a wrong number. The lint of
/// `cargo xtask kernels --lint` names the instruction; its test has this object's listing.
#[test]
fn llvm_19_permlane_miscompile_gives_a_wrong_sum() {
    for (object, right) in [("permlane.miscompiled", false), ("permlane", true)] {
        let bytes = fixture(&format!("tests/fixtures/{object}.gfx1100.co"));
        let gpu = Named::with(config(Target::Gfx1100), &bytes);
        let (out, x) = (gpu.buffer("out", 1), gpu.buffer("x", 32));
        let args = gpu.args(&[out, x], &[]);
        gpu.run(&[gpu.packet("wave_total", 1, args, BARRIER_BIT | SYSTEM)]);
        let reference: u32 = (0..32).sum();
        assert_eq!(gpu.rig.read(out, 1) == [reference], right, "{object}");
    }
}

/// One map serves both generations. What the wrong map and each generation's own registers do on the
/// other: a refusal that says which register is meant, or that there is none.
#[test]
fn the_register_map_of_the_other_generation_is_named() {
    use Target::{Gfx1100, Gfx1201};
    for (target, register, value, hint) in [
        // The wrong gfx12 map on gfx11.
        (
            Gfx1100,
            0x223,
            0,
            "no register 0x223 on gfx1100; PGM_RSRC3 is 0x228",
        ),
        (Gfx1100, 0x216, u32::MAX, "TMPRING_SIZE is 0x218"),
        (Gfx1100, 0x230, u32::MAX, "shader-engine masks are 0x216"),
        // What only gfx12 has, on gfx11: a register, and a bit of one that both have.
        (Gfx1100, 0x235, 1, "no register 0x235 on gfx1100"),
        (Gfx1201, 0x235, 1, "PRESCALED_DIM_X"),
        (Gfx1100, 0x228, 0x2000, "PGM_RSRC3"),
        // RELAUNCH and WAVE_RESTORE of gfx10 are masks of gfx11 and gfx12.
        (Gfx1100, 0x22b, 1, "STATIC_THREAD_MGMT_SE4"),
        (Gfx1201, 0x22b, 1, "STATIC_THREAD_MGMT_SE4"),
        (Gfx1100, 0x22c, 1, "STATIC_THREAD_MGMT_SE5"),
        (Gfx1201, 0x22c, 1, "STATIC_THREAD_MGMT_SE5"),
    ] {
        for fault in [true, false] {
            let gpu = Named::new(target);
            let out = gpu.buffer("out", 32);
            let mut ib = Ib::default();
            ib.state(&gpu.rig, "fill", gpu.args(&[out], &[1]));
            if fault {
                ib.set(register, &[value]);
            }
            ib.launch(1).flush();
            run_or_fault(&gpu, fault, &ib);
            let what = format!("{target} {register:#x}");
            verdict(
                &what,
                fault,
                &gpu.reports(),
                PacketRejected,
                &[hint, "dword"],
            );
        }
    }
}
