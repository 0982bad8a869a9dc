//! Random bytes on every surface: decoding, linting and dumping end without a panic.
//!
//! 2,000 streams per target and surface; 200,000 with `REFRAIN_LONG` set. The canary at the end
//! shows that the harness would notice.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::{Random, World};
use refrain_packet::Gfx;
use refrain_packet::aql::decode::decode;
use refrain_packet::decode::packets;
use refrain_packet::dump::{DumpContext, dump_ib, dump_packets};
use refrain_packet::kd::KernelDescriptor;
use refrain_packet::lint::{Context, Event, Range, lint_ib, lint_ring};
use refrain_packet::state::snapshots;
use refrain_packet::tables::opcodes::OPCODES;

/// Runs `body` on many generators and returns the seed that panicked first.
fn survey(count: u32, body: fn(Gfx, &mut Random)) -> Option<(Gfx, u64)> {
    for target in Gfx::ALL {
        for seed in 0..u64::from(count) {
            let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9) + target as u64);
            let run = std::panic::AssertUnwindSafe(|| body(target, &mut random));
            if std::panic::catch_unwind(run).is_err() {
                return Some((target, seed));
            }
        }
    }
    None
}

fn count() -> u32 {
    common::cases(2_000, 200_000)
}

/// Words that often look like packets, so that random streams reach deep code.
fn word(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => random.word(),
        1 => random.below(32),
        2 => {
            let row = &OPCODES[random.below(OPCODES.len() as u32) as usize];
            0xC000_0000 | random.below(9) << 16 | u32::from(row.code) << 8 | random.below(4)
        }
        _ => 0xC000_7600 | random.below(18) << 16,
    }
}

fn ib(target: Gfx, random: &mut Random) {
    let mut words: Vec<u32> = (0..random.below(96)).map(|_| word(random)).collect();
    for at in 1..words.len() {
        if words[at - 1] & 0xFF00 == 0x7600 && random.below(2) == 0 {
            // The compute block, or the last values of the 16-bit offset.
            words[at] = if random.below(4) == 0 {
                0xFFF0 + random.below(16)
            } else {
                0x200 + random.below(0x80)
            };
        }
    }
    let covered: usize = packets(&words)
        .map(|item| item.map_or_else(|e| e.skip().max(1) as usize, |row| row.words.len()))
        .sum();
    assert_eq!(covered, words.len(), "the reader covers every word once");
    let _ = snapshots(&words);
    let report = lint_ib(&words, &Context::bare(target));
    assert!(words.is_empty() || report.checked > 0);
    dump_ib(&words, &DumpContext::bare(target));
}

/// A good stream with a few words replaced, linted with the whole context.
fn damaged(target: Gfx, random: &mut Random) {
    let mut world = World::new(target);
    for _ in 0..1 + random.below(3) {
        let at = random.below(world.words.len() as u32) as usize;
        world.words[at] = word(random);
    }
    for node in &mut world.nodes {
        if random.below(4) == 0 {
            node.writes[0].range = Range::new(random.next(), random.next());
        }
    }
    let cut = random.below(world.words.len() as u32 + 1) as usize;
    world.words.truncate(cut);
    let _ = world.lint_ib();
}

fn ring(target: Gfx, random: &mut Random) {
    let mut world = World::new(target);
    for _ in 0..random.below(6) {
        let mut bytes = [0; 64];
        for byte in &mut bytes {
            *byte = random.word() as u8;
        }
        bytes[0] = random.below(7) as u8;
        let at = random.below(world.ring.len() as u32) as usize;
        if random.below(2) == 0 {
            world.ring[at] = bytes;
        } else {
            let index = random.below(64) as usize;
            world.ring[at][index] = random.word() as u8;
        }
        world.events.push(match random.below(5) {
            0 => Event::Reserve {
                count: random.next(),
            },
            1 => Event::Body { id: random.next() },
            2 => Event::Doorbell {
                value: random.next(),
            },
            3 => Event::Read {
                index: random.next(),
            },
            _ => Event::Store {
                range: Range::new(random.next(), random.next()),
            },
        });
    }
    for bytes in &world.ring {
        let _ = decode(bytes);
    }
    let _ = world.lint_ring();
    let _ = lint_ring(&world.ring, &Context::bare(target));
    dump_packets(&world.ring, &DumpContext::bare(target));
}

fn descriptor(target: Gfx, random: &mut Random) {
    let mut bytes = [0; 64];
    for byte in bytes.iter_mut() {
        if random.below(3) == 0 {
            *byte = random.word() as u8;
        }
    }
    let _ = KernelDescriptor::parse(&bytes[..random.below(65) as usize]);
    let row = KernelDescriptor::read(&bytes);
    let _ = row.refusals(target);
    let _ = row.user_sgprs();
    let _ = row.entry_va(random.next());
}

#[test]
fn indirect_buffers() {
    assert_eq!(survey(count(), ib), None);
}

#[test]
fn damaged_streams_with_context() {
    assert_eq!(survey(count() / 4, damaged), None);
}

#[test]
fn rings() {
    assert_eq!(survey(count(), ring), None);
}

#[test]
fn descriptors() {
    assert_eq!(survey(count(), descriptor), None);
}

/// The canary: a reader with a planted defect must be found by the same survey.
#[test]
fn the_canary_is_found() {
    fn planted(_: Gfx, random: &mut Random) {
        let words: Vec<u32> = (0..random.below(64)).map(|_| word(random)).collect();
        for item in packets(&words).flatten() {
            // Trusts that a SET_SH_REG always has a third value.
            if item.words[0] & 0xFF00 == 0x7600 {
                let _ = item.words[4];
            }
        }
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = survey(count(), planted);
    std::panic::set_hook(hook);
    assert!(
        found.is_some(),
        "the survey must find a planted out-of-bounds read"
    );
}
