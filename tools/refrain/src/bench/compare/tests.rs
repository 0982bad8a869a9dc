//! Each class of cause is found, and the first in the order of explanation is named.

use super::{Cause, compare};
use crate::bench::judge::tests::sample;
use crate::bench::report::Report;

type Change = fn(&mut Report);

#[test]
fn the_first_class_of_cause_is_named() {
    let rows: [(Cause, Change); 11] = [
        (Cause::Nothing, |_| {}),
        (Cause::Model, |report| report.plans[0].model = "x".into()),
        (Cause::Structure, |report| {
            report.plans[0].structure = "x".into()
        }),
        (Cause::Schedule, |report| {
            report.plans[0].schedule = "x".into()
        }),
        (Cause::Artifacts, |report| {
            report.plans[0].artifacts = "x".into()
        }),
        (Cause::Encoding, |report| {
            report.arms[3].identity = "x".into()
        }),
        (Cause::Settings, |report| report.settings.tokens = 1),
        (Cause::Card, |report| {
            report.machine.target = "gfx1100".into()
        }),
        (Cause::Software, |report| {
            report.machine.kernel_compiler = "x".into()
        }),
        (Cause::Host, |report| report.machine.cpu = "x".into()),
        (Cause::Load, |report| {
            for row in report.series.iter_mut().flat_map(|series| &mut series.rows) {
                row.load = 9.0;
            }
        }),
    ];
    for (cause, change) in rows {
        let (first, mut second) = (sample(), sample());
        change(&mut second);
        let found = compare(&first, &second);
        assert_eq!(found.cause, cause, "{:?}", found.found);
        assert_eq!(found.pairs.len(), 4);
    }
}

/// hipfire issue 534: the same tape on another box is slower. The kernels' compiler comes before
/// the load, and equal speeds are not apart.
#[test]
fn issue_hipfire_534_two_boxes() {
    let (first, mut second) = (sample(), sample());
    second.machine.runtime = "7.14".into();
    second.machine.cpu = "other".into();
    for row in &mut second.results {
        row.us *= 1.4;
        row.interval = row.interval.map(|us| us * 1.4);
    }
    let found = compare(&first, &second);
    assert_eq!(found.cause, Cause::Software);
    assert_eq!(found.found.len(), 2);
    assert!(found.pairs.iter().all(|pair| pair.apart));
    let same = compare(&first, &first);
    assert!(same.found.is_empty() && same.pairs.iter().all(|pair| !pair.apart));
}
