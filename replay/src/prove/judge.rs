//! Who notices an omission: the trace of touched bytes, the rules of the packet linter, the register
//! file; what none of them can say is left to execution.
//!
//! The three know different things. The trace knows what launches did touch at the positions that
//! ran; a rule knows what they may touch at any position; the register file knows which dispatches
//! see a value. A wait that only a rule asks for is one whose launches met at no position that ran.

use super::cut::{Cut, Part, RunWords, cuts, token_events, without};
use crate::strict::ReportKind;
use refrain_lower::Transport;
use refrain_packet::decode::{Located, packets};
use refrain_packet::lint::{Report, Severity};
use refrain_packet::packet::Packet;
use refrain_packet::state::ShState;
use refrain_packet::tables::registers::{initiator, reg};
use refrain_softgpu::strict::{TraceJudge, Violation};
use std::collections::BTreeMap;

/// What the judges say about an omission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The trace at this index among the positions has a violation; a rule may have rejected it too.
    Trace {
        position: usize,
        violation: Violation,
        rule: Option<&'static str>,
    },
    /// A rule rejects it or warns, and no trace has a violation.
    Rule(&'static str),
    /// The register holds the value already, or the same fence stands before it.
    Repeated,
    /// No dispatch reads the register before it is written again.
    Unseen,
    /// Nobody noticed, and nothing shows that it changes nothing.
    Open,
}

/// One omission with its verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// The run of launches that it is in.
    pub run: usize,
    pub cut: Cut,
    pub verdict: Verdict,
}

/// What a form's omissions are judged with.
pub(super) struct Bar<'a> {
    pub transport: Transport,
    pub runs: &'a [RunWords],
    /// Per position, a judge of the trace of so many token steps.
    pub traces: &'a [(TraceJudge<'a>, u32)],
}

/// Judges every omission of one run's words, which stand under made-up addresses; `lint` judges other
/// words in place of these.
pub(super) fn judge(
    bar: &Bar<'_>,
    run: usize,
    words: &[u32],
    lint: &dyn Fn(&[u32]) -> Report,
) -> Vec<Judged> {
    let transport = bar.transport;
    let before = findings(&lint(words));
    let mut all = Vec::new();
    for cut in cuts(transport, words) {
        let others = without(transport, words, cut);
        let verdict = match cut.part {
            Part::Register => register(words, cut),
            Part::Wait | Part::Invalidate => bar.observed(run, &others),
            Part::Release => None,
        };
        let settled = matches!(verdict, Some(Verdict::Repeated | Verdict::Unseen));
        let rule = if settled {
            None
        } else {
            noticed(&lint(&others), &before)
        };
        let verdict = match (verdict, rule) {
            (
                Some(Verdict::Trace {
                    position,
                    violation,
                    ..
                }),
                rule,
            ) => Verdict::Trace {
                position,
                violation,
                rule,
            },
            (Some(verdict), _) => verdict,
            (None, Some(rule)) => Verdict::Rule(rule),
            (None, None) if bar.repeats(run, words, cut) => Verdict::Repeated,
            (None, None) => Verdict::Open,
        };
        all.push(Judged { run, cut, verdict });
    }
    all
}

/// Findings of a report by rule.
fn findings(report: &Report) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    for finding in &report.findings {
        *count.entry(finding.rule.row().id).or_default() += 1;
    }
    count
}

/// The first rule that rejects; otherwise the first that warns more often than of the whole form: it
/// noticed, although the result is the same.
fn noticed(report: &Report, before: &BTreeMap<&'static str, usize>) -> Option<&'static str> {
    let mut all = report.findings.iter();
    let first = all.find(|finding| finding.severity != Severity::Warning);
    let rejects = first.map(|finding| finding.rule.row().id);
    rejects.or_else(|| {
        let now = findings(report);
        let more =
            |(rule, count): &(&&'static str, &usize)| before.get(*rule).unwrap_or(&0) < *count;
        now.iter().find(more).map(|(rule, _)| *rule)
    })
}

impl Bar<'_> {
    /// What the traces say about a stream that lacks a wait or an invalidation in every token.
    fn observed(&self, run: usize, words: &[u32]) -> Option<Verdict> {
        let launches: usize = self.runs.iter().map(|run| run.launches).sum();
        let mut traces = self.traces.iter().enumerate();
        traces.find_map(|(position, (judge, tokens))| {
            let stream = |token| {
                let first = token as usize * launches;
                token_events(self.transport, self.runs, (run, words), first)
            };
            let stream: Vec<_> = (0..*tokens).flat_map(stream).collect();
            let violation = judge.first(&stream)?;
            Some(Verdict::Trace {
                position,
                violation,
                rule: None,
            })
        })
    }

    /// Whether a barrier or fence of system scope stands directly before: the vendor packet's before the
    /// head invalidation of an indirect buffer, the gate's before the first packet of a run. The policy
    /// emits both all the same.
    fn repeats(&self, run: usize, words: &[u32], cut: Cut) -> bool {
        let gated = self.runs.get(run).is_some_and(|run| run.gated);
        match self.transport {
            Transport::Aql => gated && cut.at == 0 && cut.part != Part::Release,
            Transport::Pm4 => {
                let mut all = packets(words).filter_map(Result::ok);
                let dispatch =
                    |found: &Located<'_>| matches!(found.packet, Packet::DispatchDirect { .. });
                let first = all.find(dispatch).map(|found| found.offset);
                cut.part == Part::Invalidate && first.is_some_and(|first| cut.at < first)
            }
        }
    }
}

/// What the register file says about a register write; `None` where a dispatch sees another value.
fn register(words: &[u32], cut: Cut) -> Option<Verdict> {
    let mut state = ShState::default();
    let mut register = None;
    for packet in packets(words).filter_map(Result::ok) {
        match (register, packet.packet) {
            (None, Packet::SetShReg { offset, values, .. }) if packet.offset == cut.at => {
                let at = offset + cut.index;
                let value = values.get(usize::from(cut.index)).copied();
                if state.get(at).is_some() && state.get(at) == value {
                    return Some(Verdict::Repeated);
                }
                register = Some(at);
            }
            (Some(at), Packet::SetShReg { offset, values, .. }) => {
                let last = offset as usize + values.len();
                if (usize::from(offset)..last).contains(&usize::from(at)) {
                    return Some(Verdict::Unseen);
                }
            }
            (Some(at), Packet::DispatchDirect { initiator, .. }) if reads(at, initiator) => {
                return None;
            }
            (None, found) => state.apply(&found),
            _ => {}
        }
    }
    Some(Verdict::Unseen)
}

/// Whether a dispatch reads a register: with FORCE_START_AT_000 it does not look at START.
fn reads(register: u16, initiator: u32) -> bool {
    let start = [reg::START_X, reg::START_Y, reg::START_Z].contains(&register);
    !start || initiator & initiator::FORCE_START_AT_000 == 0
}

/// Name of a violation's kind in proofs.
pub(super) fn kind_name(kind: ReportKind) -> &'static str {
    let rows = refrain_softgpu::strict::REPORT_KINDS.iter();
    let mut named = rows.filter(|row| row.kind == kind).map(|row| row.name);
    named.next().unwrap_or("violation")
}

#[cfg(test)]
mod tests {
    use super::{Verdict, register};
    use crate::prove::cut::{Part, cuts};
    use refrain_lower::Transport;
    use refrain_packet::pm4::Writer;

    #[test]
    fn the_register_file_knows_what_is_repeated_unseen_or_seen() {
        let mut out = Writer::default();
        out.set_sh_reg(0x207, &[1, 2]).unwrap();
        out.set_sh_reg(0x208, &[3]).unwrap();
        out.dispatch([1; 3], 0x8005);
        out.set_sh_reg(0x207, &[1, 4]).unwrap();
        out.dispatch([1; 3], 0x8005);
        out.set_sh_reg(0x207, &[9]).unwrap();
        out.wait();
        // START: read by the dispatch without FORCE_START_AT_000 only.
        out.set_sh_reg(0x204, &[5]).unwrap();
        out.dispatch([1; 3], 0x8005);
        out.dispatch([1; 3], 0x8001);
        let words = out.into_words();
        let found: Vec<_> = cuts(Transport::Pm4, &words)
            .into_iter()
            .filter(|cut| cut.part == Part::Register)
            .map(|cut| register(&words, cut))
            .collect();
        let (repeated, unseen) = (Some(Verdict::Repeated), Some(Verdict::Unseen));
        let ends = [None, unseen, None, repeated, None, None, None];
        assert_eq!(found, ends);
        let last = words.len() - 5;
        let start = *cuts(Transport::Pm4, &words).last().unwrap();
        assert_eq!(register(&words[..last], start), unseen);
    }
}
