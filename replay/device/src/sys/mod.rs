//! Raw layer: the C types, constants and function tables of HIP and HSA, exactly as the vendor's
//! headers declare them. Nothing here calls anything; the result layer does.

pub mod hip;
pub mod hsa;
pub(crate) mod table;

pub use hip::HipTable;
pub use hsa::HsaTable;

#[cfg(test)]
mod abi;
