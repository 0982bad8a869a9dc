//! Repository chores: `cargo xtask kernels | tidy | bless`.
//!
//! Everything here runs on a developer's machine or in CI; nothing at build or run time of the
//! product depends on it. Each command is a module; this file only parses the command line.
#![forbid(unsafe_code)]

mod bless;
mod disasm;
mod docs_kernels;
mod exec_lint;
mod kernels;
mod manifest;
mod metadata;
mod object_lint;
mod repo;
mod second;
mod tidy;

use std::io::Write;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::repo::Repo;

#[derive(Parser)]
#[command(name = "xtask", about = "Repository chores")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the GPU kernels into kernels/objects, with their manifest and table (needs clang-19,
    /// lld-19, llvm-19)
    Kernels {
        /// Rebuild elsewhere and compare with the committed objects; write nothing
        #[arg(long)]
        check: bool,
        /// Only examine the committed objects: metadata and disassembly
        #[arg(long, conflicts_with = "check")]
        lint: bool,
        /// Only compile the sources for this host and compare them with libm and f64 formulas
        /// (needs the C++ standard library)
        #[arg(long, conflicts_with_all = ["check", "lint"])]
        numerics: bool,
        /// Only build into DIR what the shipped objects are compared with: clang-19 at -O2, and LLVM
        /// 22 (`python3 -m ziglang`, Python package ziglang) at -O2 and -O3
        #[arg(long, value_name = "DIR", conflicts_with_all = ["check", "lint", "numerics"])]
        second: Option<std::path::PathBuf>,
    },
    /// Checks file lengths, opening comments and words
    Tidy,
    /// Regenerates everything that is generated from other files
    Bless {
        /// Compare with the committed files; write nothing
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    let repo = Repo::of_this_crate();
    let out = &mut std::io::stdout().lock();
    match Cli::parse().command {
        Command::Kernels { check: true, .. } => kernels::check(&repo, out),
        Command::Kernels { lint: true, .. } => kernels::lint(&repo, out),
        Command::Kernels { numerics: true, .. } => kernels::numerics(&repo, out),
        Command::Kernels {
            second: Some(folder),
            ..
        } => second::build(&repo, &folder, out),
        Command::Kernels { .. } => kernels::build(&repo, out),
        Command::Tidy => tidy::run(&repo, out),
        Command::Bless { check } => bless::run(&repo, check, out),
    }?;
    out.flush()?;
    Ok(())
}
