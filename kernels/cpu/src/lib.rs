//! The CPU engine: rows of weights times an activation, in the layouts and formats of
//! `refrain_kernels::format`.
//!
//! Two arithmetics, each with one written order, so that a result depends neither on the instruction
//! set ([`Isa`], chosen at run time and never part of identity) nor on threads nor on how rows are split:
//! [`exact`] multiplies f32 activations with decoded weights, bit-equal with the GPU kernels; [`int8`]
//! multiplies int8 activations with codes, exactly in integers, and scales the sums.
//!
//! Left to others: when a step runs (`refrain-replay`), where its bytes live (`refrain-planner`), and
//! what a format is (`refrain-kernels`). This is one of the three crates that may use `unsafe`: for
//! SIMD intrinsics.

pub mod decode;
mod engine;
mod error;
pub mod exact;
pub mod int8;
mod isa;
mod matrix;
mod memory;
mod pool;

pub use engine::Engine;
pub use error::CpuError;
pub use exact::gemv_exact;
pub use isa::Isa;
pub use matrix::Matrix;
pub use memory::Bytes;
pub use pool::Pool;
