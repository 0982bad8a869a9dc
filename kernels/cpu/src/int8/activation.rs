//! An activation as integer products read it: the codes of its buffer, scales and sums widened once.

use refrain_kernels::{CatalogError, Habit};

use crate::CpuError;
use crate::exact::half;

/// Elements that share one entry of [`Activation::sums`].
pub(crate) const PART: usize = 16;

/// A checked view of a quantised activation (`refrain_kernels::quantise`, or the GPU's), with its scales
/// in f32 and the sums of its codes. Made once per vector and read by all rows and threads.
#[derive(Clone, Debug)]
pub struct Activation<'a> {
    habit: Habit,
    /// Codes, four to a word, and their number.
    words: &'a [[u8; 4]],
    /// Scale per block of the habit.
    d: Vec<f32>,
    /// s of Q8_1 per 32 elements; empty otherwise.
    s: Vec<f32>,
    /// Sum of the codes per 16 elements.
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
        let sum = |part: &[u8]| part.iter().map(|code| i32::from(code.cast_signed())).sum();
        Ok(Self {
            habit,
            words: codes.as_chunks::<4>().0,
            d,
            s,
            sums: codes.chunks_exact(PART).map(sum).collect(),
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
        self.words.len() * 4
    }

    pub(crate) fn d(&self) -> &[f32] {
        &self.d
    }

    pub(crate) fn s(&self) -> &[f32] {
        &self.s
    }

    /// Codes of group `index` of 32 elements as eight words, and the sums of its halves.
    #[inline(always)]
    pub(crate) fn group(&self, index: usize) -> ([i32; 8], [i32; 2]) {
        let words = &self.words[8 * index..8 * index + 8];
        let mut q = [0; 8];
        for (q, word) in q.iter_mut().zip(words) {
            *q = i32::from_le_bytes(*word);
        }
        (q, [self.sums[2 * index], self.sums[2 * index + 1]])
    }

    /// Codes of group `index` of 32 elements.
    #[inline(always)]
    pub(crate) fn codes(&self, index: usize) -> &[u8; 32] {
        const NONE: &[u8; 32] = &[0; 32];
        let words = &self.words[8 * index..8 * index + 8];
        words.as_flattened().first_chunk().unwrap_or(NONE)
    }

    /// Sum of the codes of group `index` of 32 elements.
    #[inline(always)]
    pub(crate) fn sum32(&self, index: usize) -> i32 {
        self.sums[2 * index] + self.sums[2 * index + 1]
    }
}
