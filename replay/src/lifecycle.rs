//! The life of a retained form as types: Checked → Recorded → Reconciled → Ready, or Poisoned; on
//! the last step stands the gate of proofs ([`crate::prove::admit`]).
//!
//! Each type is made only by the step before it, so nothing is retained that was not reconciled.
//! A failure says at which stage and why; [`StageError::code`] gives its refusal code. Running
//! tokens is left to [`crate::session`].

use crate::prove::{Credentials, Standing, admit};
use crate::refusal::{Code, Refusal};
use crate::replayer::Replayer;
use crate::segments::SegmentReplayer;
use refrain_device::{Device, DeviceError, Origin};
use refrain_lower::{
    ImageError, KernelImages, LowerError, Lowered, Policy, Transport, lower, lower_segment,
};
use refrain_packet::aql::encode::AqlError;
use refrain_packet::kd;
use refrain_packet::launch::EncodeError;
use refrain_packet::reloc::ResolveError;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{Eligibility, KernargError, Plan};
use refrain_recorder::eager::HOST_DEADLINE;
use refrain_recorder::file::TapeFileError;
use refrain_recorder::instance::check_target;
use refrain_recorder::reconcile::MIN_EXECUTORS;
use refrain_recorder::record::default_positions;
use refrain_recorder::source::SourceError;
use refrain_recorder::{
    CodeObjects, EagerError, EagerExecutor, ExactEngine, Expectation, HostEngine, Instance,
    InstanceError, PacketTap, ReconcileError, Reconciled as Agreement, RecordError, Recording,
    TensorSource, reconcile, record_positions,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where in its life a retained form failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before the device was touched.
    Check,
    /// While it was recorded.
    Record,
    /// While recordings were compared with the plan.
    Reconcile,
    /// While it was lowered, read back and bound.
    Lower,
    /// At the gate of proofs.
    Prove,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "checking the plan",
            Self::Record => "recording",
            Self::Reconcile => "reconciling",
            Self::Lower => "lowering",
            Self::Prove => "asking for a proof",
        })
    }
}

/// Why a stage failed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The plan says itself that it may not be retained.
    #[error("{}", .0.join("; "))]
    Ineligible(Vec<String>),
    /// One tape was asked for, and steps of the host lie in it.
    #[error("{0}; use --retain segments, or keep all layers on the GPU")]
    HostSteps(String),
    /// The GPU and the host do not see each other's signals.
    #[error("hand-off probe: {0}")]
    Handshake(String),
    /// A token's packets do not fit a ring.
    #[error(
        "a token takes {packets} packets with its gates, a ring holds {most}: use --transport pm4"
    )]
    RingTooSmall {
        /// Packets of a token.
        packets: u64,
        /// Packets of the largest ring.
        most: u64,
    },
    /// Buffers or weights.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Eager execution.
    #[error(transparent)]
    Eager(#[from] EagerError),
    /// Recording.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A tape file.
    #[error(transparent)]
    TapeFile(#[from] TapeFileError),
    /// Tapes and plan differ.
    #[error(transparent)]
    Reconcile(Box<ReconcileError>),
    /// No packets.
    #[error(transparent)]
    Lower(Box<LowerError>),
    /// Code objects cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The gate of proofs.
    #[error("{}", .0.detail)]
    Gate(#[from] Refusal),
    /// Kernel arguments.
    #[error(transparent)]
    Kernarg(#[from] KernargError),
    /// Addresses do not fit their words.
    #[error("binding addresses: {0}")]
    Resolve(#[from] ResolveError),
    /// The vendor packet.
    #[error("vendor packet: {0}")]
    Vendor(AqlError),
    /// A code object is not at hand.
    #[error(
        "the code object with kernel {symbol} is absent; rebuild the kernels or make the plan again"
    )]
    ObjectAbsent {
        /// The kernel.
        symbol: String,
    },
    /// The device refused to load code.
    #[error("loading kernel {symbol}: {source}")]
    Load {
        /// The kernel.
        symbol: String,
        /// The device's answer.
        source: DeviceError,
    },
    /// The runtime captures no graph, or refuses this one.
    #[error("capturing a graph: {0}")]
    Capture(DeviceError),
    /// The device gave no memory, queue or signal.
    #[error("{what}: {source}")]
    Allocation {
        /// What was asked for.
        what: &'static str,
        /// The device's answer.
        source: DeviceError,
    },
}

impl From<ReconcileError> for StageError {
    fn from(error: ReconcileError) -> Self {
        Self::Reconcile(Box::new(error))
    }
}

impl From<LowerError> for StageError {
    fn from(error: LowerError) -> Self {
        Self::Lower(Box::new(error))
    }
}

impl StageError {
    /// The refusal code, or `None` for an error that is no statement about the plan: a file that
    /// cannot be read, a device that failed.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Ineligible(_) => Some(Code::NotEligible),
            Self::HostSteps(_) => Some(Code::HostSteps),
            Self::Handshake(_) => Some(Code::Handshake),
            Self::RingTooSmall { .. } => Some(Code::Unencodable),
            Self::Instance(error) => instance_code(error),
            Self::Eager(EagerError::Instance(error))
            | Self::Record(
                RecordError::Instance { source: error, .. }
                | RecordError::Eager {
                    source: EagerError::Instance(error),
                    ..
                },
            ) => instance_code(error),
            Self::Eager(EagerError::ObjectAbsent { .. }) | Self::ObjectAbsent { .. } => {
                Some(Code::ObjectDiffers)
            }
            Self::TapeFile(error) => tape_file_code(error),
            Self::Reconcile(error) => Some(reconcile_code(error)),
            Self::Image(error) => Some(image_code(error)),
            Self::Lower(error) => Some(lower_code(error)),
            Self::Gate(refusal) => Some(refusal.code),
            Self::Allocation { .. } => Some(Code::Allocation),
            Self::Capture(DeviceError::EntryMissing { .. }) => Some(Code::GraphAbsent),
            Self::Resolve(_) | Self::Vendor(_) => Some(Code::Unencodable),
            Self::Eager(_)
            | Self::Record(_)
            | Self::Kernarg(_)
            | Self::Load { .. }
            | Self::Capture(_) => None,
        }
    }

    /// The refusal, if this is one.
    pub fn refusal(&self) -> Option<Refusal> {
        self.code().map(|code| Refusal::new(code, self))
    }
}

pub(crate) fn instance_code(error: &InstanceError) -> Option<Code> {
    match error {
        InstanceError::Target { .. } => Some(Code::TargetMismatch),
        InstanceError::Memory { .. } => Some(Code::MemoryShort),
        InstanceError::HostMemory { .. } => Some(Code::HostMemoryShort),
        InstanceError::Source(SourceError::Io { .. } | SourceError::Files(_)) => None,
        InstanceError::Source(SourceError::WeightsAbsent { .. }) => Some(Code::WeightsAbsent),
        InstanceError::Source(_) => Some(Code::ModelDiffers),
        // hipErrorOutOfMemory.
        InstanceError::Device { source, .. } if source.status() == Some(2) => {
            Some(Code::MemoryShort)
        }
        _ => None,
    }
}

fn tape_file_code(error: &TapeFileError) -> Option<Code> {
    match error {
        TapeFileError::Io { .. } | TapeFileError::Write(_) => None,
        TapeFileError::Version { .. } => Some(Code::FormatVersion),
        _ => Some(Code::RecordingUnfinished),
    }
}

fn reconcile_code(error: &ReconcileError) -> Code {
    match error {
        ReconcileError::OtherPlan { .. } => Code::OtherPlan,
        ReconcileError::TooFew { .. } | ReconcileError::NotRecorded { .. } => {
            Code::RecordingUnfinished
        }
        ReconcileError::ExtraLaunch { .. }
        | ReconcileError::MissingLaunch { .. }
        | ReconcileError::Swapped { .. }
        | ReconcileError::Memset { .. }
        | ReconcileError::Copy { .. }
        | ReconcileError::MissingCopy { .. }
        | ReconcileError::Field { .. } => Code::SequenceUnstable,
        ReconcileError::Kernarg { .. } | ReconcileError::Pointer { .. } => Code::KernargDiffers,
        ReconcileError::PointerOutside { .. } => Code::PointerOutside,
        ReconcileError::PositionDependent { .. } | ReconcileError::ExecutorsDisagree { .. } => {
            Code::KernargMoves
        }
        ReconcileError::Ring { .. } => Code::RingDiffers,
    }
}

fn image_code(error: &ImageError) -> Code {
    match error {
        ImageError::Target { .. } => Code::TargetMismatch,
        ImageError::HiddenArguments { .. } => Code::HiddenArguments,
        ImageError::Refused { reason, .. } => descriptor_code(reason),
        ImageError::Object { .. }
        | ImageError::ObjectAbsent { .. }
        | ImageError::KernelAbsent { .. }
        | ImageError::Differs { .. } => Code::ObjectDiffers,
    }
}

fn descriptor_code(reason: &kd::Refusal) -> Code {
    match reason {
        kd::Refusal::DynamicStack => Code::DynamicStack,
        kd::Refusal::Scratch { .. }
        | kd::Refusal::FlatScratchInit
        | kd::Refusal::PrivateSegmentSize
        | kd::Refusal::PrivateSegmentBuffer => Code::Scratch,
        kd::Refusal::Lds { .. }
        | kd::Refusal::RequiredGroupSize { .. }
        | kd::Refusal::MaxFlatGroupSize { .. }
        | kd::Refusal::PartialGroups { .. } => Code::Unencodable,
        kd::Refusal::Target { .. } => Code::TargetMismatch,
        _ => Code::RuntimePointer,
    }
}

fn lower_code(error: &LowerError) -> Code {
    match error {
        LowerError::Encode {
            source: EncodeError::TooLong { .. },
            ..
        } => Code::IbTooLong,
        LowerError::Encode {
            source: EncodeError::Refused { reason, .. },
            ..
        } => descriptor_code(reason),
        LowerError::Encode { .. } => Code::Unencodable,
        LowerError::Barriers { .. } => Code::HostSteps,
        LowerError::Targets { .. } => Code::TargetMismatch,
        LowerError::Image(error) => image_code(error),
        LowerError::ReadBack(_) => Code::ReadBack,
        LowerError::Lint { .. } => Code::Lint,
        LowerError::Resolve(_) => Code::Unencodable,
    }
}

/// A retained form that will not be: at which stage, and why.
#[derive(Debug, thiserror::Error)]
#[error("{stage}: {error}")]
pub struct Poisoned {
    /// Stage that failed.
    pub stage: Stage,
    /// Why.
    pub error: Box<StageError>,
}

/// Attaches the stage to an error.
trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Poisoned>;
}

impl<T, E: Into<StageError>> At<T> for Result<T, E> {
    fn at(self, stage: Stage) -> Result<T, Poisoned> {
        self.map_err(|error| Poisoned {
            stage,
            error: Box::new(error.into()),
        })
    }
}

/// A plan that may be retained on this device, as far as can be said without touching it.
#[derive(Clone)]
pub struct Checked {
    plan: Arc<CheckedPlan>,
    device: Arc<Device>,
    engine: Arc<dyn HostEngine>,
    host_deadline: Duration,
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checked({:?} on {:?})", self.plan, self.device)
    }
}

/// A plan with its recordings, and the instance that the last of them ran on.
#[derive(Debug)]
pub struct Recorded {
    checked: Checked,
    recording: Recording,
    instance: Instance,
    eager: EagerExecutor,
}

/// A plan whose recordings agree with it and with each other.
#[derive(Debug)]
pub struct Reconciled {
    recording: Recording,
    agreement: Agreement,
    instance: Instance,
    eager: EagerExecutor,
}

/// A plan whose packets may be published.
#[derive(Debug)]
pub struct Ready {
    /// Publishes tokens.
    pub replayer: Replayer,
    /// The address-free packets that it publishes.
    pub lowered: Lowered,
    /// Whether a proof of these packets was shown.
    pub standing: Standing,
}

impl Checked {
    /// Checks eligibility and target; the device is not touched.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Check`].
    pub fn new(plan: &Arc<CheckedPlan>, device: &Arc<Device>) -> Result<Self, Poisoned> {
        eligible(plan).at(Stage::Check)?;
        check_target(device, plan).at(Stage::Check)?;
        Ok(Self {
            plan: plan.clone(),
            device: device.clone(),
            engine: Arc::new(ExactEngine),
            host_deadline: HOST_DEADLINE,
        })
    }

    /// With what multiplies in steps of the host, and how long one of them may take.
    #[must_use]
    pub fn with_engine(self, engine: Arc<dyn HostEngine>, host_deadline: Duration) -> Self {
        Self {
            engine,
            host_deadline,
            ..self
        }
    }

    /// Records single tokens at the first, middle and last position in two fresh executors.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Record`].
    pub fn record(
        self,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        mut tap: Option<&mut dyn PacketTap>,
    ) -> Result<Recorded, Poisoned> {
        let positions = default_positions(self.plan.options.bucket);
        let sequence = Expectation::of(&self.plan).at(Stage::Record)?.sequence;
        let mut tapes = Vec::new();
        let mut last = None;
        for number in 0..MIN_EXECUTORS as u32 {
            // Freed only after the fresh one was made, its addresses differ for certain; where
            // memory does not hold both, it goes first.
            if !self.fits_twice() {
                drop(last.take());
            }
            let fresh = Instance::new(&self.device, &self.plan, source).at(Stage::Record)?;
            drop(last.take());
            let mut fresh = fresh;
            let engine = self.engine.clone();
            let eager = EagerExecutor::with_engine(&fresh, objects, engine, self.host_deadline);
            let eager = eager.at(Stage::Record)?;
            let tap = tap.as_mut().map(|tap| &mut **tap as &mut dyn PacketTap);
            let recorded = record_positions(&mut fresh, &eager, number, &positions, tap);
            tapes.extend(recorded.at(Stage::Record)?);
            last = Some((fresh, eager));
        }
        let Some((instance, eager)) = last else {
            let none = ReconcileError::TooFew {
                positions: positions.len(),
                executors: 0,
            };
            return Err(none).at(Stage::Record);
        };
        let recording = Recording { sequence, tapes };
        let (tapes, executors) = (recording.tapes.len(), recording.executors());
        tracing::info!(tapes, executors, ?positions, "recorded");
        Ok(Recorded {
            checked: self,
            recording,
            instance,
            eager,
        })
    }
}

impl Checked {
    /// Whether the device's free memory holds the plan's buffers once more.
    fn fits_twice(&self) -> bool {
        let bytes = self.plan.buffers.iter().map(|buffer| buffer.bytes);
        let needed = bytes.fold(0_u64, u64::saturating_add);
        self.device
            .memory_info()
            .is_ok_and(|(free, _)| free >= needed)
    }
}

/// Whether a device is a card, as opposed to the software GPU.
pub fn is_real(device: &Device) -> bool {
    !matches!(device.info().origin, Origin::Soft { .. })
}

fn eligible(plan: &Plan) -> Result<(), StageError> {
    match &plan.eligibility {
        Eligibility::Whole | Eligibility::Segments(_) => Ok(()),
        Eligibility::Refused(reasons) => {
            let reason = |reason: &refrain_planner::plan::RefusalReason| {
                let step = reason.step.and_then(|step| plan.steps.get(step as usize));
                let step = step
                    .map(|step| format!(" at {}", step.name))
                    .unwrap_or_default();
                format!("RF{:03}{step}: {}", reason.code, reason.detail)
            };
            Err(StageError::Ineligible(reasons.iter().map(reason).collect()))
        }
    }
}

/// Refuses one tape for a plan with steps of the host, before the device is touched.
pub(crate) fn one_tape(plan: &Plan) -> Result<(), Poisoned> {
    let Eligibility::Segments(reasons) = &plan.eligibility else {
        return Ok(());
    };
    let details: Vec<&str> = reasons
        .iter()
        .map(|reason| reason.detail.as_str())
        .collect();
    Err(StageError::HostSteps(details.join("; "))).at(Stage::Check)
}

impl Recorded {
    /// What was recorded.
    pub const fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Compares the recordings with the plan and with each other.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Reconcile`].
    pub fn reconcile(self) -> Result<Reconciled, Poisoned> {
        let expectation = Expectation::of(&self.checked.plan).at(Stage::Reconcile)?;
        let agreement = reconcile(&expectation, &self.recording).at(Stage::Reconcile)?;
        tracing::info!(
            ring_tapes = agreement.ring_tapes(),
            "reconciled with the plan"
        );
        let Self {
            recording,
            instance,
            eager,
            ..
        } = self;
        Ok(Reconciled {
            recording,
            agreement,
            instance,
            eager,
        })
    }
}

/// How a retained form is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making<'a> {
    pub(crate) transport: Transport,
    pub(crate) policy: Policy,
    pub(crate) in_flight: u32,
    pub(crate) deadline: Duration,
    pub(crate) credentials: &'a Credentials,
}

impl Reconciled {
    /// What was recorded.
    pub const fn recording(&self) -> &Recording {
        &self.recording
    }

    /// What agreed.
    pub const fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// The instance and its eager executor, for eager runs beside replays.
    pub fn into_parts(self) -> (Instance, EagerExecutor, Agreement) {
        (self.instance, self.eager, self.agreement)
    }

    /// The instance.
    pub const fn instance(&self) -> &Instance {
        &self.instance
    }

    /// The eager executor of the instance.
    pub const fn eager(&self) -> &EagerExecutor {
        &self.eager
    }

    /// Lowers the plan, reads the packets back, lets them pass the gate of proofs and binds them to
    /// the instance.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Lower`] or [`Stage::Prove`].
    pub fn ready(
        &self,
        objects: &dyn CodeObjects,
        transport: Transport,
        policy: Policy,
        in_flight: u32,
        deadline: Duration,
        credentials: &Credentials,
    ) -> Result<Ready, Poisoned> {
        let making = Making {
            transport,
            policy,
            in_flight,
            deadline,
            credentials,
        };
        self.ready_on(&self.instance, objects, &making)
    }

    /// As [`Self::ready`] on another instance, whose plan must be this one: that of a family whose
    /// plans share their buffers.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Lower`].
    pub(crate) fn ready_on(
        &self,
        instance: &Instance,
        objects: &dyn CodeObjects,
        making: &Making<'_>,
    ) -> Result<Ready, Poisoned> {
        let Making {
            transport,
            policy,
            in_flight,
            deadline,
            credentials,
        } = *making;
        let plan = instance.plan();
        let images = images(plan, objects).at(Stage::Lower)?;
        let lowered = lower(plan, &images, transport, policy).at(Stage::Lower)?;
        let real = is_real(instance.device());
        let standing = admit(real, plan, transport, lowered.digest(), credentials);
        let standing = standing.at(Stage::Prove)?;
        tracing::info!(%transport, dwords = lowered.dwords(), causes = ?lowered.causes(), "lowered and read back");
        let replayer = Replayer::new(instance, &lowered, objects, in_flight, deadline);
        Ok(Ready {
            replayer: replayer.at(Stage::Lower)?,
            lowered,
            standing,
        })
    }
}

/// A plan with steps of the host whose segments may be published.
#[derive(Debug)]
pub struct ReadySegments {
    /// Publishes segments and executes the steps between them.
    pub replayer: SegmentReplayer,
    /// Address-free packets of each run of launches, those beside steps of the host included, in order.
    pub lowered: Vec<Lowered>,
    /// Whether a proof of these packets was shown.
    pub standing: Standing,
}

impl Reconciled {
    /// Lowers the runs of launches between steps of the host, lets them pass the gate of proofs, probes
    /// the hand-off, and binds them to the instance. A plan without such steps is one segment.
    ///
    /// # Errors
    /// [`Poisoned`] at [`Stage::Lower`] or [`Stage::Prove`].
    pub fn ready_segments(
        &self,
        objects: &dyn CodeObjects,
        transport: Transport,
        policy: Policy,
        in_flight: u32,
        deadline: Duration,
        credentials: &Credentials,
    ) -> Result<ReadySegments, Poisoned> {
        let plan = self.instance.plan();
        let images = images(plan, objects).at(Stage::Lower)?;
        let mut lowered = Vec::new();
        for segment in crate::segments::runs(plan) {
            let run = lower_segment(&segment, &images, transport, policy).at(Stage::Lower)?;
            lowered.push(run);
        }
        tracing::info!(%transport, segments = lowered.len(), "lowered and read back");
        let real = is_real(self.instance.device());
        let digest = refrain_lower::form_digest(&lowered);
        let standing = admit(real, plan, transport, &digest, credentials).at(Stage::Prove)?;
        let replayer = SegmentReplayer::new(&self.instance, &lowered, objects, in_flight, deadline);
        Ok(ReadySegments {
            replayer: replayer.at(Stage::Lower)?,
            lowered,
            standing,
        })
    }
}

/// The images of a plan's code objects.
///
/// # Errors
/// [`StageError::ObjectAbsent`] or [`StageError::Image`].
pub fn images(plan: &Plan, objects: &dyn CodeObjects) -> Result<KernelImages, StageError> {
    let mut images = KernelImages::new();
    let mut seen = Vec::new();
    for kernel in &plan.kernels {
        if seen.contains(&kernel.object) {
            continue;
        }
        let absent = || StageError::ObjectAbsent {
            symbol: kernel.symbol.clone(),
        };
        images.add(objects.get(&kernel.object).ok_or_else(absent)?)?;
        seen.push(kernel.object);
    }
    Ok(images)
}

pub mod transition;

#[cfg(test)]
mod tests;
