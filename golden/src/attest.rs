//! What a machine made of an archive: the same thing, a thing of the same route, or neither.
//!
//! *Exact*: this machine's own planning and lowering give the archive's plan and packets, and its
//! tokens are the sealed ones. *Route-compatible*: model, structure and schedule agree and so do the
//! tokens, while machine code, packets or facts outside identity are others. *Failed*: anything else.

use crate::record::Record;
use crate::verify::{Class, Mismatch, State, VerifyError, verify};
use crate::world::{Route, World};
use crate::{Layer, Tokens};

/// How good the reproduction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    /// The same plan, packets and tokens.
    Exact,
    /// The same launches and tokens, with other code objects, packets or plan facts.
    RouteCompatible,
    /// Neither.
    Failed,
}

impl Grade {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::RouteCompatible => "route-compatible",
            Self::Failed => "failed",
        }
    }
}

/// A machine's word on an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attestation {
    /// Grade.
    pub grade: Grade,
    /// The first difference, if there is one.
    pub mismatch: Option<Mismatch>,
}

/// Reproduces a record.
///
/// # Errors
/// As [`verify`].
pub fn attest(
    record: &Record,
    proof: Option<&[u8]>,
    world: &dyn World,
    routes: &[Route],
) -> Result<Attestation, VerifyError> {
    let verified = verify(record, proof, world, routes)?;
    let Some(mismatch) = verified.mismatch().cloned() else {
        let ran = verified
            .checks
            .iter()
            .any(|check| check.layer == Layer::Tokens && check.state == State::Same);
        // Without tokens nothing was reproduced, unless there is nothing that could run.
        let grade = match ran || record.tokens.is_none() {
            true => Grade::Exact,
            false => Grade::Failed,
        };
        return Ok(Attestation {
            grade,
            mismatch: None,
        });
    };
    let compatible = matches!(
        mismatch.class,
        Class::OtherObjects | Class::OtherEncoding | Class::OtherProof | Class::OtherFacts
    );
    let mut grade = Grade::Failed;
    if let (true, Some(plan), Some(sealed)) = (compatible, &verified.plan, &record.tokens) {
        grade = Grade::RouteCompatible;
        for &route in routes {
            let tokens = world.tokens(&record.recipe, plan, route);
            let what = "running tokens";
            let tokens = tokens.map_err(|source| VerifyError::World { what, source })?;
            if Tokens::of(&record.recipe, &tokens) != *sealed {
                grade = Grade::Failed;
            }
        }
    }
    Ok(Attestation {
        grade,
        mismatch: Some(mismatch),
    })
}
