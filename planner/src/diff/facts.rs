//! The facts of each identity layer as text. Of a schedule the waits come first: edges are why.

use crate::identity::{Layer, hex};
use crate::plan::{
    Arg, At, BufferKind, Eligibility, Extent, Geometry, HostStep, Launch, Plan, Region, StepBody,
    StepId,
};
use refrain_kernels::{ArgKind, find};

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fact {
    pub place: String,
    pub step: Option<StepId>,
    pub field: String,
    pub value: String,
}

/// Facts of one place.
struct Facts {
    list: Vec<Fact>,
    place: String,
    step: Option<StepId>,
}

impl Facts {
    fn at(&mut self, place: String) {
        (self.place, self.step) = (place, None);
    }

    fn at_step(&mut self, plan: &Plan, step: StepId) {
        let name = plan.steps.get(step as usize).map(|step| step.name.as_str());
        self.place = format!("step {step} ({})", name.unwrap_or("?"));
        self.step = Some(step);
    }

    fn add(&mut self, field: &str, value: impl ToString) {
        self.list.push(Fact {
            place: self.place.clone(),
            step: self.step,
            field: field.to_owned(),
            value: value.to_string(),
        });
    }

    /// Adds each named value.
    fn all<const N: usize>(&mut self, fields: [(&str, String); N]) {
        for (field, value) in fields {
            self.add(field, value);
        }
    }
}

pub(super) fn of(plan: &Plan, layer: Layer) -> Vec<Fact> {
    let mut facts = Facts {
        list: Vec::new(),
        place: String::new(),
        step: None,
    };
    match layer {
        Layer::Model => model(plan, &mut facts),
        Layer::Structure => structure(plan, &mut facts),
        Layer::Schedule => schedule(plan, &mut facts),
        Layer::Artifacts => artifacts(plan, &mut facts),
    }
    facts.list
}

macro_rules! named {
    ($of:expr, $facts:expr; $($field:ident),* $(,)?) => {
        $($facts.add(stringify!($field), format!("{:?}", $of.$field));)*
    };
}

fn model(plan: &Plan, facts: &mut Facts) {
    let model = &plan.model;
    facts.at("model".to_owned());
    facts.add("architecture", &model.arch);
    geometry(&model.geometry, facts);
    facts.add("end token", format!("{:?}", model.eos));
    for tensor in &model.tensors {
        facts.at(format!("tensor {}", tensor.name));
        facts.all([
            ("dtype", tensor.dtype.to_string()),
            ("rows", tensor.rows.to_string()),
            ("cols", tensor.cols.to_string()),
            (
                "digest",
                tensor.digest.map_or("absent".into(), |digest| hex(&digest)),
            ),
        ]);
    }
    let constants = plan.buffers.iter();
    for buffer in constants.filter(|buffer| buffer.kind == BufferKind::Constant) {
        facts.at(format!("constant {}", buffer.name));
        facts.add("content", hex(blake3::hash(&buffer.content).as_bytes()));
    }
}

fn geometry(g: &Geometry, facts: &mut Facts) {
    named!(g, facts;
        layers, hidden, heads, kv_heads, head_dim, ffn, vocab, rope_dims, context_max, norm_eps,
        rope_theta, conv_taps, state_heads, state_key_heads, state_dim, experts, experts_used,
        expert_ffn, shared_ffn);
}

fn structure(plan: &Plan, facts: &mut Facts) {
    facts.at("options".to_owned());
    named!(plan.options, facts; context, bucket, kv_dtype, ring_entries, gpu_layers, exec, activations);
    for (id, buffer) in plan.buffers.iter().enumerate() {
        facts.at(format!("buffer {id}"));
        named!(buffer, facts; name, kind, bytes, align);
    }
    for tensor in &plan.model.tensors {
        facts.at(format!("place of tensor {}", tensor.name));
        facts.add("buffer", buffer_name(plan, tensor.buffer));
        named!(tensor, facts; buffer, offset, bytes);
    }
    for (id, kernel) in plan.kernels.iter().enumerate() {
        facts.at(format!("kernel {id}"));
        named!(kernel, facts; symbol, kernarg_bytes, lds_bytes, block);
    }
    for (id, step) in plan.steps.iter().enumerate() {
        facts.at_step(plan, id as StepId);
        named!(step, facts; name, layer);
        facts.add("kind", step.body.name());
        if let Some(host) = step.body.host() {
            hosted(plan, host, facts);
        }
        if let StepBody::Split(split) = &step.body {
            facts.add("launches", split.launches.len());
        }
        for launch in step.body.launches() {
            launched(plan, launch, facts);
        }
    }
}

fn hosted(plan: &Plan, host: &HostStep, facts: &mut Facts) {
    let place = |at: At| format!("{}+{}", numbered(plan, at.buffer), at.offset);
    for (verb, list) in [("copy down", &host.down), ("copy up", &host.up)] {
        for (index, row) in list.iter().enumerate() {
            let (from, to) = (place(row.from), place(row.to));
            let value = format!("{from} to {to}, {} bytes", row.bytes);
            facts.add(&format!("{verb} {index}"), value);
        }
    }
    for (index, part) in host.parts.iter().enumerate() {
        let tensor = plan.model.tensors.get(part.tensor as usize);
        let tensor = tensor.map_or("?", |tensor| tensor.name.as_str());
        let (x, y) = (place(part.x), place(part.y));
        let value = format!(
            "{tensor} rows {}..{}, {x} to {y}, plus {:?}, {}",
            part.first,
            part.end,
            part.add,
            part.why.name()
        );
        facts.add(&format!("product {index}"), value);
    }
    regions(plan, &host.reads, &host.writes, facts);
}

fn regions(plan: &Plan, reads: &[Region], writes: &[Region], facts: &mut Facts) {
    for (verb, regions) in [("reads", reads), ("writes", writes)] {
        for (index, region) in regions.iter().enumerate() {
            facts.add(&format!("{verb} {index}"), region_text(plan, region));
        }
    }
}

fn launched(plan: &Plan, launch: &Launch, facts: &mut Facts) {
    let kernel = plan.kernels.get(launch.kernel as usize);
    let symbol = kernel.map_or("?", |kernel| kernel.symbol.as_str());
    facts.add("kernel", format!("{symbol} ({})", launch.kernel));
    named!(launch, facts; grid);
    let decls = find(symbol).map_or(&[][..], |row| row.args);
    for (index, arg) in launch.args.iter().enumerate() {
        let decl = decls.get(index);
        let name = decl.map_or_else(|| format!("argument {index}"), |decl| decl.name.to_owned());
        let value = match arg {
            Arg::Region { buffer, offset } => {
                format!("{}+{offset}", numbered(plan, *buffer))
            }
            Arg::Imm(bits) if decl.is_some_and(|decl| matches!(decl.kind, ArgKind::F32Bits)) => {
                format!("{:e} ({bits:#010x})", f32::from_bits(*bits))
            }
            Arg::Imm(bits) => bits.to_string(),
            Arg::WordAddr { offset } => format!("control block+{offset}"),
        };
        facts.add(&name, value);
    }
    regions(plan, &launch.reads, &launch.writes, facts);
}

fn region_text(plan: &Plan, region: &Region) -> String {
    let extent = match region.extent {
        Extent::Fixed { bytes } => format!("{bytes} bytes"),
        Extent::Row {
            word,
            stride,
            bytes,
            count,
        } => format!("{bytes} bytes of the row at word +{word}, {count} rows of {stride}"),
        Extent::RowsTo {
            word,
            stride,
            count,
        } => format!("rows to the word +{word}, {count} rows of {stride}"),
    };
    let buffer = numbered(plan, region.buffer);
    format!("{buffer}+{}, {extent}", region.offset)
}

fn buffer_name(plan: &Plan, buffer: u32) -> &str {
    let found = plan.buffers.get(buffer as usize);
    found.map_or("?", |buffer| buffer.name.as_str())
}

fn numbered(plan: &Plan, buffer: u32) -> String {
    format!("{} ({buffer})", buffer_name(plan, buffer))
}

fn schedule(plan: &Plan, facts: &mut Facts) {
    for wait in &plan.schedule.waits {
        facts.at_step(plan, wait.before);
        facts.add("wait, invalidate", format!("{:?}", wait.invalidate));
        facts.add("wait, because of edge", wait.because);
    }
    for edge in &plan.schedule.edges {
        facts.at_step(plan, edge.to);
        let buffer = numbered(plan, edge.buffer);
        let value = format!("{:?} over {buffer}", edge.hazard);
        facts.add(&format!("edge from step {}", edge.from), value);
    }
    facts.at("eligibility".to_owned());
    match &plan.eligibility {
        Eligibility::Whole => facts.add("retained", "the whole token"),
        Eligibility::Segments(reasons) | Eligibility::Refused(reasons) => {
            let retained = match plan.eligibility {
                Eligibility::Segments(_) => "segments",
                _ => "refused",
            };
            facts.add("retained", retained);
            for reason in reasons {
                let value = format!("{:?}: {}", reason.step, reason.detail);
                facts.add(&format!("RF{:03}", reason.code), value);
            }
        }
    }
}

fn artifacts(plan: &Plan, facts: &mut Facts) {
    facts.at("machine".to_owned());
    facts.add("target", &plan.machine.target);
    for kernel in &plan.kernels {
        facts.at(format!("kernel {}", kernel.symbol));
        facts.add("target", kernel.target);
        facts.add("code object", hex(&kernel.object));
    }
}
