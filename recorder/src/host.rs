//! Steps of the host: copies down, products on a worker thread, copies up, and what they cost.
//!
//! The caller knows when everything before a step has finished and what runs beside it; this module
//! moves the bytes that the step lists and has an engine multiply. The engine runs on a thread of its
//! own with everything it reads owned or shared by that thread, so that one that panics or is slower
//! than the deadline is an error of the step and nothing else.

use crate::instance::Instance;
use refrain_cpu::gemv_exact;
use refrain_device::{Buffer, DeviceError};
use refrain_kernels::{CatalogError, Dtype};
use refrain_planner::plan::{At, HostAdd, HostGemv, HostStep, HostWhy, StepId, Transfer};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
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
    /// The engine refused the product.
    #[error("step {step} ({name}): {source}")]
    Engine {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// What it says.
        source: CatalogError,
    },
    /// The engine panicked. Nothing was copied up.
    #[error("step {step} ({name}): the CPU worker panicked: {message}; restart the text")]
    Panicked {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// What it said.
        message: String,
    },
    /// The engine was slower than the deadline. Nothing was copied up.
    #[error("step {step} ({name}): the CPU worker did not finish within {deadline:?}; restart the text")]
    Deadline {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// The deadline.
        deadline: Duration,
    },
    /// No worker thread could be started.
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
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CatalogError>;
}

/// Exact mode: the GPU's own order of sums.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExactEngine;

impl HostEngine for ExactEngine {
    fn multiply(&self, product: &Product<'_>, y: &mut [f32]) -> Result<(), CatalogError> {
        let Product {
            dtype,
            weights,
            shape: (rows, k),
            ref range,
            x,
        } = *product;
        gemv_exact(dtype, weights, x, range.clone(), k, rows, y)
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
}

/// One step, with shares of what it reads.
struct Task {
    step: StepId,
    name: String,
    split: bool,
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

/// Numbers of one execution, handed to the worker and back.
#[derive(Default)]
struct Numbers {
    x: Vec<f32>,
    added: Vec<f32>,
    y: Vec<f32>,
}

struct Job {
    task: Arc<Task>,
    numbers: Vec<Numbers>,
    bytes: Vec<u8>,
}

enum Answer {
    Done(Job),
    Refused(CatalogError),
    Panicked(String),
}

struct Worker {
    jobs: SyncSender<Job>,
    answers: Receiver<Answer>,
}

/// Executes the steps of the host of one instance.
pub struct HostRunner {
    tasks: Vec<Arc<Task>>,
    engine: Arc<dyn HostEngine>,
    deadline: Duration,
    worker: Option<Worker>,
    spare: Option<Job>,
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
            let parts = host.parts.iter().map(|part| {
                self::part(instance, part).ok_or(HostError::NotHosted { step })
            });
            let launches = planned.body.launches().len() as u64;
            tasks.push(Arc::new(Task {
                step,
                name: planned.name.clone(),
                split: launches > 0,
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
            worker: None,
            spare: None,
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

    fn task(&self, step: StepId) -> Result<Arc<Task>, HostError> {
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

    /// Has the worker compute the host's rows, and leaves them in the hand-off buffer.
    ///
    /// # Errors
    /// Any but [`HostError::Copy`] of direction `up`.
    pub fn multiply(&mut self, instance: &Instance, step: StepId) -> Result<(), HostError> {
        let task = self.task(step)?;
        let start = Instant::now();
        let mut job = self.spare.take().unwrap_or_else(|| Job {
            task: task.clone(),
            numbers: Vec::new(),
            bytes: Vec::new(),
        });
        job.task = task.clone();
        let moved = |source| HostError::Copy {
            step,
            name: task.name.clone(),
            direction: "to the engine",
            source,
        };
        load(instance, &mut job).map_err(moved)?;
        let mut job = self.answer(job)?;
        store(instance, &mut job).map_err(moved)?;
        self.spare = Some(job);
        self.counters.multiply_time += start.elapsed();
        Ok(())
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

    /// Whether launches run beside a step.
    pub fn is_split(&self, step: StepId) -> bool {
        self.task(step).is_ok_and(|task| task.split)
    }

    fn copy(
        &mut self,
        instance: &Instance,
        task: &Task,
        direction: &'static str,
    ) -> Result<(), HostError> {
        let start = Instant::now();
        let list = if direction == "down" { &task.down } else { &task.up };
        for transfer in list {
            instance.transfer(transfer).map_err(|source| HostError::Copy {
                step: task.step,
                name: task.name.clone(),
                direction,
                source,
            })?;
        }
        self.counters.copy_time += start.elapsed();
        Ok(())
    }

    fn answer(&mut self, job: Job) -> Result<Job, HostError> {
        let (step, name) = (job.task.step, job.task.name.clone());
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => start(self.engine.clone()).map_err(|error| HostError::Thread {
                step,
                name: name.clone(),
                reason: error.to_string(),
            })?,
        };
        let deadline = self.deadline;
        // A worker that does not answer is left behind: it ends when its channels are gone.
        let gone = || HostError::Panicked {
            step,
            name: name.clone(),
            message: "its thread ended".to_owned(),
        };
        worker.jobs.send(job).map_err(|_| gone())?;
        let answer = worker.answers.recv_timeout(deadline).map_err(|error| match error {
            RecvTimeoutError::Timeout => HostError::Deadline {
                step,
                name: name.clone(),
                deadline,
            },
            RecvTimeoutError::Disconnected => gone(),
        })?;
        self.worker = Some(worker);
        match answer {
            Answer::Done(job) => Ok(job),
            Answer::Refused(source) => Err(HostError::Engine { step, name, source }),
            Answer::Panicked(message) => Err(HostError::Panicked {
                step,
                name,
                message,
            }),
        }
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

fn start(engine: Arc<dyn HostEngine>) -> std::io::Result<Worker> {
    let (jobs, inbox) = sync_channel::<Job>(1);
    let (outbox, answers) = sync_channel(1);
    let work = move || {
        for mut job in inbox {
            let done = catch_unwind(AssertUnwindSafe(|| compute(&*engine, &mut job)));
            let answer = match done {
                Ok(Ok(())) => Answer::Done(job),
                Ok(Err(error)) => Answer::Refused(error),
                Err(payload) => Answer::Panicked(message(&*payload)),
            };
            if outbox.send(answer).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new()
        .name("refrain-host-step".to_owned())
        .spawn(work)?;
    Ok(Worker { jobs, answers })
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}

/// All products of a job, and what is added to them.
fn compute(engine: &dyn HostEngine, job: &mut Job) -> Result<(), CatalogError> {
    for (part, numbers) in job.task.parts.iter().zip(&mut job.numbers) {
        let weights = part.weights.sealed_bytes().and_then(|all| all.get(part.bytes.clone()));
        let product = Product {
            dtype: part.dtype,
            weights: weights.unwrap_or_default(),
            shape: part.shape,
            range: part.range.clone(),
            x: &numbers.x,
        };
        engine.multiply(&product, &mut numbers.y)?;
        for (y, added) in numbers.y.iter_mut().zip(&numbers.added) {
            *y += added;
        }
    }
    Ok(())
}

/// Takes a job's inputs out of the hand-off buffer and gives its results their length.
fn load(instance: &Instance, job: &mut Job) -> Result<(), DeviceError> {
    let Job {
        task,
        numbers,
        bytes,
    } = job;
    numbers.resize_with(task.parts.len(), Numbers::default);
    for (part, numbers) in task.parts.iter().zip(numbers) {
        read(instance, part.x, part.shape.1 as usize, bytes, &mut numbers.x)?;
        let rows = part.range.len();
        match &part.added {
            None => numbers.added.clear(),
            Some((at, None)) => read(instance, *at, rows, bytes, &mut numbers.added)?,
            Some((at, Some(sealed))) => {
                let first = at.offset as usize;
                let all = sealed.sealed_bytes().unwrap_or_default();
                floats(all.get(first..first + rows * 4).unwrap_or_default(), &mut numbers.added);
            }
        }
        numbers.y.clear();
        numbers.y.resize(rows, 0.0);
    }
    Ok(())
}

fn read(
    instance: &Instance,
    at: At,
    count: usize,
    bytes: &mut Vec<u8>,
    out: &mut Vec<f32>,
) -> Result<(), DeviceError> {
    bytes.clear();
    bytes.resize(count * 4, 0);
    instance.read_at(at, bytes)?;
    floats(bytes, out);
    Ok(())
}

fn floats(bytes: &[u8], out: &mut Vec<f32>) {
    let (words, _) = bytes.as_chunks::<4>();
    out.clear();
    out.extend(words.iter().map(|word| f32::from_le_bytes(*word)));
}

/// Puts a job's results into the hand-off buffer.
fn store(instance: &Instance, job: &mut Job) -> Result<(), DeviceError> {
    for (part, numbers) in job.task.parts.iter().zip(&job.numbers) {
        job.bytes.clear();
        let words = numbers.y.iter().flat_map(|y| y.to_le_bytes());
        job.bytes.extend(words);
        instance.write_at(part.y, &job.bytes)?;
    }
    Ok(())
}
