//! Runs a set of dispatches that nothing orders: the work-groups of all of them in one seeded,
//! shuffled sequence, spread over threads.

use super::context::{Ctx, HITS};
use super::group::{MAX_WAVES, run_group};
use super::init::{Start, mix, poison};
use super::program::KernelInfo;
use super::wave::Wave;
use super::{
    Dispatch, ExecError, LaunchProblem, MAX_SCRATCH, RunConfig, RunStats, group_count, pool,
};
use crate::isa::Generation;
use crate::memory::{AddressSpace, LastHit, View};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// LDS of one work-group at most, in bytes.
const MAX_LDS: u32 = 64 * 1024;

/// Batches below this many expected instructions run on the calling thread: about 100 microseconds.
const INLINE: u64 = 20_000;

/// Instructions per wave that are assumed before a kernel has run once.
const UNKNOWN_COST: u64 = 300;

/// One dispatch, checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) entry: u32,
    /// Vector registers that its waves start with.
    pub(super) vgprs: u32,
    pub(super) waves: u32,
    /// Number of the first work-group of this dispatch in the batch.
    pub(super) first: u64,
    pub(super) info: Arc<KernelInfo>,
    pub(super) spent: AtomicU64,
}

/// Storage that a caller of [`Job::work`] runs its work-groups in.
#[derive(Default)]
struct Storage {
    waves: Vec<Box<Wave>>,
    lds: Vec<u8>,
}

impl Storage {
    /// Makes room for any work-group of the batch, so that nothing depends on which caller meets
    /// which work-group.
    fn reserve(&mut self, batch: &[Dispatch], plans: &[Plan]) {
        for (dispatch, plan) in batch.iter().zip(plans) {
            let count = plan.waves as usize;
            while self.waves.len() < count {
                self.waves.push(Wave::new());
            }
            for wave in &mut self.waves[..count] {
                wave.private.reserve(dispatch.scratch_bytes);
            }
            let bytes = dispatch.lds_bytes as usize;
            if self.lds.len() < bytes {
                self.lds.resize(bytes, 0);
            }
        }
    }
}

/// What a thread that runs batches keeps between them.
#[derive(Default)]
struct Kept {
    plans: Vec<Plan>,
    /// One for each caller of [`Job::work`], by its number.
    storage: Vec<Mutex<Storage>>,
}

impl Kept {
    /// Checks the batch and makes room for it. Returns its work-groups, its waves and how many
    /// threads it is worth.
    fn prepare(
        &mut self,
        batch: &[Dispatch],
        config: &RunConfig,
    ) -> Result<(u64, u64, usize), ExecError> {
        self.plans.clear();
        let mut groups = 0u64;
        let mut waves = 0u64;
        let mut expected = 0u64;
        for dispatch in batch {
            let plan = check(dispatch, groups)?;
            let count = group_count(dispatch.groups);
            groups = groups.saturating_add(count);
            let these = count.saturating_mul(u64::from(plan.waves));
            waves = waves.saturating_add(these);
            let cost = match plan.info.cost.load(Ordering::Relaxed) {
                0 => UNKNOWN_COST,
                cost => cost,
            };
            expected = expected.saturating_add(these.saturating_mul(cost));
            self.plans.push(plan);
        }
        let threads = if expected < INLINE || groups < 2 {
            1
        } else {
            config.threads.clamp(1, pool::MAX_THREADS)
        };
        if self.storage.len() < threads {
            self.storage.resize_with(threads, Mutex::default);
        }
        for storage in &mut self.storage[..threads] {
            let storage = storage.get_mut().unwrap_or_else(PoisonError::into_inner);
            storage.reserve(batch, &self.plans);
        }
        Ok((groups, waves, threads))
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// Executes dispatches that have no wait between them. Work-groups of all of them are interleaved
/// in an order that `config.seed` decides; with data races between them the result depends on that
/// order and on `config.threads`, without it never does. On an error, work-groups that ran before
/// stay done and the rest is dropped; of several errors the earliest in the order is returned.
pub fn run_batch(
    memory: &AddressSpace,
    batch: &[Dispatch],
    config: &RunConfig,
) -> Result<RunStats, ExecError> {
    run_batch_until(memory, batch, config, &AtomicBool::new(false))
}

/// As [`run_batch`], but gives up with [`super::WaveFault::Stopped`] soon after `stop` is set.
pub fn run_batch_until(
    memory: &AddressSpace,
    batch: &[Dispatch],
    config: &RunConfig,
    stop: &AtomicBool,
) -> Result<RunStats, ExecError> {
    KEPT.with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => run_with(memory, batch, config, stop, &mut kept),
        Err(_) => run_with(memory, batch, config, stop, &mut Kept::default()),
    })
}

fn run_with(
    memory: &AddressSpace,
    batch: &[Dispatch],
    config: &RunConfig,
    stop: &AtomicBool,
    kept: &mut Kept,
) -> Result<RunStats, ExecError> {
    let (groups, waves, threads) = kept.prepare(batch, config)?;
    let Kept { plans, storage } = kept;
    let view = memory.view();
    let job = Job {
        memory,
        batch,
        plans,
        config,
        stop,
        view: &view,
        order: Order::new(groups, config.seed),
        next: AtomicU64::new(0),
        chunk: (groups / (8 * config.threads.max(1) as u64)).clamp(1, 64),
        instructions: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        error: Mutex::new(None),
    };
    pool::run(threads, &|caller| {
        if let Some(storage) = storage.get(caller) {
            job.work(&mut storage.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
    let error = job
        .error
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let instructions = job.instructions.into_inner();
    if let Some((_, error)) = error {
        return Err(error);
    }
    if let (true, Some(first)) = (stop.load(Ordering::Relaxed), batch.first()) {
        return Err(ExecError::Launch {
            kernel: first.name.clone(),
            tag: first.tag,
            problem: LaunchProblem::Stopped,
        });
    }
    for (plan, dispatch) in plans.iter().zip(batch) {
        let count = group_count(dispatch.groups);
        plan.info.learn(
            plan.spent.load(Ordering::Relaxed),
            count * u64::from(plan.waves),
        );
    }
    Ok(RunStats {
        instructions,
        waves,
        groups,
    })
}

/// Checks one dispatch.
pub(super) fn check(d: &Dispatch, first: u64) -> Result<Plan, ExecError> {
    let fail = |problem| ExecError::Launch {
        kernel: d.name.clone(),
        tag: d.tag,
        problem,
    };
    let items = d
        .group_size
        .iter()
        .fold(1u64, |n, s| n.saturating_mul(u64::from(*s)));
    if items == 0 || items > 32 * MAX_WAVES as u64 {
        return Err(fail(LaunchProblem::GroupSize { size: d.group_size }));
    }
    let gfx12 = d.program.target().generation() == Generation::Gfx12;
    let too_many = gfx12 && d.groups[1..].iter().any(|g| *g > 0xffff);
    if d.groups.contains(&0) || too_many {
        return Err(fail(LaunchProblem::Grid { groups: d.groups }));
    }
    if d.lds_bytes > MAX_LDS {
        return Err(fail(LaunchProblem::Lds {
            bytes: d.lds_bytes,
            max: MAX_LDS,
        }));
    }
    if d.scratch_bytes > MAX_SCRATCH {
        return Err(fail(LaunchProblem::Scratch {
            bytes: d.scratch_bytes,
            max: MAX_SCRATCH,
        }));
    }
    let announced = d.rsrc2 >> 1 & 31;
    if d.user_sgpr_count > 16 || d.user_sgpr_count > announced.max(16) {
        return Err(fail(LaunchProblem::UserSgprs {
            count: d.user_sgpr_count,
            announced,
        }));
    }
    let Some(entry) = d.program.index_of(d.entry_va) else {
        let (base, len) = (d.program.base(), d.program.len());
        return Err(fail(LaunchProblem::Entry {
            entry: d.entry_va,
            base,
            len,
        }));
    };
    let info = d.program.kernel(entry);
    // Wave32 allocates in units of 8 (RSRC1.VGPRS, LLVM AMDGPUUsage).
    let allocated = ((d.rsrc1 & 63) + 1) * 8;
    if info.vgprs > allocated {
        return Err(fail(LaunchProblem::Registers {
            last: info.vgprs - 1,
            allocated,
        }));
    }
    let waves = items.div_ceil(32) as u32;
    let vgprs = if info.relative {
        allocated.min(256)
    } else {
        info.vgprs
    };
    Ok(Plan {
        entry,
        vgprs,
        waves,
        first,
        info,
        spent: AtomicU64::new(0),
    })
}

/// Index of the launch that work-group `number` of the batch belongs to.
pub(super) fn launch_of(plans: &[Plan], number: u64) -> usize {
    plans
        .partition_point(|plan| plan.first <= number)
        .saturating_sub(1)
}

/// Where work-group `local` of a launch stands in its grid.
pub(super) fn position(groups: [u32; 3], local: u64) -> [u32; 3] {
    let [x, y, _] = groups.map(u64::from);
    [local % x, local / x % y, local / x / y].map(|at| at as u32)
}

/// What the threads of a batch share.
struct Job<'a> {
    memory: &'a AddressSpace,
    batch: &'a [Dispatch],
    plans: &'a [Plan],
    config: &'a RunConfig,
    stop: &'a AtomicBool,
    view: &'a View,
    order: Order,
    next: AtomicU64,
    /// Work-groups that a thread takes at a time.
    chunk: u64,
    instructions: AtomicU64,
    failed: AtomicBool,
    /// The error that comes first in the order, with its place.
    error: Mutex<Option<(u64, ExecError)>>,
}

impl Job<'_> {
    /// Takes work-groups until none is left.
    fn work(&self, storage: &mut Storage) {
        let mut done = 0;
        let mut hits = [LastHit::default(); HITS];
        'all: while !self.failed.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            let from = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if from >= self.order.count {
                break;
            }
            for place in from..(from + self.chunk).min(self.order.count) {
                match self.group(storage, &mut hits, self.order.at(place)) {
                    Ok(instructions) => done += instructions,
                    Err(error) => {
                        self.fail(place, error);
                        break 'all;
                    }
                }
            }
        }
        self.instructions.fetch_add(done, Ordering::Relaxed);
    }

    fn fail(&self, place: u64, error: ExecError) {
        self.failed.store(true, Ordering::Relaxed);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(p, _)| place < *p) {
            *first = Some((place, error));
        }
    }

    /// Runs work-group `number` of the batch.
    fn group(
        &self,
        storage: &mut Storage,
        hits: &mut [LastHit; HITS],
        number: u64,
    ) -> Result<u64, ExecError> {
        let which = launch_of(self.plans, number);
        let (Some(plan), Some(dispatch)) = (self.plans.get(which), self.batch.get(which)) else {
            return Ok(0);
        };
        let group = position(dispatch.groups, number - plan.first);
        let word = poison(self.config.seed);
        let start = Start {
            dispatch,
            entry: plan.entry,
            vgprs: plan.vgprs,
            waves: plan.waves,
            poison: word,
        };
        let count = plan.waves as usize;
        let bytes = dispatch.lds_bytes as usize;
        let lds = &mut storage.lds[..bytes];
        let (words, rest) = lds.as_chunks_mut::<4>();
        words.fill(word.to_le_bytes());
        rest.fill(word as u8);
        let program = &*dispatch.program;
        let mut x = Ctx {
            program,
            constants: &program.constants,
            view: self.view,
            stop: self.stop,
            lds,
            hits,
            fault: None,
            alive: 0,
            signals: 0,
            completed: false,
        };
        let budget = self.config.wave_budget;
        let seed = mix(self.config.seed ^ number);
        let waves = &mut storage.waves[..count];
        match run_group(&start, waves, &mut x, group, seed, budget) {
            Ok(instructions) => {
                plan.spent.fetch_add(instructions, Ordering::Relaxed);
                Ok(instructions)
            }
            Err(stopped) => {
                let error = stopped.describe(self.memory, &start, program, group, budget);
                Err(ExecError::Wave(Box::new(error)))
            }
        }
    }
}

/// A permutation of `0..count` from a seed, without a table: a Feistel network over the next power
/// of four, walked until it lands inside.
pub(super) struct Order {
    pub(super) count: u64,
    half: u32,
    seed: u64,
}

impl Order {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Self {
            count,
            half: bits.div_ceil(2).max(1),
            seed,
        }
    }

    pub(super) fn at(&self, place: u64) -> u64 {
        let mut v = place;
        loop {
            v = self.round(v);
            if v < self.count {
                return v;
            }
        }
    }

    fn round(&self, v: u64) -> u64 {
        let mask = (1u64 << self.half) - 1;
        let (mut left, mut right) = (v >> self.half, v & mask);
        for k in 0..4u64 {
            let f = mix(self.seed ^ right ^ k << 56) & mask;
            (left, right) = (right, left ^ f);
        }
        left << self.half | right
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn order_is_a_permutation_that_depends_on_the_seed() {
        for count in [1u64, 2, 3, 7, 64, 100, 1000] {
            let mut seen = vec![false; count as usize];
            let order = Order::new(count, 5);
            for i in 0..count {
                let at = order.at(i) as usize;
                assert!(!seen[at], "{count}: {at} twice");
                seen[at] = true;
            }
        }
        let sequence = |seed| {
            (0..100)
                .map(|i| Order::new(100, seed).at(i))
                .collect::<Vec<_>>()
        };
        assert_ne!(sequence(1), sequence(2));
        assert_eq!(sequence(3), sequence(3));
    }
}
