//! Every row of the instruction table, in several operand patterns, against LLVM: its disassembler
//! on our words, its assembler on our text.
//!
//! `tests/listings/<target>.txt` is the corpus, one line per encoding: words and LLVM's text. With
//! llvm-mc-19 on PATH, LLVM is asked about every line again, in both directions;
//! `REFRAIN_LONG=1` makes the corpus anew and compares every alternative that LLVM accepts, and
//! `REFRAIN_BLESS=1` writes it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it compared"
)]

mod llvm;
mod newer;
mod words;

use refrain_softgpu::isa::{Format, Target, disassemble, opcodes};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Lines that the corpus keeps of one form: enough for each kind of operand, few enough to read.
const KEPT: usize = 4;
/// Distinct encodings of each form, if LLVM accepts that many.
const LEAST: usize = 3;

/// Rows that LLVM 19 does not know; LLVM 22 does (`newer`).
const NEWER: [&str; 6] = [
    "ds_bpermute_fi_b32",
    "s_alloc_vgpr",
    "s_endpgm_ordered_ps_done",
    "v_dual_dot2acc_f32_bf16",
    "v_dual_dot2acc_f32_f16",
    "v_swap_b16",
];

fn listing(target: Target) -> PathBuf {
    let name = format!("tests/listings/{target}.txt");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn hex(words: &[u32]) -> String {
    let words: Vec<String> = words.iter().map(|w| format!("{w:08x}")).collect();
    words.join(" ")
}

/// What the decoder under test says.
fn ours(target: Target, words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let lines = disassemble(target, 0, &bytes).unwrap();
    match &lines[0].text {
        Err(error) => error.to_string(),
        Ok(text) if lines.len() == 1 => text.clone(),
        Ok(_) => format!("{lines:?}"),
    }
}

/// The lines of a corpus file: words and text.
fn read(target: Target) -> Vec<(Vec<u32>, String)> {
    let text = std::fs::read_to_string(listing(target)).unwrap();
    text.lines()
        .map(|line| {
            let (words, text) = line.split_once(" | ").unwrap();
            let words = words
                .split(' ')
                .map(|w| u32::from_str_radix(w, 16).unwrap());
            (words.collect(), text.to_owned())
        })
        .collect()
}

fn report(target: Target, wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{target}: {} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(100)].join("\n")
    );
}

#[test]
fn the_corpus_reads_the_same_here() {
    for target in Target::ALL {
        let corpus = read(target);
        let wrong: Vec<String> = corpus
            .iter()
            .filter(|(words, text)| ours(target, words) != *text)
            .map(|(words, text)| {
                format!(
                    "{}: llvm `{text}`, ours `{}`",
                    hex(words),
                    ours(target, words)
                )
            })
            .collect();
        report(target, &wrong);
        let least = if target == Target::Gfx1151 { 100 } else { 3500 };
        assert!(
            corpus.len() > least,
            "{target}: only {} lines",
            corpus.len()
        );
    }
}

#[test]
fn llvm_says_the_same_in_both_directions() {
    if !llvm::present() {
        println!("skipped: {} is not on PATH", llvm::LLVM_MC);
        return;
    }
    for target in Target::ALL {
        let corpus = read(target);
        let texts = llvm::texts(target, corpus.iter().map(|(words, _)| words));
        let lines: Vec<&str> = corpus.iter().map(|(_, text)| text.as_str()).collect();
        let assembled = llvm::assemble(target, &lines);
        let mut wrong = Vec::new();
        for (((words, text), theirs), back) in corpus.iter().zip(texts).zip(assembled) {
            if theirs.as_deref() != Some(text) {
                wrong.push(format!("{}: `{text}` is {theirs:?} now", hex(words)));
            }
            if back.as_ref() != Some(words) {
                wrong.push(format!("{}: `{text}` assembles to {back:x?}", hex(words)));
            }
        }
        report(target, &wrong);
    }
}

/// Encodings that LLVM prints and that are refused here, each for a reason of its own.
fn explained(ours: &str) -> Option<&'static str> {
    const REASONS: [&str; 2] = [
        "a sign modifier on an operand that is no number with a sign",
        "a negative offset, which flat addresses lack",
    ];
    REASONS.into_iter().find(|reason| ours.contains(reason))
}

/// Everything LLVM accepts of what is made for a target, by row and form.
struct Generated {
    /// Row (format and mnemonic), form, pattern.
    keys: Vec<(Format, &'static str, u32, usize)>,
    words: Vec<Vec<u32>>,
}

fn generate(target: Target) -> Generated {
    let mut all = Generated {
        keys: Vec::new(),
        words: Vec::new(),
    };
    let mut seen = HashSet::new();
    for (format, opcode, mnemonic) in opcodes(target) {
        for (form, number) in words::forms(format, opcode) {
            for (k, candidates) in words::patterns(target, form, number)
                .into_iter()
                .enumerate()
            {
                for words in candidates {
                    if seen.insert(words.clone()) {
                        all.keys.push((format, mnemonic, number, k));
                        all.words.push(words);
                    }
                }
            }
        }
    }
    all
}

/// The lines of gfx1151 that gfx1100 does not have; all lines of the others.
fn without_inherited(target: Target, text: &str) -> String {
    if target != Target::Gfx1151 {
        return text.to_owned();
    }
    let base = std::fs::read_to_string(listing(Target::Gfx1100)).unwrap();
    let base: HashSet<&str> = base.lines().collect();
    let new = text.lines().filter(|l| !base.contains(l));
    new.map(|l| format!("{l}\n")).collect()
}

/// What LLVM accepts of the words of one form of a row.
#[derive(Default)]
struct Accepted {
    /// Pattern and line.
    lines: Vec<(usize, String)>,
}

impl Accepted {
    /// The lines that the corpus keeps: the first pattern and others in turn, so that the rows of a
    /// format together show every kind of operand.
    fn kept(&self, turn: usize) -> Vec<&str> {
        let mut firsts: Vec<usize> = Vec::new();
        for (at, (pattern, _)) in self.lines.iter().enumerate() {
            if at == 0 || self.lines[at - 1].0 != *pattern {
                firsts.push(at);
            }
        }
        if firsts.len() < LEAST {
            firsts.extend(0..self.lines.len());
            firsts.sort_unstable();
            firsts.dedup();
            firsts.truncate(KEPT);
        }
        let others = firsts.len() - 1;
        let mut chosen: Vec<usize> = (0..others.min(KEPT - 1))
            .map(|k| firsts[1 + (turn + k) % others])
            .chain([firsts[0]])
            .collect();
        chosen.sort_unstable();
        chosen.iter().map(|at| self.lines[*at].1.as_str()).collect()
    }
}

type Forms = BTreeMap<(Format, u32, &'static str), Accepted>;

/// Asks LLVM about everything made for a target. Returns what it accepts, and what differs here.
fn compare(target: Target) -> (Forms, Vec<String>) {
    let all = generate(target);
    let answers = llvm::texts(target, all.words.iter());
    let mut forms = Forms::new();
    let mut wrong = Vec::new();
    let mut accepted = Vec::new();
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    for ((key, words), answer) in all.keys.iter().zip(&all.words).zip(answers) {
        let Some(answer) = answer else { continue };
        let got = ours(target, words);
        if let Some(reason) = explained(&got) {
            *refused.entry(reason).or_default() += 1;
            continue;
        }
        if got != answer {
            wrong.push(format!("{}: llvm `{answer}`, ours `{got}`", hex(words)));
        }
        accepted.push((*key, words, answer));
    }
    let texts: Vec<&str> = accepted.iter().map(|(_, _, text)| text.as_str()).collect();
    let back = llvm::assemble(target, &texts);
    let mut same = 0;
    for ((key, words, text), back) in accepted.iter().zip(back) {
        let (format, mnemonic, number, pattern) = *key;
        let form = forms.entry((format, number, mnemonic)).or_default();
        if back.as_ref() == Some(*words) {
            same += 1;
            form.lines
                .push((pattern, format!("{} | {text}\n", hex(words))));
        }
    }
    let accepted = accepted.len();
    println!(
        "{target}: {} candidates, {accepted} accepted by LLVM, {same} assembled back, refused here: {refused:?}",
        all.words.len()
    );
    (forms, wrong)
}

#[test]
fn every_encoding_that_llvm_accepts_agrees() {
    if std::env::var_os("REFRAIN_LONG").is_none() || !llvm::present() {
        println!(
            "skipped: set REFRAIN_LONG=1, with {} on PATH",
            llvm::LLVM_MC
        );
        return;
    }
    for target in Target::ALL {
        let (forms, wrong) = compare(target);
        report(target, &wrong);
        let known: HashSet<_> = forms.keys().map(|(f, _, m)| (*f, *m)).collect();
        let unknown: Vec<_> = opcodes(target)
            .filter(|(format, _, m)| !known.contains(&(*format, *m)) && !NEWER.contains(m))
            .collect();
        assert!(
            unknown.is_empty(),
            "{target}: LLVM accepts no encoding of {unknown:?}"
        );
        let kept: String = forms
            .iter()
            .flat_map(|((_, number, _), accepted)| accepted.kept(*number as usize))
            .collect();
        let kept = without_inherited(target, &kept);
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
