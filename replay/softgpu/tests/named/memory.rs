//! Bounds, rights, definedness and declarations.

use crate::harness::{BARRIER_BIT, Ib, Rig};
use crate::rig::{Named, SYSTEM, both, verdict};
use refrain_softgpu::memory::{Kind, Rights};
use refrain_softgpu::strict::ReportKind::{
    OutOfBounds, PacketMemoryWritten, UndeclaredLaunch, UndeclaredRead, UndeclaredWrite,
    UninitialisedRead,
};
use refrain_softgpu::strict::{
    Declarations, DeclaredArg, DeclaredBuffer, DeclaredExtent, DeclaredLaunch, DeclaredRange,
};

fn range(va: u64, bytes: u64) -> DeclaredRange {
    DeclaredRange {
        va,
        extent: DeclaredExtent::Bytes(bytes),
    }
}

fn launch(step: &str, kernel: &str, args: Vec<DeclaredArg>) -> DeclaredLaunch {
    DeclaredLaunch {
        step: step.into(),
        kernel: kernel.into(),
        args,
    }
}

fn arg(name: &str, va: u64, reads: Vec<DeclaredRange>, writes: Vec<DeclaredRange>) -> DeclaredArg {
    DeclaredArg {
        name: name.into(),
        va,
        reads,
        writes,
    }
}

/// Submits a packet that stops the queue, or runs to its end.
fn run_or_fault(gpu: &Named, fault: bool, packet: crate::harness::Packet) {
    if fault {
        gpu.rig.submit(&[packet]);
        gpu.rig.fault();
    } else {
        gpu.run(&[packet]);
    }
}

/// vllm 13418 is of this kind too: a kernel that takes the padded size for the real one.
#[test]
fn issue_vllm_13418_2048_floats_written_as_4096() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let scratch = gpu.buffer("scratch", 2048);
        let groups = if fault { 128 } else { 64 };
        let packet = gpu.packet(
            "fill",
            groups,
            gpu.args(&[scratch], &[7]),
            BARRIER_BIT | SYSTEM,
        );
        run_or_fault(&gpu, fault, packet);
        let names = [
            "kernel fill",
            "scratch",
            "which has 8192 bytes",
            "argument 0 (offset 0)",
            "global_store_b32",
            "check the buffer size, the grid and the offset",
        ];
        let reports = gpu.reports();
        verdict("past the end", fault, &reports, OutOfBounds, &names);
        for report in &reports {
            // Groups run in any order; each writes 128 bytes from a multiple of that.
            let bytes = report.bytes.as_ref().unwrap();
            assert!((8192..16384).contains(&bytes.offset), "{report}");
            assert_eq!((bytes.offset % 128, bytes.len), (0, 4), "{report}");
            let past = format!("reaches {} bytes past the end", bytes.offset + 4 - 8192);
            assert!(report.detail.contains(&past), "{report}");
        }
    });
}

#[test]
fn inside_an_arena_the_declaration_is_the_bound() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let arena = gpu.buffer("scratch", 8192);
        gpu.rig.gpu.declare(Declarations {
            buffers: vec![DeclaredBuffer {
                name: "ffn.gate".into(),
                va: arena,
                len: 4 * 8192,
            }],
            launches: vec![launch(
                "blk.0.gate",
                "fill",
                vec![arg("y", arena, vec![], vec![range(arena, 8192)])],
            )],
        });
        let groups = if fault { 128 } else { 64 };
        gpu.run(&[gpu.packet(
            "fill",
            groups,
            gpu.args(&[arena], &[7]),
            BARRIER_BIT | SYSTEM,
        )]);
        // Exactly the 8,192 bytes past the declared end.
        let names = [
            "step blk.0.gate, kernel fill",
            "argument y",
            "ffn.gate bytes 8192..16384",
        ];
        verdict("arena", fault, &gpu.reports(), UndeclaredWrite, &names);
    });
}

/// A token of copy and fill whose fill is missing: the next copy is judged as the next token's, and
/// later tokens are on their turn.
#[test]
fn a_missing_launch_does_not_end_the_judging() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (a, b) = (gpu.buffer("a", 32), gpu.buffer("b", 32));
        let copy = DeclaredLaunch {
            step: "state.copy".into(),
            kernel: "copy".into(),
            args: vec![
                arg("dst", a, vec![], vec![range(a, 128)]),
                arg("src", b, vec![range(b, 128)], vec![]),
            ],
        };
        let fill = DeclaredLaunch {
            step: "state.fill".into(),
            kernel: "fill".into(),
            args: vec![arg("dst", b, vec![], vec![range(b, 128)])],
        };
        gpu.rig.gpu.declare(Declarations {
            buffers: Vec::new(),
            launches: vec![copy, fill],
        });
        let packet = |kernel, pointers: &[u64], values: &[u32]| {
            gpu.packet(kernel, 1, gpu.args(pointers, values), BARRIER_BIT | SYSTEM)
        };
        let copy = packet("copy", &[a, b], &[]);
        let swapped = packet("copy", &[b, a], &[]);
        let (fill, elsewhere) = (packet("fill", &[b], &[1]), packet("fill", &[a], &[1]));
        if fault {
            gpu.run(&[copy, swapped, fill, copy, elsewhere]);
            let kinds: Vec<_> = gpu.reports().iter().map(|report| report.kind).collect();
            let judged = [UndeclaredRead, UndeclaredWrite, UndeclaredWrite];
            assert_eq!(kinds[..1], [UndeclaredLaunch]);
            assert_eq!(kinds[1..], judged);
        } else {
            gpu.run(&[copy, fill, copy, fill]);
            assert_eq!(gpu.reports(), []);
        }
    });
}

#[test]
fn an_undeclared_read_names_step_and_bytes() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 64), gpu.buffer("out", 64));
        let declared = if fault { 128 } else { 256 };
        gpu.rig.gpu.declare(Declarations {
            buffers: vec![],
            launches: vec![launch(
                "copy.x",
                "copy",
                vec![
                    arg("dst", out, vec![], vec![range(out, 256)]),
                    arg("src", x, vec![range(x, declared)], vec![]),
                ],
            )],
        });
        gpu.run(&[gpu.packet("copy", 2, gpu.args(&[out, x], &[]), BARRIER_BIT | SYSTEM)]);
        let names = ["step copy.x", "argument src", "x bytes 128..256"];
        verdict(
            "undeclared read",
            fault,
            &gpu.reports(),
            UndeclaredRead,
            &names,
        );
    });
}

/// The position is an argument by value: the second replay writes the first row again.
#[test]
fn a_position_by_value_is_replayed_stale() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (cache, row, pos) = (
            gpu.buffer("kv.k.0", 128),
            gpu.buffer("row", 32),
            gpu.buffer("pos", 1),
        );
        let rows = DeclaredRange {
            va: cache,
            extent: DeclaredExtent::Row {
                word: pos,
                stride: 128,
                bytes: 128,
                count: 4,
            },
        };
        let kernel = if fault { "store_row_at" } else { "store_row" };
        let word = range(pos, 4);
        gpu.rig.gpu.declare(Declarations {
            buffers: vec![],
            launches: vec![
                launch(
                    "blk.0.kv_write",
                    kernel,
                    vec![
                        arg("kcache", cache, vec![], vec![rows]),
                        arg("row", row, vec![range(row, 128)], vec![]),
                        arg("pos", pos, vec![word], vec![]),
                    ],
                ),
                launch(
                    "advance",
                    "advance",
                    vec![arg("pos", pos, vec![word], vec![word])],
                ),
            ],
        });
        let args = if fault {
            gpu.args(&[cache, row], &[0])
        } else {
            gpu.args(&[cache, row, pos], &[])
        };
        let advance = gpu.args(&[pos], &[]);
        let mut token = Ib::default();
        token
            .state(&gpu.rig, kernel, args)
            .launch(1)
            .flush()
            .acquire(crate::rig::AGENT_GCR);
        token.state(&gpu.rig, "advance", advance).launch(1).flush();
        gpu.run_ib(&token);
        assert_eq!(gpu.reports(), [], "the first token is right either way");
        gpu.run_ib(&token);
        let names = [
            "step blk.0.kv_write",
            "argument kcache",
            "kv.k.0 bytes 0..128",
        ];
        verdict("by value", fault, &gpu.reports(), UndeclaredWrite, &names);
    });
}

/// ROCm/aiter 3632: a workspace that nobody initialised.
#[test]
fn issue_aiter_3632_an_uninitialised_workspace_is_read() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 64);
        let workspace = gpu.empty("workspace", 64);
        // All but the last word.
        gpu.rig.write(workspace, &[1; 63]);
        if !fault {
            gpu.rig.write(workspace + 252, &[1]);
        }
        gpu.run(&[gpu.packet(
            "copy",
            2,
            gpu.args(&[out, workspace], &[]),
            BARRIER_BIT | SYSTEM,
        )]);
        let reports = gpu.reports();
        // The poison that is stored is reported where it is stored.
        let reads: Vec<_> = reports
            .iter()
            .filter(|r| r.kind == UninitialisedRead)
            .cloned()
            .collect();
        assert_eq!(reports.is_empty(), !fault);
        let names = [
            "kernel copy",
            "workspace bytes 252..256",
            "lane 31",
            "global_load_b32",
        ];
        verdict("uninitialised", fault, &reads, UninitialisedRead, &names);
    });
}

/// vllm 40038: a buffer that was given back is used by a replay.
#[test]
fn issue_vllm_40038_a_freed_buffer_is_used() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (lora, out) = (gpu.buffer("lora", 32), gpu.buffer("out", 32));
        let packet = gpu.packet("copy", 1, gpu.args(&[out, lora], &[]), BARRIER_BIT | SYSTEM);
        gpu.run(&[packet]);
        if fault {
            gpu.rig.gpu.memory().free(lora).unwrap();
        }
        run_or_fault(&gpu, fault, packet);
        verdict(
            "freed",
            fault,
            &gpu.reports(),
            OutOfBounds,
            &["kernel copy", "lora", "was freed"],
        );
    });
}

#[test]
fn kernels_must_not_write_packets_code_or_arguments() {
    for target in crate::rig::TARGETS {
        for (what, name) in [
            ("ring", "queue 1 ring"),
            ("code", "code"),
            ("ib", "packets"),
            ("arguments", "arguments"),
        ] {
            let gpu = Named::new(target);
            let memory = gpu.rig.gpu.memory();
            let victim = match what {
                "ring" => gpu.rig.queue.ring_va() + 640,
                "code" => gpu.rig.object.find("fill").unwrap().entry_va,
                "ib" => {
                    let rights = Rights::CODE.union(Rights::HOST);
                    memory
                        .alloc("packets", 256, 256, rights, Kind::IndirectBuffer)
                        .unwrap()
                }
                _ => gpu.args(&[], &[]),
            };
            let out = gpu.buffer("out", 2);
            for fault in [false, true] {
                let at = if fault { victim } else { out };
                let args = gpu.args(&[at], &[1, 0]);
                let packet = gpu.packet("store_word", 1, args, BARRIER_BIT | SYSTEM);
                // Code and indirect buffers are read-only to the device: the queue stops.
                run_or_fault(&gpu, fault && (what == "code" || what == "ib"), packet);
                let names = ["kernel store_word", name];
                verdict(what, fault, &gpu.reports(), PacketMemoryWritten, &names);
            }
        }
    }
}

#[test]
fn footprints_are_exact_and_come_back_from_their_file() {
    use refrain_softgpu::strict::{StrictConfig, read_footprints, write_footprints};
    for target in crate::rig::TARGETS {
        let mut config = crate::rig::config(target);
        config.strict = Some(StrictConfig {
            footprints: 2,
            ..StrictConfig::default()
        });
        let object = crate::harness::fixture(&format!("tests/fixtures/named.{target}.co"));
        let gpu = Named::with(config, &object);
        let (x, out) = (gpu.buffer("x", 96), gpu.buffer("out", 64));
        let args = gpu.args(&[out, x + 64], &[]);
        let packet = gpu.packet("add", 2, args, BARRIER_BIT | SYSTEM);
        gpu.run(&[packet, packet, packet]);
        assert_eq!(gpu.reports(), []);
        let footprints = gpu.rig.gpu.take_footprints();
        let text = |list: &[refrain_softgpu::strict::FootprintExtent]| -> Vec<String> {
            let mut list: Vec<String> = list
                .iter()
                .map(|e| format!("{} {}..{}", e.buffer, e.offset, e.offset + e.len))
                .filter(|text| !text.starts_with("arguments"))
                .collect();
            list.sort();
            list
        };
        assert_eq!(footprints.len(), 2);
        for (footprint, packet) in footprints.iter().zip(1..) {
            assert_eq!((&*footprint.kernel, footprint.packet), ("add", packet));
            assert_eq!(text(&footprint.reads), ["out 0..256", "x 64..320"]);
            assert_eq!(text(&footprint.writes), ["out 0..256"]);
        }
        let file = write_footprints(&footprints);
        assert!(file.len() < 200, "{} bytes", file.len());
        assert_eq!(read_footprints(&file).unwrap(), footprints);
        let _: &Rig = &gpu.rig;
    }
}

#[test]
fn a_launch_that_is_not_the_declared_one_is_named() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        gpu.rig.gpu.declare(Declarations {
            buffers: vec![],
            launches: vec![
                launch(
                    "token.pos",
                    "advance",
                    vec![arg("pos", out, vec![range(out, 4)], vec![range(out, 4)])],
                ),
                launch("token.fill", "fill", vec![]),
            ],
        });
        let kernel = if fault { "same_words" } else { "advance" };
        let header = BARRIER_BIT | SYSTEM;
        gpu.run(&[gpu.packet(kernel, 1, gpu.args(&[out], &[1]), header)]);
        let names = [
            "kernel same_words (queue 1, packet 0)",
            "declared as step token.pos with kernel advance, found kernel same_words",
            "declare the launches in the order in which they are made",
        ];
        verdict("stranger", fault, &gpu.reports(), UndeclaredLaunch, &names);
    });
}

/// The host rewrites an indirect buffer that it has rung the doorbell for.
#[test]
fn an_indirect_buffer_that_changes_behind_its_doorbell() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let mut ib = Ib::default();
        // A NOP, whose body means nothing.
        ib.packet(0x10, &[0, 0]);
        ib.state(&gpu.rig, "fill", gpu.args(&[out], &[1]))
            .launch(1)
            .flush();
        let va = gpu.ib(&ib);
        let mut packet = Rig::vendor(va, ib.0.len(), 0);
        crate::harness::put(&mut packet, 0, &(BARRIER_BIT | SYSTEM).to_le_bytes());
        gpu.gated(&[packet], || {
            if fault {
                gpu.rig.write(va + 4, &[5]);
            }
        });
        let names = [
            "packet-memory-written: kernel of an indirect buffer (queue 1, packet 1)",
            "ib bytes 0..",
            "differs from what it was at the doorbell",
        ];
        let reports = gpu.reports();
        verdict("rewritten", fault, &reports, PacketMemoryWritten, &names);
    });
}
