//! Places activation vectors in one scratch buffer by lifetime.
//!
//! Lifetimes are counted in levels of the dependence order, not in steps: steps of one level may run
//! at the same time, and between two levels there is a wait anyway. So memory that is reused one
//! level later adds edges but never a wait.

use crate::plan::{Arg, BufferId, Region, Step};
use std::collections::BTreeMap;

/// One vector to place.
struct Lifetime {
    value: BufferId,
    first: u32,
    last: u32,
    bytes: u64,
}

/// Moves the buffers `values..` of `steps` (in their final order, one level each in `levels`) into
/// `scratch` and returns its size. `sizes` are bytes of the values.
pub(super) fn place(
    steps: &mut [Step],
    levels: &[u32],
    values: BufferId,
    sizes: &[u64],
    scratch: BufferId,
    align: u64,
) -> u64 {
    let lifetimes = lifetimes(steps, levels, values, sizes);
    let (offsets, bytes) = assign(lifetimes, align);
    let moved = |buffer: &mut BufferId, offset: &mut u64| {
        if let Some(base) = offsets.get(buffer) {
            *buffer = scratch;
            *offset += base;
        }
    };
    for step in steps {
        for launch in step.body.launches_mut() {
            for arg in &mut launch.args {
                if let Arg::Region { buffer, offset } = arg {
                    moved(buffer, offset);
                }
            }
            for region in launch.reads.iter_mut().chain(&mut launch.writes) {
                let Region { buffer, offset, .. } = region;
                moved(buffer, offset);
            }
        }
        if let Some(host) = step.body.host_mut() {
            for at in host.places_mut() {
                moved(&mut at.buffer, &mut at.offset);
            }
            for region in host.reads.iter_mut().chain(&mut host.writes) {
                let Region { buffer, offset, .. } = region;
                moved(buffer, offset);
            }
        }
    }
    bytes
}

/// Levels in which each value is used, in order of first use.
fn lifetimes(steps: &[Step], levels: &[u32], values: BufferId, sizes: &[u64]) -> Vec<Lifetime> {
    let mut spans: BTreeMap<BufferId, (u32, u32)> = BTreeMap::new();
    for (step, level) in steps.iter().zip(levels) {
        let (reads, writes) = step.effects();
        for region in reads.chain(writes).filter(|region| region.buffer >= values) {
            let span = spans.entry(region.buffer).or_insert((*level, *level));
            *span = (span.0.min(*level), span.1.max(*level));
        }
    }
    let lifetime = |(value, (first, last)): (BufferId, (u32, u32))| {
        let bytes = sizes
            .get((value - values) as usize)
            .copied()
            .unwrap_or_default();
        Lifetime {
            value,
            first,
            last,
            bytes,
        }
    };
    let mut list: Vec<Lifetime> = spans.into_iter().map(lifetime).collect();
    list.sort_by_key(|lifetime| (lifetime.first, lifetime.value));
    list
}

/// First fit: each value at the lowest offset that is free in all its levels.
fn assign(lifetimes: Vec<Lifetime>, align: u64) -> (BTreeMap<BufferId, u64>, u64) {
    let mut offsets = BTreeMap::new();
    // (offset, end, last level) of values in use, by offset.
    let mut live: Vec<(u64, u64, u32)> = Vec::new();
    let mut bytes = 0;
    for Lifetime {
        value,
        first,
        last,
        bytes: size,
    } in lifetimes
    {
        live.retain(|(_, _, until)| *until >= first);
        let mut offset = 0u64;
        for (begin, end, _) in &live {
            if offset.saturating_add(size) <= *begin {
                break;
            }
            offset = offset.max(end.next_multiple_of(align));
        }
        let end = offset.saturating_add(size);
        let at = live.partition_point(|(begin, _, _)| *begin < offset);
        live.insert(at, (offset, end, last));
        offsets.insert(value, offset);
        bytes = bytes.max(end);
    }
    (offsets, bytes)
}
