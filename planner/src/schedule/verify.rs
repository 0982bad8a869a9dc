//! Judges a schedule without the code that made it.
//!
//! Every pair of steps between two waits is compared region by region, with the bytes of each region
//! worked out here from its extent. Nothing is taken from `edges` but what they claim.

use crate::plan::{
    Edge, Extent, Hazard, Invalidate, Launch, Plan, Region, Step, StepBody, StepId, Wait,
};

/// A fault of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two steps touch the same bytes with no sufficient wait between them.
    #[error(
        "step {to} ({to_name}) must wait for step {from} ({from_name}): {hazard:?} on buffer \
         {buffer}, bytes {begin}..{end}; put a wait {need} before a step in {first}..={to}"
    )]
    MissingWait {
        /// Earlier step.
        from: StepId,
        /// Its name.
        from_name: String,
        /// Later step.
        to: StepId,
        /// Its name.
        to_name: String,
        /// Kind of hazard.
        hazard: Hazard,
        /// Name of the buffer.
        buffer: String,
        /// First shared byte.
        begin: u64,
        /// End of the shared bytes.
        end: u64,
        /// Kind of wait that would do.
        need: &'static str,
        /// First step before which the wait would help.
        first: StepId,
    },
    /// An edge or wait that is out of order, out of range or unfounded.
    #[error("{what} {index}: {reason}")]
    Malformed {
        /// `edge` or `wait`.
        what: &'static str,
        /// Position in its list.
        index: usize,
        /// What is wrong.
        reason: String,
    },
}

/// First fault of the plan's schedule, if it has one.
pub fn verify(plan: &Plan) -> Result<(), Violation> {
    let schedule = &plan.schedule;
    check_edges(plan, &schedule.edges)?;
    check_waits(plan, &schedule.waits)?;
    let mut next_wait = schedule.waits.iter().peekable();
    let (mut last_wait, mut last_invalidate) = (0, 0);
    for (to, step) in plan.steps.iter().enumerate() {
        if step.body.is_barrier() {
            (last_wait, last_invalidate) = (to + 1, to + 1);
        }
        if let Some(wait) = next_wait.next_if(|wait| wait.before as usize == to) {
            last_wait = to;
            if wait.invalidate != Invalidate::None {
                last_invalidate = to;
            }
        }
        for (from, earlier) in plan.steps[..to].iter().enumerate().skip(last_invalidate) {
            let (Some(first), Some(second)) = (launch(earlier), launch(step)) else {
                continue;
            };
            let Some((hazard, region, shared)) = collision(first, second, from >= last_wait) else {
                continue;
            };
            let buffer = plan.buffers.get(region.buffer as usize);
            return Err(Violation::MissingWait {
                from: from as StepId,
                from_name: earlier.name.clone(),
                to: to as StepId,
                to_name: step.name.clone(),
                hazard,
                buffer: buffer.map_or_else(|| region.buffer.to_string(), |b| b.name.clone()),
                begin: shared.0,
                end: shared.1,
                need: if hazard == Hazard::Raw {
                    "with invalidation"
                } else {
                    "of any kind"
                },
                first: from as StepId + 1,
            });
        }
    }
    Ok(())
}

/// The launch of a step that is no barrier.
const fn launch(step: &Step) -> Option<&Launch> {
    match &step.body {
        StepBody::Launch(launch) => Some(launch),
        StepBody::Cpu(_) | StepBody::Split(_) => None,
    }
}

/// A hazard between two launches: read-after-write always, the two orders of writes if `unordered`.
fn collision<'a>(
    first: &'a Launch,
    second: &'a Launch,
    unordered: bool,
) -> Option<(Hazard, &'a Region, (u64, u64))> {
    let cases = [
        (Hazard::Raw, &first.writes, &second.reads, true),
        (Hazard::War, &first.reads, &second.writes, unordered),
        (Hazard::Waw, &first.writes, &second.writes, unordered),
    ];
    for (hazard, before, after, applies) in cases {
        if !applies {
            continue;
        }
        for a in before {
            for b in after {
                if let Some(shared) = shared(a, b) {
                    return Some((hazard, b, shared));
                }
            }
        }
    }
    None
}

/// Bytes that two regions may share: from the first byte of either at any word value to the last.
fn shared(a: &Region, b: &Region) -> Option<(u64, u64)> {
    if a.buffer != b.buffer {
        return None;
    }
    let (a, b) = (hull(a), hull(b));
    let (begin, end) = (a.0.max(b.0), a.1.min(b.1));
    (begin < end).then(|| {
        let narrow = |v: u128| u64::try_from(v).unwrap_or(u64::MAX);
        (narrow(begin), narrow(end))
    })
}

/// First and last byte over the word's range, in 128 bits so that no product can wrap.
fn hull(region: &Region) -> (u128, u128) {
    let start = u128::from(region.offset);
    let length = match region.extent {
        Extent::Fixed { bytes } => u128::from(bytes),
        Extent::Row { count: 0, .. } => 0,
        Extent::Row {
            stride,
            bytes,
            count,
            ..
        } => u128::from(count - 1) * u128::from(stride) + u128::from(bytes),
        Extent::RowsTo { stride, count, .. } => u128::from(count) * u128::from(stride),
    };
    (start, start + length)
}

fn check_edges(plan: &Plan, edges: &[Edge]) -> Result<(), Violation> {
    let malformed = |index, reason: String| {
        Err(Violation::Malformed {
            what: "edge",
            index,
            reason,
        })
    };
    let key = |edge: &Edge| (edge.to, edge.from, edge.hazard, edge.buffer);
    for (index, edge) in edges.iter().enumerate() {
        if index > 0 && key(&edges[index - 1]) >= key(edge) {
            return malformed(
                index,
                "edges are not sorted by (to, from, hazard, buffer)".into(),
            );
        }
        let (Some(from), Some(to)) = (
            plan.steps.get(edge.from as usize),
            plan.steps.get(edge.to as usize),
        ) else {
            let steps = plan.steps.len();
            return malformed(
                index,
                format!("{} -> {} of {steps} steps", edge.from, edge.to),
            );
        };
        if edge.from >= edge.to {
            return malformed(
                index,
                format!("{} -> {} goes backwards", edge.from, edge.to),
            );
        }
        let over = plan.steps[edge.from as usize..=edge.to as usize].iter();
        if let Some(barrier) = over.clone().find(|step| step.body.is_barrier()) {
            let (from, to) = (edge.from, edge.to);
            let reason = format!(
                "{from} -> {to} meets {}, which orders everything",
                barrier.name
            );
            return malformed(index, reason);
        }
        if !edge_exists(edge, from, to) {
            let reason = format!("{} and {} have no such hazard", from.name, to.name);
            return malformed(index, reason);
        }
    }
    Ok(())
}

fn edge_exists(edge: &Edge, from: &Step, to: &Step) -> bool {
    let (Some(first), Some(second)) = (launch(from), launch(to)) else {
        return false;
    };
    let (before, after) = match edge.hazard {
        Hazard::Raw => (&first.writes, &second.reads),
        Hazard::War => (&first.reads, &second.writes),
        Hazard::Waw => (&first.writes, &second.writes),
    };
    let here = |region: &&Region| region.buffer == edge.buffer;
    before
        .iter()
        .filter(here)
        .any(|a| after.iter().filter(here).any(|b| shared(a, b).is_some()))
}

fn check_waits(plan: &Plan, waits: &[Wait]) -> Result<(), Violation> {
    let malformed = |index, reason: String| {
        Err(Violation::Malformed {
            what: "wait",
            index,
            reason,
        })
    };
    let mut last = 0;
    for (index, wait) in waits.iter().enumerate() {
        if index > 0 && wait.before <= last {
            return malformed(
                index,
                format!("before step {} after one at {last}", wait.before),
            );
        }
        last = wait.before;
        let Some(edge) = plan.schedule.edges.get(wait.because as usize) else {
            let edges = plan.schedule.edges.len();
            return malformed(
                index,
                format!("because of edge {} of {edges}", wait.because),
            );
        };
        let next = waits.get(index + 1).map_or(StepId::MAX, |next| next.before);
        if edge.from >= wait.before || edge.to < wait.before || edge.to >= next {
            let (before, Edge { from, to, .. }) = (wait.before, edge);
            let reason = format!(
                "before step {before} because of edge {from} -> {to}, which it does not serve"
            );
            return malformed(index, reason);
        }
    }
    Ok(())
}
