//! Any words at all: the decoder answers with an instruction or a typed error, in bounded time,
//! without panicking, and never reads past the end. `REFRAIN_LONG=1` tries many more.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use refrain_softgpu::isa::{FAMILIES, IsaError, Target, disassemble};

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn rounds() -> u32 {
    match std::env::var_os("REFRAIN_LONG") {
        Some(_) => 2_000_000,
        None => 60_000,
    }
}

fn decode(target: Target, words: &[u32]) -> usize {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let lines = disassemble(target, 0x1000, &bytes).unwrap();
    let total: usize = lines.iter().map(|l| l.dwords).sum();
    assert_eq!(total, words.len(), "{target} {words:08x?}");
    for line in &lines {
        match &line.text {
            Ok(text) => assert!(!text.contains("<operand"), "{target} {words:08x?}: {text}"),
            Err(error) => assert!(
                matches!(error, IsaError::Instruction { .. }) && line.dwords == 1,
                "{error}"
            ),
        }
    }
    lines.iter().filter(|l| l.text.is_ok()).count()
}

#[test]
fn random_words_decode_or_are_refused_by_type() {
    let mut random = Random(7);
    for target in Target::ALL {
        let mut decoded = 0;
        for _ in 0..rounds() {
            let words: Vec<u32> = (0..4).map(|_| random.next() as u32).collect();
            decoded += decode(target, &words[..1 + (random.next() & 3) as usize]);
        }
        println!("{target}: {decoded} instructions");
        assert!(decoded > 1000, "{target}: {decoded}");
    }
}

/// Instructions of the corpus with bits flipped, which reach fields that random words rarely do.
#[test]
fn flipped_bits_decode_or_are_refused_by_type() {
    let mut random = Random(11);
    for target in Target::ALL {
        let path = format!("{}/tests/listings/{target}.txt", env!("CARGO_MANIFEST_DIR"));
        let corpus = std::fs::read_to_string(path).unwrap();
        let flips = rounds() / 10_000;
        for line in corpus.lines() {
            let (words, _) = line.split_once(" | ").unwrap();
            let words: Vec<u32> = words
                .split(' ')
                .map(|w| u32::from_str_radix(w, 16).unwrap())
                .collect();
            for _ in 0..flips {
                let mut words = words.clone();
                for _ in 0..=random.next() & 3 {
                    let at = random.next() as usize % words.len();
                    words[at] ^= 1 << (random.next() & 31);
                }
                let _ = decode(target, &words);
            }
            for cut in 0..words.len() {
                let _ = decode(target, &words[..cut]);
            }
        }
    }
}

#[test]
fn families_that_are_not_modelled_are_named() {
    let cases = [
        (Target::Gfx1100, 0xcd00_0000, "VINTERP"),
        (Target::Gfx1151, 0xce00_0000, "LDSDIR"),
        (Target::Gfx1100, 0xe800_0000, "MTBUF"),
        (Target::Gfx1100, 0xf000_0000, "MIMG"),
        (Target::Gfx1100, 0xf800_0000, "EXP"),
        (Target::Gfx1100, 0xe000_0000, "Mubuf"),
        (Target::Gfx1201, 0xc400_0000, "VBUFFER"),
        (Target::Gfx1201, 0xd000_0000, "VIMAGE"),
        (Target::Gfx1201, 0xe400_0000, "VSAMPLE"),
        (Target::Gfx1201, 0xf800_0000, "EXP"),
    ];
    for (target, word, family) in cases {
        let bytes: Vec<u8> = [word, 0u32].iter().flat_map(|w| w.to_le_bytes()).collect();
        let lines = disassemble(target, 0, &bytes).unwrap();
        let error = lines[0].text.clone().unwrap_err().to_string();
        assert!(error.contains(family), "{target}: {error}");
    }
    assert_eq!(FAMILIES.len(), 9);
}
