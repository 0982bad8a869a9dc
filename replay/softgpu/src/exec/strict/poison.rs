//! How undefined values spread through instructions that only touch registers, and where they may
//! not go: EXEC and branch conditions. Memory instructions are in `memory` and `lds`.
//!
//! A lane of a result is undefined when a lane that it was computed from is. Exact where real code
//! relies on it: selections by a mask, bit operations with a deciding operand (`x & 0`, `x ^ x`),
//! shifts of scalars, lane moves.

use super::code::Known;
use super::effects::{self, destination_regs, source_regs, uses_destination};
use super::track::Track;
use crate::exec::cross::swizzle_lane;
use crate::exec::modified::Crossing;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::op::Op;
use crate::isa::operand::{EXEC, SCC, VCC, VGPR, inline_constant, literal_value};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Generation, Inst, Row};

/// A place where an undefined value decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    /// Operand code of the register.
    pub(super) code: u16,
    pub(super) regs: u32,
    pub(super) place: &'static str,
    /// Lanes, or bits of a scalar.
    pub(super) lanes: u32,
}

/// One instruction about to execute, with the wave before it.
pub(super) struct Step<'a> {
    pub(super) inst: &'a Inst,
    pub(super) w: &'a Wave,
    pub(super) generation: Generation,
}

/// Spreads poison over the results of an instruction, from the state before it. Returns where an
/// undefined value reached EXEC or a branch; there it counts as defined from then on.
pub(super) fn spread(step: &Step<'_>, known: &Known, t: &mut Track) -> Option<Reached> {
    let inst = step.inst;
    match inst.format {
        Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk => scalar(step, t),
        Format::Sopp => branch(step, t),
        Format::Smem | Format::Mubuf | Format::Global | Format::Ds => None,
        Format::Vopd => {
            let first = step.lanes(inst.row, inst.dst, inst.src, t);
            let other = inst
                .second
                .map(|y| (y.dst, step.lanes(y.row, y.dst, y.src, t)));
            t.set_lanes(inst.dst, first, step.w.exec());
            if let Some((dst, lanes)) = other {
                t.set_lanes(dst, lanes, step.w.exec());
            }
            None
        }
        _ if !writes_some_lanes(inst.row.op) && !t.is_poisoned(&known.effects.reads) => {
            step.defined(t)
        }
        _ => vector(step, t),
    }
}

/// Whether the lanes that are written depend on more than EXEC and DPP.
const fn writes_some_lanes(op: Op) -> bool {
    matches!(
        op,
        Op::VPermlane16B32
            | Op::VPermlanex16B32
            | Op::VPermlane16VarB32
            | Op::VPermlanex16VarB32
            | Op::VPermlane64B32
            | Op::VWritelaneB32
    )
}

impl Step<'_> {
    /// The value of a scalar operand or constant.
    fn value(&self, code: u16, ty: Ty) -> u64 {
        match code {
            0..128 => {
                let low = self.w.s[usize::from(code)];
                let high = if ty.regs() > 1 {
                    self.w.s[usize::from(code) + 1]
                } else {
                    0
                };
                u64::from(low) | u64::from(high) << 32
            }
            SCC => u64::from(self.w.s[usize::from(SCC_SLOT)]),
            _ => inline_constant(code, ty).unwrap_or_else(|| literal_value(self.inst.literal, ty)),
        }
    }

    /// The value of a lane of a 32-bit operand.
    fn lane(&self, code: u16, lane: usize) -> u32 {
        if code >= VGPR {
            self.w.v[usize::from(code - VGPR)][lane & 31]
        } else {
            self.value(code, Ty::B32) as u32
        }
    }

    /// Poisoned lanes of source `k`, after DPP.
    fn source(&self, row: &Row, src: [u16; 3], k: usize, t: &Track) -> u32 {
        let lanes = t.lanes(src[k], source_regs(self.inst, row, k));
        if k == 0 && self.inst.dpp != Dpp::None {
            return Crossing::new(&self.inst.dpp).map_or(lanes, |c| c.moved(lanes, self.w.exec()));
        }
        lanes
    }

    /// Poisoned lanes of a lane-by-lane result.
    fn lanes(&self, row: &Row, dst: u16, src: [u16; 3], t: &Track) -> u32 {
        if self.inst.dpp == Dpp::None
            && src[0] == src[1]
            && src[0] >= VGPR
            && matches!(row.op, Op::VXorB32 | Op::VSubNcU32 | Op::VSubrevNcU32)
        {
            return 0;
        }
        let of = |k: usize| self.source(row, src, k, t);
        let all = match row.op {
            Op::VCndmaskB32 | Op::VCndmaskB16 => {
                let mask = self.value(src[2], Ty::Mask) as u32;
                (of(0) & !mask | of(1) & mask) | t.bits(src[2])
            }
            Op::VAddCoCiU32 | Op::VSubCoCiU32 | Op::VSubrevCoCiU32 => {
                of(0) | of(1) | t.bits(src[2])
            }
            Op::VDivFmasF32 | Op::VDivFmasF64 => of(0) | of(1) | of(2) | t.bits(VCC),
            Op::VAndB32 => self.decided(src, of(0), of(1), 0),
            Op::VOrB32 => self.decided(src, of(0), of(1), u32::MAX),
            _ => of(0) | of(1) | of(2),
        };
        if uses_destination(row.op) {
            all | t.lanes(dst, row.shape.dst.regs())
        } else {
            all
        }
    }

    /// The half of a 64-bit result that depends on less than the whole: its register and lanes.
    /// Compilers leave the high half of an operand undefined when they only use the low half of
    /// the result.
    fn independent_half(&self, t: &Track) -> Option<(u16, u32)> {
        let (row, src) = (self.inst.row, self.inst.src);
        let whole = |k: usize| self.source(row, src, k, t);
        let (low, high) = (
            |k: usize| t.lanes(src[k], 1),
            |k: usize| {
                if src[k] >= VGPR || src[k] < 128 {
                    t.lanes(src[k] + 1, 1)
                } else {
                    0
                }
            },
        );
        match row.op {
            Op::VMadU64U32 | Op::VMadI64I32 => Some((0, whole(0) | whole(1) | low(2))),
            Op::VLshlrevB64 => Some((0, whole(0) | low(1))),
            Op::VLshrrevB64 | Op::VAshrrevI64 => Some((1, whole(0) | high(1))),
            _ => None,
        }
    }

    /// Two operands, of which a defined `deciding` value makes the result defined.
    fn decided(&self, src: [u16; 3], a: u32, b: u32, deciding: u32) -> u32 {
        let mut lanes = a | b;
        if lanes == 0 || self.inst.dpp != Dpp::None {
            return lanes;
        }
        for i in 0..32 {
            let by =
                |code, poison: u32| poison >> i & 1 == 0 && self.lane(code, i as usize) == deciding;
            if by(src[0], a) || by(src[1], b) {
                lanes &= !(1 << i);
            }
        }
        lanes
    }

    /// Lanes of a vector destination that are written.
    fn written(&self) -> u32 {
        let exec = self.w.exec();
        Crossing::new(&self.inst.dpp).map_or(exec, |c| c.writes(exec))
    }

    /// All sources are defined: so are the results.
    fn defined(&self, t: &mut Track) -> Option<Reached> {
        let inst = self.inst;
        let regs = destination_regs(self.generation, inst, inst.row);
        let written = self.written();
        self.put(inst.dst, regs, 0, written, t);
        if effects::writes_mask(inst.row.op) {
            t.set_bits(inst.sdst, 0);
        }
        if matches!(inst.row.op, Op::VSwapB32 | Op::VSwapB16) {
            t.set_lanes(inst.src[0], 0, written);
        }
        None
    }

    /// Sets the poison of a destination, vector or scalar.
    fn put(&self, dst: u16, regs: u32, lanes: u32, written: u32, t: &mut Track) {
        for k in 0..regs as u16 {
            if dst >= VGPR {
                t.set_lanes(dst + k, lanes, written);
            } else {
                let any = lanes & written != 0;
                t.set_bits(dst + k, if any { u32::MAX } else { 0 });
            }
        }
    }
}

fn vector(step: &Step<'_>, t: &mut Track) -> Option<Reached> {
    let (inst, w) = (step.inst, step.w);
    let (exec, op) = (w.exec(), inst.row.op);
    match op {
        // The second does nothing on a wave32.
        Op::VNop | Op::VPermlane64B32 => {}
        Op::VCmp(..) => {
            let lanes = step.lanes(inst.row, inst.dst, inst.src, t);
            t.set_bits(inst.dst, lanes & exec);
        }
        Op::VCmpx(..) => {
            let lanes = step.lanes(inst.row, inst.dst, inst.src, t) & step.written();
            if lanes != 0 {
                return blame(inst, "EXEC", lanes, t);
            }
        }
        Op::VReadfirstlaneB32 => {
            let lane = if exec == 0 { 0 } else { exec.trailing_zeros() };
            let bits = step.lane_bits(inst.src[0], lane, t);
            t.set_bits(inst.dst, bits);
        }
        Op::VReadlaneB32 => {
            let lane = step.value(inst.src[1], Ty::B32) as u32 & 31;
            let bits = step.lane_bits(inst.src[0], lane, t);
            let unknown = t.bits(inst.src[1]) != 0;
            t.set_bits(inst.dst, if unknown { u32::MAX } else { bits });
        }
        Op::VWritelaneB32 => writelane(step, t),
        Op::VSwapB16 => {
            let both = t.lanes(inst.dst, 1) | t.lanes(inst.src[0], 1);
            t.set_lanes(inst.dst, both, exec);
            t.set_lanes(inst.src[0], both, exec);
        }
        Op::VSwapB32 => {
            let (to, from) = (t.lanes(inst.dst, 1), t.lanes(inst.src[0], 1));
            t.set_lanes(inst.dst, from, exec);
            t.set_lanes(inst.src[0], to, exec);
        }
        Op::VMbcntLoU32B32 => {
            let base = t.lanes(inst.src[1], 1);
            let lanes = if inst.src[0] >= VGPR {
                base | t.lanes(inst.src[0], 1)
            } else {
                // Lane i counts the bits below i.
                let lowest = t.bits(inst.src[0]).trailing_zeros();
                base | u32::MAX.checked_shl(lowest + 1).unwrap_or(0)
            };
            t.set_lanes(inst.dst, lanes, exec);
        }
        Op::VPermlane16B32
        | Op::VPermlanex16B32
        | Op::VPermlane16VarB32
        | Op::VPermlanex16VarB32 => permlane(step, t),
        _ => {
            let lanes = step.lanes(inst.row, inst.dst, inst.src, t);
            let regs = destination_regs(step.generation, inst, inst.row);
            let half = step.independent_half(t);
            step.put(inst.dst, regs, lanes, step.written(), t);
            if let Some((k, lanes)) = half {
                t.set_lanes(inst.dst + k, lanes, step.written());
            }
            if effects::writes_mask(op) {
                t.set_bits(inst.sdst, lanes & exec);
            }
        }
    }
    None
}

impl Step<'_> {
    /// Poison of one lane as poison of a scalar.
    fn lane_bits(&self, code: u16, lane: u32, t: &Track) -> u32 {
        if code < VGPR {
            t.bits(code)
        } else if t.lanes(code, 1) >> lane & 1 == 1 {
            u32::MAX
        } else {
            0
        }
    }
}

/// One lane of a register, from a scalar; an undefined lane number may be any.
fn writelane(step: &Step<'_>, t: &mut Track) {
    let inst = step.inst;
    let lane = step.value(inst.src[1], Ty::B32) as u32 & 31;
    let bad = t.bits(inst.src[0]) != 0;
    if t.bits(inst.src[1]) != 0 {
        t.set_lanes(inst.dst, u32::MAX, u32::MAX);
    } else {
        t.set_lanes(inst.dst, if bad { u32::MAX } else { 0 }, 1 << lane);
    }
}

/// `v_permlane16` and `v_permlanex16`, as `exec::cross` moves lanes.
fn permlane(step: &Step<'_>, t: &mut Track) {
    let inst = step.inst;
    let op = inst.row.op;
    let crosses = matches!(op, Op::VPermlanex16B32 | Op::VPermlanex16VarB32);
    let cross = if crosses { 16 } else { 0 };
    let by_lane = matches!(op, Op::VPermlane16VarB32 | Op::VPermlanex16VarB32);
    let exec = step.w.exec();
    let from = t.lanes(inst.src[0], 1);
    let unknown = t.lanes(inst.src[1], 1);
    if !by_lane && unknown | t.lanes(inst.src[2], 1) != 0 {
        t.set_lanes(inst.dst, u32::MAX, exec);
        return;
    }
    let word = |k: usize| step.value(inst.src[k], Ty::B32) & 0xffff_ffff;
    let select = if by_lane { 0 } else { word(1) | word(2) << 32 };
    let old = t.lanes(inst.dst, 1);
    let mut lanes = 0;
    for i in 0..32u32 {
        let number = if by_lane {
            step.lane(inst.src[1], i as usize)
        } else {
            (select >> (4 * (i & 15))) as u32
        };
        let source = ((i & 16) ^ cross) | number & 15;
        let poisoned = if inst.mods.opsel & 1 == 1 || exec >> source & 1 == 1 {
            from >> source & 1
        } else if inst.mods.opsel & 2 == 2 {
            0
        } else {
            old >> i & 1
        };
        let selector = if by_lane { unknown >> i & 1 } else { 0 };
        lanes |= (poisoned | selector) << i;
    }
    t.set_lanes(inst.dst, lanes, exec);
}

/// Lane exchange through the LDS unit: poison of the result, and of the lane numbers. The result
/// itself is marked by the caller, which knows that it is in flight.
pub(super) fn crossbar(step: &Step<'_>, t: &Track) -> u32 {
    let (inst, exec) = (step.inst, step.w.exec());
    let pick = |lane: u32, data: u32| {
        if exec >> lane & 1 == 1 {
            data >> lane & 1
        } else {
            0
        }
    };
    let target = |i: u32| {
        step.lane(inst.src[0], i as usize)
            .wrapping_add(inst.imm as u32)
            / 4
            % 32
    };
    match inst.row.op {
        Op::DsSwizzleB32 => {
            let data = t.lanes(inst.src[0], 1);
            (0..32).fold(0, |all, i| {
                let lane = swizzle_lane(inst.imm as u32 & 0xffff, i) & 31;
                all | pick(lane, data) << i
            })
        }
        Op::DsBpermuteFiB32 => {
            let data = t.lanes(inst.src[1], 1);
            let moved = (0..32).fold(0, |all, i| all | (data >> target(i) & 1) << i);
            moved | t.lanes(inst.src[0], 1)
        }
        Op::DsBpermuteB32 => {
            let data = t.lanes(inst.src[1], 1);
            let moved = (0..32).fold(0, |all, i| all | pick(target(i), data) << i);
            moved | t.lanes(inst.src[0], 1)
        }
        Op::DsPermuteB32 => {
            if t.lanes(inst.src[0], 1) & exec != 0 {
                return u32::MAX;
            }
            let data = t.lanes(inst.src[1], 1);
            let mut out = 0;
            for i in (0..32).filter(|i| exec >> i & 1 == 1) {
                let lane = target(i);
                out = out & !(1 << lane) | (data >> i & 1) << lane;
            }
            out
        }
        _ => 0,
    }
}

fn branch(step: &Step<'_>, t: &mut Track) -> Option<Reached> {
    match step.inst.row.op {
        Op::SCbranchScc0 | Op::SCbranchScc1 if t.bits(SCC) != 0 => {
            t.set_scc(false);
            Some(Reached {
                code: SCC,
                regs: 1,
                place: "branch condition",
                lanes: 1,
            })
        }
        Op::SCbranchVccz | Op::SCbranchVccnz => {
            let bits = t.bits(VCC);
            // One defined bit that is set decides.
            if bits == 0 || step.w.vcc() & !bits != 0 {
                return None;
            }
            t.set_bits(VCC, 0);
            Some(Reached {
                code: VCC,
                regs: 1,
                place: "branch condition",
                lanes: bits,
            })
        }
        _ => None,
    }
}

/// The first poisoned source is what reached `place`; all sources count as defined afterwards.
pub(super) fn blame(
    inst: &Inst,
    place: &'static str,
    lanes: u32,
    t: &mut Track,
) -> Option<Reached> {
    let mut found = None;
    let sources = inst.src.into_iter().enumerate().map(|(k, code)| {
        let regs = source_regs(inst, inst.row, k);
        (code, regs)
    });
    for (code, regs) in sources.chain([(SCC, 1)]) {
        if regs > 0 && t.lanes(code, regs) != 0 {
            found = found.or(Some((code, regs)));
            t.define(code, regs);
        }
    }
    let (code, regs) = found.unwrap_or((inst.src[0], 1));
    Some(Reached {
        code,
        regs,
        place,
        lanes,
    })
}

/// Bits of a result that are undefined, for the operations whose bits are independent.
fn bitwise(op: Op, (a, pa): (u64, u64), (b, pb): (u64, u64)) -> Option<(u64, u64)> {
    let and = |a: u64, b: u64| (a & b, pa & pb | pa & b | pb & a);
    let or = |a: u64, b: u64| (a | b, pa & pb | pa & !b | pb & !a);
    let not = |(v, p): (u64, u64)| (!v, p);
    Some(match op {
        Op::SMovB32 | Op::SMovB64 => (a, pa),
        Op::SNotB32 | Op::SNotB64 => (!a, pa),
        Op::SAndB32 | Op::SAndB64 | Op::SAndSaveexecB32 | Op::SAndSaveexecB64 => and(a, b),
        Op::SOrB32 | Op::SOrB64 | Op::SOrSaveexecB32 | Op::SOrSaveexecB64 => or(a, b),
        Op::SXorB32 | Op::SXorB64 | Op::SXorSaveexecB32 | Op::SXorSaveexecB64 => (a ^ b, pa | pb),
        Op::SNandB32 | Op::SNandB64 | Op::SNandSaveexecB32 | Op::SNandSaveexecB64 => not(and(a, b)),
        Op::SNorB32 | Op::SNorB64 | Op::SNorSaveexecB32 | Op::SNorSaveexecB64 => not(or(a, b)),
        Op::SXnorB32 | Op::SXnorB64 | Op::SXnorSaveexecB32 | Op::SXnorSaveexecB64 => {
            (!(a ^ b), pa | pb)
        }
        Op::SAndNot1B32 | Op::SAndNot1B64 => and(a, !b),
        Op::SOrNot1B32 | Op::SOrNot1B64 => or(a, !b),
        // The saving forms negate the source (0) or EXEC (1), which is `b` here.
        Op::SAndNot0SaveexecB32
        | Op::SAndNot0WrexecB32
        | Op::SAndNot0SaveexecB64
        | Op::SAndNot0WrexecB64 => and(!a, b),
        Op::SOrNot0SaveexecB32 | Op::SOrNot0SaveexecB64 => or(!a, b),
        Op::SAndNot1SaveexecB32
        | Op::SAndNot1WrexecB32
        | Op::SAndNot1SaveexecB64
        | Op::SAndNot1WrexecB64 => and(a, !b),
        Op::SOrNot1SaveexecB32 | Op::SOrNot1SaveexecB64 => or(a, !b),
        Op::SLshlB32 if pb == 0 => (a << (b & 31), pa << (b & 31)),
        Op::SLshlB64 if pb == 0 => (a << (b & 63), pa << (b & 63)),
        Op::SLshrB32 if pb == 0 => (a >> (b & 31), pa >> (b & 31)),
        Op::SLshrB64 if pb == 0 => (a >> (b & 63), pa >> (b & 63)),
        _ => return None,
    })
}

fn scalar(step: &Step<'_>, t: &mut Track) -> Option<Reached> {
    let inst = step.inst;
    let (op, shape) = (inst.row.op, &inst.row.shape);
    let regs = shape.dst.regs();
    let poison = |k: usize, t: &Track| match shape.src[k] {
        Ty::None | Ty::Imm16 => 0,
        ty => t.bits64(inst.src[k], ty.regs()),
    };
    let (pa, pb) = (poison(0, t), poison(1, t));
    let value = |k: usize| match shape.src[k] {
        Ty::None | Ty::Imm16 => 0,
        ty => step.value(inst.src[k], ty),
    };
    let same = inst.src[0] == inst.src[1] && pa != 0;
    if same && matches!(op, Op::SXorB32 | Op::SXorB64 | Op::SSubU32 | Op::SSubI32) {
        t.set_bits64(inst.dst, regs, 0);
        t.set_scc(false);
        return None;
    }
    if effects::writes_exec(op) {
        return exec_mask(step, pa, t);
    }
    let wide = if regs > 1 { u64::MAX } else { 0xffff_ffff };
    let (bits, flag) = match bitwise(op, (value(0), pa), (value(1), pb)) {
        Some((value, bits)) => {
            let (value, bits) = (value & wide, bits & wide);
            (bits, bits != 0 && value & !bits == 0)
        }
        None => any(step, [pa, pb, poison(2, t)], t),
    };
    if effects::writes_scc(op) {
        t.set_scc(flag);
    }
    if regs == 0 {
        return None;
    }
    if inst.dst == EXEC && bits as u32 != 0 {
        return blame(inst, "EXEC", bits as u32, t);
    }
    t.set_bits64(inst.dst, regs, bits);
    None
}

/// Operations whose result depends on all of their sources.
fn any(step: &Step<'_>, sources: [u64; 3], t: &Track) -> (u64, bool) {
    let inst = step.inst;
    let op = inst.row.op;
    let regs = inst.row.shape.dst.regs();
    let [a, b, c] = sources;
    let scc = effects::reads_scc(op) && t.bits(SCC) != 0;
    let taken = step.w.scc();
    match op {
        Op::SCselectB32 | Op::SCselectB64 if !scc => (if taken { a } else { b }, false),
        Op::SCmovB32 | Op::SCmovB64 if !scc => {
            (if taken { a } else { t.bits64(inst.dst, regs) }, false)
        }
        _ => {
            let old = if uses_destination(op) {
                t.bits64(inst.dst, regs)
            } else {
                0
            };
            let all = a | b | c | old;
            let bad = scc || all != 0;
            // The low half of a sum or product does not depend on high halves.
            let low_only = matches!(op, Op::SAddNcU64 | Op::SSubNcU64 | Op::SMulU64);
            if low_only && all as u32 == 0 && bad {
                return (u64::MAX << 32, bad);
            }
            (if bad { u64::MAX } else { 0 }, bad)
        }
    }
}

/// EXEC combined with a mask: the old EXEC goes to the destination, or the new one for `wrexec`.
fn exec_mask(step: &Step<'_>, mask: u64, t: &mut Track) -> Option<Reached> {
    let inst = step.inst;
    let regs = inst.row.shape.dst.regs();
    let ty = if regs > 1 { Ty::B64 } else { Ty::B32 };
    // EXEC is never undefined; on a wave32 its high half is one more scalar register.
    let old = t.bits64(EXEC, regs);
    let (exec, value) = (step.value(EXEC, ty), step.value(inst.src[0], ty));
    let combined = bitwise(inst.row.op, (value, mask), (exec, old));
    let (value, mut bits) = combined.unwrap_or((0, mask | old));
    let mut reached = None;
    if bits as u32 != 0 {
        reached = blame(inst, "EXEC", bits as u32, t);
        bits &= !0xffff_ffff;
    }
    let writes_new = matches!(
        inst.row.op,
        Op::SAndNot0WrexecB32
            | Op::SAndNot1WrexecB32
            | Op::SAndNot0WrexecB64
            | Op::SAndNot1WrexecB64
    );
    t.set_bits64(inst.dst, regs, if writes_new { bits } else { old });
    t.set_bits64(EXEC, regs, bits);
    let wide = if regs > 1 { u64::MAX } else { 0xffff_ffff };
    t.set_scc(bits != 0 && value & wide & !bits == 0);
    reached
}
