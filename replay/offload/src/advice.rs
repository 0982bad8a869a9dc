//! What measured walls say about a whole plan: which exec mode, which share for each form of step, and how
//! sure that is.
//!
//! Pure arithmetic over repeated timings; whoever times says on what. The result goes into reports and, as
//! seeds, into a machine profile. It pins nothing: a share is pinned by the user alone.

use serde::Serialize;
use thiserror::Error;

use crate::share::{Kind, ROW_STEP, Seed, Seeds, Shape};

/// Walls of one form of step, run one way, again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// The form.
    pub shape: Shape,
    /// Its rows.
    pub rows: u32,
    /// Who computed.
    pub kind: Kind,
    /// Rows of the GPU: all, none, or between.
    pub gpu_rows: u32,
    /// Walls in nanoseconds, copies and joins included, one per repeat.
    pub walls_ns: Vec<u64>,
}

/// A form of step and how often a token runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The form.
    pub shape: Shape,
    /// Its rows.
    pub rows: u32,
    /// Steps of a token.
    pub per_token: u32,
}

/// Quartiles of repeated walls, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// A quarter of the repeats took at most this.
    pub low_ns: u64,
    /// Half of them.
    pub median_ns: u64,
    /// Three quarters.
    pub high_ns: u64,
    /// Repeats.
    pub repeats: usize,
}

impl Spread {
    /// Quartiles of at least one wall, by nearest rank.
    fn of(walls: &[u64]) -> Option<Spread> {
        let mut sorted = walls.to_vec();
        sorted.sort_unstable();
        let rank = |quarters: usize| {
            sorted
                .get((sorted.len() * quarters).div_ceil(4).max(1) - 1)
                .copied()
        };
        Some(Spread {
            low_ns: rank(1)?,
            median_ns: rank(2)?,
            high_ns: rank(3)?,
            repeats: sorted.len(),
        })
    }

    /// Distance of the quartiles as a part of the median.
    #[must_use]
    pub fn relative(&self) -> f64 {
        (self.high_ns - self.low_ns) as f64 / (self.median_ns.max(1)) as f64
    }
}

/// One way to run a form of step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Way {
    /// Who computes.
    pub kind: Kind,
    /// Rows of the GPU.
    pub gpu_rows: u32,
    /// Its walls.
    pub wall: Spread,
}

/// What is best for one form of step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepAdvice {
    /// Name of the weights' type.
    pub dtype: &'static str,
    /// Elements of a row.
    pub k: u32,
    /// Form of the step.
    pub form: &'static str,
    /// Rows.
    pub rows: u32,
    /// Steps of a token.
    pub per_token: u32,
    /// The fastest way.
    pub best: Way,
    /// The GPU's share in the fastest split, if a split was measured.
    pub share: Option<f64>,
    /// The fastest way of each kind that was measured.
    pub kinds: Vec<Way>,
    /// Whether three quarters of the best way's repeats were faster than three quarters of those of every
    /// other kind.
    pub clear: bool,
    #[serde(skip)]
    shape: Shape,
}

/// Sum of all steps of a token in one exec mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModeAdvice {
    /// The mode.
    pub mode: Kind,
    /// Sum of medians and quartiles in nanoseconds; quartiles of a sum lie within these.
    pub token: Spread,
}

/// What is best for a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The mode with the least sum.
    pub mode: Kind,
    /// Every mode that was measured for all steps, fastest first.
    pub modes: Vec<ModeAdvice>,
    /// Sum if every step ran its own best way, as the share controller lets it.
    pub auto_ns: u64,
    /// Whether the quartiles of the best mode lie below those of all others.
    pub clear: bool,
    /// One entry a form of step.
    pub steps: Vec<StepAdvice>,
}

/// Why timings give no advice.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdviceError {
    /// No step to advise on.
    #[error("the plan has no step whose rows could be shared; spill layers first (--gpu-layers)")]
    Nothing,
    /// A form of step without any timing.
    #[error("{shape} with {rows} rows was not timed in any way; time every form of the plan")]
    Untimed {
        /// The form.
        shape: Shape,
        /// Its rows.
        rows: u32,
    },
    /// No mode was timed for every form.
    #[error(
        "no exec mode was timed for every form of step; time pcie, cpu or passback for all of them"
    )]
    NoMode,
    /// A timing that no executor takes.
    #[error(
        "timing {index}: {kind} with {gpu_rows} of {rows} rows on the GPU and {repeats} repeats is not a \
         way to run a step; {rule}"
    )]
    Impossible {
        /// Index of the timing.
        index: usize,
        /// Its kind.
        kind: Kind,
        /// Its rows of the GPU.
        gpu_rows: u32,
        /// Its rows.
        rows: u32,
        /// Its repeats.
        repeats: usize,
        /// What it has to be.
        rule: &'static str,
    },
}

/// Advice for the steps of a plan from timings of their forms. Several splits of one form may be timed:
/// the fastest counts.
///
/// # Errors
/// [`AdviceError`] if timings are missing or impossible.
pub fn advise(steps: &[Occurrence], timings: &[Timing]) -> Result<Advice, AdviceError> {
    if steps.is_empty() {
        return Err(AdviceError::Nothing);
    }
    for (index, timing) in timings.iter().enumerate() {
        check(index, timing)?;
    }
    let advised = steps
        .iter()
        .map(|step| advise_step(step, timings))
        .collect::<Result<Vec<_>, _>>()?;
    let mut modes: Vec<ModeAdvice> = Kind::ALL
        .iter()
        .filter_map(|mode| mode_sum(*mode, &advised))
        .collect();
    modes.sort_by_key(|mode| mode.token.median_ns);
    let best = *modes.first().ok_or(AdviceError::NoMode)?;
    let clear = modes
        .iter()
        .skip(1)
        .all(|other| best.token.high_ns < other.token.low_ns);
    Ok(Advice {
        mode: best.mode,
        auto_ns: advised.iter().fold(0, |sum: u64, step| {
            sum.saturating_add(times(step.best.wall.median_ns, step.per_token))
        }),
        modes,
        clear,
        steps: advised,
    })
}

impl Advice {
    /// What a machine profile keeps: where controllers start, never where they stay.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        let offload = self.steps.iter().map(|step| {
            let wall = |kind| {
                let way = step.kinds.iter().find(|way| way.kind == kind)?;
                Some(way.wall.median_ns)
            };
            Seed {
                dtype: step.dtype.to_owned(),
                k: step.k,
                form: step.shape.form,
                rows: step.rows,
                kind: step.best.kind,
                share: step.share.unwrap_or(match step.best.kind {
                    Kind::Pcie => 1.0,
                    Kind::Cpu | Kind::Split => 0.0,
                }),
                pcie_ns: wall(Kind::Pcie),
                cpu_ns: wall(Kind::Cpu),
                split_ns: wall(Kind::Split),
                spread: step.best.wall.relative(),
            }
        });
        Seeds {
            offload: offload.collect(),
        }
    }
}

fn check(index: usize, timing: &Timing) -> Result<(), AdviceError> {
    let fits = match timing.kind {
        Kind::Pcie => timing.gpu_rows == timing.rows,
        Kind::Cpu => timing.gpu_rows == 0,
        Kind::Split => {
            timing.gpu_rows > 0
                && timing.gpu_rows < timing.rows
                && timing.gpu_rows.is_multiple_of(ROW_STEP)
        }
    };
    let rule = match (fits, timing.walls_ns.is_empty()) {
        (true, false) => return Ok(()),
        (true, true) => "time it at least once",
        (false, _) => "pcie has all rows, cpu none, passback a multiple of 16 between",
    };
    Err(AdviceError::Impossible {
        index,
        kind: timing.kind,
        gpu_rows: timing.gpu_rows,
        rows: timing.rows,
        repeats: timing.walls_ns.len(),
        rule,
    })
}

fn advise_step(step: &Occurrence, timings: &[Timing]) -> Result<StepAdvice, AdviceError> {
    let fastest = |kind: Kind| {
        timings
            .iter()
            .filter(|timing| {
                timing.shape == step.shape && timing.rows == step.rows && timing.kind == kind
            })
            .filter_map(|timing| {
                Some(Way {
                    kind,
                    gpu_rows: timing.gpu_rows,
                    wall: Spread::of(&timing.walls_ns)?,
                })
            })
            .min_by_key(|way| way.wall.median_ns)
    };
    let kinds: Vec<Way> = Kind::ALL.iter().filter_map(|kind| fastest(*kind)).collect();
    let best = kinds.iter().min_by_key(|way| way.wall.median_ns);
    let best = *best.ok_or(AdviceError::Untimed {
        shape: step.shape,
        rows: step.rows,
    })?;
    let split = kinds.iter().find(|way| way.kind == Kind::Split);
    let clear = kinds
        .iter()
        .filter(|way| way.kind != best.kind)
        .all(|way| best.wall.high_ns < way.wall.low_ns);
    Ok(StepAdvice {
        dtype: step.shape.dtype.name(),
        k: step.shape.k,
        form: step.shape.form.name(),
        rows: step.rows,
        per_token: step.per_token,
        best,
        share: split.map(|way| f64::from(way.gpu_rows) / f64::from(step.rows)),
        clear,
        kinds,
        shape: step.shape,
    })
}

/// A mode's sum over all steps; `None` if a step was not timed so. In passback mode a step without a
/// split runs on the CPU.
fn mode_sum(mode: Kind, steps: &[StepAdvice]) -> Option<ModeAdvice> {
    let way =
        |step: &StepAdvice, kind: Kind| step.kinds.iter().find(|way| way.kind == kind).copied();
    if mode == Kind::Split && !steps.iter().any(|step| way(step, Kind::Split).is_some()) {
        return None;
    }
    let mut token = Spread {
        low_ns: 0,
        median_ns: 0,
        high_ns: 0,
        repeats: usize::MAX,
    };
    for step in steps {
        let chosen = way(step, mode).or_else(|| {
            (mode == Kind::Split)
                .then(|| way(step, Kind::Cpu))
                .flatten()
        })?;
        let add = |sum: &mut u64, ns| *sum = sum.saturating_add(times(ns, step.per_token));
        add(&mut token.low_ns, chosen.wall.low_ns);
        add(&mut token.median_ns, chosen.wall.median_ns);
        add(&mut token.high_ns, chosen.wall.high_ns);
        token.repeats = token.repeats.min(chosen.wall.repeats);
    }
    Some(ModeAdvice { mode, token })
}

fn times(ns: u64, count: u32) -> u64 {
    ns.saturating_mul(u64::from(count))
}
