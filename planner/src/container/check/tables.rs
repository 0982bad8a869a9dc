//! Model, options, buffers, tensors and kernels of a plan against each other and the catalog.

use super::error::{CheckError, Place};
use super::model;
use crate::container::limits;
use crate::identity::hex;
use crate::lowering;
use crate::plan::{Activations, Buffer, BufferKind, Exec, Kernel, Plan, Share, Tensor};
use refrain_kernels::{CONTROL_BYTES, Dtype, RingEntry, Target, code_object, find};
use std::collections::BTreeSet;

/// Largest ring: the host reads it at leisure, it is not a history.
const RING_ENTRIES: u32 = 1 << 16;

/// Checks the tables; the target that all kernels share.
pub(super) fn check(plan: &Plan) -> Result<Target, CheckError> {
    let sizes = [
        ("steps", plan.steps.len(), limits::STEPS),
        ("buffers", plan.buffers.len(), limits::BUFFERS),
        ("kernels", plan.kernels.len(), limits::KERNELS),
        ("tensors", plan.model.tensors.len(), limits::TENSORS),
    ];
    for (what, found, limit) in sizes {
        if found > limit {
            return Err(CheckError::Limit {
                what,
                found: found as u64,
                limit: limit as u64,
            });
        }
    }
    let Some(target) = Target::parse(&plan.machine.target) else {
        let known = Target::ALL.map(Target::name).join(", ");
        let found = plan.machine.target.clone();
        return Err(CheckError::mismatch(Place::Machine, "target", found, known));
    };
    geometry(plan)?;
    model::check(plan)?;
    options(plan)?;
    names(plan)?;
    buffers(plan)?;
    tensors(plan)?;
    kernels(plan, target)?;
    Ok(target)
}

fn geometry(plan: &Plan) -> Result<(), CheckError> {
    let g = &plan.model.geometry;
    let wrong = |what, found: String, expected: String| {
        Err(CheckError::mismatch(Place::Model, what, found, expected))
    };
    let counts = [
        ("layers", g.layers),
        ("hidden", g.hidden),
        ("heads", g.heads),
        ("kv_heads", g.kv_heads),
        ("head_dim", g.head_dim),
        ("vocab", g.vocab),
        ("rope_dims", g.rope_dims),
        ("context_max", g.context_max),
    ];
    for (what, value) in counts {
        if value == 0 || value > RingEntry::TOKEN_LIMIT {
            return wrong(
                what,
                value.to_string(),
                format!("1 to {}", RingEntry::TOKEN_LIMIT),
            );
        }
    }
    let parts = [
        ("ffn", g.ffn),
        ("conv_taps", g.conv_taps),
        ("state_heads", g.state_heads),
        ("state_key_heads", g.state_key_heads),
        ("state_dim", g.state_dim),
        ("experts", g.experts),
        ("experts_used", g.experts_used),
        ("expert_ffn", g.expert_ffn),
        ("shared_ffn", g.shared_ffn),
    ];
    if let Some((what, value)) = parts.iter().find(|(_, n)| *n > RingEntry::TOKEN_LIMIT) {
        let expected = format!("at most {}", RingEntry::TOKEN_LIMIT);
        return wrong(what, value.to_string(), expected);
    }
    if g.ffn.max(g.expert_ffn) == 0 {
        return wrong(
            "ffn",
            "0".into(),
            "above 0 in a model without experts".into(),
        );
    }
    if !g.heads.is_multiple_of(g.kv_heads) {
        return wrong(
            "heads",
            g.heads.to_string(),
            format!("a multiple of {}", g.kv_heads),
        );
    }
    if g.rope_dims > g.head_dim || !g.rope_dims.is_multiple_of(2) {
        let expected = format!("even and at most head_dim {}", g.head_dim);
        return wrong("rope_dims", g.rope_dims.to_string(), expected);
    }
    for (what, value) in [("norm_eps", g.norm_eps), ("rope_theta", g.rope_theta)] {
        if !(value.is_finite() && value > 0.0) {
            return wrong(what, value.to_string(), "finite and positive".into());
        }
    }
    if plan.model.eos.is_some_and(|eos| eos >= g.vocab) {
        let expected = format!("below the vocabulary size {}", g.vocab);
        return wrong("eos", format!("{:?}", plan.model.eos), expected);
    }
    Ok(())
}

fn options(plan: &Plan) -> Result<(), CheckError> {
    let options = &plan.options;
    let wrong = |what, found: String, expected: String| {
        Err(CheckError::mismatch(Place::Options, what, found, expected))
    };
    let most = plan.model.geometry.context_max;
    if options.context == 0 || options.context > most {
        return wrong(
            "context",
            options.context.to_string(),
            format!("1 to {most}"),
        );
    }
    if options.bucket == 0 || options.bucket > options.context {
        let expected = format!("1 to {}, the context", options.context);
        return wrong("bucket", options.bucket.to_string(), expected);
    }
    if !matches!(options.kv_dtype, Dtype::F32 | Dtype::F16 | Dtype::Q8_0) {
        return wrong(
            "kv_dtype",
            options.kv_dtype.to_string(),
            "f32, f16 or q8_0".into(),
        );
    }
    let entries = options.ring_entries;
    if !entries.is_power_of_two() || entries > RING_ENTRIES {
        let expected = format!("a power of two up to {RING_ENTRIES}");
        return wrong("ring_entries", entries.to_string(), expected);
    }
    placement(plan)
}

/// Layers on the GPU, who executes the others, and whether there are weights of such.
fn placement(plan: &Plan) -> Result<(), CheckError> {
    let (options, layers) = (&plan.options, plan.model.geometry.layers);
    let wrong = |what, found: String, expected: String| {
        Err(CheckError::mismatch(Place::Options, what, found, expected))
    };
    if options.gpu_layers > layers {
        let expected = format!("at most {layers}");
        return wrong("gpu_layers", options.gpu_layers.to_string(), expected);
    }
    let spills = options.gpu_layers < layers;
    if options.exec.is_some() != spills {
        let expected = if spills { "given" } else { "none" };
        let found = format!("{:?}", options.exec);
        return wrong("exec", found, format!("{expected} with so many layers"));
    }
    let has = |wanted| plan.buffers.iter().any(|buffer| buffer.kind == wanted);
    let found = has(BufferKind::SpilledWeights);
    if found != spills {
        let expected = spills.to_string();
        return wrong("spilled weights", found.to_string(), expected);
    }
    if let Some(Exec::Passback { share }) = options.exec
        && share.millionths() > Share::WHOLE
    {
        let expected = format!("at most {} millionths", Share::WHOLE);
        return wrong("share", share.millionths().to_string(), expected);
    }
    let host = plan.barriers().count();
    if host > 0 && options.activations != Activations::Exact {
        let found = options.activations.name().to_owned();
        return wrong(
            "activations",
            found,
            format!("exact with {host} steps of the host"),
        );
    }
    if host > 0 && matches!(options.exec, None | Some(Exec::Pcie)) {
        let found = format!("{:?}", options.exec);
        return wrong(
            "exec",
            found,
            format!("cpu or passback with {host} steps of the host"),
        );
    }
    if has(BufferKind::HandOff) != (host > 0) {
        let found = has(BufferKind::HandOff).to_string();
        return wrong("hand-off buffer", found, (host > 0).to_string());
    }
    if spills && plan.machine.unified_memory {
        let expected = format!("{layers} on unified memory");
        return wrong("gpu_layers", options.gpu_layers.to_string(), expected);
    }
    Ok(())
}

/// Names of buffers, tensors, kernels and steps: there, short, and each once.
fn names(plan: &Plan) -> Result<(), CheckError> {
    let buffers = plan
        .buffers
        .iter()
        .map(|b| (&b.name, Place::Buffer(b.name.clone())));
    each_once(buffers)?;
    each_once(
        plan.model
            .tensors
            .iter()
            .map(|t| (&t.name, Place::Tensor(t.name.clone()))),
    )?;
    each_once(
        plan.kernels
            .iter()
            .map(|k| (&k.symbol, Place::Kernel(k.symbol.clone()))),
    )?;
    let steps = plan.steps.iter().enumerate();
    each_once(steps.map(|(id, s)| (&s.name, Place::Step(id as u32, s.name.clone()))))
}

fn each_once<'a>(names: impl Iterator<Item = (&'a String, Place)>) -> Result<(), CheckError> {
    let mut seen = BTreeSet::new();
    for (name, place) in names {
        if name.is_empty() || name.len() > limits::NAME_BYTES {
            let expected = format!("1 to {} bytes", limits::NAME_BYTES);
            return Err(CheckError::mismatch(
                place,
                "name length",
                name.len(),
                expected,
            ));
        }
        if !seen.insert(name) {
            return Err(CheckError::mismatch(place, "name", "used twice", "unique"));
        }
    }
    Ok(())
}

fn buffers(plan: &Plan) -> Result<(), CheckError> {
    let context = u64::from(plan.options.context);
    for buffer in &plan.buffers {
        let wrong = |what, found: String, expected: String| {
            Err(CheckError::mismatch(
                Place::Buffer(buffer.name.clone()),
                what,
                found,
                expected,
            ))
        };
        if buffer.bytes == 0 || buffer.bytes > limits::BUFFER_BYTES {
            let expected = format!("1 to {}", limits::BUFFER_BYTES);
            return wrong("bytes", buffer.bytes.to_string(), expected);
        }
        if !buffer.align.is_power_of_two() || buffer.align < lowering::ALIGN {
            let expected = format!("a power of two from {}", lowering::ALIGN);
            return wrong("align", buffer.align.to_string(), expected);
        }
        let content = match buffer.kind {
            BufferKind::Constant => buffer.bytes,
            _ => 0,
        };
        if buffer.content.len() as u64 != content {
            let expected = format!("{content} bytes");
            return wrong(
                "content",
                format!("{} bytes", buffer.content.len()),
                expected,
            );
        }
        let fixed = match buffer.kind {
            BufferKind::Control => CONTROL_BYTES,
            BufferKind::Prompt => context * 4,
            BufferKind::TokenRing => u64::from(plan.options.ring_entries) * RingEntry::BYTES,
            _ => continue,
        };
        if buffer.bytes != fixed {
            return wrong("bytes", buffer.bytes.to_string(), fixed.to_string());
        }
    }
    let single = [
        (BufferKind::Control, "control"),
        (BufferKind::Prompt, "prompt"),
        (BufferKind::TokenRing, "ring"),
        (BufferKind::Scratch, "scratch"),
    ];
    for (kind, name) in single {
        let count = plan
            .buffers
            .iter()
            .filter(|buffer| buffer.kind == kind)
            .count();
        if count != 1 {
            let place = Place::Buffer(name.to_owned());
            return Err(CheckError::mismatch(
                place,
                "buffers of this kind",
                count,
                1,
            ));
        }
    }
    Ok(())
}

fn tensors(plan: &Plan) -> Result<(), CheckError> {
    let mut placed: Vec<(u32, u64, u64, &Tensor)> = Vec::new();
    for tensor in &plan.model.tensors {
        let buffer = plan.buffers.get(tensor.buffer as usize);
        tensor_fits(tensor, buffer)?;
        placed.push((
            tensor.buffer,
            tensor.offset,
            tensor.offset + tensor.bytes,
            tensor,
        ));
    }
    placed.sort_by_key(|(buffer, offset, end, _)| (*buffer, *offset, *end));
    for pair in placed.windows(2) {
        let [(before, _, end, first), (buffer, offset, _, second)] = pair else {
            continue;
        };
        if before == buffer && offset < end {
            let place = Place::Tensor(second.name.clone());
            let expected = format!("at least {end}, the end of {}", first.name);
            return Err(CheckError::mismatch(place, "offset", offset, expected));
        }
    }
    Ok(())
}

fn tensor_fits(tensor: &Tensor, buffer: Option<&Buffer>) -> Result<(), CheckError> {
    let place = || Place::Tensor(tensor.name.clone());
    let wrong = |what, found: String, expected: String| {
        Err(CheckError::mismatch(place(), what, found, expected))
    };
    let Some(buffer) = buffer.filter(|buffer| buffer.kind.holds_weights()) else {
        return wrong(
            "buffer",
            tensor.buffer.to_string(),
            "a buffer for weights".into(),
        );
    };
    let (rows, cols) = (u64::from(tensor.rows), u64::from(tensor.cols));
    let catalog = |source| CheckError::Catalog {
        place: place(),
        source,
    };
    let in_file = tensor.stored.file_bytes(rows, cols).map_err(catalog)?;
    let on_device = tensor.dtype.device_bytes(rows, cols).map_err(catalog)?;
    if tensor.file_bytes != in_file {
        return wrong(
            "file_bytes",
            tensor.file_bytes.to_string(),
            in_file.to_string(),
        );
    }
    if tensor.bytes != on_device || on_device == 0 {
        return wrong(
            "bytes",
            tensor.bytes.to_string(),
            format!("{on_device}, more than 0"),
        );
    }
    if !tensor.offset.is_multiple_of(u64::from(lowering::ALIGN)) {
        let expected = format!("a multiple of {}", lowering::ALIGN);
        return wrong("offset", tensor.offset.to_string(), expected);
    }
    let end = tensor.offset.checked_add(tensor.bytes);
    if end.is_none_or(|end| end > buffer.bytes) {
        let found = format!("{} + {}", tensor.offset, tensor.bytes);
        return wrong("end", found, format!("at most {}", buffer.bytes));
    }
    Ok(())
}

fn kernels(plan: &Plan, target: Target) -> Result<(), CheckError> {
    let object = code_object(target);
    for kernel in &plan.kernels {
        let wrong = |what, found: String, expected: String| {
            Err(CheckError::mismatch(
                Place::Kernel(kernel.symbol.clone()),
                what,
                found,
                expected,
            ))
        };
        if kernel.target != target {
            return wrong("target", kernel.target.to_string(), target.to_string());
        }
        let Some(row) = find(&kernel.symbol) else {
            return wrong("symbol", "unknown".into(), "in this build's catalog".into());
        };
        let expected = lowering::kernel(row, target);
        if kernel.object != expected.object {
            let rule = format!("{}, the code of this build", hex(&expected.object));
            return wrong("code object", hex(&kernel.object), rule);
        }
        let shape = |k: &Kernel| (k.kernarg_bytes, k.lds_bytes, k.block);
        if shape(kernel) != shape(&expected) {
            let (found, expected) = (shape(kernel), shape(&expected));
            return wrong(
                "(kernarg bytes, LDS bytes, block)",
                format!("{found:?}"),
                format!("{expected:?}"),
            );
        }
        let Some(facts) = object.kernel(&kernel.symbol) else {
            return wrong(
                "code",
                "absent".into(),
                format!("in the {target} code object"),
            );
        };
        let needs = (facts.kernarg_bytes, facts.lds_bytes);
        if needs != (kernel.kernarg_bytes, kernel.lds_bytes) {
            let found = format!("{:?}", (kernel.kernarg_bytes, kernel.lds_bytes));
            return wrong("(kernarg, LDS) bytes", found, format!("{needs:?}"));
        }
        let lds = plan.machine.lds_bytes_per_group;
        if kernel.lds_bytes > lds {
            return wrong(
                "LDS bytes",
                kernel.lds_bytes.to_string(),
                format!("at most {lds}"),
            );
        }
    }
    Ok(())
}
