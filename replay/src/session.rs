//! What a command line runs: one plan on one device, eagerly or retained, and its figures.
//!
//! A session prepares everything first (record, reconcile, lower), then decodes texts. A refusal
//! while preparing either ends it or, where the caller allows, leaves it eager and counted; after a
//! packet has been published nothing falls back, because a token might be executed twice.

use crate::host_time::HostTimes;
use crate::lifecycle::transition::Transition;
use crate::lifecycle::{
    Checked, Poisoned, Ready, ReadySegments, Stage, instance_code, is_real, one_tape,
};
use crate::open::OpenedDevice;
use crate::prove::{Credentials, Standing, presented};
use crate::refusal::{Code, Refusal, RefusalCounts};
use crate::replayer::{ReplayError, Replayer};
use crate::segments::SegmentError;
use refrain_kernels::StopReason;
use refrain_lower::{Lowered, Policy, Transport};
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{BufferKind, Exec, Piece, StepBody};
use refrain_recorder::{
    BufferState, CodeObjects, Difference, EagerError, EagerExecutor, ExactEngine, HostCounters,
    HostEngine, Instance, InstanceError, Reconciled, TensorSource, first_difference,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

mod change;

use change::Member;

/// Byte that scratch and KV are filled with before runs that are compared: what the first run wrote
/// must not be there for the second to find.
const SCRUB: u8 = 0xA5;

/// Whether tokens are replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retain {
    /// The whole token as one tape; a refusal is an error, and steps of the host are one.
    Whole,
    /// Each run of launches between steps of the host; a refusal is an error. One tape where the plan
    /// has no such step.
    Segments,
    /// One tape, or segments where the plan has steps of the host; a refusal is counted and the session
    /// stays eager.
    #[default]
    Auto,
    /// Never.
    None,
}

/// How a session runs.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Whether tokens are replayed.
    pub retain: Retain,
    /// How packets reach the device.
    pub transport: Transport,
    /// Encoding policies.
    pub policy: Policy,
    /// Tokens that may be queued at once, at least 1.
    pub in_flight: u32,
    /// Longest wait for one token, and for one step of the host.
    pub deadline: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            retain: Retain::Auto,
            transport: Transport::Aql,
            policy: Policy::default(),
            in_flight: 8,
            deadline: Duration::from_secs(60),
        }
    }
}

/// Why a session or a text failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Preparation failed or was refused.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// Buffers, weights or prompt.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Eager execution.
    #[error(transparent)]
    Eager(#[from] EagerError),
    /// Replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Replay of segments.
    #[error(transparent)]
    Segments(#[from] SegmentError),
    /// What is asked of the plan cannot be had, by code.
    #[error(transparent)]
    Refused(Refusal),
    /// A plan with steps of the host ran and the host did nothing.
    #[error("{tokens} tokens ran and the host executed {found} of {planned} steps: report it")]
    HostIdle {
        /// Token steps.
        tokens: u64,
        /// Steps of the host that were executed.
        found: u64,
        /// Steps that the plan asks for in so many tokens.
        planned: u64,
    },
    /// A retained run was asked of a session that is eager.
    #[error("this session has no retained form: {reason}")]
    NotRetained {
        /// The refusal, or that none was asked for.
        reason: String,
    },
}

impl SessionError {
    /// The refusal, if this is one.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Poisoned(poisoned) => poisoned.error.refusal(),
            Self::Refused(refusal) => Some(refusal.clone()),
            Self::Instance(error) => instance_code(error).map(|code| Refusal::new(code, error)),
            Self::Replay(error @ ReplayError::NotPublished { .. }) => {
                Some(Refusal::new(Code::NotPublished, error))
            }
            _ => None,
        }
    }
}

/// Who executes a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// One HIP launch per step.
    Eager,
    /// Pre-encoded packets.
    Retained,
}

/// What one text produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Generated tokens, an end-of-sequence token included.
    pub tokens: Vec<u32>,
    /// Why the text ended, if it did before the tokens asked for; `None` also when it was cancelled.
    pub stop: Option<StopReason>,
}

/// Eager and retained runs of one text, compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// What the retained run produced.
    pub generation: Generation,
    /// Whether both runs gave the same tokens.
    pub same_tokens: bool,
    /// The first byte in which any buffer differs (first eager, second retained).
    pub difference: Option<Difference>,
    /// Whether either run was cancelled, so that nothing was verified.
    pub cancelled: bool,
}

impl Verification {
    /// Whether tokens and every buffer byte agree.
    pub const fn verified(&self) -> bool {
        self.same_tokens && self.difference.is_none() && !self.cancelled
    }
}

/// Figures of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counters {
    /// Launches of one token, those of split steps included.
    pub launches_per_token: usize,
    /// Steps of the host in one token.
    pub barriers_per_token: usize,
    /// Runs of launches between them.
    pub segments_per_token: usize,
    /// Launches outside of split steps that were replayed, steps past the end of a text included.
    pub replayed_launches: u64,
    /// All launches outside of split steps, replayed or not.
    pub all_launches: u64,
    /// What steps of the host did, on either route, past the end of a text as well.
    pub host: HostCounters,
    /// Distinct kernels of the plan.
    pub unique_kernels: usize,
    /// Dwords of one retained token: indirect buffer, or 16 per AQL packet; 0 when eager.
    pub dwords: usize,
    /// Token steps replayed, prompt tokens included; steps past the end of a text excluded.
    pub replayed_tokens: u64,
    /// Token steps run eagerly, prompt tokens included; recording and steps past the end of a text
    /// excluded.
    pub eager_tokens: u64,
    /// Token steps, on either route, that ran after their text had ended and changed nothing: those
    /// in flight when the host read the end.
    pub past_end_tokens: u64,
    /// Tokens that were not published and ran eagerly instead.
    pub fallbacks: u64,
    /// Changes to the plan of another bucket.
    pub bucket_switches: u64,
    /// Refusals by code.
    pub refusals: RefusalCounts,
    /// Host time of an eager token in microseconds, median: launch calls, no waiting.
    pub eager_host_us: Option<f64>,
    /// Host time of a retained token in microseconds, median: signal, packets, doorbell, no
    /// waiting.
    pub retained_host_us: Option<f64>,
    /// Wall time of all texts.
    pub wall: Duration,
    /// Generated tokens of all texts.
    pub generated: u64,
}

/// One plan on one device.
#[derive(Debug)]
pub struct Session {
    // Fields drop in this order: packets in flight name the instance's buffers.
    segments: Option<ReadySegments>,
    replayer: Option<Replayer>,
    lowered: Option<Lowered>,
    standing: Standing,
    eager: EagerExecutor,
    /// Executors of the family's other buckets; empty for a plan by itself.
    others: Vec<Member>,
    /// Positions that the executors in place serve are below this.
    bucket: u32,
    /// Whether a token that was not published is executed eagerly.
    falls_back: bool,
    retained_times: HostTimes,
    instance: Instance,
    opened: OpenedDevice,
    agreement: Option<Reconciled>,
    refusal: Option<Refusal>,
    counters: Counters,
    /// Launches of a token that are not beside a step of the host.
    outside_splits: u64,
    eager_times: HostTimes,
    /// Host microseconds of an eager token that ran for comparison only.
    beside_host_us: Option<f64>,
    /// Sequence number of the next ring entry to read.
    next_seq: u32,
    stop: Option<StopReason>,
    text: TextSteps,
    cancel: Arc<AtomicBool>,
    /// Whether the current text was cancelled.
    cancelled: bool,
}

/// Token steps of the current text.
#[derive(Debug, Default)]
struct TextSteps {
    /// Steps before the one that generates the first token.
    prompt: u64,
    /// Steps submitted.
    submitted: u64,
    /// Steps counted as past the end.
    past_end: u64,
    /// Position of the first step.
    origin: u32,
}

impl Session {
    /// Prepares a plan: buffers, weights, and unless `Retain::None` recording, reconciliation and
    /// packets.
    ///
    /// # Errors
    /// [`SessionError`]; with `Retain::Auto` a refusal is none, see [`Self::refusal`].
    pub fn new(
        opened: OpenedDevice,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        Self::with_engine(
            opened,
            plan,
            source,
            objects,
            options,
            Arc::new(ExactEngine),
        )
    }

    /// As [`Self::new`], with what multiplies in steps of the host.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_engine(
        opened: OpenedDevice,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        options: SessionOptions,
        engine: Arc<dyn HostEngine>,
    ) -> Result<Self, SessionError> {
        let none = Credentials::default();
        Self::with_credentials(opened, plan, source, objects, options, engine, &none)
    }

    /// As [`Self::with_engine`], with a proof or with leave to go without one. A card replays nothing
    /// otherwise.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_credentials(
        opened: OpenedDevice,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        options: SessionOptions,
        engine: Arc<dyn HostEngine>,
        credentials: &Credentials,
    ) -> Result<Self, SessionError> {
        opened.device.set_deadline(options.deadline);
        divided(plan)?;
        if options.retain == Retain::Whole {
            one_tape(plan)?;
        }
        let mut refusal = None;
        if options.retain != Retain::None {
            let setting = Setting {
                options,
                engine: engine.clone(),
                credentials,
            };
            match retain(&opened, plan, source, objects, setting) {
                Ok(retained) => {
                    let mut session = Self::with(opened, retained);
                    session.falls_back = options.retain == Retain::Auto;
                    return Ok(session);
                }
                Err(poisoned) if options.retain == Retain::Auto => {
                    refusal = poisoned.error.refusal();
                    if refusal.is_none() {
                        return Err(poisoned.into());
                    }
                }
                Err(poisoned) => return Err(poisoned.into()),
            }
        }
        let instance = Instance::new(&opened.device, plan, source)?;
        let eager = EagerExecutor::with_engine(&instance, objects, engine, options.deadline)?;
        let mut counters = plan_counters(plan);
        if let Some(refusal) = &refusal {
            counters.refusals.add(refusal.code);
        }
        let retained = Retained {
            instance,
            eager,
            agreement: None,
            ready: None,
            segments: None,
        };
        let mut session = Self::with(opened, retained);
        session.refusal = refusal;
        session.counters = counters;
        Ok(session)
    }

    fn with(opened: OpenedDevice, retained: Retained) -> Self {
        let Retained {
            instance,
            eager,
            agreement,
            ready,
            segments,
        } = retained;
        let mut counters = plan_counters(instance.plan());
        let (replayer, lowered, standing) = match ready {
            Some(Ready {
                replayer,
                lowered,
                standing,
            }) => (Some(replayer), Some(lowered), standing),
            None => (None, None, Standing::Unproved),
        };
        counters.dwords = lowered.as_ref().map_or(0, Lowered::dwords);
        let standing = segments.as_ref().map_or(standing, |made| made.standing);
        if let Some(segments) = &segments {
            counters.dwords = segments.lowered.iter().map(Lowered::dwords).sum();
        }
        let outside_splits = outside_splits(instance.plan());
        Self {
            segments,
            replayer,
            lowered,
            standing,
            eager,
            others: Vec::new(),
            bucket: instance.plan().options.bucket,
            falls_back: false,
            retained_times: HostTimes::default(),
            instance,
            opened,
            agreement,
            refusal: None,
            outside_splits,
            counters,
            eager_times: HostTimes::default(),
            beside_host_us: None,
            next_seq: 1,
            stop: None,
            text: TextSteps::default(),
            cancel: Arc::default(),
            cancelled: false,
        }
    }

    /// The device.
    pub const fn opened(&self) -> &OpenedDevice {
        &self.opened
    }

    /// The plan's buffers.
    pub const fn instance(&self) -> &Instance {
        &self.instance
    }

    /// What recordings agreed on; `None` when eager.
    pub const fn agreement(&self) -> Option<&Reconciled> {
        self.agreement.as_ref()
    }

    /// The packets of a token without addresses; `None` when eager.
    pub const fn lowered(&self) -> Option<&Lowered> {
        self.lowered.as_ref()
    }

    /// Whether a proof of the retained form was shown.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The segments' packets and their replayer; `None` when eager or one tape.
    pub const fn segments(&self) -> Option<&ReadySegments> {
        self.segments.as_ref()
    }

    /// The transport; `None` when eager.
    pub fn transport(&self) -> Option<Transport> {
        let whole = self.lowered.as_ref().map(Lowered::transport);
        let segments = self.segments.as_ref();
        whole.or_else(|| segments.map(|segments| segments.replayer.transport()))
    }

    /// The replayer of one tape; `None` when eager or in segments.
    pub const fn replayer(&self) -> Option<&Replayer> {
        self.replayer.as_ref()
    }

    /// Why an `Auto` session is eager.
    pub const fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// The route that [`Self::generate`] takes.
    pub const fn route(&self) -> Route {
        if self.replayer.is_some() || self.segments.is_some() {
            Route::Retained
        } else {
            Route::Eager
        }
    }

    /// Figures so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.eager_host_us = self.eager_times.median_us().or(self.beside_host_us);
        let segments = self.segments.as_ref().map(|row| row.replayer.host_times());
        let segments = segments.and_then(HostTimes::median_us);
        counters.retained_host_us = self.retained_times.median_us().or(segments);
        counters.host = self.eager.host_counters();
        counters
    }

    /// A flag that ends texts from any thread: while it is set, [`Self::advance`] submits no step.
    /// The session never clears it.
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// Whether the current text was ended by [`Self::cancel_handle`].
    pub const fn cancelled(&self) -> bool {
        self.cancelled
    }

    /// Starts a text. Waits for tokens in flight first.
    ///
    /// # Errors
    /// Prompt errors and device errors.
    pub fn start(&mut self, prompt: &[u32], generate: u32) -> Result<(), SessionError> {
        self.idle()?;
        self.judge(Transition::Reset)?;
        self.instance.reset(prompt, generate)?;
        self.begin(0, prompt.len());
        Ok(())
    }

    fn begin(&mut self, origin: u32, prompt: usize) {
        self.next_seq = 1;
        self.stop = None;
        self.cancelled = false;
        self.text = TextSteps {
            prompt: prompt.saturating_sub(1) as u64,
            origin,
            ..TextSteps::default()
        };
    }

    /// Position of the next step.
    fn position(&self) -> u32 {
        let steps = u32::try_from(self.text.submitted).unwrap_or(u32::MAX);
        self.text.origin.saturating_add(steps)
    }

    fn step_eager(&mut self) -> Result<(), SessionError> {
        let start = Instant::now();
        let hosted = self.counters.barriers_per_token > 0;
        self.eager.submit(&self.instance)?;
        // With steps of the host the call waits for the GPU as well.
        if !hosted {
            self.eager_times.add(start.elapsed());
        }
        self.counters.eager_tokens += 1;
        Ok(self.eager.wait()?)
    }

    fn step_retained(&mut self) -> Result<(), SessionError> {
        if let Some(replayer) = &mut self.replayer {
            match replayer.submit() {
                Ok(()) => self.retained_times.add(replayer.last_host()),
                Err(error @ ReplayError::NotPublished { .. }) if self.falls_back => {
                    return self.fall_back(error);
                }
                Err(error) => return Err(error.into()),
            }
        } else if let Some(segments) = &mut self.segments {
            let mut host = self.eager.host();
            segments.replayer.submit(&self.instance, &mut host)?;
        } else if self.counters.fallbacks > 0 {
            // The rest of a text whose token fell back.
            return self.step_eager();
        } else {
            let reason = match &self.refusal {
                Some(refusal) => refusal.to_string(),
                None => "it was made with Retain::None".to_owned(),
            };
            return Err(SessionError::NotRetained { reason });
        }
        self.counters.replayed_tokens += 1;
        self.counters.replayed_launches += self.outside_splits;
        Ok(())
    }

    /// Waits until nothing is in flight.
    ///
    /// # Errors
    /// [`SessionError::Replay`] or [`SessionError::Eager`].
    pub fn idle(&mut self) -> Result<(), SessionError> {
        self.drain()?;
        Ok(self.eager.wait()?)
    }

    /// Waits until no replayed token is in flight.
    fn drain(&mut self) -> Result<(), SessionError> {
        if let Some(replayer) = &mut self.replayer {
            replayer.drain()?;
        }
        if let Some(segments) = &mut self.segments {
            segments.replayer.drain()?;
        }
        Ok(())
    }

    /// Runs up to `steps` token steps of the current text and hands out generated tokens as the
    /// host reads them from the ring. Ends early once the text has ended; steps in flight then
    /// change nothing. Also ends early, and ends the text, once [`Self::cancel_handle`] is set: it
    /// is looked at before each step and after each token handed out, and no token is handed out
    /// after it. Leaves nothing in flight. On the retained route no memory is allocated and no
    /// kernarg byte is written, unless an error is reported.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn advance(
        &mut self,
        route: Route,
        steps: u32,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<(), SessionError> {
        for _ in 0..steps {
            if self.stop.is_some() || self.look_for_cancel() {
                break;
            }
            self.step(route)?;
            self.read_ring(on_token)?;
        }
        self.settle(route, on_token)
    }

    /// Runs exactly `steps` token steps, past the end of the text as well.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn advance_past_end(&mut self, route: Route, steps: u32) -> Result<(), SessionError> {
        for _ in 0..steps {
            self.step(route)?;
            self.read_ring(&mut |_| {})?;
        }
        self.settle(route, &mut |_| {})
    }

    fn look_for_cancel(&mut self) -> bool {
        self.cancelled |= self.cancel.load(Ordering::Relaxed);
        self.cancelled
    }

    /// Waits until nothing is in flight, reads the rest of the ring, and takes the steps that ran
    /// past the end of the text out of the route's figure.
    fn settle(&mut self, route: Route, on_token: &mut dyn FnMut(u32)) -> Result<(), SessionError> {
        if route == Route::Retained {
            self.drain()?;
        }
        self.read_ring(on_token)?;
        if self.stop.is_some() {
            let live = self.text.prompt + u64::from(self.next_seq - 1);
            let past_end = self.text.submitted.saturating_sub(live);
            let more = past_end - self.text.past_end.min(past_end);
            self.text.past_end = past_end;
            self.counters.past_end_tokens += more;
            let counted = match route {
                Route::Eager => &mut self.counters.eager_tokens,
                Route::Retained => &mut self.counters.replayed_tokens,
            };
            *counted = counted.saturating_sub(more);
        }
        Ok(())
    }

    fn step(&mut self, route: Route) -> Result<(), SessionError> {
        let host = self.eager.host_counters();
        let done = self.run_step(route);
        if done.is_err() {
            // Of a token that failed nothing counts.
            self.eager.set_host_counters(host);
        }
        done
    }

    fn run_step(&mut self, route: Route) -> Result<(), SessionError> {
        self.bucket_of(self.position())?;
        match route {
            Route::Eager => self.step_eager()?,
            Route::Retained => self.step_retained()?,
        }
        self.counters.all_launches += self.outside_splits;
        self.text.submitted += 1;
        Ok(())
    }

    fn read_ring(&mut self, on_token: &mut dyn FnMut(u32)) -> Result<(), SessionError> {
        while self.stop.is_none()
            && let Some(entry) = self.instance.ring_entry(self.next_seq)?
        {
            self.next_seq += 1;
            self.stop = entry.stop();
            if self.stop != Some(StopReason::NotFinite) && !self.look_for_cancel() {
                self.counters.generated += 1;
                on_token(entry.token);
            }
        }
        Ok(())
    }

    /// Why the current text ended, as far as the host has read.
    pub const fn stop(&self) -> Option<StopReason> {
        self.stop
    }

    /// Decodes a text on the session's own route: the prompt, then up to `generate` tokens, each
    /// handed to `on_token` as soon as it is read.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn generate(
        &mut self,
        prompt: &[u32],
        generate: u32,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Generation, SessionError> {
        self.run(self.route(), prompt, generate, on_token)
    }

    /// As [`Self::generate`] on a chosen route.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn run(
        &mut self,
        route: Route,
        prompt: &[u32],
        generate: u32,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Generation, SessionError> {
        let start = Instant::now();
        let mut tokens = Vec::new();
        if generate > 0 {
            self.start(prompt, generate)?;
            // The last prompt token's step generates the first token.
            let prompt_steps = u32::try_from(prompt.len().saturating_sub(1)).unwrap_or(u32::MAX);
            self.advance(route, prompt_steps.saturating_add(generate), &mut |token| {
                tokens.push(token);
                on_token(token);
            })?;
        }
        self.counters.wall += start.elapsed();
        self.host_worked()?;
        let asked = self.cancelled || self.stop == Some(StopReason::Limit);
        Ok(Generation {
            tokens,
            stop: if asked { None } else { self.stop },
        })
    }

    /// Demands that every step of the host was executed in every token so far.
    fn host_worked(&self) -> Result<(), SessionError> {
        let (counters, host) = (&self.counters, self.eager.host_counters());
        let tokens = counters.eager_tokens + counters.replayed_tokens + counters.past_end_tokens;
        let planned = tokens.saturating_mul(counters.barriers_per_token as u64);
        let found = host.cpu_steps + host.split_steps;
        match found == planned {
            true => Ok(()),
            false => Err(SessionError::HostIdle {
                tokens,
                found,
                planned,
            }),
        }
    }

    fn scrub(&self) -> Result<(), InstanceError> {
        self.instance.fill(BufferKind::Scratch, SCRUB)?;
        self.instance.fill(BufferKind::State, SCRUB)?;
        self.instance.fill(BufferKind::Kv, SCRUB)
    }

    /// Runs a text eagerly and retained from the same state and compares tokens and every buffer.
    /// Where the model ended the text, tokens that were in flight ran past its end: what they leave
    /// in scratch is dead and not compared.
    ///
    /// # Errors
    /// [`SessionError`]; a difference is no error but in the result.
    pub fn verify(
        &mut self,
        prompt: &[u32],
        generate: u32,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Verification, SessionError> {
        share_is_pinned(self.instance.plan())?;
        self.idle()?;
        self.scrub()?;
        let eager = self.run_beside(prompt, generate)?;
        let cancelled = self.cancelled;
        let expected = self.snapshot()?;
        self.scrub()?;
        let generation = self.run(Route::Retained, prompt, generate, on_token)?;
        let mut states = [expected, self.snapshot()?];
        if generation.stop.is_some() {
            for states in &mut states {
                self.forget_scratch(states);
            }
        }
        let [expected, found] = &states;
        let difference = first_difference(expected, found);
        let same_tokens = eager == generation;
        Ok(Verification {
            generation,
            same_tokens,
            difference,
            cancelled: cancelled || self.cancelled,
        })
    }

    /// Takes the activations out of a snapshot: their content is dead between tokens.
    fn forget_scratch(&self, states: &mut [BufferState]) {
        let buffers = &self.instance.plan().buffers;
        for (state, buffer) in states.iter_mut().zip(buffers) {
            if matches!(buffer.kind, BufferKind::Scratch | BufferKind::HandOff) {
                state.bytes.clear();
            }
        }
    }

    /// Runs a text eagerly for comparison: neither its tokens nor its wall time count as output; its
    /// host time is what [`Counters::eager_host_us`] states if nothing else ran eagerly.
    fn run_beside(&mut self, prompt: &[u32], generate: u32) -> Result<Generation, SessionError> {
        let times = std::mem::take(&mut self.eager_times);
        let (counters, host) = (self.counters.clone(), self.eager.host_counters());
        let generation = self.run(Route::Eager, prompt, generate, &mut |_| {});
        self.beside_host_us = self.eager_times.median_us().or(self.beside_host_us);
        (self.eager_times, self.counters) = (times, counters);
        self.eager.set_host_counters(host);
        generation
    }

    /// Measures the host time of eager tokens over a text of up to `tokens` tokens, for
    /// [`Counters::eager_host_us`]. It restarts the text, so call it after the output.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn sample_eager(&mut self, prompt: &[u32], tokens: u32) -> Result<(), SessionError> {
        self.run_beside(prompt.get(..1).unwrap_or(prompt), tokens)
            .map(drop)
    }

    /// Every buffer, byte for byte, once nothing is in flight.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn snapshot(&mut self) -> Result<Vec<BufferState>, SessionError> {
        self.idle()?;
        Ok(self.instance.snapshot()?)
    }
}

struct Retained {
    instance: Instance,
    eager: EagerExecutor,
    agreement: Option<Reconciled>,
    ready: Option<Ready>,
    segments: Option<ReadySegments>,
}

/// Refuses to compare or seal what an automatic share produced.
///
/// # Errors
/// [`SessionError::Refused`] with [`Code::ShareNotPinned`].
pub fn share_is_pinned(plan: &CheckedPlan) -> Result<(), SessionError> {
    match plan.options.exec {
        Some(exec) if exec.is_auto() => {
            let detail = format!("the plan's execution is {exec}");
            Err(SessionError::Refused(Refusal::new(
                Code::ShareNotPinned,
                detail,
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses a plan that was to divide rows and divides none.
fn divided(plan: &CheckedPlan) -> Result<(), SessionError> {
    let Some(exec @ Exec::Passback { .. }) = plan.options.exec else {
        return Ok(());
    };
    let (gpu, rows) = (exec.gpu_rows(u32::MAX), u32::MAX);
    let splits = plan
        .barriers()
        .any(|(_, step)| !step.body.launches().is_empty());
    if gpu == 0 || gpu == rows || splits {
        return Ok(());
    }
    let detail = format!(
        "{exec} divides none of the spilled matrices: they are too small, or the share is less than a block of 16 rows"
    );
    Err(SessionError::Refused(Refusal::new(
        Code::NothingDivided,
        detail,
    )))
}

/// What a retained form is made with.
struct Setting<'a> {
    options: SessionOptions,
    engine: Arc<dyn HostEngine>,
    credentials: &'a Credentials,
}

fn retain(
    opened: &OpenedDevice,
    plan: &Arc<CheckedPlan>,
    source: &dyn TensorSource,
    objects: &dyn CodeObjects,
    setting: Setting<'_>,
) -> Result<Retained, Poisoned> {
    let Setting {
        options,
        engine,
        credentials,
    } = setting;
    // Nothing that is recorded could change this answer.
    presented(is_real(&opened.device), credentials).map_err(|refusal| Poisoned {
        stage: Stage::Prove,
        error: Box::new(refusal.into()),
    })?;
    let reconciled = record_with(opened, plan, source, objects, engine, options.deadline)?;
    let SessionOptions {
        transport,
        policy,
        in_flight,
        deadline,
        ..
    } = options;
    let (mut ready, mut segments) = (None, None);
    if plan.barriers().next().is_none() {
        let made = reconciled.ready(objects, transport, policy, in_flight, deadline, credentials);
        ready = Some(made?);
    } else {
        let made =
            reconciled.ready_segments(objects, transport, policy, in_flight, deadline, credentials);
        segments = Some(made?);
    }
    let (instance, eager, agreement) = reconciled.into_parts();
    // Recording executed steps of the host as well; they are no output.
    eager.set_host_counters(HostCounters::default());
    Ok(Retained {
        instance,
        eager,
        agreement: Some(agreement),
        ready,
        segments,
    })
}

/// Records a plan on a device and reconciles it.
///
/// # Errors
/// [`Poisoned`] with the stage and the reason.
pub fn record(
    opened: &OpenedDevice,
    plan: &Arc<CheckedPlan>,
    source: &dyn TensorSource,
    objects: &dyn CodeObjects,
) -> Result<crate::lifecycle::Reconciled, Poisoned> {
    let (engine, deadline) = (Arc::new(ExactEngine), SessionOptions::default().deadline);
    record_with(opened, plan, source, objects, engine, deadline)
}

fn record_with(
    opened: &OpenedDevice,
    plan: &Arc<CheckedPlan>,
    source: &dyn TensorSource,
    objects: &dyn CodeObjects,
    engine: Arc<dyn HostEngine>,
    deadline: Duration,
) -> Result<crate::lifecycle::Reconciled, Poisoned> {
    let mut tap = opened.tap();
    let tap = tap
        .as_mut()
        .map(|tap| tap as &mut dyn refrain_recorder::PacketTap);
    Checked::new(plan, &opened.device)?
        .with_engine(engine, deadline)
        .record(source, objects, tap)?
        .reconcile()
}

fn plan_counters(plan: &CheckedPlan) -> Counters {
    let mut symbols: Vec<_> = plan.kernels.iter().map(|k| (&k.symbol, k.object)).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let segments = plan.pieces().into_iter();
    let segments = segments.filter(|piece| matches!(piece, Piece::Segment(_)));
    Counters {
        launches_per_token: plan.launches().count(),
        barriers_per_token: plan.barriers().count(),
        segments_per_token: segments.count(),
        unique_kernels: symbols.len(),
        ..Counters::default()
    }
}

fn outside_splits(plan: &CheckedPlan) -> u64 {
    let launch = |body: &StepBody| matches!(body, StepBody::Launch(_));
    let launches = plan.steps.iter().filter(|step| launch(&step.body));
    launches.count() as u64
}
