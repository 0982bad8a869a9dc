//! Memory instructions of strict mode: addresses must be defined, the memory side is told, results
//! are in flight until their wait.

use super::code::Known;
use super::counters::Counter;
use super::effects::{destination_regs, returns};
use super::poison::{Step, crossbar};
use super::regs::number;
use super::track::InFlight;
use super::turn::Turn;
use crate::exec::global::{addresses, scalar_address};
use crate::exec::uop::{Flow, Uop};
use crate::isa::op::{Atomic, Load, Op, Store, Wide};
use crate::strict::hook::{Access, AtomicKind, Path, Watch};

/// Bytes per lane of a load.
pub(super) const fn load_bytes(load: Load) -> u32 {
    match load {
        Load::U8 | Load::I8 | Load::U8D16 | Load::U8D16Hi | Load::I8D16 | Load::I8D16Hi => 1,
        Load::U16 | Load::I16 | Load::U16D16 | Load::U16D16Hi => 2,
        Load::B32 => 4,
        Load::B64 => 8,
        Load::B96 => 12,
        Load::B128 => 16,
        Load::B256 => 32,
        Load::B512 => 64,
    }
}

/// Bytes per lane of a store.
pub(super) const fn store_bytes(store: Store) -> u32 {
    match store {
        Store::B8 | Store::B8D16Hi => 1,
        Store::B16 | Store::B16D16Hi => 2,
        Store::B32 => 4,
        Store::B64 => 8,
        Store::B96 => 12,
        Store::B128 => 16,
    }
}

pub(super) const fn wide_bytes(wide: Wide) -> u32 {
    match wide {
        Wide::B32 => 4,
        Wide::B64 => 8,
    }
}

/// Whether contenders see or leave different values in another order.
const fn ordered(function: Atomic) -> bool {
    matches!(
        function,
        Atomic::AddF | Atomic::Swap | Atomic::CmpSwap | Atomic::CmpStore
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
            uop: pc,
        };
        self.t.issue(entry, self.generation);
    }

    pub(super) fn scalar_load(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let Op::SLoad(load) = inst.row.op else {
            return self.execute(u);
        };
        self.early(known, None, pc);
        self.address(inst.src[0], 2, 1, pc);
        self.address(inst.saddr, 1, 1, pc);
        let bytes = load_bytes(load);
        let mut at = [0; 32];
        // As the handler aligns: dwords, or the size of the part.
        at[0] = scalar_address(self.w, u, self.x) & !u64::from(bytes.min(4) - 1);
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let access = Access {
            who: self.who(pc),
            at: &at,
            lanes: 1,
            bytes,
            path: Path::Scalar,
        };
        let undefined = self.watch.load(&access);
        let regs = bytes.div_ceil(4) as u16;
        for k in 0..regs {
            let mut bad = undefined != 0;
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
        let exempt = matches!(op, Op::GLoad(_)).then_some(Counter::Load);
        self.early(known, exempt, pc);
        let exec = self.w.exec();
        let by_scalar = inst.scalar_address();
        self.address(inst.src[0], 2 - u32::from(by_scalar), exec, pc);
        if by_scalar {
            self.address(inst.saddr, 2, exec, pc);
        }
        let at = if by_scalar {
            addresses::<true>(self.w, u, self.x)
        } else {
            addresses::<false>(self.w, u, self.x)
        };
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let bytes = match op {
            Op::GLoad(load) => load_bytes(load),
            Op::GStore(store) => store_bytes(store),
            Op::GAtomic(_, wide) => wide_bytes(wide),
            _ => 0,
        };
        let access = Access {
            who: self.who(pc),
            at: &at,
            lanes: exec,
            bytes,
            path: Path::Vector { cache: inst.cache },
        };
        match op {
            Op::GLoad(_) => self.loaded(known, &access, pc),
            Op::GStore(_) => {
                let bad = self.stored(known, exec, pc);
                if exec != 0 {
                    self.watch.store(&access, bad);
                }
                self.issued(Counter::Store, 0, 0, pc);
            }
            Op::GAtomic(function, _) => self.changed(known, &access, function, pc),
            _ => {}
        }
        flow
    }

    fn loaded(&mut self, known: &Known, access: &Access<'_>, pc: u32) {
        let inst = &known.inst;
        let undefined = if access.lanes == 0 {
            0
        } else {
            self.watch.load(access)
        };
        let regs = access.bytes.div_ceil(4);
        for k in 0..regs as u16 {
            let mut bad = undefined;
            if undefined != 0 && regs > 1 {
                let at = access.at.map(|a| a.wrapping_add(4 * u64::from(k)));
                bad = self.watch.undefined(&Access {
                    at: &at,
                    bytes: 4,
                    ..*access
                });
            }
            self.t.set_lanes(inst.dst + k, bad, access.lanes);
        }
        self.issued(Counter::Load, inst.dst, regs, pc);
    }

    /// Poisoned lanes of the data of a store, reported.
    fn stored(&mut self, known: &Known, exec: u32, pc: u32) -> u32 {
        let inst = &known.inst;
        let bad = self.t.lanes(inst.src[1], inst.row.shape.src[1].regs()) & exec;
        if bad != 0 {
            self.blame(inst, "stored data", bad, pc);
        }
        bad
    }

    fn changed(&mut self, known: &Known, access: &Access<'_>, function: Atomic, pc: u32) {
        let inst = &known.inst;
        let bad = self.stored(known, access.lanes, pc);
        let returned = returns(self.generation, inst);
        let kind = AtomicKind {
            ordered: ordered(function),
            returns: returned,
        };
        let undefined = if access.lanes == 0 {
            0
        } else {
            self.watch.atomic(access, kind, bad)
        };
        if !returned {
            self.issued(Counter::Store, 0, 0, pc);
            return;
        }
        let regs = destination_regs(self.generation, inst, inst.row);
        for k in 0..regs as u16 {
            self.t.set_lanes(inst.dst + k, undefined, access.lanes);
        }
        self.issued(Counter::Load, inst.dst, regs, pc);
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
