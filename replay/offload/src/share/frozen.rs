//! A tracker that has decided: what it watches, when it looks at the other kinds, and what makes it
//! move or open again.
//!
//! Everything here needs confirmation, because a frozen choice under noise must stay where it is.

use super::shape::Kind;
use super::stats::{Mean, Smooth};

/// Weight of one sample while frozen: noise of 10 % moves the smoothed share by about 0.003.
const WATCH: f64 = 1.0 / 32.0;

/// A smoothed share this far from the applied one, [`CONFIRM`] times in a row, is followed.
const NUDGE: f64 = 0.016;

/// Beyond this it is another machine, and everything is measured again.
const JUMP: f64 = 0.06;

/// Relative change of the wall that reopens, beyond what the reference itself is uncertain by.
const WALL_CHANGE: f64 = 0.06;

/// Consecutive steps that must agree.
const CONFIRM: u8 = 3;

/// Steps between two looks at a kind that is not used: at least; at most; and such that a look at a
/// kind which is r times slower costs 1 % of the time.
const REFRESH: (u32, u32) = (64, 4096);

/// A look that is this much faster than the kind in use starts a trial.
const HINT: f64 = 0.97;

/// Looks of a trial, every second step.
const TRIAL: u32 = 12;

/// Relative change of an arm's time, beyond four standard deviations, that counts as a change.
const ARMS_CHANGE: f64 = 0.25;

/// What a trial must gain beyond four standard errors.
const GAIN: f64 = 0.03;

/// What a sample does to a frozen tracker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// Nothing to do, as far as this was looked at.
    Stay,
    /// Nothing to do, and nothing else to look at.
    Kept,
    /// Both arms end together at another share, not far away.
    Nudge(f64),
    Reopen,
}

impl Verdict {
    /// This verdict, unless it is to stay: then the other.
    pub(super) fn or(self, other: impl FnOnce() -> Verdict) -> Verdict {
        match self {
            Verdict::Stay => other(),
            verdict => verdict,
        }
    }
}

/// The choice in use and what is watched about it.
#[derive(Debug, Clone)]
pub(super) struct Frozen {
    pub(super) kind: Kind,
    /// Share at which `kind` runs; only for splits.
    pub(super) share: f64,
    reference: Mean,
    /// Relative standard deviation of a wall.
    noise: f64,
    wall: Smooth,
    implied: Smooth,
    share_hits: u8,
    wall_hits: u8,
    age: u32,
    /// Age at which each kind is looked at; the kind in use itself means: whether its GPU arm has slack.
    due: [u32; 3],
    trial: Option<(Kind, Mean)>,
    slack_hits: u8,
    arm_hits: u8,
}

impl Frozen {
    /// Freezes `kind`; `reference` holds its walls, `looks` says which kinds are worth a look now and then.
    pub(super) fn new(
        kind: Kind,
        share: f64,
        reference: Mean,
        noise: f64,
        looks: [bool; 3],
    ) -> Frozen {
        Frozen {
            kind,
            share,
            reference,
            noise,
            wall: Smooth::new(reference.mean, WATCH),
            implied: Smooth::new(share, WATCH),
            share_hits: 0,
            wall_hits: 0,
            age: 0,
            due: looks.map(|look| if look { REFRESH.0 } else { u32::MAX }),
            trial: None,
            slack_hits: 0,
            arm_hits: 0,
        }
    }

    /// The kind to look at in this step, if it is time.
    pub(super) fn look(&self) -> Option<Kind> {
        if let Some((kind, _)) = self.trial {
            return self.age.is_multiple_of(2).then_some(kind);
        }
        let kinds = Kind::ALL.iter().copied();
        kinds
            .filter(|kind| self.due[*kind as usize] <= self.age)
            .min_by_key(|kind| self.due[*kind as usize])
    }

    /// Takes in a step of the kind in use. `implied` is the share at which its arms would have ended
    /// together, and that value's standard deviation.
    pub(super) fn observe(&mut self, wall: f64, implied: Option<(f64, f64)>) -> Verdict {
        self.age = self.age.saturating_add(1);
        if self.reference.count < 32 {
            self.reference.push(wall);
        }
        // One sample is bounded, so that a single hiccup does not move the mean by a percent.
        let mean = self.reference.mean;
        self.wall.push(wall.clamp(0.25 * mean, 2.0 * mean));
        let unsure = 3.0 * self.noise / f64::from(self.reference.count.max(1)).sqrt();
        let change = (self.wall.value / mean - 1.0).abs();
        self.wall_hits = confirm(self.wall_hits, change > WALL_CHANGE + unsure);
        if self.wall_hits >= CONFIRM {
            return Verdict::Reopen;
        }
        if let Some((implied, deviation)) = implied {
            self.implied.push(implied);
            let off = (self.implied.value - self.share).abs();
            // Smoothing divides the deviation by 8, this is eight times that; where both arms hardly depend on the share, noise
            // implies anything.
            let nudge = NUDGE.max(deviation);
            self.share_hits = confirm(self.share_hits, off > nudge);
            if off > JUMP.max(2.0 * nudge) {
                return Verdict::Reopen;
            }
            if self.share_hits >= CONFIRM {
                return Verdict::Nudge(self.implied.value);
            }
        }
        Verdict::Stay
    }

    /// Moves the share in use; what is watched about it starts from there.
    pub(super) fn nudge(&mut self, share: f64) {
        self.share = share;
        self.share_hits = 0;
    }

    /// Takes in a look at another kind, or that it failed.
    pub(super) fn looked(&mut self, kind: Kind, wall: Option<f64>) -> Verdict {
        self.age = self.age.saturating_add(1);
        let mean = self.reference.mean;
        let Some(wall) = wall else {
            self.look_again(kind, REFRESH.1);
            return Verdict::Stay;
        };
        if let Some((_, trial)) = &mut self.trial {
            trial.push(wall);
            if trial.count == TRIAL {
                let samples = f64::from(self.reference.count.max(1));
                let error = self.noise * (1.0 / f64::from(TRIAL) + 1.0 / samples).sqrt();
                if trial.mean < mean * (1.0 - GAIN - 4.0 * error) {
                    return Verdict::Reopen;
                }
                self.look_again(kind, REFRESH.0);
            }
        } else if wall < HINT * mean {
            self.trial = Some((kind, Mean::default()));
        } else {
            let slower = (wall / mean - 1.0).max(0.0) * 100.0;
            self.look_again(kind, slower.min(f64::from(REFRESH.1)) as u32);
        }
        Verdict::Stay
    }

    /// Takes in a look with more rows on the GPU, in which it was still not waited for or was. Twice in a
    /// row is slack: both arms no longer end together.
    pub(super) fn looked_for_slack(&mut self, slack: bool) -> Verdict {
        self.age = self.age.saturating_add(1);
        self.slack_hits = confirm(self.slack_hits, slack);
        if self.slack_hits >= 2 {
            return Verdict::Reopen;
        }
        if !slack {
            self.look_again(self.kind, REFRESH.0);
        }
        Verdict::Stay
    }

    /// A look at a split says how fast both arms are, for little: the kind in use may be all of one arm
    /// only because the other was slow. `off` is how far an arm is from what it took before, relative;
    /// far off twice in a row reopens, and the second look follows soon.
    pub(super) fn looked_at_arms(&mut self, off: Option<f64>) -> Verdict {
        let Some(off) = off else {
            return Verdict::Stay;
        };
        self.arm_hits = confirm(self.arm_hits, off > ARMS_CHANGE + 4.0 * self.noise);
        match self.arm_hits {
            0 => Verdict::Stay,
            1 => {
                self.age = self.age.saturating_add(1);
                self.due[Kind::Split as usize] = self.age.saturating_add(1);
                Verdict::Kept
            }
            _ => Verdict::Reopen,
        }
    }

    fn look_again(&mut self, kind: Kind, steps: u32) {
        self.trial = None;
        let steps = steps.clamp(REFRESH.0, REFRESH.1);
        // The last value means never.
        self.due[kind as usize] = self.age.saturating_add(steps).min(u32::MAX - 1);
    }
}

fn confirm(hits: u8, hit: bool) -> u8 {
    if hit { hits.saturating_add(1) } else { 0 }
}
