//! Placement: which weights are spilled, exact bytes, what is refused; and where two plans part.

use crate::fixture::{AUSTEN, NANO, Tiny, repository, with};
use proptest::prelude::{ProptestConfig, any, proptest};
use refrain_planner::diff::diff;
use refrain_planner::machine::Machine;
use refrain_planner::memory::{Granules, bound, traffic};
use refrain_planner::placement::{GpuLayers, PlacementError};
use refrain_planner::plan::{BufferKind, Plan, Tier};
use refrain_planner::{CompileOptions, Layer, ModelSource, PlanError, compile, explain};

fn spilling(source: &ModelSource, number: u32) -> Plan {
    let plan = with(source, "gfx1201", |options| {
        options.gpu_layers = GpuLayers::Last(number);
    });
    (*plan.unwrap()).clone()
}

/// Compiles for gfx1201 with other memory.
fn on(
    source: &ModelSource,
    gpu_layers: GpuLayers,
    change: impl FnOnce(&mut Machine),
) -> Result<Plan, PlanError> {
    let mut machine = Machine::load("gfx1201").unwrap();
    change(&mut machine);
    let options = CompileOptions {
        context: Some(32),
        gpu_layers,
        ..CompileOptions::default()
    };
    compile(source, &machine, &options).map(|plan| (*plan).clone())
}

#[test]
fn a_contiguous_prefix_is_spilled_and_all_else_stays() {
    let models = NANO.into_iter().filter(|name| !name.contains("moe"));
    for name in models.chain([AUSTEN]) {
        let source = repository(name);
        let layers = spilling(&source, 0).model.geometry.layers;
        let mut before = None;
        for number in 0..=layers {
            let plan = spilling(&source, number);
            for tensor in &plan.model.tensors {
                let layer = tensor.name.strip_prefix("blk.");
                let layer: Option<u32> =
                    layer.and_then(|rest| rest.split('.').next()?.parse().ok());
                let kind = plan.buffers[tensor.buffer as usize].kind;
                let prefix = layer.is_some_and(|layer| layer < layers - number);
                let matrix = tensor.rows > 1
                    && !tensor.name.ends_with("conv.weight")
                    && !tensor.name.contains("conv1d");
                let spilled = kind == BufferKind::SpilledWeights;
                assert_eq!(spilled, prefix && matrix, "{name} {number} {}", tensor.name);
            }
            let weights = |kind| plan.buffers.iter().filter(move |b| b.kind == kind);
            assert!(weights(BufferKind::SpilledWeights).count() <= layers as usize);
            assert!(weights(BufferKind::Weights).count() <= layers as usize + 1);
            // A layer more on the GPU is more device memory and less pinned.
            let now = (plan.memory.device, plan.memory.spilled);
            if let Some((device, spilled)) = before {
                assert!(now.0 > device && now.1 < spilled, "{name} {number}");
            }
            before = Some(now);
        }
    }
}

#[test]
fn auto_keeps_as_many_layers_as_fit_and_stores_their_number() {
    let source = repository(AUSTEN);
    let layers = spilling(&source, 0).model.geometry.layers;
    let needs: Vec<u64> = (0..=layers)
        .map(|number| spilling(&source, number).memory.device_rounded)
        .collect();
    let budgets = needs
        .iter()
        .flat_map(|bytes| [bytes - 1, *bytes, bytes + 1]);
    for vram in budgets {
        let expected = needs.iter().rposition(|bytes| *bytes <= vram);
        let found = on(&source, GpuLayers::Auto, |machine| {
            machine.vram_bytes = vram
        });
        match (expected, found) {
            (None, Err(PlanError::DoesNotFit { needed, .. })) => assert_eq!(needed, needs[0]),
            (Some(number), Ok(plan)) => {
                assert_eq!(plan.options.gpu_layers, number as u32, "{vram}");
                assert_eq!(plan.memory.device_rounded, needs[number]);
            }
            (expected, found) => panic!("{vram}: {expected:?}, {:?}", found.map(|p| p.options)),
        }
    }
}

#[test]
fn what_cannot_be_placed_is_refused_by_type() {
    let source = Tiny::new("qwen3").open();
    let placement = |found: Result<Plan, PlanError>| match found {
        Err(PlanError::Placement(error)) => error,
        other => panic!("{:?}", other.map(|plan| plan.options)),
    };
    let last = GpuLayers::Last(1);
    let found = placement(on(&source, GpuLayers::Last(3), |_| {}));
    let (layers, spilled) = (2, 1);
    assert_eq!(found, PlacementError::Layers { found: 3, layers });
    let unified = with(&source, "gfx1151", |options| options.gpu_layers = last);
    let machine = "gfx1151".to_owned();
    let found = placement(unified.map(|plan| (*plan).clone()));
    assert_eq!(found, PlacementError::Unified { spilled, machine });
    let moe = Tiny::new("qwen35moe").open();
    let found = placement(on(&moe, last, |_| {}));
    assert!(matches!(
        found,
        PlacementError::Experts {
            layer: 0,
            experts: 8,
            layers: 2
        }
    ));
    assert_eq!(
        on(&moe, GpuLayers::Auto, |_| {})
            .unwrap()
            .options
            .gpu_layers,
        2
    );
    let pinned = on(&source, last, |_| {}).unwrap().memory.pinned_rounded;
    let limit = |bytes| on(&source, last, |machine| machine.host.pinned_bytes = bytes);
    assert!(limit(pinned).is_ok());
    let found = placement(limit(pinned - 1));
    let fits = matches!(found, PlacementError::Pinned { needed, .. } if needed == pinned);
    assert!(fits, "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Every region lies in its buffer and the sums are those of the buffers, for every shape,
    /// context, bucket and placement.
    #[test]
    fn every_write_is_bounded_and_every_byte_is_counted(
        model in 0usize..5, context in 1u32..=128, bucket in any::<u32>(), layers in 0u32..=2,
    ) {
        let arch = ["llama", "qwen2", "qwen3", "qwen35", "lfm2"][model];
        let plan = with(&Tiny::new(arch).open(), "gfx1100", |options| {
            options.context = Some(context);
            options.bucket = Some(1 + bucket % context);
            options.gpu_layers = GpuLayers::Last(layers);
        }).unwrap();
        for step in &plan.steps {
            let (reads, writes) = step.effects();
            for region in reads.chain(writes) {
                let (begin, end) = region.bound();
                let bytes = plan.buffers[region.buffer as usize].bytes;
                assert!(begin < end && end <= bytes, "{} {region:?} of {bytes}", step.name);
            }
        }
        let tier = |tier| {
            let own = plan.buffers.iter().filter(move |buffer| buffer.kind.tier() == tier);
            own.map(|buffer| buffer.bytes).sum::<u64>()
        };
        let memory = plan.memory;
        assert_eq!(memory.device, tier(Tier::Device));
        assert_eq!(memory.pinned, tier(Tier::HostCoherent) + memory.kernarg + memory.ib);
        assert!(memory.device_rounded >= memory.device && memory.pinned_rounded >= memory.pinned);
        let granules = Granules::of(refrain_kernels::Target::Gfx1100);
        assert!(memory.device_rounded < memory.device + granules.device_block
            + plan.buffers.len() as u64 * granules.page);
    }
}

#[test]
fn a_token_reads_every_matrix_once_and_the_link_bounds_what_is_spilled() {
    let source = repository(AUSTEN);
    let machine = Machine::load("gfx1201").unwrap();
    let (resident, spilled) = (spilling(&source, 6), spilling(&source, 2));
    let all = |plan: &Plan| {
        let bytes = traffic(plan, 0);
        (bytes.device_weights + bytes.link, bytes.device_state)
    };
    assert_eq!(all(&resident), all(&spilled));
    assert_eq!(traffic(&resident, 0).link, 0);
    assert_eq!(traffic(&spilled, 0).link, {
        let tensors = spilled.model.tensors.iter();
        let held = |buffer: u32| spilled.buffers[buffer as usize].kind;
        let own = tensors.filter(|tensor| held(tensor.buffer) == BufferKind::SpilledWeights);
        own.map(|tensor| tensor.bytes).sum::<u64>()
    });
    let rate = |plan: &Plan, position| bound(plan, &machine, position).unwrap().tokens_per_s;
    assert!(rate(&resident, 0) > rate(&spilled, 0));
    assert!(rate(&resident, 0) > rate(&resident, 31));
    // Tokens per second are never above what all bytes at the stated rate would allow.
    let bytes = traffic(&resident, 0).device() as f64;
    let most = machine.vram_mb_per_s as f64 * 1e6 / bytes;
    assert!(rate(&resident, 0) <= most * 1.000_001);
}

#[test]
fn chosen_experts_alone_are_counted() {
    let plan = with(&Tiny::new("qwen35moe").open(), "gfx1201", |_| {}).unwrap();
    let experts: u64 = {
        let tensors = plan.model.tensors.iter();
        let stacks = tensors.filter(|tensor| tensor.name.contains("_exps"));
        stacks.map(|tensor| tensor.bytes).sum()
    };
    let embedding = plan
        .model
        .tensors
        .iter()
        .find(|t| t.name == "token_embd.weight")
        .unwrap();
    let weights: u64 = plan.model.tensors.iter().map(|tensor| tensor.bytes).sum();
    let row = embedding.bytes / u64::from(embedding.rows);
    // Two of eight experts, one row of the embedding.
    let expected = weights - experts / 8 * 6 - embedding.bytes + row;
    assert_eq!(traffic(&plan, 0).device_weights, expected);
}

#[test]
fn a_difference_names_the_field_and_the_first_step() {
    let source = repository(AUSTEN);
    let (a, b) = (spilling(&source, 6), spilling(&source, 2));
    assert_eq!(diff(&a, &a), []);
    let found = diff(&a, &b);
    let structure = found
        .iter()
        .find(|row| row.layer == Layer::Structure)
        .unwrap();
    assert_eq!(
        (&*structure.first.place, &*structure.first.field),
        ("options", "gpu_layers")
    );
    let step = structure.step.as_ref().unwrap();
    assert!(step.second.as_ref().unwrap().contains(".host"), "{step:?}");
}

#[test]
fn costs_are_explained() {
    let source = repository(AUSTEN);
    let plan = with(&source, "gfx1201", |options| {
        options.gpu_layers = GpuLayers::Last(2);
    });
    let text = explain(&plan.unwrap());
    // The first line is the plan's id, which moves with every change of the format.
    let (_, costs) = text.split_once('\n').unwrap();
    insta::assert_snapshot!(costs);
}
