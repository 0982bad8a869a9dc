//! The hand-off over threads: results in order, panics, errors and deadlines typed, the crew usable
//! afterwards; the probe against workers that are sound and one that is not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test; one worker panics on purpose"
)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use refrain_offload::handoff::probe::{ask, echo, echo_one, pattern, reply};
use refrain_offload::handoff::protocol::{Lane, Shared};
use refrain_offload::handoff::words::StdClock;
use refrain_offload::handoff::{
    Crew, FaultKind, HandoffError, ProbeError, Requester, StdEnv, TokenGate, Worker, handoff,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A job: what to do, and the number to do it with.
#[derive(Debug, Clone, Copy)]
enum Job {
    Double(u64),
    Panic,
    Refuse,
    WaitUntilGivenUp,
}

fn crew(workers: usize) -> Crew<Job, u64> {
    Crew::new(workers, 50, |task| match *task.job {
        Job::Double(number) => Ok(number * 2 + task.worker as u64),
        Job::Panic if task.worker == 1 => panic!("a worker that panics"),
        Job::Refuse if task.worker == 1 => Err("no such row".into()),
        Job::Panic | Job::Refuse => Ok(0),
        Job::WaitUntilGivenUp => {
            while !task.given_up() {
                thread::yield_now();
            }
            Err("given up".into())
        }
    })
    .unwrap()
}

#[test]
fn results_come_back_in_the_order_of_the_workers() {
    for workers in [0, 1, 2, 5] {
        let mut crew = crew(workers);
        for step in 0..2_000 {
            crew.post(step, Job::Double(u64::from(step))).unwrap();
            let results = crew.wait(LIMIT).unwrap();
            let expected: Vec<u64> = (0..workers.max(1) as u64)
                .map(|worker| 2 * u64::from(step) + worker)
                .collect();
            assert_eq!(results, expected);
        }
    }
}

#[test]
fn a_failing_worker_is_named_and_serves_on() {
    let mut crew = crew(3);
    for (step, job, kind, complaints) in [
        (11, Job::Panic, FaultKind::Panicked, vec![]),
        (
            12,
            Job::Refuse,
            FaultKind::Failed,
            vec![(1, "no such row".to_owned())],
        ),
    ] {
        crew.post(step, job).unwrap();
        match crew.wait(LIMIT) {
            Err(HandoffError::Fault {
                step: at,
                worker,
                kind: how,
                ..
            }) => assert_eq!((at, worker, how), (step, 1, kind)),
            other => unreachable!("{other:?}"),
        }
        assert_eq!(crew.complaints(), complaints);
        crew.post(step + 100, Job::Double(4)).unwrap();
        assert_eq!(crew.wait(LIMIT).unwrap(), [8, 9, 10]);
    }
}

#[test]
fn a_missed_deadline_keeps_the_buffers_until_the_worker_answers() {
    let mut crew = crew(2);
    crew.post(5, Job::WaitUntilGivenUp).unwrap();
    let limit = Duration::from_millis(5);
    let error = crew.wait(limit).unwrap_err();
    assert!(
        matches!(error, HandoffError::Deadline { step: 5, request: 1, worker: 0, limit: at } if at == limit),
        "{error}"
    );
    assert_eq!(crew.late(), Some(5));
    assert_eq!(
        crew.post(6, Job::Double(1)),
        Err(HandoffError::Late { step: 6, late: 5 })
    );
    crew.settle(LIMIT).unwrap();
    assert_eq!(crew.late(), None);
    crew.post(6, Job::Double(1)).unwrap();
    assert_eq!(crew.wait(LIMIT).unwrap(), [2, 3]);
}

#[test]
fn a_crew_with_a_worker_that_never_answers_can_be_dropped() {
    let freed = Arc::new(AtomicBool::new(false));
    let held = Arc::clone(&freed);
    let mut crew = Crew::<(), ()>::new(1, 0, move |_| {
        while !held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        Ok(())
    })
    .unwrap();
    crew.post(0, ()).unwrap();
    assert!(crew.wait(Duration::from_millis(1)).is_err());
    assert!(crew.settle(Duration::from_millis(1)).is_err());
    let began = Instant::now();
    drop(crew);
    assert!(began.elapsed() < Duration::from_secs(5));
    freed.store(true, Ordering::Release);
}

#[test]
fn order_of_calls_is_checked() {
    let mut crew = crew(1);
    assert_eq!(crew.wait(LIMIT), Err(HandoffError::NotPosted));
    crew.post(1, Job::Double(1)).unwrap();
    assert_eq!(
        crew.post(2, Job::Double(2)),
        Err(HandoffError::Busy {
            step: 2,
            in_flight: 1
        })
    );
    assert_eq!(crew.wait(LIMIT).unwrap(), [2]);
    assert_eq!(crew.wait(LIMIT), Err(HandoffError::NotPosted));
}

#[test]
fn a_job_lives_until_every_worker_has_answered() {
    let job = Arc::new(Mutex::new(0_u64));
    let mut crew = Crew::<Arc<Mutex<u64>>, ()>::new(4, 0, |task| {
        *task.job.lock().unwrap() += 1;
        Ok(())
    })
    .unwrap();
    for step in 0..100 {
        crew.post(step, Arc::clone(&job)).unwrap();
        crew.wait(LIMIT).unwrap();
        assert_eq!(Arc::strong_count(&job), 1, "no worker still holds the job");
    }
    assert_eq!(*job.lock().unwrap(), 400);
}

fn sides(lanes: usize) -> (Arc<Shared<StdEnv>>, Requester<StdEnv>, Vec<Worker<StdEnv>>) {
    let shared = Arc::new(Shared {
        request: AtomicU64::new(0),
        abort: AtomicU64::new(0),
        gate: TokenGate::new(),
        lanes: (0..lanes)
            .map(|_| Lane {
                done: AtomicU64::new(0),
                fault: AtomicU64::new(0),
                gate: TokenGate::new(),
            })
            .collect(),
    });
    let (host, workers) = handoff(Arc::clone(&shared), StdClock::start(), 100);
    (shared, host, workers)
}

fn payload(words: usize) -> Arc<Vec<AtomicU64>> {
    Arc::new((0..words).map(|_| AtomicU64::new(0)).collect())
}

#[test]
fn the_probe_passes_between_threads() {
    let (_, mut host, workers) = sides(2);
    let (out, back) = (payload(64), payload(64));
    let threads: Vec<_> = workers
        .into_iter()
        .map(|mut worker| {
            let (from, to) = (Arc::clone(&out), Arc::clone(&back));
            thread::spawn(move || echo(&mut worker, 2, &*from, &*to))
        })
        .collect();
    let report = ask(&mut host, &*out, &*back, 1_000, LIMIT).unwrap();
    assert_eq!(report.rounds, 1_000);
    assert!(report.min <= report.mean && report.mean <= report.max);
    drop(host);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_probe_names_the_round_and_word_that_came_back_wrong() {
    let (_, mut host, mut workers) = sides(1);
    let (out, back) = (payload(8), payload(8));
    let (from, to) = (Arc::clone(&out), Arc::clone(&back));
    let thread = thread::spawn(move || {
        let mut worker = workers.pop().unwrap();
        while let Some(request) = worker.take() {
            let stale = to[3].load(Ordering::Relaxed);
            let number = request.number();
            if number < 5 {
                echo_one(request, 0, 1, &*from, &*to);
            } else {
                // As a device does whose result is not yet visible: the word of the round before.
                for word in 0..8 {
                    to[word].store(reply(from[word].load(Ordering::Relaxed)), Ordering::Relaxed);
                }
                to[3].store(stale, Ordering::Relaxed);
                request.finish();
            }
        }
    });
    let error = ask(&mut host, &*out, &*back, 100, LIMIT).unwrap_err();
    let expected = ProbeError::Pattern {
        round: 4,
        word: 3,
        found: reply(pattern(3, 3)),
        expected: reply(pattern(4, 3)),
    };
    assert_eq!(error, expected);
    drop(host);
    thread.join().unwrap();
}

#[test]
fn the_probe_fails_typed_without_an_answer() {
    let (_, mut host, _workers) = sides(1);
    let limit = Duration::from_millis(2);
    let error = ask(&mut host, &*payload(1), &*payload(1), 3, limit).unwrap_err();
    assert!(
        matches!(
            error,
            ProbeError::Handoff {
                round: 0,
                source: HandoffError::Deadline { .. }
            }
        ),
        "{error}"
    );
    let (_, mut host, _workers) = sides(1);
    let error = ask(&mut host, &*payload(0), &*payload(4), 3, limit).unwrap_err();
    assert_eq!(
        error,
        ProbeError::Empty {
            outward: 0,
            back: 4
        }
    );
}

#[test]
fn words_that_no_worker_writes_are_refused() {
    for (done, fault, word) in [
        (9, 0, "done"),
        (0, 5 << 2 | 1, "fault"),
        (0, 1 << 2, "fault"),
    ] {
        let (shared, mut host, _workers) = sides(1);
        host.post(2).unwrap();
        shared.lanes[0].done.store(done, Ordering::Release);
        shared.lanes[0].fault.store(fault, Ordering::Release);
        let error = host.wait(LIMIT).unwrap_err();
        assert!(
            matches!(error, HandoffError::Corrupt { step: 2, request: 1, word: at, .. } if at == word),
            "{error}"
        );
        assert_eq!(host.late(), Some(2));
    }
}
