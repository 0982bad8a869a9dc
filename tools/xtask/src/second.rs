//! `cargo xtask kernels --second DIR`: the kernels as other compilers and optimisation levels make
//! them, outside the repository. Running and comparing them is left to the tests of
//! `refrain-softgpu` (`REFRAIN_SECOND_OBJECTS=DIR`).

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use refrain_kernels::Target;

use crate::kernels::{CLANG, FLAGS, SOURCE};
use crate::repo::Repo;

/// Who compiles.
#[derive(Clone, Copy)]
enum Compiler {
    Clang19,
    /// LLVM 22 of the Python package ziglang: `python3 -m ziglang clang`.
    Llvm22,
}

/// Folder, compiler and optimisation level.
const SETS: [(&str, Compiler, &str); 3] = [
    ("clang19-O2", Compiler::Clang19, "-O2"),
    ("llvm22-O2", Compiler::Llvm22, "-O2"),
    ("llvm22-O3", Compiler::Llvm22, "-O3"),
];

/// Builds `DIR/SET/TARGET/refrain.co` for every set and target, two at a time.
pub(crate) fn build(repo: &Repo, folder: &Path, out: &mut impl Write) -> Result<()> {
    let jobs: Vec<_> = SETS
        .iter()
        .flat_map(|set| Target::ALL.map(|target| (*set, target)))
        .collect();
    for pair in jobs.chunks(2) {
        let results: Vec<Result<String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = pair
                .iter()
                .map(|&(set, target)| scope.spawn(move || one(repo, folder, set, target)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|result| result.unwrap_or_else(|_| Err(anyhow::anyhow!("a build panicked"))))
                .collect()
        });
        for result in results {
            writeln!(out, "{}", result?)?;
        }
    }
    Ok(())
}

fn one(
    repo: &Repo,
    folder: &Path,
    (set, compiler, level): (&str, Compiler, &str),
    target: Target,
) -> Result<String> {
    let folder = folder.join(set).join(target.name());
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let object = folder.join("refrain.co");
    match compiler {
        Compiler::Clang19 => run(Command::new(CLANG)
            .arg(format!("--offload-arch={target}"))
            .args(flags(level))
            .arg(repo.path(SOURCE))
            .arg("-o")
            .arg(&object))?,
        Compiler::Llvm22 => llvm22(repo, &folder, level, target)?,
    }
    let bytes = fs::metadata(&object)?.len();
    Ok(format!("{set} {target}: {bytes} bytes"))
}

/// The flags of the shipped objects at another level.
fn flags(level: &str) -> impl Iterator<Item = &str> {
    let of_level = move |flag| if flag == "-O3" { level } else { flag };
    FLAGS.into_iter().map(of_level)
}

/// Compiled, assembled and linked one by one: the package's driver finds neither its assembler nor
/// its linker by itself.
fn llvm22(repo: &Repo, folder: &Path, level: &str, target: Target) -> Result<()> {
    let [assembly, relocatable, object] =
        ["refrain.s", "refrain.o", "refrain.co"].map(|name| folder.join(name));
    // `--no-gpu-bundle-output` is for what clang links itself.
    let flags = flags(level).filter(|flag| *flag != "--no-gpu-bundle-output");
    run(ziglang("clang")
        .arg(format!("--offload-arch={target}"))
        .args(flags)
        .arg(repo.path(SOURCE))
        .arg("-S")
        .arg("-o")
        .arg(&assembly))?;
    run(ziglang("clang")
        .arg("--target=amdgcn-amd-amdhsa")
        .arg(format!("-mcpu={target}"))
        .arg("-c")
        .arg(&assembly)
        .arg("-o")
        .arg(&relocatable))?;
    run(ziglang("ld.lld")
        .arg("-shared")
        .arg(&relocatable)
        .arg("-o")
        .arg(&object))?;
    for part in [assembly, relocatable] {
        fs::remove_file(&part).with_context(|| part.display().to_string())?;
    }
    Ok(())
}

fn ziglang(tool: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "ziglang", tool]);
    command
}

fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
