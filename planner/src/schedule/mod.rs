//! Dependences between the launches of one token, and the fewest waits that honour them.
//!
//! [`edges`] finds every direct hazard from the declared regions, each taken over the whole range of
//! its word, so that an edge is absent only where no position can make the two meet. [`waits`] puts
//! a wait before a step exactly if some edge into it is not yet ordered by an earlier wait. [`order`]
//! sorts steps by the length of their dependence chain first, which makes the number of waits that
//! length less one. [`verify`] is written apart from all this and judges the result.
//!
//! A step of the host is a barrier: no edge and no wait crosses it, and nothing is moved over one that
//! depends on it.
//!
//! Between two tokens there is always a full wait with invalidation, put there by the retained form
//! (head acquire and terminal wait) and by the stream in eager runs; edges stop at the token's end.

mod order;
mod verify;

pub use order::{arrange, levels, order};
pub use verify::{Violation, verify};

use crate::plan::{BufferId, Edge, Hazard, Invalidate, Region, Schedule, Step, StepId, Wait};
use refrain_kernels::Target;
use std::collections::{BTreeSet, HashMap, HashSet};

impl Step {
    /// Declared reads and writes, of launches and of the host.
    pub fn effects(
        &self,
    ) -> (
        impl Iterator<Item = &Region> + Clone,
        impl Iterator<Item = &Region> + Clone,
    ) {
        let launches = || self.body.launches().iter();
        let host = self.body.host();
        let reads = host.map_or(&[][..], |host| &host.reads);
        let writes = host.map_or(&[][..], |host| &host.writes);
        (
            launches().flat_map(|launch| &launch.reads).chain(reads),
            launches().flat_map(|launch| &launch.writes).chain(writes),
        )
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
    begin: u64,
    end: u64,
}

/// Accesses of one buffer. Apart, because reads never conflict and some words are read by most steps.
#[derive(Default)]
struct Live {
    reads: Vec<Access>,
    writes: Vec<Access>,
}

/// Direct dependences between launches, sorted by (`to`, `from`, hazard, buffer). There is none into,
/// out of or over a barrier, which orders everything itself.
pub fn edges(steps: &[Step]) -> Vec<Edge> {
    direct(steps, true)
}

/// Direct dependences of all steps, whatever stands between them: what an order must keep.
fn dependences(steps: &[Step]) -> Vec<Edge> {
    direct(steps, false)
}

/// An access stays live until a later step overwrites all its bytes at every word value: what comes
/// after is then ordered through that step. Barriers end every access if they are to `cut`.
fn direct(steps: &[Step], cut: bool) -> Vec<Edge> {
    let written: HashSet<BufferId> = steps
        .iter()
        .flat_map(|step| step.effects().1)
        .map(|region| region.buffer)
        .collect();
    let mut live: HashMap<BufferId, Live> = HashMap::new();
    let mut edges = Vec::new();
    let mut found = BTreeSet::new();
    for (to, step) in steps.iter().enumerate() {
        if cut && step.body.is_barrier() {
            live.clear();
            continue;
        }
        let to = to as StepId;
        let (reads, writes) = step.effects();
        let reads = || {
            let reads = reads.clone();
            reads.filter(|region| written.contains(&region.buffer))
        };
        for region in reads() {
            let of = live.entry(region.buffer).or_default();
            conflicts(&of.writes, region, Hazard::Raw, &mut found);
        }
        for region in writes.clone() {
            let of = live.entry(region.buffer).or_default();
            conflicts(&of.reads, region, Hazard::War, &mut found);
            conflicts(&of.writes, region, Hazard::Waw, &mut found);
        }
        for (from, hazard, buffer) in std::mem::take(&mut found) {
            edges.push(Edge {
                from,
                to,
                hazard,
                buffer,
            });
        }
        for region in writes.clone() {
            let of = live.entry(region.buffer).or_default();
            retire(&mut of.reads, region);
            retire(&mut of.writes, region);
        }
        let access = |region: &Region| {
            let (begin, end) = region.bound();
            Access {
                step: to,
                begin,
                end,
            }
        };
        for region in reads() {
            let of = live.entry(region.buffer).or_default();
            of.reads.push(access(region));
        }
        for region in writes {
            let of = live.entry(region.buffer).or_default();
            of.writes.push(access(region));
        }
    }
    edges
}

fn conflicts(
    accesses: &[Access],
    region: &Region,
    hazard: Hazard,
    found: &mut BTreeSet<(StepId, Hazard, BufferId)>,
) {
    let (begin, end) = region.bound();
    let meeting = accesses
        .iter()
        .filter(|access| access.begin < end && begin < access.end);
    found.extend(meeting.map(|access| (access.step, hazard, region.buffer)));
}

/// Takes the bytes that `region` overwrites whatever the words are out of the live accesses.
fn retire(accesses: &mut Vec<Access>, region: &Region) {
    if !matches!(region.extent, crate::plan::Extent::Fixed { .. }) {
        return;
    }
    let (begin, end) = region.bound();
    if !accesses.iter().any(|a| a.begin < end && begin < a.end) {
        return;
    }
    let mut kept = Vec::with_capacity(accesses.len());
    for access in accesses.drain(..) {
        if access.end <= begin || end <= access.begin {
            kept.push(access);
            continue;
        }
        let Access {
            step,
            begin: first,
            end: last,
        } = access;
        if first < begin {
            kept.push(Access {
                step,
                begin: first,
                end: begin,
            });
        }
        if end < last {
            kept.push(Access {
                step,
                begin: end,
                end: last,
            });
        }
    }
    *accesses = kept;
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
