//! What strict mode knows of one wave beside its registers: which of them are undefined (poison)
//! and which a memory instruction in flight will still write.
//!
//! A vector register has one poison bit per lane, a scalar register one per bit, because scalar
//! registers hold lane masks. A write of part of a register (16-bit results, D16 loads) defines all
//! of it: compilers use the halves of a register apart, and nothing tells which half is meant.

use super::counters::{Counter, Field};
use super::regs::{RegSet, number};
use crate::exec::group::MAX_WAVES;
use crate::exec::init::Start;
use crate::isa::Generation;
use crate::isa::operand::{EXEC, NULL, SCC, TTMP, VGPR};

/// Outstanding instructions that a counter can count; the hardware stalls at more.
const MOST: usize = 63;

/// One memory instruction in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) counter: Counter,
    /// First register that it writes, as a number of `RegSet`, and how many.
    pub(super) first: u16,
    pub(super) regs: u16,
    /// It may complete before older ones of its counter: scalar loads and flat accesses.
    pub(super) unordered: bool,
    /// Its micro-operation.
    pub(super) uop: u32,
}

impl InFlight {
    fn set(&self) -> RegSet {
        let mut set = RegSet::EMPTY;
        for k in 0..self.regs {
            set.insert(self.first + k);
        }
        set
    }
}

/// A register that was touched too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub(super) register: u16,
    pub(super) counter: Counter,
    /// Count that the wait would have had to reach.
    pub(super) at_most: u32,
    pub(super) uop: u32,
}

/// Strict state of one wave.
pub(super) struct Track {
    /// Registers that need a look before they are used: poisoned or in flight.
    hot: RegSet,
    flight: RegSet,
    poisoned: RegSet,
    /// Poisoned lanes per vector register.
    v: [u32; 256],
    /// Poisoned bits per scalar register; the place of NULL is SCC.
    s: [u32; 128],
    queue: Vec<InFlight>,
    /// Defined bytes of the lanes' scratch memory, one lane after another.
    scratch: Vec<bool>,
    scratch_each: usize,
    /// LDS instructions issued, and how many of them are known to be complete.
    pub(super) lds_issued: u32,
    pub(super) lds_done: u32,
    /// Per wave of the group: its LDS instructions that a barrier ordered before this wave.
    pub(super) seen: [u32; MAX_WAVES],
    /// Barrier phase that this wave signalled and has not waited for.
    pub(super) signalled: Option<u32>,
    /// Micro-operation of the last signal, and completed LDS instructions at that moment.
    pub(super) signal_uop: u32,
    pub(super) signal_done: u32,
}

impl Track {
    pub(super) fn new() -> Self {
        Self {
            hot: RegSet::EMPTY,
            flight: RegSet::EMPTY,
            poisoned: RegSet::EMPTY,
            v: [0; 256],
            s: [0; 128],
            queue: Vec::with_capacity(MOST + 1),
            scratch: Vec::new(),
            scratch_each: 0,
            lds_issued: 0,
            lds_done: 0,
            seen: [0; MAX_WAVES],
            signalled: None,
            signal_uop: 0,
            signal_done: 0,
        }
    }

    /// The start of a wave: everything that the launch does not set is poison.
    pub(super) fn start(&mut self, start: &Start<'_>) {
        let d = start.dispatch;
        self.queue.clear();
        self.scratch_each = d.scratch_bytes as usize;
        self.scratch.clear();
        self.scratch.resize(32 * self.scratch_each, false);
        self.flight = RegSet::EMPTY;
        self.poisoned = RegSet::ALL;
        self.poisoned.remove(0);
        self.v[1..].fill(u32::MAX);
        self.v[0] = 0;
        self.s.fill(u32::MAX);
        let mut clear = |code: u16| {
            self.s[usize::from(code & 127)] = 0;
            self.poisoned.remove(256 + (code & 127));
        };
        clear(EXEC);
        for code in 0..d.user_sgpr_count.min(16) as u16 {
            clear(code);
        }
        let first = (d.rsrc2 >> 1 & 31) as u16;
        let ids = match d.program.target().generation() {
            Generation::Gfx11 => (d.rsrc2 >> 7 & 7).count_ones(),
            Generation::Gfx12 => {
                clear(TTMP + 9);
                clear(TTMP + 7);
                0
            }
        };
        for k in 0..ids + (d.rsrc2 >> 10 & 1) {
            clear(first + k as u16);
        }
        self.s[usize::from(NULL)] = 1;
        self.hot = self.poisoned;
        (self.lds_issued, self.lds_done) = (0, 0);
        self.seen = [0; MAX_WAVES];
        self.signalled = None;
        (self.signal_uop, self.signal_done) = (u32::MAX, 0);
    }

    /// Whether any of these registers is poisoned or in flight.
    #[inline(always)]
    pub(super) fn is_hot(&self, touched: &RegSet) -> bool {
        self.hot.meets(touched)
    }

    pub(super) fn is_poisoned(&self, touched: &RegSet) -> bool {
        self.poisoned.meets(touched)
    }

    /// Poisoned lanes of an operand of `regs` registers; a scalar counts for all lanes.
    pub(super) fn lanes(&self, code: u16, regs: u32) -> u32 {
        match code {
            VGPR.. => self
                .v
                .iter()
                .skip(usize::from(code - VGPR))
                .take(regs as usize)
                .fold(0, |all, lanes| all | lanes),
            _ if (0..regs as u16).any(|k| self.bits(code + k) != 0) => u32::MAX,
            _ => 0,
        }
    }

    /// Poisoned bits of a scalar operand of 32 bits; 0 for constants.
    pub(super) fn bits(&self, code: u16) -> u32 {
        match number(code) {
            Some(n @ 256..) => self.s[usize::from(n - 256) & 127],
            _ => 0,
        }
    }

    /// Poisoned bits of a scalar operand of `regs` registers (1 or 2).
    pub(super) fn bits64(&self, code: u16, regs: u32) -> u64 {
        let high = if regs > 1 && code < 128 {
            self.bits(code + 1)
        } else {
            0
        };
        u64::from(self.bits(code)) | u64::from(high) << 32
    }

    /// Takes bytes of a lane's scratch memory as defined or not.
    pub(super) fn write_scratch(&mut self, lane: u32, at: u32, len: u32, defined: bool) {
        let first = lane as usize * self.scratch_each + at as usize;
        for byte in self.scratch.iter_mut().skip(first).take(len as usize) {
            *byte = defined;
        }
    }

    /// Whether a lane's scratch bytes are all defined.
    pub(super) fn read_scratch(&self, lane: u32, at: u32, len: u32) -> bool {
        let first = lane as usize * self.scratch_each + at as usize;
        let mut bytes = self.scratch.iter().skip(first).take(len as usize);
        bytes.all(|defined| *defined)
    }

    fn mark(&mut self, number: u16, poisoned: bool) {
        if poisoned {
            self.poisoned.insert(number);
            self.hot.insert(number);
        } else {
            self.poisoned.remove(number);
            if !self.flight.contains(number) {
                self.hot.remove(number);
            }
        }
    }

    /// Sets the poison of the lanes `written` of a vector register.
    pub(super) fn set_lanes(&mut self, code: u16, lanes: u32, written: u32) {
        if code < VGPR {
            return;
        }
        let row = code - VGPR;
        let Some(slot) = self.v.get_mut(usize::from(row)) else {
            return;
        };
        *slot = *slot & !written | lanes & written;
        let poisoned = *slot != 0;
        self.mark(row, poisoned);
    }

    /// Sets the poison of a scalar register.
    pub(super) fn set_bits(&mut self, code: u16, bits: u32) {
        if let Some(n @ 256..) = number(code) {
            self.s[usize::from(n - 256) & 127] = bits;
            self.mark(n, bits != 0);
        }
    }

    pub(super) fn set_bits64(&mut self, code: u16, regs: u32, bits: u64) {
        self.set_bits(code, bits as u32);
        if regs > 1 {
            self.set_bits(code + 1, (bits >> 32) as u32);
        }
    }

    pub(super) fn set_scc(&mut self, poisoned: bool) {
        self.set_bits(SCC, u32::from(poisoned));
    }

    /// Takes registers as defined, after they were reported.
    pub(super) fn define(&mut self, code: u16, regs: u32) {
        for k in 0..regs as u16 {
            if code >= VGPR {
                self.set_lanes(code + k, 0, u32::MAX);
            } else {
                self.set_bits(code + k, 0);
            }
        }
    }

    /// The first of the registers `touched` that an instruction in flight will still write.
    /// `exempt`: writes of this counter's instructions stay in order with the touching one.
    pub(super) fn early(
        &self,
        reads: &RegSet,
        writes: &RegSet,
        exempt: Option<Counter>,
        generation: Generation,
    ) -> Option<Early> {
        let touched = reads.union(writes);
        if !self.flight.meets(&touched) {
            return None;
        }
        for (at, entry) in self.queue.iter().enumerate().rev() {
            let relevant = match exempt {
                Some(counter) if counter == entry.counter && !entry.unordered => reads,
                _ => &touched,
            };
            let Some(register) = entry.set().intersection(relevant).first() else {
                continue;
            };
            let younger = self.queue[at + 1..]
                .iter()
                .filter(|e| e.counter.shares(entry.counter, generation))
                .count() as u32;
            let ordered = !self.mixed(entry.counter, generation);
            return Some(Early {
                register,
                counter: entry.counter,
                at_most: if ordered { younger } else { 0 },
                uop: entry.uop,
            });
        }
        None
    }

    /// Whether instructions that complete in any order are outstanding on the counter.
    fn mixed(&self, counter: Counter, generation: Generation) -> bool {
        self.queue
            .iter()
            .any(|e| e.unordered && e.counter.shares(counter, generation))
    }

    /// Takes a register as arrived, after it was reported.
    pub(super) fn arrive(&mut self, register: u16) {
        for entry in &mut self.queue {
            if (entry.first..entry.first + entry.regs).contains(&register) {
                entry.regs = 0;
            }
        }
        self.refresh();
    }

    /// A memory instruction was issued.
    pub(super) fn issue(&mut self, entry: InFlight, generation: Generation) {
        if entry.counter == Counter::Lds {
            self.lds_issued += 1;
        }
        if self.queue.len() >= MOST {
            self.settle(entry.counter, MOST as u32 - 1, generation);
        }
        self.queue.push(entry);
        if entry.regs > 0 {
            let set = entry.set();
            self.flight = self.flight.union(&set);
            self.hot = self.hot.union(&set);
        }
    }

    /// A wait: of the counter of `field`, at most `allowed` instructions stay outstanding.
    pub(super) fn wait(&mut self, field: &Field, allowed: u32, generation: Generation) {
        if !self.queue.is_empty() {
            self.settle(field.counter, allowed, generation);
        }
    }

    /// Drops what is certainly complete once at most `allowed` are outstanding: with scalar loads
    /// among them (out of order), each completion may have been one of those.
    fn settle(&mut self, counter: Counter, allowed: u32, generation: Generation) {
        let (mut total, mut unordered) = (0, 0);
        for entry in &self.queue {
            if entry.counter.shares(counter, generation) {
                total += 1;
                unordered += u32::from(entry.unordered);
            }
        }
        if total <= allowed {
            return;
        }
        let mut complete = if allowed == 0 {
            total
        } else {
            (total - allowed).saturating_sub(unordered)
        };
        let mut lds = 0;
        self.queue.retain(|entry| {
            if !entry.counter.shares(counter, generation) {
                return true;
            }
            let gone = complete > 0 && (allowed == 0 || !entry.unordered);
            if gone {
                complete -= 1;
                lds += u32::from(entry.counter == Counter::Lds);
            }
            !gone
        });
        self.lds_done += lds;
        self.refresh();
    }

    fn refresh(&mut self) {
        let mut flight = RegSet::EMPTY;
        for entry in self.queue.iter().filter(|e| e.regs > 0) {
            flight = flight.union(&entry.set());
        }
        self.flight = flight;
        self.hot = self.poisoned.union(&flight);
    }
}
