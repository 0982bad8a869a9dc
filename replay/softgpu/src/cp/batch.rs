//! Launches that may overlap: collected until something waits for them, then run together by
//! `exec::run_batch`. Keeps what must happen afterwards (completion signals).

use super::access::Release;
use super::fault::{Cause, PacketError, QueueFault, code};
use super::inject;
use crate::exec::{
    Dispatch, ExecError, LaunchProblem, RunConfig, WaveFault, group_count, run_batch_until,
};
use crate::gpu::{Shared, count};
use crate::object::Kernel;
use crate::strict::{Pending, PendingRelease};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Launches after which a batch runs even if nothing waits for it; bounds memory, not meaning.
const MAX_LAUNCHES: usize = 256;

/// Where a launch came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub packet: u64,
    pub packet_type: &'static str,
    /// Completion signal to decrement when the launch has finished, 0 for none.
    pub signal: u64,
}

/// The shape of a launch, checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub groups: [u32; 3],
    pub group_size: [u32; 3],
    pub lds_bytes: u32,
    /// Scratch bytes per work-item.
    pub scratch_bytes: u32,
    /// COMPUTE_PGM_RSRC1..3 as programmed.
    pub rsrc: [u32; 3],
    pub user_sgprs: [u32; 16],
}

/// Work-groups of a launch if they exceed the budget.
pub(crate) fn over_budget(shared: &Shared, groups: [u32; 3]) -> Option<u64> {
    let count = group_count(groups);
    (count > shared.config.group_budget).then_some(count)
}

/// Launches in flight. All vectors keep their capacity.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    dispatches: Vec<Dispatch>,
    origins: Vec<Origin>,
    /// What strict mode knows about each launch; empty in the fast mode.
    watched: Vec<Pending>,
    /// Writes of RELEASE_MEM, each by the packet of that origin, behind the launches.
    releases: Vec<(Release, Origin, Option<PendingRelease>)>,
    /// The queue is being destroyed: what runs is given up.
    killed: Arc<AtomicBool>,
}

impl Batch {
    /// An empty batch of a queue that `killed` gives up.
    pub(crate) fn new(killed: Arc<AtomicBool>) -> Self {
        Self {
            killed,
            ..Self::default()
        }
    }

    /// Has `release` follow everything in flight.
    pub(super) fn release(
        &mut self,
        release: Release,
        origin: Origin,
        watched: Option<PendingRelease>,
    ) {
        self.releases.push((release, origin, watched));
    }

    /// Whether nothing is in flight, writes at the end of the pipe included.
    pub(crate) fn is_idle(&self) -> bool {
        self.dispatches.is_empty() && self.releases.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.dispatches.len() >= MAX_LAUNCHES
    }

    pub(crate) fn push(
        &mut self,
        kernel: &Kernel,
        shape: Shape,
        origin: Origin,
        watched: Option<Pending>,
    ) {
        self.watched.extend(watched);
        let Shape {
            groups,
            group_size,
            lds_bytes,
            scratch_bytes,
            rsrc,
            user_sgprs,
        } = shape;
        self.dispatches.push(Dispatch {
            program: Arc::clone(&kernel.program),
            entry_va: kernel.entry_va,
            name: Arc::clone(&kernel.name),
            rsrc1: rsrc[0],
            rsrc2: rsrc[1],
            rsrc3: rsrc[2],
            user_sgprs,
            user_sgpr_count: u32::from(kernel.user_sgprs.count),
            groups,
            group_size,
            lds_bytes,
            scratch_bytes,
            tag: self.dispatches.len() as u64,
        });
        self.origins.push(origin);
    }

    /// Runs everything in flight to its end and decrements the completion signals in packet order.
    pub(crate) fn run(&mut self, shared: &Shared, queue: u64) -> Result<(), Box<QueueFault>> {
        let Some(first) = self.origins.first() else {
            return self.release_all(shared, queue);
        };
        let config = RunConfig {
            seed: mix(shared.config.seed, queue, first.packet),
            threads: shared.config.threads,
            wave_budget: shared.config.wave_budget,
        };
        let watched = std::mem::take(&mut self.watched);
        let result = match &shared.strict {
            Some(strict) => strict.run(
                &shared.memory,
                &self.dispatches,
                watched,
                &config,
                &self.killed,
            ),
            None => run_batch_until(&shared.memory, &self.dispatches, &config, &self.killed),
        };
        let outcome = match result {
            Ok(stats) => {
                count(&shared.tally.batches, 1);
                count(&shared.tally.launches, self.dispatches.len() as u64);
                count(&shared.tally.wave_instructions, stats.instructions);
                count(&shared.tally.waves, stats.waves);
                count(&shared.tally.groups, stats.groups);
                self.stop_at_report(shared, queue)
                    .and_then(|()| self.complete_all(shared, queue))
                    .and_then(|()| self.release_all(shared, queue))
            }
            Err(error) => Err(self.exec_fault(queue, error)),
        };
        self.dispatches.clear();
        self.origins.clear();
        self.releases.clear();
        outcome
    }

    fn release_all(&mut self, shared: &Shared, queue: u64) -> Result<(), Box<QueueFault>> {
        for (release, origin, watched) in self.releases.drain(..) {
            let values = release.perform(&shared.memory).map_err(|fault| {
                let what = "writing at the end of the pipe (RELEASE_MEM)";
                Box::new(QueueFault {
                    queue,
                    packet: origin.packet,
                    packet_type: origin.packet_type,
                    kernel: None,
                    code: code::MEMORY_VIOLATION,
                    cause: Cause::Memory { what, fault },
                })
            })?;
            if let (Some(strict), Some(watched)) = (&shared.strict, watched) {
                strict.model().released(watched, values);
            }
        }
        Ok(())
    }

    fn complete_all(&self, shared: &Shared, queue: u64) -> Result<(), Box<QueueFault>> {
        for origin in self.origins.iter().filter(|origin| origin.signal != 0) {
            complete(shared, queue, origin.packet, origin.signal).map_err(|error| {
                let (packet, packet_type, code) = (origin.packet, origin.packet_type, error.code());
                Box::new(QueueFault {
                    queue,
                    packet,
                    packet_type,
                    kernel: None,
                    code,
                    cause: error.into(),
                })
            })?;
        }
        Ok(())
    }

    /// A report that is to stop the queue does so before anybody is told of the launch's end.
    fn stop_at_report(&self, shared: &Shared, queue: u64) -> Result<(), Box<QueueFault>> {
        let report = shared.strict.as_ref().and_then(|strict| strict.stops());
        let Some(report) = report else { return Ok(()) };
        let origin = self.origins.first();
        Err(Box::new(QueueFault {
            queue,
            packet: origin.map_or(0, |origin| origin.packet),
            packet_type: origin.map_or("", |origin| origin.packet_type),
            kernel: Some(Arc::clone(&report.who.kernel)),
            code: code::EXCEPTION,
            cause: Cause::Strict(Box::new(report)),
        }))
    }

    fn exec_fault(&self, queue: u64, error: ExecError) -> Box<QueueFault> {
        let index = error.tag() as usize;
        let origin = self.origins.get(index).or(self.origins.first());
        Box::new(QueueFault {
            queue,
            packet: origin.map_or(0, |origin| origin.packet),
            packet_type: origin.map_or("", |origin| origin.packet_type),
            kernel: self
                .dispatches
                .get(index)
                .map(|dispatch| Arc::clone(&dispatch.name)),
            code: exec_code(&error),
            cause: Cause::Exec(error),
        })
    }
}

/// Decrements the completion signal of a packet by one.
pub(crate) fn complete(
    shared: &Shared,
    queue: u64,
    packet: u64,
    handle: u64,
) -> Result<(), PacketError> {
    if !inject::completes(shared, queue, packet, handle) {
        return Ok(());
    }
    let before = shared.signals.add(handle, -1);
    let value = before.map_err(|_| PacketError::Signal {
        field: "completion_signal",
        handle,
    })?;
    if value <= 0 {
        return Err(PacketError::CompletionSpent { handle, value });
    }
    Ok(())
}

fn exec_code(error: &ExecError) -> u32 {
    match error {
        ExecError::Launch { problem, .. } => match problem {
            LaunchProblem::Grid { .. } => code::DIMENSIONS,
            LaunchProblem::GroupSize { .. } => code::GROUP_TOO_LARGE,
            LaunchProblem::Lds { .. } => code::GROUP_MEMORY,
            LaunchProblem::Registers { .. } => code::OUT_OF_VGPRS,
            _ => code::CODE_OBJECT,
        },
        ExecError::Wave(wave) => match wave.fault {
            WaveFault::Memory { .. } => code::MEMORY_VIOLATION,
            WaveFault::Undecodable(_) | WaveFault::Unsupported(_) => code::ILLEGAL_INSTRUCTION,
            _ => code::EXCEPTION,
        },
    }
}

/// A seed of its own for every batch (SplitMix64's finaliser), so that one order is not repeated
/// forever.
fn mix(seed: u64, queue: u64, packet: u64) -> u64 {
    let mut z = seed ^ queue.rotate_left(32) ^ packet.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
