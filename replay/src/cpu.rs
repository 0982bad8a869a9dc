//! Texts on the CPU: a plan's launches executed in host memory, token by token.
//!
//! The counterpart of [`crate::Session`] without a device. It has one route: a retained form is
//! packets for a command processor, and here there is none, which is why asking for one is refused
//! ([`refuse`]) and this type has no method for it.

use crate::host_time::HostTimes;
use crate::refusal::{Code, Refusal};
use crate::session::Generation;
use refrain_kernels::StopReason;
use refrain_planner::container::CheckedPlan;
use refrain_recorder::{CpuInstance, CpuRunError, TensorSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What only a command processor can do, refused.
pub fn refuse(asked: &str) -> Refusal {
    let reason =
        format!("{asked}, but the CPU executes launches itself and has no packets to replay");
    Refusal::new(Code::CpuRetains, reason)
}

/// Figures of a [`CpuSession`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuCounters {
    /// Token steps executed, prompt tokens included.
    pub steps: u64,
    /// Generated tokens of all texts.
    pub generated: u64,
    /// Wall time of all texts, prompts included.
    pub wall: Duration,
    /// Wall time of a token step in microseconds, median of the last 1024.
    pub step_us: Option<f64>,
}

/// One plan on this machine's CPU.
#[derive(Debug)]
pub struct CpuSession {
    instance: CpuInstance,
    counters: CpuCounters,
    times: HostTimes,
    cancel: Arc<AtomicBool>,
}

impl CpuSession {
    /// Prepares a plan for `threads` threads.
    ///
    /// # Errors
    /// As [`CpuInstance::new`].
    pub fn new(
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        threads: usize,
    ) -> Result<Self, CpuRunError> {
        Ok(Self {
            instance: CpuInstance::new(plan, source, threads)?,
            counters: CpuCounters::default(),
            times: HostTimes::default(),
            cancel: Arc::default(),
        })
    }

    /// The plan's buffers.
    pub const fn instance(&self) -> &CpuInstance {
        &self.instance
    }

    /// Figures so far.
    pub fn counters(&self) -> CpuCounters {
        CpuCounters {
            step_us: self.times.median_us(),
            ..self.counters
        }
    }

    /// A flag that ends texts from any thread; looked at before each step. The session never clears it.
    pub fn cancel_handle(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// Decodes a text: the prompt, then up to `generate` tokens, each handed to `on_token` as soon as it
    /// is there.
    ///
    /// # Errors
    /// Those about prompts, and of a step.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        generate: u32,
        on_token: &mut dyn FnMut(u32),
    ) -> Result<Generation, CpuRunError> {
        let mut found = Generation {
            tokens: Vec::new(),
            stop: None,
        };
        if generate == 0 {
            return Ok(found);
        }
        let start = Instant::now();
        self.instance.reset(prompt, generate)?;
        let mut next = 1;
        // The last prompt token's step generates the first token.
        let steps = prompt.len() as u64 - 1 + u64::from(generate);
        for _ in 0..steps {
            if found.stop.is_some() || self.cancel.load(Ordering::Relaxed) {
                break;
            }
            let before = Instant::now();
            self.instance.step()?;
            self.times.add(before.elapsed());
            self.counters.steps += 1;
            let Some(entry) = self.instance.ring_entry(next) else {
                continue;
            };
            next += 1;
            found.stop = entry.stop();
            if found.stop != Some(StopReason::NotFinite) {
                self.counters.generated += 1;
                found.tokens.push(entry.token);
                on_token(entry.token);
            }
        }
        self.counters.wall += start.elapsed();
        // That all tokens asked for are there is no reason.
        found.stop = found.stop.filter(|reason| *reason != StopReason::Limit);
        Ok(found)
    }
}
