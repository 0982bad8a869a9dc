//! Every row of every instruction table, in several operand patterns, against LLVM's disassembler.
//!
//! The words are made here from the format layouts of the ISA documents, not by the decoder under
//! test. `tests/listings/<target>.txt` holds what LLVM said about them; with llvm-mc-19 on PATH the
//! test also asks LLVM again. `REFRAIN_BLESS=1` rewrites the listings from LLVM.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use refrain_softgpu::isa::{Format, Generation, Target, disassemble, opcodes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LLVM_MC: &str = "llvm-mc-19";
const PATTERNS: u32 = 3;
/// Bytes of `s_nop 0x5a5a`.
const MARKER: &str = "0x5a,0x5a,0x80,0xbf";

fn listing(target: Target) -> PathBuf {
    let name = format!("tests/listings/{target}.txt");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Instruction words of an opcode in operand pattern `p`: 0 plain registers, 1 inline constants and
/// modifiers, 2 a literal or far registers.
fn words(target: Target, format: Format, op: u16, mnemonic: &str, p: u32) -> Vec<u32> {
    let op = u32::from(op);
    let gfx12 = target.generation() == Generation::Gfx12;
    let pick = |choices: [u32; 3]| choices[p as usize];
    let literal = 0x1234_5678;
    let with_literal = |mut w: Vec<u32>, used: bool| {
        if used {
            w.push(literal);
        }
        w
    };
    let scalar = pick([4, 193, 255]);
    match format {
        Format::Sop1 => {
            let w = 0b1_0111_1101 << 23 | 8 << 16 | op << 8 | scalar;
            with_literal(vec![w], p == 2)
        }
        Format::Sop2 => {
            let fused = mnemonic.contains("fmaak") || mnemonic.contains("fmamk");
            let w = 0b10 << 30 | op << 23 | 8 << 16 | 12 << 8 | scalar;
            with_literal(vec![w], p == 2 || fused)
        }
        Format::Sopc => with_literal(
            vec![0b1_0111_1110 << 23 | op << 16 | 12 << 8 | scalar],
            p == 2,
        ),
        Format::Sopk => {
            let wait = mnemonic.starts_with("s_waitcnt");
            let register = if wait { 124 } else { 8 };
            vec![0b1011 << 28 | op << 23 | register << 16 | pick([1, 0x8001, 0x7fff])]
        }
        Format::Sopp => vec![0b1_0111_1111 << 23 | op << 16 | sopp_immediate(mnemonic, p)],
        Format::Smem => smem(gfx12, op, mnemonic, p),
        Format::Vop1 | Format::Vop2 | Format::Vopc => short(format, op, mnemonic, p, literal),
        Format::Vop3 | Format::Vop3sd => long(op, mnemonic, p, literal),
        Format::Vop3p => packed(op, mnemonic, p),
        Format::Vopd => dual(op, mnemonic, p),
        Format::Ds => lds(op, mnemonic, p),
        Format::Global => global(gfx12, op, mnemonic, p),
        Format::Mubuf => vec![0b11_1000 << 26 | op << 18, 0],
    }
}

fn sopp_immediate(mnemonic: &str, p: u32) -> u32 {
    let choices = match mnemonic {
        "s_delay_alu" => [0x0001, 0x0091, 0x01a3],
        "s_waitcnt" => [0x0000, 0xfc07, 0x03f7],
        "s_sendmsg" => [3, 3, 3],
        "s_waitcnt_depctr" | "s_wait_alu" => [0x0fff, 0x0fff, 0x0fff],
        "s_endpgm" | "s_barrier" | "s_code_end" | "s_icache_inv" | "s_wait_idle" => [0, 0, 0],
        "s_sleep" | "s_setprio" | "s_trap" => [0, 1, 2],
        _ => [0, 7, 0xfff0],
    };
    choices[p as usize]
}

fn smem(gfx12: bool, op: u32, mnemonic: &str, p: u32) -> Vec<u32> {
    if mnemonic.ends_with("_inv") {
        return vec![
            0b11_1101 << 26 | op << if gfx12 { 13 } else { 18 },
            124 << 25,
        ];
    }
    let shared = 0b11_1101 << 26 | 16 << 6 | 2;
    let (offset, soffset) = [(0x18, 124), (0, 124), (0x10, 7)][p as usize];
    if gfx12 {
        vec![shared | op << 13, soffset << 25 | offset]
    } else {
        vec![shared | op << 18, soffset << 25 | offset]
    }
}

fn short(format: Format, op: u32, mnemonic: &str, p: u32, literal: u32) -> Vec<u32> {
    let fused = mnemonic.contains("fmaak") || mnemonic.contains("fmamk");
    // A swap has no constant source; 250 asks for DPP in the next word.
    let vector_only = mnemonic == "v_swap_b32" || mnemonic.contains("readfirstlane");
    let dpp = !(fused || vector_only || mnemonic.contains("64") || mnemonic == "v_nop");
    let src = match p {
        0 => 256 + 6,
        _ if mnemonic == "v_nop" => 0,
        _ if vector_only => 256 + 9,
        1 if dpp => 250,
        1 => 242,
        _ => 255,
    };
    let w = match format {
        Format::Vop1 if mnemonic == "v_nop" => 0b011_1111 << 25,
        Format::Vop1 => 0b011_1111 << 25 | 4 << 17 | op << 9 | src,
        Format::Vop2 => op << 25 | 4 << 17 | 10 << 9 | src,
        _ => 0b011_1110 << 25 | op << 17 | 10 << 9 | src,
    };
    let mut out = vec![w];
    match src {
        250 => out.push(0xff << 24 | 1 << 19 | 0x164 << 8 | 6),
        255 => out.push(literal),
        _ if fused => out.push(literal),
        _ => {}
    }
    out
}

fn long(op: u32, mnemonic: &str, p: u32, literal: u32) -> Vec<u32> {
    let scalar_out = matches!(op, 0x120..=0x122 | 0x2fc..=0x302);
    let lanes = mnemonic.contains("lane");
    let src0 = match p {
        _ if mnemonic.contains("writelane") => 4,
        _ if mnemonic.starts_with("v_s_") => 4,
        2 if !lanes => 255,
        _ => 256 + 6,
    };
    let src1 = if lanes { 8 } else { 256 + 10 };
    let src2 = match mnemonic {
        m if lanes && !m.contains("permlane") => 0,
        m if lanes && m.contains("permlane") => 10,
        m if m.contains("co_ci") || m.contains("cndmask") => 20,
        _ => 256 + 14,
    };
    let float = ["_f32", "_f64"].iter().any(|t| mnemonic.ends_with(t))
        && !mnemonic.contains("_pk_")
        && !mnemonic.contains("_u32_f")
        && !mnemonic.contains("_i32_f");
    let neg = u32::from(float && p == 1 && !lanes);
    let middle = if scalar_out { 12 << 8 } else { (neg * 2) << 8 };
    let w0 = 0b11_0101 << 26 | op << 16 | middle | 4;
    let w1 = neg << 29 | src2 << 18 | src1 << 9 | src0;
    let mut out = vec![w0, w1];
    if src0 == 255 {
        out.push(literal);
    }
    out
}

fn packed(op: u32, mnemonic: &str, p: u32) -> Vec<u32> {
    let mix = mnemonic.contains("mix");
    let neg = u32::from(p == 1);
    let (opsel, opsel_hi) = match (mix, p) {
        (true, 1) => (1, 0b011),
        (true, _) => (0, 0b010),
        (false, 2) if mnemonic.contains("pk") => (0b01, 0b10 | 0b100),
        _ => (0, 0b111),
    };
    let w0 = 0b1100_1100 << 24 | op << 16 | (opsel_hi >> 2) << 14 | opsel << 11 | 4;
    let w1 = neg << 29 | (opsel_hi & 3) << 27 | (256 + 14) << 18 | (256 + 10) << 9 | (256 + 6);
    vec![w0, w1]
}

fn dual(op: u32, mnemonic: &str, p: u32) -> Vec<u32> {
    // The Y half carries the opcode; X is a plain multiply. Sources sit in different banks.
    let fused = mnemonic.contains("fmaak") || mnemonic.contains("fmamk");
    let srcy = match p {
        1 => 242,
        2 => 255,
        _ => 256 + 7,
    };
    let w0 = 0b11_0010 << 26 | 3 << 22 | op << 17 | 10 << 9 | (256 + 6);
    let w1 = 4 << 24 | (9 / 2) << 17 | 11 << 9 | srcy;
    let mut out = vec![w0, w1];
    if p == 2 || fused {
        out.push(0x1234_5678);
    }
    out
}

fn lds(op: u32, mnemonic: &str, p: u32) -> Vec<u32> {
    let offset = if mnemonic == "ds_nop" {
        0
    } else {
        [0, 0x10, 0x0804][p as usize]
    };
    vec![
        0b11_0110 << 26 | op << 18 | offset,
        40 << 24 | 30 << 16 | 20 << 8 | 10,
    ]
}

fn global(gfx12: bool, op: u32, mnemonic: &str, p: u32) -> Vec<u32> {
    let saddr = [124, 124, 4][p as usize];
    let atomic = mnemonic.contains("atomic");
    if gfx12 {
        let cache = mnemonic.starts_with("global_inv") || mnemonic.starts_with("global_wb");
        if cache {
            return vec![0b1110_1110 << 24 | op << 14 | 124, p << 18, 0];
        }
        let hint = if atomic && p == 1 {
            1 << 20 | 2 << 18
        } else {
            0
        };
        let offset: i32 = [0, 16, -8][p as usize];
        let w0 = 0b1110_1110 << 24 | op << 14 | saddr;
        let w1 = 20 << 23 | hint | 40;
        vec![w0, w1, (offset as u32) << 8 | 10]
    } else {
        let offset = [0, 16, 0x1ff8][p as usize];
        let glc = u32::from(atomic && p == 1) << 14;
        let w0 = 0b11_0111 << 26 | op << 18 | 2 << 16 | glc | offset;
        vec![w0, 40 << 24 | saddr << 16 | 20 << 8 | 10]
    }
}

fn hex(words: &[u32]) -> String {
    words
        .iter()
        .map(|w| format!("{w:08x}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// One encoding: the fullest candidate that LLVM accepts.
struct Case {
    mnemonic: &'static str,
    candidates: Vec<Vec<u32>>,
}

/// The same instruction with ever more of the fields cleared that an opcode may not have: LLVM
/// wants those to be zero, and so tells which fields the opcode has.
fn candidates(target: Target, format: Format, filled: Vec<u32>) -> Vec<Vec<u32>> {
    let gfx12 = target.generation() == Generation::Gfx12;
    let optional: &[(usize, u32)] = match format {
        Format::Vop3 | Format::Vop3sd | Format::Vop3p => &[(1, 0x1ff << 18), (1, 0x1ff << 9)],
        Format::Vopd => &[(1, 0xff << 9)],
        Format::Ds => &[(1, 0xff << 16), (1, 0xff << 24), (1, 0xff << 8), (1, 0xff)],
        Format::Global if gfx12 => &[(1, 0xff), (1, 0xff << 23)],
        Format::Global => &[(1, 0xff << 24), (1, 0xff << 8)],
        _ => &[],
    };
    let mut sets: Vec<u32> = (0..1 << optional.len()).collect();
    sets.sort_by_key(|s| s.count_ones());
    let clear = |set: u32| {
        let mut words = filled.clone();
        for (k, (word, mask)) in optional.iter().enumerate() {
            if set >> k & 1 == 1 {
                words[*word] &= !mask;
            }
        }
        words
    };
    sets.into_iter().map(clear).collect()
}

/// All encodings of a target; long forms of short opcodes included.
fn corpus(target: Target) -> Vec<Case> {
    let mut all = Vec::new();
    for (format, op, mnemonic) in opcodes(target) {
        let mut forms = vec![(format, op)];
        let long_form = match format {
            Format::Vop1 if mnemonic != "v_nop" && mnemonic != "v_swap_b32" => Some(0x180 + op),
            Format::Vop2 if !mnemonic.contains("fmaak") && !mnemonic.contains("fmamk") => {
                Some(0x100 + op)
            }
            Format::Vopc => Some(op),
            _ => None,
        };
        if let Some(long) = long_form.filter(|_| !mnemonic.contains("readfirstlane")) {
            forms.push((Format::Vop3, long));
        }
        for (format, op) in forms {
            for p in 0..PATTERNS {
                let filled = words(target, format, op, mnemonic, p);
                all.push(Case {
                    mnemonic,
                    candidates: candidates(target, format, filled),
                });
            }
        }
    }
    all
}

/// LLVM's text for each of the encodings; `None` where LLVM rejects it.
fn llvm(target: Target, corpus: &[Vec<u32>]) -> Option<Vec<Option<String>>> {
    let mut child = Command::new(LLVM_MC)
        .args([
            "--disassemble",
            "--show-encoding",
            "--triple=amdgcn-amd-amdhsa",
        ])
        .arg(format!("--mcpu={target}"))
        .arg("--mattr=+wavefrontsize32")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // A marker after each case keeps the answers apart: LLVM answers words that are more than one
    // instruction with several lines, and words that are none with no line at all.
    let lines: String = corpus
        .iter()
        .map(|words| {
            let bytes = words.iter().flat_map(|w| w.to_le_bytes());
            let bytes: Vec<String> = bytes.map(|b| format!("0x{b:02x}")).collect();
            format!("{}\n{MARKER}\n", bytes.join(","))
        })
        .collect();
    let mut input = child.stdin.take()?;
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let out = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let mut answers = vec![Vec::new()];
    for (inst, encoding) in text.lines().filter_map(|l| l.split_once("; encoding: ")) {
        if encoding == format!("[{MARKER}]") {
            answers.push(Vec::new());
        } else if let Some(last) = answers.last_mut() {
            last.push((inst.trim().to_owned(), encoding.split(',').count()));
        }
    }
    answers.pop();
    let whole = |(lines, words): (Vec<(String, usize)>, &Vec<u32>)| match &lines[..] {
        [(text, bytes)] if *bytes == words.len() * 4 && !text.contains("/*") => Some(text.clone()),
        _ => None,
    };
    assert_eq!(answers.len(), corpus.len());
    Some(answers.into_iter().zip(corpus).map(whole).collect())
}

/// The lines of gfx1151 that gfx1100 does not have; all lines of the others.
fn without_inherited(target: Target, text: &str) -> String {
    if target != Target::Gfx1151 {
        return text.to_owned();
    }
    let base = std::fs::read_to_string(listing(Target::Gfx1100)).unwrap();
    let base: std::collections::HashSet<&str> = base.lines().collect();
    text.lines()
        .filter(|l| !base.contains(l))
        .map(|l| format!("{l}\n"))
        .collect()
}

/// What the decoder under test says.
fn ours(target: Target, words: &[u32]) -> String {
    let bytes = support::bytes(words.iter().copied());
    let lines = disassemble(target, 0, &bytes).unwrap();
    match &lines[..] {
        [one] => one.text.clone().unwrap_or_else(|e| e.to_string()),
        _ => format!("{lines:?}"),
    }
}

#[test]
fn every_row_agrees_with_llvm() {
    for target in Target::ALL {
        let cases = corpus(target);
        let flat: Vec<Vec<u32>> = cases.iter().flat_map(|c| c.candidates.clone()).collect();
        if let Some(answers) = llvm(target, &flat) {
            let mut answers = answers.into_iter().zip(&flat);
            let mut wrong = Vec::new();
            let mut text = String::new();
            let mut known = std::collections::HashSet::new();
            for case in &cases {
                let answers: Vec<_> = answers.by_ref().take(case.candidates.len()).collect();
                let accepted = answers.into_iter().find_map(|(a, words)| Some((a?, words)));
                let Some((answer, words)) = accepted else {
                    continue;
                };
                known.insert(case.mnemonic);
                let got = ours(target, words);
                text += &format!("{} | {answer}\n", hex(words));
                if got != answer {
                    wrong.push(format!("{}: llvm `{answer}`, ours `{got}`", hex(words)));
                }
            }
            let unknown: Vec<_> = opcodes(target)
                .map(|o| o.2)
                .filter(|m| !known.contains(m))
                .collect();
            assert!(
                unknown.is_empty(),
                "{target}: LLVM accepts no encoding of {unknown:?}"
            );
            assert!(
                wrong.is_empty(),
                "{target}: {} differ:\n{}",
                wrong.len(),
                wrong.join("\n")
            );
            if std::env::var_os("REFRAIN_BLESS").is_some() {
                std::fs::write(listing(target), without_inherited(target, &text)).unwrap();
            }
        } else {
            println!("{target}: {LLVM_MC} is not on PATH, only the listing is checked");
        }
        let committed = std::fs::read_to_string(listing(target)).unwrap();
        let mut count = 0;
        for line in committed.lines() {
            let (words, text) = line.split_once(" | ").unwrap();
            let words: Vec<u32> = words
                .split(' ')
                .map(|w| u32::from_str_radix(w, 16).unwrap())
                .collect();
            assert_eq!(ours(target, &words), text, "{target}: {}", hex(&words));
            count += 1;
        }
        let least = if target == Target::Gfx1151 { 50 } else { 2000 };
        assert!(count > least, "{target}: only {count} lines");
    }
}
