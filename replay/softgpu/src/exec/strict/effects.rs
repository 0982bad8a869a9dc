//! Which registers an instruction reads and writes, from its table row and operands. EXEC is left
//! out as a source: every vector instruction reads it, and strict mode never lets it be undefined.

use super::regs::RegSet;
use crate::isa::op::Op;
use crate::isa::operand::{EXEC, M0, SCC, VCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Format, Generation, Inst, Row};

/// Registers of one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effects {
    pub(super) reads: RegSet,
    pub(super) writes: RegSet,
}

/// Whether the old destination takes part in the result.
pub(super) const fn uses_destination(op: Op) -> bool {
    matches!(
        op,
        Op::VFmacF32
            | Op::VFmacDx9ZeroF32
            | Op::VFmacF16
            | Op::SCmovB32
            | Op::SCmovB64
            | Op::SBitset0B32
            | Op::SBitset1B32
            | Op::SBitset0B64
            | Op::SBitset1B64
            | Op::SCmovkI32
            | Op::SAddkI32
            | Op::SMulkI32
            | Op::SFmacF32
            | Op::VSwapB32
            | Op::VSwapB16
            | Op::VPkFmacF16
            | Op::VDot2accF32F16
            | Op::VDot2accF32Bf16
            | Op::SFmacF16
    )
}

/// Whether a vector operation writes a second, scalar result.
pub(super) const fn writes_mask(op: Op) -> bool {
    matches!(
        op,
        Op::VAddCoU32
            | Op::VSubCoU32
            | Op::VSubrevCoU32
            | Op::VAddCoCiU32
            | Op::VSubCoCiU32
            | Op::VSubrevCoCiU32
            | Op::VDivScaleF32
            | Op::VDivScaleF64
            | Op::VMadU64U32
            | Op::VMadI64I32
    )
}

/// Whether an operation combines EXEC with its source and writes both destination and EXEC.
pub(super) const fn writes_exec(op: Op) -> bool {
    matches!(
        op,
        Op::SAndSaveexecB32
            | Op::SOrSaveexecB32
            | Op::SXorSaveexecB32
            | Op::SNandSaveexecB32
            | Op::SNorSaveexecB32
            | Op::SXnorSaveexecB32
            | Op::SAndNot0SaveexecB32
            | Op::SOrNot0SaveexecB32
            | Op::SAndNot1SaveexecB32
            | Op::SOrNot1SaveexecB32
            | Op::SAndNot0WrexecB32
            | Op::SAndNot1WrexecB32
            | Op::SAndSaveexecB64
            | Op::SOrSaveexecB64
            | Op::SXorSaveexecB64
            | Op::SNandSaveexecB64
            | Op::SNorSaveexecB64
            | Op::SXnorSaveexecB64
            | Op::SAndNot0SaveexecB64
            | Op::SOrNot0SaveexecB64
            | Op::SAndNot1SaveexecB64
            | Op::SOrNot1SaveexecB64
            | Op::SAndNot0WrexecB64
            | Op::SAndNot1WrexecB64
    )
}

/// Whether SCC is read.
pub(super) const fn reads_scc(op: Op) -> bool {
    matches!(
        op,
        Op::SAddcU32
            | Op::SSubbU32
            | Op::SCselectB32
            | Op::SCselectB64
            | Op::SCmovB32
            | Op::SCmovB64
            | Op::SCmovkI32
            | Op::SCbranchScc0
            | Op::SCbranchScc1
    )
}

/// Whether SCC is written.
pub(super) const fn writes_scc(op: Op) -> bool {
    writes_exec(op)
        || matches!(
            op,
            Op::SCmp(..)
                | Op::SCmpk(..)
                | Op::SBitcmp0B32
                | Op::SBitcmp1B32
                | Op::SBitcmp0B64
                | Op::SBitcmp1B64
                | Op::SBarrierSignalIsfirst
                | Op::SAbsI32
                | Op::SBcnt0I32B32
                | Op::SBcnt1I32B32
                | Op::SBcnt0I32B64
                | Op::SBcnt1I32B64
                | Op::SNotB32
                | Op::SNotB64
                | Op::SAddU32
                | Op::SSubU32
                | Op::SAddI32
                | Op::SSubI32
                | Op::SAddcU32
                | Op::SSubbU32
                | Op::SAbsdiffI32
                | Op::SAddkI32
                | Op::SQuadmaskB32
                | Op::SQuadmaskB64
                | Op::SWqmB32
                | Op::SWqmB64
        )
        || writes_scc_by_value(op)
}

/// Operations whose SCC says whether the result is not zero, or which operand won.
const fn writes_scc_by_value(op: Op) -> bool {
    matches!(
        op,
        Op::SLshlB32
            | Op::SLshrB32
            | Op::SAshrI32
            | Op::SLshlB64
            | Op::SLshrB64
            | Op::SAshrI64
            | Op::SLshl1AddU32
            | Op::SLshl2AddU32
            | Op::SLshl3AddU32
            | Op::SLshl4AddU32
            | Op::SMinI32
            | Op::SMinU32
            | Op::SMaxI32
            | Op::SMaxU32
            | Op::SBfeU32
            | Op::SBfeI32
            | Op::SBfeU64
            | Op::SBfeI64
            | Op::SAndB32
            | Op::SOrB32
            | Op::SXorB32
            | Op::SNandB32
            | Op::SNorB32
            | Op::SXnorB32
            | Op::SAndNot1B32
            | Op::SOrNot1B32
            | Op::SAndB64
            | Op::SOrB64
            | Op::SXorB64
            | Op::SNandB64
            | Op::SNorB64
            | Op::SXnorB64
            | Op::SAndNot1B64
            | Op::SOrNot1B64
    )
}

/// Whether VCC is read without being named.
const fn reads_vcc(op: Op) -> bool {
    matches!(
        op,
        Op::VDivFmasF32 | Op::VDivFmasF64 | Op::SCbranchVccz | Op::SCbranchVccnz
    )
}

/// Whether M0 is read without being named.
const fn reads_m0(op: Op) -> bool {
    matches!(
        op,
        Op::DsLoadAddtidB32
            | Op::DsStoreAddtidB32
            | Op::SMovrelsB32
            | Op::SMovrelsB64
            | Op::SMovreldB32
            | Op::SMovreldB64
            | Op::SMovrelsd2B32
            | Op::VMovrelsB32
            | Op::VMovreldB32
            | Op::VMovrelsdB32
            | Op::VMovrelsd2B32
            | Op::VSwaprelB32
    )
}

/// Registers that source `k` spans; the lane address of a global access is 64 bits unless a scalar
/// pair is the base.
pub(super) fn source_regs(inst: &Inst, row: &Row, k: usize) -> u32 {
    match (inst.format, k) {
        (Format::Global, 0) if !matches!(row.op, Op::GLoadAddtid | Op::GStoreAddtid) => {
            match row.shape.src[0] {
                Ty::None => 0,
                _ => 2 - u32::from(inst.scalar_address()),
            }
        }
        (Format::Flat, 0) => 2,
        _ => row.shape.src[k].regs(),
    }
}

/// Whether a global atomic returns the old value: GLC, or the RETURN bit of the temporal hint.
pub(super) fn returns(generation: Generation, inst: &Inst) -> bool {
    match generation {
        Generation::Gfx11 => inst.cache & 1 == 1,
        Generation::Gfx12 => inst.cache >> 2 & 1 == 1,
    }
}

/// Registers that the destination spans.
pub(super) fn destination_regs(generation: Generation, inst: &Inst, row: &Row) -> u32 {
    match row.op {
        Op::GAtomic(..) | Op::FlatAtomic(..) if !returns(generation, inst) => 0,
        Op::DsAtomic(_, _, false) => 0,
        // These write EXEC only, and nothing on a wave32.
        Op::VCmpx(..) | Op::VPermlane64B32 => 0,
        _ => row.shape.dst.regs(),
    }
}

/// What `inst` reads and writes.
pub(super) fn effects(generation: Generation, inst: &Inst) -> Effects {
    let mut e = Effects::default();
    half(&mut e, generation, inst, inst.row, inst.dst, inst.src);
    if let Some(y) = &inst.second {
        half(&mut e, generation, inst, y.row, y.dst, y.src);
    }
    let op = inst.row.op;
    if writes_mask(op) {
        e.writes.insert_operand(inst.sdst, 1);
    }
    match inst.format {
        Format::Smem | Format::Scratch => e.reads.insert_operand(inst.saddr, 1),
        Format::Global if inst.scalar_address() => e.reads.insert_operand(inst.saddr, 2),
        _ => {}
    }
    if reads_vcc(op) {
        e.reads.insert_operand(VCC, 1);
    }
    if reads_m0(op) {
        e.reads.insert_operand(M0, 1);
    }
    if writes_exec(op) && inst.row.shape.dst.regs() > 1 {
        e.reads.insert_operand(EXEC + 1, 1);
        e.writes.insert_operand(EXEC + 1, 1);
    }
    if reads_scc(op) {
        e.reads.insert_operand(SCC, 1);
    }
    if writes_scc(op) {
        e.writes.insert_operand(SCC, 1);
    }
    e
}

fn half(e: &mut Effects, gen_: Generation, inst: &Inst, row: &Row, dst: u16, src: [u16; 3]) {
    let regs = destination_regs(gen_, inst, row);
    e.writes.insert_operand(dst, regs);
    if uses_destination(row.op) {
        e.reads.insert_operand(dst, regs);
    }
    if matches!(row.op, Op::VSwapB32 | Op::VSwapB16) && src[0] >= VGPR {
        e.writes.insert_operand(src[0], 1);
    }
    for (k, code) in src.into_iter().enumerate() {
        e.reads.insert_operand(code, source_regs(inst, row, k));
    }
}
