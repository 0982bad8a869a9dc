//! Makes a record, or says why it may not be made: what is unproved, differs from run to run or from
//! route to route, or would not verify at once is not sealed.

use crate::facts::{Facts, FactsError};
use crate::recipe::Recipe;
use crate::record::{Kind, ProofSeal, Provenance, Record, RecordError, Tokens};
use crate::verify::{VerifyError, verify};
use crate::world::{Planned, Route, World, WorldError};
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::Exec;
use std::sync::Arc;

/// Why nothing was sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The world.
    #[error("{what}: {source}")]
    World {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: WorldError,
    },
    /// Code objects or packets.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// The same question had two answers.
    #[error("not deterministic: {what} gave {first} and {second}; do not seal it, and report it")]
    Nondeterministic {
        /// What was asked twice.
        what: String,
        /// One answer.
        first: String,
        /// The other.
        second: String,
    },
    /// Rows are divided by measurement, so that two runs may differ.
    #[error("the GPU's share of the rows is chosen by measurement; pin it, e.g. passback:0.5")]
    ShareNotPinned,
    /// Nothing was generated.
    #[error(
        "the recipe generates no token, so that nothing would be compared; give a prompt and a number of tokens"
    )]
    NoTokens,
    /// The proof does not speak for the plan.
    #[error("the proof does not satisfy the record: {0}; prove the plan again")]
    Unproved(String),
    /// The record contradicts itself.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Checking the record failed.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

/// A record with its proof.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// The record.
    pub record: Record,
    /// Its proof's bytes.
    pub proof: Option<Vec<u8>>,
}

/// Seals a recipe. A `proof` from before is taken where it is of this plan and these packets;
/// otherwise the plan is proved.
///
/// # Errors
/// [`SealError`]; nothing is written here in any case.
pub fn seal(
    recipe: &Recipe,
    world: &dyn World,
    proof: Option<Vec<u8>>,
) -> Result<Sealed, SealError> {
    let plan = match planned(recipe, world)? {
        Planned::Plan(plan) => plan,
        Planned::Refused { code, .. } => return refused(recipe, world, code),
    };
    if plan.options.exec.is_some_and(Exec::is_auto) {
        return Err(SealError::ShareNotPinned);
    }
    let facts = Facts::of(&plan, world)?;
    let (tokens, proof) = match recipe.is_shape() {
        true => (None, None),
        false => (
            Some(tokens(recipe, &plan, world)?),
            Some(proved(recipe, &plan, &facts, world, proof)?),
        ),
    };
    let kind = match recipe.is_shape() {
        true => Kind::Structure,
        false => Kind::Whole,
    };
    let seal = match &proof {
        None => None,
        Some(bytes) => {
            let facts = read(world, bytes)?;
            let (digest, tool) = (facts.digest, facts.tool);
            Some(ProofSeal { digest, tool })
        }
    };
    let record = Record {
        kind,
        recipe: recipe.clone(),
        refusal: None,
        facts,
        tokens,
        proof: seal,
        provenance: provenance(world, kind),
        floors: Vec::new(),
    };
    finished(record, proof, world)
}

fn refused(recipe: &Recipe, world: &dyn World, code: String) -> Result<Sealed, SealError> {
    let record = Record {
        kind: Kind::Refused,
        recipe: Recipe {
            prompt: Vec::new(),
            tokens: 0,
            ..recipe.clone()
        },
        refusal: Some(code),
        facts: Facts::default(),
        tokens: None,
        proof: None,
        provenance: provenance(world, Kind::Refused),
        floors: Vec::new(),
    };
    finished(record, None, world)
}

fn provenance(world: &dyn World, kind: Kind) -> Provenance {
    let evidence = match kind {
        Kind::Whole => "software GPU; no card has run this",
        Kind::Structure => "planned and encoded; nothing ran",
        Kind::Refused => "refused when planned; nothing ran",
    };
    Provenance {
        sealed_with: world.program(),
        compiler: world.compiler(),
        evidence: evidence.to_owned(),
    }
}

/// A record that verifies at once, read back from its own bytes.
fn finished(
    record: Record,
    proof: Option<Vec<u8>>,
    world: &dyn World,
) -> Result<Sealed, SealError> {
    let record = Record::from_bytes(&record.to_bytes())?;
    // Tokens ran on every route a moment ago.
    let verified = verify(&record, proof.as_deref(), world, &[])?;
    match verified.mismatch() {
        None => Ok(Sealed { record, proof }),
        Some(mismatch) => Err(SealError::Nondeterministic {
            what: format!("{} of {}", mismatch.place, record.recipe),
            first: mismatch.sealed.clone(),
            second: mismatch.found.clone(),
        }),
    }
}

/// Plans twice; both must give the same bytes.
fn planned(recipe: &Recipe, world: &dyn World) -> Result<Planned, SealError> {
    let what = "planning";
    let plan = || {
        world
            .plan(recipe)
            .map_err(|source| SealError::World { what, source })
    };
    let (first, second) = (plan()?, plan()?);
    let text = |planned: &Planned| match planned {
        Planned::Plan(plan) => format!("plan {}", plan.id_hex()),
        Planned::Refused { code, .. } => code.clone(),
    };
    match text(&first) == text(&second) {
        true => Ok(first),
        false => Err(SealError::Nondeterministic {
            what: format!("planning {recipe}"),
            first: text(&first),
            second: text(&second),
        }),
    }
}

/// Runs every route, each in a fresh session of the world; all must give the same tokens.
fn tokens(
    recipe: &Recipe,
    plan: &Arc<CheckedPlan>,
    world: &dyn World,
) -> Result<Tokens, SealError> {
    let what = "running tokens";
    let mut first: Option<(Route, Tokens)> = None;
    for route in Route::ALL {
        let tokens = world
            .tokens(recipe, plan, route)
            .map_err(|source| SealError::World { what, source })?;
        let found = Tokens::of(recipe, &tokens);
        match &first {
            None => first = Some((route, found)),
            Some((_, tokens)) if *tokens == found => {}
            Some((before, tokens)) => {
                return Err(SealError::Nondeterministic {
                    what: format!("{recipe} by {before} and {route}"),
                    first: tokens.digest.clone(),
                    second: found.digest,
                });
            }
        }
    }
    let tokens = first.map(|row| row.1).filter(|tokens| tokens.generated > 0);
    tokens.ok_or(SealError::NoTokens)
}

fn read(world: &dyn World, proof: &[u8]) -> Result<crate::world::ProofFacts, SealError> {
    world.read_proof(proof).map_err(|source| SealError::World {
        what: "reading the proof",
        source,
    })
}

fn proved(
    recipe: &Recipe,
    plan: &Arc<CheckedPlan>,
    facts: &Facts,
    world: &dyn World,
    before: Option<Vec<u8>>,
) -> Result<Vec<u8>, SealError> {
    let speaks = |bytes: &[u8]| -> Result<(), SealError> {
        let found = read(world, bytes)?;
        let wrong = |text: String| Err(SealError::Unproved(text));
        if found.plan != facts.identity.plan {
            return wrong(format!("it is of plan {}", found.plan));
        }
        if found.tool != world.program() {
            return wrong(format!("it is by {}", found.tool));
        }
        for encoding in &facts.encodings {
            let row = (encoding.transport.clone(), encoding.digest.clone());
            if !found.encodings.contains(&row) {
                return wrong(format!("it is not of the {} packets", row.0));
            }
        }
        Ok(())
    };
    if let Some(bytes) = before.filter(|bytes| speaks(bytes).is_ok()) {
        return Ok(bytes);
    }
    let what = "proving";
    let bytes = world
        .prove(recipe, plan)
        .map_err(|source| SealError::World { what, source })?;
    speaks(&bytes)?;
    Ok(bytes)
}
