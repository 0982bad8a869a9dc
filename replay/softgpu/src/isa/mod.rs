//! The instruction sets as one table: a row per instruction with its opcode in each set; decoder,
//! disassembler, executor and the coverage page all expand from those rows. Nothing here executes.

mod absent;
pub mod coverage;
mod decode;
mod disasm;
pub(crate) mod op;
pub(crate) mod operand;
mod row;
pub(crate) mod shape;
mod table;
mod target;

pub use absent::{ABSENT, Absent, FAMILIES, Family};
pub use decode::DecodeError;
#[cfg(test)]
pub(crate) use decode::Half;
pub(crate) use decode::{Dpp, Inst, Mods, decode};
pub(crate) use disasm::words_of;
pub use disasm::{Line, Syntax, disassemble, disassemble_as};
pub use row::Format;
pub(crate) use row::{Row, table};
pub use target::{Generation, Target};

/// Machine code that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// Code is not a whole number of dwords.
    #[error(
        "code of {len} bytes is not a whole number of dwords; pass the .text section unchanged"
    )]
    Length {
        /// Bytes given.
        len: usize,
    },
    /// More code than a branch can address.
    #[error("code of {len} bytes is more than {max}; split the code object")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Largest size accepted, in bytes.
        max: usize,
    },
    /// Words that are no instruction of this target.
    #[error(
        "{target} at {address:#x}: words {words:08x?}: {reason}; either this is no code, or the table of the target needs a row"
    )]
    Instruction {
        /// The target whose table was used.
        target: Target,
        /// Guest address of the first word.
        address: u64,
        /// Up to three words from there.
        words: Vec<u32>,
        /// Why they do not decode.
        reason: DecodeError,
    },
}

/// Every mnemonic of a target with its format and opcode, in table order.
pub fn opcodes(target: Target) -> impl Iterator<Item = (Format, u16, &'static str)> {
    let generation = target.generation();
    table(generation)
        .iter()
        .filter(move |r| !r.scalar_float || target.has_scalar_float())
        .filter_map(move |r| Some((r.format, r.opcode(generation)?, r.mnemonic)))
}
