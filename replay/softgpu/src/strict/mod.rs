//! Strict mode: what a replay must not rely on, made visible while real code objects run.
//!
//! [`hook`] is the seam: the strict executor (`exec::strict`) tells a [`hook::Watch`] about every
//! access of a wave, and asks it which bytes were never written. What stands behind the seam keeps
//! the order of launches, the caches, the bytes that each launch touched and the reports. Order is
//! judged by happens-before, never by what one interleaving happened to do.
//!
//! | file | holds |
//! |---|---|
//! | `touch`, `bits` | the bytes that the launches of a batch read and write (hot) |
//! | `shadow` | which bytes were ever written |
//! | `clock`, `order` | who knows whose work to be finished; which caches are fresh as of when |
//! | `caches` | what lies on an access's path and what invalidates it, per generation |
//! | `processor`, `publish` | the packet processor's own accesses; words that waits look at |
//! | `kernarg` | kernel arguments in flight |
//! | `declare` | what launches are declared to touch |
//! | `model`, `check`, `watch`, `host` | the whole, and its four sides: batch, waves, packets, host |
//! | `fault` | which launch stopped a queue, at which argument, and what would help |
//! | `report`, `footprint` | what comes out |
//! | `trace` | what launches touched by address, and a judge of other waits between them |

mod bits;
mod caches;
mod check;
mod clock;
mod declare;
mod fault;
mod footprint;
pub(crate) mod hook;
mod host;
mod kernarg;
mod model;
mod order;
mod phases;
mod processor;
mod publish;
mod ranges;
mod report;
mod shadow;
mod signals;
mod touch;
#[cfg(test)]
mod touch_tests;
mod trace;
mod watch;

pub use declare::{
    Declarations, DeclaredArg, DeclaredBuffer, DeclaredExtent, DeclaredLaunch, DeclaredRange,
};
pub use footprint::{
    FOOTPRINT_VERSION, Footprint, FootprintError, FootprintExtent, read_footprints,
    write_footprints,
};
use model::Model;
pub(crate) use model::{Facts, Pending};
pub(crate) use processor::{Accesses, PendingRelease, Site};
pub use report::{
    Bytes, Instruction, Party, REPORT_KINDS, Report, ReportKind, ReportKindRow, Reports,
};
pub use trace::{TraceEvent, TraceJudge, TracedLaunch, Violation};

use crate::exec::{Dispatch, ExecError, RunConfig, RunStats, run_strict};
use crate::isa::Target;
use crate::memory::{AddressSpace, Observer, Rights};
use crate::object::{Kernel, Registry};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How strict mode works. The seed is that of the software GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrictConfig {
    /// Stop the queue at its first report, as if it were a fault.
    pub stop_at_first: bool,
    /// Different reports that are kept; more are counted only.
    pub keep: usize,
    /// Footprints of the last so many launches are kept.
    pub footprints: usize,
    /// Traces of the last so many launches are kept: what they touched, by address.
    pub traces: usize,
}

impl Default for StrictConfig {
    fn default() -> Self {
        Self {
            stop_at_first: false,
            keep: 256,
            footprints: 0,
            traces: 0,
        }
    }
}

/// Strict mode of one software GPU. One lock: the packet processor holds it while a batch runs, so
/// that the host's calls fall before or after it.
#[derive(Debug)]
pub(crate) struct Strict(Mutex<Model>);

impl Strict {
    pub(crate) fn new(
        config: StrictConfig,
        target: Target,
        memory: &Arc<AddressSpace>,
        registry: &Arc<Registry>,
    ) -> Arc<Self> {
        let model = Model::new(config, target, Arc::clone(memory), Arc::clone(registry));
        Arc::new(Self(Mutex::new(model)))
    }

    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a batch with its launches watched.
    pub(crate) fn run(
        &self,
        memory: &AddressSpace,
        dispatches: &[Dispatch],
        launches: Vec<Pending>,
        config: &RunConfig,
        stop: &AtomicBool,
    ) -> Result<RunStats, ExecError> {
        let mut model = self.model();
        model.begin(launches);
        let result = run_strict(memory, dispatches, config, stop, &mut *model);
        if let Err(error) = &result {
            model.failed(error.tag());
        }
        model.end();
        result
    }

    /// The first report, if it is to stop the queue.
    pub(crate) fn stops(&self) -> Option<Report> {
        let model = self.model();
        let first = model.log.first().filter(|_| model.config.stop_at_first);
        first.cloned()
    }

    /// The reports so far.
    pub(crate) fn reports(&self) -> Vec<Report> {
        self.model().log.copy()
    }

    /// Takes the reports.
    pub(crate) fn take_reports(&self) -> Reports {
        self.model().log.take()
    }

    /// Takes the footprints, oldest first.
    pub(crate) fn take_footprints(&self) -> Vec<Footprint> {
        std::mem::take(&mut self.model().footprints).into()
    }

    /// Takes the traces, oldest first.
    pub(crate) fn take_traces(&self) -> Vec<TracedLaunch> {
        std::mem::take(&mut self.model().traces).into()
    }

    /// A dispatch is taken from a packet.
    pub(crate) fn launch(&self, kernel: &Arc<Kernel>, facts: Facts) -> Pending {
        self.model().launch(kernel, facts)
    }

    /// A packet's acquire fence (0 none, 1 agent, 2 system).
    pub(crate) fn acquire(&self, queue: u64, scope: u16) {
        let mut model = self.model();
        let caches = model.rules.by_scope(scope);
        model.order.invalidate(queue, caches);
    }

    /// An ACQUIRE_MEM.
    pub(crate) fn acquire_mem(&self, site: Site, gcr: u32) {
        let mut model = self.model();
        let caches = model.rules.by_gcr(gcr);
        if gcr & refrain_packet::tables::gcr::GL2_WB != 0 {
            model.order.write_back(site.queue);
        } else {
            let known = model.order.written_back(site.queue);
            model.check_discarded(&site.party(), caches, &known);
        }
        model.order.invalidate(site.queue, caches);
    }

    /// Everything in flight on a queue has finished, and what follows waited for it.
    pub(crate) fn wait(&self, queue: u64) {
        self.model().order.wait(queue);
    }

    /// A barrier packet has passed.
    pub(crate) fn passed(&self, queue: u64, signals: impl Iterator<Item = u64>) {
        let mut model = self.model();
        for signal in signals {
            model.order.depend(queue, signal);
        }
    }

    /// A packet that is no launch completes.
    pub(crate) fn complete(&self, queue: u64, release: bool, signal: u64) {
        self.model().order.complete(queue, release, signal);
    }
}

impl Observer for Strict {
    fn allocated(&self, base: u64, len: u64, rights: Rights) {
        self.model().allocated(base, len, rights);
    }

    fn freed(&self, base: u64, len: u64) {
        self.model().freed(base, len);
    }

    fn host_wrote(&self, va: u64, len: u64) {
        self.model().host_wrote(va, len);
    }

    fn host_reads(&self, va: u64, len: u64) {
        self.model().host_reads(va, len);
    }
}
