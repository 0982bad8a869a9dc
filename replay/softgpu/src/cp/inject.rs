//! The damage that a fault script does in the packet processor. What is due when is decided by
//! `gpu::faults`; bits are inverted in memory, so that whoever looks later sees them too.

use super::fault::{Cause, QueueFault, code};
use crate::gpu::faults::{Event, Fault, FaultKind};
use crate::gpu::{QueueState, Shared};
use crate::memory::{AddressSpace, Rights};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bits of a packet.
const PACKET_BITS: u32 = 512;

/// The packet that a fault is injected at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub queue: u64,
    pub packet: u64,
    pub packet_type: &'static str,
    pub kernel: Option<&'a Arc<str>>,
}

impl Place<'_> {
    fn stop(&self, code: u32, cause: Cause) -> Box<QueueFault> {
        Box::new(QueueFault {
            queue: self.queue,
            packet: self.packet,
            packet_type: self.packet_type,
            kernel: self.kernel.cloned(),
            code,
            cause,
        })
    }

    fn lost(&self, shared: &Shared, fault: Fault, what: &str) -> Box<QueueFault> {
        let what = shared.faults.note(fault, what);
        shared.faults.lose(what.clone());
        self.stop(code::EXCEPTION, Cause::Lost { what })
    }
}

/// Injects what is due at a packet whose slot is at `slot`, before it is read.
pub(super) fn packet(shared: &Shared, place: Place<'_>, slot: u64) -> Result<(), Box<QueueFault>> {
    let (queue, packet) = (place.queue, place.packet);
    for fault in shared.faults.due(Event::Packet) {
        match fault.kind {
            FaultKind::LostAtPacket => {
                let what = format!("the device was lost before packet {packet} of queue {queue}");
                return Err(place.lost(shared, fault, &what));
            }
            FaultKind::RejectPacket => {
                let what = format!("packet {packet} of queue {queue} is refused");
                let what = shared.faults.note(fault, &what);
                return Err(place.stop(code::PACKET_FORMAT, Cause::Injected { what }));
            }
            _ => flip(
                shared,
                fault,
                slot,
                PACKET_BITS,
                &format!("packet {packet} of queue {queue}"),
            ),
        }
    }
    Ok(())
}

/// Injects what is due at an indirect buffer of `dwords` words at `va`, before it is read.
pub(super) fn indirect_buffer(shared: &Shared, place: Place<'_>, va: u64, dwords: u32) {
    for fault in shared.faults.due(Event::IndirectBuffer) {
        let name = format!("the indirect buffer of packet {}", place.packet);
        flip(shared, fault, va, dwords.saturating_mul(32), &name);
    }
}

/// Whether a launch starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Go,
    /// It starts and never ends.
    Hang,
}

/// Injects what is due at a launch with `bytes` bytes of arguments at `kernarg_va`.
pub(super) fn launch(
    shared: &Shared,
    place: Place<'_>,
    kernarg_va: u64,
    bytes: u32,
) -> Result<Start, Box<QueueFault>> {
    let mut start = Start::Go;
    for fault in shared.faults.due(Event::Launch) {
        let kernel = place.kernel.map_or("?", |kernel| &**kernel);
        let at = format!(
            "kernel `{kernel}` of packet {} of queue {}",
            place.packet, place.queue
        );
        match fault.kind {
            FaultKind::LostAtLaunch => {
                let what = format!("the device was lost at the launch of {at}");
                return Err(place.lost(shared, fault, &what));
            }
            FaultKind::Hang => {
                let text = shared.faults.note(fault, &format!("{at} never ends"));
                shared.record_fault(text);
                start = Start::Hang;
            }
            _ => flip(
                shared,
                fault,
                kernarg_va,
                bytes.saturating_mul(8),
                &format!("the arguments of {at}"),
            ),
        }
    }
    Ok(start)
}

/// Whether a completion signal is decremented.
pub(super) fn completes(shared: &Shared, queue: u64, packet: u64, signal: u64) -> bool {
    let due = shared.faults.due(Event::Completion);
    for &fault in &due {
        let what = format!("packet {packet} of queue {queue} does not complete signal {signal:#x}");
        let text = shared.faults.note(fault, &what);
        shared.record_fault(text);
        shared.with_queue(queue, QueueState::stick);
    }
    due.is_empty()
}

/// Inverts a bit of `bits` bits at `va`, whatever the rights there.
fn flip(shared: &Shared, fault: Fault, va: u64, bits: u32, name: &str) {
    if bits == 0 {
        shared
            .faults
            .note(fault, &format!("{name} has no bit to invert"));
        return;
    }
    let bit = fault.bit % bits;
    let at = va + u64::from(bit / 8);
    let what = match invert(&shared.memory, at, 1 << (bit % 8)) {
        Some(byte) => format!("bit {bit} of {name} is inverted: byte {at:#x} was {byte:#04x}"),
        None => format!("bit {bit} of {name} is not in memory"),
    };
    shared.faults.note(fault, &what);
}

/// The byte before, or `None` where there is no memory.
fn invert(memory: &AddressSpace, at: u64, mask: u8) -> Option<u8> {
    let info = memory.find(at)?;
    let opened = memory.set_rights(info.base, info.rights.union(Rights::READ_WRITE));
    opened.ok()?;
    let mut byte = [0];
    let read = memory.read_bytes(at, &mut byte);
    let written = read.and_then(|()| memory.write_bytes(at, &[byte[0] ^ mask]));
    let closed = memory.set_rights(info.base, info.rights);
    (written.is_ok() && closed.is_ok()).then_some(byte[0])
}

impl QueueState {
    /// Something of this queue will never complete; see [`Self::is_stuck`].
    pub(crate) fn stick(&self) {
        self.stuck.store(true, Ordering::Release);
    }

    /// Whether waiting for all of the queue's work would last for ever.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }
}
