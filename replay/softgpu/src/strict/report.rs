//! What strict mode finds: kinds as a table, reports with names, and the bounded log of them.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Kind of a finding; its row in [`REPORT_KINDS`] has its name, meaning and general remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReportKind {
    /// Access outside every allocation, or to a freed one.
    OutOfBounds,
    /// Read of bytes that the launch does not declare.
    UndeclaredRead,
    /// Write of bytes that the launch does not declare.
    UndeclaredWrite,
    /// A launch that is not the declared one.
    UndeclaredLaunch,
    /// Read of bytes that nobody wrote.
    UninitialisedRead,
    /// Read that nothing orders after the write.
    ReadAfterWrite,
    /// Write that nothing orders after the read.
    WriteAfterRead,
    /// Two writes that nothing orders.
    WriteAfterWrite,
    /// Work-groups of one launch share bytes.
    GroupsShare,
    /// Waves of one work-group share bytes of memory without a barrier.
    WavesShare,
    /// Read through a cache that may hold older bytes.
    StaleRead,
    /// Host read of bytes that may still be in the L2 only.
    NotWrittenBack,
    /// The L2 is invalidated while it holds bytes that nothing wrote back.
    LostWrites,
    /// Two launches in flight share kernel arguments.
    KernargShared,
    /// Kernel arguments changed between doorbell and end of the launch.
    KernargChanged,
    /// A kernel wrote into code, a ring, an indirect buffer or kernel arguments.
    PacketMemoryWritten,
    /// Atomics whose result depends on who comes first.
    AtomicOrder,
    /// A register was used before the wait for the load that fills it.
    MissingWaitcnt,
    /// Waves of a group share LDS bytes without a barrier.
    LdsRace,
    /// Waves of a group wait at different barriers.
    BarrierDivergence,
    /// A value that nothing defined decides something.
    PoisonUse,
    /// A dispatch relies on a register that its indirect buffer did not write.
    RegisterUnset,
    /// A packet is not acceptable.
    PacketRejected,
    /// Instruction prefetch reaches past the mapped code.
    PrefetchPastEnd,
    /// A wave stopped for another reason.
    WaveStopped,
}

/// One kind of finding.
#[derive(Clone, Copy, Debug)]
pub struct ReportKindRow {
    /// The kind.
    pub kind: ReportKind,
    /// Stable name.
    pub name: &'static str,
    /// What it means, in one line.
    pub meaning: &'static str,
    /// What helps in general; a report says it with packet and names where it can.
    pub remedy: &'static str,
}

macro_rules! kinds {
    ($($kind:ident $name:literal $meaning:literal $remedy:literal)*) => {
        /// Every kind, in the order of [`ReportKind`].
        pub const REPORT_KINDS: &[ReportKindRow] = &[
            $(ReportKindRow {
                kind: ReportKind::$kind,
                name: $name,
                meaning: $meaning,
                remedy: $remedy,
            }),*
        ];
    };
}

kinds! {
    OutOfBounds "out-of-bounds" "an access outside every live allocation or without the right to it"
        "check the buffer size, the grid and the offset"
    UndeclaredRead "undeclared-read" "a launch read bytes that its step does not declare"
        "declare the bytes as read, or correct the kernel or its arguments"
    UndeclaredWrite "undeclared-write" "a launch wrote bytes that its step does not declare"
        "declare the bytes as written, or correct the kernel or its arguments"
    UndeclaredLaunch "undeclared-launch" "a launch is not the one that is declared at its place"
        "declare the launches in the order in which they are made"
    UninitialisedRead "uninitialised-read" "a launch read bytes that nobody wrote since the allocation"
        "write the bytes first, or do not read them"
    ReadAfterWrite "read-after-write" "a read that nothing orders after the write of the same bytes"
        "wait for the writer and invalidate the caches before the reader"
    WriteAfterRead "write-after-read" "a write that nothing orders after a read of the same bytes"
        "wait for the reader before the writer"
    WriteAfterWrite "write-after-write" "two writes of the same bytes that nothing orders"
        "wait for the first writer before the second"
    GroupsShare "groups-share" "work-groups of one launch use the same bytes, one of them writing"
        "give each group its own bytes, or split the launch in two with a wait between"
    WavesShare "waves-share" "waves of one work-group use the same bytes of memory, one of them writing, without a barrier"
        "put a barrier between the two"
    StaleRead "stale-read" "a read through a cache that may still hold what was there before the write"
        "invalidate the caches after the wait for the writer and before the reader"
    NotWrittenBack "not-written-back" "the host reads bytes that may still be in the L2 only"
        "release at system scope, or write the L2 back after the wait, before the host is told"
    LostWrites "lost-writes" "the L2 is invalidated while it may hold the only copy of what a launch wrote"
        "write the L2 back in the same packet or before it"
    KernargShared "kernarg-shared" "two launches in flight have overlapping kernel arguments that differ"
        "give every launch in flight its own argument slot"
    KernargChanged "kernarg-changed" "kernel arguments changed between the doorbell and the launch's end"
        "leave argument slots alone until the launch has completed"
    PacketMemoryWritten "packet-memory-written" "a kernel wrote into code, a ring, an indirect buffer or arguments"
        "keep outputs out of that memory"
    AtomicOrder "atomic-order" "contended atomics whose result depends on who comes first"
        "sum in a written order instead"
    MissingWaitcnt "missing-waitcnt" "a register was used before the wait for the load that fills it"
        "wait for the counter before the use"
    LdsRace "lds-race" "waves of a work-group use the same LDS bytes without a barrier between"
        "put a barrier between the two"
    BarrierDivergence "barrier-divergence" "waves of a work-group wait at different barriers, or some never do"
        "let every wave of the group reach the same barrier"
    PoisonUse "poison-use" "a value that nothing defined reached an address, EXEC, a branch or a store"
        "define the register on every path"
    RegisterUnset "register-unset" "a dispatch relies on a register that its indirect buffer did not write"
        "write the register in the same indirect buffer before the dispatch"
    PacketRejected "packet-rejected" "the packet processor does not accept a packet"
        "correct the packet as the message says"
    PrefetchPastEnd "prefetch-past-end" "instruction prefetch reaches past the mapped code"
        "map 256 bytes past the code and set RSRC3.INST_PREF_SIZE within it"
    WaveStopped "wave-stopped" "a wave could not go on"
        "correct the limit, index, branch or barrier that the detail names"
}

impl ReportKind {
    /// The kind's row.
    pub fn row(self) -> &'static ReportKindRow {
        // Rows stand in the order of the variants, which a test checks.
        let index = (self as usize).min(REPORT_KINDS.len() - 1);
        &REPORT_KINDS[index]
    }

    /// Stable name, for example `stale-read`.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for ReportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A launch, or the host, as a report names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// Step of the declared token.
    pub step: Option<Arc<str>>,
    /// Kernel; empty for the host.
    pub kernel: Arc<str>,
    /// Queue id, 0 for the host.
    pub queue: u64,
    /// Packet id in the queue: its ring slot is the id modulo the ring's size.
    pub packet: u64,
    /// Dword of the indirect buffer, for a launch of one.
    pub dword: Option<u32>,
    /// No launch but an access of the packet processor itself; `kernel` is its packet's name.
    pub processor: bool,
}

impl Party {
    /// The host.
    pub fn host() -> Self {
        Self::default()
    }

    /// Whether this is the host.
    pub fn is_host(&self) -> bool {
        self.queue == 0
    }

    fn label(&self) -> Arc<str> {
        self.step
            .clone()
            .unwrap_or_else(|| Arc::clone(&self.kernel))
    }

    /// The packet in words.
    pub fn place(&self) -> String {
        match self.dword {
            _ if self.is_host() => "the host".to_owned(),
            Some(dword) => format!(
                "queue {}, packet {}, dword {dword}",
                self.queue, self.packet
            ),
            None => format!("queue {}, packet {}", self.queue, self.packet),
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_host() {
            return f.write_str("the host");
        }
        if let Some(step) = &self.step {
            write!(f, "step {step}, ")?;
        }
        if !self.kernel.is_empty() {
            let what = if self.processor { "packet" } else { "kernel" };
            write!(f, "{what} {} ", self.kernel)?;
        }
        write!(f, "({})", self.place())
    }
}

/// Bytes of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// Name of the declared buffer or of the allocation.
    pub buffer: Arc<str>,
    /// First byte in it.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            buffer,
            offset,
            len,
        } = self;
        write!(
            f,
            "{buffer} bytes {offset}..{}",
            offset.saturating_add(*len)
        )
    }
}

/// An instruction of a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Bytes from the kernel's entry.
    pub offset: u64,
    /// Its text.
    pub text: String,
    /// Work-group, linear.
    pub group: u32,
    /// Wave in the group.
    pub wave: u32,
    /// More instructions touched these 4 KiB than are remembered, so this may not be the first.
    pub left_out: bool,
}

/// One finding. Nothing in it depends on where memory lies, so that equal runs give equal reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What kind of finding.
    pub kind: ReportKind,
    /// Who did it.
    pub who: Party,
    /// Name of the kernel argument that the bytes belong to.
    pub argument: Option<String>,
    /// Bytes concerned.
    pub bytes: Option<Bytes>,
    /// An instruction that touched them.
    pub instruction: Option<Instruction>,
    /// The other launch, or the host.
    pub other: Option<Party>,
    /// What was found, both values where there are two.
    pub detail: String,
    /// What would help, with the packet where one is missing.
    pub remedy: String,
    /// How often it was found.
    pub count: u64,
}

impl Report {
    /// A report about `who`, without bytes.
    pub(crate) fn new(kind: ReportKind, who: Party, detail: String) -> Self {
        Self {
            kind,
            who,
            argument: None,
            bytes: None,
            instruction: None,
            other: None,
            detail,
            remedy: kind.row().remedy.to_owned(),
            count: 1,
        }
    }

    /// The report as one JSON object.
    pub fn json(&self) -> String {
        let mut out = String::from("{\"kind\":");
        quote(&mut out, self.kind.name());
        party(&mut out, "who", &self.who);
        if let Some(other) = &self.other {
            party(&mut out, "other", other);
        }
        if let Some(argument) = &self.argument {
            text(&mut out, "argument", argument);
        }
        if let Some(Bytes {
            buffer,
            offset,
            len,
        }) = &self.bytes
        {
            text(&mut out, "buffer", buffer);
            // Writing to a String does not fail.
            let _ = write!(out, ",\"offset\":{offset},\"len\":{len}");
        }
        if let Some(instruction) = &self.instruction {
            let Instruction {
                offset,
                text: words,
                group,
                wave,
                left_out,
            } = instruction;
            let _ = write!(out, ",\"pc\":{offset},\"group\":{group},\"wave\":{wave}");
            text(&mut out, "instruction", words);
            if *left_out {
                out.push_str(",\"instructions_left_out\":true");
            }
        }
        text(&mut out, "detail", &self.detail);
        text(&mut out, "remedy", &self.remedy);
        let _ = write!(out, ",\"count\":{}}}", self.count);
        out
    }
}

fn quote(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn text(out: &mut String, key: &str, value: &str) {
    let _ = write!(out, ",\"{key}\":");
    quote(out, value);
}

fn party(out: &mut String, key: &str, party: &Party) {
    let _ = write!(out, ",\"{key}\":{{\"host\":{}", party.is_host());
    if !party.is_host() {
        if let Some(step) = &party.step {
            text(out, "step", step);
        }
        let key = if party.processor {
            "packet_name"
        } else {
            "kernel"
        };
        text(out, key, &party.kernel);
        let _ = write!(
            out,
            ",\"queue\":{},\"packet\":{}",
            party.queue, party.packet
        );
        if let Some(dword) = party.dword {
            let _ = write!(out, ",\"dword\":{dword}");
        }
    }
    out.push('}');
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.who)?;
        if let Some(argument) = &self.argument {
            write!(f, ", argument {argument}")?;
        }
        if let Some(bytes) = &self.bytes {
            write!(f, ", {bytes}")?;
        }
        write!(f, ": {}", self.detail)?;
        if let Some(other) = &self.other {
            write!(f, "; other: {other}")?;
        }
        if let Some(Instruction {
            offset,
            text,
            group,
            wave,
            left_out,
        }) = &self.instruction
        {
            write!(
                f,
                "; at +{offset:#x} `{text}` in group {group}, wave {wave}"
            )?;
            if *left_out {
                f.write_str(" (more instructions touch these 4 KiB than are remembered)")?;
            }
        }
        write!(f, "; {}", self.remedy)?;
        if self.count > 1 {
            write!(f, " [{} times]", self.count)?;
        }
        Ok(())
    }
}

type Key = (
    ReportKind,
    Arc<str>,
    Option<Arc<str>>,
    Option<Arc<str>>,
    u64,
);

/// Reports without repetition, at most so many.
#[derive(Debug, Default)]
pub(crate) struct ReportLog {
    reports: Vec<Report>,
    index: HashMap<Key, usize>,
    keep: usize,
    /// Different reports that did not fit.
    dropped: u64,
}

impl ReportLog {
    pub(crate) fn new(keep: usize) -> Self {
        Self {
            keep,
            ..Self::default()
        }
    }

    /// Adds a report, or counts it if its like is known: same kind, step, other step, buffer and
    /// instruction.
    pub(crate) fn add(&mut self, report: Report) {
        let key = (
            report.kind,
            report.who.label(),
            report.other.as_ref().map(Party::label),
            report.bytes.as_ref().map(|bytes| Arc::clone(&bytes.buffer)),
            report.instruction.as_ref().map_or(0, |at| at.offset),
        );
        if let Some(known) = self.index.get(&key).and_then(|i| self.reports.get_mut(*i)) {
            known.count += 1;
        } else if self.reports.len() < self.keep {
            self.index.insert(key, self.reports.len());
            self.reports.push(report);
        } else {
            self.dropped += 1;
        }
    }

    pub(crate) fn first(&self) -> Option<&Report> {
        self.reports.first()
    }

    pub(crate) fn copy(&self) -> Vec<Report> {
        self.reports.clone()
    }

    pub(crate) fn take(&mut self) -> Reports {
        self.index.clear();
        Reports {
            reports: std::mem::take(&mut self.reports),
            dropped: std::mem::take(&mut self.dropped),
        }
    }
}

/// What [`crate::SoftGpu::take_reports`] returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// In the order in which they were first found.
    pub reports: Vec<Report>,
    /// Different ones that did not fit.
    pub dropped: u64,
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Instruction, Party, REPORT_KINDS, Report, ReportKind, ReportLog};

    #[test]
    fn rows_stand_in_the_order_of_the_kinds_and_names_are_unique() {
        for (index, row) in REPORT_KINDS.iter().enumerate() {
            assert_eq!(row.kind as usize, index, "{}", row.name);
            assert_eq!(row.kind.name(), row.name);
            let others = REPORT_KINDS.iter().filter(|other| other.name == row.name);
            assert_eq!(others.count(), 1);
        }
        assert_eq!(ReportKind::WaveStopped as usize + 1, REPORT_KINDS.len());
    }

    fn report() -> Report {
        let who = Party {
            step: Some("blk.0.rope".into()),
            kernel: "rope".into(),
            queue: 2,
            packet: 7,
            dword: Some(40),
            processor: false,
        };
        Report {
            argument: Some("k".to_owned()),
            bytes: Some(Bytes {
                buffer: "kv.k.0".into(),
                offset: 64,
                len: 4,
            }),
            instruction: Some(Instruction {
                offset: 0x40,
                text: "global_load_b32 v1, v0, s[2:3]".to_owned(),
                group: 3,
                wave: 1,
                left_out: false,
            }),
            other: Some(Party::host()),
            ..Report::new(ReportKind::StaleRead, who, "a \"b\"\n".to_owned())
        }
    }

    #[test]
    fn text_and_json_name_everything() {
        let mut report = report();
        report.count = 3;
        assert_eq!(
            report.to_string(),
            "stale-read: step blk.0.rope, kernel rope (queue 2, packet 7, dword 40), argument k, \
             kv.k.0 bytes 64..68: a \"b\"\n; other: the host; at +0x40 `global_load_b32 v1, v0, \
             s[2:3]` in group 3, wave 1; invalidate the caches after the wait for the writer and \
             before the reader [3 times]"
        );
        assert_eq!(
            report.json(),
            "{\"kind\":\"stale-read\",\"who\":{\"host\":false,\"step\":\"blk.0.rope\",\
             \"kernel\":\"rope\",\"queue\":2,\"packet\":7,\"dword\":40},\"other\":{\"host\":true},\
             \"argument\":\"k\",\"buffer\":\"kv.k.0\",\"offset\":64,\"len\":4,\"pc\":64,\
             \"group\":3,\"wave\":1,\"instruction\":\"global_load_b32 v1, v0, s[2:3]\",\
             \"detail\":\"a \\\"b\\\"\\u000a\",\"remedy\":\"invalidate the caches after the wait \
             for the writer and before the reader\",\"count\":3}"
        );
    }

    #[test]
    fn the_log_counts_repetitions_and_is_bounded() {
        let mut log = ReportLog::new(2);
        for _ in 0..3 {
            log.add(report());
        }
        for kind in [ReportKind::LdsRace, ReportKind::PoisonUse] {
            log.add(Report { kind, ..report() });
        }
        assert_eq!(log.first().map(|report| report.count), Some(3));
        let taken = log.take();
        assert_eq!((taken.reports.len(), taken.dropped), (2, 1));
        assert_eq!(log.take().reports.len(), 0);
    }
}
