//! One software GPU in strict mode with one plan on it: sets states, runs tokens by every route,
//! collects what was found.
//!
//! A subject judges nothing; it hands out reports, traces and states.

use super::ProveError;
use crate::lifecycle::{Checked, Poisoned, Stage, StageError};
use crate::open::{OpenedDevice, SoftOptions};
use crate::replayer::Replayer;
use crate::segments::SegmentReplayer;
use crate::spec::DeviceSpec;
use crate::strict::{Report, StrictConfig, declarations};
use refrain_device::{DeviceError, Function, Module};
use refrain_kernels::{Dtype, Target, Word, WordValues};
use refrain_lower::{KernelImages, Lowered, Policy, Transport, lower_runs};
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{BufferKind, Digest, Plan};
use refrain_recorder::tape::{Entry, Place};
use refrain_recorder::{BufferState, CodeObjects, EagerExecutor, Instance, Tape, TensorSource};
use refrain_softgpu::SoftGpu;
use refrain_softgpu::strict::TracedLaunch;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a token under strict mode: orders of magnitude above any that ends.
const DEADLINE: Duration = Duration::from_secs(600);
/// Byte that scratch holds before runs that are compared.
const SCRUB: u8 = 0xA5;

/// What a proof is about.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub plan: &'a Arc<CheckedPlan>,
    pub source: &'a dyn TensorSource,
    pub objects: &'a dyn CodeObjects,
    pub target: Target,
}

/// How a token is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// One HIP launch per step.
    Eager,
    /// HIP launches with the bytes of a tape.
    Relaunched,
    /// Pre-encoded packets.
    Retained(Transport),
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Eager => f.write_str("eager launches"),
            Self::Relaunched => f.write_str("recorded launches made again"),
            Self::Retained(transport) => write!(f, "{transport} replay"),
        }
    }
}

/// See the module.
pub(super) struct Subject {
    // Fields drop in this order: packets in flight name the instance's buffers.
    retained: Vec<Retained>,
    relaunch: Option<Relaunch>,
    eager: EagerExecutor,
    pub instance: Instance,
    gpu: Arc<SoftGpu>,
}

impl Case<'_> {
    fn open(&self, seed: u64, traces: usize) -> Result<(OpenedDevice, Arc<SoftGpu>), ProveError> {
        let strict = StrictConfig {
            traces,
            ..StrictConfig::default()
        };
        let soft = SoftOptions {
            seed,
            threads: Some(1),
            strict: Some(strict),
        };
        let opened = OpenedDevice::open(DeviceSpec::Soft(self.target), soft)?;
        opened.device.set_deadline(DEADLINE);
        let gpu = opened.soft.clone().ok_or(ProveError::NotSoft)?;
        Ok((opened, gpu))
    }

    /// Records and reconciles on a fresh software GPU and gives a tape of the first position. Nothing has
    /// written its scratch buffers, so a read of bytes that nobody wrote is among the reports.
    pub fn record(&self, seed: u64) -> Result<(Tape, Vec<Report>), ProveError> {
        let (opened, gpu) = self.open(seed, 0)?;
        let mut tap = opened.tap();
        let tap = tap
            .as_mut()
            .map(|tap| tap as &mut dyn refrain_recorder::PacketTap);
        let reconciled = Checked::new(self.plan, &opened.device)?
            .record(self.source, self.objects, tap)?
            .reconcile()?;
        let tape = reconciled.recording().tapes.first().cloned();
        let tape = tape.ok_or(ProveError::NotSoft)?;
        Ok((tape, gpu.take_reports().reports))
    }

    /// A fresh software GPU with the plan's buffers, a tape's launches and the given forms.
    pub fn subject(
        &self,
        seed: u64,
        traces: usize,
        tape: Option<&Tape>,
        forms: &[Packets],
    ) -> Result<Subject, ProveError> {
        let (opened, gpu) = self.open(seed, traces)?;
        let instance = Instance::new(&opened.device, self.plan, self.source)
            .map_err(|error| poisoned(error.into()))?;
        let eager =
            EagerExecutor::new(&instance, self.objects).map_err(|error| poisoned(error.into()))?;
        let relaunch = tape.map(|tape| Relaunch::of(tape, &instance, self.objects));
        let relaunch = relaunch.transpose()?;
        self.bound(instance, eager, relaunch, gpu, forms)
    }

    fn bound(
        &self,
        instance: Instance,
        eager: EagerExecutor,
        relaunch: Option<Relaunch>,
        gpu: Arc<SoftGpu>,
        forms: &[Packets],
    ) -> Result<Subject, ProveError> {
        let retained: Result<Vec<Retained>, StageError> = forms
            .iter()
            .map(|form| Retained::new(&instance, form, self.objects, &|_, words| words))
            .collect();
        let retained = retained.map_err(poisoned)?;
        gpu.declare(declarations(&instance));
        Ok(Subject {
            retained,
            relaunch,
            eager,
            instance,
            gpu,
        })
    }

    /// The address-free packets for a transport.
    pub fn packets(
        &self,
        images: &KernelImages,
        transport: Transport,
    ) -> Result<Packets, ProveError> {
        let runs = lower_runs(self.plan, images, transport, Policy::default());
        let runs = runs.map_err(|error| poisoned(error.into()))?;
        Ok(Packets { transport, runs })
    }
}

/// One form's address-free packets: one run of launches, or several with steps of the host between.
#[derive(Debug, Clone)]
pub(super) struct Packets {
    pub transport: Transport,
    pub runs: Vec<Lowered>,
}

/// One form bound to an instance.
enum Retained {
    Whole(Replayer),
    Segments(SegmentReplayer),
}

impl Retained {
    fn new(
        instance: &Instance,
        packets: &Packets,
        objects: &dyn CodeObjects,
        edit: &dyn Fn(usize, Vec<u32>) -> Vec<u32>,
    ) -> Result<Self, StageError> {
        let runs = &packets.runs;
        match &runs[..] {
            [one] if instance.plan().barriers().next().is_none() => {
                let edit = |words| edit(0, words);
                let made = Replayer::edited(instance, one, objects, IN_FLIGHT, DEADLINE, &edit);
                Ok(Self::Whole(made?))
            }
            _ => {
                let made =
                    SegmentReplayer::edited(instance, runs, objects, IN_FLIGHT, DEADLINE, edit);
                Ok(Self::Segments(made?))
            }
        }
    }

    const fn transport(&self) -> Transport {
        match self {
            Self::Whole(replayer) => replayer.transport(),
            Self::Segments(replayer) => replayer.transport(),
        }
    }

    fn submit(&mut self, instance: &Instance, eager: &EagerExecutor) -> Result<(), ProveError> {
        match self {
            Self::Whole(replayer) => Ok(replayer.submit()?),
            Self::Segments(replayer) => Ok(replayer.submit(instance, &mut eager.host())?),
        }
    }

    fn drain(&mut self) -> Result<(), ProveError> {
        match self {
            Self::Whole(replayer) => Ok(replayer.drain()?),
            Self::Segments(replayer) => Ok(replayer.drain()?),
        }
    }
}

/// Tokens queued at once.
const IN_FLIGHT: u32 = 8;

fn poisoned(error: StageError) -> ProveError {
    ProveError::Poisoned(Poisoned {
        stage: Stage::Lower,
        error: Box::new(error),
    })
}

impl Subject {
    /// Puts every buffer that a token may write into the state of a text at `position`: rows and
    /// recurrent states of earlier tokens are numbers drawn from `seed`, later rows zero.
    pub fn set(&mut self, position: u32, seed: u64) -> Result<(), ProveError> {
        self.eager.wait()?;
        self.instance.fill(BufferKind::Scratch, SCRUB)?;
        self.instance.reset_at(position)?;
        let plan = Arc::clone(self.instance.plan());
        let mut random = Random(seed ^ u64::from(position) << 32 | 1);
        for (id, buffer) in (0u32..).zip(&plan.buffers) {
            let bytes = match buffer.kind {
                BufferKind::Kv => {
                    let rows = u64::from(plan.options.context.max(1));
                    buffer.bytes / rows * u64::from(position)
                }
                BufferKind::State if position > 0 => buffer.bytes,
                _ => continue,
            };
            let half = buffer.kind == BufferKind::Kv && plan.options.kv_dtype == Dtype::F16;
            self.instance.set(id, 0, &random.floats(bytes, half))?;
        }
        if let Some(control) = plan.control_buffer() {
            let token = random.next() as u32 % plan.model.geometry.vocab.max(1);
            let at = u64::from(Word::Token.offset());
            self.instance.set(control, at, &token.to_le_bytes())?;
        }
        Ok(())
    }

    /// Runs `tokens` token steps; between two of them scratch is filled with `poison`, if one is
    /// given, and otherwise retained tokens are in flight together.
    pub fn run(&mut self, route: Route, tokens: u32, poison: Option<u8>) -> Result<(), ProveError> {
        for token in 0..tokens {
            if let Some(byte) = poison.filter(|_| token > 0) {
                self.idle()?;
                self.instance.fill(BufferKind::Scratch, byte)?;
            }
            match route {
                Route::Eager => self.eager.submit(&self.instance)?,
                Route::Relaunched => match &self.relaunch {
                    Some(relaunch) => relaunch.submit(&self.instance)?,
                    None => self.eager.submit(&self.instance)?,
                },
                Route::Retained(transport) => {
                    let mut all = self.retained.iter_mut();
                    let form = all.find(|form| form.transport() == transport);
                    let form = form.ok_or(ProveError::NotSoft)?;
                    form.submit(&self.instance, &self.eager)?;
                }
            }
        }
        self.idle()
    }

    fn idle(&mut self) -> Result<(), ProveError> {
        for form in &mut self.retained {
            form.drain()?;
        }
        Ok(self.eager.wait()?)
    }

    /// Puts a form with edited words in the place of all forms; `edit` is told the run.
    pub fn edit(
        &mut self,
        packets: &Packets,
        objects: &dyn CodeObjects,
        edit: &dyn Fn(usize, Vec<u32>) -> Vec<u32>,
    ) -> Result<(), ProveError> {
        self.retained.clear();
        let made = Retained::new(&self.instance, packets, objects, edit);
        self.retained.push(made.map_err(poisoned)?);
        Ok(())
    }

    /// Every buffer, byte for byte.
    pub fn snapshot(&self) -> Result<Vec<BufferState>, ProveError> {
        Ok(self.instance.snapshot()?)
    }

    /// The control words.
    pub fn words(&self) -> Result<WordValues, ProveError> {
        Ok(self.instance.words()?)
    }

    /// Takes the reports so far.
    pub fn reports(&self) -> Vec<Report> {
        self.gpu.take_reports().reports
    }

    /// Takes the traces so far.
    pub fn traces(&self) -> Vec<TracedLaunch> {
        self.gpu.take_traces()
    }
}

/// A tape's launches with exactly the recorded bytes, pointers bound to an instance.
struct Relaunch {
    launches: Vec<Again>,
}

/// One launch of a tape.
struct Again {
    function: Function,
    grid: [u32; 3],
    block: [u32; 3],
    lds: u32,
    kernarg: Vec<u8>,
}

impl Relaunch {
    fn of(tape: &Tape, instance: &Instance, objects: &dyn CodeObjects) -> Result<Self, ProveError> {
        let mut modules: Vec<(Digest, Module)> = Vec::new();
        let mut launches = Vec::new();
        for entry in &tape.entries {
            let Entry::Launch(launch) = entry else {
                continue;
            };
            let symbol = &launch.symbol;
            let absent = || {
                let symbol = symbol.clone();
                poisoned(StageError::ObjectAbsent { symbol })
            };
            let failed = |source: DeviceError| {
                let symbol = symbol.clone();
                poisoned(StageError::Load { symbol, source })
            };
            if !modules.iter().any(|row| row.0 == launch.object) {
                let bytes = objects.get(&launch.object).ok_or_else(absent)?;
                let module = Module::load(instance.device(), bytes).map_err(failed)?;
                modules.push((launch.object, module));
            }
            let module = modules.iter().find(|row| row.0 == launch.object);
            let (_, module) = module.ok_or_else(absent)?;
            let function = module.function(symbol).map_err(failed)?;
            let mut kernarg = launch.kernarg.clone();
            for pointer in &launch.pointers {
                let at = pointer.at as usize;
                if let (Place::Region { buffer, offset }, Some(slot)) =
                    (pointer.place, kernarg.get_mut(at..at + 8))
                {
                    let address = instance.base(buffer) + offset;
                    slot.copy_from_slice(&address.to_le_bytes());
                }
            }
            launches.push(Again {
                function,
                grid: launch.grid,
                block: launch.block,
                lds: launch.lds,
                kernarg,
            });
        }
        Ok(Self { launches })
    }

    fn submit(&self, instance: &Instance) -> Result<(), ProveError> {
        let stream = instance.device().stream();
        for again in &self.launches {
            let Again {
                function,
                grid,
                block,
                lds,
                kernarg,
            } = again;
            let done = stream.launch(function, *grid, *block, *lds, kernarg);
            done.map_err(|source| {
                let symbol = function.symbol().to_owned();
                poisoned(StageError::Load { symbol, source })
            })?;
        }
        Ok(())
    }
}

/// Numbers for states: the same on every machine (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    /// Floats of magnitude 0.5 to 1 and either sign.
    fn floats(&mut self, bytes: u64, half: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes as usize + 4);
        while (out.len() as u64) < bytes {
            let bits = self.next() as u32;
            if half {
                out.extend((bits as u16 & 0x83ff | 0x3800).to_le_bytes());
            } else {
                out.extend((bits & 0x807f_ffff | 0x3f00_0000).to_le_bytes());
            }
        }
        out.truncate(bytes as usize);
        out
    }
}

/// Token steps that are run at a position: as many as the bucket has, at most `most`, and at its end
/// one more, which must change nothing.
pub(super) fn steps_at(plan: &Plan, position: u32, most: u32) -> u32 {
    let left = plan.options.bucket.saturating_sub(position);
    most.min(left + 1)
}
