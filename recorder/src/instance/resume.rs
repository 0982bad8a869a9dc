//! Going on in the middle of a context, keeping and putting back state, and another plan over the
//! same buffers. Starting texts is left to the parent.

use super::{Instance, InstanceError, NOT_A_TOKEN, check_prompt, start_words};
use refrain_device::MemoryKind;
use refrain_kernels::Word;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{Buffer as PlannedBuffer, BufferKind};
use std::sync::Arc;

/// The bytes of every buffer of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept(Vec<(usize, Vec<u8>)>);

impl Instance {
    /// Goes on at `position` with `token`, KV rows and state as they are: those of the positions
    /// before must be there. No token ends the text early. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Token`] or [`InstanceError::Device`].
    pub fn resume(&mut self, position: u32, token: u32) -> Result<(), InstanceError> {
        check_prompt(&self.plan, &[token])?;
        let mut words = start_words(&self.plan, &[token], u32::MAX);
        words.set(Word::Token, token);
        words.set(Word::Pos, position);
        words.set(Word::Eos, NOT_A_TOKEN);
        self.start(&[token], &words)
    }

    /// The bytes of every buffer of a kind, for [`Self::put_back`]. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn keep(&self, kind: BufferKind) -> Result<Kept, InstanceError> {
        let mut kept = Vec::new();
        for (index, planned) in self.plan.buffers.iter().enumerate() {
            if planned.kind == kind {
                let buffer = self.buffer(index)?;
                let mut bytes = vec![0; buffer.len() as usize];
                let done = match buffer.kind() {
                    MemoryKind::Device => {
                        self.device.stream().copy_from_device(buffer, 0, &mut bytes)
                    }
                    _ => buffer.read(0, &mut bytes),
                };
                done.map_err(|source| super::device_error(&planned.name, source))?;
                kept.push((index, bytes));
            }
        }
        Ok(Kept(kept))
    }

    /// Puts kept bytes back. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn put_back(&self, kept: &Kept) -> Result<(), InstanceError> {
        for (index, bytes) in &kept.0 {
            self.write(*index, 0, bytes)?;
        }
        Ok(())
    }

    /// Makes another plan of the same family the one that runs: its buffers must have the same
    /// names, kinds and order, and fit those that were allocated.
    ///
    /// # Errors
    /// [`InstanceError::OtherBuffers`]; the plan stays as it was.
    pub fn set_plan(&mut self, plan: &Arc<CheckedPlan>) -> Result<(), InstanceError> {
        let differs = |what: String| InstanceError::OtherBuffers { what };
        if plan.buffers.len() != self.buffers.len() {
            let (found, have) = (plan.buffers.len(), self.buffers.len());
            return Err(differs(format!("{found} buffers, not {have}")));
        }
        let same = |a: &PlannedBuffer, b: &PlannedBuffer| a.name == b.name && a.kind == b.kind;
        let rows = plan.buffers.iter().zip(&self.plan.buffers);
        for ((wanted, planned), buffer) in rows.zip(&self.buffers) {
            if !same(wanted, planned) {
                return Err(differs(format!("{}, not {}", wanted.name, planned.name)));
            }
            if wanted.bytes > buffer.len() {
                let (name, needs, has) = (&wanted.name, wanted.bytes, buffer.len());
                return Err(differs(format!("{name} of {needs} bytes, not {has}")));
            }
        }
        self.plan = Arc::clone(plan);
        Ok(())
    }
}
