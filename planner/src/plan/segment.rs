//! A plan taken apart at its barriers.
//!
//! A [`Segment`] holds launches and nothing else, and [`Plan::pieces`] alone makes one. Lowering takes
//! segments, so a step of the host cannot get into a tape: no value of that type holds one.

use super::{HostStep, Invalidate, Kernel, Launch, Plan, StepBody, StepId};
use std::collections::HashMap;

/// One launch of a segment.
#[derive(Debug, Clone, Copy)]
pub struct SegmentLaunch<'a> {
    /// Step that it belongs to.
    pub step: StepId,
    /// Name of that step.
    pub name: &'a str,
    /// The launch.
    pub launch: &'a Launch,
    /// The wait before it, with what it invalidates; `None` for no wait.
    pub wait: Option<Invalidate>,
}

/// A run of launches between barriers, never empty.
#[derive(Debug, Clone)]
pub struct Segment<'a> {
    plan: &'a Plan,
    launches: Vec<SegmentLaunch<'a>>,
}

impl<'a> Segment<'a> {
    /// The plan.
    pub const fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// Its launches in order, at least one.
    pub fn launches(&self) -> &[SegmentLaunch<'a>] {
        &self.launches
    }

    /// The plan's record of a launch's kernel.
    pub fn kernel(&self, launch: &Launch) -> Option<&'a Kernel> {
        self.plan.kernels.get(launch.kernel as usize)
    }

    /// Number and name of the step of launch `index`, or of the last.
    pub fn step(&self, index: usize) -> (StepId, &'a str) {
        let found = self.launches.get(index).or(self.launches.last());
        found.map_or((0, ""), |launch| (launch.step, launch.name))
    }
}

/// A step of the host between segments.
#[derive(Debug, Clone)]
pub struct Barrier<'a> {
    /// The step.
    pub step: StepId,
    /// Its name.
    pub name: &'a str,
    /// What the host does.
    pub host: &'a HostStep,
    /// Launches that run at the same time; only of a split step.
    pub arm: Option<Segment<'a>>,
}

/// A part of a plan, in order.
#[derive(Debug, Clone)]
pub enum Piece<'a> {
    /// Launches.
    Segment(Segment<'a>),
    /// A step of the host.
    Barrier(Barrier<'a>),
}

impl Plan {
    /// The plan taken apart at its barriers.
    pub fn pieces(&self) -> Vec<Piece<'_>> {
        let waits: HashMap<StepId, Invalidate> = self
            .schedule
            .waits
            .iter()
            .map(|wait| (wait.before, wait.invalidate))
            .collect();
        let mut pieces = Vec::new();
        let mut run = Vec::new();
        for (step, planned) in (0..).zip(&self.steps) {
            let name = planned.name.as_str();
            let of = |launch| SegmentLaunch {
                step,
                name,
                launch,
                wait: None,
            };
            match &planned.body {
                StepBody::Launch(launch) => run.push(SegmentLaunch {
                    wait: waits.get(&step).copied(),
                    ..of(launch)
                }),
                StepBody::Cpu(host) => {
                    pieces.extend(self.segment(std::mem::take(&mut run)));
                    let barrier = Barrier {
                        step,
                        name,
                        host,
                        arm: None,
                    };
                    pieces.push(Piece::Barrier(barrier));
                }
                StepBody::Split(split) => {
                    pieces.extend(self.segment(std::mem::take(&mut run)));
                    let launches: Vec<_> = split.launches.iter().map(of).collect();
                    let arm = (!launches.is_empty()).then_some(Segment {
                        plan: self,
                        launches,
                    });
                    let barrier = Barrier {
                        step,
                        name,
                        host: &split.host,
                        arm,
                    };
                    pieces.push(Piece::Barrier(barrier));
                }
            }
        }
        pieces.extend(self.segment(run));
        pieces
    }

    fn segment<'a>(&'a self, launches: Vec<SegmentLaunch<'a>>) -> Option<Piece<'a>> {
        (!launches.is_empty()).then_some(Piece::Segment(Segment {
            plan: self,
            launches,
        }))
    }

    /// Every launch with its step, those of split steps included, in order.
    pub fn launches(&self) -> impl Iterator<Item = (StepId, &Launch)> {
        let steps = (0..).zip(&self.steps);
        steps.flat_map(|(id, step)| step.body.launches().iter().map(move |launch| (id, launch)))
    }

    /// Steps that are barriers.
    pub fn barriers(&self) -> impl Iterator<Item = (StepId, &super::Step)> {
        let steps = (0..).zip(&self.steps);
        steps.filter(|(_, step)| step.body.is_barrier())
    }
}
