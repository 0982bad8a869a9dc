//! Changes of a session with nothing in flight: another bucket of a family, an earlier position,
//! another plan, eager execution after a token that was not published. What is allowed is judged in
//! [`crate::lifecycle::transition`]; texts and steps are left to the parent.

use super::{Retain, Session, SessionError, SessionOptions, record};
use crate::lifecycle::transition::{Facts, Transition, judge};
use crate::lifecycle::{Making, Ready};
use crate::open::OpenedDevice;
use crate::prove::Credentials;
use crate::refusal::{Code, Refusal};
use crate::replayer::{ReplayError, Replayer};
use refrain_lower::Lowered;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::BufferKind;
use refrain_recorder::{CodeObjects, EagerExecutor, ExactEngine, Instance, TensorSource};
use std::sync::Arc;

/// Executors of one bucket of a family.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) replayer: Option<Replayer>,
    pub(super) lowered: Option<Lowered>,
    pub(super) eager: EagerExecutor,
    pub(super) bucket: u32,
    /// Launches of a token outside of split steps.
    pub(super) outside_splits: u64,
}

impl Session {
    /// Prepares a family of plans over buckets of one context, ascending, as
    /// `refrain_planner::compile_family` makes it: all run on the buffers of the last, and a text
    /// goes on under the next plan where its bucket ends, with nothing in flight.
    ///
    /// # Errors
    /// As [`Self::with_credentials`]; where one plan is refused, none is retained.
    pub fn family(
        opened: OpenedDevice,
        plans: &[Arc<CheckedPlan>],
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        options: SessionOptions,
        credentials: &Credentials,
    ) -> Result<Self, SessionError> {
        let Some((whole, rest)) = plans.split_last() else {
            let refusal = Refusal::new(Code::BeyondContext, "a family without plans");
            return Err(SessionError::Refused(refusal));
        };
        let hosted = |plan: &Arc<CheckedPlan>| plan.barriers().next().is_some();
        if !rest.is_empty() && plans.iter().any(hosted) {
            let text = "a family of buckets with steps of the host; leave out --buckets";
            return Err(SessionError::Refused(Refusal::new(Code::HostSteps, text)));
        }
        let engine = Arc::new(ExactEngine);
        let mut session =
            Self::with_credentials(opened, whole, source, objects, options, engine, credentials)?;
        for plan in rest.iter().rev() {
            // Its own recording, on buffers of its own, which are freed once its packets are made.
            let reconciled = match session.replayer.is_some() {
                true => session.record_member(plan, source, objects, options.retain)?,
                false => None,
            };
            session.instance.set_plan(plan)?;
            let member = member(&session.instance, reconciled, objects, options, credentials);
            session.instance.set_plan(whole)?;
            session.others.push(member?);
        }
        session.others.reverse();
        Ok(session)
    }

    /// The recording of one plan of a family; `None` where it is refused and the session goes on
    /// eagerly.
    fn record_member(
        &mut self,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        retain: Retain,
    ) -> Result<Option<crate::lifecycle::Reconciled>, SessionError> {
        let poisoned = match record(&self.opened, plan, source, objects) {
            Ok(reconciled) => return Ok(Some(reconciled)),
            Err(poisoned) => poisoned,
        };
        match poisoned.error.refusal().filter(|_| retain == Retain::Auto) {
            None => Err(poisoned.into()),
            Some(refusal) => {
                self.stay_eager(refusal);
                Ok(None)
            }
        }
    }

    fn stay_eager(&mut self, refusal: Refusal) {
        self.counters.refusals.add(refusal.code);
        self.refusal = Some(refusal);
        self.replayer = None;
        for member in &mut self.others {
            member.replayer = None;
        }
    }

    pub(super) fn judge(&self, transition: Transition) -> Result<(), SessionError> {
        let plan = self.instance.plan();
        let mut buckets: Vec<u32> = self.others.iter().map(|member| member.bucket).collect();
        buckets.push(self.bucket);
        buckets.sort_unstable();
        let facts = Facts {
            in_flight: self.replayer.as_ref().map_or(0, Replayer::in_flight),
            position: self.position(),
            context: plan.options.bucket,
            buckets: &buckets,
            recurrent: plan
                .buffers
                .iter()
                .any(|buffer| buffer.kind == BufferKind::State),
            poisoned: self.replayer.as_ref().and_then(Replayer::poisoned),
        };
        judge(transition, &facts).map_err(SessionError::Refused)
    }

    /// Goes on at an earlier position of the current text with `token`, where the model's state
    /// allows it; no token ends the text early. Waits for tokens in flight first.
    ///
    /// # Errors
    /// [`SessionError::Refused`] with [`Code::Transition`], and device errors.
    pub fn jump(&mut self, position: u32, token: u32) -> Result<(), SessionError> {
        self.idle()?;
        self.judge(Transition::Jump { to: position })?;
        self.instance.resume(position, token)?;
        self.begin(position, 1);
        Ok(())
    }

    /// Says whether the session serves a context of that many tokens. It never grows: more is
    /// another plan, see [`Self::swap`].
    ///
    /// # Errors
    /// [`SessionError::Refused`] with [`Code::BeyondContext`].
    pub fn require_context(&self, context: u32) -> Result<(), SessionError> {
        self.judge(Transition::Grow { context })
    }

    /// Ends the session with nothing in flight, frees its buffers, and prepares another plan on
    /// the same device.
    ///
    /// # Errors
    /// As [`Self::new`]; the old session is gone.
    pub fn swap(
        mut self,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        objects: &dyn CodeObjects,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        if self
            .replayer
            .as_ref()
            .and_then(Replayer::poisoned)
            .is_none()
        {
            self.idle()?;
            self.judge(Transition::Swap)?;
        }
        let opened = self.opened.clone();
        drop(self);
        Self::new(opened, plan, source, objects, options)
    }

    /// Puts the executors of the position's bucket in place.
    pub(super) fn bucket_of(&mut self, position: u32) -> Result<(), SessionError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let ends = self.others.iter().map(|member| member.bucket);
        let serving = ends.chain([self.bucket]).filter(|end| *end > position);
        let Some(end) = serving.min().filter(|end| *end != self.bucket) else {
            return Ok(());
        };
        self.idle()?;
        self.judge(Transition::Bucket { end })?;
        if let Some(member) = self.others.iter_mut().find(|member| member.bucket == end) {
            std::mem::swap(&mut self.replayer, &mut member.replayer);
            std::mem::swap(&mut self.lowered, &mut member.lowered);
            std::mem::swap(&mut self.eager, &mut member.eager);
            std::mem::swap(&mut self.bucket, &mut member.bucket);
            std::mem::swap(&mut self.outside_splits, &mut member.outside_splits);
            self.counters.bucket_switches += 1;
        }
        Ok(())
    }

    /// Executes a token eagerly that was not published, if the tokens before it completed, and
    /// leaves the session eager.
    pub(super) fn fall_back(&mut self, error: ReplayError) -> Result<(), SessionError> {
        let Some(replayer) = &mut self.replayer else {
            return Err(error.into());
        };
        replayer.finish_published()?;
        let refusal = Refusal::new(Code::NotPublished, &error);
        tracing::warn!(%refusal, "eager from here on");
        self.counters.fallbacks += 1;
        self.stay_eager(refusal);
        self.step_eager()
    }
}

/// The executors of one plan of a family on the shared instance.
fn member(
    instance: &Instance,
    reconciled: Option<crate::lifecycle::Reconciled>,
    objects: &dyn CodeObjects,
    options: SessionOptions,
    credentials: &Credentials,
) -> Result<Member, SessionError> {
    let making = Making {
        transport: options.transport,
        policy: options.policy,
        in_flight: options.in_flight,
        deadline: options.deadline,
        credentials,
    };
    let ready = match &reconciled {
        Some(reconciled) => Some(reconciled.ready_on(instance, objects, &making)?),
        None => None,
    };
    let (replayer, lowered) = match ready {
        Some(Ready {
            replayer, lowered, ..
        }) => (Some(replayer), Some(lowered)),
        None => (None, None),
    };
    Ok(Member {
        replayer,
        lowered,
        eager: EagerExecutor::new(instance, objects)?,
        bucket: instance.plan().options.bucket,
        outside_splits: super::outside_splits(instance.plan()),
    })
}
