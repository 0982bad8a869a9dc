//! Products over all threads of a pool: what a step calls.

use std::ops::Range;

use crate::int8::{self, Activation, Packed16, Write};
use crate::{CpuError, Isa, Matrix, Pool, exact};

/// Bytes of weights that a thread claims at once, at least and at most: long enough to stream, short
/// enough that a thread which loses its core holds little up.
const CLAIM_BYTES: Range<usize> = 64 << 10..1 << 20;

/// Runs per thread that a product is cut into where the bounds allow.
const CLAIMS: usize = 8;

/// An instruction set and threads.
#[derive(Debug)]
pub struct Engine {
    isa: Isa,
    pool: Pool,
}

impl Engine {
    /// The machine's best instruction set on `threads` threads.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with(Isa::best(), threads)
    }

    /// A given instruction set, or the machine's best where it lacks that one.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn with(isa: Isa, threads: usize) -> Result<Self, CpuError> {
        let pool = Pool::new(threads)?;
        let isa = isa.min(Isa::best());
        Ok(Self { isa, pool })
    }

    /// Instruction set.
    #[must_use]
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads, the caller's included.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Rows that a thread claims at once: whole sixteens.
    fn claim(&self, bytes: usize, all: usize, rows: usize) -> usize {
        let row = bytes.checked_div(all).unwrap_or_default().max(1);
        let even = rows.div_ceil(CLAIMS * self.threads());
        let (least, most) = (CLAIM_BYTES.start / row, CLAIM_BYTES.end / row);
        even.clamp(least, most).next_multiple_of(int8::ROWS)
    }

    /// [`crate::gemv_exact`] over all threads.
    ///
    /// # Errors
    /// As [`crate::gemv_exact`] and [`Pool::rows`].
    pub fn gemv_exact(
        &self,
        w: &Matrix<'_>,
        x: &[f32],
        rows: Range<usize>,
        y: &mut [f32],
    ) -> Result<(), CpuError> {
        w.check(&rows, y)?;
        let x = exact::Input::new(w, x)?;
        let per = self.claim(w.bytes().len(), w.rows(), rows.len());
        self.pool
            .rows(rows, per, y, |rows, y| x.gemv(self.isa, w, rows, y))
    }

    /// [`int8::gemv_int8`] over all threads.
    ///
    /// # Errors
    /// As [`int8::gemv_int8`] and [`Pool::rows`].
    pub fn gemv_int8(
        &self,
        w: &Matrix<'_>,
        x: &Activation<'_>,
        rows: Range<usize>,
        write: Write,
        y: &mut [f32],
    ) -> Result<(), CpuError> {
        w.check(&rows, y)?;
        let per = self.claim(w.bytes().len(), w.rows(), rows.len());
        self.pool.rows(rows, per, y, |rows, y| {
            int8::gemv_int8(self.isa, w, x, rows, write, y)
        })
    }

    /// [`Packed16::gemv`] over all threads.
    ///
    /// # Errors
    /// As [`Packed16::gemv`] and [`Pool::rows`].
    pub fn gemv_packed(
        &self,
        w: &Packed16<'_>,
        x: &Activation<'_>,
        rows: Range<usize>,
        write: Write,
        y: &mut [f32],
    ) -> Result<(), CpuError> {
        crate::matrix::check(w.rows(), &rows, y)?;
        let per = self.claim(w.bytes().len(), w.rows(), rows.len());
        self.pool
            .rows(rows, per, y, |rows, y| w.gemv(self.isa, x, rows, write, y))
    }

    /// Runs `f` over rows on this engine's threads; see [`Pool::rows`].
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }
}
