//! Seeded inputs, mutations of good ones, and the loop that every surface runs in.

use std::path::Path;
use std::time::Instant;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit.max(1)
    }

    /// A word that is small, near a limit, or anything.
    pub fn word(&mut self) -> u32 {
        const EDGES: [u32; 12] = [
            0,
            1,
            2,
            3,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            u32::MAX,
        ];
        match self.below(3) {
            0 => EDGES[self.below(EDGES.len())],
            1 => self.next() as u32 >> self.below(32),
            _ => self.next() as u32,
        }
    }

    /// Changes one to four places of `bytes[from..to]`: bits, bytes, aligned words.
    pub fn damage(&mut self, bytes: &mut [u8], from: usize, to: usize) {
        let to = to.min(bytes.len());
        if from >= to {
            return;
        }
        for _ in 0..=self.below(4) {
            let at = from + self.below(to - from);
            match self.below(4) {
                0 | 1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = self.next() as u8,
                _ => {
                    let word = self.word().to_le_bytes();
                    let at = at & !3;
                    let len = 4.min(bytes.len() - at);
                    bytes[at..at + len].copy_from_slice(&word[..len]);
                }
            }
        }
    }
}

/// Whether an input was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Refused,
    Accepted,
}

impl From<bool> for Outcome {
    fn from(accepted: bool) -> Self {
        if accepted {
            Self::Accepted
        } else {
            Self::Refused
        }
    }
}

pub fn fixture(relative: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)).unwrap()
}

/// The shipped code object of a target.
pub fn shipped(target: refrain_softgpu::isa::Target) -> &'static [u8] {
    let target = refrain_kernels::Target::parse(target.name()).unwrap();
    refrain_kernels::code_object(target).bytes()
}

/// Gives every input of a surface to `run`, and demands that both outcomes occur, so that a surface
/// whose inputs all die at the first check does not count as tested.
pub fn inputs(surface: &str, mut run: impl FnMut(u64, &mut Random) -> Outcome) {
    let long = std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1");
    let count = if long { 200_000 } else { 3_000 };
    let only = std::env::var("REFRAIN_FUZZ_ONLY")
        .ok()
        .and_then(|text| text.parse().ok());
    let range = only.map_or(0..count, |only: u64| only..only + 1);
    let start = Instant::now();
    let mut accepted = 0_u64;
    for index in range {
        let seed = surface.bytes().fold(index, |seed, byte| {
            seed.rotate_left(8) ^ u64::from(byte) << 40
        });
        let mut random = Random::new(seed);
        let input = std::panic::AssertUnwindSafe(|| run(index, &mut random));
        match std::panic::catch_unwind(input) {
            Ok(outcome) => accepted += u64::from(outcome == Outcome::Accepted),
            Err(_) => {
                panic!("{surface}: input {index} panicked; REFRAIN_FUZZ_ONLY={index} runs it alone")
            }
        }
    }
    let took = start.elapsed().as_secs_f64();
    let refused = count - accepted;
    println!(
        "{surface}: {count} inputs in {took:.1} s, {:.0}/s; {refused} refused",
        count as f64 / took
    );
    if only.is_none() {
        assert!(
            accepted > 0 && accepted < count,
            "{surface}: {accepted} of {count} accepted"
        );
    }
}
