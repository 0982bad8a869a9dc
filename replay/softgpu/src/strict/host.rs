//! What the host does: allocations, copies, doorbells, signals. Faults are left to `fault`.

use super::caches::Rules;
use super::clock::Author;
use super::kernarg::{contents, digest};
use super::model::{Model, Past};
use super::report::{Party, Report, ReportKind};
use crate::memory::Rights;
use std::sync::Arc;

impl Model {
    /// Memory was allocated: nobody has written it.
    pub(crate) fn allocated(&mut self, base: u64, len: u64, rights: Rights) {
        self.writers.remove(base, base.saturating_add(len));
        self.shadow
            .allocate(base, len, rights.contains(Rights::HOST));
    }

    /// Memory was freed.
    pub(crate) fn freed(&mut self, base: u64, len: u64) {
        self.writers.remove(base, base.saturating_add(len));
        self.shadow.release(base, len);
        self.kernargs.release(base, len);
        self.order.forget_words(base, len);
    }

    /// The host wrote through a call.
    pub(crate) fn host_wrote(&mut self, va: u64, len: u64) {
        self.shadow.define(va, len);
        self.race_with_host(va, len, true);
        self.order.forget_words(va, len);
        let author = self.order.host_write();
        self.writers.set(va, va.saturating_add(len), author);
    }

    /// The host reads through a call.
    pub(crate) fn host_reads(&mut self, va: u64, len: u64) {
        if len <= 8 {
            self.order.host_looks(va);
        }
        self.race_with_host(va, len, false);
        let hides = self.buffer(va).2.is_some_and(Rules::l2_hides);
        if !hides {
            return;
        }
        let end = va.saturating_add(len);
        let hidden = self.writers.within(va, end).find(|(_, _, author)| {
            self.order.host_knows(*author) && !self.order.host_sees(*author)
        });
        if let Some((start, end, author)) = hidden {
            self.report_hidden(start, end, author);
        }
    }

    fn report_hidden(&mut self, start: u64, end: u64, author: Author) {
        let who = self.party(author);
        let remedy = match who.dword {
            Some(_) => format!(
                "end the indirect buffer of packet {} with CS_PARTIAL_FLUSH and ACQUIRE_MEM with GL2_WB \
                 (GCR_CNTL 0x8000), or give the packet a release fence of system scope",
                who.packet
            ),
            None => format!("give packet {} a release fence of system scope", who.packet),
        };
        let detail =
            "the host copies bytes that the launch wrote and nothing wrote back".to_owned();
        let mut report = Report::new(ReportKind::NotWrittenBack, who, detail);
        report.bytes = Some(self.bytes(start, end - start));
        report.other = Some(Party::host());
        report.remedy = remedy;
        self.log.add(report);
    }

    /// Launches that have run and that the host does not know to be finished.
    fn race_with_host(&mut self, va: u64, len: u64, write: bool) {
        let end = va.saturating_add(len);
        let mut found: Option<(ReportKind, Arc<Past>, u64, u64)> = None;
        'all: for list in &self.live {
            for past in list.iter().rev() {
                if self.order.host_knows(past.author) {
                    continue;
                }
                let kinds = [
                    (ReportKind::WriteAfterWrite, &past.writes, write),
                    (ReportKind::WriteAfterRead, &past.reads, write),
                    (ReportKind::ReadAfterWrite, &past.writes, !write),
                ];
                for (kind, ranges, applies) in kinds {
                    if applies && let Some((start, stop)) = ranges.within(va, end).next() {
                        found = Some((kind, Arc::clone(past), start, stop));
                        break 'all;
                    }
                }
            }
        }
        let Some((kind, past, start, stop)) = found else {
            return;
        };
        let verb = if write { "writes" } else { "reads" };
        let detail =
            format!("the host {verb} bytes of a launch that it does not know to be finished");
        let mut report = Report::new(kind, Party::host(), detail);
        report.bytes = Some(self.bytes(start, stop - start));
        report.other = Some(past.who.clone());
        report.remedy = format!("wait for a completion signal of {} first", past.who.place());
        self.log.add(report);
    }

    /// The host rang a queue's doorbell. `slot` gives the address of a packet.
    pub(crate) fn rang(
        &mut self,
        queue: u64,
        packet: i64,
        packets: u32,
        slot: &dyn Fn(u64) -> u64,
    ) {
        let last = self.rung.get(&queue).copied().unwrap_or(-1);
        if packet <= last {
            return;
        }
        self.rung.insert(queue, packet);
        let mut bytes = [0; 64];
        let (first, end) = ((last + 1).cast_unsigned(), packet.cast_unsigned());
        for id in first.max(end.saturating_sub(u64::from(packets) - 1))..=end {
            if self.memory.peek(slot(id), &mut bytes).is_err() {
                continue;
            }
            let contents = contents(&self.memory, &self.registry, &bytes);
            let order = &self.order;
            let in_flight = |author| !order.host_knows(author);
            let (fresh, shared) = self.kernargs.announce(queue, id, contents, &in_flight);
            for found in shared {
                let detail = "its arguments overlap those of a launch in flight".to_owned();
                let mut report = Report::new(ReportKind::KernargShared, found.who, detail);
                report.bytes = Some(self.bytes(found.va, found.len));
                report.other = Some(found.other);
                self.log.add(report);
            }
            self.arguments_written(&fresh);
        }
        self.order.rang(queue, packet.cast_unsigned());
    }

    /// Argument bytes that are new since the last doorbell: plain stores of the host, which nobody
    /// saw, unless a kernel wrote them.
    fn arguments_written(&mut self, fresh: &[(u64, u64)]) {
        if fresh.is_empty() {
            return;
        }
        let author = self.order.host_write();
        for (va, len) in fresh {
            let by_launch = self
                .writers
                .within(*va, va + len)
                .any(|(_, _, author)| !author.is_host());
            if !by_launch {
                self.writers.set(*va, va + len, author);
            }
        }
    }

    /// The packet processor takes a packet.
    pub(crate) fn take(&mut self, queue: u64, packet: u64) {
        self.order.take(queue, packet);
        if let Some((va, len, hash)) = self.kernargs.buffer(queue, packet)
            && digest(&self.memory, va, len) != Some(hash)
        {
            let who = Party {
                kernel: "of an indirect buffer".into(),
                queue,
                packet,
                ..Party::default()
            };
            let detail = "the indirect buffer differs from what it was at the doorbell".to_owned();
            let mut report = Report::new(ReportKind::PacketMemoryWritten, who, detail);
            report.bytes = Some(self.bytes(va, len));
            self.log.add(report);
        }
        self.kernargs.taken(queue, packet);
    }

    /// A queue was destroyed.
    pub(crate) fn queue_gone(&mut self, queue: u64) {
        self.order.remove(queue);
        self.kernargs.remove_queue(queue);
        self.rung.remove(&queue);
        self.failed.remove(&queue);
    }
}
