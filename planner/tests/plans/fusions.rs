//! Fusions one by one: what each takes together, that it can be switched off, and what happens where
//! a kernel for it does not exist. That fused and unfused plans give the same tokens is shown in the
//! cross-crate tests.

use crate::fixture::{F16, F32, Meta, NANO, Q8_0, Tiny, repository, unfused, with};
use refrain_kernels::{Dtype, Target};
use refrain_planner::arch::bind;
use refrain_planner::graph;
use refrain_planner::lowering::{Input, LowerError, fusions, lower, rope_table};
use refrain_planner::plan::{Activations, Options, Plan, StepBody};
use refrain_planner::schedule::verify;
use refrain_planner::{CheckedPlan, PlanError, compile_family};
use std::collections::BTreeSet;

/// Fusion, architecture of a tiny model that uses it, kernel that then runs, kernels that run
/// without it (and with every other fusion). All but `attn_split` stand in each layer of their kind.
const FUSIONS: &[(&str, &str, &str, &[&str])] = &[
    (
        "gated_attention",
        "qwen35",
        "attn_merge_gated",
        &[
            "q_gate_split",
            "qk_norm_rope_kv_f32",
            "attn_split_f32_d32",
            "sigmoid_mul",
        ],
    ),
    (
        "delta_net",
        "qwen35",
        "delta_net_d32",
        &[
            "conv_silu_k4",
            "delta_gates",
            "l2_norm",
            "delta_step_d32",
            "gated_norm",
        ],
    ),
    ("gemv4", "qwen35", "gemv4_f16", &["gemv3_f16", "gemv_f16"]),
    (
        "gate_up",
        "llama",
        "gemv_silu_f16",
        &["gemv2_f16", "silu_mul"],
    ),
    (
        "expert_gate_up",
        "qwen35moe",
        "moe_gate_up_f16",
        &["moe_gemv_f16", "silu_mul"],
    ),
    (
        "qk_norm_rope_kv",
        "qwen3",
        "qk_norm_rope_kv_f32",
        &["qk_norm", "rope_kv_f32"],
    ),
    ("gemv3", "llama", "gemv3_f16", &["gemv2_f16", "gemv_f16"]),
    ("gemv3_bias", "qwen2", "gemv3_bias_f16", &["gemv_bias_f16"]),
    ("rope_kv", "llama", "rope_kv_f32", &["rope", "kv_write_f32"]),
    (
        "gemv_gated_add",
        "qwen35moe",
        "gemv_gated_add_f16",
        &["gated_add"],
    ),
    ("gemv2", "qwen35moe", "gemv2_f32", &["gemv_f32"]),
    (
        "norm_quantise",
        "llama",
        "rmsnorm_quantise_q8_0",
        &["rmsnorm", "quantise_q8_0"],
    ),
    (
        "attn_split",
        "qwen3",
        "attn_split_f32_d32",
        &["attn_decode_f32_d32"],
    ),
];

/// A tiny model with a context long enough to be split. For `norm_quantise` its matrices are Q8_0.
fn tiny(name: &str, arch: &'static str) -> refrain_planner::ModelSource {
    let mut model = Tiny::new(arch);
    if name == "norm_quantise" {
        for (_, ty, _) in model.tensors.values_mut().filter(|t| t.1 == F16) {
            *ty = Q8_0;
        }
    }
    model.set(&format!("{arch}.context_length"), Meta::U32(4096));
    model.open()
}

fn without(model: &refrain_planner::ModelSource, off: &[&str]) -> CheckedPlan {
    let plan = with(model, "gfx1201", |options| {
        options.context = Some(4096);
        options.activations = Activations::Int8;
        options.no_fuse = off.iter().map(|name| (*name).to_owned()).collect();
    });
    plan.unwrap()
}

fn kernels(plan: &Plan) -> BTreeSet<&str> {
    plan.kernels
        .iter()
        .map(|kernel| kernel.symbol.as_str())
        .collect()
}

#[test]
fn every_fusion_can_be_switched_off_by_name() {
    let named: Vec<&str> = FUSIONS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(fusions().collect::<Vec<_>>(), named);
    for (name, arch, fused, plain) in FUSIONS {
        let model = tiny(name, arch);
        let (on, off) = (without(&model, &[]), without(&model, &[name]));
        assert!(kernels(&on).contains(fused), "{name}: {:?}", kernels(&on));
        assert!(!kernels(&off).contains(fused), "{name} is off");
        for kernel in *plain {
            assert!(
                kernels(&off).contains(kernel),
                "{name}: {:?}",
                kernels(&off)
            );
        }
        let more = off.steps.len() > on.steps.len();
        assert!(more || *name == "attn_split", "{name}");
        assert_eq!(verify(&off), Ok(()));
    }
}

#[test]
fn each_model_with_each_fusion_off_is_a_valid_plan_of_its_own() {
    for model in NANO {
        let file = repository(model);
        let mut structures = BTreeSet::new();
        let all = without_of(&file, &[]);
        let used = fusions().filter(|name| {
            let plan = without_of(&file, &[name]);
            structures.insert(plan.identity().structure);
            plan.identity().structure != all.identity().structure
        });
        // The same model, other structures: as many as fusions it uses.
        let used = used.count();
        let same = usize::from(structures.contains(&all.identity().structure));
        assert_eq!(structures.len() - same, used, "{model}");
        assert!(used >= 4, "{model} uses {used}");
    }
}

fn without_of(file: &refrain_planner::ModelSource, off: &[&str]) -> CheckedPlan {
    let plan = with(file, "gfx1100", |options| {
        options.context = Some(512);
        options.no_fuse = off.iter().map(|name| (*name).to_owned()).collect();
    });
    plan.unwrap()
}

#[test]
fn an_unknown_fusion_is_answered_with_the_known_ones() {
    let error = with(&tiny("", "llama"), "gfx1100", |options| {
        options.no_fuse = vec!["qkv".into()];
    });
    let error = error.unwrap_err();
    assert!(matches!(
        error,
        PlanError::Lower(LowerError::UnknownFusion { .. })
    ));
    for name in ["qkv", "gemv3", "attn_split"] {
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// What has no fused kernel is done by plain ones, and what has none at all is refused.
#[test]
fn types_and_shapes_decide() {
    // Three matrices of two types: no launch takes them together.
    let mut mixed = Tiny::new("llama");
    for layer in 0..2 {
        mixed.tensor(&format!("blk.{layer}.attn_v"), &[64, 64], F32);
        mixed.tensor(&format!("blk.{layer}.ffn_up"), &[64, 96], F32);
    }
    let plan = without(
        &{
            mixed.set("llama.context_length", Meta::U32(4096));
            mixed.open()
        },
        &[],
    );
    let found = kernels(&plan);
    assert!(
        found.contains("gemv2_f16") && !found.contains("gemv3_f16"),
        "{found:?}"
    );
    assert!(
        found.contains("silu_mul") && !found.contains("gemv_silu_f16"),
        "{found:?}"
    );

    let refused = |arch: &'static str, change: fn(&mut Tiny)| {
        let mut model = Tiny::new(arch);
        change(&mut model);
        unfused(&model.open(), "gfx1151").unwrap_err().to_string()
    };
    let taps = refused("lfm2", |t| {
        t.set("lfm2.shortconv.l_cache", Meta::U32(5));
        t.tensors.insert(
            "blk.0.shortconv.conv.weight".into(),
            (vec![5, 64], F32, Vec::new()),
        );
    });
    for text in ["blk.0.short_conv", "columns 5", "gfx1151", "columns 3"] {
        assert!(taps.contains(text), "{taps}");
    }
    let bias = refused("qwen2", |t| {
        t.tensors
            .insert("blk.0.attn_q.bias".into(), (vec![128], F16, Vec::new()));
    });
    for text in ["blk.0.attn_q", "GemvBias", "f16", "gfx1151", "f32"] {
        assert!(bias.contains(text), "{bias}");
    }
    let state = refused("qwen35", |t| {
        t.set("qwen35.ssm.state_size", Meta::U32(16));
        t.set("qwen35.ssm.inner_size", Meta::U32(64));
        for (name, dims) in [
            ("attn_qkv", vec![64, 128]),
            ("attn_gate", vec![64, 64]),
            ("ssm_out", vec![64, 64]),
        ] {
            t.tensor(&format!("blk.0.{name}"), &dims, F16);
        }
        t.tensor("blk.0.ssm_conv1d", &[4, 128], F32);
        t.tensor("blk.0.ssm_norm", &[16], F32);
    });
    for text in ["blk.0", "16", "32"] {
        assert!(state.contains(text), "{state}");
    }
}

#[test]
fn a_family_shares_buffers_and_differs_in_its_splits() {
    let model = tiny("", "qwen3");
    let machine = refrain_planner::machine::Machine::load("gfx1201").unwrap();
    let options = refrain_planner::CompileOptions {
        context: Some(4096),
        ..Default::default()
    };
    let family = |buckets: &[u32]| compile_family(&model, &machine, &options, buckets);
    let plans = family(&[256, 1024]).unwrap();
    let ends: Vec<u32> = plans.iter().map(|plan| plan.options.bucket).collect();
    assert_eq!(ends, [256, 1024, 4096]);
    // 64 compute units over 4 heads allow 16 parts, one per 256 positions.
    let splits = plans.iter().map(|plan| {
        let split = plan
            .steps
            .iter()
            .find(|step| step.name.ends_with("attn_split.split"));
        split.map_or(1, |step| {
            let StepBody::Launch(launch) = &step.body else {
                panic!("a launch")
            };
            launch.grid[0] / 4
        })
    });
    assert_eq!(splits.collect::<Vec<_>>(), [1, 4, 16]);
    for plan in &plans {
        let shape = |plan: &Plan| -> Vec<(String, u64)> {
            let kept = plan
                .buffers
                .iter()
                .filter(|buffer| buffer.name != "scratch");
            kept.map(|buffer| (buffer.name.clone(), buffer.bytes))
                .collect()
        };
        assert_eq!(shape(plan), shape(&plans[0]));
        assert_eq!(plan.identity().model, plans[0].identity().model);
    }
    assert_ne!(plans[0].identity().structure, plans[1].identity().structure);
    // The whole context needs no plan of its own where the last bucket ends there.
    assert_eq!(family(&[4096]).unwrap().len(), 1);
    assert_eq!(family(&[]).unwrap().len(), 1);
    for (buckets, texts) in [
        (&[0][..], ["bucket 0", "4096"]),
        (&[4097], ["bucket 4097", "4096"]),
        (&[512, 256], ["bucket 256", "512"]),
        (&[512, 512], ["bucket 512", "after 512"]),
    ] {
        let error = family(buckets).unwrap_err().to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    }
}

/// What a fused kernel leaves out may be needed: then the operations stay apart.
#[test]
fn a_value_that_is_read_later_is_not_fused_away() {
    let model = Tiny::new("llama").open();
    let bound = bind(model.table()).unwrap();
    let mut step = graph::build(&bound).unwrap();
    let launches = |step: &graph::Graph| {
        let lowered = lower(&Input {
            bound: &bound,
            graph: step,
            digests: &vec![None; bound.weights.len()],
            rope: &rope_table(&bound.geometry, None),
            options: &Options {
                context: 32,
                bucket: 32,
                kv_dtype: Dtype::F32,
                ring_entries: 16,
                gpu_layers: bound.geometry.layers,
                exec: None,
                activations: Activations::Exact,
            },
            target: Target::Gfx1100,
            compute_units: 96,
            no_fuse: &[],
            spilled: &[],
        });
        let names = lowered.unwrap().steps.into_iter().map(|step| step.name);
        names.collect::<BTreeSet<String>>()
    };
    let before = launches(&step);
    // The first layer's gate and up are read once more behind their product.
    let at = step
        .nodes
        .iter()
        .position(|node| node.op == graph::Op::SiluMul);
    let at = at.unwrap();
    let mut again = step.nodes[at].clone();
    again.name = "again".into();
    again.writes = vec![step.values.len()];
    step.values.push(graph::Value {
        name: "again",
        len: 96,
    });
    step.nodes.insert(at + 1, again);
    let after = launches(&step);
    let fused = |layer: u32| format!("blk.{layer}.ffn_gate.gate_up");
    assert!(before.contains(&fused(0)) && before.contains(&fused(1)));
    assert!(
        !after.contains(&fused(0)) && after.contains(&fused(1)),
        "{after:?}"
    );
    for name in ["blk.0.ffn_gate.gemv2", "blk.0.silu_mul", "again"] {
        assert!(after.contains(name), "{after:?}");
    }
}
