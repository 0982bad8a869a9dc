//! One segment to one indirect buffer: head acquire, state and dispatches, terminal wait.

use crate::launch::{Before, DispatchDesc, EncodeError, KernelImage};
use crate::pm4::{Emission, Policy, Writer};
use crate::reloc::{AddressFree, Cause, Dwords, Relocation, RelocationKind};
use crate::tables::registers::{COMPUTE_FIRST, initiator, reg, rsrc1, rsrc2};
use crate::target::Gfx;

/// Longest indirect buffer in dwords (20-bit size field).
pub const fn max_ib_dwords() -> u32 {
    0xF_FFFF
}

/// A register value before addresses are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Word(u32),
    Address {
        kind: RelocationKind,
        symbol: u32,
        addend: u64,
    },
}

/// Registers 0x200 to 0x24F.
const SHADOW: usize = 0x50;
/// Longest register run: 16 user SGPRs.
const RUN: usize = 16;

struct Encoder<'a> {
    target: Gfx,
    policy: &'a Policy,
    out: Writer,
    relocations: Vec<Relocation>,
    dwords: Dwords,
    shadow: [Option<Value>; SHADOW],
}

/// Encodes launches as one indirect buffer.
///
/// Words: ACQUIRE_MEM with the target's head GCR; START and RESOURCE_LIMITS once; per launch
/// what `before` asks for, NUM_THREAD, PGM, RSRC1 to 3, USER_DATA, DISPATCH_DIRECT; a terminal
/// CS_PARTIAL_FLUSH; NOP padding when the policy pads.
///
/// # Errors
/// The first launch that violates a limit, or a buffer longer than [`max_ib_dwords`].
pub fn encode_ib(
    target: Gfx,
    policy: &Policy,
    kernels: &[KernelImage],
    launches: &[DispatchDesc],
) -> Result<AddressFree, EncodeError> {
    if launches.is_empty() {
        return Err(EncodeError::Empty);
    }
    let per_launch = 40 + usize::from(policy.pacing);
    let mut encoder = Encoder {
        target,
        policy,
        out: Writer::with_capacity(32 + launches.len().saturating_mul(per_launch)),
        relocations: Vec::with_capacity(launches.len().saturating_mul(4)),
        dwords: Dwords::default(),
        shadow: [None; SHADOW],
    };
    let mut at = Vec::with_capacity(launches.len());
    encoder.acquire(Cause::Head, target.capability().head_acquire.value);
    encoder.registers(Cause::Start, reg::START_X, &[Value::Word(0); 3])?;
    encoder.registers(Cause::Limits, reg::RESOURCE_LIMITS, &[Value::Word(0)])?;
    // Checking a kernel's descriptor once is enough; launches of it differ in shape only.
    let mut checked = vec![false; kernels.len()];
    for (index, launch) in launches.iter().enumerate() {
        let kernel = launch.kernel_of(index, target, kernels, &mut checked)?;
        at.push(encoder.launch(kernel, launch)?);
    }
    encoder.wait(Cause::Terminal);
    if policy.pad {
        let missing = encoder.out.len().wrapping_neg() % 8;
        encoder.nop(Cause::Padding, missing)?;
    }
    if encoder.out.len() > max_ib_dwords() as usize {
        let dwords = encoder.out.len();
        return Err(EncodeError::TooLong {
            dwords,
            limit: max_ib_dwords(),
        });
    }
    Ok(AddressFree {
        target,
        transport: "pm4",
        policy: policy.name,
        symbols: kernels.iter().map(|kernel| kernel.symbol.clone()).collect(),
        words: encoder.out.into_words(),
        relocations: encoder.relocations,
        launches: at,
        dwords: encoder.dwords,
    })
}

impl Encoder<'_> {
    /// Writes one launch and returns the word index of its dispatch packet.
    fn launch(&mut self, kernel: &KernelImage, launch: &DispatchDesc) -> Result<u32, EncodeError> {
        match launch.before {
            Before::Nothing => {}
            Before::Wait => self.wait(Cause::Wait),
            Before::WaitAcquire(word) => {
                self.wait(Cause::Wait);
                self.acquire(Cause::Acquire, word);
            }
        }
        let size = launch.group_size.map(Value::Word);
        self.registers(Cause::NumThread, reg::NUM_THREAD_X, &size)?;
        let entry = |kind| Value::Address {
            kind,
            symbol: launch.kernel,
            addend: 0,
        };
        let entry = [
            entry(RelocationKind::EntryLo),
            entry(RelocationKind::EntryHi),
        ];
        self.registers(Cause::Program, reg::PGM_LO, &entry)?;
        let descriptor = &kernel.descriptor;
        let mut word1 = descriptor.rsrc1;
        if self.policy.sets_priv(self.target.capability()) {
            word1 |= rsrc1::PRIV;
        }
        let granules = launch.lds_bytes.div_ceil(rsrc2::LDS_GRANULE);
        let word2 = (descriptor.rsrc2 & !rsrc2::LDS_SIZE) | granules << rsrc2::LDS_SHIFT;
        let words = [Value::Word(word1), Value::Word(word2)];
        self.registers(Cause::Resources, reg::PGM_RSRC1, &words)?;
        self.registers(
            Cause::Resources,
            reg::PGM_RSRC3,
            &[Value::Word(descriptor.rsrc3)],
        )?;
        self.user_data(kernel, launch)?;
        let at = self.out.len() as u32;
        let control = if descriptor.wave32() {
            initiator::WAVE32
        } else {
            initiator::WAVE64
        };
        self.out.dispatch(launch.groups, control);
        self.dwords.add(Cause::Dispatch, 5);
        if self.policy.pacing != 0 {
            self.nop(Cause::Pacing, usize::from(self.policy.pacing) + 1)?;
        }
        Ok(at)
    }

    /// All user SGPRs that RSRC2.USER_SGPR covers; padding and an unused scratch descriptor are 0.
    fn user_data(
        &mut self,
        kernel: &KernelImage,
        launch: &DispatchDesc,
    ) -> Result<(), EncodeError> {
        let layout = kernel.descriptor.user_sgprs();
        let mut values = [Value::Word(0); RUN];
        if let Some(first) = layout.kernarg_segment_ptr {
            let first = usize::from(first);
            let addend = launch.kernarg_offset;
            let kinds = [RelocationKind::KernargLo, RelocationKind::KernargHi];
            for (slot, kind) in values.iter_mut().skip(first).zip(kinds) {
                *slot = Value::Address {
                    kind,
                    symbol: 0,
                    addend,
                };
            }
        }
        let count = usize::from(layout.count).min(RUN);
        self.registers(Cause::UserData, reg::USER_DATA_0, &values[..count])
    }

    /// Writes consecutive registers; with elision only the span of changed ones.
    fn registers(&mut self, cause: Cause, first: u16, values: &[Value]) -> Result<(), EncodeError> {
        let base = usize::from(first - COMPUTE_FIRST);
        let changed = |i: &usize| self.shadow.get(base + i).copied().flatten() != Some(values[*i]);
        let (from, to) = match self.policy.emission {
            Emission::Static => (0, values.len()),
            Emission::Elide => {
                let from = (0..values.len()).find(changed);
                let to = (0..values.len()).rev().find(changed);
                match (from, to) {
                    (Some(from), Some(to)) => (from, to + 1),
                    _ => return Ok(()),
                }
            }
        };
        if from == to {
            return Ok(());
        }
        let span = &values[from..to];
        let mut words = [0; RUN];
        let first_word = self.out.len() as u32 + 2;
        for (i, value) in span.iter().enumerate() {
            match *value {
                Value::Word(word) => words[i] = word,
                Value::Address {
                    kind,
                    symbol,
                    addend,
                } => {
                    let word = first_word + i as u32;
                    self.relocations.push(Relocation {
                        word,
                        kind,
                        symbol,
                        addend,
                    });
                }
            }
            if let Some(slot) = self.shadow.get_mut(base + from + i) {
                *slot = Some(*value);
            }
        }
        self.out
            .set_sh_reg(first + from as u16, &words[..span.len()])?;
        self.dwords.add(cause, span.len() as u32 + 2);
        Ok(())
    }

    fn wait(&mut self, cause: Cause) {
        self.out.wait();
        self.dwords.add(cause, 2);
    }

    fn acquire(&mut self, cause: Cause, gcr: u32) {
        self.out.acquire(gcr);
        self.dwords.add(cause, 8);
    }

    fn nop(&mut self, cause: Cause, dwords: usize) -> Result<(), EncodeError> {
        self.out.nop(dwords)?;
        self.dwords.add(cause, dwords as u32);
        Ok(())
    }
}
