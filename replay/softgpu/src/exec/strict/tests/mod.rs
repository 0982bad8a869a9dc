//! Strict mode on the shipped kernels and on single instructions.

#[path = "../../../../tests/support/mod.rs"]
mod support;

mod cases;
mod effects;
mod kernels;
mod keeper;
mod speed;
mod waits;
