//! Executes some omissions for real, under strict mode, as a check of the judges.
//!
//! What a judge called caught by the trace, or repeated, or unseen, must turn out so; what no judge
//! could place is placed here. A sample is spread over all omissions, so that it is the same for the
//! same form. A software GPU on which a queue stopped, or whose weights were written, is not used again.

use super::ProveError;
use super::cut::{Part, without};
use super::judge::{Judged, Verdict};
use super::subject::{Case, Packets, Route, Subject, steps_at};
use crate::prove::parity::parting;
use refrain_lower::Transport;
use refrain_recorder::BufferState;

/// What execution showed of an omission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every byte as without it, and no report.
    Silent,
    /// A report of strict mode, by kind.
    Reported(&'static str),
    /// The queue stopped.
    Stopped(String),
    /// The buffers differ.
    Differs(String),
}

/// Indices of the omissions that are executed: all that no judge placed, then `sample` more, spread
/// evenly over each kind of verdict.
pub(super) fn chosen(judged: &[Judged], sample: usize) -> Vec<usize> {
    let class = |judged: &Judged| match judged.verdict {
        Verdict::Open => 0,
        Verdict::Trace { .. } => 1,
        Verdict::Rule(_) => 2 + judged.cut.part as usize,
        Verdict::Repeated => 10,
        Verdict::Unseen => 11,
    };
    let members = |wanted: usize| -> Vec<usize> {
        let indices = (0..judged.len()).filter(|i| class(&judged[*i]) == wanted);
        indices.collect()
    };
    let mut all = members(0);
    let mut groups: Vec<Vec<usize>> = (1..12).map(members).filter(|g| !g.is_empty()).collect();
    // Small groups whole, the rest of the sample for the larger ones.
    groups.sort_by_key(Vec::len);
    let mut left = sample;
    for (number, group) in groups.iter().enumerate() {
        let share = (left / (groups.len() - number)).min(group.len());
        all.extend((0..share).map(|i| group[i * group.len() / share]));
        left -= share;
    }
    all.sort_unstable();
    all
}

/// Executes omissions of one form on software GPUs of one seed.
pub(super) struct Bench<'a> {
    pub case: Case<'a>,
    pub seed: u64,
    pub packets: &'a Packets,
    pub positions: &'a [u32],
    subject: Option<Subject>,
    /// The state that the whole form leaves, by position and number of token steps (1 or 2).
    states: Vec<Option<Vec<BufferState>>>,
}

impl<'a> Bench<'a> {
    pub fn new(case: Case<'a>, seed: u64, packets: &'a Packets, positions: &'a [u32]) -> Self {
        Self {
            case,
            seed,
            packets,
            positions,
            subject: None,
            states: vec![None; positions.len() * 3],
        }
    }

    fn transport(&self) -> Transport {
        self.packets.transport
    }

    /// Executes one omission where its verdict can show.
    pub fn execute(&mut self, judged: &Judged) -> Result<Outcome, ProveError> {
        let position = match judged.verdict {
            Verdict::Trace { position, .. } => position,
            _ => 0,
        };
        // A wait may matter to the next token, a register does in its own.
        let steps = match judged.cut.part {
            Part::Register => 1,
            _ => 2,
        };
        let mut subject = match self.subject.take() {
            Some(subject) => subject,
            None => self.case.subject(self.seed, 0, None, &[])?,
        };
        let place = self.positions.get(position).copied().unwrap_or(0);
        let plan = self.case.plan;
        let (transport, cut) = (self.transport(), judged.cut);
        let steps = steps_at(plan, place, steps);
        let slot = position * 3 + steps as usize;
        if self.states.get(slot).is_none_or(Option::is_none) {
            subject.edit(self.packets, self.case.objects, &|_, words| words)?;
            subject.set(place, self.seed)?;
            subject.run(Route::Retained(transport), steps, None)?;
            let after = subject.snapshot()?;
            if let Some(state) = self.states.get_mut(slot) {
                *state = Some(after);
            }
        }
        drop(subject.reports());
        subject.edit(self.packets, self.case.objects, &|run, words| {
            if run == judged.run {
                without(transport, &words, cut)
            } else {
                words
            }
        })?;
        subject.set(place, self.seed)?;
        let ran = subject.run(Route::Retained(transport), steps, None);
        let report = subject
            .reports()
            .first()
            .map(|report| super::judge::kind_name(report.kind));
        let outcome = match (ran, report) {
            (Err(error), None) => return Ok(Outcome::Stopped(error.to_string())),
            // What is in flight is not known to be finished on a queue that stopped.
            (Err(_), Some(kind)) => return Ok(Outcome::Reported(kind)),
            (Ok(()), Some(kind)) => Outcome::Reported(kind),
            (Ok(()), None) => self.compare(&subject, slot)?,
        };
        if cut.part != Part::Register || outcome == Outcome::Silent {
            self.subject = Some(subject);
        }
        Ok(outcome)
    }

    fn compare(&self, subject: &Subject, slot: usize) -> Result<Outcome, ProveError> {
        let found = subject.snapshot()?;
        let state = self.states.get(slot).and_then(Option::as_ref);
        let differs = state.and_then(|after| parting(self.case.plan, after, &found, &[]));
        Ok(match differs {
            None => Outcome::Silent,
            Some(parting) => Outcome::Differs(parting.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::chosen;
    use crate::prove::cut::{Cut, Part};
    use crate::prove::judge::{Judged, Verdict};

    #[test]
    fn what_nobody_placed_is_executed_whole_and_the_rest_by_a_spread_sample() {
        let judged = |verdict| Judged {
            run: 0,
            cut: Cut {
                part: Part::Register,
                at: 0,
                index: 0,
            },
            verdict,
        };
        let mut all = vec![judged(Verdict::Open); 3];
        all.extend(vec![judged(Verdict::Repeated); 100]);
        all.extend(vec![judged(Verdict::Unseen); 2]);
        let found = chosen(&all, 6);
        assert_eq!(found, [0, 1, 2, 3, 28, 53, 78, 103, 104]);
        assert_eq!(chosen(&all, 0), [0, 1, 2]);
        assert_eq!(chosen(&[], 5), [0; 0]);
    }
}
