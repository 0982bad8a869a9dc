//! What LLVM 19 cannot say: halves of registers by name, and instructions that LLVM got later. LLVM
//! 22's assembler, from the Python package ziglang, is asked instead.
//!
//! `tests/listings/halves.<target>.txt` is the corpus. `REFRAIN_LONG=1` asks LLVM 22 about many more
//! encodings where the package is installed, and `REFRAIN_BLESS=1` writes the corpus.

use super::{NEWER, hex, words};
use refrain_softgpu::isa::{Format, Syntax, Target, disassemble_as, opcodes};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Lines that the corpus keeps of one form.
const KEPT: usize = 3;

fn listing(target: Target) -> PathBuf {
    let name = format!("tests/listings/halves.{target}.txt");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text of one whole instruction.
fn ours(target: Target, words: &[u32]) -> Option<String> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut lines = disassemble_as(Syntax::True16, target, 0, &bytes).unwrap();
    match lines.len() {
        1 => lines.remove(0).text.ok(),
        _ => None,
    }
}

/// Standard output and error of LLVM 22's assembler.
fn run(target: Target, source: String) -> Option<(String, String)> {
    let mut child = Command::new("python3")
        .args(["-m", "ziglang", "clang", "-cc1as", "-triple"])
        .args(["amdgcn-amd-amdhsa", "-target-cpu", target.name()])
        .args(["-target-feature", "+real-true16", "-filetype", "asm"])
        .args(["-show-encoding", "-o", "-", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let writer = std::thread::spawn(move || input.write_all(source.as_bytes()));
    let out = child.wait_with_output().ok()?;
    let _ = writer.join();
    Some((
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    ))
}

/// What a line assembles to, and LLVM's text of that.
type Assembled = (Vec<u32>, String);

/// Per line: the words it assembles to and the text that LLVM prints of them; `None` where refused.
fn assemble(target: Target, lines: &[String]) -> Option<Vec<Option<Assembled>>> {
    let (_, errors) = run(target, lines.join("\n") + "\n")?;
    let number = |line: &str| -> Option<usize> {
        let (place, _) = line.split_once(": error: ")?;
        place.split(':').nth(1)?.parse().ok()
    };
    let refused: HashSet<usize> = errors.lines().filter_map(number).collect();
    if refused.is_empty() && !errors.trim().is_empty() {
        return None;
    }
    let kept: Vec<&str> = (1..)
        .zip(lines)
        .filter(|(n, _)| !refused.contains(n))
        .map(|(_, line)| line.as_str())
        .collect();
    let (text, errors) = run(target, kept.join("\n") + "\n")?;
    assert!(errors.trim().is_empty(), "{errors}");
    let mut answers = text
        .lines()
        .filter_map(|line| line.split_once("; encoding: "));
    let mut all = Vec::new();
    for n in 1..=lines.len() {
        all.push(if refused.contains(&n) {
            None
        } else {
            let (text, encoding) = answers.next()?;
            Some((
                super::llvm::encoding_words(encoding),
                text.trim().to_owned(),
            ))
        });
    }
    Some(all)
}

/// The subsets of the bits that select halves, of a register form.
fn variants(form: Format, words: &[u32]) -> Vec<Vec<u32>> {
    let dpp = matches!(words[0] & 0x1ff, 233 | 234 | 250);
    let bits: Vec<(usize, u32)> = match form {
        Format::Vop1 if dpp => vec![(1, 7), (0, 24)],
        Format::Vop1 => vec![(0, 7), (0, 24)],
        Format::Vop2 if dpp => vec![(1, 7), (0, 16), (0, 24)],
        Format::Vop2 => vec![(0, 7), (0, 16), (0, 24)],
        Format::Vopc if dpp => vec![(1, 7), (0, 16)],
        Format::Vopc => vec![(0, 7), (0, 16)],
        Format::Vop3 => vec![(0, 11), (0, 12), (0, 13), (0, 14)],
        _ => Vec::new(),
    };
    (0..1u32 << bits.len())
        .map(|set| {
            let mut words = words.to_vec();
            for (k, (word, bit)) in bits.iter().enumerate() {
                words[*word] |= (set >> k & 1) << bit;
            }
            words
        })
        .collect()
}

type Made = (Format, u32, &'static str, Vec<u32>, String);

fn generate(target: Target) -> Vec<Made> {
    let mut all = Vec::new();
    let mut seen = HashSet::new();
    for (format, opcode, mnemonic) in opcodes(target) {
        for (form, number) in words::forms(format, opcode) {
            let patterns = words::patterns(target, form, number);
            for base in patterns.iter().flat_map(|p| p.iter().take(12)) {
                for words in variants(form, base) {
                    let Some(text) = ours(target, &words) else {
                        continue;
                    };
                    let halves = text.contains(".h") || text.contains(".l");
                    if (halves || NEWER.contains(&mnemonic)) && seen.insert(words.clone()) {
                        all.push((format, number, mnemonic, words, text));
                    }
                }
            }
        }
    }
    all
}

#[test]
fn the_corpus_of_halves_reads_the_same_here() {
    for target in Target::ALL {
        let text = std::fs::read_to_string(listing(target)).unwrap();
        let mut count = 0;
        for line in text.lines() {
            let (words, text) = line.split_once(" | ").unwrap();
            let words: Vec<u32> = words
                .split(' ')
                .map(|w| u32::from_str_radix(w, 16).unwrap())
                .collect();
            assert_eq!(
                ours(target, &words).as_deref(),
                Some(text),
                "{target} {line}"
            );
            count += 1;
        }
        assert!(count > 300, "{target}: only {count} lines");
    }
}

#[test]
fn llvm_22_says_the_same_about_halves() {
    if std::env::var_os("REFRAIN_LONG").is_none() {
        println!("skipped: set REFRAIN_LONG=1");
        return;
    }
    for target in Target::ALL {
        let made = generate(target);
        let lines: Vec<String> = made.iter().map(|m| m.4.clone()).collect();
        let Some(answers) = assemble(target, &lines) else {
            println!("skipped: no LLVM 22 (Python package ziglang)");
            assert!(std::env::var_os("REFRAIN_REQUIRE_LLVM22").is_none());
            return;
        };
        let mut wrong = Vec::new();
        let mut kept = BTreeMap::<(Format, u32, &str), Vec<String>>::new();
        let (mut same, mut ignored, mut refused) = (0, 0, 0);
        for ((format, number, mnemonic, words, text), answer) in made.iter().zip(answers) {
            match answer {
                Some((back, theirs)) if back == *words && theirs == *text => {
                    same += 1;
                    let lines = kept.entry((*format, *number, mnemonic)).or_default();
                    if lines.len() < KEPT {
                        lines.push(format!("{} | {text}\n", hex(words)));
                    }
                }
                // A field that the instruction ignores, or a literal of more than 16 bits.
                Some((back, theirs))
                    if theirs == *text && ours(target, &back).as_ref() == Some(text) =>
                {
                    ignored += 1;
                }
                Some((back, theirs)) => {
                    wrong.push(format!(
                        "{}: `{text}` is {} `{theirs}`",
                        hex(words),
                        hex(&back)
                    ));
                }
                None => refused += 1,
            }
        }
        println!(
            "{target}: {} made, {same} the same, {ignored} but for ignored fields, {refused} refused by LLVM",
            made.len()
        );
        super::report(target, &wrong);
        let known: HashSet<&str> = kept.keys().map(|(_, _, mnemonic)| *mnemonic).collect();
        let unknown: Vec<&&str> = NEWER.iter().filter(|m| !known.contains(*m)).collect();
        println!("{target}: newer rows that this target lacks: {unknown:?}");
        let kept: String = kept.into_values().flatten().collect();
        if std::env::var_os("REFRAIN_BLESS").is_some() {
            std::fs::write(listing(target), &kept).unwrap();
        }
        let committed = std::fs::read_to_string(listing(target)).unwrap();
        assert!(
            committed == kept,
            "{target}: the corpus is stale; set REFRAIN_BLESS=1"
        );
    }
}
