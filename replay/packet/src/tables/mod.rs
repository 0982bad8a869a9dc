//! The tables that encoder, decoder, dump, linter and the generated page share.
//!
//! One row per thing. Nothing here computes a packet: [`crate::pm4`] and [`crate::aql`] write,
//! [`crate::decode`] reads, [`crate::lint`] judges.

pub mod gcr;
pub mod objects;
pub mod opcodes;
pub mod registers;

use crate::target::{GenSet, Generation};

/// A bit field of one 32-bit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Field name as vendor headers spell it.
    pub name: &'static str,
    /// Word index: dword of a packet counted from its header, or 0 for a register.
    pub word: u8,
    /// Highest bit, inclusive.
    pub hi: u8,
    /// Lowest bit, inclusive.
    pub lo: u8,
    /// Generations on which the field exists.
    pub gens: GenSet,
    /// Named values; empty when the value is a number or an address.
    pub values: &'static [(u32, &'static str)],
}

impl Field {
    /// Field on every generation without named values.
    pub const fn new(name: &'static str, word: u8, hi: u8, lo: u8) -> Self {
        Self {
            name,
            word,
            hi,
            lo,
            gens: GenSet::ALL,
            values: &[],
        }
    }

    /// The same field limited to some generations.
    pub const fn on(mut self, gens: GenSet) -> Self {
        self.gens = gens;
        self
    }

    /// The same field with named values.
    pub const fn named(mut self, values: &'static [(u32, &'static str)]) -> Self {
        self.values = values;
        self
    }

    /// Mask of the field inside its word.
    pub const fn mask(&self) -> u32 {
        let width = self.hi - self.lo + 1;
        let ones = if width >= 32 {
            u32::MAX
        } else {
            (1_u32 << width) - 1
        };
        ones << self.lo
    }

    /// The field's value inside `word`.
    pub const fn get(&self, word: u32) -> u32 {
        (word & self.mask()) >> self.lo
    }

    /// `value` moved to the field's position; bits that do not fit are dropped.
    pub const fn put(&self, value: u32) -> u32 {
        (value << self.lo) & self.mask()
    }

    /// The name of `value`, if the table has one.
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values
            .iter()
            .find(|row| row.0 == value)
            .map(|row| row.1)
    }
}

/// Bits of word `word` that no field of `fields` covers on `generation`.
pub fn reserved_mask(fields: &[Field], word: u8, generation: Generation) -> u32 {
    let mut covered = 0;
    for field in fields {
        if field.word == word && field.gens.has(generation) {
            covered |= field.mask();
        }
    }
    !covered
}

/// Bits of word `word` that no field of `fields` covers on any generation.
pub fn reserved_everywhere(fields: &[Field], word: u8) -> u32 {
    let mut covered = 0;
    for field in fields {
        if field.word == word {
            covered |= field.mask();
        }
    }
    !covered
}
