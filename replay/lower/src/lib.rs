//! Lowering: segments of a checked plan and plain kernel images become packets. A plan without steps
//! of the host is one segment, the packets of one token; what lies between segments cannot be lowered,
//! because no segment holds it.
//!
//! The result is free of addresses: words that depend on one hold 0 and carry a relocation, so
//! that the encoding digest is the same on every machine and can be recomputed without a GPU.
//! After encoding, [`readback`] reads the words with the packet crate's independent decoder and
//! compares them with the plan. Allocating, binding to a device and publishing are left to others.
#![forbid(unsafe_code)]

mod arena;
mod image;
mod lint;
mod metadata;
mod readback;

pub use arena::{ArenaLayout, SLOT_ALIGN};
pub use image::{ImageError, KernelImage, KernelImages, gfx};
pub use lint::{lint, lint_others, mutation_survey};
pub use readback::{EncodingError, read_back};

use refrain_packet::aql::{AqlPolicy, encode_segment};
use refrain_packet::launch::{self, Before, DispatchDesc, EncodeError};
use refrain_packet::lint::{Finding, Report, Severity};
use refrain_packet::pm4::{Policy as Pm4Policy, encode_ib};
use refrain_packet::reloc::{AddressFree, Bindings, Dwords, ResolveError};
use refrain_packet::target::Gfx;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{Digest, Invalidate, Piece, Plan, Segment};
use std::fmt;

/// Domain tag of the encoding digest.
const ENCODING_DOMAIN: &str = "refrain 2026 encoding v1";
/// Domain tag of the digest over several runs' digests.
const RUNS_DOMAIN: &str = "refrain 2026 encoding runs v1";

/// How packets reach the packet processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// One AQL dispatch packet per launch.
    Aql,
    /// One PM4 indirect buffer per token, started by one vendor packet.
    Pm4,
}

impl Transport {
    /// Both transports.
    pub const ALL: [Self; 2] = [Self::Aql, Self::Pm4];

    /// `aql` or `pm4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aql => "aql",
            Self::Pm4 => "pm4",
        }
    }

    /// The transport of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|transport| transport.name() == name)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What hardware must decide, as named rows of the packet crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// For AQL packets.
    pub aql: AqlPolicy,
    /// For PM4.
    pub pm4: &'static Pm4Policy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            aql: AqlPolicy::Schedule,
            pm4: Pm4Policy::DEFAULT,
        }
    }
}

/// Why a plan has no retained form.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LowerError {
    /// A kernel cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A launch cannot be encoded.
    #[error("step {step} ({name}): {source}")]
    Encode {
        /// Index of the step, or of the last one when the whole is too long.
        step: usize,
        /// Its name.
        name: String,
        /// What is wrong.
        source: EncodeError,
    },
    /// A plan with steps of the host where one tape is to hold the whole token.
    #[error(
        "{count} steps are the host's ({first}) and cannot be in a tape; lower the segments between \
         them (--retain segments)"
    )]
    Barriers {
        /// How many.
        count: usize,
        /// Names of the first.
        first: String,
    },
    /// The kernels are for several targets.
    #[error("kernels for {first} and {second} in one plan; make the plan again")]
    Targets {
        /// One target.
        first: Gfx,
        /// Another.
        second: Gfx,
    },
    /// The words do not read back as the plan.
    #[error(transparent)]
    ReadBack(#[from] EncodingError),
    /// The packet linter rejects the words.
    #[error("{count} findings of the packet linter; the first: {first}")]
    Lint {
        /// The first finding that rejects.
        first: String,
        /// Findings that are no warnings.
        count: usize,
    },
    /// An address that does not fit its word.
    #[error("binding made-up addresses: {0}")]
    Resolve(#[from] ResolveError),
}

/// Packets of a segment without addresses; of a plan that is one segment, those of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lowered {
    transport: Transport,
    encoded: AddressFree,
    arena: ArenaLayout,
    entry_offsets: Vec<i64>,
    digest: Digest,
}

/// Device addresses for [`Lowered::bind`].
#[derive(Debug, Clone, Copy)]
pub struct Addresses<'a> {
    /// Kernel descriptor address per plan kernel (HSA's `kernel_object`).
    pub kernel_objects: &'a [u64],
    /// First byte of the kernarg arena, 64-byte aligned.
    pub kernarg_base: u64,
    /// Handle of the completion signal. PM4 words do not hold it.
    pub signal: u64,
}

impl Lowered {
    /// The transport.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// The address-free words, their relocations and where each launch stands.
    pub const fn encoded(&self) -> &AddressFree {
        &self.encoded
    }

    /// Where each step's kernarg bytes lie in the arena.
    pub const fn arena(&self) -> &ArenaLayout {
        &self.arena
    }

    /// BLAKE3 of the address-free form, domain-tagged: the plan's `encoding` layer for this
    /// transport and policy.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Dwords of a token: the indirect buffer, or 16 per AQL packet.
    pub fn dwords(&self) -> usize {
        self.encoded.words.len()
    }

    /// Dwords by cause.
    pub const fn causes(&self) -> &Dwords {
        &self.encoded.dwords
    }

    /// Packets that enter the ring per token.
    pub fn ring_packets(&self) -> usize {
        match self.transport {
            Transport::Aql => self.encoded.words.len() / 16,
            Transport::Pm4 => 1,
        }
    }

    /// The words with every address filled in: AQL packets of 16 words each, or the indirect
    /// buffer.
    ///
    /// # Errors
    /// An address that is absent, misaligned or above 48 bits.
    pub fn bind(&self, addresses: &Addresses<'_>) -> Result<Vec<u32>, ResolveError> {
        let entries: Vec<u64> = addresses
            .kernel_objects
            .iter()
            .zip(&self.entry_offsets)
            .map(|(object, offset)| object.wrapping_add_signed(*offset))
            .collect();
        self.encoded.resolve(&Bindings {
            entries: &entries,
            objects: addresses.kernel_objects,
            kernarg_base: addresses.kernarg_base,
            signals: &[addresses.signal],
            ibs: &[],
        })
    }
}

/// Lowers a plan without steps of the host for one transport and policy, and reads the result back.
///
/// # Errors
/// Any [`LowerError`]; each names the kernel, step or packet.
pub fn lower(
    plan: &CheckedPlan,
    images: &KernelImages,
    transport: Transport,
    policy: Policy,
) -> Result<Lowered, LowerError> {
    lower_segment(&whole(plan)?, images, transport, policy)
}

/// The one segment of a plan.
///
/// # Errors
/// [`LowerError::Barriers`].
pub fn whole(plan: &Plan) -> Result<Segment<'_>, LowerError> {
    let mut segments = Vec::new();
    let mut barriers = Vec::new();
    for piece in plan.pieces() {
        match piece {
            Piece::Segment(segment) => segments.push(segment),
            Piece::Barrier(barrier) => barriers.push(barrier.name),
        }
    }
    match segments.pop() {
        Some(segment) if barriers.is_empty() => Ok(segment),
        _ => Err(LowerError::Barriers {
            count: barriers.len(),
            first: barriers
                .iter()
                .take(NAMED)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Names of steps that a refusal gives.
const NAMED: usize = 3;

/// Lowers one segment for one transport and policy, and reads the result back.
///
/// # Errors
/// As [`lower`].
pub fn lower_segment(
    segment: &Segment<'_>,
    images: &KernelImages,
    transport: Transport,
    policy: Policy,
) -> Result<Lowered, LowerError> {
    let target = target_of(segment.plan())?;
    let kernels = kernel_images(segment.plan(), images)?;
    let arena = ArenaLayout::of(segment);
    let launches = launches(segment, &kernels, &arena, target);
    let encoded = match transport {
        Transport::Aql => encode_segment(target, policy.aql, &kernels, &launches),
        Transport::Pm4 => encode_ib(target, policy.pm4, &kernels, &launches),
    };
    let encoded = encoded.map_err(|source| encode_error(segment, source))?;
    let digest = encoding_digest(&encoded);
    let entry_offsets = kernels
        .iter()
        .map(|kernel| kernel.descriptor.entry_byte_offset)
        .collect();
    let lowered = Lowered {
        transport,
        encoded,
        arena,
        entry_offsets,
        digest,
    };
    read_back(segment, &kernels, &lowered)?;
    accept(&lint(segment, &kernels, &lowered)?)?;
    Ok(lowered)
}

/// The runs of a plan's launches in the order in which they are published: between steps of the host,
/// and beside split steps. A plan without such steps is one run.
pub fn runs(plan: &Plan) -> Vec<Segment<'_>> {
    let run = |piece| match piece {
        Piece::Segment(segment) => Some(segment),
        Piece::Barrier(barrier) => barrier.arm,
    };
    plan.pieces().into_iter().filter_map(run).collect()
}

/// Lowers every run of a plan for one transport and policy, in order.
///
/// # Errors
/// As [`lower`].
pub fn lower_runs(
    plan: &Plan,
    images: &KernelImages,
    transport: Transport,
    policy: Policy,
) -> Result<Vec<Lowered>, LowerError> {
    let runs = runs(plan);
    let lowered = runs
        .iter()
        .map(|run| lower_segment(run, images, transport, policy));
    lowered.collect()
}

/// The `encoding` layer of a token: the digest of its one run, or of the digests of all of them.
pub fn form_digest(runs: &[Lowered]) -> Digest {
    if let [one] = runs {
        return one.digest;
    }
    let mut hasher = blake3::Hasher::new_derive_key(RUNS_DOMAIN);
    for run in runs {
        hasher.update(&run.digest);
    }
    *hasher.finalize().as_bytes()
}

/// Refuses packets with a finding that is no warning; hazards are not waived.
fn accept(report: &Report) -> Result<(), LowerError> {
    let rejects = |finding: &&Finding| finding.severity != Severity::Warning;
    let mut findings = report.findings.iter().filter(rejects);
    match findings.next() {
        None => Ok(()),
        Some(first) => {
            let (first, count) = (first.to_string(), 1 + findings.count());
            Err(LowerError::Lint { first, count })
        }
    }
}

fn encoding_digest(encoded: &AddressFree) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key(ENCODING_DOMAIN);
    hasher.update(&encoded.canonical_bytes());
    *hasher.finalize().as_bytes()
}

fn target_of(plan: &Plan) -> Result<Gfx, LowerError> {
    let mut targets = plan.kernels.iter().map(|kernel| gfx(kernel.target));
    // A checked plan has a kernel; without one there is nothing to encode and any target will do.
    let first = targets.next().unwrap_or(Gfx::Gfx1201);
    match targets.find(|target| *target != first) {
        Some(second) => Err(LowerError::Targets { first, second }),
        None => Ok(first),
    }
}

/// The plan's kernels as the packet crate knows them, in plan order, without addresses.
///
/// # Errors
/// [`ImageError`] for a kernel that is absent, differs from the plan, or cannot be retained.
pub fn kernel_images(
    plan: &Plan,
    images: &KernelImages,
) -> Result<Vec<launch::KernelImage>, ImageError> {
    let image = |kernel: &refrain_planner::plan::Kernel| {
        let image = images.get(kernel)?;
        let (symbol, descriptor, facts) = (kernel.symbol.clone(), image.descriptor, image.facts);
        Ok(launch::KernelImage {
            symbol,
            descriptor,
            facts,
            entry_va: None,
        })
    };
    plan.kernels.iter().map(image).collect()
}

fn launches(
    segment: &Segment<'_>,
    kernels: &[launch::KernelImage],
    arena: &ArenaLayout,
    target: Gfx,
) -> Vec<DispatchDesc> {
    let steps = segment.launches().iter().enumerate();
    let describe = |(index, planned): (usize, &refrain_planner::plan::SegmentLaunch<'_>)| {
        let launch = planned.launch;
        let kernel = launch.kernel as usize;
        let fixed = kernels
            .get(kernel)
            .map_or(0, |k| k.descriptor.group_segment_fixed_size);
        DispatchDesc {
            kernel: launch.kernel,
            groups: launch.grid,
            group_size: segment.kernel(launch).map_or([0; 3], |kernel| kernel.block),
            lds_bytes: fixed,
            kernarg_offset: arena.offset(index).unwrap_or(0),
            before: before(planned.wait, target),
        }
    };
    steps.map(describe).collect()
}

/// What must stand before a launch. Where the capability row says that a writer which reuses a
/// buffer needs an acquire as well, a pure wait becomes one.
fn before(wait: Option<Invalidate>, target: Gfx) -> Before {
    let row = target.capability();
    match wait {
        None => Before::Nothing,
        Some(Invalidate::None) if !row.war_needs_acquire.value => Before::Wait,
        Some(Invalidate::None | Invalidate::Agent) => Before::WaitAcquire(row.agent_acquire.value),
    }
}

fn encode_error(segment: &Segment<'_>, source: EncodeError) -> LowerError {
    let launch = match &source {
        EncodeError::NoKernel { launch, .. }
        | EncodeError::Refused { launch, .. }
        | EncodeError::Groups { launch, .. }
        | EncodeError::GroupSize { launch, .. }
        | EncodeError::Lds { launch, .. }
        | EncodeError::KernargAlign { launch, .. }
        | EncodeError::Gcr { launch, .. } => *launch,
        EncodeError::TooLong { .. }
        | EncodeError::Empty
        | EncodeError::Packet(_)
        | EncodeError::Aql(_) => segment.launches().len().saturating_sub(1),
    };
    let (step, name) = segment.step(launch);
    LowerError::Encode {
        step: step as usize,
        name: name.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests;
