//! Arms: several ways to execute the tokens of one plan on one instance, for a benchmark.
//!
//! All arms share the instance's buffers and start each row from the same state, so their tokens
//! must be equal; each row comes with the counts that prove which way it took ([`rows`]). Which
//! rows to run, and what to conclude from them, is left to the benchmark.

mod rows;

pub use rows::{Observed, Row};

use crate::lifecycle::{Checked, Poisoned, Ready, ReadySegments, StageError, one_tape};
use crate::open::OpenedDevice;
use crate::prove::{Credentials, Standing};
use crate::refusal::{Code, Refusal};
use crate::replayer::Replayer;
use crate::session::SessionError;
use refrain_device::{Capture, DeviceError, Function, Graph, HipCall, Observer, ObserverGuard};
use refrain_lower::{Lowered, Policy, Transport};
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::plan::BufferKind;
use refrain_recorder::{
    BufferState, CodeObjects, EagerError, EagerExecutor, Instance, Kept, LaunchSink, TensorSource,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Byte that scratch is filled with before runs that are compared.
const SCRUB: u8 = 0xA5;

/// A way to execute tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArmKind {
    /// One HIP launch per step.
    Eager,
    /// One captured HIP graph per token.
    Graph,
    /// One AQL packet per launch.
    Aql,
    /// One PM4 indirect buffer per token.
    Pm4,
    /// One PM4 indirect buffer per run of launches between steps of the host.
    Segments,
}

/// What is fixed about a kind of arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArmRow {
    /// The kind.
    pub kind: ArmKind,
    /// Its name in commands and reports.
    pub name: &'static str,
    /// Transport of its packets, if it publishes its own.
    pub transport: Option<Transport>,
    /// Whether a token is something that was made before.
    pub retained: bool,
}

const fn arm(
    kind: ArmKind,
    name: &'static str,
    transport: Option<Transport>,
    retained: bool,
) -> ArmRow {
    ArmRow {
        kind,
        name,
        transport,
        retained,
    }
}

impl ArmKind {
    /// Every kind, one row each.
    pub const ROWS: [ArmRow; 5] = [
        arm(Self::Eager, "eager", None, false),
        arm(Self::Graph, "graph", None, true),
        arm(Self::Aql, "aql", Some(Transport::Aql), true),
        arm(Self::Pm4, "pm4", Some(Transport::Pm4), true),
        arm(Self::Segments, "segments", Some(Transport::Pm4), true),
    ];

    /// The kind's row.
    pub const fn row(self) -> &'static ArmRow {
        &Self::ROWS[self as usize]
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut rows = Self::ROWS.iter();
        rows.find(|row| row.name == name).map(|row| row.kind)
    }
}

/// How arms run.
#[derive(Debug, Clone)]
pub struct ArmOptions {
    /// Encoding policies.
    pub policy: Policy,
    /// Tokens that may be queued at once on any arm, at least 1.
    pub in_flight: u32,
    /// Longest wait for one token.
    pub deadline: Duration,
    /// The proof of the packets, or leave to go without one on a card.
    pub credentials: Credentials,
}

impl Default for ArmOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            in_flight: 1,
            deadline: Duration::from_secs(60),
            credentials: Credentials::default(),
        }
    }
}

#[derive(Debug)]
enum Executor {
    Eager,
    Graph(Box<Graph>),
    Packets(Box<Replayer>, Box<Lowered>),
    Segments(Box<ReadySegments>),
}

/// One arm that can run.
#[derive(Debug)]
pub struct Arm {
    kind: ArmKind,
    executor: Executor,
    identity: String,
    standing: Standing,
}

impl Arm {
    /// The kind.
    pub const fn kind(&self) -> ArmKind {
        self.kind
    }

    /// What runs: the digest of the packets without addresses, or the sequence hash where HIP
    /// makes the packets.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether a proof of its packets was shown.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// Dwords of one token's packets; 0 where HIP makes them.
    pub fn dwords(&self) -> usize {
        match &self.executor {
            Executor::Packets(_, lowered) => lowered.dwords(),
            Executor::Segments(segments) => segments.lowered.iter().map(Lowered::dwords).sum(),
            Executor::Eager | Executor::Graph(_) => 0,
        }
    }

    fn replays(&self) -> u64 {
        match &self.executor {
            Executor::Packets(replayer, _) => replayer.completed(),
            Executor::Segments(segments) => segments.replayer.completed(),
            Executor::Eager | Executor::Graph(_) => 0,
        }
    }
}

/// Launches and graphs that passed the HIP table.
#[derive(Debug, Default)]
struct Calls {
    launches: AtomicU64,
    graphs: AtomicU64,
}

impl Observer for Calls {
    fn observe(&self, call: &HipCall<'_>) {
        let counter = match call {
            HipCall::Launch { .. } => &self.launches,
            HipCall::Graph { .. } => &self.graphs,
            HipCall::Copy { .. } | HipCall::Memset { .. } => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where rows start: a position whose KV rows are in memory, the token there, and the state.
#[derive(Debug)]
struct Start {
    position: u32,
    token: u32,
    state: Kept,
}

/// The arms of one plan.
pub struct Arms {
    // Fields drop in this order: what is in flight names the instance's buffers.
    arms: Vec<Arm>,
    eager: EagerExecutor,
    instance: Instance,
    opened: OpenedDevice,
    calls: Arc<Calls>,
    _guard: ObserverGuard,
    refused: Vec<(ArmKind, Refusal)>,
    start: Option<Start>,
    in_flight: u32,
}

impl std::fmt::Debug for Arms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<&str> = self.arms.iter().map(|arm| arm.kind.row().name).collect();
        f.debug_struct("Arms").field("kinds", &kinds).finish()
    }
}

struct CaptureSink<'a, 'b>(&'a mut Capture<'b>);

impl LaunchSink for CaptureSink<'_, '_> {
    fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        self.0.launch(function, grid, block, lds, kernarg)
    }
}

/// Either error of a capture.
enum CaptureError {
    Device(DeviceError),
    Eager(EagerError),
}

impl From<DeviceError> for CaptureError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl Arms {
    /// Prepares the arms of `kinds`, each once. A kind that is refused is listed in
    /// [`Self::refused`] and has no arm; the eager one is never refused.
    ///
    /// # Errors
    /// [`SessionError`] where even eager execution is not possible, or a device failed.
    pub fn new(
        opened: OpenedDevice,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        kinds: &[ArmKind],
        options: ArmOptions,
    ) -> Result<Self, SessionError> {
        opened.device.set_deadline(options.deadline);
        let retains = kinds.iter().any(|kind| kind.row().retained);
        let recorded = match retains {
            true => Some(record(&opened, plan, source, objects)),
            false => None,
        };
        let mut arms = Vec::new();
        let mut refused = Vec::new();
        let (instance, eager) = match recorded {
            Some(Ok(reconciled)) => {
                for &kind in kinds.iter().filter(|kind| kind.row().retained) {
                    match retained_arm(&reconciled, kind, objects, &options) {
                        Ok(arm) => arms.push(arm),
                        Err(error) => refused.push((kind, refusal_or(error)?)),
                    }
                }
                let (instance, eager, _) = reconciled.into_parts();
                (instance, eager)
            }
            other => {
                if let Some(Err(poisoned)) = other {
                    let refusal = refusal_or(poisoned.into())?;
                    let kinds = kinds.iter().filter(|kind| kind.row().retained);
                    refused.extend(kinds.map(|kind| (*kind, refusal.clone())));
                }
                let instance = Instance::new(&opened.device, plan, source)?;
                let eager = EagerExecutor::new(&instance, objects)?;
                (instance, eager)
            }
        };
        if kinds.contains(&ArmKind::Eager) {
            arms.push(Arm {
                kind: ArmKind::Eager,
                executor: Executor::Eager,
                identity: plan.identity().sequence.to_string(),
                standing: Standing::Unproved,
            });
        }
        arms.sort_by_key(|arm| kinds.iter().position(|kind| *kind == arm.kind));
        let calls = Arc::new(Calls::default());
        let guard = opened.device.attach(calls.clone());
        Ok(Self {
            arms,
            eager,
            instance,
            opened,
            calls,
            _guard: guard,
            refused,
            start: None,
            in_flight: options.in_flight.max(1),
        })
    }

    /// The arms, in the order that was asked for.
    pub fn arms(&self) -> &[Arm] {
        &self.arms
    }

    /// Kinds without an arm, and why.
    pub fn refused(&self) -> &[(ArmKind, Refusal)] {
        &self.refused
    }

    /// The device.
    pub const fn opened(&self) -> &OpenedDevice {
        &self.opened
    }

    /// The plan.
    pub const fn plan(&self) -> &Arc<CheckedPlan> {
        self.instance.plan()
    }

    /// The buffers that all arms share.
    pub const fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Launches of one token.
    pub fn launches(&self) -> usize {
        self.eager.launches()
    }

    /// Refuses rows of `tokens` tokens from a context of `context` tokens that the plan does not
    /// hold with one position to spare: at its very end a text stops.
    ///
    /// # Errors
    /// [`Refusal`] of [`Code::BeyondContext`].
    pub fn check_span(&self, context: u32, tokens: u32) -> Result<(), Refusal> {
        check_span(self.plan(), context, tokens)
    }

    /// Decodes a prompt eagerly up to its last token, where rows then start, and keeps the state
    /// there. Prompts have at least 1 token; rows start at position `prompt.len() - 1`.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn prefill(&mut self, prompt: &[u32]) -> Result<(), SessionError> {
        self.start = None;
        self.instance.reset(prompt, u32::MAX)?;
        let before = prompt.len().saturating_sub(1);
        for _ in 0..before {
            self.eager.submit(&self.instance)?;
            self.eager.wait()?;
        }
        let Some(&token) = prompt.last() else {
            return Ok(());
        };
        self.start = Some(Start {
            // A prompt fits its bucket, which is a u32.
            position: before as u32,
            token,
            state: self.instance.keep(BufferKind::State)?,
        });
        Ok(())
    }

    /// Fills scratch with a fixed byte, so that two runs that are compared start alike.
    ///
    /// # Errors
    /// [`SessionError::Instance`].
    pub fn scrub(&self) -> Result<(), SessionError> {
        Ok(self.instance.fill(BufferKind::Scratch, SCRUB)?)
    }

    /// Every buffer, byte for byte, between rows.
    ///
    /// # Errors
    /// [`SessionError::Instance`].
    pub fn snapshot(&self) -> Result<Vec<BufferState>, SessionError> {
        Ok(self.instance.snapshot()?)
    }
}

/// As [`Arms::check_span`], before anything is prepared.
///
/// # Errors
/// [`Refusal`] of [`Code::BeyondContext`].
pub fn check_span(plan: &CheckedPlan, context: u32, tokens: u32) -> Result<(), Refusal> {
    let (end, bucket) = (u64::from(context) + u64::from(tokens), plan.options.bucket);
    if end < u64::from(bucket) {
        return Ok(());
    }
    let text = format!(
        "{tokens} tokens from a context of {context} end at {end}, the plan has {bucket} positions"
    );
    Err(Refusal::new(Code::BeyondContext, text))
}

fn record(
    opened: &OpenedDevice,
    plan: &Arc<CheckedPlan>,
    source: &dyn TensorSource,
    objects: &dyn CodeObjects,
) -> Result<crate::lifecycle::Reconciled, Poisoned> {
    Checked::new(plan, &opened.device)?
        .record(source, objects, None)?
        .reconcile()
}

/// The refusal behind an error, or the error.
fn refusal_or(error: SessionError) -> Result<Refusal, SessionError> {
    error.refusal().ok_or(error)
}

fn retained_arm(
    reconciled: &crate::lifecycle::Reconciled,
    kind: ArmKind,
    objects: &dyn CodeObjects,
    options: &ArmOptions,
) -> Result<Arm, SessionError> {
    let plan = reconciled.instance().plan();
    let ArmOptions {
        policy,
        in_flight,
        deadline,
        ref credentials,
    } = *options;
    if kind == ArmKind::Segments {
        return segments_arm(reconciled, objects, options);
    }
    // A tape or graph would execute steps of the host once, while it is made.
    one_tape(plan)?;
    let Some(transport) = kind.row().transport else {
        let captured = Graph::capture(plan_device(reconciled), |capture| {
            let sink = &mut CaptureSink(capture);
            let submitted = reconciled.eager().submit_to(reconciled.instance(), sink);
            submitted.map_err(CaptureError::Eager)
        });
        let graph = captured.map_err(|error| match error {
            CaptureError::Device(source) => SessionError::from(Poisoned {
                stage: crate::lifecycle::Stage::Lower,
                error: Box::new(StageError::Capture(source)),
            }),
            CaptureError::Eager(error) => error.into(),
        })?;
        return Ok(Arm {
            kind,
            executor: Executor::Graph(Box::new(graph)),
            identity: plan.identity().sequence.to_string(),
            standing: Standing::Unproved,
        });
    };
    let Ready {
        replayer,
        lowered,
        standing,
    } = reconciled.ready(objects, transport, policy, in_flight, deadline, credentials)?;
    Ok(Arm {
        kind,
        identity: hex(lowered.digest()),
        standing,
        executor: Executor::Packets(Box::new(replayer), Box::new(lowered)),
    })
}

fn segments_arm(
    reconciled: &crate::lifecycle::Reconciled,
    objects: &dyn CodeObjects,
    options: &ArmOptions,
) -> Result<Arm, SessionError> {
    let ArmOptions {
        policy,
        in_flight,
        deadline,
        ref credentials,
    } = *options;
    let transport = Transport::Pm4;
    let segments =
        reconciled.ready_segments(objects, transport, policy, in_flight, deadline, credentials)?;
    let mut digest = blake3::Hasher::new_derive_key("refrain 1 segments of a benchmark arm");
    for lowered in &segments.lowered {
        digest.update(lowered.digest());
    }
    Ok(Arm {
        kind: ArmKind::Segments,
        identity: hex(digest.finalize().as_bytes()),
        standing: segments.standing,
        executor: Executor::Segments(Box::new(segments)),
    })
}

fn plan_device(reconciled: &crate::lifecycle::Reconciled) -> &Arc<refrain_device::Device> {
    reconciled.instance().device()
}
