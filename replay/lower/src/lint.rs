//! Judges lowered packets by the packet crate's rules, with everything the plan knows.
//!
//! Kernels, launches and their declared regions, buffers, arena, ring and signal get made-up
//! addresses; the rules then see real overlaps and real distances. What only a device can show
//! (event order, memory that moves) is not checked here; the report lists it.

use crate::readback::{KERNARG_BASE, SIGNAL, object};
use crate::{Addresses, Lowered, Transport};
use refrain_packet::aql::{Header, PacketType, packets_of_words};
use refrain_packet::launch::KernelImage;
use refrain_packet::lint::{
    Allocation, Context, Holds, HostContract, IbInfo, KnownKernel, Node, QueueInfo, Range, Region,
    Report, SignalInfo, lint_ib, lint_ring,
};
use refrain_packet::mutate::{Mutant, Survey, survey};
use refrain_packet::pm4::Policy;
use refrain_packet::reloc::ResolveError;
use refrain_planner::plan::{self, BufferKind, Segment, SegmentLaunch};

/// Where the first plan buffer, the indirect buffer and the ring lie in the made-up address space.
const BUFFERS: u64 = 0x0100_0000_0000;
const IB: u64 = 0x7D00_0000_0000;
const RING: u64 = 0x7E00_0000_0000;
/// Distance between made-up buffers, so that running over an end is seen.
const GAP: u64 = 0x1_0000;
/// Alignment of a kernarg slot in bytes.
const CACHE_LINE: u64 = 64;
/// Bytes of made-up code around a descriptor: the distance of entry and descriptor fits.
const CODE: u64 = 0x1000_0000;

struct World {
    allocations: Vec<Allocation>,
    kernels: Vec<KnownKernel>,
    nodes: Vec<Node>,
    host: HostContract,
}

/// The linter's report on one segment's packets.
///
/// # Errors
/// A relocation that no address fits; [`crate::read_back`] says more about it.
pub fn lint(
    segment: &Segment<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
) -> Result<Report, ResolveError> {
    in_context(segment, kernels, lowered, |words, context| {
        match lowered.transport {
            Transport::Aql => lint_ring(&packets_of_words(words), context),
            Transport::Pm4 => lint_ib(words, context),
        }
    })
}

/// Mutates every `every`-th dword of a PM4 form under all that the plan knows; see
/// [`refrain_packet::mutate`]. An AQL form has no indirect buffer and gives an empty survey.
///
/// # Errors
/// As [`lint`].
pub fn mutation_survey(
    segment: &Segment<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
    every: usize,
    left: impl FnMut(Mutant),
) -> Result<Survey, ResolveError> {
    in_context(segment, kernels, lowered, |words, context| {
        match lowered.transport {
            Transport::Aql => Survey::default(),
            Transport::Pm4 => survey(words, context, every, left),
        }
    })
}

/// Shows `act` the words under made-up addresses, and a judge of other words in their place: an
/// indirect buffer or ring of any length, under all that the plan knows.
///
/// # Errors
/// As [`lint`].
pub fn lint_others<R>(
    segment: &Segment<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
    act: impl FnOnce(&[u32], &dyn Fn(&[u32]) -> Report) -> R,
) -> Result<R, ResolveError> {
    in_context(segment, kernels, lowered, |words, context| {
        act(words, &|others| match lowered.transport {
            Transport::Aql => lint_ring(&packets_of_words(others), context),
            Transport::Pm4 => {
                let ib = IbInfo {
                    range: Range::new(IB, others.len() as u64 * 4),
                    declared: others.len() as u32,
                };
                let context = Context {
                    ib: Some(&ib),
                    ..*context
                };
                lint_ib(others, &context)
            }
        })
    })
}

/// Calls `judge` with the words under made-up addresses and everything the plan knows about them.
fn in_context<R>(
    segment: &Segment<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
    judge: impl FnOnce(&[u32], &Context<'_>) -> R,
) -> Result<R, ResolveError> {
    let world = World::of(segment, kernels, lowered);
    let objects: Vec<u64> = world
        .kernels
        .iter()
        .map(|kernel| kernel.descriptor_va)
        .collect();
    let words = lowered.bind(&Addresses {
        kernel_objects: &objects,
        kernarg_base: KERNARG_BASE,
        signal: SIGNAL,
    })?;
    let signals = [SignalInfo {
        handle: SIGNAL,
        kind: 1,
        value: 1,
        live: true,
    }];
    let target = lowered.encoded.target;
    let queue = QueueInfo {
        base: RING,
        size: (words.len() as u64 / 16 + 1).next_power_of_two().max(64),
        lds_bytes: target.capability().max_lds_bytes.value,
        ..QueueInfo::default()
    };
    let ib = IbInfo {
        range: Range::new(IB, words.len() as u64 * 4),
        declared: words.len() as u32,
    };
    let context = Context {
        policy: Policy::named(lowered.encoded.policy),
        allocations: Some(&world.allocations),
        kernels: Some(&world.kernels),
        nodes: Some(&world.nodes),
        host: Some(&world.host),
        signals: Some(&signals),
        ..Context::bare(target)
    };
    let context = match lowered.transport {
        Transport::Aql => Context {
            queue: Some(&queue),
            ..context
        },
        Transport::Pm4 => Context {
            ib: Some(&ib),
            header: Some(Header::system(PacketType::VendorSpecific)),
            ..context
        },
    };
    Ok(judge(&words, &context))
}

impl World {
    fn of(segment: &Segment<'_>, kernels: &[KernelImage], lowered: &Lowered) -> Self {
        let plan = segment.plan();
        let mut allocations = Vec::new();
        let mut bases = Vec::with_capacity(plan.buffers.len());
        let mut next = BUFFERS;
        for buffer in &plan.buffers {
            bases.push(next);
            allocations.push(allocation(&buffer.name, next, buffer.bytes, Holds::Data));
            next = (next + buffer.bytes + GAP).next_multiple_of(GAP);
        }
        let arena = lowered.arena.bytes();
        allocations.push(allocation("kernargs", KERNARG_BASE, arena, Holds::Kernarg));
        if lowered.transport == Transport::Pm4 {
            let bytes = lowered.encoded.words.len() as u64 * 4;
            let ib = allocation("ib", IB, bytes, Holds::Ib);
            allocations.push(Allocation {
                executable: true,
                ..ib
            });
        }
        let known = |(index, kernel): (usize, &KernelImage)| KnownKernel {
            symbol: kernel.symbol.clone(),
            descriptor_va: object(index, kernel),
            descriptor: kernel.descriptor,
            // Images refuse a descriptor whose reserved bytes are set.
            reserved_zero: true,
            facts: kernel.facts,
        };
        let kernels: Vec<KnownKernel> = kernels.iter().enumerate().map(known).collect();
        for kernel in &kernels {
            let first = kernel.descriptor_va - CODE / 2;
            let code = allocation(&kernel.symbol, first, CODE, Holds::Code);
            allocations.push(Allocation {
                executable: true,
                ..code
            });
        }
        let slots = kernarg_slots(segment);
        let launches = segment.launches().iter().zip(slots);
        let nodes = launches.map(|(launch, slot)| node(segment, launch, slot, &bases));
        let nodes = nodes.collect();
        let range = |kind: BufferKind| {
            let rows = plan
                .buffers
                .iter()
                .zip(&bases)
                .filter(move |(b, _)| b.kind == kind);
            rows.map(|(buffer, base)| Range::new(*base, buffer.bytes))
                .collect::<Vec<_>>()
        };
        let host = HostContract {
            writes: [BufferKind::Control, BufferKind::Prompt]
                .into_iter()
                .flat_map(range)
                .collect(),
            reads: range(BufferKind::TokenRing),
            signals: Vec::new(),
            targets: Vec::new(),
        };
        Self {
            allocations,
            kernels,
            nodes,
            host,
        }
    }
}

fn allocation(name: &str, base: u64, bytes: u64, holds: Holds) -> Allocation {
    Allocation {
        name: name.to_owned(),
        range: Range::new(base, bytes),
        holds,
        executable: false,
        gpu_visible: true,
        live: true,
        generation: 0,
    }
}

/// Kernarg slots as the plan alone gives them: one after the other, each a whole number of cache
/// lines. The arena that the packets were made with is not asked.
fn kernarg_slots(segment: &Segment<'_>) -> Vec<Range> {
    let mut next = KERNARG_BASE;
    let slot = |launch: &SegmentLaunch<'_>| {
        let kernel = segment.kernel(launch.launch);
        let bytes = kernel.map_or(0, |kernel| u64::from(kernel.kernarg_bytes));
        let range = Range::new(next, bytes);
        next += bytes.div_ceil(CACHE_LINE).max(1) * CACHE_LINE;
        range
    };
    segment.launches().iter().map(slot).collect()
}

/// What the plan asks of a launch. Nothing here comes from the encoding or from code objects.
fn node(segment: &Segment<'_>, launch: &SegmentLaunch<'_>, kernarg: Range, bases: &[u64]) -> Node {
    let launch = launch.launch;
    let kernel = launch.kernel as usize;
    let planned = segment.kernel(launch);
    let regions = |list: &[plan::Region]| {
        let region = |region: &plan::Region| {
            let base = bases.get(region.buffer as usize)?;
            let (first, end) = region.bound();
            Some(Region::new(base + first, end - first))
        };
        list.iter().filter_map(region).collect()
    };
    Node {
        kernel: Some(kernel),
        groups: launch.grid,
        group_size: planned.map_or([0; 3], |kernel| kernel.block),
        lds_bytes: planned.map_or(0, |kernel| kernel.lds_bytes),
        kernarg,
        reads: regions(&launch.reads),
        writes: regions(&launch.writes),
        declared_self_modifying: false,
    }
}
