//! Shared by the executor's tests: code objects of the repository, and their symbols.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "test support: each test binary uses another part, and failing loudly is the point"
)]

use object::{Object, ObjectSection, ObjectSymbol};
use refrain_softgpu::exec::{Dispatch, ExecError, Program, RunConfig, RunStats, run_batch};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{AddressSpace, Kind, Rights};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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
    let mut found = vec![unpacked(target)];
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects");
    if let Ok(entries) = std::fs::read_dir(own.join(target.name())) {
        found.extend(
            entries
                .flatten()
                .map(|e| e.path())
                .filter(|p| p.extension().is_some_and(|x| x == "co")),
        );
    }
    if let Ok(extra) = std::env::var("REFRAIN_EXTRA_OBJECTS") {
        let Ok(entries) = std::fs::read_dir(extra) else {
            return found;
        };
        found.extend(entries.flatten().map(|e| e.path()).filter(|p| {
            p.extension().is_some_and(|x| x == "co") && p.to_string_lossy().contains(target.name())
        }));
    }
    found.sort();
    found
}

/// The shipped object as a file, for tools that want one.
fn unpacked(target: Target) -> PathBuf {
    let folder = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("refrain.{}.co", target.name()));
    let bytes = shipped_bytes(target);
    if std::fs::read(&path).is_ok_and(|there| there == bytes) {
        return path;
    }
    let new = folder.join(format!(
        "refrain.{}.{}.co",
        target.name(),
        std::process::id()
    ));
    std::fs::write(&new, bytes).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

/// Reads an object.
pub fn load(target: Target, path: &Path) -> Code {
    let bytes = std::fs::read(path).unwrap();
    parse(target, &bytes)
}

/// The shipped object of a target.
pub fn shipped(target: Target) -> Code {
    parse(target, shipped_bytes(target))
}

/// Its bytes.
pub fn shipped_bytes(target: Target) -> &'static [u8] {
    let target = refrain_kernels::Target::parse(target.name()).unwrap();
    refrain_kernels::code_object(target).bytes()
}

/// Parses an object's bytes.
pub fn parse(target: Target, bytes: &[u8]) -> Code {
    let elf = object::File::parse(bytes).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    let rodata = elf.section_by_name(".rodata").unwrap();
    let (base, data) = (rodata.address(), rodata.data().unwrap());
    let mut kernels = BTreeMap::new();
    for symbol in elf.dynamic_symbols() {
        let Some(name) = symbol.name().ok().and_then(|n| n.strip_suffix(".kd")) else {
            continue;
        };
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
    Code {
        target,
        text_va: text.address(),
        text: text.data().unwrap().to_vec(),
        kernels,
    }
}

/// A code object in an address space of its own, with buffers by name.
pub struct Gpu {
    pub memory: AddressSpace,
    pub code: Code,
    pub program: Arc<Program>,
    pub config: RunConfig,
    trace: Mutex<Trace>,
}

/// What happened to the buffers of a [`Gpu`], so that another one can be compared with it.
#[derive(Default)]
struct Trace {
    /// Name, address and bytes of every buffer, in the order of allocation.
    buffers: Vec<(String, u64, u64)>,
    launches: Vec<Launched>,
}

/// The buffers after a launch.
struct Launched {
    kernel: Arc<str>,
    digests: Vec<blake3::Hash>,
}

/// Kernel arguments, laid out as the compiler does: each at its natural alignment.
#[derive(Default, Clone)]
pub struct Args(pub Vec<u8>);

impl Args {
    fn push(mut self, bytes: &[u8]) -> Self {
        while !self.0.len().is_multiple_of(bytes.len()) {
            self.0.push(0);
        }
        self.0.extend_from_slice(bytes);
        self
    }
    pub fn ptr(self, va: u64) -> Self {
        self.push(&va.to_le_bytes())
    }
    pub fn u32(self, v: u32) -> Self {
        self.push(&v.to_le_bytes())
    }
    pub fn u64(self, v: u64) -> Self {
        self.push(&v.to_le_bytes())
    }
    pub fn f32(self, v: f32) -> Self {
        self.push(&v.to_le_bytes())
    }
}

pub const CONFIG: RunConfig = RunConfig {
    seed: 1,
    threads: 1,
    wave_budget: 50_000_000,
};

impl Gpu {
    pub fn new(target: Target, path: &Path) -> Self {
        Self::with(load(target, path), false)
    }

    /// The shipped object of a target.
    pub fn shipped(target: Target) -> Self {
        Self::with(shipped(target), false)
    }

    pub fn with(code: Code, baseline: bool) -> Self {
        let memory = AddressSpace::new();
        let va = memory
            .alloc(
                "code",
                code.text.len() as u64,
                4096,
                Rights::READ_WRITE,
                Kind::Code,
            )
            .unwrap();
        memory.write_bytes(va, &code.text).unwrap();
        memory.set_rights(va, Rights::CODE).unwrap();
        let decode = if baseline {
            Program::decode_baseline
        } else {
            Program::decode
        };
        let program = Arc::new(decode(code.target, va, &code.text).unwrap());
        Self {
            memory,
            code,
            program,
            config: CONFIG,
            trace: Mutex::default(),
        }
    }

    /// The shipped object of a target, then those of other compilers and optimisation levels, by
    /// name: `cargo xtask kernels --second DIR` builds them, `REFRAIN_SECOND_OBJECTS` is that folder.
    pub fn of_every_compiler(target: Target) -> Vec<(String, Self)> {
        let mut gpus = vec![("shipped".to_owned(), Self::shipped(target))];
        let Some(folder) = std::env::var_os("REFRAIN_SECOND_OBJECTS") else {
            return gpus;
        };
        let mut sets: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        sets.sort();
        assert!(!sets.is_empty(), "REFRAIN_SECOND_OBJECTS holds nothing");
        gpus.extend(sets.into_iter().map(|set| {
            let name = set.file_name().unwrap().to_string_lossy().into_owned();
            let path = set.join(target.name()).join("refrain.co");
            (name, Self::new(target, &path))
        }));
        gpus
    }

    /// Every launch left every buffer as it did on `other`; else the first that did not.
    pub fn agrees_with(&self, other: &Self) -> Result<(), String> {
        let (ours, theirs) = (self.trace.lock().unwrap(), other.trace.lock().unwrap());
        if ours.launches.len() != theirs.launches.len() {
            return Err("another number of launches".to_owned());
        }
        for (number, (a, b)) in ours.launches.iter().zip(&theirs.launches).enumerate() {
            let pairs = a.digests.iter().zip(&b.digests);
            let differs = pairs.zip(&ours.buffers).find(|((a, b), _)| a != b);
            if a.kernel != b.kernel || a.digests.len() != b.digests.len() || differs.is_some() {
                let buffer = differs.map_or("another launch", |(_, (name, ..))| name);
                return Err(format!("launch {number}, {}: {buffer}", a.kernel));
            }
        }
        Ok(())
    }

    /// Kernels launched, in order.
    pub fn launched(&self) -> Vec<Arc<str>> {
        let trace = self.trace.lock().unwrap();
        trace.launches.iter().map(|l| l.kernel.clone()).collect()
    }

    fn named(&self, name: &str, va: u64, len: u64) -> u64 {
        let mut trace = self.trace.lock().unwrap();
        trace.buffers.push((name.to_owned(), va, len));
        va
    }

    fn note(&self, kernel: &Arc<str>) {
        let mut trace = self.trace.lock().unwrap();
        let digest = |(_, va, len): &(String, u64, u64)| {
            let mut bytes = vec![0; usize::try_from(*len).unwrap()];
            self.memory.read_bytes(*va, &mut bytes).unwrap();
            blake3::hash(&bytes)
        };
        let digests = trace.buffers.iter().map(digest).collect();
        let kernel = kernel.clone();
        trace.launches.push(Launched { kernel, digests });
    }

    pub fn buffer(&self, name: &str, bytes: &[u8]) -> u64 {
        let len = (bytes.len() as u64).max(4);
        let va = self
            .memory
            .alloc(name, len, 256, Rights::READ_WRITE, Kind::Device)
            .unwrap();
        self.memory.write_bytes(va, bytes).unwrap();
        self.named(name, va, len)
    }

    pub fn empty(&self, name: &str, len: u64) -> u64 {
        let kind = Kind::Device;
        let rights = Rights::READ_WRITE;
        let va = self.memory.alloc(name, len, 256, rights, kind).unwrap();
        self.named(name, va, len)
    }

    pub fn f32s(&self, name: &str, values: &[f32]) -> u64 {
        self.buffer(name, &bytes(values.iter().map(|v| v.to_bits())))
    }

    pub fn u32s(&self, name: &str, values: &[u32]) -> u64 {
        self.buffer(name, &bytes(values.iter().copied()))
    }

    pub fn read_u32s(&self, va: u64, n: usize) -> Vec<u32> {
        let mut out = vec![0; 4 * n];
        self.memory.read_bytes(va, &mut out).unwrap();
        out.chunks_exact(4)
            .map(|c| u32::from_le_bytes(c.try_into().unwrap()))
            .collect()
    }

    pub fn read_f32s(&self, va: u64, n: usize) -> Vec<f32> {
        self.read_u32s(va, n)
            .into_iter()
            .map(f32::from_bits)
            .collect()
    }

    pub fn dispatch(&self, kernel: &str, groups: u32, block: u32, args: &Args) -> Dispatch {
        self.dispatch3(kernel, [groups, 1, 1], [block, 1, 1], args)
    }

    pub fn dispatch3(
        &self,
        kernel: &str,
        groups: [u32; 3],
        group_size: [u32; 3],
        args: &Args,
    ) -> Dispatch {
        let k = *self
            .code
            .kernels
            .get(kernel)
            .unwrap_or_else(|| panic!("no kernel {kernel}"));
        assert_eq!(
            k.properties & 0x7f,
            8,
            "only the kernarg pointer is expected"
        );
        assert_eq!(
            args.0.len() as u32,
            k.kernarg_bytes,
            "arguments of {kernel}"
        );
        // LLVM widens argument loads up to the segment's alignment, so a segment is whole 16 bytes.
        let kernarg = self
            .memory
            .alloc(
                "kernarg",
                args.0.len().next_multiple_of(16) as u64,
                64,
                Rights::READ_WRITE,
                Kind::Kernarg,
            )
            .unwrap();
        self.memory.write_bytes(kernarg, &args.0).unwrap();
        self.memory.set_rights(kernarg, Rights::READ).unwrap();
        let mut user_sgprs = [0; 16];
        user_sgprs[0] = kernarg as u32;
        user_sgprs[1] = (kernarg >> 32) as u32;
        Dispatch {
            program: self.program.clone(),
            entry_va: self.program.base() + k.entry,
            name: kernel.into(),
            rsrc1: k.rsrc1,
            rsrc2: k.rsrc2,
            rsrc3: k.rsrc3,
            user_sgprs,
            user_sgpr_count: 2,
            groups,
            group_size,
            lds_bytes: k.lds_bytes,
            scratch_bytes: 0,
            tag: 7,
        }
    }

    pub fn run(&self, kernel: &str, groups: u32, block: u32, args: &Args) -> RunStats {
        let d = self.dispatch(kernel, groups, block, args);
        self.noted(d)
            .unwrap_or_else(|e| panic!("{}: {e}", self.code.target))
    }

    /// Runs a batch and nothing else: also what measurements run.
    pub fn go(&self, batch: &[Dispatch]) -> Result<RunStats, ExecError> {
        run_batch(&self.memory, batch, &self.config)
    }

    /// Runs one launch and takes note of what all buffers hold after it.
    pub fn noted(&self, dispatch: Dispatch) -> Result<RunStats, ExecError> {
        let name = Arc::clone(&dispatch.name);
        let stats = self.go(&[dispatch])?;
        self.note(&name);
        Ok(stats)
    }
}

/// Little-endian bytes of words.
pub fn bytes(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A small generator of repeatable test data (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// Uniform in [-1, 1).
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / 8_388_608.0 - 1.0
    }
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
}
