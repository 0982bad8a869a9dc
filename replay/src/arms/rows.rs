//! One timed row of an arm: the same tokens from the same state, and what was counted around them.
//!
//! Counts come from places that do not know which arm was meant: the observer of the HIP table,
//! the completion signals of the replayers, the control block, and on the software GPU its packet
//! processor.

use super::{Arm, ArmKind, Arms, Executor};
use crate::refusal::{Code, Refusal};
use crate::replayer::ReplayError;
use crate::session::SessionError;
use refrain_kernels::Word;
use std::time::{Duration, Instant};

/// Counts that prove a route, as differences over one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Observed {
    /// Tokens that the arm's own replayer completed.
    pub replays: u64,
    /// Tokens that other arms' replayers completed.
    pub other_replays: u64,
    /// Kernel launches through the HIP table.
    pub hip_launches: u64,
    /// Graph launches through the HIP table.
    pub graph_launches: u64,
    /// Kernel launches that the software GPU's packet processor started; `None` on hardware.
    pub device_launches: Option<u64>,
    /// Indirect buffers that it ran; `None` on hardware.
    pub indirect_buffers: Option<u64>,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Generated tokens.
    pub tokens: Vec<u32>,
    /// Position of the first token, as the control block said before the row.
    pub first_position: u32,
    /// Position of the last, as it said after the row.
    pub last_position: u32,
    /// Who executed it.
    pub observed: Observed,
    /// What ran, see [`Arm::identity`].
    pub identity: String,
    /// Digest of the kernel arguments in device memory after the row; `None` where HIP keeps them.
    pub arguments: Option<[u8; 32]>,
    /// Time of the host path per token: launch calls, or signal, packets and doorbell; no waiting and
    /// no steps of the host. Empty for eager tokens of a plan with such steps.
    pub host: Vec<Duration>,
    /// From the first submission to the end of the last token.
    pub wall: Duration,
}

impl Arms {
    /// Runs `tokens` tokens on arm `index` from the position that [`Arms::prefill`] reached.
    ///
    /// # Errors
    /// [`SessionError`]; with [`SessionError::Refused`] nothing ran.
    pub fn row(&mut self, index: usize, tokens: u32) -> Result<Row, SessionError> {
        let refuse = |code, text: &str| SessionError::Refused(Refusal::new(code, text));
        let Some(start) = &self.start else {
            let text = "no prompt was decoded before the row";
            return Err(refuse(Code::Transition, text));
        };
        let Some(identity) = self.arms.get(index).map(|arm| arm.identity.clone()) else {
            return Err(refuse(Code::NotEligible, "there is no such arm"));
        };
        super::check_span(self.instance.plan(), start.position, tokens)
            .map_err(SessionError::Refused)?;
        self.instance.put_back(&start.state)?;
        let (position, token) = (start.position, start.token);
        self.instance.resume(position, token)?;
        let first_position = self.instance.words()?.get(Word::Pos);
        let before = self.counted(index);
        let mut row = Row {
            tokens: Vec::with_capacity(tokens as usize),
            first_position,
            last_position: first_position,
            observed: Observed::default(),
            identity,
            arguments: None,
            host: Vec::with_capacity(tokens as usize),
            wall: Duration::ZERO,
        };
        // With steps of the host an eager call waits for the GPU, so it is no host path.
        let hosted = self.instance.plan().barriers().next().is_some();
        let eager = self
            .arms
            .get(index)
            .is_some_and(|arm| arm.kind == ArmKind::Eager);
        let timed = !(hosted && eager);
        let begin = Instant::now();
        for number in 1..=tokens {
            let host = self.submit(index)?;
            if timed {
                row.host.push(host);
            }
            if number % self.in_flight == 0 {
                self.wait(index)?;
            }
            self.read(&mut row.tokens)?;
        }
        self.wait(index)?;
        row.wall = begin.elapsed();
        self.read(&mut row.tokens)?;
        let end = self.instance.words()?.get(Word::Pos);
        row.last_position = end.saturating_sub(1);
        row.observed = difference(before, self.counted(index));
        row.arguments = self.arguments(index)?;
        Ok(row)
    }

    fn arguments(&self, index: usize) -> Result<Option<[u8; 32]>, SessionError> {
        let Some(arm) = self.arms.get(index) else {
            return Ok(None);
        };
        let bytes = match &arm.executor {
            Executor::Eager | Executor::Graph(_) => return Ok(None),
            Executor::Packets(replayer, _) => replayer.arena_bytes(),
            Executor::Segments(segments) => segments.replayer.arena_bytes(),
        };
        let token = arm.replays();
        let bytes = bytes.map_err(|source| ReplayError::Device { token, source })?;
        Ok(Some(*blake3::hash(&bytes).as_bytes()))
    }

    fn submit(&mut self, index: usize) -> Result<Duration, SessionError> {
        let Some(arm) = self.arms.get_mut(index) else {
            return Ok(Duration::ZERO);
        };
        let start = Instant::now();
        match &mut arm.executor {
            Executor::Eager => self.eager.submit(&self.instance)?,
            Executor::Graph(graph) => {
                let launched = graph.launch();
                launched.map_err(|source| ReplayError::Device { token: 0, source })?;
            }
            // Its waiting for room is not the host path.
            Executor::Packets(replayer, _) => {
                replayer.submit()?;
                return Ok(replayer.last_host());
            }
            // Nor are the steps of the host, which the call executes.
            Executor::Segments(segments) => {
                let mut host = self.eager.host();
                segments.replayer.submit(&self.instance, &mut host)?;
                return Ok(segments.replayer.last_host());
            }
        }
        Ok(start.elapsed())
    }

    fn wait(&mut self, index: usize) -> Result<(), SessionError> {
        let Some(arm) = self.arms.get_mut(index) else {
            return Ok(());
        };
        match &mut arm.executor {
            Executor::Eager => Ok(self.eager.wait()?),
            Executor::Graph(graph) => {
                let waited = graph.synchronize();
                Ok(waited.map_err(|source| ReplayError::Device { token: 0, source })?)
            }
            Executor::Packets(replayer, _) => Ok(replayer.drain()?),
            Executor::Segments(segments) => Ok(segments.replayer.drain()?),
        }
    }

    fn read(&self, tokens: &mut Vec<u32>) -> Result<(), SessionError> {
        while let Some(entry) = self.instance.ring_entry(tokens.len() as u32 + 1)? {
            tokens.push(entry.token);
        }
        Ok(())
    }

    fn counted(&self, index: usize) -> Observed {
        let replays = |own: bool| {
            let arms = self.arms.iter().enumerate();
            let arms = arms.filter(|(at, _)| (*at == index) == own);
            arms.map(|(_, arm)| Arm::replays(arm)).sum()
        };
        let load = |counter: &std::sync::atomic::AtomicU64| {
            counter.load(std::sync::atomic::Ordering::Relaxed)
        };
        let soft = self.opened.soft.as_ref().map(|soft| soft.counters());
        Observed {
            replays: replays(true),
            other_replays: replays(false),
            hip_launches: load(&self.calls.launches),
            graph_launches: load(&self.calls.graphs),
            device_launches: soft.map(|counters| counters.launches),
            indirect_buffers: soft.map(|counters| counters.indirect_buffers),
        }
    }
}

fn difference(before: Observed, after: Observed) -> Observed {
    let option = |before: Option<u64>, after: Option<u64>| Some(after? - before?);
    Observed {
        replays: after.replays - before.replays,
        other_replays: after.other_replays - before.other_replays,
        hip_launches: after.hip_launches - before.hip_launches,
        graph_launches: after.graph_launches - before.graph_launches,
        device_launches: option(before.device_launches, after.device_launches),
        indirect_buffers: option(before.indirect_buffers, after.indirect_buffers),
    }
}
