//! The stationarity gate: when a series of rows has settled, and whether measured rows still belong
//! to what was settled. Pure; the rows come from the runner.
//!
//! A row is one timed run of several tokens, its value the time per token. The last `window` rows
//! must have little slope and spread; then `confirm` further rows must have as little, and a median
//! near the window's. Rows that do not confirm are settling rows like any other. At `cap` rows the
//! arm is not stationary. Measured rows must satisfy the same limits against the confirmed median.

use super::stats::{drift, median, slope, spread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Rows that are looked at together.
    pub window: usize,
    /// Rows before the first look.
    pub min_rows: usize,
    /// Rows that must confirm.
    pub confirm: usize,
    /// Most settling rows.
    pub cap: usize,
    /// Largest slope, share of the median per row.
    pub slope: f64,
    /// Largest spread, share of the median.
    pub spread: f64,
    /// Largest distance of medians, share of the earlier one.
    pub drift: f64,
}

impl Default for Limits {
    /// Slope 0.05 % a row, spread 1 %, drift 0.5 %: what the public product benchmark of this field
    /// uses, so that figures can be set side by side.
    fn default() -> Self {
        Self {
            window: 10,
            min_rows: 10,
            confirm: 10,
            cap: 120,
            slope: 0.0005,
            spread: 0.01,
            drift: 0.005,
        }
    }
}

/// A limit that a series breaks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum Unsettled {
    /// Rises or falls.
    Slope {
        /// Found, share per row.
        found: f64,
        /// Allowed.
        allowed: f64,
    },
    /// Scatters.
    Spread {
        /// Found, share.
        found: f64,
        /// Allowed.
        allowed: f64,
    },
    /// Moved since it had settled.
    Drift {
        /// Found, share.
        found: f64,
        /// Allowed.
        allowed: f64,
    },
    /// Too few rows to say, or rows without a positive time.
    TooFew {
        /// Rows there are.
        found: usize,
        /// Rows needed.
        needed: usize,
    },
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            Self::Slope { found, allowed } => write!(
                f,
                "slope {:+.3} % a row, allowed {:.3} %",
                percent(found),
                percent(allowed)
            ),
            Self::Spread { found, allowed } => write!(
                f,
                "spread {:.2} %, allowed {:.2} %",
                percent(found),
                percent(allowed)
            ),
            Self::Drift { found, allowed } => write!(
                f,
                "median moved by {:.2} %, allowed {:.2} %",
                percent(found),
                percent(allowed)
            ),
            Self::TooFew { found, needed } => write!(f, "{found} rows, {needed} needed"),
        }
    }
}

/// Whether rows by themselves neither drift nor scatter.
fn steady(rows: &[f64], limits: &Limits) -> Result<(), Unsettled> {
    let (Some(rise), Some(scatter)) = (slope(rows), spread(rows)) else {
        let found = rows.len();
        return Err(Unsettled::TooFew {
            found,
            needed: limits.window,
        });
    };
    if scatter > limits.spread {
        return Err(Unsettled::Spread {
            found: scatter,
            allowed: limits.spread,
        });
    }
    if rise.abs() > limits.slope {
        return Err(Unsettled::Slope {
            found: rise,
            allowed: limits.slope,
        });
    }
    Ok(())
}

fn near(first: &[f64], second: &[f64], limits: &Limits) -> Result<(), Unsettled> {
    match drift(first, second) {
        Some(found) if found <= limits.drift => Ok(()),
        found => Err(Unsettled::Drift {
            found: found.unwrap_or(f64::INFINITY),
            allowed: limits.drift,
        }),
    }
}

/// What the gate says after a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Phase {
    /// More rows are needed.
    Settling,
    /// A window was steady; its confirmation runs.
    Confirming {
        /// Confirming rows so far.
        rows: usize,
    },
    /// Settled: measure.
    Settled,
    /// The cap is reached.
    NotStationary(Unsettled),
}

/// The gate of one arm, fed row by row.
#[derive(Debug, Clone)]
pub struct Gate {
    limits: Limits,
    rows: Vec<f64>,
    /// First row of the confirmation that runs.
    confirming: Option<usize>,
    phase: Phase,
    why: Unsettled,
}

impl Gate {
    /// A gate that has seen nothing.
    pub fn new(limits: Limits) -> Self {
        let why = Unsettled::TooFew {
            found: 0,
            needed: limits.min_rows.max(limits.window),
        };
        Self {
            limits,
            rows: Vec::new(),
            confirming: None,
            phase: Phase::Settling,
            why,
        }
    }

    /// Where the gate stands.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Rows seen.
    pub fn rows(&self) -> &[f64] {
        &self.rows
    }

    /// Adds a row. Once settled, or once the cap is reached, rows change nothing.
    pub fn push(&mut self, value: f64) -> Phase {
        if matches!(self.phase, Phase::Settled | Phase::NotStationary(_)) {
            return self.phase;
        }
        self.rows.push(value);
        self.phase = self.look();
        if self.phase != Phase::Settled && self.rows.len() >= self.limits.cap {
            self.phase = Phase::NotStationary(self.why);
        }
        self.phase
    }

    fn look(&mut self) -> Phase {
        let (limits, count) = (self.limits, self.rows.len());
        if let Some(start) = self.confirming {
            let rows = count - start;
            if rows < limits.confirm {
                return Phase::Confirming { rows };
            }
            let (before, confirming) = self.rows.split_at(start);
            let window = before.get(before.len().saturating_sub(limits.window)..);
            let confirmed = steady(confirming, &limits)
                .and_then(|()| near(window.unwrap_or(&[]), confirming, &limits));
            match confirmed {
                Ok(()) => return Phase::Settled,
                Err(why) => self.why = why,
            }
            self.confirming = None;
        }
        let window = count
            .checked_sub(limits.window.max(1))
            .filter(|_| count >= limits.min_rows);
        let Some(window) = window.and_then(|start| self.rows.get(start..)) else {
            self.why = Unsettled::TooFew {
                found: count,
                needed: limits.min_rows.max(limits.window),
            };
            return Phase::Settling;
        };
        match steady(window, &limits) {
            Ok(()) if limits.confirm == 0 => Phase::Settled,
            Ok(()) => {
                self.confirming = Some(count);
                Phase::Confirming { rows: 0 }
            }
            Err(why) => {
                self.why = why;
                Phase::Settling
            }
        }
    }

    /// Median of the confirming rows; of the window, where nothing had to confirm.
    pub fn settled_median(&self) -> Option<f64> {
        let last = match self.limits.confirm {
            0 => self.limits.window,
            confirm => confirm,
        };
        let start = self.rows.len().checked_sub(last)?;
        let rows = (self.phase == Phase::Settled).then(|| self.rows.get(start..))?;
        median(rows?)
    }

    /// Judges the measured rows of a settled arm.
    ///
    /// # Errors
    /// The limit that they break.
    pub fn measured(&self, rows: &[f64]) -> Result<(), Unsettled> {
        if let Phase::NotStationary(why) = self.phase {
            return Err(why);
        }
        let Some(settled) = self.settled_median() else {
            return Err(self.why);
        };
        steady(rows, &self.limits)?;
        near(&[settled], rows, &self.limits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stats::Seeded;
    use super::{Gate, Limits, Phase, Unsettled};
    use proptest::prelude::proptest;

    /// Rows of 1000 µs with a noise of at most 0.2 %.
    fn noisy(seed: u64) -> impl FnMut() -> f64 {
        let mut random = Seeded::new(seed);
        move || 1000.0 + (random.below(401) as f64 - 200.0) / 100.0
    }

    fn run(mut row: impl FnMut(usize) -> f64) -> Gate {
        let mut gate = Gate::new(Limits::default());
        for index in 0..Limits::default().cap {
            gate.push(row(index));
        }
        gate
    }

    fn clean(_: usize, noise: f64) -> f64 {
        noise
    }
    /// 0.1 % a row upwards: twice the limit.
    fn drifting(index: usize, noise: f64) -> f64 {
        noise + index as f64
    }
    /// A step of 2 % every fifteen rows, up and down.
    fn stepping(index: usize, noise: f64) -> f64 {
        noise + if index / 15 % 2 == 0 { 0.0 } else { 20.0 }
    }
    /// Two modes 3 % apart, by turns of three.
    fn bimodal(index: usize, noise: f64) -> f64 {
        noise + if index % 6 < 3 { 0.0 } else { 30.0 }
    }
    /// One row of ten is 5 % slower.
    fn outliers(index: usize, noise: f64) -> f64 {
        noise + if index % 10 == 4 { 50.0 } else { 0.0 }
    }
    /// Warms up for thirty rows, then stays.
    fn warming(index: usize, noise: f64) -> f64 {
        noise + 100.0 * (1.0 - (index as f64 / 30.0).min(1.0))
    }
    /// One slow row at the start.
    fn one_outlier(index: usize, noise: f64) -> f64 {
        noise + if index == 3 { 300.0 } else { 0.0 }
    }

    type Series = fn(usize, f64) -> f64;

    #[test]
    fn synthetic_series_are_judged_as_they_are() {
        let rows: [(&str, Series, Option<usize>); 7] = [
            ("clean", clean, Some(20)),
            ("drift", drifting, None),
            ("step", stepping, None),
            ("bimodal", bimodal, None),
            ("outliers", outliers, None),
            ("warm-up", warming, Some(60)),
            ("one outlier", one_outlier, Some(24)),
        ];
        for (name, series, settles) in rows {
            for seed in 0..8 {
                let mut noise = noisy(seed);
                let gate = run(|index| series(index, noise()));
                match (settles, gate.phase()) {
                    (Some(most), Phase::Settled) => {
                        assert!(
                            gate.rows().len() <= most,
                            "{name}: {} rows",
                            gate.rows().len()
                        );
                    }
                    (None, Phase::NotStationary(_)) => assert_eq!(gate.rows().len(), 120, "{name}"),
                    (_, phase) => panic!("{name}, seed {seed}: {phase:?}"),
                }
            }
        }
    }

    #[test]
    fn the_broken_limit_is_named() {
        let reason = |series: Series| match run(|index| series(index, 1000.0)).phase() {
            Phase::NotStationary(why) => why,
            phase => panic!("{phase:?}"),
        };
        assert!(matches!(reason(drifting), Unsettled::Slope { .. }));
        assert!(matches!(reason(bimodal), Unsettled::Spread { .. }));
        assert!(matches!(reason(outliers), Unsettled::Spread { .. }));
        assert!(matches!(
            run(|_| 0.0).phase(),
            Phase::NotStationary(Unsettled::TooFew { .. })
        ));
        let text = reason(drifting).to_string();
        assert!(
            text.starts_with("slope +0.0") && text.ends_with("allowed 0.050 %"),
            "{text}"
        );
    }

    /// A step of 0.6 % exactly between window and confirmation: neither part shows it by itself.
    #[test]
    fn a_step_before_the_confirmation_is_drift() {
        let mut gate = Gate::new(Limits {
            cap: 20,
            ..Limits::default()
        });
        for index in 0..20 {
            gate.push(if index < 10 { 1000.0 } else { 1006.0 });
        }
        let Phase::NotStationary(Unsettled::Drift { found, allowed }) = gate.phase() else {
            panic!("{:?}", gate.phase())
        };
        assert!((found - 0.006).abs() < 1e-9 && (allowed - 0.005).abs() < 1e-12);
    }

    #[test]
    fn measured_rows_are_held_to_what_was_confirmed() {
        let gate = run(|_| 1000.0);
        assert_eq!(gate.phase(), Phase::Settled);
        assert_eq!(gate.settled_median(), Some(1000.0));
        assert_eq!(gate.measured(&[1000.0; 10]), Ok(()));
        let drifted = gate.measured(&[1006.0; 10]);
        assert!(matches!(drifted, Err(Unsettled::Drift { .. })));
        let rising: Vec<f64> = (0..10).map(|row| 1000.0 + f64::from(row)).collect();
        assert!(matches!(
            gate.measured(&rising),
            Err(Unsettled::Slope { .. })
        ));
        let mut slow = vec![1000.0; 10];
        slow[9] = 1020.0;
        assert!(matches!(
            gate.measured(&slow),
            Err(Unsettled::Spread { .. })
        ));
        let unsettled = Gate::new(Limits::default());
        assert!(unsettled.measured(&[1000.0; 10]).is_err());
    }

    #[test]
    fn a_failed_confirmation_is_settling_again() {
        let mut gate = Gate::new(Limits::default());
        for index in 0..10 {
            let phase = gate.push(1000.0);
            let expected = if index < 9 {
                Phase::Settling
            } else {
                Phase::Confirming { rows: 0 }
            };
            assert_eq!(phase, expected);
        }
        for row in 1..10 {
            assert_eq!(gate.push(1050.0), Phase::Confirming { rows: row });
        }
        // The confirming rows are steady by themselves, so they are the next window.
        assert_eq!(gate.push(1050.0), Phase::Confirming { rows: 0 });
        for _ in 0..10 {
            gate.push(1050.0);
        }
        assert_eq!(gate.phase(), Phase::Settled);
    }

    proptest! {
        #[test]
        fn nothing_settles_before_window_and_confirmation(seed: u64) {
            let mut noise = noisy(seed);
            let limits = Limits::default();
            let mut gate = Gate::new(limits);
            for _ in 0..limits.window + limits.confirm - 1 {
                assert_ne!(gate.push(noise()), Phase::Settled);
            }
        }

        #[test]
        fn any_series_ends_at_the_cap(values in proptest::collection::vec(0.0f64..2.0, 120)) {
            let gate = run(|index| values[index]);
            assert!(matches!(gate.phase(), Phase::Settled | Phase::NotStationary(_)));
        }
    }
}
