//! The CPU engine: GEMV over weights in their device layout, the same bytes that the GPU reads.
//!
//! [`gemv_exact`] sums in the GPU's own order. When a step runs is the recorder's and replay's to say,
//! where its bytes lie the planner's. It is one of the three crates that may use `unsafe`, for SIMD
//! intrinsics.

mod exact;

pub use exact::gemv_exact;
