//! The eager executor: one ordinary HIP launch per step, with exactly the plan's kernarg bytes.
//!
//! This is what every retained form is compared with, and what the recorder watches. It decides
//! nothing: grid, block and bytes come from the plan.

use crate::instance::{Instance, InstanceError};
use refrain_device::{DeviceError, Function, Module, Stream};
use refrain_planner::identity::hex;
use refrain_planner::plan::{Digest, KernargError, StepBody};
use std::sync::Arc;

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
}

impl EagerExecutor {
    /// Loads the plan's kernels and computes the kernarg bytes of every step for this instance.
    ///
    /// # Errors
    /// Any [`EagerError`] but `Launch` and `Wait`.
    pub fn new(instance: &Instance, objects: &dyn CodeObjects) -> Result<Self, EagerError> {
        let plan = instance.plan();
        let functions = load(instance, objects)?;
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.iter().enumerate() {
            let StepBody::Launch(launch) = &step.body;
            let kernel = plan.kernels.get(launch.kernel as usize);
            let (bytes, block) = kernel.map_or((0, [1; 3]), |k| (k.kernarg_bytes, k.block));
            let mut kernarg = vec![0; bytes as usize];
            plan.write_kernargs(index as u32, &|buffer| instance.base(buffer), &mut kernarg)?;
            steps.push(Prepared {
                name: step.name.clone(),
                function: launch.kernel as usize,
                grid: launch.grid,
                block,
                kernarg,
            });
        }
        Ok(Self {
            device: instance.device().clone(),
            functions,
            steps,
        })
    }

    /// Launches per token.
    pub fn launches(&self) -> usize {
        self.steps.len()
    }

    /// Launches every step of one token on the device's stream; does not wait.
    ///
    /// # Errors
    /// [`EagerError::Launch`].
    pub fn submit(&self) -> Result<(), EagerError> {
        self.submit_to(&mut self.device.stream())
    }

    /// Launches every step of one token into `sink`; does not wait.
    ///
    /// # Errors
    /// [`EagerError::Launch`].
    pub fn submit_to(&self, sink: &mut impl LaunchSink) -> Result<(), EagerError> {
        for (step, prepared) in self.steps.iter().enumerate() {
            // Functions were loaded for every kernel index of the plan.
            let Some(function) = self.functions.get(prepared.function) else {
                continue;
            };
            let Prepared {
                grid,
                block,
                kernarg,
                ..
            } = prepared;
            sink.launch(function, *grid, *block, 0, kernarg)
                .map_err(|source| EagerError::Launch {
                    step: step as u32,
                    name: prepared.name.clone(),
                    source,
                })?;
        }
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
