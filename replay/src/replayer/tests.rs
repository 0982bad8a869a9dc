//! A token that cannot finish: the deadline's error names it, and nothing is replayed after it.

#[path = "../../tests/common/mod.rs"]
mod common;

use super::{ReplayError, Replayer};
use crate::refusal::Code;
use crate::session::{Retain, Route, Session, SessionError, SessionOptions};
use common::{PROMPT, device, plan, source};
use refrain_device::Signal;
use refrain_kernels::Target;
use refrain_lower::Transport;
use refrain_packet::aql::encode::barrier;
use refrain_packet::aql::{Barrier, Header, PacketType};
use refrain_recorder::{EmbeddedObjects, first_difference};
use std::time::Duration;

fn replay_error(result: Result<(), SessionError>) -> ReplayError {
    match result.unwrap_err() {
        SessionError::Replay(error) => error,
        other => panic!("{other}"),
    }
}

/// Puts a packet before the next token that waits for `signal` to fall to 0.
fn stall(replayer: &Replayer, signal: &Signal) {
    let body = Barrier {
        dep_signal: [signal.handle(), 0, 0, 0, 0],
        ..Barrier::default()
    };
    let header = Header::system(PacketType::BarrierAnd);
    let packet = barrier(header, &body).unwrap();
    replayer.queue.submit(&[packet.bytes()]).unwrap();
}

#[test]
fn a_missed_deadline_names_token_and_packets_and_poisons() {
    let plan = plan(Target::Gfx1201, 64);
    // Recording has to keep to it too.
    let wait = Duration::from_millis(400);
    for transport in Transport::ALL {
        let options = SessionOptions {
            retain: Retain::Whole,
            transport,
            deadline: wait,
            ..SessionOptions::default()
        };
        let opened = device(Target::Gfx1201);
        let never = Signal::new(&opened.device, 1).unwrap();
        let mut session =
            Session::new(opened, &plan, &source(), &EmbeddedObjects, options).unwrap();
        session.start(&PROMPT, 8).unwrap();
        stall(session.replayer().unwrap(), &never);
        let error = replay_error(session.advance(Route::Retained, 1, &mut |_| {}));
        let ReplayError::Deadline {
            token,
            deadline,
            taken,
            packets,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*token, *taken, *deadline), (0, 0, wait));
        let expected = match transport {
            Transport::Aql => plan.steps.len() as u64,
            Transport::Pm4 => 1,
        };
        assert!((expected..=expected + 1).contains(packets), "{error}");
        let again = replay_error(session.advance(Route::Retained, 1, &mut |_| {}));
        assert!(matches!(&again, ReplayError::Poisoned { reason } if *reason == error.to_string()));
        // The queue goes before the signal that its first packet waits for.
        drop(session);
        assert_eq!(never.load(), 1);
    }
}

/// Fills the ring with packets that wait for `signal`.
fn fill(replayer: &Replayer, signal: &Signal) {
    for _ in 0..replayer.queue.size() {
        stall(replayer, signal);
    }
    let patience = Duration::from_millis(20);
    while replayer.queue.reserve_within(1, patience).is_ok() {}
}

#[test]
fn a_token_that_was_not_published_runs_eagerly_and_is_counted() {
    let plan = plan(Target::Gfx1201, 64);
    for transport in Transport::ALL {
        let options = |retain| SessionOptions {
            retain,
            transport,
            deadline: Duration::from_millis(400),
            ..SessionOptions::default()
        };
        let make = |retain| {
            let opened = device(Target::Gfx1201);
            Session::new(opened, &plan, &source(), &EmbeddedObjects, options(retain)).unwrap()
        };
        let mut healthy = make(Retain::Auto);
        let expected = healthy.generate(&PROMPT, 8, &mut |_| {}).unwrap();
        let expected = (expected.tokens, healthy.snapshot().unwrap());
        for retain in [Retain::Auto, Retain::Whole] {
            let mut session = make(retain);
            let never = Signal::new(&session.opened().device, 1).unwrap();
            let mut tokens = Vec::new();
            session.start(&PROMPT, 8).unwrap();
            session
                .advance(Route::Retained, 5, &mut |token| tokens.push(token))
                .unwrap();
            fill(session.replayer().unwrap(), &never);
            let rest = session.advance(Route::Retained, 6, &mut |token| tokens.push(token));
            if retain == Retain::Whole {
                let error = rest.unwrap_err();
                let refusal = error.refusal().unwrap();
                assert_eq!(refusal.code, Code::NotPublished, "{error}");
                assert_eq!(session.counters().eager_tokens, 0);
                continue;
            }
            rest.unwrap();
            let counters = session.counters();
            assert_eq!(
                (
                    counters.fallbacks,
                    counters.replayed_tokens,
                    counters.eager_tokens
                ),
                (1, 5, 6)
            );
            assert_eq!(counters.refusals.rows(), [(Code::NotPublished, 1)]);
            assert_eq!(session.route(), Route::Eager);
            let found = session.snapshot().unwrap();
            let differs =
                first_difference(&expected.1, &found).filter(|found| found.buffer != "scratch");
            assert_eq!((&tokens, differs), (&expected.0, None), "{transport}");
            // Texts after it are eager from the start.
            let again = session.generate(&PROMPT, 8, &mut |_| {}).unwrap();
            assert_eq!(again.tokens, expected.0);
        }
    }
}
