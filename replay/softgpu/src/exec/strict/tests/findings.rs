//! What strict mode finds in small programs, each beside a twin without the fault.

use super::keeper::Keeper;
use super::listing::{Bench, Launch, findings, say};
use crate::exec::strict::run_strict;
use crate::exec::{ExecError, RunConfig, WaveFault, run_batch};
use crate::strict::hook::{WaveFinding, WaveInvalidate};
use std::sync::atomic::AtomicBool;

/// Program, waves, findings (empty: silent).
const CASES: [(&str, u32, &[&str]); 64] = [
    // Waits.
    ("load_no_wait", 1, &["v1 needs vmcnt(0) after +0x4"]),
    ("load_wait", 1, &[]),
    ("load_overwritten", 1, &["v1 needs vmcnt(0) after +0x4"]),
    ("load_reloaded", 1, &[]),
    ("second_load", 1, &["v2 needs vmcnt(0) after +0xc"]),
    ("first_load", 1, &["v1 needs vmcnt(1) after +0x4"]),
    (
        "scalar_out_of_order",
        1,
        &["s8 needs lgkmcnt(0) after +0x4"],
    ),
    ("scalar_all", 1, &[]),
    ("mixed", 1, &["v1 needs lgkmcnt(0) after +0xc"]),
    ("lds_only", 1, &[]),
    ("idle", 1, &[]),
    ("store_data_reused", 1, &[]),
    ("delay_is_no_wait", 1, &["v1 needs vmcnt(0) after +0x4"]),
    ("atomic_result", 1, &["v2 needs vmcnt(0) after +0x8"]),
    (
        "wait_before_address",
        1,
        &["s8 needs lgkmcnt(0) after +0x0"],
    ),
    ("crossbar_no_wait", 1, &["v1 needs lgkmcnt(0) after +0x4"]),
    ("crossbar_wait", 1, &[]),
    ("load_no_wait_12", 1, &["v1 needs loadcnt(0) after +0x4"]),
    ("load_wait_12", 1, &[]),
    ("combined_12", 1, &[]),
    ("combined_late_12", 1, &["v2 needs dscnt(0) after +0x18"]),
    ("separate_12", 1, &[]),
    ("scalar_12", 1, &["s8 needs kmcnt(0) after +0x4"]),
    // Poison.
    ("poison_address", 1, &["v5 in address, 0xffffffff"]),
    (
        "poison_scalar_base",
        1,
        &["s[12:13] in address, 0xffffffff"],
    ),
    ("poison_exec", 1, &["s20 in EXEC, 0xffffffff"]),
    ("poison_cmpx", 1, &["v5 in EXEC, 0xffffffff"]),
    ("poison_exec_masked", 1, &[]),
    ("poison_branch", 1, &["src_scc in branch condition, 0x1"]),
    ("poison_vcc", 1, &["vcc_lo in branch condition, 0xffffffff"]),
    ("vcc_decided", 1, &[]),
    ("poison_stored", 1, &["v1 in stored data, 0xffffffff"]),
    ("cleaned", 1, &[]),
    ("selected", 1, &[]),
    ("selected_wrong", 1, &["v1 in stored data, 0xffff0000"]),
    ("masked_off", 1, &[]),
    ("low_half", 1, &[]),
    ("high_half", 1, &["v7 in stored data, 0xffffffff"]),
    ("lane_moves", 1, &[]),
    ("lane_moves_wrong", 1, &["v1 in stored data, 0xffffffff"]),
    ("dpp_from_defined", 1, &[]),
    ("dpp_from_poison", 1, &["v6 in stored data, 0x10001"]),
    ("vcc_start", 1, &["v1 in stored data, 0xffffffff"]),
    // LDS, two waves that exchange rows.
    ("race_none", 2, &[]),
    ("bytes_apart", 2, &[]),
    ("atomics", 2, &[]),
    ("lds_uninitialised", 1, &["v1 in stored data, 0xffffffff"]),
    ("lds_poison_through", 1, &["v1 in stored data, 0xffffffff"]),
    ("split_12", 2, &[]),
    // Barriers.
    ("diverged", 2, &["barriers apart, other at +0xc"]),
    ("converged", 2, &[]),
    ("left_early", 2, &["barriers apart, other at +0x10"]),
    ("loop", 1, &[]),
    // Registers counted from M0, scratch and flat memory, MODE.
    ("relative", 1, &[]),
    ("relative_elsewhere", 1, &["v5 in stored data, 0xffffffff"]),
    ("relative_unknown", 1, &["m0 in register number, 0x1"]),
    ("relative_in_flight", 1, &["v6 needs vmcnt(0) after +0x8"]),
    ("scratch", 1, &[]),
    ("scratch_unwritten", 1, &["v1 in stored data, 0xffffffff"]),
    ("scratch_no_wait", 1, &["v1 needs vmcnt(0) after +0xc"]),
    ("flat", 1, &[]),
    ("flat_half_waited", 1, &["v1 needs lgkmcnt(0) after +0xc"]),
    ("flat_to_lds", 1, &["v1 in stored data, 0xffffffff"]),
    ("mode", 1, &[]),
];

const RAW: &str = "read after write";
const WAR: &str = "write after read";
const WAW: &str = "write after write";

/// Programs of two waves with an LDS race: its bytes, and the names it may have. Which of the two
/// accesses comes first is the seed's choice.
const RACES: [(&str, u32, &[&str]); 8] = [
    ("race_raw", 4, &[RAW, WAR]),
    // The store was not known to be complete when its wave signalled the barrier.
    ("race_unfinished", 4, &[RAW]),
    ("race_war", 4, &[RAW, WAR]),
    ("race_waw", 4, &[WAW]),
    ("bytes_together", 2, &[WAW]),
    ("atomic_and_store", 4, &[WAW]),
    ("split_early_12", 4, &[RAW, WAR]),
    ("split_late_12", 4, &[RAW]),
];

#[test]
fn lds_races_are_found_in_every_order() {
    for (name, bytes, names) in RACES {
        for seed in 0..20 {
            let mut keeper = Keeper::default();
            let bench = Bench::new();
            bench
                .run(&[Launch::of(name, 2)], seed, &mut keeper)
                .unwrap();
            let mut races = 0;
            for (who, finding) in &keeper.found {
                if let WaveFinding::LdsRace {
                    bytes: got,
                    other_wave,
                    what,
                    ..
                } = finding
                {
                    races += 1;
                    assert_eq!(*got, bytes, "{name}");
                    assert_eq!(*other_wave, 1 - who.wave, "{name}");
                    assert!(names.contains(what), "{name}: {what}");
                }
            }
            assert!(races > 0, "{name}, seed {seed}");
        }
    }
}

#[test]
fn findings_and_silent_twins() {
    let mut wrong = Vec::new();
    for (name, waves, want) in CASES {
        for seed in [1, 2] {
            let got = findings(Launch::of(name, waves), seed);
            if got != want {
                wrong.push(format!("{name}, seed {seed}: {got:?}, want {want:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn hangs_and_barriers_that_cannot_complete_are_faults() {
    for (name, want) in [("hang", "no end after"), ("never_12", "deadlock: 2 waves")] {
        let mut keeper = Keeper::default();
        let result = Bench::new().run(&[Launch::of(name, 2)], 3, &mut keeper);
        let Err(ExecError::Wave(error)) = result else {
            panic!("{name}: {result:?}");
        };
        assert!(error.fault.to_string().starts_with(want), "{error}");
        assert!(matches!(
            error.fault,
            WaveFault::Budget { .. } | WaveFault::Deadlock { .. }
        ));
    }
}

#[test]
fn faults_are_those_of_the_fast_path() {
    for name in ["out_of_bounds", "out_of_lds", "off_the_end", "nowhere"] {
        let bench = Bench::new();
        let batch = [bench.dispatch(Launch::of(name, 2))];
        let config = RunConfig {
            seed: 5,
            threads: 1,
            wave_budget: 1000,
        };
        let fast = run_batch(&bench.memory, &batch, &config);
        let stop = AtomicBool::new(false);
        let strict = run_strict(
            &bench.memory,
            &batch,
            &config,
            &stop,
            &mut Keeper::default(),
        );
        let (Err(ExecError::Wave(f)), Err(ExecError::Wave(s))) = (fast, strict) else {
            panic!("{name}");
        };
        // Which of the waves comes first is the interleaving's choice.
        assert_eq!(
            (f.pc, f.instruction, f.fault),
            (s.pc, s.instruction, s.fault)
        );
    }
}

#[test]
fn the_memory_side_is_told_about_atomics_and_invalidations() {
    use WaveInvalidate::{L0, L1, Scalar};
    for (name, want) in [
        ("events", vec![L0, L1, Scalar]),
        ("events_12", vec![L0, L0, L1, Scalar]),
    ] {
        let mut keeper = Keeper::default();
        let bench = Bench::new();
        bench.run(&[Launch::of(name, 1)], 1, &mut keeper).unwrap();
        assert_eq!(keeper.invalidated, want, "{name}");
        let kinds: Vec<(bool, bool)> = keeper
            .atomics
            .iter()
            .map(|k| (k.ordered, k.returns))
            .collect();
        assert_eq!(kinds, [(true, false), (false, true)], "{name}");
        let first = keeper.found.first().map(|(_, f)| say(f));
        assert_eq!(first, None, "{name}");
    }
}

#[test]
fn uninitialised_memory_is_poison_in_the_registers_that_hold_it() {
    // Lane 3 of a 16-byte load, or the scalar load at the start: only the last dword is undefined.
    for (name, from, want) in [
        ("load_128", 16 * 3 + 12, "v7 in stored data, 0x8"),
        ("scalar_128", 12, "v2 in stored data, 0xffffffff"),
    ] {
        let bench = Bench::new();
        let mut keeper = Keeper::default();
        keeper
            .undefined
            .push((bench.input + from, bench.input + from + 4));
        bench.run(&[Launch::of(name, 1)], 1, &mut keeper).unwrap();
        let found: Vec<String> = keeper.found.iter().map(|(_, f)| say(f)).collect();
        assert_eq!(found, [want], "{name}");
        keeper = Keeper::default();
        bench.run(&[Launch::of(name, 1)], 1, &mut keeper).unwrap();
        assert!(keeper.found.is_empty(), "{name}");
    }
}
