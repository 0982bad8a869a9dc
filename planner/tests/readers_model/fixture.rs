//! Models of the repository, plans of them, and small writers of safetensors files and folders.

use refrain_planner::machine::Machine;
use refrain_planner::{CheckedPlan, CompileOptions, ModelSource, PlanError, compile};
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};

pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

pub const NANO_LLAMA: &str = "tests/models/nano-llama.bf16.gguf";
pub const HF_LLAMA: &str = "tests/models/hf/llama";
pub const NANO_QWEN35: &str = "tests/models/nano-qwen3_5.bf16.gguf";
pub const HF_QWEN35: &str = "tests/models/hf/qwen3_5";

pub fn plan(source: &ModelSource) -> Result<CheckedPlan, PlanError> {
    let options = CompileOptions {
        context: Some(32),
        ..CompileOptions::default()
    };
    compile(source, &Machine::load("gfx1201").unwrap(), &options)
}

pub fn read_json(path: &Path) -> Json {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A tensor to write: name, type, shape, bytes.
pub type Raw = (String, String, Vec<u64>, Vec<u8>);

/// Tensors of a safetensors file, in header order.
pub fn tensors(path: &Path) -> Vec<Raw> {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Map<String, Json> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let data = &bytes[8 + length..];
    let tensor = |(name, info): (String, Json)| {
        let numbers =
            |key: &str| -> Vec<u64> { serde_json::from_value(info[key].clone()).unwrap() };
        let offsets = numbers("data_offsets");
        let bytes = data[offsets[0] as usize..offsets[1] as usize].to_vec();
        let dtype = info["dtype"].as_str().unwrap().to_owned();
        (name, dtype, numbers("shape"), bytes)
    };
    header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(tensor)
        .collect()
}

/// A safetensors file of these tensors.
pub fn safetensors(tensors: &[Raw]) -> Vec<u8> {
    let mut header = Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let begin = data.len();
        data.extend_from_slice(bytes);
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, data.len()]});
        header.insert(name.clone(), info);
    }
    file(&serde_json::to_vec(&header).unwrap(), &data)
}

/// A file of a header as it is.
pub fn file(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header, data].concat()
}

/// A copy of a model of the repository that a test may change.
pub struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    pub fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    pub fn of(model: &str) -> Self {
        let copy = Self::empty();
        for name in ["config.json", "model.safetensors"] {
            let bytes = std::fs::read(repository(model).join(name)).unwrap();
            copy.write(name, &bytes);
        }
        copy
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.at(name), bytes).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.at(name)).unwrap();
    }

    /// Changes the configuration.
    pub fn config(&self, change: impl FnOnce(&mut Json)) {
        let mut config = read_json(&self.at("config.json"));
        change(&mut config);
        self.write("config.json", &serde_json::to_vec(&config).unwrap());
    }

    pub fn open(&self) -> Result<ModelSource, String> {
        ModelSource::open(self.path()).map_err(|error| error.to_string())
    }

    /// Opens and compiles, for refusals that only binding finds.
    pub fn plan(&self) -> Result<CheckedPlan, String> {
        plan(&self.open()?).map_err(|error| error.to_string())
    }
}

/// The message holds all words, says what to do after a semicolon or colon, and is one line.
pub fn says(error: &str, words: &[&str]) {
    for word in words {
        assert!(error.contains(word), "{word:?} is missing in: {error}");
    }
    assert!(!error.contains('\n'), "{error}");
}
