//! The memory side of strict mode as one value: what is written, by whom, who knows it, and what was
//! found. The packet processor drives launches through it, waves tell it what they touch
//! ([`super::watch`]), the host's calls arrive in [`super::host`]; [`super::check`] judges a batch.

use super::StrictConfig;
use super::caches::Rules;
use super::clock::Author;
use super::declare::{Allowed, Declarations, Declared, TurnTaken};
use super::footprint::{Footprint, FootprintExtent};
use super::kernarg::Kernargs;
use super::order::{Order, Snapshot};
use super::phases::Phases;
use super::ranges::{RangeMap, Ranges};
use super::report::{Bytes, Party, Report, ReportKind, ReportLog};
use super::shadow::Shadow;
use super::touch::{Atomics, Touch};
use super::trace::TracedLaunch;
use crate::isa::Target;
use crate::memory::{AddressSpace, Kind};
use crate::object::{Kernel, Registry};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Launches whose names are remembered per queue.
const NAMED: usize = 4096;
/// Finished launches per queue that are compared with later ones; more are forgotten, oldest first.
const MAX_LIVE: usize = 4096;

/// What the packet processor says about a launch.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) queue: u64,
    pub(crate) packet: u64,
    pub(crate) dword: Option<u32>,
    pub(crate) rsrc3: u32,
    /// The packet's release fence has system scope.
    pub(crate) release: bool,
    pub(crate) signal: u64,
}

/// A launch that was dispatched and has not run.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) who: Party,
    pub(crate) author: Author,
    pub(crate) at: Snapshot,
    pub(crate) kernel: Arc<Kernel>,
    /// Address, bytes and digest of the arguments as announced.
    pub(crate) kernarg: Option<(u64, u64, u64)>,
    pub(crate) release: bool,
    pub(crate) signal: u64,
    /// Number of the declared launch that it is taken for.
    pub(crate) declared: Option<usize>,
    pub(crate) allowed: Option<Allowed>,
}

/// A launch that has run, for comparison with those that are not ordered after it.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) who: Party,
    pub(crate) author: Author,
    pub(crate) reads: Ranges,
    pub(crate) writes: Ranges,
    pub(crate) atomics: Atomics,
}

/// Names of a queue's last launches, by number.
#[derive(Debug, Default)]
struct Names {
    first: u64,
    list: VecDeque<Party>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) config: StrictConfig,
    pub(crate) rules: Rules,
    pub(super) target: Target,
    pub(super) memory: Arc<AddressSpace>,
    pub(super) registry: Arc<Registry>,
    pub(crate) order: Order,
    pub(super) shadow: Shadow,
    pub(super) touch: Touch,
    /// What waves of the running groups touched since their last barriers.
    pub(super) phases: Phases,
    /// The last writer of each byte.
    pub(super) writers: RangeMap<Author>,
    pub(super) kernargs: Kernargs,
    pub(super) declared: Declared,
    pub(crate) log: ReportLog,
    pub(crate) footprints: VecDeque<Footprint>,
    pub(crate) traces: VecDeque<TracedLaunch>,
    /// The batch that runs.
    pub(super) running: Vec<Pending>,
    /// By dense queue index, oldest first.
    pub(super) live: Vec<VecDeque<Arc<Past>>>,
    names: Vec<Names>,
    /// Caches that waves of the batch have invalidated for themselves, by launch, group and wave.
    pub(super) refreshed: HashMap<(u32, u32, u32), super::caches::Caches>,
    /// Instructions of the batch that were reported for an uninitialised read.
    pub(super) blamed: HashSet<(u32, u64)>,
    /// Ids rung last, by queue.
    pub(super) rung: HashMap<u64, i64>,
    /// The launch that stopped a queue, until its fault is reported.
    pub(super) failed: HashMap<u64, Pending>,
}

impl Model {
    pub(crate) fn new(
        config: StrictConfig,
        target: Target,
        memory: Arc<AddressSpace>,
        registry: Arc<Registry>,
    ) -> Self {
        Self {
            config,
            rules: Rules::of(target),
            target,
            memory,
            registry,
            order: Order::default(),
            shadow: Shadow::default(),
            touch: Touch::default(),
            phases: Phases::default(),
            writers: RangeMap::default(),
            kernargs: Kernargs::default(),
            declared: Declared::default(),
            log: ReportLog::new(config.keep),
            footprints: VecDeque::new(),
            traces: VecDeque::new(),
            running: Vec::new(),
            live: Vec::new(),
            names: Vec::new(),
            refreshed: HashMap::new(),
            blamed: HashSet::new(),
            rung: HashMap::new(),
            failed: HashMap::new(),
        }
    }

    pub(crate) fn declare(&mut self, declarations: Declarations) {
        self.declared = Declared::new(declarations);
    }

    /// A launch is dispatched; it runs with its batch.
    pub(crate) fn launch(&mut self, kernel: &Arc<Kernel>, facts: Facts) -> Pending {
        let (author, at) = self.order.launch(facts.queue);
        if facts.signal != 0 {
            self.order.pend(facts.queue, author, &at, facts.signal);
        }
        let mut who = Party {
            step: None,
            kernel: Arc::clone(&kernel.name),
            queue: facts.queue,
            packet: facts.packet,
            dword: facts.dword,
            processor: false,
        };
        let declared = self.turn(&mut who);
        self.remember(author, who.clone());
        let Facts {
            queue,
            packet,
            dword,
            ..
        } = facts;
        let kernarg = self.kernargs.dispatch(queue, packet, dword, author);
        self.check_prefetch(kernel, facts.rsrc3, &who);
        Pending {
            who,
            author,
            at,
            kernel: Arc::clone(kernel),
            kernarg,
            release: facts.release,
            signal: facts.signal,
            declared,
            allowed: None,
        }
    }

    /// Which declared launch this is taken for; gives it the step's name.
    fn turn(&mut self, who: &mut Party) -> Option<usize> {
        if self.declared.is_empty() {
            return None;
        }
        let TurnTaken { due, taken } = self.declared.turn(who.queue, &who.kernel)?;
        if taken != Some(due) {
            let launch = self.declared.launch(due)?;
            let mut detail = format!(
                "launch {due} of the token is declared as step {} with kernel {}, found kernel {}",
                launch.step, launch.kernel, who.kernel
            );
            if let Some(number) = taken {
                detail += &format!(", taken for launch {number}");
            }
            let report = Report::new(ReportKind::UndeclaredLaunch, who.clone(), detail);
            self.log.add(report);
        }
        who.step = Some(Arc::clone(&self.declared.launch(taken?)?.step));
        taken
    }

    pub(super) fn remember(&mut self, author: Author, who: Party) {
        let Some(queue) = author.queue().map(usize::from) else {
            return;
        };
        if self.names.len() <= queue {
            self.names.resize_with(queue + 1, Names::default);
            self.live.resize_with(queue + 1, VecDeque::new);
        }
        let names = &mut self.names[queue];
        if names.list.is_empty() {
            names.first = author.number();
        }
        if names.list.len() == NAMED {
            names.list.pop_front();
            names.first += 1;
        }
        names.list.push_back(who);
    }

    /// An author's name.
    pub(super) fn party(&self, author: Author) -> Party {
        let Some(queue) = author.queue().map(usize::from) else {
            return Party::host();
        };
        let known = self.names.get(queue).and_then(|names| {
            let index = author.number().checked_sub(names.first)?;
            names.list.get(usize::try_from(index).ok()?)
        });
        known.cloned().unwrap_or_else(|| Party {
            kernel: "of an earlier launch".into(),
            queue: u64::MAX,
            ..Party::default()
        })
    }

    /// The buffer that holds `va`: its name, first address and kind.
    pub(super) fn buffer(&self, va: u64) -> (Arc<str>, u64, Option<Kind>) {
        let found = self.memory.find(va);
        let kind = found.as_ref().map(|info| info.kind);
        if let Some(buffer) = self.declared.buffer(va) {
            return (Arc::clone(&buffer.name), buffer.va, kind);
        }
        match found {
            Some(info) => (info.name, info.base, kind),
            None => ("freed or unknown memory".into(), va, None),
        }
    }

    pub(super) fn bytes(&self, va: u64, len: u64) -> Bytes {
        let (buffer, base, _) = self.buffer(va);
        Bytes {
            buffer,
            offset: va - base,
            len,
        }
    }

    /// The argument of a declared launch that points at or before `va` in the same buffer.
    pub(super) fn argument(&self, pending: &Pending, va: u64) -> Option<String> {
        let (_, base, _) = self.buffer(va);
        let near = |pointer: u64| pointer <= va && self.buffer(pointer).1 == base;
        let launch = self.declared.launch(pending.declared?)?;
        let inside = launch.args.iter().filter(|arg| near(arg.va));
        inside
            .max_by_key(|arg| arg.va)
            .map(|arg| arg.name.to_string())
    }

    /// Splits ranges at buffers and names them; sorted by name and offset, because addresses differ
    /// from run to run.
    pub(super) fn extents(&self, ranges: &Ranges) -> Vec<FootprintExtent> {
        let mut list = Vec::new();
        for (mut at, end) in ranges.iter() {
            while at < end {
                let (buffer, base, stop) = match self.declared.buffer(at) {
                    Some(found) => (Arc::clone(&found.name), found.va, found.va + found.len),
                    None => match self.memory.find(at) {
                        Some(info) => (info.name, info.base, info.base + info.len),
                        None => ("freed or unknown memory".into(), 0, end),
                    },
                };
                let stop = stop.min(end).max(at + 1);
                list.push(FootprintExtent {
                    buffer,
                    offset: at - base,
                    len: stop - at,
                });
                at = stop;
            }
        }
        list.sort_by(|a, b| (&a.buffer, a.offset).cmp(&(&b.buffer, b.offset)));
        list
    }

    /// Ranges in the order of their buffers' names and offsets, which addresses do not disturb.
    pub(super) fn by_name<T>(&self, mut list: Vec<(u64, u64, T)>) -> Vec<(u64, u64, T)> {
        list.sort_by_cached_key(|(start, _, _)| {
            let (name, base, _) = self.buffer(*start);
            (name, start.wrapping_sub(base))
        });
        list
    }

    /// Keeps a finished launch for later comparisons and drops those that nothing can race with.
    pub(super) fn keep(&mut self, past: Past) {
        let Some(queue) = past.author.queue().map(usize::from) else {
            return;
        };
        if let Some(list) = self.live.get_mut(queue) {
            // The processor's accesses overtake launches in flight.
            let at = list.partition_point(|other| other.author < past.author);
            list.insert(at, Arc::new(past));
        }
    }

    pub(super) fn prune(&mut self) {
        for list in &mut self.live {
            while let Some(first) = list.front() {
                if list.len() <= MAX_LIVE && !self.order.settled(first.author) {
                    break;
                }
                list.pop_front();
            }
        }
    }
}
