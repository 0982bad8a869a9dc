//! The router against a stable sort of the softmax in f64.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/everywhere.rs"]
mod everywhere;
mod support;
#[path = "support/launch.rs"]
mod tools;

use everywhere::on_all_targets;
use support::{Gpu, Random};
use tools::{close, fresh, launch};

fn route(gpu: &Gpu, logits: &[f32], top_k: u32, normalize: u32) -> (Vec<u32>, Vec<f32>) {
    let n = logits.len() as u32;
    let imms = [("n", n), ("top_k", top_k), ("normalize", normalize)];
    let ids = fresh(gpu, "moe_route", "ids", &imms, 0);
    let weights = fresh(gpu, "moe_route", "weights", &imms, 0);
    let pointers = [
        ("logits", gpu.f32s("logits", logits)),
        ("ids", ids),
        ("weights", weights),
    ];
    launch(gpu, "moe_route", &pointers, &imms);
    let k = top_k as usize;
    (gpu.read_u32s(ids, k), gpu.read_f32s(weights, k))
}

#[test]
fn best_experts_by_probability_then_index() {
    let mut random = Random(23);
    let spread = |n: usize, random: &mut Random| -> Vec<f32> {
        random.floats(n).iter().map(|v| v * 6.0).collect()
    };
    let mut ties = spread(256, &mut random);
    for i in [250, 3, 77, 76] {
        ties[i] = 9.0;
    }
    let cases = [
        (spread(8, &mut random), 2, 1),
        (spread(8, &mut random), 8, 0),
        (spread(256, &mut random), 8, 1),
        (spread(512, &mut random), 10, 1),
        (spread(1024, &mut random), 16, 0),
        (ties, 8, 1),
        (vec![0.5; 300], 5, 1),
        (spread(5, &mut random), 3, 1),
        (vec![-2.0], 1, 1),
    ];
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for (logits, top_k, normalize) in &cases {
            let (ids, weights) = route(gpu, logits, *top_k, *normalize);
            let top = logits.iter().fold(f64::MIN, |m, v| m.max(f64::from(*v)));
            let p: Vec<f64> = logits.iter().map(|v| (f64::from(*v) - top).exp()).collect();
            let total: f64 = p.iter().sum();
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            let order = &order[..*top_k as usize];
            let want: Vec<u32> = order.iter().map(|i| *i as u32).collect();
            assert_eq!(ids, want, "{} of {}", top_k, logits.len());
            let chosen: f64 = order.iter().map(|i| p[*i]).sum();
            let by = if *normalize == 1 { chosen } else { total };
            let want: Vec<f64> = order.iter().map(|i| p[*i] / by).collect();
            close("weights", &weights, &want, 1e-6);
            all.extend(ids);
            all.extend(weights.iter().map(|w| w.to_bits()));
        }
        all
    });
}

/// No logit can make an id repeat or leave the range; what is not a number reaches the weights.
#[test]
fn odd_logits_give_distinct_experts() {
    const INF: f32 = f32::INFINITY;
    let cases = [
        vec![f32::NAN; 40],
        vec![1.0, f32::NAN, 2.0, -1.0],
        vec![INF, 0.0, INF, 1.0],
        vec![-INF; 6],
        vec![-INF, 3.0, -INF, -INF],
        vec![f32::MAX, f32::MIN, 0.0, -0.0],
    ];
    on_all_targets(|gpu| {
        let mut all = Vec::new();
        for logits in &cases {
            let (ids, _) = route(gpu, logits, 4, 1);
            let mut sorted = ids.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 4, "{logits:?}: {ids:?}");
            assert!(ids.iter().all(|id| (*id as usize) < logits.len()));
            all.extend(ids);
        }
        all
    });
}
