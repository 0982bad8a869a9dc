//! Why a decode step cannot be loaded or run on the CPU.

use refrain_kernels::CatalogError;
use thiserror::Error;

use crate::CpuError;

/// Why a launch cannot be prepared or executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The operation has no CPU function.
    #[error(
        "{symbol}: operation {op} has no CPU function; run this plan on another device, or plan without it"
    )]
    NoFunction {
        /// Kernel.
        symbol: &'static str,
        /// Operation, with the form of its activation where that is what is missing.
        op: String,
    },
    /// Kernel arguments of another length.
    #[error(
        "{symbol}: {given} bytes of kernel arguments where the catalog has {expected}; plan again"
    )]
    Kernarg {
        /// Kernel.
        symbol: &'static str,
        /// Bytes of the row.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// Immediates that the row does not admit, or spans that overflow.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A pointer argument whose bytes are not all in one buffer.
    #[error(
        "{symbol}, {arg}: bytes {start:#x}..{end:#x} from address {address:#x} are not in one buffer; plan again"
    )]
    Address {
        /// Kernel.
        symbol: &'static str,
        /// Argument.
        arg: &'static str,
        /// Its address.
        address: u64,
        /// First byte from there.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// Two arguments are the same bytes, and the catalog does not allow it.
    #[error("{symbol}: {first} and {second} overlap, which the catalog does not allow; plan again")]
    Overlap {
        /// Kernel.
        symbol: &'static str,
        /// One argument.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// An argument that is not aligned for its elements.
    #[error("{symbol}, {arg}: byte {at} of its buffer is not a multiple of {align}; plan again")]
    Align {
        /// Kernel.
        symbol: &'static str,
        /// Argument.
        arg: &'static str,
        /// Byte in the buffer.
        at: usize,
        /// Multiple that is needed.
        align: usize,
    },
    /// Elements past the end of an argument, as a word of the control block that is out of bounds makes.
    #[error(
        "{symbol}, {arg}: bytes {start}..{end} of an argument that has {first}..{last}; check prompt and position"
    )]
    Bounds {
        /// Kernel.
        symbol: &'static str,
        /// Argument.
        arg: &'static str,
        /// First byte needed.
        start: usize,
        /// One past the last.
        end: usize,
        /// First byte that is there.
        first: usize,
        /// One past the last that is there.
        last: usize,
    },
    /// The function asks for an argument that the row does not have.
    #[error("{symbol}: no argument {arg}; the catalog and the CPU function disagree")]
    NoArgument {
        /// Kernel.
        symbol: &'static str,
        /// Argument.
        arg: &'static str,
    },
    /// A product was refused.
    #[error("{symbol}: {source}")]
    Engine {
        /// Kernel.
        symbol: &'static str,
        /// Why.
        source: CpuError,
    },
    /// The engine refused: no memory for a buffer, no thread, or a product that does not fit.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// Bytes past the end of a buffer.
    #[error("bytes {offset}..{end} of buffer {buffer}, which has {bytes}")]
    Buffer {
        /// Which buffer.
        buffer: usize,
        /// First byte.
        offset: u64,
        /// One past the last.
        end: u64,
        /// Bytes of the buffer, 0 where there is no such buffer.
        bytes: u64,
    },
}
