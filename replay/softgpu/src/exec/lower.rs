//! From decoded instructions to micro-operations: operands become rows, slots and constants,
//! handlers are chosen, VOPD is taken apart, no-ops are folded into their predecessor's count.
//! Branch targets are filled in by `program`, which knows where every instruction went.

use super::context::{Ctx, Fault, HITS};
use super::level::{Level, Speed};
use super::modified::{Crossing, Modified, ModifiedScalar, Modifier, dpp_known};
use super::uop::{Exec, Flow, Handler, Src, Uop, handler};
use super::wave::{Row, SCC_SLOT, SCRATCH, SINK, Wave};
use super::{
    atomic, bytes, compare, control, cross, flat, fp8, global, halves, hwreg, lanes, lds, masks,
    moded, packed, relative, scalar,
};
use crate::isa::op::{Atomic, Cond, Op, Why, Wide};
use crate::isa::operand::{
    APERTURE_FIRST, APERTURE_LAST, NULL, SCC, VGPR, inline_constant, literal_value,
};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Generation, Inst, Mods, Row as TableRow, Target};
use std::cell::Cell;
use std::collections::HashMap;

/// Scratch row that keeps a register's old value between the halves of a VOPD.
const KEPT: u16 = SCRATCH + 16;

/// Why an instruction that decodes is not executed. Reported when it is reached.
const REFUSALS: [&str; 7] = [
    "this operation is in the table but not in the executor",
    "clamp on an integer operation that has no saturating form",
    "op_sel on an operand that has no halves",
    "a DPP control that RDNA does not have",
    "modifiers on an operation that has none",
    "a vector register where this operation reads a scalar",
    "DPP on an operation that crosses lanes itself",
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
    /// Handlers follow MODE.
    moded: bool,
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
            moded: false,
        }
    }

    /// For micro-operations that follow MODE. Same instructions give the same numbers of
    /// micro-operations and constants as with [`Self::new`].
    pub(super) fn moded(target: Target, speed: Speed) -> Self {
        Self {
            moded: true,
            ..Self::new(target, speed)
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
            APERTURE_FIRST..=APERTURE_LAST => {
                let value = flat::aperture(code - APERTURE_FIRST);
                // Read as 32 bits the register gives zero (LLVM, getSegmentAperture).
                self.constant(if wide { value } else { 0 }, wide)
            }
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
            Format::Flat | Format::Scratch => self.flat(inst, u),
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
                let soft = if self.moded {
                    moded::scalar(op, speed)
                } else {
                    None
                };
                if soft.is_some() && matches!(op, Op::SFmacF32 | Op::SFmacF16) {
                    u.c = Src(Src::SCALAR + u.dst);
                }
                if op == Op::SSetregImm32B32 {
                    u.b = self.constant(u64::from(inst.literal), false);
                }
                let run = soft
                    .or_else(|| control::find(op, speed))
                    .or_else(|| scalar::find(op, speed))
                    .or_else(|| relative::find(op, speed))
                    .or_else(|| hwreg::find(op, speed));
                let u = self.found(u, run);
                return self.scalar_modified(inst, u);
            }
        };
        match scalar::comparison(ty, cond, speed) {
            Some((run, ext)) => self.scalar_modified(inst, Uop { run, ext, ..u }),
            None => self.refuse(u, 0),
        }
    }

    /// Wraps a scalar operation if it has modifiers, or flushes denormals.
    fn scalar_modified(&mut self, inst: &Inst, u: Uop) -> Uop {
        let modifier = self.modifier(inst.row, inst.mods, Dpp::None, u);
        if inst.mods == Mods::default() && !modifier.flushes {
            return u;
        }
        let run = if self.moded {
            handler::<ModifiedScalar<true>>(self.speed)
        } else {
            handler::<ModifiedScalar<false>>(self.speed)
        };
        self.wrap(modifier, run, u)
    }

    fn scalar_memory(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        u.hit = self.hit();
        u.b = self.source(inst.saddr, Ty::B32, 0);
        let run = match inst.row.op {
            Op::SLoad(load) => global::scalar_load(load, self.speed),
            Op::SBufferLoad(load) => global::buffer_load(load, self.speed),
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
            Op::GAtomic(function, wide) => {
                u.ext = self.atomic_flags(function, wide, returns(inst, self.target));
                Some(atomic::global(by_scalar, self.speed))
            }
            Op::GLoadAddtid => Some(global::load_by_lane(self.speed)),
            Op::GStoreAddtid => {
                u.c = Src(inst.src[0].wrapping_sub(VGPR));
                Some(global::store_by_lane(self.speed))
            }
            op => control::find(op, self.speed),
        };
        self.found(u, run)
    }

    fn atomic_flags(&self, function: Atomic, wide: Wide, returns: bool) -> u16 {
        atomic::flags(function, wide, returns, self.target.generation())
    }

    fn flat(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        let speed = self.speed;
        u.hit = self.hit();
        u.c = u.b;
        if inst.format == Format::Scratch {
            u.b = self.source(inst.saddr, Ty::B32, 0);
            u.a = self.source(inst.src[0], Ty::B32, 0);
        }
        let (number, run) = match inst.row.op {
            Op::FlatLoad(load) => (flat::load_number(load), global::flat_load(load, speed)),
            Op::FlatStore(store) => (
                flat::store_number(store),
                Some(global::flat_store(store, speed)),
            ),
            Op::FlatAtomic(function, wide) => {
                u.ext = self.atomic_flags(function, wide, returns(inst, self.target));
                (Some(0), Some(atomic::flat(speed)))
            }
            Op::ScratchLoad(load) => (
                flat::load_number(load),
                Some(handler::<flat::Scratch<{ flat::LOAD }>>(speed)),
            ),
            Op::ScratchStore(store) => (
                flat::store_number(store),
                Some(handler::<flat::Scratch<{ flat::STORE }>>(speed)),
            ),
            _ => (None, None),
        };
        match number {
            Some(number) => {
                u.sdst = number;
                self.found(u, run)
            }
            None => self.refuse(u, 0),
        }
    }

    fn lds(&mut self, inst: &Inst, mut u: Uop) -> Uop {
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
            Op::DsLoad2(wide, stride) | Op::DsStore2(wide, stride) | Op::DsSwap2(wide, stride) => {
                let step = element(wide) * stride;
                u.imm = inst.imm * step as i32;
                let second = inst.imm2 * step;
                u.sdst = second as u16;
                u.ext = (second >> 16) as u16;
                Some(match inst.row.op {
                    Op::DsLoad2(..) => lds::load_two(wide, speed),
                    Op::DsStore2(..) => lds::store_two(wide, speed),
                    _ => lds::swap_two(wide, speed),
                })
            }
            Op::DsAtomic(function, wide, returns) => {
                u.ext = self.atomic_flags(function, wide, returns);
                Some(atomic::lds(speed))
            }
            Op::DsCondxchg32RtnB64 => Some(atomic::conditional_exchange(speed)),
            Op::DsLoadAddtidB32 => Some(lds::load_by_lane(speed)),
            Op::DsStoreAddtidB32 => {
                u.b = Src(inst.src[0].wrapping_sub(VGPR));
                Some(lds::store_by_lane(speed))
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
        let whole = cross::find(op, self.speed)
            .or_else(|| control::find(op, self.speed))
            .or_else(|| relative::find(op, self.speed));
        if let Some(run) = whole {
            return self.crossing(inst, u, run);
        }
        let u = self.vector_plain(inst.row, inst.dst, u);
        if inst.row.shape.dst == Ty::Sgpr {
            return match (inst.src[0] >= VGPR, inst.dpp) {
                (true, _) => self.refuse(u, 5),
                (_, Dpp::None) => self.scalar_modified(inst, u),
                _ => self.refuse(u, 6),
            };
        }
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
            Op::VPkFmacF16 | Op::VDot2accF32F16 | Op::VDot2accF32Bf16 => {
                u.c = Src(dst.wrapping_sub(VGPR));
                u.ext = packed::PLAIN;
                let op = packed::accumulating(row.op);
                let run = packed::find(op, &Mods::default(), self.moded, speed).ok();
                return self.found(u, run);
            }
            Op::VFmamkF32 | Op::VFmaakF32 => Op::VFmaF32,
            Op::VFmamkF16 | Op::VFmaakF16 => Op::VFmaF16,
            Op::VCmp(ty, cond) | Op::VCmpx(ty, cond) => {
                let to_exec = matches!(row.op, Op::VCmpx(..));
                let (run, ext) = compare::find(ty, cond, to_exec, speed);
                u.c = self.constant(0, false);
                return Uop { run, ext, ..u };
            }
            op => op,
        };
        if self.moded
            && let Some(run) = moded::vector(op, speed).or_else(|| masks::moded(op, speed))
        {
            return Uop { run, ..u };
        }
        let run = lanes::integer(op, speed)
            .or_else(|| lanes::single(op, speed))
            .or_else(|| lanes::extremes(op, speed, by_mode))
            .or_else(|| masks::find(op, speed))
            .or_else(|| lanes::half(op, speed))
            .or_else(|| lanes::double(op, speed))
            .or_else(|| halves::find(op, speed))
            .or_else(|| halves::whole(op, speed))
            .or_else(|| halves::extremes(op, speed, by_mode))
            .or_else(|| bytes::find(op, speed))
            .or_else(|| bytes::wide(op, speed))
            .or_else(|| fp8::find(op, speed))
            .or_else(|| scalar::find(op, speed));
        self.found(u, run)
    }

    /// What a wrapper does around `u`.
    fn modifier(&self, row: &TableRow, mods: Mods, dpp: Dpp, u: Uop) -> Modifier {
        // Selections and class tests pass denormals on.
        let passes = matches!(
            row.op,
            Op::VCndmaskB32
                | Op::VCndmaskB16
                | Op::VCmp(_, Cond::Class)
                | Op::VCmpx(_, Cond::Class)
        );
        let shape = &row.shape;
        let float = shape.dst.is_float() || shape.src.iter().any(|ty| ty.is_float());
        Modifier {
            inner: u.run,
            mods,
            types: shape.src,
            result: shape.dst,
            crossing: Crossing::new(&dpp),
            writes_exec: matches!(row.op, Op::VCmpx(..)),
            ext: u.ext,
            flushes: self.moded && float && !passes,
        }
    }

    fn wrap(&mut self, modifier: Modifier, run: Handler, u: Uop) -> Uop {
        let ext = self.modifiers.len() as u16;
        self.modifiers.push(modifier);
        Uop { run, ext, ..u }
    }

    fn wrap_vector(&mut self, modifier: Modifier, u: Uop) -> Uop {
        let run = if self.moded {
            handler::<Modified<true>>(self.speed)
        } else {
            handler::<Modified<false>>(self.speed)
        };
        self.wrap(modifier, run, u)
    }

    /// Wraps a micro-operation if the instruction has modifiers, or flushes denormals.
    fn modified(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        let mut m = inst.mods;
        let result = inst.row.shape.dst;
        let inputs = inst.row.shape.src;
        if !result.is_float() {
            // A comparison's clamp asks for exceptions, a conversion saturates anyway.
            let converts = inputs.iter().any(|ty| ty.is_float());
            if m.clamp && !converts {
                match lanes::clamped(inst.row.op, self.speed)
                    .or_else(|| masks::clamped(inst.row.op, self.speed))
                {
                    Some(run) => u.run = run,
                    None => return self.refuse(u, 1),
                }
            }
            m.clamp = false;
            m.omod = 0;
        }
        // Here op_sel names bytes.
        match inst.row.op {
            Op::VCvtF32Fp8 | Op::VCvtF32Bf8 => u.ext = u16::from(m.opsel & 3),
            Op::VCvtSrFp8F32 | Op::VCvtSrBf8F32 => u.ext = u16::from(m.opsel & 12),
            _ => {}
        }
        if matches!(
            inst.row.op,
            Op::VCvtF32Fp8 | Op::VCvtF32Bf8 | Op::VCvtSrFp8F32 | Op::VCvtSrBf8F32
        ) {
            m.opsel = 0;
        }
        let signs = |k: usize| (m.neg | m.abs) >> k & 1 == 1;
        if (0..3).any(|k| signs(k) && !inputs[k].is_float()) {
            return self.refuse(u, 4);
        }
        let half = Ty::is_half;
        let selects = (0..3).any(|k| m.opsel >> k & 1 == 1 && !half(inputs[k]));
        if selects || (m.opsel & 8 != 0 && !half(result)) {
            return self.refuse(u, 2);
        }
        if matches!(inst.dpp, Dpp::Row16 { ctrl, .. } if !dpp_known(ctrl)) {
            return self.refuse(u, 3);
        }
        let modifier = self.modifier(inst.row, m, inst.dpp, u);
        if m == Mods::default() && inst.dpp == Dpp::None && !modifier.flushes {
            return u;
        }
        self.wrap_vector(modifier, u)
    }

    fn crossing(&mut self, inst: &Inst, mut u: Uop, run: Handler) -> Uop {
        let permlane = matches!(
            inst.row.op,
            Op::VPermlane16B32
                | Op::VPermlanex16B32
                | Op::VPermlane16VarB32
                | Op::VPermlanex16VarB32
        );
        let mut rest = inst.mods;
        let selects = match inst.row.op {
            Op::VSwapB16 => 9,
            _ if permlane => 3,
            _ => 0,
        };
        u.ext |= u16::from(inst.mods.opsel & selects);
        rest.opsel &= !selects;
        if rest != Mods::default() {
            return self.refuse(u, 4);
        }
        if inst.dpp != Dpp::None {
            return self.refuse(u, 6);
        }
        Uop { run, ..u }
    }

    fn packed(&mut self, inst: &Inst, mut u: Uop) -> Uop {
        let m = inst.mods;
        if matches!(inst.dpp, Dpp::Row16 { ctrl, .. } if !dpp_known(ctrl)) {
            return self.refuse(u, 3);
        }
        u.ext = packed::flags(&m);
        let u = match packed::find(inst.row.op, &m, self.moded, self.speed) {
            Ok(run) => Uop { run, ..u },
            Err(packed::Refusal::Unknown) => return self.refuse(u, 0),
            Err(packed::Refusal::Modifier) => return self.refuse(u, 4),
        };
        if inst.dpp == Dpp::None {
            return u;
        }
        // Halves, signs and flushing are the operation's own; only lanes are crossed here.
        let mut modifier = self.modifier(inst.row, Mods::default(), inst.dpp, u);
        modifier.flushes = false;
        self.wrap_vector(modifier, u)
    }

    /// Half of a VOPD: it has no modifiers, but may flush denormals.
    fn half(&mut self, row: &TableRow, u: Uop) -> Uop {
        let modifier = self.modifier(row, Mods::default(), Dpp::None, u);
        if modifier.flushes {
            self.wrap_vector(modifier, u)
        } else {
            u
        }
    }

    /// VOPD: both halves read before either writes. Usually the halves are independent; when each
    /// reads what the other writes, the first result's old value is kept in a scratch row.
    fn dual(&mut self, inst: &Inst) {
        let Some(y) = inst.second else { return };
        let plain = self.plain(inst, inst.row, inst.dst, inst.src);
        let x_op = self.vector_plain(inst.row, inst.dst, plain);
        let x_op = self.half(inst.row, x_op);
        let plain = self.plain(inst, y.row, y.dst, y.src);
        let y_op = self.vector_plain(y.row, y.dst, plain);
        let mut y_op = self.half(y.row, y_op);
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

/// Whether an atomic returns the old value: GLC, or the RETURN bit of the temporal hint.
fn returns(inst: &Inst, target: Target) -> bool {
    match target.generation() {
        Generation::Gfx11 => inst.cache & 1 == 1,
        Generation::Gfx12 => inst.cache >> 2 & 1 == 1,
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
