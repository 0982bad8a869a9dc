//! One segment as AQL packets in the address-independent form, 16 words each.

use super::encode::{barrier, kernel_dispatch_unbound, pm4_ib_unbound};
use super::{Barrier, EncodedPacket, Header, KernelDispatch, PacketType, Pm4Ib, Scope};
use crate::launch::{Before, DispatchDesc, EncodeError, KernelImage};
use crate::reloc::{AddressFree, Cause, Dwords, Relocation, RelocationKind};
use crate::target::Gfx;

/// How barrier bits and scopes follow from the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AqlPolicy {
    /// Barrier bit and agent acquire on every packet, whatever the schedule says (what HIP does).
    Barriers,
    /// Barrier bit where the schedule waits, agent acquire where it invalidates.
    Schedule,
}

impl AqlPolicy {
    /// Name; part of the encoding identity.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barriers => "aql-barriers",
            Self::Schedule => "aql-schedule",
        }
    }

    fn header(self, launch: &DispatchDesc, first: bool) -> Header {
        let (barrier, acquire) = match (self, launch.before) {
            _ if first => (true, Scope::System),
            (Self::Barriers, _) | (Self::Schedule, Before::WaitAcquire(_)) => (true, Scope::Agent),
            (Self::Schedule, Before::Wait) => (true, Scope::None),
            (Self::Schedule, Before::Nothing) => (false, Scope::None),
        };
        Header {
            kind: PacketType::KernelDispatch,
            barrier,
            acquire,
            release: Scope::Agent,
        }
    }
}

/// Encodes launches as AQL packets.
///
/// The first packet acquires at system scope. The last packet releases at system scope and
/// carries completion signal 0; when its launch does not wait for the others, a BARRIER_AND
/// with the barrier bit follows and carries the signal, so that completion covers all launches.
///
/// # Errors
/// The first launch that violates a limit.
pub fn encode_segment(
    target: Gfx,
    policy: AqlPolicy,
    kernels: &[KernelImage],
    launches: &[DispatchDesc],
) -> Result<AddressFree, EncodeError> {
    if launches.is_empty() {
        return Err(EncodeError::Empty);
    }
    let mut out = AddressFree {
        target,
        transport: "aql",
        policy: policy.name(),
        symbols: kernels.iter().map(|kernel| kernel.symbol.clone()).collect(),
        words: Vec::with_capacity((launches.len() + 1) * 16),
        relocations: Vec::with_capacity(launches.len() * 4 + 2),
        launches: Vec::with_capacity(launches.len()),
        dwords: Dwords::default(),
    };
    let mut checked = vec![false; kernels.len()];
    let last = launches.len() - 1;
    for (index, launch) in launches.iter().enumerate() {
        let kernel = launch.kernel_of(index, target, kernels, &mut checked)?;
        let mut header = policy.header(launch, index == 0);
        let signals = index == last && header.barrier;
        if signals {
            header.release = Scope::System;
        }
        push_launch(&mut out, header, kernel, launch)?;
        if signals {
            signal(&mut out);
        }
        if index == last && !signals {
            let header = Header {
                kind: PacketType::BarrierAnd,
                barrier: true,
                acquire: Scope::None,
                release: Scope::System,
            };
            let packet = barrier(header, &Barrier::default())?;
            push(&mut out, Cause::Terminal, &packet);
            signal(&mut out);
        }
    }
    Ok(out)
}

/// Encodes the vendor packet that runs an indirect buffer of `dwords`, with barrier bit and system
/// scopes; buffer 0 and completion signal 0 are relocations.
///
/// # Errors
/// No dwords, or more than the size field holds.
pub fn encode_vendor(target: Gfx, dwords: u32) -> Result<AddressFree, EncodeError> {
    let mut out = AddressFree {
        target,
        transport: "aql",
        policy: "vendor-ib",
        symbols: Vec::new(),
        words: Vec::with_capacity(16),
        relocations: Vec::with_capacity(4),
        launches: Vec::new(),
        dwords: Dwords::default(),
    };
    let header = Header::system(PacketType::VendorSpecific);
    let packet = pm4_ib_unbound(
        header,
        &Pm4Ib {
            dwords,
            ..Pm4Ib::default()
        },
    )?;
    push(&mut out, Cause::Dispatch, &packet);
    relocate(&mut out, 2, RelocationKind::IbLo, 0, 0);
    relocate(&mut out, 3, RelocationKind::IbHi, 0, 0);
    signal(&mut out);
    Ok(out)
}

fn push(out: &mut AddressFree, cause: Cause, packet: &EncodedPacket) {
    out.words.extend_from_slice(&packet.words());
    out.dwords.add(cause, 16);
}

/// Relocates the last packet's completion signal.
fn signal(out: &mut AddressFree) {
    relocate(out, 14, RelocationKind::SignalLo, 0, 0);
    relocate(out, 15, RelocationKind::SignalHi, 0, 0);
}

fn relocate(out: &mut AddressFree, word: u32, kind: RelocationKind, symbol: u32, addend: u64) {
    let base = out.words.len() as u32 - 16;
    out.relocations.push(Relocation {
        word: base + word,
        kind,
        symbol,
        addend,
    });
}

fn push_launch(
    out: &mut AddressFree,
    header: Header,
    kernel: &KernelImage,
    launch: &DispatchDesc,
) -> Result<(), EncodeError> {
    let size = launch.group_size;
    // `DispatchDesc::kernel_of` bounded groups and sizes, so neither product nor cast overflows.
    let grid = [0, 1, 2].map(|i| launch.groups[i].wrapping_mul(size[i]));
    let packet = KernelDispatch {
        dimensions: 3,
        workgroup_size: size.map(|n| n as u16),
        grid_size: grid,
        private_segment_size: kernel.descriptor.private_segment_fixed_size,
        group_segment_size: launch.lds_bytes,
        ..KernelDispatch::default()
    };
    let packet = kernel_dispatch_unbound(header, &packet)?;
    out.launches.push(out.words.len() as u32);
    push(out, Cause::Dispatch, &packet);
    relocate(out, 8, RelocationKind::ObjectLo, launch.kernel, 0);
    relocate(out, 9, RelocationKind::ObjectHi, launch.kernel, 0);
    if kernel.descriptor.user_sgprs().kernarg_segment_ptr.is_some() {
        relocate(out, 10, RelocationKind::KernargLo, 0, launch.kernarg_offset);
        relocate(out, 11, RelocationKind::KernargHi, 0, launch.kernarg_offset);
    }
    Ok(())
}
