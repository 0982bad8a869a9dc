//! The one error type of the catalog. Every variant names the kernel or tensor, both values and
//! what to do about them.

use thiserror::Error;

/// What can go wrong when catalog data meets the values of a plan or the bytes of a model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// A kernel was given another number of immediate or argument values than it declares.
    #[error("{symbol} takes {expected} {what}, {given} given; pass them in the row's order")]
    Count {
        /// Kernel symbol.
        symbol: &'static str,
        /// What was counted: "immediates" or "arguments".
        what: &'static str,
        /// Number that the row declares.
        expected: usize,
        /// Number that was passed.
        given: usize,
    },
    /// An argument value has another kind than the row declares.
    #[error("{symbol}: argument {arg} is declared {expected}; pass that kind")]
    Kind {
        /// Kernel symbol.
        symbol: &'static str,
        /// Argument name.
        arg: &'static str,
        /// Declared kind.
        expected: &'static str,
    },
    /// A row names an immediate that its argument list does not hold.
    #[error("{symbol} names the immediate {imm}, which it does not take; correct the catalog row")]
    UnknownImm {
        /// Kernel symbol.
        symbol: &'static str,
        /// The name.
        imm: &'static str,
    },
    /// An immediate violates what the kernel needs.
    #[error("{symbol}: {imm} = {value} but it must be {rule}; choose another kernel or shape")]
    Need {
        /// Kernel symbol.
        symbol: &'static str,
        /// Immediate name.
        imm: &'static str,
        /// Its value.
        value: u64,
        /// The rule, in words.
        rule: String,
    },
    /// An expression left the range of u64 (or a grid the range of u32).
    #[error("{symbol}: {what} overflows; the shape is too large for one launch")]
    Overflow {
        /// Kernel symbol.
        symbol: &'static str,
        /// What was computed.
        what: &'static str,
    },
    /// A tensor's rows do not hold whole blocks of its type.
    #[error("{dtype}: {cols} columns are not a multiple of the block of {block}; use another type")]
    Block {
        /// Element type.
        dtype: &'static str,
        /// Columns of the tensor.
        cols: u64,
        /// Elements per block.
        block: u64,
    },
    /// A tensor's byte count is not what its type and shape say.
    #[error(
        "{dtype} [{rows}][{cols}] holds {expected} bytes, {given} given; check the tensor table"
    )]
    Bytes {
        /// Element type.
        dtype: &'static str,
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
        /// Bytes by type and shape.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// A tensor's size leaves the range of u64.
    #[error("{dtype} [{rows}][{cols}] is larger than 2^64 bytes; check the tensor's dimensions")]
    Size {
        /// Element type.
        dtype: &'static str,
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
    },
    /// A byte is set that the device layout leaves out.
    #[error(
        "{dtype}: byte {offset} is {value} where the format has 0; the file is damaged or of another version, fetch or convert it again"
    )]
    Reserved {
        /// Element type.
        dtype: &'static str,
        /// Offset in the tensor's file bytes.
        offset: u64,
        /// The byte.
        value: u8,
    },
    /// A block in device layout that no file block becomes.
    #[error(
        "{dtype}: block {block} holds parameters that no file can hold; the device bytes were changed, upload them again"
    )]
    NoFileForm {
        /// Element type.
        dtype: &'static str,
        /// Number of the block, through all rows.
        block: u64,
    },
    /// A row that the tensor does not have.
    #[error("{dtype} [{rows}][{cols}] has no row {row}; check the row range")]
    Row {
        /// Element type.
        dtype: &'static str,
        /// The row asked for.
        row: u64,
        /// Rows.
        rows: u64,
        /// Columns.
        cols: u64,
    },
}
