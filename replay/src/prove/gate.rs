//! The gate before a replay: a real device wants a proof of exactly these packets, or the user's word.
//!
//! A pure function of plan, packets, proof and device, so that it is tested for devices that nobody
//! here has. The software GPU takes any form and says whether there is a proof.

use super::proof::Proof;
use crate::refusal::{Code, Refusal};
use refrain_lower::Transport;
use refrain_planner::container::CheckedPlan;
use refrain_planner::identity::hex;
use refrain_planner::plan::Digest;

/// What a caller brings to the gate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Credentials {
    /// A proof file that was read.
    pub proof: Option<Proof>,
    /// The user takes an unproved form to a real device.
    pub allow_unproven: bool,
}

/// How a form passed the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A proof of these packets, by the digest of its content.
    Proved(Digest),
    /// No proof.
    Unproved,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Proved(digest) => f.write_str(&hex(digest.get(..8).unwrap_or_default())),
            Self::Unproved => f.write_str("none"),
        }
    }
}

/// Refuses at once what no packets could change: a real device, no proof, and no leave to go without.
///
/// # Errors
/// [`Code::ProofAbsent`].
pub fn presented(real_device: bool, credentials: &Credentials) -> Result<(), Refusal> {
    match credentials {
        Credentials {
            proof: None,
            allow_unproven: false,
        } if real_device => Err(Refusal::new(
            Code::ProofAbsent,
            "no proof of this plan was given, and the device is no software GPU",
        )),
        _ => Ok(()),
    }
}

/// Lets a form pass or refuses it. A proof that is given must be of this form on every device: one
/// that is not is a mistake, whatever would be allowed without it.
///
/// # Errors
/// [`Code::ProofAbsent`] or [`Code::ProofDiffers`].
pub fn admit(
    real_device: bool,
    plan: &CheckedPlan,
    transport: Transport,
    encoding: &Digest,
    credentials: &Credentials,
) -> Result<Standing, Refusal> {
    presented(real_device, credentials)?;
    let Some(proof) = &credentials.proof else {
        return Ok(Standing::Unproved);
    };
    match proof.mismatch(plan, transport, encoding) {
        None => Ok(Standing::Proved(proof.content_digest())),
        Some(detail) => Err(Refusal::new(Code::ProofDiffers, detail)),
    }
}
