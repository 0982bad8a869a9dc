//! One form's omissions: judged, partly executed, and counted.

use super::cut::{Part, RunWords};
use super::judge::{Bar, Judged, Verdict, judge, kind_name};
use super::proof::{Executed, Form, Tally};
use super::rerun::{Bench, Outcome, chosen};
use super::seeds::Run;
use super::subject::{Case, Packets};
use super::{ProveError, ProveOptions};
use crate::lifecycle::{Poisoned, Stage};
use refrain_lower::{Lowered, Transport, form_digest, lint_others, runs};
use refrain_packet::launch::KernelImage;
use refrain_planner::identity::hex;
use refrain_planner::plan::{Piece, Plan};
use refrain_softgpu::strict::TraceJudge;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaves out each wait, invalidation and register write of a form, one at a time.
pub(super) fn form(
    case: Case<'_>,
    kernels: &[KernelImage],
    packets: &Packets,
    run: &Run,
    positions: &[u32],
    options: &ProveOptions,
) -> Result<Form, ProveError> {
    let target = crate::open::soft_target(case.target);
    let traces: Vec<(TraceJudge<'_>, u32)> = run
        .traces
        .iter()
        .map(|(trace, steps)| (TraceJudge::new(target, trace), *steps))
        .collect();
    let transport = packets.transport;
    let words = run_words(case.plan, packets);
    let bar = Bar {
        transport,
        runs: &words,
        traces: &traces,
    };
    let mut judged = Vec::new();
    for (index, (segment, lowered)) in runs(case.plan).iter().zip(&packets.runs).enumerate() {
        let found = lint_others(segment, kernels, lowered, |words, lint| {
            judge(&bar, index, words, lint)
        });
        judged.extend(found.map_err(|error| Poisoned {
            stage: Stage::Lower,
            error: Box::new(error.into()),
        })?);
    }
    // The trace is the only judge of most of what an AQL form can lose: a smaller sample checks it.
    let sample = match transport {
        Transport::Pm4 => options.sample,
        Transport::Aql => options.sample.div_ceil(4),
    };
    let chosen = chosen(&judged, sample);
    let outcomes = execute(case, packets, positions, &judged, &chosen, options)?;
    let mut count = Count {
        case,
        packets,
        omissions: BTreeMap::new(),
        executed: Executed::default(),
    };
    for (index, judged) in judged.iter().enumerate() {
        let place = chosen.binary_search(&index).ok();
        let outcome = place.and_then(|place| outcomes.get(place));
        count.add(judged, outcome)?;
    }
    Ok(Form {
        transport: transport.name().to_owned(),
        policy: packets
            .runs
            .first()
            .map_or("", |run| run.encoded().policy)
            .to_owned(),
        encoding: hex(&form_digest(&packets.runs)),
        runs: packets.runs.len() as u64,
        dwords: packets.runs.iter().map(|run| run.dwords() as u64).sum(),
        omissions: count.omissions,
        executed: count.executed,
    })
}

/// The runs' words and where the host stands between them.
pub(super) fn run_words(plan: &Plan, packets: &Packets) -> Vec<RunWords> {
    let mut gated = Vec::new();
    let mut host = false;
    for piece in plan.pieces() {
        match piece {
            Piece::Segment(segment) => gated.push((segment.launches().len(), host)),
            Piece::Barrier(barrier) => {
                // Launches beside the host's rows start before it is waited for.
                gated.extend(barrier.arm.map(|arm| (arm.launches().len(), false)));
                host = true;
            }
        }
    }
    let rows = packets.runs.iter().zip(gated);
    let row = |(lowered, (launches, gated)): (&Lowered, (usize, bool))| RunWords {
        words: lowered.encoded().words.clone(),
        launches,
        gated,
    };
    rows.map(row).collect()
}

/// Outcomes of the chosen omissions, in their order; several software GPUs at once.
pub(super) fn execute(
    case: Case<'_>,
    packets: &Packets,
    positions: &[u32],
    judged: &[Judged],
    chosen: &[usize],
    options: &ProveOptions,
) -> Result<Vec<Outcome>, ProveError> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Outcome, ProveError>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, 64) {
            scope.spawn(|| {
                let mut bench = Bench::new(case, 0, packets, positions);
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let index = chosen.get(place);
                    let Some(judged) = index.and_then(|index| judged.get(*index)) else {
                        break;
                    };
                    let result = bench.execute(judged);
                    if result.is_err() {
                        next.store(chosen.len(), Ordering::Relaxed);
                    }
                    let mut all = results.lock().unwrap_or_else(|error| error.into_inner());
                    all.push((place, result));
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .unwrap_or_else(|error| error.into_inner());
    results.sort_by_key(|row| row.0);
    results.into_iter().map(|row| row.1).collect()
}

/// Counts verdicts and outcomes, and stops where they contradict each other.
pub(super) struct Count<'a> {
    pub case: Case<'a>,
    pub packets: &'a Packets,
    pub omissions: BTreeMap<String, Tally>,
    pub executed: Executed,
}

impl Count<'_> {
    pub fn add(&mut self, judged: &Judged, outcome: Option<&Outcome>) -> Result<(), ProveError> {
        self.check(judged, outcome)?;
        let place = self.place(judged);
        if let Some(outcome) = outcome {
            let silent = *outcome == Outcome::Silent;
            self.executed.tried += 1;
            match judged.verdict {
                Verdict::Rule(_) if silent => self.executed.rule_only += 1,
                _ if silent => self.executed.silent += 1,
                _ => self.executed.noticed += 1,
            }
        }
        let part = judged.cut.part;
        let tally = self.omissions.entry(part.name().to_owned()).or_default();
        tally.tried += 1;
        let mut rule = None;
        match (judged.verdict, outcome) {
            (Verdict::Trace { rule: found, .. }, _) => {
                tally.by_trace += 1;
                rule = found;
            }
            (Verdict::Rule(found), _) => {
                tally.by_rule += 1;
                rule = Some(found);
            }
            (Verdict::Repeated, _) => tally.repeated += 1,
            (Verdict::Unseen, _) => tally.unseen += 1,
            (Verdict::Open, Some(Outcome::Silent) | None) => tally.redundant.push(place),
            (Verdict::Open, Some(_)) => tally.by_execution += 1,
        }
        if let Some(rule) = rule {
            *tally.rules.entry(rule.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    /// Whether execution shows what the judges said; a register must be noticed by somebody.
    fn check(&self, judged: &Judged, outcome: Option<&Outcome>) -> Result<(), ProveError> {
        let Some(outcome) = outcome else {
            return Ok(());
        };
        let (cut, transport) = (judged.cut, self.transport());
        let silent = *outcome == Outcome::Silent;
        let judge = match judged.verdict {
            Verdict::Open if silent && matches!(cut.part, Part::Register | Part::Release) => {
                return Err(ProveError::Uncaught {
                    transport,
                    part: cut.part.name(),
                    place: self.place(judged),
                });
            }
            Verdict::Trace { violation, .. } if silent => {
                format!("the trace has a {}", kind_name(violation.kind))
            }
            Verdict::Repeated if !silent => "nothing should change".to_owned(),
            Verdict::Unseen if !silent => "no dispatch should see it".to_owned(),
            _ => return Ok(()),
        };
        let shown = match outcome {
            Outcome::Silent => "nothing".to_owned(),
            Outcome::Reported(kind) => format!("a report, {kind}"),
            Outcome::Stopped(text) | Outcome::Differs(text) => text.clone(),
        };
        Err(ProveError::Disagree {
            transport,
            part: cut.part.name(),
            place: self.place(judged),
            judge,
            shown,
        })
    }

    fn transport(&self) -> Transport {
        self.packets.transport
    }

    /// The launch that a cut stands before, by its step's name.
    fn place(&self, judged: &Judged) -> String {
        let cut = judged.cut;
        let unit = match self.transport() {
            Transport::Aql => 16,
            Transport::Pm4 => 1,
        };
        let word = cut.at * unit;
        let lowered = self.packets.runs.get(judged.run);
        let launches = lowered.map_or(&[][..], |run| &run.encoded().launches);
        let index = launches.partition_point(|at| *at < word);
        let segment = runs(self.case.plan).into_iter().nth(judged.run);
        let step = segment.filter(|segment| index < segment.launches().len());
        let step = step.map_or("the end".to_owned(), |segment| {
            segment.step(index).1.to_owned()
        });
        let run = match self.packets.runs.len() {
            1 => String::new(),
            _ => format!("run {}, ", judged.run),
        };
        match self.transport() {
            Transport::Aql => format!("{run}packet {} ({step})", cut.at),
            Transport::Pm4 if cut.part == Part::Register => {
                format!("{run}dword {} + {} (before {step})", cut.at, 2 + cut.index)
            }
            Transport::Pm4 => format!("{run}dword {} (before {step})", cut.at),
        }
    }
}
