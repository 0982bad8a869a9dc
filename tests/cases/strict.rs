//! The shipped plans under strict mode: no report on any route, whatever the seed, and the tokens of
//! the fast mode.

use refrain_kernels::Target;
use refrain_replay::strict::{StrictConfig, declarations, write_footprints};
use refrain_replay::{Retain, Route, Session, SessionOptions, Transport};
use refrain_tests::{AUSTEN, NanoOracle, Setup, TextOracle, long, oracle, repository, session};
use std::path::Path;

/// Eager, AQL or PM4.
#[derive(Debug, Clone, Copy)]
struct Form {
    retain: Retain,
    transport: Transport,
}

const FORMS: [Form; 3] = [
    Form {
        retain: Retain::None,
        transport: Transport::Aql,
    },
    Form {
        retain: Retain::Whole,
        transport: Transport::Aql,
    },
    Form {
        retain: Retain::Whole,
        transport: Transport::Pm4,
    },
];

fn strict_session(model: &Path, target: Target, form: Form, seed: u64) -> Session {
    let setup = Setup {
        session: SessionOptions {
            retain: form.retain,
            transport: form.transport,
            ..SessionOptions::default()
        },
        seed,
        strict: Some(StrictConfig::default()),
        ..Setup::on(target)
    };
    let session = session(model, setup).unwrap();
    let gpu = session.opened().soft.clone().unwrap();
    gpu.declare(declarations(session.instance()));
    session
}

/// Generates, and fails on any report.
fn tokens(session: &mut Session, prompt: &[u32], count: u32, what: &str) -> Vec<u32> {
    let route = session.route();
    session.start(prompt, count).unwrap();
    let mut tokens = Vec::new();
    let steps = prompt.len() as u32 + count - 1;
    session
        .advance(route, steps, &mut |token| tokens.push(token))
        .unwrap();
    let reports = session.opened().soft.as_ref().unwrap().take_reports();
    let first: Vec<String> = reports
        .reports
        .iter()
        .take(5)
        .map(|r| r.to_string())
        .collect();
    assert!(
        first.is_empty() && reports.dropped == 0,
        "{what}: {} reports, the first:\n{}",
        reports.reports.len(),
        first.join("\n")
    );
    tokens
}

fn golden() -> TextOracle {
    let mut texts: Vec<TextOracle> = oracle("austen-qwen3-4m.q8_0.json").unwrap();
    texts.swap_remove(0)
}

#[test]
fn the_golden_model_gives_no_report_on_any_route() {
    let text = golden();
    let targets = if long() {
        &[Target::Gfx1100, Target::Gfx1151, Target::Gfx1201][..]
    } else {
        &[Target::Gfx1100, Target::Gfx1201][..]
    };
    for &target in targets {
        for form in FORMS {
            let mut session = strict_session(&repository(AUSTEN), target, form, 1);
            let what = format!("{target} {form:?}");
            let expected = form.retain != Retain::None;
            assert_eq!(session.route() == Route::Retained, expected, "{what}");
            let found = tokens(&mut session, &text.prompt_ids, 8, &what);
            assert_eq!(found[..], text.generated[..8], "{what}");
            // A second text of the same session.
            let found = tokens(&mut session, &text.prompt_ids, 8, &what);
            assert_eq!(found[..], text.generated[..8], "{what}, again");
        }
    }
}

#[test]
fn the_nano_models_give_no_report_on_any_route() {
    for (model, oracle_name) in [
        ("tests/models/nano-llama.bf16.gguf", "nano-llama.json"),
        ("tests/models/nano-qwen3.bf16.gguf", "nano-qwen3.json"),
    ] {
        let expected: NanoOracle = oracle(oracle_name).unwrap();
        for target in [Target::Gfx1151, Target::Gfx1201] {
            for form in FORMS {
                let mut session = strict_session(&repository(model), target, form, 5);
                let what = format!("{model}, {target} {form:?}");
                let count = expected.generated.len() as u32;
                let found = tokens(&mut session, &expected.prompt, count, &what);
                assert_eq!(found, expected.generated, "{what}");
            }
        }
    }
}

/// Seeds of the order of waves and work-groups: `REFRAIN_SEEDS` is a number, or a range `from..to`
/// for one of several processes. 20 in the long tests of CI.
fn seeds() -> std::ops::Range<u64> {
    let asked = std::env::var("REFRAIN_SEEDS").unwrap_or_default();
    let (from, to) = asked.split_once("..").unwrap_or(("0", &asked));
    from.parse().unwrap_or(0)..to.parse().unwrap_or(3)
}

#[test]
fn every_seed_gives_the_same_tokens_and_no_report() {
    let text = golden();
    for seed in seeds() {
        // Both generations and both transports in turn.
        let target = [Target::Gfx1201, Target::Gfx1100][(seed % 2) as usize];
        let form = FORMS[1 + (seed / 2 % 2) as usize];
        let mut session = strict_session(&repository(AUSTEN), target, form, seed);
        let what = format!("seed {seed}, {target} {form:?}");
        let found = tokens(&mut session, &text.prompt_ids, 8, &what);
        assert_eq!(found[..], text.generated[..8], "{what}");
        println!("{what}: the same tokens, no report");
    }
}

#[test]
fn a_seed_is_bit_reproducible() {
    let text = golden();
    let run = || {
        let setup = Setup {
            session: SessionOptions {
                retain: Retain::Whole,
                transport: Transport::Pm4,
                ..SessionOptions::default()
            },
            seed: 77,
            strict: Some(StrictConfig {
                footprints: 100_000,
                ..StrictConfig::default()
            }),
            ..Setup::on(Target::Gfx1201)
        };
        let mut session = session(&repository(AUSTEN), setup).unwrap();
        refrain_tests::scrub(&session).unwrap();
        let gpu = session.opened().soft.clone().unwrap();
        gpu.declare(declarations(session.instance()));
        gpu.take_footprints();
        tokens(&mut session, &text.prompt_ids, 4, "seed 77");
        let footprints = write_footprints(&gpu.take_footprints());
        let state = refrain_tests::state_digest(&mut session).unwrap();
        (gpu.counters(), state, footprints)
    };
    let (first, second) = (run(), run());
    assert_eq!(first.0, second.0);
    assert_eq!(first.1, second.1);
    assert!(first.2 == second.2, "footprints differ");
    assert!(first.2.len() > 1000);
}

/// Processor time of this process in seconds: on a busy machine wall time says little.
fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    // utime and stime, fields 14 and 15 of proc(5), in hundredths of a second.
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

/// Tokens per second, printed; measured figures are in `docs/measurements/strict-mode.md`.
#[test]
fn speed_of_both_modes() {
    let text = golden();
    let count = if long() { 48 } else { 4 };
    for strict in [None, Some(StrictConfig::default())] {
        let setup = Setup {
            strict,
            ..Setup::on(Target::Gfx1201)
        };
        let mut session = session(&repository(AUSTEN), setup).unwrap();
        let gpu = session.opened().soft.clone().unwrap();
        gpu.declare(declarations(session.instance()));
        session.start(&text.prompt_ids, count).unwrap();
        let steps = text.prompt_ids.len() as u32 + count - 1;
        let before = gpu.counters();
        let (start, busy) = (std::time::Instant::now(), processor_seconds());
        session
            .advance(Route::Retained, steps, &mut |_| {})
            .unwrap();
        let wall = start.elapsed().as_secs_f64();
        let busy = busy.and_then(|before| Some(processor_seconds()? - before));
        let seconds = busy.filter(|seconds| *seconds > 0.0).unwrap_or(wall);
        let instructions = gpu.counters().wave_instructions - before.wave_instructions;
        println!(
            "{}: {:.1} tokens and {:.1} M wave-instructions per processor second over {steps} steps ({wall:.1} s)",
            if strict.is_some() { "strict" } else { "fast" },
            f64::from(steps) / seconds,
            instructions as f64 / seconds / 1e6
        );
        assert_eq!(gpu.reports().len(), 0);
    }
}

/// Indices and lengths of the waits and invalidations of an indirect buffer, in order, by name.
fn waits(words: &[u32]) -> Vec<(usize, usize, &'static str)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let length = ((words[at] >> 16 & 0x3fff) + 2) as usize;
        match words[at] >> 8 & 0xff {
            0x46 => found.push((at, length, "EVENT_WRITE")),
            0x58 => found.push((at, length, "ACQUIRE_MEM")),
            _ => {}
        }
        at += length;
    }
    found
}

/// What execution says about every wait and every invalidation that the planner put into a token:
/// without it, a launch reads or writes what it must not. The linter's own survey is in `mutate`.
#[test]
fn every_dropped_wait_or_invalidation_of_the_golden_token_is_reported() {
    let targets = if long() {
        &[Target::Gfx1100, Target::Gfx1201][..]
    } else {
        &[Target::Gfx1201][..]
    };
    for &target in targets {
        let mut session = strict_session(&repository(AUSTEN), target, FORMS[2], 3);
        let gpu = session.opened().soft.clone().unwrap();
        let all = gpu.memory().allocations();
        let ib = all.iter().find(|info| &*info.name == "ib").unwrap().clone();
        let mut bytes = vec![0; ib.len as usize];
        gpu.memory().read_bytes(ib.base, &mut bytes).unwrap();
        let words: Vec<u32> = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        let mut found = waits(&words);
        // The head's invalidation repeats the vendor packet's fence; without the last wait the
        // packet processor itself refuses the buffer.
        assert_eq!(found.remove(0).2, "ACQUIRE_MEM");
        assert_eq!(found.pop().unwrap().2, "EVENT_WRITE");
        let write = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let memory = gpu.memory();
            memory
                .set_rights(ib.base, refrain_softgpu::memory::Rights::READ_WRITE)
                .unwrap();
            memory.write_bytes(ib.base, &bytes).unwrap();
            memory.set_rights(ib.base, ib.rights).unwrap();
        };
        let step = if long() { 1 } else { 4 };
        let mut missed = Vec::new();
        for &(at, length, name) in found.iter().step_by(step) {
            let mut mutated = words.clone();
            // A NOP of the same length.
            mutated[at] = 0xC000_1000 | (length as u32 - 2) << 16;
            mutated[at + 1..at + length].fill(0);
            write(&mutated);
            session.start(&[41, 84, 365], 4).unwrap();
            session.advance(Route::Retained, 2, &mut |_| {}).unwrap();
            let reports = gpu.take_reports().reports;
            let named = reports
                .iter()
                .any(|report| report.who.dword > Some(at as u32));
            if !named {
                missed.push((at, name));
            }
        }
        println!(
            "{target}: {} of {} waits and invalidations dropped, {} missed",
            found.len().div_ceil(step),
            found.len(),
            missed.len()
        );
        assert_eq!(missed, [], "{target}: of {}", found.len());
        write(&words);
        tokens(&mut session, &[41, 84, 365], 4, "restored");
    }
}
