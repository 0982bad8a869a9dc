//! Rules H01 to H05, H07 and H08: order and caches between dispatches.
//!
//! A wait orders everything before it against everything after it. An invalidate only covers
//! data of dispatches that a wait before it has finished.

use super::context::{Node, Region};
use super::rules::{Rule, Severity};
use super::walk::{Step, Walk, Write};
use super::{Place, Sink};
use crate::aql::Scope;
use crate::state::snapshots;
use crate::tables::gcr;
use crate::target::Generation;

/// Cache controls that data of another launch can ask for.
const LEVELS: u32 = gcr::GLK_INV | gcr::GLV_INV | gcr::GL1_INV | gcr::GLM_INV | gcr::GLM_WB;

/// The invalidates among them.
const INVALIDATES: u32 = gcr::GLK_INV | gcr::GLV_INV | gcr::GL1_INV;

/// Checks ordering rules.
pub(super) fn check(words: &[u32], walk: &Walk, sink: &mut Sink<'_, '_>) {
    head(walk, sink);
    tail(walk, sink);
    if let Some(nodes) = sink.cx.nodes {
        order(walk, nodes, sink);
        produced(walk, nodes, sink);
        redundant(walk, nodes, sink);
    }
    if let Some(reference) = sink.cx.reference {
        elision(words, reference, walk, sink);
    }
}

fn head(walk: &Walk, sink: &mut Sink<'_, '_>) {
    let header = sink.cx.header;
    if header.is_some_and(|header| header.acquire == Scope::System) {
        return;
    }
    let first = walk
        .steps
        .iter()
        .position(|row| matches!(row.1, Step::Dispatch(_)));
    let Some(first) = first else { return };
    let seen = walk.steps[..first]
        .iter()
        .filter_map(|row| {
            if let Step::Acquire(word) = row.1 {
                Some(word)
            } else {
                None
            }
        })
        .fold(0, |all, word| all | word);
    let host = sink.cx.host.is_none_or(|host| !host.writes.is_empty());
    // Kernargs are written by the host whatever the contract says; data needs L2 as well.
    let mut need = gcr::GLK_INV | gcr::GLV_INV;
    if sink.cx.target.capability().gl1.value {
        need |= gcr::GL1_INV;
    }
    if host {
        need |= gcr::GL2_INV | gcr::GL2_WB;
    }
    if seen & need != need {
        let place = Place::Dispatch {
            index: 0,
            dword: walk.steps[first].0,
        };
        let found = format!("head acquire {seen:#x}");
        let row = sink.cx.target.capability().head_acquire.value;
        sink.add(
            Rule::H03,
            place,
            "ACQUIRE_MEM",
            found,
            format!("for example {row:#x}"),
        );
    }
}

fn tail(walk: &Walk, sink: &mut Sink<'_, '_>) {
    let last_dispatch = walk
        .steps
        .iter()
        .rposition(|row| matches!(row.1, Step::Dispatch(_)));
    let Some(last) = last_dispatch else { return };
    // Cache maintenance may follow the wait; another dispatch or register write may not.
    let all = walk.snapshots.len();
    let wait = walk.steps[last..]
        .iter()
        .rposition(|row| row.1 == Step::Wait(all));
    let after = wait.map_or(&walk.steps[last..], |at| &walk.steps[last + at + 1..]);
    let only_maintenance = after
        .iter()
        .all(|row| matches!(row.1, Step::Acquire(_) | Step::WriteBack));
    if wait.is_none() || !only_maintenance {
        let place = walk
            .steps
            .last()
            .map_or(Place::Whole, |row| Place::Dword(row.0));
        sink.add(
            Rule::H04,
            place,
            "last packet",
            "no terminal wait",
            "CS_PARTIAL_FLUSH",
        );
    }
    let reads = sink.cx.host.is_some_and(|host| !host.reads.is_empty());
    let released = sink
        .cx
        .header
        .is_some_and(|header| header.release == Scope::System);
    let written_back = after.iter().any(|row| match row.1 {
        Step::Acquire(word) => word & gcr::GL2_WB != 0,
        Step::WriteBack => true,
        _ => false,
    });
    if reads && !released && !written_back {
        let expected = "GL2_WB at the end, or header release at system scope";
        let dword = walk.steps[last].0;
        let (severity, place) = (Severity::Hazard, Place::Dword(dword));
        sink.add_as(
            severity,
            Rule::H04,
            place,
            "host-read outputs",
            "no writeback",
            expected,
        );
    }
}

/// First overlapping pair of two region lists.
fn overlap<'r>(a: &'r [Region], b: &'r [Region]) -> Option<(&'r Region, &'r Region)> {
    a.iter().find_map(|x| {
        b.iter()
            .find(|y| x.range.overlaps(&y.range))
            .map(|y| (x, y))
    })
}

/// The hazard between an earlier and a later node, if their regions meet.
fn conflict(earlier: &Node, later: &Node) -> Option<(&'static str, Region)> {
    let kinds = [
        ("read after write", overlap(&earlier.writes, &later.reads)),
        ("write after write", overlap(&earlier.writes, &later.writes)),
        ("write after read", overlap(&earlier.reads, &later.writes)),
    ];
    kinds
        .into_iter()
        .find_map(|(kind, pair)| pair.map(|(_, region)| (kind, *region)))
}

/// How many leading dispatches each cache's last invalidate covers.
#[derive(Clone, Copy, Default)]
struct Covered {
    vector: usize,
    shared: usize,
    scalar: usize,
}

fn order(walk: &Walk, nodes: &[Node], sink: &mut Sink<'_, '_>) {
    let gl1 = sink.cx.target.capability().gl1.value;
    let gfx12 = sink.cx.target.generation() == Generation::Gfx12;
    let mut waited = 0;
    let mut covered = Covered::default();
    for (dword, step) in &walk.steps {
        match step {
            Step::Wait(number) => waited = waited.max(*number),
            Step::Acquire(word) => {
                let update = |bit: u32, slot: &mut usize| {
                    if word & bit != 0 {
                        *slot = waited;
                    }
                };
                update(gcr::GLV_INV, &mut covered.vector);
                update(gcr::GL1_INV, &mut covered.shared);
                update(gcr::GLK_INV, &mut covered.scalar);
            }
            Step::Dispatch(index) => {
                let place = Place::Dispatch {
                    index: *index,
                    dword: *dword,
                };
                let Some(node) = nodes.get(*index) else {
                    continue;
                };
                let earlier = nodes.get(waited..*index).unwrap_or(&[]);
                for (i, other) in earlier.iter().enumerate() {
                    if let Some((kind, region)) = conflict(other, node) {
                        let found = format!(
                            "{kind} on {} bytes at {:#x} with dispatch {}",
                            region.range.bytes,
                            region.range.base,
                            waited + i
                        );
                        sink.add(Rule::H01, place, "wait", found, "CS_PARTIAL_FLUSH between");
                    }
                }
                stale(nodes, node, waited, covered, gl1, place, sink);
                if gfx12 {
                    reused(nodes, node, waited, covered, place, sink);
                }
            }
            Step::WriteBack | Step::Write(_) | Step::Other => {}
        }
    }
}

fn stale(
    nodes: &[Node],
    node: &Node,
    waited: usize,
    covered: Covered,
    gl1: bool,
    place: Place,
    sink: &mut Sink<'_, '_>,
) {
    let vector = if gl1 {
        covered.vector.min(covered.shared)
    } else {
        covered.vector
    };
    let oldest = vector.min(covered.scalar).min(waited);
    for (producer, before) in nodes.iter().enumerate().take(waited).skip(oldest) {
        for region in &node.reads {
            if !before
                .writes
                .iter()
                .any(|row| row.range.overlaps(&region.range))
            {
                continue;
            }
            let missing = [
                (producer >= covered.vector, "GLV_INV"),
                (gl1 && producer >= covered.shared, "GL1_INV"),
                (region.scalar && producer >= covered.scalar, "GLK_INV"),
            ];
            for (_, name) in missing.iter().filter(|row| row.0) {
                let found = format!(
                    "{} bytes at {:#x} written by dispatch {producer}",
                    region.range.bytes, region.range.base
                );
                let expected = "ACQUIRE_MEM between, behind the wait";
                sink.add(Rule::H02, place, *name, found, expected);
            }
        }
    }
}

fn reused(
    nodes: &[Node],
    node: &Node,
    waited: usize,
    covered: Covered,
    place: Place,
    sink: &mut Sink<'_, '_>,
) {
    let first = covered.vector.min(waited);
    for (reader, before) in nodes.iter().enumerate().take(waited).skip(first) {
        if let Some((_, region)) = overlap(&before.reads, &node.writes) {
            let found = format!(
                "{} bytes at {:#x} read by dispatch {reader}",
                region.range.bytes, region.range.base
            );
            sink.add(
                Rule::H05,
                place,
                "write after read",
                found,
                "ACQUIRE_MEM with GLV_INV",
            );
        }
    }
}

/// Writes of the packet processor against the launches around them: launches that still run when
/// it writes, and launches that read or overwrite what it has not confirmed or invalidated.
fn produced(walk: &Walk, nodes: &[Node], sink: &mut Sink<'_, '_>) {
    if walk.writes.is_empty() {
        return;
    }
    let mut need = gcr::GLV_INV | gcr::GLK_INV;
    if sink.cx.target.capability().gl1.value {
        need |= gcr::GL1_INV;
    }
    let mut waited = 0;
    let mut launched = 0;
    // Writes so far: index, finished, and the invalidates since.
    let mut open: Vec<(usize, bool, u32)> = Vec::new();
    for (dword, step) in &walk.steps {
        match step {
            Step::Wait(number) => {
                waited = waited.max(*number);
                // Only a wait for its value shows that a release has written; CS_PARTIAL_FLUSH
                // waits for waves.
                let ended = walk.ended.iter().find(|row| row.0 == *dword);
                for (at, done, _) in &mut open {
                    *done |= walk.writes[*at].end_of_pipe && ended.is_some_and(|row| *at <= row.1);
                }
            }
            Step::Acquire(word) => {
                for (_, done, seen) in &mut open {
                    if *done {
                        *seen |= word;
                    }
                }
            }
            Step::Write(at) => {
                let row = &walk.writes[*at];
                // A release writes when the launches before it have ended.
                let running = if row.end_of_pipe { launched } else { waited };
                let rows = nodes.get(running..launched).unwrap_or(&[]);
                let meets = |node: &Node| {
                    let mut regions = node.reads.iter().chain(&node.writes);
                    regions.any(|region| region.range.overlaps(&row.range))
                };
                if let Some(index) = rows.iter().position(meets) {
                    let place = Place::Dword(*dword);
                    let found = format!("written while dispatch {} runs", running + index);
                    sink.add(Rule::H01, place, row.name, found, "CS_PARTIAL_FLUSH before");
                }
                open.push((*at, row.confirmed, 0));
            }
            Step::Dispatch(index) => {
                launched = index + 1;
                let place = Place::Dispatch {
                    index: *index,
                    dword: *dword,
                };
                if let Some(node) = nodes.get(*index) {
                    for (at, done, seen) in &open {
                        let state = (*done, need & !seen);
                        consumed(&walk.writes[*at], node, state, place, sink);
                    }
                }
            }
            Step::WriteBack | Step::Other => {}
        }
    }
}

/// One launch behind one write: `state` is whether the write has ended, and the invalidates that
/// have not followed.
fn consumed(
    row: &Write,
    node: &Node,
    (done, missing): (bool, u32),
    place: Place,
    sink: &mut Sink<'_, '_>,
) {
    let found = format!(
        "{} bytes at {:#x} written by {} at dword {}",
        row.range.bytes, row.range.base, row.name, row.dword
    );
    let overwrites = node
        .writes
        .iter()
        .any(|region| region.range.overlaps(&row.range));
    let mut reads = node
        .reads
        .iter()
        .filter(|region| region.range.overlaps(&row.range));
    let first = reads.next();
    let scalar = first.is_some_and(|row| row.scalar) || reads.any(|row| row.scalar);
    if !done && (overwrites || first.is_some()) {
        let rule = if first.is_some() {
            Rule::H02
        } else {
            Rule::H01
        };
        let expected = "a confirmed write, or a wait for it";
        sink.add(rule, place, "WR_CONFIRM", found.clone(), expected);
        return;
    }
    for (bit, name) in [
        (gcr::GLV_INV, "GLV_INV"),
        (gcr::GL1_INV, "GL1_INV"),
        (gcr::GLK_INV, "GLK_INV"),
    ] {
        let asked = bit != gcr::GLK_INV || scalar;
        if first.is_some() && asked && missing & bit != 0 {
            let expected = "ACQUIRE_MEM behind the write";
            sink.add(Rule::H02, place, name, found.clone(), expected);
        }
    }
}

/// Waits and invalidates without a hazard, and L2 operations inside the buffer.
fn redundant(walk: &Walk, nodes: &[Node], sink: &mut Sink<'_, '_>) {
    let first = walk
        .steps
        .iter()
        .position(|row| matches!(row.1, Step::Dispatch(_)));
    let last = walk
        .steps
        .iter()
        .rposition(|row| matches!(row.1, Step::Dispatch(_)));
    let (Some(first), Some(last)) = (first, last) else {
        return;
    };
    let war = sink.cx.target.capability().war_needs_acquire.value;
    // Launches that no node describes may need anything.
    let described = nodes.len() >= walk.snapshots.len();
    // A wait is needed when a dispatch of its left epoch meets one of its right epoch.
    let mut left = 0;
    let mut seen = 0;
    let mut covered = 0;
    for (at, (dword, step)) in walk.steps.iter().enumerate().take(last).skip(first) {
        match step {
            Step::Dispatch(index) => seen = index + 1,
            Step::Wait(number) => {
                seen = *number;
                let right = walk.steps[at + 1..]
                    .iter()
                    .take_while(|row| !row.1.is_wait())
                    .filter(|row| matches!(row.1, Step::Dispatch(_)))
                    .count();
                // A wait in front of a write or behind a release is judged with the write.
                let writes = walk.steps[at + 1..]
                    .iter()
                    .take_while(|row| !row.1.is_wait())
                    .any(|row| matches!(row.1, Step::Write(_)));
                if described && !writes && !meet(nodes, left, seen, seen + right) {
                    let (severity, place) = (Severity::Warning, Place::Dword(*dword));
                    let expected = "a hazard across it";
                    sink.add_as(severity, Rule::H08, place, "wait", "no hazard", expected);
                }
                left = seen;
            }
            // Launches share one L2 and never change code, so only these levels can be stale.
            Step::Acquire(word) if word & !LEVELS != 0 => {
                let found = format!("{word:#x}");
                let expected = "L0, L1 and scalar invalidates only: all launches share one L2";
                let (severity, place) = (Severity::Warning, Place::Dword(*dword));
                sink.add_as(severity, Rule::H08, place, "GCR_CNTL", found, expected);
            }
            Step::Acquire(word) if word & INVALIDATES != 0 => {
                let needed = || stale_later(nodes, covered, left, seen, war);
                if !described || !walk.writes.is_empty() || needed() {
                    covered = left.max(covered);
                    continue;
                }
                let (severity, place) = (Severity::Warning, Place::Dword(*dword));
                let found = "no later launch reads what earlier ones wrote";
                let expected = "data to invalidate";
                sink.add_as(severity, Rule::H08, place, "ACQUIRE_MEM", found, expected);
            }
            _ => {}
        }
    }
    let mut waits = walk.steps[last..].iter().filter(|row| row.1.is_wait());
    waits.next();
    for (dword, _) in waits {
        let (severity, place) = (Severity::Warning, Place::Dword(*dword));
        let expected = "one wait behind the last dispatch";
        sink.add_as(severity, Rule::H08, place, "wait", "another", expected);
    }
}

/// True when an invalidate behind the wait for `waited` dispatches serves a later launch, `covered`
/// of them being covered before: one that reads what they wrote, or, where writers that reuse a
/// buffer need it, writes what they read.
fn stale_later(nodes: &[Node], covered: usize, waited: usize, next: usize, war: bool) -> bool {
    let before = nodes.get(covered..waited).unwrap_or_default();
    let later = nodes.get(next..).unwrap_or_default();
    // Most invalidates serve the next launch, so the search ends soon.
    later.iter().any(|node| {
        before.iter().any(|row| {
            overlap(&row.writes, &node.reads).is_some()
                || war && overlap(&row.reads, &node.writes).is_some()
        })
    })
}

/// True when a node of `[a, b)` conflicts with one of `[b, c)`.
fn meet(nodes: &[Node], a: usize, b: usize, c: usize) -> bool {
    let left = nodes.get(a..b).unwrap_or_default();
    let right = nodes.get(b..c).unwrap_or_default();
    left.iter()
        .any(|x| right.iter().any(|y| conflict(x, y).is_some()))
}

fn elision(words: &[u32], reference: &[u32], walk: &Walk, sink: &mut Sink<'_, '_>) {
    let Ok(full) = snapshots(reference) else {
        sink.add(
            Rule::H07,
            Place::Whole,
            "reference stream",
            "undecodable",
            "a full stream",
        );
        return;
    };
    if full.len() != walk.snapshots.len() {
        let found = format!(
            "{} dispatches in {} dwords",
            walk.snapshots.len(),
            words.len()
        );
        sink.add(
            Rule::H07,
            Place::Whole,
            "dispatches",
            found,
            format!("{}", full.len()),
        );
    }
    for (index, (mine, want)) in walk.snapshots.iter().zip(&full).enumerate() {
        if mine.same_work(want) {
            continue;
        }
        let place = Place::Dispatch {
            index,
            dword: mine.offset,
        };
        let differs = want
            .state
            .iter()
            .find(|(at, value)| mine.state.get(*at) != Some(*value))
            .map(|(at, value)| (at, mine.state.get(at), value));
        let (found, expected) = match differs {
            Some((at, Some(found), value)) => {
                (format!("{at:#x} = {found:#010x}"), format!("{value:#010x}"))
            }
            Some((at, None, value)) => (format!("{at:#x} unset"), format!("{value:#010x}")),
            None => (
                "other dimensions, initiator or extra registers".to_owned(),
                "the same".to_owned(),
            ),
        };
        sink.add(Rule::H07, place, "register file", found, expected);
    }
}
