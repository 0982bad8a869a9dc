//! One row per way in which an indirect buffer can be wrong: its words, the dword and the text.

use crate::harness::{Ib, Rig};
use refrain_softgpu::isa::Target;

type Build = fn(&Rig, &mut Ib, u64);

/// State of `add_one`, then what the row adds, then a wait.
fn add_one<'a>(rig: &Rig, ib: &'a mut Ib, kernarg: u64) -> &'a mut Ib {
    ib.state(rig, "add_one", kernarg)
}

const ROWS: &[(&str, Build, &str, u32)] = &[
    (
        "type 0",
        |_, ib, _| ib.0.push(0x1234),
        "dword 0: header 0x00001234 has type 0",
        0x20,
    ),
    (
        "type 1",
        |_, ib, _| ib.0.push(0x4000_0000),
        "has type 1",
        0x20,
    ),
    (
        "predicated",
        |_, ib, _| ib.0.extend([0xC000_1001, 0]),
        "sets bits 0x01",
        0x20,
    ),
    (
        "reserved header bit",
        |_, ib, _| ib.0.extend([0xC000_1080, 0]),
        "sets bits 0x80",
        0x20,
    ),
    (
        "past the end",
        |_, ib, _| ib.0.extend([0xC003_1500, 1, 1]),
        "runs past the end",
        0x20,
    ),
    (
        "unknown opcode",
        |_, ib, _| {
            ib.packet(0xEE, &[0]);
        },
        "opcode 0xee is not known on gfx1201",
        0x20,
    ),
    (
        "gfx11 opcode on gfx12",
        |_, ib, _| {
            ib.packet(0xBB, &[0]);
        },
        "opcode 0xbb is not known on gfx1201",
        0x20,
    ),
    (
        "known but not executed",
        |_, ib, _| {
            ib.packet(0x1E, &[0x0F, 0, 0, 0, 0, 0, 0, 0]);
        },
        "(ATOMIC_MEM): this packet is known but not executed",
        0x20,
    ),
    (
        "nested buffer",
        |_, ib, _| {
            ib.packet(0x3F, &[0x1000, 0, 0x80_0010]);
        },
        "(INDIRECT_BUFFER): this packet is known but not executed",
        0x20,
    ),
    (
        "dispatch of 6 dwords",
        |_, ib, _| {
            ib.packet(0x15, &[1, 1, 1, 0x8005, 0]);
        },
        "DISPATCH_DIRECT of 6 dwords",
        0x20,
    ),
    (
        "register outside the block",
        |_, ib, _| {
            ib.set(0x1FF, &[0]);
        },
        "registers 0x1ff..=0x1ff",
        0x20,
    ),
    (
        "register run past the block",
        |_, ib, _| {
            ib.set(0x27F, &[0, 0]);
        },
        "registers 0x27f..=0x280",
        0x20,
    ),
    (
        "register index",
        |_, ib, _| {
            ib.set(0x3000_0240, &[0]);
        },
        "index 3 must be 0",
        0x20,
    ),
    (
        "VMID",
        |_, ib, _| {
            ib.set(0x214, &[1]);
        },
        "register VMID (0x214) is written by never only",
        0x20,
    ),
    (
        "SE mask",
        |_, ib, _| {
            ib.set(0x216, &[0]);
        },
        "TMPRING_SIZE is 0x218",
        0x20,
    ),
    (
        "wrong RSRC3",
        |_, ib, _| {
            ib.set(0x223, &[0]);
        },
        "PGM_RSRC3 is 0x228",
        0x20,
    ),
    (
        "wrong SE masks",
        |_, ib, _| {
            ib.set(0x230, &[u32::MAX; 4]);
        },
        "shader-engine masks",
        0x20,
    ),
    (
        "hole in the map",
        |_, ib, _| {
            ib.set(0x23F, &[0]);
        },
        "no register 0x23f on gfx1201",
        0x20,
    ),
    (
        "scratch ring",
        |_, ib, _| {
            ib.set(0x218, &[1]);
        },
        "register TMPRING_SIZE (0x218) is 0x1; only 0",
        0x20,
    ),
    (
        "statistics",
        |_, ib, _| {
            ib.set(0x20A, &[1]);
        },
        "PIPELINESTAT_ENABLE",
        0x20,
    ),
    (
        "reserved register bits",
        |_, ib, _| {
            ib.set(0x20D, &[0x100]);
        },
        "bits 0x100 are reserved",
        0x20,
    ),
    (
        "time-stamp event",
        |_, ib, _| {
            ib.packet(0x46, &[0x528]);
        },
        "event 0x28 (BOTTOM_OF_PIPE_TS) index 5",
        0x20,
    ),
    (
        "flush with index 0",
        |_, ib, _| {
            ib.packet(0x46, &[7]);
        },
        "event 0x7 (CS_PARTIAL_FLUSH) index 0",
        0x20,
    ),
    (
        "ranged acquire",
        |_, ib, _| {
            ib.packet(0x58, &[0, 16, 0, 0, 0, 0xA, 0x180]);
        },
        "only the full range",
        0x20,
    ),
    (
        "GLM on gfx12",
        |_, ib, _| {
            ib.acquire(0x1A0);
        },
        "GLM_INV is reserved on gfx1201",
        0x20,
    ),
    (
        "discard",
        |_, ib, _| {
            ib.acquire(0x2180);
        },
        "GL2_DISCARD",
        0x20,
    ),
    (
        "GCR bit 20",
        |_, ib, _| {
            ib.acquire(0x10_0180);
        },
        "bits 0x00100000 are reserved|a reserved bit",
        0x20,
    ),
    (
        "dispatch without state",
        |_, ib, _| {
            ib.launch(1);
        },
        "PGM_LO is read before the first write of the IB",
        0x20,
    ),
    (
        "not a kernel",
        |r, ib, k| {
            add_one(r, ib, k).set(0x20C, &[0x12_3456, 0]).launch(1);
        },
        "PGM 0x12345600 is not the entry",
        8,
    ),
    (
        "refused kernel",
        |r, ib, k| {
            ib.state(r, "needs_scratch", k).launch(1);
        },
        "kernel `needs_scratch` needs 272 bytes",
        8,
    ),
    (
        "wrong RSRC1",
        |r, ib, k| {
            add_one(r, ib, k).set(0x212, &[0]).launch(1);
        },
        "PGM_RSRC1 is 0x00000000, the descriptor",
        8,
    ),
    (
        "PRIV on gfx12",
        |r, ib, k| {
            let d = r.object.find("add_one").unwrap().descriptor;
            add_one(r, ib, k).set(0x212, &[d.rsrc1 | 1 << 20]).launch(1);
        },
        "PGM_RSRC1",
        8,
    ),
    (
        "wrong RSRC2",
        |r, ib, k| {
            let d = r.object.find("add_one").unwrap().descriptor;
            add_one(r, ib, k).set(0x213, &[d.rsrc2 ^ 0x80]).launch(1);
        },
        "PGM_RSRC2",
        8,
    ),
    (
        "no compute shader",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 1, 1, 0x8004]);
        },
        "COMPUTE_SHADER_EN must be set",
        0x20,
    ),
    (
        "wave64",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 1, 1, 0x0005]);
        },
        "CS_W32_EN must be set",
        0x20,
    ),
    (
        "ordered append",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 1, 1, 0x800D]);
        },
        "ORDERED_APPEND_ENBL is not executed",
        0x20,
    ),
    (
        "partial groups",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 1, 1, 0x8007]);
        },
        "PARTIAL_TG_EN is not executed",
        0x20,
    ),
    (
        "no groups",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 0, 1, 0x8005]);
        },
        "dimensions [1, 0, 1]",
        2,
    ),
    (
        "too many groups in y",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[1, 65_536, 1, 0x8005]);
        },
        "limited to 65535",
        2,
    ),
    (
        "a grid like a hang",
        |r, ib, k| {
            add_one(r, ib, k).launch(1 << 30);
        },
        "1073741824 work-groups are more than",
        2,
    ),
    (
        "threads that fill no group",
        |r, ib, k| {
            add_one(r, ib, k).packet(0x15, &[33, 1, 1, 0x8025]);
        },
        "must fill whole groups",
        2,
    ),
    (
        "start",
        |r, ib, k| {
            add_one(r, ib, k).set(0x205, &[3]).launch(1);
        },
        "START_Y is 3",
        2,
    ),
    (
        "group of 0",
        |r, ib, k| {
            add_one(r, ib, k).set(0x208, &[0]).launch(1);
        },
        "NUM_THREAD [32, 0, 1]",
        0x40,
    ),
    (
        "group too large",
        |r, ib, k| {
            add_one(r, ib, k).set(0x207, &[64]).launch(1);
        },
        "product at most 32",
        0x40,
    ),
    (
        "partial thread field",
        |r, ib, k| {
            add_one(r, ib, k).set(0x207, &[0x1_0020]).launch(1);
        },
        "PARTIAL and INTERLEAVE 0",
        0x40,
    ),
    (
        "LDS below the static size",
        |r, ib, k| {
            let d = r.object.find("lds_reverse").unwrap().descriptor;
            ib.state(r, "lds_reverse", k)
                .set(0x213, &[d.rsrc2])
                .launch(1);
        },
        "gives kernel `lds_reverse` 0 bytes; it has 256",
        4,
    ),
    (
        "null kernarg",
        |r, ib, _| {
            ib.state(r, "add_one", 0).launch(1);
        },
        "kernarg address 0x0 in USER_DATA",
        0x20,
    ),
    (
        "misaligned kernarg",
        |r, ib, k| {
            ib.state(r, "add_one", k + 4).launch(1);
        },
        "aligned to 16",
        0x20,
    ),
    (
        "wild kernarg",
        |r, ib, _| {
            ib.state(r, "add_one", 0x1000).launch(1);
        },
        "kernarg address of kernel `add_one`: read of 12 bytes",
        0x2000_0000,
    ),
    (
        "kernarg at a buffer's end",
        |r, ib, k| {
            ib.state(r, "add_one", k + 16).launch(1);
        },
        "of `kernargs`",
        0x2000_0000,
    ),
];

fn run(target: Target, build: Build) -> refrain_softgpu::cp::QueueFault {
    let rig = Rig::new(target);
    let data = rig.memory("data", &[0; 64]);
    let kernarg = rig.memory("kernargs", &[data as u32, (data >> 32) as u32, 64, 0, 0, 0]);
    let mut ib = Ib::default();
    build(&rig, &mut ib, kernarg);
    let va = rig.memory("ib", &ib.0);
    rig.submit(&[Rig::vendor(va, ib.0.len(), 0)]);
    rig.fault()
}

#[test]
fn every_malformed_buffer_stops_the_queue_with_dword_and_reason() {
    for &(name, build, text, code) in ROWS {
        let fault = run(Target::Gfx1201, build);
        let words = fault.to_string();
        assert!(
            text.split('|').any(|text| words.contains(text)),
            "{name}: {words}"
        );
        assert!(
            words.starts_with("queue 1, packet 0 (VENDOR_SPECIFIC") && words.contains("dword "),
            "{name}: {words}"
        );
        assert_eq!(fault.code, code, "{name}: {words}");
    }
}

#[test]
fn each_unset_register_is_named() {
    // Leaving out one SET_SH_REG of a complete state must name the first register that it held.
    let rows = [
        (1, "NUM_THREAD_X"),
        (2, "PGM_LO"),
        (3, "PGM_RSRC1"),
        (4, "PGM_RSRC3"),
        (5, "RESOURCE_LIMITS"),
        (6, "USER_DATA_0"),
    ];
    for (skip, register) in rows {
        let rig = Rig::new(Target::Gfx1201);
        let kernarg = rig.memory("kernargs", &[0; 4]);
        let mut whole = Ib::default();
        whole.state(&rig, "add_one", kernarg).launch(1).flush();
        let mut ib = Ib::default();
        let (mut at, mut index) = (0, 0);
        while at < whole.0.len() {
            let len = ((whole.0[at] >> 16) & 0x3fff) as usize + 2;
            if index != skip {
                ib.0.extend_from_slice(&whole.0[at..at + len]);
            }
            (at, index) = (at + len, index + 1);
        }
        let va = rig.memory("ib", &ib.0);
        rig.submit(&[Rig::vendor(va, ib.0.len(), 0)]);
        let words = rig.fault().to_string();
        assert!(
            words.contains(&format!(
                "register {register} is read before the first write of the IB"
            )),
            "{words}"
        );
    }
}

#[test]
fn a_missing_terminal_wait_is_named() {
    let fault = run(Target::Gfx1201, |rig, ib, kernarg| {
        add_one(rig, ib, kernarg).launch(1).flush().launch(1);
    });
    let words = fault.to_string();
    assert!(
        words.contains("end the IB with EVENT_WRITE CS_PARTIAL_FLUSH"),
        "{words}"
    );
    assert!(words.contains("kernel `add_one`"), "{words}");
}

#[test]
fn what_only_one_generation_allows() {
    let privileged: Build = |rig, ib, kernarg| {
        let descriptor = rig.object.find("add_one").unwrap().descriptor;
        add_one(rig, ib, kernarg)
            .set(0x212, &[descriptor.rsrc1 | 1 << 20])
            .acquire(0x1_C3F1)
            .launch(1);
    };
    // On gfx11 PRIV and the GL1 and GLM bits are fine, so that only the missing wait is left.
    let words = run(Target::Gfx1100, privileged).to_string();
    assert!(words.contains("CS_PARTIAL_FLUSH"), "{words}");
    // gfx12 tolerates bit 9 (GL1) but not bits 4 and 5 (GLM).
    let words = run(Target::Gfx1201, |rig, ib, kernarg| {
        add_one(rig, ib, kernarg).acquire(0x380).launch(1);
    });
    assert!(words.to_string().contains("CS_PARTIAL_FLUSH"), "{words}");
    let words = run(Target::Gfx1201, |_, ib, _| {
        ib.acquire(0x1_C3F1);
    })
    .to_string();
    assert!(words.contains("GLM_WB is reserved on gfx1201"), "{words}");
}
