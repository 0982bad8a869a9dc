//! FLAT and SCRATCH accesses of strict mode. The lanes of a flat access may go to global memory, LDS
//! and scratch at once; it counts as a load or store and as an LDS instruction, and may overtake
//! others, so that only waits to zero say that it is done (LLVM SIInsertWaitcnts).

use super::code::Known;
use super::counters::Counter;
use super::effects::{destination_regs, returns};
use super::lds::{Does, LdsAccess};
use super::memory::wide_bytes;
use super::regs::number;
use super::track::InFlight;
use super::turn::Turn;
use crate::exec::flat::apertures;
use crate::exec::global::addresses;
use crate::exec::uop::{Flow, Uop};
use crate::exec::wave::Row;
use crate::isa::op::{Atomic, Op};
use crate::strict::hook::{Access, Path, Watch};

impl<W: Watch + ?Sized> Turn<'_, '_, W> {
    pub(super) fn flat(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let op = inst.row.op;
        self.early(known, None, pc);
        let exec = self.w.exec();
        self.address(inst.src[0], 2, exec, pc);
        let at = addresses::<false>(self.w, u, self.x);
        let (shared, private) = apertures(&at, exec);
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let (bytes, does) = match op {
            Op::FlatLoad(load) => (load.bytes(), Does::Load),
            Op::FlatStore(store) => (store.bytes(), Does::Store),
            Op::FlatAtomic(Atomic::Swap, wide) => (wide_bytes(wide), Does::Exchange),
            Op::FlatAtomic(_, wide) => (wide_bytes(wide), Does::Atomic),
            _ => return flow,
        };
        let global = Access {
            who: self.who(pc),
            at: &at,
            lanes: exec & !(shared | private),
            bytes,
            path: Path::Vector { cache: inst.cache },
            company: self.company(),
        };
        let poison = match does {
            Does::Load => 0,
            _ => self.t.lanes(inst.src[1], inst.row.shape.src[1].regs()) & exec,
        };
        let mut undefined = [0; 4];
        match op {
            Op::FlatLoad(_) => undefined = self.read(&global),
            Op::FlatStore(_) if global.lanes != 0 => {
                let bad = self.stored(known, global.lanes, pc);
                self.watch.store(&global, bad);
            }
            Op::FlatAtomic(function, _) => {
                let bad = self.stored(known, global.lanes, pc);
                undefined = [self.changed(known, &global, function, bad); 4];
            }
            _ => {}
        }
        let low = at.map(|a| a as u32);
        let access = LdsAccess {
            base: &low,
            lanes: shared,
            bytes,
            does,
            poison,
            result: 0,
        };
        self.touch_lds(&access, &mut undefined, pc);
        self.touch_scratch(&low, private, bytes, does, poison, &mut undefined);
        let regs = destination_regs(self.generation, inst, inst.row);
        for (k, lanes) in undefined.into_iter().enumerate().take(regs as usize) {
            self.t.set_lanes(inst.dst + k as u16, lanes, exec);
        }
        let loads = does == Does::Load || returns(self.generation, inst) && does != Does::Store;
        let memory = if loads { Counter::Load } else { Counter::Store };
        self.issued_flat([memory, Counter::Lds], inst.dst, regs, pc);
        flow
    }

    /// Puts the result of a flat access in flight on both of its counters.
    fn issued_flat(&mut self, counters: [Counter; 2], dst: u16, regs: u32, pc: u32) {
        for counter in counters {
            let first = number(dst);
            let entry = InFlight {
                counter,
                first: first.unwrap_or(0),
                regs: first.map_or(0, |_| regs as u16),
                unordered: true,
                uop: pc,
            };
            self.t.issue(entry, self.generation);
        }
    }

    /// Scratch memory is the lane's own: only what was never written matters.
    pub(super) fn scratch(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let (bytes, does) = match inst.row.op {
            Op::ScratchLoad(load) => (load.bytes(), Does::Load),
            Op::ScratchStore(store) => (store.bytes(), Does::Store),
            _ => return self.execute(u),
        };
        let exempt = (does == Does::Load).then_some(Counter::Load);
        self.early(known, exempt, pc);
        let exec = self.w.exec();
        self.address(inst.src[0], 1, exec, pc);
        self.address(inst.saddr, 1, exec, pc);
        let base = self.w.scalar(self.x, u.b).wrapping_add(u.imm as u32);
        let mut room = [0; 32];
        let at = self.w.lanes(self.x, u.a, &mut room);
        let at = at.map(|a| a.wrapping_add(base));
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let mut undefined = [0; 4];
        if does == Does::Load {
            self.touch_scratch(&at, exec, bytes, does, 0, &mut undefined);
            let regs = destination_regs(self.generation, inst, inst.row);
            for (k, lanes) in undefined.into_iter().enumerate().take(regs as usize) {
                self.t.set_lanes(inst.dst + k as u16, lanes, exec);
            }
            self.issued(Counter::Load, inst.dst, regs, pc);
        } else {
            let poison = self.t.lanes(inst.src[1], inst.row.shape.src[1].regs());
            self.touch_scratch(&at, exec, bytes, does, poison, &mut undefined);
            self.issued(Counter::Store, 0, 0, pc);
        }
        flow
    }

    fn touch_scratch(
        &mut self,
        at: &Row,
        lanes: u32,
        bytes: u32,
        does: Does,
        poison: u32,
        undefined: &mut [u32; 4],
    ) {
        for lane in (0..32).filter(|i| lanes >> i & 1 == 1) {
            let first = at[lane as usize];
            if does == Does::Store {
                let defined = poison >> lane & 1 == 0;
                self.t.write_scratch(lane, first, bytes, defined);
                continue;
            }
            for (k, slot) in undefined.iter_mut().enumerate() {
                let offset = 4 * k as u32;
                if offset < bytes {
                    let part = (bytes - offset).min(4);
                    let bad = !self.t.read_scratch(lane, first.wrapping_add(offset), part);
                    *slot |= u32::from(bad) << lane;
                }
            }
        }
    }
}
