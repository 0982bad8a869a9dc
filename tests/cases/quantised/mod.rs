//! Models in every weight format: exact mode gives the bits of the decoded weights, int8 mode the logits
//! of an independent emulation of ggml, and the plan makes each int8 vector once.

mod model;

use model::{Tensor, decoded, gguf, hfq, tensors};
use refrain_kernels::{Dtype, Op, Target, find};
use refrain_planner::plan::Activations;
use refrain_replay::Route;
use refrain_tests::{Setup, largest_difference, logits, long, oracle, plan, session};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// First decode step of `tests/oracle/int8.py` for a type.
#[derive(Deserialize)]
struct Emulated {
    token: u32,
    logits: Vec<f32>,
}

/// Prompt of the runs whose answer is not an oracle's.
const PROMPT: [u32; 3] = [7, 200, 33];

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn setup(target: Target, activations: Activations) -> Setup {
    Setup {
        activations,
        context: Some(32),
        ..Setup::on(target)
    }
}

/// Logits after each of the first `steps` positions.
fn run(model: &Path, setup: Setup, steps: u32) -> Vec<Vec<f32>> {
    run_on(model, setup, &PROMPT, steps)
}

fn run_on(model: &Path, setup: Setup, prompt: &[u32], steps: u32) -> Vec<Vec<f32>> {
    let mut session = session(model, setup).unwrap();
    session.start(prompt, 8).unwrap();
    let step = |_| {
        session.advance(Route::Retained, 1, &mut |_| {}).unwrap();
        logits(&mut session).unwrap()
    };
    (0..steps).map(step).collect()
}

/// Both instruction sets; every target in the long form.
fn targets() -> Vec<Target> {
    if long() {
        Target::ALL.to_vec()
    } else {
        vec![Target::Gfx1100, Target::Gfx1201]
    }
}

fn ggml_types() -> impl Iterator<Item = Dtype> {
    Dtype::ALL
        .into_iter()
        .filter(|dtype| dtype.format().ggml.is_some() && dtype.element_bytes().is_none())
}

fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let bits = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    logits.iter().map(bits).collect()
}

/// The weights that exact mode multiplies with are the decoded ones, so not a bit differs.
#[test]
fn exact_mode_gives_the_bits_of_the_decoded_weights() {
    for dtype in ggml_types() {
        let quantised = tensors(|_| dtype, false);
        let packed = file(&format!("exact-{dtype}.gguf"), &gguf(&quantised));
        let plain = file(
            &format!("exact-{dtype}-f32.gguf"),
            &gguf(&decoded(&quantised)),
        );
        let wanted = run(&plain, setup(Target::Gfx1201, Activations::Exact), 3);
        for target in targets() {
            let got = run(&packed, setup(target, Activations::Exact), 3);
            assert_eq!(bits(&got), bits(&wanted), "{dtype} on {target}");
        }
    }
}

/// Q4_K_M and its like: the types of a layer differ, so that fusions over equal types fall back.
#[test]
fn types_may_differ_within_a_layer() {
    let of = |name: &str| match name {
        "attn_v" | "ffn_down" | "output" => Dtype::Q6_K,
        "token_embd" => Dtype::Q5_0,
        "ffn_up" => Dtype::Q4_0,
        _ => Dtype::Q4_K,
    };
    let quantised = tensors(of, false);
    let packed = file("mixed.gguf", &gguf(&quantised));
    let plain = file("mixed-f32.gguf", &gguf(&decoded(&quantised)));
    let exact = run(&packed, setup(Target::Gfx1201, Activations::Exact), 3);
    let wanted = run(&plain, setup(Target::Gfx1201, Activations::Exact), 3);
    assert_eq!(bits(&exact), bits(&wanted));
    let made = quantising(&packed, Activations::Int8);
    // Per layer: both norms as Q8_K by their fusion, the gate's input again as Q8_0, and the inputs of
    // output and down projections. The head's is the last norm's.
    assert_eq!(made[&Op::RmsNormQuantise], 5);
    assert_eq!(made[&Op::Quantise], 6);
    let int8 = run(&packed, setup(Target::Gfx1100, Activations::Int8), 3);
    let error = largest_difference(&int8[2], &exact[2]);
    assert!(error > 0.0 && error < 0.2, "{error}");
}

/// How many launches of each quantising operation a plan has.
fn quantising(model: &Path, activations: Activations) -> HashMap<Op, usize> {
    let plan = plan(model, setup(Target::Gfx1201, activations)).unwrap();
    let mut found = HashMap::new();
    for step in &plan.steps {
        for launch in step.body.launches() {
            let kernel = &plan.kernels[launch.kernel as usize];
            let op = find(&kernel.symbol).unwrap().op;
            if matches!(op, Op::Quantise | Op::RmsNormQuantise | Op::Rotate) {
                *found.entry(op).or_insert(0) += 1;
            }
        }
    }
    found
}

#[test]
fn each_vector_is_quantised_once() {
    let path = file("once.gguf", &gguf(&tensors(|_| Dtype::Q8_0, false)));
    assert!(quantising(&path, Activations::Exact).is_empty());
    let made = quantising(&path, Activations::Int8);
    // Two norms a layer and the last; the inputs of output and down projections of two layers.
    assert_eq!((made[&Op::RmsNormQuantise], made[&Op::Quantise]), (5, 4));
}

/// ggml's numbers: activations rounded to int8 per block, integer products, as an emulation in numpy
/// has them.
#[test]
fn first_step_in_int8_matches_the_emulation_of_ggml() {
    let wanted: BTreeMap<String, Emulated> = oracle("int8-llama.json").unwrap();
    for dtype in ggml_types() {
        let path = file(
            &format!("int8-{dtype}.gguf"),
            &gguf(&tensors(|_| dtype, false)),
        );
        let wanted = &wanted[dtype.name()];
        for target in targets() {
            let int8 = setup(target, Activations::Int8);
            let got = run_on(&path, int8, &[wanted.token], 1);
            let error = largest_difference(&got[0], &wanted.logits);
            assert!(error <= 1e-5, "{dtype} on {target}: {error}");
            println!("{dtype} on {target}: {error:e}");
        }
    }
}

/// hipfire's types: rotated ones against unrotated weights of their own decoding.
#[test]
fn hfq_types_run_and_match_their_decoded_weights() {
    let types = Dtype::ALL
        .into_iter()
        .filter(|dtype| dtype.format().hfq.is_some() && dtype.block() == 256);
    for dtype in types.filter(|dtype| *dtype != Dtype::Q4_K) {
        // No kernel undoes the rotation for an embedding.
        let of = |name: &str| {
            if name == "token_embd" {
                Dtype::Q8_0
            } else {
                dtype
            }
        };
        let quantised = tensors(of, true);
        let packed = file(&format!("{dtype}.hfq"), &hfq(&quantised));
        let plain = file(&format!("{dtype}-f32.hfq"), &hfq(&unrotated(&quantised)));
        let wanted = run(&plain, setup(Target::Gfx1201, Activations::Exact), 3);
        let got = run(&packed, setup(Target::Gfx1201, Activations::Exact), 3);
        if dtype.format().rotated {
            let error = largest_difference(&got[2], &wanted[2]);
            assert!(error <= 1e-4, "{dtype}: {error}");
        } else {
            assert_eq!(bits(&got), bits(&wanted), "{dtype}");
        }
        let int8 = run(&packed, setup(Target::Gfx1100, Activations::Int8), 3);
        let error = largest_difference(&int8[2], &wanted[2]);
        assert!(error < 0.4, "{dtype}: {error}");
        let made = quantising(&packed, Activations::Int8);
        if dtype.format().rotated {
            // Nothing is read unrotated but the head's input where it is quantised by its own.
            assert_eq!((made[&Op::Rotate], made[&Op::Quantise]), (9, 9), "{dtype}");
        }
    }
}

/// Decoded, and what is rotated turned back: w . x = (R w) . (R x).
fn unrotated(list: &[Tensor]) -> Vec<Tensor> {
    let mut plain = decoded(list);
    for (tensor, packed) in plain.iter_mut().zip(list) {
        if !packed.dtype.format().rotated {
            continue;
        }
        let values = tensor.bytes.as_chunks::<4>().0.iter();
        let mut values: Vec<f32> = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
        refrain_kernels::format::unrotate(&mut values);
        tensor.bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
    }
    plain
}
