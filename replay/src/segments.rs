//! Replays a plan with steps of the host: its runs of launches are packets, the steps between them are
//! executed by the host.
//!
//! A token's packets are published at once. A run that follows a step of the host stands behind a
//! barrier packet that waits for a signal, its gate; the host opens it when the step has been done, so
//! that the GPU never waits for the host to write packets. Launches beside a split step stand before
//! the gate and start when the run before them ends. Before anything is trusted to this, [`probe`] shows
//! that such a packet does wait and does go on.
//!
//! What a step of the host does is the recorder's (`HostRunner`); plans that are one run are
//! [`crate::replayer`]'s.

use crate::host_time::HostTimes;
use crate::lifecycle::StageError;
use crate::replayer::{Packet, RING, indirect_buffer, load, vendor_packet};
use refrain_device::{Buffer, Device, DeviceError, Executable, MemoryKind, Queue, Signal};
use refrain_lower::{Addresses, Lowered, Transport};
use refrain_packet::aql::encode::{AqlError, barrier};
use refrain_packet::aql::{Barrier, Header, PacketType, Scope, packets_of_words};
use refrain_planner::plan::{Piece, Plan, StepId};
use refrain_recorder::{CodeObjects, HostError, HostRunner, Instance};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the probe watches a packet that must not complete.
const PROBE_HOLD: Duration = Duration::from_millis(2);
/// Longest that the probe waits for a packet that must complete.
const PROBE_DEADLINE: Duration = Duration::from_secs(5);
/// Tokens whose packets may be in the ring: the one that the host works for, and the one before, whose
/// last run may not have ended.
const TOKENS: u64 = 2;

/// Why a token failed. After one of these nothing is replayed any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SegmentError {
    /// A run of launches did not complete in time.
    #[error(
        "token {token}: the launches before step {step} ({name}) did not complete within {deadline:?}: {source}"
    )]
    Deadline {
        /// Token, counted from 0 since the replayer was made.
        token: u64,
        /// The step that waits for them, or their last.
        step: StepId,
        /// Its name.
        name: String,
        /// The deadline.
        deadline: Duration,
        /// The device's answer.
        source: Box<DeviceError>,
    },
    /// The device failed.
    #[error("token {token}, at step {step} ({name}): {source}")]
    Device {
        /// Token, counted from 0 since the replayer was made.
        token: u64,
        /// The step at which the host noticed.
        step: StepId,
        /// Its name.
        name: String,
        /// The device's answer.
        source: Box<DeviceError>,
    },
    /// A step of the host failed.
    #[error("token {token}: {source}")]
    Host {
        /// Token, counted from 0 since the replayer was made.
        token: u64,
        /// Which step, and why.
        source: Box<HostError>,
    },
    /// An earlier token failed.
    #[error("poisoned: {reason}; make a new session")]
    Poisoned {
        /// What failed first.
        reason: String,
    },
}

pub use refrain_lower::runs;

/// A run of launches on the device.
#[derive(Debug)]
struct Run {
    /// Every packet but the last.
    packets: Vec<Packet>,
    /// For each token in the ring, the packet that completes the run, and its signal.
    ends: Vec<(Packet, Signal)>,
    ib: Option<Buffer>,
    /// Its last step.
    step: StepId,
    name: String,
}

/// What is done for a token, in order.
#[derive(Debug)]
enum Stage {
    /// A run of launches, by index.
    Run(usize),
    /// A step of the host, with the run beside it, and its gate if anything follows it.
    Host {
        step: StepId,
        name: String,
        arm: Option<usize>,
        /// For each token in the ring, the packet that waits, and its signal.
        gates: Vec<(Packet, Signal)>,
    },
}

/// The segments of one plan on one device.
#[derive(Debug)]
pub struct SegmentReplayer {
    // Fields drop in this order: the queue first, then what its packets name.
    queue: Queue,
    /// Packets of a token, for each token in the ring.
    tapes: Vec<Vec<Packet>>,
    stages: Vec<Stage>,
    runs: Vec<Run>,
    arena: Buffer,
    _executables: Vec<Executable>,
    transport: Transport,
    deadline: Duration,
    tokens: u64,
    submitted: u64,
    completed: u64,
    host_times: HostTimes,
    last_host: Duration,
    poisoned: Option<String>,
}

impl SegmentReplayer {
    /// Probes the hand-off, loads the kernels, fills the kernarg arena and binds the packets.
    ///
    /// # Errors
    /// [`StageError`]; nothing is left behind.
    pub(crate) fn new(
        instance: &Instance,
        lowered: &[Lowered],
        objects: &dyn CodeObjects,
        in_flight: u32,
        deadline: Duration,
    ) -> Result<Self, StageError> {
        let same = |_, words| words;
        Self::edited(instance, lowered, objects, in_flight, deadline, &same)
    }

    /// As [`Self::new`], with a run's bound words changed before they are published; see
    /// [`crate::replayer::Replayer::edited`].
    pub(crate) fn edited(
        instance: &Instance,
        lowered: &[Lowered],
        objects: &dyn CodeObjects,
        in_flight: u32,
        deadline: Duration,
        edit: &dyn Fn(usize, Vec<u32>) -> Vec<u32>,
    ) -> Result<Self, StageError> {
        let (device, plan) = (instance.device(), instance.plan());
        let planned = plan.barriers().count() as u64;
        let of_runs: u64 = lowered.iter().map(|run| run.ring_packets() as u64).sum();
        let per_token = of_runs + planned;
        let most = RING.1;
        let tokens = TOKENS.min(u64::from(in_flight.max(1)));
        let tokens = if per_token * tokens > most { 1 } else { tokens };
        if per_token > most {
            let packets = per_token;
            return Err(StageError::RingTooSmall { packets, most });
        }
        let ring = (per_token * tokens).next_power_of_two().clamp(RING.0, most);
        let failed = |what| move |source| StageError::Allocation { what, source };
        // The clamp keeps it below 2^17.
        let queue = Queue::new(device, ring as u32).map_err(failed("queue"))?;
        probe(device, &queue, deadline)?;
        let (executables, kernel_objects) = load(instance, objects)?;
        let arena = arena(instance, lowered)?;
        let mut runs = Vec::with_capacity(lowered.len());
        let mut base = arena.va();
        for (index, (lowered, segment)) in lowered.iter().zip(self::runs(plan)).enumerate() {
            let (step, name) = segment.step(usize::MAX);
            let binding = Binding {
                kernel_objects: &kernel_objects,
                kernarg_base: base,
                edit: &|words| edit(index, words),
            };
            let (packets, ends, ib) = bind(instance, lowered, &binding, tokens)?;
            runs.push(Run {
                packets,
                ends,
                ib,
                step,
                name: name.to_owned(),
            });
            base += lowered.arena().bytes();
        }
        let stages = stages(device, plan, tokens)?;
        Ok(Self {
            tapes: (0..tokens as usize)
                .map(|slot| tape(&stages, &runs, slot))
                .collect(),
            stages,
            queue,
            runs,
            arena,
            _executables: executables,
            transport: lowered.first().map_or(Transport::Aql, Lowered::transport),
            deadline,
            tokens,
            submitted: 0,
            completed: 0,
            host_times: HostTimes::default(),
            last_host: Duration::ZERO,
            poisoned: None,
        })
    }

    /// The transport.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Bytes of kernel arguments and of indirect buffers, as allocated.
    pub fn allocated(&self) -> (u64, u64) {
        let ibs = self.runs.iter().filter_map(|run| run.ib.as_ref());
        (self.arena.len(), ibs.map(Buffer::len).sum())
    }

    /// Tokens published and not yet known to be complete.
    pub const fn in_flight(&self) -> u64 {
        self.submitted - self.completed
    }

    /// Tokens known to be complete.
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Host path of the token published last.
    pub const fn last_host(&self) -> Duration {
        self.last_host
    }

    /// The kernarg arena's bytes as they are now.
    ///
    /// # Errors
    /// The device's answer.
    pub fn arena_bytes(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.arena.len() as usize];
        self.arena.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Time of each token on the host path: signals, packets, doorbell; no waiting, no steps of the
    /// host.
    pub const fn host_times(&self) -> &HostTimes {
        &self.host_times
    }

    /// Publishes one token and executes its steps of the host. What follows the last of them may still
    /// run.
    ///
    /// # Errors
    /// [`SegmentError`]; the replayer is poisoned then.
    pub fn submit(
        &mut self,
        instance: &Instance,
        host: &mut HostRunner,
    ) -> Result<(), SegmentError> {
        self.usable()?;
        if self.in_flight() == self.tokens {
            self.wait_oldest()?;
        }
        let token = self.submitted;
        let done = self.publish(token).map_err(|source| {
            let (step, name) = self
                .runs
                .first()
                .map_or((0, ""), |run| (run.step, &run.name));
            SegmentError::Device {
                token,
                step,
                name: name.to_owned(),
                source: Box::new(source),
            }
        });
        // Its packets may be in the ring from here on.
        self.submitted += 1;
        let done = done.and_then(|()| self.serve(token, instance, host));
        done.map_err(|error| self.poison(error))
    }

    fn publish(&mut self, token: u64) -> Result<(), DeviceError> {
        let start = Instant::now();
        let slot = (token % self.tokens) as usize;
        let Some(packets) = self.tapes.get(slot) else {
            return Ok(());
        };
        let gates = self.stages.iter().filter_map(|stage| match stage {
            Stage::Run(_) => None,
            Stage::Host { gates, .. } => gates.get(slot),
        });
        let ends = self.runs.iter().filter_map(|run| run.ends.get(slot));
        // Before the first packet is published: a completion can only come after it.
        ends.chain(gates).for_each(|(_, signal)| signal.store(1));
        let mut host = start.elapsed();
        let first = self
            .queue
            .reserve_within(packets.len() as u64, self.deadline)?;
        let start = Instant::now();
        for (id, packet) in (first..).zip(packets) {
            self.queue.write_body(id, packet)?;
        }
        for (id, packet) in (first..).zip(packets) {
            let [a, b, c, d, ..] = *packet;
            self.queue.publish(id, u32::from_le_bytes([a, b, c, d]))?;
        }
        self.queue.ring(first + packets.len() as u64 - 1)?;
        host += start.elapsed();
        self.host_times.add(host);
        self.last_host = host;
        Ok(())
    }

    /// Executes the steps of the host of a published token.
    fn serve(
        &self,
        token: u64,
        instance: &Instance,
        host: &mut HostRunner,
    ) -> Result<(), SegmentError> {
        let slot = (token % self.tokens) as usize;
        let mut before = None;
        for stage in &self.stages {
            let (step, name, arm, gates) = match stage {
                Stage::Run(run) => {
                    before = Some(*run);
                    continue;
                }
                Stage::Host {
                    step,
                    name,
                    arm,
                    gates,
                } => (*step, name, *arm, gates),
            };
            if let Some(run) = before.take() {
                self.await_run(token, run, slot, step, name)?;
            }
            let failed = |source| SegmentError::Host {
                token,
                source: Box::new(source),
            };
            let mut idle = Instant::now();
            host.down(instance, step).map_err(failed)?;
            host.begin(instance, step).map_err(failed)?;
            host.finish(instance, step).map_err(failed)?;
            if let Some(run) = arm {
                let start = Instant::now();
                self.await_run(token, run, slot, step, name)?;
                host.joined(start.elapsed());
                idle = Instant::now();
            }
            host.up(instance, step).map_err(failed)?;
            if let Some((_, signal)) = gates.get(slot) {
                signal.release(0);
            }
            host.idled(idle.elapsed());
        }
        Ok(())
    }

    fn await_run(
        &self,
        token: u64,
        run: usize,
        slot: usize,
        step: StepId,
        name: &str,
    ) -> Result<(), SegmentError> {
        let ends = self.runs.get(run).and_then(|run| run.ends.get(slot));
        let Some((_, signal)) = ends else {
            return Ok(());
        };
        let (deadline, name) = (self.deadline, name.to_owned());
        signal.wait_lt(1, deadline).map_err(|source| {
            let late = matches!(source, DeviceError::DeadlineExceeded { .. });
            let source = Box::new(source);
            if late {
                SegmentError::Deadline {
                    token,
                    step,
                    name,
                    deadline,
                    source,
                }
            } else {
                SegmentError::Device {
                    token,
                    step,
                    name,
                    source,
                }
            }
        })
    }

    /// Waits until the oldest token in flight is complete; at once when none is.
    ///
    /// # Errors
    /// [`SegmentError`]; the replayer is poisoned then.
    pub fn wait_oldest(&mut self) -> Result<(), SegmentError> {
        self.usable()?;
        if self.in_flight() == 0 {
            return Ok(());
        }
        let token = self.completed;
        let slot = (token % self.tokens) as usize;
        // The host itself ended a token whose last stage is a step of its own.
        let last = match self.stages.last() {
            Some(Stage::Run(run)) => self.runs.get(*run).map(|row| (*run, row.step, &row.name)),
            _ => None,
        };
        let waited = match last {
            Some((run, step, name)) => self.await_run(token, run, slot, step, name),
            None => Ok(()),
        };
        match waited {
            Ok(()) => {
                self.completed += 1;
                Ok(())
            }
            Err(error) => Err(self.poison(error)),
        }
    }

    /// Waits until no token is in flight.
    ///
    /// # Errors
    /// As [`Self::wait_oldest`].
    pub fn drain(&mut self) -> Result<(), SegmentError> {
        while self.in_flight() > 0 {
            self.wait_oldest()?;
        }
        Ok(())
    }

    fn usable(&self) -> Result<(), SegmentError> {
        match &self.poisoned {
            None => Ok(()),
            Some(reason) => Err(SegmentError::Poisoned {
                reason: reason.clone(),
            }),
        }
    }

    /// After an error no gate is opened any more: what stands behind one would run on results that were
    /// never written.
    fn poison(&mut self, error: SegmentError) -> SegmentError {
        self.poisoned = Some(error.to_string());
        error
    }
}

impl Drop for SegmentReplayer {
    fn drop(&mut self) {
        // Signals, arena and code must outlive the packets that name them. A device that does not
        // answer has already been reported, or the queue's destruction stops it; that also ends what
        // waits behind a gate of a failed token.
        let _ = self.drain();
    }
}

/// One allocation with the kernel arguments of every run, one after the other.
fn arena(instance: &Instance, lowered: &[Lowered]) -> Result<Buffer, StageError> {
    let failed = |source| StageError::Allocation {
        what: "kernarg arena",
        source,
    };
    let bytes: u64 = lowered.iter().map(|run| run.arena().bytes()).sum();
    let device = instance.device();
    let arena = device.alloc(MemoryKind::Kernarg, "kernargs", bytes.max(64), 256);
    let arena = arena.map_err(failed)?;
    let mut at = 0;
    for (run, segment) in lowered.iter().zip(runs(instance.plan())) {
        let slots = run
            .arena()
            .fill(&segment, &|buffer| instance.base(buffer))?;
        arena.write(at, &slots).map_err(failed)?;
        at += run.arena().bytes();
    }
    Ok(arena)
}

type Bound = (Vec<Packet>, Vec<(Packet, Signal)>, Option<Buffer>);

/// What a run is bound to, and what is done to its words then.
struct Binding<'a> {
    kernel_objects: &'a [u64],
    kernarg_base: u64,
    edit: &'a dyn Fn(Vec<u32>) -> Vec<u32>,
}

/// A run's packets for every token in the ring.
fn bind(
    instance: &Instance,
    lowered: &Lowered,
    binding: &Binding<'_>,
    tokens: u64,
) -> Result<Bound, StageError> {
    let (mut packets, mut ends, mut ib) = (Vec::new(), Vec::new(), None);
    for _ in 0..tokens {
        let signal = signal(instance.device(), 0)?;
        let words = lowered.bind(&Addresses {
            kernel_objects: binding.kernel_objects,
            kernarg_base: binding.kernarg_base,
            signal: signal.handle(),
        })?;
        let words = (binding.edit)(words);
        let last = match lowered.transport() {
            Transport::Aql => {
                packets = packets_of_words(&words);
                packets.pop().unwrap_or([0; 64])
            }
            Transport::Pm4 => {
                if ib.is_none() {
                    ib = Some(indirect_buffer(instance, &words)?);
                }
                let address = ib.as_ref().map_or(0, Buffer::va);
                vendor_packet(address, words.len(), signal.handle())?
            }
        };
        ends.push((last, signal));
    }
    Ok((packets, ends, ib))
}

fn stages(device: &Arc<Device>, plan: &Plan, tokens: u64) -> Result<Vec<Stage>, StageError> {
    let pieces = plan.pieces();
    let mut stages = Vec::with_capacity(pieces.len());
    let mut run = 0..;
    let mut next = || run.next().unwrap_or_default();
    let last = pieces.len().saturating_sub(1);
    for (index, piece) in pieces.into_iter().enumerate() {
        let stage = match piece {
            Piece::Segment(_) => Stage::Run(next()),
            Piece::Barrier(barrier) => {
                let gate = |_| {
                    let signal = signal(device, 0)?;
                    Ok((gate(signal.handle()).map_err(StageError::Vendor)?, signal))
                };
                let gates = if index == last { 0..0 } else { 0..tokens };
                Stage::Host {
                    step: barrier.step,
                    name: barrier.name.to_owned(),
                    arm: barrier.arm.is_some().then(&mut next),
                    gates: gates.map(gate).collect::<Result<_, StageError>>()?,
                }
            }
        };
        stages.push(stage);
    }
    Ok(stages)
}

/// The packets of one token in order.
fn tape(stages: &[Stage], runs: &[Run], slot: usize) -> Vec<Packet> {
    let mut packets = Vec::new();
    for stage in stages {
        let (run, gate) = match stage {
            Stage::Run(run) => (Some(*run), None),
            Stage::Host { arm, gates, .. } => (*arm, gates.get(slot)),
        };
        if let Some(run) = run.and_then(|run| runs.get(run)) {
            packets.extend(&run.packets);
            packets.extend(run.ends.get(slot).map(|end| end.0));
        }
        packets.extend(gate.map(|gate| gate.0));
    }
    packets
}

fn signal(device: &Arc<Device>, value: i64) -> Result<Signal, StageError> {
    Signal::new(device, value).map_err(|source| StageError::Allocation {
        what: "hand-off signals",
        source,
    })
}

/// A packet that lets nothing behind it start until a signal is 0.
fn gate(signal: u64) -> Result<Packet, AqlError> {
    packet([signal, 0, 0, 0, 0], 0)
}

fn packet(dep_signal: [u64; 5], completion_signal: u64) -> Result<Packet, AqlError> {
    let header = Header {
        kind: PacketType::BarrierAnd,
        barrier: true,
        acquire: Scope::System,
        release: Scope::System,
    };
    let packet = barrier(
        header,
        &Barrier {
            dep_signal,
            completion_signal,
            ..Barrier::default()
        },
    )?;
    Ok(packet.bytes())
}

/// Publishes a packet that waits for the host, and demands that it does and that it goes on.
fn probe(device: &Arc<Device>, queue: &Queue, deadline: Duration) -> Result<(), StageError> {
    let (host, gpu) = (signal(device, 1)?, signal(device, 1)?);
    let packet = packet([host.handle(), 0, 0, 0, 0], gpu.handle()).map_err(StageError::Vendor)?;
    let failed = |error: DeviceError| StageError::Handshake(error.to_string());
    queue.submit(&[packet]).map_err(failed)?;
    let early = gpu.wait_lt(1, PROBE_HOLD);
    host.release(0);
    match early {
        Err(DeviceError::DeadlineExceeded { .. }) => {}
        Err(error) => return Err(failed(error)),
        Ok(()) => {
            let text = "a packet completed before the host had set the signal that it depends on";
            return Err(StageError::Handshake(text.to_owned()));
        }
    }
    gpu.wait_lt(1, deadline.min(PROBE_DEADLINE)).map_err(failed)
}
