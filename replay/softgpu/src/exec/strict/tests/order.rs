//! Interleaving: launches without a wait between them overlap, as the seed decides and only so.

use super::keeper::Keeper;
use super::listing::{Bench, Launch};

/// Launch and wave of every access, in order.
fn sequence(seed: u64) -> Vec<(u32, u32, u32)> {
    let launches = [
        Launch {
            groups: 3,
            ..Launch::of("loop", 2)
        },
        Launch {
            groups: 2,
            ..Launch::of("loop", 1)
        },
    ];
    let mut keeper = Keeper::default();
    keeper.log = Some(Vec::new());
    let stats = Bench::new().run(&launches, seed, &mut keeper).unwrap();
    assert_eq!((stats.groups, stats.waves), (5, 8));
    let log = keeper.log.unwrap_or_default();
    log.iter()
        .map(|(who, ..)| (who.launch, who.group, who.wave))
        .collect()
}

/// How often the launch changes along the sequence.
fn switches(sequence: &[(u32, u32, u32)]) -> usize {
    sequence.windows(2).filter(|w| w[0].0 != w[1].0).count()
}

#[test]
fn launches_overlap_in_a_seeded_order() {
    let mut all = Vec::new();
    for seed in 0..8 {
        let order = sequence(seed);
        assert_eq!(order, sequence(seed), "seed {seed} is not repeatable");
        assert!(
            switches(&order) > 2,
            "seed {seed}: {} switches",
            switches(&order)
        );
        all.push(order);
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "two seeds give one order");
}
