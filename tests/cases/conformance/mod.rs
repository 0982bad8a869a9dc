//! The conformance suite: the same cases on every software GPU and on ROCm where it is installed.
//! Prints one table; see `refrain_tests::conformance` for its rules.

mod aql;
mod code;
mod faults;
mod launch;
mod memory;
mod pm4;
mod sessions;

use refrain_kernels::Target;
use refrain_tests::conformance::{Case, Done, Slot, run};
use refrain_tests::subject::Subject;

/// A case that passes wherever it is supported.
const fn case(name: &'static str, run: fn(&Subject) -> Done) -> Case<Subject> {
    Case {
        name,
        run,
        expected_failures: &[],
    }
}

/// A case about what only software GPUs do, such as answering for what hardware leaves undefined.
macro_rules! soft_only {
    ($subject:expr) => {
        match &$subject.soft {
            Some(gpu) => gpu.clone(),
            None => {
                return refrain_tests::conformance::unsupported("hardware leaves this undefined")
            }
        }
    };
}
use soft_only;

fn devices() -> Vec<Slot<Subject>> {
    let soft = Target::ALL.map(|target| Slot {
        name: format!("soft:{}", target.name()),
        open: Box::new(move || Subject::soft(target)),
    });
    let rocm = Slot {
        name: "rocm:0".to_owned(),
        open: Box::new(|| Subject::rocm(0)),
    };
    soft.into_iter().chain([rocm]).collect()
}

#[test]
fn conformance() {
    let rooms = [
        memory::CASES,
        code::CASES,
        launch::CASES,
        aql::CASES,
        pm4::CASES,
        sessions::CASES,
        faults::CASES,
    ];
    let devices = devices();
    let mut whole = refrain_tests::conformance::Report::default();
    for room in rooms {
        let report = run(room, &devices);
        whole.devices = report.devices;
        whole.rows.extend(report.rows);
    }
    println!("{whole}");
    assert!(!whole.failed(), "{whole}");
    let names: std::collections::BTreeSet<_> = whole.rows.iter().map(|row| row.0).collect();
    assert_eq!(names.len(), whole.rows.len(), "two cases have one name");
    // On a software GPU a case that cannot run is a gap in the suite.
    for (case, outcomes) in &whole.rows {
        for (outcome, device) in outcomes.iter().zip(&whole.devices) {
            let gap = matches!(outcome, refrain_tests::conformance::Outcome::Unsupported(_));
            assert!(
                !gap || !device.starts_with("soft:"),
                "{case} on {device}: {outcome:?}"
            );
        }
    }
}
