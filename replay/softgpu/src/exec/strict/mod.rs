//! Strict mode: the same instructions on one deterministic scheduler thread, with a look at every
//! register before it is used and at every access of a wave.
//!
//! [`run_strict`] interleaves time slices of the waves of several work-groups of several launches,
//! as the seed decides. Per wave, `track` knows which registers are undefined and which a memory
//! instruction in flight will still write; the common case, that an instruction touches neither, is
//! one test of two bit sets. What a wave does to memory goes to a [`Watch`]; findings of the wave
//! side (`poison`, `counters`, `shadow`, barriers) go there too. Findings never stop a wave, faults
//! do, with the errors of the fast path.

mod code;
mod counters;
mod effects;
mod flat;
mod group;
mod lds;
mod memory;
mod poison;
mod regs;
mod schedule;
mod shadow;
#[cfg(test)]
mod tests;
mod track;
mod turn;

pub(crate) use code::Code;
pub(crate) use schedule::run_strict;
