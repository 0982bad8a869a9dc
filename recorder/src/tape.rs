//! What one token looked like at the function-table seam: launches, copies and memsets in order.
//!
//! A tape holds no device address of a plan buffer: every pointer is replaced by the buffer and
//! offset that it fell into. Making tapes is [`crate::record`]'s work, judging them
//! [`crate::reconcile`]'s, storing them [`crate::file`]'s.

use refrain_planner::plan::{BufferId, Digest};
use std::fmt;

/// Where an address fell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// Inside a plan buffer.
    Region {
        /// Index of the buffer in the plan.
        buffer: BufferId,
        /// Byte offset in that buffer.
        offset: u64,
    },
    /// Inside no plan buffer; the raw address.
    Outside(u64),
    /// Host memory that belongs to the caller.
    Host,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Region { buffer, offset } => write!(f, "buffer {buffer} + {offset:#x}"),
            Self::Outside(address) => write!(f, "address {address:#x} outside every plan buffer"),
            Self::Host => f.write_str("host memory"),
        }
    }
}

/// One pointer inside a kernarg segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Byte offset of the 8-byte pointer in the kernarg segment.
    pub at: u32,
    /// Where it points.
    pub place: Place,
}

/// One kernel launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeLaunch {
    /// Kernel symbol without `.kd`.
    pub symbol: String,
    /// BLAKE3 of the code object the function came from.
    pub object: Digest,
    /// Work-groups in x, y, z.
    pub grid: [u32; 3],
    /// Work-items per work-group in x, y, z.
    pub block: [u32; 3],
    /// Dynamic LDS bytes.
    pub lds: u32,
    /// The kernarg segment; the 8 bytes of each entry of `pointers` are zero.
    pub kernarg: Vec<u8>,
    /// Pointers in ascending `at`.
    pub pointers: Vec<Pointer>,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Host to device.
    ToDevice,
    /// Device to host.
    FromDevice,
    /// Device to device.
    OnDevice,
}

impl Direction {
    /// Every direction with its name and its number in tape files.
    pub const TABLE: [(Self, &'static str, u8); 3] = [
        (Self::ToDevice, "host to device", 0),
        (Self::FromDevice, "device to host", 1),
        (Self::OnDevice, "device to device", 2),
    ];

    /// Name for messages.
    pub fn name(self) -> &'static str {
        Self::TABLE
            .iter()
            .find(|row| row.0 == self)
            .map_or("copy", |row| row.1)
    }
}

/// One call that passed the seam.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A kernel launch.
    Launch(TapeLaunch),
    /// A copy.
    Copy {
        /// Destination.
        dst: Place,
        /// Source.
        src: Place,
        /// Length in bytes.
        bytes: u64,
        /// Direction.
        direction: Direction,
    },
    /// A fill.
    Memset {
        /// First byte.
        dst: Place,
        /// Byte value.
        value: u8,
        /// Length in bytes.
        bytes: u64,
    },
}

/// Everything that passed while one token was decoded eagerly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tape {
    /// Which fresh executor ran it, from 0.
    pub executor: u32,
    /// Position of the token.
    pub position: u32,
    /// Calls in order.
    pub entries: Vec<Entry>,
    /// The same launches as decoded from the packet ring, where the device keeps a log of it.
    pub ring: Option<Vec<RingLaunch>>,
}

/// One kernel dispatch packet as the packet processor fetched it, in units of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingLaunch {
    /// Kernel symbol without `.kd`.
    pub symbol: String,
    /// BLAKE3 of the code object that the dispatched kernel was loaded from.
    pub object: Digest,
    /// Work-groups in x, y, z.
    pub grid: [u32; 3],
    /// Work-items per work-group in x, y, z.
    pub block: [u32; 3],
    /// LDS bytes per work-group, static and dynamic.
    pub lds: u32,
    /// The AQL header half-word: type, barrier bit, fence scopes.
    pub header: u16,
    /// The kernarg segment at execution, pointers as in [`TapeLaunch`].
    pub kernarg: Vec<u8>,
    /// Pointers in ascending `at`.
    pub pointers: Vec<Pointer>,
}

/// All tapes of one plan, and which plan that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording {
    /// The plan's sequence digest (structure + artifacts).
    pub sequence: Digest,
    /// Tapes in the order they were taken.
    pub tapes: Vec<Tape>,
}

impl Recording {
    /// Distinct positions, ascending.
    pub fn positions(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.tapes.iter().map(|tape| tape.position).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Number of distinct executors.
    pub fn executors(&self) -> usize {
        let mut all: Vec<u32> = self.tapes.iter().map(|tape| tape.executor).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }
}
