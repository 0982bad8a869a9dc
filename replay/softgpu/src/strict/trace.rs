//! A token's launches with the exact bytes that each touched, and a judge of other orders of waits.
//!
//! A wait changes what is known to be finished, never what a launch of these kernels touches: kernels
//! read their words, not the clock. So one trace answers for every stream of the same launches with
//! other waits and invalidations, without executing it. The judge knows one queue, in which what came
//! before the first event is finished and seen. The processor's own accesses are not in a trace.

use super::caches::{Caches, Rules};
use super::clock::Author;
use super::model::Pending;
use super::ranges::{RangeMap, Ranges};
use super::report::ReportKind;
use super::touch::{Atomics, Touched};
use crate::isa::Target;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// One executed launch with what it touched, by address.
#[derive(Clone, Debug)]
pub struct TracedLaunch {
    /// Kernel.
    pub kernel: Arc<str>,
    /// Step of the declared token.
    pub step: Option<Arc<str>>,
    /// Packet id in its queue.
    pub packet: u64,
    /// Dword of its dispatch in the indirect buffer, for a launch of one.
    pub dword: Option<u32>,
    reads: Vec<(Caches, Ranges)>,
    all_reads: Ranges,
    writes: Ranges,
    atomics: Atomics,
}

impl TracedLaunch {
    pub(super) fn of(pending: &Pending, reads: &Ranges, touched: &Touched) -> Self {
        let who = &pending.who;
        Self {
            kernel: Arc::clone(&who.kernel),
            step: who.step.clone(),
            packet: who.packet,
            dword: who.dword,
            reads: touched.reads.clone(),
            all_reads: reads.clone(),
            writes: touched.writes.clone(),
            atomics: touched.atomics.clone(),
        }
    }

    /// Bytes read before the launch wrote them, ascending half-open address ranges.
    pub fn reads(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.all_reads.iter()
    }

    /// Bytes written, ascending half-open address ranges.
    pub fn writes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.writes.iter()
    }
}

/// What happens in a queue, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// All earlier launches have finished.
    Wait,
    /// An ACQUIRE_MEM with this GCR_CNTL.
    Acquire(u32),
    /// An AQL acquire fence: 0 none, 1 agent, 2 system scope.
    Fence(u16),
    /// The launch of that index in the trace starts.
    Launch(usize),
}

/// Two launches of which one may not see, or may disturb, what the other does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// A race ([`ReportKind::ReadAfterWrite`], [`ReportKind::WriteAfterRead`],
    /// [`ReportKind::WriteAfterWrite`], [`ReportKind::AtomicOrder`]) or [`ReportKind::StaleRead`].
    pub kind: ReportKind,
    /// Index of the later launch.
    pub launch: usize,
    /// Index of the earlier one.
    pub other: usize,
    /// First byte concerned.
    pub va: u64,
}

/// What orders two launches, if anything must: the kind of race and the first byte of it.
type Shared = Option<(ReportKind, u64)>;

/// Judges streams of one trace's launches.
#[derive(Debug)]
pub struct TraceJudge<'a> {
    rules: Rules,
    launches: &'a [TracedLaunch],
    /// What two launches share, by (earlier, later); computed when first asked for.
    pairs: RefCell<HashMap<(usize, usize), Shared>>,
    /// Per launch: earlier launches whose bytes it reads, with the caches on the way.
    sources: Vec<Vec<(usize, Caches, u64)>>,
}

impl<'a> TraceJudge<'a> {
    /// A judge of a trace whose launches stand in the order of their execution.
    pub fn new(target: Target, launches: &'a [TracedLaunch]) -> Self {
        Self {
            rules: Rules::of(target),
            launches,
            pairs: RefCell::default(),
            sources: sources(launches),
        }
    }

    /// The first violation of a stream; `None` where everything is ordered and seen.
    pub fn first(&self, events: &[TraceEvent]) -> Option<Violation> {
        let mut found = None;
        self.judge(events, &mut |violation| {
            found = Some(violation);
            false
        });
        found
    }

    /// Shows each violation of a stream to `tell` until it returns false. Launches count in the order
    /// of the stream, which must be that of the trace.
    pub fn judge(&self, events: &[TraceEvent], tell: &mut dyn FnMut(Violation) -> bool) {
        // Launches below these numbers are known to be finished, in general and per cache.
        let (mut known, mut started) = (0, 0);
        let mut fresh = [0; Caches::COUNT];
        for event in events {
            let caches = match *event {
                TraceEvent::Wait => {
                    known = started;
                    Caches::NONE
                }
                TraceEvent::Acquire(gcr) => self.rules.by_gcr(gcr),
                TraceEvent::Fence(scope) => self.rules.by_scope(scope),
                TraceEvent::Launch(index) => {
                    if !self.launch(index, known, &fresh, tell) {
                        return;
                    }
                    started = index + 1;
                    Caches::NONE
                }
            };
            for cache in caches.indices() {
                fresh[cache] = known;
            }
        }
    }

    fn launch(
        &self,
        index: usize,
        known: usize,
        fresh: &[usize; Caches::COUNT],
        tell: &mut dyn FnMut(Violation) -> bool,
    ) -> bool {
        for other in known..index {
            if let Some((kind, va)) = self.pair(other, index) {
                let violation = Violation {
                    kind,
                    launch: index,
                    other,
                    va,
                };
                if !tell(violation) {
                    return false;
                }
            }
        }
        let sources = self.sources.get(index).map_or(&[][..], Vec::as_slice);
        for &(other, path, va) in sources {
            let stale = path.indices().any(|cache| other >= fresh[cache]);
            if other < known && stale {
                let violation = Violation {
                    kind: ReportKind::StaleRead,
                    launch: index,
                    other,
                    va,
                };
                if !tell(violation) {
                    return false;
                }
            }
        }
        true
    }

    fn pair(&self, earlier: usize, later: usize) -> Shared {
        let mut pairs = self.pairs.borrow_mut();
        *pairs.entry((earlier, later)).or_insert_with(|| {
            let (first, second) = (self.launches.get(earlier)?, self.launches.get(later)?);
            conflict(first, second)
        })
    }
}

fn conflict(first: &TracedLaunch, second: &TracedLaunch) -> Shared {
    let (atomics, ordered) = second.atomics.contended(&first.atomics);
    let rows = [
        (ReportKind::ReadAfterWrite, &second.all_reads, &first.writes),
        (ReportKind::WriteAfterRead, &second.writes, &first.all_reads),
        (ReportKind::WriteAfterWrite, &second.writes, &first.writes),
    ];
    let race = rows.into_iter().find_map(|(kind, here, there)| {
        let shared = Ranges::of(here.shared(there).collect()).without(&atomics);
        shared.iter().next().map(|(va, _)| (kind, va))
    });
    race.or_else(|| {
        let (va, _) = ordered.iter().next()?;
        Some((ReportKind::AtomicOrder, va))
    })
}

/// Per launch, who wrote what it reads last before it, as far as a launch of the trace did. What a
/// launch wrote lies in the L2 of everybody.
fn sources(launches: &[TracedLaunch]) -> Vec<Vec<(usize, Caches, u64)>> {
    let mut writers: RangeMap<Author> = RangeMap::default();
    let mut all = Vec::with_capacity(launches.len());
    for (number, launch) in (0u64..).zip(launches) {
        let mut list: Vec<(usize, Caches, u64)> = Vec::new();
        for (path, ranges) in &launch.reads {
            let path = path.but(Caches::L2);
            for (start, end) in ranges.iter() {
                for (va, _, author) in writers.within(start, end) {
                    let other = author.number() as usize;
                    match list.iter_mut().find(|row| (row.0, row.1) == (other, path)) {
                        Some(row) => row.2 = row.2.min(va),
                        None => list.push((other, path, va)),
                    }
                }
            }
        }
        list.sort_unstable_by_key(|row| (row.0, row.1.0));
        all.push(list);
        for (start, end) in launch.writes.iter() {
            writers.set(start, end, Author::host(number));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{TraceEvent, TraceJudge, TracedLaunch, Violation};
    use crate::isa::Target;
    use crate::strict::ReportKind;
    use crate::strict::caches::Caches;
    use crate::strict::ranges::Ranges;
    use crate::strict::touch::Atomics;

    fn launch(path: Caches, reads: &[(u64, u64)], writes: &[(u64, u64)]) -> TracedLaunch {
        TracedLaunch {
            kernel: "k".into(),
            step: None,
            packet: 0,
            dword: None,
            reads: vec![(path, Ranges::of(reads.to_vec()))],
            all_reads: Ranges::of(reads.to_vec()),
            writes: Ranges::of(writes.to_vec()),
            atomics: Atomics::default(),
        }
    }

    /// A producer, a consumer by vector loads, a consumer by scalar loads that overwrites the input.
    fn trace() -> Vec<TracedLaunch> {
        let vector = Caches::L0.with(Caches::L1).with(Caches::L2);
        let scalar = Caches::SCALAR.with(Caches::L2);
        vec![
            launch(vector, &[(0, 8)], &[(16, 32)]),
            launch(vector, &[(20, 24)], &[(40, 48)]),
            launch(scalar, &[(16, 20)], &[(0, 4)]),
        ]
    }

    #[test]
    fn streams_are_judged_by_what_is_known_and_fresh() {
        use TraceEvent::{Acquire, Fence, Launch, Wait};
        let trace = trace();
        let judge = TraceJudge::new(Target::Gfx1100, &trace);
        let of = |kind, launch, other, va| {
            Some(Violation {
                kind,
                launch,
                other,
                va,
            })
        };
        let rows: [(&[TraceEvent], Option<Violation>); 7] = [
            (
                &[Launch(0), Wait, Acquire(0x380), Launch(1), Launch(2)],
                None,
            ),
            (&[Launch(0), Wait, Fence(1), Launch(1), Launch(2)], None),
            (
                &[Launch(0), Acquire(0x380), Launch(1)],
                of(ReportKind::ReadAfterWrite, 1, 0, 20),
            ),
            // The scalar cache is not among what is invalidated.
            (
                &[Launch(0), Wait, Acquire(0x300), Launch(1), Launch(2)],
                of(ReportKind::StaleRead, 2, 0, 16),
            ),
            // Invalidated before the wait: the producer may have been running still.
            (
                &[Launch(0), Acquire(0x380), Wait, Launch(1)],
                of(ReportKind::StaleRead, 1, 0, 20),
            ),
            (
                &[Launch(0), Wait, Fence(0), Launch(1)],
                of(ReportKind::StaleRead, 1, 0, 20),
            ),
            (&[Launch(0)], None),
        ];
        for (events, expected) in rows {
            assert_eq!(judge.first(events), expected, "{events:?}");
        }
        // Without any wait: both consumers race with the producer, and the second one with its input.
        let mut kinds = Vec::new();
        judge.judge(&[Launch(0), Launch(1), Launch(2)], &mut |found| {
            kinds.push((found.kind, found.launch, found.other));
            true
        });
        let raw = ReportKind::ReadAfterWrite;
        assert_eq!(kinds, [(raw, 1, 0), (raw, 2, 0)]);
    }
}
