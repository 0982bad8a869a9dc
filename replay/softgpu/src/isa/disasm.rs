//! Text of decoded instructions, in the words of llvm-objdump. Only presentation: what an
//! instruction does is in `exec`.

use super::decode::{Dpp, Inst, decode, only_short};
use super::op::Op;
use super::operand::{NULL, is_vgpr, name};
use super::row::{Format, Row};
use super::shape::Ty;
use super::{Generation, IsaError, Target};
use std::fmt::Write;

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Guest address of the instruction.
    pub address: u64,
    /// Its length in dwords; 1 for words that do not decode.
    pub dwords: usize,
    /// The instruction in LLVM's syntax, or why the word is none.
    pub text: Result<String, IsaError>,
}

/// Lists `code`, which is mapped at `address`, from the first to the last word.
pub fn disassemble(target: Target, address: u64, code: &[u8]) -> Result<Vec<Line>, IsaError> {
    if !code.len().is_multiple_of(4) {
        return Err(IsaError::Length { len: code.len() });
    }
    let words: Vec<u32> = words_of(code);
    let mut lines = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let address = address.wrapping_add(at as u64 * 4);
        let rest = &words[at..];
        let (dwords, text) = match decode(target, rest) {
            Ok(inst) => (usize::from(inst.dwords), Ok(render(target, &inst))),
            Err(reason) => {
                let words = rest.iter().copied().take(3).collect();
                (
                    1,
                    Err(IsaError::Instruction {
                        target,
                        address,
                        words,
                        reason,
                    }),
                )
            }
        };
        lines.push(Line {
            address,
            dwords,
            text,
        });
        at += dwords;
    }
    Ok(lines)
}

/// The little-endian words of a whole number of dwords.
pub(crate) fn words_of(code: &[u8]) -> Vec<u32> {
    code.as_chunks::<4>()
        .0
        .iter()
        .map(|b| u32::from_le_bytes(*b))
        .collect()
}

/// The text of one instruction.
pub(crate) fn render(target: Target, inst: &Inst) -> String {
    let mut text = String::from(inst.row.mnemonic);
    text.push_str(suffix(inst));
    match inst.format {
        Format::Sopp => sopp(&mut text, inst),
        Format::Sopk => sopk(&mut text, inst),
        Format::Smem => smem(&mut text, target, inst),
        Format::Ds => ds(&mut text, inst),
        Format::Flat | Format::Global | Format::Scratch => global(&mut text, target, inst),
        Format::Mubuf => {}
        Format::Vopd => vopd(&mut text, inst),
        Format::Sop1 | Format::Sop2 | Format::Sopc => scalar(&mut text, inst),
        _ => vector(&mut text, inst),
    }
    text
}

/// Appends comma-separated operands.
fn list(text: &mut String, operands: &[String]) {
    for (k, operand) in operands.iter().enumerate() {
        text.push_str(if k == 0 { " " } else { ", " });
        text.push_str(operand);
    }
}

macro_rules! add {
    ($text:expr, $($arg:tt)*) => {
        // Writing to a String cannot fail.
        let _ = write!($text, $($arg)*);
    };
}

fn suffix(inst: &Inst) -> &'static str {
    let only_one = only_short(inst.row.op) || inst.row.op == Op::VNop;
    let short_row = matches!(inst.row.format, Format::Vop1 | Format::Vop2 | Format::Vopc);
    let dpp = inst.dpp != Dpp::None;
    match inst.format {
        _ if only_one => "",
        Format::Vopc if dpp => "",
        Format::Vop1 | Format::Vop2 if dpp => "_dpp",
        Format::Vop1 | Format::Vop2 | Format::Vopc => "_e32",
        Format::Vop3 | Format::Vop3sd if dpp => "_e64_dpp",
        Format::Vop3p if dpp => "_dpp",
        Format::Vop3 | Format::Vop3sd if short_row => "_e64",
        _ => "",
    }
}

fn source(inst: &Inst, row: &Row, src: [u16; 3], k: usize) -> String {
    let ty = row.shape.src[k];
    // A 16-bit operand uses the low half of a literal.
    let half = matches!(ty, Ty::F16 | Ty::B16);
    let literal = if half {
        inst.literal & 0xffff
    } else {
        inst.literal
    };
    name(src[k], ty.regs(), literal)
}

fn scalar(text: &mut String, inst: &Inst) {
    let shape = &inst.row.shape;
    let mut operands = Vec::new();
    if shape.dst != Ty::None {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    operands.extend((0..shape.sources()).map(|k| source(inst, inst.row, inst.src, k)));
    list(text, &operands);
}

fn sopk(text: &mut String, inst: &Inst) {
    let register = match inst.row.shape.dst {
        Ty::None if inst.row.shape.src[0] == Ty::Imm16 => None,
        Ty::None => Some(name(inst.src[0], 1, 0)),
        ty => Some(name(inst.dst, ty.regs(), 0)),
    };
    let imm = match inst.row.op {
        Op::SCallB64 => (inst.imm as u16).to_string(),
        _ => format!("{:#x}", inst.imm as u16),
    };
    list(text, &register.into_iter().chain([imm]).collect::<Vec<_>>());
}

fn sopp(text: &mut String, inst: &Inst) {
    let imm = inst.imm as u16;
    match (inst.row.op, inst.row.mnemonic) {
        (_, "s_delay_alu") => delay_alu(text, imm),
        (_, "s_waitcnt") => waitcnt(text, imm),
        (Op::SSendmsg, _) => match imm & 0xff {
            3 => text.push_str(" sendmsg(MSG_DEALLOC_VGPRS)"),
            1 => text.push_str(" sendmsg(MSG_INTERRUPT)"),
            _ => {
                add!(text, " {imm}");
            }
        },
        (Op::SEndpgm, _) if imm == 0 => {}
        (Op::SBarrier | Op::SCodeEnd, _) | (_, "s_icache_inv" | "s_wait_idle") => {}
        (
            Op::SBranch
            | Op::SCbranchScc0
            | Op::SCbranchScc1
            | Op::SCbranchVccz
            | Op::SCbranchVccnz
            | Op::SCbranchExecz
            | Op::SCbranchExecnz
            | Op::STrap
            | Op::SEndpgm,
            _,
        )
        | (_, "s_sleep" | "s_setprio") => {
            add!(text, " {imm}");
        }
        (Op::SDenormMode | Op::SBarrierWait, _) | (_, "s_nop") if imm <= 64 => {
            add!(text, " {imm}");
        }
        _ => {
            add!(text, " {imm:#x}");
        }
    }
}

/// Field layout: LLVM AMDGPUUsage, `s_delay_alu`.
fn delay_alu(text: &mut String, imm: u16) {
    const ID: [&str; 12] = [
        "NO_DEP",
        "VALU_DEP_1",
        "VALU_DEP_2",
        "VALU_DEP_3",
        "VALU_DEP_4",
        "TRANS32_DEP_1",
        "TRANS32_DEP_2",
        "TRANS32_DEP_3",
        "FMA_ACCUM_CYCLE_1",
        "SALU_CYCLE_1",
        "SALU_CYCLE_2",
        "SALU_CYCLE_3",
    ];
    const SKIP: [&str; 6] = ["SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4"];
    let fields = [
        ("instid0", imm & 15, &ID[..], "/* invalid instid value */"),
        (
            "instskip",
            imm >> 4 & 7,
            &SKIP[..],
            "/* invalid instskip value */",
        ),
        (
            "instid1",
            imm >> 7 & 15,
            &ID[..],
            "/* invalid instid value */",
        ),
    ];
    let mut lead = " ";
    for (field, value, names, invalid) in fields {
        if value != 0 {
            let shown = names.get(usize::from(value)).unwrap_or(&invalid);
            add!(text, "{lead}{field}({shown})");
            lead = " | ";
        }
    }
    if lead == " " {
        text.push_str(" 0");
    }
}

/// gfx11 layout: vmcnt [15:10], lgkmcnt [9:4], expcnt [2:0]; full fields wait for nothing.
fn waitcnt(text: &mut String, imm: u16) {
    let fields = [
        ("vmcnt", imm >> 10, 63),
        ("expcnt", imm & 7, 7),
        ("lgkmcnt", imm >> 4 & 63, 63),
    ];
    let all = fields.iter().all(|(_, v, full)| v == full);
    for (field, value, full) in fields {
        if all || value != full {
            add!(text, " {field}({value})");
        }
    }
}

fn smem(text: &mut String, target: Target, inst: &Inst) {
    if !matches!(inst.row.op, Op::SLoad(_)) {
        return;
    }
    let regs = inst.row.shape.dst.regs();
    let gfx12 = target.generation() == Generation::Gfx12;
    let imm = match inst.imm {
        i if i < 0 => format!("-{:#x}", i.unsigned_abs()),
        i => format!("{i:#x}"),
    };
    let offset = match (inst.saddr, inst.imm) {
        (NULL, 0) if !gfx12 => "null".to_owned(),
        (NULL, _) => imm,
        (s, 0) => format!("{} offset:0x0", name(s, 1, 0)),
        (s, _) => format!("{} offset:{imm}", name(s, 1, 0)),
    };
    let offset = match (gfx12, offset.strip_suffix(" offset:0x0")) {
        (false, Some(bare)) => bare.to_owned(),
        _ => offset,
    };
    list(
        text,
        &[name(inst.dst, regs, 0), name(inst.src[0], 2, 0), offset],
    );
    if gfx12 {
        cache12(text, inst.cache, "LOAD");
    } else {
        cache11(text, inst.cache);
    }
}

fn cache11(text: &mut String, bits: u8) {
    for (bit, word) in [(1, " glc"), (2, " slc"), (4, " dlc")] {
        if bits & bit != 0 {
            text.push_str(word);
        }
    }
}

/// Temporal hint and scope of gfx12 (LLVM AMDGPUUsage, memory model gfx12).
fn cache12(text: &mut String, bits: u8, kind: &str) {
    let (scope, hint) = (bits & 3, bits >> 2);
    let hint = match (kind, hint) {
        (_, 0) => None,
        ("ATOMIC", 1) => Some("RETURN"),
        ("ATOMIC", 2) => Some("NT"),
        ("ATOMIC", 3) => Some("NT_RETURN"),
        (_, 1) => Some("NT"),
        (_, 2) => Some("HT"),
        ("LOAD", 3) if scope == 3 => Some("BYPASS"),
        ("STORE", 3) if scope == 3 => Some("BYPASS"),
        ("LOAD", 3) => Some("LU"),
        ("STORE", 3) => Some("RT_WB"),
        (_, 4) => Some("NT_RT"),
        (_, 5) => Some("RT_NT"),
        (_, 6) => Some("NT_HT"),
        _ => Some("NT_WB"),
    };
    if let Some(hint) = hint {
        add!(text, " th:TH_{kind}_{hint}");
    }
    if scope != 0 {
        let scope = ["CU", "SE", "DEV", "SYS"][usize::from(scope)];
        add!(text, " scope:SCOPE_{scope}");
    }
}

fn ds(text: &mut String, inst: &Inst) {
    let shape = &inst.row.shape;
    let mut operands = Vec::new();
    if shape.dst != Ty::None {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    operands.extend((0..shape.sources()).map(|k| source(inst, inst.row, inst.src, k)));
    list(text, &operands);
    match inst.row.op {
        Op::DsLoad2(..) | Op::DsStore2(..) => {
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

fn global(text: &mut String, target: Target, inst: &Inst) {
    let gfx12 = target.generation() == Generation::Gfx12;
    let (kind, returns) = match inst.row.op {
        Op::GLoad(_) => ("LOAD", true),
        Op::GStore(_) => ("STORE", false),
        Op::GAtomic(..) if gfx12 => ("ATOMIC", inst.cache >> 2 & 1 == 1),
        Op::GAtomic(..) => ("ATOMIC", inst.cache & 1 == 1),
        _ => ("", false),
    };
    if !kind.is_empty() {
        let shape = &inst.row.shape;
        let mut operands = Vec::new();
        if returns {
            operands.push(name(inst.dst, shape.dst.regs(), 0));
        }
        operands.push(name(inst.src[0], 2 - u32::from(inst.scalar_address()), 0));
        if kind != "LOAD" {
            operands.push(name(inst.src[1], shape.src[1].regs(), 0));
        }
        operands.push(match inst.saddr {
            NULL => "off".to_owned(),
            s => name(s, 2, 0),
        });
        list(text, &operands);
        if inst.imm != 0 {
            add!(text, " offset:{}", inst.imm);
        }
    }
    if gfx12 {
        cache12(text, inst.cache, kind);
    } else {
        cache11(text, inst.cache);
    }
}

fn vopd(text: &mut String, inst: &Inst) {
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

fn vector(text: &mut String, inst: &Inst) {
    let shape = &inst.row.shape;
    let mut operands = Vec::new();
    if shape.dst != Ty::None && !matches!(inst.row.op, Op::VCmpx(..)) {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    let carries = inst.row.format == Format::Vop2 && shape.src[2] == Ty::Mask;
    if inst.format == Format::Vop3sd || (carries && inst.row.op != Op::VCndmaskB32) {
        operands.push(name(inst.sdst, 1, 0));
    }
    operands.extend((0..shape.sources()).map(|k| vector_source(inst, k)));
    if inst.row.op == Op::VSwapB32 || inst.row.op == Op::VNop {
        operands.truncate(2);
    }
    list(text, &operands);
    if inst.format == Format::Vop3p {
        packed_modifiers(text, inst);
    } else {
        op_sel(text, inst);
    }
    if inst.mods.clamp {
        text.push_str(" clamp");
    }
    text.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(inst.mods.omod & 3)]);
    dpp(text, inst);
}

fn vector_source(inst: &Inst, k: usize) -> String {
    let text = source(inst, inst.row, inst.src, k);
    let ty = inst.row.shape.src[k];
    let signed = ty == Ty::Mix || (ty.is_float() && inst.format != Format::Vop3p);
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

fn op_sel(text: &mut String, inst: &Inst) {
    if inst.mods.opsel == 0 {
        return;
    }
    if matches!(inst.row.op, Op::VPermlane16B32 | Op::VPermlanex16B32) {
        bit_list(text, "op_sel", inst.mods.opsel, 2);
        return;
    }
    let n = inst.row.shape.sources();
    let bits = inst.mods.opsel & ((1 << n) - 1) | (inst.mods.opsel >> 3 << n);
    bit_list(text, "op_sel", bits, n + 1);
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
