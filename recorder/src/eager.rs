//! The eager executor: one ordinary HIP launch per launch of the plan, with exactly the plan's kernarg
//! bytes, and the steps of the host between them.
//!
//! This is what every retained form is compared with, and what the recorder watches. It decides
//! nothing: grid, block and bytes come from the plan.

use crate::host::{ExactEngine, HostCounters, HostEngine, HostError, HostRunner};
use crate::instance::{Instance, InstanceError};
use refrain_device::{DeviceError, Function, Module, Stream};
use refrain_planner::identity::hex;
use refrain_planner::plan::{Digest, KernargError, Launch, StepId};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why an eager token failed or an executor could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EagerError {
    /// The plan names a code object that is not at hand.
    #[error(
        "code object {digest} with kernel {symbol} is absent; rebuild the kernels or make the plan again"
    )]
    ObjectAbsent {
        /// Digest, hex.
        digest: String,
        /// A kernel of it.
        symbol: String,
    },
    /// The device refused to load code.
    #[error("loading kernel {symbol}: {source}")]
    Load {
        /// The kernel.
        symbol: String,
        /// The device's answer.
        source: DeviceError,
    },
    /// A launch failed.
    #[error("step {step} ({name}): {source}")]
    Launch {
        /// Index of the step.
        step: u32,
        /// Its name.
        name: String,
        /// The device's answer.
        source: DeviceError,
    },
    /// The device failed while steps ran.
    #[error("waiting for the steps: {0}")]
    Wait(DeviceError),
    /// The plan's arguments do not fit its kernels.
    #[error(transparent)]
    Kernarg(#[from] KernargError),
    /// A buffer failed.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A step of the host failed.
    #[error(transparent)]
    Host(Box<HostError>),
    /// Launches beside a step of the host failed.
    #[error("step {step} ({name}): waiting for the launches beside the host's rows: {source}")]
    Join {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// The device's answer.
        source: DeviceError,
    },
}

impl From<HostError> for EagerError {
    fn from(error: HostError) -> Self {
        Self::Host(Box::new(error))
    }
}

/// Code objects by digest.
pub trait CodeObjects: Send + Sync {
    /// The bytes whose BLAKE3 is `digest`.
    fn get(&self, digest: &Digest) -> Option<&[u8]>;
}

/// The code objects built into this program.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmbeddedObjects;

impl CodeObjects for EmbeddedObjects {
    fn get(&self, digest: &Digest) -> Option<&[u8]> {
        let mut objects = refrain_kernels::Target::ALL
            .into_iter()
            .map(refrain_kernels::code_object);
        objects
            .find(|object| object.digest == *digest)
            .map(|object| object.bytes())
    }
}

/// Where launches go: the device's stream, or a wrapper around it.
pub trait LaunchSink {
    /// Launches one kernel; `lds` is dynamic LDS in bytes.
    ///
    /// # Errors
    /// The device's answer.
    fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError>;
}

impl LaunchSink for &Stream {
    fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        lds: u32,
        kernarg: &[u8],
    ) -> Result<(), DeviceError> {
        Stream::launch(self, function, grid, block, lds, kernarg)
    }
}

#[derive(Debug)]
struct Prepared {
    name: String,
    launches: Vec<PreparedLaunch>,
    /// Whether the host has rows of this step.
    barrier: bool,
}

#[derive(Debug)]
struct PreparedLaunch {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    kernarg: Vec<u8>,
}

/// The steps of a plan, ready to be launched on one instance.
#[derive(Debug)]
pub struct EagerExecutor {
    device: Arc<refrain_device::Device>,
    functions: Vec<Function>,
    steps: Vec<Prepared>,
    /// Steps of the host; they are executed one at a time.
    host: Mutex<HostRunner>,
}

/// Longest that a step of the host may take where the caller does not say.
pub const HOST_DEADLINE: Duration = Duration::from_secs(60);

impl EagerExecutor {
    /// Loads the plan's kernels and computes the kernarg bytes of every step for this instance.
    ///
    /// # Errors
    /// Any [`EagerError`] but `Launch` and `Wait`.
    pub fn new(instance: &Instance, objects: &dyn CodeObjects) -> Result<Self, EagerError> {
        Self::with_engine(instance, objects, Arc::new(ExactEngine), HOST_DEADLINE)
    }

    /// As [`Self::new`], with what multiplies on the host and how long one of its steps may take.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_engine(
        instance: &Instance,
        objects: &dyn CodeObjects,
        engine: Arc<dyn HostEngine>,
        deadline: Duration,
    ) -> Result<Self, EagerError> {
        let plan = instance.plan();
        let host = HostRunner::new(instance, engine, deadline)?;
        let functions = load(instance, objects)?;
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.iter().enumerate() {
            let prepare = |launch: &Launch| -> Result<PreparedLaunch, EagerError> {
                let kernel = plan.kernels.get(launch.kernel as usize);
                let (bytes, block) = kernel.map_or((0, [1; 3]), |k| (k.kernarg_bytes, k.block));
                let mut kernarg = vec![0; bytes as usize];
                let base = |buffer| instance.base(buffer);
                plan.write_kernargs_of(index as u32, launch, &base, &mut kernarg)?;
                Ok(PreparedLaunch {
                    function: launch.kernel as usize,
                    grid: launch.grid,
                    block,
                    kernarg,
                })
            };
            let launches = step.body.launches().iter().map(prepare);
            steps.push(Prepared {
                name: step.name.clone(),
                launches: launches.collect::<Result<_, _>>()?,
                barrier: step.body.is_barrier(),
            });
        }
        Ok(Self {
            device: instance.device().clone(),
            functions,
            steps,
            host: Mutex::new(host),
        })
    }

    /// Launches per token, those of split steps included.
    pub fn launches(&self) -> usize {
        self.steps.iter().map(|step| step.launches.len()).sum()
    }

    /// What steps of the host have done so far.
    pub fn host_counters(&self) -> HostCounters {
        *self.host().counters()
    }

    /// Replaces those figures, to leave a run out of them.
    pub fn set_host_counters(&self, counters: HostCounters) {
        self.host().set_counters(counters);
    }

    /// The runner of the steps of the host, for a retained form that executes them between segments.
    pub fn host(&self) -> std::sync::MutexGuard<'_, HostRunner> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Launches every step of one token on the device's stream. Does not wait for launches after the
    /// last step of the host; each of those steps is executed in its place.
    ///
    /// # Errors
    /// [`EagerError::Launch`], and those of steps of the host.
    pub fn submit(&self, instance: &Instance) -> Result<(), EagerError> {
        self.submit_to(instance, &mut self.device.stream())
    }

    /// Launches every step of one token into `sink`, which must be in order with the device's stream;
    /// waits as [`Self::submit`] does.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn submit_to(
        &self,
        instance: &Instance,
        sink: &mut impl LaunchSink,
    ) -> Result<(), EagerError> {
        for step in (0..).take(self.steps.len()) {
            self.submit_step(instance, step, sink)?;
        }
        Ok(())
    }

    /// Launches or executes one step alone, for who times it. A step beyond the last does nothing.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn submit_step(
        &self,
        instance: &Instance,
        step: StepId,
        sink: &mut impl LaunchSink,
    ) -> Result<(), EagerError> {
        match self.steps.get(step as usize) {
            Some(prepared) if prepared.barrier => self.barrier(instance, step, prepared, sink),
            Some(prepared) => self.launch(step, prepared, sink),
            None => Ok(()),
        }
    }

    fn launch(
        &self,
        step: StepId,
        prepared: &Prepared,
        sink: &mut impl LaunchSink,
    ) -> Result<(), EagerError> {
        for launch in &prepared.launches {
            // Functions were loaded for every kernel index of the plan.
            let Some(function) = self.functions.get(launch.function) else {
                continue;
            };
            let PreparedLaunch {
                grid,
                block,
                kernarg,
                ..
            } = launch;
            sink.launch(function, *grid, *block, 0, kernarg)
                .map_err(|source| EagerError::Launch {
                    step,
                    name: prepared.name.clone(),
                    source,
                })?;
        }
        Ok(())
    }

    /// A step of the host: copies wait for all earlier launches, those beside it run while the host
    /// multiplies.
    fn barrier(
        &self,
        instance: &Instance,
        step: StepId,
        prepared: &Prepared,
        sink: &mut impl LaunchSink,
    ) -> Result<(), EagerError> {
        let mut host = self.host();
        let mut idle = Instant::now();
        host.down(instance, step)?;
        host.begin(instance, step)?;
        let launched = self.launch(step, prepared, sink);
        host.finish(instance, step)?;
        launched?;
        if !prepared.launches.is_empty() {
            let start = Instant::now();
            let done = self.device.stream().synchronize();
            done.map_err(|source| EagerError::Join {
                step,
                name: prepared.name.clone(),
                source,
            })?;
            host.joined(start.elapsed());
            idle = Instant::now();
        }
        host.up(instance, step)?;
        host.idled(idle.elapsed());
        Ok(())
    }

    /// Waits until everything submitted has finished.
    ///
    /// # Errors
    /// [`EagerError::Wait`].
    pub fn wait(&self) -> Result<(), EagerError> {
        self.device.stream().synchronize().map_err(EagerError::Wait)
    }
}

fn load(instance: &Instance, objects: &dyn CodeObjects) -> Result<Vec<Function>, EagerError> {
    let mut modules: Vec<(Digest, Module)> = Vec::new();
    let mut functions = Vec::new();
    for kernel in &instance.plan().kernels {
        let failed = |source| EagerError::Load {
            symbol: kernel.symbol.clone(),
            source,
        };
        let known = modules.iter().position(|row| row.0 == kernel.object);
        let module = match known {
            Some(index) => index,
            None => {
                let bytes =
                    objects
                        .get(&kernel.object)
                        .ok_or_else(|| EagerError::ObjectAbsent {
                            digest: hex(&kernel.object),
                            symbol: kernel.symbol.clone(),
                        })?;
                let loaded = Module::load(instance.device(), bytes).map_err(failed)?;
                modules.push((kernel.object, loaded));
                modules.len() - 1
            }
        };
        if let Some((_, module)) = modules.get(module) {
            functions.push(module.function(&kernel.symbol).map_err(failed)?);
        }
    }
    Ok(functions)
}
