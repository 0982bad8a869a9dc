//! AQL packets: header, encoder, reader.
//!
//! [`encode`] writes, [`decode`] reads any 64 bytes; they share only the layouts of
//! [`crate::tables::objects`]. Rings, doorbells and signals are left to whoever owns memory.

pub mod decode;
pub mod encode;
mod segment;

pub use segment::{AqlPolicy, encode_segment, encode_vendor};

/// The packets that little-endian words hold, 16 words each; words beyond the last whole packet are
/// left out.
pub fn packets_of_words(words: &[u32]) -> Vec<[u8; 64]> {
    let packet = |chunk: &[u32; 16]| {
        let mut bytes = [0; 64];
        for (slot, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
            *slot = word.to_le_bytes();
        }
        bytes
    };
    words.as_chunks().0.iter().map(packet).collect()
}

/// Packet type, header bits 7:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Vendor-specific; a zero-filled slot has this type.
    VendorSpecific = 0,
    /// Empty slot.
    Invalid = 1,
    /// Kernel dispatch.
    KernelDispatch = 2,
    /// Waits until every named signal is 0.
    BarrierAnd = 3,
    /// Agent dispatch.
    AgentDispatch = 4,
    /// Waits until one named signal is 0.
    BarrierOr = 5,
}

/// Fence scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Scope {
    /// No fence.
    None = 0,
    /// This agent.
    Agent = 1,
    /// All agents and the host.
    System = 2,
}

impl Scope {
    const fn from_bits(bits: u16) -> Option<Self> {
        match bits & 3 {
            0 => Some(Self::None),
            1 => Some(Self::Agent),
            2 => Some(Self::System),
            _ => None,
        }
    }
}

/// A packet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Packet type.
    pub kind: PacketType,
    /// Wait for all earlier packets of the queue.
    pub barrier: bool,
    /// Acquire fence.
    pub acquire: Scope,
    /// Release fence.
    pub release: Scope,
}

/// Why 16 bits are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Unknown type.
    #[error("header {bits:#06x} has type {}; types 0 to 5 exist", bits & 0xFF)]
    Type {
        /// The header.
        bits: u16,
    },
    /// Scope 3.
    #[error("header {bits:#06x} has a fence scope of 3; 0 none, 1 agent, 2 system exist")]
    Scope {
        /// The header.
        bits: u16,
    },
    /// Bits 15:13.
    #[error("header {bits:#06x} sets reserved bits 15:13")]
    Reserved {
        /// The header.
        bits: u16,
    },
}

impl Header {
    /// A header with barrier and system scopes.
    pub const fn system(kind: PacketType) -> Self {
        Self {
            kind,
            barrier: true,
            acquire: Scope::System,
            release: Scope::System,
        }
    }

    /// The 16 bits.
    pub const fn bits(self) -> u16 {
        self.kind as u16
            | (self.barrier as u16) << 8
            | (self.acquire as u16) << 9
            | (self.release as u16) << 11
    }

    /// Reads 16 bits.
    ///
    /// # Errors
    /// Unknown type, scope 3, or reserved bits.
    pub const fn from_bits(bits: u16) -> Result<Self, HeaderError> {
        let kind = match bits & 0xFF {
            0 => PacketType::VendorSpecific,
            1 => PacketType::Invalid,
            2 => PacketType::KernelDispatch,
            3 => PacketType::BarrierAnd,
            4 => PacketType::AgentDispatch,
            5 => PacketType::BarrierOr,
            _ => return Err(HeaderError::Type { bits }),
        };
        if bits >> 13 != 0 {
            return Err(HeaderError::Reserved { bits });
        }
        let (Some(acquire), Some(release)) =
            (Scope::from_bits(bits >> 9), Scope::from_bits(bits >> 11))
        else {
            return Err(HeaderError::Scope { bits });
        };
        Ok(Self {
            kind,
            barrier: bits >> 8 & 1 != 0,
            acquire,
            release,
        })
    }
}

/// A kernel dispatch packet without its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelDispatch {
    /// Dimensions, 1 to 3.
    pub dimensions: u16,
    /// Work-items per group.
    pub workgroup_size: [u16; 3],
    /// Work-items in the grid.
    pub grid_size: [u32; 3],
    /// Scratch bytes per work-item.
    pub private_segment_size: u32,
    /// LDS bytes per group.
    pub group_segment_size: u32,
    /// Kernel descriptor address.
    pub kernel_object: u64,
    /// Kernarg address.
    pub kernarg_address: u64,
    /// Profiler correlation id, normally 0.
    pub correlation: u64,
    /// Completion signal handle or 0.
    pub completion_signal: u64,
}

/// A barrier packet without its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Barrier {
    /// Signal handles, 0 for none.
    pub dep_signal: [u64; 5],
    /// Profiler correlation id, normally 0.
    pub correlation: u64,
    /// Completion signal handle or 0.
    pub completion_signal: u64,
}

/// A vendor packet that runs a PM4 indirect buffer, without its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pm4Ib {
    /// Address of the words, 4-byte aligned, 48 bits.
    pub address: u64,
    /// Length in dwords, 1 to 0xFFFFF.
    pub dwords: u32,
    /// Cache policy, 0 to 3.
    pub policy: u8,
    /// Completion signal handle or 0.
    pub completion_signal: u64,
}

/// A packet ready for a ring: 64 bytes whose first dword still says INVALID, and the header
/// dword that publishes it. Write the body first, then store the header dword once, 32 bits
/// wide, with release order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedPacket {
    body: [u8; 64],
    header: u32,
}

impl EncodedPacket {
    /// The 64 bytes with INVALID in the first dword.
    pub const fn body(&self) -> &[u8; 64] {
        &self.body
    }

    /// The first dword: header in the low half; setup or vendor format in the high half.
    pub const fn header_word(&self) -> u32 {
        self.header
    }

    /// The 64 bytes as they stand after publishing.
    pub fn bytes(&self) -> [u8; 64] {
        let mut out = self.body;
        out[..4].copy_from_slice(&self.header.to_le_bytes());
        out
    }

    /// The 16 dwords as they stand after publishing.
    pub fn words(&self) -> [u32; 16] {
        let bytes = self.bytes();
        let mut out = [0; 16];
        for (word, chunk) in out.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
        out
    }

    /// The packet whose 16 dwords are `words`.
    pub fn from_words(words: &[u32; 16]) -> Self {
        let mut body = [0; 64];
        for (chunk, word) in body.chunks_exact_mut(4).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let header = words[0];
        body[..4].copy_from_slice(&encode::INVALID_WORD.to_le_bytes());
        Self { body, header }
    }
}
