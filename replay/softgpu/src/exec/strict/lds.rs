//! LDS accesses of strict mode: races between the waves of a group, and undefined bytes.

use super::code::Known;
use super::counters::Counter;
use super::effects::destination_regs;
use super::memory::wide_bytes;
use super::shadow::{Mark, Race, Use};
use super::turn::Turn;
use crate::exec::uop::{Flow, Uop};
use crate::exec::wave::Row;
use crate::isa::Inst;
use crate::isa::op::{Atomic, Op, Wide};
use crate::isa::operand::M0;
use crate::strict::hook::{Watch, WaveFinding};

/// One element per lane of an LDS instruction.
#[derive(Clone, Copy)]
struct Element {
    /// Byte offset added to the lane address.
    offset: u32,
    bytes: u32,
    /// Source of the data.
    data: usize,
    /// First of the result registers, counted from the destination.
    result: usize,
}

/// What an LDS instruction does to its elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Load,
    Store,
    /// Returns the old value, which does not matter to the new one.
    Exchange,
    Atomic,
}

fn does(op: Op) -> Does {
    match op {
        Op::DsLoad(_) | Op::DsLoad2(..) | Op::DsLoadAddtidB32 => Does::Load,
        Op::DsSwap2(..) | Op::DsAtomic(Atomic::Swap, ..) => Does::Exchange,
        Op::DsAtomic(..) | Op::DsCondxchg32RtnB64 => Does::Atomic,
        _ => Does::Store,
    }
}

/// The elements of an LDS instruction: one, or two.
fn elements(inst: &Inst) -> [Option<Element>; 2] {
    let one = |bytes, data| {
        let element = Element {
            offset: inst.imm as u32,
            bytes,
            data,
            result: 0,
        };
        [Some(element), None]
    };
    let two = |wide: Wide, stride: u32, data: [usize; 2]| {
        let bytes = wide_bytes(wide);
        let at = |offset: u32, k: usize| {
            Some(Element {
                offset: offset * bytes * stride,
                bytes,
                data: data[k],
                result: k * bytes as usize / 4,
            })
        };
        [at(inst.imm as u32, 0), at(inst.imm2, 1)]
    };
    match inst.row.op {
        Op::DsLoad(load) => one(load.bytes(), 1),
        Op::DsStore(store) => one(store.bytes(), 1),
        Op::DsAtomic(_, wide, _) => one(wide_bytes(wide), 1),
        Op::DsLoadAddtidB32 | Op::DsStoreAddtidB32 => one(4, 0),
        Op::DsCondxchg32RtnB64 => one(8, 1),
        Op::DsLoad2(wide, stride) => two(wide, stride, [0, 0]),
        Op::DsStore2(wide, stride) | Op::DsSwap2(wide, stride) => two(wide, stride, [1, 2]),
        _ => [None, None],
    }
}

/// An access of all lanes to the LDS, and what came of it.
pub(super) struct LdsAccess<'a> {
    pub(super) base: &'a Row,
    pub(super) lanes: u32,
    pub(super) bytes: u32,
    pub(super) does: Does,
    /// Lanes whose data is undefined.
    pub(super) poison: u32,
    /// First result register.
    pub(super) result: usize,
}

impl<W: Watch + ?Sized> Turn<'_, '_, W> {
    pub(super) fn lds(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let inst = &known.inst;
        let op = inst.row.op;
        self.early(known, None, pc);
        let exec = self.w.exec();
        let mut room = [0; 32];
        let mut base: Row = if matches!(op, Op::DsLoadAddtidB32 | Op::DsStoreAddtidB32) {
            self.address(M0, 1, 1, pc);
            let m0 = self.w.s[usize::from(M0)] & 0xffff;
            std::array::from_fn(|i| m0 + 4 * i as u32)
        } else {
            self.address(inst.src[0], 1, exec, pc);
            *self.w.lanes(self.x, u.a, &mut room)
        };
        if op == Op::DsCondxchg32RtnB64 {
            // The handler aligns the sum.
            let offset = inst.imm as u32;
            base = base.map(|a| (a.wrapping_add(offset) & 0xfff8).wrapping_sub(offset));
        }
        let flow = self.execute(u);
        if flow != Flow::NEXT {
            return flow;
        }
        let mut undefined = [0; 4];
        for element in elements(inst).into_iter().flatten() {
            let at = base.map(|a| a.wrapping_add(element.offset));
            let does = does(op);
            let access = LdsAccess {
                base: &at,
                lanes: exec,
                bytes: element.bytes,
                does,
                poison: match does {
                    Does::Load => 0,
                    _ => self.data_poison(inst, element.data),
                },
                result: element.result,
            };
            self.touch_lds(&access, &mut undefined, pc);
        }
        let regs = destination_regs(self.generation, inst, inst.row);
        for (k, lanes) in undefined.into_iter().enumerate().take(regs as usize) {
            self.t.set_lanes(inst.dst + k as u16, lanes, exec);
        }
        self.issued(Counter::Lds, inst.dst, regs, pc);
        flow
    }

    /// Takes note of an access; adds to `undefined`, per result register, the lanes that read an
    /// undefined byte, and reports the first race.
    pub(super) fn touch_lds(&mut self, a: &LdsAccess<'_>, undefined: &mut [u32; 4], pc: u32) {
        let mark = Mark {
            wave: self.w.index as u8,
            atomic: matches!(a.does, Does::Atomic | Does::Exchange),
            ordinal: self.t.lds_issued + 1,
            uop: pc,
        };
        let mut race = None;
        let mut left = a.lanes;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let poison = a.poison >> lane & 1 == 1;
            let what = match a.does {
                Does::Load => Use::Read,
                Does::Store | Does::Exchange => Use::Write { poison },
                Does::Atomic => Use::Atomic { poison },
            };
            let (at, t) = (a.base[lane as usize & 31], &*self.t);
            let bad = self.shadow.access(at, a.bytes, mark, what, t, &mut race);
            for (k, slot) in undefined.iter_mut().enumerate().skip(a.result) {
                *slot |= (bad >> (k - a.result).min(31) & 1) << lane;
            }
        }
        if let Some(race) = race {
            self.raced(race, pc);
        }
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
