//! The controllers of a plan's shapes: what an executor holds, asks before a step, and tells after it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::seed::{Seed, Seeds};
use super::shape::{DEFAULT_SHARE, Decision, Kind, ROW_STEP, Sample, Shape};
use super::tracker::{Event, Tracker};

/// Most numbers of rows that one shape is tracked for; further ones run at the default share, counted.
pub const MAX_ROW_COUNTS: usize = 64;

/// What happened since a controller was made; all of it belongs into a run's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Steps observed, by kind: over the link, on the CPU, split.
    pub steps: [u64; 3],
    /// Of these, steps run for a measurement.
    pub probes: u64,
    /// Probes that gave no times; each counts against its kind.
    pub failed_probes: u64,
    /// Choices made.
    pub freezes: u64,
    /// Choices moved by a confirmed drift.
    pub nudges: u64,
    /// Choices given up by a confirmed change.
    pub reopens: u64,
    /// Samples set aside because they were several times as long or as short as the others.
    pub outliers: u64,
    /// Samples that cannot be: without a wall, of rows that were not planned.
    pub rejected: u64,
    /// Steps of more numbers of rows than are tracked.
    pub untracked: u64,
}

/// The controller of one shape.
#[derive(Debug, Clone, Default)]
pub struct Controller {
    trackers: Vec<Tracker>,
    seeds: Vec<(u32, f64)>,
    counters: Counters,
}

impl Controller {
    /// A controller that starts from what a machine profile has for its shape, or from nothing. Seeds
    /// save steps; they never decide.
    #[must_use]
    pub fn new<'a>(seeds: impl IntoIterator<Item = &'a Seed>) -> Controller {
        let usable = seeds
            .into_iter()
            .filter(|seed| (0.0..=1.0).contains(&seed.share));
        Controller {
            seeds: usable
                .take(MAX_ROW_COUNTS)
                .map(|seed| (seed.rows, seed.share))
                .collect(),
            ..Controller::default()
        }
    }

    /// How a step of `rows` rows runs next. Asking twice without a sample between gives the same answer.
    pub fn plan(&mut self, rows: u32) -> Decision {
        match self.tracker(rows) {
            Some(tracker) => tracker.plan(),
            None => {
                self.counters.untracked += 1;
                default_decision(rows)
            }
        }
    }

    /// Takes in how a step went that [`Controller::plan`] decided.
    pub fn observe(&mut self, decision: &Decision, sample: &Sample) {
        let bounded = decision.gpu_rows <= decision.rows;
        let timed = sample.wall_ns > 0 && (decision.kind == Kind::Pcie || sample.cpu_ns > 0);
        let tracker = self.tracker(decision.rows);
        let event = match tracker {
            Some(tracker) if bounded && timed => tracker.observe(decision, sample),
            Some(_) => {
                self.counters.rejected += 1;
                return;
            }
            None => Event::None,
        };
        self.counters.steps[decision.kind as usize] += 1;
        self.counters.probes += u64::from(decision.probe.is_some());
        self.count(event);
    }

    /// A probe that was asked for gave no times. A kind that fails three times is left out, and a split
    /// that was never measured keeps the default share.
    pub fn probe_failed(&mut self, decision: &Decision) {
        self.counters.failed_probes += 1;
        if let Some(tracker) = self.tracker(decision.rows) {
            let event = tracker.failed(decision.kind);
            self.count(event);
        }
    }

    /// The kind and share in use for so many rows, once chosen.
    #[must_use]
    pub fn choice(&self, rows: u32) -> Option<(Kind, f64)> {
        self.trackers
            .iter()
            .find(|tracker| tracker.rows == rows)?
            .frozen()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What a machine profile keeps of this controller: one seed a number of rows that was decided.
    #[must_use]
    pub fn seeds(&self, shape: Shape) -> Vec<Seed> {
        self.trackers
            .iter()
            .filter_map(|tracker| {
                let (kind, share) = tracker.frozen()?;
                let wall = |kind| tracker.wall(kind).map(|(mean, _)| mean as u64);
                Some(Seed {
                    dtype: shape.dtype.name().to_owned(),
                    k: shape.k,
                    form: shape.form,
                    rows: tracker.rows,
                    kind,
                    share,
                    pcie_ns: wall(Kind::Pcie),
                    cpu_ns: wall(Kind::Cpu),
                    split_ns: wall(Kind::Split),
                    spread: tracker.wall(kind).map_or(0.0, |(_, spread)| spread),
                })
            })
            .collect()
    }

    fn count(&mut self, event: Event) {
        match event {
            Event::None => {}
            Event::Froze => self.counters.freezes += 1,
            Event::Nudged => self.counters.nudges += 1,
            Event::Reopened => self.counters.reopens += 1,
            Event::Outlier => self.counters.outliers += 1,
        }
    }

    /// The tracker of a number of rows, made on its first step: it starts from its seed, else from
    /// where the nearest other number of rows has its balance.
    fn tracker(&mut self, rows: u32) -> Option<&mut Tracker> {
        if let Some(at) = self
            .trackers
            .iter()
            .position(|tracker| tracker.rows == rows)
        {
            return self.trackers.get_mut(at);
        }
        if self.trackers.len() == MAX_ROW_COUNTS {
            return None;
        }
        let seed = self.seeds.iter().find(|seed| seed.0 == rows);
        let neighbours = self
            .trackers
            .iter()
            .filter_map(|tracker| Some((tracker.rows.abs_diff(rows), tracker.balance()?)));
        let near = neighbours.min_by_key(|(distance, _)| *distance);
        let start = seed.map(|seed| seed.1).or(near.map(|near| near.1));
        self.trackers.push(Tracker::new(rows, start));
        self.trackers.last_mut()
    }
}

fn default_decision(rows: u32) -> Decision {
    let exact = f64::from(rows) * DEFAULT_SHARE / f64::from(ROW_STEP);
    let gpu_rows = exact.round() as u32 * ROW_STEP;
    let kind = if gpu_rows == 0 || gpu_rows >= rows {
        Kind::Cpu
    } else {
        Kind::Split
    };
    Decision {
        rows,
        gpu_rows: if kind == Kind::Cpu { 0 } else { gpu_rows },
        kind,
        probe: None,
    }
}

/// Controllers of all shapes of a plan.
#[derive(Debug, Clone, Default)]
pub struct ShareTable {
    seeds: BTreeMap<Shape, Vec<Seed>>,
    shapes: BTreeMap<Shape, Controller>,
}

impl ShareTable {
    /// Controllers that start from a machine profile's seeds. Seeds of unknown types are passed over;
    /// [`Seeds::check`] says which.
    #[must_use]
    pub fn new(seeds: &Seeds) -> ShareTable {
        let mut table = ShareTable::default();
        for seed in &seeds.offload {
            if let Some(shape) = seed.shape() {
                table.seeds.entry(shape).or_default().push(seed.clone());
            }
        }
        table
    }

    /// The controller of a shape.
    pub fn of(&mut self, shape: Shape) -> &mut Controller {
        let seeds = &self.seeds;
        self.shapes
            .entry(shape)
            .or_insert_with(|| Controller::new(seeds.get(&shape).into_iter().flatten()))
    }

    /// Every shape that was asked about.
    pub fn shapes(&self) -> impl Iterator<Item = (&Shape, &Controller)> {
        self.shapes.iter()
    }

    /// What a machine profile keeps.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        Seeds {
            offload: self
                .shapes
                .iter()
                .flat_map(|(shape, controller)| controller.seeds(*shape))
                .collect(),
        }
    }

    /// The sum over all shapes.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for controller in self.shapes.values() {
            let part = controller.counters;
            for (total, steps) in sum.steps.iter_mut().zip(part.steps) {
                *total += steps;
            }
            sum.probes += part.probes;
            sum.failed_probes += part.failed_probes;
            sum.freezes += part.freezes;
            sum.nudges += part.nudges;
            sum.reopens += part.reopens;
            sum.outliers += part.outliers;
            sum.rejected += part.rejected;
            sum.untracked += part.untracked;
        }
        sum
    }
}
