//! Memory instructions of strict mode: addresses must be defined, the memory side is told, results
//! are in flight until their wait.

use super::code::Known;
use super::counters::Counter;
use super::effects::{destination_regs, returns, source_regs};
use super::poison::{Step, crossbar};
use super::regs::number;
use super::track::InFlight;
use super::turn::Turn;
use crate::exec::global::{addresses, buffer, scalar_address};
use crate::exec::uop::{Flow, Uop};
use crate::isa::op::{Atomic, Op, Wide};
use crate::strict::hook::{Access, AtomicKind, Path, Watch};

pub(super) const fn wide_bytes(wide: Wide) -> u32 {
    match wide {
        Wide::B32 => 4,
        Wide::B64 => 8,
    }
}

/// All ones, if source 0 is an address.
const fn addressing(op: Op) -> u32 {
    match op {
        Op::GLoadAddtid | Op::GStoreAddtid => 0,
        _ => u32::MAX,
    }
}

/// Whether contenders see or leave different values in another order.
const fn ordered(function: Atomic) -> bool {
    matches!(
        function,
        Atomic::AddF
            | Atomic::PkAddF16
            | Atomic::PkAddBf16
            | Atomic::Swap
            | Atomic::CmpSwap
            | Atomic::CmpSwapF
            | Atomic::CmpStore
            | Atomic::CmpStoreF
            | Atomic::MskOr
            | Atomic::Wrap
            | Atomic::SubClamp
            | Atomic::CondSub
    )
}

impl<W: Watch + ?Sized> Turn<'_, '_, W> {
    /// Puts a result of `regs` registers from `dst` in flight.
    pub(super) fn issued(&mut self, counter: Counter, dst: u16, regs: u32, pc: u32) {
        let first = number(dst);
        let entry = InFlight {
            counter,
            first: first.unwrap_or(0),
            regs: first.map_or(0, |_| regs as u16),
            unordered: counter == Counter::Scalar,
            uop: pc,
        };
        self.t.issue(entry, self.generation);
    }

    pub(super) fn scalar_load(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let (Op::SLoad(load) | Op::SBufferLoad(load)) = inst.row.op else {
            return self.execute(u);
        };
        let whole = load.bytes();
        self.early(known, None, pc);
        self.address(inst.src[0], inst.row.shape.src[0].regs(), 1, pc);
        self.address(inst.saddr, 1, 1, pc);
        let mut at = [0; 32];
        // As the handlers align: dwords, or the size of the part.
        let aligned = |a: u64| a & !u64::from(whole.min(4) - 1);
        let bytes = if matches!(inst.row.op, Op::SLoad(_)) {
            at[0] = aligned(scalar_address(self.w, u, self.x));
            whole
        } else {
            // What lies past the end of the buffer reads as zero.
            let (base, size) = buffer(self.w, u.a);
            let offset = u64::from(self.w.scalar(self.x, u.b));
            let offset = aligned((i64::from(u.imm) as u64).wrapping_add(offset));
            at[0] = base.wrapping_add(offset);
            let inside = size.saturating_sub(offset).min(u64::from(whole));
            inside as u32 / whole.min(4) * whole.min(4)
        };
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let access = Access {
            who: self.who(pc),
            at: &at,
            lanes: 1,
            bytes,
            path: Path::Scalar { cache: inst.cache },
            company: self.company(),
        };
        let undefined = if bytes == 0 {
            0
        } else {
            self.watch.load(&access)
        };
        let regs = whole.div_ceil(4) as u16;
        for k in 0..regs {
            let mut bad = undefined != 0 && 4 * u32::from(k) < bytes;
            if bad && regs > 1 {
                let mut part = at;
                part[0] += 4 * u64::from(k);
                bad = self.watch.undefined(&Access {
                    at: &part,
                    bytes: 4,
                    ..access
                }) != 0;
            }
            self.t
                .set_bits(inst.dst + k, if bad { u32::MAX } else { 0 });
        }
        self.issued(Counter::Scalar, inst.dst, u32::from(regs), pc);
        flow
    }

    pub(super) fn global(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let op = inst.row.op;
        // Loads of one counter return in order, so one may write what another will have written.
        let loads = matches!(op, Op::GLoad(_) | Op::GLoadAddtid);
        let exempt = loads.then_some(Counter::Load);
        self.early(known, exempt, pc);
        let exec = self.w.exec();
        let by_scalar = inst.scalar_address();
        self.address(
            inst.src[0],
            source_regs(inst, inst.row, 0) & addressing(op),
            exec,
            pc,
        );
        if by_scalar {
            self.address(inst.saddr, 2, exec, pc);
        }
        let at = if matches!(op, Op::GLoadAddtid | Op::GStoreAddtid) {
            let base = self.w.scalar64(self.x, u.b);
            let base = base.wrapping_add(i64::from(u.imm) as u64);
            std::array::from_fn(|i| base.wrapping_add(4 * i as u64))
        } else if by_scalar {
            addresses::<true>(self.w, u, self.x)
        } else {
            addresses::<false>(self.w, u, self.x)
        };
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let bytes = match op {
            Op::GLoad(load) => load.bytes(),
            Op::GStore(store) => store.bytes(),
            Op::GAtomic(_, wide) => wide_bytes(wide),
            _ => 4,
        };
        let access = Access {
            who: self.who(pc),
            at: &at,
            lanes: exec,
            bytes,
            path: Path::Vector { cache: inst.cache },
            company: self.company(),
        };
        match op {
            Op::GLoad(_) | Op::GLoadAddtid => self.loaded(known, &access, pc),
            Op::GStore(_) | Op::GStoreAddtid => {
                let bad = self.stored(known, exec, pc);
                if exec != 0 {
                    self.watch.store(&access, bad);
                }
                self.issued(Counter::Store, 0, 0, pc);
            }
            Op::GAtomic(function, _) => {
                let bad = self.stored(known, exec, pc);
                let undefined = self.changed(known, &access, function, bad);
                if returns(self.generation, inst) {
                    let regs = destination_regs(self.generation, inst, inst.row);
                    for k in 0..regs as u16 {
                        self.t.set_lanes(inst.dst + k, undefined, exec);
                    }
                    self.issued(Counter::Load, inst.dst, regs, pc);
                } else {
                    self.issued(Counter::Store, 0, 0, pc);
                }
            }
            _ => {}
        }
        flow
    }

    fn loaded(&mut self, known: &Known, access: &Access<'_>, pc: u32) {
        let inst = &known.inst;
        let undefined = self.read(access);
        let regs = access.bytes.div_ceil(4);
        for (k, lanes) in undefined.into_iter().enumerate().take(regs as usize) {
            self.t.set_lanes(inst.dst + k as u16, lanes, access.lanes);
        }
        self.issued(Counter::Load, inst.dst, regs, pc);
    }

    /// Reads memory: per dword, the lanes that got an undefined byte.
    pub(super) fn read(&mut self, access: &Access<'_>) -> [u32; 4] {
        if access.lanes == 0 {
            return [0; 4];
        }
        let undefined = self.watch.load(access);
        let mut words = [undefined; 4];
        if undefined != 0 && access.bytes > 4 {
            for (k, word) in words.iter_mut().enumerate() {
                let at = access.at.map(|a| a.wrapping_add(4 * k as u64));
                *word = self.watch.undefined(&Access {
                    at: &at,
                    bytes: 4,
                    ..*access
                });
            }
        }
        words
    }

    /// Poisoned lanes of the data of a store, reported.
    pub(super) fn stored(&mut self, known: &Known, exec: u32, pc: u32) -> u32 {
        let inst = &known.inst;
        let k = usize::from(inst.row.op != Op::GStoreAddtid);
        let bad = self.t.lanes(inst.src[k], inst.row.shape.src[k].regs()) & exec;
        if bad != 0 {
            self.blame(inst, "stored data", bad, pc);
        }
        bad
    }

    /// An atomic with poisoned data in the lanes `bad`: the lanes that got an undefined byte.
    pub(super) fn changed(
        &mut self,
        known: &Known,
        access: &Access<'_>,
        function: Atomic,
        bad: u32,
    ) -> u32 {
        let kind = AtomicKind {
            ordered: ordered(function),
            returns: returns(self.generation, &known.inst),
        };
        if access.lanes == 0 {
            return 0;
        }
        self.watch.atomic(access, kind, bad & access.lanes)
    }

    /// Lane exchange through the LDS unit, which touches no LDS memory.
    pub(super) fn crossbar(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        if inst.row.op == Op::DsNop {
            return self.execute(u);
        }
        self.early(known, None, pc);
        let exec = self.w.exec();
        let lanes = if self.t.is_poisoned(&known.effects.reads) {
            let step = Step {
                inst,
                w: self.w,
                generation: self.generation,
            };
            crossbar(&step, self.t)
        } else {
            0
        };
        let flow = self.execute(u);
        if flow == Flow::NEXT {
            self.t.set_lanes(inst.dst, lanes, exec);
            self.issued(Counter::Lds, inst.dst, 1, pc);
        }
        flow
    }
}
