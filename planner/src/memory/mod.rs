//! Where each kind of memory lies, how it is rounded, and the exact bytes of a plan.
//!
//! Three tables: memory types, allocation granules per target, words of an indirect buffer per
//! target. The sums are made of them and of the plan alone, so that a plan is admitted or refused
//! before anything is allocated. Which weights are spilled is `placement`'s decision, where
//! activations lie that of `lowering`'s arena; allocating is the recorder's and replay's.

mod layers;
mod traffic;

pub use layers::{LayerBytes, by_layer};
pub use traffic::{Bound, Traffic, bound, traffic};

use crate::plan::{Buffer, BufferKind, Kernel, Launch, Schedule, Step, Tier};
use refrain_kernels::Target;

/// What a row of [`TYPES`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Buffers of a kind.
    Buffer(BufferKind),
    /// The kernarg arena of the retained form.
    Kernarg,
    /// The PM4 indirect buffer of the retained form.
    IndirectBuffer,
}

/// One memory type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryType {
    /// Name in reports.
    pub name: &'static str,
    /// What it is for.
    pub holds: Holds,
    /// Where it lies.
    pub tier: Tier,
    /// What the host does with it.
    pub host: &'static str,
    /// What the GPU does with it.
    pub gpu: &'static str,
}

const fn buffer(
    name: &'static str,
    kind: BufferKind,
    tier: Tier,
    host: &'static str,
    gpu: &'static str,
) -> MemoryType {
    let holds = Holds::Buffer(kind);
    MemoryType {
        name,
        holds,
        tier,
        host,
        gpu,
    }
}

const fn retained(
    name: &'static str,
    holds: Holds,
    host: &'static str,
    gpu: &'static str,
) -> MemoryType {
    MemoryType {
        name,
        holds,
        tier: Tier::HostCoherent,
        host,
        gpu,
    }
}

/// Every memory type. The control block lies on the device because every launch reads it and only
/// the plan itself writes it between texts; the ring lies on the host because the host polls it
/// while tokens are in flight.
#[rustfmt::skip]
pub const TYPES: &[MemoryType] = &[
    buffer("weights", BufferKind::Weights, Tier::Device, "copies in once", "reads"),
    buffer("spilled", BufferKind::SpilledWeights, Tier::HostCoherent, "writes once", "reads over the link"),
    buffer("constant", BufferKind::Constant, Tier::Device, "copies in once", "reads"),
    buffer("kv", BufferKind::Kv, Tier::Device, "nothing", "reads and writes"),
    buffer("state", BufferKind::State, Tier::Device, "zeroes per text", "reads and writes"),
    buffer("scratch", BufferKind::Scratch, Tier::Device, "nothing", "reads and writes"),
    buffer("control", BufferKind::Control, Tier::Device, "copies in per text", "reads and writes"),
    buffer("prompt", BufferKind::Prompt, Tier::Device, "copies in per text", "reads"),
    buffer("handoff", BufferKind::HandOff, Tier::HostCoherent, "reads and writes in its steps", "copies to and from"),
    buffer("ring", BufferKind::TokenRing, Tier::HostCoherent, "polls", "writes at system scope"),
    retained("kernarg", Holds::Kernarg, "writes once", "reads"),
    retained("ib", Holds::IndirectBuffer, "writes once", "the packet processor fetches"),
];

/// The type of buffers of a kind; a test demands a row for each.
pub fn type_of(kind: BufferKind) -> &'static MemoryType {
    let holds = Holds::Buffer(kind);
    let found = TYPES.iter().find(|row| row.holds == holds);
    found.unwrap_or(&TYPES[0])
}

/// How a target's runtime rounds allocations, and how weights are grouped because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granules {
    /// Target.
    pub target: Target,
    /// Device allocations of at most this many bytes share blocks of this size.
    pub device_block: u64,
    /// Larger ones, and all of the host, are multiples of this.
    pub page: u64,
    /// Layers whose weights of one tier share an owner.
    pub layers_per_owner: u32,
    /// Where the sizes come from.
    pub source: &'static str,
}

const ROCR: &str = "documented: ROCr, amd_memory_region.cpp: 2 MiB blocks of the fragment allocator \
                    for device heaps, the page for others";

const fn granules(target: Target) -> Granules {
    Granules {
        target,
        device_block: 2 << 20,
        page: 4096,
        layers_per_owner: 1,
        source: ROCR,
    }
}

/// One row per target.
pub const GRANULES: [Granules; 3] = [
    granules(Target::Gfx1100),
    granules(Target::Gfx1151),
    granules(Target::Gfx1201),
];

impl Granules {
    /// The target's row.
    pub fn of(target: Target) -> &'static Self {
        let found = GRANULES.iter().find(|row| row.target == target);
        found.unwrap_or(&GRANULES[0])
    }

    /// Bytes that allocations of these sizes take from the memory of a tier.
    pub fn rounded(&self, tier: Tier, sizes: impl Iterator<Item = u64>) -> u64 {
        let (mut small, mut large) = (0u64, 0u64);
        for bytes in sizes {
            if tier == Tier::Device && bytes <= self.device_block {
                small = small.saturating_add(bytes.next_multiple_of(self.page));
            } else {
                large = large.saturating_add(round(bytes, self.page));
            }
        }
        large.saturating_add(round(small, self.device_block))
    }
}

/// `bytes` rounded up, saturating where no multiple fits 64 bits.
fn round(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

/// Alignment of a kernarg slot in bytes: a cache line, so that no two launches share one.
pub const KERNARG_SLOT: u64 = 64;

/// Dwords of a token's indirect buffer under the default policy; lowering's tests compare them with
/// what the encoder emits.
struct IbWords {
    target: Target,
    /// Head acquire, start, limits and terminal wait.
    frame: u64,
    /// One launch.
    launch: u64,
    /// One wait with its acquire.
    wait: u64,
}

const fn ib_words(target: Target, launch: u64) -> IbWords {
    IbWords {
        target,
        frame: 18,
        launch,
        wait: 10,
    }
}

const IB_WORDS: [IbWords; 3] = [
    ib_words(Target::Gfx1100, 38),
    ib_words(Target::Gfx1151, 25),
    ib_words(Target::Gfx1201, 25),
];

/// The indirect buffer is padded to this many dwords.
const IB_PAD: u64 = 8;

/// Exact bytes of a plan, in memory of the device and of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// All device buffers, as requested.
    pub device: u64,
    /// The same as the runtime takes it from device memory.
    pub device_rounded: u64,
    /// All pinned host memory as requested: spilled weights, ring, kernargs and indirect buffer.
    pub pinned: u64,
    /// The same in whole pages.
    pub pinned_rounded: u64,
    /// Spilled weights alone, part of `pinned`.
    pub spilled: u64,
    /// Keys and values alone, part of `device`.
    pub kv: u64,
    /// The kernarg arena, part of `pinned`.
    pub kernarg: u64,
    /// The indirect buffer of the PM4 transport, part of `pinned`; AQL needs none.
    pub ib: u64,
}

impl Memory {
    /// Sums over a plan's tables.
    pub fn of(
        target: Target,
        buffers: &[Buffer],
        kernels: &[Kernel],
        steps: &[Step],
        schedule: &Schedule,
    ) -> Self {
        let granules = Granules::of(target);
        let kernarg = kernarg_bytes(kernels, steps);
        let ib = ib_bytes(target, steps, schedule);
        let of_tier = |tier| {
            let own = buffers.iter().filter(move |b| b.kind.tier() == tier);
            own.map(|buffer| buffer.bytes)
        };
        let retained = [kernarg, ib];
        let pinned = || of_tier(Tier::HostCoherent).chain(retained);
        let of_kind = |kind| {
            let own = buffers.iter().filter(|buffer| buffer.kind == kind);
            sum(own.map(|buffer| buffer.bytes))
        };
        Self {
            device: sum(of_tier(Tier::Device)),
            device_rounded: granules.rounded(Tier::Device, of_tier(Tier::Device)),
            pinned: sum(pinned()),
            pinned_rounded: granules.rounded(Tier::HostCoherent, pinned()),
            spilled: of_kind(BufferKind::SpilledWeights),
            kv: of_kind(BufferKind::Kv),
            kernarg,
            ib,
        }
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Bytes of the kernarg slot of a launch that takes `length` bytes of arguments.
pub fn kernarg_slot(length: u32) -> u64 {
    u64::from(length.max(1)).next_multiple_of(KERNARG_SLOT)
}

/// Bytes of the kernarg arena; at least one slot.
fn kernarg_bytes(kernels: &[Kernel], steps: &[Step]) -> u64 {
    let launches = steps.iter().flat_map(|step| step.body.launches());
    let slots = launches.map(|launch: &Launch| {
        let kernel = kernels.get(launch.kernel as usize);
        kernarg_slot(kernel.map_or(0, |kernel| kernel.kernarg_bytes))
    });
    sum(slots).max(KERNARG_SLOT)
}

/// Bytes of all indirect buffers: one for each run of launches between barriers, and one for the
/// launches of each split step.
fn ib_bytes(target: Target, steps: &[Step], schedule: &Schedule) -> u64 {
    let row = IB_WORDS.iter().find(|row| row.target == target);
    let row = row.unwrap_or(&IB_WORDS[0]);
    let bytes = |launches: usize, waits: usize| {
        if launches == 0 {
            return 0;
        }
        let launches = row.launch.saturating_mul(launches as u64);
        let waits = row.wait.saturating_mul(waits as u64);
        let words = row.frame.saturating_add(launches).saturating_add(waits);
        round(words, IB_PAD).saturating_mul(4)
    };
    let mut waits = schedule.waits.iter().peekable();
    let (mut sum, mut run) = (0u64, (0, 0));
    for (id, step) in steps.iter().enumerate() {
        let waited = waits.next_if(|wait| wait.before as usize == id).is_some();
        if step.body.is_barrier() {
            sum = sum.saturating_add(bytes(run.0, run.1));
            sum = sum.saturating_add(bytes(step.body.launches().len(), 0));
            run = (0, 0);
        } else {
            run = (run.0 + 1, run.1 + usize::from(waited));
        }
    }
    sum.saturating_add(bytes(run.0, run.1))
}

#[cfg(test)]
mod tests {
    use super::{GRANULES, Granules, Holds, IB_WORDS, TYPES, type_of};
    use crate::plan::{BufferKind, Tier};
    use refrain_kernels::Target;

    #[test]
    fn every_kind_and_target_has_one_row() {
        let kinds = [
            BufferKind::Weights,
            BufferKind::SpilledWeights,
            BufferKind::Constant,
            BufferKind::Kv,
            BufferKind::State,
            BufferKind::Scratch,
            BufferKind::Control,
            BufferKind::Prompt,
            BufferKind::TokenRing,
            BufferKind::HandOff,
        ];
        for kind in kinds {
            assert_eq!(type_of(kind).holds, Holds::Buffer(kind));
            let rows = TYPES.iter().filter(|row| row.holds == Holds::Buffer(kind));
            assert_eq!(rows.count(), 1, "{kind:?}");
        }
        assert_eq!(TYPES.len(), kinds.len() + 2);
        assert_eq!(GRANULES.map(|row| row.target), Target::ALL);
        assert_eq!(IB_WORDS.map(|row| row.target), Target::ALL);
    }

    #[test]
    fn small_device_allocations_share_blocks_and_large_ones_are_whole_pages() {
        let row = Granules::of(Target::Gfx1201);
        let (page, block) = (row.page, row.device_block);
        let rows: [(Tier, &[u64], u64); 6] = [
            (Tier::Device, &[], 0),
            (Tier::Device, &[1, page], block),
            (Tier::Device, &[block, 1], 2 * block),
            (Tier::Device, &[block + 1], block + page),
            (Tier::HostCoherent, &[1, page + 1], 3 * page),
            (Tier::HostCoherent, &[u64::MAX], u64::MAX),
        ];
        for (tier, sizes, expected) in rows {
            let found = row.rounded(tier, sizes.iter().copied());
            assert_eq!(found, expected, "{tier:?} {sizes:?}");
        }
    }
}
