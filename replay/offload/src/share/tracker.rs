//! One number of rows of a shape: measures, finds the balance of both arms, compares the three kinds.
//!
//! Times of an arm in a split step are taken as a line over its part of the rows: an intercept (launch,
//! wake-up) and a slope (inverse rate while both run). Where the lines meet both arms end together; with
//! no intercepts that is `r_gpu / (r_gpu + r_cpu)`. Recent samples count most, and they are taken near the
//! meeting point, so a rate that depends on the other arm is the one that holds there.

use super::frozen::{Frozen, Verdict};
use super::shape::{DEFAULT_SHARE, Decision, Kind, Probe, ROW_STEP, Sample};
use super::stats::{JoinFloor, Line, Mean};

/// Steps after which an exploration ends with what it knows.
const EXPLORE_STEPS: u32 = 60;

/// Samples of each kind before they are compared: the first time, and when opened again.
const SEED_SAMPLES: (u32, u32) = (3, 2);

/// A kind is given up after so many failed probes in one exploration.
const FAILURES: u8 = 3;

/// Most samples of one kind while comparing.
const COMPARE_SAMPLES: u32 = 28;

/// Standard errors apart at which two kinds count as different.
const APART: f64 = 3.0;

/// A balance that moves less than this is settled.
const SETTLED: f64 = 0.01;

/// Standard error of the share that is good enough to freeze.
const SHARE_ERROR: f64 = 0.004;

/// Walls of splits further apart than this are not averaged.
const NEAR: f64 = 0.03;

/// Most that a share moves in one step.
const BOUND: f64 = 0.3;

/// What a sample changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    None,
    Froze,
    Nudged,
    Reopened,
    Outlier,
}

#[derive(Debug, Clone)]
enum State {
    Explore { steps: u32, again: bool },
    Frozen(Frozen),
}

/// Everything known about one number of rows.
#[derive(Debug, Clone)]
pub(super) struct Tracker {
    pub(super) rows: u32,
    state: State,
    gpu: Line,
    cpu: Line,
    walls: [Mean; 3],
    /// What splits take beside the longer arm: copies and join.
    beside: Mean,
    failures: [u8; 3],
    /// Rows per nanosecond of each arm alone; zero if unknown.
    alone: [f64; 2],
    /// Share at which both arms end together, as far as known.
    position: Option<f64>,
    /// Share at which the averaged split walls began.
    anchor: f64,
    /// Split samples of this exploration, and how many of the last found the balance unmoved.
    splits: u32,
    settled: u32,
    floor: JoinFloor,
    /// The device gives no times: GPU arms are told from joins.
    untimed: bool,
    /// Without device times: whether a GPU arm was waited for in this exploration.
    late_seen: bool,
    /// How much faster a GPU arm is taken to be that was not waited for, without a time of its own.
    push: f64,
}

impl Tracker {
    /// Knows nothing but where to start: a share to try first, from a seed or a neighbour.
    pub(super) fn new(rows: u32, start: Option<f64>) -> Tracker {
        Tracker {
            rows,
            state: State::Explore {
                steps: 0,
                again: start.is_some(),
            },
            gpu: Line::default(),
            cpu: Line::default(),
            walls: [Mean::default(); 3],
            beside: Mean::default(),
            failures: [0; 3],
            alone: [0.0; 2],
            position: start.filter(|share| share.is_finite()),
            anchor: -1.0,
            splits: 0,
            settled: 0,
            floor: JoinFloor::new(),
            untimed: false,
            late_seen: false,
            push: PUSH.0,
        }
    }

    /// How the next step runs.
    pub(super) fn plan(&self) -> Decision {
        let (kind, probe) = match &self.state {
            State::Frozen(frozen) => match frozen.look() {
                Some(kind) => (kind, Some(Probe::Refresh)),
                None => (frozen.kind, None),
            },
            State::Explore { again, .. } => self.explore(*again),
        };
        let share = match &self.state {
            State::Frozen(frozen) if probe.is_none() => frozen.share,
            State::Frozen(frozen) if kind == frozen.kind => frozen.share + SLACK,
            State::Explore { .. } if self.wants_floor() => 0.0,
            _ => self.start_share(),
        };
        Decision {
            rows: self.rows,
            gpu_rows: match kind {
                Kind::Pcie => self.rows,
                Kind::Cpu => 0,
                Kind::Split => self.snap(share),
            },
            kind,
            probe,
        }
    }

    /// Takes in how a planned step went.
    pub(super) fn observe(&mut self, decision: &Decision, sample: &Sample) -> Event {
        let wall = sample.wall_ns as f64;
        let waited = self.floor.excess(sample.join_ns) > 0;
        let off = self.arms_off(decision, sample);
        let implied = match decision.kind {
            Kind::Split if decision.probe == Some(Probe::Seed) && self.wants_floor() => {
                self.floor.push(sample.join_ns);
                return self.counted();
            }
            Kind::Split if !self.is_slack_look(decision) => self.take_split(decision, sample),
            Kind::Split => None,
            Kind::Pcie => {
                self.untimed = sample.gpu_ns.is_none();
                self.alone[0] = f64::from(self.rows) / wall;
                None
            }
            Kind::Cpu => {
                self.alone[1] = f64::from(self.rows) / (sample.cpu_ns.max(1) as f64);
                None
            }
        };
        match &mut self.state {
            State::Explore { steps, .. } => {
                *steps += 1;
                let kept = self.walls[decision.kind as usize].push(wall);
                match self.try_freeze() {
                    Event::None if !kept => Event::Outlier,
                    event => event,
                }
            }
            State::Frozen(frozen) => {
                let verdict = match decision.probe {
                    None if decision.kind == frozen.kind => frozen.observe(wall, implied),
                    None => Verdict::Stay,
                    Some(_) if decision.kind == frozen.kind => frozen.looked_for_slack(!waited),
                    Some(_) => {
                        let verdict = frozen.looked_at_arms(off);
                        verdict.or(|| frozen.looked(decision.kind, Some(wall)))
                    }
                };
                self.apply(verdict)
            }
        }
    }

    /// A probe gave no times.
    pub(super) fn failed(&mut self, kind: Kind) -> Event {
        match &mut self.state {
            State::Explore { .. } => {
                self.failures[kind as usize] = self.failures[kind as usize].saturating_add(1);
                self.counted()
            }
            State::Frozen(frozen) => {
                let verdict = frozen.looked(kind, None);
                self.apply(verdict)
            }
        }
    }

    /// The kind and share in use, once decided.
    pub(super) fn frozen(&self) -> Option<(Kind, f64)> {
        match &self.state {
            State::Frozen(frozen) => Some((frozen.kind, self.share_of(self.snap(frozen.share)))),
            State::Explore { .. } => None,
        }
    }

    /// Mean wall of a kind in nanoseconds in the newest exploration, and its spread.
    pub(super) fn wall(&self, kind: Kind) -> Option<(f64, f64)> {
        let mean = &self.walls[kind as usize];
        (mean.count > 0).then(|| (mean.mean, mean.spread()))
    }

    /// Share at which both arms are thought to end together.
    pub(super) fn balance(&self) -> Option<f64> {
        self.position
    }

    /// How far the arm that is farthest off is from what its line says, relative; for splits only.
    fn arms_off(&self, decision: &Decision, sample: &Sample) -> Option<f64> {
        if decision.kind != Kind::Split {
            return None;
        }
        let off = |fit: Option<(f64, f64)>, part: f64, ns: u64| {
            fit.map_or(0.0, |(base, slope)| {
                (ns as f64 / (base + slope * part) - 1.0).abs()
            })
        };
        let share = decision.share();
        let cpu = off(self.cpu.fit(), 1.0 - share, sample.cpu_ns);
        let gpu = sample
            .gpu_ns
            .map_or(0.0, |ns| off(self.gpu.fit(), share, ns));
        Some(cpu.max(gpu))
    }

    /// Without device times the first split has almost no GPU rows: its join is the floor.
    fn wants_floor(&self) -> bool {
        self.untimed && !self.floor.is_known()
    }

    fn is_slack_look(&self, decision: &Decision) -> bool {
        matches!(&self.state, State::Frozen(frozen)
            if decision.probe.is_some() && decision.kind == frozen.kind)
    }

    /// Counts a step of an exploration that only served something else.
    fn counted(&mut self) -> Event {
        if let State::Explore { steps, .. } = &mut self.state {
            *steps += 1;
        }
        self.try_freeze()
    }

    fn apply(&mut self, verdict: Verdict) -> Event {
        match verdict {
            Verdict::Stay | Verdict::Kept => Event::None,
            Verdict::Nudge(share) => {
                let target = self.snap(share);
                let rows = self.rows;
                if let State::Frozen(frozen) = &mut self.state {
                    let used = (frozen.share * f64::from(rows)).round() as u32;
                    let most =
                        ((NUDGE_BOUND * f64::from(rows)) as u32 / ROW_STEP).max(1) * ROW_STEP;
                    let moved = target.clamp(used.saturating_sub(most), used.saturating_add(most));
                    let share = f64::from(moved) / f64::from(rows.max(1));
                    frozen.nudge(share);
                    self.position = Some(share);
                }
                Event::Nudged
            }
            Verdict::Reopen => {
                self.state = State::Explore {
                    steps: 0,
                    again: true,
                };
                self.walls = [Mean::default(); 3];
                self.beside = Mean::default();
                self.failures = [0; 3];
                self.gpu.fade(0.1);
                self.cpu.fade(0.1);
                (self.splits, self.settled, self.push) = (0, 0, PUSH.0);
                self.late_seen = false;
                Event::Reopened
            }
        }
    }

    fn usable(&self, kind: Kind) -> bool {
        self.failures[kind as usize] < FAILURES && (kind != Kind::Split || self.rows > 2 * ROW_STEP)
    }

    /// The kind that an exploration tries next, and why.
    fn explore(&self, again: bool) -> (Kind, Option<Probe>) {
        let wanted = if again {
            SEED_SAMPLES.1
        } else {
            SEED_SAMPLES.0
        };
        let count = |kind: Kind| self.walls[kind as usize].count;
        let alone = [Kind::Pcie, Kind::Cpu].into_iter();
        let unknown = alone
            .filter(|kind| self.usable(*kind) && count(*kind) < wanted)
            .min_by_key(|kind| count(*kind));
        if let Some(kind) = unknown {
            return (kind, Some(Probe::Seed));
        }
        if self.usable(Kind::Split) {
            if self.splits < wanted {
                return (Kind::Split, Some(Probe::Seed));
            }
            if self.settled < 2 || count(Kind::Split) < SEED_SAMPLES.0 {
                return (Kind::Split, Some(Probe::Search));
            }
        }
        match self.contender() {
            Some(kind) => (kind, Some(Probe::Compare)),
            None => (self.best().unwrap_or(Kind::Split), None),
        }
    }

    /// The kind with the least wall.
    fn best(&self) -> Option<Kind> {
        let known = Kind::ALL.iter().copied();
        known
            .filter(|kind| self.usable(*kind) && self.walls[*kind as usize].count > 0)
            .min_by(|a, b| self.expected(*a).total_cmp(&self.expected(*b)))
    }

    /// Wall that a kind is expected to have. Splits were measured a little off the balance that they
    /// would run at, some to either side, each with a later wall than there; so theirs is what they took
    /// beside their arms, and the time at which both arms' means meet, later by what the noise of two
    /// arms adds to the mean of the later one.
    fn expected(&self, kind: Kind) -> f64 {
        let measured = self.walls[kind as usize].mean;
        if kind != Kind::Split || self.untimed {
            return measured;
        }
        match (self.meeting_point(), self.gpu.fit(), self.cpu.fit()) {
            (Some(share), Some(gpu), Some(cpu)) => {
                let share = self.share_of(self.snap(share));
                let arms = (gpu.0 + gpu.1 * share).max(cpu.0 + cpu.1 * (1.0 - share));
                (self.beside.mean + arms * (1.0 + LATER_OF_TWO * self.noise())).min(measured)
            }
            _ => measured,
        }
    }

    /// Relative standard deviation of a wall, pooled over the kinds.
    fn noise(&self) -> f64 {
        let (squares, freedom) = self
            .walls
            .iter()
            .map(Mean::relative_squares)
            .fold(PRIOR_NOISE, |sum, part| (sum.0 + part.0, sum.1 + part.1));
        (squares / f64::from(freedom)).max(0.0).sqrt()
    }

    /// What to sample so that the best kind is known apart from the others; `None` if it is.
    fn contender(&self) -> Option<Kind> {
        let best = self.best()?;
        let noise = self.noise();
        let reference = &self.walls[best as usize];
        let least = self.expected(best);
        let close = |kind: &Kind| {
            let wall = &self.walls[*kind as usize];
            if *kind == best || !self.usable(*kind) || wall.count == 0 {
                return false;
            }
            let error =
                noise * (1.0 / f64::from(wall.count) + 1.0 / f64::from(reference.count)).sqrt();
            self.expected(*kind) / least - 1.0 < APART * error
                && wall.count.min(reference.count) < COMPARE_SAMPLES
        };
        let close = Kind::ALL.iter().copied().filter(close);
        let least = close
            .map(|kind| (self.walls[kind as usize].count, kind))
            .min();
        match least {
            Some((count, kind)) if count <= reference.count => Some(kind),
            Some(_) => Some(best),
            None if best == Kind::Split && self.splits < self.splits_wanted(noise) => Some(best),
            None => None,
        }
    }

    /// Split samples until the share's standard error is small.
    fn splits_wanted(&self, noise: f64) -> u32 {
        let one = self.share_deviation(self.start_share(), noise);
        let wanted = (one / SHARE_ERROR).powi(2).ceil();
        wanted.clamp(f64::from(SEED_SAMPLES.0), 32.0) as u32
    }

    fn try_freeze(&mut self) -> Event {
        let State::Explore { steps, again } = self.state else {
            return Event::None;
        };
        if self.explore(again).1.is_some() && steps < EXPLORE_STEPS {
            return Event::None;
        }
        let kind = self.best().unwrap_or(Kind::Split);
        let looks = [Kind::Pcie, Kind::Cpu, Kind::Split].map(|other| {
            let other_kind = other != kind && self.usable(other);
            other_kind || (other == kind && kind == Kind::Split && self.untimed)
        });
        let share = self.share_of(self.snap(self.start_share()));
        self.position = Some(share);
        let reference = self.walls[kind as usize];
        self.state = State::Frozen(Frozen::new(kind, share, reference, self.noise(), looks));
        Event::Froze
    }

    /// Where a split starts or goes on: the balance, the closed form of the rates alone, or the default.
    fn start_share(&self) -> f64 {
        let [gpu, cpu] = self.alone;
        match self.position {
            Some(share) => share,
            None if gpu > 0.0 && cpu > 0.0 => gpu / (gpu + cpu),
            None => DEFAULT_SHARE,
        }
    }

    /// Takes in the times of both arms; returns the share at which this step's would have ended together
    /// and the standard deviation of that.
    fn take_split(&mut self, decision: &Decision, sample: &Sample) -> Option<(f64, f64)> {
        let share = decision.share();
        let (gpu, cpu) = self.arm_times(sample);
        let keep = if self.settled >= 2 { 31.0 / 32.0 } else { 0.7 };
        self.beside
            .push((sample.wall_ns as f64 - gpu.max(cpu)).max(0.0));
        self.gpu.push(share, gpu, keep);
        self.cpu.push(1.0 - share, cpu, keep);
        let found = self.meeting_point()?;
        if matches!(self.state, State::Explore { .. }) {
            if (share - self.anchor).abs() > NEAR {
                self.walls[Kind::Split as usize] = Mean::default();
                self.anchor = share;
            }
            let bounded = found.clamp(share - BOUND, share + BOUND).clamp(0.0, 1.0);
            // A move inside one step of rows cannot be made, so it does not count as one.
            let unmoved = SETTLED.max(f64::from(ROW_STEP) / f64::from(self.rows));
            let before = self.position.unwrap_or(share);
            let last = self.rows.saturating_sub(1) / ROW_STEP * ROW_STEP;
            let told = !self.untimed || self.late_seen || decision.gpu_rows >= last;
            self.settled = if told && (bounded - before).abs() <= unmoved {
                self.settled + 1
            } else if self.settled >= 2 {
                self.settled
            } else {
                0
            };
            self.splits += 1;
            self.position = Some(bounded);
        }
        let slopes = self.gpu.fit()?.1 + self.cpu.fit()?.1;
        let implied = (share - (gpu - cpu) / slopes)
            .clamp(share - IMPLIED_BOUND, share + IMPLIED_BOUND)
            .clamp(0.0, 1.0);
        Some((implied, self.share_deviation(share, self.noise())))
    }

    /// Standard deviation of the share that one split step implies: that of the difference of two noisy
    /// times, by how fast the difference changes with the share.
    fn share_deviation(&self, share: f64, noise: f64) -> f64 {
        let (Some(gpu), Some(cpu)) = (self.gpu.fit(), self.cpu.fit()) else {
            return 0.0;
        };
        let time = (gpu.0 + gpu.1 * share).max(cpu.0 + cpu.1 * (1.0 - share));
        noise * std::f64::consts::SQRT_2 * time / (gpu.1 + cpu.1)
    }

    /// Times of both arms. Without one of the GPU it is the CPU's and what the join took beyond its floor;
    /// a GPU that was not waited for is taken to be faster by a step that doubles while that lasts.
    fn arm_times(&mut self, sample: &Sample) -> (f64, f64) {
        let cpu = sample.cpu_ns.max(1) as f64;
        self.floor.push(sample.join_ns);
        if let Some(gpu) = sample.gpu_ns {
            return (gpu.max(1) as f64, cpu);
        }
        let excess = self.floor.excess(sample.join_ns);
        if excess > 0 {
            self.push = PUSH.0;
            self.late_seen = true;
            return (cpu + excess as f64, cpu);
        }
        let push = match &self.state {
            State::Explore { .. } => self.push,
            State::Frozen(_) => PUSH.0,
        };
        self.push = (self.push * 2.0).min(PUSH.1);
        (cpu * (1.0 - push), cpu)
    }

    /// Where the lines of both arms meet.
    fn meeting_point(&self) -> Option<f64> {
        let (base_gpu, slope_gpu) = self.gpu.fit()?;
        let (base_cpu, slope_cpu) = self.cpu.fit()?;
        let share = (base_cpu - base_gpu + slope_cpu) / (slope_gpu + slope_cpu);
        share.is_finite().then(|| share.clamp(0.0, 1.0))
    }

    /// Rows of the GPU for a share: a multiple of the row step that leaves rows to both; of the two
    /// neighbours the one whose slower arm is predicted to end first.
    fn snap(&self, share: f64) -> u32 {
        let last = (self.rows.saturating_sub(1) / ROW_STEP).max(1);
        let exact = share * f64::from(self.rows) / f64::from(ROW_STEP);
        let low = ((exact + 1e-6).floor().max(1.0) as u32).min(last);
        let high = (low + 1).min(last);
        let slower = |steps: u32| {
            let share = self.share_of(steps * ROW_STEP);
            match (self.gpu.fit(), self.cpu.fit()) {
                (Some(gpu), Some(cpu)) => {
                    (gpu.0 + gpu.1 * share).max(cpu.0 + cpu.1 * (1.0 - share))
                }
                _ => (f64::from(steps) - exact).abs(),
            }
        };
        // A share that is a multiple already, as one in use, stays.
        let steps = if exact <= f64::from(low) + 1e-6 || slower(low) <= slower(high) {
            low
        } else {
            high
        };
        (steps * ROW_STEP).min(self.rows)
    }

    fn share_of(&self, gpu_rows: u32) -> f64 {
        f64::from(gpu_rows) / f64::from(self.rows.max(1))
    }
}

/// What is believed about the noise beforehand, as three samples would say it: 5 %. A few samples that
/// happen to agree are no proof of a quiet machine.
const PRIOR_NOISE: (f64, u32) = (3.0 * 0.05 * 0.05, 3);

/// Mean of the later of two equal times above either's mean, in their standard deviations (normal: 0.56,
/// uniform: 0.58).
const LATER_OF_TWO: f64 = 0.57;

/// Farthest from the share in use that one step's arms are believed to have met.
const IMPLIED_BOUND: f64 = 0.1;

/// Most that a confirmed drift moves a share at once.
const NUDGE_BOUND: f64 = 0.02;

/// How much more than its share the GPU is given when looking whether it has slack.
const SLACK: f64 = 0.05;

/// First and last step of a push.
const PUSH: (f64, f64) = (0.05, 0.6);
