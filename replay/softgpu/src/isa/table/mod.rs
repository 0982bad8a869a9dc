//! The instruction sets of RDNA3 (gfx11; RDNA3.5 adds the `scalar_float` rows) and RDNA4 (gfx12) as
//! one table: a row is an instruction, its opcode number in each set is a column. Decoder,
//! disassembler, executor and `docs/isa-coverage.md` expand from these rows.
//!
//! Opcode numbers are those of AMD's ISA documents and agree with LLVM's encodings and with the
//! enums of a third project (tested); mnemonics are LLVM's. Columns: sets and opcode, mnemonic,
//! operand types (`isa::shape`), semantics. What an operation computes is defined in `exec`.

mod compare;
mod long;
mod memory;
mod scalar;
mod vector;

use super::row::Row;

/// All rows of both sets, in the order in which they are documented.
pub(super) const PARTS: [&[Row]; 5] = [
    scalar::ROWS,
    vector::ROWS,
    compare::ROWS,
    long::ROWS,
    memory::ROWS,
];
