//! Reads emitted words back with the independent decoder and compares them with the plan's segment.
//!
//! Every address is bound to a made-up value of its own first, so that a swapped relocation shows.
//! Count, order, kernels, grids, LDS, kernargs, waits, invalidations, completion: a difference
//! names the packet. What the plan does not ask for (an extra wait) is allowed.

use crate::{Addresses, Lowered, Transport};
use refrain_packet::aql::decode::{AqlPacket, decode, reserved_violation};
use refrain_packet::aql::{Header, KernelDispatch, Scope};
use refrain_packet::decode::packets;
use refrain_packet::launch::KernelImage;
use refrain_packet::packet::Packet;
use refrain_packet::pm4::{Emission, Policy};
use refrain_packet::reloc::ResolveError;
use refrain_packet::state::ShState;
use refrain_packet::tables::registers::{initiator, reg, rsrc1, rsrc2};
use refrain_packet::target::Capability;
use refrain_planner::plan::{Invalidate, Launch, Segment};

/// How emitted words differ from the plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("packet {packet} (dword {dword}) of step {step} ({name}): {what}")]
pub struct EncodingError {
    /// Packet number: AQL packet, or dispatch in the indirect buffer.
    pub packet: usize,
    /// Dword offset in the words.
    pub dword: u32,
    /// Step that the packet should carry out.
    pub step: usize,
    /// Its name.
    pub name: String,
    /// What differs, with both values.
    pub what: String,
}

/// Made-up address of the kernarg arena.
pub(crate) const KERNARG_BASE: u64 = 0x7A00_0000_0000;
/// Made-up handle of the completion signal.
pub(crate) const SIGNAL: u64 = 0x7B00_0000_0040;
const OBJECT_BASE: u64 = 0x7C00_0000_0000;
/// Distance of made-up descriptors, which differ in both halves: a relocation of either half that
/// names another kernel shows. Entries keep their own offset from them.
const OBJECT_STRIDE: u64 = 0x1_0010_0000;

/// A made-up 64-byte aligned descriptor address whose entry is 256-byte aligned.
pub(crate) fn object(index: usize, kernel: &KernelImage) -> u64 {
    let near = OBJECT_BASE + index as u64 * OBJECT_STRIDE + OBJECT_STRIDE / 2;
    let entry = kernel.descriptor.entry_va(near);
    near - entry % 256
}

struct Reader<'a> {
    segment: &'a Segment<'a>,
    kernels: &'a [KernelImage],
    lowered: &'a Lowered,
    row: &'static Capability,
}

/// Compares `lowered` with the segment it was made from.
///
/// # Errors
/// The first difference.
pub fn read_back(
    segment: &Segment<'_>,
    kernels: &[KernelImage],
    lowered: &Lowered,
) -> Result<(), EncodingError> {
    let row = lowered.encoded.target.capability();
    let reader = Reader {
        segment,
        kernels,
        lowered,
        row,
    };
    let objects: Vec<u64> = kernels
        .iter()
        .enumerate()
        .map(|(index, kernel)| object(index, kernel))
        .collect();
    let addresses = Addresses {
        kernel_objects: &objects,
        kernarg_base: KERNARG_BASE,
        signal: SIGNAL,
    };
    let words = lowered
        .bind(&addresses)
        .map_err(|error| reader.unbound(&error))?;
    match lowered.transport {
        Transport::Aql => reader.aql(&words),
        Transport::Pm4 => reader.pm4(&words),
    }
}

impl Reader<'_> {
    fn unbound(&self, error: &ResolveError) -> EncodingError {
        self.error(0, 0, 0, error.to_string())
    }

    /// An error at a packet; `launch` counts in the segment.
    fn error(&self, packet: usize, dword: u32, launch: usize, what: String) -> EncodingError {
        let (step, name) = self.segment.step(launch);
        EncodingError {
            packet,
            dword,
            step: step as usize,
            name: name.to_owned(),
            what,
        }
    }

    fn launch(&self, step: usize) -> Option<(&Launch, &KernelImage, [u32; 3])> {
        let launch = self.segment.launches().get(step)?.launch;
        Some((
            launch,
            self.kernels.get(launch.kernel as usize)?,
            self.segment.kernel(launch)?.block,
        ))
    }

    fn wait(&self, step: usize) -> Option<Invalidate> {
        self.segment.launches().get(step)?.wait
    }

    fn kernarg(&self, step: usize) -> u64 {
        KERNARG_BASE + self.lowered.arena.offset(step).unwrap_or(u64::MAX / 4)
    }

    /// The first row whose values differ, as text.
    fn rows<const N: usize>(rows: [(&str, u64, u64); N]) -> Option<String> {
        let row = rows
            .into_iter()
            .find(|(_, found, planned)| found != planned)?;
        Some(format!(
            "{} is {:#x}, the plan says {:#x}",
            row.0, row.1, row.2
        ))
    }

    // ---- AQL ---------------------------------------------------------------------------------

    fn aql(&self, words: &[u32]) -> Result<(), EncodingError> {
        let steps = self.segment.launches().len();
        let count = words.len() / 16;
        let mut signalled = false;
        for (index, chunk) in words.chunks(16).enumerate() {
            let step = index.min(steps.saturating_sub(1));
            let fail = |what| Err(self.error(index, index as u32 * 16, step, what));
            let mut bytes = [0_u8; 64];
            for (slot, word) in bytes.chunks_exact_mut(4).zip(chunk) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
            if chunk.len() != 16 {
                return fail(format!("{} dwords, a packet has 16", chunk.len()));
            }
            if let Some((offset, field, value)) = reserved_violation(&bytes) {
                return fail(format!("reserved byte {offset} ({field}) is {value:#x}"));
            }
            let decoded = decode(&bytes);
            let header = match Header::from_bits(decoded.header) {
                Ok(header) => header,
                Err(error) => return fail(error.to_string()),
            };
            let signal = match decoded.packet {
                AqlPacket::KernelDispatch(packet) if index < steps => {
                    if let Some(what) = self.aql_dispatch(index, header, &packet) {
                        return fail(what);
                    }
                    packet.completion_signal
                }
                AqlPacket::BarrierAnd(packet) if index == steps => packet.completion_signal,
                other => return fail(format!("{other:?} where the plan has {steps} launches")),
            };
            let last = index + 1 == count;
            if let Some(what) = Self::aql_signal(last, header, signal) {
                return fail(what);
            }
            signalled |= signal != 0;
        }
        if count < steps || !signalled {
            let what = format!("{count} packets for {steps} launches, completion {signalled}");
            return Err(self.error(count, words.len() as u32, count.min(steps - 1), what));
        }
        Ok(())
    }

    fn aql_signal(last: bool, header: Header, signal: u64) -> Option<String> {
        if !last {
            return (signal != 0).then(|| format!("signal {signal:#x} before the last packet"));
        }
        if signal != SIGNAL {
            return Some(format!("completion signal {signal:#x}, bound {SIGNAL:#x}"));
        }
        let complete = header.barrier && header.release == Scope::System;
        (!complete).then(|| format!("completion without barrier and system release: {header:?}"))
    }

    fn aql_dispatch(&self, step: usize, header: Header, packet: &KernelDispatch) -> Option<String> {
        let (launch, kernel, block) = self.launch(step)?;
        let object = object(launch.kernel as usize, kernel);
        let descriptor = &kernel.descriptor;
        let size = packet.workgroup_size.map(u64::from);
        let grid = packet.grid_size.map(u64::from);
        let want = |i: usize| u64::from(launch.grid[i]) * u64::from(block[i]);
        let differs = Self::rows([
            ("kernel object", packet.kernel_object, object),
            (
                "kernarg address",
                packet.kernarg_address,
                self.kernarg(step),
            ),
            ("dimensions", u64::from(packet.dimensions), 3),
            ("work-group x", size[0], u64::from(block[0])),
            ("work-group y", size[1], u64::from(block[1])),
            ("work-group z", size[2], u64::from(block[2])),
            ("grid x", grid[0], want(0)),
            ("grid y", grid[1], want(1)),
            ("grid z", grid[2], want(2)),
            (
                "LDS",
                u64::from(packet.group_segment_size),
                descriptor.group_segment_fixed_size.into(),
            ),
            ("scratch", u64::from(packet.private_segment_size), 0),
            ("correlation id", packet.correlation, 0),
        ]);
        if differs.is_some() {
            return differs;
        }
        let first = step == 0;
        let (barrier, acquire) = match self.wait(step) {
            _ if first => (true, Scope::System),
            None => (false, Scope::None),
            Some(Invalidate::Agent) => (true, Scope::Agent),
            Some(Invalidate::None) if self.row.war_needs_acquire.value => (true, Scope::Agent),
            Some(Invalidate::None) => (true, Scope::None),
        };
        if (barrier && !header.barrier) || header.acquire < acquire {
            return Some(format!(
                "barrier {} acquire {:?}, the plan needs {barrier} {acquire:?}",
                header.barrier, header.acquire
            ));
        }
        // A later wait can only show writes that were released.
        (header.release < Scope::Agent).then(|| format!("release {:?}", header.release))
    }

    // ---- PM4 ---------------------------------------------------------------------------------

    fn pm4(&self, words: &[u32]) -> Result<(), EncodingError> {
        let steps = self.segment.launches().len();
        let mut state = ShState::default();
        let mut order = Order::default();
        let mut step = 0;
        for item in packets(words) {
            let at = step.min(steps.saturating_sub(1));
            let located = item.map_err(|e| self.error(step, e.offset(), at, e.to_string()))?;
            let fail = |what| Err(self.error(step, located.offset, at, what));
            match located.packet {
                Packet::Nop { .. } | Packet::Filler => {}
                Packet::SetShReg {
                    vmid_shift: 0,
                    index: 0,
                    offset,
                    values,
                } => {
                    let foreign = (offset..)
                        .take(values.len())
                        .find(|at| !expected_register(*at));
                    if let Some(register) = foreign {
                        return fail(format!(
                            "writes SH register {register:#x}, which no launch needs"
                        ));
                    }
                    state.apply(&located.packet);
                }
                Packet::AcquireMem(acquire) if acquire.full_range() && acquire.control == 0 => {
                    order.acquire(acquire.gcr);
                }
                packet if packet.is_wait() => order.wait(),
                Packet::DispatchDirect { dim, initiator } => {
                    if let Some(what) = self.pm4_order(step, &order) {
                        return fail(what);
                    }
                    if let Some(what) = self.pm4_dispatch(step, &state, dim, initiator) {
                        return fail(what);
                    }
                    if self.is_static() {
                        state = once_per_buffer(&state);
                    }
                    order = Order::default();
                    step += 1;
                }
                other => return fail(format!("unexpected {other:?}")),
            }
        }
        let end = words.len() as u32;
        if step != steps {
            let what = format!("{step} dispatches, the plan has {steps} launches");
            return Err(self.error(step, end, step.min(steps.saturating_sub(1)), what));
        }
        if !order.waited {
            let what = "no wait after the last dispatch".to_owned();
            return Err(self.error(step, end, steps.saturating_sub(1), what));
        }
        Ok(())
    }

    /// Whether every dispatch must write its whole state, so that nothing may be left over from
    /// the one before.
    fn is_static(&self) -> bool {
        let policy = Policy::named(self.lowered.encoded.policy);
        policy.is_none_or(|policy| policy.emission == Emission::Static)
    }

    fn pm4_order(&self, step: usize, order: &Order) -> Option<String> {
        let row = self.row;
        let (wait, acquire) = match self.wait(step) {
            _ if step == 0 => (false, row.head_acquire.value),
            None => (false, 0),
            Some(Invalidate::None) if !row.war_needs_acquire.value => (true, 0),
            Some(_) => (true, row.agent_acquire.value),
        };
        if wait && !order.waited {
            return Some("no wait before it, the plan needs one".into());
        }
        let missing = acquire & !order.acquired;
        (missing != 0).then(|| {
            format!(
                "invalidates {:#x}, the plan needs {acquire:#x}",
                order.acquired
            )
        })
    }

    fn pm4_dispatch(
        &self,
        step: usize,
        state: &ShState,
        dim: [u32; 3],
        control: u32,
    ) -> Option<String> {
        let Some((launch, kernel, block)) = self.launch(step) else {
            return Some(format!(
                "dispatch beyond the segment's {} launches",
                self.segment.launches().len()
            ));
        };
        let descriptor = &kernel.descriptor;
        // Unset registers read as a value that no register holds.
        let get = |register: u16| state.get(register).map_or(u64::MAX, u64::from);
        let entry = descriptor.entry_va(object(launch.kernel as usize, kernel));
        let granules = descriptor
            .group_segment_fixed_size
            .div_ceil(rsrc2::LDS_GRANULE);
        let resources2 = descriptor.rsrc2 | granules << rsrc2::LDS_SHIFT;
        let layout = descriptor.user_sgprs();
        let pointer = layout.kernarg_segment_ptr.map(u16::from);
        let user = |index: u16| state.user_data(index).map_or(u64::MAX, u64::from);
        let kernarg = pointer.map_or(0, |first| user(first) | user(first + 1) << 32);
        let wanted = pointer.map_or(0, |_| self.kernarg(step));
        let unset = (0..u16::from(layout.count)).find(|index| state.user_data(*index).is_none());
        if let Some(index) = unset {
            return Some(format!("user SGPR {index} of {} is unset", layout.count));
        }
        let is_pointer =
            |index: u16| pointer.is_some_and(|first| (first..first + 2).contains(&index));
        let padding = (0..u16::from(layout.count)).filter(|index| !is_pointer(*index));
        if let Some(index) = padding.into_iter().find(|index| user(*index) != 0) {
            return Some(format!(
                "user SGPR {index} is {:#x}, padding is 0",
                user(index)
            ));
        }
        let beyond = (u16::from(layout.count)..16).find(|index| state.user_data(*index).is_some());
        if let (Some(index), true) = (beyond, self.is_static()) {
            return Some(format!(
                "user SGPR {index} is set, the kernel has {}",
                layout.count
            ));
        }
        let wave32 = if descriptor.wave32() {
            initiator::WAVE32
        } else {
            initiator::WAVE64
        };
        // PRIV is the encoder's policy per target; every other bit is the kernel's.
        let privilege = u64::from(rsrc1::PRIV);
        Self::rows([
            ("entry", state.entry_va().unwrap_or(u64::MAX), entry),
            ("kernarg address", kernarg, wanted),
            ("groups x", dim[0].into(), launch.grid[0].into()),
            ("groups y", dim[1].into(), launch.grid[1].into()),
            ("groups z", dim[2].into(), launch.grid[2].into()),
            ("NUM_THREAD_X", get(reg::NUM_THREAD_X), block[0].into()),
            ("NUM_THREAD_Y", get(reg::NUM_THREAD_X + 1), block[1].into()),
            ("NUM_THREAD_Z", get(reg::NUM_THREAD_X + 2), block[2].into()),
            (
                "RSRC1",
                get(reg::PGM_RSRC1) & !privilege,
                descriptor.rsrc1.into(),
            ),
            ("RSRC2", get(reg::PGM_RSRC1 + 1), resources2.into()),
            ("RSRC3", get(reg::PGM_RSRC3), descriptor.rsrc3.into()),
            ("RESOURCE_LIMITS", get(reg::RESOURCE_LIMITS), 0),
            ("START_X", get(reg::START_X), 0),
            ("START_Y", get(reg::START_Y), 0),
            ("START_Z", get(reg::START_Z), 0),
            ("initiator", control.into(), wave32.into()),
        ])
    }
}

/// Registers that a dispatch without scratch needs.
const fn expected_register(offset: u16) -> bool {
    matches!(
        offset,
        reg::START_X..=reg::NUM_THREAD_Z
            | reg::PGM_LO
            | reg::PGM_HI
            | reg::PGM_RSRC1
            | reg::PGM_RSRC2
            | reg::PGM_RSRC3
            | reg::RESOURCE_LIMITS
            | reg::USER_DATA_0..=reg::USER_DATA_15
    )
}

/// The state with only what is written once per buffer.
fn once_per_buffer(state: &ShState) -> ShState {
    let mut kept = ShState::default();
    let once = [
        reg::START_X,
        reg::START_Y,
        reg::START_Z,
        reg::RESOURCE_LIMITS,
    ];
    for (register, value) in state.iter().filter(|(register, _)| once.contains(register)) {
        kept.write(register, value);
    }
    kept
}

/// Waits and invalidations since the last dispatch; an invalidation before its wait is lost.
#[derive(Debug, Default)]
struct Order {
    waited: bool,
    acquired: u32,
}

impl Order {
    fn wait(&mut self) {
        self.waited = true;
        self.acquired = 0;
    }

    fn acquire(&mut self, gcr: u32) {
        self.acquired |= gcr;
    }
}
