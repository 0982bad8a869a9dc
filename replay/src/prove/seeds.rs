//! Executes tokens under every seed: eager launches, recorded launches made again, and each retained
//! form, from the same state at first, middle and last position. All leave the same bytes in every
//! buffer, whatever the seed, and strict mode reports nothing. What is left in scratch between two
//! tokens is replaced by other bytes and changes nothing that is kept.

use super::parity::parting;
use super::slack::{Slack, slack};
use super::subject::{Case, Packets, Route, Subject, steps_at};
use super::{ProveError, ProveOptions};
use crate::strict::Report;
use refrain_kernels::WordValues;
use refrain_planner::plan::BufferKind;
use refrain_recorder::{BufferState, Tape, state_digest};
use refrain_softgpu::strict::TracedLaunch;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most token steps at a position, in flight together on retained routes.
const STEPS: u32 = 2;
/// Seed of the numbers that states are filled with; the same for all runs, which are compared.
const FILL: u64 = 0x5EED;
/// Bytes that scratch is filled with between tokens: as floats a NaN, zero, and 3.4e38.
const POISON: [u8; 3] = [0xff, 0x00, 0x7f];

/// What all seeds together showed.
#[derive(Default)]
pub(super) struct Run {
    pub token_steps: u64,
    pub states_compared: u64,
    pub slack: Vec<Slack>,
    pub poison: Vec<u8>,
    /// Per position, what the launches of its token steps touched, from the first seed.
    pub traces: Vec<(Vec<TracedLaunch>, u32)>,
}

struct One {
    run: Run,
    /// Per position, digest of the state after the token steps.
    states: Vec<[u8; 32]>,
}

/// Runs all seeds, several at once.
pub(super) fn execute(
    case: Case<'_>,
    forms: &[Packets],
    positions: &[u32],
    options: &ProveOptions,
) -> Result<Run, ProveError> {
    let seeds = options.seeds.max(1);
    let (tape, reports) = case.record(0)?;
    silent(&reports, Route::Eager, 0, 0)?;
    // Steps of the host are on no tape.
    let tape = Some(&tape).filter(|_| case.plan.barriers().next().is_none());
    let next = AtomicU64::new(0);
    let results: Mutex<Vec<(u64, Result<One, ProveError>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, 64) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    let result = one(case, tape, forms, positions, seed);
                    if result.is_err() {
                        next.store(seeds, Ordering::Relaxed);
                    }
                    let mut all = results.lock().unwrap_or_else(|error| error.into_inner());
                    all.push((seed, result));
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(|error| error.into_inner());
    results.sort_by_key(|row| row.0);
    let mut total = Run {
        poison: POISON.iter().copied().take(seeds as usize).collect(),
        ..Run::default()
    };
    let mut states: Option<Vec<[u8; 32]>> = None;
    for (seed, result) in results {
        let one = result?;
        let first = states.get_or_insert_with(|| one.states.clone());
        if let Some(index) = (0..positions.len()).find(|i| first.get(*i) != one.states.get(*i)) {
            return Err(ProveError::Reported {
                route: Route::Eager.to_string(),
                position: positions.get(index).copied().unwrap_or(0),
                seed,
                count: 1,
                first: "the state differs from that of seed 0".to_owned(),
            });
        }
        total.token_steps += one.run.token_steps;
        total.states_compared += one.run.states_compared;
        if seed == 0 {
            total.slack = one.run.slack;
            total.traces = one.run.traces;
        }
    }
    Ok(total)
}

/// One seed's progress.
struct Progress<'a> {
    case: Case<'a>,
    subject: Subject,
    seed: u64,
    run: Run,
}

fn one(
    case: Case<'_>,
    tape: Option<&Tape>,
    forms: &[Packets],
    positions: &[u32],
    seed: u64,
) -> Result<One, ProveError> {
    // The first seed's traces are kept: those of the launches that one run can hold.
    let traces = if seed == 0 {
        case.plan.launches().count() * STEPS as usize
    } else {
        0
    };
    let subject = case.subject(seed, traces, tape, forms)?;
    let mut progress = Progress {
        case,
        subject,
        seed,
        run: Run::default(),
    };
    let retained = forms.iter().map(|form| Route::Retained(form.transport));
    let again = tape.map(|_| Route::Relaunched).into_iter();
    let routes: Vec<Route> = again.chain(retained).collect();
    let mut states = Vec::with_capacity(positions.len());
    for (index, &position) in positions.iter().enumerate() {
        // Tokens are in flight together at the first position; the step behind the last one must
        // change nothing.
        let middle = index > 0 && index + 1 < positions.len();
        let steps = steps_at(case.plan, position, if middle { 1 } else { STEPS });
        let (expected, words) = progress.state(Route::Eager, position, steps, None)?;
        progress.keep_trace(position, steps, &words);
        for &route in &routes {
            let (found, _) = progress.state(route, position, steps, None)?;
            progress.compare(route, position, &expected, &found, &[])?;
        }
        states.push(state_digest(&expected));
    }
    // One kind of bytes per seed, until all have been tried at the first or the middle position.
    let poisoned = POISON.get(seed as usize).copied();
    let place = positions.get((seed % 2) as usize).or(positions.first());
    if let (Some(poison), Some(&position)) = (poisoned, place) {
        let steps = steps_at(case.plan, position, STEPS);
        let (expected, _) = progress.state(Route::Eager, position, steps, None)?;
        for &route in [Route::Eager].iter().chain(&routes) {
            let (found, _) = progress.state(route, position, steps, Some(poison))?;
            progress.compare(route, position, &expected, &found, &[BufferKind::Scratch])?;
        }
    }
    let run = progress.run;
    Ok(One { run, states })
}

impl Progress<'_> {
    /// The state that token steps leave, and the words they started from.
    fn state(
        &mut self,
        route: Route,
        position: u32,
        steps: u32,
        poison: Option<u8>,
    ) -> Result<(Vec<BufferState>, WordValues), ProveError> {
        self.subject.set(position, FILL)?;
        let words = self.subject.words()?;
        drop(self.subject.traces());
        self.subject.run(route, steps, poison)?;
        self.run.token_steps += u64::from(steps);
        silent(&self.subject.reports(), route, position, self.seed)?;
        Ok((self.subject.snapshot()?, words))
    }

    fn keep_trace(&mut self, position: u32, steps: u32, words: &WordValues) {
        let trace = self.subject.traces();
        if trace.is_empty() {
            return;
        }
        let instance = &self.subject.instance;
        let base = |buffer| instance.base(buffer);
        let slack = slack(self.case.plan, position, words, &base, &trace);
        self.run.slack.push(slack);
        self.run.traces.push((trace, steps));
    }

    fn compare(
        &mut self,
        route: Route,
        position: u32,
        expected: &[BufferState],
        found: &[BufferState],
        skip: &[BufferKind],
    ) -> Result<(), ProveError> {
        self.run.states_compared += 1;
        match parting(self.case.plan, expected, found, skip) {
            None => Ok(()),
            Some(parting) => {
                let poisoned = if skip.is_empty() {
                    ""
                } else {
                    ", scratch filled between tokens"
                };
                Err(ProveError::Differs {
                    first: Route::Eager.to_string(),
                    second: format!("{route}{poisoned}"),
                    position,
                    seed: self.seed,
                    parting: Box::new(parting),
                })
            }
        }
    }
}

/// Nothing was reported.
fn silent(reports: &[Report], route: Route, position: u32, seed: u64) -> Result<(), ProveError> {
    match reports.first() {
        None => Ok(()),
        Some(first) => Err(ProveError::Reported {
            route: route.to_string(),
            position,
            seed,
            count: reports.len(),
            first: first.to_string(),
        }),
    }
}
