//! Launches that must be refused, waves that must be stopped, order, barriers, and bad code.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use refrain_softgpu::exec::{
    Dispatch, ExecError, LaunchProblem, Program, RunConfig, WaveFault, run_batch,
};
use refrain_softgpu::isa::{Target, disassemble};
use refrain_softgpu::memory::{AddressSpace, FaultReason, Kind, Rights};
use std::sync::Arc;
use support::{Args, CONFIG, Gpu, Random};

const ENDPGM: u32 = 0xbfb0_0000;
const CODE_VA: u64 = 0x10000;

fn program(target: Target, words: &[u32]) -> Arc<Program> {
    let bytes = support::bytes(words.iter().copied());
    Arc::new(Program::decode(target, CODE_VA, &bytes).unwrap())
}

/// A dispatch of one work-group of `waves` waves.
fn dispatch(program: &Arc<Program>, waves: u32) -> Dispatch {
    Dispatch {
        program: program.clone(),
        entry_va: CODE_VA,
        name: "test".into(),
        rsrc1: 0x00af_0002,
        rsrc2: 2 << 1,
        rsrc3: 0,
        user_sgprs: [0; 16],
        user_sgpr_count: 2,
        groups: [1, 1, 1],
        group_size: [32 * waves, 1, 1],
        lds_bytes: 0,
        scratch_bytes: 0,
        tag: 42,
    }
}

fn wave_fault(d: &Dispatch, config: &RunConfig) -> WaveFault {
    match run_batch(&AddressSpace::new(), std::slice::from_ref(d), config) {
        Err(ExecError::Wave(e)) => {
            assert_eq!((e.tag, &*e.kernel), (42, "test"));
            e.fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hang_is_a_budget() {
    for target in Target::ALL {
        let d = dispatch(&program(target, &[0xbfa0_ffff]), 2);
        let config = RunConfig {
            wave_budget: 1000,
            ..CONFIG
        };
        assert_eq!(wave_fault(&d, &config), WaveFault::Budget { budget: 1000 });
    }
}

#[test]
fn barriers_complete_among_the_waves_that_are_left() {
    // v_readfirstlane_b32 s4, v0; s_cmp_lg_u32 s4, 0; s_cbranch_scc1 over the barrier.
    let head = [0x7e08_0500, 0xbf07_8004];
    for seed in 0..20 {
        let config = RunConfig { seed, ..CONFIG };
        for target in [Target::Gfx1100, Target::Gfx1151] {
            let words = [head[0], head[1], 0xbfa2_0001, 0xbfbd_0000, ENDPGM];
            let d = dispatch(&program(target, &words), 8);
            let stats = run_batch(&AddressSpace::new(), &[d], &config).unwrap();
            assert_eq!((stats.waves, stats.instructions), (8, 7 * 4 + 5));
        }
        let split = [
            head[0],
            head[1],
            0xbfa2_0002,
            0xbe80_4ec1,
            0xbf94_ffff,
            ENDPGM,
        ];
        let d = dispatch(&program(Target::Gfx1201, &split), 8);
        let stats = run_batch(&AddressSpace::new(), &[d], &config).unwrap();
        assert_eq!(stats.instructions, 7 * 4 + 6);
    }
    // A wait without a signal can never complete.
    let d = dispatch(&program(Target::Gfx1201, &[0xbf94_ffff, ENDPGM]), 3);
    assert_eq!(
        wave_fault(&d, &CONFIG),
        WaveFault::Deadlock {
            waiting: 3,
            ended: 0
        }
    );
}

#[test]
fn counts_are_architectural() {
    // s_nop counts, a VOPD counts once, and a branch into a run of no-ops counts only the rest.
    let dual = [0xc8d0_1506, 0x0408_0107];
    let nop = 0xbf80_0000;
    let cases = [
        (vec![nop, nop, 0x7e02_0281, nop, nop, nop, ENDPGM], 7),
        (vec![dual[0], dual[1], nop, ENDPGM], 3),
        (vec![0xbfa0_0002, nop, nop, nop, nop, ENDPGM], 4),
        (vec![0x7e02_0281, nop, 0xbfa0_0000, nop, ENDPGM], 5),
    ];
    for target in Target::ALL {
        for (words, want) in &cases {
            let d = dispatch(&program(target, words), 3);
            let stats = run_batch(&AddressSpace::new(), &[d], &CONFIG).unwrap();
            assert_eq!(stats.instructions, 3 * want, "{target} {words:08x?}");
        }
    }
}

#[test]
fn bad_words_matter_only_when_reached() {
    for target in Target::ALL {
        let good = dispatch(&program(target, &[ENDPGM, 0xffff_ffff]), 1);
        run_batch(&AddressSpace::new(), &[good], &CONFIG).unwrap();
        let bad = dispatch(&program(target, &[0xffff_ffff, ENDPGM]), 1);
        let fault = wave_fault(&bad, &CONFIG);
        let text = fault.to_string();
        assert!(matches!(fault, WaveFault::Undecodable(_)), "{text}");
        assert!(
            text.contains(target.name()) && text.contains("0x10000") && text.contains("ffffffff")
        );
        // A known format with an unknown opcode says so.
        let bad = dispatch(&program(target, &[0xbfff_0000]), 1);
        assert!(
            wave_fault(&bad, &CONFIG)
                .to_string()
                .contains("Sopp opcode 127")
        );
        // Running off the end, and jumping into the middle of an instruction or away.
        let off = dispatch(&program(target, &[0xbf80_0000]), 1);
        assert!(matches!(
            wave_fault(&off, &CONFIG),
            WaveFault::Undecodable(_)
        ));
        let into = dispatch(&program(target, &[0xbfa0_0001, 0xbe84_00ff, 7, ENDPGM]), 1);
        assert_eq!(
            wave_fault(&into, &CONFIG),
            WaveFault::Jump {
                address: CODE_VA + 8,
                place: format!("{:#x}, which belongs to no allocation", CODE_VA + 8),
            }
        );
        let away = dispatch(&program(target, &[0xbfa0_8000]), 1);
        assert!(matches!(wave_fault(&away, &CONFIG), WaveFault::Jump { .. }));
    }
}

#[test]
fn impossible_launches_are_refused_with_their_reason() {
    let p = program(Target::Gfx1201, &[0x7e50_02ff, 1, ENDPGM]); // v_mov_b32 v40, 1
    let base = Dispatch {
        rsrc1: 0x000f_0005,
        ..dispatch(&p, 1)
    };
    run_batch(&AddressSpace::new(), std::slice::from_ref(&base), &CONFIG).unwrap();
    type Change = fn(&mut Dispatch);
    let cases: [(Change, &str); 10] = [
        (|d| d.entry_va += 4, "no instruction begins at entry"),
        (|d| d.entry_va = 4, "no instruction begins at entry"),
        (|d| d.group_size = [0, 1, 1], "work-group of"),
        (|d| d.group_size = [1024, 2, 1], "work-group of"),
        (|d| d.groups = [1, 0, 1], "grid of"),
        (|d| d.groups = [1, 65536, 1], "grid of"),
        (|d| d.lds_bytes = 65537, "bytes of LDS"),
        (
            |d| d.rsrc1 = 0x000f_0004,
            "uses v0..v40, RSRC1 allocates 40",
        ),
        (|d| d.user_sgpr_count = 17, "user SGPRs"),
        (|d| d.scratch_bytes = 1 << 20, "bytes of scratch"),
    ];
    for (change, want) in cases {
        let mut d = base.clone();
        change(&mut d);
        let error = run_batch(&AddressSpace::new(), &[d], &CONFIG).unwrap_err();
        assert!(
            matches!(error, ExecError::Launch { tag: 42, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains(want),
            "`{error}` does not say `{want}`"
        );
    }
    let huge = Dispatch {
        groups: [u32::MAX, 65535, 65535],
        ..base
    };
    let config = RunConfig {
        wave_budget: 1,
        ..CONFIG
    };
    // 2^64 work-groups are legal to ask for; a hang in the first one still ends the run.
    let hang = Dispatch {
        program: program(Target::Gfx1201, &[0xbfa0_ffff]),
        ..huge
    };
    assert_eq!(wave_fault(&hang, &config), WaveFault::Budget { budget: 1 });
}

#[test]
fn a_wave_follows_its_mode_as_it_changes() {
    // v0 = 0, v1 = 1.0, v2 = 1e-9; the sum rounded up, then to nearest; singles flushed by
    // s_setreg_imm32 on MODE[5:4]; 1 + 1 as bits, which flushes to 0 and compares equal to it (else
    // the branch jumps over what follows); s_denorm_mode 15; the same sum kept.
    let head = [
        0x7e00_0280,
        0x7e02_02f2,
        0x7e04_02ff,
        0x3089_705f,
        0xbf91_0001,
        0x0606_0501,
        0xbf91_0000,
        0x0608_0501,
        0xb980_0901,
        0,
        0xd503_0005,
        0x0001_0281,
        0x7c24_0081,
        0xbfa3_0001,
        0xbf92_000f,
        0xd503_0006,
        0x0001_0281,
    ];
    // global_store_b128 v0, v[3:6], s[0:1]
    let store = |target| match target {
        Target::Gfx1201 => vec![0xee07_4000, 0x0180_0000, 0, ENDPGM],
        _ => vec![0xdc76_0000, 0x0000_0300, ENDPGM],
    };
    for target in Target::ALL {
        let words = [head.to_vec(), store(target)].concat();
        let memory = AddressSpace::new();
        let va = memory
            .alloc("out", 16, 16, Rights::READ_WRITE, Kind::Device)
            .unwrap();
        let mut d = dispatch(&program(target, &words), 1);
        (d.user_sgprs[0], d.user_sgprs[1]) = (va as u32, (va >> 32) as u32);
        run_batch(&memory, &[d.clone()], &CONFIG).unwrap();
        let read = || {
            let mut bytes = [0; 16];
            memory.read_bytes(va, &mut bytes).unwrap();
            let words = bytes.as_chunks::<4>().0;
            words
                .iter()
                .map(|w| u32::from_le_bytes(*w))
                .collect::<Vec<_>>()
        };
        assert_eq!(read(), [0x3f80_0001, 0x3f80_0000, 0, 2], "{target}");
        // The launch decides the mode to begin with: denormals of singles flushed.
        d.rsrc1 &= !(3 << 16);
        run_batch(&memory, &[d], &CONFIG).unwrap();
        assert_eq!(read(), [0x3f80_0001, 0x3f80_0000, 0, 2], "{target}");
    }
}

#[test]
fn odd_code_lengths_are_refused() {
    let error = Program::decode(Target::Gfx1100, 0, &[0; 6]).unwrap_err();
    assert!(error.to_string().contains("6 bytes"), "{error}");
    assert!(disassemble(Target::Gfx1100, 0, &[0; 3]).is_err());
}

#[test]
fn memory_faults_name_kernel_instruction_lane_and_buffer() {
    for target in Target::ALL {
        let gpu = Gpu::shipped(target);
        let (rows, k) = (16u32, 32u32);
        let w = gpu.f32s("weights", &vec![1.0; (rows * k) as usize]);
        let x = gpu.f32s("input", &vec![1.0; k as usize]);
        let y = gpu.empty("output", u64::from(rows - 4) * 4);
        let args = Args::default().ptr(w).ptr(x).ptr(y).u32(0).u32(rows).u32(k);
        let d = gpu.dispatch("gemv_f32", 1, 256, &args);
        let error = gpu.go(std::slice::from_ref(&d)).unwrap_err();
        let fault = error.memory().unwrap();
        assert_eq!(fault.reason, FaultReason::OutOfBounds);
        let text = error.to_string();
        for word in [
            "gemv_f32",
            "group (0, 0, 0)",
            "global_store_b32",
            "lane",
            "`output`",
            "write",
        ] {
            assert!(text.contains(word), "`{text}` lacks `{word}`");
        }
        // The same launch with its input freed, and with a read-only output.
        let y = gpu.empty("output", u64::from(rows) * 4);
        let args = Args::default().ptr(w).ptr(x).ptr(y).u32(0).u32(rows).u32(k);
        let d = gpu.dispatch("gemv_f32", 1, 256, &args);
        gpu.go(std::slice::from_ref(&d)).unwrap();
        gpu.memory.set_rights(y, Rights::READ).unwrap();
        let error = gpu.go(std::slice::from_ref(&d)).unwrap_err();
        assert_eq!(
            error.memory().unwrap().reason,
            FaultReason::Rights,
            "{error}"
        );
        gpu.memory.free(x).unwrap();
        let error = gpu.go(&[d]).unwrap_err();
        assert_eq!(
            error.memory().unwrap().reason,
            FaultReason::Freed,
            "{error}"
        );
        assert!(error.to_string().contains("`input`"), "{error}");
        // A kernel that uses LDS, dispatched without any.
        let args = Args::default().ptr(w).ptr(w).ptr(y).u32(4).f32(0.0);
        let d = Dispatch {
            lds_bytes: 0,
            ..gpu.dispatch("rmsnorm", 1, 256, &args)
        };
        let error = gpu.go(&[d]).unwrap_err().to_string();
        assert!(
            error.contains("LDS offset") && error.contains("group_segment_size"),
            "{error}"
        );
    }
}

#[test]
fn a_result_depends_on_neither_threads_nor_seed() {
    let gpu = Gpu::shipped(Target::Gfx1201);
    let (rows, k) = (256usize, 256usize);
    let mut random = Random(3);
    let w = gpu.f32s("w", &random.floats(rows * k));
    let x = gpu.f32s("x", &random.floats(k));
    let mut first = None;
    for threads in [1, 2, 5] {
        for seed in 0..4 {
            let (a, b) = (
                gpu.empty("a", 4 * rows as u64),
                gpu.empty("b", 4 * rows as u64),
            );
            let args = |y| {
                Args::default()
                    .ptr(w)
                    .ptr(x)
                    .ptr(y)
                    .u32(0)
                    .u32(rows as u32)
                    .u32(k as u32)
            };
            let batch = [a, b].map(|y| gpu.dispatch("gemv_f32", rows as u32 / 16, 256, &args(y)));
            let config = RunConfig {
                seed,
                threads,
                ..CONFIG
            };
            let stats = run_batch(&gpu.memory, &batch, &config).unwrap();
            let got = (stats, gpu.read_u32s(a, rows), gpu.read_u32s(b, rows));
            assert_eq!(got.1, got.2);
            match &first {
                None => first = Some(got),
                Some(want) => assert!(*want == got, "threads {threads} seed {seed}"),
            }
        }
    }
}

/// Two dispatches where the second reads what the first writes: without a wait between them the
/// result depends on the seed, because they really overlap.
#[test]
fn dispatches_of_a_batch_overlap() {
    let gpu = Gpu::shipped(Target::Gfx1201);
    let n = 256 * 16;
    let a = gpu.f32s("a", &vec![1.0; n]);
    let run = |seed| {
        let (b, c) = (gpu.empty("b", 4 * n as u64), gpu.empty("c", 4 * n as u64));
        let step = |from, to| {
            let args = Args::default().ptr(from).ptr(from).ptr(to).u32(n as u32);
            gpu.dispatch("silu_mul", 16, 256, &args)
        };
        let config = RunConfig { seed, ..CONFIG };
        run_batch(&gpu.memory, &[step(a, b), step(b, c)], &config).unwrap();
        gpu.read_u32s(c, n)
    };
    let results: std::collections::HashSet<Vec<u32>> = (0..8).map(run).collect();
    assert!(results.len() > 1, "the order never mattered");
}

/// A kernel that reads memory nobody wrote sees poison, not zero.
#[test]
fn fresh_memory_and_registers_are_poison() {
    let gpu = Gpu::shipped(Target::Gfx1100);
    let (a, out) = (gpu.empty("a", 1024), gpu.empty("out", 1024));
    let args = Args::default().ptr(a).ptr(a).ptr(out).u32(256);
    gpu.run("silu_mul", 1, 256, &args);
    assert!(gpu.read_f32s(out, 256).iter().all(|v| *v != 0.0));
    // v1 holds the seed's poison: a store of v1 to the address in s[0:1] shows it.
    let memory = AddressSpace::new();
    let va = memory
        .alloc("x", 256, 1, Rights::READ_WRITE, Kind::Device)
        .unwrap();
    // v_lshlrev_b32 v0, 2, v0; global_store_b32 v0, v1, s[0:1]; s_endpgm
    let p = program(
        Target::Gfx1100,
        &[0x3000_0082, 0xdc6a_0000, 0x0000_0100, ENDPGM],
    );
    let mut d = dispatch(&p, 1);
    (d.user_sgprs[0], d.user_sgprs[1]) = (va as u32, (va >> 32) as u32);
    let poison = |seed| {
        run_batch(
            &memory,
            std::slice::from_ref(&d),
            &RunConfig { seed, ..CONFIG },
        )
        .unwrap();
        memory.read_u32(va + 124).unwrap()
    };
    assert_eq!(poison(1) >> 16, 0x7fa5);
    assert_eq!(poison(1), poison(1));
    assert_ne!(poison(1), poison(2));
}

/// Any words at all: decoding, listing and running end in a value or a typed error.
#[test]
fn random_words_never_panic() {
    for target in Target::ALL {
        let mut random = Random(0x5eed + target as u64);
        let memory = AddressSpace::new();
        let va = memory
            .alloc("data", 65536, 1, Rights::READ_WRITE, Kind::Device)
            .unwrap();
        for case in 0..3000 {
            let n = 4 + random.next() as usize % 60;
            let words: Vec<u32> = (0..n).map(|_| random.next() as u32).collect();
            let bytes = support::bytes(words.iter().copied());
            disassemble(target, CODE_VA, &bytes).unwrap();
            stress(target, &memory, va, &words, case);
        }
    }
}

/// Real code with flipped bits: it decodes far more often than noise does.
#[test]
fn damaged_code_never_panics() {
    for target in Target::ALL {
        let code = support::shipped(target);
        let text: Vec<u32> = code
            .text
            .chunks_exact(4)
            .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
            .collect();
        let entries: Vec<usize> = code
            .kernels
            .values()
            .map(|k| k.entry as usize / 4)
            .collect();
        let memory = AddressSpace::new();
        let va = memory
            .alloc("data", 65536, 1, Rights::READ_WRITE, Kind::Device)
            .unwrap();
        let mut random = Random(0xf11f + target as u64);
        for case in 0..2000 {
            let entry = entries[random.next() as usize % entries.len()];
            let mut words = text[entry..(entry + 300).min(text.len())].to_vec();
            for _ in 0..1 + random.next() % 6 {
                let at = random.next() as usize % words.len();
                words[at] ^= 1 << (random.next() % 32);
            }
            stress(target, &memory, va, &words, case);
        }
    }
}

/// Runs words as a kernel; only typed outcomes are allowed.
fn stress(target: Target, memory: &AddressSpace, va: u64, words: &[u32], seed: u64) {
    let p = program(target, words);
    let mut d = dispatch(&p, 2);
    d.rsrc1 |= 63;
    d.lds_bytes = 512;
    d.user_sgprs = std::array::from_fn(|i| {
        if i % 2 == 0 {
            va as u32
        } else {
            (va >> 32) as u32
        }
    });
    d.user_sgpr_count = 16;
    let config = RunConfig {
        seed,
        threads: 1,
        wave_budget: 3000,
    };
    match run_batch(memory, &[d], &config) {
        Ok(_) => {}
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

#[test]
fn launch_problems_are_matched_by_variant() {
    let p = program(Target::Gfx1100, &[ENDPGM]);
    let d = Dispatch {
        lds_bytes: 1 << 20,
        ..dispatch(&p, 1)
    };
    let error = run_batch(&AddressSpace::new(), &[d], &CONFIG).unwrap_err();
    let want = LaunchProblem::Lds {
        bytes: 1 << 20,
        max: 65536,
    };
    assert!(matches!(error, ExecError::Launch { problem, .. } if problem == want));
}
