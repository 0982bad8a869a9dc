//! From decoded instructions to micro-operations: operands become rows, slots and constants,
//! handlers are chosen, VOPD is taken apart, no-ops are folded into their predecessor's count.
//! Branch targets are filled in by `program`, which knows where every instruction went.

use super::context::{Ctx, Fault, HITS};
use super::level::{Level, Speed};
use super::modified::{Crossing, Modified, Modifier, dpp_known};
use super::uop::{Exec, Flow, Handler, Src, Uop, handler};
use super::wave::{Row, SCC_SLOT, SCRATCH, SINK, Wave};
use super::{atomic, compare, control, cross, global, lanes, lds, masks, packed, scalar};
use crate::isa::op::{Op, Why};
use crate::isa::operand::{NULL, SCC, VGPR, inline_constant, literal_value};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Generation, Inst, Row as TableRow, Target};
use std::cell::Cell;
use std::collections::HashMap;

/// Scratch row that keeps a register's old value between the halves of a VOPD.
const KEPT: u16 = SCRATCH + 16;

/// Why an instruction that decodes is not executed. Reported when it is reached.
const REFUSALS: [&str; 6] = [
    "this operation is in the table but not in the executor",
    "clamp on an integer result is not modelled",
    "op_sel on this operation is not modelled",
    "this DPP control is not modelled",
    "these modifiers on a cross-lane or packed operation are not modelled",
    "a vector register where this operation reads a scalar",
];

/// Refusal numbers from here on are those that the table declares.
const DECLARED: usize = 16;

/// Stops with the refusal whose number is in `ext`.
struct Refuse;

impl Exec for Refuse {
    fn run<L: Level>(_w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        x.stop(Fault::Unsupported(reason(u.ext)))
    }
}

/// The text of a refusal.
fn reason(number: u16) -> &'static str {
    let number = usize::from(number);
    let text = match number.checked_sub(DECLARED) {
        Some(k) => Why::ALL.get(k).map(|why| why.text()),
        None => REFUSALS.get(number).copied(),
    };
    text.unwrap_or(REFUSALS[0])
}

/// Why an instruction of a row, without modifiers, is refused when it is reached; `None` where it is
/// executed.
pub(crate) fn refusal(target: Target, row: &'static TableRow) -> Option<&'static str> {
    let mut lowering = Lowering::new(target, Speed::Base);
    lowering.push(&Inst::sample(row));
    lowering.refused.get().map(reason)
}

/// Everything that micro-operations refer to.
pub(super) struct Lowering {
    pub(super) target: Target,
    pub(super) speed: Speed,
    pub(super) uops: Vec<Uop>,
    pub(super) constants: Vec<Row>,
    pub(super) modifiers: Vec<Modifier>,
    known: HashMap<(u64, bool), u16>,
    next_hit: usize,
    /// The last refusal.
    refused: Cell<Option<u16>>,
}

impl Lowering {
    pub(super) fn new(target: Target, speed: Speed) -> Self {
        Self {
            target,
            speed,
            uops: Vec::new(),
            constants: Vec::new(),
            modifiers: Vec::new(),
            known: HashMap::new(),
            next_hit: 0,
            refused: Cell::new(None),
        }
    }

    /// A constant operand; a wide one continues in the next row.
    fn constant(&mut self, value: u64, wide: bool) -> Src {
        let constants = &mut self.constants;
        let at = *self.known.entry((value, wide)).or_insert_with(|| {
            let at = constants.len() as u16;
            constants.push([value as u32; 32]);
            if wide {
                constants.push([(value >> 32) as u32; 32]);
            }
            at
        });
        Src(Src::CONST + at)
    }

    /// Whether the constant table is nearly full; programs that long are refused.
    pub(super) fn full(&self) -> bool {
        self.constants.len() > 0x3f00 || self.modifiers.len() > 0xff00
    }

    fn source(&mut self, code: u16, ty: Ty, literal: u32) -> Src {
        let wide = ty.regs() == 2;
        match code {
            VGPR.. => Src(code - VGPR),
            NULL => self.constant(0, wide),
            0..128 => Src(Src::SCALAR + code),
            SCC => Src(Src::SCALAR + SCC_SLOT),
            _ => {
                let value = inline_constant(code, ty).unwrap_or_else(|| literal_value(literal, ty));
                self.constant(value, wide)
            }
        }
    }

    fn plain(&mut self, inst: &Inst, row: &TableRow, dst: u16, src: [u16; 3]) -> Uop {
        let at: [Src; 3] = std::array::from_fn(|k| match row.shape.src[k] {
            Ty::None | Ty::Imm16 => Src(0),
            ty => self.source(src[k], ty, inst.literal),
        });
        Uop {
            run: handler::<Refuse>(self.speed),
            imm: inst.imm,
            a: at[0],
            b: at[1],
            c: at[2],
            dst: destination(dst),
            sdst: destination(inst.sdst),
            ext: 0,
            count: 1,
            hit: 0,
        }
    }

    /// A micro-operation that reports why it is not executed.
    fn refuse(&self, mut u: Uop, why: u16) -> Uop {
        self.refused.set(Some(why));
        u.run = handler::<Refuse>(self.speed);
        u.ext = why;
        u
    }

    /// Marks words that do not decode.
    pub(super) fn undecodable(&mut self) {
        self.uops.push(Uop {
            run: handler::<control::Undecodable>(self.speed),
            imm: 0,
            a: Src(0),
            b: Src(0),
            c: Src(0),
            dst: SINK,
            sdst: SINK,
            ext: 0,
            count: 1,
            hit: 0,
        });
    }

    /// Appends the micro-operations of one instruction.
    pub(super) fn push(&mut self, inst: &Inst) {
        if inst.second.is_some() {
            self.dual(inst);
            return;
        }
        let u = self.plain(inst, inst.row, inst.dst, inst.src);
        if let Op::Refused(why) = inst.row.op {
            let refused = self.refuse(u, (DECLARED + why as usize) as u16);
            self.uops.push(refused);
            return;
        }
        let u = match inst.format {
            Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk | Format::Sopp => {
                self.scalar(inst, u)
            }
            Format::Smem => self.scalar_memory(inst, u),
            Format::Global | Format::Mubuf => self.global(inst, u),
            Format::Ds => self.lds(inst, u),
            _ => self.vector(inst, u),
        };
        self.uops.push(u);
    }

    fn hit(&mut self) -> u8 {
        self.next_hit = (self.next_hit + 1) % HITS;
        self.next_hit as u8
    }

    fn found(&self, u: Uop, run: Option<Handler>) -> Uop {
        match run {
            Some(run) => Uop { run, ..u },
            None => self.refuse(u, 0),
        }
    }

    fn scalar(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        let speed = self.speed;
        if inst.row.shape.src[0] == Ty::Imm16 && inst.format == Format::Sopk {
            u.a = self.constant(u64::from(inst.imm as u32), false);
        }
        let (ty, cond) = match inst.row.op {
            Op::SCmp(ty, cond) => (ty, cond),
            Op::SCmpk(ty, cond) => {
                // Unsigned comparisons zero-extend the immediate.
                let unsigned = ty == crate::isa::op::CmpTy::U32;
                let value = if unsigned {
                    inst.imm as u32 & 0xffff
                } else {
                    inst.imm as u32
                };
                u.b = self.constant(u64::from(value), false);
                (ty, cond)
            }
            op => {
                let run = control::find(op, speed).or_else(|| scalar::find(op, speed));
                return self.found(u, run);
            }
        };
        match scalar::comparison(ty, cond, speed) {
            Some((run, ext)) => Uop { run, ext, ..u },
            None => self.refuse(u, 0),
        }
    }

    fn scalar_memory(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        u.hit = self.hit();
        u.b = self.source(inst.saddr, Ty::B32, 0);
        let run = match inst.row.op {
            Op::SLoad(load) => global::scalar_load(load, self.speed),
            op => control::find(op, self.speed),
        };
        self.found(u, run)
    }

    fn global(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        u.hit = self.hit();
        u.c = u.b;
        let by_scalar = inst.scalar_address();
        if by_scalar {
            u.b = self.source(inst.saddr, Ty::B64, 0);
        }
        let run = match inst.row.op {
            Op::GLoad(load) => global::load(load, by_scalar, self.speed),
            Op::GStore(store) => Some(global::store(store, by_scalar, self.speed)),
            Op::GAtomic(function, wide) if atomic::known(function, wide) => {
                let returns = match self.target.generation() {
                    // GLC, or the RETURN bit of the temporal hint.
                    Generation::Gfx11 => inst.cache & 1 == 1,
                    Generation::Gfx12 => inst.cache >> 2 & 1 == 1,
                };
                u.ext = atomic::flags(function, wide, returns);
                Some(atomic::global(by_scalar, self.speed))
            }
            op => control::find(op, self.speed),
        };
        self.found(u, run)
    }

    fn lds(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        use crate::isa::op::Wide;
        let speed = self.speed;
        let element = |wide| if wide == Wide::B64 { 8 } else { 4 };
        let run = match inst.row.op {
            Op::DsLoad(load) => match lds::load(load, speed) {
                Some((run, ext)) => {
                    u.ext = ext;
                    Some(run)
                }
                None => None,
            },
            Op::DsStore(store) => {
                let (run, ext) = lds::store(store, speed);
                u.ext = ext;
                Some(run)
            }
            Op::DsLoad2(wide, stride) | Op::DsStore2(wide, stride) => {
                let step = element(wide) * stride;
                u.imm = inst.imm * step as i32;
                let second = inst.imm2 * step;
                u.sdst = second as u16;
                u.ext = (second >> 16) as u16;
                Some(if matches!(inst.row.op, Op::DsLoad2(..)) {
                    lds::load_two(wide, speed)
                } else {
                    lds::store_two(wide, speed)
                })
            }
            Op::DsAtomic(function, wide, returns) if atomic::known(function, wide) => {
                u.ext = atomic::flags(function, wide, returns);
                Some(atomic::lds(speed))
            }
            op => cross::find(op, speed).or_else(|| control::find(op, speed)),
        };
        self.found(u, run)
    }

    fn vector(&mut self, inst: &Inst, u: Uop) -> Uop {
        let op = inst.row.op;
        if inst.format == Format::Vop3p {
            return self.packed(inst, u);
        }
        if let Some(run) = cross::find(op, self.speed).or_else(|| control::find(op, self.speed)) {
            return self.crossing(inst, u, run);
        }
        let scalar_form = matches!(
            op,
            Op::VSExpF32 | Op::VSLogF32 | Op::VSRcpF32 | Op::VSRsqF32 | Op::VSSqrtF32
        );
        if scalar_form && inst.src[0] >= VGPR {
            return self.refuse(u, 5);
        }
        if scalar_form && inst.mods != crate::isa::Mods::default() {
            return self.refuse(u, 4);
        }
        let u = self.vector_plain(inst.row, inst.dst, u);
        self.modified(inst, u)
    }

    /// The micro-operation without its modifiers.
    fn vector_plain(&mut self, row: &TableRow, dst: u16, mut u: Uop) -> Uop {
        let speed = self.speed;
        let by_mode = self.target.generation() == Generation::Gfx11;
        let op = match row.op {
            Op::VFmacF32 => {
                u.c = Src(dst.wrapping_sub(VGPR));
                Op::VFmaF32
            }
            Op::VFmacDx9ZeroF32 => {
                u.c = Src(dst.wrapping_sub(VGPR));
                Op::VFmaDx9ZeroF32
            }
            Op::VFmacF16 => {
                u.c = Src(dst.wrapping_sub(VGPR));
                Op::VFmaF16
            }
            Op::VFmamkF32 | Op::VFmaakF32 => Op::VFmaF32,
            Op::VCmp(ty, cond) | Op::VCmpx(ty, cond) => {
                let to_exec = matches!(row.op, Op::VCmpx(..));
                let (run, ext) = compare::find(ty, cond, to_exec, speed);
                u.c = self.constant(0, false);
                return Uop { run, ext, ..u };
            }
            op => op,
        };
        let run = lanes::integer(op, speed)
            .or_else(|| lanes::single(op, speed))
            .or_else(|| lanes::extremes(op, speed, by_mode))
            .or_else(|| masks::find(op, speed))
            .or_else(|| lanes::half(op, speed))
            .or_else(|| lanes::double(op, speed))
            .or_else(|| scalar::find(op, speed));
        self.found(u, run)
    }

    /// Wraps a micro-operation if the instruction has modifiers.
    fn modified(&mut self, inst: &Inst, u: Uop) -> Uop {
        let m = inst.mods;
        let result = inst.row.shape.dst;
        if m == crate::isa::Mods::default() && inst.dpp == Dpp::None {
            return u;
        }
        if (m.clamp || m.omod != 0) && !result.is_float() {
            return self.refuse(u, 1);
        }
        let half = |ty| matches!(ty, Ty::F16 | Ty::B16);
        let selects = (0..3).any(|k| m.opsel >> k & 1 == 1 && !half(inst.row.shape.src[k]));
        if selects || (m.opsel & 8 != 0 && !half(result)) {
            return self.refuse(u, 2);
        }
        if matches!(inst.dpp, Dpp::Row16 { ctrl, .. } if !dpp_known(ctrl)) {
            return self.refuse(u, 3);
        }
        let ext = self.modifiers.len() as u16;
        self.modifiers.push(Modifier {
            inner: u.run,
            mods: m,
            types: inst.row.shape.src,
            result,
            crossing: Crossing::new(&inst.dpp),
            writes_exec: matches!(inst.row.op, Op::VCmpx(..)),
            ext: u.ext,
        });
        Uop {
            run: handler::<Modified>(self.speed),
            ext,
            ..u
        }
    }

    fn crossing(&mut self, inst: &Inst, mut u: Uop, run: Handler) -> Uop {
        let permlane = matches!(inst.row.op, Op::VPermlane16B32 | Op::VPermlanex16B32);
        let mut rest = inst.mods;
        if permlane {
            u.ext = u16::from(inst.mods.opsel & 3);
            rest.opsel &= !3;
        }
        if rest != crate::isa::Mods::default() || inst.dpp != Dpp::None {
            return self.refuse(u, 4);
        }
        Uop { run, ..u }
    }

    fn packed(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        let mix_or_half = matches!(
            inst.row.op,
            Op::VFmaMixF32
                | Op::VFmaMixloF16
                | Op::VFmaMixhiF16
                | Op::VPkFmaF16
                | Op::VPkAddF16
                | Op::VPkMulF16
        );
        let float = mix_or_half || inst.row.op == Op::VDot2F32F16;
        let m = inst.mods;
        if inst.dpp != Dpp::None
            || (m.clamp && !mix_or_half)
            || (!float && (m.abs != 0 || m.neg & 4 != 0))
        {
            return self.refuse(u, 4);
        }
        u.ext = packed::flags(&m);
        self.found(u, packed::find(inst.row.op, &m, self.speed))
    }

    /// VOPD: both halves read before either writes. Usually the halves are independent; when each
    /// reads what the other writes, the first result's old value is kept in a scratch row.
    fn dual(&mut self, inst: &Inst) {
        let Some(y) = inst.second else { return };
        let plain = self.plain(inst, inst.row, inst.dst, inst.src);
        let x_op = self.vector_plain(inst.row, inst.dst, plain);
        let plain = self.plain(inst, y.row, y.dst, y.src);
        let mut y_op = self.vector_plain(y.row, y.dst, plain);
        y_op.count = 0;
        let reads = |u: &Uop, row: u16| [u.a, u.b, u.c].contains(&Src(row));
        if !reads(&y_op, x_op.dst) {
            self.uops.extend([x_op, y_op]);
        } else if !reads(&x_op, y_op.dst) {
            let (mut first, mut last) = (y_op, x_op);
            (first.count, last.count) = (1, 0);
            self.uops.extend([first, last]);
        } else {
            let mut keep = x_op;
            keep.a = Src(x_op.dst);
            keep.dst = KEPT;
            keep.count = 0;
            keep.run = match lanes::integer(Op::VMovB32, self.speed) {
                Some(run) => run,
                None => keep.run,
            };
            for src in [&mut y_op.a, &mut y_op.b, &mut y_op.c] {
                if *src == Src(x_op.dst) {
                    *src = Src(KEPT);
                }
            }
            self.uops.extend([keep, x_op, y_op]);
        }
    }
}

/// Row or slot of a destination.
fn destination(code: u16) -> u16 {
    match code {
        VGPR.. => code - VGPR,
        NULL => SINK,
        _ => code,
    }
}
