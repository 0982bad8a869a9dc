//! Rules A01, A05 to A08, A10 and A13 to A15: AQL packets one by one.

use super::context::{Holds, Node, Range};
use super::rules::{Rule, Severity};
use super::{Place, Sink};
use crate::aql::decode::{AqlPacket, Decoded, decode, reserved_violation};
use crate::aql::{Header, HeaderError, KernelDispatch, PacketType, Pm4Ib, Scope};
use crate::kd::property;
use crate::tables::objects::{DW_CNT_REMAIN, IB_JUMP0_WORD};

/// Checks every packet.
pub(super) fn check(packets: &[[u8; 64]], sink: &mut Sink<'_, '_>) {
    let mut dispatches = 0;
    // Header type 1 behind this index is an empty slot; before it, a packet that never runs.
    let published = packets.iter().rposition(|bytes| bytes[0] != 1);
    for (index, bytes) in packets.iter().enumerate() {
        let place = Place::Packet(index);
        let decoded = decode(bytes);
        let hole = published.is_some_and(|last| index < last);
        header_bits(&decoded, hole, place, sink);
        if let Some((offset, name, value)) = reserved_violation(bytes) {
            let pm4 = matches!(decoded.packet, AqlPacket::Pm4Ib { .. });
            let rule = if pm4 { Rule::A14 } else { Rule::A10 };
            sink.add(
                rule,
                place,
                name,
                format!("byte {offset} is {value:#04x}"),
                "0",
            );
        }
        match &decoded.packet {
            AqlPacket::KernelDispatch(packet) => {
                dispatch(packet, place, sink);
                let node = sink.cx.nodes.and_then(|nodes| nodes.get(dispatches));
                if let Some(node) = node {
                    planned(packet, node, place, sink);
                }
                fences(&decoded, dispatches, index, packets, sink);
                dispatches += 1;
            }
            AqlPacket::Pm4Ib {
                packet,
                jump,
                remain,
            } => {
                vendor(bytes, *jump, *remain, place, sink);
                jump_limits(packet, *jump, place, sink);
            }
            AqlPacket::Vendor { format, .. } => {
                let found = format!("format {format}");
                sink.add(Rule::A14, place, "vendor packet", found, "format 1, PM4 IB");
            }
            _ => {}
        }
    }
}

fn header_bits(decoded: &Decoded, hole: bool, place: Place, sink: &mut Sink<'_, '_>) {
    let found = format!("{:#06x}", decoded.header);
    match Header::from_bits(decoded.header) {
        Ok(row) if row.kind == PacketType::AgentDispatch => {
            sink.add(
                Rule::A01,
                place,
                "type",
                found,
                "not 4: GPU queues refuse agent dispatch",
            );
        }
        Ok(row) if row.kind == PacketType::Invalid => {
            let (severity, expected) = if hole {
                let expected = "a packet: the processor stops here, and later ones are published";
                (Severity::Error, expected)
            } else {
                (Severity::Warning, "published packet")
            };
            sink.add_as(severity, Rule::A01, place, "type", found, expected);
        }
        Ok(_) => {}
        Err(HeaderError::Type { .. }) => sink.add(Rule::A01, place, "type", found, "0, 2, 3, 5"),
        Err(HeaderError::Scope { .. }) => {
            sink.add(Rule::A01, place, "fence scope", found, "0 to 2");
        }
        Err(HeaderError::Reserved { .. }) => {
            sink.add(Rule::A01, place, "bits 15:13", found, "0");
        }
    }
}

fn dispatch(packet: &KernelDispatch, place: Place, sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let kernel = cx.kernel_at_object(packet.kernel_object);
    let dims = packet.dimensions;
    if !(1..=3).contains(&dims) {
        sink.add(Rule::A05, place, "setup", format!("{dims:#x}"), "1 to 3");
    }
    let size = packet.workgroup_size.map(u32::from);
    let product = size.iter().map(|n| u64::from(*n)).product::<u64>();
    if !(1..=1024).contains(&product) {
        sink.add(
            Rule::A05,
            place,
            "workgroup_size",
            format!("{size:?}"),
            "1 to 1024 in all",
        );
    }
    if packet.grid_size.contains(&0) {
        let found = format!("{:?}", packet.grid_size);
        sink.add(Rule::A05, place, "grid_size", found, "1 or more each");
    }
    let axes = size.into_iter().zip(packet.grid_size).enumerate();
    for (i, (group, grid)) in axes.skip(usize::from(dims.clamp(1, 3))) {
        if group != 1 || grid != 1 {
            let found = format!("group {group}, grid {grid}");
            sink.add(
                Rule::A05,
                place,
                format!("unused dimension {i}"),
                found,
                "1",
            );
        }
    }
    if let Some(kernel) = kernel {
        let limit = kernel
            .facts
            .map_or(0, |facts| facts.max_flat_workgroup_size);
        if limit != 0 && product > u64::from(limit) {
            let expected = format!("at most {limit} of {}", kernel.symbol);
            sink.add(
                Rule::A05,
                place,
                "workgroup_size",
                format!("{product}"),
                expected,
            );
        }
        if let Some(required) = kernel.facts.and_then(|facts| facts.reqd_workgroup_size)
            && required != size
        {
            let expected = format!("{required:?} of {}", kernel.symbol);
            sink.add(
                Rule::A05,
                place,
                "workgroup_size",
                format!("{size:?}"),
                expected,
            );
        }
    }
    object(packet, place, sink);
    segments(packet, place, sink);
    kernarg(packet, place, sink);
}

fn object(packet: &KernelDispatch, place: Place, sink: &mut Sink<'_, '_>) {
    let address = packet.kernel_object;
    let found = format!("{address:#x}");
    if address == 0 || !address.is_multiple_of(64) {
        sink.add(
            Rule::A06,
            place,
            "kernel_object",
            found,
            "64-byte aligned, not 0",
        );
        return;
    }
    if sink.cx.kernels.is_none() {
        return;
    }
    let Some(kernel) = sink.cx.kernel_at_object(address) else {
        sink.add(
            Rule::A06,
            place,
            "kernel_object",
            found,
            "a loaded descriptor",
        );
        return;
    };
    if !kernel.reserved_zero {
        let found = "reserved bytes set";
        sink.add(
            Rule::A06,
            place,
            kernel.symbol.clone(),
            found,
            "reserved bytes 0",
        );
    }
    let entry = kernel.entry_va();
    if !entry.is_multiple_of(256) {
        let (name, found) = (kernel.symbol.clone(), format!("entry {entry:#x}"));
        sink.add(Rule::A06, place, name, found, "256-byte aligned");
    }
    if let Some(code) = kernel.facts.and_then(|facts| facts.target)
        && code != sink.cx.target
    {
        let expected = sink.cx.target.name();
        sink.add(
            Rule::A06,
            place,
            kernel.symbol.clone(),
            code.name(),
            expected,
        );
    }
}

fn segments(packet: &KernelDispatch, place: Place, sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let limit = cx
        .queue
        .map(|queue| queue.lds_bytes)
        .filter(|bytes| *bytes != 0)
        .unwrap_or(cx.target.capability().max_lds_bytes.value);
    let kernel = cx
        .kernel_at_object(packet.kernel_object)
        .map(|row| &row.descriptor);
    let fixed = kernel.map_or(0, |row| row.group_segment_fixed_size);
    let bytes = packet.group_segment_size;
    if bytes < fixed || bytes > limit {
        let expected = format!("{fixed} to {limit}");
        sink.add(
            Rule::A07,
            place,
            "group_segment_size",
            format!("{bytes}"),
            expected,
        );
    }
    let fixed = kernel.map_or(0, |row| row.private_segment_fixed_size);
    let bytes = packet.private_segment_size;
    if bytes < fixed {
        let expected = format!("at least {fixed}");
        sink.add(
            Rule::A07,
            place,
            "private_segment_size",
            format!("{bytes}"),
            expected,
        );
    }
}

fn kernarg(packet: &KernelDispatch, place: Place, sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    let address = packet.kernarg_address;
    let name = "kernarg_address";
    let found = format!("{address:#x}");
    if !address.is_multiple_of(16) || address >> 48 != 0 {
        let expected = "16-byte aligned, 48 bits";
        sink.add(Rule::A08, place, name, found, expected);
        return;
    }
    let Some(kernel) = cx.kernel_at_object(packet.kernel_object) else {
        return;
    };
    let row = &kernel.descriptor;
    let wanted = row.kernarg_size != 0 || row.properties & property::KERNARG_SEGMENT_PTR != 0;
    if wanted && address == 0 {
        let expected = format!("the kernargs of {}", kernel.symbol);
        sink.add(Rule::A08, place, name, found, expected);
        return;
    }
    let range = Range::new(address, u64::from(row.kernarg_size));
    if wanted && cx.allocations.is_some() && cx.containing(&range).is_none() {
        let found = format!("{} bytes at {address:#x}", range.bytes);
        sink.add(Rule::A08, place, name, found, "inside a live allocation");
    }
}

/// The kernargs of the node that a packet launches.
fn planned(packet: &KernelDispatch, node: &Node, place: Place, sink: &mut Sink<'_, '_>) {
    let address = packet.kernarg_address;
    if node.kernarg.bytes != 0 && address != node.kernarg.base {
        let expected = format!("{:#x} of the node", node.kernarg.base);
        let found = format!("{address:#x}");
        sink.add(Rule::A08, place, "kernarg_address", found, expected);
    }
}

fn vendor(bytes: &[u8; 64], jump: [u32; 4], remain: u32, place: Place, sink: &mut Sink<'_, '_>) {
    let expected = IB_JUMP0_WORD;
    if bytes[3] != 0 {
        let found = format!("{:#04x}", bytes[3]);
        sink.add(Rule::A14, place, "ven_hdr byte 3", found, "0");
    }
    if jump[0] != expected {
        let found = format!("{:#010x}", jump[0]);
        sink.add(
            Rule::A14,
            place,
            "ib_jump[0]",
            found,
            format!("{expected:#010x}"),
        );
    }
    if remain != DW_CNT_REMAIN {
        sink.add(Rule::A14, place, "dw_cnt_remain", format!("{remain}"), "10");
    }
}

fn jump_limits(packet: &Pm4Ib, jump: [u32; 4], place: Place, sink: &mut Sink<'_, '_>) {
    // Everything in the fourth dword but size, VALID and cache policy.
    const FOREIGN: u32 = !(0x000F_FFFF | 1 << 23 | 3 << 28);
    if packet.dwords == 0 {
        sink.add(Rule::A15, place, "IB_SIZE", "0", "1 to 0xFFFFF");
    }
    if jump[3] >> 23 & 1 == 0 {
        sink.add(Rule::A15, place, "VALID", "0", "1");
    }
    if jump[3] & FOREIGN != 0 {
        let found = format!("{:#010x}", jump[3]);
        sink.add(
            Rule::A15,
            place,
            "ib_jump[3]",
            found,
            "size, VALID and cache policy only",
        );
    }
    let address = packet.address;
    if address == 0 || !address.is_multiple_of(4) || address >> 48 != 0 {
        let found = format!("{address:#x}");
        sink.add(
            Rule::A15,
            place,
            "IB_BASE",
            found,
            "4-byte aligned, 48 bits, not 0",
        );
    }
    if sink.cx.allocations.is_none() {
        return;
    }
    let range = Range::new(address, u64::from(packet.dwords) * 4);
    let row = sink.cx.containing(&range);
    if row.is_none_or(|row| !row.executable || row.holds == Holds::Data) {
        let found = format!("{} bytes at {address:#x}", range.bytes);
        let expected = "inside a live, visible, executable allocation";
        sink.add(Rule::A16, place, "indirect buffer", found, expected);
    }
}

/// A13: fences against what nodes and host do. Nodes follow dispatch packets in order.
fn fences(
    decoded: &Decoded,
    number: usize,
    index: usize,
    packets: &[[u8; 64]],
    sink: &mut Sink<'_, '_>,
) {
    let cx = sink.cx;
    let place = Place::Packet(index);
    let (Some(nodes), Ok(row)) = (cx.nodes, Header::from_bits(decoded.header)) else {
        return;
    };
    let Some(node) = nodes.get(number) else {
        return;
    };
    let touches = |ranges: &[Range], regions: &[super::context::Region]| {
        ranges
            .iter()
            .any(|a| regions.iter().any(|b| a.overlaps(&b.range)))
    };
    if let Some(host) = cx.host {
        let acquired = packets[..index]
            .iter()
            .map(|bytes| Header::from_bits(decode(bytes).header))
            .any(|row| row.is_ok_and(|row| row.acquire == Scope::System));
        if touches(&host.writes, &node.reads) && row.acquire == Scope::None && !acquired {
            let found = "acquire NONE on host-written inputs";
            sink.add(Rule::A13, place, "acquire", found, "SYSTEM here or earlier");
        }
        let released = packets[index..]
            .iter()
            .map(|bytes| Header::from_bits(decode(bytes).header))
            .any(|row| row.is_ok_and(|row| row.release == Scope::System));
        if touches(&host.reads, &node.writes) && !released {
            let found = "no system release on host-read outputs";
            sink.add(Rule::A13, place, "release", found, "SYSTEM here or later");
        }
    }
    let since = open_from(packets, index);
    if row.barrier || number == 0 {
        return;
    }
    // The packets since the last barrier may still run when this one starts.
    let first = number.saturating_sub(since);
    for other in nodes.get(first..number).unwrap_or(&[]) {
        let meets = other
            .writes
            .iter()
            .any(|a| node.reads.iter().any(|b| a.range.overlaps(&b.range)));
        if meets {
            let found = "barrier 0 behind the writer of its input";
            sink.add(Rule::A13, place, "barrier", found, "1");
        }
    }
}

/// How many dispatch packets before `index` may still run when it starts: those from the last
/// packet with the barrier bit on.
fn open_from(packets: &[[u8; 64]], index: usize) -> usize {
    let mut open = 0;
    for bytes in packets[..index].iter().rev() {
        let decoded = decode(bytes);
        if matches!(decoded.packet, AqlPacket::KernelDispatch(_)) {
            open += 1;
        }
        if decoded.header >> 8 & 1 != 0 {
            break;
        }
    }
    open
}
