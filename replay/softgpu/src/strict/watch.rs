//! The waves' side of the model: accesses are recorded, findings get their names.

use super::caches::Caches;
use super::hook::{Access, AtomicKind, Path, Watch, WaveFinding, WaveInvalidate, Who};
use super::model::Model;
use super::report::{Instruction, Report, ReportKind};
use crate::memory::Kind;

impl Model {
    /// The number of the way that an access takes through caches that may be stale.
    #[inline(always)]
    fn class(&mut self, who: Who, path: Path) -> usize {
        let mut caches = self.rules.path(path);
        if !self.refreshed.is_empty()
            && let Some(fresh) = self.refreshed.get(&(who.launch, who.group, who.wave))
        {
            caches = caches.but(*fresh);
        }
        self.touch.class(caches)
    }

    /// An instruction in words.
    pub(super) fn instruction(&self, who: Who) -> Option<Instruction> {
        let pending = self.running.get(who.launch as usize)?;
        let program = &pending.kernel.program;
        let text = program
            .index_of(who.pc)
            .map_or_else(String::new, |index| program.text_of(index));
        Some(Instruction {
            offset: who.pc.wrapping_sub(pending.kernel.entry_va),
            text,
            group: who.group,
            wave: who.wave,
            left_out: false,
        })
    }

    /// A report about a launch of the batch.
    pub(super) fn about(&self, who: Who, kind: ReportKind, detail: String) -> Option<Report> {
        let pending = self.running.get(who.launch as usize)?;
        let mut report = Report::new(kind, pending.who.clone(), detail);
        report.instruction = self.instruction(who);
        Some(report)
    }

    /// Adds the bytes and the argument that they belong to.
    pub(super) fn locate(&self, report: &mut Report, launch: u32, va: u64, len: u64) {
        report.bytes = Some(self.bytes(va, len));
        if let Some(pending) = self.running.get(launch as usize) {
            report.argument = self.argument(pending, va);
        }
    }

    #[cold]
    #[inline(never)]
    fn uninitialised(&mut self, access: &Access<'_>, lanes: u32) {
        let who = access.who;
        if !self.blamed.insert((who.launch, who.pc)) {
            return;
        }
        let lane = lanes.trailing_zeros() & 31;
        let va = access.at[lane as usize];
        // Compilers widen argument loads up to the segment's alignment; what that reads is unused,
        // or is reported where it is used.
        if self.buffer(va).2 == Some(Kind::Kernarg) {
            return;
        }
        let detail = format!(
            "lane {lane} loads {} bytes that nobody wrote since the allocation (lanes {lanes:#010x})",
            access.bytes
        );
        if let Some(mut report) = self.about(who, ReportKind::UninitialisedRead, detail) {
            self.locate(&mut report, who.launch, va, u64::from(access.bytes));
            self.log.add(report);
        }
    }

    fn wave_report(&self, who: Who, finding: &WaveFinding) -> Option<Report> {
        let entry = self.running.get(who.launch as usize)?.kernel.entry_va;
        let at = |pc: u64| format!("+{:#x}", pc.wrapping_sub(entry));
        let (kind, detail, remedy) = match finding {
            WaveFinding::MissingWait {
                register,
                counter,
                at_most,
                load,
            } => (
                ReportKind::MissingWaitcnt,
                format!(
                    "{register} is used while the load at {} may be in flight",
                    at(*load)
                ),
                Some(format!(
                    "wait until {counter} is at most {at_most} before this instruction"
                )),
            ),
            WaveFinding::Poison {
                register,
                place,
                lanes,
            } => (
                ReportKind::PoisonUse,
                format!(
                    "{register} holds what nothing defined in lanes {lanes:#010x}, used as {place}"
                ),
                None,
            ),
            WaveFinding::LdsRace {
                address,
                bytes,
                other_wave,
                other_pc,
                what,
            } => (
                ReportKind::LdsRace,
                format!(
                    "LDS bytes {address}..{}: {what} with wave {other_wave} at {}",
                    u64::from(*address) + u64::from(*bytes),
                    at(*other_pc)
                ),
                None,
            ),
            WaveFinding::BarrierDivergence {
                other_wave,
                other_pc,
            } => (
                ReportKind::BarrierDivergence,
                format!("wave {other_wave} is at {} meanwhile", at(*other_pc)),
                None,
            ),
        };
        let mut report = self.about(who, kind, detail)?;
        if let Some(remedy) = remedy {
            report.remedy = remedy;
        }
        Some(report)
    }
}

impl Watch for Model {
    #[inline]
    fn load(&mut self, access: &Access<'_>) -> u32 {
        let class = self.class(access.who, access.path);
        self.phases.access(access, false);
        let lanes = self.touch.load(access, class, &mut self.shadow);
        if lanes != 0 {
            self.uninitialised(access, lanes);
        }
        lanes
    }

    fn undefined(&mut self, access: &Access<'_>) -> u32 {
        super::touch::undefined_lanes(access, &mut self.shadow)
    }

    #[inline]
    fn store(&mut self, access: &Access<'_>, poison: u32) {
        self.phases.access(access, true);
        self.touch.store(access, poison, &mut self.shadow);
    }

    fn atomic(&mut self, access: &Access<'_>, kind: AtomicKind, poison: u32) -> u32 {
        // Atomics are done in the L2.
        let class = self.touch.class(self.rules.present().and(Caches::L2));
        let lanes = self
            .touch
            .atomic(access, kind, class, poison, &mut self.shadow);
        if lanes != 0 {
            self.uninitialised(access, lanes);
        }
        lanes
    }

    fn invalidate(&mut self, who: Who, what: WaveInvalidate) {
        let caches = self.rules.by_wave(what);
        let fresh = self
            .refreshed
            .entry((who.launch, who.group, who.wave))
            .or_default();
        *fresh = fresh.with(caches);
    }

    fn completed(&mut self, launch: u32, group: u32) {
        self.phases.completed(launch, group);
    }

    fn ended(&mut self, launch: u32, group: u32) {
        self.phases.ended(launch, group);
    }

    fn found(&mut self, who: Who, finding: WaveFinding) {
        if let Some(report) = self.wave_report(who, &finding) {
            self.log.add(report);
        }
    }
}
