//! The drawing sampler against a sort in f64 and an independent Philox.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use support::{Gpu, Random};
use tools::launch;

/// Philox4x32-10 with counter (pos, 0, 0, 0), all four words.
fn philox(pos: u32, seed: u64) -> [u32; 4] {
    let mut c = [pos, 0, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let product = |m: u32, x: u32| {
            let wide = u64::from(m) * u64::from(x);
            ((wide >> 32) as u32, wide as u32)
        };
        let (a, b) = (product(0xD251_1F53, c[0]), product(0xCD9E_8D57, c[2]));
        c = [b.0 ^ c[1] ^ key[0], b.1, a.0 ^ c[3] ^ key[1], a.1];
        key = [
            key[0].wrapping_add(0x9E37_79B9),
            key[1].wrapping_add(0xBB67_AE85),
        ];
    }
    c
}

/// Known answer of Random123's kat_vectors.
#[test]
fn philox_gives_the_published_words() {
    assert_eq!(
        philox(0, 0),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
}

#[derive(Clone, Copy)]
struct Settings {
    top_k: u32,
    temperature: f32,
    top_p: f32,
}

fn sample(gpu: &Gpu, logits: &[f32], s: Settings, pos: u32, seed: u64, done: u32) -> u32 {
    let mut words = [0; 13];
    (words[1], words[2], words[10]) = (pos, done, 777);
    (words[11], words[12]) = (seed as u32, (seed >> 32) as u32);
    let control = gpu.u32s("control", &words);
    let imms = [
        ("n", logits.len() as u32),
        ("top_k", s.top_k),
        ("inv_temperature", (1.0 / s.temperature).to_bits()),
        ("top_p", s.top_p.to_bits()),
    ];
    let pointers = [("logits", gpu.f32s("logits", logits)), ("control", control)];
    launch(gpu, "sample", &pointers, &imms);
    let after = gpu.read_u32s(control, 13);
    words[10] = after[10];
    assert_eq!(after, words, "only `sampled` changes");
    after[10]
}

/// The token by a stable sort and f64 sums; the logits must be finite.
fn reference(logits: &[f32], s: Settings, pos: u32, seed: u64) -> u32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap());
    order.truncate(s.top_k as usize);
    let best = f64::from(logits[order[0]]);
    let p: Vec<f64> = order
        .iter()
        .map(|i| ((f64::from(logits[*i]) - best) / f64::from(s.temperature)).exp())
        .collect();
    let limit = f64::from(s.top_p) * p.iter().sum::<f64>();
    let mut mass = 0.0;
    let mut front = 0;
    while front == 0 || (front < p.len() && mass < limit) {
        mass += p[front];
        front += 1;
    }
    let target = f64::from(philox(pos, seed)[0] >> 8) / 16_777_216.0 * mass;
    let mut sum = 0.0;
    for (i, weight) in p[..front].iter().enumerate() {
        sum += weight;
        if sum > target {
            return order[i] as u32;
        }
    }
    order[front - 1] as u32
}

#[test]
fn draws_follow_seed_and_position() {
    let mut random = Random(71);
    let flat = |n: usize, random: &mut Random| -> Vec<f32> {
        random.floats(n).iter().map(|v| v * 8.0).collect()
    };
    let mut ties = flat(3000, &mut random);
    for i in [7, 8, 9, 1029, 1030, 2999] {
        ties[i] = 8.5;
    }
    let coarse: Vec<f32> = flat(2500, &mut random).iter().map(|v| v.round()).collect();
    let settings = |top_k, temperature, top_p| Settings {
        top_k,
        temperature,
        top_p,
    };
    let cases = [
        (flat(1000, &mut random), settings(40, 0.8, 0.95)),
        (flat(5000, &mut random), settings(256, 2.0, 1.0)),
        (flat(300, &mut random), settings(1, 1.0, 1.0)),
        (flat(64, &mut random), settings(64, 4.0, 0.5)),
        (ties, settings(4, 1.0, 1.0)),
        (coarse, settings(100, 3.0, 0.9)),
        (vec![0.0], settings(1, 1.0, 0.1)),
    ];
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for (logits, s) in &cases {
            for (pos, seed) in [(0, 0), (1, 0), (2, 0), (77, 0xDEAD_BEEF_0123_4567), (5, 9)] {
                let got = sample(gpu, logits, *s, pos, seed, 0);
                assert_eq!(
                    got,
                    reference(logits, *s, pos, seed),
                    "k {} pos {pos}",
                    s.top_k
                );
                all.push(got);
            }
        }
        all
    });
}

/// Equal weights make the token the draw itself: its upper 8 bits of 256 candidates.
#[test]
fn the_draw_is_the_published_generator() {
    let even = Settings {
        top_k: 256,
        temperature: 1.0,
        top_p: 1.0,
    };
    on_all_targets(|gpu| {
        (0..8)
            .map(|pos| {
                let seed = 0x0123_4567_89AB_CDEF * u64::from(pos + 1);
                let got = sample(gpu, &[1.5; 300], even, pos, seed, 0);
                assert_eq!(got, philox(pos, seed)[0] >> 24);
                got
            })
            .collect()
    });
}

#[test]
fn odd_logits_are_never_drawn() {
    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let s = Settings {
        top_k: 4,
        temperature: 1.0,
        top_p: 1.0,
    };
    // Logits, and the tokens that may come.
    let cases: [(&[f32], &[u32]); 5] = [
        (&[NAN; 5], &[u32::MAX]),
        (&[-INF, NAN, -INF, -INF], &[u32::MAX]),
        (&[NAN, -3.0, -INF, NAN, NAN], &[1]),
        (&[1.0, INF, 2.0, INF, NAN], &[1, 3]),
        (&[-0.0, 0.0, NAN, -INF], &[0, 1]),
    ];
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for (logits, may) in &cases {
            let drawn: Vec<u32> = (0..12)
                .map(|pos| sample(gpu, logits, s, pos, 3, 0))
                .collect();
            assert!(
                drawn.iter().all(|token| may.contains(token)),
                "{logits:?}: {drawn:?}"
            );
            assert!(
                may.iter().all(|token| drawn.contains(token)),
                "{logits:?}: {drawn:?}"
            );
            assert_eq!(sample(gpu, logits, s, 0, 3, 1), 777, "once done");
            all.extend(drawn);
        }
        all
    });
}
