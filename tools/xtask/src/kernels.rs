//! `cargo xtask kernels`: compiles kernels/hip for every target, records what was built, and checks
//! that it can be built again byte for byte.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use refrain_kernels::{ISAS, Isa};

use crate::repo::{self, Repo};
use crate::{disasm, manifest, object_lint};

pub(crate) const CLANG: &str = "clang-19";
pub(crate) const SOURCE: &str = "kernels/hip/refrain.hip";

/// One call per target. `-fuse-cuid=none` keeps paths out of the bytes; `-ffp-contract=off` leaves
/// fma where the source writes it; `-disable-machine-sink` keeps clang 19 from sinking cross-lane
/// instructions under a narrowed EXEC (LLVM pull request 142962).
pub(crate) const FLAGS: [&str; 12] = [
    "-x",
    "hip",
    "--offload-device-only",
    "--no-gpu-bundle-output",
    "-nogpulib",
    "-nogpuinc",
    "-fuse-cuid=none",
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",
    "-mllvm",
    "-disable-machine-sink",
];

/// Level of the packed objects: the most that the compressor does.
const PACKING: u8 = 10;

/// Builds every architecture, then writes the manifest and the catalog's table.
pub(crate) fn build(repo: &Repo, out: &mut impl Write) -> Result<()> {
    compiler_version()?;
    let scratch = tempfile::tempdir()?;
    for isa in &ISAS {
        let bytes = compiled(repo, isa, scratch.path())?;
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(&bytes, PACKING);
        repo::write(&repo.object(isa), &packed)?;
    }
    let objects = manifest::objects(repo)?;
    for (path, text) in manifest::render(&objects, &source_digest(repo)?)? {
        repo::write(&repo.path(path), text.as_bytes())?;
    }
    for object in &objects {
        writeln!(
            out,
            "{}: {} bytes, packed {}, blake3 {}",
            object.isa,
            object.bytes.len(),
            object.packed,
            object.digest
        )?;
    }
    lint(repo, out)
}

/// Rebuilds into a scratch folder and compares; lints what is committed.
pub(crate) fn check(repo: &Repo, out: &mut impl Write) -> Result<()> {
    let committed = manifest::objects(repo)?;
    let built_by = &committed.first().context("no target")?.facts.compiler;
    let here = compiler_version()?;
    if here != *built_by {
        writeln!(
            out,
            "re-bless: objects were built by {built_by}, this is {here}"
        )?;
        return lint(repo, out);
    }
    let scratch = tempfile::tempdir()?;
    for object in &committed {
        let digest = blake3::hash(&compiled(repo, object.isa, scratch.path())?);
        ensure!(
            digest == object.digest,
            "{}: rebuilt {digest}, committed {}: run cargo xtask kernels and commit",
            object.isa,
            object.digest
        );
        writeln!(out, "{}: rebuilt byte for byte", object.isa)?;
    }
    for (path, text) in manifest::render(&committed, &source_digest(repo)?)? {
        ensure!(
            repo.read(path)? == text.as_bytes(),
            "{path} is stale: run cargo xtask kernels"
        );
    }
    lint(repo, out)
}

/// Examines the objects on disk.
pub(crate) fn lint(repo: &Repo, out: &mut impl Write) -> Result<()> {
    let mut findings = 0;
    let scratch = tempfile::tempdir()?;
    for object in manifest::objects(repo)? {
        let unpacked = scratch.path().join("refrain.co");
        repo::write(&unpacked, &object.bytes)?;
        let listings = disasm::disassemble(&unpacked)?;
        let mut lines = object_lint::metadata(object.isa, &object.facts);
        lines.extend(object_lint::instructions(&listings));
        for line in &lines {
            writeln!(out, "{}: {line}", object.isa)?;
        }
        findings += lines.len();
        let instructions: usize = listings.iter().map(|l| l.instructions.len()).sum();
        let kernels = object.facts.kernels.len();
        writeln!(
            out,
            "{}: {kernels} kernels, {instructions} instructions",
            object.isa
        )?;
    }
    ensure!(findings == 0, "{findings} findings in the code objects");
    Ok(())
}

/// Compiles the sources for this host, where each lane is a fiber, and compares them with libm and
/// with formulas in f64.
pub(crate) fn numerics(repo: &Repo, out: &mut impl Write) -> Result<()> {
    compiler_version()?;
    let scratch = tempfile::tempdir()?;
    for name in ["exact_math", "lanes"] {
        let binary = scratch.path().join(name);
        let built = Command::new(CLANG)
            .args([
                "-x",
                "c++",
                "-std=c++17",
                "-O2",
                "-march=native",
                "-ffp-contract=off",
            ])
            .arg(repo.path(&format!("kernels/hip/check/{name}.cpp")))
            .args(["-lstdc++", "-lm", "-o"])
            .arg(&binary)
            .output()?;
        ensure!(
            built.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        let ran = Command::new(&binary).output()?;
        out.write_all(&ran.stdout)?;
        ensure!(ran.status.success(), "{name}.cpp found differences");
    }
    Ok(())
}

/// BLAKE3 over the flags and the sources' names and bytes, in name order.
pub(crate) fn source_digest(repo: &Repo) -> Result<String> {
    let folder = repo.path("kernels/hip");
    let mut files = Vec::new();
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|ext| ext == "hip" || ext == "hpp")
        {
            files.push(path);
        }
    }
    files.sort();
    let mut hasher = blake3::Hasher::new();
    hasher.update(FLAGS.join(" ").as_bytes());
    for path in files {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let bytes = repo::read(&path)?;
        for part in [name.unwrap_or_default().as_bytes(), &bytes] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// The first line of the compiler's version, which is also what it writes into `.comment`.
fn compiler_version() -> Result<String> {
    let output = Command::new(CLANG).arg("--version").output();
    let output = output.with_context(|| {
        format!("cannot run {CLANG}: install the apt packages clang-19, lld-19 and llvm-19")
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default();
    ensure!(
        output.status.success() && line.contains("clang version"),
        "{CLANG}: {text:?}"
    );
    Ok(line.to_owned())
}

fn compiled(repo: &Repo, isa: &Isa, scratch: &Path) -> Result<Vec<u8>> {
    let object = scratch.join(format!("{isa}.co"));
    compile(repo, isa, &object)?;
    repo::read(&object)
}

fn compile(repo: &Repo, isa: &Isa, to: &Path) -> Result<()> {
    let output = Command::new(CLANG)
        .arg(format!("--offload-arch={isa}"))
        .args(FLAGS)
        .arg(repo.path(SOURCE))
        .arg("-o")
        .arg(to)
        .output()
        .with_context(|| format!("cannot run {CLANG}"))?;
    if !output.status.success() {
        bail!(
            "{CLANG} for {isa}:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
