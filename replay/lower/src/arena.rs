//! The kernarg arena: one slot per launch of a segment, written once. The arenas of a plan's segments
//! lie in one allocation, one after the other.

use refrain_planner::memory;
use refrain_planner::plan::{BufferId, KernargError, Segment};

/// Alignment of a slot in bytes.
pub const SLOT_ALIGN: u64 = memory::KERNARG_SLOT;

/// Where each launch's kernarg bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaLayout {
    /// First byte and length per launch.
    slots: Vec<(u64, u32)>,
    bytes: u64,
}

impl ArenaLayout {
    /// Lays out a segment's launches in order.
    pub fn of(segment: &Segment<'_>) -> Self {
        let mut bytes = 0_u64;
        let mut slots = Vec::with_capacity(segment.launches().len());
        for launch in segment.launches() {
            let kernel = segment.kernel(launch.launch);
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

    /// First byte of a launch's slot.
    pub fn offset(&self, launch: usize) -> Option<u64> {
        self.slots.get(launch).map(|slot| slot.0)
    }

    /// The arena's bytes for buffers at the addresses that `base` gives. Padding is zero.
    ///
    /// # Errors
    /// [`KernargError`], which the segment this layout was made of does not cause.
    pub fn fill(
        &self,
        segment: &Segment<'_>,
        base: &dyn Fn(BufferId) -> u64,
    ) -> Result<Vec<u8>, KernargError> {
        let mut out = vec![0; self.bytes() as usize];
        let plan = segment.plan();
        for (launch, (offset, length)) in segment.launches().iter().zip(&self.slots) {
            let first = *offset as usize;
            if let Some(slot) = out.get_mut(first..first + *length as usize) {
                plan.write_kernargs_of(launch.step, launch.launch, base, slot)?;
            }
        }
        Ok(out)
    }
}
