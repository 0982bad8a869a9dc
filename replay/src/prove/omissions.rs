//! One form's omissions: judged, partly executed, and counted.

use super::cut::{Cut, Part};
use super::judge::{Judged, Verdict, judge, kind_name};
use super::proof::{Executed, Form, Tally};
use super::rerun::{Bench, Outcome, chosen};
use super::seeds::Run;
use super::subject::Case;
use super::{ProveError, ProveOptions};
use crate::lifecycle::{Poisoned, Stage};
use refrain_lower::{Lowered, Transport, lint_others};
use refrain_packet::launch::KernelImage;
use refrain_planner::identity::hex;
use refrain_softgpu::strict::TraceJudge;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaves out each wait, invalidation and register write of a form, one at a time.
pub(super) fn form(
    case: Case<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
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
    let (transport, launches) = (lowered.transport(), case.plan.steps.len());
    let judged = lint_others(case.plan, kernels, lowered, |words, lint| {
        judge(transport, words, launches, &traces, lint)
    });
    let judged = judged.map_err(|error| Poisoned {
        stage: Stage::Lower,
        error: Box::new(error.into()),
    })?;
    let chosen = chosen(&judged, options.sample);
    let outcomes = execute(case, lowered, positions, &judged, &chosen, options)?;
    let mut count = Count {
        case,
        lowered,
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
        policy: lowered.encoded().policy.to_owned(),
        encoding: hex(lowered.digest()),
        dwords: lowered.dwords() as u64,
        omissions: count.omissions,
        executed: count.executed,
    })
}

/// Outcomes of the chosen omissions, in their order; several software GPUs at once.
fn execute(
    case: Case<'_>,
    lowered: &Lowered,
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
                let mut bench = Bench::new(case, 0, lowered, positions);
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
    let mut results = results.into_inner().unwrap_or_else(|error| error.into_inner());
    results.sort_by_key(|row| row.0);
    results.into_iter().map(|row| row.1).collect()
}

struct Count<'a> {
    case: Case<'a>,
    lowered: &'a Lowered,
    omissions: BTreeMap<String, Tally>,
    executed: Executed,
}

impl Count<'_> {
    fn add(&mut self, judged: &Judged, outcome: Option<&Outcome>) -> Result<(), ProveError> {
        self.check(judged, outcome)?;
        let place = self.place(judged.cut);
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
                    place: self.place(cut),
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
            place: self.place(cut),
            judge,
            shown,
        })
    }

    fn transport(&self) -> Transport {
        self.lowered.transport()
    }

    /// The launch that a cut stands before, by its step's name.
    fn place(&self, cut: Cut) -> String {
        let unit = match self.transport() {
            Transport::Aql => 16,
            Transport::Pm4 => 1,
        };
        let word = cut.at * unit;
        let launches = &self.lowered.encoded().launches;
        let index = launches.partition_point(|at| *at < word);
        let step = self.case.plan.steps.get(index);
        let step = step.map_or("the end of the token", |step| &step.name);
        match self.transport() {
            Transport::Aql => format!("packet {} ({step})", cut.at),
            Transport::Pm4 if cut.part == Part::Register => {
                format!("dword {} + {} (before {step})", cut.at, 2 + cut.index)
            }
            Transport::Pm4 => format!("dword {} (before {step})", cut.at),
        }
    }
}
