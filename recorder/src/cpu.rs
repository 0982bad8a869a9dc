//! A plan on the CPU: its buffers in host memory, its launches executed one after the other.
//!
//! What a device's [`crate::Instance`] and [`crate::EagerExecutor`] are together. Kernel arguments are
//! the plan's own bytes, with host buffers at made-up addresses; what the kernels compute is
//! `refrain_cpu::decode`'s business.

use crate::instance::{BufferState, InstanceError, check_prompt, start_words};
use crate::source::{TensorSource, check_header, check_length, check_weights, load_tensor};
use refrain_cpu::decode::{DecodeError, Memory, Program};
use refrain_cpu::{CpuError, Engine, Isa, Matrix};
use refrain_kernels::{CONTROL_BYTES, RingEntry, Word, WordValues};
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{
    At, BufferKind, HostAdd, HostGemv, KernargError, Launch, Plan, StepId, Transfer,
};
use std::sync::Arc;

/// Why a plan cannot be run on the CPU, or a step failed.
#[derive(Debug, thiserror::Error)]
pub enum CpuRunError {
    /// Weights or prompt.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// The plan's arguments do not fit its kernels.
    #[error(transparent)]
    Kernarg(#[from] KernargError),
    /// A buffer cannot be made or written.
    #[error("buffer {buffer}: {source}")]
    Buffer {
        /// Its name.
        buffer: String,
        /// Why.
        source: DecodeError,
    },
    /// A step cannot be executed.
    #[error("step {step} ({name}): {source}")]
    Step {
        /// Index of the step.
        step: StepId,
        /// Its name.
        name: String,
        /// Why.
        source: DecodeError,
    },
    /// No threads.
    #[error(transparent)]
    Threads(CpuError),
}

impl From<crate::SourceError> for CpuRunError {
    fn from(error: crate::SourceError) -> Self {
        Self::Instance(error.into())
    }
}

/// A part of a step.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A launch of the program.
    Launch(usize),
    /// A copy that a step of the host lists: here from host memory to host memory.
    Copy(Transfer),
    /// A product of a step of the host.
    Product(HostGemv),
}

/// A plan's buffers in host memory, and its steps ready to run.
#[derive(Debug)]
pub struct CpuInstance {
    plan: Arc<CheckedPlan>,
    memory: Memory,
    program: Program,
    /// What is done, in order, and the step that it belongs to.
    work: Vec<(StepId, Work)>,
    engine: Engine,
    control: usize,
    prompt: usize,
    ring: usize,
}

impl CpuInstance {
    /// Allocates every buffer, loads weights and constants, and prepares every launch for `threads`
    /// threads (0 counts as 1, more than the machine runs at once as that many). Any target's plan
    /// will do.
    ///
    /// # Errors
    /// Any [`CpuRunError`]; one of a step names the kernel that has no CPU function.
    pub fn new(
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        threads: usize,
    ) -> Result<Self, CpuRunError> {
        Self::with(plan, source, threads, Isa::best())
    }

    /// As [`Self::new`] with an instruction set; one that this machine lacks is replaced by its best.
    /// No result depends on it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
        threads: usize,
        isa: Isa,
    ) -> Result<Self, CpuRunError> {
        check_weights(&plan.model)?;
        check_length(source, &plan.model)?;
        check_header(source, &plan.model)?;
        let find = |kind| {
            let found = plan.buffers.iter().position(|buffer| buffer.kind == kind);
            found.ok_or(InstanceError::BufferAbsent { kind })
        };
        let mut memory = Memory::default();
        for buffer in &plan.buffers {
            let made = memory.add(buffer.bytes);
            made.map_err(|source| buffer_error(&buffer.name, source))?;
        }
        let mut instance = Self {
            control: find(BufferKind::Control)?,
            prompt: find(BufferKind::Prompt)?,
            ring: find(BufferKind::TokenRing)?,
            plan: plan.clone(),
            memory,
            program: Program::default(),
            work: Vec::new(),
            engine: Engine::with(isa, threads).map_err(CpuRunError::Threads)?,
        };
        // Before the weights: what cannot run should not take minutes to say so.
        instance.prepare()?;
        instance.upload(source)?;
        Ok(instance)
    }

    fn prepare(&mut self) -> Result<(), CpuRunError> {
        let plan = self.plan.clone();
        let most = most(&plan);
        for (step, planned) in (0..).zip(&plan.steps) {
            let host = planned.body.host();
            let down = host.into_iter().flat_map(|host| &host.down);
            self.work.extend(down.map(|copy| (step, Work::Copy(*copy))));
            for launch in planned.body.launches() {
                self.push(step, launch, &most)?;
            }
            let products = host.into_iter().flat_map(|host| &host.parts);
            self.work
                .extend(products.map(|part| (step, Work::Product(*part))));
            let up = host.into_iter().flat_map(|host| &host.up);
            self.work.extend(up.map(|copy| (step, Work::Copy(*copy))));
        }
        Ok(())
    }

    fn push(
        &mut self,
        step: StepId,
        launch: &Launch,
        most: &WordValues,
    ) -> Result<(), CpuRunError> {
        let kernel = self.plan.kernels.get(launch.kernel as usize);
        let row = kernel.and_then(|kernel| refrain_kernels::find(&kernel.symbol));
        let row = row.ok_or_else(|| KernargError::NoKernel {
            step,
            symbol: kernel.map_or_else(|| launch.kernel.to_string(), |k| k.symbol.clone()),
        })?;
        let base = |buffer| self.memory.base(buffer as usize);
        let mut kernarg = vec![0; row.kernarg_bytes() as usize];
        self.plan
            .write_kernargs_of(step, launch, &base, &mut kernarg)?;
        let pushed = self.program.push(row, &kernarg, &self.memory, most);
        let index = pushed.map_err(|source| self.failed(step, source))?;
        self.work.push((step, Work::Launch(index)));
        Ok(())
    }

    fn name(&self, step: StepId) -> String {
        let planned = self.plan.steps.get(step as usize);
        planned.map_or_else(|| "?".to_owned(), |step| step.name.clone())
    }

    fn failed(&self, step: StepId, source: DecodeError) -> CpuRunError {
        let name = self.name(step);
        CpuRunError::Step { step, name, source }
    }

    fn upload(&mut self, source: &dyn TensorSource) -> Result<(), CpuRunError> {
        let plan = self.plan.clone();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            if buffer.kind == BufferKind::Constant {
                self.write(index, 0, &buffer.content)?;
            }
        }
        for tensor in &plan.model.tensors {
            load_tensor(source, tensor, |bytes| {
                self.write(tensor.buffer as usize, tensor.offset, bytes)
            })?;
        }
        Ok(())
    }

    fn write(&mut self, buffer: usize, offset: u64, bytes: &[u8]) -> Result<(), CpuRunError> {
        let done = self.memory.write(buffer, offset, bytes);
        let name = self
            .plan
            .buffers
            .get(buffer)
            .map_or("?", |buffer| &buffer.name);
        done.map_err(|source| buffer_error(name, source))
    }

    /// The plan.
    pub const fn plan(&self) -> &Arc<CheckedPlan> {
        &self.plan
    }

    /// Threads that share the rows of a product.
    pub fn threads(&self) -> usize {
        self.engine.threads()
    }

    /// The instruction set in use.
    pub const fn isa(&self) -> Isa {
        self.engine.isa()
    }

    /// Launches of a token.
    pub const fn launches(&self) -> usize {
        self.program.len()
    }

    /// Starts a text, as [`crate::Instance::reset`].
    ///
    /// # Errors
    /// Those about prompts.
    pub fn reset(&mut self, prompt: &[u32], generate: u32) -> Result<(), CpuRunError> {
        check_prompt(&self.plan, prompt)?;
        let mut words = start_words(&self.plan, prompt, generate);
        words.set(Word::Token, prompt.first().copied().unwrap_or(0));
        let (ids, tokens) = (self.prompt, self.ring);
        self.memory.bytes_mut(ids).fill(0);
        for (index, token) in prompt.iter().enumerate() {
            self.write(ids, index as u64 * 4, &token.to_le_bytes())?;
        }
        self.memory.bytes_mut(tokens).fill(0);
        self.write(self.control, 0, &words.to_bytes())
    }

    /// Executes every launch of one token.
    ///
    /// # Errors
    /// [`CpuRunError::Step`]; the text cannot be continued.
    pub fn step(&mut self) -> Result<(), CpuRunError> {
        for index in 0..self.work.len() {
            let Some((step, work)) = self.work.get(index).copied() else {
                break;
            };
            let done = match work {
                Work::Launch(launch) => self.program.run(launch, &mut self.memory, &self.engine),
                Work::Copy(Transfer { from, to, bytes }) => {
                    self.copied(from, bytes).and_then(|copied| {
                        let (buffer, offset) = (to.buffer as usize, to.offset);
                        self.memory.write(buffer, offset, &copied)
                    })
                }
                Work::Product(part) => self.product(&part),
            };
            done.map_err(|source| self.failed(step, source))?;
        }
        Ok(())
    }

    /// Bytes of a buffer, copied.
    fn copied(&self, at: At, bytes: u64) -> Result<Vec<u8>, DecodeError> {
        let buffer = at.buffer as usize;
        self.memory
            .read(buffer, at.offset, bytes)
            .map(<[u8]>::to_vec)
    }

    /// f32 of a buffer, copied.
    fn floats(&self, at: At, bytes: u64) -> Result<Vec<f32>, DecodeError> {
        let bytes = self.copied(at, bytes)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }

    /// Rows of a step of the host.
    fn product(&mut self, part: &HostGemv) -> Result<(), DecodeError> {
        // A checked plan has the tensor.
        let Some(tensor) = self.plan.model.tensors.get(part.tensor as usize) else {
            return Ok(());
        };
        let x = self.floats(part.x, HostGemv::x_bytes(tensor))?;
        let mut y = vec![0.0; part.rows() as usize];
        let (buffer, shape) = (tensor.buffer as usize, (tensor.rows, tensor.cols));
        let weights = self.memory.read(buffer, tensor.offset, tensor.bytes)?;
        let w = Matrix::new(tensor.dtype, weights, shape.0.into(), shape.1.into())?;
        let rows = part.first as usize..part.end as usize;
        self.engine.gemv_exact(&w, &x, rows, &mut y)?;
        if let HostAdd::Rows(at) = part.add {
            for (y, added) in y.iter_mut().zip(self.floats(at, part.y_bytes())?) {
                *y += added;
            }
        }
        let bytes: Vec<u8> = y.iter().flat_map(|y| y.to_le_bytes()).collect();
        self.memory
            .write(part.y.buffer as usize, part.y.offset, &bytes)
    }

    /// The ring entry of sequence number `seq` (from 1), or `None` while it is not written.
    pub fn ring_entry(&self, seq: u32) -> Option<RingEntry> {
        let mask = self.plan.options.ring_entries.wrapping_sub(1);
        let index = (seq.wrapping_sub(1) & mask) as usize;
        let (entries, _) = self.memory.bytes(self.ring).as_chunks::<8>();
        let entry = RingEntry::unpack(u64::from_le_bytes(*entries.get(index)?));
        (entry.seq == seq).then_some(entry)
    }

    /// The control block's words.
    pub fn words(&self) -> WordValues {
        let block = self.memory.bytes(self.control);
        let block = block.first_chunk::<{ CONTROL_BYTES as usize }>();
        block.map(WordValues::from_bytes).unwrap_or_default()
    }

    /// Fills every buffer of a kind with one byte.
    pub fn fill(&mut self, kind: BufferKind, value: u8) {
        for (index, planned) in self.plan.buffers.iter().enumerate() {
            if planned.kind == kind {
                self.memory.bytes_mut(index).fill(value);
            }
        }
    }

    /// Every buffer, byte for byte.
    pub fn snapshot(&self) -> Vec<BufferState> {
        let buffers = self.plan.buffers.iter().enumerate();
        let state = |(index, planned): (usize, &refrain_planner::plan::Buffer)| BufferState {
            name: planned.name.clone(),
            bytes: self.memory.bytes(index).to_vec(),
        };
        buffers.map(state).collect()
    }
}

fn buffer_error(buffer: &str, source: DecodeError) -> CpuRunError {
    CpuRunError::Buffer {
        buffer: buffer.to_owned(),
        source,
    }
}

/// The greatest value of each word that decides which bytes a launch may touch.
fn most(plan: &Plan) -> WordValues {
    let mut most = WordValues::default();
    most.set(Word::Token, plan.model.geometry.vocab.saturating_sub(1));
    most.set(Word::Pos, plan.options.bucket.saturating_sub(1));
    most.set(Word::PromptLen, plan.options.bucket);
    most.set(Word::RingMask, plan.options.ring_entries.wrapping_sub(1));
    most.set(Word::Seq, u32::MAX);
    most
}
