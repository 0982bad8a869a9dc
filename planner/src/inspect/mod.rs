//! A plan as text for people: model, memory, kernels, launches, waits, words, identity.
//!
//! The text is stable (a snapshot test holds it) but not an interface; programs read the plan file.

mod explain;

pub use explain::explain;

use crate::container::CheckedPlan;
use crate::identity::{Layer, hex};
use crate::plan::{
    Arg, At, Buffer, BufferKind, Eligibility, Extent, Hazard, HostAdd, HostGemv, HostStep,
    Invalidate, Launch, Plan, Region, Step, Tier, Transfer, Wait,
};
use refrain_kernels::{WORDS, Writer, find};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The whole plan as text, one line per launch.
pub fn inspect(plan: &CheckedPlan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_all(&mut out, plan);
    out
}

fn write_all(out: &mut String, plan: &CheckedPlan) -> fmt::Result {
    writeln!(out, "plan      {}", plan.id_hex())?;
    writeln!(out, "sequence  {}", plan.identity().sequence)?;
    writeln!(out, "producer  {}", clean(&plan.producer))?;
    head(out, plan)?;
    memory(out, plan)?;
    tensors(out, plan)?;
    kernels(out, plan)?;
    launches(out, plan)?;
    words(out)?;
    writeln!(out, "\nidentity")?;
    for layer in Layer::ALL {
        writeln!(
            out,
            "  {:<10} {}",
            layer.name(),
            hex(plan.identity().layer(layer))
        )?;
    }
    eligibility(out, plan)
}

fn head(out: &mut String, plan: &Plan) -> fmt::Result {
    let (model, g) = (&plan.model, &plan.model.geometry);
    writeln!(
        out,
        "\nmodel     {} ({}), {} of {} bytes",
        clean(&model.name),
        clean(&model.arch),
        match model.files.len() {
            1 => "file".to_owned(),
            files => format!("{files} files"),
        },
        model.file_bytes()
    )?;
    if !model.has_weights() {
        writeln!(
            out,
            "  weights: absent (digests unfilled); the plan cannot run"
        )?;
    }
    writeln!(
        out,
        "  layers {}, hidden {}, heads {}/{} of {}, ffn {}, vocab {}",
        g.layers, g.hidden, g.heads, g.kv_heads, g.head_dim, g.ffn, g.vocab
    )?;
    let eos = model
        .eos
        .map_or_else(|| "none".to_owned(), |eos| eos.to_string());
    writeln!(
        out,
        "  rope {} of {} at base {}, norm eps {:e}, longest context {}, end token {eos}",
        g.rope_dims, g.head_dim, g.rope_theta, g.norm_eps, g.context_max
    )?;
    let machine = &plan.machine;
    writeln!(
        out,
        "machine   {} ({}, {}): {} CUs, {} bytes",
        clean(&machine.name),
        machine.target,
        clean(&machine.card),
        machine.compute_units,
        machine.vram_bytes
    )?;
    let options = &plan.options;
    write!(out, "options   context {}", options.context)?;
    if options.bucket < options.context {
        write!(out, ", positions below {}", options.bucket)?;
    }
    writeln!(
        out,
        ", KV {}, {} activations, ring of {}",
        options.kv_dtype,
        options.activations.name(),
        options.ring_entries
    )
}

const fn kind_name(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::Weights => "weights",
        BufferKind::SpilledWeights => "spilled",
        BufferKind::Constant => "constant",
        BufferKind::Kv => "kv",
        BufferKind::State => "state",
        BufferKind::Scratch => "scratch",
        BufferKind::Control => "control",
        BufferKind::Prompt => "prompt",
        BufferKind::TokenRing => "ring",
        BufferKind::HandOff => "handoff",
    }
}

const fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::HostCoherent => "host, coherent",
    }
}

fn memory(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(out, "\nmemory    {} buffers", plan.buffers.len())?;
    for tier in [Tier::Device, Tier::HostCoherent] {
        let of_tier = |buffer: &&Buffer| buffer.kind.tier() == tier;
        let total: u64 = plan
            .buffers
            .iter()
            .filter(of_tier)
            .map(|buffer| buffer.bytes)
            .sum();
        writeln!(out, "  {}: {total} bytes", tier_name(tier))?;
        let mut kinds: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for buffer in plan.buffers.iter().filter(of_tier) {
            let entry = kinds.entry(kind_name(buffer.kind)).or_default();
            entry.0 += 1;
            entry.1 += buffer.bytes;
        }
        for (kind, (count, bytes)) in kinds {
            writeln!(out, "    {kind:<9} {count:>4} x {bytes:>14} bytes in all")?;
        }
    }
    Ok(())
}

fn tensors(out: &mut String, plan: &Plan) -> fmt::Result {
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in &plan.model.tensors {
        let entry = types.entry(tensor.dtype.name()).or_default();
        entry.0 += 1;
        entry.1 += tensor.bytes;
    }
    writeln!(out, "\ntensors   {}", plan.model.tensors.len())?;
    for (dtype, (count, bytes)) in types {
        writeln!(out, "  {dtype:<5} {count:>5} x {bytes:>14} bytes in all")?;
    }
    Ok(())
}

fn kernels(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(out, "\nkernels   {}", plan.kernels.len())?;
    let mut launches = vec![0usize; plan.kernels.len()];
    for (_, launch) in plan.launches() {
        if let Some(count) = launches.get_mut(launch.kernel as usize) {
            *count += 1;
        }
    }
    for (kernel, count) in plan.kernels.iter().zip(launches) {
        writeln!(
            out,
            "  {:<22} {count:>4} launches, block {:>4}, kernarg {:>3}, LDS {:>4}, code {}",
            kernel.symbol,
            kernel.block[0],
            kernel.kernarg_bytes,
            kernel.lds_bytes,
            &hex(&kernel.object)[..16]
        )?;
    }
    Ok(())
}

fn launches(out: &mut String, plan: &Plan) -> fmt::Result {
    let (steps, waits) = (plan.steps.len(), plan.schedule.waits.len());
    writeln!(
        out,
        "\nlaunches  {steps}, waits {waits}, edges {}",
        plan.schedule.edges.len()
    )?;
    let mut next = plan.schedule.waits.iter().peekable();
    for (id, step) in plan.steps.iter().enumerate() {
        if let Some(wait) = next.next_if(|wait| wait.before as usize == id) {
            let invalidate = match wait.invalidate {
                Invalidate::None => "",
                Invalidate::Agent => ", invalidate",
            };
            let why = because(plan, wait);
            writeln!(out, "       wait{invalidate}: {why}")?;
        }
        if let Some(host) = step.body.host() {
            host_step(out, plan, id, step, host)?;
        }
        for part in step.body.launches() {
            launch(out, plan, id, step, part)?;
        }
    }
    Ok(())
}

/// A step of the host: its copies and products. The launches of a split step follow.
fn host_step(
    out: &mut String,
    plan: &Plan,
    id: usize,
    step: &Step,
    host: &HostStep,
) -> fmt::Result {
    let kind = step.body.name();
    writeln!(out, "  {id:>4} {:<20} {kind}, a barrier", clean(&step.name))?;
    let place = |at: At| format!("{}+{}", name(plan, at.buffer), at.offset);
    let transfers = |out: &mut String, list: &[Transfer]| {
        list.iter().try_for_each(|row| {
            let (from, to) = (place(row.from), place(row.to));
            writeln!(out, "       copy {from} to {to}, {} bytes", row.bytes)
        })
    };
    transfers(out, &host.down)?;
    for part in &host.parts {
        let tensor = plan.model.tensors.get(part.tensor as usize);
        let tensor = tensor.map_or(Cow::Borrowed("?"), |tensor| clean(&tensor.name));
        let HostGemv { first, end, .. } = part;
        let (x, y) = (place(part.x), place(part.y));
        write!(out, "       rows {first}..{end} of {tensor} times {x}")?;
        if let HostAdd::Rows(at) = part.add {
            write!(out, " plus {}", place(at))?;
        }
        writeln!(out, " to {y} ({})", part.why.name())?;
    }
    transfers(out, &host.up)
}

/// The edge behind a wait, in words.
fn because(plan: &Plan, wait: &Wait) -> String {
    let Some(edge) = plan.schedule.edges.get(wait.because as usize) else {
        return String::new();
    };
    let hazard = match edge.hazard {
        Hazard::Raw => "reads what",
        Hazard::War => "overwrites what",
        Hazard::Waw => "writes over what",
    };
    let step = |id: u32| {
        let step = plan.steps.get(id as usize);
        step.map_or_else(Cow::default, |step| clean(&step.name))
    };
    let (from, to) = (step(edge.from), step(edge.to));
    format!("{to} {hazard} {from} left in {}", name(plan, edge.buffer))
}

fn launch(out: &mut String, plan: &Plan, id: usize, step: &Step, launch: &Launch) -> fmt::Result {
    let Launch {
        kernel,
        grid,
        args,
        reads,
        writes,
    } = launch;
    let symbol = plan
        .kernels
        .get(*kernel as usize)
        .map_or("", |kernel| kernel.symbol.as_str());
    write!(
        out,
        "  {id:>4} {:<20} {symbol:<22} x{:<5}",
        clean(&step.name),
        grid[0]
    )?;
    let decls = find(symbol).map_or(&[][..], |row| row.args);
    for (arg, decl) in args.iter().zip(decls) {
        match arg {
            Arg::Region { buffer, offset } => {
                write!(out, " {}={}+{offset}", decl.name, name(plan, *buffer))?;
            }
            Arg::Imm(bits) if matches!(decl.kind, refrain_kernels::ArgKind::F32Bits) => {
                write!(out, " {}={:e}", decl.name, f32::from_bits(*bits))?;
            }
            Arg::Imm(bits) => write!(out, " {}={bits}", decl.name)?,
            Arg::WordAddr { offset } => write!(out, " {}=words+{offset}", decl.name)?,
        }
    }
    let moving = |region: &&Region| !matches!(region.extent, Extent::Fixed { .. });
    let sides = [("reads", reads), ("writes", writes)];
    for (verb, regions) in sides {
        for region in regions.iter().filter(moving) {
            write!(out, " [{verb} {}]", moving_text(plan, region))?;
        }
    }
    writeln!(out)
}

fn moving_text(plan: &Plan, region: &Region) -> String {
    let buffer = name(plan, region.buffer);
    let word_name = |offset: u32| {
        WORDS
            .iter()
            .find(|row| row.offset == offset)
            .map_or("?", |row| row.name)
    };
    match region.extent {
        Extent::Fixed { bytes } => format!("{buffer}+{}, {bytes} bytes", region.offset),
        Extent::Row { word, bytes, .. } => {
            format!(
                "{buffer}+{} row {}, {bytes} bytes",
                region.offset,
                word_name(word)
            )
        }
        Extent::RowsTo { word, stride, .. } => {
            format!(
                "{buffer}+{} rows to {}, {stride} bytes each",
                region.offset,
                word_name(word)
            )
        }
    }
}

fn name(plan: &Plan, buffer: u32) -> Cow<'_, str> {
    plan.buffers
        .get(buffer as usize)
        .map_or(Cow::Borrowed("?"), |buffer| clean(&buffer.name))
}

/// Text of a model file, profile or plan with control characters escaped: a name may not move the
/// cursor, colour the terminal or begin a line of its own.
fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            out.extend(char.escape_debug());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

fn words(out: &mut String) -> fmt::Result {
    writeln!(out, "\nwords     {} in the control block", WORDS.len())?;
    for row in &WORDS {
        let writer = match row.writer {
            Writer::Host => "host before a text".to_owned(),
            Writer::Kernels(kernels) => {
                format!("host before a text, then {}", kernels.join(" or "))
            }
        };
        writeln!(out, "  +{:<3} {:<11} {writer}", row.offset, row.name)?;
    }
    Ok(())
}

fn eligibility(out: &mut String, plan: &Plan) -> fmt::Result {
    match &plan.eligibility {
        Eligibility::Whole => writeln!(out, "\neligible  the whole token may be retained"),
        Eligibility::Segments(reasons) | Eligibility::Refused(reasons) => {
            let count = reasons.len();
            if matches!(plan.eligibility, Eligibility::Segments(_)) {
                let what = "what lies between steps of the host may be retained";
                writeln!(out, "\neligible  {what}; against the whole token: {count}")?;
            } else {
                writeln!(out, "\nrefused   {count} reasons")?;
            }
            for reason in reasons {
                let step = reason.step.and_then(|step| plan.steps.get(step as usize));
                let step = step.map_or(Cow::Borrowed("plan"), |step| clean(&step.name));
                let detail = clean(&reason.detail);
                writeln!(out, "  RF{:03} {step}: {detail}", reason.code)?;
            }
            Ok(())
        }
    }
}
