//! Each semantic change changes exactly the layers it should.

use crate::fixture::{AUSTEN, NANO_LLAMA, Tiny, plan, repository, sample};
use proptest::prelude::{ProptestConfig, any, proptest};
use refrain_kernels::{Dtype, Target};
use refrain_planner::diff::diff;
use refrain_planner::machine::Machine;
use refrain_planner::plan::{
    Activations, Arg, BufferKind, Digest, Eligibility, Exec, Extent, Hazard, Invalidate, Plan,
    Region, StepBody, Wait,
};
use refrain_planner::source::LoadOp;
use refrain_planner::{CompileOptions, Identity, Layer, compile};

use Layer::{Artifacts, Model, Schedule, Structure};

type Change = fn(&mut Plan, u32);

fn flip(digest: &mut Option<Digest>, at: usize) {
    digest.as_mut().unwrap()[at] ^= 1;
}

/// A change by some amount that is not 0, and the layers that must move.
const CHANGES: &[(&str, Change, &[Layer])] = &[
    ("producer", |p, n| p.producer = n.to_string(), &[]),
    ("display name", |p, n| p.model.name = n.to_string(), &[]),
    (
        "file size",
        |p, n| p.model.files[0].bytes += u64::from(n),
        &[],
    ),
    (
        "place in file",
        |p, n| p.model.tensors[0].file_offset += u64::from(n),
        &[],
    ),
    (
        "files",
        |p, n| {
            let mut file = p.model.files[0];
            file.bytes = u64::from(n);
            p.model.files.push(file);
        },
        &[],
    ),
    (
        "loading: the digest is of what it makes",
        |p, n| p.model.tensors[2].load = vec![LoadOp::PairRows { head_rows: n }],
        &[],
    ),
    (
        "weights absent",
        |p, _| p.model.tensors[0].digest = None,
        &[Model],
    ),
    (
        "pieces",
        |p, n| p.model.tensors[0].more = vec![u64::from(n)],
        &[],
    ),
    (
        "header length",
        |p, n| p.model.files[0].header_bytes += u64::from(n),
        &[],
    ),
    (
        "header content",
        |p, n| p.model.files[0].header_digest[n as usize % 32] ^= 1,
        &[],
    ),
    ("card", |p, n| p.machine.card = n.to_string(), &[]),
    (
        "memory of the machine",
        |p, n| p.machine.vram_bytes += u64::from(n),
        &[],
    ),
    (
        "architecture",
        |p, n| p.model.arch = n.to_string(),
        &[Model],
    ),
    ("layers", |p, n| p.model.geometry.layers += n, &[Model]),
    (
        "experts used",
        |p, n| p.model.geometry.experts_used += n,
        &[Model],
    ),
    (
        "state of linear attention",
        |p, n| p.model.geometry.state_dim += n,
        &[Model],
    ),
    ("vocabulary", |p, n| p.model.geometry.vocab += n, &[Model]),
    (
        "eps",
        |p, n| p.model.geometry.norm_eps += n as f32,
        &[Model],
    ),
    (
        "theta",
        |p, n| p.model.geometry.rope_theta += 1.0 + n as f32,
        &[Model],
    ),
    ("end token", |p, n| p.model.eos = Some(n), &[Model]),
    (
        "tensor name",
        |p, n| p.model.tensors[0].name = n.to_string(),
        &[Model],
    ),
    (
        "tensor type",
        |p, _| p.model.tensors[0].dtype = Dtype::BF16,
        &[Model],
    ),
    ("tensor rows", |p, n| p.model.tensors[0].rows += n, &[Model]),
    (
        "tensor content",
        |p, n| flip(&mut p.model.tensors[0].digest, n as usize % 32),
        &[Model],
    ),
    (
        "rotation",
        |p, n| {
            let at = p
                .buffers
                .iter()
                .position(|b| b.kind == BufferKind::Constant)
                .unwrap();
            let len = p.buffers[at].content.len();
            p.buffers[at].content[n as usize % len] ^= 1;
        },
        &[Model],
    ),
    ("bucket", |p, n| p.options.bucket += n, &[Structure]),
    ("context", |p, n| p.options.context += n, &[Structure]),
    (
        "cache type",
        |p, _| p.options.kv_dtype = Dtype::F16,
        &[Structure],
    ),
    (
        "form of the activations",
        |p, _| p.options.activations = Activations::Int8,
        &[Structure],
    ),
    (
        "layers on the GPU",
        |p, n| p.options.gpu_layers += n,
        &[Structure],
    ),
    (
        "execution of spilled layers",
        |p, _| p.options.exec = Some(Exec::Pcie),
        &[Structure],
    ),
    (
        "kind of a buffer",
        |p, _| p.buffers[5].kind = BufferKind::SpilledWeights,
        &[Structure],
    ),
    (
        "sums, which follow from the rest",
        |p, n| p.memory.device += u64::from(n),
        &[],
    ),
    ("host", |p, n| p.machine.host.cores += n, &[]),
    ("ring", |p, n| p.options.ring_entries += n, &[Structure]),
    (
        "buffer size",
        |p, n| p.buffers[4].bytes += u64::from(n),
        &[Structure],
    ),
    (
        "buffer name",
        |p, n| p.buffers[4].name = n.to_string(),
        &[Structure],
    ),
    (
        "place of tensor",
        |p, n| p.model.tensors[0].offset += u64::from(n),
        &[Structure],
    ),
    (
        "kernarg size",
        |p, n| p.kernels[0].kernarg_bytes += n,
        &[Structure],
    ),
    ("LDS", |p, n| p.kernels[0].lds_bytes += n, &[Structure]),
    ("block", |p, n| p.kernels[0].block[0] += n, &[Structure]),
    (
        "step name",
        |p, n| p.steps[0].name = n.to_string(),
        &[Structure],
    ),
    ("grid", |p, n| first(p).grid[0] += n, &[Structure]),
    (
        "argument",
        |p, n| first(p).args.push(Arg::Imm(n)),
        &[Structure],
    ),
    (
        "read",
        |p, n| {
            let extent = Extent::Fixed {
                bytes: u64::from(n),
            };
            first(p).reads.push(Region {
                buffer: 0,
                offset: 0,
                extent,
            });
        },
        &[Structure],
    ),
    ("write", |p, _| first(p).writes.clear(), &[Structure]),
    ("steps", |p, _| p.steps.swap(1, 2), &[Structure]),
    ("edge", |p, n| p.schedule.edges[0].from += n, &[Schedule]),
    (
        "hazard",
        |p, _| p.schedule.edges[0].hazard = Hazard::Waw,
        &[Schedule],
    ),
    (
        "wait gone",
        |p, _| p.schedule.waits.truncate(3),
        &[Schedule],
    ),
    (
        "invalidation",
        |p, _| p.schedule.waits[0].invalidate = Invalidate::None,
        &[Schedule],
    ),
    (
        "wait more",
        |p, n| {
            let wait = Wait {
                before: n,
                invalidate: Invalidate::Agent,
                because: 0,
            };
            p.schedule.waits.push(wait);
        },
        &[Schedule],
    ),
    (
        "eligibility",
        |p, _| p.eligibility = Eligibility::Refused(vec![]),
        &[Schedule],
    ),
    (
        "machine code",
        |p, n| p.kernels[0].object[n as usize % 32] ^= 1,
        &[Artifacts],
    ),
    (
        "target",
        |p, _| p.machine.target = "gfx1100".into(),
        &[Artifacts],
    ),
    (
        "kernel target",
        |p, _| p.kernels[0].target = Target::Gfx1100,
        &[Artifacts],
    ),
    (
        "symbol",
        |p, n| p.kernels[0].symbol = n.to_string(),
        &[Structure, Artifacts],
    ),
];

fn first(plan: &mut Plan) -> &mut refrain_planner::plan::Launch {
    let StepBody::Launch(launch) = &mut plan.steps[0].body else {
        panic!("a launch")
    };
    launch
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn each_change_moves_exactly_its_layers(amount in 1u32..1_000_000, pick in any::<u32>()) {
        let plan = sample();
        let before = Identity::of(&plan);
        for (name, change, layers) in CHANGES {
            let mut changed = plan.clone();
            change(&mut changed, amount);
            let after = Identity::of(&changed);
            assert_eq!(before.differing(&after), *layers, "{name} by {amount}");
            // A difference names the same layers, and in each a fact that is not the same in both.
            let found = diff(&plan, &changed);
            let named: Vec<_> = found.iter().map(|row| row.layer).collect();
            assert_eq!(named, *layers, "{name}: layers of diff");
            for row in &found {
                assert!(row.first.first != row.first.second, "{name}: {row:?}");
                assert!(row.first.place != "layer", "{name}: no fact shows it");
            }
            let sequence = layers.iter().any(|layer| matches!(layer, Structure | Artifacts));
            assert_eq!(before.sequence != after.sequence, sequence, "{name}: sequence hash");
        }
        // Any other tensor counts as much as the first.
        let mut changed = plan.clone();
        let index = pick as usize % plan.model.tensors.len();
        flip(&mut changed.model.tensors[index].digest, 0);
        assert_eq!(before.differing(&Identity::of(&changed)), [Model]);
    }
}

#[test]
fn machines_share_model_and_structure() {
    let [a, b, c] = ["gfx1100", "gfx1151", "gfx1201"]
        .map(|machine| *plan(&repository(AUSTEN), machine).unwrap().identity());
    assert_eq!(a.differing(&b), [Artifacts]);
    assert_eq!(a.differing(&c), [Artifacts]);
}

#[test]
fn options_and_weights_move_what_they_should() {
    let machine = Machine::load("gfx1201").unwrap();
    let identity = |model: &Tiny, options: &CompileOptions| {
        *compile(&model.open(), &machine, options)
            .unwrap()
            .identity()
    };
    let mut model = Tiny::new("llama");
    let options = CompileOptions::default();
    let before = identity(&model, &options);
    let longer = CompileOptions {
        context: Some(64),
        ..options.clone()
    };
    assert_eq!(before.differing(&identity(&model, &longer)), [Structure]);
    let half = CompileOptions {
        kv_dtype: Dtype::F16,
        ..options.clone()
    };
    // Other kernels of the same object: the launches differ, and which code they run.
    assert_eq!(
        before.differing(&identity(&model, &half)),
        [Structure, Artifacts]
    );

    model.tensors.get_mut("blk.1.ffn_up.weight").unwrap().2 = vec![1];
    assert_eq!(before.differing(&identity(&model, &options)), [Model]);
    // Factors are not a tensor that a step reads, yet they change every rotation.
    let with_factors = |factor: f32| {
        let mut model = Tiny::new("llama");
        model.tensor("rope_freqs", &[16], crate::fixture::F32);
        let content = [factor; 16].iter().flat_map(|f| f.to_le_bytes()).collect();
        model.tensors.get_mut("rope_freqs.weight").unwrap().2 = content;
        identity(&model, &options)
    };
    assert_eq!(with_factors(2.0).differing(&with_factors(8.0)), [Model]);
}

#[test]
fn short_form_is_sixteen_hex_digits() {
    let plan = plan(&repository(NANO_LLAMA), "gfx1151").unwrap();
    let short = plan.identity().sequence.to_string();
    assert_eq!(short.len(), 16);
    let long = refrain_planner::identity::hex(&plan.identity().sequence.0);
    assert!(long.starts_with(&short));
    assert!(short.bytes().all(|byte| byte.is_ascii_hexdigit()));
}
