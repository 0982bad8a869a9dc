//! Tokens in flight past every kind of end leave the state that one token in flight leaves.

use refrain_kernels::{StopReason, Target};
use refrain_replay::{Route, SessionOptions, Transport};
use refrain_tests::{AUSTEN, Setup, kept_digest, long, repository, scrub, session};

/// A run that ends, and how.
struct End {
    name: &'static str,
    context: Option<u32>,
    prompt: &'static [u32],
    generate: u32,
    reason: StopReason,
    /// Token steps until the end.
    live: u32,
}

/// Steps past the end: 1,000 in the long form.
fn past() -> u32 {
    if long() { 1000 } else { 100 }
}

fn ends() -> Vec<End> {
    vec![
        End {
            name: "tokens asked for",
            context: None,
            prompt: &[41, 84, 365],
            generate: 6,
            reason: StopReason::Limit,
            live: 8,
        },
        End {
            name: "end of the context",
            context: Some(12),
            prompt: &[41, 84, 365],
            generate: 1000,
            reason: StopReason::ContextEnd,
            live: 12,
        },
        End {
            name: "prompt fills the context",
            context: Some(3),
            prompt: &[41, 84, 365],
            generate: 1000,
            reason: StopReason::ContextEnd,
            live: 3,
        },
    ]
}

fn state(
    end: &End,
    transport: Transport,
    in_flight: u32,
    steps: u32,
) -> (String, Option<StopReason>) {
    let options = SessionOptions {
        transport,
        in_flight,
        ..SessionOptions::default()
    };
    let setup = Setup {
        session: options,
        context: end.context,
        ..Setup::on(Target::Gfx1201)
    };
    let mut session = session(&repository(AUSTEN), setup).unwrap();
    scrub(&session).unwrap();
    session.start(end.prompt, end.generate).unwrap();
    session.advance_past_end(Route::Retained, steps).unwrap();
    (kept_digest(&mut session).unwrap(), session.stop())
}

#[test]
fn tokens_past_the_end_change_nothing() {
    for end in ends() {
        let (expected, stop) = state(&end, Transport::Aql, 1, end.live);
        assert_eq!(stop, Some(end.reason), "{}", end.name);
        let (before, running) = state(&end, Transport::Aql, 1, end.live - 1);
        assert_eq!(running, None, "{}: ends at step {}", end.name, end.live);
        assert_ne!(
            before, expected,
            "{}: the last step must change the state",
            end.name
        );
        for transport in [Transport::Aql, Transport::Pm4] {
            for in_flight in [1, 8] {
                let (found, stop) = state(&end, transport, in_flight, end.live + past());
                assert_eq!(stop, Some(end.reason), "{}", end.name);
                assert_eq!(
                    found, expected,
                    "{}: {transport}, {in_flight} in flight",
                    end.name
                );
            }
        }
    }
}
