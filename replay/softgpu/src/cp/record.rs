//! Writes the packet log: a packet's entry is complete, and visible to readers, before its
//! completion signal changes.

use super::batch::Shape;
use crate::gpu::{LoggedDispatch, LoggedPacket, Shared};
use crate::object::Kernel;
use std::sync::{Arc, PoisonError};

/// The entry of the packet being processed, when a log is kept.
#[derive(Debug, Default)]
pub(crate) struct Record {
    entry: Option<LoggedPacket>,
}

impl Record {
    /// Opens the entry of a packet.
    pub(crate) fn begin(
        &mut self,
        shared: &Shared,
        queue_id: u64,
        packet_id: u64,
        bytes: &[u8; 64],
    ) {
        if shared.config.keep_packet_log {
            let dispatches = Vec::new();
            self.entry = Some(LoggedPacket {
                queue_id,
                packet_id,
                bytes: *bytes,
                dispatches,
            });
        }
    }

    /// Whether an entry is open.
    pub(crate) fn is_open(&self) -> bool {
        self.entry.is_some()
    }

    /// Adds a launch that starts now, with its kernel arguments as they are now.
    pub(crate) fn dispatch(
        &mut self,
        shared: &Shared,
        kernel: &Kernel,
        shape: &Shape,
        kernarg_va: u64,
    ) {
        let Some(entry) = &mut self.entry else { return };
        let bytes = if kernarg_va == 0 {
            0
        } else {
            kernel.kernarg_size() as usize
        };
        let mut kernarg = vec![0; bytes];
        // The range was checked with the launch; if it was freed since, the launch itself faults.
        if shared.memory.peek(kernarg_va, &mut kernarg).is_err() {
            kernarg.clear();
        }
        entry.dispatches.push(LoggedDispatch {
            symbol: Arc::clone(&kernel.name),
            object: kernel.object,
            groups: shape.groups,
            group_size: shape.group_size,
            lds_bytes: shape.lds_bytes,
            kernarg_va,
            kernarg,
        });
    }

    /// Hands the entry over to readers.
    pub(crate) fn finish(&mut self, shared: &Shared) {
        if let Some(entry) = self.entry.take() {
            shared
                .log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(entry);
        }
    }
}
