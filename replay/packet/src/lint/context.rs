//! What the linter may know besides the words: everything optional, because a rule without its
//! context is counted as not checked rather than passed.

use crate::aql::Header;
use crate::kd::{KernelDescriptor, KernelFacts, property};
use crate::pm4::Policy;
use crate::tables::objects::PROPERTIES;
use crate::target::Gfx;

/// A byte range of GPU addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Range {
    /// `bytes` bytes from `base`.
    pub const fn new(base: u64, bytes: u64) -> Self {
        Self { base, bytes }
    }

    /// First address behind the range; saturates.
    pub const fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }

    /// True when the ranges share a byte.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.bytes != 0 && other.bytes != 0 && self.base < other.end() && other.base < self.end()
    }

    /// True when `other` lies inside.
    pub const fn contains(&self, other: &Self) -> bool {
        other.base >= self.base
            && other.bytes <= self.bytes
            && other.base - self.base <= self.bytes - other.bytes
    }
}

/// What an allocation holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Data.
    Data,
    /// Kernargs.
    Kernarg,
    /// Machine code and descriptors.
    Code,
    /// Indirect buffers.
    Ib,
    /// An AQL ring.
    Ring,
    /// Scratch backing memory or an LDS aperture.
    Aperture,
}

/// One allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Name for messages and dumps.
    pub name: String,
    /// Addresses.
    pub range: Range,
    /// Contents.
    pub holds: Holds,
    /// The packet processor may fetch from it.
    pub executable: bool,
    /// Mapped on the GPU.
    pub gpu_visible: bool,
    /// Not freed.
    pub live: bool,
    /// Counts moves and reallocations.
    pub generation: u64,
}

/// A loaded kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownKernel {
    /// Symbol.
    pub symbol: String,
    /// Address of its descriptor.
    pub descriptor_va: u64,
    /// The descriptor.
    pub descriptor: KernelDescriptor,
    /// All reserved bytes of the descriptor in memory are zero.
    pub reserved_zero: bool,
    /// Metadata and code-object facts; the clauses about them are not judged without.
    pub facts: Option<KernelFacts>,
}

impl KnownKernel {
    /// Entry address.
    pub const fn entry_va(&self) -> u64 {
        // Two's complement: a negative offset wraps to a lower address.
        self.descriptor_va
            .wrapping_add(self.descriptor.entry_byte_offset as u64)
    }

    /// True when waves have 32 lanes.
    pub(super) const fn wave32(&self) -> bool {
        self.descriptor.properties & property::WAVEFRONT_SIZE32 != 0
    }

    /// User SGPRs that the enabled properties take, and the first one of the kernarg pointer.
    /// Read from the property table; encoders have a walk of their own.
    pub(super) fn user_registers(&self) -> (u32, Option<u16>) {
        let enabled = |bit: u8| self.descriptor.properties >> bit & 1 != 0;
        let before = |end: u8| -> u32 {
            PROPERTIES
                .iter()
                .filter(|row| row.bit < end && enabled(row.bit))
                .map(|row| u32::from(row.sgprs))
                .sum()
        };
        let pointer = PROPERTIES
            .iter()
            .find(|row| row.name == "KERNARG_SEGMENT_PTR" && enabled(row.bit))
            // At most 18 registers stand in front of it.
            .map(|row| before(row.bit) as u16);
        (before(u8::MAX), pointer)
    }
}

/// A byte range that a launch reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Addresses.
    pub range: Range,
    /// Read through scalar loads too (the compiler may choose them for uniform reads).
    pub scalar: bool,
    /// Generation of the allocation when the node was encoded.
    pub generation: u64,
}

impl Region {
    /// A region that may be read through scalar loads, of generation 0.
    pub const fn new(base: u64, bytes: u64) -> Self {
        Self {
            range: Range::new(base, bytes),
            scalar: true,
            generation: 0,
        }
    }
}

/// What a dispatch is meant to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Index into [`Context::kernels`].
    pub kernel: Option<usize>,
    /// Groups.
    pub groups: [u32; 3],
    /// Work-items per group.
    pub group_size: [u32; 3],
    /// LDS bytes of a group, static and dynamic.
    pub lds_bytes: u32,
    /// Kernargs.
    pub kernarg: Range,
    /// Regions read.
    pub reads: Vec<Region>,
    /// Regions written.
    pub writes: Vec<Region>,
    /// Writes into code, packets or another node's kernargs are declared and wanted.
    pub declared_self_modifying: bool,
}

/// The AQL queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Ring base address.
    pub base: u64,
    /// Ring size in packets.
    pub size: u64,
    /// `queue_properties` of `amd_queue_v2_t`.
    pub properties: u32,
    /// Packets are intercepted by a tool.
    pub intercepted: bool,
    /// Packet id of the first packet given to the linter.
    pub first_id: u64,
    /// `read_dispatch_id` when the log starts.
    pub read_id: u64,
    /// LDS bytes per group that the queue's agent has.
    pub lds_bytes: u32,
}

/// A signal as it stands when packets are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalInfo {
    /// Handle.
    pub handle: u64,
    /// `kind` of `amd_signal_t`; 1 is a user signal.
    pub kind: i64,
    /// Value at publish.
    pub value: i64,
    /// Not freed.
    pub live: bool,
}

/// One entry of the log of what a producer and a packet processor did, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Packet ids reserved.
    Reserve {
        /// How many.
        count: u64,
    },
    /// A store to bytes 4 to 63 of a slot.
    Body {
        /// Packet id.
        id: u64,
    },
    /// A store to the header.
    Header {
        /// Packet id.
        id: u64,
        /// Width of the store.
        bits: u8,
        /// Release order.
        release: bool,
    },
    /// Doorbell store.
    Doorbell {
        /// Value.
        value: u64,
    },
    /// The packet processor's read index moved.
    Read {
        /// New `read_dispatch_id`.
        index: u64,
    },
    /// A packet completed.
    Complete {
        /// Packet id.
        id: u64,
    },
    /// A store to memory by the host.
    Store {
        /// Addresses.
        range: Range,
    },
    /// Memory freed or recycled.
    Free {
        /// Addresses.
        range: Range,
    },
    /// The host waited until a signal reached 0.
    Waited {
        /// Handle.
        handle: u64,
    },
    /// The host stored a signal's value.
    SignalStore {
        /// Handle.
        handle: u64,
    },
}

/// What the host does around a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostContract {
    /// Ranges the host writes before a replay.
    pub writes: Vec<Range>,
    /// Ranges the host reads after a replay, in memory that needs an L2 writeback.
    pub reads: Vec<Range>,
    /// Ranges that the host or another agent stores to while the stream runs.
    pub signals: Vec<Range>,
    /// Ranges outside data allocations that packets of the stream may write, for example signals.
    pub targets: Vec<Range>,
}

/// Another indirect buffer in flight on the same queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Kernarg ranges.
    pub kernargs: Vec<Range>,
    /// Ranges read.
    pub reads: Vec<Range>,
    /// Written ranges.
    pub writes: Vec<Range>,
    /// Uses the queue's scratch.
    pub scratch: bool,
}

/// Where the indirect buffer lies and what was declared about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbInfo {
    /// Addresses.
    pub range: Range,
    /// Length in dwords that the vendor packet declares.
    pub declared: u32,
}

/// Everything the linter may know.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Target.
    pub target: Gfx,
    /// Accept ORDERED_APPEND_ENBL with a warning, for streams of encoders that mislabel it.
    pub bug_compatible: bool,
    /// Policy the stream claims.
    pub policy: Option<&'a Policy>,
    /// Allocations.
    pub allocations: Option<&'a [Allocation]>,
    /// Loaded kernels.
    pub kernels: Option<&'a [KnownKernel]>,
    /// Nodes, one per dispatch in order.
    pub nodes: Option<&'a [Node]>,
    /// Queue.
    pub queue: Option<&'a QueueInfo>,
    /// Event log.
    pub events: Option<&'a [Event]>,
    /// Signals at publish.
    pub signals: Option<&'a [SignalInfo]>,
    /// Host contract.
    pub host: Option<&'a HostContract>,
    /// Other buffers in flight.
    pub in_flight: Option<&'a [InFlight]>,
    /// The fully emitted stream that an elided one must equal.
    pub reference: Option<&'a [u32]>,
    /// Place of the indirect buffer.
    pub ib: Option<&'a IbInfo>,
    /// Header of the vendor packet that runs the indirect buffer.
    pub header: Option<Header>,
    /// Packets of other queues.
    pub peers: Option<&'a [Vec<[u8; 64]>]>,
}

/// A part of [`Context`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    missing_docs,
    reason = "each part is the field of Context with its name"
)]
pub enum Part {
    Policy,
    Allocations,
    Kernels,
    Facts,
    Nodes,
    Queue,
    Events,
    Signals,
    Host,
    InFlight,
    Reference,
    Ib,
    Header,
    Peers,
}

impl Part {
    /// Name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Allocations => "allocations",
            Self::Kernels => "kernels",
            Self::Facts => "kernel metadata",
            Self::Nodes => "nodes",
            Self::Queue => "queue",
            Self::Events => "event log",
            Self::Signals => "signals",
            Self::Host => "host contract",
            Self::InFlight => "buffers in flight",
            Self::Reference => "reference stream",
            Self::Ib => "buffer placement",
            Self::Header => "packet header",
            Self::Peers => "other queues",
        }
    }
}

impl<'a> Context<'a> {
    /// A context that knows nothing but the target.
    pub const fn bare(target: Gfx) -> Self {
        Self {
            target,
            bug_compatible: false,
            policy: None,
            allocations: None,
            kernels: None,
            nodes: None,
            queue: None,
            events: None,
            signals: None,
            host: None,
            in_flight: None,
            reference: None,
            ib: None,
            header: None,
            peers: None,
        }
    }

    /// True when a part is present.
    pub fn has(&self, part: Part) -> bool {
        match part {
            Part::Policy => self.policy.is_some(),
            Part::Allocations => self.allocations.is_some(),
            Part::Kernels => self.kernels.is_some(),
            Part::Facts => self
                .kernels
                .is_some_and(|rows| rows.iter().all(|row| row.facts.is_some())),
            Part::Nodes => self.nodes.is_some(),
            Part::Queue => self.queue.is_some(),
            Part::Events => self.events.is_some(),
            Part::Signals => self.signals.is_some(),
            Part::Host => self.host.is_some(),
            Part::InFlight => self.in_flight.is_some(),
            Part::Reference => self.reference.is_some(),
            Part::Ib => self.ib.is_some(),
            Part::Header => self.header.is_some(),
            Part::Peers => self.peers.is_some(),
        }
    }

    /// The live, GPU-visible allocation that contains a range.
    pub fn containing(&self, range: &Range) -> Option<&'a Allocation> {
        self.allocations?
            .iter()
            .find(|row| row.live && row.gpu_visible && row.range.contains(range))
    }

    /// The kernel whose entry is at an address.
    pub fn kernel_at_entry(&self, entry: u64) -> Option<&'a KnownKernel> {
        self.kernels?.iter().find(|row| row.entry_va() == entry)
    }

    /// The kernel whose descriptor is at an address.
    pub fn kernel_at_object(&self, object: u64) -> Option<&'a KnownKernel> {
        self.kernels?.iter().find(|row| row.descriptor_va == object)
    }
}
