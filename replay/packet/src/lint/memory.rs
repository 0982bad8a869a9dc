//! Rules H06, H09 and H10: where launches read and write.

use super::context::{Context, Holds, Node, Range, Region};
use super::rules::Rule;
use super::walk::Walk;
use super::{Place, Sink};

/// Bytes of a kernel descriptor.
const DESCRIPTOR_BYTES: u64 = crate::tables::objects::descriptor::BYTES as u64;

/// Checks memory rules.
pub(super) fn check(walk: &Walk, sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let Some(nodes) = cx.nodes else { return };
    for (index, node) in nodes.iter().enumerate() {
        let dword = walk.snapshots.get(index).map_or(0, |shot| shot.offset);
        let place = Place::Dispatch { index, dword };
        live(cx, node, place, sink);
        if !node.declared_self_modifying {
            modifies(cx, nodes, node, place, sink);
        }
    }
    written(cx, nodes, walk, sink);
    in_flight(cx, nodes, walk, sink);
}

fn text(range: &Range) -> String {
    format!("{} bytes at {:#x}", range.bytes, range.base)
}

fn live(cx: &Context<'_>, node: &Node, place: Place, sink: &mut Sink<'_, '_>) {
    if cx.allocations.is_none() {
        return;
    }
    for region in node.reads.iter().chain(&node.writes) {
        match cx.containing(&region.range) {
            None => {
                let expected = "inside a live, visible allocation";
                sink.add(Rule::H06, place, "region", text(&region.range), expected);
            }
            Some(row) if row.holds == Holds::Aperture => {
                let found = format!("{} in {}", text(&region.range), row.name);
                sink.add(Rule::H06, place, "region", found, "not scratch or LDS");
            }
            Some(row) if row.generation != region.generation => {
                let found = format!("generation {} of {}", region.generation, row.name);
                sink.add(
                    Rule::H06,
                    place,
                    "region",
                    found,
                    format!("{}", row.generation),
                );
            }
            Some(_) => {}
        }
    }
}

/// What must not be written under an address range: packets, code, kernargs.
fn protected(cx: &Context<'_>, nodes: &[Node], range: &Range, mut hit: impl FnMut(String)) {
    if cx.ib.is_some_and(|ib| ib.range.overlaps(range)) {
        hit("indirect buffer".to_owned());
    }
    if cx
        .queue
        .is_some_and(|queue| Range::new(queue.base, queue.size.saturating_mul(64)).overlaps(range))
    {
        hit("ring".to_owned());
    }
    for row in cx.allocations.unwrap_or(&[]) {
        let packets = matches!(row.holds, Holds::Code | Holds::Ib | Holds::Ring);
        if packets && row.range.overlaps(range) {
            hit(row.name.clone());
        }
    }
    for row in cx.kernels.unwrap_or(&[]) {
        if Range::new(row.descriptor_va, DESCRIPTOR_BYTES).overlaps(range) {
            hit(format!("descriptor of {}", row.symbol));
        }
    }
    for (other, theirs) in nodes.iter().enumerate() {
        if theirs.kernarg.overlaps(range) {
            hit(format!("kernargs of dispatch {other}"));
        }
    }
}

fn modifies(cx: &Context<'_>, nodes: &[Node], node: &Node, place: Place, sink: &mut Sink<'_, '_>) {
    for region in &node.writes {
        protected(cx, nodes, &region.range, |what| {
            let expected = "not written by a launch";
            sink.add(Rule::H10, place, what, text(&region.range), expected);
        });
    }
}

/// H10 for writes by the packet processor.
fn written(cx: &Context<'_>, nodes: &[Node], walk: &Walk, sink: &mut Sink<'_, '_>) {
    for row in &walk.writes {
        protected(cx, nodes, &row.range, |what| {
            let found = format!("{} by {}", text(&row.range), row.name);
            let place = Place::Dword(row.dword);
            sink.add(Rule::H10, place, what, found, "not written by a packet");
        });
    }
}

fn in_flight(cx: &Context<'_>, nodes: &[Node], walk: &Walk, sink: &mut Sink<'_, '_>) {
    let barrier = cx.header.is_some_and(|header| header.barrier);
    if barrier {
        return;
    }
    let meet = |regions: &[Region], ranges: &[Range]| {
        let mut regions = regions.iter();
        regions.any(|row| ranges.iter().any(|other| other.overlaps(&row.range)))
    };
    for (other, flight) in cx.in_flight.unwrap_or(&[]).iter().enumerate() {
        for (index, node) in nodes.iter().enumerate() {
            let dword = walk.snapshots.get(index).map_or(0, |shot| shot.offset);
            let place = Place::Dispatch { index, dword };
            let mut kernargs = flight.kernargs.iter();
            let shares = kernargs.any(|row| row.overlaps(&node.kernarg));
            let scratch = flight.scratch
                && node
                    .kernel
                    .and_then(|kernel| cx.kernels.and_then(|rows| rows.get(kernel)))
                    .is_some_and(|kernel| kernel.descriptor.private_segment_fixed_size != 0);
            for (hit, what) in [
                (shares, "kernargs"),
                (meet(&node.writes, &flight.writes), "output"),
                (meet(&node.reads, &flight.writes), "input"),
                (meet(&node.writes, &flight.reads), "their input"),
                (scratch, "queue scratch"),
            ] {
                if hit {
                    let found = format!("shared with buffer {other} in flight");
                    let expected = "barrier bit, or memory of its own";
                    sink.add(Rule::H09, place, what, found, expected);
                }
            }
        }
    }
}
