//! The kinds of fault: one row each. Statuses are those that HIP and ROCr document for the same
//! situation (`hip_runtime_api.h`, `hsa.h`; a refused launch is clr's answer when the arguments
//! cannot be placed).

use super::Event;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The device is gone before the n-th packet is read.
    LostAtPacket,
    /// The device is gone before the n-th launch starts.
    LostAtLaunch,
    /// The device is gone at the n-th submission.
    LostAtSubmit,
    /// The n-th launch never ends.
    Hang,
    /// The n-th completion signal is not decremented.
    StuckSignal,
    /// The n-th packet is refused.
    RejectPacket,
    /// The n-th submission fails: HIP answers with an error, an HSA doorbell is lost.
    FailSubmit,
    /// The n-th HIP allocation fails.
    FailHipAlloc,
    /// The n-th allocation from a memory pool fails.
    FailPoolAlloc,
    /// The n-th kernarg allocation fails.
    FailKernargAlloc,
    /// The n-th code object does not load for want of memory.
    FailCodeLoad,
    /// The n-th queue or stream is not made.
    FailQueueCreate,
    /// The n-th signal is not made.
    FailSignalCreate,
    /// One bit of the n-th packet is inverted in the ring before the packet is read.
    FlipRing,
    /// One bit of the n-th indirect buffer is inverted in memory before it is read.
    FlipIndirectBuffer,
    /// One bit of the n-th launch's kernel arguments is inverted in memory before it starts.
    FlipKernarg,
}

/// What is fixed about a kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRow {
    /// The kind.
    pub kind: FaultKind,
    /// How it is written: `what@event`.
    pub name: &'static str,
    /// The event that is counted.
    pub event: Event,
    /// Whether a bit is named: its number, counted from bit 0 of the first byte and taken modulo
    /// the bits that there are.
    pub has_bit: bool,
    /// What a caller gets from HIP, and from HSA.
    pub answer: &'static str,
}

const fn row(
    kind: FaultKind,
    name: &'static str,
    event: Event,
    has_bit: bool,
    answer: &'static str,
) -> FaultRow {
    FaultRow {
        kind,
        name,
        event,
        has_bit,
        answer,
    }
}

const LOST: &str =
    "hipErrorLaunchFailure from then on; HSA_STATUS_ERROR_FATAL to every queue's callback";
const NEVER: &str = "no answer: waits end at their deadline";
const MEMORY: &str = "hipErrorOutOfMemory; HSA_STATUS_ERROR_OUT_OF_RESOURCES";
const BAD: &str = "whatever the changed bits mean: a refusal, a fault, or another result";

impl FaultKind {
    /// Every kind, in the order of the documentation.
    pub const ROWS: [FaultRow; 16] = [
        row(
            Self::LostAtPacket,
            "lost@packet",
            Event::Packet,
            false,
            LOST,
        ),
        row(
            Self::LostAtLaunch,
            "lost@launch",
            Event::Launch,
            false,
            LOST,
        ),
        row(
            Self::LostAtSubmit,
            "lost@submit",
            Event::Submit,
            false,
            LOST,
        ),
        row(Self::Hang, "hang@launch", Event::Launch, false, NEVER),
        row(
            Self::StuckSignal,
            "stuck@completion",
            Event::Completion,
            false,
            NEVER,
        ),
        row(
            Self::RejectPacket,
            "reject@packet",
            Event::Packet,
            false,
            "hipErrorLaunchFailure; HSA_STATUS_ERROR_INVALID_PACKET_FORMAT to the queue's callback",
        ),
        row(
            Self::FailSubmit,
            "fail@submit",
            Event::Submit,
            false,
            "hipErrorOutOfMemory; HSA has no answer to a doorbell, so waits end at their deadline",
        ),
        row(
            Self::FailHipAlloc,
            "fail@hip-alloc",
            Event::HipAlloc,
            false,
            MEMORY,
        ),
        row(
            Self::FailPoolAlloc,
            "fail@pool-alloc",
            Event::PoolAlloc,
            false,
            MEMORY,
        ),
        row(
            Self::FailKernargAlloc,
            "fail@kernarg-alloc",
            Event::KernargAlloc,
            false,
            MEMORY,
        ),
        row(
            Self::FailCodeLoad,
            "fail@code",
            Event::CodeLoad,
            false,
            MEMORY,
        ),
        row(
            Self::FailQueueCreate,
            "fail@queue",
            Event::QueueCreate,
            false,
            MEMORY,
        ),
        row(
            Self::FailSignalCreate,
            "fail@signal",
            Event::SignalCreate,
            false,
            MEMORY,
        ),
        row(Self::FlipRing, "flip@ring", Event::Packet, true, BAD),
        row(
            Self::FlipIndirectBuffer,
            "flip@ib",
            Event::IndirectBuffer,
            true,
            BAD,
        ),
        row(Self::FlipKernarg, "flip@kernarg", Event::Launch, true, BAD),
    ];

    /// The row of this kind.
    pub const fn row(self) -> &'static FaultRow {
        // The rows stand in the order of the enum; a test holds them to it.
        &Self::ROWS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::FaultKind;

    #[test]
    fn rows_stand_in_the_order_of_the_enum() {
        for (index, row) in FaultKind::ROWS.iter().enumerate() {
            assert_eq!(row.kind as usize, index, "{}", row.name);
            assert_eq!(row.kind.row(), row);
            let same = FaultKind::ROWS
                .iter()
                .filter(|other| other.name == row.name);
            assert_eq!(same.count(), 1, "{}", row.name);
        }
    }
}
