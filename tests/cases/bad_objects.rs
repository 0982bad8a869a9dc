//! Damaged code objects through the reader that lowering uses: a typed error or the kernels, never a
//! panic. The loader of the software GPU has its own inputs in `replay/softgpu/tests/fuzz`.

use refrain_lower::KernelImages;
use refrain_tests::{long, repository};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as usize % limit.max(1)
    }
}

/// One to four changed bits or bytes in the headers, the notes and tables at both ends, or anywhere.
fn damaged(good: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    let (from, to) = match random.below(4) {
        0 => (0, 64),
        1 => (64, 4096),
        2 => (bytes.len() - 2048, bytes.len()),
        _ => (0, bytes.len()),
    };
    for _ in 0..=random.below(4) {
        let at = from + random.below(to - from);
        bytes[at] = match random.below(3) {
            0 => random.below(256) as u8,
            _ => bytes[at] ^ 1 << random.below(8),
        };
    }
    if random.below(12) == 0 {
        bytes.truncate(random.below(good.len()));
    }
    bytes
}

/// 200,000 inputs in the long form.
#[test]
fn damaged_objects_are_refused_or_read() {
    let count: u64 = if long() { 200_000 } else { 2_000 };
    let good = ["gfx1100", "gfx1201"].map(|target| {
        let path = format!("replay/softgpu/tests/fixtures/probe.{target}.co");
        std::fs::read(repository(&path)).unwrap()
    });
    let mut refused = 0;
    for index in 0..count {
        let mut random = Random(index);
        let bytes = damaged(&good[index as usize % 2], &mut random);
        let read = std::panic::catch_unwind(|| KernelImages::new().add(&bytes).is_ok());
        assert!(read.is_ok(), "input {index} panicked");
        refused += u64::from(!read.unwrap());
    }
    println!("code objects read for lowering: {count} inputs, {refused} refused");
    assert!(
        refused > count / 10 && refused < count,
        "{refused} of {count} refused"
    );
}
