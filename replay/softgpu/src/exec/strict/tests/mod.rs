//! Strict mode on the shipped kernels and on single instructions.

#[path = "../../../../tests/support/mod.rs"]
mod support;
#[path = "../../../../tests/support/launch.rs"]
mod tools;

mod cases;
mod effects;
mod findings;
mod keeper;
mod kernels;
mod listing;
mod noise;
mod order;
mod shapes;
mod speed;
mod spread;
mod waits;
