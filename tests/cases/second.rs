//! Whole models with the kernels of other compilers: every buffer after every token step is that of
//! the shipped kernels, and strict mode has no report.
//!
//! `cargo xtask kernels --second DIR` builds the objects, `REFRAIN_SECOND_OBJECTS=DIR` names them.
//! Launched eagerly: a retained route takes only the code that the plan names by digest.

use refrain_kernels::Target;
use refrain_planner::plan::Digest;
use refrain_recorder::{CodeObjects, EmbeddedObjects, FileSource};
use refrain_replay::strict::{StrictConfig, declarations};
use refrain_replay::{
    DeviceSpec, OpenedDevice, Retain, Route, Session, SessionOptions, SoftOptions,
};
use refrain_tests::{
    AUSTEN, AUSTEN_LINEAR, Setup, TextOracle, oracle, plan, repository, scrub, state_digest,
};
use std::path::{Path, PathBuf};

/// Tokens generated.
const COUNT: u32 = 16;

/// The same bytes for every digest.
struct One(Vec<u8>);

impl CodeObjects for One {
    fn get(&self, _: &Digest) -> Option<&[u8]> {
        Some(&self.0)
    }
}

fn eager(model: &Path, target: Target, strict: bool, objects: &dyn CodeObjects) -> Session {
    let setup = Setup::on(target);
    let soft = SoftOptions {
        seed: 1,
        threads: None,
        strict: strict.then(StrictConfig::default),
    };
    let opened = OpenedDevice::open(DeviceSpec::Soft(target), soft).unwrap();
    let source = FileSource::open(model).unwrap();
    let options = SessionOptions {
        retain: Retain::None,
        ..SessionOptions::default()
    };
    let plan = plan(model, setup).unwrap();
    let session = Session::new(opened, &plan, &source, objects, options).unwrap();
    let gpu = session.opened().soft.clone().unwrap();
    gpu.declare(declarations(session.instance()));
    session
}

/// Tokens, and a digest of all buffers after each step.
fn decode(session: &mut Session, prompt: &[u32], count: u32) -> (Vec<u32>, Vec<String>) {
    scrub(session).unwrap();
    session.start(prompt, count).unwrap();
    let (mut tokens, mut states) = (Vec::new(), Vec::new());
    for _ in 0..prompt.len() as u32 + count - 1 {
        session
            .advance(Route::Eager, 1, &mut |token| tokens.push(token))
            .unwrap();
        states.push(state_digest(session).unwrap());
    }
    (tokens, states)
}

/// Folders of object sets, if there are any to compare.
fn sets() -> Vec<PathBuf> {
    let Some(folder) = std::env::var_os("REFRAIN_SECOND_OBJECTS") else {
        return Vec::new();
    };
    let entries = std::fs::read_dir(folder).unwrap();
    let mut sets: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    sets.sort();
    assert!(!sets.is_empty(), "REFRAIN_SECOND_OBJECTS holds nothing");
    sets
}

#[test]
fn other_compilers_leave_the_same_buffers_and_tokens() {
    let sets = sets();
    if sets.is_empty() {
        println!("skipped: REFRAIN_SECOND_OBJECTS names no objects of other compilers");
        return;
    }
    for (model, answers) in [
        (AUSTEN, "austen-qwen3-4m.q8_0.json"),
        (AUSTEN_LINEAR, "austen-qwen35-6m.q8_0.json"),
    ] {
        let model = repository(model);
        let text = oracle::<Vec<TextOracle>>(answers).unwrap().swap_remove(0);
        for target in Target::ALL {
            let mut shipped = eager(&model, target, false, &EmbeddedObjects);
            let (tokens, states) = decode(&mut shipped, &text.prompt_ids, COUNT);
            assert_eq!(tokens[..], text.generated[..COUNT as usize], "{target}");
            for set in &sets {
                let path = set.join(target.name()).join("refrain.co");
                let what = format!("{answers} {target} {}", path.display());
                let objects = One(std::fs::read(&path).unwrap());
                let mut other = eager(&model, target, false, &objects);
                let found = decode(&mut other, &text.prompt_ids, COUNT);
                assert_eq!(found.0, tokens, "{what}");
                let differs = found.1.iter().zip(&states).position(|(a, b)| a != b);
                assert_eq!(differs, None, "{what}: buffers after this step");
                let mut strict = eager(&model, target, true, &objects);
                let found = decode(&mut strict, &text.prompt_ids, 2);
                assert_eq!(found.0[..], tokens[..2], "{what}, strict");
                let reports = strict.opened().soft.as_ref().unwrap().take_reports();
                let first = reports.reports.first().map(ToString::to_string);
                assert_eq!(first, None, "{what}, strict");
                println!(
                    "{what}: the same buffers over {} steps, no report",
                    states.len()
                );
            }
        }
    }
}
