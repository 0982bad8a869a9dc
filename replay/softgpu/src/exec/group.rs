//! Runs one work-group: its waves take turns on the calling thread, each until it ends or waits at
//! a barrier, in an order that the seed decides.

use super::context::{Ctx, Fault};
use super::init::{Start, mix};
use super::program::Program;
use super::uop::Flow;
use super::wave::{State, Wave};
use super::{WaveError, WaveFault};
use crate::isa::{IsaError, disassemble};
use crate::memory::{AddressSpace, FaultReason};
use std::sync::atomic::Ordering;

/// Waves in a work-group: 1,024 work-items.
pub(super) const MAX_WAVES: usize = 32;

/// Why a work-group stopped: the wave and its micro-operation.
pub(super) struct Stopped {
    pub(super) wave: u32,
    pub(super) uop: u32,
    pub(super) cause: Cause,
}

/// What stopped it.
pub(super) enum Cause {
    Fault(Fault),
    Deadlock { waiting: u32, ended: u32 },
}

/// Runs a wave until it ends, waits or faults.
fn run_wave(w: &mut Wave, x: &mut Ctx<'_>, budget: u64) -> Flow {
    let program = x.program;
    let mut uops = program.uops_for(w.mode);
    let mut pc = w.pc as usize;
    let mut count = w.count;
    let flow = loop {
        let Some(u) = uops.get(pc) else {
            break x.stop(Fault::Undecodable);
        };
        count += u64::from(u.count);
        // SAFETY: the program's handlers were chosen for this CPU when it was decoded.
        let flow = unsafe { (u.run)(w, u, x) };
        if flow == Flow::NEXT {
            pc += 1;
        } else if flow.0 >= Flow::JUMP {
            pc = (flow.0 - Flow::JUMP) as usize;
            if count > budget {
                break x.stop(Fault::Budget);
            }
        } else if flow == Flow::MODE {
            uops = program.uops_for(w.mode);
            pc += 1;
        } else {
            pc += usize::from(flow == Flow::BARRIER);
            break flow;
        }
    };
    w.pc = pc as u32;
    w.count = count;
    flow
}

/// The order in which waves take turns.
fn shuffled(waves: usize, seed: u64) -> [u8; MAX_WAVES] {
    let mut order = [0; MAX_WAVES];
    for (i, slot) in order.iter_mut().enumerate() {
        *slot = i as u8;
    }
    for i in (1..waves).rev() {
        let j = (mix(seed ^ (i as u64) << 40) % (i as u64 + 1)) as usize;
        order.swap(i, j);
    }
    order
}

/// Where the waves of a work-group live: a wave takes storage when its first turn comes and gives it
/// back at its end, so that waves without a barrier follow each other in the same, cached registers.
struct Places {
    /// Storage of each wave.
    of: [Option<u8>; MAX_WAVES],
    /// Waves that have had their first turn.
    started: u32,
    /// Storage that no wave uses.
    free: u32,
}

impl Places {
    fn new(waves: usize) -> Self {
        Self {
            of: [None; MAX_WAVES],
            started: 0,
            free: u32::MAX >> (MAX_WAVES - waves.clamp(1, MAX_WAVES)),
        }
    }

    /// Storage of wave `i`, which is started if it never was; `None` once it has ended.
    fn find(
        &mut self,
        start: &Start<'_>,
        waves: &mut [Box<Wave>],
        group: [u32; 3],
        i: usize,
    ) -> Option<usize> {
        if self.started >> i & 1 == 0 {
            let place = self.free.trailing_zeros() as usize;
            start.wave(waves.get_mut(place)?, group, i as u32);
            self.started |= 1 << i;
            self.free &= self.free - 1;
            self.of[i] = Some(place as u8);
        }
        self.of[i].map(usize::from)
    }
}

/// Runs the work-group `group` on `waves`, which are as many as it has. Returns the instructions.
pub(super) fn run_group(
    start: &Start<'_>,
    waves: &mut [Box<Wave>],
    x: &mut Ctx<'_>,
    group: [u32; 3],
    seed: u64,
    budget: u64,
) -> Result<u64, Stopped> {
    for w in waves.iter_mut() {
        w.state = State::Ended;
    }
    x.alive = waves.len() as u32;
    x.signals = 0;
    x.completed = false;
    let order = shuffled(waves.len(), seed);
    let mut places = Places::new(waves.len());
    let mut instructions = 0;
    while x.alive > 0 {
        let mut moved = false;
        for &i in &order[..waves.len().min(MAX_WAVES)] {
            let i = usize::from(i);
            let Some(place) = places.find(start, waves, group, i) else {
                continue;
            };
            if waves[place].state != State::Ready {
                continue;
            }
            moved = true;
            turn(waves, place, x, budget)?;
            if waves[place].state == State::Ended {
                instructions += waves[place].count;
                places.of[i] = None;
                places.free |= 1 << place;
            }
        }
        if !moved {
            return Err(deadlock(waves));
        }
    }
    Ok(instructions)
}

/// Instructions between two looks at whether the batch is given up: about a hundredth of a second.
const SLICE: u64 = 1 << 19;

/// Runs a wave until it ends, waits or faults; looks now and then whether it must stop.
fn run_sliced(w: &mut Wave, x: &mut Ctx<'_>, budget: u64) -> Flow {
    loop {
        let slice = budget.min(w.count.saturating_add(SLICE));
        let flow = run_wave(w, x, slice);
        // A wave stops for its budget after a jump was taken, so it can go on from there.
        if x.fault != Some(Fault::Budget) || w.count > budget {
            return flow;
        }
        x.fault = None;
        if x.stop.load(Ordering::Relaxed) {
            return x.stop(Fault::Stopped);
        }
    }
}

/// One turn of the wave in storage `i`.
fn turn(waves: &mut [Box<Wave>], i: usize, x: &mut Ctx<'_>, budget: u64) -> Result<(), Stopped> {
    match run_sliced(&mut waves[i], x, budget) {
        Flow::END => {
            waves[i].state = State::Ended;
            x.alive -= 1;
            // A wave that ended no longer takes part, which may complete the barrier.
            if x.signals > 0 && x.signals >= x.alive {
                x.signals = 0;
                x.completed = true;
            }
        }
        Flow::BARRIER => waves[i].state = State::AtBarrier,
        _ => {
            let cause = Cause::Fault(x.fault.take().unwrap_or(Fault::Undecodable));
            return Err(Stopped {
                wave: waves[i].index,
                uop: waves[i].pc,
                cause,
            });
        }
    }
    if x.completed {
        x.completed = false;
        // The wave whose turn it was may already wait for the next phase.
        for (j, w) in waves.iter_mut().enumerate() {
            if j != i && w.state == State::AtBarrier {
                w.state = State::Ready;
            }
        }
    }
    Ok(())
}

/// All waves that have not ended wait.
fn deadlock(waves: &[Box<Wave>]) -> Stopped {
    let waiting = || waves.iter().filter(|w| w.state == State::AtBarrier);
    let count = waiting().count() as u32;
    let first = waiting().min_by_key(|w| w.index);
    Stopped {
        wave: first.map_or(0, |w| w.index),
        // The barrier itself: waves resume after it.
        uop: first.map_or(0, |w| w.pc.saturating_sub(1)),
        cause: Cause::Deadlock {
            waiting: count,
            ended: waves.len() as u32 - count,
        },
    }
}

impl Stopped {
    /// The public error, with names and the nearest allocation looked up. `program` is the one whose
    /// micro-operations ran.
    pub(super) fn describe(
        self,
        memory: &AddressSpace,
        start: &Start<'_>,
        program: &Program,
        group: [u32; 3],
        budget: u64,
    ) -> WaveError {
        let d = start.dispatch;
        let pc = program.address_of(self.uop);
        let fault = match self.cause {
            Cause::Deadlock { waiting, ended } => WaveFault::Deadlock { waiting, ended },
            Cause::Fault(Fault::Memory {
                lane,
                address,
                length,
                access,
            }) => {
                // The view that refused may be older than the table: ask the table for the reason.
                let fault = match memory.check(address, length, access) {
                    Err(fault) => fault,
                    Ok(()) => memory.fault(address, length, access, FaultReason::OutOfBounds),
                };
                WaveFault::Memory { lane, fault }
            }
            Cause::Fault(Fault::Lds {
                lane,
                address,
                length,
            }) => WaveFault::Lds {
                lane,
                address,
                length,
                size: d.lds_bytes,
            },
            Cause::Fault(Fault::Scratch {
                lane,
                address,
                length,
                size,
            }) => WaveFault::Scratch {
                lane,
                address,
                length,
                size,
            },
            Cause::Fault(Fault::Unsupported(what)) => WaveFault::Unsupported(what),
            Cause::Fault(Fault::Jump { address }) => WaveFault::Jump {
                address,
                place: jump_place(memory, &d.program, address),
            },
            Cause::Fault(Fault::Budget) => WaveFault::Budget { budget },
            Cause::Fault(Fault::Stopped) => WaveFault::Stopped,
            Cause::Fault(Fault::Undecodable) => undecodable(program, self.uop),
        };
        WaveError {
            kernel: d.name.clone(),
            tag: d.tag,
            group,
            wave: self.wave,
            pc,
            instruction: program.text_of(self.uop),
            fault,
        }
    }
}

/// A jump's target in words: the object and its kernel, or whatever lies there.
fn jump_place(memory: &AddressSpace, program: &Program, address: u64) -> String {
    let Some(info) = memory.find(address) else {
        return format!("{address:#x}, which belongs to no allocation");
    };
    let (name, offset) = (&info.name, address - info.base);
    match program.symbol(address) {
        Some((kernel, at)) => format!("{kernel}+{at:#x}, byte {offset} of {name}"),
        None => format!("byte {offset} of {name}"),
    }
}

fn undecodable(program: &Program, uop: u32) -> WaveFault {
    let target = program.target();
    let address = program.address_of(uop);
    let bytes = program.bytes_at(uop);
    let error = disassemble(target, address, &bytes)
        .ok()
        .and_then(|lines| lines.into_iter().next()?.text.err());
    WaveFault::Undecodable(error.unwrap_or(IsaError::Instruction {
        target,
        address,
        words: Vec::new(),
        reason: crate::isa::DecodeError::Truncated,
    }))
}
