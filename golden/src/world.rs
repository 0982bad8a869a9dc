//! What the registry asks of its caller: plans, proofs and tokens, which need files and devices.

use crate::recipe::Recipe;
use refrain_lower::Transport;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::Digest;
use std::fmt;
use std::sync::Arc;

/// What the world could not do; the registry passes it on.
pub type WorldError = Box<dyn std::error::Error + Send + Sync>;

/// What becomes of a recipe.
#[derive(Debug, Clone)]
pub enum Planned {
    /// A plan.
    Plan(Arc<CheckedPlan>),
    /// A refusal with its stable code: a record may say that a machine takes no such plan.
    Refused {
        /// `RFxxx`.
        code: String,
        /// Why.
        detail: String,
    },
}

/// How tokens are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// One HIP launch per step.
    Eager,
    /// Pre-encoded packets.
    Retained(Transport),
}

impl Route {
    /// Every route.
    pub const ALL: [Self; 3] = [
        Self::Eager,
        Self::Retained(Transport::Aql),
        Self::Retained(Transport::Pm4),
    ];
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager => f.write_str("eager"),
            Self::Retained(transport) => transport.fmt(f),
        }
    }
}

/// What a proof file says it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofFacts {
    /// Digest of its content, hex.
    pub digest: String,
    /// Program that made it.
    pub tool: String,
    /// Plan id, hex.
    pub plan: String,
    /// Transport and encoding digest (hex) of each form.
    pub encodings: Vec<(String, String)>,
}

/// The outside of the registry. One value serves one root of model files.
pub trait World {
    /// The program's name and version.
    fn program(&self) -> String;

    /// Plans a recipe.
    ///
    /// # Errors
    /// A model that is absent or cannot be planned; a refusal by code is no error.
    fn plan(&self, recipe: &Recipe) -> Result<Planned, WorldError>;

    /// The code object of a digest.
    fn object(&self, digest: &Digest) -> Option<&[u8]>;

    /// The compiler that made the code objects.
    fn compiler(&self) -> String;

    /// Proves a plan and gives the proof file's bytes, which are the same for the same plan.
    ///
    /// # Errors
    /// Whatever does not hold.
    fn prove(&self, recipe: &Recipe, plan: &Arc<CheckedPlan>) -> Result<Vec<u8>, WorldError>;

    /// Reads a proof file.
    ///
    /// # Errors
    /// Bytes that are no proof.
    fn read_proof(&self, bytes: &[u8]) -> Result<ProofFacts, WorldError>;

    /// Runs the recipe's prompt and gives the generated tokens.
    ///
    /// # Errors
    /// Anything on the way.
    fn tokens(
        &self,
        recipe: &Recipe,
        plan: &Arc<CheckedPlan>,
        route: Route,
    ) -> Result<Vec<u32>, WorldError>;
}
