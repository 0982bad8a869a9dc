//! An activation as integer products read it: the codes of its buffer, scales and sums widened once.

use refrain_kernels::{CatalogError, Habit};

use crate::CpuError;
use crate::exact::half;

/// Codes of 32 elements.
pub(crate) type Group = [[u8; 4]; 8];

/// A checked view of a quantised activation (`refrain_kernels::quantise`, or the GPU's), with its scales
/// in f32 and the sums of its codes. Made once per vector and read by all rows and threads.
#[derive(Clone, Debug)]
pub struct Activation<'a> {
    habit: Habit,
    /// Codes, in words of four, eight to a group.
    groups: &'a [Group],
    /// Scale per block of the habit.
    d: Vec<f32>,
    /// s of Q8_1 per 32 elements; empty otherwise.
    s: Vec<f32>,
    /// Sums of the codes of both halves of a group.
    halves: Vec<[i32; 2]>,
    /// Sum of the codes of a group.
    sums: Vec<i32>,
}

impl<'a> Activation<'a> {
    /// A view of exactly the buffer of an activation of `k` elements.
    ///
    /// # Errors
    /// [`CpuError::Catalog`] if `k` is not a multiple of the habit's block or `bytes` has another length;
    /// [`CpuError::Code`] if a code is -128, which no quantiser makes.
    pub fn new(habit: Habit, bytes: &'a [u8], k: usize) -> Result<Self, CpuError> {
        let expected = habit.bytes(k)?;
        if bytes.len() != expected {
            return Err(CpuError::Catalog(CatalogError::Bytes {
                dtype: habit.name(),
                rows: 1,
                cols: k as u64,
                expected: expected as u64,
                given: bytes.len() as u64,
            }));
        }
        let (codes, rest) = bytes.split_at(habit.scales_at(k));
        let (scales, sums) = rest.split_at(habit.sums_at(k) - k);
        if let Some(at) = codes.iter().position(|code| *code == 0x80) {
            return Err(CpuError::Code { at });
        }
        let halves = |bytes: &[u8]| -> Vec<f32> {
            let (halves, _) = bytes.as_chunks::<2>();
            let wide = |bytes: &[u8; 2]| half(u16::from_le_bytes(*bytes));
            halves.iter().map(wide).collect()
        };
        let (d, s) = match habit {
            Habit::Q8_0 => (halves(scales), Vec::new()),
            Habit::Q8_1 => (halves(scales), halves(sums)),
            Habit::Q8_K => {
                let (singles, _) = scales.as_chunks::<4>();
                let d = singles.iter().map(|bytes| f32::from_le_bytes(*bytes));
                (d.collect(), Vec::new())
            }
        };
        let sum = |half: &[u8; 16]| half.iter().map(|code| i32::from(code.cast_signed())).sum();
        let halves: Vec<i32> = codes.as_chunks::<16>().0.iter().map(sum).collect();
        let halves = halves.as_chunks::<2>().0.to_vec();
        Ok(Self {
            habit,
            groups: codes.as_chunks::<4>().0.as_chunks::<8>().0,
            d,
            s,
            sums: halves.iter().map(|half| half[0] + half[1]).collect(),
            halves,
        })
    }

    /// Form.
    #[must_use]
    pub const fn habit(&self) -> Habit {
        self.habit
    }

    /// Elements.
    #[must_use]
    pub const fn k(&self) -> usize {
        self.groups.len() * 32
    }

    pub(crate) fn d(&self) -> &[f32] {
        &self.d
    }

    pub(crate) fn s(&self) -> &[f32] {
        &self.s
    }

    /// Groups of 32 elements.
    pub(crate) const fn groups(&self) -> &'a [Group] {
        self.groups
    }

    /// Sums of the codes of both halves of each group.
    pub(crate) fn halves(&self) -> &[[i32; 2]] {
        &self.halves
    }

    /// Sum of the codes of each group.
    pub(crate) fn sums(&self) -> &[i32] {
        &self.sums
    }
}
