//! The packet log: every packet as it lay in the ring, with the kernarg bytes as they were when it
//! ran. Bounded; the oldest packets make room and are counted. Interpreting packets is left to the
//! reader.

use std::collections::VecDeque;
use std::sync::Arc;

/// One kernel launch that a packet caused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedDispatch {
    /// Kernel name.
    pub symbol: Arc<str>,
    /// BLAKE3 of the code object that the kernel came from.
    pub object: [u8; 32],
    /// Work-groups per dimension.
    pub groups: [u32; 3],
    /// Work-items per group and dimension.
    pub group_size: [u32; 3],
    /// LDS bytes per group.
    pub lds_bytes: u32,
    /// Address of the kernel arguments, 0 when the kernel takes none.
    pub kernarg_va: u64,
    /// The kernel arguments as they were when the launch ran.
    pub kernarg: Vec<u8>,
}

/// One packet as fetched from a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedPacket {
    /// Queue that it came from.
    pub queue_id: u64,
    /// Its id in that queue.
    pub packet_id: u64,
    /// The 64 bytes of the slot, header included.
    pub bytes: [u8; 64],
    /// Launches in the order in which they were started: none for a barrier, one for a kernel
    /// dispatch, any number for a PM4 indirect buffer.
    pub dispatches: Vec<LoggedDispatch>,
}

impl LoggedPacket {
    /// Name of the kernel when the packet is a kernel dispatch.
    pub fn symbol(&self) -> Option<&Arc<str>> {
        self.dispatches.first().map(|dispatch| &dispatch.symbol)
    }

    /// Kernel arguments when the packet is a kernel dispatch.
    pub fn kernarg(&self) -> &[u8] {
        self.dispatches
            .first()
            .map_or(&[], |dispatch| &dispatch.kernarg)
    }

    fn weight(&self) -> usize {
        let arguments: usize = self
            .dispatches
            .iter()
            .map(|dispatch| dispatch.kernarg.len())
            .sum();
        size_of::<Self>() + self.dispatches.len() * size_of::<LoggedDispatch>() + arguments
    }
}

/// What [`super::SoftGpu::take_packet_log`] returns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PacketLog {
    /// Packets in the order in which they were fetched.
    pub packets: Vec<LoggedPacket>,
    /// Packets that were dropped before the first of `packets` because the log was full.
    pub dropped: u64,
}

/// The bounded buffer behind [`PacketLog`].
#[derive(Debug)]
pub(crate) struct LogBuffer {
    packets: VecDeque<LoggedPacket>,
    bytes: usize,
    limit: usize,
    dropped: u64,
}

impl LogBuffer {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            limit,
            dropped: 0,
        }
    }

    pub(crate) fn push(&mut self, packet: LoggedPacket) {
        self.bytes += packet.weight();
        self.packets.push_back(packet);
        while self.bytes > self.limit
            && let Some(oldest) = self.packets.pop_front()
        {
            self.bytes -= oldest.weight();
            self.dropped += 1;
        }
    }

    pub(crate) fn copy(&self) -> Vec<LoggedPacket> {
        self.packets.iter().cloned().collect()
    }

    pub(crate) fn take(&mut self) -> PacketLog {
        self.bytes = 0;
        PacketLog {
            packets: self.packets.drain(..).collect(),
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_packets_are_dropped_and_counted() {
        let packet = |packet_id| LoggedPacket {
            queue_id: 1,
            packet_id,
            bytes: [0; 64],
            dispatches: Vec::new(),
        };
        let mut log = LogBuffer::new(3 * packet(0).weight());
        for id in 0..5 {
            log.push(packet(id));
        }
        let taken = log.take();
        assert_eq!(
            taken
                .packets
                .iter()
                .map(|packet| packet.packet_id)
                .collect::<Vec<_>>(),
            [2, 3, 4]
        );
        assert_eq!(taken.dropped, 2);
        log.push(packet(9));
        assert_eq!(
            log.take(),
            PacketLog {
                packets: vec![packet(9)],
                dropped: 0
            }
        );
    }
}
