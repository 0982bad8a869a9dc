//! Strict mode on the shipped kernels and on single instructions.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod cases;
mod effects;
mod keeper;
mod kernels;
mod speed;
mod waits;
