//! Records what passes the function tables while single tokens run eagerly.
//!
//! A [`Recorder`] is a value: it holds its own log and an observer on one device handle, and
//! dropping it at any moment detaches the observer and leaves nothing. It records every launch,
//! copy and memset of that handle, whoever made it; whether they should have happened is
//! [`crate::reconcile()`]'s to say.

use crate::address::AddressMap;
use crate::eager::{EagerError, EagerExecutor};
use crate::instance::{Instance, InstanceError};
use crate::tape::{Direction, Entry, Place, Pointer, RingLaunch, Tape, TapeLaunch};
use refrain_device::{CopyDirection, HipCall, Observer, ObserverGuard};
use refrain_kernels::{ArgKind, find};
use refrain_planner::plan::Digest;
use std::sync::{Arc, Mutex, PoisonError};

/// Why a recording did not finish.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The token could not be run.
    #[error("recording at position {position}: {source}")]
    Eager {
        /// Position of the token.
        position: u32,
        /// What failed.
        source: EagerError,
    },
    /// The buffers could not be set up.
    #[error("recording at position {position}: {source}")]
    Instance {
        /// Position of the token.
        position: u32,
        /// What failed.
        source: InstanceError,
    },
}

/// A kernel dispatch packet as a packet processor fetched it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TappedPacket {
    /// Kernel symbol without `.kd`.
    pub symbol: String,
    /// BLAKE3 of the code object that the kernel was loaded from.
    pub object: Digest,
    /// Work-groups in x, y, z.
    pub grid: [u32; 3],
    /// Work-items per work-group.
    pub block: [u32; 3],
    /// LDS bytes per work-group, static and dynamic.
    pub lds: u32,
    /// The AQL header half-word: type, barrier bit, fence scopes.
    pub header: u16,
    /// The kernarg segment at execution.
    pub kernarg: Vec<u8>,
}

/// A device's log of fetched dispatch packets; only software GPUs keep one.
pub trait PacketTap {
    /// Takes every packet logged since the last call, in ring order. A packet must be in the log
    /// before its completion can be seen.
    fn take(&mut self) -> Vec<TappedPacket>;
}

/// First, middle and last position of a context: every recording covers them.
pub fn default_positions(context: u32) -> Vec<u32> {
    let last = context.saturating_sub(1);
    let mut positions = vec![0, context / 2, last];
    positions.dedup();
    positions
}

struct Log {
    map: AddressMap,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    /// Digest of the code object per module number, so that each is hashed once.
    digests: Vec<(u64, Digest)>,
}

impl Observer for Log {
    fn observe(&self, call: &HipCall<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match *call {
            HipCall::Launch {
                module,
                image,
                symbol,
                grid,
                block,
                lds,
                kernarg,
            } => {
                let object = state.digest(module, image);
                let (kernarg, pointers) = resolve(&self.map, symbol, kernarg);
                let symbol = symbol.to_owned();
                Entry::Launch(TapeLaunch {
                    symbol,
                    object,
                    grid,
                    block,
                    lds,
                    kernarg,
                    pointers,
                })
            }
            // No step accounts for a graph, so it stands as a launch that the plan does not have.
            HipCall::Graph { launches } => Entry::Launch(TapeLaunch {
                symbol: format!("hipGraphLaunch of {launches} launches"),
                object: Digest::default(),
                grid: [1; 3],
                block: [1; 3],
                lds: 0,
                kernarg: Vec::new(),
                pointers: Vec::new(),
            }),
            HipCall::Copy {
                dst,
                src,
                bytes,
                direction,
            } => {
                let device = |address| self.map.resolve(address);
                // Pinned memory of the plan is named, memory of the caller is not.
                let host = |address| match self.map.resolve(address) {
                    Place::Outside(_) => Place::Host,
                    place => place,
                };
                let (dst, src, direction) = match direction {
                    CopyDirection::HostToDevice => (device(dst), host(src), Direction::ToDevice),
                    CopyDirection::DeviceToHost => (host(dst), device(src), Direction::FromDevice),
                    CopyDirection::DeviceToDevice => {
                        (device(dst), device(src), Direction::OnDevice)
                    }
                };
                Entry::Copy {
                    dst,
                    src,
                    bytes,
                    direction,
                }
            }
            HipCall::Memset { dst, value, bytes } => Entry::Memset {
                dst: self.map.resolve(dst),
                value,
                bytes,
            },
        };
        state.entries.push(entry);
    }
}

impl State {
    fn digest(&mut self, module: u64, image: &[u8]) -> Digest {
        if let Some(row) = self.digests.iter().find(|row| row.0 == module) {
            return row.1;
        }
        let digest = *blake3::hash(image).as_bytes();
        self.digests.push((module, digest));
        digest
    }
}

/// Takes the pointers out of kernarg bytes. Which bytes are pointers is the catalog's to say;
/// a kernel that it does not know keeps its bytes as they are.
fn resolve(map: &AddressMap, symbol: &str, kernarg: &[u8]) -> (Vec<u8>, Vec<Pointer>) {
    let mut bytes = kernarg.to_vec();
    let mut pointers = Vec::new();
    for (arg, at) in find(symbol).into_iter().flat_map(|row| row.layout()) {
        let ArgKind::Pointer(_) = arg.kind else {
            continue;
        };
        let Some(slot) = bytes
            .get_mut(at as usize..)
            .and_then(|rest| rest.first_chunk_mut::<8>())
        else {
            continue;
        };
        pointers.push(Pointer {
            at,
            place: map.resolve(u64::from_le_bytes(*slot)),
        });
        slot.fill(0);
    }
    (bytes, pointers)
}

/// Records one device handle from its making until it is dropped.
pub struct Recorder {
    log: Arc<Log>,
    _guard: ObserverGuard,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self
            .log
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        write!(f, "Recorder({} entries)", state.entries.len())
    }
}

impl Recorder {
    /// Starts observing the instance's device handle.
    pub fn attach(instance: &Instance) -> Self {
        let log = Arc::new(Log {
            map: instance.address_map(),
            state: Mutex::default(),
        });
        let guard = instance.device().attach(log.clone());
        Self { log, _guard: guard }
    }

    /// Takes the entries since the last call.
    pub fn take(&mut self) -> Vec<Entry> {
        let mut state = self
            .log
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.entries)
    }

    /// Packets of a ring log in the terms of a tape.
    pub fn ring(&self, packets: Vec<TappedPacket>) -> Vec<RingLaunch> {
        let convert = |packet: TappedPacket| {
            let (kernarg, pointers) = resolve(&self.log.map, &packet.symbol, &packet.kernarg);
            let TappedPacket {
                symbol,
                object,
                grid,
                block,
                lds,
                header,
                ..
            } = packet;
            RingLaunch {
                symbol,
                object,
                grid,
                block,
                lds,
                header,
                kernarg,
                pointers,
            }
        };
        packets.into_iter().map(convert).collect()
    }
}

/// Everything that a log holds once the device is idle. The second look is for packets that no
/// launch of the token waited for: left to the next token's first look, they would be judged by
/// nobody.
fn taken(tap: &mut dyn PacketTap, instance: &Instance) -> Result<Vec<TappedPacket>, EagerError> {
    let mut packets = tap.take();
    let idle = instance.device().stream().synchronize();
    idle.map_err(EagerError::Wait)?;
    packets.append(&mut tap.take());
    Ok(packets)
}

/// Runs one token eagerly at each position and records it. `number` tells this executor from
/// other fresh ones.
///
/// # Errors
/// [`RecordError`]; tapes of positions already done are dropped.
pub fn record_positions(
    instance: &mut Instance,
    executor: &EagerExecutor,
    number: u32,
    positions: &[u32],
    tap: Option<&mut dyn PacketTap>,
) -> Result<Vec<Tape>, RecordError> {
    record_with(instance, number, positions, tap, &mut |instance| {
        executor.submit(instance)?;
        executor.wait()
    })
}

/// As [`record_positions`], with `run` in place of the executor: it must run one token to its end.
///
/// # Errors
/// As [`record_positions`].
pub fn record_with(
    instance: &mut Instance,
    number: u32,
    positions: &[u32],
    mut tap: Option<&mut dyn PacketTap>,
    run: &mut dyn FnMut(&Instance) -> Result<(), EagerError>,
) -> Result<Vec<Tape>, RecordError> {
    let mut tapes = Vec::with_capacity(positions.len());
    for &position in positions {
        instance
            .reset_at(position)
            .map_err(|source| RecordError::Instance { position, source })?;
        if let Some(tap) = tap.as_deref_mut() {
            // Whatever was fetched before this token is not its.
            drop(tap.take());
        }
        let mut recorder = Recorder::attach(instance);
        run(instance).map_err(|source| RecordError::Eager { position, source })?;
        let entries = recorder.take();
        let ring = match tap.as_deref_mut() {
            None => None,
            Some(tap) => {
                let packets = taken(tap, instance);
                let packets = packets.map_err(|source| RecordError::Eager { position, source })?;
                Some(recorder.ring(packets))
            }
        };
        tapes.push(Tape {
            executor: number,
            position,
            entries,
            ring,
        });
    }
    Ok(tapes)
}
