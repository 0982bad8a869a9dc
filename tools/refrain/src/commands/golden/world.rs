//! The golden registry's outside: model files below a root, the planner, and software GPUs.

use crate::input;
use refrain_golden::{Planned, ProofFacts, Recipe, Route, World, WorldError};
use refrain_kernels::{Dtype, Target, code_object};
use refrain_planner::container::CheckedPlan;
use refrain_planner::machine::Machine;
use refrain_planner::plan::Digest;
use refrain_planner::source::{OpenOptions, Recipe as Quant};
use refrain_planner::{CompileOptions, PlanError, compile};
use refrain_recorder::{CodeObjects, EmbeddedObjects, FileSource};
use refrain_replay::prove::{PROOF_TOOL, Proof, ProveOptions, prove};
use refrain_replay::refusal::Code;
use refrain_replay::{DeviceSpec, OpenedDevice, Retain, Session, SessionOptions, SoftOptions};
use std::path::PathBuf;
use std::sync::Arc;

/// Device memory of a machine that has no end, in bytes: more than any model of today.
const UNBOUNDED: u64 = 1 << 40;

/// Files below a root, or one model file for every recipe.
pub(super) struct Files {
    pub root: PathBuf,
    pub model: Option<PathBuf>,
    pub prove: ProveOptions,
}

impl Files {
    fn path(&self, recipe: &Recipe) -> PathBuf {
        let below = || self.root.join(&recipe.file);
        self.model.clone().unwrap_or_else(below)
    }

    fn machine(recipe: &Recipe) -> Result<Machine, WorldError> {
        let mut machine = Machine::load(&recipe.machine)?;
        if recipe.unbounded {
            machine.vram_bytes = UNBOUNDED;
        }
        Ok(machine)
    }
}

fn options(recipe: &Recipe) -> Result<CompileOptions, WorldError> {
    Ok(CompileOptions {
        context: (recipe.context > 0).then_some(recipe.context),
        kv_dtype: match &*recipe.kv {
            "f32" => Dtype::F32,
            "f16" => Dtype::F16,
            other => return Err(format!("KV type {other:?} is none of f32, f16").into()),
        },
        gpu_layers: recipe.gpu_layers.parse()?,
        exec: recipe.exec.parse()?,
        ..CompileOptions::default()
    })
}

impl World for Files {
    fn program(&self) -> String {
        PROOF_TOOL.to_owned()
    }

    fn plan(&self, recipe: &Recipe) -> Result<Planned, WorldError> {
        let open = OpenOptions {
            header_only: false,
            recipe: match recipe.is_shape() {
                false => None,
                true => {
                    let unknown = || format!("quantisation {:?} is unknown", recipe.quant);
                    Some(Quant::find(&recipe.quant).ok_or_else(unknown)?)
                }
            },
        };
        let source = input::open_model_with(&self.path(recipe), open)?;
        let plan = compile(&source, &Self::machine(recipe)?, &options(recipe)?);
        match plan {
            Ok(plan) => Ok(Planned::Plan(Arc::new(plan))),
            Err(PlanError::Placement(error)) => match Code::of_placement(&error) {
                Some(code) => Ok(Planned::Refused {
                    code: code.to_string(),
                    detail: error.to_string(),
                }),
                None => Err(PlanError::Placement(error).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn object(&self, digest: &Digest) -> Option<&[u8]> {
        EmbeddedObjects.get(digest).map(|bytes| bytes as &[u8])
    }

    fn compiler(&self) -> String {
        code_object(Target::Gfx1201).compiler.to_owned()
    }

    fn prove(&self, recipe: &Recipe, plan: &Arc<CheckedPlan>) -> Result<Vec<u8>, WorldError> {
        let source = FileSource::open(&self.path(recipe))?;
        let proved = prove(plan, &source, &EmbeddedObjects, &self.prove)?;
        Ok(proved.proof.to_bytes())
    }

    fn read_proof(&self, bytes: &[u8]) -> Result<ProofFacts, WorldError> {
        let proof = Proof::from_bytes(bytes)?;
        let form =
            |form: &refrain_replay::prove::Form| (form.transport.clone(), form.encoding.clone());
        Ok(ProofFacts {
            digest: refrain_planner::identity::hex(&proof.content_digest()),
            encodings: proof.forms.iter().map(form).collect(),
            tool: proof.tool,
            plan: proof.plan,
        })
    }

    fn tokens(
        &self,
        recipe: &Recipe,
        plan: &Arc<CheckedPlan>,
        route: Route,
    ) -> Result<Vec<u32>, WorldError> {
        let unknown = || format!("there is no software GPU for {}", plan.machine.target);
        let target = Target::parse(&plan.machine.target).ok_or_else(unknown)?;
        let opened = OpenedDevice::open(DeviceSpec::Soft(target), SoftOptions::default())?;
        let source = FileSource::open(&self.path(recipe))?;
        let (retain, transport) = match route {
            Route::Eager => (Retain::None, SessionOptions::default().transport),
            Route::Retained(transport) if plan.barriers().next().is_some() => {
                (Retain::Segments, transport)
            }
            Route::Retained(transport) => (Retain::Whole, transport),
        };
        let options = SessionOptions {
            retain,
            transport,
            ..SessionOptions::default()
        };
        let mut session = Session::new(opened, plan, &source, &EmbeddedObjects, options)?;
        let generation = session.generate(&recipe.prompt, recipe.tokens, &mut |_| {})?;
        Ok(generation.tokens)
    }
}
