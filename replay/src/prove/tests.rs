//! A nano model proved for real, and judges that are wrong on purpose.

use super::cut::{Part, cuts};
use super::gate::{Credentials, Standing, admit, presented};
use super::judge::{Bar, Judged, Verdict, judge};
use super::omissions::{Count, execute, run_words};
use super::proof::Executed;
use super::subject::Case;
use super::{ProveError, ProveOptions, prove};
use crate::lifecycle::images;
use crate::refusal::Code;
use refrain_kernels::Target;
use refrain_lower::{Policy, Transport, lower};
use refrain_planner::ModelSource;
use refrain_planner::container::CheckedPlan;
use refrain_planner::machine::Machine;
use refrain_planner::{CompileOptions, compile};
use refrain_recorder::{EmbeddedObjects, FileSource};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

fn model() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../tests/models/nano-llama.bf16.gguf")
}

/// The nano model with so short a context that all of its positions are run.
fn plan(target: Target, context: u32) -> Arc<CheckedPlan> {
    let source = ModelSource::open(model()).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    let options = CompileOptions {
        context: Some(context),
        ..CompileOptions::default()
    };
    Arc::new(compile(&source, &machine, &options).unwrap())
}

fn options(threads: usize) -> ProveOptions {
    ProveOptions {
        seeds: 2,
        sample: 6,
        threads,
        ..ProveOptions::default()
    }
}

#[test]
fn a_proof_is_complete_and_the_same_bytes_whatever_the_threads() {
    let (plan, source) = (
        plan(Target::Gfx1201, 4),
        FileSource::open(&model()).unwrap(),
    );
    let of = |threads| prove(&plan, &source, &EmbeddedObjects, &options(threads)).unwrap();
    let (one, two) = (of(1), of(2));
    assert_eq!(one.proof.to_bytes(), two.proof.to_bytes());
    let proof = one.proof;
    assert_eq!((proof.positions, proof.seeds), (vec![0, 2, 3], vec![0, 1]));
    assert_eq!(proof.slack.len(), 3);
    assert_eq!(proof.forms.len(), 2);
    for form in &proof.forms {
        for (part, tally) in &form.omissions {
            assert!(tally.complete(), "{} {part}: {tally:?}", form.transport);
            assert_eq!(tally.redundant, Vec::<String>::new(), "{part}");
        }
        // Every wait and every invalidation but the head's is needed by bytes that launches touched.
        let waits = &form.omissions["wait"];
        assert!(waits.by_trace + 1 >= waits.tried, "{waits:?}");
        assert!(form.executed.tried >= 6 && form.executed.noticed > 0);
    }
    let registers = &proof.forms[1].omissions["register"];
    assert!(registers.caught() > 100 && registers.repeated > 100);
}

#[test]
fn the_gate_lets_a_card_replay_proved_packets_only() {
    let plan = plan(Target::Gfx1201, 4);
    let images = images(&plan, &EmbeddedObjects).unwrap();
    let of = |transport| lower(&plan, &images, transport, Policy::default()).unwrap();
    let (aql, pm4) = (of(Transport::Aql), of(Transport::Pm4));
    let mut proof = super::proof::tests::proof();
    proof.plan = plan.id_hex();
    proof.forms[0].encoding = refrain_planner::identity::hex(pm4.digest());
    let other_plan = self::plan(Target::Gfx1201, 5);
    let mut other_tool = proof.clone();
    other_tool.tool = "refrain 0.0.0".into();
    let proved = Ok(Standing::Proved(proof.content_digest()));
    let (none, unproved) = (Err(Code::ProofAbsent), Ok(Standing::Unproved));
    let differs = Err(Code::ProofDiffers);
    let with = |proof: &super::Proof, allow| Credentials {
        proof: Some(proof.clone()),
        allow_unproven: allow,
    };
    let allow = Credentials {
        proof: None,
        allow_unproven: true,
    };
    let rows = [
        // A card, its credentials, plan and packets.
        (true, Credentials::default(), &plan, &pm4, none),
        (true, allow.clone(), &plan, &pm4, unproved),
        (true, with(&proof, false), &plan, &pm4, proved),
        (true, with(&proof, false), &plan, &aql, differs),
        (true, with(&proof, false), &other_plan, &pm4, differs),
        (true, with(&other_tool, false), &plan, &pm4, differs),
        // Leave to go without a proof is no leave to show a wrong one.
        (true, with(&proof, true), &plan, &aql, differs),
        (false, Credentials::default(), &plan, &pm4, unproved),
        (false, with(&proof, false), &plan, &pm4, proved),
        (false, with(&proof, false), &other_plan, &pm4, differs),
    ];
    for (number, (card, credentials, plan, lowered, expected)) in rows.into_iter().enumerate() {
        let transport = lowered.transport();
        let found = admit(card, plan, transport, lowered.digest(), &credentials);
        assert_eq!(
            found.map_err(|refusal| refusal.code),
            expected,
            "row {number}"
        );
    }
    assert!(presented(true, &Credentials::default()).is_err());
    assert!(presented(true, &allow).is_ok() && presented(false, &Credentials::default()).is_ok());
}

#[test]
fn execution_finds_a_judge_that_is_wrong() {
    let (plan, source) = (
        plan(Target::Gfx1100, 4),
        FileSource::open(&model()).unwrap(),
    );
    let case = Case {
        plan: &plan,
        source: &source,
        objects: &EmbeddedObjects,
        target: Target::Gfx1100,
    };
    let images = images(&plan, &EmbeddedObjects).unwrap();
    let packets = case.packets(&images, Transport::Pm4).unwrap();
    let runs = run_words(&plan, &packets);
    let words = &runs[0].words;
    let all = cuts(Transport::Pm4, words);
    let of = |part, number: usize| {
        let mut of_part = all.iter().filter(|cut| cut.part == part);
        *of_part.nth(number).unwrap()
    };
    // The second wait orders two launches, the first NUM_THREAD_X is read.
    let nothing = |_: &[u32]| refrain_packet::lint::Report::default();
    let bar = Bar {
        transport: Transport::Pm4,
        runs: &runs,
        traces: &[],
    };
    let found = judge(&bar, 0, words, &nothing);
    let mut repeated = found.iter().filter(|row| row.verdict == Verdict::Repeated);
    let repeated = repeated.next().unwrap().cut;
    let first_read = of(Part::Register, 4);
    let rows = [
        (of(Part::Wait, 1), Verdict::Repeated, true),
        (first_read, Verdict::Unseen, true),
        (repeated, Verdict::Open, true),
        (first_read, Verdict::Open, false),
        (repeated, Verdict::Repeated, false),
    ];
    let judged: Vec<Judged> = rows
        .iter()
        .map(|&(cut, verdict, _)| Judged {
            run: 0,
            cut,
            verdict,
        })
        .collect();
    let chosen: Vec<usize> = (0..rows.len()).collect();
    let outcomes = execute(case, &packets, &[0, 2, 3], &judged, &chosen, &options(2)).unwrap();
    for ((judged, outcome), (cut, verdict, wrong)) in judged.iter().zip(&outcomes).zip(rows) {
        let mut count = Count {
            case,
            packets: &packets,
            omissions: BTreeMap::new(),
            executed: Executed::default(),
        };
        let found = count.add(judged, Some(outcome));
        assert_eq!(found.is_err(), wrong, "{cut:?} {verdict:?}: {outcome:?}");
        if let Err(error) = found {
            let named = matches!(
                error,
                ProveError::Uncaught { .. } | ProveError::Disagree { .. }
            );
            assert!(
                named && error.refusal().unwrap().code == Code::ProofFails,
                "{error}"
            );
        }
    }
}
