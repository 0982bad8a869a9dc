//! Whole compilations of the models in the repository.

use refrain_planner::gguf::GgufFile;
use refrain_planner::machine::Machine;
use refrain_planner::{CheckedPlan, CompileOptions, compile, inspect};
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn austen() {
    let file = GgufFile::open(root().join("golden/models/austen-qwen3-4m.q8_0.gguf")).unwrap();
    let machine = Machine::load("gfx1201").unwrap();
    let plan: CheckedPlan = compile(&file, &machine, &CompileOptions::default()).unwrap();
    println!("{}", inspect(&plan));
}
