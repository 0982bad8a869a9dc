//! Edges, waits and order; the checker against schedules with a wait taken out.

use crate::fixture::{
    AUSTEN, AUSTEN_LINEAR, NANO, NANO_LLAMA, NANO_QWEN3, plan, repository, sample, unfused,
};
use proptest::prelude::{ProptestConfig, Strategy, any, proptest};
use refrain_kernels::Target;
use refrain_planner::plan::{
    Extent, Hazard, Invalidate, Launch, Plan, Region, Schedule, Step, StepBody, Wait,
};
use refrain_planner::schedule::{Violation, build, edges, levels, order, verify, waits};

fn fixed(buffer: u32, offset: u64, bytes: u64) -> Region {
    Region {
        buffer,
        offset,
        extent: Extent::Fixed { bytes },
    }
}

fn row(buffer: u32, offset: u64, bytes: u64, count: u32) -> Region {
    Region {
        buffer,
        offset,
        extent: Extent::Row {
            word: 4,
            stride: 64,
            bytes,
            count,
        },
    }
}

fn rows_to(buffer: u32, offset: u64, count: u32) -> Region {
    Region {
        buffer,
        offset,
        extent: Extent::RowsTo {
            word: 4,
            stride: 64,
            count,
        },
    }
}

fn step(name: &str, reads: &[Region], writes: &[Region]) -> Step {
    let (reads, writes) = (reads.to_vec(), writes.to_vec());
    let launch = Launch {
        kernel: 0,
        grid: [1, 1, 1],
        args: Vec::new(),
        reads,
        writes,
    };
    Step {
        name: name.to_owned(),
        layer: None,
        body: StepBody::Launch(launch),
    }
}

/// Steps as the only content of a plan, for `verify`.
fn with_steps(steps: Vec<Step>, schedule: Schedule) -> Plan {
    Plan {
        steps,
        schedule,
        ..sample()
    }
}

#[test]
fn edges_by_kind_of_overlap() {
    let (a, b) = (fixed(9, 0, 64), fixed(9, 64, 64));
    let cases: &[(&str, Step, Step, Option<Hazard>)] = &[
        (
            "read after write",
            step("w", &[], &[a]),
            step("r", &[a], &[]),
            Some(Hazard::Raw),
        ),
        (
            "write after read",
            step("r", &[a], &[]),
            step("w", &[], &[a]),
            Some(Hazard::War),
        ),
        (
            "write after write",
            step("w", &[], &[a]),
            step("v", &[], &[a]),
            Some(Hazard::Waw),
        ),
        (
            "two reads",
            step("r", &[a], &[]),
            step("s", &[a], &[]),
            None,
        ),
        (
            "neighbours",
            step("w", &[], &[a]),
            step("r", &[b], &[]),
            None,
        ),
        (
            "one byte",
            step("w", &[], &[fixed(9, 0, 65)]),
            step("r", &[b], &[]),
            Some(Hazard::Raw),
        ),
        (
            "other buffer",
            step("w", &[], &[a]),
            step("r", &[fixed(8, 0, 64)], &[]),
            None,
        ),
        // At position 0 the rows do not meet; at another they do.
        (
            "row and rows",
            step("w", &[], &[row(9, 0, 64, 4)]),
            step("r", &[rows_to(9, 0, 4)], &[]),
            Some(Hazard::Raw),
        ),
        (
            "row behind rows",
            step("w", &[], &[row(9, 256, 64, 4)]),
            step("r", &[rows_to(9, 0, 4)], &[]),
            None,
        ),
    ];
    for (name, first, second, expected) in cases {
        let found = edges(&[first.clone(), second.clone()]);
        let hazards: Vec<Hazard> = found.iter().map(|edge| edge.hazard).collect();
        assert_eq!(hazards, Vec::from_iter(*expected), "{name}");
    }
}

#[test]
fn what_is_overwritten_whole_is_ordered_through_the_writer() {
    let a = fixed(9, 0, 64);
    let steps = [
        step("w", &[], &[a]),
        step("v", &[], &[a]),
        step("r", &[a], &[]),
        step("x", &[], &[a]),
    ];
    let pairs: Vec<_> = edges(&steps)
        .iter()
        .map(|e| (e.from, e.to, e.hazard))
        .collect();
    assert_eq!(
        pairs,
        [
            (0, 1, Hazard::Waw),
            (1, 2, Hazard::Raw),
            (1, 3, Hazard::Waw),
            (2, 3, Hazard::War)
        ]
    );
    // A moving row leaves the rest of the buffer as it was.
    let steps = [
        step("w", &[], &[a]),
        step("v", &[], &[row(9, 0, 16, 2)]),
        step("r", &[a], &[]),
    ];
    let pairs: Vec<_> = edges(&steps).iter().map(|e| (e.from, e.to)).collect();
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 2)]);
}

#[test]
fn waits_by_hand() {
    let [a, b] = [0, 64].map(|offset| fixed(9, offset, 64));
    let steps = [
        step("norm", &[], &[a]),
        step("q", &[a], &[b]),
        step("k", &[a], &[fixed(9, 128, 64)]),
        step("next", &[b], &[a]),
    ];
    let found = build(&steps, Target::Gfx1201);
    let places: Vec<_> = found.waits.iter().map(|wait| wait.before).collect();
    // None between q and k; one for both before what reads q.
    assert_eq!(places, [1, 3]);
}

#[test]
fn order_of_writes_alone_invalidates_by_target() {
    let a = fixed(9, 0, 64);
    let steps = [step("r", &[a], &[]), step("w", &[], &[a])];
    for (target, expected) in [
        (Target::Gfx1100, Invalidate::None),
        (Target::Gfx1151, Invalidate::None),
        (Target::Gfx1201, Invalidate::Agent),
    ] {
        assert_eq!(
            build(&steps, target).waits[0].invalidate,
            expected,
            "{target}"
        );
    }
    // A wait that only orders becomes one that invalidates when a later reader leans on it.
    let b = fixed(9, 64, 64);
    let steps = [
        step("r", &[a], &[b]),
        step("w", &[], &[a]),
        step("s", &[b], &[]),
    ];
    let found = build(&steps, Target::Gfx1100);
    assert_eq!(found.waits.len(), 1);
    assert_eq!(
        (found.waits[0].before, found.waits[0].invalidate),
        (1, Invalidate::Agent)
    );
    let because = found.edges[found.waits[0].because as usize];
    assert_eq!((because.to, because.hazard), (2, Hazard::Raw));
}

/// A wait names the edge that made it what it is: the reader's where it invalidates for a reader.
#[test]
fn a_wait_is_because_of_the_edge_that_needs_the_most() {
    let [a, b, c] = [0, 64, 128].map(|offset| fixed(9, offset, 64));
    // The second wait is placed for an overwrite and invalidates for a writer before the first.
    let steps = [
        step("r", &[a], &[b]),
        step("w", &[c], &[a]),
        step("s", &[b], &[c]),
    ];
    let found = build(&steps, Target::Gfx1100);
    let waits: Vec<_> = found
        .waits
        .iter()
        .map(|wait| {
            let edge = found.edges[wait.because as usize];
            (
                wait.before,
                wait.invalidate,
                edge.from,
                edge.to,
                edge.hazard,
            )
        })
        .collect();
    assert_eq!(
        waits,
        [
            (1, Invalidate::None, 0, 1, Hazard::War),
            (2, Invalidate::Agent, 0, 2, Hazard::Raw)
        ]
    );
    assert_eq!(verify(&with_steps(steps.to_vec(), found)), Ok(()));
}

#[test]
fn a_wait_must_stand_between_the_steps_of_its_edge() {
    let [a, b] = [0, 64].map(|offset| fixed(9, offset, 64));
    let steps = [
        step("w", &[], &[a]),
        step("r", &[a], &[b]),
        step("s", &[b], &[a]),
    ];
    let schedule = build(&steps, Target::Gfx1201);
    let pairs: Vec<_> = schedule.edges.iter().map(|e| (e.from, e.to)).collect();
    // Into s: it writes over w, and meets r twice.
    assert_eq!(pairs, [(0, 1), (0, 2), (1, 2), (1, 2)]);
    for (wait, because, ok) in [
        (0, 0, true),
        // Between the two, but another wait stands there as well.
        (0, 1, false),
        // Begins at the step that the wait is before.
        (0, 2, false),
        (1, 1, true),
        (1, 2, true),
        // Ends before the wait.
        (1, 0, false),
        (1, 4, false),
    ] {
        let mut schedule = schedule.clone();
        schedule.waits[wait].because = because;
        let found = verify(&with_steps(steps.to_vec(), schedule));
        assert_eq!(found.is_ok(), ok, "wait {wait}, edge {because}: {found:?}");
    }
    // An edge behind the wait is no reason for it, whatever else is wrong.
    let mut schedule = schedule;
    schedule.waits.truncate(1);
    schedule.waits[0].because = 2;
    let found = verify(&with_steps(steps.to_vec(), schedule));
    assert!(matches!(found, Err(Violation::Malformed { .. })));
}

#[test]
fn models_need_as_many_waits_as_their_longest_chain() {
    for (model, steps_per_layer, chain_per_layer) in [
        (AUSTEN, 14, 12 - 1),
        (NANO_QWEN3, 14, 12 - 1),
        (NANO_LLAMA, 13, 11 - 1),
    ] {
        // Worked out by hand: q, k and v share a link of the chain, so do gate and up; qwen3 has
        // one link more (QK norm). Embedding, final norm, head, argmax and advance are 5.
        for machine in ["gfx1100", "gfx1151", "gfx1201"] {
            let plan = unfused(&repository(model), machine).unwrap();
            let layers = plan.model.geometry.layers as usize;
            assert_eq!(plan.steps.len(), layers * steps_per_layer + 5, "{model}");
            let chain = layers * chain_per_layer + 5;
            assert_eq!(plan.schedule.waits.len(), chain - 1, "{model} on {machine}");
            assert_eq!(verify(&plan), Ok(()));
        }
    }
}

/// Fused, everything of a dense layer is one chain; in a mixture the shared expert runs beside the
/// router and the chosen ones.
#[test]
fn every_model_needs_one_wait_for_each_edge_of_its_longest_chain() {
    for model in NANO.into_iter().chain([AUSTEN, AUSTEN_LINEAR]) {
        let file = repository(model);
        for machine in ["gfx1100", "gfx1151", "gfx1201"] {
            for plan in [plan(&file, machine), unfused(&file, machine)] {
                let plan = plan.unwrap();
                let chain = longest_chain(&plan.steps);
                assert_eq!(plan.schedule.waits.len(), chain - 1, "{model} on {machine}");
                // Memory that is used again adds no link: the chain of values alone is as long.
                assert_eq!(
                    chain,
                    longest_value_chain(&plan.steps),
                    "{model} on {machine}"
                );
            }
        }
    }
}

fn effects(step: &Step) -> (Vec<Region>, Vec<Region>) {
    let (reads, writes) = step.effects();
    (reads.copied().collect(), writes.copied().collect())
}

/// Longest chain in which each step reads bytes that the one before it was the last to write, or
/// overwrites a word or state that it read.
fn longest_value_chain(steps: &[Step]) -> usize {
    let mut chain = vec![1; steps.len()];
    for to in 0..steps.len() {
        let (reads, writes) = effects(&steps[to]);
        for from in 0..to {
            let (before_reads, before_writes) = effects(&steps[from]);
            let rewritten = |region: &Region| {
                steps[from + 1..to].iter().any(|step| {
                    let (_, between) = effects(step);
                    between.iter().any(|other| other.may_overlap(region))
                })
            };
            let flows = before_writes
                .iter()
                .any(|w| reads.iter().any(|r| r.may_overlap(w)) && !rewritten(w));
            let both = |r: &Region| writes.contains(r) && reads.contains(r);
            let updates = before_reads.iter().any(both);
            if flows || updates {
                chain[to] = chain[to].max(chain[from] + 1);
            }
        }
    }
    chain.into_iter().max().unwrap_or(0)
}

#[test]
fn a_model_needs_every_one_of_its_waits() {
    for machine in ["gfx1100", "gfx1201"] {
        let checked = plan(&repository(NANO_QWEN3), machine).unwrap();
        for index in 0..checked.schedule.waits.len() {
            let mut plan = (*checked).clone();
            let gone = plan.schedule.waits.remove(index);
            let error = verify(&plan).expect_err("a missing wait went unnoticed");
            let Violation::MissingWait { to, to_name, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*to, gone.before);
            assert_eq!(*to_name, plan.steps[*to as usize].name);

            let mut plan = (*checked).clone();
            plan.schedule.waits[index].invalidate = Invalidate::None;
            assert!(
                verify(&plan).is_err(),
                "a missing invalidation went unnoticed"
            );
        }
    }
}

fn regions() -> impl Strategy<Value = Vec<Region>> {
    let region = (0u32..3, 0u64..8, 1u64..4, 0u8..3).prop_map(|(buffer, at, len, kind)| {
        let (offset, bytes) = (at * 16, len * 16);
        match kind {
            0 => fixed(buffer, offset, bytes),
            1 => row(buffer, offset, bytes, 2),
            _ => rows_to(buffer, offset, 1),
        }
    });
    proptest::collection::vec(region, 0..3)
}

fn random_steps() -> impl Strategy<Value = Vec<Step>> {
    let effects = (regions(), regions());
    proptest::collection::vec(effects, 1..24).prop_map(|list| {
        let named = list.iter().enumerate();
        named
            .map(|(i, (reads, writes))| step(&format!("s{i}"), reads, writes))
            .collect()
    })
}

/// Longest chain over all conflicting pairs, by trying every pair.
pub fn longest_chain(steps: &[Step]) -> usize {
    let meets = |a: &[Region], b: &[Region]| a.iter().any(|x| b.iter().any(|y| x.may_overlap(y)));
    let mut chain = vec![1; steps.len()];
    for to in 0..steps.len() {
        for from in 0..to {
            let ((r0, w0), (r1, w1)) = (effects(&steps[from]), effects(&steps[to]));
            if meets(&w0, &r1) || meets(&r0, &w1) || meets(&w0, &w1) {
                chain[to] = chain[to].max(chain[from] + 1);
            }
        }
    }
    chain.into_iter().max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn schedules_verify_and_each_wait_is_needed(steps in random_steps(), gfx12 in any::<bool>()) {
        let target = if gfx12 { Target::Gfx1201 } else { Target::Gfx1100 };
        let schedule = build(&steps, target);
        let mut plan = with_steps(steps, schedule);
        assert_eq!(verify(&plan), Ok(()));
        for wait in &plan.schedule.waits {
            let edge = plan.schedule.edges[wait.because as usize];
            let strict = gfx12 || edge.hazard == Hazard::Raw;
            assert_eq!(wait.invalidate == Invalidate::Agent, strict, "{wait:?} for {edge:?}");
        }
        for index in 0..plan.schedule.waits.len() {
            let gone: Wait = plan.schedule.waits.remove(index);
            assert!(verify(&plan).is_err());
            plan.schedule.waits.insert(index, gone);
        }
    }

    #[test]
    fn ordered_steps_need_the_longest_chain_less_one(steps in random_steps(), strict in any::<bool>()) {
        let chain = longest_chain(&steps);
        assert_eq!(levels(&steps).into_iter().max().unwrap_or(0) as usize + 1, chain);
        let ordered: Vec<Step> = order(&steps).iter().map(|id| steps[*id as usize].clone()).collect();
        assert_eq!(longest_chain(&ordered), chain);
        let write_order = if strict { Invalidate::Agent } else { Invalidate::None };
        let found = waits(&edges(&ordered), ordered.len(), write_order);
        assert_eq!(found.len(), chain - 1);
    }
}
