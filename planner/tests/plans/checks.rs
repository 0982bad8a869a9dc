//! Plans that contradict themselves or this build, and the kernarg bytes of plans that do not.

use crate::fixture::{AUSTEN, Tiny, plan, repository, sample};
use refrain_kernels::{ArgKind, ArgValue, Dtype, Target, find};
use refrain_planner::lowering::{WordRanges, declare};
use refrain_planner::machine::Machine;
use refrain_planner::memory::Memory;
use refrain_planner::plan::{
    Arg, BufferKind, Eligibility, Exec, Extent, Launch, Plan, RefusalReason, StepBody,
};
use refrain_planner::schedule::build;
use refrain_planner::source::LoadOp;
use refrain_planner::{CheckError, CheckedPlan, CompileOptions, compile};

fn launch<'a>(plan: &'a mut Plan, name: &str) -> &'a mut Launch {
    let step = plan
        .steps
        .iter_mut()
        .find(|step| step.name == name)
        .unwrap();
    let StepBody::Launch(launch) = &mut step.body else {
        panic!("a launch")
    };
    launch
}

type Damage = fn(&mut Plan);

/// What is damaged, how, and the section that the error must name.
const DAMAGES: &[(&str, Damage, &str)] = &[
    (
        "unknown target",
        |p| p.machine.target = "gfx906".into(),
        "MACH",
    ),
    ("small LDS", |p| p.machine.lds_bytes_per_group = 64, "KERN"),
    ("no layers", |p| p.model.geometry.layers = 0, "MODL"),
    (
        "heads not divisible",
        |p| p.model.geometry.kv_heads = 3,
        "MODL",
    ),
    ("odd rope", |p| p.model.geometry.rope_dims = 31, "MODL"),
    (
        "rope past head",
        |p| p.model.geometry.rope_dims = 64,
        "MODL",
    ),
    ("no feed-forward part", |p| p.model.geometry.ffn = 0, "MODL"),
    (
        "absurd state",
        |p| p.model.geometry.state_dim = 1 << 30,
        "MODL",
    ),
    (
        "absurd experts",
        |p| p.model.geometry.expert_ffn = u32::MAX,
        "MODL",
    ),
    ("zero eps", |p| p.model.geometry.norm_eps = 0.0, "MODL"),
    (
        "infinite base",
        |p| p.model.geometry.rope_theta = f32::INFINITY,
        "MODL",
    ),
    ("no files", |p| p.model.files.clear(), "MODL"),
    (
        "lengths of files overflow",
        |p| {
            p.model.files[0].bytes = u64::MAX;
            p.model.files.push(p.model.files[0]);
        },
        "MODL",
    ),
    (
        "one tensor without digest",
        |p| p.model.tensors[1].digest = None,
        "MODL",
    ),
    (
        "tensor from one file into the next",
        |p| {
            let tensor = p.model.tensors[1].clone();
            let middle = tensor.file_offset + tensor.file_bytes / 2;
            let mut second = p.model.files[0];
            second.bytes -= middle;
            second.header_bytes = 1;
            p.model.files[0].bytes = middle;
            p.model.files.push(second);
        },
        "TENS",
    ),
    (
        "more pieces than rows",
        |p| {
            let tensor = &mut p.model.tensors[1];
            tensor.more = vec![tensor.file_offset];
        },
        "TENS",
    ),
    (
        "a piece outside every file",
        |p| p.model.tensors[2].more = vec![1 << 40],
        "TENS",
    ),
    (
        "stored wider than planned",
        |p| p.model.tensors[2].stored = Dtype::F32,
        "TENS",
    ),
    (
        "pairs of an odd head",
        |p| p.model.tensors[2].load = vec![LoadOp::PairRows { head_rows: 3 }],
        "TENS",
    ),
    (
        "arithmetic on halves",
        |p| p.model.tensors[2].load = vec![LoadOp::AddOne],
        "TENS",
    ),
    ("no header", |p| p.model.files[0].header_bytes = 0, "MODL"),
    (
        "header into a tensor",
        |p| {
            let first = p.model.tensors.iter().map(|t| t.file_offset).min();
            p.model.files[0].header_bytes = first.unwrap() + 1;
        },
        "TENS",
    ),
    (
        "header past file",
        |p| p.model.files[0].header_bytes = u64::MAX,
        "MODL",
    ),
    (
        "header past limit",
        |p| {
            p.model.files[0].bytes = 1 << 40;
            for tensor in &mut p.model.tensors {
                tensor.file_offset += 1 << 32;
            }
            p.model.files[0].header_bytes = 1 << 31;
        },
        "MODL",
    ),
    ("eos past vocabulary", |p| p.model.eos = Some(80), "MODL"),
    ("context past model", |p| p.options.context = 129, "OPTS"),
    ("bucket past the context", |p| p.options.bucket = 33, "OPTS"),
    ("no bucket", |p| p.options.bucket = 0, "OPTS"),
    ("bucket of other regions", |p| p.options.bucket = 31, "STEP"),
    ("no context", |p| p.options.context = 0, "OPTS"),
    (
        "quantised cache",
        |p| p.options.kv_dtype = Dtype::Q4_0,
        "OPTS",
    ),
    ("ring of three", |p| p.options.ring_entries = 3, "OPTS"),
    (
        "other context",
        |p| {
            p.options.context = 31;
            p.options.bucket = 31;
        },
        "BUFF",
    ),
    ("other ring", |p| p.options.ring_entries = 32, "BUFF"),
    ("layers on the GPU", |p| p.options.gpu_layers = 3, "OPTS"),
    (
        "spilled without weights",
        |p| p.options.gpu_layers = 1,
        "OPTS",
    ),
    (
        "execution of nothing",
        |p| p.options.exec = Some(Exec::Pcie),
        "OPTS",
    ),
    ("device bytes", |p| p.memory.device += 1, "MMRY"),
    ("indirect buffer bytes", |p| p.memory.ib -= 4, "MMRY"),
    ("empty buffer", |p| p.buffers[5].bytes = 0, "BUFF"),
    ("huge buffer", |p| p.buffers[5].bytes = 1 << 60, "BUFF"),
    ("odd alignment", |p| p.buffers[5].align = 257, "BUFF"),
    (
        "content of weights",
        |p| p.buffers[5].content = vec![0],
        "BUFF",
    ),
    (
        "short constant",
        |p| p.buffers[3].content.truncate(1),
        "BUFF",
    ),
    (
        "two control blocks",
        |p| p.buffers[4].kind = BufferKind::Control,
        "BUFF",
    ),
    (
        "name twice",
        |p| p.buffers[5].name = "control".into(),
        "BUFF",
    ),
    ("no name", |p| p.steps[0].name.clear(), "STEP"),
    (
        "tensor outside buffer",
        |p| p.model.tensors[1].offset += 1 << 30,
        "TENS",
    ),
    (
        "tensor misaligned",
        |p| p.model.tensors[1].offset += 4,
        "TENS",
    ),
    (
        "tensor in scratch",
        |p| p.model.tensors[1].buffer = 4,
        "TENS",
    ),
    (
        "tensor in no buffer",
        |p| p.model.tensors[1].buffer = 999,
        "TENS",
    ),
    (
        "tensor of other size",
        |p| p.model.tensors[1].rows += 1,
        "TENS",
    ),
    (
        "tensor past file",
        |p| p.model.tensors[1].file_offset = 1 << 40,
        "TENS",
    ),
    (
        "tensor offset wraps",
        |p| p.model.tensors[1].file_offset = u64::MAX,
        "TENS",
    ),
    (
        "tensors overlap",
        |p| {
            let offset = p.model.tensors[1].offset;
            p.model.tensors[2].offset = offset;
        },
        "TENS",
    ),
    (
        "other machine code",
        |p| p.kernels[0].object[0] ^= 1,
        "KERN",
    ),
    (
        "other target",
        |p| p.kernels[0].target = Target::Gfx1100,
        "KERN",
    ),
    (
        "unknown kernel",
        |p| p.kernels[0].symbol = "nothing".into(),
        "KERN",
    ),
    ("other block", |p| p.kernels[0].block[0] = 64, "KERN"),
    ("more kernargs", |p| p.kernels[0].kernarg_bytes += 4, "KERN"),
    (
        "unused kernel",
        |p| {
            let row = find("embed_f32").unwrap();
            p.kernels
                .push(refrain_planner::lowering::kernel(row, Target::Gfx1201));
        },
        "KERN",
    ),
    ("no steps", |p| p.steps.clear(), "STEP"),
    ("no such kernel", |p| launch(p, "embed").kernel = 99, "STEP"),
    ("other kernel", |p| launch(p, "argmax").kernel = 0, "STEP"),
    ("layer past model", |p| p.steps[3].layer = Some(2), "STEP"),
    ("larger grid", |p| launch(p, "output").grid[0] += 1, "STEP"),
    ("grid in y", |p| launch(p, "output").grid[1] = 2, "STEP"),
    (
        "argument missing",
        |p| launch(p, "output").args.truncate(1),
        "STEP",
    ),
    (
        "address for number",
        |p| launch(p, "output").args[3] = Arg::WordAddr { offset: 0 },
        "STEP",
    ),
    (
        "number for address",
        |p| launch(p, "output").args[0] = Arg::Imm(0),
        "STEP",
    ),
    (
        "shifted words",
        |p| launch(p, "argmax").args[1] = Arg::WordAddr { offset: 4 },
        "STEP",
    ),
    (
        "control by region",
        |p| {
            launch(p, "argmax").args[1] = Arg::Region {
                buffer: 0,
                offset: 0,
            }
        },
        "STEP",
    ),
    (
        "misaligned address",
        |p| {
            launch(p, "output").args[1] = Arg::Region {
                buffer: 4,
                offset: 4,
            }
        },
        "STEP",
    ),
    (
        "address in no buffer",
        |p| {
            launch(p, "output").args[1] = Arg::Region {
                buffer: 999,
                offset: 0,
            }
        },
        "STEP",
    ),
    (
        "rows past the tensor",
        |p| launch(p, "output").args[4] = Arg::Imm(96),
        "STEP",
    ),
    (
        "k not a multiple of 16",
        |p| launch(p, "output").args[5] = Arg::Imm(65),
        "STEP",
    ),
    (
        "undeclared read",
        |p| launch(p, "output").reads.truncate(1),
        "STEP",
    ),
    (
        "undeclared write",
        |p| launch(p, "output").writes.clear(),
        "STEP",
    ),
    (
        "smaller region",
        |p| {
            let region = &mut launch(p, "blk.0.attention").reads[1];
            let Extent::RowsTo { count, .. } = &mut region.extent else {
                panic!()
            };
            *count -= 1;
        },
        "STEP",
    ),
    ("no wait", |p| p.schedule.waits.truncate(3), "SCHD"),
    ("edge backwards", |p| p.schedule.edges[0].from = 80, "SCHD"),
    ("edges unsorted", |p| p.schedule.edges.swap(0, 1), "SCHD"),
    (
        "edge without hazard",
        |p| p.schedule.edges[0].buffer = 1,
        "SCHD",
    ),
    (
        "wait for no edge",
        |p| p.schedule.waits[0].because = 9999,
        "SCHD",
    ),
    (
        "wait for another step's edge",
        |p| p.schedule.waits[0].because += 9,
        "SCHD",
    ),
    ("waits unsorted", |p| p.schedule.waits.swap(0, 1), "SCHD"),
    (
        "refused for nothing",
        |p| p.eligibility = Eligibility::Refused(vec![]),
        "ELIG",
    ),
    (
        "refused by no step",
        |p| {
            let detail = "because".to_owned();
            let reason = RefusalReason {
                code: 1,
                step: Some(999),
                detail,
            };
            p.eligibility = Eligibility::Refused(vec![reason]);
        },
        "ELIG",
    ),
];

#[test]
fn every_contradiction_is_refused_with_its_section() {
    let plan = sample();
    for (name, damage, section) in DAMAGES {
        let mut damaged = plan.clone();
        damage(&mut damaged);
        assert_ne!(damaged, plan, "{name} changes nothing");
        let error = CheckedPlan::check(damaged).expect_err(name);
        let text = error.to_string();
        assert!(
            text.contains(&format!("section {section}")),
            "{name}: {text}"
        );
    }
}

/// Moves one address of a launch and makes everything else agree: regions, edges and waits. What is
/// then refused is refused for the address.
fn move_argument(plan: &mut Plan, step: &str, argument: &str, to: impl Fn(u32, u64) -> (u32, u64)) {
    let ranges = WordRanges::of(&plan.model.geometry, &plan.options);
    let control = plan.control_buffer().unwrap();
    let kernels = plan.kernels.clone();
    let launch = launch(plan, step);
    let row = find(&kernels[launch.kernel as usize].symbol).unwrap();
    let position = row.args.iter().position(|arg| arg.name == argument);
    let Arg::Region { buffer, offset } = launch.args[position.unwrap()] else {
        panic!("{argument} of {step}")
    };
    let (buffer, offset) = to(buffer, offset);
    launch.args[position.unwrap()] = Arg::Region { buffer, offset };
    let effects = declare(row, &launch.args, &ranges, control).unwrap();
    (launch.reads, launch.writes) = effects.regions();
    plan.schedule = build(&plan.steps, Target::Gfx1201);
    sum(plan);
}

/// Makes the sums those of the tables.
fn sum(plan: &mut Plan) {
    plan.memory = Memory::of(
        Target::Gfx1201,
        &plan.buffers,
        &plan.kernels,
        &plan.steps,
        &plan.schedule,
    );
}

/// The fact that a plan is refused for, `None` if it is not.
fn refused_for(plan: Plan) -> Option<&'static str> {
    match CheckedPlan::check(plan).err()? {
        CheckError::Mismatch { what, .. } => Some(what),
        other => panic!("{other}"),
    }
}

#[test]
fn a_weight_region_lies_in_one_tensor() {
    // In the middle of a buffer, so that the bytes before and after it belong to other tensors.
    for (by, expected) in [
        (-128i64, Some("weight region")),
        (-16, Some("weight region")),
        (0, None),
        (16, Some("weight region")),
        (128, Some("weight region")),
    ] {
        for step in ["blk.0.ffn_norm", "blk.1.attn_k"] {
            let mut plan = sample();
            move_argument(&mut plan, step, "w", |buffer, offset| {
                (buffer, offset.checked_add_signed(by).unwrap())
            });
            assert_eq!(refused_for(plan), expected, "{step} by {by}");
        }
    }
}

#[test]
fn steps_write_neither_weights_nor_constants_nor_the_prompt() {
    // A norm of 64 values fits into every one of them.
    let options = CompileOptions {
        context: Some(128),
        ..CompileOptions::default()
    };
    let machine = Machine::load("gfx1201").unwrap();
    let model = Tiny::new("qwen3").open();
    let sample = (*compile(&model, &machine, &options).unwrap()).clone();
    for (kind, expected) in [
        (BufferKind::Scratch, None),
        (BufferKind::Kv, None),
        (BufferKind::Weights, Some("written buffer")),
        (BufferKind::Constant, Some("written buffer")),
        (BufferKind::Prompt, Some("written buffer")),
    ] {
        let mut plan = sample.clone();
        let buffer = plan.buffers.iter().position(|buffer| buffer.kind == kind);
        let buffer = buffer.unwrap() as u32;
        if kind == BufferKind::Constant {
            // A table of a head of 32 has but 128 bytes.
            plan.buffers[buffer as usize].bytes = 256;
            plan.buffers[buffer as usize].content.resize(256, 0);
        }
        // Bytes of a tensor, of scratch that the norm does not read, or any.
        let at = match kind {
            BufferKind::Scratch => 1024,
            BufferKind::Weights => {
                let tensors = plan.model.tensors.iter();
                let mut owned = tensors.filter(|tensor| tensor.buffer == buffer);
                owned.find(|tensor| tensor.bytes >= 256).unwrap().offset
            }
            _ => 0,
        };
        move_argument(&mut plan, "output_norm", "y", |_, _| (buffer, at));
        assert_eq!(refused_for(plan), expected, "{kind:?}");
    }
}

#[test]
fn addresses_are_multiples_of_sixteen() {
    for by in 0..=32u64 {
        let mut plan = sample();
        move_argument(&mut plan, "output", "y", |buffer, offset| {
            (buffer, offset + by)
        });
        let expected = (by % 16 != 0).then_some("offset of an argument");
        assert_eq!(refused_for(plan), expected, "by {by}");
    }
}

#[test]
fn arguments_may_meet_only_where_the_catalog_says_so() {
    // Residual and output of a GEMV may be one vector; input and output may not.
    let mut plan = sample();
    let output = launch(&mut plan, "blk.0.attn_output");
    let Arg::Region { offset, .. } = output.args[1] else {
        panic!()
    };
    output.args[3] = Arg::Region { buffer: 4, offset };
    output.writes[0].offset = offset;
    let error = CheckedPlan::check(plan).unwrap_err();
    let CheckError::Alias {
        kernel,
        first,
        second,
        ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((*kernel, *first, *second), ("gemv_add_f16", "y", "x"));
}

#[test]
fn every_kernarg_byte_has_one_owner_and_padding_is_zero() {
    let plan = plan(&repository(AUSTEN), "gfx1201").unwrap();
    // Addresses whose eight bytes are all different and none zero.
    let base = |buffer: u32| 0x1122_3344_5566_7788 + (u64::from(buffer) << 20);
    for step in 0..plan.steps.len() as u32 {
        let StepBody::Launch(launch) = &plan.steps[step as usize].body else {
            panic!("a launch")
        };
        let kernel = &plan.kernels[launch.kernel as usize];
        let row = find(&kernel.symbol).unwrap();
        let mut owners = vec![0; kernel.kernarg_bytes as usize];
        let layout = plan.kernarg_layout(step).unwrap();
        for slot in &layout {
            owners[slot.offset as usize..(slot.offset + slot.bytes) as usize]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
        assert!(owners.iter().all(|count| *count <= 1));
        let mut bytes = vec![0xAA; kernel.kernarg_bytes as usize];
        plan.write_kernargs(step, &base, &mut bytes).unwrap();
        for (byte, count) in bytes.iter().zip(&owners) {
            assert!(
                *count == 1 || *byte == 0,
                "{}: padding is written",
                kernel.symbol
            );
        }
        // The catalog's own packing agrees.
        let values: Vec<ArgValue> = launch
            .args
            .iter()
            .zip(row.args)
            .map(|(arg, decl)| match (arg, decl.kind) {
                (Arg::Imm(bits), _) => ArgValue::Imm(*bits),
                (Arg::Region { buffer, offset }, ArgKind::Pointer(_)) => {
                    ArgValue::Pointer(base(*buffer) + offset)
                }
                (Arg::WordAddr { offset }, _) => {
                    let control = plan.control_buffer().unwrap();
                    ArgValue::Pointer(base(control) + u64::from(*offset))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(row.pack(&values).unwrap(), bytes, "{}", kernel.symbol);
    }
    let mut short = [0; 4];
    assert!(plan.write_kernargs(0, &base, &mut short).is_err());
    assert!(plan.write_kernargs(9999, &base, &mut short).is_err());
    assert!(plan.kernarg_layout(9999).is_err());
}
