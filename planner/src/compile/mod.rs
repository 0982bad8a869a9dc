//! From a model and a machine to a checked plan. Same inputs, same bytes.

mod fill;
mod weights;

pub use fill::{FillError, fill};

use crate::arch::{self, ArchError, Bound, State};
use crate::container::{CheckError, CheckedPlan};
use crate::graph::{self, Graph, GraphError};
use crate::lowering::{self, LowerError, Lowered};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::placement::{ExecChoice, GpuLayers, Placement, PlacementError, largest};
use crate::plan::{
    Activations, Digest, Eligibility, Exec, Model, ModelFile, Options, Plan, RefusalReason, Step,
};
use crate::schedule;
use crate::source::{ModelSource, ReadError};
use refrain_kernels::{Dtype, Target, WAVE_LANES};

/// Tokens of context where the caller does not say, if the model allows as many.
pub const DEFAULT_CONTEXT: u32 = 4096;
/// Ring entries where the caller does not say: several times the tokens in flight.
pub const DEFAULT_RING_ENTRIES: u32 = 64;

/// Choices of the caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CompileOptions {
    /// Tokens of context; `None` takes the model's longest, at most [`DEFAULT_CONTEXT`].
    pub context: Option<u32>,
    /// Element type of the KV cache: `F32` is the exact mode, `F16` halves the cache, `Q8_0` takes 17/64.
    pub kv_dtype: Dtype,
    /// Positions of the plan are below this; `None` for the whole context.
    pub bucket: Option<u32>,
    /// Entries of the token ring, a power of two.
    pub ring_entries: u32,
    /// Fusions that are switched off, by name ([`lowering::fusions`]).
    pub no_fuse: Vec<String>,
    /// Layers that stay in device memory.
    pub gpu_layers: GpuLayers,
    /// Who multiplies the matrices of the others.
    pub exec: ExecChoice,
    /// Form in which activations meet quantised matrices.
    pub activations: Activations,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            context: None,
            kv_dtype: Dtype::F32,
            bucket: None,
            ring_entries: DEFAULT_RING_ENTRIES,
            no_fuse: Vec::new(),
            gpu_layers: GpuLayers::All,
            exec: ExecChoice::Pcie,
            activations: Activations::Exact,
        }
    }
}

/// Why a model cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The model cannot be read.
    #[error(transparent)]
    Read(Box<ReadError>),
    /// The model does not fit its declaration, or there is none.
    #[error(transparent)]
    Arch(#[from] ArchError),
    /// A declaration contradicts itself.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No kernel for an operation.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// A machine without kernels.
    #[error(
        "machine {machine} is {found}; there are kernels for {known}: name one of those machines"
    )]
    Target {
        /// Name of the profile.
        machine: String,
        /// Its target.
        found: String,
        /// Targets with code objects.
        known: String,
    },
    /// A machine with another wave size than the kernels'.
    #[error(
        "machine {machine} runs waves of {found}, the kernels need {expected}: correct the profile"
    )]
    WaveSize {
        /// Name of the profile.
        machine: String,
        /// Its wave size.
        found: u32,
        /// Wave size of the kernels.
        expected: u32,
    },
    /// A context that the model does not have.
    #[error("context {found}: {model} allows 1 to {most} tokens, choose one of those")]
    Context {
        /// Asked for.
        found: u32,
        /// Model.
        model: String,
        /// Longest.
        most: u32,
    },
    /// A bucket that the context does not hold.
    #[error("bucket {found}: the context is {context} tokens, choose from 1 to that")]
    Bucket {
        /// Asked for.
        found: u32,
        /// Tokens of context.
        context: u32,
    },
    /// Buckets that do not ascend.
    #[error("bucket {second} stands after {first}: give the ends of buckets in ascending order")]
    BucketOrder {
        /// Earlier end.
        first: u32,
        /// Later end.
        second: u32,
    },
    /// The plan needs more device memory than the machine has.
    #[error(
        "the plan needs {needed} bytes of device memory, {machine} has {available}: \
         a smaller context saves {per_token} bytes a token, --gpu-layers spills layers to the host"
    )]
    DoesNotFit {
        /// Bytes of all device buffers as the runtime rounds them.
        needed: u64,
        /// Name of the profile.
        machine: String,
        /// Its device memory.
        available: u64,
        /// KV bytes of one token.
        per_token: u64,
    },
    /// Weights cannot be placed as asked.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A plan without weights and another model.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// The result contradicts itself: a fault of the planner, not of the model.
    #[error("the plan made contradicts itself, please report it: {0}")]
    Check(Box<CheckError>),
}

impl From<CheckError> for PlanError {
    fn from(error: CheckError) -> Self {
        Self::Check(Box::new(error))
    }
}

impl From<ReadError> for PlanError {
    fn from(error: ReadError) -> Self {
        Self::Read(Box::new(error))
    }
}

/// Compiles a plan. One of a model without weights has no digests of them and cannot run; its
/// structure, schedule and artifacts are those of the same model with weights.
pub fn compile(
    source: &ModelSource,
    machine: &Machine,
    options: &CompileOptions,
) -> Result<CheckedPlan, PlanError> {
    Prepared::new(source, machine, options)?.plan(options.bucket)
}

/// Compiles a family of plans over buckets of the context: one for each end in `buckets`, ascending,
/// and one for the whole context if the last end is below it. They differ in how attention is split
/// and share all buffers but scratch, so that a text can go on under the next one where its bucket
/// ends. Weights are digested once.
pub fn compile_family(
    source: &ModelSource,
    machine: &Machine,
    options: &CompileOptions,
    buckets: &[u32],
) -> Result<Vec<CheckedPlan>, PlanError> {
    let prepared = Prepared::new(source, machine, options)?;
    if let Some(pair) = buckets.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(PlanError::BucketOrder {
            first: pair[0],
            second: pair[1],
        });
    }
    let context = prepared.options.context;
    let whole = buckets.last().is_none_or(|last| *last < context);
    let ends = buckets.iter().copied().chain(whole.then_some(context));
    ends.map(|end| prepared.plan(Some(end))).collect()
}

/// What all plans of a family share.
struct Prepared<'a> {
    machine: &'a Machine,
    target: Target,
    no_fuse: &'a [String],
    options: Options,
    bound: Bound,
    graph: Graph,
    rope: Vec<u8>,
    name: String,
    files: Vec<ModelFile>,
    digests: Vec<Option<Digest>>,
    placement: Placement,
}

impl<'a> Prepared<'a> {
    fn new(
        source: &ModelSource,
        machine: &'a Machine,
        options: &'a CompileOptions,
    ) -> Result<Self, PlanError> {
        let target = target(machine)?;
        let bound = arch::bind(source.table())?;
        // Not the file's name: renaming a model must not change its plan.
        let name = bound.name.clone().unwrap_or_else(|| "unnamed".to_owned());
        let layers = bound.geometry.layers;
        let resident = Placement {
            gpu_layers: layers,
            exec: None,
            spilled: Vec::new(),
        };
        let mut prepared = Self {
            machine,
            target,
            no_fuse: &options.no_fuse,
            options: resolve(options, &bound, &name)?,
            graph: graph::build(&bound)?,
            rope: weights::rope(source, &bound)?,
            name,
            files: weights::files(source)?,
            digests: weights::digests(source, &bound)?,
            placement: resident,
            bound,
        };
        prepared.placement = prepared.place(options)?;
        Ok(prepared)
    }

    fn plan(&self, bucket: Option<u32>) -> Result<CheckedPlan, PlanError> {
        let context = self.options.context;
        let bucket = bucket.unwrap_or(context);
        if bucket == 0 || bucket > context {
            let found = bucket;
            return Err(PlanError::Bucket { found, context });
        }
        let options = Options {
            bucket,
            ..self.options.clone()
        };
        let plan = self.lower(options, &self.placement)?;
        self.fits(&plan)?;
        Ok(CheckedPlan::check(plan)?)
    }

    /// The placement asked for; `auto` by the exact sums of whole plans. A family shares its
    /// weights, so this is decided for the longest of its buckets.
    fn place(&self, asked: &CompileOptions) -> Result<Placement, PlanError> {
        let layers = self.bound.geometry.layers;
        let place = |gpu_layers| {
            let (bound, graph) = (&self.bound, &self.graph);
            let placed = Placement::new(bound, graph, self.machine, gpu_layers, asked.exec)?;
            match placed.exec {
                // Rows of one matrix would be summed in two ways.
                Some(exec) if exec != Exec::Pcie && asked.activations != Activations::Exact => {
                    Err(PlacementError::HostActivations {
                        exec,
                        activations: asked.activations.name(),
                    })
                }
                _ => Ok(placed),
            }
        };
        let gpu_layers = match asked.gpu_layers {
            GpuLayers::All => layers,
            GpuLayers::Last(number) => number,
            GpuLayers::Auto => {
                let options = Options {
                    bucket: asked.bucket.unwrap_or(self.options.context),
                    ..self.options.clone()
                };
                let fits = |number| -> Result<bool, PlanError> {
                    let plan = self.lower(options.clone(), &place(number)?)?;
                    Ok(plan.memory.device_rounded <= self.machine.vram_bytes)
                };
                // Where not even 0 fits, `fits` says by how much.
                largest(layers, fits)?.unwrap_or(0)
            }
        };
        Ok(place(gpu_layers)?)
    }

    fn lower(&self, options: Options, placement: &Placement) -> Result<Plan, PlanError> {
        let options = Options {
            gpu_layers: placement.gpu_layers,
            exec: placement.exec,
            ..options
        };
        let Lowered {
            buffers,
            tensors,
            kernels,
            steps,
        } = lowering::lower(&lowering::Input {
            bound: &self.bound,
            graph: &self.graph,
            digests: &self.digests,
            rope: &self.rope,
            options: &options,
            target: self.target,
            compute_units: self.machine.compute_units,
            no_fuse: self.no_fuse,
            spilled: &placement.spilled,
        })?;
        let schedule = schedule::build(&steps, self.target);
        let memory = Memory::of(self.target, &buffers, &kernels, &steps, &schedule);
        let eligibility = eligibility(&steps);
        Ok(Plan {
            producer: concat!("refrain ", env!("CARGO_PKG_VERSION")).to_owned(),
            model: Model {
                arch: self.bound.arch.name.to_owned(),
                name: self.name.clone(),
                files: self.files.clone(),
                geometry: self.bound.geometry,
                eos: self.bound.eos,
                tensors,
            },
            machine: self.machine.clone(),
            options,
            buffers,
            kernels,
            steps,
            schedule,
            eligibility,
            memory,
        })
    }

    /// Refuses a plan that the machine has no memory for.
    fn fits(&self, plan: &Plan) -> Result<(), PlanError> {
        let (memory, machine) = (&plan.memory, self.machine);
        if memory.device_rounded > machine.vram_bytes {
            return Err(PlanError::DoesNotFit {
                needed: memory.device_rounded,
                machine: machine.name.clone(),
                available: machine.vram_bytes,
                per_token: self.kv_bytes_per_token(),
            });
        }
        if memory.pinned_rounded > machine.host.pinned_bytes {
            return Err(PlacementError::Pinned {
                needed: memory.pinned_rounded,
                machine: machine.name.clone(),
                available: machine.host.pinned_bytes,
            }
            .into());
        }
        Ok(())
    }

    fn kv_bytes_per_token(&self) -> u64 {
        let g = &self.bound.geometry;
        let row = u64::from(g.kv_heads) * u64::from(g.head_dim);
        let kv = self.options.kv_dtype;
        let row_bytes = kv.device_bytes(1, row).unwrap_or_default();
        let keeps_rows = |layer: &u32| self.bound.kind(*layer).state.contains(&State::KeyValue);
        let attention = (0..g.layers).filter(keeps_rows).count();
        row_bytes.saturating_mul(2).saturating_mul(attention as u64)
    }
}

/// Code of the refusal to retain steps of the host in one tape.
pub const HOST_STEPS: u16 = 28;
/// Names of steps that a refusal gives.
const NAMED: usize = 3;

/// No kernel takes a by-value position, so that only steps of the host stand against one tape.
fn eligibility(steps: &[Step]) -> Eligibility {
    let barriers = || (0..).zip(steps).filter(|(_, step)| step.body.is_barrier());
    let Some((first, _)) = barriers().next() else {
        return Eligibility::Whole;
    };
    let names: Vec<&str> = barriers()
        .take(NAMED)
        .map(|(_, step)| step.name.as_str())
        .collect();
    let count = barriers().count();
    let more = if count > NAMED { ", …" } else { "" };
    let detail = format!(
        "{count} steps are the host's ({}{more}) and cannot be in a tape: use --retain segments",
        names.join(", ")
    );
    Eligibility::Segments(vec![RefusalReason {
        code: HOST_STEPS,
        step: Some(first),
        detail,
    }])
}

fn target(machine: &Machine) -> Result<Target, PlanError> {
    let target = Target::parse(&machine.target).ok_or_else(|| PlanError::Target {
        machine: machine.name.clone(),
        found: machine.target.clone(),
        known: Target::ALL.map(Target::name).join(", "),
    })?;
    if machine.wave_size != WAVE_LANES {
        let (found, expected) = (machine.wave_size, WAVE_LANES);
        return Err(PlanError::WaveSize {
            machine: machine.name.clone(),
            found,
            expected,
        });
    }
    Ok(target)
}

fn resolve(options: &CompileOptions, bound: &Bound, model: &str) -> Result<Options, PlanError> {
    let most = bound.geometry.context_max;
    let context = options.context.unwrap_or(most.min(DEFAULT_CONTEXT));
    if context == 0 || context > most {
        return Err(PlanError::Context {
            found: context,
            model: model.to_owned(),
            most,
        });
    }
    let CompileOptions {
        kv_dtype,
        ring_entries,
        activations,
        ..
    } = *options;
    Ok(Options {
        context,
        bucket: context,
        kv_dtype,
        ring_entries,
        gpu_layers: bound.geometry.layers,
        exec: None,
        activations,
    })
}
