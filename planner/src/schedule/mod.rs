//! Dependences between the launches of one token, and the fewest waits that honour them.
//!
//! [`edges`] finds every direct hazard from the declared regions, each taken over the whole range of
//! its word, so that an edge is absent only where no position can make the two meet. [`waits`] puts
//! a wait before a step exactly if some edge into it is not yet ordered by an earlier wait. [`order`]
//! sorts steps by the length of their dependence chain first, which makes the number of waits that
//! length less one. [`verify`] is written apart from all this and judges the result.
//!
//! Between two tokens there is always a full wait with invalidation, put there by the retained form
//! (head acquire and terminal wait) and by the stream in eager runs; edges stop at the token's end.

mod order;
mod verify;

pub use order::{arrange, levels, order};
pub use verify::{Violation, verify};

use crate::plan::{
    BufferId, Edge, Hazard, Invalidate, Region, Schedule, Step, StepBody, StepId, Wait,
};
use refrain_kernels::Target;
use std::collections::{BTreeSet, HashMap};

impl Step {
    /// Declared reads and writes.
    pub fn effects(&self) -> (&[Region], &[Region]) {
        match &self.body {
            StepBody::Launch(launch) => (&launch.reads, &launch.writes),
        }
    }
}

/// What a wait for pure write-after-read or write-after-write order invalidates on a target, and why.
///
/// pm4-aql 5.3: the readers' waves being done is enough in the documented memory model, and stores
/// reach the one L2 in order. A report from gfx1201 saw a writer overtake the model without an
/// acquire, so gfx12 takes the invalidation too until a card has shown that it is not needed.
pub fn write_order_invalidate(target: Target) -> Invalidate {
    match target {
        Target::Gfx1100 | Target::Gfx1151 => Invalidate::None,
        Target::Gfx1201 => Invalidate::Agent,
    }
}

/// Edges and waits for steps in this order.
pub fn build(steps: &[Step], target: Target) -> Schedule {
    let edges = edges(steps);
    let waits = waits(&edges, steps.len(), write_order_invalidate(target));
    Schedule { edges, waits }
}

/// An access that later steps may conflict with.
struct Access {
    step: StepId,
    write: bool,
    begin: u64,
    end: u64,
}

/// Direct dependences, sorted by (`to`, `from`, hazard, buffer).
///
/// An access stays live until a later step overwrites all its bytes at every word value: what comes
/// after is then ordered through that step.
pub fn edges(steps: &[Step]) -> Vec<Edge> {
    let written: BTreeSet<BufferId> = steps
        .iter()
        .flat_map(|step| step.effects().1)
        .map(|region| region.buffer)
        .collect();
    let mut live: HashMap<BufferId, Vec<Access>> = HashMap::new();
    let mut edges = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let step_id = index as StepId;
        let (reads, writes) = step.effects();
        let mut found = BTreeSet::new();
        for region in reads
            .iter()
            .filter(|region| written.contains(&region.buffer))
        {
            conflicts(&live, region, false, &mut found);
        }
        for region in writes {
            conflicts(&live, region, true, &mut found);
        }
        edges.extend(found.into_iter().map(|(from, hazard, buffer)| Edge {
            from,
            to: step_id,
            hazard,
            buffer,
        }));
        for region in writes {
            retire(&mut live, region);
        }
        let with_kind = |write| move |region: &Region| (*region, write);
        let accesses = reads
            .iter()
            .map(with_kind(false))
            .chain(writes.iter().map(with_kind(true)));
        for (region, write) in accesses.filter(|(region, _)| written.contains(&region.buffer)) {
            let (begin, end) = region.bound();
            let list = live.entry(region.buffer).or_default();
            list.push(Access {
                step: step_id,
                write,
                begin,
                end,
            });
        }
    }
    edges
}

fn conflicts(
    live: &HashMap<BufferId, Vec<Access>>,
    region: &Region,
    write: bool,
    found: &mut BTreeSet<(StepId, Hazard, BufferId)>,
) {
    let (begin, end) = region.bound();
    for access in live.get(&region.buffer).into_iter().flatten() {
        let hazard = match (access.write, write) {
            (false, false) => continue,
            (true, false) => Hazard::Raw,
            (false, true) => Hazard::War,
            (true, true) => Hazard::Waw,
        };
        if access.begin < end && begin < access.end {
            found.insert((access.step, hazard, region.buffer));
        }
    }
}

/// Takes the bytes that `region` overwrites whatever the words are out of the live accesses.
fn retire(live: &mut HashMap<BufferId, Vec<Access>>, region: &Region) {
    if !matches!(region.extent, crate::plan::Extent::Fixed { .. }) {
        return;
    }
    let (begin, end) = region.bound();
    let Some(list) = live.get_mut(&region.buffer) else {
        return;
    };
    let mut kept = Vec::with_capacity(list.len());
    for access in list.drain(..) {
        let Access { step, write, .. } = access;
        if access.end <= begin || end <= access.begin {
            kept.push(access);
            continue;
        }
        if access.begin < begin {
            kept.push(Access {
                step,
                write,
                begin: access.begin,
                end: begin,
            });
        }
        if end < access.end {
            kept.push(Access {
                step,
                write,
                begin: end,
                end: access.end,
            });
        }
    }
    *list = kept;
}

/// Fewest waits for `edges` (sorted by `to`) over `steps` steps in this order.
///
/// Greedy is minimal: a wait is put as late as the first step that needs one, so it covers the most
/// steps before it. Read-after-write needs a wait that invalidates, the other two only order; where
/// an order-only wait already stands between writer and reader, it is made to invalidate as well.
pub fn waits(edges: &[Edge], steps: usize, write_order: Invalidate) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Vec::new();
    // First steps not covered by any wait, and by any invalidating wait.
    let (mut ordered, mut fresh) = (0, 0);
    let mut next = 0;
    for step in 0..steps as StepId {
        let start = next;
        while edges.get(next).is_some_and(|edge| edge.to == step) {
            next += 1;
        }
        let into = (start..next).zip(&edges[start..next]);
        let stale = |edge: &Edge| edge.hazard == Hazard::Raw && edge.from >= fresh;
        let open = into.clone().filter(|(_, edge)| edge.from >= ordered);
        let raw = open.clone().find(|(_, edge)| edge.hazard == Hazard::Raw);
        let stale = into.clone().find(|(_, edge)| stale(edge));
        let invalidate = if stale.is_some() {
            Invalidate::Agent
        } else {
            write_order
        };
        // The reason given is the edge that asks the most, so that it also explains `invalidate`.
        if let Some((first, _)) = open.clone().next() {
            let because = raw.or(stale).map_or(first, |(because, _)| because) as u32;
            waits.push(Wait {
                before: step,
                invalidate,
                because,
            });
            ordered = step;
        } else if let (Some((because, _)), Some(last)) = (stale, waits.last_mut()) {
            last.invalidate = Invalidate::Agent;
            last.because = because as u32;
        } else {
            continue;
        }
        if waits
            .last()
            .is_some_and(|wait| wait.invalidate == Invalidate::Agent)
        {
            fresh = ordered;
        }
    }
    waits
}
