//! One pass over an indirect buffer, kept for the rules that look at several packets.

use crate::state::Snapshot;

/// A step that matters for ordering, in stream order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// CS_PARTIAL_FLUSH.
    Wait,
    /// ACQUIRE_MEM with this GCR word.
    Acquire(u32),
    /// A dispatch, by number.
    Dispatch(usize),
    /// RELEASE_MEM that writes L2 back.
    WriteBack,
    /// Any other packet but NOP and filler.
    Other,
}

/// What one pass found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Steps with their dword offsets.
    pub steps: Vec<(u32, Step)>,
    /// Registers at each dispatch.
    pub snapshots: Vec<Snapshot>,
    /// TMPRING_SIZE was written at this dword.
    pub tmpring_written: Option<u32>,
}
