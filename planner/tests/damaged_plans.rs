//! Sample plans of every architecture, damaged in every way that the long form has time for: each is
//! refused with a section's name, within bounded memory. A process of its own, because the peak of
//! resident memory is the process's.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic as tests do"
)]

use refrain_kernels::Dtype;
use refrain_planner::container::split;
use refrain_planner::machine::Machine;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_planner::{CheckedPlan, CompileOptions, ModelSource, compile};
use std::path::Path;

const MODELS: [&str; 8] = [
    "tests/models/nano-llama.bf16.gguf",
    "tests/models/nano-qwen2.bf16.gguf",
    "tests/models/nano-qwen3.bf16.gguf",
    "tests/models/nano-qwen3_5.bf16.gguf",
    "tests/models/nano-qwen3_5_moe.bf16.gguf",
    "tests/models/nano-lfm2.bf16.gguf",
    "golden/models/austen-qwen3-4m.q8_0.gguf",
    "golden/models/austen-qwen35-6m.q8_0.gguf",
];
/// Growth of the peak of resident memory that reading damaged files may cause, in KiB.
const MOST_KIB: u64 = 64 << 10;

fn long() -> bool {
    std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1")
}

/// The first plans of twenty: two with steps of the host, two with an f16 cache, and each model on gfx1100 and
/// gfx1201.
fn samples(count: usize) -> Vec<Vec<u8>> {
    let machines = ["gfx1100", "gfx1201"];
    let plain = |options: &mut CompileOptions| options.context = Some(32);
    let mut rows: Vec<(&str, &str, CompileOptions)> = Vec::new();
    let execs = [ExecChoice::Passback(Some(0.5)), ExecChoice::Cpu];
    for (model, exec) in [MODELS[0], MODELS[5]].into_iter().zip(execs) {
        let mut spilled = CompileOptions::default();
        plain(&mut spilled);
        (spilled.gpu_layers, spilled.exec) = (GpuLayers::Last(1), exec);
        let mut half = CompileOptions::default();
        plain(&mut half);
        half.kv_dtype = Dtype::F16;
        rows.push((model, machines[0], spilled));
        rows.push((model, machines[1], half));
    }
    for machine in machines {
        for model in MODELS {
            let mut options = CompileOptions::default();
            plain(&mut options);
            rows.push((model, machine, options));
        }
    }
    assert_eq!(rows.len(), 20);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let encode = |(model, machine, options): &(&str, &str, CompileOptions)| {
        let source = ModelSource::open(root.join(model)).unwrap();
        let machine = Machine::load(machine).unwrap();
        compile(&source, &machine, options).unwrap().to_bytes()
    };
    rows.iter().take(count).map(encode).collect()
}

/// Names of the places of a file, as errors say them.
fn places(bytes: &[u8]) -> Vec<String> {
    let sections = split(bytes).unwrap();
    let tags = sections
        .iter()
        .map(|section| section.tag.escape_ascii().to_string());
    tags.chain(["header", "section table", "file digest"].map(str::to_owned))
        .collect()
}

fn refused(bytes: &[u8], places: &[String], what: &str) {
    let Err(error) = CheckedPlan::from_bytes(bytes) else {
        panic!("{what}: accepted");
    };
    let text = error.to_string();
    assert!(
        places.iter().any(|place| text.contains(place)),
        "{what}: no section in {text:?}"
    );
}

fn flips(bytes: &[u8], places: &[String], stride: usize) {
    let mut damaged = bytes.to_vec();
    for at in (0..bytes.len()).filter(|at| *at < 64 || at % stride == 0) {
        // All 255 other values in the header, one elsewhere.
        let masks = if at < 64 { 1..=255u8 } else { 0x40..=0x40 };
        for mask in masks {
            damaged[at] ^= mask;
            refused(&damaged, places, &format!("byte {at} xor {mask:#x}"));
            damaged[at] ^= mask;
        }
    }
}

/// Edits of several bytes in one place, from a written generator (xorshift64*).
fn edits(bytes: &[u8], places: &[String], count: usize, seed: u64) {
    let mut state = seed;
    let mut next = |below: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % below
    };
    for edit in 0..count {
        let mut damaged = bytes.to_vec();
        let (at, length) = (next(bytes.len()), 1 + next(16));
        for byte in damaged.iter_mut().skip(at).take(length) {
            *byte = next(256) as u8;
        }
        if damaged != bytes {
            refused(&damaged, places, &format!("edit {edit} at {at}"));
        }
    }
}

/// Peak of resident memory of this process in KiB; `None` where the system does not say.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[test]
fn damaged_plans_are_refused_with_the_section_and_in_bounded_memory() {
    let (plans, stride, cut, count) = match long() {
        true => (20, 1, 1, 10_000),
        false => (4, 997, 997, 100),
    };
    let samples = samples(plans);
    let before = peak_kib();
    let mut most = before;
    for (index, bytes) in samples.iter().enumerate() {
        let places = places(bytes);
        flips(bytes, &places, stride);
        for length in (8..bytes.len()).step_by(cut) {
            let what = format!("plan {index} cut at {length}");
            refused(&bytes[..length], &places, &what);
        }
        edits(bytes, &places, count, 0x9E37_79B9 + index as u64);
        // Some kernels report no peak here but the present size.
        most = most.max(peak_kib());
    }
    if let (Some(before), Some(most)) = (before, most) {
        let grown = most.saturating_sub(before);
        assert!(
            grown <= MOST_KIB,
            "{grown} KiB more than before, at most {MOST_KIB}"
        );
    }
}

#[test]
fn two_threads_make_the_bytes_of_one() {
    let alone = samples(4);
    let together = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| samples(4)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(together.iter().all(|bytes| *bytes == alone));
}
