//! Judges a batch when it has run: what its launches touched against the order, the caches, the
//! declarations and the kernel arguments.

use super::caches::{Caches, Rules};
use super::clock::{Author, Clock};
use super::footprint::Footprint;
use super::hook::Who;
use super::kernarg::digest;
use super::model::{Model, Past, Pending};
use super::phases::{Meeting, MeetingKind};
use super::ranges::Ranges;
use super::report::{Party, Report, ReportKind};
use super::touch::{Atomics, Conflict, ConflictKind, Touched};
use super::trace::TracedLaunch;
use crate::isa::Generation;
use crate::memory::Kind;
use crate::object::Kernel;
use std::sync::Arc;

/// Reports of one kind per launch; the same fault rarely comes alone.
pub(super) const PER_LAUNCH: usize = 8;
/// Bytes that hardware may fetch past the end of the code (LLVM AMDGPUUsage, instruction prefetch).
const CODE_ROOM: u64 = crate::memory::CODE_ROOM;
/// Unit of RSRC3.INST_PREF_SIZE, bytes (LLVM AMDGPUUsage, compute_pgm_rsrc3 of GFX11 and GFX12).
const PREFETCH_UNIT: u64 = 128;

/// A launch of the batch with what it touched.
struct Done {
    pending: Pending,
    touched: Touched,
    reads: Ranges,
}

/// The earlier of two launches that nothing orders.
struct Side<'a> {
    who: &'a Party,
    reads: &'a Ranges,
    writes: &'a Ranges,
    atomics: &'a Atomics,
}

impl Model {
    /// Starts a batch of launches, whose indices waves will name.
    pub(crate) fn begin(&mut self, launches: Vec<Pending>) {
        self.touch.begin();
        self.phases.begin();
        self.refreshed.clear();
        self.blamed.clear();
        self.running = launches;
        for index in 0..self.running.len() {
            let word = |va: u64| {
                let mut bytes = [0; 4];
                // A word that cannot be read declares nothing beyond row 0.
                let read = self.memory.peek(va, &mut bytes);
                read.map_or(0, |()| u32::from_le_bytes(bytes))
            };
            let number = self.running[index].declared;
            let allowed = number.map(|number| self.declared.allowed(number, &word));
            self.running[index].allowed = allowed;
            self.check_kernarg(index, "before the launch started");
        }
    }

    /// The batch has run, to its end or to a fault.
    pub(crate) fn end(&mut self) {
        let done: Vec<Done> = (0u32..)
            .zip(&self.running)
            .map(|(index, pending)| {
                let touched = self.touch.footprint(index);
                Done {
                    pending: pending.clone(),
                    reads: touched.all_reads(),
                    touched,
                }
            })
            .collect();
        for conflict in self.touch.take_conflicts() {
            self.report_conflict(&conflict);
        }
        for meeting in self.phases.take_meetings() {
            self.report_meeting(&meeting);
        }
        for (index, launch) in (0u32..).zip(&done) {
            self.check_kernarg(index as usize, "while the launch ran");
            self.check_declared(index, launch);
            self.check_kinds(index, launch);
            self.check_stale(index, launch);
            self.check_races(index, launch, &done);
        }
        for launch in done {
            self.settle(launch);
        }
        let pages: Vec<u64> = self.touch.shadows().collect();
        for page in pages {
            let slot = self.shadow.page(page);
            self.shadow.settle(slot);
        }
        self.running.clear();
        self.prune();
    }

    /// Makes a launch part of the past.
    fn settle(&mut self, launch: Done) {
        let Done {
            pending,
            touched,
            reads,
        } = launch;
        for (start, end) in touched.writes.iter() {
            self.order.forget_words(start, end - start);
            self.writers.set(start, end, pending.author);
        }
        if self.config.footprints > 0 {
            if self.footprints.len() == self.config.footprints {
                self.footprints.pop_front();
            }
            let (who, from) = (&pending.who, self.extents(&reads));
            let footprint = Footprint {
                kernel: Arc::clone(&who.kernel),
                step: who.step.clone(),
                queue: who.queue,
                packet: who.packet,
                dword: who.dword,
                reads: from,
                writes: self.extents(&touched.writes),
            };
            self.footprints.push_back(footprint);
        }
        if self.config.traces > 0 {
            if self.traces.len() == self.config.traces {
                self.traces.pop_front();
            }
            let traced = TracedLaunch::of(&pending, &reads, &touched);
            self.traces.push_back(traced);
        }
        let Pending {
            who,
            author,
            at,
            release,
            signal,
            ..
        } = pending;
        self.order.finish(author, &at, release, signal);
        self.keep(Past {
            who,
            author,
            reads,
            writes: touched.writes,
            atomics: touched.atomics,
        });
    }

    fn who(index: u32, launch: &Done, va: u64, write: bool) -> Option<Who> {
        let site = launch.touched.site(va, write)?;
        Some(Who {
            launch: index,
            group: site.group,
            wave: site.wave,
            pc: site.pc,
        })
    }

    /// A report about bytes that a launch touched.
    fn touched(
        &self,
        index: u32,
        launch: &Done,
        kind: ReportKind,
        (start, end): (u64, u64),
        write: bool,
        detail: String,
    ) -> Report {
        let mut report = Report::new(kind, launch.pending.who.clone(), detail);
        self.locate(&mut report, index, start, end - start);
        let who = Self::who(index, launch, start, write);
        report.instruction = who.and_then(|who| self.instruction(who));
        if let Some(instruction) = &mut report.instruction {
            instruction.left_out = launch.touched.left_out(start);
        }
        report
    }

    fn report_conflict(&mut self, conflict: &Conflict) {
        let Conflict {
            who,
            va,
            len,
            other_group,
            what,
        } = conflict;
        let share = ReportKind::GroupsShare;
        let (kind, what, tail) = match what {
            ConflictKind::Read => (share, "reads what", " wrote"),
            ConflictKind::Write => (share, "writes over what", " wrote"),
            ConflictKind::Overtaken => (share, "writes over what", " read"),
            ConflictKind::Atomic => (ReportKind::AtomicOrder, "contends with", ""),
        };
        let other = match other_group {
            Some(group) => format!("group {group}"),
            None => "another group".to_owned(),
        };
        let detail = format!("group {} {what} {other}{tail}", who.group);
        if let Some(mut report) = self.about(*who, kind, detail) {
            self.locate(&mut report, who.launch, *va, *len);
            self.log.add(report);
        }
    }

    fn report_meeting(&mut self, meeting: &Meeting) {
        let Meeting {
            who,
            va,
            len,
            other_wave,
            what,
        } = meeting;
        let (what, tail) = match what {
            MeetingKind::Read => ("reads what", "wrote"),
            MeetingKind::Write => ("writes over what", "wrote"),
            MeetingKind::Overtaken => ("writes over what", "read"),
        };
        let other = match other_wave {
            Some(wave) => format!("wave {wave}"),
            None => "another wave".to_owned(),
        };
        let (kind, wave) = (ReportKind::WavesShare, who.wave);
        let detail =
            format!("wave {wave} {what} {other} of its group {tail}, no barrier between them");
        if let Some(mut report) = self.about(*who, kind, detail) {
            self.locate(&mut report, who.launch, *va, *len);
            self.log.add(report);
        }
    }

    fn check_kernarg(&mut self, index: usize, when: &str) {
        let Some(pending) = self.running.get(index) else {
            return;
        };
        let Some((va, len, hash)) = pending.kernarg else {
            return;
        };
        let now = digest(&self.memory, va, len);
        if now == Some(hash) {
            return;
        }
        let detail = match now {
            Some(_) => format!("the {len} bytes differ from those at the doorbell, changed {when}"),
            None => format!("the {len} bytes cannot be read any more {when}"),
        };
        let mut report = Report::new(ReportKind::KernargChanged, pending.who.clone(), detail);
        report.bytes = Some(self.bytes(va, len));
        self.log.add(report);
        // Once is enough.
        self.running[index].kernarg = None;
    }

    fn check_declared(&mut self, index: u32, launch: &Done) {
        let Some(allowed) = &launch.pending.allowed else {
            return;
        };
        let lists = [
            (&launch.reads, &allowed.reads, false),
            (&launch.touched.writes, &allowed.writes, true),
        ];
        let mut reports = Vec::new();
        for (found, declared, write) in lists {
            let kind = if write {
                ReportKind::UndeclaredWrite
            } else {
                ReportKind::UndeclaredRead
            };
            let outside = found.without(declared);
            let judged = outside.iter().filter(|(start, _)| {
                write || !matches!(self.buffer(*start).2, Some(Kind::Kernarg | Kind::Code))
            });
            let judged = judged.map(|(start, end)| (start, end, ())).collect();
            for (start, end, ()) in self.by_name(judged).into_iter().take(PER_LAUNCH) {
                let range = (start, end);
                let verb = if write { "writes" } else { "reads" };
                let detail = format!("{verb} bytes outside every declared range");
                reports.push(self.touched(index, launch, kind, range, write, detail));
            }
        }
        for report in reports {
            self.log.add(report);
        }
    }

    fn check_kinds(&mut self, index: u32, launch: &Done) {
        let mut reports = Vec::new();
        for (start, end) in launch.touched.writes.iter() {
            let what = match self.buffer(start).2 {
                Some(Kind::Code) => "machine code",
                Some(Kind::Ring) => "a packet ring",
                Some(Kind::IndirectBuffer) => "an indirect buffer",
                Some(Kind::Kernarg) => "kernel arguments",
                _ => continue,
            };
            let kind = ReportKind::PacketMemoryWritten;
            let detail = format!("writes into {what}");
            reports.push(self.touched(index, launch, kind, (start, end), true, detail));
        }
        for report in reports.into_iter().take(PER_LAUNCH) {
            self.log.add(report);
        }
    }

    fn check_stale(&mut self, index: u32, launch: &Done) {
        let at = &launch.pending.at;
        let mut suspects = Vec::new();
        for (path, ranges) in &launch.touched.reads {
            for (start, end) in ranges.iter() {
                let parts = self.writers.within(start, end);
                let parts = parts.map(|(from, to, author)| {
                    // What a launch wrote lies in the L2 of everybody.
                    let host = author.is_host();
                    let path = if host { *path } else { path.but(Caches::L2) };
                    (from, to, (path, author))
                });
                let stale = |(_, _, (path, author)): &(u64, u64, (Caches, Author))| {
                    !at.stale(*path, *author).is_empty()
                };
                suspects.extend(parts.filter(stale));
            }
        }
        if suspects.is_empty() {
            return;
        }
        let suspects = self.by_name(suspects);
        let reports = suspects
            .into_iter()
            .filter_map(|(from, to, (path, author))| {
                self.stale(index, launch, path, (from, to), author)
            });
        let reports: Vec<Report> = reports.take(PER_LAUNCH).collect();
        for report in reports {
            self.log.add(report);
        }
    }

    /// The report about bytes whose last writer may not be seen, if there is one.
    fn stale(
        &self,
        index: u32,
        launch: &Done,
        path: Caches,
        range: (u64, u64),
        author: Author,
    ) -> Option<Report> {
        let pending = &launch.pending;
        let stale = pending.at.stale(path, author);
        if !pending.at.knows.knows(author) {
            // Launches are compared in `check_races`; here only what the host wrote meanwhile.
            return author
                .is_host()
                .then(|| self.host_overtook(index, launch, range));
        }
        let hides = Rules::l2_hides(self.buffer(range.0).2?);
        let stale = if hides { stale } else { stale.but(Caches::L2) };
        if stale.is_empty() {
            return None;
        }
        let detail = format!(
            "may hit lines from before the write in: {}",
            self.rules.names(stale)
        );
        let mut report = self.touched(index, launch, ReportKind::StaleRead, range, false, detail);
        report.other = Some(self.party(author));
        report.remedy = self.acquire_remedy(&pending.who, stale);
        Some(report)
    }

    fn host_overtook(&self, index: u32, launch: &Done, range: (u64, u64)) -> Report {
        let detail = "reads what the host wrote after it had rung for the launch".to_owned();
        let kind = ReportKind::ReadAfterWrite;
        let mut report = self.touched(index, launch, kind, range, false, detail);
        report.other = Some(Party::host());
        "write before the doorbell, or wait for the launch first".clone_into(&mut report.remedy);
        report
    }

    pub(super) fn acquire_remedy(&self, who: &Party, stale: Caches) -> String {
        let (names, word) = self.rules.gcr_names(stale);
        match who.dword {
            Some(dword) => format!(
                "put ACQUIRE_MEM with {names} (GCR_CNTL {word:#x}) after the wait and before dword {dword}"
            ),
            None => {
                let scope = if stale.and(Caches::L2).is_empty() {
                    "agent"
                } else {
                    "system"
                };
                format!(
                    "give packet {} an acquire fence of {scope} scope ({names})",
                    who.packet
                )
            }
        }
    }

    fn check_races(&mut self, index: u32, launch: &Done, batch: &[Done]) {
        let knows = &launch.pending.at.knows;
        let mut reports = Vec::new();
        for (queue, list) in (0u16..).zip(&self.live) {
            let first = list.partition_point(|past| past.author.number() <= knows.done(queue));
            for past in list.iter().skip(first) {
                if knows.knows(past.author) {
                    continue;
                }
                if past.who.processor {
                    reports.extend(self.meet_processor(launch, past));
                } else {
                    let there = Side {
                        who: &past.who,
                        reads: &past.reads,
                        writes: &past.writes,
                        atomics: &past.atomics,
                    };
                    self.meet(index, launch, &there, &mut reports);
                }
            }
        }
        for other in batch.iter().take(index as usize) {
            if !ordered(&other.pending, knows, launch.pending.author) {
                let there = Side {
                    who: &other.pending.who,
                    reads: &other.reads,
                    writes: &other.touched.writes,
                    atomics: &other.touched.atomics,
                };
                self.meet(index, launch, &there, &mut reports);
            }
        }
        for report in reports.into_iter().take(PER_LAUNCH) {
            self.log.add(report);
        }
    }

    /// A launch and an access of the packet processor that it does not know.
    fn meet_processor(&self, launch: &Done, past: &Past) -> Option<Report> {
        let pending = &launch.pending;
        let here = Past {
            who: pending.who.clone(),
            author: pending.author,
            reads: launch.reads.clone(),
            writes: launch.touched.writes.clone(),
            atomics: launch.touched.atomics.clone(),
        };
        self.unordered(past, &here)
    }

    /// What a launch and one that nothing orders before it share. Bytes that both change by atomics
    /// alone are not raced for; only the result may depend on who comes first.
    fn meet(&self, index: u32, launch: &Done, there: &Side<'_>, reports: &mut Vec<Report>) {
        let (mine, who) = (&launch.touched.writes, there.who);
        let (atomics, ordered) = launch.touched.atomics.contended(there.atomics);
        let contended: Vec<_> = ordered.iter().map(|(a, b)| (a, b, ())).collect();
        if let Some((start, end, ())) = self.by_name(contended).into_iter().next() {
            let detail = "nothing orders its atomics and those of the other launch".to_owned();
            let (kind, range) = (ReportKind::AtomicOrder, (start, end));
            let mut report = self.touched(index, launch, kind, range, true, detail);
            report.other = Some(who.clone());
            reports.push(report);
        }
        let reads = &launch.reads;
        let pairs = [
            (ReportKind::ReadAfterWrite, reads, there.writes, false),
            (ReportKind::WriteAfterRead, mine, there.reads, true),
            (ReportKind::WriteAfterWrite, mine, there.writes, true),
        ];
        for (kind, here, there, write) in pairs {
            let shared = Ranges::of(here.shared(there).collect()).without(&atomics);
            let shared: Vec<_> = shared.iter().map(|(a, b)| (a, b, ())).collect();
            let bytes: u64 = shared.iter().map(|(start, end, ())| end - start).sum();
            let Some((start, end, ())) = self.by_name(shared).into_iter().next() else {
                continue;
            };
            let first = (start, end);
            let detail = format!("nothing orders the two, which share {bytes} bytes");
            let mut report = self.touched(index, launch, kind, first, write, detail);
            report.other = Some(who.clone());
            report.remedy = self.wait_remedy(kind, &launch.pending.who, who);
            reports.push(report);
        }
    }

    fn wait_remedy(&self, kind: ReportKind, who: &Party, other: &Party) -> String {
        if who.queue != other.queue {
            return format!(
                "let a barrier packet of queue {} wait for a completion signal of {}",
                who.queue,
                other.place()
            );
        }
        let read = kind == ReportKind::ReadAfterWrite;
        match who.dword {
            Some(dword) => {
                let all = self.rules.present().but(Caches::L2);
                let (names, word) = self.rules.gcr_names(all);
                let acquire = format!(" and ACQUIRE_MEM with {names} (GCR_CNTL {word:#x})");
                format!(
                    "put EVENT_WRITE CS_PARTIAL_FLUSH (0x407){} before dword {dword}",
                    if read { acquire.as_str() } else { "" }
                )
            }
            None => format!(
                "set the barrier bit of packet {}{}",
                who.packet,
                if read {
                    " with an acquire fence of agent scope"
                } else {
                    ""
                }
            ),
        }
    }

    /// Whether the instruction prefetch of a launch stays inside the mapping.
    pub(super) fn check_prefetch(&mut self, kernel: &Kernel, rsrc3: u32, who: &Party) {
        let size = match self.target.generation() {
            Generation::Gfx11 => rsrc3 >> 4 & 0x3f,
            Generation::Gfx12 => rsrc3 >> 4 & 0xff,
        };
        let Some(info) = self.memory.find(kernel.entry_va) else {
            return;
        };
        let mapped = info.base + info.len;
        let code_end = kernel.program.base() + kernel.program.len();
        let prefetched = kernel.entry_va + u64::from(size) * PREFETCH_UNIT;
        let past = prefetched.max(code_end + CODE_ROOM);
        if past <= mapped {
            return;
        }
        let detail = if prefetched > mapped {
            format!(
                "INST_PREF_SIZE {size} fetches {} bytes from the entry, {} past the end of the mapping",
                u64::from(size) * PREFETCH_UNIT,
                prefetched - mapped
            )
        } else {
            format!(
                "{} bytes are mapped past the end of the code, hardware may fetch {CODE_ROOM}",
                mapped.saturating_sub(code_end)
            )
        };
        let mut report = Report::new(ReportKind::PrefetchPastEnd, who.clone(), detail);
        report.bytes = Some(self.bytes(kernel.entry_va, mapped - kernel.entry_va));
        self.log.add(report);
    }
}

/// Whether one of two launches of a batch is known to be finished when the other starts.
fn ordered(earlier: &Pending, knows: &Clock, later: Author) -> bool {
    knows.knows(earlier.author) || earlier.at.knows.knows(later)
}
