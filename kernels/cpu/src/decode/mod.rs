//! A whole decode step on the CPU: the launches of a plan, executed by one function per operation of
//! the kernel catalog, over buffers in host memory.
//!
//! Arguments come from the launch's kernel-argument bytes by the catalog row, so a plan is executed as
//! a GPU would execute it, one launch after the other. In exact mode every function repeats the
//! arithmetic of the HIP source operation by operation, and every buffer has the bits that the software
//! GPU gives; only the int8 products have an order of sums of their own ([`crate::int8`]).
//!
//! Left to others: which launches there are (the plan), uploading and running texts
//! (`refrain-recorder`).

mod attention;
mod elementwise;
mod error;
mod gemv;
mod launch;
mod math;
mod memory;
mod moe;
mod norm;
mod product;
mod recurrent;
mod rope;
mod sample;
mod table;

pub use error::DecodeError;
pub use memory::Memory;

use refrain_kernels::{KernelRow, WordValues};

use crate::Engine;
use launch::Launch;

/// Whether a kernel has a CPU function.
///
/// # Errors
/// [`DecodeError::NoFunction`] naming kernel and operation.
pub fn supports(row: &'static KernelRow) -> Result<(), DecodeError> {
    table::function(row).map(|_| ())
}

/// The launches of a step, in order, ready to run over one [`Memory`].
#[derive(Debug, Default)]
pub struct Program {
    launches: Vec<Launch>,
    /// Copies of what a launch both reads and writes.
    scratch: Vec<u32>,
}

impl Program {
    /// Appends a launch and returns its index. `memory` must have all buffers; `most` holds the greatest
    /// value of every control word.
    ///
    /// # Errors
    /// [`DecodeError`]: no function, arguments that do not fit the row, or bytes outside the buffers.
    pub fn push(
        &mut self,
        row: &'static KernelRow,
        kernarg: &[u8],
        memory: &Memory,
        most: &WordValues,
    ) -> Result<usize, DecodeError> {
        let launch = Launch::new(row, kernarg, memory, most)?;
        let words = launch.scratch_bytes().div_ceil(size_of::<u32>());
        if self.scratch.len() < words {
            self.scratch.resize(words, 0);
        }
        self.launches.push(launch);
        Ok(self.launches.len() - 1)
    }

    /// Launches.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.launches.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.launches.is_empty()
    }

    /// Executes launch `index`; nothing for one that does not exist.
    ///
    /// # Errors
    /// [`DecodeError`], with what the launch wrote so far in memory.
    pub fn run(
        &mut self,
        index: usize,
        memory: &mut Memory,
        engine: &Engine,
    ) -> Result<(), DecodeError> {
        match self.launches.get(index) {
            Some(launch) => launch.run(memory, &mut self.scratch, engine),
            None => Ok(()),
        }
    }
}
