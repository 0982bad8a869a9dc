//! The PM4 reader: walks an indirect buffer without allocating.
//!
//! Written apart from the encoder; it shares only the tables. Tolerant of foreign styles (shader-type
//! bit, offloaded events, thread dimensions, one-dword NOP, type-2 filler), exact about lengths
//! and reserved bits. What a packet means is left to [`crate::state`] and [`crate::lint`].

use crate::packet::{AcquireMem, Packet, ReleaseMem, WaitRegMem, WaitRegMem64};
use crate::tables::opcodes::{Length, Opcode, header, op, opcode};
use crate::tables::reserved_everywhere;

/// Why the words at an offset are not a packet. Offsets are in dwords from the buffer's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Type 0 or 1, or a filler with further bits.
    #[error(
        "dword {offset}: header {word:#010x} has type {}; {}",
        word >> 30,
        match word >> 30 {
            2 => "a filler of type 2 is 0x80000000 exactly",
            _ => "only types 2 and 3 exist in compute buffers",
        }
    )]
    Type {
        /// Dword offset.
        offset: u32,
        /// Header word.
        word: u32,
    },
    /// Reserved header bits or predicate.
    #[error(
        "dword {offset}: header {word:#010x} sets bits {bits:#04x}; only bit 1 (shader type) may be set below the opcode"
    )]
    Header {
        /// Dword offset.
        offset: u32,
        /// Header word.
        word: u32,
        /// Offending bits.
        bits: u32,
        /// Length that the header claims, in dwords.
        dwords: u32,
    },
    /// The packet is longer than what is left.
    #[error("dword {offset}: {name} of {dwords} dwords runs past the end, {left} are left")]
    PastEnd {
        /// Dword offset.
        offset: u32,
        /// Opcode.
        opcode: u8,
        /// Opcode name.
        name: &'static str,
        /// Length claimed.
        dwords: u32,
        /// Dwords left, this header included.
        left: u32,
    },
    /// The length is not the opcode's.
    #[error(
        "dword {offset}: {name} of {dwords} dwords, expected {expected}; fix the header's count"
    )]
    Length {
        /// Dword offset.
        offset: u32,
        /// Opcode.
        opcode: u8,
        /// Opcode name.
        name: &'static str,
        /// Length claimed.
        dwords: u32,
        /// Length rule.
        expected: Length,
    },
    /// Reserved bits of a known layout are set.
    #[error(
        "dword {offset}: {name} word {word} is {value:#010x}, bits {bits:#010x} are reserved and must be 0"
    )]
    Reserved {
        /// Dword offset of the packet.
        offset: u32,
        /// Opcode.
        opcode: u8,
        /// Opcode name.
        name: &'static str,
        /// Word inside the packet.
        word: u32,
        /// Its value.
        value: u32,
        /// Offending bits.
        bits: u32,
        /// Packet length in dwords.
        dwords: u32,
    },
}

impl DecodeError {
    /// Dword offset of the packet.
    pub const fn offset(&self) -> u32 {
        match self {
            Self::Type { offset, .. }
            | Self::Header { offset, .. }
            | Self::PastEnd { offset, .. }
            | Self::Length { offset, .. }
            | Self::Reserved { offset, .. } => *offset,
        }
    }

    /// Dwords to skip to go on after the error: the claimed packet, or 1 for a word that is no
    /// header.
    pub const fn skip(&self) -> u32 {
        match self {
            Self::Type { .. } => 1,
            Self::Header { dwords, .. }
            | Self::Length { dwords, .. }
            | Self::Reserved { dwords, .. } => *dwords,
            Self::PastEnd { left, .. } => *left,
        }
    }
}

/// A packet with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// Dword offset of the header.
    pub offset: u32,
    /// All words, header first.
    pub words: &'a [u32],
    /// The packet.
    pub packet: Packet<'a>,
    /// The shader-type bit of the header.
    pub shader_type: bool,
}

/// Iterator over the packets of an indirect buffer. After an error it goes on behind the claimed
/// packet; every step moves forward, so it ends.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    words: &'a [u32],
    at: usize,
}

/// The packets of an indirect buffer.
pub const fn packets(words: &[u32]) -> Packets<'_> {
    Packets { words, at: 0 }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Located<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.words.get(self.at..)?;
        let word = *rest.first()?;
        // Buffers hold at most 0xFFFFF dwords by field width; longer slices saturate.
        let offset = u32::try_from(self.at).unwrap_or(u32::MAX);
        let item = one(word, rest, offset);
        let step = match &item {
            Ok(located) => located.words.len(),
            Err(error) => error.skip().max(1) as usize,
        };
        self.at = self.at.saturating_add(step);
        Some(item)
    }
}

/// Decodes the packet at the start of `rest`, whose first word is `word`.
fn one(word: u32, rest: &[u32], offset: u32) -> Result<Located<'_>, DecodeError> {
    if word == header::TYPE2 {
        return Ok(Located {
            offset,
            words: &rest[..1],
            packet: Packet::Filler,
            shader_type: false,
        });
    }
    if word >> 30 != 3 {
        return Err(DecodeError::Type { offset, word });
    }
    let code = ((word >> 8) & 0xFF) as u8;
    let row = opcode(code);
    let name = row.map_or("unknown opcode", |row| row.name);
    let count = (word >> 16) & 0x3FFF;
    let dwords = if count == 0x3FFF && code == op::NOP {
        1
    } else {
        count + 2
    };
    let left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    if dwords > left {
        return Err(DecodeError::PastEnd {
            offset,
            opcode: code,
            name,
            dwords,
            left,
        });
    }
    let bits = word & (header::PREDICATE | header::RESERVED);
    if bits != 0 {
        return Err(DecodeError::Header {
            offset,
            word,
            bits,
            dwords,
        });
    }
    if count == 0x3FFF && code != op::NOP {
        // The one-dword form exists for NOP only.
        let expected = row.map_or(Length::AtLeast(2), |row| row.length);
        return Err(DecodeError::Length {
            offset,
            opcode: code,
            name,
            dwords,
            expected,
        });
    }
    let words = &rest[..dwords as usize];
    if let Some(row) = row {
        check(row, words, offset)?;
    }
    let shader_type = word & header::SHADER_TYPE != 0;
    Ok(Located {
        offset,
        words,
        packet: body(code, words),
        shader_type,
    })
}

fn check(row: &Opcode, words: &[u32], offset: u32) -> Result<(), DecodeError> {
    let dwords = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let (opcode, name) = (row.code, row.name);
    if !row.length.allows(dwords) {
        let expected = row.length;
        return Err(DecodeError::Length {
            offset,
            opcode,
            name,
            dwords,
            expected,
        });
    }
    if row.fields.is_empty() {
        return Ok(());
    }
    // Words behind the described ones are data.
    let described = row.fields.iter().map(|field| field.word).max().unwrap_or(0);
    for (word, value) in (1..=described).zip(words.iter().skip(1).copied()) {
        let bits = value & reserved_everywhere(row.fields, word);
        if bits != 0 {
            let word = u32::from(word);
            return Err(DecodeError::Reserved {
                offset,
                opcode,
                name,
                word,
                value,
                bits,
                dwords,
            });
        }
    }
    Ok(())
}

const fn wide(lo: u32, hi: u32) -> u64 {
    lo as u64 | (hi as u64) << 32
}

/// The packet behind a header whose length was checked. Lengths that the table leaves open fall
/// through to [`Packet::Other`].
fn body(code: u8, words: &[u32]) -> Packet<'_> {
    match (code, words) {
        (op::NOP, [_, body @ ..]) => Packet::Nop { body },
        (op::SET_SH_REG, [_, at, values @ ..]) => {
            let (offset, vmid_shift, index) = sh_target(*at);
            Packet::SetShReg {
                offset,
                vmid_shift,
                index,
                values,
            }
        }
        (op::SET_SH_REG_INDEX, [_, at, values @ ..]) => {
            let (offset, vmid_shift, index) = sh_target(*at);
            Packet::SetShRegIndex {
                offset,
                vmid_shift,
                index,
                values,
            }
        }
        (op::DISPATCH_DIRECT, &[_, x, y, z, initiator]) => Packet::DispatchDirect {
            dim: [x, y, z],
            initiator,
        },
        (op::EVENT_WRITE, &[_, control]) => Packet::EventWrite { control },
        (op::INDIRECT_BUFFER, &[_, lo, hi, control]) => Packet::IndirectBuffer {
            address: wide(lo, hi),
            control,
        },
        (op::ACQUIRE_MEM, &[_, control, b, c, d, e, poll, gcr]) => {
            let (size, base) = (wide(b, c), wide(d, e));
            Packet::AcquireMem(AcquireMem {
                control,
                size,
                base,
                poll: poll as u16,
                gcr,
            })
        }
        _ => memory(code, words),
    }
}

/// Packets that touch memory, and everything without a layout of its own.
fn memory(code: u8, words: &[u32]) -> Packet<'_> {
    match (code, words) {
        (op::RELEASE_MEM, &[_, control, select, a0, a1, d0, d1, context]) => {
            let (address, data) = (wide(a0, a1), wide(d0, d1));
            Packet::ReleaseMem(ReleaseMem {
                control,
                select,
                address,
                data,
                context,
            })
        }
        (op::WAIT_REG_MEM, &[_, control, lo, hi, reference, mask, poll]) => {
            let address = wide(lo, hi);
            Packet::WaitRegMem(WaitRegMem {
                control,
                address,
                reference,
                mask,
                poll,
            })
        }
        (op::WAIT_REG_MEM64, &[_, control, lo, hi, r0, r1, m0, m1, poll]) => {
            let address = wide(lo, hi);
            let (reference, mask) = (wide(r0, r1), wide(m0, m1));
            Packet::WaitRegMem64(WaitRegMem64 {
                control,
                address,
                reference,
                mask,
                poll,
            })
        }
        (op::COPY_DATA, &[_, control, s0, s1, d0, d1]) => Packet::CopyData {
            control,
            src: wide(s0, s1),
            dst: wide(d0, d1),
        },
        (op::WRITE_DATA, [_, control, lo, hi, data @ ..]) => Packet::WriteData {
            control: *control,
            address: wide(*lo, *hi),
            data,
        },
        (op::ATOMIC_MEM, &[_, control, lo, hi, s0, s1, c0, c1, interval]) => Packet::AtomicMem {
            control,
            address: wide(lo, hi),
            src: wide(s0, s1),
            compare: wide(c0, c1),
            interval: interval as u16,
        },
        _ => Packet::Other {
            opcode: code,
            body: words.get(1..).unwrap_or(&[]),
        },
    }
}

const fn sh_target(word: u32) -> (u16, u8, u8) {
    (
        (word & 0xFFFF) as u16,
        ((word >> 23) & 0x1F) as u8,
        (word >> 28) as u8,
    )
}
