//! Replays one token's packets: copies them into the ring, nothing else.
//!
//! Everything is made once: kernarg arena (one allocation, written once), packets, indirect
//! buffer, queue, one completion signal per token in flight. Per token the host stores a signal,
//! writes pre-encoded packets, publishes them and rings the doorbell; it writes no kernarg byte
//! and allocates nothing. What a token means is in the plan; the token ring is read by others.

use crate::host_time::HostTimes;
use crate::lifecycle::StageError;
use refrain_device::{Buffer, DeviceError, Executable, MemoryKind, Queue, Signal};
use refrain_lower::{Addresses, Lowered, Transport};
use refrain_packet::aql::encode::pm4_ib;
use refrain_packet::aql::{Header, PacketType, Pm4Ib, packets_of_words};
use refrain_planner::plan::Digest;
use refrain_recorder::{CodeObjects, Instance};
use std::time::{Duration, Instant};

/// Smallest and largest ring that ROCr makes, in packets (ROCr GPU limits).
pub(crate) const RING: (u64, u64) = (64, 131_072);
/// Alignment of the indirect buffer in bytes: what ROCr and the public encoders use.
const IB_ALIGN: u64 = 4096;

pub(crate) type Packet = [u8; 64];

/// Why a replay failed. After one of these nothing is replayed any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReplayError {
    /// A token did not complete in time.
    #[error(
        "token {token} did not complete within {deadline:?}; the packet processor has taken {taken} of its {packets} packets: {source}"
    )]
    Deadline {
        /// Oldest token in flight, counted from 0 since the replayer was made.
        token: u64,
        /// The deadline.
        deadline: Duration,
        /// Packets of the token that the packet processor has taken: with AQL, about as many steps.
        taken: u64,
        /// Packets of a token.
        packets: u64,
        /// The device's answer.
        source: DeviceError,
    },
    /// A token was refused before any of its packets was published: nothing of it ran or ever will,
    /// so it may be executed otherwise once the tokens before it have completed.
    #[error("token {token} was not published: {source}")]
    NotPublished {
        /// The token, counted from 0 since the replayer was made.
        token: u64,
        /// The device's answer.
        source: DeviceError,
    },
    /// The device failed.
    #[error("token {token}: {source}")]
    Device {
        /// Oldest token in flight, counted from 0 since the replayer was made.
        token: u64,
        /// The device's answer.
        source: DeviceError,
    },
    /// An earlier token failed.
    #[error("poisoned: {reason}; make a new session")]
    Poisoned {
        /// What failed first.
        reason: String,
    },
}

#[derive(Debug)]
struct Slot {
    signal: Signal,
    /// The packet that completes a token with this slot's signal.
    last: Packet,
    /// Id of the token's first packet in the ring.
    first_id: u64,
}

/// One plan's packets on one device, ready to be published any number of times.
#[derive(Debug)]
pub struct Replayer {
    // Fields drop in this order: the queue first, then what its packets name.
    queue: Queue,
    slots: Vec<Slot>,
    /// Every packet of a token but the last.
    packets: Vec<Packet>,
    arena: Buffer,
    _ib: Option<Buffer>,
    _executables: Vec<Executable>,
    transport: Transport,
    deadline: Duration,
    submitted: u64,
    completed: u64,
    host_times: HostTimes,
    last_host: Duration,
    poisoned: Option<String>,
}

impl Replayer {
    /// Loads the kernels, fills the kernarg arena and binds the packets to the instance's
    /// addresses. `in_flight` tokens (at least 1, at most the token ring's entries) may be queued.
    ///
    /// # Errors
    /// [`StageError`]; nothing is left behind.
    pub(crate) fn new(
        instance: &Instance,
        lowered: &Lowered,
        objects: &dyn CodeObjects,
        in_flight: u32,
        deadline: Duration,
    ) -> Result<Self, StageError> {
        Self::edited(instance, lowered, objects, in_flight, deadline, &|words| {
            words
        })
    }

    /// As [`Self::new`], with the bound words changed before they are published: what a proof
    /// executes to see that a defect is caught.
    pub(crate) fn edited(
        instance: &Instance,
        lowered: &Lowered,
        objects: &dyn CodeObjects,
        in_flight: u32,
        deadline: Duration,
        edit: &dyn Fn(Vec<u32>) -> Vec<u32>,
    ) -> Result<Self, StageError> {
        let device = instance.device();
        let plan = instance.plan();
        let failed = |what| move |source| StageError::Allocation { what, source };
        let segment = refrain_lower::whole(plan)?;
        let bytes = lowered
            .arena()
            .fill(&segment, &|buffer| instance.base(buffer))?;
        let arena = device
            .alloc(
                MemoryKind::Kernarg,
                "kernargs",
                lowered.arena().bytes(),
                256,
            )
            .map_err(failed("kernarg arena"))?;
        arena.write(0, &bytes).map_err(failed("kernarg arena"))?;
        let (executables, kernel_objects) = load(instance, objects)?;
        let slots = in_flight.clamp(1, plan.options.ring_entries.max(1));
        let signals: Result<Vec<Signal>, DeviceError> =
            (0..slots).map(|_| Signal::new(device, 0)).collect();
        let signals = signals.map_err(failed("completion signals"))?;
        let mut ib = None;
        let mut packets = Vec::new();
        let mut bound = Vec::with_capacity(signals.len());
        for signal in signals {
            let addresses = Addresses {
                kernel_objects: &kernel_objects,
                kernarg_base: arena.va(),
                signal: signal.handle(),
            };
            let words = edit(lowered.bind(&addresses)?);
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
            bound.push(Slot {
                signal,
                last,
                first_id: 0,
            });
        }
        let per_token = packets.len() as u64 + 1;
        let ring = (per_token * u64::from(slots))
            .next_power_of_two()
            .clamp(RING.0, RING.1);
        // The clamp keeps it below 2^17.
        let queue = Queue::new(device, ring as u32).map_err(failed("queue"))?;
        Ok(Self {
            queue,
            slots: bound,
            packets,
            arena,
            _ib: ib,
            _executables: executables,
            transport: lowered.transport(),
            deadline,
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

    /// Most tokens that may be queued.
    pub fn in_flight_limit(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Tokens published and not yet known to be complete.
    pub const fn in_flight(&self) -> u64 {
        self.submitted - self.completed
    }

    /// Tokens known to be complete.
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// Time of each token on the host path: signal, packets, doorbell; no waiting.
    pub const fn host_times(&self) -> &HostTimes {
        &self.host_times
    }

    /// Host path of the token published last.
    pub const fn last_host(&self) -> Duration {
        self.last_host
    }

    /// Why nothing is replayed any more, if so.
    pub fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }

    /// The kernarg arena's bytes as they are now, for tests of "written once".
    ///
    /// # Errors
    /// The device's answer.
    pub fn arena_bytes(&self) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; self.arena.len() as usize];
        self.arena.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Publishes one token. If the limit of tokens in flight is reached, waits for the oldest.
    ///
    /// # Errors
    /// [`ReplayError`]; the replayer is poisoned then.
    pub fn submit(&mut self) -> Result<(), ReplayError> {
        self.usable()?;
        if self.in_flight() == self.slots.len() as u64 {
            self.wait_oldest()?;
        }
        let result = self.publish();
        result.map_err(|(published, source)| {
            // A stopped queue says so here; the oldest token in flight is the one that stopped it.
            let stopped = matches!(source, DeviceError::Queue { .. });
            self.poison(match published || stopped {
                false => ReplayError::NotPublished {
                    token: self.submitted,
                    source,
                },
                true => ReplayError::Device {
                    token: self.completed,
                    source,
                },
            })
        })?;
        self.submitted += 1;
        Ok(())
    }

    /// An error comes with whether the token may have begun to run.
    fn publish(&mut self) -> Result<(), (bool, DeviceError)> {
        let index = (self.submitted % self.slots.len() as u64) as usize;
        let Some(slot) = self.slots.get_mut(index) else {
            return Ok(());
        };
        let start = Instant::now();
        // Before the first packet is published: a completion can only come after it.
        slot.signal.store(1);
        let mut host = start.elapsed();
        let total = self.packets.len() + 1;
        // Half the ring at a time, so that a token longer than the ring still fits through.
        let chunk = (self.queue.size() / 2).max(1) as usize;
        let mut done = 0;
        while done < total {
            let count = chunk.min(total - done);
            let failed = |source| (done > 0, source);
            let first = self
                .queue
                .reserve_within(count as u64, self.deadline)
                .map_err(failed)?;
            let start = Instant::now();
            if done == 0 {
                slot.first_id = first;
            }
            let packet = |i: usize| self.packets.get(done + i).unwrap_or(&slot.last);
            for (i, id) in (0..count).zip(first..) {
                self.queue.write_body(id, packet(i)).map_err(failed)?;
            }
            for (i, id) in (0..count).zip(first..) {
                let [a, b, c, d, ..] = *packet(i);
                let header = u32::from_le_bytes([a, b, c, d]);
                let published = self.queue.publish(id, header);
                published.map_err(|source| (true, source))?;
            }
            let last = first + count as u64 - 1;
            self.queue.ring(last).map_err(|source| (true, source))?;
            host += start.elapsed();
            done += count;
        }
        self.host_times.add(host);
        self.last_host = host;
        Ok(())
    }

    /// Waits until the oldest token in flight is complete; at once when none is.
    ///
    /// # Errors
    /// [`ReplayError`]; the replayer is poisoned then.
    pub fn wait_oldest(&mut self) -> Result<(), ReplayError> {
        self.usable()?;
        if self.in_flight() == 0 {
            return Ok(());
        }
        let index = (self.completed % self.slots.len() as u64) as usize;
        let Some(slot) = self.slots.get(index) else {
            return Ok(());
        };
        match slot.signal.wait_lt(1, self.deadline) {
            Ok(()) => {
                self.completed += 1;
                Ok(())
            }
            Err(source) => {
                let token = self.completed;
                let error = match &source {
                    DeviceError::DeadlineExceeded { .. } => {
                        let packets = self.packets.len() as u64 + 1;
                        let taken = self.queue.read_index().saturating_sub(slot.first_id);
                        let (deadline, taken) = (self.deadline, taken.min(packets));
                        ReplayError::Deadline {
                            token,
                            deadline,
                            taken,
                            packets,
                            source,
                        }
                    }
                    _ => ReplayError::Device { token, source },
                };
                Err(self.poison(error))
            }
        }
    }

    /// Waits until the tokens published before one that was not have completed.
    ///
    /// # Errors
    /// [`ReplayError`] if one of them fails; then the token may not be executed otherwise.
    pub(crate) fn finish_published(&mut self) -> Result<(), ReplayError> {
        let reason = self.poisoned.take();
        let finished = self.drain();
        if finished.is_ok() {
            self.poisoned = reason;
        }
        finished
    }

    /// Waits until no token is in flight.
    ///
    /// # Errors
    /// As [`Self::wait_oldest`].
    pub fn drain(&mut self) -> Result<(), ReplayError> {
        while self.in_flight() > 0 {
            self.wait_oldest()?;
        }
        Ok(())
    }

    fn usable(&self) -> Result<(), ReplayError> {
        match &self.poisoned {
            None => Ok(()),
            Some(reason) => Err(ReplayError::Poisoned {
                reason: reason.clone(),
            }),
        }
    }

    fn poison(&mut self, error: ReplayError) -> ReplayError {
        self.poisoned = Some(error.to_string());
        error
    }
}

impl Drop for Replayer {
    fn drop(&mut self) {
        // Signals, arena and code must outlive the packets that name them. A device that does not
        // answer has already been reported, or the queue's destruction stops it.
        let _ = self.drain();
    }
}

pub(crate) fn load(
    instance: &Instance,
    objects: &dyn CodeObjects,
) -> Result<(Vec<Executable>, Vec<u64>), StageError> {
    let mut loaded: Vec<(Digest, Executable)> = Vec::new();
    let mut handles = Vec::new();
    for kernel in &instance.plan().kernels {
        let failed = |source| StageError::Load {
            symbol: kernel.symbol.clone(),
            source,
        };
        if !loaded.iter().any(|row| row.0 == kernel.object) {
            let bytes = objects
                .get(&kernel.object)
                .ok_or_else(|| StageError::ObjectAbsent {
                    symbol: kernel.symbol.clone(),
                })?;
            let executable = Executable::load(instance.device(), bytes).map_err(failed)?;
            loaded.push((kernel.object, executable));
        }
        if let Some((_, executable)) = loaded.iter().find(|row| row.0 == kernel.object) {
            handles.push(
                executable
                    .kernel(&kernel.symbol)
                    .map_err(failed)?
                    .kernel_object,
            );
        }
    }
    Ok((loaded.into_iter().map(|row| row.1).collect(), handles))
}

pub(crate) fn indirect_buffer(instance: &Instance, words: &[u32]) -> Result<Buffer, StageError> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let failed = |source| StageError::Allocation {
        what: "indirect buffer",
        source,
    };
    let (kind, length) = (MemoryKind::Executable, bytes.len() as u64);
    let buffer = instance
        .device()
        .alloc(kind, "ib", length, IB_ALIGN)
        .map_err(failed)?;
    buffer.write(0, &bytes).map_err(failed)?;
    Ok(buffer)
}

pub(crate) fn vendor_packet(
    address: u64,
    dwords: usize,
    signal: u64,
) -> Result<Packet, StageError> {
    // The encoder limited the words to 20 bits.
    let ib = Pm4Ib {
        address,
        dwords: dwords as u32,
        policy: 0,
        completion_signal: signal,
    };
    let packet = pm4_ib(Header::system(PacketType::VendorSpecific), &ib);
    packet
        .map(|packet| packet.bytes())
        .map_err(StageError::Vendor)
}

#[cfg(test)]
mod tests;
