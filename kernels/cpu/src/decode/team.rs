//! Threads for the rows of a product.

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};

use super::DecodeError;

/// Rows of a chunk are a multiple of this: what one work-group of a GEMV covers on a GPU.
const ROW_STEP: usize = 16;
/// Chunks that each thread gets, so that one that is held up does not hold up the others for long.
const CHUNKS: usize = 4;

/// A number of threads.
#[derive(Debug)]
pub struct Team {
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Team {
    /// The caller's thread alone.
    #[must_use]
    pub const fn one() -> Self {
        Self {
            pool: None,
            threads: 1,
        }
    }

    /// So many threads; 0 counts as 1, which is the caller's own.
    ///
    /// # Errors
    /// [`DecodeError::Threads`].
    pub fn new(threads: usize) -> Result<Self, DecodeError> {
        if threads <= 1 {
            return Ok(Self::one());
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("decode {index}"))
            .build()
            .map_err(|error| DecodeError::Threads {
                threads,
                reason: error.to_string(),
            })?;
        Ok(Self {
            pool: Some(pool),
            threads,
        })
    }

    /// Threads.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on a thread of the team. Products inside it need not enter it again.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }

    /// Calls `work(first, part)` for parts of `y` that start at element `first`, each once, in any
    /// order.
    pub(super) fn rows<E: Send>(
        &self,
        y: &mut [f32],
        work: impl Fn(usize, &mut [f32]) -> Result<(), E> + Sync + Send,
    ) -> Result<(), E> {
        let part = y.len().div_ceil(self.threads * CHUNKS).next_multiple_of(ROW_STEP);
        match &self.pool {
            Some(pool) if part < y.len() => pool.install(|| {
                let parts = y.par_chunks_mut(part).enumerate();
                parts.try_for_each(|(index, y)| work(index * part, y))
            }),
            _ => work(0, y),
        }
    }

    /// Calls `work(first, part)` for parts of `out` that start at group `first`, a group being `size`
    /// elements, each once, in any order.
    pub(super) fn groups(
        &self,
        out: &mut [f32],
        size: usize,
        work: impl Fn(usize, &mut [f32]) + Sync + Send,
    ) {
        let groups = out.len().checked_div(size).unwrap_or(0);
        let part = groups.div_ceil(self.threads);
        match &self.pool {
            Some(pool) if part < groups => pool.install(|| {
                let parts = out.par_chunks_mut(part * size).enumerate();
                parts.for_each(|(index, out)| work(index * part, out));
            }),
            _ => work(0, out),
        }
    }
}
