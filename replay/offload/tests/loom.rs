//! The hand-off under a model checker: the gate and the protocol as they are, over checked words.
//!
//! Each schedule is one interleaving and one choice of what every load may see under the C11 model. In
//! all of them no result is used before it is written, no input is overwritten while it is read, and no
//! wake-up is lost (the checker reports a deadlock). The last tests weaken one order or drop one wake
//! and demand that the checker notices. `REFRAIN_LONG=1` explores at least 100,000 schedules.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::arc_with_non_send_sync,
    reason = "a failed expectation is a finding of the model checker, its counts are printed, and its \
              cells stay on the checker's one thread"
)]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as Count, Ordering as CountOrdering};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use refrain_offload::handoff::probe::{self, ask, echo};
use refrain_offload::handoff::protocol::{Lane, Shared};
use refrain_offload::handoff::{
    Clock, Env, FaultKind, Gate, HandoffError, Payload, ProbeError, Requester, Word, Worker,
    handoff,
};

#[path = "../src/handoff/gate.rs"]
mod gate;

/// What `gate` is built on here.
mod sync {
    pub(super) use loom::sync::{Condvar, Mutex};
}

/// Far away: deadlines pass when [`Time`] says so.
const LIMIT: Duration = Duration::from_secs(1);

/// Which order is weakened, or which wake is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weak {
    Nothing,
    RequestStore,
    RequestLoad,
    DoneStore,
    DoneLoad,
    FaultStore,
    FaultLoad,
    WorkerWake,
    HostWake,
}

struct Checked {
    value: AtomicU64,
    store: Ordering,
    load: Ordering,
}

impl Checked {
    fn new(weak: Weak, store: Weak, load: Weak) -> Checked {
        let order = |weakened, usual| {
            if weak == weakened {
                Ordering::Relaxed
            } else {
                usual
            }
        };
        Checked {
            value: AtomicU64::new(0),
            store: order(store, Ordering::Release),
            load: order(load, Ordering::Acquire),
        }
    }
}

impl Word for Checked {
    fn load_acquire(&self) -> u64 {
        self.value.load(self.load)
    }

    fn store_release(&self, value: u64) {
        self.value.store(value, self.store);
    }
}

/// The product's gate over the checker's primitives; `deaf` ignores wakes.
struct LoomGate {
    gate: gate::TokenGate,
    deaf: bool,
}

impl Gate for LoomGate {
    fn park(&self, limit: Option<Duration>) {
        self.gate.park(limit);
    }

    fn unpark(&self) {
        if !self.deaf {
            self.gate.unpark();
        }
    }

    fn relax(&self) {
        thread::yield_now();
    }
}

/// Time stands still until it passes every deadline at once.
#[derive(Clone)]
struct Time(Arc<AtomicU64>);

impl Clock for Time {
    fn now(&self) -> Duration {
        LIMIT * u32::from(self.0.load(Ordering::Relaxed) != 0)
    }
}

struct LoomEnv;

impl Env for LoomEnv {
    type Word = Checked;
    type Gate = LoomGate;
    type Clock = Time;
}

/// Two sides, the shared words, and the time, which stands still.
struct Setting {
    host: Requester<LoomEnv>,
    workers: Vec<Worker<LoomEnv>>,
    shared: Arc<Shared<LoomEnv>>,
    time: Time,
}

fn setting(lanes: usize, spins: u32, weak: Weak) -> Setting {
    let gate = |deaf| LoomGate {
        gate: gate::TokenGate::new(),
        deaf,
    };
    let shared = Arc::new(Shared {
        request: Checked::new(weak, Weak::RequestStore, Weak::RequestLoad),
        abort: Checked::new(Weak::Nothing, weak, weak),
        gate: gate(weak == Weak::HostWake),
        lanes: (0..lanes)
            .map(|_| Lane {
                done: Checked::new(weak, Weak::DoneStore, Weak::DoneLoad),
                fault: Checked::new(weak, Weak::FaultStore, Weak::FaultLoad),
                gate: gate(weak == Weak::WorkerWake),
            })
            .collect(),
    });
    let time = Time(Arc::new(AtomicU64::new(0)));
    let (host, workers) = handoff(Arc::clone(&shared), time.clone(), spins);
    Setting {
        host,
        workers,
        shared,
        time,
    }
}

/// A value whose every access the checker watches: reading beside a write is an error by itself,
/// whatever was read.
struct Watched {
    cell: UnsafeCell<()>,
    value: AtomicU64,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            cell: UnsafeCell::new(()),
            value: AtomicU64::new(0),
        }
    }

    fn write(&self, value: u64) {
        self.cell.with_mut(|_| ());
        self.value.store(value, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.cell.with(|_| ());
        self.value.load(Ordering::Relaxed)
    }
}

/// Inputs of a step and one result a worker.
struct Buffers {
    input: Watched,
    results: Vec<Watched>,
}

impl Buffers {
    fn new(lanes: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            input: Watched::new(),
            results: (0..lanes).map(|_| Watched::new()).collect(),
        })
    }
}

/// Schedules explored by all tests of this process, and those of the one that asks.
static SCHEDULES: Count = Count::new(0);

fn long() -> bool {
    std::env::var_os("REFRAIN_LONG").is_some_and(|value| value == "1")
}

/// Explores `body` with at most `preemptions` involuntary switches (`None`: exhaustively) and at most
/// `cap` schedules; returns how many there were.
fn explore(
    name: &str,
    preemptions: Option<usize>,
    cap: usize,
    body: impl Fn() + Sync + Send + 'static,
) -> u64 {
    let count = Arc::new(Count::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_permutations = Some(cap);
    // The cap is looked at once in so many schedules.
    builder.checkpoint_interval = 500;
    builder.max_branches = 20_000;
    let seen = Arc::clone(&count);
    builder.check(move || {
        seen.fetch_add(1, CountOrdering::Relaxed);
        body();
    });
    let schedules = count.load(CountOrdering::Relaxed);
    let all = SCHEDULES.fetch_add(schedules, CountOrdering::Relaxed) + schedules;
    let bound = preemptions.map_or("any".into(), |bound| bound.to_string());
    let end = if schedules + 1 < cap as u64 {
        "all"
    } else {
        "the first"
    };
    println!("{name}: {end} {schedules} schedules, {bound} preemptions ({all} so far)");
    schedules
}

/// `steps` requests to `lanes` workers, every input and result checked.
fn round_trips(lanes: usize, steps: u32, spins: u32, weak: Weak) {
    let Setting {
        mut host, workers, ..
    } = setting(lanes, spins, weak);
    let buffers = Buffers::new(lanes);
    let threads: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let buffers = Arc::clone(&buffers);
            thread::spawn(move || {
                let index = worker.index();
                while let Some(request) = worker.take() {
                    let input = buffers.input.read();
                    assert_eq!(input, 100 + request.number(), "the input of this request");
                    buffers.results[index].write(input * 2);
                    request.finish();
                }
            })
        })
        .collect();
    for step in 0..steps {
        let number = u64::from(step) + 1;
        buffers.input.write(100 + number);
        host.post(step).expect("nothing in flight");
        host.wait(LIMIT).expect("an answer");
        for result in &buffers.results {
            assert_eq!(
                result.read(),
                2 * (100 + number),
                "the result of this request"
            );
        }
    }
    drop(host);
    for thread in threads {
        thread.join().expect("a worker that ends");
    }
}

/// A worker that fails its first request after it has written half a result, and serves the second.
fn fault_then_result(weak: Weak) {
    let Setting {
        mut host,
        mut workers,
        ..
    } = setting(1, 0, weak);
    let buffers = Buffers::new(1);
    let theirs = Arc::clone(&buffers);
    let mut worker = workers.pop().expect("one worker");
    let thread = thread::spawn(move || {
        while let Some(request) = worker.take() {
            let input = theirs.input.read();
            theirs.results[0].write(input * 2);
            match request.number() {
                1 => drop(request),
                _ => request.finish(),
            }
        }
    });
    buffers.input.write(101);
    host.post(7).expect("nothing in flight");
    let fault = host.wait(LIMIT).expect_err("the worker fails");
    let kind = FaultKind::Panicked;
    let expected = HandoffError::Fault {
        step: 7,
        request: 1,
        worker: 0,
        kind,
    };
    assert_eq!(fault, expected);
    // Whoever runs the step instead writes the buffers that the worker wrote.
    buffers.results[0].write(0);
    buffers.input.write(102);
    host.post(8).expect("a worker that serves on");
    host.wait(LIMIT).expect("an answer");
    assert_eq!(buffers.results[0].read(), 204);
    drop(host);
    thread.join().expect("a worker that ends");
}

/// A deadline that passes at any moment: in time, or typed, and then nobody touches buffers until
/// the late worker has answered.
fn deadline() {
    let Setting {
        mut host,
        mut workers,
        shared,
        time,
    } = setting(1, 0, Weak::Nothing);
    let buffers = Buffers::new(1);
    let theirs = Arc::clone(&buffers);
    let mut worker = workers.pop().expect("one worker");
    let thread = thread::spawn(move || {
        while let Some(request) = worker.take() {
            if request.given_up() {
                request.fail();
                continue;
            }
            let input = theirs.input.read();
            theirs.results[0].write(input * 2);
            request.finish();
        }
    });
    let passing = thread::spawn(move || {
        time.0.store(1, Ordering::Relaxed);
        // What a real gate's time-out does.
        shared.gate.unpark();
    });
    buffers.input.write(101);
    host.post(3).expect("nothing in flight");
    match host.wait(LIMIT) {
        Ok(()) => assert_eq!(buffers.results[0].read(), 202),
        Err(HandoffError::Deadline { step, request, .. }) => {
            assert_eq!((step, request), (3, 1));
            assert_eq!(
                host.post(4),
                Err(HandoffError::Late { step: 4, late: 3 }),
                "buffers may still be written"
            );
            host.settle(LIMIT).expect("the worker answers in the end");
        }
        Err(other) => unreachable!("{other}"),
    }
    passing.join().expect("time that passes");
    buffers.input.write(102);
    host.post(4).expect("nothing in flight");
    host.wait(LIMIT).expect("time stands still again");
    assert_eq!(buffers.results[0].read(), 204);
    drop(host);
    thread.join().expect("a worker that ends");
}

/// A worker that leaves: the host is told, at the next post or while it waits.
fn gone() {
    let Setting {
        mut host,
        mut workers,
        ..
    } = setting(1, 0, Weak::Nothing);
    let worker = workers.pop().expect("one worker");
    let thread = thread::spawn(move || drop(worker));
    let said = host.post(5).and_then(|_| host.wait(LIMIT));
    let expected = HandoffError::Fault {
        step: 5,
        request: 1,
        worker: 0,
        kind: FaultKind::Gone,
    };
    assert_eq!(said, Err(expected.clone()));
    assert!(matches!(
        host.post(6),
        Err(HandoffError::Fault {
            step: 6,
            kind: FaultKind::Gone,
            ..
        })
    ));
    thread.join().expect("a worker that ends");
}

/// Watched words as a payload of the probe.
struct Words(Vec<Watched>);

impl Payload for Words {
    fn words(&self) -> usize {
        self.0.len()
    }

    fn put(&self, index: usize, value: u64) {
        self.0[index].write(value);
    }

    fn get(&self, index: usize) -> u64 {
        self.0[index].read()
    }
}

fn probed() {
    let Setting {
        mut host,
        mut workers,
        ..
    } = setting(1, 1, Weak::Nothing);
    let words = || Arc::new(Words((0..2).map(|_| Watched::new()).collect()));
    let (out, back) = (words(), words());
    let (from, to) = (Arc::clone(&out), Arc::clone(&back));
    let mut worker = workers.pop().expect("one worker");
    let thread = thread::spawn(move || echo(&mut worker, 1, &*from, &*to));
    let report: Result<_, ProbeError> = ask(&mut host, &*out, &*back, 2, LIMIT);
    assert_eq!(report.expect("a sound hand-off").rounds, 2);
    assert_eq!(back.get(1), probe::reply(probe::pattern(1, 1)));
    drop(host);
    thread.join().expect("a worker that ends");
}

/// Everything that must hold, in all schedules within the bounds.
#[test]
fn every_schedule_is_sound() {
    let cap = if long() { 250_000 } else { 1_500 };
    let mut sum = 0;
    sum += explore("one worker, one step", None, cap, || {
        round_trips(1, 1, 0, Weak::Nothing);
    });
    sum += explore("one worker, three steps", Some(3), cap, || {
        round_trips(1, 3, 0, Weak::Nothing);
    });
    sum += explore(
        "one worker, two steps, one look before sleep",
        Some(3),
        cap,
        || {
            round_trips(1, 2, 1, Weak::Nothing);
        },
    );
    sum += explore("two workers, two steps", Some(2), cap, || {
        round_trips(2, 2, 0, Weak::Nothing);
    });
    sum += explore("a fault, then a result", Some(3), cap, || {
        fault_then_result(Weak::Nothing)
    });
    sum += explore("a deadline at any moment", Some(2), cap, deadline);
    sum += explore("a worker that leaves", None, cap, gone);
    sum += explore("the probe", Some(3), cap, probed);
    println!("{sum} schedules in all");
    assert!(!long() || sum >= 100_000, "{sum} schedules, 100,000 wanted");
}

/// What each weakened run is, what to weaken, and a word of the checker's complaint.
type Weakening = (&'static str, Weak, fn(Weak), &'static str);

const WEAKENINGS: [Weakening; 10] = [
    ("steps", Weak::Nothing, two_steps, ""),
    (
        "request store",
        Weak::RequestStore,
        two_steps,
        "Causality violation",
    ),
    (
        "request load",
        Weak::RequestLoad,
        two_steps,
        "Causality violation",
    ),
    (
        "done store",
        Weak::DoneStore,
        two_steps,
        "Causality violation",
    ),
    (
        "done load",
        Weak::DoneLoad,
        two_steps,
        "Causality violation",
    ),
    ("fault", Weak::Nothing, fault_then_result, ""),
    (
        "fault store",
        Weak::FaultStore,
        fault_then_result,
        "Causality violation",
    ),
    (
        "fault load",
        Weak::FaultLoad,
        fault_then_result,
        "Causality violation",
    ),
    ("worker's wake", Weak::WorkerWake, two_steps, "deadlock"),
    ("host's wake", Weak::HostWake, two_steps, "deadlock"),
];

fn two_steps(weak: Weak) {
    round_trips(1, 2, 0, weak);
}

/// Names the weakened run that [`weakened_run`] does in a process of its own.
const CHOICE: &str = "REFRAIN_OFFLOAD_WEAKENING";

/// Does nothing unless asked by [`every_weakening_is_caught`].
#[test]
fn weakened_run() {
    let Some(choice) = std::env::var(CHOICE).ok() else {
        return;
    };
    let (name, weak, body, _) = WEAKENINGS
        .into_iter()
        .find(|(name, ..)| *name == choice)
        .expect("a name of the table");
    explore(name, Some(2), 20_000, move || body(weak));
}

/// Each order and each wake is needed: without it the checker finds a schedule that goes wrong. Each in
/// a process of its own, because the checker's panics may come inside destructors.
#[test]
fn every_weakening_is_caught() {
    let this = std::env::current_exe().expect("this test binary");
    for (name, _, _, complaint) in WEAKENINGS {
        let output = Command::new(&this)
            .args(["--exact", "weakened_run", "--nocapture"])
            .env(CHOICE, name)
            .env("RUST_BACKTRACE", "0")
            .output()
            .expect("a second process");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.success(),
            complaint.is_empty(),
            "{name}: {text}"
        );
        assert!(text.contains(complaint), "{name}: {text}");
    }
}
