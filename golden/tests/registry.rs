//! The registry over a world in memory: what is sealed, what verifies, and which layer a single
//! change falls into.
#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

use refrain_golden::archive::Archive;
use refrain_golden::record::Floor;
use refrain_golden::{
    Class, Facts, Grade, Kind, Layer, Matrix, Planned, ProofFacts, Recipe, Record, RecordError,
    Registry, Route, SealError, State, World, WorldError, attest, seal, verify,
};
use refrain_kernels::{Target, code_object};
use refrain_lower::Transport;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::{Identity, Layer as PlanLayer, hex};
use refrain_planner::machine::Machine;
use refrain_planner::plan::{Arg, Digest, Invalidate, Plan};
use refrain_planner::{CompileOptions, ModelSource, compile};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MODEL: &str = "tests/models/nano-llama.bf16.gguf";
const PM4: [Route; 1] = [Route::Retained(Transport::Pm4)];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn recipe() -> Recipe {
    Recipe {
        model: "nano".into(),
        file: MODEL.into(),
        quant: String::new(),
        machine: "gfx1201".into(),
        residency: "resident".into(),
        gpu_layers: "all".into(),
        exec: "pcie".into(),
        kv: "f32".into(),
        context: 0,
        unbounded: false,
        prompt: vec![1, 2],
        tokens: 4,
    }
}

/// Plans for real; proofs and tokens are made up, and each can be made to go wrong.
#[derive(Default)]
struct Memory {
    model: Option<PathBuf>,
    context: Option<u32>,
    program: &'static str,
    token: u32,
    /// The next plan, and only that, has another context.
    drifts: Cell<bool>,
    /// Added to tokens of eager runs.
    eager: u32,
    refused: Option<&'static str>,
    proof_of_other: bool,
}

fn memory() -> Memory {
    Memory {
        program: "refrain 0.1.0",
        token: 7,
        ..Memory::default()
    }
}

fn planned(world: &Memory) -> Arc<CheckedPlan> {
    match world.plan(&recipe()).unwrap() {
        Planned::Plan(plan) => plan,
        Planned::Refused { code, .. } => unreachable!("{code}"),
    }
}

impl World for Memory {
    fn program(&self) -> String {
        self.program.to_owned()
    }

    fn plan(&self, recipe: &Recipe) -> Result<Planned, WorldError> {
        if let Some(code) = self.refused {
            let (code, detail) = (code.to_owned(), "no".to_owned());
            return Ok(Planned::Refused { code, detail });
        }
        let path = self.model.clone();
        let path = path.unwrap_or_else(|| root().join(&recipe.file));
        let options = CompileOptions {
            context: match self.drifts.replace(false) {
                true => Some(5),
                false => self.context,
            },
            ..CompileOptions::default()
        };
        let machine = Machine::load(&recipe.machine)?;
        let plan = compile(&ModelSource::open(path)?, &machine, &options)?;
        Ok(Planned::Plan(Arc::new(plan)))
    }

    fn object(&self, digest: &Digest) -> Option<&[u8]> {
        let objects = Target::ALL.into_iter().map(code_object);
        let mut found = objects.filter(|object| object.digest == *digest);
        found.next().map(|object| object.bytes())
    }

    fn compiler(&self) -> String {
        "a compiler".into()
    }

    fn prove(&self, _: &Recipe, plan: &Arc<CheckedPlan>) -> Result<Vec<u8>, WorldError> {
        let facts = Facts::of(plan, self)?;
        let mut text = format!("{}\n{}\n", self.program, facts.identity.plan);
        for encoding in &facts.encodings {
            text += &format!("{} {}\n", encoding.transport, encoding.digest);
        }
        if self.proof_of_other {
            text = text.replace(&facts.encodings[1].digest, "00");
        }
        Ok(text.into_bytes())
    }

    fn read_proof(&self, bytes: &[u8]) -> Result<ProofFacts, WorldError> {
        let mut lines = std::str::from_utf8(bytes)?.lines();
        let mut line = || lines.next().ok_or("the proof is cut");
        let (tool, plan) = (line()?.to_owned(), line()?.to_owned());
        let form = |line: &str| {
            let (transport, digest) = line.split_once(' ')?;
            Some((transport.to_owned(), digest.to_owned()))
        };
        Ok(ProofFacts {
            digest: hex(blake3::hash(bytes).as_bytes()),
            tool,
            plan,
            encodings: lines.filter_map(form).collect(),
        })
    }

    fn tokens(
        &self,
        _: &Recipe,
        _: &Arc<CheckedPlan>,
        route: Route,
    ) -> Result<Vec<u32>, WorldError> {
        let more = if route == Route::Eager { self.eager } else { 0 };
        Ok(vec![self.token + more; 4])
    }
}

fn sealed() -> (Record, Vec<u8>) {
    let sealed = seal(&recipe(), &memory(), None).unwrap();
    (sealed.record, sealed.proof.unwrap())
}

#[test]
fn sealing_twice_gives_the_same_bytes_and_what_is_sealed_verifies() {
    let (record, proof) = sealed();
    let (again, same_proof) = sealed();
    assert_eq!((record.to_bytes(), &proof), (again.to_bytes(), &same_proof));
    assert_eq!(record.kind, Kind::Whole);
    let verified = verify(&record, Some(&proof), &memory(), &Route::ALL).unwrap();
    let layers: Vec<Layer> = verified.checks.iter().map(|check| check.layer).collect();
    assert_eq!(layers, Layer::ALL);
    let (speed, others) = verified.checks.split_last().unwrap();
    let same = others.iter().all(|check| check.state == State::Same);
    assert!(same, "{others:?}");
    assert!(matches!(speed.state, State::Skipped(_)));
}

/// Changes the last digit of a digest.
fn other(text: &mut String) {
    let last = if text.ends_with('0') { '1' } else { '0' };
    text.pop();
    text.push(last);
}

/// Changes one thing in a record, which is rendered again with a digest that is right, or in its proof.
type Edit = fn(&mut Record, &mut Vec<u8>);

const EDITS: [(Edit, Layer, Class, &str); 10] = [
    (
        |r, _| other(&mut r.facts.identity.model),
        Layer::Model,
        Class::OtherModel,
        "model",
    ),
    (
        |r, _| {
            other(&mut r.facts.identity.structure);
            other(&mut r.facts.steps[2]);
        },
        Layer::Plan,
        Class::OtherStructure,
        "blk.1.",
    ),
    (
        |r, _| {
            other(&mut r.facts.identity.schedule);
            r.facts.waits = r.facts.waits.replacen("7a", "7", 1);
            r.facts.counts.invalidations -= 1;
        },
        Layer::Plan,
        Class::OtherSchedule,
        "step 7 (",
    ),
    (
        |r, _| other(&mut r.facts.identity.artifacts),
        Layer::Artifacts,
        Class::OtherObjects,
        "artifacts",
    ),
    (
        |r, _| other(&mut r.facts.identity.plan),
        Layer::Artifacts,
        Class::OtherFacts,
        "plan file",
    ),
    (
        |r, _| other(&mut r.facts.encodings[0].digest),
        Layer::Encoding,
        Class::OtherEncoding,
        "aql",
    ),
    (
        |r, _| r.facts.encodings[1].policy = "elide".into(),
        Layer::Encoding,
        Class::OtherEncoding,
        "pm4",
    ),
    (
        |_, proof| proof[0] ^= 1,
        Layer::Proof,
        Class::OtherProof,
        "content",
    ),
    (
        |_, proof| proof.clear(),
        Layer::Proof,
        Class::OtherProof,
        "file",
    ),
    (
        |r, _| other(&mut r.tokens.as_mut().unwrap().digest),
        Layer::Tokens,
        Class::OtherTokens,
        "by pm4",
    ),
];

#[test]
fn each_sealed_field_that_differs_is_of_its_own_layer_and_class() {
    for (edit, layer, class, place) in EDITS {
        let (mut record, mut proof) = sealed();
        edit(&mut record, &mut proof);
        let record = Record::from_bytes(&record.to_bytes()).unwrap();
        let verified = verify(&record, Some(&proof), &memory(), &PM4).unwrap();
        let found = verified.mismatch().unwrap();
        assert_eq!((found.layer, found.class), (layer, class), "{found}");
        assert!(found.place.contains(place), "{found}");
        assert_ne!(found.sealed, found.found);
        // The order is fixed: everything before is as sealed.
        let (_, before) = verified.checks.split_last().unwrap();
        let same = before.iter().all(|check| check.state == State::Same);
        assert!(same, "{before:?}");
    }
}

#[test]
fn a_flipped_byte_of_a_weight_is_another_model_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut bytes = std::fs::read(root().join(MODEL)).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (record, proof) = sealed();
    let world = Memory {
        model: Some(path),
        ..memory()
    };
    let verified = verify(&record, Some(&proof), &world, &PM4).unwrap();
    let found = verified.mismatch().unwrap();
    let expected = (Layer::Model, Class::OtherModel);
    assert_eq!((found.layer, found.class), expected, "{found}");
    let first = planned(&memory());
    let second = verified.plan.unwrap();
    let differing = first.identity().differing(second.identity());
    assert_eq!(differing, [PlanLayer::Model]);
}

/// Flips a bit of the first immediate argument of a launch.
fn flip_argument(plan: &mut Plan) {
    let found = plan.steps.iter_mut().find_map(|step| {
        let launch = step.body.launches_mut().first_mut()?;
        launch.args.iter_mut().find_map(|arg| match arg {
            Arg::Imm(value) => Some(value),
            _ => None,
        })
    });
    *found.unwrap() ^= 1;
}

#[test]
fn one_change_of_a_plan_is_in_exactly_its_layer() {
    let plan = planned(&memory());
    let base = Identity::of(&plan);
    type Row = (&'static str, fn(&mut Plan), PlanLayer);
    let rows: [Row; 4] = [
        (
            "a bit of a code object's digest",
            |plan| plan.kernels[0].object[3] ^= 1,
            PlanLayer::Artifacts,
        ),
        ("a kernel argument", flip_argument, PlanLayer::Structure),
        (
            "a wait",
            |plan| plan.schedule.waits[3].invalidate = Invalidate::None,
            PlanLayer::Schedule,
        ),
        (
            "a bit of a weight's digest",
            |plan| plan.model.tensors[0].digest.as_mut().unwrap()[0] ^= 1,
            PlanLayer::Model,
        ),
    ];
    for (what, edit, layer) in rows {
        let mut other = Plan::clone(&plan);
        edit(&mut other);
        assert_eq!(base.differing(&Identity::of(&other)), [layer], "{what}");
    }
}

#[test]
fn any_changed_byte_of_a_record_is_refused_before_anything_in_it_is_believed() {
    let (record, _) = sealed();
    let good = record.to_bytes();
    assert_eq!(Record::from_bytes(&good).unwrap(), record);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(Record::from_bytes(&bytes).is_err(), "byte {at}");
    }
    let text = String::from_utf8(good).unwrap();
    let of = |from: &str, to: &str| Record::from_bytes(text.replacen(from, to, 1).as_bytes());
    type Row = (&'static str, &'static str, fn(&RecordError) -> bool);
    let rows: [Row; 4] = [
        ("golden.v1", "golden.v9", |e| {
            matches!(e, RecordError::Schema { .. })
        }),
        ("launches = ", "launches = 1", |e| {
            matches!(e, RecordError::Digest { .. })
        }),
        ("[counts]", "[counts] ", |e| {
            matches!(e, RecordError::NotCanonical { .. })
        }),
        ("waits", "weights", |e| matches!(e, RecordError::Syntax(_))),
    ];
    for (from, to, expected) in rows {
        let error = of(from, to).unwrap_err();
        assert!(expected(&error), "{from}: {error}");
    }
}

#[test]
fn a_record_that_contradicts_itself_is_refused_with_a_right_digest() {
    let floor = |retained, eager| Floor {
        card: "a card".into(),
        report: "ab".into(),
        retained_mtok_s: retained,
        eager_mtok_s: eager,
    };
    let slow = floor(817, 1000);
    type Change = Box<dyn Fn(&mut Record)>;
    let edits: [(&str, Change); 7] = [
        ("no proof", Box::new(|r| r.proof = None)),
        (
            "a shape that ran",
            Box::new(|r| r.recipe.quant = "q8_0".into()),
        ),
        ("one encoding", Box::new(|r| drop(r.facts.encodings.pop()))),
        ("a wait too many", Box::new(|r| r.facts.counts.waits += 1)),
        (
            "a path upwards",
            Box::new(|r| r.recipe.file = "../x".into()),
        ),
        (
            "a refusal that planned",
            Box::new(|r| r.refusal = Some("RF024".into())),
        ),
        // The public case: a retained form at 0.817 of eager, reported valid.
        (
            "slower than eager",
            Box::new(move |r| r.floors.push(slow.clone())),
        ),
    ];
    for (what, edit) in edits {
        let mut record = sealed().0;
        edit(&mut record);
        let found = Record::from_bytes(&record.to_bytes());
        let refused = matches!(found, Err(RecordError::Inconsistent(_)));
        assert!(refused, "{what}: {found:?}");
    }
    let mut record = sealed().0;
    record.floors.push(floor(1150, 1000));
    assert_eq!(Record::from_bytes(&record.to_bytes()).unwrap(), record);
}

#[test]
fn what_is_unproved_or_differs_from_run_to_run_is_not_sealed() {
    let drifting = memory();
    drifting.drifts.set(true);
    let two_routes = Memory {
        eager: 1,
        ..memory()
    };
    let other_packets = Memory {
        proof_of_other: true,
        ..memory()
    };
    let no_model = Memory {
        model: Some("/nowhere".into()),
        ..memory()
    };
    type Row = (&'static str, Memory, fn(&SealError) -> bool);
    let rows: [Row; 4] = [
        ("plans differ", drifting, |e| {
            matches!(e, SealError::Nondeterministic { .. })
        }),
        ("routes differ", two_routes, |e| {
            matches!(e, SealError::Nondeterministic { .. })
        }),
        ("a proof of other packets", other_packets, |e| {
            matches!(e, SealError::Unproved(_))
        }),
        ("no such model", no_model, |e| {
            matches!(e, SealError::World { .. })
        }),
    ];
    for (what, world, expected) in rows {
        let error = seal(&recipe(), &world, None).unwrap_err();
        assert!(expected(&error), "{what}: {error}");
    }
}

#[test]
fn a_proof_from_before_is_taken_only_if_it_speaks_for_these_packets() {
    let (_, proof) = sealed();
    let older = Memory {
        program: "refrain 0.0.9",
        ..memory()
    };
    let old = older.prove(&recipe(), &planned(&memory())).unwrap();
    for before in [proof.clone(), old, b"damaged".to_vec()] {
        let sealed = seal(&recipe(), &memory(), Some(before)).unwrap();
        assert_eq!(sealed.proof.unwrap(), proof);
    }
}

#[test]
fn a_refusal_is_sealed_as_such_and_differs_once_the_machine_takes_the_plan() {
    let refusing = |code| Memory {
        refused: Some(code),
        ..memory()
    };
    let sealed = seal(&recipe(), &refusing("RF024"), None).unwrap();
    assert_eq!((sealed.record.kind, sealed.proof), (Kind::Refused, None));
    let holds = verify(&sealed.record, None, &refusing("RF024"), &PM4).unwrap();
    assert_eq!(holds.mismatch(), None);
    for world in [memory(), refusing("RF027")] {
        let verified = verify(&sealed.record, None, &world, &PM4).unwrap();
        let class = verified.mismatch().unwrap().class;
        assert_eq!(class, Class::OtherAdmission);
    }
}

#[test]
fn a_machine_attests_exact_route_compatible_or_failed() {
    let (record, proof) = sealed();
    let grade = |record: &Record, world: &Memory| {
        let found = attest(record, Some(&proof), world, &Route::ALL).unwrap();
        found.grade
    };
    assert_eq!(grade(&record, &memory()), Grade::Exact);
    let mut objects = record.clone();
    objects.facts.identity.artifacts = "00".into();
    assert_eq!(grade(&objects, &memory()), Grade::RouteCompatible);
    let other = Memory {
        token: 8,
        ..memory()
    };
    assert_eq!(grade(&record, &other), Grade::Failed);
    assert_eq!(grade(&objects, &other), Grade::Failed);
    let longer = Memory {
        context: Some(9),
        ..memory()
    };
    assert_eq!(grade(&record, &longer), Grade::Failed);
    // Without tokens nothing was reproduced.
    let none = attest(&record, Some(&proof), &memory(), &[]).unwrap();
    assert_eq!(none.grade, Grade::Failed);
}

#[test]
fn a_folder_keeps_records_where_their_names_say_and_shows_strays() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::at(folder.path());
    let (record, proof) = sealed();
    assert_eq!(registry.record(&record.recipe).unwrap(), None);
    registry.write(&record, Some(&proof)).unwrap();
    let read = registry.record(&record.recipe).unwrap();
    assert_eq!(read, Some(record.clone()));
    assert_eq!(registry.proof(&record.recipe).unwrap(), Some(proof));
    let mut elsewhere = record.recipe.clone();
    elsewhere.machine = "gfx1100".into();
    let (from, to) = (
        registry.record_path(&record.recipe),
        registry.record_path(&elsewhere),
    );
    std::fs::copy(from, &to).unwrap();
    assert!(registry.record(&elsewhere).is_err());
    let matrix = Matrix {
        recipes: vec![record.recipe.clone()],
    };
    assert_eq!(registry.strays(&matrix).unwrap(), [to]);
    let mut archive = Archive::default();
    archive.add("record.toml", record.to_bytes());
    let read = Archive::from_bytes(&archive.to_bytes().unwrap()).unwrap();
    let read = Record::from_bytes(read.needed("record.toml").unwrap());
    assert_eq!(read.unwrap(), record);
}
