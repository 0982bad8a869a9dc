//! Proves a plan and its retained forms on the software GPU, and keeps what was checked as a file.
//!
//! | file | does |
//! |---|---|
//! | `subject` | one software GPU in strict mode with the plan on it |
//! | `seeds` | executes tokens at the positions under every seed; all routes agree, nothing is reported |
//! | `parity` | names the first difference of two states: step, buffer, element, ULP |
//! | `slack` | declared bytes against observed ones |
//! | `cut`, `judge`, `rerun` | leaves out each wait, invalidation and register write, and sees who notices |
//! | `proof`, `gate` | the proof file, and who may replay with which |
//!
//! A proof is evidence about packets and machine code as far as the software GPU models a card; it
//! says nothing about time, firmware, or the transcendental bits of a card.

mod cut;
mod gate;
mod judge;
mod omissions;
mod parity;
mod proof;
mod rerun;
mod seeds;
mod slack;
mod subject;

pub use gate::{Credentials, Standing, admit, presented};
pub use parity::Parting;
pub use proof::{
    Executed, Form, PROOF_BYTES_MAX, PROOF_SCHEMA, PROOF_TOOL, Proof, ProofError, Tally,
};
pub use slack::Slack;

use crate::lifecycle::{Poisoned, Stage, StageError, images};
use crate::open::OpenError;
use crate::refusal::{Code, Refusal};
use crate::replayer::ReplayError;
use crate::segments::SegmentError;
use refrain_kernels::Target;
use refrain_lower::Transport;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::plan::Exec;
use refrain_recorder::record::default_positions;
use refrain_recorder::{CodeObjects, EagerError, InstanceError, TensorSource};
use std::sync::Arc;
use std::time::{Duration, Instant};
use subject::{Case, Packets};

/// How a plan is proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProveOptions {
    /// Retained forms that are proved.
    pub transports: Vec<Transport>,
    /// Seeds 0 to this less one, at least 1.
    pub seeds: u64,
    /// Omissions of a PM4 form that are executed beside those that no judge placed; of an AQL form a quarter
    /// as many.
    pub sample: usize,
    /// Software GPUs that run at once; each has one thread.
    pub threads: usize,
}

impl Default for ProveOptions {
    fn default() -> Self {
        Self {
            transports: Transport::ALL.to_vec(),
            seeds: 8,
            sample: 64,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Why a plan has no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// No software GPU.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A proof runs on the software GPU only.
    #[error("a proof is made on the software GPU; this device or form is another")]
    NotSoft,
    /// Rows are divided by measurement, so that two runs may differ.
    #[error("the GPU's share of the rows is chosen by measurement; pin it, e.g. passback:0.5")]
    ShareNotPinned,
    /// Recording, reconciling or lowering failed.
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    /// Buffers or weights.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// Eager execution.
    #[error(transparent)]
    Eager(#[from] EagerError),
    /// Replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Replay of segments.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// Strict mode reported something.
    #[error("{route} at position {position}, seed {seed}: {count} reports, the first: {first}")]
    Reported {
        /// How tokens were executed.
        route: String,
        /// Position.
        position: u32,
        /// Seed.
        seed: u64,
        /// Reports.
        count: usize,
        /// The first.
        first: String,
    },
    /// Two routes, or two seeds, leave different bytes.
    #[error("{first} and {second} differ at position {position}, seed {seed}: {parting}")]
    Differs {
        /// One route.
        first: String,
        /// The other.
        second: String,
        /// Position.
        position: u32,
        /// Seed.
        seed: u64,
        /// Where.
        parting: Box<Parting>,
    },
    /// An omission that nobody noticed and nothing shows to change nothing.
    #[error("{transport}: without the {part} at {place} nothing differs and nothing is reported")]
    Uncaught {
        /// Form.
        transport: Transport,
        /// What was left out.
        part: &'static str,
        /// Where.
        place: String,
    },
    /// A judge and execution disagree about an omission.
    #[error("{transport}: without the {part} at {place}, {judge}, but execution shows: {shown}")]
    Disagree {
        /// Form.
        transport: Transport,
        /// What was left out.
        part: &'static str,
        /// Where.
        place: String,
        /// What the judge said.
        judge: String,
        /// What execution showed.
        shown: String,
    },
}

impl ProveError {
    /// The refusal, if this says something about the plan and not about files or the host.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Reported { .. }
            | Self::Differs { .. }
            | Self::Uncaught { .. }
            | Self::Disagree { .. }
            | Self::Replay(_)
            | Self::Segment(_) => Some(Refusal::new(Code::ProofFails, self)),
            Self::Poisoned(poisoned) => poisoned.error.refusal(),
            Self::Instance(error) => {
                crate::lifecycle::instance_code(error).map(|code| Refusal::new(code, error))
            }
            Self::ShareNotPinned => Some(Refusal::new(Code::ShareNotPinned, self)),
            Self::Open(_) | Self::NotSoft | Self::Eager(_) => None,
        }
    }
}

/// A proof and how long its parts took; times are no part of the file.
#[derive(Debug, Clone)]
pub struct Proved {
    /// The proof.
    pub proof: Proof,
    /// Time of executing tokens under all seeds.
    pub executing: Duration,
    /// Time of leaving things out, all forms.
    pub omitting: Duration,
}

/// Proves a plan for its target's software GPU.
///
/// # Errors
/// The first thing that does not hold, see [`ProveError`]; nothing is written.
pub fn prove(
    plan: &Arc<CheckedPlan>,
    source: &dyn TensorSource,
    objects: &dyn CodeObjects,
    options: &ProveOptions,
) -> Result<Proved, ProveError> {
    if plan.options.exec.is_some_and(Exec::is_auto) {
        return Err(ProveError::ShareNotPinned);
    }
    let target = target_of(plan).ok_or(ProveError::NotSoft)?;
    let case = Case {
        plan,
        source,
        objects,
        target,
    };
    let failed = |error: StageError| Poisoned {
        stage: Stage::Lower,
        error: Box::new(error),
    };
    let images = images(plan, objects).map_err(failed)?;
    let forms: Result<Vec<Packets>, ProveError> = options
        .transports
        .iter()
        .map(|transport| case.packets(&images, *transport))
        .collect();
    let forms = forms?;
    let positions = default_positions(plan.options.bucket);
    let start = Instant::now();
    let run = seeds::execute(case, &forms, &positions, options)?;
    let executing = start.elapsed();
    let start = Instant::now();
    let kernels = refrain_lower::kernel_images(plan, &images);
    let kernels = kernels.map_err(|error| failed(error.into()))?;
    let proved: Result<Vec<Form>, ProveError> = forms
        .iter()
        .map(|form| omissions::form(case, &kernels, form, &run, &positions, options))
        .collect();
    let proof = Proof {
        schema: PROOF_SCHEMA.to_owned(),
        tool: PROOF_TOOL.to_owned(),
        evidence: "software GPU, strict mode; not a card".to_owned(),
        plan: plan.id_hex(),
        sequence: hex(&plan.identity().sequence.0),
        target: target.name().to_owned(),
        positions,
        seeds: (0..options.seeds.max(1)).collect(),
        token_steps: run.token_steps,
        launches: run.token_steps * plan.launches().count() as u64,
        states_compared: run.states_compared,
        scratch_poison: run.poison,
        slack: run.slack,
        forms: proved?,
        digest: String::new(),
    };
    // As it will be read again.
    let digest = hex(&proof.content_digest());
    Ok(Proved {
        proof: Proof { digest, ..proof },
        executing,
        omitting: start.elapsed(),
    })
}

fn target_of(plan: &CheckedPlan) -> Option<Target> {
    plan.kernels.first().map(|kernel| kernel.target)
}

#[cfg(test)]
mod tests;
