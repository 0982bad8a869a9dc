//! Text of vector instructions and their modifiers.

use super::{Syntax, list, source};
use crate::isa::decode::{Dpp, Inst, only_short};
use crate::isa::op::Op;
use crate::isa::operand::{is_vgpr, name};
use crate::isa::row::{Format, Row};
use crate::isa::shape::Ty;
use std::fmt::Write;

/// The part of the mnemonic that tells the encoding.
pub(super) fn suffix(inst: &Inst) -> &'static str {
    let only_one = only_short(inst.row.op) || inst.row.op == Op::VNop;
    let short_row = matches!(inst.row.format, Format::Vop1 | Format::Vop2 | Format::Vopc);
    let dpp = inst.dpp != Dpp::None;
    match inst.format {
        Format::Vop1 | Format::Vop2 if only_one && dpp => "_dpp",
        _ if only_one => "",
        Format::Vopc if dpp => "",
        Format::Vop1 | Format::Vop2 if dpp => "_dpp",
        Format::Vop1 | Format::Vop2 | Format::Vopc => "_e32",
        Format::Vop3 | Format::Vop3sd | Format::Vop3p if dpp => "_e64_dpp",
        Format::Vop3 | Format::Vop3sd if short_row => "_e64",
        _ => "",
    }
}

pub(super) fn vopd(text: &mut String, inst: &Inst) {
    let half = |text: &mut String, row: &Row, dst: u16, src: [u16; 3]| {
        let shown = row
            .shape
            .src
            .iter()
            .filter(|t| !matches!(t, Ty::None | Ty::Mask))
            .count();
        let mut operands = vec![name(dst, 1, 0)];
        operands.extend((0..shown).map(|k| source(inst, row, src, k)));
        list(text, &operands);
    };
    half(text, inst.row, inst.dst, inst.src);
    if let Some(y) = &inst.second {
        add!(text, " :: {}", y.row.mnemonic);
        half(text, y.row, y.dst, y.src);
    }
}

pub(super) fn vector(text: &mut String, syntax: Syntax, inst: &Inst) {
    let shape = &inst.row.shape;
    let halves = halves(syntax, inst);
    let mut operands = Vec::new();
    if shape.dst != Ty::None && !matches!(inst.row.op, Op::VCmpx(..)) {
        let text = name(inst.dst, shape.dst.regs(), 0);
        operands.push(match halves && shape.dst.is_half() {
            true => half(text, inst.mods.opsel >> 3 & 1),
            false => text,
        });
    }
    let carries = inst.row.format == Format::Vop2 && shape.src[2] == Ty::Mask;
    if inst.format == Format::Vop3sd || (carries && inst.row.op != Op::VCndmaskB32) {
        operands.push(name(inst.sdst, 1, 0));
    }
    operands.extend((0..shape.sources()).map(|k| vector_source(inst, k, halves)));
    list(text, &operands);
    if inst.format == Format::Vop3p {
        packed_modifiers(text, inst);
    } else if !short(inst) {
        op_sel(text, syntax, inst);
    }
    if inst.mods.clamp {
        text.push_str(" clamp");
    }
    text.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(inst.mods.omod & 3)]);
    dpp(text, inst);
}

fn short(inst: &Inst) -> bool {
    matches!(inst.format, Format::Vop1 | Format::Vop2 | Format::Vopc)
}

/// Whether 16-bit operands are spelled as halves of registers: the short encodings have no other way
/// to name a high half, and the 16-bit moves are always spelled so.
fn halves(syntax: Syntax, inst: &Inst) -> bool {
    let named = matches!(inst.row.op, Op::VMovB16 | Op::VSwapB16);
    match syntax {
        Syntax::True16 => inst.format != Format::Vop3p,
        Syntax::OpSel => short(inst) && (named || inst.mods.opsel != 0),
    }
}

fn half(register: String, high: u8) -> String {
    register + [".l", ".h"][usize::from(high & 1)]
}

fn vector_source(inst: &Inst, k: usize, halves: bool) -> String {
    let mut text = source(inst, inst.row, inst.src, k);
    let ty = inst.row.shape.src[k];
    if halves && ty.is_half() && is_vgpr(inst.src[k]) {
        text = half(text, inst.mods.opsel >> k & 1);
    }
    let signed = ty == Ty::Mix || (ty.takes_sign() && inst.format != Format::Vop3p);
    let neg = signed && inst.mods.neg >> k & 1 == 1;
    let abs = signed && inst.mods.abs >> k & 1 == 1;
    let constant = !is_vgpr(inst.src[k]) && inst.src[k] >= 128;
    match (neg, abs) {
        (false, false) => text,
        (true, false) if constant => format!("neg({text})"),
        (true, false) => format!("-{text}"),
        (false, true) => format!("|{text}|"),
        (true, true) => format!("-|{text}|"),
    }
}

fn bit_list(text: &mut String, field: &str, bits: u8, n: usize) {
    let shown: Vec<String> = (0..n).map(|k| (bits >> k & 1).to_string()).collect();
    add!(text, " {field}:[{}]", shown.join(","));
}

fn op_sel(text: &mut String, syntax: Syntax, inst: &Inst) {
    if inst.mods.opsel == 0 {
        return;
    }
    match inst.row.op {
        // fetch-inactive and bound control.
        Op::VPermlane16B32
        | Op::VPermlanex16B32
        | Op::VPermlane16VarB32
        | Op::VPermlanex16VarB32 => {
            if inst.mods.opsel & 3 != 0 {
                bit_list(text, "op_sel", inst.mods.opsel, 2);
            }
            return;
        }
        Op::VCvtF32Fp8 | Op::VCvtF32Bf8 => {
            let byte = (inst.mods.opsel & 1) << 1 | inst.mods.opsel >> 1 & 1;
            add!(text, " byte_sel:{byte}");
            return;
        }
        Op::VCvtSrFp8F32 | Op::VCvtSrBf8F32 if inst.mods.opsel & 3 == 0 => {
            add!(text, " byte_sel:{}", inst.mods.opsel >> 2);
            return;
        }
        _ => {}
    }
    // The accumulator of FMAC is a third source, which LLVM 19 prints as unselected.
    let written = inst.row.shape.sources();
    let n = written + usize::from(inst.row.op == Op::VFmacF16);
    if syntax == Syntax::True16 {
        let selected = selected_halves(inst);
        // LLVM 22 has no entry for what a comparison writes if that is EXEC or it has DPP.
        let to_exec = matches!(inst.row.op, Op::VCmpx(..));
        let masks = to_exec || (inst.row.format == Format::Vopc && inst.dpp != Dpp::None);
        if selected != 0 {
            let bits = selected & ((1 << n) - 1) | (selected >> 3 << n);
            bit_list(text, "op_sel", bits, n + usize::from(!masks));
        }
        return;
    }
    let bits = inst.mods.opsel & ((1 << written) - 1) | (inst.mods.opsel >> 3 << n);
    if bits != 0 {
        bit_list(text, "op_sel", bits, n + 1);
    }
}

/// The bits of `op_sel` that belong to 16-bit operands.
fn selected_halves(inst: &Inst) -> u8 {
    let shape = &inst.row.shape;
    let sources = (0..3).filter(|&k| shape.src[k].is_half());
    let mut mask: u8 = sources.map(|k| 1 << k).sum();
    if shape.dst.is_half() {
        mask |= 0b1000;
    }
    if inst.row.op == Op::VFmacF16 {
        mask |= 0b100;
    }
    inst.mods.opsel & mask
}

fn packed_modifiers(text: &mut String, inst: &Inst) {
    let n = inst.row.shape.sources();
    let all = (1u8 << n) - 1;
    let mix = inst.row.shape.src[0] == Ty::Mix;
    let m = &inst.mods;
    if m.opsel & all != 0 {
        bit_list(text, "op_sel", m.opsel, n);
    }
    if m.opsel_hi & all != if mix { 0 } else { all } {
        bit_list(text, "op_sel_hi", m.opsel_hi, n);
    }
    if !mix {
        for (field, bits) in [("neg_lo", m.neg), ("neg_hi", m.abs)] {
            if bits & all != 0 {
                bit_list(text, field, bits, n);
            }
        }
    }
}

fn dpp(text: &mut String, inst: &Inst) {
    match inst.dpp {
        Dpp::None => {}
        Dpp::Row8 {
            select,
            fetch_inactive,
        } => {
            let lanes: Vec<String> = (0..8)
                .map(|k| (select >> (3 * k) & 7).to_string())
                .collect();
            add!(text, " dpp8:[{}]", lanes.join(","));
            if fetch_inactive {
                text.push_str(" fi:1");
            }
        }
        Dpp::Row16 {
            ctrl,
            fetch_inactive,
            bound_ctrl,
            row_mask,
            bank_mask,
        } => {
            dpp_control(text, ctrl);
            add!(text, " row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}");
            if bound_ctrl {
                text.push_str(" bound_ctrl:1");
            }
            if fetch_inactive {
                text.push_str(" fi:1");
            }
        }
    }
}

/// DPP16 control codes (LLVM AMDGPUUsage, DPP operand).
fn dpp_control(text: &mut String, ctrl: u16) {
    let n = ctrl & 15;
    match ctrl {
        0..=0xff => {
            let lane = |k: u16| ctrl >> (2 * k) & 3;
            add!(
                text,
                " quad_perm:[{},{},{},{}]",
                lane(0),
                lane(1),
                lane(2),
                lane(3)
            );
        }
        0x101..=0x10f => {
            add!(text, " row_shl:{n}");
        }
        0x111..=0x11f => {
            add!(text, " row_shr:{n}");
        }
        0x121..=0x12f => {
            add!(text, " row_ror:{n}");
        }
        0x140 => text.push_str(" row_mirror"),
        0x141 => text.push_str(" row_half_mirror"),
        0x150..=0x15f => {
            add!(text, " row_share:{n}");
        }
        0x160..=0x16f => {
            add!(text, " row_xmask:{n}");
        }
        _ => {
            add!(text, " /* invalid dpp_ctrl {ctrl:#x} */");
        }
    }
}
