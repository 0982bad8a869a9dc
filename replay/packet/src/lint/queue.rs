//! Rules A02 to A04, A09, A11, A12, A16 and A17: queue, signals and the event log.

use std::collections::{BTreeMap, BTreeSet};

use super::context::{Event, Holds, QueueInfo, Range};
use super::rules::{Rule, Severity};
use super::{Place, Sink};
use crate::aql::decode::{AqlPacket, decode};
use crate::kd::property;

/// Alignment of `amd_signal_t` in bytes.
const SIGNAL_ALIGN: u64 = crate::tables::objects::SIGNAL.align as u64;

/// Checks rules that look at more than one packet.
pub(super) fn check(packets: &[[u8; 64]], sink: &mut Sink<'_, '_>) {
    if let Some(queue) = sink.cx.queue {
        ring(queue, sink);
    }
    if let Some(events) = sink.cx.events {
        publication(events, sink);
        if let Some(queue) = sink.cx.queue {
            indices(queue, events, sink);
        }
        in_flight(packets, events, sink);
    }
    kernargs(packets, sink);
    deadlock(packets, sink);
    signals(packets, sink);
}

fn ring(queue: &QueueInfo, sink: &mut Sink<'_, '_>) {
    let place = Place::Whole;
    if !queue.size.is_power_of_two() || !(64..=131_072).contains(&queue.size) {
        let found = format!("{} packets", queue.size);
        sink.add(
            Rule::A04,
            place,
            "ring size",
            found,
            "a power of two, 64 to 131072",
        );
    }
    if queue.base == 0 || !queue.base.is_multiple_of(4096) {
        let found = format!("{:#x}", queue.base);
        let severity = if queue.base.is_multiple_of(64) && queue.base != 0 {
            Severity::Warning
        } else {
            Severity::Error
        };
        sink.add_as(
            severity,
            Rule::A04,
            place,
            "ring base",
            found,
            "4 KiB aligned",
        );
    }
    // Trap handler, debugger SGPRs, profiling.
    const TOOLS: u32 = 1 | 1 << 2 | 1 << 3;
    if queue.properties & TOOLS != 0 || queue.intercepted {
        let found = format!(
            "properties {:#x}, intercepted {}",
            queue.properties, queue.intercepted
        );
        sink.add(
            Rule::A17,
            place,
            "queue",
            found,
            "no trap handler, profiler or interceptor",
        );
    }
}

/// A02: per packet id, body stores come before one 32-bit release store of the header.
fn publication(events: &[Event], sink: &mut Sink<'_, '_>) {
    let mut published = BTreeSet::new();
    let mut bodies = BTreeSet::new();
    for (at, event) in events.iter().enumerate() {
        let place = Place::Event(at);
        match *event {
            Event::Body { id } => {
                bodies.insert(id);
                if published.contains(&id) {
                    let found = format!("body of packet {id} stored behind its header");
                    sink.add(Rule::A02, place, "body store", found, "before the header");
                }
            }
            Event::Header { id, bits, release } => {
                if bits != 32 || !release {
                    let found = format!("{bits}-bit store, release {release}");
                    sink.add(
                        Rule::A02,
                        place,
                        "header store",
                        found,
                        "32-bit release store",
                    );
                }
                if !bodies.contains(&id) {
                    let found = format!("header of packet {id} without a body store");
                    sink.add(Rule::A02, place, "header store", found, "body first");
                }
                published.insert(id);
            }
            _ => {}
        }
    }
}

/// A03: reservation, room and doorbells.
fn indices(queue: &QueueInfo, events: &[Event], sink: &mut Sink<'_, '_>) {
    let (mut write, mut read) = (queue.first_id, queue.read_id);
    let mut published = BTreeSet::new();
    let mut doorbell = None;
    for (at, event) in events.iter().enumerate() {
        let place = Place::Event(at);
        match *event {
            Event::Reserve { count } => write = write.saturating_add(count),
            Event::Read { index } => read = index,
            Event::Body { id } if id.saturating_sub(read) >= queue.size => {
                let found = format!("packet {id} stored while read index is {read}");
                let expected = format!("at most {} packets ahead", queue.size);
                sink.add(Rule::A03, place, "ring", found, expected);
            }
            Event::Header { id, .. } => {
                published.insert(id);
            }
            Event::Doorbell { value } => {
                let back = doorbell.is_some_and(|last| value < last);
                if back || value >= write {
                    let found = format!("{value}, last reserved {}", write.saturating_sub(1));
                    let expected = "the id of a reserved packet, never lower than before";
                    sink.add(Rule::A03, place, "doorbell", found, expected);
                }
                doorbell = Some(value);
            }
            _ => {}
        }
    }
    if write.saturating_sub(read) > queue.size {
        let found = format!("write {write}, read {read}");
        sink.add(
            Rule::A03,
            Place::Whole,
            "ring",
            found,
            format!("at most {} apart", queue.size),
        );
    }
    if let Some(value) = doorbell {
        let known = queue.first_id..=value.min(queue.first_id.saturating_add(131_072));
        if let Some(id) = known.into_iter().find(|id| !published.contains(id)) {
            let found = format!("packet {id} still INVALID behind doorbell {value}");
            sink.add(
                Rule::A03,
                Place::Whole,
                "doorbell",
                found,
                "published packets",
            );
        }
    }
}

/// A16 and A12: stores to buffers and reuse of signals while packets run.
fn in_flight(packets: &[[u8; 64]], events: &[Event], sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let first = cx.queue.map_or(0, |queue| queue.first_id);
    let mut running: BTreeSet<u64> = BTreeSet::new();
    // Packets whose completion signal the host has not waited for.
    let mut open: BTreeSet<u64> = BTreeSet::new();
    let decoded = |id: u64| {
        let index = usize::try_from(id.checked_sub(first)?).ok()?;
        packets.get(index).map(decode)
    };
    for (at, event) in events.iter().enumerate() {
        let place = Place::Event(at);
        match *event {
            Event::Header { id, .. } => {
                running.insert(id);
                open.insert(id);
            }
            Event::Waited { handle } if handle != 0 => {
                let other =
                    |id: &u64| decoded(*id).is_none_or(|row| completion(&row.packet) != handle);
                running.retain(other);
                open.retain(other);
            }
            Event::Complete { id } => {
                running.remove(&id);
            }
            Event::Store { range } | Event::Free { range } if cx.allocations.is_some() => {
                for id in &running {
                    if let Some(AqlPacket::Pm4Ib { packet, .. }) =
                        decoded(*id).map(|row| row.packet)
                        && Range::new(packet.address, u64::from(packet.dwords) * 4).overlaps(&range)
                    {
                        let found = format!("{} bytes at {:#x}", range.bytes, range.base);
                        let expected = format!("unchanged while packet {id} runs");
                        sink.add(Rule::A16, place, "indirect buffer", found, expected);
                    }
                }
            }
            Event::SignalStore { handle } if cx.signals.is_some() && handle != 0 => {
                let user = open
                    .iter()
                    .find(|id| decoded(**id).is_some_and(|row| completion(&row.packet) == handle));
                if let Some(id) = user {
                    let state = if running.contains(id) {
                        "runs"
                    } else {
                        "is not waited for"
                    };
                    let found = format!("signal {handle:#x} stored while packet {id} {state}");
                    sink.add(Rule::A12, place, "signal", found, "a wait before reuse");
                }
            }
            _ => {}
        }
    }
}

/// Completion signal of a packet, 0 for none.
fn completion(packet: &AqlPacket) -> u64 {
    match packet {
        AqlPacket::KernelDispatch(row) => row.completion_signal,
        AqlPacket::BarrierAnd(row) | AqlPacket::BarrierOr(row) => row.completion_signal,
        AqlPacket::Pm4Ib { packet, .. } => packet.completion_signal,
        AqlPacket::AgentDispatch {
            completion_signal, ..
        } => *completion_signal,
        AqlPacket::Vendor { .. } | AqlPacket::Invalid | AqlPacket::Unknown { .. } => 0,
    }
}

/// A09: kernarg ranges of the batch against each other, outputs, buffers and the ring.
fn kernargs(packets: &[[u8; 64]], sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    if cx.kernels.is_none() {
        return;
    }
    let mut ranges: Vec<(u64, u64, usize)> = Vec::new();
    for (index, bytes) in packets.iter().enumerate() {
        let AqlPacket::KernelDispatch(packet) = decode(bytes).packet else {
            continue;
        };
        let Some(kernel) = cx.kernel_at_object(packet.kernel_object) else {
            continue;
        };
        let size = u64::from(kernel.descriptor.kernarg_size);
        let used = kernel.descriptor.properties & property::KERNARG_SEGMENT_PTR != 0;
        if used && size != 0 && packet.kernarg_address != 0 {
            ranges.push((packet.kernarg_address, size, index));
        }
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let (a, b) = (
            Range::new(pair[0].0, pair[0].1),
            Range::new(pair[1].0, pair[1].1),
        );
        if a.overlaps(&b) {
            let found = format!("{} bytes at {:#x}", a.bytes, a.base);
            let expected = format!("apart from packet {}", pair[1].2);
            sink.add(
                Rule::A09,
                Place::Packet(pair[0].2),
                "kernarg range",
                found,
                expected,
            );
        }
    }
    let ring = cx
        .queue
        .map(|queue| Range::new(queue.base, queue.size.saturating_mul(64)));
    for (base, bytes, index) in ranges {
        let range = Range::new(base, bytes);
        let mut hit = |what: &str| {
            let found = format!("{bytes} bytes at {base:#x}");
            let expected = format!("apart from {what}");
            sink.add(
                Rule::A09,
                Place::Packet(index),
                "kernarg range",
                found,
                expected,
            );
        };
        if ring.is_some_and(|ring| ring.overlaps(&range)) {
            hit("the ring");
        }
        let foreign = |holds| matches!(holds, Holds::Ib | Holds::Ring | Holds::Code);
        for row in cx.allocations.unwrap_or(&[]) {
            if foreign(row.holds) && row.range.overlaps(&range) {
                hit(&row.name);
            }
        }
        for node in cx.nodes.unwrap_or(&[]) {
            if node.writes.iter().any(|row| row.range.overlaps(&range)) {
                hit("an output");
            }
        }
    }
}

/// A11: a barrier whose signals only later packets complete, across all given queues.
fn deadlock(packets: &[[u8; 64]], sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let peers = cx.peers.unwrap_or(&[]);
    let queues: Vec<Vec<AqlPacket>> = std::iter::once(packets)
        .chain(peers.iter().map(Vec::as_slice))
        .map(|queue| queue.iter().map(|bytes| decode(bytes).packet).collect())
        .collect();
    freed_dependencies(&queues, sink);
    // Retire packets in queue order until nothing moves: what is left can never start.
    let mut next = vec![0; queues.len()];
    let mut pending: BTreeMap<u64, usize> = BTreeMap::new();
    for packet in queues.iter().flatten() {
        let signal = completion(packet);
        if signal != 0 {
            *pending.entry(signal).or_default() += 1;
        }
    }
    loop {
        let mut moved = false;
        for (queue, at) in queues.iter().zip(next.iter_mut()) {
            while let Some(packet) = queue.get(*at) {
                if !satisfied(packet, &pending) {
                    break;
                }
                let signal = completion(packet);
                if let Some(left) = pending.get_mut(&signal) {
                    *left = left.saturating_sub(1);
                }
                *at += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if let (Some(queue), Some(&at)) = (queues.first(), next.first())
        && at < queue.len()
    {
        let found = "waits for a signal that only later or blocked packets complete";
        let expected = "signals of earlier packets";
        sink.add(Rule::A11, Place::Packet(at), "dep_signal", found, expected);
    }
}

/// Signals that no given packet completes are taken as completed from outside.
fn satisfied(packet: &AqlPacket, pending: &BTreeMap<u64, usize>) -> bool {
    let done = |signal: &u64| *signal == 0 || pending.get(signal).is_none_or(|left| *left == 0);
    match packet {
        AqlPacket::BarrierAnd(row) => row.dep_signal.iter().all(done),
        AqlPacket::BarrierOr(row) => {
            let named = row.dep_signal.iter().filter(|signal| **signal != 0);
            named.clone().count() == 0 || named.into_iter().any(done)
        }
        _ => true,
    }
}

/// Dependencies that are no signal, or no longer one.
fn freed_dependencies(queues: &[Vec<AqlPacket>], sink: &mut Sink<'_, '_>) {
    for (index, packet) in queues
        .first()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .enumerate()
    {
        let (AqlPacket::BarrierAnd(row) | AqlPacket::BarrierOr(row)) = packet else {
            continue;
        };
        let crooked = row
            .dep_signal
            .iter()
            .find(|handle| !handle.is_multiple_of(SIGNAL_ALIGN));
        if let Some(handle) = crooked {
            let (place, found) = (Place::Packet(index), format!("{handle:#x}"));
            let expected = "64-byte aligned";
            sink.add(Rule::A11, place, "dep_signal", found, expected);
        }
    }
    let Some(signals) = sink.cx.signals else {
        return;
    };
    for (index, packet) in queues
        .first()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .enumerate()
    {
        let (AqlPacket::BarrierAnd(row) | AqlPacket::BarrierOr(row)) = packet else {
            continue;
        };
        for handle in row.dep_signal.iter().filter(|handle| **handle != 0) {
            let live = signals.iter().any(|row| row.handle == *handle && row.live);
            if !live {
                let found = format!("{handle:#x}");
                sink.add(
                    Rule::A11,
                    Place::Packet(index),
                    "dep_signal",
                    found,
                    "a live signal",
                );
            }
        }
    }
}

/// A12: completion signals at publish.
fn signals(packets: &[[u8; 64]], sink: &mut Sink<'_, '_>) {
    let mut users: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (index, bytes) in packets.iter().enumerate() {
        let handle = completion(&decode(bytes).packet);
        if handle != 0 {
            users.entry(handle).or_insert((index, 0)).1 += 1;
        }
    }
    for (handle, (index, _)) in &users {
        if !handle.is_multiple_of(SIGNAL_ALIGN) {
            let (place, found) = (Place::Packet(*index), format!("{handle:#x}"));
            let expected = "64-byte aligned";
            sink.add(Rule::A12, place, "completion_signal", found, expected);
        }
    }
    let Some(known) = sink.cx.signals else { return };
    for (handle, (index, count)) in users {
        let place = Place::Packet(index);
        let Some(row) = known.iter().find(|row| row.handle == handle && row.live) else {
            let found = format!("{handle:#x}");
            sink.add(
                Rule::A12,
                place,
                "completion_signal",
                found,
                "a live signal",
            );
            continue;
        };
        if row.kind != 1 {
            let found = format!("kind {}", row.kind);
            sink.add(
                Rule::A12,
                place,
                "completion_signal",
                found,
                "1, a user signal",
            );
        }
        let wanted = i64::try_from(count).unwrap_or(i64::MAX);
        if row.value < wanted {
            let found = format!("value {} for {count} packets in flight", row.value);
            let expected = format!("at least {wanted}, counted down to 0");
            sink.add(Rule::A12, place, "completion_signal", found, expected);
        }
    }
}
