//! Model files against the declarations: what fits, and what is refused with which values.

use crate::fixture::{F16, F32, Meta, NANO_LLAMA, Q2_0, Tiny, plan, repository, unfused};
use refrain_kernels::Dtype;
use refrain_planner::arch::{ARCHS, ArchError, RopeStyle, bind};
use refrain_planner::gguf::GgufError;
use refrain_planner::graph;
use refrain_planner::lowering::LowerError;
use refrain_planner::plan::{Arg, StepBody};
use refrain_planner::{CheckedPlan, PlanError};

#[test]
fn every_declaration_binds_and_builds() {
    for arch in ARCHS {
        let file = Tiny::new(arch.name).open();
        let bound = bind(file.table()).unwrap();
        let graph = graph::build(&bound).unwrap();
        let layers = (0..2).map(|layer| bound.kind(layer).ops.iter().copied().flatten().count());
        let operations = layers.sum::<usize>() + arch.prologue.len() + arch.epilogue.len();
        assert_eq!(graph.nodes.len(), operations, "{}", arch.name);
        for machine in ["gfx1100", "gfx1151", "gfx1201"] {
            let steps = |plan: CheckedPlan| plan.steps.len();
            assert_eq!(steps(unfused(&file, machine).unwrap()), operations);
            assert!(steps(plan(&file, machine).unwrap()) < operations);
        }
    }
}

type Edit = fn(&mut Tiny);

/// What is wrong with a qwen3 file, and the texts that the error must hold.
const WRONG: &[(&str, Edit, &[&str])] = &[
    (
        "architecture",
        |t| t.set("general.architecture", Meta::Text("falcon")),
        &["falcon", "llama, qwen2, qwen3, qwen35, qwen35moe, lfm2"],
    ),
    (
        "no layers key",
        |t| drop(t.meta.remove("qwen3.block_count")),
        &["qwen3.block_count"],
    ),
    (
        "no layers",
        |t| t.set("qwen3.block_count", Meta::U32(0)),
        &["block_count is 0", "1 to"],
    ),
    (
        "absurd layers",
        |t| t.set("qwen3.block_count", Meta::U32(u32::MAX)),
        &["4294967295", "4096"],
    ),
    (
        "a layer too many",
        |t| t.set("qwen3.block_count", Meta::U32(3)),
        &["blk.2.attn_norm"],
    ),
    (
        "a layer too few",
        |t| t.set("qwen3.block_count", Meta::U32(1)),
        &["blk.1.", "not part"],
    ),
    (
        "heads",
        |t| t.set("qwen3.attention.head_count_kv", Meta::U32(3)),
        &["head_count_kv is 3", "head_count 4"],
    ),
    (
        "value length",
        |t| t.set("qwen3.attention.value_length", Meta::U32(16)),
        &["value_length is 16", "key_length 32"],
    ),
    (
        "layers that differ",
        |t| t.set("qwen3.attention.head_count_kv", Meta::U32s(vec![2, 4])),
        &["2 in layer 0", "4 in layer 1"],
    ),
    (
        "odd rotation",
        |t| t.set("qwen3.rope.dimension_count", Meta::U32(31)),
        &["dimension_count is 31", "even"],
    ),
    (
        "rotation past the head",
        |t| t.set("qwen3.rope.dimension_count", Meta::U32(34)),
        &["34", "1 to 32"],
    ),
    (
        "eps",
        |t| t.set("qwen3.attention.layer_norm_rms_epsilon", Meta::F32(0.0)),
        &["epsilon is 0", "positive"],
    ),
    (
        "theta",
        |t| t.set("qwen3.rope.freq_base", Meta::F32(f32::NAN)),
        &["freq_base is NaN", "finite"],
    ),
    (
        "experts",
        |t| t.set("qwen3.expert_count", Meta::U32(8)),
        &["expert_count is 8", "mixture"],
    ),
    (
        "scaled rotation",
        |t| t.set("qwen3.rope.scaling.type", Meta::Text("yarn")),
        &["yarn", "scaled rotary"],
    ),
    (
        "acausal",
        |t| t.set("qwen3.attention.causal", Meta::Bool(false)),
        &["causal is false", "looks ahead"],
    ),
    (
        "missing tensor",
        |t| drop(t.tensors.remove("blk.1.ffn_up.weight")),
        &["blk.1.ffn_up.weight", "[64, 96]", "missing"],
    ),
    (
        "missing norm",
        |t| drop(t.tensors.remove("blk.0.attn_q_norm.weight")),
        &["blk.0.attn_q_norm.weight", "[32]"],
    ),
    (
        "wrong shape",
        |t| t.tensor("blk.0.attn_k", &[64, 128], F16),
        &["[64, 128]", "[64, 64]", "head_count_kv x key_length"],
    ),
    (
        "transposed",
        |t| t.tensor("blk.0.ffn_down", &[64, 96], F16),
        &["[64, 96]", "[96, 64]", "feed_forward_length"],
    ),
    (
        "unsupported type",
        |t| t.tensor("blk.0.ffn_up", &[64, 96], Q2_0),
        &["blk.0.ffn_up", "Q2_0", "q8_0"],
    ),
    (
        "bias",
        |t| {
            drop(
                t.tensors
                    .insert("blk.0.attn_q.bias".into(), (vec![128], F32, vec![])),
            )
        },
        &["blk.0.attn_q.bias", "without biases"],
    ),
    (
        "tensor of another model",
        |t| t.tensor("blk.0.ssm_out", &[64, 64], F16),
        &["blk.0.ssm_out", "not part"],
    ),
    (
        "factors where none are declared",
        |t| t.tensor("rope_freqs", &[16], F32),
        &["rope_freqs", "not part"],
    ),
    (
        "vocabulary key",
        |t| t.set("qwen3.vocab_size", Meta::U32(81)),
        &["token_embd.weight has 80", "vocab_size has 81"],
    ),
    (
        "vocabulary of the tokenizer",
        |t| t.set("tokenizer.ggml.tokens", Meta::Texts(79)),
        &["80", "tokens has 79"],
    ),
    (
        "end token",
        |t| t.set("tokenizer.ggml.eos_token_id", Meta::U32(80)),
        &["eos_token_id is 80", "size 80"],
    ),
    (
        "no embedding",
        |t| drop(t.tensors.remove("token_embd.weight")),
        &["token_embd.weight"],
    ),
    (
        "norm in f16",
        |t| t.tensor("blk.0.attn_norm", &[64], F16),
        &["blk.0.attn_norm", "RmsNorm", "f16", "f32"],
    ),
    (
        "head size without a kernel",
        |t| {
            t.set("qwen3.attention.key_length", Meta::U32(16));
            for layer in 0..2 {
                for (name, dims) in [
                    ("attn_q", vec![64, 64]),
                    ("attn_k", vec![64, 32]),
                    ("attn_v", vec![64, 32]),
                    ("attn_output", vec![64, 64]),
                ] {
                    t.tensor(&format!("blk.{layer}.{name}"), &dims, F16);
                }
                t.tensor(&format!("blk.{layer}.attn_q_norm"), &[16], F32);
                t.tensor(&format!("blk.{layer}.attn_k_norm"), &[16], F32);
            }
        },
        &["blk.0.qk_norm", "head_dim = 16", "multiple of 32"],
    ),
];

#[test]
fn what_does_not_fit_is_refused_with_both_values() {
    for (name, edit, texts) in WRONG {
        let mut model = Tiny::new("qwen3");
        edit(&mut model);
        let error = plan(&model.open(), "gfx1201").expect_err(name).to_string();
        for text in *texts {
            assert!(error.contains(text), "{name}: {error:?} lacks {text:?}");
        }
    }
}

#[test]
fn errors_are_typed() {
    let error = |edit: Edit| {
        let mut model = Tiny::new("llama");
        edit(&mut model);
        plan(&model.open(), "gfx1201").unwrap_err()
    };
    assert!(matches!(
        error(|t| drop(t.meta.remove("llama.context_length"))),
        PlanError::Arch(ArchError::File(GgufError::MissingKey { .. }))
    ));
    assert!(matches!(
        error(|t| t.set("llama.attention.sliding_window", Meta::U32(64))),
        PlanError::Arch(ArchError::Refused { .. })
    ));
    // llama has no QK norm, so the next thing to miss is the attention kernel.
    let no_kernel = error(|t| {
        t.set("llama.attention.key_length", Meta::U32(48));
        for layer in 0..2 {
            t.tensor(&format!("blk.{layer}.attn_q"), &[64, 192], F16);
            t.tensor(&format!("blk.{layer}.attn_k"), &[64, 96], F16);
            t.tensor(&format!("blk.{layer}.attn_v"), &[64, 96], F16);
            t.tensor(&format!("blk.{layer}.attn_output"), &[192, 64], F16);
        }
    });
    let PlanError::Lower(LowerError::NoKernel { wanted, exists, .. }) = &no_kernel else {
        panic!("{no_kernel}")
    };
    assert_eq!(wanted, "f32 head_dim 48");
    assert!(
        exists.contains("f32 head_dim 64") && exists.contains("f16 head_dim 256"),
        "{exists}"
    );
    assert!(no_kernel.to_string().contains("gfx1201"));
    let bad_factor = error(|t| {
        t.tensor("rope_freqs", &[16], F32);
        t.tensors.get_mut("rope_freqs.weight").unwrap().2 = 1f32.to_le_bytes().to_vec();
    });
    assert!(matches!(
        bad_factor,
        PlanError::Arch(ArchError::RopeFactor {
            index: 1,
            value: 0.0,
            ..
        })
    ));
}

/// Value of an immediate of the first step whose name ends so.
fn immediate(plan: &CheckedPlan, suffix: &str, arg: &str) -> u32 {
    let step = plan
        .steps
        .iter()
        .position(|step| step.name.ends_with(suffix))
        .unwrap();
    let layout = plan.kernarg_layout(step as u32).unwrap();
    let slot = layout.iter().find(|slot| slot.name == arg).unwrap();
    let Arg::Imm(bits) = slot.arg else {
        panic!("{arg} is an address")
    };
    bits
}

#[test]
fn rotation_style_and_defaults_follow_the_architecture() {
    let file = repository(NANO_LLAMA);
    assert_eq!(
        bind(file.table()).unwrap().arch.rope,
        RopeStyle::AdjacentPairs
    );
    let llama = unfused(&file, "gfx1100").unwrap();
    assert_eq!(immediate(&llama, ".rope", "interleaved"), 1);
    assert!(
        llama
            .steps
            .iter()
            .all(|step| !step.name.ends_with("qk_norm"))
    );
    let qwen3 = unfused(&Tiny::new("qwen3").open(), "gfx1100").unwrap();
    assert_eq!(immediate(&qwen3, ".rope", "interleaved"), 0);
    assert_eq!(
        immediate(&qwen3, ".attention", "scale"),
        (1.0 / 32f32.sqrt()).to_bits()
    );

    // head_dim of E / H, as many key as query heads, base 10000, rotation of the whole head.
    let mut model = Tiny::new("llama");
    model.meta.remove("llama.attention.key_length");
    model.meta.remove("llama.attention.head_count_kv");
    model.set("llama.attention.head_count", Meta::U32(2));
    for layer in 0..2 {
        for name in ["attn_q", "attn_k", "attn_v", "attn_output"] {
            model.tensor(&format!("blk.{layer}.{name}"), &[64, 64], F16);
        }
    }
    let g = plan(&model.open(), "gfx1100").unwrap().model.geometry;
    assert_eq!(
        (g.head_dim, g.kv_heads, g.rope_dims, g.rope_theta),
        (32, 2, 32, 10_000.0)
    );
    // One value for all layers may also be given as a list.
    model.set("llama.attention.head_count_kv", Meta::U32s(vec![2, 2]));
    assert_eq!(plan(&model.open(), "gfx1100").unwrap().model.geometry, g);
}

#[test]
fn a_tied_head_reads_the_embedding() {
    let mut model = Tiny::new("qwen3");
    let untied = plan(&model.open(), "gfx1201").unwrap();
    model.tensors.remove("output.weight");
    let tied = plan(&model.open(), "gfx1201").unwrap();
    assert_eq!(untied.model.tensors.len(), tied.model.tensors.len() + 1);
    let weight = |plan: &CheckedPlan, name: &str, arg: usize| {
        let step = plan.steps.iter().find(|step| step.name == name).unwrap();
        let StepBody::Launch(launch) = &step.body else {
            panic!("a launch")
        };
        launch.args[arg]
    };
    assert_eq!(weight(&tied, "output", 0), weight(&tied, "embed", 0));
    assert_ne!(weight(&untied, "output", 0), weight(&untied, "embed", 0));
}

#[test]
fn rotation_table_holds_turns_in_two_floats() {
    let mut model = Tiny::new("llama");
    model.tensor("rope_freqs", &[16], F32);
    let factors: Vec<f32> = (0..16).map(|pair| 1.0 + pair as f32).collect();
    let content = factors
        .iter()
        .flat_map(|factor| factor.to_le_bytes())
        .collect();
    model.tensors.get_mut("rope_freqs.weight").unwrap().2 = content;
    let plan = plan(&model.open(), "gfx1201").unwrap();
    let rope = plan
        .buffers
        .iter()
        .find(|buffer| buffer.name == "rope")
        .unwrap();
    assert_eq!(rope.content.len(), 16 * 8);
    for (pair, entry) in rope.content.chunks_exact(8).enumerate() {
        let [high, low] =
            [0, 4].map(|at| f32::from_le_bytes(entry[at..at + 4].try_into().unwrap()));
        let frequency = 10_000f64.powf(-(pair as f64) / 16.0) / f64::from(factors[pair]);
        let turns = frequency / std::f64::consts::TAU;
        assert_eq!(high, turns as f32, "pair {pair}");
        let error = (f64::from(high) + f64::from(low) - turns).abs();
        assert!(error < turns * 1e-14, "pair {pair}: {error:e}");
    }
}

#[test]
fn types_of_the_catalog_are_taken_by_name() {
    for dtype in Dtype::ALL {
        let name = dtype.name().to_uppercase();
        let ggml = refrain_planner::gguf::GgmlType::from_name(&name);
        assert_eq!(ggml.map(|ty| ty.id()), dtype.format().ggml, "{dtype}");
        let block = (dtype.block(), dtype.file_bytes(1, dtype.block()).unwrap());
        if let Some(ty) = ggml {
            assert_eq!((ty.block_elements(), ty.block_bytes()), block, "{dtype}");
        }
        let hfq = refrain_planner::hfq::TYPES
            .iter()
            .find(|row| row.1.name() == name);
        assert_eq!(hfq.map(|row| row.0), dtype.format().hfq, "{dtype}");
        if let Some((_, ty)) = hfq {
            assert_eq!((ty.block_elements(), ty.block_bytes()), block, "{dtype}");
        }
    }
}
