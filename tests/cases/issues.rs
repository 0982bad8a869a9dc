//! Regression tests named after public issues of neighbouring systems that this slice answers. The
//! recorder's own are in `recorder/tests`; each says what was reported and what must hold here.

use refrain_kernels::Target;
use refrain_replay::{Route, SessionOptions, Transport};
use refrain_tests::{AUSTEN, Setup, repository, session};

fn on(transport: Transport) -> Setup {
    let session = SessionOptions {
        transport,
        ..SessionOptions::default()
    };
    Setup {
        session,
        ..Setup::on(Target::Gfx1201)
    }
}

/// ROCm/rocm-systems 10713: kernarg staging never reclaimed its slots, so per-token updates used up
/// device memory. Here the kernarg arena is allocated once and no byte of it changes.
#[test]
fn issue_rocm_systems_10713_the_kernarg_area_is_fixed() {
    for transport in Transport::ALL {
        let mut session = session(&repository(AUSTEN), on(transport)).unwrap();
        let arena =
            |session: &refrain_replay::Session| session.replayer().unwrap().arena_bytes().unwrap();
        // One allocation by name, and none of any kind that comes with the tokens.
        let allocations = |session: &refrain_replay::Session| {
            let gpu = session.opened().soft.clone().unwrap();
            let names: Vec<String> = gpu
                .memory()
                .allocations()
                .iter()
                .map(|info| info.name.to_string())
                .collect();
            names
        };
        let held = allocations(&session);
        assert_eq!(
            held.iter().filter(|name| *name == "kernargs").count(),
            1,
            "{held:?}"
        );
        let before = arena(&session);
        assert!(before.len() >= session.instance().plan().steps.len() * 24);
        session.generate(&[41, 84, 365], 40, &mut |_| {}).unwrap();
        session.generate(&[500], 40, &mut |_| {}).unwrap();
        assert_eq!(arena(&session), before, "{transport}");
        assert_eq!(allocations(&session), held, "{transport}");
    }
}

/// ROCm/hip 3887: a replay of about 200 nodes or more read values from before an update by the host.
/// Here a prompt written between texts must be what the next replay computes with.
#[test]
fn issue_rocm_hip_3887_a_changed_input_changes_the_output() {
    let prompts: [&[u32]; 2] = [&[41, 84, 365], &[500, 2, 77]];
    for transport in Transport::ALL {
        let mut retained = session(&repository(AUSTEN), on(transport)).unwrap();
        let mut texts = Vec::new();
        for prompt in [prompts[0], prompts[1], prompts[0]] {
            let replayed = retained
                .run(Route::Retained, prompt, 12, &mut |_| {})
                .unwrap();
            let eager = retained.run(Route::Eager, prompt, 12, &mut |_| {}).unwrap();
            assert_eq!(replayed, eager, "{transport}");
            texts.push(replayed);
        }
        assert_ne!(texts[0], texts[1], "{transport}");
        assert_eq!(texts[0], texts[2], "{transport}");
    }
}

/// stew675/llama-cpp-rdna-boosts 41: no decode call ever replayed and nobody saw it. Here every run
/// counts both, and a retained session replays all of its tokens.
#[test]
fn issue_rdna_boosts_41_replayed_tokens_are_counted() {
    let mut session = session(&repository(AUSTEN), on(Transport::Pm4)).unwrap();
    session.generate(&[41, 84, 365], 10, &mut |_| {}).unwrap();
    let counters = session.counters();
    assert_eq!((counters.replayed_tokens, counters.eager_tokens), (12, 0));
    session.run(Route::Eager, &[41], 5, &mut |_| {}).unwrap();
    let counters = session.counters();
    assert_eq!((counters.replayed_tokens, counters.eager_tokens), (12, 5));
}

/// tinygrad 17920: a replayed graph hung after ten tokens or so, with nothing said. Here a launch of
/// the eleventh token that never ends is a typed error at the deadline, the tokens before it are
/// there, and the process goes on with another session.
#[test]
fn issue_tinygrad_17920_a_hang_ends_at_its_deadline() {
    for transport in Transport::ALL {
        let deadline = std::time::Duration::from_millis(400);
        let mut setup = on(transport);
        setup.session.deadline = deadline;
        setup.session.in_flight = 1;
        let mut hung = session(&repository(AUSTEN), setup).unwrap();
        let right = hung.generate(&[41, 84, 365], 12, &mut |_| {}).unwrap();
        let launches = hung.instance().plan().steps.len();
        let gpu = hung.opened().soft.clone().unwrap();
        gpu.arm_faults(
            &format!("hang@launch:{}", launches * 10 + 5)
                .parse()
                .unwrap(),
        );
        let start = std::time::Instant::now();
        let mut tokens = Vec::new();
        let error = hung
            .generate(&[41, 84, 365], 12, &mut |token| tokens.push(token))
            .unwrap_err();
        assert!(start.elapsed() < 20 * deadline, "{transport}");
        let text = format!("{:#}", anyhow::Error::from(error));
        println!("{transport}: {text}");
        // Ten steps ran: three for the prompt, the last of which gives the first token.
        assert_eq!(tokens[..], right.tokens[..8], "{transport}");
        for name in ["did not complete within 400ms", "never ends"] {
            assert!(text.contains(name), "{transport}, `{name}`: {text}");
        }
        assert_eq!(gpu.injected_faults().len(), 1);
        drop(hung);
        let mut fresh = session(&repository(AUSTEN), on(transport)).unwrap();
        let again = fresh.generate(&[41, 84, 365], 12, &mut |_| {}).unwrap();
        assert_eq!(again.tokens, right.tokens, "{transport}");
    }
}

/// ROCm/rocm-systems 10021: with device memory full, an update of the graph crashed in the middle of
/// a run. Here everything is allocated at load: whichever allocation fails, it is a typed error before
/// the first token, and once a session stands, a device that has no more memory changes nothing.
#[test]
fn issue_rocm_systems_10021_memory_is_reserved_at_load() {
    for transport in Transport::ALL {
        let mut session = session(&repository(AUSTEN), on(transport)).unwrap();
        let right = session.generate(&[41, 84, 365], 8, &mut |_| {}).unwrap();
        let gpu = session.opened().soft.clone().unwrap();
        let script = "fail@hip-alloc:1,fail@pool-alloc:1,fail@kernarg-alloc:1";
        gpu.arm_faults(&script.parse().unwrap());
        let again = session.generate(&[41, 84, 365], 8, &mut |_| {}).unwrap();
        assert_eq!(again.tokens, right.tokens, "{transport}");
        assert_eq!(gpu.injected_faults(), [], "{transport}: it allocated");
    }
}
