//! Text of scalar instructions.

use super::fields::{delay_alu, depctr, hardware_register, message, version, waitcnt};
use super::{list, source};
use crate::isa::Target;
use crate::isa::decode::Inst;
use crate::isa::op::Op;
use crate::isa::operand::name;
use crate::isa::shape::Ty;
use std::fmt::Write;

pub(super) fn scalar(text: &mut String, target: Target, inst: &Inst) {
    let shape = &inst.row.shape;
    let mut operands = Vec::new();
    if shape.dst != Ty::None {
        operands.push(name(inst.dst, shape.dst.regs(), 0));
    }
    if let Op::SSendmsgRtn(_) = inst.row.op {
        operands.push(message(target.generation(), inst.imm as u16));
    } else {
        operands.extend((0..shape.sources()).map(|k| source(inst, inst.row, inst.src, k)));
    }
    list(text, &operands);
}

pub(super) fn sopk(text: &mut String, target: Target, inst: &Inst) {
    let generation = target.generation();
    let imm = inst.imm as u16;
    let source = || name(inst.src[0], 1, 0);
    let register = || hardware_register(generation, imm);
    let operands = match inst.row.op {
        Op::SGetregB32 => vec![name(inst.dst, 1, 0), register()],
        Op::SSetregB32 => vec![register(), source()],
        Op::SSetregImm32B32 => vec![register(), constant(inst.literal)],
        Op::SCallB64 => vec![name(inst.dst, 2, 0), imm.to_string()],
        Op::Refused(_) => vec![name(inst.dst, 1, 0), imm.to_string()],
        Op::SNop => return version(text, imm),
        _ if inst.row.shape.dst == Ty::None => vec![source(), format!("{imm:#x}")],
        _ => {
            let regs = inst.row.shape.dst.regs();
            vec![name(inst.dst, regs, 0), format!("{imm:#x}")]
        }
    };
    list(text, &operands);
}

/// A 32-bit constant: LLVM prints what an inline constant could hold as such.
fn constant(word: u32) -> String {
    let inline = (128..=248)
        .find(|&code| crate::isa::operand::inline_constant(code, Ty::F32) == Some(u64::from(word)));
    inline.map_or_else(|| format!("{word:#x}"), |code| name(code, 1, 0))
}

/// How the immediate of a SOPP instruction is printed.
#[derive(Clone, Copy)]
enum Style {
    /// Not at all; such an instruction has none.
    None,
    /// In decimal, zero not at all.
    Optional,
    Decimal,
    /// In decimal as far as an inline constant reaches, in hexadecimal from there on.
    Inline,
    Message,
    Delay,
    Wait,
    Depctr,
}

/// Everything that is not plainly hexadecimal.
const STYLES: [(&str, Style); 37] = [
    ("s_barrier", Style::None),
    ("s_barrier_leave", Style::None),
    ("s_code_end", Style::None),
    ("s_endpgm_saved", Style::None),
    ("s_endpgm_ordered_ps_done", Style::None),
    ("s_icache_inv", Style::None),
    ("s_ttracedata", Style::None),
    ("s_wait_idle", Style::None),
    ("s_wakeup", Style::None),
    ("s_endpgm", Style::Optional),
    ("s_branch", Style::Decimal),
    ("s_cbranch_cdbgsys", Style::Decimal),
    ("s_cbranch_cdbgsys_and_user", Style::Decimal),
    ("s_cbranch_cdbgsys_or_user", Style::Decimal),
    ("s_cbranch_cdbguser", Style::Decimal),
    ("s_cbranch_execnz", Style::Decimal),
    ("s_cbranch_execz", Style::Decimal),
    ("s_cbranch_scc0", Style::Decimal),
    ("s_cbranch_scc1", Style::Decimal),
    ("s_cbranch_vccnz", Style::Decimal),
    ("s_cbranch_vccz", Style::Decimal),
    ("s_barrier_wait", Style::Inline),
    ("s_decperflevel", Style::Inline),
    ("s_denorm_mode", Style::Inline),
    ("s_incperflevel", Style::Inline),
    ("s_nop", Style::Inline),
    ("s_sethalt", Style::Inline),
    ("s_setkill", Style::Inline),
    ("s_setprio", Style::Inline),
    ("s_sleep", Style::Inline),
    ("s_trap", Style::Inline),
    ("s_sendmsg", Style::Message),
    ("s_sendmsghalt", Style::Message),
    ("s_delay_alu", Style::Delay),
    ("s_waitcnt", Style::Wait),
    ("s_wait_alu", Style::Depctr),
    ("s_waitcnt_depctr", Style::Depctr),
];

pub(super) fn sopp(text: &mut String, target: Target, inst: &Inst) {
    let imm = inst.imm as u16;
    let style = STYLES.iter().find(|(m, _)| *m == inst.row.mnemonic);
    match style.map(|(_, style)| *style) {
        Some(Style::None) => {}
        Some(Style::Optional) if imm == 0 => {}
        Some(Style::Optional | Style::Decimal) => {
            add!(text, " {imm}");
        }
        Some(Style::Inline) if imm <= 64 => {
            add!(text, " {imm}");
        }
        Some(Style::Message) => {
            add!(text, " {}", message(target.generation(), imm));
        }
        Some(Style::Delay) => delay_alu(text, imm),
        Some(Style::Wait) => waitcnt(text, imm),
        Some(Style::Depctr) => depctr(text, imm),
        Some(Style::Inline) | None => {
            add!(text, " {imm:#x}");
        }
    }
}
