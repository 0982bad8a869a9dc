//! LLVM's assembler and disassembler, as one process per question.

use refrain_softgpu::isa::Target;
use std::io::Write;
use std::process::{Command, Stdio};

/// The program that is asked.
pub const LLVM_MC: &str = "llvm-mc-19";
/// Bytes and text of `s_nop 0x5a5a`, which keeps answers apart. Before it stands another one, for
/// words that ask for a literal which they lack.
const MARKER: &str = "[0x5a,0x5a,0x80,0xbf]";
const MARKER_TEXT: &str = "s_nop 0x5a5a";
const PAD: &str = "0x5b,0x5a,0x80,0xbf";

/// Whether LLVM is there. `REFRAIN_REQUIRE_LLVM=1` makes its absence a failure.
pub fn present() -> bool {
    let found = Command::new(LLVM_MC)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    let required = std::env::var_os("REFRAIN_REQUIRE_LLVM").is_some();
    assert!(found || !required, "{LLVM_MC} is not on PATH");
    found
}

/// Output lines as (text, encoding), of an input that holds a marker after each question.
fn ask(target: Target, disassemble: bool, lines: String) -> Vec<Vec<(String, Vec<u32>)>> {
    let mut child = Command::new(LLVM_MC)
        .args(disassemble.then_some("--disassemble"))
        .args(["--show-encoding", "--triple=amdgcn-amd-amdhsa"])
        .arg(format!("--mcpu={target}"))
        .arg("--mattr=+wavefrontsize32")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut answers = vec![Vec::new()];
    for (inst, encoding) in text.lines().filter_map(|l| l.split_once("; encoding: ")) {
        if encoding == MARKER {
            answers.push(Vec::new());
        } else {
            let words = encoding_words(encoding);
            answers
                .last_mut()
                .unwrap()
                .push((inst.trim().to_owned(), words));
        }
    }
    answers.pop();
    answers
}

/// `[0x01,0x02,...]` as words.
pub fn encoding_words(text: &str) -> Vec<u32> {
    let bytes: Vec<u32> = text
        .trim_matches(['[', ']'])
        .split(',')
        .filter_map(|b| u32::from_str_radix(b.trim_start_matches("0x"), 16).ok())
        .collect();
    bytes
        .chunks(4)
        .map(|b| b.iter().rev().fold(0, |w, b| w << 8 | b))
        .collect()
}

/// LLVM's text of each instruction; `None` where the words are not exactly one.
pub fn texts<'a>(
    target: Target,
    corpus: impl Iterator<Item = &'a Vec<u32>> + Clone,
) -> Vec<Option<String>> {
    let lines: String = corpus
        .clone()
        .map(|words| {
            let bytes = words.iter().flat_map(|w| w.to_le_bytes());
            let bytes: Vec<String> = bytes.map(|b| format!("0x{b:02x}")).collect();
            format!(
                "{},{PAD}\n{}\n",
                bytes.join(","),
                MARKER.trim_matches(['[', ']'])
            )
        })
        .collect();
    let answers = ask(target, true, lines);
    assert_eq!(answers.len(), corpus.clone().count());
    answers
        .into_iter()
        .zip(corpus)
        .map(|(lines, words)| match &lines[..] {
            [(text, got), _] if got == words && !text.contains("/*") => Some(text.clone()),
            _ => None,
        })
        .collect()
}

/// The words that LLVM assembles each line to; `None` where it refuses.
pub fn assemble(target: Target, texts: &[&str]) -> Vec<Option<Vec<u32>>> {
    let lines: String = texts
        .iter()
        .map(|text| format!("{text}\n{MARKER_TEXT}\n"))
        .collect();
    let answers = ask(target, false, lines);
    assert_eq!(answers.len(), texts.len());
    answers
        .into_iter()
        .map(|mut lines| (lines.len() == 1).then(|| lines.remove(0).1))
        .collect()
}
