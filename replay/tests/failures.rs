//! A replay that fails: the error is typed, says which token and why, and nothing is replayed
//! after it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use common::{PROMPT, plan, session};
use refrain_kernels::{Target, Word};
use refrain_replay::{ReplayError, Route, Session, SessionError, Transport};
use refrain_softgpu::memory::Rights;

fn replay_error(result: Result<(), SessionError>) -> ReplayError {
    match result.unwrap_err() {
        SessionError::Replay(error) => error,
        other => panic!("{other}"),
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
            text.contains("token 0") && text.contains("rope_kv"),
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

/// Replaces the dispatch of a step by NOPs in a session's indirect buffer (PM4 type 3 packets, AMD
/// GFX11 packet encodings: opcode in bits 15:8, words after the header less one in bits 29:16).
fn drop_dispatch(session: &Session, name: &str) {
    const NOP: u32 = 0x10;
    const DISPATCH_DIRECT: u32 = 0x15;
    let steps = &session.instance().plan().steps;
    let step = steps.iter().position(|step| step.name == name).unwrap();
    let gpu = session.opened().soft.clone().unwrap();
    let memory = gpu.memory();
    let rows = memory.allocations();
    let ib = rows.iter().find(|row| &*row.name == "ib").unwrap();
    let dwords = session.lowered().unwrap().dwords() as u64;
    let (mut at, mut seen) = (0, 0);
    while at < dwords {
        let address = ib.base + 4 * at;
        let header = memory.read_u32(address).unwrap();
        assert_eq!(header >> 30, 3, "dword {at}: {header:#x}");
        if header >> 8 & 0xff == DISPATCH_DIRECT {
            if seen == step {
                let nop = header & 0xffff_0000 | NOP << 8;
                memory.set_rights(ib.base, Rights::SHARED).unwrap();
                memory.write_bytes(address, &nop.to_le_bytes()).unwrap();
                memory.set_rights(ib.base, ib.rights).unwrap();
                return;
            }
            seen += 1;
        }
        at += u64::from(header >> 16 & 0x3fff) + 2;
    }
    panic!("{name}: only {seen} dispatches");
}

fn last_step(session: &Session, part: &str) -> String {
    let steps = session.instance().plan().steps.iter().rev();
    let names: Vec<_> = steps.map(|step| step.name.clone()).collect();
    let found = names.iter().find(|name| name.contains(part));
    found
        .unwrap_or_else(|| panic!("{part} in {names:?}"))
        .clone()
}

/// Rows of the eager run must not pass for the retained run's: a replay that writes no row of the
/// last layer leaves them as they were.
#[test]
fn verification_finds_a_step_that_is_not_replayed() {
    let plan = plan(Target::Gfx1201, 64);
    for part in ["rope_kv", "attn"] {
        let mut session = session(&plan, Transport::Pm4, 4);
        let name = last_step(&session, part);
        drop_dispatch(&session, &name);
        let found = session.verify(&PROMPT, 4, &mut |_| {}).unwrap();
        assert!(!found.verified(), "{name}: {found:?}");
        let difference = found.difference.unwrap();
        assert!(!difference.buffer.starts_with("weights"), "{difference}");
    }
}

#[test]
fn verification_finds_other_tokens() {
    let plan = plan(Target::Gfx1201, 64);
    let mut session = session(&plan, Transport::Pm4, 4);
    // Without the output projection the logits stay what scratch was filled with.
    let name = last_step(&session, "output");
    drop_dispatch(&session, &name);
    let found = session.verify(&PROMPT, 4, &mut |_| {}).unwrap();
    assert!(!found.same_tokens && !found.verified(), "{found:?}");
}
