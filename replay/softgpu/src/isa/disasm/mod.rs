//! Text of decoded instructions, in the words of llvm-objdump 19. Only presentation: what an
//! instruction does is in `exec`.

macro_rules! add {
    ($text:expr, $($arg:tt)*) => {
        // Writing to a String cannot fail.
        let _ = write!($text, $($arg)*);
    };
}

mod fields;
mod memory;
mod scalar;
mod vector;

use super::decode::{Inst, decode};
use super::op::Op;
use super::operand::name;
use super::row::{Format, Row};
use super::shape::Ty;
use super::{IsaError, Target};

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

/// How halves of registers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// As LLVM 19 does: registers by number, halves by `op_sel`. Short encodings that name a high half,
    /// which LLVM 19 cannot print, are written as in the other syntax.
    OpSel,
    /// As LLVM 20 and later do for gfx11: `v1.l` and `v1.h`, and `op_sel` beside them.
    True16,
}

/// Lists `code`, which is mapped at `address`, from the first to the last word, in LLVM 19's words.
pub fn disassemble(target: Target, address: u64, code: &[u8]) -> Result<Vec<Line>, IsaError> {
    disassemble_as(Syntax::OpSel, target, address, code)
}

/// Lists `code` in a syntax of choice.
pub fn disassemble_as(
    syntax: Syntax,
    target: Target,
    address: u64,
    code: &[u8],
) -> Result<Vec<Line>, IsaError> {
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
            Ok(inst) => (usize::from(inst.dwords), Ok(render(syntax, target, &inst))),
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
fn render(syntax: Syntax, target: Target, inst: &Inst) -> String {
    let mut text = String::from(inst.row.mnemonic);
    text.push_str(vector::suffix(inst));
    match inst.format {
        Format::Sopp => scalar::sopp(&mut text, target, inst),
        Format::Sopk => scalar::sopk(&mut text, target, inst),
        Format::Smem => memory::smem(&mut text, target, inst),
        Format::Ds => memory::ds(&mut text, inst),
        Format::Flat | Format::Global | Format::Scratch => memory::flat(&mut text, target, inst),
        Format::Mubuf => {}
        Format::Vopd => vector::vopd(&mut text, inst),
        Format::Sop1 | Format::Sop2 | Format::Sopc => scalar::scalar(&mut text, target, inst),
        _ => vector::vector(&mut text, syntax, inst),
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

/// Text of source `k`, without modifiers.
fn source(inst: &Inst, row: &Row, src: [u16; 3], k: usize) -> String {
    let ty = row.shape.src[k];
    // A 16-bit operand uses the low half of a literal. LLVM prints all of it in SOP1,
    // as the constant of FMAAK and FMAMK, and where the operand is a pair of bytes.
    let whole = match (row.op, row.format) {
        (_, Format::Sop1) => true,
        (Op::VFmamkF16, _) => k == 1,
        (Op::VFmaakF16, _) => k == 2,
        (Op::VCvtPkF32Fp8 | Op::VCvtPkF32Bf8, _) => true,
        _ => false,
    };
    let half = ty.is_half() || ty == Ty::Mix;
    let literal = if half && !whole {
        inst.literal & 0xffff
    } else {
        inst.literal
    };
    name(src[k], ty.regs(), literal)
}
