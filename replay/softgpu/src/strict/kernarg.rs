//! Kernel arguments between doorbell and the end of their launch: hashed when the host rings, again
//! when the launch starts and when it ends. Slots of launches in flight may coincide only if they
//! hold the same bytes for the same kernel, as replays of one step do.

use super::clock::Author;
use super::report::Party;
use crate::memory::AddressSpace;
use crate::object::{Kernel, Registry};
use refrain_packet::decode::packets;
use refrain_packet::packet::Packet;
use refrain_packet::tables::objects::{kernel_dispatch as kd, pm4_ib as ib};
use refrain_packet::tables::registers::reg;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// Digest of guest memory; `None` if it cannot be read.
pub(crate) fn digest(memory: &AddressSpace, va: u64, len: u64) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let mut chunk = [0; 4096];
    let mut done = 0;
    while done < len {
        let part = chunk.get_mut(..(len - done).min(4096) as usize)?;
        memory.peek(va + done, part).ok()?;
        hasher.write(part);
        done += part.len() as u64;
    }
    Some(hasher.finish())
}

/// Arguments of one launch that a packet announces.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    pub(crate) kernel: Arc<str>,
    pub(crate) dword: Option<u32>,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) hash: u64,
}

/// What one packet brings along.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) launches: Vec<Announced>,
    /// The indirect buffer: address, bytes and digest.
    pub(crate) buffer: Option<(u64, u64, u64)>,
}

/// Reads a packet as the packet processor will, but judges nothing.
pub(crate) fn contents(memory: &AddressSpace, registry: &Registry, bytes: &[u8; 64]) -> Contents {
    let u32_at = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|b| b.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    };
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    match bytes[0] {
        0 => {
            let va = u64::from(u32_at(ib::IB_JUMP1)) | u64::from(u32_at(ib::IB_JUMP2)) << 32;
            indirect(memory, registry, va, u32_at(ib::IB_JUMP3) & 0xF_FFFF)
        }
        2 => {
            let kernel = registry.by_descriptor(u64_at(kd::KERNEL_OBJECT));
            let launch = kernel
                .and_then(|kernel| announced(memory, &kernel, None, u64_at(kd::KERNARG_ADDRESS)));
            Contents {
                launches: launch.into_iter().collect(),
                buffer: None,
            }
        }
        _ => Contents::default(),
    }
}

fn announced(
    memory: &AddressSpace,
    kernel: &Kernel,
    dword: Option<u32>,
    va: u64,
) -> Option<Announced> {
    let len = u64::from(kernel.kernarg_size());
    if va == 0 || len == 0 {
        return None;
    }
    Some(Announced {
        kernel: Arc::clone(&kernel.name),
        dword,
        va,
        len,
        hash: digest(memory, va, len)?,
    })
}

fn indirect(memory: &AddressSpace, registry: &Registry, va: u64, dwords: u32) -> Contents {
    let len = 4 * u64::from(dwords);
    let Some(hash) = digest(memory, va, len) else {
        return Contents::default();
    };
    let mut bytes = vec![0; len as usize];
    if memory.peek(va, &mut bytes).is_err() {
        return Contents::default();
    }
    let words: Vec<u32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    let mut registers: HashMap<u16, u32> = HashMap::new();
    let mut launches = Vec::new();
    for located in packets(&words) {
        let Ok(located) = located else { break };
        match located.packet {
            Packet::SetShReg { offset, values, .. } => {
                for (at, value) in (u32::from(offset)..).zip(values) {
                    // A run of registers past the last one is refused when the buffer runs.
                    if let Ok(at) = u16::try_from(at) {
                        registers.insert(at, *value);
                    }
                }
            }
            Packet::DispatchDirect { .. } => {
                let get = |at: u16| u64::from(registers.get(&at).copied().unwrap_or(0));
                let entry = get(reg::PGM_LO) << 8 | get(reg::PGM_HI) << 40;
                let launch = registry.by_entry(entry).and_then(|kernel| {
                    let first = u16::from(kernel.user_sgprs.kernarg_segment_ptr?);
                    let at = reg::USER_DATA_0 + first;
                    let va = get(at) | get(at + 1) << 32;
                    announced(memory, &kernel, Some(located.offset), va)
                });
                launches.extend(launch);
            }
            _ => {}
        }
    }
    Contents {
        launches,
        buffer: Some((va, len, hash)),
    }
}

/// The slot of some launches that were announced and may not have finished.
#[derive(Clone, Debug)]
struct Slot {
    end: u64,
    hash: u64,
    party: Party,
    /// Announced and not dispatched.
    waiting: u32,
    /// Last launch that was dispatched with it.
    last: Option<Author>,
}

/// Two launches in flight whose arguments overlap and differ.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) who: Party,
    pub(crate) other: Party,
    pub(crate) va: u64,
    pub(crate) len: u64,
}

/// All slots and everything announced.
#[derive(Debug, Default)]
pub(crate) struct Kernargs {
    slots: BTreeMap<u64, Slot>,
    packets: HashMap<(u64, u64), Contents>,
}

impl Kernargs {
    /// A packet was rung for. `in_flight` says whether the host may not assume that a launch is
    /// finished. Returns the ranges whose content is new, and what is shared.
    pub(crate) fn announce(
        &mut self,
        queue: u64,
        packet: u64,
        contents: Contents,
        in_flight: &dyn Fn(Author) -> bool,
    ) -> (Vec<(u64, u64)>, Vec<Shared>) {
        let (mut fresh, mut shared) = (Vec::new(), Vec::new());
        for launch in &contents.launches {
            let party = Party {
                step: None,
                kernel: Arc::clone(&launch.kernel),
                queue,
                packet,
                dword: launch.dword,
                processor: false,
            };
            let new = self.slot(launch, party, in_flight, &mut shared);
            if new {
                fresh.push((launch.va, launch.len));
            }
        }
        self.packets.insert((queue, packet), contents);
        (fresh, shared)
    }

    /// Whether the slot's content is new.
    fn slot(
        &mut self,
        launch: &Announced,
        party: Party,
        in_flight: &dyn Fn(Author) -> bool,
        shared: &mut Vec<Shared>,
    ) -> bool {
        let (start, end) = (launch.va, launch.va + launch.len);
        let busy = |slot: &Slot| slot.waiting > 0 || slot.last.is_some_and(in_flight);
        let before = self.slots.range(..start).next_back();
        let before = before.filter(|(_, slot)| slot.end > start);
        let inside = self.slots.range(start..end);
        let overlaps: Vec<u64> = before
            .into_iter()
            .chain(inside)
            .map(|(at, _)| *at)
            .collect();
        for at in overlaps {
            let Some(slot) = self.slots.get_mut(&at) else {
                continue;
            };
            let same = at == start
                && slot.end == end
                && slot.hash == launch.hash
                && slot.party.kernel == launch.kernel;
            if same {
                slot.waiting += 1;
                slot.party = party;
                return false;
            }
            if busy(slot) {
                shared.push(Shared {
                    who: party.clone(),
                    other: slot.party.clone(),
                    va: start.max(at),
                    len: end.min(slot.end) - start.max(at),
                });
            }
            self.slots.remove(&at);
        }
        let slot = Slot {
            end,
            hash: launch.hash,
            party,
            waiting: 1,
            last: None,
        };
        self.slots.insert(start, slot);
        true
    }

    /// The packet processor takes a packet: what was announced for its indirect buffer.
    pub(crate) fn buffer(&self, queue: u64, packet: u64) -> Option<(u64, u64, u64)> {
        self.packets.get(&(queue, packet))?.buffer
    }

    /// A launch is dispatched: its arguments as announced.
    pub(crate) fn dispatch(
        &mut self,
        queue: u64,
        packet: u64,
        dword: Option<u32>,
        author: Author,
    ) -> Option<(u64, u64, u64)> {
        let contents = self.packets.get(&(queue, packet))?;
        let launch = contents
            .launches
            .iter()
            .find(|launch| launch.dword == dword)?;
        if let Some(slot) = self.slots.get_mut(&launch.va) {
            slot.waiting = slot.waiting.saturating_sub(1);
            slot.last = Some(author);
        }
        Some((launch.va, launch.len, launch.hash))
    }

    /// Packets before `packet` have been taken and are not needed any more.
    pub(crate) fn taken(&mut self, queue: u64, packet: u64) {
        if let Some(packet) = packet.checked_sub(1) {
            self.packets.remove(&(queue, packet));
        }
    }

    /// Memory was freed, and the slots in it.
    pub(crate) fn release(&mut self, base: u64, len: u64) {
        let gone: Vec<u64> = self
            .slots
            .range(base..base.saturating_add(len))
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            self.slots.remove(&at);
        }
    }

    /// A queue is gone, and what was announced in it.
    pub(crate) fn remove_queue(&mut self, queue: u64) {
        self.packets.retain(|(of, _), _| *of != queue);
    }
}
