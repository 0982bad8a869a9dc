//! One pass over an indirect buffer, kept for the rules that look at several packets.

use super::context::Range;
use crate::state::Snapshot;

/// A step that matters for ordering, in stream order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// CS_PARTIAL_FLUSH, or RELEASE_MEM with the WAIT_REG_MEM that waits for its value. Waits for
    /// the dispatches below this number.
    Wait(usize),
    /// ACQUIRE_MEM with this GCR word.
    Acquire(u32),
    /// A dispatch, by number.
    Dispatch(usize),
    /// RELEASE_MEM that writes L2 back.
    WriteBack,
    /// A write by the packet processor: index into [`Walk::writes`].
    Write(usize),
    /// Any other packet but NOP and filler.
    Other,
}

impl Step {
    /// True for both kinds of wait.
    pub(super) const fn is_wait(self) -> bool {
        matches!(self, Self::Wait(_))
    }
}

/// A write of a memory packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// Dword of the packet.
    pub dword: u32,
    /// Packet name.
    pub name: &'static str,
    /// Addresses.
    pub range: Range,
    /// The packet processor goes on only when memory has the value.
    pub confirmed: bool,
    /// It happens when the dispatches before it have ended.
    pub end_of_pipe: bool,
    /// The value, when it is one dword known from the packet.
    pub value: Option<u32>,
    /// Dispatches in front of it.
    pub launched: usize,
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
    /// Writes by the packet processor.
    pub writes: Vec<Write>,
    /// Waits for the value of a RELEASE_MEM: dword of the wait, index into `writes`.
    pub ended: Vec<(u32, usize)>,
    /// Registers that only the wrong gfx12 map puts into a stream are written somewhere.
    pub wrong_map: bool,
}
