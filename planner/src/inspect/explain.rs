//! A plan's costs as text: memory by owner, launches, waits, barriers, eligibility, bytes per token
//! and the bound that the machine's stated rates set.

use super::{clean, eligibility, kind_name, tier_name};
use crate::container::CheckedPlan;
use crate::memory::{Granules, LayerBytes, TYPES, bound, by_layer, traffic};
use crate::plan::{Buffer, BufferKind, Hazard, HostWhy, Invalidate, Piece, Plan, Tier};
use refrain_kernels::Target;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// What the plan costs, in five parts.
pub fn explain(plan: &CheckedPlan) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_all(&mut out, plan);
    out
}

fn write_all(out: &mut String, plan: &CheckedPlan) -> fmt::Result {
    writeln!(out, "plan      {}", plan.id_hex())?;
    placement(out, plan)?;
    memory(out, plan)?;
    launches(out, plan)?;
    waits(out, plan)?;
    host_steps(out, plan)?;
    eligibility(out, plan)?;
    speed(out, plan)
}

fn placement(out: &mut String, plan: &Plan) -> fmt::Result {
    let (options, layers) = (&plan.options, plan.model.geometry.layers);
    write!(
        out,
        "layers    {} of {layers} on the GPU",
        options.gpu_layers
    )?;
    match options.exec {
        None => writeln!(out),
        Some(exec) => writeln!(
            out,
            ", matrices of the first {} in host memory, executed by {}",
            layers.saturating_sub(options.gpu_layers),
            exec
        ),
    }
}

fn memory(out: &mut String, plan: &Plan) -> fmt::Result {
    let (memory, machine) = (&plan.memory, &plan.machine);
    let lines = [
        (
            "device",
            memory.device,
            memory.device_rounded,
            machine.vram_bytes,
        ),
        (
            "pinned",
            memory.pinned,
            memory.pinned_rounded,
            machine.host.pinned_bytes,
        ),
    ];
    writeln!(
        out,
        "\nmemory    requested, as the runtime rounds it, what {} has",
        clean(&machine.name)
    )?;
    for (name, requested, rounded, has) in lines {
        writeln!(
            out,
            "  {name:<9} {requested:>14} {rounded:>14} {has:>14} bytes"
        )?;
    }
    writeln!(
        out,
        "  of these: kv {}, spilled {}, kernarg {}, ib {} bytes (PM4; AQL has no ib)",
        memory.kv, memory.spilled, memory.kernarg, memory.ib
    )?;
    owners(out, plan)?;
    by_layers(out, plan)?;
    writeln!(
        out,
        "\ntypes     where, what the host does, what the GPU does"
    )?;
    for row in TYPES {
        let tier = tier_name(row.tier);
        writeln!(
            out,
            "  {:<9} {tier:<14} {:<20} {}",
            row.name, row.host, row.gpu
        )?;
    }
    Ok(())
}

/// Allocations by kind: how many, what they ask for, what they take.
fn owners(out: &mut String, plan: &Plan) -> fmt::Result {
    let granules = Target::parse(&plan.machine.target).map(Granules::of);
    let mut kinds: BTreeMap<&str, Vec<&Buffer>> = BTreeMap::new();
    for buffer in &plan.buffers {
        kinds
            .entry(kind_name(buffer.kind))
            .or_default()
            .push(buffer);
    }
    let mut views: BTreeMap<BufferKind, usize> = BTreeMap::new();
    for tensor in &plan.model.tensors {
        if let Some(buffer) = plan.buffers.get(tensor.buffer as usize) {
            *views.entry(buffer.kind).or_default() += 1;
        }
    }
    writeln!(
        out,
        "\nowners    {} allocations, requested and rounded",
        plan.buffers.len()
    )?;
    for (name, buffers) in kinds {
        let sizes = || buffers.iter().map(|buffer| buffer.bytes);
        let requested = sizes().fold(0, u64::saturating_add);
        let kind = buffers.first().map(|buffer| buffer.kind);
        let tier = kind.map_or(Tier::Device, BufferKind::tier);
        let rounded = granules.map_or(requested, |row| row.rounded(tier, sizes()));
        let count = buffers.len();
        write!(
            out,
            "  {name:<9} {count:>4} x {requested:>14} {rounded:>14} bytes in all"
        )?;
        match kind.and_then(|kind| views.get(&kind)) {
            Some(tensors) => writeln!(out, ", {tensors} tensors by offset")?,
            None => writeln!(out)?,
        }
    }
    match granules {
        Some(row) => writeln!(
            out,
            "  each kind by itself; small device allocations of all kinds share blocks\n  {}",
            row.source
        ),
        None => Ok(()),
    }
}

/// Bytes of each layer by tier, layers of the same sizes in one line.
fn by_layers(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "\nby layer  device and pinned bytes of each, requested"
    )?;
    let rows = by_layer(plan);
    let same = |a: &LayerBytes, b: &LayerBytes| {
        a.layer.is_some() && (a.device, a.pinned) == (b.device, b.pinned)
    };
    for run in rows.chunk_by(same) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let name = match (first.layer, last.layer) {
            (Some(a), Some(b)) if a != b => format!("{a} to {b}"),
            (Some(a), _) => a.to_string(),
            _ => "shared".to_owned(),
        };
        let LayerBytes { device, pinned, .. } = first;
        writeln!(out, "  {name:<9} {device:>14} {pinned:>14} bytes")?;
    }
    Ok(())
}

fn launches(out: &mut String, plan: &Plan) -> fmt::Result {
    let layers = plan
        .steps
        .iter()
        .filter(|step| step.layer.is_some())
        .count();
    let (all, steps) = (plan.launches().count(), plan.steps.len());
    writeln!(
        out,
        "\nlaunches  {all}; steps {steps}: {layers} in layers, {} outside",
        steps - layers
    )?;
    let mut kernels: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, launch) in plan.launches() {
        if let Some(kernel) = plan.kernels.get(launch.kernel as usize) {
            *kernels.entry(&kernel.symbol).or_default() += 1;
        }
    }
    let mut rows: Vec<_> = kernels.into_iter().collect();
    rows.sort_by_key(|(symbol, count)| (std::cmp::Reverse(*count), *symbol));
    for (symbol, count) in rows {
        writeln!(out, "  {count:>5} {}", clean(symbol))?;
    }
    Ok(())
}

fn waits(out: &mut String, plan: &Plan) -> fmt::Result {
    let schedule = &plan.schedule;
    let invalidate = |wanted| {
        let waits = schedule.waits.iter();
        waits.filter(|wait| wait.invalidate == wanted).count()
    };
    let because = |wanted| {
        let waits = schedule.waits.iter();
        let edges = waits.filter_map(|wait| schedule.edges.get(wait.because as usize));
        edges.filter(|edge| edge.hazard == wanted).count()
    };
    writeln!(
        out,
        "\nbarriers  {} waits, {} with an invalidation; steps on the host {}",
        schedule.waits.len(),
        invalidate(Invalidate::Agent),
        plan.barriers().count()
    )?;
    writeln!(
        out,
        "  because of: read after write {}, write after read {}, write after write {}",
        because(Hazard::Raw),
        because(Hazard::War),
        because(Hazard::Waw)
    )
}

/// Steps of the host: how many of each kind, what they compute and copy, and why.
fn host_steps(out: &mut String, plan: &Plan) -> fmt::Result {
    let steps: Vec<_> = plan.barriers().map(|(_, step)| step).collect();
    if steps.is_empty() {
        return Ok(());
    }
    let split = steps.iter().filter(|step| !step.body.launches().is_empty());
    let segments = plan.pieces().into_iter();
    let segments = segments.filter(|piece| matches!(piece, Piece::Segment(_)));
    let hosts = || steps.iter().filter_map(|step| step.body.host());
    let copied: u64 = hosts().map(|host| host.transfer_bytes()).sum();
    let rows: u64 = hosts().map(|host| host.rows()).sum();
    let split = split.count();
    writeln!(
        out,
        "\nhost      {} cpu steps, {split} split steps, {} segments of launches between them",
        steps.len() - split,
        segments.count()
    )?;
    writeln!(
        out,
        "  {rows} rows, {} weight bytes, {copied} bytes copied per token",
        traffic(plan, 0).host_weights
    )?;
    write!(out, "  matrices")?;
    for why in HostWhy::ALL {
        let parts = hosts().flat_map(|host| &host.parts);
        let count = parts.filter(|part| part.why == why).count();
        write!(out, " {} {count}", why.name())?;
    }
    writeln!(out)
}

fn speed(out: &mut String, plan: &Plan) -> fmt::Result {
    let last = plan.options.bucket.saturating_sub(1);
    let machine = &plan.machine;
    writeln!(out, "\ntoken     bytes by tier, and tokens/s at most")?;
    for position in [0, last] {
        let bytes = traffic(plan, position);
        write!(
            out,
            "  at position {position}: device weights {}, KV and state {}, over the link {}",
            bytes.device_weights, bytes.device_state, bytes.link
        )?;
        if bytes.host_weights > 0 {
            let (copied, host) = (bytes.copied, bytes.host_weights);
            write!(out, ", copied {copied}, by the host {host}")?;
        }
        match bound(plan, machine, position) {
            Some(bound) => writeln!(out, "; {:.1} tokens/s", bound.tokens_per_s)?,
            None => writeln!(out)?,
        }
    }
    writeln!(
        out,
        "  bound from {}'s stated {} MB/s of memory and {} MB/s of link ({}); nothing was measured",
        clean(&machine.name),
        machine.vram_mb_per_s,
        machine.link.mb_per_s,
        machine.link.kind.name()
    )
}
