//! The disassembler against llvm-objdump, on every word of every code object in the repository.
//! Without LLVM nothing is compared here; `encodings` has committed listings for that case.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use refrain_softgpu::isa::{Target, disassemble};
use std::path::Path;
use std::process::Command;

const OBJDUMP: &str = "llvm-objdump-19";

fn ours(target: Target, path: &Path) -> Vec<(u64, String)> {
    let code = support::load(target, path);
    disassemble(target, code.text_va, &code.text)
        .unwrap()
        .into_iter()
        .map(|l| (l.address, l.text.unwrap_or_else(|e| e.to_string())))
        .collect()
}

/// Instruction lines of llvm-objdump: `text // ADDRESS: words`.
fn theirs(path: &Path) -> Option<Vec<(u64, String)>> {
    let out = Command::new(OBJDUMP).arg("-d").arg(path).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let lines = text.lines().filter_map(|line| {
        let (inst, comment) = line.split_once("//")?;
        let address = u64::from_str_radix(comment.trim().split(':').next()?, 16).ok()?;
        Some((address, inst.trim().to_owned()))
    });
    Some(lines.collect())
}

#[test]
fn equals_llvm_objdump() {
    let mut compared = 0;
    for target in Target::ALL {
        for path in support::objects(target) {
            let Some(want) = theirs(&path) else {
                println!("skipped: {OBJDUMP} is not on PATH");
                return;
            };
            let got = ours(target, &path);
            let mut wrong = Vec::new();
            // llvm-objdump prints a run of zero words as "..."; every line it prints must match.
            let mut at = 0;
            for (address, text) in &want {
                while got.get(at).is_some_and(|(a, _)| a < address) {
                    at += 1;
                }
                if got.get(at).is_none_or(|g| g.0 != *address || g.1 != *text) {
                    wrong.push(format!(
                        "{address:#x}: llvm `{text}`, ours {:?}",
                        got.get(at)
                    ));
                }
                compared += 1;
            }
            assert!(
                wrong.is_empty(),
                "{}: {} of {} lines differ:\n{}",
                path.display(),
                wrong.len(),
                want.len(),
                wrong[..wrong.len().min(40)].join("\n")
            );
        }
    }
    println!("{compared} instructions compared");
    assert!(compared > 0);
}

/// The objects of relatives, which are not executed: every word of them decodes, and their kernels are
/// those of the target whose instructions they have.
#[test]
fn objects_of_every_architecture_decode() {
    for object in refrain_kernels::code_objects() {
        let target = Target::ALL
            .into_iter()
            .find(|target| target.name() == object.isa.like.name())
            .unwrap();
        let code = support::parse(target, object.bytes());
        let own = support::shipped(target);
        assert!(code.kernels.keys().eq(own.kernels.keys()), "{}", object.isa);
        let lines = disassemble(target, code.text_va, &code.text).unwrap();
        let undecoded = lines.iter().find_map(|line| line.text.as_ref().err());
        assert!(undecoded.is_none(), "{}: {undecoded:?}", object.isa);
        println!("{}: {} instructions", object.isa, lines.len());
    }
}
