//! The shipped plans under strict mode: no report on any route, whatever the seed, and the tokens of
//! the fast mode.

use refrain_kernels::Target;
use refrain_replay::strict::{StrictConfig, declarations};
use refrain_replay::{Retain, Route, Session, SessionOptions, Transport};
use refrain_tests::{AUSTEN, Setup, TextOracle, long, oracle, repository, session};
use std::path::Path;

/// Eager, AQL or PM4.
#[derive(Debug, Clone, Copy)]
struct Form {
    retain: Retain,
    transport: Transport,
}

const FORMS: [Form; 3] = [
    Form {
        retain: Retain::None,
        transport: Transport::Aql,
    },
    Form {
        retain: Retain::Whole,
        transport: Transport::Aql,
    },
    Form {
        retain: Retain::Whole,
        transport: Transport::Pm4,
    },
];

fn strict_session(model: &Path, target: Target, form: Form, seed: u64) -> Session {
    let setup = Setup {
        session: SessionOptions {
            retain: form.retain,
            transport: form.transport,
            ..SessionOptions::default()
        },
        seed,
        strict: Some(StrictConfig::default()),
        ..Setup::on(target)
    };
    let session = session(model, setup).unwrap();
    let gpu = session.opened().soft.clone().unwrap();
    gpu.declare(declarations(session.instance()));
    session
}

/// Generates, and fails on any report.
fn tokens(session: &mut Session, prompt: &[u32], count: u32, what: &str) -> Vec<u32> {
    let route = session.route();
    session.start(prompt, count).unwrap();
    let mut tokens = Vec::new();
    let steps = prompt.len() as u32 + count - 1;
    session
        .advance(route, steps, &mut |token| tokens.push(token))
        .unwrap();
    let reports = session.opened().soft.as_ref().unwrap().take_reports();
    let first: Vec<String> = reports
        .reports
        .iter()
        .take(5)
        .map(|r| r.to_string())
        .collect();
    assert!(
        first.is_empty() && reports.dropped == 0,
        "{what}: {} reports, the first:\n{}",
        reports.reports.len(),
        first.join("\n")
    );
    tokens
}

fn golden() -> TextOracle {
    let mut texts: Vec<TextOracle> = oracle("austen-qwen3-4m.q8_0.json").unwrap();
    texts.swap_remove(0)
}

#[test]
fn the_golden_model_gives_no_report_on_any_route() {
    let text = golden();
    let targets = if long() {
        &[Target::Gfx1100, Target::Gfx1151, Target::Gfx1201][..]
    } else {
        &[Target::Gfx1100, Target::Gfx1201][..]
    };
    for &target in targets {
        for form in FORMS {
            let mut session = strict_session(&repository(AUSTEN), target, form, 1);
            let what = format!("{target} {form:?}");
            let expected = form.retain != Retain::None;
            assert_eq!(session.route() == Route::Retained, expected, "{what}");
            let found = tokens(&mut session, &text.prompt_ids, 8, &what);
            assert_eq!(found[..], text.generated[..8], "{what}");
            // A second text of the same session.
            let found = tokens(&mut session, &text.prompt_ids, 8, &what);
            assert_eq!(found[..], text.generated[..8], "{what}, again");
        }
    }
}
