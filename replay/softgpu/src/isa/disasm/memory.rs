//! Text of memory instructions: SMEM, LDS, and the FLAT formats with their cache bits.

use super::{list, source};
use crate::isa::decode::Inst;
use crate::isa::op::Op;
use crate::isa::operand::{NULL, name};
use crate::isa::row::Format;
use crate::isa::shape::Ty;
use crate::isa::{Generation, Target};
use std::fmt::Write;

fn signed(offset: i32) -> String {
    let sign = if offset < 0 { "-" } else { "" };
    format!("{sign}{:#x}", offset.unsigned_abs())
}

pub(super) fn smem(text: &mut String, target: Target, inst: &Inst) {
    let shape = &inst.row.shape;
    let gfx12 = target.generation() == Generation::Gfx12;
    let prefetch = inst.row.op == Op::SPrefetch;
    if shape.dst == Ty::None && !prefetch {
        return;
    }
    let mut operands = Vec::new();
    if !prefetch {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    let probe = prefetch && inst.row.mnemonic.starts_with("s_atc_probe");
    if probe {
        operands.push(match inst.imm2 {
            0..=64 => inst.imm2.to_string(),
            kind => format!("{kind:#x}"),
        });
    }
    if shape.src[0] != Ty::None {
        operands.push(name(inst.src[0], shape.src[0].regs(), 0));
    }
    if prefetch && !probe {
        operands.extend([signed(inst.imm), name(inst.saddr, 1, 0)]);
        operands.push((inst.imm2 & 31).to_string());
        list(text, &operands);
        return;
    }
    operands.push(match (inst.saddr, inst.imm) {
        (NULL, 0) if !gfx12 => "null".to_owned(),
        (NULL, imm) => signed(imm),
        (s, 0) if !gfx12 => name(s, 1, 0),
        (s, imm) => format!("{} offset:{}", name(s, 1, 0), signed(imm)),
    });
    list(text, &operands);
    if probe {
        return;
    }
    if gfx12 {
        cache12(text, inst.cache, Kind::Load);
    } else {
        cache11(text, inst.cache);
    }
}

/// What the cache bits belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    Store,
    Atomic,
}

fn cache11(text: &mut String, bits: u8) {
    for (bit, word) in [(1, " glc"), (2, " slc"), (4, " dlc")] {
        if bits & bit != 0 {
            text.push_str(word);
        }
    }
}

/// Temporal hint and scope of gfx12 (LLVM AMDGPUUsage, memory model gfx12).
fn cache12(text: &mut String, bits: u8, kind: Kind) {
    let (scope, hint) = (bits & 3, bits >> 2);
    let system = scope == 3;
    match kind {
        _ if hint == 0 => {}
        Kind::Atomic => atomic_hint(text, scope, hint),
        Kind::Load if hint == 7 => text.push_str(" th:0x7"),
        Kind::Load | Kind::Store => {
            let load = kind == Kind::Load;
            let what = match hint {
                1 => "NT",
                2 => "HT",
                3 if system => "BYPASS",
                3 if load => "LU",
                3 => "RT_WB",
                4 => "NT_RT",
                5 => "RT_NT",
                6 => "NT_HT",
                _ => "NT_WB",
            };
            let kind = if load { "LOAD" } else { "STORE" };
            add!(text, " th:TH_{kind}_{what}");
        }
    }
    if scope != 0 {
        let scope = ["CU", "SE", "DEV", "SYS"][usize::from(scope)];
        add!(text, " scope:SCOPE_{scope}");
    }
}

/// Bit 0 returns the old value, bit 1 is non-temporal, bit 2 cascades (device scope and wider).
fn atomic_hint(text: &mut String, scope: u8, hint: u8) {
    let non_temporal = hint & 2 != 0;
    let what = match (hint & 4 != 0, non_temporal, hint & 1 != 0) {
        (true, ..) if scope < 2 => format!("{hint:#x}"),
        (true, true, _) => "CASCADE_NT".to_owned(),
        (true, false, _) => "CASCADE_RT".to_owned(),
        (false, true, true) => "NT_RETURN".to_owned(),
        (false, true, false) => "NT".to_owned(),
        (false, false, _) => "RETURN".to_owned(),
    };
    add!(text, " th:TH_ATOMIC_{what}");
}

pub(super) fn ds(text: &mut String, inst: &Inst) {
    let shape = &inst.row.shape;
    let mut operands = Vec::new();
    if shape.dst != Ty::None {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    operands.extend((0..shape.sources()).map(|k| source(inst, inst.row, inst.src, k)));
    list(text, &operands);
    match inst.row.op {
        Op::DsLoad2(..) | Op::DsStore2(..) | Op::DsSwap2(..) => {
            for (field, value) in [("offset0", inst.imm as u32), ("offset1", inst.imm2)] {
                if value != 0 {
                    add!(text, " {field}:{value}");
                }
            }
        }
        Op::DsSwizzleB32 => swizzle(text, inst.imm as u16),
        _ if inst.imm != 0 => {
            add!(text, " offset:{}", inst.imm);
        }
        _ => {}
    }
}

/// LLVM's names of `ds_swizzle_b32` patterns.
fn swizzle(text: &mut String, imm: u16) {
    if imm == 0 {
        return;
    }
    if imm & 0x8000 != 0 && imm & 0x7f00 != 0 {
        add!(text, " offset:{imm}");
        return;
    }
    if imm & 0x8000 != 0 {
        let lane = |k: u16| imm >> (2 * k) & 3;
        add!(
            text,
            " offset:swizzle(QUAD_PERM,{},{},{},{})",
            lane(0),
            lane(1),
            lane(2),
            lane(3)
        );
        return;
    }
    let (and, or, xor) = (imm & 31, imm >> 5 & 31, imm >> 10 & 31);
    if and == 31 && or == 0 && xor.count_ones() == 1 {
        add!(text, " offset:swizzle(SWAP,{xor})");
    } else if and == 31 && or == 0 && xor > 0 && (xor + 1).is_power_of_two() {
        add!(text, " offset:swizzle(REVERSE,{})", xor + 1);
    } else {
        let group = 32 - and;
        if group > 1 && group.is_power_of_two() && or < group && xor == 0 {
            add!(text, " offset:swizzle(BROADCAST,{group},{or})");
            return;
        }
        text.push_str(" offset:swizzle(BITMASK_PERM,\"");
        for bit in (0..5).rev() {
            let at = |v: u16| v >> bit & 1;
            text.push(match (at(and), at(or), at(xor)) {
                (1, 0, 0) => 'p',
                (1, 0, 1) => 'i',
                (_, 1, 0) | (0, 0, 1) => '1',
                _ => '0',
            });
        }
        text.push_str("\")");
    }
}

/// Operands and cache bits of FLAT, GLOBAL and SCRATCH.
pub(super) fn flat(text: &mut String, target: Target, inst: &Inst) {
    let gfx12 = target.generation() == Generation::Gfx12;
    let shape = &inst.row.shape;
    let addtid = matches!(inst.row.op, Op::GLoadAddtid | Op::GStoreAddtid);
    let cache_only = shape.dst == Ty::None && shape.src[0] == Ty::None;
    let kind = match (shape.dst, shape.src[1]) {
        _ if cache_only => Kind::Load,
        (Ty::None, _) => Kind::Store,
        (_, Ty::None) => Kind::Load,
        _ => Kind::Atomic,
    };
    let returns = match kind {
        Kind::Load => true,
        Kind::Store => false,
        Kind::Atomic if gfx12 => inst.cache >> 2 & 1 == 1,
        Kind::Atomic => inst.cache & 1 == 1,
    };
    let mut operands = Vec::new();
    if returns && shape.dst != Ty::None {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    if addtid && kind == Kind::Store {
        operands.push(name(inst.src[0], 1, 0));
    }
    if !addtid && !cache_only {
        operands.push(lane_address(inst));
        if kind != Kind::Load {
            operands.push(name(inst.src[1], shape.src[1].regs(), 0));
        }
    }
    let base = if inst.format == Format::Scratch { 1 } else { 2 };
    match inst.saddr {
        _ if inst.format == Format::Flat || cache_only => {}
        NULL => operands.push("off".to_owned()),
        s => operands.push(name(s, base, 0)),
    }
    list(text, &operands);
    if inst.imm != 0 && !cache_only {
        add!(text, " offset:{}", inst.imm);
    }
    if gfx12 {
        cache12(text, inst.cache, kind);
    } else {
        cache11(text, inst.cache);
    }
}

fn lane_address(inst: &Inst) -> String {
    let regs = match inst.format {
        Format::Scratch => 1,
        Format::Global => 2 - u32::from(inst.scalar_address()),
        _ => 2,
    };
    match inst.src[0] {
        NULL => "off".to_owned(),
        v => name(v, regs, 0),
    }
}
