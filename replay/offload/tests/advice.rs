//! Advice from timings: the published winners, spreads, missing and impossible timings, seeds.

use proptest::prelude::{ProptestConfig, any, prop, proptest};
use refrain_kernels::Dtype;
use refrain_offload::advice::{AdviceError, Occurrence, Timing, advise};
use refrain_offload::share::{Form, Kind, Seeds, Shape, ShareTable};

const GEMV: Shape = Shape {
    dtype: Dtype::Q8_0,
    k: 4096,
    form: Form::Gemv,
};
const DOWN: Shape = Shape {
    dtype: Dtype::Q8_0,
    k: 12288,
    form: Form::Residual,
};

fn timing(shape: Shape, kind: Kind, gpu_rows: u32, walls_us: &[u64]) -> Timing {
    Timing {
        shape,
        rows: 4096,
        kind,
        gpu_rows,
        walls_ns: walls_us.iter().map(|us| us * 1_000).collect(),
    }
}

fn step(shape: Shape, per_token: u32) -> Occurrence {
    Occurrence {
        shape,
        rows: 4096,
        per_token,
    }
}

/// Timings of both forms; three walls each around the given median.
fn timed(walls: [[u64; 3]; 2]) -> Vec<Timing> {
    let mut timings = Vec::new();
    for (shape, [pcie, cpu, split]) in [GEMV, DOWN].into_iter().zip(walls) {
        for (kind, rows, wall) in [
            (Kind::Pcie, 4096, pcie),
            (Kind::Cpu, 0, cpu),
            (Kind::Split, 1536, split),
        ] {
            timings.push(timing(shape, kind, rows, &[wall, wall - 2, wall + 2]));
        }
    }
    timings
}

#[test]
fn the_mode_is_the_least_sum_of_a_token() {
    let steps = [step(GEMV, 3), step(DOWN, 1)];
    for (walls, mode, auto_us) in [
        ([[400, 500, 300], [400, 500, 300]], Kind::Split, 1_200),
        ([[200, 500, 300], [200, 500, 300]], Kind::Pcie, 800),
        ([[600, 200, 300], [600, 200, 300]], Kind::Cpu, 800),
        // Three steps outweigh one.
        ([[200, 500, 300], [900, 500, 300]], Kind::Split, 900),
        ([[200, 500, 300], [420, 500, 300]], Kind::Pcie, 900),
    ] {
        let advice = advise(&steps, &timed(walls)).unwrap();
        assert_eq!(advice.mode, mode, "{walls:?}");
        assert_eq!(advice.auto_ns, auto_us * 1_000, "{walls:?}");
        assert!(advice.modes.is_sorted_by_key(|mode| mode.token.median_ns));
        assert_eq!(advice.modes.len(), 3);
    }
}

#[test]
fn published_tokens_choose_the_published_mode() {
    // Tokens per second of a public desktop: pcie, cpu, passback.
    for (tokens, mode) in [
        ([101.0, 69.9, 79.3], Kind::Pcie),
        ([23.8, 28.1, 33.6], Kind::Split),
    ] {
        let walls = tokens.map(|rate: f64| (1e6 / rate) as u64);
        let advice = advise(&[step(GEMV, 1)], &timed([walls, walls])).unwrap();
        assert_eq!(advice.mode, mode);
        assert!(advice.clear);
    }
}

#[test]
fn the_fastest_of_several_splits_counts_and_has_its_spread() {
    let steps = [step(GEMV, 1)];
    let mut timings = vec![
        timing(GEMV, Kind::Pcie, 4096, &[400, 404, 408, 900]),
        timing(GEMV, Kind::Cpu, 0, &[310, 350, 300, 340]),
        timing(GEMV, Kind::Split, 1024, &[330, 331, 332, 333]),
        timing(GEMV, Kind::Split, 2048, &[296, 298, 300, 310]),
    ];
    let advice = advise(&steps, &timings).unwrap();
    let advised = &advice.steps[0];
    assert_eq!(
        (advised.best.kind, advised.best.gpu_rows),
        (Kind::Split, 2048)
    );
    assert_eq!(advised.share, Some(0.5));
    let wall = advised.best.wall;
    assert_eq!(
        (wall.low_ns, wall.median_ns, wall.high_ns, wall.repeats),
        (296_000, 298_000, 300_000, 4)
    );
    assert!(!advised.clear, "a quarter of the CPU's repeats is as fast");
    assert!(!advice.clear);
    timings[1] = timing(GEMV, Kind::Cpu, 0, &[310, 350, 305, 340]);
    assert!(advise(&steps, &timings).unwrap().clear);
}

#[test]
fn a_step_that_cannot_be_split_runs_on_the_cpu_in_passback_mode() {
    let steps = [step(GEMV, 1), step(DOWN, 1)];
    let mut timings = timed([[400, 500, 300], [400, 350, 10]]);
    timings.pop();
    let advice = advise(&steps, &timings).unwrap();
    assert_eq!(advice.mode, Kind::Split);
    assert_eq!(advice.modes[0].token.median_ns, 650_000);
    timings.pop();
    let advice = advise(&steps, &timings).unwrap();
    assert_eq!(
        advice.modes.len(),
        1,
        "neither cpu nor passback is known for all steps"
    );
    assert_eq!(advice.mode, Kind::Pcie);
}

#[test]
fn missing_and_impossible_timings_are_named() {
    let steps = [step(GEMV, 1), step(DOWN, 1)];
    assert_eq!(advise(&[], &[]).unwrap_err(), AdviceError::Nothing);
    let one = [timing(GEMV, Kind::Cpu, 0, &[1])];
    assert_eq!(
        advise(&steps, &one).unwrap_err(),
        AdviceError::Untimed {
            shape: DOWN,
            rows: 4096
        }
    );
    let apart = [
        timing(GEMV, Kind::Cpu, 0, &[1]),
        timing(DOWN, Kind::Pcie, 4096, &[1]),
    ];
    assert_eq!(advise(&steps, &apart).unwrap_err(), AdviceError::NoMode);
    for bad in [
        timing(GEMV, Kind::Cpu, 16, &[1]),
        timing(GEMV, Kind::Pcie, 0, &[1]),
        timing(GEMV, Kind::Split, 0, &[1]),
        timing(GEMV, Kind::Split, 4096, &[1]),
        timing(GEMV, Kind::Split, 17, &[1]),
        timing(GEMV, Kind::Cpu, 0, &[]),
    ] {
        let error = advise(&steps, &[one[0].clone(), bad]).unwrap_err();
        assert!(
            matches!(error, AdviceError::Impossible { index: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn advice_becomes_seeds_that_a_profile_keeps() {
    let steps = [step(GEMV, 3), step(DOWN, 1)];
    let advice = advise(&steps, &timed([[400, 500, 300], [200, 500, 300]])).unwrap();
    let seeds = advice.seeds();
    seeds.check().unwrap();
    let text = toml::to_string(&seeds).unwrap();
    assert_eq!(toml::from_str::<Seeds>(&text).unwrap(), seeds);
    assert_eq!(seeds.offload[1].kind, Kind::Pcie);
    assert_eq!(seeds.offload[0].share, 0.375);
    // A seed starts a controller and decides nothing.
    let mut table = ShareTable::new(&seeds);
    assert!(table.of(GEMV).plan(4096).probe.is_some());
    assert_eq!(table.of(GEMV).choice(4096), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_timings_are_answered(
        rows in prop::collection::vec((any::<u32>(), any::<u32>(), 0_usize..3), 0..12),
        walls in prop::collection::vec(any::<u64>(), 0..5),
        per_token in any::<u32>(),
    ) {
        let timings: Vec<Timing> = rows.iter().map(|(rows, gpu_rows, kind)| Timing {
            shape: GEMV,
            rows: rows % 64,
            kind: Kind::ALL[*kind],
            gpu_rows: gpu_rows % 80,
            walls_ns: walls.clone(),
        }).collect();
        let steps: Vec<Occurrence> = timings.iter().map(|timing| Occurrence {
            shape: GEMV,
            rows: timing.rows,
            per_token,
        }).collect();
        if let Ok(advice) = advise(&steps, &timings) {
            advice.seeds().check().or_else(|error| match advice.steps.iter().any(|step| step.rows == 0) {
                true => Ok(()),
                false => Err(error),
            }).unwrap();
        }
    }
}
