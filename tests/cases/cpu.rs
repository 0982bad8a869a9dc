//! The decode step on the CPU against the software GPU, every buffer byte for byte after every token,
//! and against the oracle.
//!
//! The fast form runs one text of each trained model and a few tokens of each nano model, fused and
//! plain; REFRAIN_LONG=1 runs all texts, both cache types, several threads and every instruction set.

use refrain_cpu::Isa;
use refrain_kernels::{Dtype, Target};
use refrain_planner::plan::BufferKind;
use refrain_recorder::{BufferState, CpuInstance, FileSource, first_difference};
use refrain_replay::{Retain, Route, SessionOptions};
use refrain_tests::{
    AUSTEN, AUSTEN_LINEAR, NanoOracle, SCRUB, Setup, TextOracle, largest_difference, logits_of,
    long, oracle, plan, repository, scrub, session,
};

const TRAINED: [(&str, &str); 2] = [
    (AUSTEN, "austen-qwen3-4m.q8_0.json"),
    (AUSTEN_LINEAR, "austen-qwen35-6m.q8_0.json"),
];
const NANO: [&str; 6] = ["llama", "qwen2", "qwen3", "qwen3_5", "qwen3_5_moe", "lfm2"];
/// Exact mode against the oracle.
const EXACT: f32 = 1e-4;

fn nano(name: &str) -> (String, NanoOracle) {
    let oracle = oracle(&format!("nano-{name}.json")).unwrap();
    (format!("tests/models/nano-{name}.bf16.gguf"), oracle)
}

fn cpu(model: &str, setup: Setup, (threads, isa): (usize, Isa)) -> CpuInstance {
    let path = repository(model);
    let source = FileSource::open(&path).unwrap();
    let mut cpu = CpuInstance::with(&plan(&path, setup).unwrap(), &source, threads, isa).unwrap();
    for kind in [BufferKind::Scratch, BufferKind::Kv, BufferKind::State] {
        cpu.fill(kind, SCRUB);
    }
    cpu
}

/// Steps a text on both and compares all bytes after each step.
fn same_bytes(model: &str, setup: Setup, prompt: &[u32], steps: u32, how: (usize, Isa)) {
    let options = SessionOptions {
        retain: Retain::None,
        ..SessionOptions::default()
    };
    let setup = Setup {
        session: options,
        ..setup
    };
    let mut gpu = session(&repository(model), setup).unwrap();
    scrub(&gpu).unwrap();
    gpu.start(prompt, steps).unwrap();
    let mut cpu = cpu(model, setup, how);
    cpu.reset(prompt, steps).unwrap();
    for step in 0..steps {
        gpu.advance_past_end(Route::Eager, 1).unwrap();
        cpu.step().unwrap();
        // Between the tensors of a weight buffer lies what nobody wrote.
        let written = |mut states: Vec<BufferState>| {
            for (state, buffer) in states.iter_mut().zip(&cpu.plan().buffers) {
                if buffer.kind.holds_weights() {
                    state.bytes.clear();
                }
            }
            states
        };
        let found = (written(gpu.snapshot().unwrap()), written(cpu.snapshot()));
        let difference = first_difference(&found.0, &found.1);
        if let Some(difference) = difference {
            panic!(
                "{model}, fused {}: after step {step}: {difference}",
                setup.fused
            );
        }
    }
}

#[test]
fn trained_models_have_the_software_gpu_s_bytes() {
    for (model, name) in TRAINED {
        let texts: Vec<TextOracle> = oracle(name).unwrap();
        let (texts, steps) = if long() {
            (&texts[..], 96)
        } else {
            (&texts[..1], 24)
        };
        for text in texts {
            let setup = Setup::on(Target::Gfx1201);
            same_bytes(model, setup, &text.prompt_ids, steps, (1, Isa::best()));
        }
    }
}

#[test]
fn nano_models_have_the_software_gpu_s_bytes_fused_and_plain() {
    for name in NANO {
        let (model, oracle) = nano(name);
        let steps = if long() { 40 } else { 6 };
        let caches = [Dtype::F32, Dtype::F16];
        for fused in [true, false] {
            for kv in caches.into_iter().take(if long() { 2 } else { 1 }) {
                let setup = Setup {
                    fused,
                    kv,
                    ..Setup::on(Target::Gfx1201)
                };
                same_bytes(&model, setup, &oracle.prompt, steps, (2, Isa::best()));
            }
        }
    }
}

#[test]
fn bytes_depend_on_neither_threads_nor_instruction_set() {
    let (model, oracle) = nano("qwen3_5_moe");
    let setup = Setup::on(Target::Gfx1100);
    let run = |threads, isa| {
        let mut cpu = cpu(&model, setup, (threads, isa));
        cpu.reset(&oracle.prompt, 8).unwrap();
        for _ in 0..8 {
            cpu.step().unwrap();
        }
        cpu.snapshot()
    };
    let expected = run(1, Isa::Scalar);
    for (threads, isa) in [
        (1, Isa::best()),
        (2, Isa::Avx2),
        (3, Isa::best()),
        (0, Isa::Scalar),
    ] {
        let found = run(threads, isa);
        assert_eq!(
            first_difference(&expected, &found),
            None,
            "{threads} {isa:?}"
        );
    }
}

/// Logits after each step, and the tokens of the ring.
fn generate(cpu: &mut CpuInstance, prompt: &[u32], tokens: u32) -> (Vec<u32>, Vec<Vec<f32>>) {
    cpu.reset(prompt, tokens).unwrap();
    let (mut ids, mut all) = (Vec::new(), Vec::new());
    for _ in 0..prompt.len() as u32 - 1 + tokens {
        cpu.step().unwrap();
        all.push(logits_of(cpu.plan(), &cpu.snapshot()).unwrap());
        if let Some(entry) = cpu.ring_entry(ids.len() as u32 + 1) {
            ids.push(entry.token);
        }
    }
    (ids, all)
}

#[test]
fn the_oracle_s_tokens_and_logits() {
    for (model, name) in TRAINED {
        let texts: Vec<TextOracle> = oracle(name).unwrap();
        let mut cpu = cpu(model, Setup::on(Target::Gfx1201), (1, Isa::best()));
        for text in &texts[..if long() { 3 } else { 1 }] {
            let steps = text.generated.len() as u32;
            let (ids, logits) = generate(&mut cpu, &text.prompt_ids, steps);
            assert_eq!(ids, text.generated, "{name}");
            let first = text.prompt_ids.len() - 1;
            for (step, expected) in &text.logits {
                let difference = largest_difference(&logits[first + *step as usize], expected);
                assert!(difference < EXACT, "{name}, step {step}: {difference}");
            }
        }
    }
    for name in NANO {
        let (model, oracle) = nano(name);
        let mut cpu = cpu(&model, Setup::on(Target::Gfx1201), (1, Isa::best()));
        let steps = oracle.generated.len() as u32;
        let (ids, logits) = generate(&mut cpu, &oracle.prompt, steps);
        assert_eq!(ids, oracle.generated, "{name}");
        for (position, expected) in &oracle.logits {
            let difference = largest_difference(&logits[*position as usize], expected);
            assert!(
                difference < EXACT,
                "{name}, position {position}: {difference}"
            );
        }
    }
}

#[test]
fn steps_past_the_end_change_nothing_that_is_kept() {
    let (model, oracle) = nano("lfm2");
    let mut cpu = cpu(&model, Setup::on(Target::Gfx1201), (1, Isa::best()));
    generate(&mut cpu, &oracle.prompt, 3);
    let kept = |cpu: &CpuInstance| {
        let plan = cpu.plan().clone();
        let states = cpu.snapshot().into_iter().zip(&plan.buffers);
        let kept = states.filter(|(_, buffer)| buffer.kind != BufferKind::Scratch);
        kept.map(|(state, _)| state).collect::<Vec<_>>()
    };
    let before = kept(&cpu);
    cpu.step().unwrap();
    assert_eq!(first_difference(&before, &kept(&cpu)), None);
}
