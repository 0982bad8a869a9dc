//! The packet processor's own accesses: WRITE_DATA, COPY_DATA, RELEASE_MEM and WAIT_REG_MEM as
//! authors, readers and synchronisation. Their packets are checked and executed in `cp`.
//!
//! The processor goes through the L2 and holds nothing above it (`refrain_packet`, DST_SEL 2 and 5), so
//! a launch needs the same invalidations for its writes as for those of another launch. It does not
//! wait for waves: a write or read of its own is ordered as a launch at that place of the queue
//! would be. Without WR_CONFIRM a write is not known to be finished before the next wait.

use super::bits::spans;
use super::caches::{Caches, Rules};
use super::check::PER_LAUNCH;
use super::clock::{Author, Clock};
use super::model::{Model, Past};
use super::order::{Order, Snapshot};
use super::ranges::Ranges;
use super::report::{Party, Report, ReportKind};
use super::shadow::DEFINED;
use super::touch::Atomics;
use crate::memory::Kind;

/// GL2_WB of RELEASE_MEM's control word.
const GL2_WB: u32 = 1 << 21;

/// Where a packet of the processor stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) queue: u64,
    pub(crate) packet: u64,
    pub(crate) dword: u32,
    pub(crate) name: &'static str,
}

impl Site {
    pub(super) fn party(self) -> Party {
        Party {
            step: None,
            kernel: self.name.into(),
            queue: self.queue,
            packet: self.packet,
            dword: Some(self.dword),
            processor: true,
        }
    }
}

/// Bytes, by first address and count.
pub(crate) type Span = (u64, u64);

/// What a packet touched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accesses {
    pub(crate) read: Option<Span>,
    pub(crate) write: Option<Span>,
    /// Low words at the written address before and after.
    pub(crate) values: (u32, u32),
    /// WR_CONFIRM: what follows in the queue knows the write to be done.
    pub(crate) confirmed: bool,
}

/// A RELEASE_MEM that was taken and has not written.
#[derive(Clone, Debug)]
pub(crate) struct PendingRelease {
    who: Party,
    author: Author,
    at: Snapshot,
    span: Span,
    caches: Caches,
}

fn ranges(span: Option<Span>) -> Ranges {
    Ranges::of(
        span.map(|(va, len)| (va, va.saturating_add(len)))
            .into_iter()
            .collect(),
    )
}

impl Model {
    /// WRITE_DATA or COPY_DATA has been executed.
    pub(crate) fn processor(&mut self, site: Site, accesses: &Accesses) {
        let (author, at) = self.order.launch(site.queue);
        let who = site.party();
        self.remember(author, who.clone());
        if let Some(span) = accesses.read {
            self.processor_reads(&who, &at, span);
        }
        let past = Past {
            who,
            author,
            reads: ranges(accesses.read),
            writes: ranges(accesses.write),
            atomics: Atomics::default(),
        };
        if accesses.confirmed || accesses.write.is_none() {
            self.order.confirm(site.queue, author);
        }
        if let Some((va, _)) = accesses.write {
            self.order
                .publish(author, va, accesses.values, &at, Caches::NONE);
        }
        self.processor_done(past, &at.knows);
    }

    /// RELEASE_MEM is taken: its event follows everything in front of it.
    pub(crate) fn release_mem(&mut self, site: Site, span: Span, control: u32) -> PendingRelease {
        let (author, mut at) = self.order.launch(site.queue);
        Order::end_of_pipe(author, &mut at);
        let caches = self.rules.by_release(control);
        let who = site.party();
        if control & GL2_WB != 0 {
            at.write_back();
        } else {
            self.check_discarded(&who, caches, at.written_back());
        }
        self.remember(author, who.clone());
        PendingRelease {
            who,
            author,
            at,
            span,
            caches,
        }
    }

    /// RELEASE_MEM has written; `values` are the low words before and after.
    pub(crate) fn released(&mut self, pending: PendingRelease, values: (u32, u32)) {
        let PendingRelease {
            who,
            author,
            at,
            span,
            caches,
        } = pending;
        let past = Past {
            who,
            author,
            reads: Ranges::default(),
            writes: ranges(Some(span)),
            atomics: Atomics::default(),
        };
        self.order.publish(author, span.0, values, &at, caches);
        self.processor_done(past, &at.knows);
    }

    /// WAIT_REG_MEM has passed; `meets` is its condition.
    pub(crate) fn wait_mem(&mut self, site: Site, va: u64, meets: &dyn Fn(u32) -> bool) {
        self.check_defined(&site.party(), (va, 4));
        let part = self.writers.within(va, va.saturating_add(4)).last();
        let host = part.map(|part| part.2).filter(|author| author.is_host());
        self.order.wait_word(site.queue, va, meets, host);
    }

    /// An invalidation of `caches` that does not write the L2 back first, in a queue that knows
    /// `written_back` to be in memory. Whether hardware drops dirty lines then is not documented
    /// (PAL and Mesa never send the one without the other), so nobody may rely on their survival.
    pub(super) fn check_discarded(&mut self, who: &Party, caches: Caches, written_back: &Clock) {
        if caches.and(Caches::L2).is_empty() {
            return;
        }
        let dirty = self
            .writers
            .within(0, u64::MAX)
            .filter(|(_, _, author)| !author.is_host() && !written_back.knows(*author));
        let dirty = dirty.filter(|(start, ..)| self.buffer(*start).2.is_some_and(Rules::l2_hides));
        let dirty = self.by_name(dirty.collect());
        for (start, end, author) in dirty.into_iter().take(PER_LAUNCH) {
            let detail = "GL2_INV without GL2_WB may drop what is in the L2 only".to_owned();
            let mut report = Report::new(ReportKind::LostWrites, who.clone(), detail);
            report.bytes = Some(self.bytes(start, end - start));
            report.other = Some(self.party(author));
            let place = who.place();
            report.remedy =
                format!("set GL2_WB (GCR_CNTL 0x8000) beside GL2_INV in the packet at {place}");
            self.log.add(report);
        }
    }

    /// Judges an access of the processor and makes it part of the past.
    fn processor_done(&mut self, past: Past, knows: &Clock) {
        self.check_processor(&past, knows);
        for (start, end) in past.writes.iter() {
            self.check_target(&past.who, start, end - start);
            self.shadow.define(start, end - start);
            self.writers.set(start, end, past.author);
        }
        self.keep(past);
        self.prune();
    }

    fn check_defined(&mut self, who: &Party, (va, len): Span) {
        let undefined = spans(va, len).any(|(page, from, to)| {
            let slot = self.shadow.page(page);
            slot != DEFINED && !self.shadow.is_defined(slot, from, to)
        });
        if undefined {
            let detail = format!("reads {len} bytes that nobody wrote since the allocation");
            let mut report = Report::new(ReportKind::UninitialisedRead, who.clone(), detail);
            report.bytes = Some(self.bytes(va, len));
            self.log.add(report);
        }
    }

    /// A read through the L2, which may hold what was there before a write of the host.
    fn processor_reads(&mut self, who: &Party, at: &Snapshot, (va, len): Span) {
        self.check_defined(who, (va, len));
        if !self.buffer(va).2.is_some_and(Rules::l2_hides) {
            return;
        }
        let mut parts = self.writers.within(va, va.saturating_add(len));
        let stale = parts.find(|(_, _, author)| {
            author.is_host() && at.knows.knows(*author) && !at.stale(Caches::L2, *author).is_empty()
        });
        let Some((start, end, _)) = stale else { return };
        let detail = "may hit lines of the L2 from before the write".to_owned();
        let mut report = Report::new(ReportKind::StaleRead, who.clone(), detail);
        report.bytes = Some(self.bytes(start, end - start));
        report.other = Some(Party::host());
        report.remedy = self.acquire_remedy(who, Caches::L2);
        self.log.add(report);
    }

    /// What machine code and packets are read from is nobody's to write. Kernel arguments may be
    /// written; those of a launch in flight are compared with their state at the doorbell.
    fn check_target(&mut self, who: &Party, va: u64, len: u64) {
        let what = match self.buffer(va).2 {
            Some(Kind::Code) => "machine code",
            Some(Kind::Ring) => "a packet ring",
            Some(Kind::IndirectBuffer) => "an indirect buffer",
            _ => return,
        };
        let detail = format!("writes into {what}");
        let mut report = Report::new(ReportKind::PacketMemoryWritten, who.clone(), detail);
        report.bytes = Some(self.bytes(va, len));
        self.log.add(report);
    }

    /// Compares an access with everything that has run and is not known to be finished.
    fn check_processor(&mut self, mine: &Past, knows: &Clock) {
        let others = self.live.iter().flatten();
        let found: Vec<Report> = others
            .filter(|past| !knows.knows(past.author))
            .filter_map(|past| self.unordered(past, mine))
            .collect();
        for report in found {
            self.log.add(report);
        }
    }

    /// The report about two accesses that nothing orders, one of them the processor's. In one queue
    /// the earlier is known by its number; the processor's own come one after the other.
    pub(super) fn unordered(&self, one: &Past, two: &Past) -> Option<Report> {
        let same = one.author.queue() == two.author.queue();
        let (first, second) = if same && one.author > two.author {
            (two, one)
        } else {
            (one, two)
        };
        let pairs = [
            (ReportKind::ReadAfterWrite, &second.reads, &first.writes),
            (ReportKind::WriteAfterRead, &second.writes, &first.reads),
            (ReportKind::WriteAfterWrite, &second.writes, &first.writes),
        ];
        let both = same && first.who.processor && second.who.processor;
        let (kind, (start, end)) = pairs.into_iter().find_map(|(kind, here, there)| {
            if both && kind != ReportKind::ReadAfterWrite {
                return None;
            }
            Some((kind, here.shared(there).next()?))
        })?;
        let what = if first.who.processor && second.who.processor {
            "nothing orders the two packets"
        } else {
            "nothing orders the two, and the packet processor waits for no wave"
        };
        let mut report = Report::new(kind, second.who.clone(), what.to_owned());
        report.bytes = Some(self.bytes(start, end - start));
        report.other = Some(first.who.clone());
        report.remedy = processor_remedy(&first.who, &second.who);
        Some(report)
    }
}

fn processor_remedy(first: &Party, second: &Party) -> String {
    let place = second.place();
    if first.queue != second.queue {
        return format!(
            "let queue {} wait for a RELEASE_MEM or a completion signal behind {} before {place}",
            second.queue,
            first.place()
        );
    }
    if first.processor && &*first.kernel != "RELEASE_MEM" {
        return format!("set WR_CONFIRM (bit 20) of the packet at {}", first.place());
    }
    let wait = if first.processor {
        "WAIT_REG_MEM on the word that RELEASE_MEM writes"
    } else {
        "EVENT_WRITE CS_PARTIAL_FLUSH (0x407)"
    };
    format!("put {wait} before the packet at {place}")
}
