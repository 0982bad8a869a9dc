//! The SH register-file model: a value or *unset* per compute register.
//!
//! Registers are unset at the start of an indirect buffer, because nothing may be assumed about
//! what ran before. A [`Snapshot`] is what one dispatch sees.

use crate::decode::{DecodeError, packets};
use crate::packet::Packet;
use crate::tables::registers::{COMPUTE_FIRST, COMPUTE_LAST, SH_WINDOW_END, reg};

const COUNT: usize = (COMPUTE_LAST - COMPUTE_FIRST + 1) as usize;

/// Compute SH registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShState {
    values: [u32; COUNT],
    set: u128,
}

impl Default for ShState {
    fn default() -> Self {
        Self {
            values: [0; COUNT],
            set: 0,
        }
    }
}

impl ShState {
    /// The value of a register, or `None` when it is unset or outside the compute block.
    pub fn get(&self, offset: u16) -> Option<u32> {
        let i = offset.checked_sub(COMPUTE_FIRST)?;
        if usize::from(i) >= COUNT || self.set >> i & 1 == 0 {
            return None;
        }
        self.values.get(usize::from(i)).copied()
    }

    /// Writes a register; offsets outside the compute block are ignored.
    pub fn write(&mut self, offset: u16, value: u32) {
        let Some(i) = offset.checked_sub(COMPUTE_FIRST) else {
            return;
        };
        if let Some(slot) = self.values.get_mut(usize::from(i)) {
            *slot = value;
            self.set |= 1 << i;
        }
    }

    /// Applies a packet's register writes.
    pub fn apply(&mut self, packet: &Packet<'_>) {
        if let Packet::SetShReg { offset, values, .. }
        | Packet::SetShRegIndex { offset, values, .. } = packet
        {
            // The window's end stops runs that would leave the 16-bit offset.
            for (at, value) in (*offset..SH_WINDOW_END).zip(values.iter()) {
                self.write(at, *value);
            }
        }
    }

    /// USER_DATA register `index`.
    pub fn user_data(&self, index: u16) -> Option<u32> {
        if index > 15 {
            None
        } else {
            self.get(reg::USER_DATA_0 + index)
        }
    }

    /// Kernel entry address from PGM_LO and PGM_HI.
    pub fn entry_va(&self) -> Option<u64> {
        let lo = u64::from(self.get(reg::PGM_LO)?);
        let hi = u64::from(self.get(reg::PGM_HI)?);
        Some(lo << 8 | hi << 40)
    }

    /// Offsets and values of all set registers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        (COMPUTE_FIRST..=COMPUTE_LAST).filter_map(|at| self.get(at).map(|value| (at, value)))
    }
}

/// What one DISPATCH_DIRECT sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Dword offset of the dispatch packet.
    pub offset: u32,
    /// Its dimensions.
    pub dim: [u32; 3],
    /// Its initiator.
    pub initiator: u32,
    /// Registers.
    pub state: ShState,
}

impl Snapshot {
    /// True when two dispatches see the same registers and arguments, wherever they stand.
    pub fn same_work(&self, other: &Self) -> bool {
        self.dim == other.dim && self.initiator == other.initiator && self.state == other.state
    }
}

/// Snapshots of every dispatch of an indirect buffer.
///
/// # Errors
/// The first packet that cannot be decoded.
pub fn snapshots(words: &[u32]) -> Result<Vec<Snapshot>, DecodeError> {
    let mut state = ShState::default();
    let mut out = Vec::new();
    for item in packets(words) {
        let located = item?;
        state.apply(&located.packet);
        if let Packet::DispatchDirect { dim, initiator } = located.packet {
            out.push(Snapshot {
                offset: located.offset,
                dim,
                initiator,
                state,
            });
        }
    }
    Ok(out)
}
