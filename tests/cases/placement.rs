//! Spilled layers: where the matrices lie changes no number, on any route.

use refrain_kernels::Target;
use refrain_planner::placement::GpuLayers;
use refrain_planner::plan::{Exec, Tier};
use refrain_replay::{Route, SessionOptions, Transport};
use refrain_tests::{AUSTEN, AUSTEN_LINEAR, Setup, logits, plan, repository, session};

const PROMPT: [u32; 4] = [7, 300, 12, 45];
const STEPS: u32 = 10;

/// Logits after each step, as bits.
fn run(model: &str, gpu_layers: GpuLayers, target: Target, transport: Transport) -> Vec<Vec<u32>> {
    let setup = Setup {
        session: SessionOptions {
            transport,
            ..SessionOptions::default()
        },
        context: Some(64),
        gpu_layers,
        ..Setup::on(target)
    };
    let mut session = session(&repository(model), setup).unwrap();
    assert_eq!(session.route(), Route::Retained);
    session.start(&PROMPT, STEPS).unwrap();
    (0..STEPS)
        .map(|_| {
            session.advance(Route::Retained, 1, &mut |_| {}).unwrap();
            let logits = logits(&mut session).unwrap();
            logits.into_iter().map(f32::to_bits).collect()
        })
        .collect()
}

#[test]
fn spilled_and_resident_plans_give_the_same_bits() {
    let rows = [
        (AUSTEN, Target::Gfx1201, Transport::Pm4),
        (AUSTEN_LINEAR, Target::Gfx1100, Transport::Aql),
    ];
    for (model, target, transport) in rows {
        let resident = run(model, GpuLayers::All, target, transport);
        for gpu_layers in [0, 3] {
            let spilled = run(model, GpuLayers::Last(gpu_layers), target, transport);
            assert!(resident == spilled, "{model} {gpu_layers} on {target}");
        }
    }
}

#[test]
fn only_where_weights_lie_differs_in_the_plan() {
    let model = repository(AUSTEN);
    let setup = Setup::on(Target::Gfx1201);
    let resident = plan(&model, setup).unwrap();
    let gpu_layers = GpuLayers::Last(2);
    let spilled = plan(
        &model,
        Setup {
            gpu_layers,
            ..setup
        },
    )
    .unwrap();
    assert_eq!(spilled.options.exec, Some(Exec::Pcie));
    // Buffers are numbered otherwise, so edges carry other numbers.
    assert!(resident.schedule.waits == spilled.schedule.waits);
    let launches = |plan: &refrain_planner::plan::Plan| {
        let names = plan.steps.iter().map(|step| step.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(launches(&resident), launches(&spilled));
    let moved = |plan: &refrain_planner::plan::Plan| {
        let tensors = plan.model.tensors.iter().filter(|tensor| {
            let buffer = &plan.buffers[tensor.buffer as usize];
            buffer.kind.tier() == Tier::HostCoherent
        });
        tensors
            .map(|tensor| tensor.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(moved(&resident), Vec::<String>::new());
    let layers = resident.model.geometry.layers;
    let matrices = [
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ];
    let mut expected: Vec<String> = (0..layers - 2)
        .flat_map(|layer| matrices.map(|name| format!("blk.{layer}.{name}.weight")))
        .collect();
    let mut found = moved(&spilled);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
