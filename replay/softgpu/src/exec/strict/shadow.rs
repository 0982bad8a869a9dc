//! What strict mode knows of a work-group's LDS: which bytes are defined, and who touched them last.
//!
//! Two accesses of different waves are ordered when a barrier lies between them that the first wave
//! signalled after its access was known to be complete (waited for). One cell stands for 4 bytes
//! until an access covers only part of it; then each byte has a cell of its own.

use super::track::Track;
use std::collections::HashMap;

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) wave: u8,
    pub(super) atomic: bool,
    /// Ordinal among the wave's LDS instructions, from 1.
    pub(super) ordinal: u32,
    /// Its micro-operation.
    pub(super) uop: u32,
}

/// What an access does to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    /// A write of a value that is or is not poison.
    Write {
        poison: bool,
    },
    /// Read, modify, write, of data that is or is not poison.
    Atomic {
        poison: bool,
    },
}

/// Two accesses without order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Race {
    pub(super) address: u32,
    pub(super) bytes: u32,
    pub(super) other: Mark,
    pub(super) what: &'static str,
}

/// Last uses of a cell.
#[derive(Clone, Debug, Default)]
struct Cell {
    written: Option<Mark>,
    /// Readers since the last write, each wave's latest.
    read: Vec<Mark>,
    defined: bool,
    /// Its bytes have cells of their own.
    split: bool,
}

impl Cell {
    fn clear(&mut self) {
        self.written = None;
        self.read.clear();
        self.defined = false;
        self.split = false;
    }

    /// Records a use; returns the earlier use that it races with, and whether it read poison.
    fn apply(&mut self, by: Mark, what: Use, t: &Track) -> (Option<(Mark, &'static str)>, bool) {
        let ordered = |m: &Mark| {
            m.wave == by.wave
                || t.seen
                    .get(usize::from(m.wave))
                    .is_some_and(|seen| m.ordinal <= *seen)
                || (m.atomic && by.atomic)
        };
        let poison = !self.defined;
        let write = self.written.filter(|m| !ordered(m));
        if what == Use::Read {
            match self.read.iter_mut().find(|m| m.wave == by.wave) {
                Some(m) => *m = by,
                None => self.read.push(by),
            }
            return (write.map(|m| (m, "read after write")), poison);
        }
        let read = self.read.iter().find(|m| !ordered(m)).copied();
        let race = write
            .map(|m| (m, "write after write"))
            .or(read.map(|m| (m, "write after read")));
        self.read.clear();
        self.written = Some(by);
        match what {
            Use::Write { poison } => self.defined = !poison,
            Use::Atomic { poison } => self.defined &= !poison,
            Use::Read => {}
        }
        (race, poison)
    }
}

/// LDS of one work-group.
#[derive(Default)]
pub(super) struct Shadow {
    cells: Vec<Cell>,
    bytes: HashMap<u32, [Cell; 4]>,
}

impl Shadow {
    /// Forgets everything; `bytes` of LDS, all undefined.
    pub(super) fn start(&mut self, bytes: u32) {
        let cells = bytes.div_ceil(4) as usize;
        self.cells.truncate(cells);
        for cell in &mut self.cells {
            cell.clear();
        }
        self.cells.resize(cells, Cell::default());
        self.bytes.clear();
    }

    /// An access to `len` bytes at `address`, which lie in the LDS. Keeps the first race in `race`;
    /// returns per dword of the access whether it read an undefined byte.
    pub(super) fn access(
        &mut self,
        address: u32,
        len: u32,
        by: Mark,
        what: Use,
        t: &Track,
        race: &mut Option<Race>,
    ) -> u32 {
        let mut poison = 0;
        let mut at = address;
        let end = address.saturating_add(len);
        while at < end {
            let part = (4 - at % 4).min(end - at);
            let (found, bad) = self.part(at, part, by, what, t);
            if let Some((other, what)) = found
                && race.is_none()
            {
                *race = Some(Race {
                    address: at,
                    bytes: part,
                    other,
                    what,
                });
            }
            // A part may lie across two dwords of the access.
            let first = (at - address) / 4;
            let last = (at + part - 1 - address) / 4;
            if bad {
                poison |= 1 << first.min(31) | 1 << last.min(31);
            }
            at += part;
        }
        poison
    }

    /// An access inside one dword.
    fn part(
        &mut self,
        at: u32,
        len: u32,
        by: Mark,
        what: Use,
        t: &Track,
    ) -> (Option<(Mark, &'static str)>, bool) {
        let index = at / 4;
        let Some(cell) = self.cells.get_mut(index as usize) else {
            return (None, false);
        };
        if len == 4 && !cell.split {
            return cell.apply(by, what, t);
        }
        if !cell.split {
            cell.split = true;
            let whole = Cell {
                split: false,
                ..cell.clone()
            };
            let four = std::array::from_fn(|_| whole.clone());
            self.bytes.insert(index, four);
        }
        let Some(four) = self.bytes.get_mut(&index) else {
            return (None, false);
        };
        let (mut race, mut poison) = (None, false);
        for cell in four.iter_mut().skip(at as usize % 4).take(len as usize) {
            let (found, bad) = cell.apply(by, what, t);
            race = race.or(found);
            poison |= bad;
        }
        (race, poison)
    }
}
