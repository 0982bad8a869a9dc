//! Bad input, seeded: code objects, descriptors, machine code, rings and indirect buffers that nobody
//! wrote on purpose. Every one of them is refused with a typed error or runs to its end within the
//! instruction budget; none panics, hangs, or touches memory that is not the guest's.
//!
//! A few thousand inputs per surface; 200,000 with `REFRAIN_LONG=1` (continuous integration runs
//! those optimised). Input `i` of a surface is decided by `i` (but for the addresses
//! in it), and a failure names it, so it can be run alone: `REFRAIN_FUZZ_ONLY=i`.

#[cfg(test)]
mod code;
#[cfg(test)]
mod mutate;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod packets;
