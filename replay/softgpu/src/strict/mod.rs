//! Strict mode: what a replay must not rely on, made visible while real code objects run.
//!
//! [`hook`] is the seam: the strict executor (`exec::strict`) tells a [`hook::Watch`] about every
//! access of a wave, and asks it which bytes were never written. What stands behind the seam keeps
//! the order of launches, the caches, the bytes that each launch touched and the reports. Order is
//! judged by happens-before, never by what one interleaving happened to do.

mod bits;
mod caches;
mod clock;
pub(crate) mod hook;
mod ranges;
mod shadow;
mod touch;
#[cfg(test)]
mod touch_tests;
