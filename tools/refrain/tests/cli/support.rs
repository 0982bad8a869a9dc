//! Running the program and reading what it said.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a process did.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

pub fn austen() -> PathBuf {
    repository("golden/models/austen-qwen3-4m.q8_0.gguf")
}

/// Runs the program in a folder of its own.
pub fn refrain_in(folder: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_refrain"))
        .args(args)
        .current_dir(folder)
        .env_remove("REFRAIN_LOG")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    // A process that a signal ended has no code: that is a crash, never a documented exit.
    let code = output.status.code().unwrap_or(-1);
    Ran {
        code,
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

pub fn refrain(args: &[&str]) -> Ran {
    refrain_in(&std::env::temp_dir(), args)
}

/// Runs the program, expects success and one JSON object.
pub fn json(args: &[&str]) -> Value {
    let ran = refrain(args);
    assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
