//! Rules D01 to D13: what each dispatch sees in the register file.

use super::context::{Holds, KnownKernel, Node, Range};
use super::rules::{Rule, Severity};
use super::walk::Walk;
use super::{Place, Sink};
use crate::kd::{KernelFacts, Refusal, property};
use crate::state::Snapshot;
use crate::tables::registers::{INITIATOR_FIELDS, initiator as bit, reg, register, rsrc1, rsrc2};
use crate::tables::{Field, reserved_mask};
use crate::target::{GenSet, Generation, Gfx};

/// Initiator bits that v1 never accepts, whatever the generation defines.
const REFUSED_INITIATOR: &[&str] = &[
    "ORDERED_APPEND_ENBL",
    "ORDERED_APPEND_MODE",
    "PING_PONG_EN",
    "TUNNEL_ENABLE",
    "RESTORE",
    "AMP_SHADER_EN",
    "INTERLEAVE_2D_EN",
    "WGS_DISPATCH",
];
/// Initiator bits that public producers set or that nobody is known to rely on.
const ODD_INITIATOR: &[&str] = &[
    "SCALAR_L1_INV_VOL",
    "VECTOR_L1_INV_VOL",
    "DISABLE_DISP_PREMPT_EN",
    "TTRACE_QUEUE_ID",
];

struct One<'w, 'a> {
    place: Place,
    shot: &'w Snapshot,
    kernel: Option<&'a KnownKernel>,
    node: Option<&'a Node>,
}

/// Checks every dispatch.
pub(super) fn check(walk: &Walk, sink: &mut Sink<'_, '_>) {
    let cx = sink.cx;
    if let Some(nodes) = cx.nodes
        && nodes.len() != walk.snapshots.len()
    {
        let found = format!("{} dispatches", walk.snapshots.len());
        sink.add(
            Rule::D05,
            Place::Whole,
            "launches",
            found,
            format!("{} nodes", nodes.len()),
        );
    }
    let mut scratch = false;
    for (index, shot) in walk.snapshots.iter().enumerate() {
        let node = cx.nodes.and_then(|nodes| nodes.get(index));
        let entry = shot.state.entry_va();
        let kernel = entry.and_then(|entry| cx.kernel_at_entry(entry));
        let place = Place::Dispatch {
            index,
            dword: shot.offset,
        };
        let one = One {
            place,
            shot,
            kernel,
            node,
        };
        unset(&one, sink);
        program(&one, sink);
        initiator(&one, sink);
        waves(&one, sink);
        shape(&one, sink);
        intended(&one, sink);
        start(&one, sink);
        lds(&one, sink);
        user_sgprs(&one, sink);
        scratch |= scratch_ring(&one, sink);
        features(&one, sink);
        privilege(&one, sink);
        target(&one, sink);
        limits(&one, sink);
    }
    if let Some(dword) = walk.tmpring_written
        && !scratch
    {
        let place = Place::Dword(dword);
        let (found, expected) = ("written", "left to the queue: no dispatch needs scratch");
        sink.add_as(
            Severity::Warning,
            Rule::D09,
            place,
            "TMPRING_SIZE",
            found,
            expected,
        );
    }
}

fn unset(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    const NEEDED: [(u16, &str); 9] = [
        (reg::PGM_LO, "PGM_LO"),
        (reg::PGM_HI, "PGM_HI"),
        (reg::PGM_RSRC1, "PGM_RSRC1"),
        (reg::PGM_RSRC2, "PGM_RSRC2"),
        (reg::PGM_RSRC3, "PGM_RSRC3"),
        (reg::NUM_THREAD_X, "NUM_THREAD_X"),
        (reg::NUM_THREAD_Y, "NUM_THREAD_Y"),
        (reg::NUM_THREAD_Z, "NUM_THREAD_Z"),
        (reg::RESOURCE_LIMITS, "RESOURCE_LIMITS"),
    ];
    let state = &one.shot.state;
    for (offset, name) in NEEDED {
        if state.get(offset).is_none() {
            sink.add(
                Rule::D01,
                one.place,
                name,
                "unset",
                "written in this buffer",
            );
        }
    }
    let users = state
        .get(reg::PGM_RSRC2)
        .map_or(0, rsrc2::user_sgprs)
        .min(16) as u16;
    let mut missing = (0..users).filter(|index| state.user_data(*index).is_none());
    if let Some(first) = missing.next() {
        let name = format!("USER_DATA_{first}");
        let found = format!("unset, with {} more of {users}", missing.count());
        sink.add(Rule::D01, one.place, name, found, "written in this buffer");
    }
    let forced = one.shot.initiator & bit::FORCE_START_AT_000 != 0;
    if !forced && (reg::START_X..=reg::START_Z).any(|at| state.get(at).is_none()) {
        let expected = "START written, or FORCE_START_AT_000";
        sink.add_as(
            Severity::Hazard,
            Rule::D01,
            one.place,
            "START",
            "unset",
            expected,
        );
    }
}

fn program(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let state = &one.shot.state;
    let high = state.get(reg::PGM_HI).unwrap_or(0);
    if high > 0xFF {
        sink.add(
            Rule::D02,
            one.place,
            "PGM_HI",
            format!("{high:#x}"),
            "at most 0xFF",
        );
    }
    let Some(entry) = state.entry_va() else {
        return;
    };
    if sink.cx.kernels.is_none() {
        return;
    }
    let Some(kernel) = one.kernel else {
        let found = format!("entry {entry:#x}");
        sink.add(
            Rule::D02,
            one.place,
            "PGM",
            found,
            "the entry of a known kernel",
        );
        return;
    };
    resource_words(one, kernel, sink);
}

fn resource_words(one: &One<'_, '_>, kernel: &KnownKernel, sink: &mut Sink<'_, '_>) {
    let state = &one.shot.state;
    let generation = sink.cx.target.generation();
    let own1 = if GenSet::G11.has(generation) {
        rsrc1::PRIV
    } else {
        0
    };
    // INST_PREF_SIZE and IMAGE_OP are hints that producers program differently.
    let own3 = match generation {
        Generation::Gfx10_3 => 0,
        Generation::Gfx11 | Generation::Gfx11_5 => 0x8000_03F0,
        Generation::Gfx12 => 0x8000_0FF0,
    };
    let words = [
        ("PGM_RSRC1", reg::PGM_RSRC1, kernel.descriptor.rsrc1, own1),
        (
            "PGM_RSRC2",
            reg::PGM_RSRC2,
            kernel.descriptor.rsrc2,
            rsrc2::LDS_SIZE,
        ),
        ("PGM_RSRC3", reg::PGM_RSRC3, kernel.descriptor.rsrc3, own3),
    ];
    for (name, offset, expected, own) in words {
        if let Some(found) = state.get(offset)
            && (found ^ expected) & !own != 0
        {
            let expected = format!("{expected:#010x} of {}", kernel.symbol);
            sink.add(
                Rule::D02,
                one.place,
                name,
                format!("{found:#010x}"),
                expected,
            );
        }
    }
}

fn initiator(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let word = one.shot.initiator;
    let generation = sink.cx.target.generation();
    if word & bit::COMPUTE_SHADER_EN == 0 {
        sink.add(
            Rule::D03,
            one.place,
            "COMPUTE_SHADER_EN",
            format!("{word:#x}"),
            "set",
        );
    }
    let reserved = word & reserved_mask(INITIATOR_FIELDS, 0, generation);
    if reserved != 0 {
        let found = format!("{word:#x} with reserved bits {reserved:#x}");
        sink.add(
            Rule::D03,
            one.place,
            "DISPATCH_INITIATOR",
            found,
            "reserved bits clear",
        );
    }
    let set = |row: &&Field| row.gens.has(generation) && row.get(word) != 0;
    for row in INITIATOR_FIELDS.iter().filter(set) {
        let ordered = row.mask() == bit::ORDERED_APPEND_ENBL;
        let severity = if ODD_INITIATOR.contains(&row.name) || (ordered && sink.cx.bug_compatible) {
            Severity::Warning
        } else if REFUSED_INITIATOR.contains(&row.name) {
            Severity::Error
        } else {
            continue;
        };
        let found = format!("{word:#x}");
        sink.add_as(severity, Rule::D03, one.place, row.name, found, "clear");
    }
}

fn waves(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let Some(kernel) = one.kernel else { return };
    let wave32 = one.shot.initiator & bit::CS_W32_EN != 0;
    if wave32 != kernel.wave32() {
        let found = format!("wave{}", if wave32 { 32 } else { 64 });
        let expected = format!("the wave size of {}", kernel.symbol);
        sink.add(Rule::D04, one.place, "CS_W32_EN", found, expected);
    }
    let count = kernel.facts.map_or(0, |facts| facts.vgpr_count);
    if let Some(word) = one.shot.state.get(reg::PGM_RSRC1)
        && count != 0
    {
        let granule = if kernel.wave32() { 8 } else { 4 };
        let allocated = ((word & 0x3F) + 1) * granule;
        if allocated != count.next_multiple_of(granule) {
            let expected = format!(
                "the {count} registers of {}, in granules of {granule}",
                kernel.symbol
            );
            sink.add(
                Rule::D04,
                one.place,
                "VGPRS",
                format!("{allocated} registers"),
                expected,
            );
        }
    }
}

/// Group size from NUM_THREAD, when all three are set.
fn group_size(shot: &Snapshot, generation: Generation) -> Option<[u32; 3]> {
    let size = |at: u16| {
        let mask = if generation == Generation::Gfx12 && at != reg::NUM_THREAD_Z {
            0x1FFF
        } else {
            0xFFFF
        };
        shot.state.get(at).map(|word| word & mask)
    };
    Some([
        size(reg::NUM_THREAD_X)?,
        size(reg::NUM_THREAD_Y)?,
        size(reg::NUM_THREAD_Z)?,
    ])
}

fn shape(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let generation = sink.cx.target.generation();
    let dim = one.shot.dim;
    if dim.contains(&0) {
        sink.add(
            Rule::D05,
            one.place,
            "DIM",
            format!("{dim:?}"),
            "1 or more each",
        );
    }
    if one.shot.initiator & bit::PARTIAL_TG_EN != 0 {
        sink.add(
            Rule::D05,
            one.place,
            "PARTIAL_TG_EN",
            "set",
            "clear: full groups only",
        );
    }
    thread_words(one, sink);
    let Some(size) = group_size(one.shot, generation) else {
        return;
    };
    let product = size.iter().map(|n| u64::from(*n)).product::<u64>();
    if !(1..=1024).contains(&product) {
        let found = format!("group {size:?} of {product} work-items");
        sink.add(Rule::D05, one.place, "NUM_THREAD", found, "1 to 1024");
    }
    let threads = one.shot.initiator & bit::USE_THREAD_DIMENSIONS != 0;
    if threads && (0..3).any(|i| size[i] != 0 && !dim[i].is_multiple_of(size[i])) {
        let found = format!("{dim:?} work-items");
        let expected = format!("multiples of the group {size:?}");
        sink.add(Rule::D05, one.place, "DIM", found, expected);
    }
    let limit = sink.cx.target.capability().max_groups_yz.value;
    let count = |i: usize| {
        if threads {
            dim[i] / size[i].max(1)
        } else {
            dim[i]
        }
    };
    if count(1) > limit || count(2) > limit {
        let found = format!("{} by {} groups in y and z", count(1), count(2));
        sink.add(
            Rule::D05,
            one.place,
            "DIM",
            found,
            format!("at most {limit}"),
        );
    }
}

fn thread_words(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let generation = sink.cx.target.generation();
    for (name, at) in [
        ("NUM_THREAD_X", reg::NUM_THREAD_X),
        ("NUM_THREAD_Y", reg::NUM_THREAD_Y),
        ("NUM_THREAD_Z", reg::NUM_THREAD_Z),
    ] {
        let Some(word) = one.shot.state.get(at) else {
            continue;
        };
        let interleave = generation == Generation::Gfx12 && at != reg::NUM_THREAD_Z;
        if word >> 16 != 0 {
            let found = format!("{word:#010x}");
            sink.add(
                Rule::D05,
                one.place,
                name,
                found,
                "partial size 0: full groups only",
            );
        }
        if interleave && word & 0xE000 != 0 {
            let found = format!("{word:#010x}");
            sink.add(
                Rule::D05,
                one.place,
                name,
                found,
                "interleave bits 15:13 clear",
            );
        }
    }
}

/// The clauses of D05 that need the kernel or the node.
fn intended(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let Some(size) = group_size(one.shot, sink.cx.target.generation()) else {
        return;
    };
    if let Some(kernel) = one.kernel {
        let product = size.iter().map(|n| u64::from(*n)).product::<u64>();
        let limit = kernel
            .facts
            .map_or(0, |facts| facts.max_flat_workgroup_size);
        if limit != 0 && product > u64::from(limit) {
            let expected = format!("at most {limit} of {}", kernel.symbol);
            sink.add(
                Rule::D05,
                one.place,
                "NUM_THREAD",
                format!("{product}"),
                expected,
            );
        }
        if let Some(required) = kernel.facts.and_then(|facts| facts.reqd_workgroup_size)
            && required != size
        {
            let expected = format!("{required:?} of {}", kernel.symbol);
            sink.add(
                Rule::D05,
                one.place,
                "NUM_THREAD",
                format!("{size:?}"),
                expected,
            );
        }
    }
    let Some(node) = one.node else { return };
    if size != node.group_size {
        let expected = format!("{:?} of the node", node.group_size);
        sink.add(
            Rule::D05,
            one.place,
            "NUM_THREAD",
            format!("{size:?}"),
            expected,
        );
    }
    let threads = one.shot.initiator & bit::USE_THREAD_DIMENSIONS != 0;
    let expected = if threads {
        [0, 1, 2].map(|i| node.groups[i].wrapping_mul(node.group_size[i]))
    } else {
        node.groups
    };
    if one.shot.dim != expected {
        let unit = if threads { "work-items" } else { "groups" };
        let found = format!("{:?} {unit}", one.shot.dim);
        sink.add(
            Rule::D05,
            one.place,
            "DIM",
            found,
            format!("{expected:?} {unit} of the node"),
        );
    }
}

fn start(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    for (name, at) in [
        ("START_X", reg::START_X),
        ("START_Y", reg::START_Y),
        ("START_Z", reg::START_Z),
    ] {
        if let Some(word) = one.shot.state.get(at)
            && word != 0
        {
            sink.add(Rule::D06, one.place, name, format!("{word:#x}"), "0");
        }
    }
    if one.shot.initiator & bit::FORCE_START_AT_000 == 0 {
        let found = format!("{:#x}", one.shot.initiator);
        sink.add(Rule::D06, one.place, "FORCE_START_AT_000", found, "set");
    }
}

fn lds(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let Some(word) = one.shot.state.get(reg::PGM_RSRC2) else {
        return;
    };
    let granules = rsrc2::lds_granules(word);
    if granules > rsrc2::LDS_MAX_GRANULES {
        let expected = format!("at most {}", rsrc2::LDS_MAX_GRANULES);
        sink.add(
            Rule::D07,
            one.place,
            "LDS_SIZE",
            format!("{granules} granules"),
            expected,
        );
    }
    let fixed = one
        .kernel
        .map_or(0, |kernel| kernel.descriptor.group_segment_fixed_size);
    let needed = one.node.map_or(fixed, |node| node.lds_bytes.max(fixed));
    let bytes = granules * rsrc2::LDS_GRANULE;
    if bytes < needed {
        let found = format!("{bytes} bytes");
        sink.add(
            Rule::D07,
            one.place,
            "LDS_SIZE",
            found,
            format!("at least {needed} bytes"),
        );
    }
    if one.node.is_some() && granules > needed.div_ceil(rsrc2::LDS_GRANULE) {
        let (severity, found) = (Severity::Warning, format!("{bytes} bytes"));
        let expected = format!("{needed} bytes, rounded up; more costs occupancy");
        sink.add_as(severity, Rule::D07, one.place, "LDS_SIZE", found, expected);
    }
}

fn user_sgprs(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let state = &one.shot.state;
    let Some(word) = state.get(reg::PGM_RSRC2) else {
        return;
    };
    let count = rsrc2::user_sgprs(word);
    if count > 16 {
        sink.add(
            Rule::D08,
            one.place,
            "USER_SGPR",
            format!("{count}"),
            "at most 16",
        );
    }
    let Some(kernel) = one.kernel else { return };
    let (used, pointer) = kernel.user_registers();
    if count < used {
        let expected = format!("at least the {used} of {}", kernel.symbol);
        sink.add(
            Rule::D08,
            one.place,
            "USER_SGPR",
            format!("{count}"),
            expected,
        );
    }
    let other = kernel.descriptor.properties & !property::ACCEPTED;
    if other != 0 {
        let found = format!("{:#06x}", kernel.descriptor.properties);
        let expected = "kernarg pointer, scratch descriptor and wave size only";
        sink.add(Rule::D08, one.place, "properties", found, expected);
    }
    let buffer = kernel.descriptor.properties & property::PRIVATE_SEGMENT_BUFFER != 0;
    if buffer && sink.cx.target.capability().architected_flat_scratch.value {
        let name = "PRIVATE_SEGMENT_BUFFER";
        let expected = "clear: flat scratch is architected";
        sink.add(Rule::D08, one.place, name, "set", expected);
    }
    padding(one, pointer, count, sink);
    let Some(first) = pointer else {
        return;
    };
    let (Some(lo), Some(hi)) = (state.user_data(first), state.user_data(first + 1)) else {
        return;
    };
    kernarg(one, kernel, u64::from(lo) | u64::from(hi) << 32, sink);
}

/// User SGPRs without a meaning (padding, unused scratch descriptor) hold zero.
fn padding(one: &One<'_, '_>, pointer: Option<u16>, count: u32, sink: &mut Sink<'_, '_>) {
    for index in 0..count.min(16) as u16 {
        let pointer = pointer.is_some_and(|first| index == first || index == first + 1);
        if let Some(value) = one.shot.state.user_data(index)
            && value != 0
            && !pointer
        {
            let name = format!("USER_DATA_{index}");
            sink.add(
                Rule::D08,
                one.place,
                name,
                format!("{value:#010x}"),
                "0, unused",
            );
        }
    }
}

fn kernarg(one: &One<'_, '_>, kernel: &KnownKernel, address: u64, sink: &mut Sink<'_, '_>) {
    let found = format!("{address:#x}");
    if address == 0 || !address.is_multiple_of(16) || address >> 48 != 0 {
        let expected = "16-byte aligned, 48 bits, not 0";
        sink.add(
            Rule::D08,
            one.place,
            "kernarg pointer",
            found.clone(),
            expected,
        );
    }
    let range = Range::new(address, u64::from(kernel.descriptor.kernarg_size));
    if sink.cx.allocations.is_some()
        && sink
            .cx
            .containing(&range)
            .is_none_or(|row| row.holds != Holds::Kernarg)
    {
        let expected = "inside a live kernarg allocation";
        sink.add(
            Rule::D08,
            one.place,
            "kernarg pointer",
            found.clone(),
            expected,
        );
    }
    if let Some(node) = one.node
        && node.kernarg.base != address
    {
        let expected = format!("{:#x} of the node", node.kernarg.base);
        sink.add(Rule::D08, one.place, "kernarg pointer", found, expected);
    }
}

/// Reserved bits of a register that a rule owns.
fn reserved(rule: Rule, at: u16, one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let generation = sink.cx.target.generation();
    let (Some(word), Some(row)) = (one.shot.state.get(at), register(at, generation)) else {
        return;
    };
    let bits = word & reserved_mask(row.fields, 0, generation);
    if bits != 0 {
        let found = format!("{word:#010x} with reserved bits {bits:#010x}");
        let (severity, expected) = (Severity::Error, "reserved bits clear");
        sink.add_as(severity, rule, one.place, row.name, found, expected);
    }
}

/// Returns true when the dispatch needs scratch.
fn scratch_ring(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) -> bool {
    reserved(Rule::D09, reg::TMPRING_SIZE, one, sink);
    reserved(Rule::D09, reg::DISPATCH_SCRATCH_BASE_HI, one, sink);
    let state = &one.shot.state;
    let enabled = state
        .get(reg::PGM_RSRC2)
        .is_some_and(|word| word & rsrc2::SCRATCH_EN != 0);
    let private = one
        .kernel
        .map_or(0, |kernel| kernel.descriptor.private_segment_fixed_size);
    if !enabled {
        if private != 0 {
            let found = format!("disabled with {private} bytes per work-item");
            sink.add_as(
                Severity::Hazard,
                Rule::D09,
                one.place,
                "SCRATCH_EN",
                found,
                "enabled",
            );
        }
        return private != 0;
    }
    let row = sink.cx.target.capability();
    let ring = state.get(reg::TMPRING_SIZE).unwrap_or(0);
    // WAVESIZE starts at bit 12; its width is a fact of the target.
    let units = ring >> 12 & ((1 << row.scratch_wavesize_bits.value) - 1);
    let lanes = if one.shot.initiator & bit::CS_W32_EN != 0 {
        32
    } else {
        64
    };
    let have = u64::from(units) * u64::from(row.scratch_unit_bytes.value);
    let need = lanes * u64::from(private);
    if ring & 0xFFF == 0 || units == 0 || have < need {
        let found = format!("{ring:#010x}, {have} bytes per wave");
        let expected = format!("waves and at least {} bytes per wave", need.max(1));
        sink.add(Rule::D09, one.place, "TMPRING_SIZE", found, expected);
    }
    let base = state.get(reg::DISPATCH_SCRATCH_BASE_LO).unwrap_or(0)
        | state.get(reg::DISPATCH_SCRATCH_BASE_HI).unwrap_or(0);
    if row.architected_flat_scratch.value && base == 0 {
        sink.add(
            Rule::D09,
            one.place,
            "DISPATCH_SCRATCH_BASE",
            "unset or 0",
            "the ring's base",
        );
    }
    true
}

fn features(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    if let Some(word) = one.shot.state.get(reg::PGM_RSRC2) {
        let bits = word & (rsrc2::TRAP_PRESENT | rsrc2::EXCP_EN_MSB | rsrc2::EXCP_EN);
        if bits != 0 {
            let gfx12 = sink.cx.target.generation() == Generation::Gfx12;
            let dynamic = gfx12 && bits & rsrc2::TRAP_PRESENT != 0;
            let name = if dynamic {
                "DYNAMIC_VGPR"
            } else {
                "trap and exception bits"
            };
            sink.add(Rule::D10, one.place, name, format!("{bits:#010x}"), "clear");
        }
    }
    let Some(kernel) = one.kernel else { return };
    let size = group_size(one.shot, sink.cx.target.generation()).unwrap_or([1; 3]);
    let facts = kernel.facts.map(|facts| KernelFacts {
        // Shape and target have rules of their own.
        target: None,
        max_flat_workgroup_size: 0,
        reqd_workgroup_size: None,
        ..facts
    });
    let reasons = facts.map_or_else(Vec::new, |facts| facts.refusals(sink.cx.target, size, size));
    for reason in reasons {
        if !matches!(reason, Refusal::PartialGroups { .. }) {
            sink.add(
                Rule::D10,
                one.place,
                kernel.symbol.clone(),
                reason.to_string(),
                "absent",
            );
        }
    }
    let dynamic = kernel.descriptor.properties & property::USES_DYNAMIC_STACK != 0;
    let groups = kernel.descriptor.properties & property::ENABLE_WAVEGROUP != 0;
    if dynamic || groups || kernel.descriptor.kernarg_preload != 0 {
        let found = format!(
            "dynamic stack {dynamic}, wave groups {groups}, kernarg preload {:#06x}",
            kernel.descriptor.kernarg_preload
        );
        sink.add(
            Rule::D10,
            one.place,
            kernel.symbol.clone(),
            found,
            "none of them",
        );
    }
}

fn privilege(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let Some(word) = one.shot.state.get(reg::PGM_RSRC1) else {
        return;
    };
    let row = sink.cx.target.capability();
    let set = word & rsrc1::PRIV != 0;
    if set == row.needs_priv.value {
        return;
    }
    let gfx11 = GenSet::G11.has(row.generation);
    let severity = if set && !gfx11 {
        Severity::Hazard
    } else {
        Severity::Warning
    };
    let expected = format!("{} on {}", u8::from(row.needs_priv.value), sink.cx.target);
    let found = format!("{}", u8::from(set));
    sink.add_as(severity, Rule::D11, one.place, "PRIV", found, expected);
}

fn target(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    let device: Gfx = sink.cx.target;
    let code = one
        .kernel
        .and_then(|kernel| kernel.facts.and_then(|facts| facts.target));
    if let Some(kernel) = one.kernel
        && let Some(code) = code
        && code != device
    {
        sink.add(
            Rule::D12,
            one.place,
            kernel.symbol.clone(),
            code.name(),
            device.name(),
        );
    }
    // Compilers set DX10_CLAMP and IEEE_MODE by default; on gfx12 the bits mean something else.
    const GFX11_DEFAULTS: u32 = 1 << 21 | 1 << 23;
    // Either bit is a mistake when the code object says that it is older.
    let older = code.is_some_and(|code| code.generation() < Generation::Gfx12);
    if device.generation() == Generation::Gfx12
        && let Some(word) = one.shot.state.get(reg::PGM_RSRC1)
        && (word & GFX11_DEFAULTS == GFX11_DEFAULTS || older && word & GFX11_DEFAULTS != 0)
    {
        let found = format!("{word:#010x}");
        let expected = "WG_RR_EN and DISABLE_PERF not both set, which a gfx11 descriptor does";
        let severity = if older {
            Severity::Error
        } else {
            Severity::Warning
        };
        sink.add_as(severity, Rule::D12, one.place, "PGM_RSRC1", found, expected);
    }
}

fn limits(one: &One<'_, '_>, sink: &mut Sink<'_, '_>) {
    reserved(Rule::D13, reg::RESOURCE_LIMITS, one, sink);
    if let Some(word) = one.shot.state.get(reg::RESOURCE_LIMITS)
        && word != 0
    {
        let found = format!("{word:#010x}");
        sink.add(
            Rule::D13,
            one.place,
            "RESOURCE_LIMITS",
            found,
            "0, unlimited",
        );
    }
}
