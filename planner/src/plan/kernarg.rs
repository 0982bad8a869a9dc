//! Kernel argument bytes of a launch: which argument owns which bytes, and the one function that
//! fills them, for eager and retained execution alike.
//!
//! Offsets come from the catalog row. Bytes that no argument owns are zero.

use super::{Arg, BufferId, BufferKind, Launch, Plan, StepBody, StepId};
use refrain_kernels::{KernelRow, find};

/// One argument's place in the kernarg segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernargSlot {
    /// Argument name in the catalog.
    pub name: &'static str,
    /// Byte offset.
    pub offset: u32,
    /// Bytes: 8 for an address, 4 for an immediate.
    pub bytes: u32,
    /// What fills it.
    pub arg: Arg,
}

/// Why kernargs cannot be laid out or written. None of it happens to a `CheckedPlan` and a segment
/// of the kernel's size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernargError {
    /// No such step.
    #[error("step {step} of {steps}: use a step of this plan")]
    NoStep {
        /// Asked for.
        step: StepId,
        /// Steps in the plan.
        steps: usize,
    },
    /// A step of the host where a launch is needed.
    #[error("step {step} is a {found} step, not a launch: it has no kernel arguments of its own")]
    NotALaunch {
        /// Step.
        step: StepId,
        /// What it is.
        found: &'static str,
    },
    /// The kernel is not in this build's catalog.
    #[error("step {step}: kernel {symbol} is not in this build's catalog: re-run `refrain plan`")]
    NoKernel {
        /// Step.
        step: StepId,
        /// Symbol, or the number of a kernel that the plan lacks.
        symbol: String,
    },
    /// The arguments are not those of the catalog row.
    #[error(
        "step {step}: {symbol} takes {expected} arguments, the plan gives {found}: re-run `refrain plan`"
    )]
    Arguments {
        /// Step.
        step: StepId,
        /// Kernel.
        symbol: &'static str,
        /// Arguments of the row.
        expected: usize,
        /// Arguments of the step.
        found: usize,
    },
    /// The destination has another size than the kernel's segment.
    #[error("step {step}: {symbol} takes {expected} kernarg bytes, the destination has {found}")]
    Length {
        /// Step.
        step: StepId,
        /// Kernel.
        symbol: &'static str,
        /// Bytes of the segment.
        expected: usize,
        /// Bytes of the destination.
        found: usize,
    },
}

impl Plan {
    /// Id of the control block.
    pub fn control_buffer(&self) -> Option<BufferId> {
        self.buffer_of_kind(BufferKind::Control)
    }

    /// First buffer of a kind; control, prompt, ring and scratch are single.
    pub fn buffer_of_kind(&self, kind: BufferKind) -> Option<BufferId> {
        self.buffers
            .iter()
            .position(|buffer| buffer.kind == kind)
            .map(|id| id as BufferId)
    }

    /// The one launch of a step.
    fn launch_of(&self, step: StepId) -> Result<&Launch, KernargError> {
        let Some(found) = self.steps.get(step as usize) else {
            return Err(KernargError::NoStep {
                step,
                steps: self.steps.len(),
            });
        };
        match &found.body {
            StepBody::Launch(launch) => Ok(launch),
            body => Err(KernargError::NotALaunch {
                step,
                found: body.name(),
            }),
        }
    }

    /// Catalog row of a launch's kernel and its arguments.
    fn launch_row<'a>(
        &self,
        step: StepId,
        launch: &'a Launch,
    ) -> Result<(&'static KernelRow, &'a [Arg]), KernargError> {
        let kernel = self.kernels.get(launch.kernel as usize);
        let row = kernel.and_then(|kernel| find(&kernel.symbol));
        let Some(row) = row else {
            let symbol = kernel.map_or_else(|| launch.kernel.to_string(), |k| k.symbol.clone());
            return Err(KernargError::NoKernel { step, symbol });
        };
        let (expected, found) = (row.args.len(), launch.args.len());
        if expected != found {
            return Err(KernargError::Arguments {
                step,
                symbol: row.symbol,
                expected,
                found,
            });
        }
        Ok((row, &launch.args))
    }

    /// The arguments of a step that is a launch, with their offsets, in order.
    ///
    /// # Errors
    /// [`KernargError`].
    pub fn kernarg_layout(&self, step: StepId) -> Result<Vec<KernargSlot>, KernargError> {
        self.kernarg_layout_of(step, self.launch_of(step)?)
    }

    /// The arguments of one launch of a step, with their offsets, in order.
    ///
    /// # Errors
    /// [`KernargError`].
    pub fn kernarg_layout_of(
        &self,
        step: StepId,
        launch: &Launch,
    ) -> Result<Vec<KernargSlot>, KernargError> {
        let (row, args) = self.launch_row(step, launch)?;
        let slot = |((decl, offset), arg): ((&refrain_kernels::Arg, u32), &Arg)| KernargSlot {
            name: decl.name,
            offset,
            bytes: decl.kind.bytes(),
            arg: *arg,
        };
        Ok(row.layout().zip(args).map(slot).collect())
    }

    /// Fills `out`, which must be exactly `kernarg_bytes` of the step's kernel, with the arguments of
    /// a step that is a launch; `base` gives the device address of a buffer. Allocates nothing.
    ///
    /// # Errors
    /// [`KernargError`].
    pub fn write_kernargs(
        &self,
        step: StepId,
        base: &dyn Fn(BufferId) -> u64,
        out: &mut [u8],
    ) -> Result<(), KernargError> {
        self.write_kernargs_of(step, self.launch_of(step)?, base, out)
    }

    /// As [`Self::write_kernargs`] for one launch of a step.
    ///
    /// # Errors
    /// [`KernargError`].
    pub fn write_kernargs_of(
        &self,
        step: StepId,
        launch: &Launch,
        base: &dyn Fn(BufferId) -> u64,
        out: &mut [u8],
    ) -> Result<(), KernargError> {
        let (row, args) = self.launch_row(step, launch)?;
        let (expected, found) = (row.kernarg_bytes() as usize, out.len());
        if expected != found {
            return Err(KernargError::Length {
                step,
                symbol: row.symbol,
                expected,
                found,
            });
        }
        out.fill(0);
        for ((decl, offset), arg) in row.layout().zip(args) {
            let value = match *arg {
                Arg::Region { buffer, offset } => base(buffer).wrapping_add(offset),
                Arg::Imm(bits) => u64::from(bits),
                Arg::WordAddr { offset } => {
                    let control = self.control_buffer().map_or(0, base);
                    control.wrapping_add(u64::from(offset))
                }
            };
            let bytes = decl.kind.bytes() as usize;
            let slot = out.iter_mut().skip(offset as usize).take(bytes);
            slot.zip(value.to_le_bytes())
                .for_each(|(to, from)| *to = from);
        }
        Ok(())
    }
}
