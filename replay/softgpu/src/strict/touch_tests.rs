//! Footprints against a plain model of byte sets.

use super::bits::PAGE;
use super::caches::Caches;
use super::hook::{Access, AtomicKind, Company, Path, Who};
use super::shadow::Shadow;
use super::touch::{ConflictKind, Touch};
use proptest::prelude::{prop, prop_assert_eq, proptest};
use std::collections::BTreeSet;

const BASE: u64 = 1000 * PAGE;

fn who(launch: u32, group: u32, pc: u64) -> Who {
    Who {
        launch,
        group,
        wave: 0,
        pc,
    }
}

fn access<'a>(who: Who, at: &'a [u64; 32], lanes: u32, bytes: u32) -> Access<'a> {
    let path = Path::Vector { cache: 0 };
    Access {
        who,
        at,
        lanes,
        bytes,
        path,
        company: Company::Alone,
    }
}

/// Lane addresses: `base + lane * stride`, every `wrap` lanes from the start again.
fn lanes(base: u64, stride: u64, wrap: u64) -> [u64; 32] {
    std::array::from_fn(|lane| base + (lane as u64 % wrap) * stride)
}

proptest! {
    #[test]
    fn footprints_are_exact(
        steps in prop::collection::vec(
            (0u64..9000, 0u64..40, 1u64..33, prop::sample::select(vec![1u32, 2, 4, 8, 16]),
             prop::num::u32::ANY, prop::bool::ANY, 0u32..3), 1..30
        ),
        written in 0u64..9000,
    ) {
        let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
        touch.begin();
        shadow.allocate(BASE, 12_000, false);
        shadow.define(BASE, written);
        let mut defined: BTreeSet<u64> = (BASE..BASE + written).collect();
        let mut model: Vec<(BTreeSet<u64>, BTreeSet<u64>)> = vec![Default::default(); 3];
        for (offset, stride, wrap, bytes, mask, write, launch) in steps {
            let at = lanes(BASE + offset, stride, wrap);
            let access = access(who(launch, 0, offset), &at, mask, bytes);
            let active = || (0..32).filter(|lane| mask >> lane & 1 == 1);
            let of = |lane: usize| at[lane]..at[lane] + u64::from(bytes);
            let (reads, writes) = &mut model[launch as usize];
            if write {
                touch.store(&access, 0, &mut shadow);
                for lane in active() {
                    writes.extend(of(lane));
                    defined.extend(of(lane));
                }
            } else {
                let class = touch.class(Caches::L0);
                let bad = touch.load(&access, class, &mut shadow);
                let mut expected = 0u32;
                for lane in active() {
                    reads.extend(of(lane).filter(|byte| !writes.contains(byte)));
                    if of(lane).any(|byte| !defined.contains(&byte)) {
                        expected |= 1 << lane;
                    }
                }
                prop_assert_eq!(bad, expected);
            }
        }
        for (launch, (reads, writes)) in model.iter().enumerate() {
            let touched = touch.footprint(launch as u32);
            let flat = |list: Vec<(u64, u64)>| -> Vec<u64> {
                list.into_iter().flat_map(|(from, to)| from..to).collect()
            };
            let found = flat(touched.all_reads().iter().collect());
            prop_assert_eq!(found, reads.iter().copied().collect::<Vec<_>>());
            let found = flat(touched.writes.iter().collect());
            prop_assert_eq!(found, writes.iter().copied().collect::<Vec<_>>());
        }
    }
}

#[test]
fn groups_of_one_launch_that_meet_are_found() {
    let at = lanes(BASE, 4, 32);
    let half = lanes(BASE + 2, 4, 32);
    // (second reads instead of writing, its group, addresses, bytes, expected)
    let cases = [
        (true, 1, &at, 4, Some(ConflictKind::Read)),
        (true, 0, &at, 4, None),
        (false, 1, &at, 4, Some(ConflictKind::Write)),
        (false, 0, &at, 4, None),
        (false, 1, &half, 2, None),
        (true, 1, &half, 2, None),
    ];
    for (index, (second_reads, group, second, bytes, expected)) in cases.into_iter().enumerate() {
        let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
        touch.begin();
        let first = if bytes == 2 { 2 } else { 4 };
        touch.store(&access(who(0, 0, 8), &at, u32::MAX, first), 0, &mut shadow);
        let other = access(who(0, group, 16), second, u32::MAX, bytes);
        if second_reads {
            let class = touch.class(Caches::L0);
            touch.load(&other, class, &mut shadow);
        } else {
            touch.store(&other, 0, &mut shadow);
        }
        let found: Vec<_> = touch.take_conflicts().iter().map(|c| c.what).collect();
        assert_eq!(
            found,
            expected.into_iter().collect::<Vec<_>>(),
            "case {index}"
        );
    }
}

/// A write over what other groups read, whichever of them came first: found to the byte, and never
/// where a group writes what it alone read.
#[test]
fn a_write_over_what_another_group_read_is_found() {
    // Readers in order: group, first byte, bytes per lane (32 lanes). Then the writer, alike.
    type Reader = (u32, u64, u32);
    type Case<'a> = (&'a [Reader], Reader, Option<Option<u32>>);
    let cases: [Case<'_>; 12] = [
        (&[(0, 0, 4)], (0, 0, 4), None),
        (&[(0, 0, 4)], (1, 0, 4), Some(Some(0))),
        (&[(0, 0, 4)], (1, 128, 4), None),
        (&[(0, 0, 4), (1, 128, 4)], (1, 128, 4), None),
        (&[(0, 0, 4), (1, 128, 4)], (0, 0, 4), None),
        (&[(0, 0, 4), (1, 128, 4)], (1, 64, 1), Some(Some(0))),
        (&[(0, 0, 4), (1, 0, 4)], (0, 0, 4), Some(None)),
        (&[(0, 0, 4), (1, 0, 4)], (1, 0, 4), Some(Some(0))),
        (&[(2, 0, 4), (0, 0, 4), (1, 0, 4)], (0, 0, 4), Some(Some(2))),
        // Cells that groups share count where both read the same bytes of them.
        (&[(0, 0, 1), (1, 32, 1), (0, 34, 1)], (1, 32, 1), Some(None)),
        (&[(0, 2, 1), (1, 34, 1)], (1, 34, 1), None),
        (&[(0, 2, 1), (1, 2, 1), (2, 34, 1)], (2, 34, 1), None),
    ];
    for (index, (readers, writer, expected)) in cases.into_iter().enumerate() {
        let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
        touch.begin();
        let row = |first: u64, bytes: u32| lanes(BASE + first, u64::from(bytes), 32);
        for (group, first, bytes) in readers {
            let at = row(*first, *bytes);
            let class = touch.class(Caches::L0);
            let load = access(who(0, *group, 8), &at, u32::MAX, *bytes);
            touch.load(&load, class, &mut shadow);
        }
        let (group, first, bytes) = writer;
        let at = row(first, bytes);
        let store = access(who(0, group, 16), &at, u32::MAX, bytes);
        touch.store(&store, 0, &mut shadow);
        let found = touch.take_conflicts();
        let found = found.iter().map(|c| (c.what, c.other_group));
        let expected = expected.map(|other| (ConflictKind::Overtaken, other));
        assert_eq!(
            found.collect::<Vec<_>>(),
            Vec::from_iter(expected),
            "case {index}"
        );
    }
}

#[test]
fn contended_atomics_count_only_if_order_shows() {
    for (ordered, returns, groups, expected) in [
        (true, false, 2, 1),
        (false, true, 2, 1),
        (false, false, 2, 0),
        (true, true, 1, 0),
    ] {
        let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
        touch.begin();
        let at = lanes(BASE, 4, 32);
        for group in 0..groups {
            let kind = AtomicKind { ordered, returns };
            let class = touch.class(Caches::NONE);
            let access = access(who(0, group, 8), &at, 1, 4);
            touch.atomic(&access, kind, class, 0, &mut shadow);
        }
        assert_eq!(touch.take_conflicts().len(), expected);
    }
    // Two lanes of one instruction are not ordered either.
    let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
    touch.begin();
    let at = [BASE; 32];
    let kind = AtomicKind {
        ordered: true,
        returns: false,
    };
    let class = touch.class(Caches::NONE);
    touch.atomic(
        &access(who(0, 0, 8), &at, 3, 4),
        kind,
        class,
        0,
        &mut shadow,
    );
    assert_eq!(touch.take_conflicts().len(), 1);
}

#[test]
fn atomics_of_two_launches_share_bytes_that_only_atomics_touch() {
    let (count, sum) = ((false, false), (true, false));
    let fetch = (false, true);
    let plainly = |touch: &mut Touch, shadow: &mut Shadow, plain: Option<(bool, bool)>| {
        let at = lanes(BASE, 4, 32);
        let cell = access(who(1, 0, 16), &at, 1, 4);
        let class = touch.class(Caches::NONE);
        match plain {
            Some((_, true)) => touch.store(&cell, 0, shadow),
            Some((_, false)) => {
                touch.load(&cell, class, shadow);
            }
            None => {}
        }
    };
    // Plain access of the second launch (before or after its atomic, a store or not), kinds of both,
    // bytes that both change by atomics alone, and those where the order shows.
    for (plain, first, second, shared, ordered) in [
        (None, count, count, true, false),
        (None, count, sum, true, true),
        (None, fetch, count, true, true),
        (Some((true, false)), count, count, false, false),
        (Some((true, true)), count, count, false, false),
        (Some((false, false)), count, count, false, false),
        (Some((false, true)), count, sum, false, false),
    ] {
        let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
        touch.begin();
        let at = lanes(BASE, 4, 32);
        for (launch, (ordered, returns)) in [(0, first), (1, second)] {
            let cell = access(who(launch, 0, 8), &at, 1, 4);
            let class = touch.class(Caches::NONE);
            plainly(
                &mut touch,
                &mut shadow,
                plain.filter(|p| launch == 1 && p.0),
            );
            let kind = AtomicKind { ordered, returns };
            touch.atomic(&cell, kind, class, 0, &mut shadow);
            plainly(
                &mut touch,
                &mut shadow,
                plain.filter(|p| launch == 1 && !p.0),
            );
        }
        let (one, two) = (touch.footprint(0), touch.footprint(1));
        let (both, shows) = two.atomics.contended(&one.atomics);
        let case = (plain, first, second);
        assert_eq!(both.bytes(), if shared { 4 } else { 0 }, "{case:?}");
        assert_eq!(shows.bytes(), if ordered { 4 } else { 0 }, "{case:?}");
    }
}

#[test]
fn poison_that_is_stored_is_undefined_again() {
    let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
    touch.begin();
    let at = lanes(BASE, 4, 32);
    let class = touch.class(Caches::L0);
    let load = access(who(0, 0, 8), &at, u32::MAX, 4);
    assert_eq!(touch.load(&load, class, &mut shadow), 0);
    touch.store(&load, 0b100, &mut shadow);
    assert_eq!(touch.load(&load, class, &mut shadow), 0b100);
    touch.store(&load, 0, &mut shadow);
    assert_eq!(touch.load(&load, class, &mut shadow), 0);
}

/// Nanoseconds per load of 32 lanes, printed; only in the long form. Figures are in
/// `docs/measurements/strict-mode.md`.
#[test]
fn cost_of_a_load() {
    if std::env::var_os("REFRAIN_LONG").is_none_or(|value| value != "1") {
        return;
    }
    const LOADS: u64 = 4096;
    let (mut touch, mut shadow) = (Touch::default(), Shadow::default());
    // Name, bytes between lanes, lanes before they repeat, bytes per lane, bytes between loads.
    for (name, stride, wrap, bytes, step) in [
        ("consecutive 16-byte lanes", 16, 32, 16, 512),
        ("two equal rows of 16 lanes", 16, 16, 16, 256),
        ("every fourth 16 bytes", 64, 16, 16, 0),
        ("2-byte scales", 2, 32, 2, 64),
    ] {
        let mut best = f64::INFINITY;
        for _ in 0..400 {
            touch.begin();
            let start = std::time::Instant::now();
            for load in 0..LOADS {
                let at = lanes(BASE + load * step, stride, wrap);
                let class = touch.class(Caches::L0);
                let access = access(who(0, 0, load % 4), &at, u32::MAX, bytes);
                std::hint::black_box(touch.load(&access, class, &mut shadow));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / LOADS as f64);
        }
        println!("{name}: {best:.0} ns");
    }
}
