//! A replay that fails: the error is typed, says which token and why, and nothing is replayed
//! after it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{PROMPT, device, plan, session, source};
use refrain_kernels::{Target, Word};
use refrain_recorder::EmbeddedObjects;
use refrain_replay::{
    ReplayError, Retain, Route, Session, SessionError, SessionOptions, Transport,
};
use refrain_softgpu::memory::Rights;
use std::time::Duration;

fn replay_error(result: Result<(), SessionError>) -> ReplayError {
    match result.unwrap_err() {
        SessionError::Replay(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn a_missed_deadline_names_token_and_packets_and_poisons() {
    let plan = plan(Target::Gfx1201, 64);
    for transport in Transport::ALL {
        let options = SessionOptions {
            retain: Retain::Whole,
            transport,
            deadline: Duration::from_nanos(1),
            ..SessionOptions::default()
        };
        let opened = device(Target::Gfx1201);
        let mut session =
            Session::new(opened, &plan, &source(), &EmbeddedObjects, options).unwrap();
        session.start(&PROMPT, 8).unwrap();
        let error = replay_error(session.advance(Route::Retained, 1, &mut |_| {}));
        let ReplayError::Deadline {
            token,
            taken,
            packets,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*token, 0);
        assert!(taken <= packets, "{error}");
        let expected = match transport {
            Transport::Aql => plan.steps.len() as u64,
            Transport::Pm4 => 1,
        };
        assert!((expected..=expected + 1).contains(packets), "{error}");
        let again = replay_error(session.advance(Route::Retained, 1, &mut |_| {}));
        assert!(matches!(&again, ReplayError::Poisoned { reason } if *reason == error.to_string()));
    }
}

#[test]
fn a_fault_on_the_device_is_told_in_its_words_and_poisons() {
    let plan = plan(Target::Gfx1201, 64);
    for transport in Transport::ALL {
        let mut session = session(&plan, transport, 4);
        session.start(&PROMPT, 8).unwrap();
        // The position is moved far outside the KV rows behind the plan's back.
        let control = session.instance().base(plan.control_buffer().unwrap());
        let gpu = session.opened().soft.clone().unwrap();
        let position = (1_u32 << 20).to_le_bytes();
        let at = control + u64::from(Word::Pos.offset());
        gpu.memory().write_bytes(at, &position).unwrap();
        let error = replay_error(session.advance(Route::Retained, 4, &mut |_| {}));
        assert!(
            matches!(error, ReplayError::Device { .. }),
            "{transport}: {error}"
        );
        let text = error.to_string();
        assert!(
            text.contains("token 0") && text.contains("kv_write"),
            "{transport}: {text}"
        );
        let again = replay_error(session.advance(Route::Retained, 1, &mut |_| {}));
        assert!(matches!(again, ReplayError::Poisoned { .. }), "{again}");
    }
}

#[test]
fn verification_finds_a_changed_kernarg_bit() {
    let plan = plan(Target::Gfx1201, 64);
    let mut session = session(&plan, Transport::Aql, 4);
    // The epsilon of a normalisation, one bit up, in the retained form only.
    let (step, slot) = (0..plan.steps.len() as u32)
        .find_map(|step| {
            let slots = plan.kernarg_layout(step).unwrap();
            let slot = slots.into_iter().find(|slot| slot.name == "eps")?;
            Some((step, slot))
        })
        .unwrap();
    let gpu = session.opened().soft.clone().unwrap();
    let arena = gpu.memory().allocations();
    let arena = arena.iter().find(|row| &*row.name == "kernargs").unwrap();
    let offset = session
        .lowered()
        .unwrap()
        .arena()
        .offset(step as usize)
        .unwrap();
    let address = arena.base + offset + u64::from(slot.offset);
    let bits = gpu.memory().read_u32(address).unwrap();
    // The GPU itself may only read the arena.
    gpu.memory().set_rights(arena.base, Rights::SHARED).unwrap();
    gpu.memory()
        .write_bytes(address, &(bits ^ 1 << 22).to_le_bytes())
        .unwrap();
    let found = session.verify(&PROMPT, 4, &mut |_| {}).unwrap();
    assert!(!found.verified());
    let difference = found.difference.unwrap();
    assert!(!difference.buffer.starts_with("weights"), "{difference}");
}
