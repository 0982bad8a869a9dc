//! Steps of the host: copies down, products on a worker thread, copies up, and what they cost.
//!
//! The caller knows when everything before a step has finished and what runs beside it; this module
//! moves the bytes that the step lists and has an engine multiply. The engine runs on a worker with
//! everything it reads owned or shared by that worker, so that one that panics or is slower than the
//! deadline is an error of the step and nothing else. How host and worker hand over is
//! `refrain_offload`'s.

use crate::instance::Instance;
pub use refrain_cpu::CpuError;
use refrain_cpu::{Engine, Matrix};
use refrain_device::{Buffer, DeviceError};
use refrain_kernels::Dtype;
use refrain_offload::handoff::crew::Task;
use refrain_offload::handoff::{Crew, FaultKind, HandoffError};
use refrain_planner::plan::{At, HostAdd, HostGemv, HostStep, HostWhy, StepId, Transfer};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Why a step of the host failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HostError {
    /// A copy over the link failed.
    #[error("step {step} ({name}): copy {direction}: {source}")]
    Copy {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// `down` or `up`.
        direction: &'static str,
        /// The device's answer.
        source: DeviceError,
    },
    /// The worker refused, panicked or was slower than the deadline. Nothing was copied up.
    #[error("step {step} ({name}): CPU worker: {source}{said}; restart the text")]
    Worker {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// What happened to it.
        source: HandoffError,
        /// What it said, after a separator; may be empty.
        said: String,
    },
    /// No thread for the worker.
    #[error("step {step} ({name}): no thread for the CPU worker: {reason}")]
    Thread {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// What the system says.
        reason: String,
    },
    /// The step is not in the plan as a step of the host, or its buffers are not host-visible.
    #[error("step {step} is no step of the host of this instance")]
    NotHosted {
        /// Index of the step.
        step: StepId,
    },
}

/// Rows of one matrix times one vector.
#[derive(Debug)]
pub struct Product<'a> {
    /// Element type of the matrix.
    pub dtype: Dtype,
    /// The matrix in device layout.
    pub weights: &'a [u8],
    /// Rows and columns of the matrix.
    pub shape: (u32, u32),
    /// Rows to compute.
    pub range: Range<u32>,
    /// The vector.
    pub x: &'a [f32],
}

/// What multiplies on the host. A result may depend on neither threads nor the range of rows.
pub trait HostEngine: Send + Sync {
    /// Writes `dot(W[range.start + i], x)` to `y[i]`.
    ///
    /// # Errors
    /// What does not fit.
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CpuError>;
}

/// Threads of exact mode, shared by every session of the process so that no core is asked for twice.
static ENGINE: OnceLock<Result<Engine, CpuError>> = OnceLock::new();

/// Exact mode: the GPU's own order of sums, on all threads of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExactEngine;

impl HostEngine for ExactEngine {
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CpuError> {
        let Product {
            dtype,
            weights,
            shape: (rows, k),
            ref range,
            x,
        } = *product;
        // More threads than the machine has are not made.
        let engine = ENGINE.get_or_init(|| Engine::new(usize::MAX));
        let engine = engine.as_ref().map_err(Clone::clone)?;
        let matrix = Matrix::new(dtype, weights, u64::from(rows), u64::from(k))?;
        let range = range.start as usize..range.end as usize;
        engine.gemv_exact(&matrix, x, range, y)
    }
}

/// What steps of the host have done and taken so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// CPU steps executed.
    pub cpu_steps: u64,
    /// Split steps executed.
    pub split_steps: u64,
    /// Rows that the host computed.
    pub host_rows: u64,
    /// Weight bytes of those rows.
    pub host_bytes: u64,
    /// Rows that launches of split steps computed.
    pub gpu_rows: u64,
    /// Weight bytes of those rows.
    pub gpu_bytes: u64,
    /// Launches of split steps.
    pub split_launches: u64,
    /// Bytes copied over the link.
    pub copied: u64,
    /// Matrices, per executed step, that the host computed whole because they are too small to divide.
    pub too_small: u64,
    /// Time of copies, down and up.
    pub copy_time: Duration,
    /// Time of products on the host.
    pub multiply_time: Duration,
    /// Time that the host waited for launches of split steps after its own rows were done.
    pub join_time: Duration,
    /// Time in which the GPU certainly had nothing to do for this plan: steps without launches of
    /// their own, and the end of the others after those launches. A lower bound.
    pub idle_time: Duration,
}

/// One step, with shares of what it reads.
struct Step {
    step: StepId,
    name: String,
    down: Vec<Transfer>,
    up: Vec<Transfer>,
    parts: Vec<Part>,
    /// Fixed figures of one execution.
    figures: HostCounters,
}

struct Part {
    dtype: Dtype,
    shape: (u32, u32),
    range: Range<u32>,
    weights: Arc<Buffer>,
    bytes: Range<usize>,
    x: At,
    y: At,
    /// In the hand-off buffer, or in sealed weights.
    added: Option<(At, Option<Arc<Buffer>>)>,
}

/// What the worker reads of the hand-off buffer, by product.
struct Job {
    task: Arc<Step>,
    x: Vec<Vec<f32>>,
    added: Vec<Vec<f32>>,
}

/// Rows of each product.
type Rows = Vec<Vec<f32>>;

/// Polls before a waiting side sleeps: a few microseconds, as long as waking it takes.
const SPINS: u32 = 1024;

/// Executes the steps of the host of one instance.
pub struct HostRunner {
    tasks: Vec<Arc<Step>>,
    engine: Arc<dyn HostEngine>,
    deadline: Duration,
    crew: Option<Crew<Job, Rows>>,
    posted: Instant,
    counters: HostCounters,
}

impl std::fmt::Debug for HostRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostRunner({} steps)", self.tasks.len())
    }
}

impl HostRunner {
    /// A runner for every step of the host of the instance's plan.
    ///
    /// # Errors
    /// [`HostError::NotHosted`] if a matrix is not in sealed host memory, which an instance prevents.
    pub fn new(
        instance: &Instance,
        engine: Arc<dyn HostEngine>,
        deadline: Duration,
    ) -> Result<Self, HostError> {
        let plan = instance.plan();
        let mut tasks = Vec::new();
        for (step, planned) in plan.barriers() {
            let Some(host) = planned.body.host() else {
                continue;
            };
            let parts = host
                .parts
                .iter()
                .map(|part| self::part(instance, part).ok_or(HostError::NotHosted { step }));
            let launches = planned.body.launches().len() as u64;
            tasks.push(Arc::new(Step {
                step,
                name: planned.name.clone(),
                down: host.down.clone(),
                up: host.up.clone(),
                parts: parts.collect::<Result<_, _>>()?,
                figures: figures(instance, host, launches),
            }));
        }
        Ok(Self {
            tasks,
            engine,
            deadline,
            crew: None,
            posted: Instant::now(),
            counters: HostCounters::default(),
        })
    }

    /// Steps of the host in a token.
    pub fn steps(&self) -> usize {
        self.tasks.len()
    }

    /// Figures so far.
    pub const fn counters(&self) -> &HostCounters {
        &self.counters
    }

    /// Replaces the figures, to leave a run out of them.
    pub const fn set_counters(&mut self, counters: HostCounters) {
        self.counters = counters;
    }

    fn task(&self, step: StepId) -> Result<Arc<Step>, HostError> {
        let found = self.tasks.binary_search_by_key(&step, |task| task.step);
        let found = found.ok().and_then(|index| self.tasks.get(index));
        found.cloned().ok_or(HostError::NotHosted { step })
    }

    /// Copies down what a step reads. Everything before the step must have finished.
    ///
    /// # Errors
    /// [`HostError::Copy`].
    pub fn down(&mut self, instance: &Instance, step: StepId) -> Result<(), HostError> {
        let task = self.task(step)?;
        self.copy(instance, &task, "down")
    }

    /// Has the worker begin with the host's rows; what runs beside them is started after this.
    ///
    /// # Errors
    /// [`HostError::Worker`], and [`HostError::Copy`] of the inputs to the worker.
    pub fn begin(&mut self, instance: &Instance, step: StepId) -> Result<(), HostError> {
        let task = self.task(step)?;
        self.posted = Instant::now();
        let job = load(instance, &task).map_err(|source| moved(&task, source))?;
        let limit = self.deadline;
        let posted = match &mut self.crew {
            Some(crew) => {
                // A worker that missed its deadline may have answered by now.
                let settled = crew.late().map_or(Ok(()), |_| crew.settle(limit));
                settled.and_then(|()| crew.post(step, job))
            }
            None => {
                let engine = self.engine.clone();
                let made = Crew::new(1, SPINS, move |work: Task<'_, Job>| {
                    compute(&*engine, work.job)
                });
                let crew = made.map_err(|error| HostError::Thread {
                    step,
                    name: task.name.clone(),
                    reason: error.to_string(),
                })?;
                self.crew.insert(crew).post(step, job)
            }
        };
        posted.map_err(|source| self.failed(&task, source))
    }

    /// Waits for the host's rows and leaves them in the hand-off buffer.
    ///
    /// # Errors
    /// [`HostError::Worker`], and [`HostError::Copy`] of the results from the worker.
    pub fn finish(&mut self, instance: &Instance, step: StepId) -> Result<(), HostError> {
        let task = self.task(step)?;
        let limit = self.deadline;
        let rows = match &mut self.crew {
            Some(crew) => crew.wait(limit),
            None => Err(HandoffError::NotPosted),
        };
        let rows = rows.map_err(|source| self.failed(&task, source))?;
        for (part, y) in task.parts.iter().zip(rows.iter().flatten()) {
            let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
            let stored = instance.write_at(part.y, &bytes);
            stored.map_err(|source| moved(&task, source))?;
        }
        self.counters.multiply_time += self.posted.elapsed();
        Ok(())
    }

    fn failed(&mut self, task: &Step, source: HandoffError) -> HostError {
        let complaints = self.crew.as_mut().map(Crew::complaints).unwrap_or_default();
        let said = complaints.into_iter().map(|(_, text)| format!(": {text}"));
        let said = said.collect();
        // One whose worker is gone serves no more.
        let gone = |kind| kind == FaultKind::Gone;
        if matches!(source, HandoffError::Fault { kind, .. } if gone(kind)) {
            self.crew = None;
        }
        HostError::Worker {
            step: task.step,
            name: task.name.clone(),
            source,
            said,
        }
    }

    /// Copies up what a step wrote, and counts the step. Launches beside it must have finished.
    ///
    /// # Errors
    /// [`HostError::Copy`].
    pub fn up(&mut self, instance: &Instance, step: StepId) -> Result<(), HostError> {
        let task = self.task(step)?;
        self.copy(instance, &task, "up")?;
        let (sum, one) = (&mut self.counters, &task.figures);
        sum.cpu_steps += one.cpu_steps;
        sum.split_steps += one.split_steps;
        sum.host_rows += one.host_rows;
        sum.host_bytes += one.host_bytes;
        sum.gpu_rows += one.gpu_rows;
        sum.gpu_bytes += one.gpu_bytes;
        sum.split_launches += one.split_launches;
        sum.copied += one.copied;
        sum.too_small += one.too_small;
        Ok(())
    }

    /// Counts time that was spent waiting for launches beside a step.
    pub fn joined(&mut self, waited: Duration) {
        self.counters.join_time += waited;
    }

    /// Counts time in which the GPU had nothing to do.
    pub fn idled(&mut self, idle: Duration) {
        self.counters.idle_time += idle;
    }

    fn copy(
        &mut self,
        instance: &Instance,
        task: &Step,
        direction: &'static str,
    ) -> Result<(), HostError> {
        let start = Instant::now();
        let list = if direction == "down" {
            &task.down
        } else {
            &task.up
        };
        for transfer in list {
            instance
                .transfer(transfer)
                .map_err(|source| HostError::Copy {
                    step: task.step,
                    name: task.name.clone(),
                    direction,
                    source,
                })?;
        }
        self.counters.copy_time += start.elapsed();
        Ok(())
    }
}

fn figures(instance: &Instance, host: &HostStep, launches: u64) -> HostCounters {
    let mut sum = HostCounters {
        cpu_steps: u64::from(launches == 0),
        split_steps: u64::from(launches > 0),
        split_launches: launches,
        copied: host.transfer_bytes(),
        ..HostCounters::default()
    };
    for part in &host.parts {
        let tensor = instance.plan().model.tensors.get(part.tensor as usize);
        let Some(tensor) = tensor else { continue };
        let own = part.weight_bytes(tensor);
        sum.host_rows += u64::from(part.rows());
        sum.host_bytes += own;
        sum.gpu_rows += u64::from(tensor.rows - part.rows().min(tensor.rows));
        sum.gpu_bytes += tensor.bytes - own.min(tensor.bytes);
        sum.too_small += u64::from(part.why == HostWhy::TooSmall);
    }
    sum
}

fn part(instance: &Instance, part: &HostGemv) -> Option<Part> {
    let tensor = instance.plan().model.tensors.get(part.tensor as usize)?;
    let weights = instance.shared(tensor.buffer)?;
    let first = usize::try_from(tensor.offset).ok()?;
    let bytes = first..first.checked_add(usize::try_from(tensor.bytes).ok()?)?;
    weights.sealed_bytes()?.get(bytes.clone())?;
    let added = match part.add {
        HostAdd::Nothing => None,
        HostAdd::Rows(at) => {
            let buffer = instance.shared(at.buffer)?;
            let sealed = buffer.sealed_bytes().is_some();
            Some((at, sealed.then_some(buffer)))
        }
    };
    Some(Part {
        dtype: tensor.dtype,
        shape: (tensor.rows, tensor.cols),
        range: part.first..part.end,
        weights,
        bytes,
        x: part.x,
        y: part.y,
        added,
    })
}

fn moved(task: &Step, source: DeviceError) -> HostError {
    HostError::Copy {
        step: task.step,
        name: task.name.clone(),
        direction: "to or from the worker",
        source,
    }
}

/// All products of a step, and what is added to them.
fn compute(engine: &dyn HostEngine, job: &Job) -> Result<Rows, String> {
    let mut rows = Vec::with_capacity(job.task.parts.len());
    for ((part, x), added) in job.task.parts.iter().zip(&job.x).zip(&job.added) {
        let weights = part.weights.sealed_bytes();
        let weights = weights.and_then(|all| all.get(part.bytes.clone()));
        let product = Product {
            dtype: part.dtype,
            weights: weights.unwrap_or_default(),
            shape: part.shape,
            range: part.range.clone(),
            x,
        };
        let mut y = vec![0.0; part.range.len()];
        let done = engine.multiply(&product, &mut y);
        done.map_err(|error| error.to_string())?;
        for (y, added) in y.iter_mut().zip(added) {
            *y += added;
        }
        rows.push(y);
    }
    Ok(rows)
}

/// The inputs of a step, out of the hand-off buffer.
fn load(instance: &Instance, task: &Arc<Step>) -> Result<Job, DeviceError> {
    let (mut x, mut added) = (Vec::new(), Vec::new());
    for part in &task.parts {
        x.push(read(instance, part.x, part.shape.1 as usize)?);
        let rows = part.range.len();
        added.push(match &part.added {
            None => Vec::new(),
            Some((at, None)) => read(instance, *at, rows)?,
            Some((at, Some(sealed))) => {
                let first = at.offset as usize;
                let all = sealed.sealed_bytes().unwrap_or_default();
                floats(all.get(first..first + rows * 4).unwrap_or_default())
            }
        });
    }
    let task = task.clone();
    Ok(Job { task, x, added })
}

fn read(instance: &Instance, at: At, count: usize) -> Result<Vec<f32>, DeviceError> {
    let mut bytes = vec![0; count * 4];
    instance.read_at(at, &mut bytes)?;
    Ok(floats(&bytes))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
