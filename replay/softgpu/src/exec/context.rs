//! What a running wave needs beside its own state.

use super::program::Program;
use super::uop::{Flow, Src};
use super::wave::Row;
use crate::memory::{Access, LastHit, Rights, View};
use std::sync::atomic::AtomicBool;

/// Why a wave cannot go on; the batch adds kernel, group, wave and instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A memory access that the view does not allow.
    Memory {
        lane: u32,
        address: u64,
        length: u64,
        access: Access,
    },
    /// An access outside the group's LDS.
    Lds {
        lane: u32,
        address: u32,
        length: u32,
    },
    /// An access outside the lane's scratch memory.
    Scratch {
        lane: u32,
        address: u32,
        length: u32,
        size: u32,
    },
    /// An instruction whose effect is not modelled in this situation.
    Unsupported(&'static str),
    /// Words that do not decode were reached.
    Undecodable,
    /// A jump to where no instruction begins.
    Jump { address: u64 },
    /// Budget used up.
    Budget,
    /// Somebody gave the batch up.
    Stopped,
}

/// Last-hit slots of memory instructions.
pub(crate) const HITS: usize = 16;

/// Shared by the waves of one work-group.
pub(crate) struct Ctx<'a> {
    pub(crate) program: &'a Program,
    pub(crate) constants: &'a [Row],
    pub(crate) view: &'a View,
    /// Set when the batch is given up.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) lds: &'a mut [u8],
    pub(crate) hits: &'a mut [LastHit; HITS],
    pub(crate) fault: Option<Fault>,
    /// Waves of the group that have not ended.
    pub(crate) alive: u32,
    /// Signals of the group's barrier since it last completed.
    pub(crate) signals: u32,
    /// The barrier completed during this wave's turn.
    pub(crate) completed: bool,
}

impl Ctx<'_> {
    #[inline(always)]
    pub(crate) fn constant(&self, src: Src) -> &Row {
        const ZERO: Row = [0; 32];
        self.constants
            .get(usize::from(src.0 & 0x3fff))
            .unwrap_or(&ZERO)
    }

    /// Whether `length` bytes at `address` may be accessed.
    #[inline(always)]
    pub(crate) fn allows(&mut self, hit: u8, address: u64, length: u64, need: Rights) -> bool {
        let hit = &mut self.hits[usize::from(hit) % HITS];
        self.view.allows(hit, address, length, need)
    }

    /// Whether `each` bytes at all 32 addresses may be accessed, all in one allocation.
    #[inline(always)]
    pub(crate) fn allows_all(&mut self, hit: u8, at: &[u64; 32], each: u64, need: Rights) -> bool {
        let hit = &mut self.hits[usize::from(hit) % HITS];
        self.view.allows_all(hit, at, each, need)
    }

    /// Records why the wave stops.
    #[cold]
    pub(crate) fn stop(&mut self, fault: Fault) -> Flow {
        self.fault = Some(fault);
        Flow::FAULT
    }
}
