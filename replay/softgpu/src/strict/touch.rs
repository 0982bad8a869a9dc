//! What the launches of a batch touch, byte by byte: the hot half of strict mode.
//!
//! Every launch has a page record per 4 KiB page that it touches, with one bitmap of read bytes per
//! way through the caches and one of written bytes. A read counts only where the launch has not
//! written the byte itself before: what it reads then is its own. Written pages also keep the last
//! writer (group and wave) of each 4-byte cell, because the groups of one launch are not ordered
//! among themselves; two groups that write different bytes of one cell are told apart by the bitmap.
//! Read pages keep the group that reads them, and once a second one does, the group of each cell.
//! Bounds were checked before; judging the result is left to `check`.

use super::bits::{self, Bits, EMPTY, PAGE, spans};
use super::caches::Caches;
use super::hook::{Access, AtomicKind, Who};
use super::ranges::Ranges;
use super::shadow::{DEFINED, Shadow};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Ways through the caches that a launch may use; the sets that the two paths and the cache bits
/// of both generations can give are fewer.
const CLASSES: usize = 8;
/// Instructions remembered per page of a launch.
const SITES: usize = 4;
/// Entries of the table before the map of pages; a power of two.
const CACHED: usize = 512;
/// Findings kept per batch.
const MAX_CONFLICTS: usize = 64;
const NONE: u32 = u32::MAX;
/// Several groups read a page.
const SPLIT: u32 = u32::MAX;
/// Several groups read the same bytes of a cell; the rest is the first of them plus one.
const SEVERAL: u32 = 1 << 31;
/// Several groups read different bytes of a cell, which is not followed further.
const MIXED: u32 = u32::MAX;
/// Bits of a page number: 48-bit addresses have 36.
const PAGE_BITS: u32 = 44;

/// An instruction that touched a page, and how far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) pc: u64,
    pub(crate) group: u32,
    pub(crate) wave: u32,
    from: u16,
    to: u16,
    write: bool,
}

#[derive(Clone, Copy, Debug)]
struct PageRecord {
    key: u64,
    reads: [u32; CLASSES],
    write: u32,
    /// Bytes touched by atomics.
    atomic: u32,
    /// Of those, bytes where an atomic shows in which order it came.
    ordered: u32,
    /// Of those, bytes that were also read or written by plain instructions.
    plain: u32,
    owners: u32,
    /// Reading group plus one; 0 none yet, [`SPLIT`] where the cells of `readers` say it.
    reader: u32,
    readers: u32,
    shadow: u32,
    sites: [Site; SITES],
    used: u8,
    /// More instructions than that touched the page.
    more: bool,
}

/// The last writer of each 4-byte cell: `group << 5 | wave` plus one.
type Owners = [u32; (PAGE / 4) as usize];

/// Two groups of one launch meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) who: Who,
    pub(crate) va: u64,
    pub(crate) len: u64,
    /// Group that came before; none where it is one of several.
    pub(crate) other_group: Option<u32>,
    pub(crate) what: ConflictKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConflictKind {
    /// Read of what another group of the launch wrote.
    Read,
    /// Write over what another group of the launch wrote.
    Write,
    /// Write over what another group of the launch read.
    Overtaken,
    /// Atomics whose result depends on who comes first.
    Atomic,
}

/// Multiplies and folds: page numbers are not adversarial.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let x = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
}

type PageMap = HashMap<u64, u32, BuildHasherDefault<PageHasher>>;

/// The page records of a batch. All storage is kept between batches.
#[derive(Debug)]
pub(crate) struct Touch {
    map: PageMap,
    pages: Vec<PageRecord>,
    cache: Box<[(u64, u32); CACHED]>,
    bitmaps: Vec<Bits>,
    used_bitmaps: usize,
    owners: Vec<Box<Owners>>,
    used_owners: usize,
    classes: Vec<Caches>,
    class_of: [u8; 16],
    conflicts: Vec<Conflict>,
}

impl Default for Touch {
    fn default() -> Self {
        Self {
            map: PageMap::default(),
            pages: Vec::new(),
            cache: Box::new([(u64::MAX, NONE); CACHED]),
            bitmaps: Vec::new(),
            used_bitmaps: 0,
            owners: Vec::new(),
            used_owners: 0,
            classes: Vec::new(),
            class_of: [u8::MAX; 16],
            conflicts: Vec::new(),
        }
    }
}

/// The lanes of an access as runs of consecutive bytes, in lane order. Lanes inside the current run
/// add nothing.
#[inline(always)]
pub(super) fn lane_runs(access: &Access<'_>, mut run: impl FnMut(u64, u64)) {
    let each = u64::from(access.bytes);
    let mut left = access.lanes;
    let first = access.at[(left.trailing_zeros() & 31) as usize];
    let (mut start, mut end) = (first, first + each);
    left &= left.wrapping_sub(1);
    while left != 0 {
        let at = access.at[(left.trailing_zeros() & 31) as usize];
        left &= left - 1;
        if at == end {
            end = at + each;
        } else if at < start || at + each > end {
            run(start, end - start);
            (start, end) = (at, at + each);
        }
    }
    run(start, end - start);
}

/// The lanes of an access as offsets in one page, where they all lie in one.
pub(super) struct InPage {
    /// Offset of the first byte of each lane.
    pub(super) at: [i16; 32],
    from: u32,
    to: u32,
}

/// The lanes' offsets if they all lie in the page of the first active one; inactive lanes are given
/// the place of that one.
#[inline(always)]
pub(super) fn in_page(access: &Access<'_>) -> Option<InPage> {
    let first = access.at[(access.lanes.trailing_zeros() & 31) as usize];
    let last = u64::from(access.bytes) - 1;
    let mut differ = 0;
    let mut at = [0i16; 32];
    if access.lanes == u32::MAX {
        for (slot, va) in at.iter_mut().zip(access.at) {
            differ |= (va ^ first) | (va.wrapping_add(last) ^ first);
            *slot = (va % PAGE) as i16;
        }
    } else {
        for (lane, (slot, va)) in at.iter_mut().zip(access.at).enumerate() {
            let active = access.lanes >> lane & 1 == 1;
            let va = if active { *va } else { first };
            differ |= (va ^ first) | (va.wrapping_add(last) ^ first);
            *slot = (va % PAGE) as i16;
        }
    }
    if differ >= PAGE {
        return None;
    }
    let (mut from, mut to) = (at[0], at[0]);
    for offset in at {
        from = from.min(offset);
        to = to.max(offset);
    }
    let (from, to) = (from as u32, to as u32 + access.bytes);
    Some(InPage { at, from, to })
}

impl InPage {
    /// Sets the bytes of all lanes, `bytes` each.
    #[inline(always)]
    fn set(&self, bits: &mut Bits, bytes: u32) {
        if self.to - self.from == 32 * bytes {
            let mut differ = 0;
            for (lane, at) in (0i16..).zip(self.at) {
                differ |= at ^ (self.from as i16).wrapping_add(lane.wrapping_mul(bytes as i16));
            }
            if differ == 0 {
                return bits::set(bits, self.from, self.to);
            }
        }
        let mut run = (self.at[0] as u32, self.at[0] as u32 + bytes);
        for at in &self.at[1..] {
            let at = *at as u32;
            if at == run.1 {
                run.1 += bytes;
            } else if at < run.0 || at + bytes > run.1 {
                bits::set(bits, run.0, run.1);
                run = (at, at + bytes);
            }
        }
        bits::set(bits, run.0, run.1);
    }
}

const fn owner(who: Who) -> u32 {
    (who.group << 5 | who.wave & 31) + 1
}

impl Touch {
    /// Forgets the last batch.
    pub(crate) fn begin(&mut self) {
        self.map.clear();
        self.pages.clear();
        self.cache.fill((u64::MAX, NONE));
        self.used_bitmaps = 0;
        self.used_owners = 0;
        self.conflicts.clear();
    }

    /// The number of a way through the caches.
    #[inline(always)]
    pub(crate) fn class(&mut self, path: Caches) -> usize {
        let slot = &mut self.class_of[usize::from(path.0 & 15)];
        if *slot == u8::MAX {
            *slot = self.classes.len() as u8;
            self.classes.push(path);
        }
        usize::from(*slot) % CLASSES
    }

    fn bitmap(&mut self) -> u32 {
        let index = self.used_bitmaps;
        self.used_bitmaps += 1;
        match self.bitmaps.get_mut(index) {
            Some(bits) => bits.fill(0),
            None => self.bitmaps.push(EMPTY),
        }
        index as u32
    }

    fn owner_cells(&mut self) -> u32 {
        let index = self.used_owners;
        self.used_owners += 1;
        match self.owners.get_mut(index) {
            Some(cells) => cells.fill(0),
            None => self.owners.push(Box::new([0; (PAGE / 4) as usize])),
        }
        index as u32
    }

    #[inline(always)]
    fn page(&mut self, launch: u32, page: u64, shadow: &mut Shadow) -> u32 {
        let key = page | u64::from(launch) << PAGE_BITS;
        let slot = (page ^ u64::from(launch).wrapping_mul(0x9b)) as usize % CACHED;
        let (cached, index) = self.cache[slot];
        if cached == key {
            return index;
        }
        self.find(key, page, slot, shadow)
    }

    #[inline(never)]
    fn find(&mut self, key: u64, page: u64, slot: usize, shadow: &mut Shadow) -> u32 {
        let next = self.pages.len() as u32;
        let index = *self.map.entry(key).or_insert(next);
        if index == next {
            self.pages.push(PageRecord {
                key,
                reads: [NONE; CLASSES],
                write: NONE,
                atomic: NONE,
                ordered: NONE,
                plain: NONE,
                owners: NONE,
                reader: 0,
                readers: NONE,
                shadow: shadow.page(page),
                sites: [Site::default(); SITES],
                used: 0,
                more: false,
            });
        }
        self.cache[slot] = (key, index);
        index
    }

    #[inline(always)]
    fn site(&mut self, index: u32, who: Who, from: u32, to: u32, write: bool) {
        let record = &mut self.pages[index as usize];
        let (from, to) = (from as u16, to as u16);
        let used = usize::from(record.used).min(SITES);
        for site in &mut record.sites[..used] {
            if site.pc == who.pc {
                site.from = site.from.min(from);
                site.to = site.to.max(to);
                return;
            }
        }
        if used < SITES {
            let (pc, group, wave) = (who.pc, who.group, who.wave);
            record.sites[used] = Site {
                pc,
                group,
                wave,
                from,
                to,
                write,
            };
            record.used += 1;
        } else {
            record.more = true;
        }
    }

    /// A load through `class`. Returns the lanes that read an undefined byte.
    pub(crate) fn load(&mut self, access: &Access<'_>, class: usize, shadow: &mut Shadow) -> u32 {
        if access.lanes == 0 {
            return 0;
        }
        if let Some(lanes) = in_page(access) {
            let first = access.at[(access.lanes.trailing_zeros() & 31) as usize];
            let index = self.page(access.who.launch, first / PAGE, shadow);
            let record = &self.pages[index as usize];
            if record.write == NONE && record.shadow == DEFINED {
                let known = record.reader == access.who.group + 1
                    || record.reader == SPLIT && self.settled(record, class, lanes.from, lanes.to);
                if !known {
                    lane_runs(access, |va, len| {
                        let from = (va % PAGE) as u32;
                        self.reader(access.who, index, from, from + len as u32);
                    });
                }
                self.load_plain(access, class, index, &lanes);
                return 0;
            }
        }
        let mut undefined = false;
        lane_runs(access, |va, len| {
            for (page, from, to) in spans(va, len) {
                undefined |= self.read(access.who, class, page, from, to, shadow);
            }
        });
        if undefined {
            undefined_lanes(access, shadow)
        } else {
            0
        }
    }

    /// A load inside one page that is defined and that the launch has not written.
    #[inline(always)]
    fn load_plain(&mut self, access: &Access<'_>, class: usize, index: u32, lanes: &InPage) {
        let mut bits = self.pages[index as usize].reads[class];
        if bits == NONE {
            bits = self.bitmap();
            self.pages[index as usize].reads[class] = bits;
        } else if bits::all(&self.bitmaps[bits as usize], lanes.from, lanes.to) {
            // Nothing new: the usual case of a vector that every group reads.
            return;
        }
        self.site(index, access.who, lanes.from, lanes.to, false);
        lanes.set(&mut self.bitmaps[bits as usize], access.bytes);
    }

    /// Marks `[from, to)` of a page as read; whether any of it is undefined.
    fn read(
        &mut self,
        who: Who,
        class: usize,
        page: u64,
        from: u32,
        to: u32,
        shadow: &mut Shadow,
    ) -> bool {
        let index = self.page(who.launch, page, shadow);
        self.site(index, who, from, to, false);
        self.reader(who, index, from, to);
        let record = &self.pages[index as usize];
        let mut bits = record.reads[class];
        if bits == NONE {
            bits = self.bitmap();
            self.pages[index as usize].reads[class] = bits;
        }
        let record = &self.pages[index as usize];
        if record.write == NONE && record.shadow == DEFINED {
            bits::set(&mut self.bitmaps[bits as usize], from, to);
            return false;
        }
        self.read_written(who, index, bits, from, to, shadow)
    }

    #[inline(never)]
    fn read_written(
        &mut self,
        who: Who,
        index: u32,
        bits: u32,
        from: u32,
        to: u32,
        shadow: &mut Shadow,
    ) -> bool {
        let record = self.pages[index as usize];
        let undefined = record.shadow != DEFINED && !shadow.is_defined(record.shadow, from, to);
        if record.write == NONE {
            bits::set(&mut self.bitmaps[bits as usize], from, to);
            return undefined;
        }
        self.plain(record, from, to);
        let mut own = false;
        for (word, mask) in bits::words(from, to) {
            let written = self.bitmaps[record.write as usize][word];
            own |= written & mask != 0;
            self.bitmaps[bits as usize][word] |= mask & !written;
        }
        if own {
            self.meet(who, record, from, to, ConflictKind::Read);
        }
        undefined
    }

    /// Which bytes of `[from, to)`, inside one cell, the launch read before writing them; bits as in
    /// the cell's word of a bitmap.
    fn read_mask(&self, record: &PageRecord, from: u32, to: u32) -> u64 {
        let parts = bits::words(from, to).map(|(word, mask)| {
            let bitmaps = record.reads.iter();
            let bitmaps = bitmaps.filter_map(|bits| self.bitmaps.get(*bits as usize));
            bitmaps.fold(0, |all, bits| all | bits[word]) & mask
        });
        parts.fold(0, |all, part| all | part)
    }

    /// Whether the launch read all of `[from, to)` before writing it.
    fn all_read(&self, record: &PageRecord, from: u32, to: u32) -> bool {
        bits::words(from, to).all(|(word, mask)| {
            let bitmaps = record.reads.iter();
            let bitmaps = bitmaps.filter_map(|bits| self.bitmaps.get(*bits as usize));
            bitmaps.fold(0, |all, bits| all | bits[word]) & mask == mask
        })
    }

    /// Whether several groups have read each cell of `[from, to)`, and all bytes of it this way: the
    /// usual case of a vector that every group reads, where another reader changes nothing.
    fn settled(&self, record: &PageRecord, class: usize, from: u32, to: u32) -> bool {
        let range = (from / 4) as usize..to.div_ceil(4) as usize;
        let cells = self.owners.get(record.readers as usize);
        let cells = cells.and_then(|cells| cells.get(range)).unwrap_or_default();
        let read = self.bitmaps.get(record.reads[class] as usize);
        !cells.is_empty()
            && cells.iter().fold(SEVERAL, |all, cell| all & cell) != 0
            && read.is_some_and(|read| bits::all(read, from, to))
    }

    /// Remembers which group reads `[from, to)` of a page, before the bytes count as read.
    #[inline(never)]
    fn reader(&mut self, who: Who, index: u32, from: u32, to: u32) {
        let me = who.group + 1;
        let record = self.pages[index as usize];
        if record.reader == me {
            return;
        }
        if record.reader == 0 {
            self.pages[index as usize].reader = me;
            return;
        }
        if record.reader != SPLIT {
            self.split(index);
        }
        let record = self.pages[index as usize];
        let range = (from / 4) as usize..to.div_ceil(4) as usize;
        let cells = &self.owners[record.readers as usize][range.clone()];
        let settled = cells.iter().fold(SEVERAL, |all, cell| all & cell) != 0;
        // Bytes that are new may part the readers of a cell.
        if settled && self.all_read(&record, from, to) {
            return;
        }
        for cell in range {
            let start = cell as u32 * 4;
            let (from, to) = (start.max(from), (start + 4).min(to));
            let known = self.read_mask(&record, start, start + 4);
            let now = bits::words(from, to).fold(0, |all, (_, mask)| all | mask);
            let slot = &mut self.owners[record.readers as usize][cell];
            *slot = match *slot {
                0 => me,
                by if by == me || by == MIXED => by,
                by if by & SEVERAL != 0 && now & !known == 0 => by,
                by if by & SEVERAL == 0 && known == now => by | SEVERAL,
                _ => MIXED,
            };
        }
    }

    /// A second group reads a page: what was read so far becomes cells of the first.
    fn split(&mut self, index: u32) {
        let readers = self.owner_cells();
        let record = &mut self.pages[index as usize];
        let first = std::mem::replace(&mut record.reader, SPLIT);
        record.readers = readers;
        let cells = &mut self.owners[readers as usize];
        for bits in record.reads {
            if let Some(bits) = self.bitmaps.get(bits as usize) {
                bits::runs(bits, |from, to| {
                    cells[(from / 4) as usize..to.div_ceil(4) as usize].fill(first);
                });
            }
        }
    }

    /// Looks for bytes of `[from, to)` that another group read, and reports the first.
    #[inline(never)]
    fn overtake(&mut self, who: Who, record: PageRecord, from: u32, to: u32) {
        let me = who.group + 1;
        for cell in from / 4..to.div_ceil(4) {
            let cells = self.owners.get(record.readers as usize);
            let by = cells.map_or(record.reader, |cells| cells[(cell & 1023) as usize]);
            if by == 0 || by == me || by == MIXED {
                continue;
            }
            let (start, end) = ((cell * 4).max(from), (cell * 4 + 4).min(to));
            if self.read_mask(&record, start, end) == 0 {
                continue;
            }
            let first = by & !SEVERAL;
            let page = record.key & ((1 << PAGE_BITS) - 1);
            self.conflict(Conflict {
                who,
                va: page * PAGE + u64::from(start),
                len: u64::from(end - start),
                other_group: (first != me).then(|| first - 1),
                what: ConflictKind::Overtaken,
            });
            return;
        }
    }

    /// A plain access of bytes that atomics may have touched.
    fn plain(&mut self, record: PageRecord, from: u32, to: u32) {
        if let Some(plain) = self.bitmaps.get_mut(record.plain as usize) {
            bits::set(plain, from, to);
        }
    }

    /// The first atomic of a launch on some bytes, which plain instructions may have touched before.
    fn first_atomic(&mut self, record: PageRecord, from: u32, to: u32) {
        let earlier = record.reads.into_iter().chain([record.write]);
        for (word, mask) in bits::words(from, to) {
            let mask = mask & !self.bitmaps[record.atomic as usize][word];
            let touched = earlier
                .clone()
                .filter_map(|bits| self.bitmaps.get(bits as usize));
            let touched = touched.fold(0, |all, bits| all | bits[word]);
            self.bitmaps[record.plain as usize][word] |= touched & mask;
        }
    }

    /// Looks for bytes of `[from, to)` that another group wrote, and reports the first.
    #[inline(never)]
    fn meet(&mut self, who: Who, record: PageRecord, from: u32, to: u32, what: ConflictKind) {
        let (Some(cells), Some(written)) = (
            self.owners.get(record.owners as usize),
            self.bitmaps.get(record.write as usize),
        ) else {
            return;
        };
        for cell in from / 4..to.div_ceil(4) {
            let by = cells[(cell & 1023) as usize];
            if by == 0 || (by - 1) >> 5 == who.group {
                continue;
            }
            let (start, end) = ((cell * 4).max(from), (cell * 4 + 4).min(to));
            if bits::any(written, start, end) {
                let page = record.key & ((1 << PAGE_BITS) - 1);
                let found = Conflict {
                    who,
                    va: page * PAGE + u64::from(start),
                    len: u64::from(end - start),
                    other_group: Some((by - 1) >> 5),
                    what,
                };
                self.conflict(found);
                return;
            }
        }
    }

    fn conflict(&mut self, found: Conflict) {
        let same = |known: &Conflict| {
            known.who.pc == found.who.pc
                && known.who.launch == found.who.launch
                && known.what == found.what
        };
        if self.conflicts.len() < MAX_CONFLICTS && !self.conflicts.iter().any(same) {
            self.conflicts.push(found);
        }
    }

    /// A store; `poison` are the lanes whose data is undefined.
    pub(crate) fn store(&mut self, access: &Access<'_>, poison: u32, shadow: &mut Shadow) {
        if access.lanes == 0 {
            return;
        }
        lane_runs(access, |va, len| {
            for (page, from, to) in spans(va, len) {
                self.write(access.who, page, from, to, shadow);
            }
        });
        let mut left = poison & access.lanes;
        while left != 0 {
            let at = access.at[(left.trailing_zeros() & 31) as usize];
            left &= left - 1;
            self.spoil(access, at, shadow);
        }
    }

    /// Bytes that are undefined again.
    fn spoil(&mut self, access: &Access<'_>, at: u64, shadow: &mut Shadow) {
        shadow.undefine(at, u64::from(access.bytes));
        // Records of any launch may say that the page is defined.
        for (page, _, _) in spans(at, u64::from(access.bytes)) {
            let slot = shadow.page(page);
            for record in &mut self.pages {
                if record.key & ((1 << PAGE_BITS) - 1) == page {
                    record.shadow = slot;
                }
            }
        }
    }

    fn write(&mut self, who: Who, page: u64, from: u32, to: u32, shadow: &mut Shadow) {
        let index = self.page(who.launch, page, shadow);
        self.site(index, who, from, to, true);
        if self.pages[index as usize].write == NONE {
            let (write, owners) = (self.bitmap(), self.owner_cells());
            let record = &mut self.pages[index as usize];
            (record.write, record.owners) = (write, owners);
        }
        let record = self.pages[index as usize];
        let me = owner(who);
        let mut foreign = false;
        for cell in
            &mut self.owners[record.owners as usize][(from / 4) as usize..to.div_ceil(4) as usize]
        {
            foreign |= *cell != 0 && (*cell - 1) >> 5 != who.group;
        }
        if foreign {
            self.meet(who, record, from, to, ConflictKind::Write);
        } else if record.reader != 0 && record.reader != who.group + 1 {
            self.overtake(who, record, from, to);
        }
        self.owners[record.owners as usize][(from / 4) as usize..to.div_ceil(4) as usize].fill(me);
        bits::set(&mut self.bitmaps[record.write as usize], from, to);
        self.plain(record, from, to);
        if record.shadow != DEFINED && shadow.define_in(record.shadow, from, to) {
            self.pages[index as usize].shadow = DEFINED;
        }
    }

    /// An atomic. Returns the lanes that read an undefined byte.
    pub(crate) fn atomic(
        &mut self,
        access: &Access<'_>,
        kind: AtomicKind,
        class: usize,
        poison: u32,
        shadow: &mut Shadow,
    ) -> u32 {
        let mut undefined = 0;
        let mut left = access.lanes;
        while left != 0 {
            let lane = left.trailing_zeros() & 31;
            left &= left - 1;
            let at = access.at[lane as usize];
            let again = (access.lanes & ((1u32 << lane) - 1)) != 0
                && access.at[..lane as usize]
                    .iter()
                    .enumerate()
                    .any(|(i, other)| access.lanes >> i & 1 == 1 && *other == at);
            for (page, from, to) in spans(at, u64::from(access.bytes)) {
                if self.atomic_part(access.who, kind, class, (page, from, to), again, shadow) {
                    undefined |= 1 << lane;
                }
            }
            if poison >> lane & 1 == 1 {
                self.spoil(access, at, shadow);
            }
        }
        undefined
    }

    fn atomic_part(
        &mut self,
        who: Who,
        kind: AtomicKind,
        class: usize,
        part: (u64, u32, u32),
        again: bool,
        shadow: &mut Shadow,
    ) -> bool {
        let (page, from, to) = part;
        let index = self.page(who.launch, page, shadow);
        if self.pages[index as usize].atomic == NONE {
            let (atomic, ordered, plain) = (self.bitmap(), self.bitmap(), self.bitmap());
            let record = &mut self.pages[index as usize];
            (record.atomic, record.ordered, record.plain) = (atomic, ordered, plain);
        }
        let record = self.pages[index as usize];
        if kind.ordered || kind.returns {
            bits::set(&mut self.bitmaps[record.ordered as usize], from, to);
        }
        let was_atomic = bits::all(&self.bitmaps[record.atomic as usize], from, to);
        let before = match self.owners.get(record.owners as usize) {
            Some(cells) => cells[(from / 4) as usize & 1023],
            None => 0,
        };
        let undefined = if was_atomic {
            // The cell is contended, which atomics allow: no meeting is looked for.
            let contended = again || (before != 0 && before != owner(who));
            if contended && (kind.ordered || kind.returns) {
                self.conflict(Conflict {
                    who,
                    va: page * PAGE + u64::from(from),
                    len: u64::from(to - from),
                    other_group: Some(before.saturating_sub(1) >> 5),
                    what: ConflictKind::Atomic,
                });
            }
            record.shadow != DEFINED && !shadow.is_defined(record.shadow, from, to)
        } else {
            self.first_atomic(record, from, to);
            let before = self.bitmaps[record.plain as usize];
            let undefined = self.read(who, class, page, from, to, shadow);
            self.write(who, page, from, to, shadow);
            self.bitmaps[record.plain as usize] = before;
            bits::set(&mut self.bitmaps[record.atomic as usize], from, to);
            undefined
        };
        if let Some(cells) = self.owners.get_mut(record.owners as usize) {
            cells[(from / 4) as usize & 1023] = owner(who);
        }
        undefined
    }

    /// Takes the meetings of groups found in this batch.
    pub(crate) fn take_conflicts(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.conflicts)
    }

    /// What one launch touched.
    pub(crate) fn footprint(&self, launch: u32) -> Touched {
        let mut mine: Vec<&PageRecord> = self
            .pages
            .iter()
            .filter(|record| record.key >> PAGE_BITS == u64::from(launch))
            .collect();
        mine.sort_unstable_by_key(|record| record.key);
        let mut touched = Touched::default();
        let page = |record: &PageRecord| (record.key & ((1 << PAGE_BITS) - 1)) * PAGE;
        for (class, path) in self.classes.iter().enumerate() {
            let ranges = self.collect(&mine, |record| record.reads[class % CLASSES]);
            if !ranges.is_empty() {
                touched.reads.push((*path, ranges));
            }
        }
        touched.writes = self.collect(&mine, |record| record.write);
        touched.atomics = Atomics {
            all: self.collect(&mine, |record| record.atomic),
            ordered: self.collect(&mine, |record| record.ordered),
        };
        let plain = self.collect(&mine, |record| record.plain);
        touched.atomics.all = touched.atomics.all.without(&plain);
        for record in mine {
            let used = usize::from(record.used).min(SITES);
            for site in &record.sites[..used] {
                touched.sites.push((page(record), *site));
            }
            if record.more {
                touched.more.insert(page(record));
            }
        }
        touched
    }

    fn collect(&self, pages: &[&PageRecord], pick: impl Fn(&PageRecord) -> u32) -> Ranges {
        let mut ranges = Ranges::default();
        for record in pages {
            let Some(bits) = self.bitmaps.get(pick(record) as usize) else {
                continue;
            };
            let base = (record.key & ((1 << PAGE_BITS) - 1)) * PAGE;
            bits::runs(bits, |from, to| {
                ranges.push(base + u64::from(from), base + u64::from(to));
            });
        }
        ranges
    }

    /// Bitmaps of shadow pages that may be defined by now.
    pub(crate) fn shadows(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages
            .iter()
            .filter(|record| record.write != NONE)
            .map(|record| record.key & ((1 << PAGE_BITS) - 1))
    }
}

#[inline(never)]
pub(crate) fn undefined_lanes(access: &Access<'_>, shadow: &mut Shadow) -> u32 {
    let mut lanes = 0;
    for (lane, at) in access.at.iter().enumerate() {
        if access.lanes >> lane & 1 == 0 {
            continue;
        }
        let bad = spans(*at, u64::from(access.bytes)).any(|(page, from, to)| {
            let slot = shadow.page(page);
            slot != DEFINED && !shadow.is_defined(slot, from, to)
        });
        lanes |= u32::from(bad) << lane;
    }
    lanes
}

/// The bytes that one launch changed by atomics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Atomics {
    /// Bytes that no plain instruction of the launch touched.
    all: Ranges,
    /// Bytes where an atomic shows in which order it came: its sum or swap does, or it returns the
    /// old value.
    ordered: Ranges,
}

impl Atomics {
    /// Bytes that two launches both change by atomics alone, and those of them where the order shows.
    pub(crate) fn contended(&self, other: &Self) -> (Ranges, Ranges) {
        let both = Ranges::of(self.all.shared(&other.all).collect());
        let either = self.ordered.union(&other.ordered);
        let ordered = Ranges::of(both.shared(&either).collect());
        (both, ordered)
    }
}

/// The bytes that one launch touched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// Bytes read before the launch wrote them, by the caches on their way.
    pub(crate) reads: Vec<(Caches, Ranges)>,
    pub(crate) writes: Ranges,
    pub(crate) atomics: Atomics,
    /// First byte of a page, and instructions that touched it.
    sites: Vec<(u64, Site)>,
    /// First bytes of the pages that more instructions touched.
    more: BTreeSet<u64>,
}

impl Touched {
    /// All bytes read.
    pub(crate) fn all_reads(&self) -> Ranges {
        match self.reads.as_slice() {
            [] => Ranges::default(),
            [(_, one)] => one.clone(),
            [(_, first), rest @ ..] => rest
                .iter()
                .fold(first.clone(), |set, (_, more)| set.union(more)),
        }
    }

    /// Whether more instructions touched the page of `va` than [`Self::site`] chooses from.
    pub(crate) fn left_out(&self, va: u64) -> bool {
        self.more.contains(&(va / PAGE * PAGE))
    }

    /// An instruction that touched `va`, of the kind asked for if one is known.
    pub(crate) fn site(&self, va: u64, write: bool) -> Option<Site> {
        let page = va / PAGE * PAGE;
        let offset = (va - page) as u16;
        let first = self.sites.partition_point(|(at, _)| *at < page);
        let here = self.sites.get(first..).unwrap_or_default();
        let here = here.iter().take_while(|(at, _)| *at == page);
        let inside = |site: &Site| site.from <= offset && offset < site.to;
        let mut best = None;
        for (_, site) in here {
            let rank = u32::from(site.write == write) * 2 + u32::from(inside(site));
            if best.is_none_or(|(known, _)| known < rank) {
                best = Some((rank, *site));
            }
        }
        best.map(|(_, site)| site)
    }
}
