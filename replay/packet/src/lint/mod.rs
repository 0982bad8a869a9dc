//! The linter: reads packets through the independent decoder and judges them by 50 rules.
//!
//! [`lint_ring`] judges AQL packets (rules A), [`lint_ib`] an indirect buffer (rules P, D, H).
//! A rule whose context is absent is listed as not checked; one with a part missing as partly
//! checked. Nothing here changes a packet.

mod access;
mod context;
mod dispatch;
mod hazard;
mod memory;
mod queue;
mod ring;
mod rules;
mod syntax;
mod walk;

pub use context::{
    Allocation, Context, Event, Holds, HostContract, IbInfo, InFlight, KnownKernel, Node, Part,
    QueueInfo, Range, Region, SignalInfo,
};
pub use rules::{RULES, Row, Rule, Severity};

use std::collections::BTreeMap;
use std::fmt;

use crate::json::Json;

/// Where a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole surface.
    Whole,
    /// A dword of an indirect buffer.
    Dword(u32),
    /// A dispatch: its number and the dword of its packet.
    Dispatch {
        /// Number among the dispatches.
        index: usize,
        /// Dword of the packet.
        dword: u32,
    },
    /// A packet of the ring given to the linter.
    Packet(usize),
    /// An entry of the event log.
    Event(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("buffer"),
            Self::Dword(at) => write!(f, "dword {at}"),
            Self::Dispatch { index, dword } => write!(f, "dispatch {index} (dword {dword})"),
            Self::Packet(index) => write!(f, "packet {index}"),
            Self::Event(index) => write!(f, "event {index}"),
        }
    }
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Severity of this finding.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// Packet, register or field.
    pub subject: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.rule.row();
        write!(
            f,
            "{} {} at {}: {}: {}: found {}, expected {}; {}",
            row.id,
            self.severity.name(),
            self.place,
            row.title,
            self.subject,
            self.found,
            self.expected,
            row.remedy
        )
    }
}

/// What the linter found and what it could not look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Violations in stream order per rule group.
    pub findings: Vec<Finding>,
    /// Rules that could not be judged, with the missing part.
    pub not_checked: Vec<(Rule, Part)>,
    /// Rules judged without some of their clauses, with the missing part.
    pub partly_checked: Vec<(Rule, Part)>,
    /// Rules judged, wholly or partly.
    pub checked: usize,
    /// How many findings of a rule and severity were counted but not kept, because
    /// [`FINDINGS_KEPT`] of them are listed already.
    pub more: BTreeMap<(Rule, Severity), usize>,
}

/// Findings kept of one rule and severity; the rest is counted.
pub const FINDINGS_KEPT: usize = 100;

impl fmt::Display for Report {
    /// One line per finding, then what was left out and what was not judged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.findings {
            writeln!(f, "{row}")?;
        }
        for ((rule, severity), count) in &self.more {
            let (id, severity) = (rule.row().id, severity.name());
            writeln!(f, "{id} {severity}: {count} more")?;
        }
        for (label, rows) in [
            ("judged in part", &self.partly_checked),
            ("not judged", &self.not_checked),
        ] {
            for (rule, part) in rows {
                writeln!(f, "{label}: {} ({} unknown)", rule.row().id, part.name())?;
            }
        }
        Ok(())
    }
}

impl Report {
    /// True when a finding rejects the surface; hazards in `waived` do not.
    pub fn rejects(&self, waived: &[Rule]) -> bool {
        self.findings.iter().any(|row| match row.severity {
            Severity::Error => true,
            Severity::Hazard => !waived.contains(&row.rule),
            Severity::Warning => false,
        })
    }

    /// True when a rule fired.
    pub fn has(&self, rule: Rule) -> bool {
        self.findings.iter().any(|row| row.rule == rule)
    }

    /// One JSON object: `schema`, `rejects`, counts, `findings`, `not_checked`, `partly_checked`.
    pub fn to_json(&self, waived: &[Rule]) -> String {
        let mut json = Json::default();
        json.object(|json| {
            json.text("schema", "refrain.lint.v1");
            json.flag("rejects", self.rejects(waived));
            json.number("checked", self.checked as u64);
            json.array("findings", |json| {
                for row in &self.findings {
                    json.object(|json| {
                        json.text("rule", row.rule.row().id);
                        json.text("severity", row.severity.name());
                        json.flag("waived", waived.contains(&row.rule));
                        json.text("place", &row.place.to_string());
                        json.text("subject", &row.subject);
                        json.text("found", &row.found);
                        json.text("expected", &row.expected);
                        json.text("remedy", row.rule.row().remedy);
                    });
                }
            });
            json.array("more", |json| {
                for ((rule, severity), count) in &self.more {
                    json.object(|json| {
                        json.text("rule", rule.row().id);
                        json.text("severity", severity.name());
                        json.number("count", *count as u64);
                    });
                }
            });
            for (key, rows) in [
                ("not_checked", &self.not_checked),
                ("partly_checked", &self.partly_checked),
            ] {
                json.array(key, |json| {
                    for (rule, part) in rows {
                        json.object(|json| {
                            json.text("rule", rule.row().id);
                            json.text("missing", part.name());
                        });
                    }
                });
            }
        });
        json.finish()
    }

    /// Findings of a severity, those that were not kept included.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings
            .iter()
            .filter(|row| row.severity == severity)
            .count()
            + self
                .more
                .iter()
                .filter(|row| row.0.1 == severity)
                .map(|row| row.1)
                .sum::<usize>()
    }
}

/// Collects findings.
struct Sink<'c, 'a> {
    cx: &'c Context<'a>,
    report: Report,
    kept: BTreeMap<(Rule, Severity), usize>,
}

impl<'c, 'a> Sink<'c, 'a> {
    /// A sink with the coverage of one surface filled in.
    fn new(cx: &'c Context<'a>, ring: bool) -> Self {
        let mut report = Report::default();
        for row in RULES.iter().filter(|row| row.rule.is_ring() == ring) {
            if let Some(part) = row.needs.iter().find(|part| !cx.has(**part)) {
                report.not_checked.push((row.rule, *part));
                continue;
            }
            report.checked += 1;
            if let Some(part) = row.wants.iter().find(|part| !cx.has(**part)) {
                report.partly_checked.push((row.rule, *part));
            }
        }
        Self {
            cx,
            report,
            kept: BTreeMap::new(),
        }
    }

    /// Records a finding with the rule's usual severity.
    fn add(
        &mut self,
        rule: Rule,
        place: Place,
        subject: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.add_as(rule.row().severity, rule, place, subject, found, expected);
    }

    /// Records a finding with another severity.
    fn add_as(
        &mut self,
        severity: Severity,
        rule: Rule,
        place: Place,
        subject: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let kept = self.kept.entry((rule, severity)).or_default();
        if *kept == FINDINGS_KEPT {
            *self.report.more.entry((rule, severity)).or_default() += 1;
            return;
        }
        *kept += 1;
        self.report.findings.push(Finding {
            rule,
            severity,
            place,
            subject: subject.into(),
            found: found.into(),
            expected: expected.into(),
        });
    }
}

/// Judges an indirect buffer: rules P, D and H.
pub fn lint_ib(words: &[u32], cx: &Context<'_>) -> Report {
    let mut sink = Sink::new(cx, false);
    let walk = syntax::check(words, &mut sink);
    dispatch::check(&walk, &mut sink);
    hazard::check(words, &walk, &mut sink);
    memory::check(&walk, &mut sink);
    sink.report
}

/// Judges AQL packets in the order of their ids: rules A. Slots that hold INVALID are allowed
/// only behind the last published packet.
pub fn lint_ring(packets: &[[u8; 64]], cx: &Context<'_>) -> Report {
    let mut sink = Sink::new(cx, true);
    ring::check(packets, &mut sink);
    queue::check(packets, &mut sink);
    sink.report
}
