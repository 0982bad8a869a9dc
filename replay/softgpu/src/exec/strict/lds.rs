//! LDS accesses of strict mode: races between the waves of a group, and undefined bytes.

use super::code::Known;
use super::counters::Counter;
use super::effects::destination_regs;
use super::memory::{load_bytes, store_bytes, wide_bytes};
use super::shadow::{Mark, Race, Use};
use super::turn::Turn;
use crate::exec::uop::{Flow, Uop};
use crate::isa::Inst;
use crate::isa::op::Op;
use crate::strict::hook::{Watch, WaveFinding};

/// One element per lane of an LDS instruction.
#[derive(Clone, Copy)]
struct Element {
    /// Byte offset added to the lane address.
    offset: u32,
    bytes: u32,
    /// Source of the data, or number of the first result register.
    data: usize,
}

/// The elements of an LDS instruction: one, or two.
fn elements(inst: &Inst) -> [Option<Element>; 2] {
    let one = |bytes| {
        let offset = inst.imm as u32;
        [
            Some(Element {
                offset,
                bytes,
                data: 1,
            }),
            None,
        ]
    };
    let two = |bytes: u32, stride: u32, data: [usize; 2]| {
        let at = |offset: u32, data| {
            Some(Element {
                offset: offset * bytes * stride,
                bytes,
                data,
            })
        };
        [at(inst.imm as u32, data[0]), at(inst.imm2, data[1])]
    };
    match inst.row.op {
        Op::DsLoad(load) => one(load_bytes(load)),
        Op::DsStore(store) => one(store_bytes(store)),
        Op::DsAtomic(_, wide, _) => one(wide_bytes(wide)),
        Op::DsLoad2(wide, stride) => two(wide_bytes(wide), stride, [0, 1]),
        Op::DsStore2(wide, stride) => two(wide_bytes(wide), stride, [1, 2]),
        _ => [None, None],
    }
}

impl<W: Watch + ?Sized> Turn<'_, '_, W> {
    pub(super) fn lds(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        self.early(known, None, pc);
        let exec = self.w.exec();
        self.address(inst.src[0], 1, exec, pc);
        let mut room = [0; 32];
        let base = *self.w.lanes(self.x, u.a, &mut room);
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let mark = Mark {
            wave: self.w.index as u8,
            atomic: matches!(inst.row.op, Op::DsAtomic(..)),
            ordinal: self.t.lds_issued + 1,
            uop: pc,
        };
        let mut race = None;
        // Per result register: lanes that read an undefined byte.
        let mut undefined = [0; 4];
        for (half, element) in elements(inst).into_iter().flatten().enumerate() {
            let data = match inst.row.op {
                Op::DsLoad(_) | Op::DsLoad2(..) => 0,
                _ => self.data_poison(inst, element.data),
            };
            let first = half * (element.bytes as usize / 4).max(1);
            let mut left = exec;
            while left != 0 {
                let lane = left.trailing_zeros();
                left &= left - 1;
                let poison = data >> lane & 1 == 1;
                let what = match inst.row.op {
                    Op::DsLoad(_) | Op::DsLoad2(..) => Use::Read,
                    Op::DsAtomic(..) => Use::Atomic { poison },
                    _ => Use::Write { poison },
                };
                let at = base[lane as usize & 31].wrapping_add(element.offset);
                let (bytes, t) = (element.bytes, &*self.t);
                let bad = self.shadow.access(at, bytes, mark, what, t, &mut race);
                for (k, slot) in undefined.iter_mut().enumerate().skip(first) {
                    *slot |= (bad >> (k - first).min(31) & 1) << lane;
                }
            }
        }
        if let Some(race) = race {
            self.raced(race, pc);
        }
        let regs = destination_regs(self.generation, inst, inst.row);
        for (k, lanes) in undefined.into_iter().enumerate().take(regs as usize) {
            self.t.set_lanes(inst.dst + k as u16, lanes, exec);
        }
        self.issued(Counter::Lds, inst.dst, regs, pc);
        flow
    }

    /// Poisoned lanes of data source `k`, and of what an atomic compares with.
    fn data_poison(&self, inst: &Inst, k: usize) -> u32 {
        let of = |k: usize| self.t.lanes(inst.src[k], inst.row.shape.src[k].regs());
        if matches!(inst.row.op, Op::DsAtomic(..)) {
            of(1) | of(2)
        } else {
            of(k)
        }
    }

    fn raced(&mut self, race: Race, pc: u32) {
        let finding = WaveFinding::LdsRace {
            address: race.address,
            bytes: race.bytes,
            other_wave: u32::from(race.other.wave),
            other_pc: self.code.program.address_of(race.other.uop),
            what: race.what,
        };
        self.found(finding, pc);
    }
}
