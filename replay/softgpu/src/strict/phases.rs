//! Waves of one work-group that meet in global memory between two of its barriers.
//!
//! For each group that runs, every byte of the pages that its waves touched since the last barrier is
//! marked with the wave that read it and the wave that wrote it last. A barrier clears the marks: what
//! was before it is ordered before what comes after it. A wave that has signalled at a split barrier
//! and not yet waited is ordered against neither side; its marks stay for the next phase. Atomics
//! leave no marks, and groups of one wave none at all. Work-groups among themselves are judged by
//! [`super::touch`], LDS by the wave side.

use super::bits::{PAGE, spans};
use super::hook::{Access, Company, Who};
use super::touch::{PageHasher, in_page, lane_runs};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// Pages that a group may touch between two barriers, 16 MiB of marks; reads and writes of further
/// ones are not compared.
const MAX_PAGES: usize = 2048;
/// Findings kept per batch.
const MAX_MEETINGS: usize = 64;
/// Entries of the table before the map of pages; a power of two.
const CACHED: usize = 64;
/// Several waves read the byte; else the wave plus one, or 0.
const SEVERAL: u8 = u8::MAX;

/// How two waves of a group meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeetingKind {
    /// Read of what another wave wrote.
    Read,
    /// Write over what another wave wrote.
    Write,
    /// Write over what another wave read.
    Overtaken,
}

/// Two waves of a group meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub(crate) who: Who,
    pub(crate) va: u64,
    pub(crate) len: u64,
    /// The wave that came before; none where it is one of several.
    pub(crate) other_wave: Option<u32>,
    pub(crate) what: MeetingKind,
}

/// Marks of one page.
#[derive(Debug)]
struct Marks {
    reads: [u8; PAGE as usize],
    writes: [u8; PAGE as usize],
    written: bool,
}

impl Marks {
    fn new() -> Box<Self> {
        Box::new(Self {
            reads: [0; PAGE as usize],
            writes: [0; PAGE as usize],
            written: false,
        })
    }

    fn clear(&mut self) {
        self.reads.fill(0);
        if self.written {
            self.writes.fill(0);
            self.written = false;
        }
    }

    /// Marks a read by wave `me - 1`; the bytes that another wave wrote, if there are any.
    fn read(&mut self, me: u8, from: usize, to: usize) -> Option<(usize, usize, u8)> {
        let met = if self.written {
            first_other(&self.writes[from..to], me)
        } else {
            None
        };
        for mark in &mut self.reads[from..to] {
            *mark = if *mark == 0 || *mark == me {
                me
            } else {
                SEVERAL
            };
        }
        met
    }

    /// Marks reads of `N` bytes at each of 32 offsets; inactive lanes repeat an active one.
    fn read_lanes<const N: usize>(&mut self, me: u8, at: &[i16; 32]) {
        for offset in at {
            let marks = self.reads.get_mut(*offset as usize..);
            let Some(marks) = marks.and_then(|tail| tail.first_chunk_mut::<N>()) else {
                continue;
            };
            for mark in marks {
                *mark = if *mark == 0 || *mark == me {
                    me
                } else {
                    SEVERAL
                };
            }
        }
    }

    /// Marks a write by wave `me - 1`; the bytes that another wave wrote or, if there are none, read.
    fn write(&mut self, me: u8, from: usize, to: usize) -> Option<(usize, usize, u8, MeetingKind)> {
        let wrote = first_other(&self.writes[from..to], me);
        let met = match wrote {
            Some((at, len, by)) => Some((at, len, by, MeetingKind::Write)),
            None => first_other(&self.reads[from..to], me)
                .map(|(at, len, by)| (at, len, by, MeetingKind::Overtaken)),
        };
        self.written = true;
        self.writes[from..to].fill(me);
        met
    }
}

/// The first run of marks of one other wave: offset, length, mark.
fn first_other(marks: &[u8], me: u8) -> Option<(usize, usize, u8)> {
    let foreign = marks
        .iter()
        .fold(false, |found, mark| found | (*mark != 0 && *mark != me));
    if !foreign {
        return None;
    }
    let at = marks.iter().position(|mark| *mark != 0 && *mark != me)?;
    let by = marks[at];
    let len = marks[at..].iter().take_while(|mark| **mark == by).count();
    Some((at, len, by))
}

type PageMap = HashMap<u64, u32, BuildHasherDefault<PageHasher>>;

/// The pages of one phase; values are indices into [`Phases::marks`].
#[derive(Debug)]
struct Phase {
    map: PageMap,
    cache: Box<[(u64, u32); CACHED]>,
}

impl Default for Phase {
    fn default() -> Self {
        Self {
            map: PageMap::default(),
            cache: Box::new([(u64::MAX, 0); CACHED]),
        }
    }
}

#[derive(Debug)]
struct Group {
    launch: u32,
    number: u32,
    now: Phase,
    /// What waves between signal and wait touched.
    next: Phase,
}

/// The groups of a batch that run. All storage is kept.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    groups: Vec<Group>,
    /// Groups that have ended, empty.
    idle: Vec<Group>,
    marks: Vec<Box<Marks>>,
    /// Indices of cleared marks.
    free: Vec<u32>,
    meetings: Vec<Meeting>,
}

impl Phases {
    /// Forgets the last batch.
    pub(crate) fn begin(&mut self) {
        while let Some(group) = self.groups.pop() {
            self.retire(group);
        }
        self.meetings.clear();
    }

    /// Takes the meetings found in this batch.
    pub(crate) fn take_meetings(&mut self) -> Vec<Meeting> {
        std::mem::take(&mut self.meetings)
    }

    /// A barrier of the group has completed.
    pub(crate) fn completed(&mut self, launch: u32, number: u32) {
        let Some(index) = self.find(launch, number) else {
            return;
        };
        let group = &mut self.groups[index];
        std::mem::swap(&mut group.now, &mut group.next);
        release(&mut group.next, &mut self.marks, &mut self.free);
    }

    /// The group has ended.
    pub(crate) fn ended(&mut self, launch: u32, number: u32) {
        if let Some(index) = self.find(launch, number) {
            let group = self.groups.swap_remove(index);
            self.retire(group);
        }
    }

    fn retire(&mut self, mut group: Group) {
        release(&mut group.now, &mut self.marks, &mut self.free);
        release(&mut group.next, &mut self.marks, &mut self.free);
        self.idle.push(group);
    }

    fn find(&self, launch: u32, number: u32) -> Option<usize> {
        self.groups
            .iter()
            .position(|group| group.number == number && group.launch == launch)
    }

    /// A load or store of a wave that is not alone in its group.
    pub(crate) fn access(&mut self, access: &Access<'_>, write: bool) {
        if access.company == Company::Alone || access.lanes == 0 {
            return;
        }
        let who = access.who;
        let index = self.find(who.launch, who.group).unwrap_or_else(|| {
            let group = self.idle.pop().unwrap_or_else(|| Group {
                launch: 0,
                number: 0,
                now: Phase::default(),
                next: Phase::default(),
            });
            self.groups.push(Group {
                launch: who.launch,
                number: who.group,
                ..group
            });
            self.groups.len() - 1
        });
        let between = access.company == Company::Between;
        if !write && !between && self.read_page(index, access) {
            return;
        }
        lane_runs(access, |va, len| {
            for (page, from, to) in spans(va, len) {
                self.part(index, false, who, page, (from, to), write);
                if between {
                    self.part(index, true, who, page, (from, to), write);
                }
            }
        });
    }

    /// A load whose lanes all lie in one page that no wave has written, the usual case; whether it
    /// was one.
    fn read_page(&mut self, index: usize, access: &Access<'_>) -> bool {
        let Some(lanes) = in_page(access) else {
            return false;
        };
        let first = access.at[(access.lanes.trailing_zeros() & 31) as usize];
        let Some(marks) = self.marks(index, false, first / PAGE) else {
            return true;
        };
        let marks = &mut self.marks[marks as usize];
        let me = (access.who.wave & 31) as u8 + 1;
        if marks.written {
            return false;
        }
        match access.bytes {
            1 => marks.read_lanes::<1>(me, &lanes.at),
            2 => marks.read_lanes::<2>(me, &lanes.at),
            4 => marks.read_lanes::<4>(me, &lanes.at),
            8 => marks.read_lanes::<8>(me, &lanes.at),
            16 => marks.read_lanes::<16>(me, &lanes.at),
            _ => return false,
        }
        true
    }

    /// The marks of a page; `None` once there are too many pages.
    fn marks(&mut self, index: usize, next: bool, page: u64) -> Option<u32> {
        let group = &mut self.groups[index];
        let phase = if next {
            &mut group.next
        } else {
            &mut group.now
        };
        let slot = page as usize % CACHED;
        match phase.cache[slot] {
            (cached, marks) if cached == page => Some(marks),
            _ => {
                if phase.map.len() >= MAX_PAGES && !phase.map.contains_key(&page) {
                    return None;
                }
                let marks = *phase.map.entry(page).or_insert_with(|| {
                    self.free.pop().unwrap_or_else(|| {
                        self.marks.push(Marks::new());
                        self.marks.len() as u32 - 1
                    })
                });
                phase.cache[slot] = (page, marks);
                Some(marks)
            }
        }
    }

    fn part(
        &mut self,
        index: usize,
        next: bool,
        who: Who,
        page: u64,
        (from, to): (u32, u32),
        write: bool,
    ) {
        let Some(marks) = self.marks(index, next, page) else {
            return;
        };
        let marks = &mut self.marks[marks as usize];
        let me = (who.wave & 31) as u8 + 1;
        let (first, last) = (from as usize, to as usize);
        let met = if write {
            marks.write(me, first, last)
        } else {
            let met = marks.read(me, first, last);
            met.map(|(at, len, by)| (at, len, by, MeetingKind::Read))
        };
        if let Some((at, len, by, what)) = met {
            self.meeting(Meeting {
                who,
                va: page * PAGE + u64::from(from) + at as u64,
                len: len as u64,
                other_wave: (by != SEVERAL).then(|| u32::from(by) - 1),
                what,
            });
        }
    }

    #[cold]
    fn meeting(&mut self, found: Meeting) {
        let same = |known: &Meeting| {
            known.who.pc == found.who.pc
                && known.who.launch == found.who.launch
                && known.what == found.what
        };
        if self.meetings.len() < MAX_MEETINGS && !self.meetings.iter().any(same) {
            self.meetings.push(found);
        }
    }
}

fn release(phase: &mut Phase, marks: &mut [Box<Marks>], free: &mut Vec<u32>) {
    if phase.map.is_empty() {
        return;
    }
    for (_, index) in phase.map.drain() {
        marks[index as usize].clear();
        free.push(index);
    }
    phase.cache.fill((u64::MAX, 0));
}

#[cfg(test)]
mod tests {
    use super::{MeetingKind, Phases};
    use crate::strict::hook::{Access, Company, Path, Who};

    fn touch(phases: &mut Phases, wave: u32, at: u64, write: bool, company: Company) {
        let who = Who {
            launch: 1,
            group: 2,
            wave,
            pc: u64::from(wave) * 4,
        };
        let at = std::array::from_fn(|lane| at + 2 * lane as u64);
        let access = Access {
            who,
            at: &at,
            lanes: u32::MAX,
            bytes: 2,
            path: Path::Vector { cache: 0 },
            company,
        };
        phases.access(&access, write);
    }

    fn found(phases: &mut Phases) -> Vec<(u64, u64, Option<u32>, MeetingKind)> {
        let list = phases.take_meetings().into_iter();
        list.map(|m| (m.va, m.len, m.other_wave, m.what)).collect()
    }

    #[test]
    fn waves_meet_to_the_byte_and_a_barrier_parts_them() {
        let among = Company::Among;
        let mut phases = Phases::default();
        // Neighbours that share a dword but no byte, across the end of a page.
        touch(&mut phases, 0, 4096 - 62, true, among);
        touch(&mut phases, 1, 4096 + 2, true, among);
        touch(&mut phases, 0, 4096 - 62, false, among);
        assert_eq!(found(&mut phases), []);
        touch(&mut phases, 3, 4096 - 2, false, among);
        let read = (4094, 2, Some(0), MeetingKind::Read);
        assert_eq!(found(&mut phases), [read]);
        phases.completed(1, 2);
        touch(&mut phases, 3, 4096 - 2, false, among);
        touch(&mut phases, 2, 4096 - 2, false, among);
        assert_eq!(found(&mut phases), []);
        touch(&mut phases, 1, 4096 + 60, true, among);
        assert_eq!(
            found(&mut phases),
            [(4156, 2, None, MeetingKind::Overtaken)]
        );
        touch(&mut phases, 2, 4096 + 60, true, among);
        assert_eq!(
            found(&mut phases),
            [(4156, 64, Some(1), MeetingKind::Write)]
        );
        phases.ended(1, 2);
        touch(&mut phases, 0, 4096 + 60, true, among);
        assert_eq!(found(&mut phases), []);
    }

    #[test]
    fn between_signal_and_wait_a_wave_is_beside_both_phases() {
        let mut phases = Phases::default();
        touch(&mut phases, 0, 0, true, Company::Between);
        touch(&mut phases, 1, 0, false, Company::Among);
        assert_eq!(found(&mut phases).len(), 1);
        phases.completed(1, 2);
        touch(&mut phases, 1, 0, false, Company::Among);
        assert_eq!(found(&mut phases).len(), 1);
        phases.completed(1, 2);
        touch(&mut phases, 1, 0, false, Company::Among);
        touch(&mut phases, 1, 0, true, Company::Alone);
        assert_eq!(found(&mut phases), []);
    }
}
