//! The checks of a record, always in the same order: record, model, plan, artefacts, encoding, proof,
//! tokens, speed. The first that fails says where two things part and of which class the difference
//! is; what would follow from it is not judged.

use crate::facts::{Facts, FactsError, step_digests};
use crate::record::{Kind, Record, Tokens};
use crate::world::{Planned, Route, World, WorldError};
use refrain_planner::container::CheckedPlan;
use std::fmt;
use std::sync::Arc;

/// What a check is about, in the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The record is whole and its parts agree.
    Record,
    /// What the numbers come from.
    Model,
    /// Launches, then edges and waits.
    Plan,
    /// Machine code.
    Artifacts,
    /// Packets.
    Encoding,
    /// The proof beside the record.
    Proof,
    /// The tokens of the fixed prompt.
    Tokens,
    /// Hardware floors.
    Speed,
}

impl Layer {
    /// Every layer, in order.
    pub const ALL: [Self; 8] = [
        Self::Record,
        Self::Model,
        Self::Plan,
        Self::Artifacts,
        Self::Encoding,
        Self::Proof,
        Self::Tokens,
        Self::Speed,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Model => "model",
            Self::Plan => "plan",
            Self::Artifacts => "artifacts",
            Self::Encoding => "encoding",
            Self::Proof => "proof",
            Self::Tokens => "tokens",
            Self::Speed => "speed",
        }
    }
}

/// What kind of difference it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Other weights, geometry, end token or constants.
    OtherModel,
    /// Other launches, buffers or arguments.
    OtherStructure,
    /// The same launches with other edges or waits.
    OtherSchedule,
    /// The same structure with other code objects.
    OtherObjects,
    /// The same plan with other packets.
    OtherEncoding,
    /// The same packets, and a proof that is absent, damaged or of something else.
    OtherProof,
    /// Everything the same and other tokens: a defect of execution.
    OtherTokens,
    /// A machine that takes the plan now or does not any more.
    OtherAdmission,
    /// The plan file differs in what no layer of identity holds: names, places, machine profile.
    OtherFacts,
    /// The record itself.
    OtherRecord,
}

impl Class {
    /// The class in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherModel => "other model",
            Self::OtherStructure => "other structure",
            Self::OtherSchedule => "other schedule",
            Self::OtherObjects => "same structure with other code objects",
            Self::OtherEncoding => "other encoding or encoding policy",
            Self::OtherProof => "other proof",
            Self::OtherTokens => "other tokens",
            Self::OtherAdmission => "other admission",
            Self::OtherFacts => "other facts outside identity",
            Self::OtherRecord => "other record",
        }
    }
}

/// Where the sealed and the present part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Layer.
    pub layer: Layer,
    /// Class.
    pub class: Class,
    /// Field, and the first step that differs where one can be named.
    pub place: String,
    /// Value in the record.
    pub sealed: String,
    /// Value found.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            layer,
            class,
            place,
            sealed,
            found,
        } = self;
        let (layer, class) = (layer.name(), class.name());
        write!(
            f,
            "{layer}: {place}: sealed {sealed}, found {found} ({class})"
        )
    }
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// As sealed.
    Same,
    /// Not as sealed.
    Differs(Box<Mismatch>),
    /// Nothing to check, and why.
    Skipped(&'static str),
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Layer.
    pub layer: Layer,
    /// How it ended.
    pub state: State,
}

/// A verified record.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Checks in order, up to the first that failed.
    pub checks: Vec<Check>,
    /// The plan, where one was made.
    pub plan: Option<Arc<CheckedPlan>>,
}

impl Verified {
    /// The check that failed, if one did.
    pub fn mismatch(&self) -> Option<&Mismatch> {
        self.checks.iter().find_map(|check| match &check.state {
            State::Differs(mismatch) => Some(&**mismatch),
            _ => None,
        })
    }
}

/// Why a record could not be checked; says nothing about the record.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
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
}

/// Checks a record. `routes` are those that tokens run on; none leaves the tokens out.
///
/// # Errors
/// [`VerifyError`] where something that is needed cannot be had; a mismatch is no error.
pub fn verify(
    record: &Record,
    proof: Option<&[u8]>,
    world: &dyn World,
    routes: &[Route],
) -> Result<Verified, VerifyError> {
    let mut run = Run {
        record,
        checks: Vec::new(),
    };
    let plan = run.all(proof, world, routes)?;
    let checks = run.checks;
    Ok(Verified { checks, plan })
}

struct Run<'a> {
    record: &'a Record,
    checks: Vec<Check>,
}

impl Run<'_> {
    /// Adds a check; false where it failed.
    fn check(&mut self, layer: Layer, mismatch: Option<Mismatch>) -> bool {
        let same = mismatch.is_none();
        let state = mismatch.map_or(State::Same, |mismatch| State::Differs(Box::new(mismatch)));
        self.checks.push(Check { layer, state });
        same
    }

    fn skip(&mut self, layer: Layer, why: &'static str) {
        let state = State::Skipped(why);
        self.checks.push(Check { layer, state });
    }

    fn all(
        &mut self,
        proof: Option<&[u8]>,
        world: &dyn World,
        routes: &[Route],
    ) -> Result<Option<Arc<CheckedPlan>>, VerifyError> {
        let record = self.record;
        let inconsistent = record.consistent().err().map(|error| Mismatch {
            layer: Layer::Record,
            class: Class::OtherRecord,
            place: "the record".to_owned(),
            sealed: "parts that agree".to_owned(),
            found: error.to_string(),
        });
        if !self.check(Layer::Record, inconsistent) {
            return Ok(None);
        }
        let what = "planning";
        let planned = world
            .plan(&record.recipe)
            .map_err(|source| VerifyError::World { what, source })?;
        let plan = match (planned, &record.refusal) {
            (Planned::Plan(plan), None) => plan,
            (Planned::Refused { code, .. }, Some(sealed)) if code == *sealed => {
                self.check(Layer::Model, None);
                self.check(Layer::Plan, None);
                return Ok(None);
            }
            (planned, sealed) => {
                self.check(Layer::Plan, Some(admission(&planned, sealed.as_deref())));
                return Ok(None);
            }
        };
        let bare = Facts::without_packets(&plan);
        for layer in [Layer::Model, Layer::Plan, Layer::Artifacts] {
            if !self.check(layer, of_plan(layer, record, &bare, &plan)) {
                return Ok(Some(plan));
            }
        }
        let facts = Facts::of(&plan, world)?;
        if !self.check(Layer::Encoding, of_encoding(record, &facts)) {
            return Ok(Some(plan));
        }
        if record.kind != Kind::Whole {
            for layer in [Layer::Proof, Layer::Tokens, Layer::Speed] {
                self.skip(layer, "a shape without weights does not run");
            }
            return Ok(Some(plan));
        }
        if self.check(Layer::Proof, of_proof(record, proof, world))
            && self.tokens(&plan, world, routes)?
        {
            self.skip(Layer::Speed, "no card: the software GPU meets no floor");
        }
        Ok(Some(plan))
    }

    fn tokens(
        &mut self,
        plan: &Arc<CheckedPlan>,
        world: &dyn World,
        routes: &[Route],
    ) -> Result<bool, VerifyError> {
        let (record, what) = (self.record, "running tokens");
        let Some(sealed) = record.tokens.as_ref().filter(|_| !routes.is_empty()) else {
            self.skip(Layer::Tokens, "not asked for");
            return Ok(true);
        };
        for &route in routes {
            let tokens = world
                .tokens(&record.recipe, plan, route)
                .map_err(|source| VerifyError::World { what, source })?;
            let found = Tokens::of(&record.recipe, &tokens);
            if found != *sealed {
                let mismatch = Mismatch {
                    layer: Layer::Tokens,
                    class: Class::OtherTokens,
                    place: format!("{} tokens by {route}", sealed.asked),
                    sealed: format!("{} ({})", sealed.digest, sealed.generated),
                    found: format!("{} ({})", found.digest, found.generated),
                };
                return Ok(self.check(Layer::Tokens, Some(mismatch)));
            }
        }
        Ok(self.check(Layer::Tokens, None))
    }
}

fn admission(planned: &Planned, sealed: Option<&str>) -> Mismatch {
    let found = match planned {
        Planned::Plan(plan) => format!("a plan of {} steps", plan.steps.len()),
        Planned::Refused { code, detail } => format!("{code}: {detail}"),
    };
    Mismatch {
        layer: Layer::Plan,
        class: Class::OtherAdmission,
        place: "whether the machine takes the plan".to_owned(),
        sealed: sealed.map_or("a plan".to_owned(), str::to_owned),
        found,
    }
}

/// Compares a layer that needs no packets.
fn of_plan(layer: Layer, record: &Record, found: &Facts, plan: &CheckedPlan) -> Option<Mismatch> {
    let (sealed, now) = (&record.facts.identity, &found.identity);
    type Row<'a> = (Class, &'static str, &'a String, &'a String);
    let rows: &[Row<'_>] = &match layer {
        Layer::Model => vec![(Class::OtherModel, "model", &sealed.model, &now.model)],
        Layer::Plan => vec![
            (
                Class::OtherStructure,
                "structure",
                &sealed.structure,
                &now.structure,
            ),
            (
                Class::OtherSchedule,
                "schedule",
                &sealed.schedule,
                &now.schedule,
            ),
        ],
        _ => vec![
            (
                Class::OtherObjects,
                "artifacts",
                &sealed.artifacts,
                &now.artifacts,
            ),
            (
                Class::OtherObjects,
                "sequence",
                &sealed.sequence,
                &now.sequence,
            ),
            (Class::OtherFacts, "plan file", &sealed.plan, &now.plan),
        ],
    };
    let &(class, what, sealed, now) = rows.iter().find(|row| row.2 != row.3)?;
    let step = match class {
        Class::OtherStructure => first_step(&record.facts, found, plan),
        Class::OtherSchedule => first_wait(&record.facts, found, plan),
        _ => None,
    };
    let (place, sealed, found) = match step {
        Some((step, a, b)) => (format!("{what}, first at {step}"), a, b),
        None => (what.to_owned(), sealed.clone(), now.clone()),
    };
    Some(Mismatch {
        layer,
        class,
        place,
        sealed,
        found,
    })
}

/// The first step whose short digest differs; none where only buffers or options do.
fn first_step(
    sealed: &Facts,
    found: &Facts,
    plan: &CheckedPlan,
) -> Option<(String, String, String)> {
    let (a, b) = (step_digests(&sealed.steps), step_digests(&found.steps));
    let at = (0..a.len().max(b.len())).find(|at| a.get(*at) != b.get(*at))?;
    let text =
        |digest: Option<&&str>| digest.map_or("no step".to_owned(), |d| format!("step digest {d}"));
    Some((step_name(plan, at), text(a.get(at)), text(b.get(at))))
}

/// The first step that waits otherwise.
fn first_wait(
    sealed: &Facts,
    found: &Facts,
    plan: &CheckedPlan,
) -> Option<(String, String, String)> {
    let mut a = sealed.waits.split_whitespace();
    let mut b = found.waits.split_whitespace();
    loop {
        let (x, y) = (a.next(), b.next());
        if x == y {
            x?;
            continue;
        }
        let number = |wait: Option<&str>| {
            let digits = wait?.trim_end_matches('a');
            digits.parse::<usize>().ok()
        };
        let at = number(x).into_iter().chain(number(y)).min()?;
        let text = |wait: Option<&str>| match wait {
            Some(wait) if number(Some(wait)) == Some(at) && wait.ends_with('a') => {
                "a wait that invalidates".to_owned()
            }
            Some(wait) if number(Some(wait)) == Some(at) => "a wait".to_owned(),
            _ => "no wait".to_owned(),
        };
        return Some((step_name(plan, at), text(x), text(y)));
    }
}

fn step_name(plan: &CheckedPlan, at: usize) -> String {
    match plan.steps.get(at) {
        Some(step) => format!("step {at} ({})", step.name),
        None => format!("step {at}"),
    }
}

fn of_encoding(record: &Record, found: &Facts) -> Option<Mismatch> {
    let pairs = record.facts.encodings.iter().zip(&found.encodings);
    let (a, b) = pairs.into_iter().find(|(a, b)| a != b)?;
    let text =
        |policy: &str, dwords: u64, digest: &str| format!("{policy}, {dwords} dwords, {digest}");
    Some(Mismatch {
        layer: Layer::Encoding,
        class: Class::OtherEncoding,
        place: b.transport.clone(),
        sealed: text(&a.policy, a.dwords, &a.digest),
        found: text(&b.policy, b.dwords, &b.digest),
    })
}

/// The proof beside a record must be whole, be the sealed one, and be of this plan and these packets.
fn of_proof(record: &Record, proof: Option<&[u8]>, world: &dyn World) -> Option<Mismatch> {
    let sealed = record.proof.as_ref()?;
    let differs = |place: &str, sealed: &str, found: &str| {
        (sealed != found).then(|| Mismatch {
            layer: Layer::Proof,
            class: Class::OtherProof,
            place: place.to_owned(),
            sealed: sealed.to_owned(),
            found: found.to_owned(),
        })
    };
    let read = match proof {
        None => return differs("file", &sealed.digest, "no proof beside the record"),
        Some(bytes) => world.read_proof(bytes),
    };
    let facts = match read {
        Ok(facts) => facts,
        Err(error) => return differs("file", &sealed.digest, &error.to_string()),
    };
    differs("content", &sealed.digest, &facts.digest)
        .or_else(|| differs("program", &sealed.tool, &facts.tool))
        .or_else(|| differs("plan", &record.facts.identity.plan, &facts.plan))
        .or_else(|| {
            record.facts.encodings.iter().find_map(|encoding| {
                let mut forms = facts.encodings.iter();
                let form = forms.find(|form| form.0 == encoding.transport);
                let found = form.map_or("not covered", |form| &form.1);
                differs(&encoding.transport, &encoding.digest, found)
            })
        })
}
