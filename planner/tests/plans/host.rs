//! Steps of the host: what is theirs under each execution, that barriers order everything, that every
//! byte over the link is listed, that they are part of identity, and that damage to one is refused.

use crate::fixture::{AUSTEN, AUSTEN_LINEAR, NANO, Tiny, repository, with};
use proptest::prelude::{ProptestConfig, proptest};
use refrain_planner::diff::diff;
use refrain_planner::memory::traffic;
use refrain_planner::placement::{ExecChoice, GpuLayers, PlacementError};
use refrain_planner::plan::{
    Activations, Arg, BufferKind, Edge, Eligibility, Hazard, HostAdd, HostStep, HostWhy, Launch,
    Piece, Plan, StepBody,
};
use refrain_planner::schedule::{Violation, verify};
use refrain_planner::{CheckedPlan, Layer, ModelSource, PlanError, explain, inspect};

fn planned(source: &ModelSource, layers: u32, exec: ExecChoice) -> CheckedPlan {
    with(source, "gfx1201", |options| {
        (options.gpu_layers, options.exec) = (GpuLayers::Last(layers), exec);
    })
    .unwrap()
}

fn layers(source: &ModelSource) -> u32 {
    planned(source, 0, ExecChoice::Pcie).model.geometry.layers
}

fn hosts(plan: &Plan) -> Vec<&HostStep> {
    let hosts = plan.steps.iter().filter_map(|step| step.body.host());
    hosts.collect()
}

#[test]
fn every_spilled_matrix_is_multiplied_once_and_whole() {
    for name in [AUSTEN, AUSTEN_LINEAR] {
        let source = repository(name);
        let all = layers(&source);
        for on_gpu in [0, all / 2, all - 1] {
            for exec in [ExecChoice::Cpu, ExecChoice::Passback(Some(0.25))] {
                let plan = planned(&source, on_gpu, exec);
                for (index, tensor) in plan.model.tensors.iter().enumerate() {
                    let kind = plan.buffers[tensor.buffer as usize].kind;
                    let parts = hosts(&plan).into_iter().flat_map(|host| &host.parts);
                    let mut parts = parts.filter(|part| part.tensor as usize == index);
                    let Some(part) = parts.next() else {
                        assert_ne!(kind, BufferKind::SpilledWeights, "{}", tensor.name);
                        continue;
                    };
                    assert!(parts.next().is_none(), "{} twice", tensor.name);
                    assert_eq!(part.end, tensor.rows);
                    let launched: Vec<u32> = plan
                        .steps
                        .iter()
                        .flat_map(|step| step.body.launches())
                        .filter(|launch| reads(launch, tensor.buffer, tensor.offset))
                        .map(|launch| rows(&plan, launch))
                        .collect();
                    let expected = if part.first > 0 {
                        vec![part.first]
                    } else {
                        vec![]
                    };
                    assert_eq!(launched, expected, "{}", tensor.name);
                }
            }
        }
    }
}

fn reads(launch: &Launch, tensor: u32, at: u64) -> bool {
    let matrix = |arg: &Arg| matches!(arg, Arg::Region { buffer, offset } if (*buffer, *offset) == (tensor, at));
    launch.args.iter().any(matrix)
}

/// The end of the launch's row range.
fn rows(plan: &Plan, launch: &Launch) -> u32 {
    let row = refrain_kernels::find(&plan.kernels[launch.kernel as usize].symbol).unwrap();
    let at = |name| row.args.iter().position(|arg| arg.name == name).unwrap();
    assert_eq!(launch.args[at("r0")], Arg::Imm(0));
    match launch.args[at("r1")] {
        Arg::Imm(rows) => rows,
        other => panic!("{other:?}"),
    }
}

#[test]
fn products_of_one_vector_are_one_barrier_and_no_fusion_spans_it() {
    let source = repository(AUSTEN);
    let all = layers(&source);
    let plan = planned(&source, all - 1, ExecChoice::Cpu);
    let names = |plan: &Plan| -> Vec<String> {
        let first = plan.steps.iter().filter(|step| step.layer == Some(0));
        first.map(|step| step.name.clone()).collect()
    };
    let barriers: Vec<&str> = plan
        .barriers()
        .map(|(_, step)| step.name.as_str())
        .collect();
    let expected = [
        "blk.0.attn_q.host3",
        "blk.0.attn_output",
        "blk.0.ffn_gate.host2",
        "blk.0.ffn_down",
    ];
    assert_eq!(barriers, expected);
    assert!(
        names(&plan).contains(&"blk.0.silu_mul".to_owned()),
        "{:?}",
        names(&plan)
    );
    let products: Vec<usize> = hosts(&plan).iter().map(|host| host.parts.len()).collect();
    assert_eq!(products, [3, 1, 2, 1]);
    // One copy of the vector, one of a residual, one up for each result.
    let copies: Vec<_> = hosts(&plan)
        .iter()
        .map(|h| (h.down.len(), h.up.len()))
        .collect();
    assert_eq!(copies, [(1, 3), (2, 1), (1, 2), (2, 1)]);
    // Layers that are not spilled are what they are without spilling.
    let resident = planned(&source, all, ExecChoice::Pcie);
    let of = |plan: &Plan, layer: u32| -> Vec<String> {
        let own = plan
            .steps
            .iter()
            .filter(move |step| step.layer == Some(layer));
        own.map(|step| step.name.clone()).collect()
    };
    for layer in 1..all {
        assert_eq!(of(&plan, layer), of(&resident, layer));
    }
}

#[test]
fn a_resident_plan_knows_nothing_of_the_execution_asked_for() {
    for name in NANO.into_iter().chain([AUSTEN]) {
        let source = repository(name);
        let default = with(&source, "gfx1201", |_| {}).unwrap();
        let all = default.model.geometry.layers;
        let resident = planned(&source, all, ExecChoice::Pcie).to_bytes();
        for exec in [
            ExecChoice::Cpu,
            ExecChoice::Passback(None),
            ExecChoice::Passback(Some(0.5)),
        ] {
            assert_eq!(
                planned(&source, all, exec).to_bytes(),
                resident,
                "{name} {exec}"
            );
        }
    }
}

#[test]
fn the_ends_of_the_share_are_the_other_executions() {
    let source = repository(AUSTEN);
    let with_share = |share| planned(&source, 0, ExecChoice::Passback(Some(share)));
    let only_options = |a: &CheckedPlan, b: &CheckedPlan| {
        let mut plan = (**a).clone();
        plan.options.exec = b.options.exec;
        assert_eq!(plan.steps, b.steps);
        assert_eq!(plan, **b);
    };
    only_options(&with_share(0.0), &planned(&source, 0, ExecChoice::Cpu));
    let whole = with_share(1.0);
    assert_eq!(whole.barriers().count(), 0);
    assert_eq!(whole.eligibility, Eligibility::Whole);
    only_options(&whole, &planned(&source, 0, ExecChoice::Pcie));
    let auto = planned(&source, 0, ExecChoice::Passback(None));
    only_options(&auto, &with_share(0.5));
    assert!(auto.options.exec.unwrap().is_auto());
    assert_ne!(
        auto.identity().structure,
        with_share(0.5).identity().structure
    );
}

#[test]
fn matrices_too_small_to_divide_are_the_hosts_and_say_so() {
    let source = Tiny::new("qwen3").open();
    let plan = planned(&source, 0, ExecChoice::Passback(Some(0.5)));
    let parts: Vec<_> = hosts(&plan)
        .into_iter()
        .flat_map(|host| &host.parts)
        .collect();
    assert!(!parts.is_empty());
    assert!(
        parts
            .iter()
            .all(|part| (part.first, part.why) == (0, HostWhy::TooSmall))
    );
    assert!(
        plan.steps
            .iter()
            .all(|step| !matches!(step.body, StepBody::Split(_)))
    );
    let text = explain(&plan);
    assert!(
        text.contains(&format!("too_small {}", parts.len())),
        "{text}"
    );
    let large = planned(&repository(AUSTEN), 0, ExecChoice::Passback(Some(0.5)));
    let splits = large
        .steps
        .iter()
        .filter(|step| matches!(step.body, StepBody::Split(_)));
    assert!(splits.count() > 0);
}

#[test]
fn a_bias_goes_with_its_matrix() {
    let source = Tiny::new("qwen2").open();
    let plan = planned(&source, 0, ExecChoice::Cpu);
    let parts = hosts(&plan).into_iter().flat_map(|host| &host.parts);
    let kinds = parts.filter_map(|part| match part.add {
        HostAdd::Rows(at) => Some(plan.buffers[at.buffer as usize].kind),
        HostAdd::Nothing => None,
    });
    let biases = kinds.filter(|kind| *kind == BufferKind::SpilledWeights);
    assert_eq!(biases.count(), 6);
}

#[test]
fn the_plan_says_what_crosses_the_link_and_why_it_is_not_one_tape() {
    let source = repository(AUSTEN);
    let all = layers(&source);
    let plan = planned(&source, all - 2, ExecChoice::Passback(Some(0.25)));
    let Eligibility::Segments(reasons) = &plan.eligibility else {
        panic!("{:?}", plan.eligibility)
    };
    assert_eq!((reasons.len(), reasons[0].code), (1, 28));
    assert_eq!(reasons[0].step, plan.barriers().next().map(|(id, _)| id));
    assert!(
        reasons[0]
            .detail
            .starts_with("8 steps are the host's (blk.0.attn_q"),
        "{}",
        reasons[0].detail
    );
    let copied: u64 = hosts(&plan).iter().map(|host| host.transfer_bytes()).sum();
    let bytes = traffic(&plan, 0);
    assert_eq!(bytes.copied, copied);
    // What GPU and host read of the spilled weights is all of them.
    let spilled = plan.memory.spilled;
    let (host, resident) = (
        bytes.host_weights,
        planned(&source, all - 2, ExecChoice::Pcie),
    );
    let whole = traffic(&resident, 0).link;
    assert!(
        host > whole / 2 && host < whole && whole <= spilled,
        "{host} of {whole}"
    );
    for text in [explain(&plan), inspect(&plan)] {
        assert!(text.contains("RF028"), "{text}");
    }
    assert!(inspect(&plan).contains("split, a barrier"));
}

#[test]
fn pieces_hold_every_step_once_and_segments_hold_launches() {
    let source = repository(AUSTEN_LINEAR);
    for exec in [
        ExecChoice::Pcie,
        ExecChoice::Cpu,
        ExecChoice::Passback(Some(0.5)),
    ] {
        let plan = planned(&source, 2, exec);
        let mut seen = Vec::new();
        let mut before = None;
        for piece in plan.pieces() {
            match piece {
                Piece::Segment(segment) => {
                    assert_ne!(before, Some("segment"), "two segments in a row");
                    before = Some("segment");
                    seen.extend(segment.launches().iter().map(|launch| launch.step));
                }
                Piece::Barrier(barrier) => {
                    before = Some("barrier");
                    seen.push(barrier.step);
                    let launches = plan.steps[barrier.step as usize].body.launches().len();
                    assert_eq!(barrier.arm.map_or(0, |arm| arm.launches().len()), launches);
                }
            }
        }
        assert_eq!(seen, (0..plan.steps.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_barrier_needs_no_wait_and_takes_no_edge() {
    let plan = planned(&repository(AUSTEN), 0, ExecChoice::Cpu);
    let barriers: Vec<u32> = plan.barriers().map(|(id, _)| id).collect();
    for edge in &plan.schedule.edges {
        let over = barriers.iter().any(|id| (edge.from..=edge.to).contains(id));
        assert!(!over, "{edge:?}");
    }
    assert!(
        plan.schedule
            .waits
            .iter()
            .all(|wait| !barriers.contains(&wait.before))
    );
    // Taking a barrier away uncovers the hazards that it ordered.
    let mut damaged = (*plan).clone();
    let mut bare = damaged.clone();
    let at = barriers[0] as usize;
    bare.steps[at].body = bare.steps[at - 1].body.clone();
    assert!(verify(&bare).is_err());
    let edge = Edge {
        from: barriers[0] - 1,
        to: barriers[0],
        hazard: Hazard::Raw,
        buffer: 0,
    };
    damaged.schedule.edges = vec![edge];
    damaged.schedule.waits.clear();
    let error = verify(&damaged).unwrap_err();
    assert!(matches!(error, Violation::Malformed { .. }), "{error}");
}

#[test]
fn exec_share_and_rows_are_in_the_structure_layer_alone() {
    let source = repository(AUSTEN);
    let base = planned(&source, 0, ExecChoice::Passback(Some(0.5)));
    let others = [
        (ExecChoice::Cpu, Layer::Structure),
        (ExecChoice::Passback(Some(0.25)), Layer::Structure),
        (ExecChoice::Passback(None), Layer::Structure),
    ];
    for (exec, layer) in others {
        let other = planned(&source, 0, exec);
        assert!(
            base.identity()
                .differing(&other.identity().clone())
                .contains(&layer)
        );
        assert_eq!(base.identity().model, other.identity().model);
        let text = format!("{:?}", diff(&base, &other));
        assert!(text.contains("exec"), "{text}");
    }
}

type Damage = fn(&mut Plan, usize);

fn host(plan: &mut Plan, at: usize) -> &mut HostStep {
    plan.steps[at].body.host_mut().unwrap()
}

fn redeclare(plan: &mut Plan, at: usize) {
    let tensors = plan.model.tensors.clone();
    let host = plan.steps[at].body.host_mut().unwrap();
    (host.reads, host.writes) = host.effects(&tensors);
}

/// One row per kind of damage: a word of the answer, and what is done to the first split step.
const DAMAGE: [(&str, Damage); 17] = [
    ("layer of a", |plan, at| plan.steps[at].layer = None),
    ("products", |plan, at| host(plan, at).parts.clear()),
    ("tensor of a product", |plan, at| {
        host(plan, at).parts[0].tensor = 9999
    }),
    ("matrix of a product", |plan, at| {
        let resident = plan
            .model
            .tensors
            .iter()
            .position(|t| t.name == "token_embd.weight");
        host(plan, at).parts[0].tensor = resident.unwrap() as u32;
    }),
    ("rows of a product", |plan, at| {
        host(plan, at).parts[0].end += 1
    }),
    ("rows of a product", |plan, at| {
        host(plan, at).parts[0].first = u32::MAX
    }),
    ("vector of a product", |plan, at| {
        host(plan, at).parts[0].x.offset += 2
    }),
    ("vector of a product", |plan, at| {
        host(plan, at).parts[0].x.buffer = 0
    }),
    ("result of a product", |plan, at| {
        host(plan, at).parts[0].y.offset = u64::MAX - 3
    }),
    ("copy down", |plan, at| {
        host(plan, at).down[0].from.buffer = 1
    }),
    ("copy down", |plan, at| {
        host(plan, at).down[0].to.buffer = 9999
    }),
    ("copy up", |plan, at| host(plan, at).up[0].bytes = 0),
    ("declared", |plan, at| host(plan, at).reads.clear()),
    ("source of a product", |plan, at| {
        host(plan, at).down.clear();
        redeclare(plan, at);
    }),
    ("copy up", |plan, at| {
        let x = host(plan, at).parts[0].x;
        host(plan, at).up[0].from = x;
        redeclare(plan, at);
    }),
    ("result of a product", |plan, at| {
        host(plan, at).parts[1].y = host(plan, at).parts[0].y;
        host(plan, at).up.truncate(1);
        redeclare(plan, at);
    }),
    ("launches of a split step", |plan, at| {
        let y = host(plan, at).up[0].to;
        host(plan, at).up[0].to.offset = y.offset - 4;
        redeclare(plan, at);
    }),
];

#[test]
fn damage_to_a_step_of_the_host_is_refused() {
    let plan = planned(&repository(AUSTEN), 0, ExecChoice::Passback(Some(0.5)));
    let at = plan.steps.iter().position(|step| {
        step.body.host().is_some_and(|host| host.parts.len() > 1)
            && !step.body.launches().is_empty()
    });
    let at = at.unwrap();
    assert!(CheckedPlan::check((*plan).clone()).is_ok());
    for (index, (word, damage)) in DAMAGE.into_iter().enumerate() {
        let mut damaged = (*plan).clone();
        damage(&mut damaged, at);
        let error = CheckedPlan::check(damaged).expect_err(word).to_string();
        assert!(error.contains(word), "row {index}: {error}");
    }
}

#[test]
fn int8_activations_are_refused_where_the_host_multiplies() {
    let source = repository(AUSTEN);
    let int8 = |layers, exec| {
        with(&source, "gfx1201", |options| {
            (options.gpu_layers, options.exec) = (GpuLayers::Last(layers), exec);
            options.activations = Activations::Int8;
        })
    };
    for exec in [ExecChoice::Cpu, ExecChoice::Passback(Some(0.5))] {
        let refused = matches!(
            int8(0, exec),
            Err(PlanError::Placement(PlacementError::HostActivations { .. }))
        );
        assert!(refused, "{exec}");
        // With nothing spilled nobody but the GPU multiplies.
        assert!(int8(layers(&source), exec).is_ok(), "{exec}");
    }
    assert!(int8(0, ExecChoice::Pcie).is_ok());
    let mut damaged = (*planned(&source, 0, ExecChoice::Cpu)).clone();
    damaged.options.activations = Activations::Int8;
    let error = CheckedPlan::check(damaged).unwrap_err().to_string();
    assert!(error.contains("activations"), "{error}");
}

#[test]
fn options_and_eligibility_must_agree_with_the_steps() {
    let plan = planned(&repository(AUSTEN), 0, ExecChoice::Cpu);
    type Change = fn(&mut Plan);
    let rows: [(&str, Change); 3] = [
        ("exec", |plan| {
            plan.options.exec = Some(refrain_planner::plan::Exec::Pcie)
        }),
        ("retained", |plan| plan.eligibility = Eligibility::Whole),
        ("reasons", |plan| {
            plan.eligibility = Eligibility::Segments(Vec::new())
        }),
    ];
    for (word, damage) in rows {
        let mut damaged = (*plan).clone();
        damage(&mut damaged);
        let error = CheckedPlan::check(damaged).expect_err(word).to_string();
        assert!(error.contains(word), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn every_share_and_placement_gives_a_plan_that_checks(model in 0usize..5, layers in 0u32..2, share in 0.0f32..=1.0) {
        let arch = ["llama", "qwen2", "qwen3", "qwen35", "lfm2"][model];
        let source = Tiny::new(arch).open();
        let plan = planned(&source, layers, ExecChoice::Passback(Some(share)));
        let again = CheckedPlan::from_bytes(&plan.to_bytes()).unwrap();
        assert_eq!(*again, *plan);
    }
}
