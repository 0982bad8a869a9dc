//! A plan's buffers on one device: allocated, filled with weights and constants, reset per text.
//!
//! An instance knows nothing of launches or packets; [`crate::eager`] and the replayer run on it.

mod resume;

pub use resume::Kept;

use crate::address::AddressMap;
use crate::source::{
    SourceError, TensorSource, check_header, check_length, check_weights, load_tensor,
};
use refrain_device::{Buffer, Device, DeviceError, MemoryKind};
use refrain_kernels::{CONTROL_BYTES, NOT_A_TOKEN, RingEntry, Word, WordValues};
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::{At, BufferId, BufferKind, Plan, Tier, Transfer};
use std::sync::Arc;

/// Why an instance could not be made or reset.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// The model file is not the plan's.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The device refused.
    #[error("buffer {buffer}: {source}")]
    Device {
        /// The buffer concerned.
        buffer: String,
        /// The device's answer.
        source: DeviceError,
    },
    /// The plan was made for another target.
    #[error("the plan is for {plan}, the device {device} is a {found}; make a plan for it")]
    Target {
        /// The plan's target.
        plan: &'static str,
        /// Name of the device.
        device: String,
        /// Its target.
        found: String,
    },
    /// The plan needs more memory than the device has.
    #[error(
        "the plan needs {needed} bytes of device memory, {device} has {available}; choose a shorter context or a smaller model"
    )]
    Memory {
        /// Bytes of all device buffers.
        needed: u64,
        /// Bytes of the device.
        available: u64,
        /// Name of the device.
        device: String,
    },
    /// The plan lacks a buffer that every plan has.
    #[error("the plan has no {kind:?} buffer; make it again")]
    BufferAbsent {
        /// Its kind.
        kind: BufferKind,
    },
    /// The prompt is empty.
    #[error("the prompt has no token; give at least one")]
    EmptyPrompt,
    /// The prompt is longer than the context.
    #[error(
        "the prompt has {tokens} tokens, the plan has a context of {context}; shorten it or plan a longer context"
    )]
    PromptTooLong {
        /// Its tokens.
        tokens: usize,
        /// The plan's context.
        context: u32,
    },
    /// A plan over other buffers than those allocated.
    #[error("the plan has {what}: plans of one family share all buffers; compile them together")]
    OtherBuffers {
        /// The first difference.
        what: String,
    },
    /// The plan pins more memory than the host has left.
    #[error(
        "the plan pins {needed} bytes of host memory, which nothing can reclaim, and {available} are \
         available now; end other programs, or keep more layers on the GPU"
    )]
    HostMemory {
        /// Bytes of pinned memory in whole pages.
        needed: u64,
        /// Bytes that the system can give without swapping.
        available: u64,
    },
    /// A prompt token that the vocabulary does not have.
    #[error("prompt token {index} is {token}, the vocabulary has {vocab}")]
    Token {
        /// Index in the prompt.
        index: usize,
        /// Token id.
        token: u32,
        /// Vocabulary size.
        vocab: u32,
    },
}

/// The bytes of one buffer at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferState {
    /// Name of the buffer.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The first byte in which two snapshots differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Buffer.
    pub buffer: String,
    /// Byte offset in it.
    pub offset: u64,
    /// Value in the first snapshot.
    pub first: u8,
    /// Value in the second.
    pub second: u8,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            buffer,
            offset,
            first,
            second,
        } = self;
        write!(
            f,
            "buffer {buffer}, byte {offset:#x}: {first:#04x} and {second:#04x}"
        )
    }
}

/// One digest over the name, length and bytes of every buffer: equal states of two processes,
/// targets or machines have equal digests.
pub fn state_digest(states: &[BufferState]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("refrain 1 state");
    for state in states {
        hasher.update(&(state.name.len() as u64).to_le_bytes());
        hasher.update(state.name.as_bytes());
        hasher.update(&(state.bytes.len() as u64).to_le_bytes());
        hasher.update(&state.bytes);
    }
    *hasher.finalize().as_bytes()
}

/// The first difference between two snapshots of one plan; a missing buffer counts as one.
pub fn first_difference(first: &[BufferState], second: &[BufferState]) -> Option<Difference> {
    for (a, b) in first.iter().zip(second) {
        if a == b {
            continue;
        }
        let offset = a.bytes.iter().zip(&b.bytes).position(|(x, y)| x != y);
        let offset = offset.unwrap_or_else(|| a.bytes.len().min(b.bytes.len()));
        let at = |state: &BufferState| state.bytes.get(offset).copied().unwrap_or(0);
        return Some(Difference {
            buffer: a.name.clone(),
            offset: offset as u64,
            first: at(a),
            second: at(b),
        });
    }
    let longer = if first.len() > second.len() {
        first
    } else {
        second
    };
    let missing = longer.get(first.len().min(second.len()))?;
    let value = missing.bytes.first().copied().unwrap_or(0);
    Some(Difference {
        buffer: missing.name.clone(),
        offset: 0,
        first: if first.len() > second.len() { value } else { 0 },
        second: if first.len() > second.len() { 0 } else { value },
    })
}

/// A plan's buffers on a device.
#[derive(Debug)]
pub struct Instance {
    device: Arc<Device>,
    plan: Arc<CheckedPlan>,
    buffers: Vec<Arc<Buffer>>,
    control: usize,
    prompt: usize,
    ring: usize,
}

impl Instance {
    /// Allocates every buffer of the plan and uploads weights and constants. Nothing is left
    /// behind on an error.
    ///
    /// # Errors
    /// Any [`InstanceError`] but those about prompts.
    pub fn new(
        device: &Arc<Device>,
        plan: &Arc<CheckedPlan>,
        source: &dyn TensorSource,
    ) -> Result<Self, InstanceError> {
        check_weights(&plan.model)?;
        check_target(device, plan)?;
        check_memory(device, plan)?;
        check_host_memory(plan, available_host_memory())?;
        check_length(source, &plan.model)?;
        check_header(source, &plan.model)?;
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for buffer in &plan.buffers {
            let kind = match buffer.kind.tier() {
                Tier::Device => MemoryKind::Device,
                Tier::HostCoherent => MemoryKind::HostCoherent,
            };
            let align = u64::from(buffer.align);
            let made = device.alloc(kind, &buffer.name, buffer.bytes, align);
            buffers.push(Arc::new(made.map_err(|e| device_error(&buffer.name, e))?));
        }
        let find = |kind| {
            let found = plan.buffers.iter().position(|buffer| buffer.kind == kind);
            found.ok_or(InstanceError::BufferAbsent { kind })
        };
        let mut instance = Self {
            control: find(BufferKind::Control)?,
            prompt: find(BufferKind::Prompt)?,
            ring: find(BufferKind::TokenRing)?,
            device: device.clone(),
            plan: plan.clone(),
            buffers,
        };
        instance.upload(source)?;
        instance.seal()?;
        Ok(instance)
    }

    /// Ends writing to spilled weights, so that steps of the host may borrow them.
    fn seal(&mut self) -> Result<(), InstanceError> {
        for (planned, buffer) in self.plan.buffers.iter().zip(&mut self.buffers) {
            // Nobody shares a buffer before the instance exists.
            if planned.kind == BufferKind::SpilledWeights
                && let Some(own) = Arc::get_mut(buffer)
            {
                own.seal().map_err(|e| device_error(&planned.name, e))?;
            }
        }
        Ok(())
    }

    /// Bytes of all buffers as allocated, of the device and of the host.
    pub fn allocated(&self) -> (u64, u64) {
        let (mut device, mut pinned) = (0u64, 0u64);
        for buffer in &self.buffers {
            let sum = match buffer.kind() {
                MemoryKind::Device => &mut device,
                _ => &mut pinned,
            };
            *sum = sum.saturating_add(buffer.len());
        }
        (device, pinned)
    }

    /// A share of a plan buffer.
    pub(crate) fn shared(&self, buffer: BufferId) -> Option<Arc<Buffer>> {
        self.buffers.get(buffer as usize).cloned()
    }

    /// Copies between device memory and the hand-off buffer, after all earlier work of the stream, and
    /// waits for it.
    pub(crate) fn transfer(&self, transfer: &Transfer) -> Result<(), DeviceError> {
        let Transfer { from, to, bytes } = *transfer;
        let end = |at: At| Some((&**self.buffers.get(at.buffer as usize)?, at.offset));
        match (end(from), end(to)) {
            (Some(from), Some(to)) => self.device.stream().copy(from, to, bytes),
            // A checked plan has both.
            _ => Ok(()),
        }
    }

    /// Reads bytes of a host-visible buffer.
    pub(crate) fn read_at(&self, at: At, out: &mut [u8]) -> Result<(), DeviceError> {
        match self.buffers.get(at.buffer as usize) {
            Some(buffer) => buffer.read(at.offset, out),
            None => Ok(()),
        }
    }

    /// Writes bytes of a host-visible buffer.
    pub(crate) fn write_at(&self, at: At, bytes: &[u8]) -> Result<(), DeviceError> {
        match self.buffers.get(at.buffer as usize) {
            Some(buffer) => buffer.write(at.offset, bytes),
            None => Ok(()),
        }
    }

    fn upload(&self, source: &dyn TensorSource) -> Result<(), InstanceError> {
        for (index, buffer) in self.plan.buffers.iter().enumerate() {
            match buffer.kind {
                BufferKind::Constant => self.write(index, 0, &buffer.content)?,
                // Gaps between its vectors are never written again, and snapshots hold them.
                BufferKind::HandOff => self.write(index, 0, &vec![0; buffer.bytes as usize])?,
                _ => {}
            }
        }
        for tensor in &self.plan.model.tensors {
            load_tensor(source, tensor, |bytes| {
                self.write(tensor.buffer as usize, tensor.offset, bytes)
            })?;
        }
        self.synchronize(self.control)
    }

    fn name(&self, index: usize) -> &str {
        self.plan
            .buffers
            .get(index)
            .map_or("?", |buffer| &buffer.name)
    }

    fn buffer(&self, index: usize) -> Result<&Buffer, InstanceError> {
        self.buffers
            .get(index)
            .map(Arc::as_ref)
            .ok_or(InstanceError::BufferAbsent {
                kind: BufferKind::Scratch,
            })
    }

    fn write(&self, index: usize, offset: u64, bytes: &[u8]) -> Result<(), InstanceError> {
        let buffer = self.buffer(index)?;
        let done = match buffer.kind() {
            MemoryKind::Device => self.device.stream().copy_to_device(buffer, offset, bytes),
            _ => buffer.write(offset, bytes),
        };
        done.map_err(|source| device_error(self.name(index), source))
    }

    fn synchronize(&self, index: usize) -> Result<(), InstanceError> {
        let done = self.device.stream().synchronize();
        done.map_err(|source| device_error(self.name(index), source))
    }

    /// The device.
    pub const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The plan.
    pub const fn plan(&self) -> &Arc<CheckedPlan> {
        &self.plan
    }

    /// Device address of a plan buffer; 0 for a buffer that the plan has not.
    pub fn base(&self, buffer: BufferId) -> u64 {
        self.buffers
            .get(buffer as usize)
            .map_or(0, |buffer| buffer.va())
    }

    /// Where device addresses fall among this instance's buffers.
    pub fn address_map(&self) -> AddressMap {
        let rows = self.buffers.iter().enumerate().map(|(index, buffer)| {
            // Plans hold far fewer than 2^32 buffers; the container limits them.
            (buffer.va(), buffer.len(), index as BufferId)
        });
        AddressMap::new(rows)
    }

    /// Starts a text: prompt and words as given, ring entries zero, KV rows as they are (no row is
    /// read before the text wrote it). The device must
    /// be idle. `generate` bounds the generated tokens.
    ///
    /// # Errors
    /// Those about prompts, and [`InstanceError::Device`].
    pub fn reset(&mut self, prompt: &[u32], generate: u32) -> Result<(), InstanceError> {
        check_prompt(&self.plan, prompt)?;
        let mut words = start_words(&self.plan, prompt, generate);
        words.set(Word::Token, prompt.first().copied().unwrap_or(0));
        self.start(prompt, &words)
    }

    /// Starts in the middle of a context for one recorded token: `position` is set as if all
    /// rows before it had been decoded, with zero rows.
    ///
    /// # Errors
    /// As [`Self::reset`].
    pub fn reset_at(&mut self, position: u32) -> Result<(), InstanceError> {
        let mut words = start_words(&self.plan, &[0], u32::MAX);
        words.set(Word::Pos, position);
        self.fill(BufferKind::Kv, 0)?;
        self.fill(BufferKind::State, 0)?;
        self.start(&[0], &words)
    }

    fn start(&self, prompt: &[u32], words: &WordValues) -> Result<(), InstanceError> {
        let prompt_bytes = self.buffer(self.prompt)?.len();
        let mut ids = vec![0; prompt_bytes as usize];
        for (slot, token) in ids.chunks_exact_mut(4).zip(prompt) {
            slot.copy_from_slice(&token.to_le_bytes());
        }
        self.write(self.prompt, 0, &ids)?;
        let ring_bytes = self.buffer(self.ring)?.len();
        self.write(self.ring, 0, &vec![0; ring_bytes as usize])?;
        self.write(self.control, 0, &words.to_bytes())?;
        self.synchronize(self.control)
    }

    /// Writes bytes into a plan buffer. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Device`], also for bytes past the buffer's end.
    pub fn set(&self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), InstanceError> {
        self.write(buffer as usize, offset, bytes)?;
        self.synchronize(buffer as usize)
    }

    /// Fills every device buffer of a kind with one byte.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn fill(&self, kind: BufferKind, value: u8) -> Result<(), InstanceError> {
        for (index, planned) in self.plan.buffers.iter().enumerate() {
            if planned.kind == kind {
                let buffer = self.buffer(index)?;
                let done = self.device.stream().memset(buffer, 0, value, buffer.len());
                done.map_err(|source| device_error(&planned.name, source))?;
            }
        }
        Ok(())
    }

    /// The control block's words. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn words(&self) -> Result<WordValues, InstanceError> {
        let mut bytes = [0; CONTROL_BYTES as usize];
        let buffer = self.buffer(self.control)?;
        let done = self.device.stream().copy_from_device(buffer, 0, &mut bytes);
        done.map_err(|source| device_error(self.name(self.control), source))?;
        Ok(WordValues::from_bytes(&bytes))
    }

    /// The ring entry of sequence number `seq` (from 1), or `None` while it is not written.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn ring_entry(&self, seq: u32) -> Result<Option<RingEntry>, InstanceError> {
        let mask = self.plan.options.ring_entries.wrapping_sub(1);
        let offset = u64::from(seq.wrapping_sub(1) & mask) * RingEntry::BYTES;
        let buffer = self.buffer(self.ring)?;
        let word = buffer
            .load_u64(offset)
            .map_err(|source| device_error(self.name(self.ring), source))?;
        let entry = RingEntry::unpack(word);
        Ok((entry.seq == seq).then_some(entry))
    }

    /// Every buffer that a step may write, byte for byte. The device must be idle.
    ///
    /// # Errors
    /// [`InstanceError::Device`].
    pub fn snapshot(&self) -> Result<Vec<BufferState>, InstanceError> {
        let mut states = Vec::new();
        for (index, planned) in self.plan.buffers.iter().enumerate() {
            let buffer = self.buffer(index)?;
            let mut bytes = vec![0; planned.bytes as usize];
            let done = match buffer.kind() {
                MemoryKind::Device => self.device.stream().copy_from_device(buffer, 0, &mut bytes),
                _ => buffer.read(0, &mut bytes),
            };
            done.map_err(|source| device_error(&planned.name, source))?;
            states.push(BufferState {
                name: planned.name.clone(),
                bytes,
            });
        }
        Ok(states)
    }
}

/// Refuses a prompt that the plan has no room or no tokens for.
pub(crate) fn check_prompt(plan: &Plan, prompt: &[u32]) -> Result<(), InstanceError> {
    let (context, vocab) = (plan.options.bucket, plan.model.geometry.vocab);
    if prompt.is_empty() {
        return Err(InstanceError::EmptyPrompt);
    }
    if prompt.len() > context as usize {
        return Err(InstanceError::PromptTooLong {
            tokens: prompt.len(),
            context,
        });
    }
    match prompt
        .iter()
        .enumerate()
        .find(|(_, token)| **token >= vocab)
    {
        Some((index, token)) => Err(InstanceError::Token {
            index,
            token: *token,
            vocab,
        }),
        None => Ok(()),
    }
}

/// The control words at the start of a text.
pub(crate) fn start_words(plan: &Plan, prompt: &[u32], generate: u32) -> WordValues {
    let mut words = WordValues::default();
    // A prompt is at most as long as the bucket, which is a u32.
    words.set(Word::PromptLen, prompt.len() as u32);
    words.set(Word::GenLimit, generate);
    words.set(Word::CtxLen, plan.options.bucket);
    words.set(Word::Eos, plan.model.eos.unwrap_or(NOT_A_TOKEN));
    words.set(Word::RingMask, plan.options.ring_entries.wrapping_sub(1));
    words.set(Word::Sampled, NOT_A_TOKEN);
    words
}

fn device_error(buffer: &str, source: DeviceError) -> InstanceError {
    InstanceError::Device {
        buffer: buffer.to_owned(),
        source,
    }
}

/// Refuses a plan for another target than the device's.
///
/// # Errors
/// [`InstanceError::Target`].
pub fn check_target(device: &Device, plan: &Plan) -> Result<(), InstanceError> {
    let info = device.info();
    let wanted = plan
        .kernels
        .iter()
        .find(|kernel| kernel.target.name() != info.target);
    match wanted {
        None => Ok(()),
        Some(kernel) => Err(InstanceError::Target {
            plan: kernel.target.name(),
            device: info.name.clone(),
            found: info.target.clone(),
        }),
    }
}

fn check_memory(device: &Device, plan: &CheckedPlan) -> Result<(), InstanceError> {
    let needed = plan.memory.device;
    let available = device.info().vram_bytes;
    if needed <= available {
        return Ok(());
    }
    let device = device.info().name.clone();
    Err(InstanceError::Memory {
        needed,
        available,
        device,
    })
}

/// Refuses a plan whose pinned memory the host does not have; unknown admits.
fn check_host_memory(plan: &CheckedPlan, available: Option<u64>) -> Result<(), InstanceError> {
    let needed = plan.memory.pinned_rounded;
    match available {
        Some(available) if needed > available => {
            Err(InstanceError::HostMemory { needed, available })
        }
        _ => Ok(()),
    }
}

/// Bytes that the system can give without swapping, where it says so (Linux, `proc(5)`).
fn available_host_memory() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// `MemAvailable` of a `/proc/meminfo`, in bytes.
fn available(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let row = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = row.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{
        BufferState, InstanceError, available, available_host_memory, check_host_memory,
        first_difference,
    };
    use refrain_planner::machine::Machine;
    use refrain_planner::{CheckedPlan, CompileOptions, ModelSource, compile};

    fn plan() -> CheckedPlan {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models");
        let source = ModelSource::open(format!("{root}/nano-qwen3.bf16.gguf")).unwrap();
        let machine = Machine::load("gfx1201").unwrap();
        compile(&source, &machine, &CompileOptions::default()).unwrap()
    }

    #[test]
    fn pinned_memory_that_the_host_has_not_is_refused_before_anything_is_allocated() {
        let plan = plan();
        let needed = plan.memory.pinned_rounded;
        assert!(check_host_memory(&plan, None).is_ok());
        assert!(check_host_memory(&plan, Some(needed)).is_ok());
        let refused = check_host_memory(&plan, Some(needed - 1));
        assert!(matches!(refused, Err(InstanceError::HostMemory { .. })));
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(available(text), Some(8000 * 1024));
        for bad in [
            "",
            "MemAvailable: x kB",
            "MemAvailable: 5",
            "MemAvailable: 99999999999999999999 kB",
        ] {
            assert_eq!(available(bad), None, "{bad}");
        }
        if cfg!(target_os = "linux") {
            assert!(available_host_memory().is_some_and(|bytes| bytes > 0));
        }
    }

    fn state(name: &str, bytes: &[u8]) -> BufferState {
        BufferState {
            name: name.into(),
            bytes: bytes.to_vec(),
        }
    }

    #[test]
    fn the_first_differing_byte_is_named() {
        let base = [state("a", &[1, 2]), state("b", &[3, 4, 5])];
        assert_eq!(first_difference(&base, &base), None);
        let rows: [(&[BufferState], &str); 4] = [
            (
                &[state("a", &[1, 9]), state("b", &[0, 4, 5])],
                "buffer a, byte 0x1: 0x02 and 0x09",
            ),
            (
                &[state("a", &[1, 2]), state("b", &[3, 4, 6])],
                "buffer b, byte 0x2: 0x05 and 0x06",
            ),
            (
                &[state("a", &[1, 2]), state("b", &[3, 4])],
                "buffer b, byte 0x2: 0x05 and 0x00",
            ),
            (&base[..1], "buffer b, byte 0x0: 0x03 and 0x00"),
        ];
        for (other, text) in rows {
            assert_eq!(first_difference(&base, other).unwrap().to_string(), text);
        }
    }
}
