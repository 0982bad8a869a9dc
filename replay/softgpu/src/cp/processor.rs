//! The packet loop of one queue: which packet is next, whether it may start, what it runs and when
//! its slot and its signal are given back (HSA Platform System Architecture 1.2, "Packet
//! processing").

use super::aql::{self, Header, Packet, PacketType};
use super::batch::{Batch, Origin, complete};
use super::fault::{Cause, PacketError, QueueFault, RingError, code};
use super::inject::{self, Place, Start};
use super::pm4::{Ended, Owner, Position, Run};
use super::record::Record;
use super::registers::Registers;
use crate::gpu::{INVALID_SLOT, QueueState, Shared, count};
use crate::memory::MemoryFault;
use crate::object::gfx;
use crate::strict::Facts;
use refrain_packet::Gfx;
use refrain_packet::tables::objects::queue as at;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of serving a queue once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// Nothing to do until the doorbell rings.
    Idle,
    /// At least one packet was taken.
    Progress,
    /// A barrier packet waits for a signal; `progress` says whether packets were taken before it.
    Waiting { progress: bool },
}

/// What became of one packet.
enum Taken {
    Done,
    /// Its dependencies are not met; look again later.
    Blocked,
    /// A launch of it never ends.
    Hung,
}

/// The processor's state for one queue. Buffers keep their capacity between packets.
#[derive(Debug, Default)]
pub(crate) struct QueueProcessor {
    /// Id of the next packet to take.
    next: u64,
    /// The id after the last packet that a fault script was asked about.
    announced: u64,
    /// A launch never ends, so no further packet is taken.
    hung: bool,
    registers: Option<Registers>,
    batch: Batch,
    record: Record,
    ib: Vec<u32>,
    /// The indirect buffer in `ib` that waits for memory.
    paused: Option<Paused>,
}

/// An indirect buffer between two looks at it.
#[derive(Debug)]
struct Paused {
    packet: u64,
    /// Header of its vendor packet.
    word: u16,
    signal: u64,
    position: Position,
}

/// One packet being processed.
#[derive(Clone, Copy)]
struct Context<'a> {
    shared: &'a Shared,
    queue: &'a QueueState,
    id: u64,
    word: u16,
}

impl Context<'_> {
    fn fault(&self, cause: Cause, code: u32) -> Box<QueueFault> {
        let packet_type = aql::type_name(self.word);
        Box::new(QueueFault {
            queue: self.queue.id,
            packet: self.id,
            packet_type,
            kernel: None,
            code,
            cause,
        })
    }

    fn place<'a>(&self, kernel: Option<&'a Arc<str>>) -> Place<'a> {
        Place {
            queue: self.queue.id,
            packet: self.id,
            packet_type: aql::type_name(self.word),
            kernel,
        }
    }

    fn packet(&self, error: PacketError) -> Box<QueueFault> {
        let code = error.code();
        self.fault(error.into(), code)
    }

    fn memory(&self, what: &'static str) -> impl Fn(MemoryFault) -> Box<QueueFault> {
        move |fault| self.fault(Cause::Memory { what, fault }, code::MEMORY_VIOLATION)
    }
}

impl QueueProcessor {
    /// The processor of a fresh queue; setting `killed` makes it give up what runs.
    pub(crate) fn new(killed: Arc<AtomicBool>) -> Self {
        Self {
            batch: Batch::new(killed),
            ..Self::default()
        }
    }

    /// Takes packets until the ring is empty or one has to wait; then lets everything in flight
    /// finish.
    pub(crate) fn serve(
        &mut self,
        shared: &Shared,
        queue: &QueueState,
    ) -> Result<Served, Box<QueueFault>> {
        if self.hung {
            return Ok(Served::Idle);
        }
        let before = self.next;
        let taken = self.take_all(shared, queue);
        // Launches before a faulty packet have started and finish; if one of them faults, it was
        // first.
        let settled = self.batch.run(shared, queue.id).and(taken);
        let progress = self.next != before;
        match settled? {
            true => Ok(Served::Waiting { progress }),
            false if progress => Ok(Served::Progress),
            false => Ok(Served::Idle),
        }
    }

    /// True when a packet is blocked.
    fn take_all(&mut self, shared: &Shared, queue: &QueueState) -> Result<bool, Box<QueueFault>> {
        if let Some(paused) = self.paused.take() {
            let context = Context {
                shared,
                queue,
                id: paused.packet,
                word: paused.word,
            };
            let taken = self.run_buffer(&context, paused);
            if self.paused.is_none() {
                self.record.finish(shared);
            }
            match taken? {
                Taken::Done => {}
                Taken::Blocked => return Ok(true),
                Taken::Hung => return Ok(self.hang(queue)),
            }
        }
        let limit = self.limit(shared, queue)?;
        let mut bytes = [0; 64];
        while self.next < limit {
            let context = Context {
                shared,
                queue,
                id: self.next,
                word: 0,
            };
            let slot = queue.slot(self.next);
            let mut word = header(&context)?;
            if word & 0xff != INVALID_SLOT as u16 && self.announced <= self.next {
                self.announced = self.next + 1;
                inject::packet(shared, Context { word, ..context }.place(None), slot)?;
                word = header(&context)?;
            }
            if word & 0xff == INVALID_SLOT as u16 {
                break;
            }
            let context = Context { word, ..context };
            shared
                .memory
                .peek(slot, &mut bytes)
                .map_err(context.memory("reading a packet"))?;
            let taken = self.take(&context, &bytes);
            if taken.is_err() && !self.record.is_open() {
                self.record.begin(shared, queue.id, self.next, &bytes);
            }
            if self.paused.is_none() {
                self.record.finish(shared);
            }
            match taken? {
                Taken::Done => {}
                Taken::Blocked => return Ok(true),
                Taken::Hung => return Ok(self.hang(queue)),
            }
            if self.batch.is_full() {
                self.batch.run(shared, queue.id)?;
            }
        }
        Ok(false)
    }

    /// From now on no packet is taken; false as nothing is waited for either.
    fn hang(&mut self, queue: &QueueState) -> bool {
        self.hung = true;
        queue.stick();
        false
    }

    /// The id after the last packet that may be taken.
    fn limit(&self, shared: &Shared, queue: &QueueState) -> Result<u64, Box<QueueFault>> {
        let rung = queue.rung.load(Ordering::Acquire);
        let Some(limit) = rung
            .checked_add(1)
            .and_then(|limit| u64::try_from(limit).ok())
        else {
            return Ok(0);
        };
        if limit <= self.next {
            return Ok(limit);
        }
        let context = Context {
            shared,
            queue,
            id: self.next,
            word: INVALID_SLOT as u16,
        };
        let ring = |error: RingError| context.fault(error.into(), code::PACKET_FORMAT);
        let va = queue.queue_va + at::WRITE_DISPATCH_ID as u64;
        let reserved = shared
            .memory
            .load_u64(va, Ordering::Acquire)
            .map_err(context.memory("reading the write index"))?;
        if limit > reserved {
            return Err(ring(RingError::NotReserved { rung, reserved }));
        }
        if limit - self.next > u64::from(queue.packets) {
            let (rung, read, packets) = (limit - 1, self.next, queue.packets);
            return Err(ring(RingError::Overrun {
                rung,
                read,
                packets,
            }));
        }
        Ok(limit)
    }

    fn take(&mut self, context: &Context<'_>, bytes: &[u8; 64]) -> Result<Taken, Box<QueueFault>> {
        let Context {
            shared,
            queue,
            word,
            ..
        } = *context;
        let packet = Packet(bytes);
        let Header { kind, barrier } = aql::header(word).map_err(|error| context.packet(error))?;
        if barrier {
            self.batch.run(shared, queue.id)?;
            if let Some(strict) = &shared.strict {
                strict.wait(queue.id);
            }
        }
        // Behind the barrier: what ran before it may have changed what this packet names.
        if let Some(strict) = &shared.strict {
            strict.model().take(queue.id, context.id);
        }
        let all = match kind {
            PacketType::BarrierAnd => true,
            PacketType::BarrierOr => false,
            PacketType::KernelDispatch => return self.kernel_dispatch(context, &packet),
            PacketType::Vendor => return self.indirect_buffer(context, &packet),
        };
        self.barrier(context, &packet, all)
    }

    /// Counts and logs a packet that is about to be given back.
    fn accept(&mut self, context: &Context<'_>, packet: &Packet<'_>) {
        count(&context.shared.tally.packets, 1);
        self.record
            .begin(context.shared, context.queue.id, context.id, packet.0);
    }

    /// Marks the slot INVALID and lets producers reuse it.
    fn retire(&mut self, context: &Context<'_>) -> Result<(), Box<QueueFault>> {
        let Context {
            shared, queue, id, ..
        } = *context;
        let slot = shared
            .memory
            .store_u32(queue.slot(id), INVALID_SLOT, Ordering::Release);
        slot.map_err(context.memory("giving a slot back"))?;
        self.next = id + 1;
        let va = queue.queue_va + at::READ_DISPATCH_ID as u64;
        let read = shared.memory.store_u64(va, self.next, Ordering::Release);
        read.map_err(context.memory("advancing the read index"))
    }

    fn kernel_dispatch(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
    ) -> Result<Taken, Box<QueueFault>> {
        self.accept(context, packet);
        let (launch, signal) = aql::kernel_dispatch(packet, context.shared)
            .and_then(|launch| Ok((launch, aql::completion(packet, context.shared)?)))
            .map_err(|error| {
                let mut fault = context.packet(error);
                fault.kernel = aql::kernel_name(packet, context.shared);
                fault
            })?;
        let origin = Origin {
            packet: context.id,
            packet_type: aql::type_name(context.word),
            signal,
        };
        let place = context.place(Some(&launch.kernel.name));
        let bytes = launch.kernel.kernarg_size();
        let start = inject::launch(context.shared, place, launch.kernarg_va, bytes)?;
        let strict = context.shared.strict.as_ref();
        let watched = strict.map(|strict| {
            strict.acquire(context.queue.id, aql::acquire(context.word));
            let facts = Facts {
                queue: context.queue.id,
                packet: context.id,
                dword: None,
                rsrc3: launch.shape.rsrc[2],
                release: aql::releases(context.word),
                signal,
            };
            strict.launch(&launch.kernel, facts)
        });
        self.record.dispatch(
            context.shared,
            &launch.kernel,
            &launch.shape,
            launch.kernarg_va,
        );
        if start == Start::Hang {
            self.batch.run(context.shared, context.queue.id)?;
            self.retire(context)?;
            return Ok(Taken::Hung);
        }
        self.batch
            .push(&launch.kernel, launch.shape, origin, watched);
        self.retire(context)?;
        Ok(Taken::Done)
    }

    fn barrier(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        all: bool,
    ) -> Result<Taken, Box<QueueFault>> {
        let shared = context.shared;
        let met = || aql::barrier_met(packet, shared, all).map_err(|error| context.packet(error));
        if !met()? {
            // What it waits for may be in flight right here.
            self.batch.run(shared, context.queue.id)?;
            if !met()? {
                return Ok(Taken::Blocked);
            }
        }
        self.accept(context, packet);
        let signal = aql::completion(packet, shared).map_err(|error| context.packet(error))?;
        if let Some(strict) = &shared.strict {
            // Of several alternatives, nothing says which one let the packet pass.
            if all || aql::dependencies(packet).count() == 1 {
                strict.passed(context.queue.id, aql::dependencies(packet));
            }
            strict.acquire(context.queue.id, aql::acquire(context.word));
            strict.complete(context.queue.id, aql::releases(context.word), signal);
        }
        self.retire(context)?;
        self.record.finish(shared);
        if signal != 0 {
            complete(shared, context.queue.id, context.id, signal)
                .map_err(|error| context.packet(error))?;
        }
        Ok(Taken::Done)
    }

    fn indirect_buffer(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
    ) -> Result<Taken, Box<QueueFault>> {
        let Context {
            shared, id, word, ..
        } = *context;
        self.accept(context, packet);
        let buffer = aql::indirect_buffer(packet, shared).map_err(|error| context.packet(error))?;
        let signal = aql::completion(packet, shared).map_err(|error| context.packet(error))?;
        inject::indirect_buffer(shared, context.place(None), buffer.va, buffer.dwords);
        if let Some(strict) = &shared.strict {
            strict.acquire(context.queue.id, aql::acquire(word));
        }
        let mut words = std::mem::take(&mut self.ib);
        read_words(context, buffer, &mut words)?;
        self.ib = words;
        self.retire(context)?;
        let paused = Paused {
            packet: id,
            word,
            signal,
            position: Position::default(),
        };
        self.run_buffer(context, paused)
    }

    /// Runs the indirect buffer in `self.ib` from its position on.
    fn run_buffer(
        &mut self,
        context: &Context<'_>,
        mut paused: Paused,
    ) -> Result<Taken, Box<QueueFault>> {
        let Context {
            shared,
            queue,
            id,
            word,
        } = *context;
        let words = std::mem::take(&mut self.ib);
        let Self {
            registers,
            batch,
            record,
            ..
        } = self;
        // Every target of the software GPU has a row; gfx1201's is as good as any for a missing
        // one.
        let registers = registers.get_or_insert_with(|| {
            Registers::new(gfx(shared.config.target).unwrap_or(Gfx::Gfx1201))
        });
        let owner = Owner {
            queue: queue.id,
            packet: id,
            packet_type: aql::type_name(word),
        };
        let ran = Run {
            shared,
            registers,
            batch,
            record,
            owner,
        }
        .run(&words, &mut paused.position);
        self.ib = words;
        match ran? {
            Ended::Whole => {}
            Ended::Hung => return Ok(Taken::Hung),
            Ended::Blocked => {
                self.paused = Some(paused);
                return Ok(Taken::Blocked);
            }
        }
        if let Some(strict) = &shared.strict {
            strict.complete(queue.id, aql::releases(word), paused.signal);
        }
        self.record.finish(shared);
        if paused.signal != 0 {
            complete(shared, queue.id, id, paused.signal).map_err(|error| context.packet(error))?;
        }
        Ok(Taken::Done)
    }
}

/// First half-word of the packet's slot. The header is published last, with release; this load pairs
/// with it.
fn header(context: &Context<'_>) -> Result<u16, Box<QueueFault>> {
    let Context {
        shared, queue, id, ..
    } = *context;
    let word = shared.memory.load_u32(queue.slot(id), Ordering::Acquire);
    Ok(word.map_err(context.memory("reading a packet header"))? as u16)
}

fn read_words(
    context: &Context<'_>,
    buffer: aql::IndirectBuffer,
    words: &mut Vec<u32>,
) -> Result<(), Box<QueueFault>> {
    let len = buffer.dwords as usize;
    words.clear();
    words.resize(len, 0);
    let mut chunk = [0; 4096];
    for (index, part) in words.chunks_mut(chunk.len() / 4).enumerate() {
        let bytes = chunk.get_mut(..4 * part.len()).unwrap_or_default();
        let va = buffer.va + 4096 * index as u64;
        let read = context.shared.memory.peek(va, bytes);
        read.map_err(context.memory("reading the indirect buffer"))?;
        for (word, bytes) in part.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = bytes
                .first_chunk()
                .map_or(0, |bytes| u32::from_le_bytes(*bytes));
        }
    }
    Ok(())
}
