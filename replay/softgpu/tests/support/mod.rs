//! Shared by the executor's tests: code objects of the repository, and their symbols.
#![allow(dead_code, reason = "each test binary uses another part")]

use object::{Object, ObjectSection, ObjectSymbol};
use refrain_softgpu::isa::Target;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The machine code of one object.
pub struct Code {
    pub target: Target,
    /// Link-time address of `.text`.
    pub text_va: u64,
    pub text: Vec<u8>,
    pub kernels: BTreeMap<String, Kernel>,
}

/// One kernel: its entry and the descriptor words that a dispatch needs.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Entry minus start of `.text`.
    pub entry: u64,
    pub rsrc1: u32,
    pub rsrc2: u32,
    pub rsrc3: u32,
    pub properties: u16,
    pub lds_bytes: u32,
    pub kernarg_bytes: u32,
}

/// The repository root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All `*.co` files of a target, the shipped ones and this crate's fixtures.
pub fn objects(target: Target) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for dir in [
        root().join("kernels/objects").join(target.name()),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects").join(target.name()),
    ] {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        found.extend(entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "co")));
    }
    if let Ok(extra) = std::env::var("REFRAIN_EXTRA_OBJECTS") {
        let Ok(entries) = std::fs::read_dir(extra) else { return found };
        found.extend(entries.flatten().map(|e| e.path()).filter(|p| {
            p.extension().is_some_and(|x| x == "co") && p.to_string_lossy().contains(target.name())
        }));
    }
    found.sort();
    found
}

/// Reads an object.
pub fn load(target: Target, path: &Path) -> Code {
    let bytes = std::fs::read(path).unwrap();
    parse(target, &bytes)
}

/// Parses an object's bytes.
pub fn parse(target: Target, bytes: &[u8]) -> Code {
    let elf = object::File::parse(bytes).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    let rodata = elf.section_by_name(".rodata").unwrap();
    let (base, data) = (rodata.address(), rodata.data().unwrap());
    let mut kernels = BTreeMap::new();
    for symbol in elf.dynamic_symbols() {
        let Some(name) = symbol.name().ok().and_then(|n| n.strip_suffix(".kd")) else { continue };
        let kd = &data[(symbol.address() - base) as usize..][..64];
        let u32_at = |i: usize| u32::from_le_bytes(kd[i..i + 4].try_into().unwrap());
        let offset = i64::from_le_bytes(kd[16..24].try_into().unwrap());
        let entry = symbol.address().wrapping_add_signed(offset) - text.address();
        kernels.insert(
            name.to_owned(),
            Kernel {
                entry,
                rsrc1: u32_at(48),
                rsrc2: u32_at(52),
                rsrc3: u32_at(44),
                properties: u16::from_le_bytes(kd[56..58].try_into().unwrap()),
                lds_bytes: u32_at(0),
                kernarg_bytes: u32_at(8),
            },
        );
    }
    Code { target, text_va: text.address(), text: text.data().unwrap().to_vec(), kernels }
}
