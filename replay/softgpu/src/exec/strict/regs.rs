//! Sets of registers: 256 vector registers and 128 scalar ones, as bits. The scalar code of NULL,
//! which holds nothing, stands for SCC.

use crate::isa::operand::{NULL, SCC, VGPR};

/// Words of a set.
const WORDS: usize = 6;

/// A set of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RegSet([u64; WORDS]);

/// Number of an operand code in a set; `None` for constants and NULL.
pub(super) const fn number(code: u16) -> Option<u16> {
    match code {
        SCC => Some(256 + NULL),
        NULL => None,
        0..128 => Some(256 + code),
        VGPR..512 => Some(code - VGPR),
        _ => None,
    }
}

/// Operand code of a register number.
pub(super) const fn code(number: u16) -> u16 {
    match number {
        0..256 => VGPR + number,
        _ if number == 256 + NULL => SCC,
        _ => number - 256,
    }
}

impl RegSet {
    pub(super) const EMPTY: Self = Self([0; WORDS]);
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(super) fn insert(&mut self, number: u16) {
        if let Some(word) = self.0.get_mut(usize::from(number / 64)) {
            *word |= 1 << (number % 64);
        }
    }

    pub(super) fn remove(&mut self, number: u16) {
        if let Some(word) = self.0.get_mut(usize::from(number / 64)) {
            *word &= !(1 << (number % 64));
        }
    }

    pub(super) fn contains(&self, number: u16) -> bool {
        self.0
            .get(usize::from(number / 64))
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds `regs` registers from an operand code.
    pub(super) fn insert_operand(&mut self, code: u16, regs: u32) {
        let Some(first) = number(code) else { return };
        for k in 0..regs as u16 {
            self.insert(first + k);
        }
    }

    #[inline(always)]
    pub(super) fn meets(&self, other: &Self) -> bool {
        let mut common = 0;
        for (a, b) in self.0.iter().zip(other.0) {
            common |= a & b;
        }
        common != 0
    }

    #[inline(always)]
    pub(super) fn union(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// The lowest register.
    pub(super) fn first(&self) -> Option<u16> {
        let word = self.0.iter().position(|w| *w != 0)?;
        Some(word as u16 * 64 + self.0[word].trailing_zeros() as u16)
    }
}
