//! The checked plan: the only form that recorder, lowering and replay accept.
//!
//! `check` demands that the plan agrees with itself, with this build's kernel catalog and code
//! objects, and that its schedule orders every hazard. The parts: `tables` (geometry, buffers,
//! tensors, kernels), `model` (files, loading), `steps` (arguments, grids, regions), `host` (steps of
//! the host). It reads plans made by anyone, so nothing is
//! indexed before it is compared with its table.

mod error;
mod host;
mod model;
mod steps;
mod tables;

pub use error::{CheckError, LoadError, Place};

use super::{FORMAT, PlanFile, decode, encode_file};
use crate::identity::{Identity, hex};
use crate::memory::Memory;
use crate::plan::{Digest, Eligibility, Plan};
use crate::schedule;
use refrain_kernels::Target;
use std::fmt;
use std::ops::Deref;

/// A plan that passed every check. Read it through `Deref`; there is no way to change it.
#[derive(Clone)]
pub struct CheckedPlan {
    file: PlanFile,
    id: Digest,
    identity: Identity,
}

impl CheckedPlan {
    /// Checks a plan that was just made.
    pub fn check(plan: Plan) -> Result<Self, CheckError> {
        Self::from_file(PlanFile {
            minor: FORMAT.1,
            plan,
            unknown: Vec::new(),
        })
    }

    /// Decodes and checks a plan file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LoadError> {
        Ok(Self::from_file(decode(bytes)?)?)
    }

    fn from_file(file: PlanFile) -> Result<Self, CheckError> {
        check(&file.plan)?;
        let encoded = encode_file(&file);
        let most = super::limits::FILE_BYTES;
        if encoded.len() as u64 > most {
            let found = encoded.len() as u64;
            return Err(CheckError::Limit {
                what: "plan file bytes",
                found,
                limit: most,
            });
        }
        let identity = Identity::of(&file.plan);
        Ok(Self {
            id: super::file_digest(&encoded),
            file,
            identity,
        })
    }

    /// The plan file, byte for byte what it was read from.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode_file(&self.file)
    }

    /// Digest of the plan file.
    pub fn id(&self) -> &Digest {
        &self.id
    }

    /// The plan id as 64 hex digits.
    pub fn id_hex(&self) -> String {
        hex(&self.id)
    }

    /// Identity by layers, and the sequence hash.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Deref for CheckedPlan {
    type Target = Plan;
    fn deref(&self) -> &Plan {
        &self.file.plan
    }
}

impl fmt::Debug for CheckedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.file.plan.steps.len();
        f.debug_struct("CheckedPlan")
            .field("id", &self.id_hex())
            .field("steps", &steps)
            .finish()
    }
}

/// First contradiction in a plan.
fn check(plan: &Plan) -> Result<(), CheckError> {
    let target = tables::check(plan)?;
    steps::check(plan, target)?;
    check_eligibility(plan)?;
    schedule::verify(plan)?;
    check_memory(plan, target)
}

/// The sums must be those of the tables, and spilled weights where the options say so.
fn check_memory(plan: &Plan, target: Target) -> Result<(), CheckError> {
    let expected = Memory::of(
        target,
        &plan.buffers,
        &plan.kernels,
        &plan.steps,
        &plan.schedule,
    );
    if plan.memory != expected {
        let (found, expected) = (format!("{:?}", plan.memory), format!("{expected:?}"));
        let place = Place::Memory;
        return Err(CheckError::mismatch(place, "sums", found, expected));
    }
    Ok(())
}

fn check_eligibility(plan: &Plan) -> Result<(), CheckError> {
    let wrong = |what, found: String, expected: &str| {
        Err(CheckError::mismatch(
            Place::Eligibility,
            what,
            found,
            expected,
        ))
    };
    let barriers = plan.barriers().count();
    let reasons = match &plan.eligibility {
        Eligibility::Whole if barriers == 0 => return Ok(()),
        Eligibility::Whole => {
            return wrong(
                "retained",
                "the whole token".into(),
                "segments: it has barriers",
            );
        }
        Eligibility::Segments(_) if barriers == 0 => {
            return wrong(
                "retained",
                "segments".into(),
                "the whole token: it has no barrier",
            );
        }
        Eligibility::Segments(reasons) | Eligibility::Refused(reasons) => reasons,
    };
    if reasons.is_empty() {
        return wrong("reasons", "none".into(), "at least one");
    }
    for reason in reasons {
        if reason
            .step
            .is_some_and(|step| step as usize >= plan.steps.len())
        {
            let expected = format!("below {}", plan.steps.len());
            return wrong("step of a reason", format!("{:?}", reason.step), &expected);
        }
    }
    Ok(())
}
