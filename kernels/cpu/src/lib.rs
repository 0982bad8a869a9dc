//! The CPU engine's room: quant codecs and GEMV over quantised rows, scalar and SIMD.
//!
//! Nothing executes here yet: fully resident plans have no CPU step, and the planner makes no other.
//! When CPU and split steps arrive, this crate owns their arithmetic (one codec per format, one
//! written summation order per engine, the instruction set chosen at run time and never part of
//! identity) and leaves to others when a step runs (`refrain-replay`) and where its bytes live
//! (`refrain-planner`). It is one of the three crates that may use `unsafe`, for SIMD intrinsics.
