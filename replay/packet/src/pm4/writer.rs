//! Writes single packets: values to words, low header byte 0.

use crate::packet::{AcquireMem, Packet, ReleaseMem, WaitRegMem, WaitRegMem64};
use crate::tables::opcodes::{
    CS_PARTIAL_FLUSH, FULL_SIZE_HI, FULL_SIZE_LO, POLL_INTERVAL, header, op,
};

/// Why a packet cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// More words than a header can count.
    #[error("a packet of {dwords} dwords exceeds the longest packet of {limit}; split it", limit = header::MAX_DWORDS)]
    TooLong {
        /// Words needed.
        dwords: usize,
    },
    /// A packet that needs at least one value has none.
    #[error("{name} needs at least one value")]
    NoValues {
        /// Packet name.
        name: &'static str,
    },
    /// A field value that does not fit.
    #[error("{name}: {field} {value:#x} does not fit {bits} bits")]
    Field {
        /// Packet name.
        name: &'static str,
        /// Field name.
        field: &'static str,
        /// Value.
        value: u32,
        /// Width.
        bits: u8,
    },
}

/// Appends packets to a word list.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    words: Vec<u32>,
}

impl Writer {
    /// An empty writer with room for `words`.
    pub fn with_capacity(words: usize) -> Self {
        Self {
            words: Vec::with_capacity(words),
        }
    }

    /// The words so far.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Number of words so far.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// True when nothing was written.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The words.
    pub fn into_words(self) -> Vec<u32> {
        self.words
    }

    /// Appends words as they are.
    pub fn extend(&mut self, words: &[u32]) {
        self.words.extend_from_slice(words);
    }

    fn head(&mut self, opcode: u8, body: usize) -> Result<(), PacketError> {
        let dwords = body + 1;
        if dwords > header::MAX_DWORDS as usize {
            return Err(PacketError::TooLong { dwords });
        }
        self.words.push(header::type3(opcode, dwords as u32));
        Ok(())
    }

    fn wide(&mut self, value: u64) {
        self.words.push(value as u32);
        self.words.push((value >> 32) as u32);
    }

    /// SET_SH_REG of consecutive registers.
    ///
    /// # Errors
    /// No values, or too many.
    pub fn set_sh_reg(&mut self, offset: u16, values: &[u32]) -> Result<(), PacketError> {
        self.sh(op::SET_SH_REG, u32::from(offset), values)
    }

    fn sh(&mut self, opcode: u8, target: u32, values: &[u32]) -> Result<(), PacketError> {
        if values.is_empty() {
            return Err(PacketError::NoValues { name: "SET_SH_REG" });
        }
        self.head(opcode, values.len() + 1)?;
        self.words.push(target);
        self.words.extend_from_slice(values);
        Ok(())
    }

    /// DISPATCH_DIRECT.
    pub fn dispatch(&mut self, dim: [u32; 3], initiator: u32) {
        self.words.push(header::type3(op::DISPATCH_DIRECT, 5));
        self.words.extend_from_slice(&dim);
        self.words.push(initiator);
    }

    /// EVENT_WRITE CS_PARTIAL_FLUSH.
    pub fn wait(&mut self) {
        self.words
            .extend_from_slice(&[header::type3(op::EVENT_WRITE, 2), CS_PARTIAL_FLUSH]);
    }

    /// ACQUIRE_MEM over the full range.
    pub fn acquire(&mut self, gcr: u32) {
        self.words.extend_from_slice(&[
            header::type3(op::ACQUIRE_MEM, 8),
            0,
            FULL_SIZE_LO,
            FULL_SIZE_HI,
            0,
            0,
            POLL_INTERVAL,
            gcr,
        ]);
    }

    /// NOP of `dwords` in all, header included; nothing for 0.
    ///
    /// # Errors
    /// Longer than a packet can be.
    pub fn nop(&mut self, dwords: usize) -> Result<(), PacketError> {
        match dwords {
            0 => {}
            1 => self.words.push(header::NOP1),
            _ => {
                self.head(op::NOP, dwords - 1)?;
                self.words.resize(self.words.len() + dwords - 1, 0);
            }
        }
        Ok(())
    }

    /// Any packet.
    ///
    /// # Errors
    /// A body too long, empty where a value is needed, or a field that does not fit.
    pub fn packet(&mut self, packet: &Packet<'_>) -> Result<(), PacketError> {
        match *packet {
            Packet::Filler => self.words.push(header::TYPE2),
            Packet::Nop { body: [] } => self.words.push(header::NOP1),
            Packet::Nop { body } => {
                self.head(op::NOP, body.len())?;
                self.words.extend_from_slice(body);
            }
            Packet::SetShReg {
                offset,
                vmid_shift,
                index,
                values,
            } => {
                let target = sh_target(offset, vmid_shift, index)?;
                self.sh(op::SET_SH_REG, target, values)?;
            }
            Packet::SetShRegIndex {
                offset,
                vmid_shift,
                index,
                values,
            } => {
                let target = sh_target(offset, vmid_shift, index)?;
                self.sh(op::SET_SH_REG_INDEX, target, values)?;
            }
            Packet::DispatchDirect { dim, initiator } => self.dispatch(dim, initiator),
            Packet::EventWrite { control } => {
                self.words
                    .extend_from_slice(&[header::type3(op::EVENT_WRITE, 2), control]);
            }
            Packet::AcquireMem(packet) => self.acquire_mem(&packet),
            Packet::ReleaseMem(packet) => self.release_mem(&packet),
            Packet::WaitRegMem(packet) => self.wait_reg_mem(&packet),
            Packet::WaitRegMem64(packet) => self.wait_reg_mem64(&packet),
            Packet::IndirectBuffer { address, control } => {
                self.words.push(header::type3(op::INDIRECT_BUFFER, 4));
                self.wide(address);
                self.words.push(control);
            }
            Packet::Other { opcode, body } => {
                if body.is_empty() {
                    return Err(PacketError::NoValues { name: "a packet" });
                }
                self.head(opcode, body.len())?;
                self.words.extend_from_slice(body);
            }
            Packet::CopyData { control, src, dst } => {
                self.words
                    .extend_from_slice(&[header::type3(op::COPY_DATA, 6), control]);
                self.wide(src);
                self.wide(dst);
            }
            Packet::WriteData {
                control,
                address,
                data,
            } => {
                self.write_data(control, address, data)?;
            }
            Packet::AtomicMem {
                control,
                address,
                src,
                compare,
                interval,
            } => {
                self.atomic_mem(control, [address, src, compare], interval);
            }
        }
        Ok(())
    }

    fn atomic_mem(&mut self, control: u32, values: [u64; 3], interval: u16) {
        self.words
            .extend_from_slice(&[header::type3(op::ATOMIC_MEM, 9), control]);
        for value in values {
            self.wide(value);
        }
        self.words.push(u32::from(interval));
    }

    fn write_data(&mut self, control: u32, address: u64, data: &[u32]) -> Result<(), PacketError> {
        if data.is_empty() {
            return Err(PacketError::NoValues { name: "WRITE_DATA" });
        }
        self.head(op::WRITE_DATA, data.len() + 3)?;
        self.words.push(control);
        self.wide(address);
        self.words.extend_from_slice(data);
        Ok(())
    }

    fn acquire_mem(&mut self, packet: &AcquireMem) {
        self.words
            .extend_from_slice(&[header::type3(op::ACQUIRE_MEM, 8), packet.control]);
        self.wide(packet.size);
        self.wide(packet.base);
        self.words
            .extend_from_slice(&[u32::from(packet.poll), packet.gcr]);
    }

    fn release_mem(&mut self, packet: &ReleaseMem) {
        self.words.extend_from_slice(&[
            header::type3(op::RELEASE_MEM, 8),
            packet.control,
            packet.select,
        ]);
        self.wide(packet.address);
        self.wide(packet.data);
        self.words.push(packet.context);
    }

    fn wait_reg_mem(&mut self, packet: &WaitRegMem) {
        self.words
            .extend_from_slice(&[header::type3(op::WAIT_REG_MEM, 7), packet.control]);
        self.wide(packet.address);
        self.words
            .extend_from_slice(&[packet.reference, packet.mask, packet.poll]);
    }

    fn wait_reg_mem64(&mut self, packet: &WaitRegMem64) {
        self.words
            .extend_from_slice(&[header::type3(op::WAIT_REG_MEM64, 9), packet.control]);
        self.wide(packet.address);
        self.wide(packet.reference);
        self.wide(packet.mask);
        self.words.push(packet.poll);
    }
}

fn sh_target(offset: u16, vmid_shift: u8, index: u8) -> Result<u32, PacketError> {
    let name = "SET_SH_REG";
    if vmid_shift > 0x1F {
        let value = u32::from(vmid_shift);
        return Err(PacketError::Field {
            name,
            field: "VMID_SHIFT",
            value,
            bits: 5,
        });
    }
    if index > 0xF {
        let value = u32::from(index);
        return Err(PacketError::Field {
            name,
            field: "INDEX",
            value,
            bits: 4,
        });
    }
    Ok(u32::from(offset) | u32::from(vmid_shift) << 23 | u32::from(index) << 28)
}
