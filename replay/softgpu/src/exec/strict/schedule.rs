//! The scheduler: which wave of which work-group runs next, and for how long.

use super::group::{Active, Lent};
use crate::exec::batch::{Order, Plan, check, launch_of, position};
use crate::exec::context::HITS;
use crate::exec::init::{Start, mix, poison};
use crate::exec::{Dispatch, ExecError, RunConfig, RunStats, group_count};
use crate::memory::{AddressSpace, LastHit, View};
use crate::strict::hook::Watch;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Work-groups that are under way at once.
const ACTIVE: usize = 4;

/// Longest time slice in micro-operations; slices are 1 to this, uniformly.
const SLICE: u64 = 128;

thread_local! {
    /// Waves and LDS, kept between batches.
    static STORAGE: RefCell<Vec<Active>> = const { RefCell::new(Vec::new()) };
}

/// As [`run_batch`](super::super::run_batch), on the calling thread, with everything reported to
/// `watch`. The interleaving depends on `config.seed` alone; `config.threads` is not used.
pub(crate) fn run_strict<W: Watch + ?Sized>(
    memory: &AddressSpace,
    batch: &[Dispatch],
    config: &RunConfig,
    stop: &AtomicBool,
    watch: &mut W,
) -> Result<RunStats, ExecError> {
    let mut plans = Vec::with_capacity(batch.len());
    let (mut groups, mut waves) = (0u64, 0u64);
    for dispatch in batch {
        let plan = check(dispatch, groups)?;
        let count = group_count(dispatch.groups);
        groups = groups.saturating_add(count);
        waves = waves.saturating_add(count.saturating_mul(u64::from(plan.waves)));
        plans.push(plan);
    }
    let view = memory.view();
    let mut run = Run {
        memory,
        batch,
        plans: &plans,
        config,
        view: &view,
        stop,
        order: Order::new(groups, config.seed),
        next: 0,
        random: mix(config.seed ^ 0x5711_c7ed),
        instructions: 0,
        hits: [LastHit::default(); HITS],
    };
    STORAGE.with(|storage| match storage.try_borrow_mut() {
        Ok(mut storage) => run.all(&mut storage, watch),
        Err(_) => run.all(&mut Vec::new(), watch),
    })?;
    Ok(RunStats {
        instructions: run.instructions,
        waves,
        groups,
    })
}

struct Run<'a> {
    memory: &'a AddressSpace,
    batch: &'a [Dispatch],
    plans: &'a [Plan],
    config: &'a RunConfig,
    view: &'a View,
    /// Set when the batch is given up.
    stop: &'a AtomicBool,
    order: Order,
    /// Place in the order of the next work-group.
    next: u64,
    random: u64,
    instructions: u64,
    hits: [LastHit; HITS],
}

impl Run<'_> {
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    /// Runs everything; the first `active` entries of `storage` are under way.
    fn all<W: Watch + ?Sized>(
        &mut self,
        storage: &mut Vec<Active>,
        watch: &mut W,
    ) -> Result<(), ExecError> {
        let mut active = 0;
        loop {
            while active < ACTIVE && self.next < self.order.count {
                if storage.len() == active {
                    storage.push(Active::default());
                }
                self.begin(&mut storage[active]);
                active += 1;
            }
            let Some(count) = std::num::NonZeroU64::new(active as u64) else {
                return Ok(());
            };
            let draw = self.draw();
            let which = (draw % count) as usize;
            let group = &mut storage[which];
            self.slice(group, draw >> 8, watch)?;
            if group.finished() {
                let done = group.instructions();
                self.instructions += done;
                self.plans[group.launch]
                    .spent
                    .fetch_add(done, Ordering::Relaxed);
                watch.ended(group.launch as u32, group.number);
                active -= 1;
                storage.swap(which, active);
            }
        }
    }

    /// Starts the next work-group of the order.
    fn begin(&mut self, group: &mut Active) {
        let number = self.order.at(self.next);
        self.next += 1;
        let which = launch_of(self.plans, number);
        let local = number - self.plans[which].first;
        let at = position(self.batch[which].groups, local);
        group.start(&self.start(which), which, local as u32, at);
    }

    /// How waves of a launch start. Micro-operations of the strict program have other numbers than
    /// those of the fast one.
    fn start(&self, which: usize) -> Start<'_> {
        let (plan, dispatch) = (&self.plans[which], &self.batch[which]);
        let code = dispatch.program.strict();
        Start {
            dispatch,
            entry: code
                .program
                .index_of(dispatch.entry_va)
                .unwrap_or(plan.entry),
            vgprs: plan.vgprs,
            waves: plan.waves,
            poison: poison(self.config.seed),
        }
    }

    fn slice<W: Watch + ?Sized>(
        &mut self,
        group: &mut Active,
        draw: u64,
        watch: &mut W,
    ) -> Result<(), ExecError> {
        let dispatch = &self.batch[group.launch];
        let code = dispatch.program.strict();
        let budget = self.config.wave_budget;
        let lent = Lent {
            code,
            view: self.view,
            hits: &mut self.hits,
            stop: self.stop,
            watch,
            limit: (draw % SLICE) as u32 + 1,
            budget,
        };
        let Err(stopped) = group.slice(draw >> 16, lent) else {
            return Ok(());
        };
        let start = self.start(group.launch);
        let error = stopped.describe(self.memory, &start, &code.program, group.at, budget);
        Err(ExecError::Wave(Box::new(error)))
    }
}
