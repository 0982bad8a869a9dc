//! Omissions from a token's packets: each wait, invalidation and register write, one at a time.
//!
//! An omission is structural (this packet, this register of that packet), so it means the same in
//! words under made-up addresses, which the linter judges, and in words bound to a device, which are
//! executed. Who notices an omission is left to `judge` and `rerun`.

use refrain_lower::Transport;
use refrain_packet::decode::{Located, packets};
use refrain_packet::packet::Packet;
use refrain_packet::pm4::Writer;
use refrain_softgpu::strict::TraceEvent;

/// Words of an AQL packet.
const AQL_WORDS: usize = 16;
/// The barrier bit of an AQL header (HSA, packet header).
const BARRIER: u32 = 1 << 8;
/// First bit of the two-bit acquire and release scopes of an AQL header.
const ACQUIRE: u32 = 9;
const RELEASE: u32 = 11;
/// AQL packet types that launch (HSA, packet type).
const KERNEL_DISPATCH: u32 = 2;

/// What an omission takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// CS_PARTIAL_FLUSH, or the barrier bit of an AQL packet.
    Wait,
    /// ACQUIRE_MEM, or the acquire fence of an AQL packet.
    Invalidate,
    /// One register of a SET_SH_REG.
    Register,
    /// The release fence of system scope of an AQL packet.
    Release,
}

impl Part {
    /// Name in proofs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Invalidate => "invalidate",
            Self::Register => "register",
            Self::Release => "release",
        }
    }
}

/// One omission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// What is left out.
    pub part: Part,
    /// Dword of the packet in the indirect buffer, or number of the AQL packet.
    pub at: u32,
    /// Register of the packet's run, from 0; 0 for every other part.
    pub index: u16,
}

/// Every omission of a form's words.
pub(super) fn cuts(transport: Transport, words: &[u32]) -> Vec<Cut> {
    let whole = |part, at| Cut { part, at, index: 0 };
    match transport {
        Transport::Aql => headers(words)
            .flat_map(|(at, header)| {
                let rows = [
                    (Part::Wait, header & BARRIER != 0),
                    (Part::Invalidate, header >> ACQUIRE & 3 != 0),
                    (Part::Release, header >> RELEASE & 3 == 2),
                ];
                rows.into_iter()
                    .filter_map(move |(part, there)| there.then_some(whole(part, at)))
            })
            .collect(),
        Transport::Pm4 => located(words)
            .flat_map(|packet| {
                let at = packet.offset;
                match packet.packet {
                    Packet::SetShReg { values, .. } => (0..values.len() as u16)
                        .map(|index| Cut {
                            part: Part::Register,
                            at,
                            index,
                        })
                        .collect(),
                    Packet::AcquireMem(_) => vec![whole(Part::Invalidate, at)],
                    found if found.is_wait() => vec![whole(Part::Wait, at)],
                    _ => Vec::new(),
                }
            })
            .collect(),
    }
}

/// The words without what a cut names. An indirect buffer that ends in NOPs is padded again to whole
/// units of 8 dwords.
pub(super) fn without(transport: Transport, words: &[u32], cut: Cut) -> Vec<u32> {
    match transport {
        Transport::Aql => {
            let mut words = words.to_vec();
            if let Some(word) = words.get_mut(cut.at as usize * AQL_WORDS) {
                *word &= match cut.part {
                    Part::Wait => !BARRIER,
                    Part::Invalidate => !(3 << ACQUIRE),
                    Part::Release => !(3 << RELEASE),
                    Part::Register => u32::MAX,
                };
            }
            words
        }
        Transport::Pm4 => without_in_ib(words, cut),
    }
}

fn without_in_ib(words: &[u32], cut: Cut) -> Vec<u32> {
    let all: Vec<Located<'_>> = located(words).collect();
    let is_padding = |packet: &&Located<'_>| matches!(packet.packet, Packet::Nop { .. });
    let padding = all.iter().rev().take_while(is_padding).count();
    let padded = words.len().is_multiple_of(8);
    let mut out = Writer::with_capacity(words.len() + 8);
    for packet in all.iter().take(all.len() - padding) {
        match packet.packet {
            _ if packet.offset != cut.at => out.extend(packet.words),
            Packet::SetShReg { offset, values, .. } => {
                let index = usize::from(cut.index);
                let (before, rest) = values.split_at(index.min(values.len()));
                let after = rest.get(1..).unwrap_or_default();
                for (first, run) in [(offset, before), (offset + cut.index + 1, after)] {
                    if !run.is_empty() {
                        // Shorter than the run that was there.
                        let _ = out.set_sh_reg(first, run);
                    }
                }
            }
            _ => {}
        }
    }
    if padded {
        // At most seven dwords.
        let _ = out.nop(out.len().wrapping_neg() % 8);
    }
    out.into_words()
}

/// What one token's words do in their queue, in terms of a trace whose launches begin at `first`,
/// with what the packet processor does for the token as a whole.
pub(super) fn events(transport: Transport, words: &[u32], first: usize) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    let mut launches = first..;
    match transport {
        Transport::Aql => {
            for (_, header) in headers(words) {
                if header & BARRIER != 0 {
                    events.push(TraceEvent::Wait);
                }
                events.push(TraceEvent::Fence((header >> ACQUIRE & 3) as u16));
                if header & 0xff == KERNEL_DISPATCH {
                    events.extend(launches.next().map(TraceEvent::Launch));
                }
            }
        }
        Transport::Pm4 => {
            // The vendor packet: barrier bit and system scopes.
            events.extend([TraceEvent::Wait, TraceEvent::Fence(2)]);
            for packet in located(words) {
                match packet.packet {
                    Packet::DispatchDirect { .. } => {
                        events.extend(launches.next().map(TraceEvent::Launch));
                    }
                    Packet::AcquireMem(acquire) => events.push(TraceEvent::Acquire(acquire.gcr)),
                    found if found.is_wait() => events.push(TraceEvent::Wait),
                    _ => {}
                }
            }
        }
    }
    events
}

/// The words of one run of launches.
#[derive(Debug, Clone)]
pub(super) struct RunWords {
    pub words: Vec<u32>,
    pub launches: usize,
    /// A packet before it waits for the host, with barrier bit and system scopes.
    pub gated: bool,
}

/// What a token's runs do in their queue, with other words in the place of run `edited`.
pub(super) fn token_events(
    transport: Transport,
    runs: &[RunWords],
    (edited, words): (usize, &[u32]),
    mut first: usize,
) -> Vec<TraceEvent> {
    let mut all = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        if run.gated {
            all.extend([TraceEvent::Wait, TraceEvent::Fence(2)]);
        }
        let words = if index == edited { words } else { &run.words };
        all.extend(events(transport, words, first));
        first += run.launches;
    }
    all
}

/// The packets of an indirect buffer that was accepted when it was lowered.
fn located(words: &[u32]) -> impl Iterator<Item = Located<'_>> {
    packets(words).filter_map(Result::ok)
}

/// Number and header word of each AQL packet.
fn headers(words: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let first = words.chunks(AQL_WORDS).filter_map(|packet| packet.first());
    (0..).zip(first.copied())
}

#[cfg(test)]
mod tests {
    use super::{Cut, Part, cuts, events, without};
    use refrain_lower::Transport::{Aql, Pm4};
    use refrain_packet::pm4::Writer;
    use refrain_softgpu::strict::TraceEvent::{Acquire, Fence, Launch, Wait};

    fn ib() -> Vec<u32> {
        let mut out = Writer::default();
        out.acquire(0x380);
        out.set_sh_reg(0x207, &[7, 8, 9]).unwrap();
        out.dispatch([1, 1, 1], 0x8005);
        out.wait();
        out.nop(out.len().wrapping_neg() % 8).unwrap();
        out.into_words()
    }

    #[test]
    fn every_wait_invalidation_and_register_is_one_omission() {
        let words = ib();
        let parts: Vec<Part> = cuts(Pm4, &words).iter().map(|cut| cut.part).collect();
        use Part::{Invalidate, Register, Release, Wait as W};
        assert_eq!(parts, [Invalidate, Register, Register, Register, W]);
        // Kernel dispatch with barrier, agent acquire, system release; then one with nothing.
        let mut ring = vec![0; 32];
        ring[0] = 2 | 1 << 8 | 1 << 9 | 2 << 11;
        ring[16] = 2 | 1 << 11;
        let parts: Vec<Part> = cuts(Aql, &ring).iter().map(|cut| cut.part).collect();
        assert_eq!(parts, [W, Invalidate, Release]);
        assert_eq!(
            without(Aql, &ring, cuts(Aql, &ring)[0])[0],
            2 | 1 << 9 | 2 << 11
        );
        assert_eq!(
            events(Aql, &ring, 5),
            [Wait, Fence(1), Launch(5), Fence(0), Launch(6)]
        );
    }

    #[test]
    fn a_register_in_the_middle_splits_its_run_and_the_padding_follows() {
        let words = ib();
        let cut = Cut {
            part: Part::Register,
            at: 8,
            index: 1,
        };
        let found = without(Pm4, &words, cut);
        let mut expected = Writer::default();
        expected.acquire(0x380);
        expected.set_sh_reg(0x207, &[7]).unwrap();
        expected.set_sh_reg(0x209, &[9]).unwrap();
        expected.dispatch([1, 1, 1], 0x8005);
        expected.wait();
        expected.nop(expected.len().wrapping_neg() % 8).unwrap();
        assert_eq!(found, expected.into_words());
        let wait = *cuts(Pm4, &words).last().unwrap();
        let found = without(Pm4, &words, wait);
        assert_eq!(
            events(Pm4, &found, 0),
            [Wait, Fence(2), Acquire(0x380), Launch(0)]
        );
        assert!(found.len().is_multiple_of(8));
    }
}
