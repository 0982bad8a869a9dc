//! The kernarg arena: one allocation for the whole plan, one slot per step, written once.

use refrain_planner::memory;
use refrain_planner::plan::{BufferId, KernargError, Plan, StepBody};

/// Alignment of a slot in bytes.
pub const SLOT_ALIGN: u64 = memory::KERNARG_SLOT;

/// Where each step's kernarg bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaLayout {
    /// First byte and length per step.
    slots: Vec<(u64, u32)>,
    bytes: u64,
}

impl ArenaLayout {
    /// Lays out a plan's steps in order.
    pub fn of(plan: &Plan) -> Self {
        let mut bytes = 0_u64;
        let mut slots = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let StepBody::Launch(launch) = &step.body;
            let kernel = plan.kernels.get(launch.kernel as usize);
            let length = kernel.map_or(0, |kernel| kernel.kernarg_bytes);
            slots.push((bytes, length));
            bytes += memory::kernarg_slot(length);
        }
        Self { slots, bytes }
    }

    /// Bytes of the whole arena; at least one slot.
    pub fn bytes(&self) -> u64 {
        self.bytes.max(SLOT_ALIGN)
    }

    /// First byte of a step's slot.
    pub fn offset(&self, step: usize) -> Option<u64> {
        self.slots.get(step).map(|slot| slot.0)
    }

    /// The arena's bytes for buffers at the addresses that `base` gives. Padding is zero.
    ///
    /// # Errors
    /// [`KernargError`], which the plan this layout was made of does not cause.
    pub fn fill(
        &self,
        plan: &Plan,
        base: &dyn Fn(BufferId) -> u64,
    ) -> Result<Vec<u8>, KernargError> {
        let mut out = vec![0; self.bytes() as usize];
        for (step, (offset, length)) in self.slots.iter().enumerate() {
            let first = *offset as usize;
            if let Some(slot) = out.get_mut(first..first + *length as usize) {
                plan.write_kernargs(step as u32, base, slot)?;
            }
        }
        Ok(out)
    }
}
