//! decode(encode(x)) = x for random valid packets, launches and AQL packets.
//!
//! A few thousand cases per generation; 1,000,000 with `REFRAIN_LONG` set.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::Random;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};
use refrain_packet::aql::decode::{AqlPacket, decode};
use refrain_packet::aql::encode as aql;
use refrain_packet::aql::{Barrier, Header, KernelDispatch, PacketType, Pm4Ib, Scope};
use refrain_packet::decode::packets;
use refrain_packet::packet::{AcquireMem, Packet, ReleaseMem, WaitRegMem, WaitRegMem64};
use refrain_packet::pm4::{POLICIES, Writer, encode_ib};
use refrain_packet::state::snapshots;
use refrain_packet::tables::opcodes::{Length, op, opcode};
use refrain_packet::tables::registers::reg;
use refrain_packet::{Before, Bindings, Gfx};

/// Bits that exist in a word of a packet on some generation, spelled out from the public layouts:
/// the reader's own tables shall not say what the reader is tested with.
const DEFINED: &[(u8, u8, u32)] = &[
    (op::EVENT_WRITE, 1, 0x8000_0F3F),
    (op::ACQUIRE_MEM, 1, 0x8000_0000),
    (op::ACQUIRE_MEM, 3, 0x01FF_FFFF),
    (op::ACQUIRE_MEM, 5, 0x00FF_FFFF),
    (op::ACQUIRE_MEM, 7, 0x0007_FFFF),
    (op::RELEASE_MEM, 1, 0xD7FF_FFBF),
    (op::RELEASE_MEM, 2, 0xE703_0000),
    (op::WAIT_REG_MEM, 1, 0x0600_00F7),
    (op::WAIT_REG_MEM, 6, 0x8000_FFFF),
    (op::WAIT_REG_MEM64, 1, 0x0600_00F7),
    (op::WAIT_REG_MEM64, 8, 0x8000_FFFF),
    (op::COPY_DATA, 1, 0x2611_6F0F),
    (op::WRITE_DATA, 1, 0x0611_0F00),
    (op::ATOMIC_MEM, 1, 0x0600_0F7F),
    (op::ATOMIC_MEM, 8, 0x0000_1FFF),
    (op::INDIRECT_BUFFER, 1, 0xFFFF_FFFC),
    (op::INDIRECT_BUFFER, 2, 0x0000_FFFF),
    (op::INDIRECT_BUFFER, 3, 0xFFBF_FFFF),
];

/// A random word for dword `word` of an opcode, reserved bits clear.
fn field(random: &mut Random, code: u8, word: u8) -> u32 {
    let row = DEFINED.iter().find(|row| (row.0, row.1) == (code, word));
    random.word() & row.map_or(u32::MAX, |row| row.2)
}

fn wide(random: &mut Random, code: u8, word: u8) -> u64 {
    let lo = field(random, code, word);
    u64::from(lo) | u64::from(field(random, code, word + 1)) << 32
}

/// Every bit outside [`DEFINED`] is refused, and no bit inside.
#[test]
fn reserved_bits_are_the_ones_spelled_out() {
    for (code, word, defined) in DEFINED {
        let dwords = match opcode(*code).unwrap().length {
            Length::Fixed(n) | Length::AtLeast(n) => usize::from(n),
            Length::Nop => 1,
        };
        for bit in 0..32 {
            let mut words = vec![0; dwords];
            words[0] = 0xC000_0000 | (dwords as u32 - 2) << 16 | u32::from(*code) << 8;
            words[usize::from(*word)] = 1 << bit;
            let read = packets(&words).next().unwrap();
            let legal = defined >> bit & 1 != 0;
            assert_eq!(read.is_ok(), legal, "{code:#x} word {word} bit {bit}");
        }
    }
}

/// A random valid packet whose slices borrow `pool`.
fn packet<'p>(random: &mut Random, pool: &'p [u32]) -> Packet<'p> {
    let body = &pool[..1 + random.below(pool.len() as u32 - 1) as usize];
    let kinds = [
        op::NOP,
        op::SET_SH_REG,
        op::SET_SH_REG_INDEX,
        op::DISPATCH_DIRECT,
        op::EVENT_WRITE,
        op::ACQUIRE_MEM,
        op::RELEASE_MEM,
        op::WAIT_REG_MEM,
        op::WAIT_REG_MEM64,
        op::COPY_DATA,
        op::WRITE_DATA,
        op::ATOMIC_MEM,
        op::INDIRECT_BUFFER,
        0,
        1,
    ];
    let code = kinds[random.below(kinds.len() as u32) as usize];
    let control = field(random, code, 1);
    let r = random;
    match code {
        op::NOP => Packet::Nop { body },
        op::SET_SH_REG | op::SET_SH_REG_INDEX => {
            let (offset, vmid_shift) = (r.word() as u16, (r.word() & 31) as u8);
            let index = (r.word() & 15) as u8;
            if code == op::SET_SH_REG {
                Packet::SetShReg {
                    offset,
                    vmid_shift,
                    index,
                    values: body,
                }
            } else {
                Packet::SetShRegIndex {
                    offset,
                    vmid_shift,
                    index,
                    values: body,
                }
            }
        }
        op::DISPATCH_DIRECT => Packet::DispatchDirect {
            dim: [r.word(), r.word(), r.word()],
            initiator: r.word(),
        },
        op::EVENT_WRITE => Packet::EventWrite { control },
        op::ACQUIRE_MEM => Packet::AcquireMem(AcquireMem {
            control,
            size: wide(r, code, 2),
            base: wide(r, code, 4),
            poll: r.word() as u16,
            gcr: field(r, code, 7),
        }),
        op::RELEASE_MEM => Packet::ReleaseMem(ReleaseMem {
            control,
            select: field(r, code, 2),
            address: r.next(),
            data: r.next(),
            context: r.word(),
        }),
        op::WAIT_REG_MEM => Packet::WaitRegMem(WaitRegMem {
            control,
            address: r.next(),
            reference: r.word(),
            mask: r.word(),
            poll: field(r, code, 6),
        }),
        op::WAIT_REG_MEM64 => Packet::WaitRegMem64(WaitRegMem64 {
            control,
            address: r.next(),
            reference: r.next(),
            mask: r.next(),
            poll: field(r, code, 8),
        }),
        op::COPY_DATA => Packet::CopyData {
            control,
            src: r.next(),
            dst: r.next(),
        },
        op::WRITE_DATA => Packet::WriteData {
            control,
            address: r.next(),
            data: body,
        },
        op::ATOMIC_MEM => Packet::AtomicMem {
            control,
            address: r.next(),
            src: r.next(),
            compare: r.next(),
            interval: field(r, code, 8) as u16,
        },
        op::INDIRECT_BUFFER => Packet::IndirectBuffer {
            address: wide(r, code, 1),
            control: field(r, code, 3),
        },
        0 => Packet::Filler,
        _ => Packet::Other { opcode: 0xE7, body },
    }
}

#[test]
fn packets_round_trip() {
    // The frames are the same on all generations; the count is per generation.
    let count = common::cases(5_000, 1_000_000);
    for (seed, target) in Gfx::ALL.into_iter().enumerate() {
        let mut random = Random::new(seed as u64 * 977 + 5);
        let pool: Vec<u32> = (0..24).map(|_| random.word()).collect();
        for number in 0..count {
            let wanted = packet(&mut random, &pool);
            let mut writer = Writer::default();
            writer.packet(&wanted).unwrap();
            let mut items = packets(writer.words());
            let found = items
                .next()
                .unwrap()
                .unwrap_or_else(|e| panic!("{target} {number}: {e}"));
            assert_eq!(found.packet, wanted, "{target} {number}");
            assert_eq!(found.words.len(), writer.len());
            assert!(items.next().is_none());
            // And back: decode then encode gives the same words.
            let mut again = Writer::default();
            again.packet(&found.packet).unwrap();
            assert_eq!(again.words(), writer.words());
        }
    }
}

#[test]
fn launches_round_trip_through_the_register_model() {
    let rounds = common::cases(40, 4_000);
    for (seed, target) in Gfx::ALL.into_iter().enumerate() {
        let mut random = Random::new(seed as u64 + 77);
        for _ in 0..rounds {
            let images = common::images(target, 3);
            let mut launches = common::launches(target, 3, 1 + random.below(12) as usize);
            for launch in &mut launches {
                launch.groups = [
                    1 + random.below(9_999),
                    1 + random.below(9),
                    1 + random.below(9),
                ];
                launch.group_size = [
                    1 + random.below(32),
                    1 + random.below(8),
                    1 + random.below(4),
                ];
                launch.lds_bytes = 4096 + random.below(8192);
                launch.kernarg_offset = 16 * u64::from(random.below(1 << 20));
                launch.before = [Before::Nothing, Before::Wait, Before::WaitAcquire(0x180)]
                    [random.below(3) as usize];
            }
            let policy = &POLICIES[random.below(POLICIES.len() as u32) as usize];
            let free = encode_ib(target, policy, &images, &launches).unwrap();
            let entries = [0x7F00_0000_0100, 0x7F00_0000_0200, 0x7F00_0000_0300];
            let bindings = Bindings {
                entries: &entries,
                kernarg_base: 0x7E00_0000_0000,
                ..Bindings::default()
            };
            let shots = snapshots(&free.resolve(&bindings).unwrap()).unwrap();
            assert_eq!(shots.len(), launches.len());
            for ((shot, launch), at) in shots.iter().zip(&launches).zip(&free.launches) {
                let state = &shot.state;
                assert_eq!(shot.offset, *at);
                assert_eq!(shot.dim, launch.groups);
                assert_eq!(state.entry_va(), Some(entries[launch.kernel as usize]));
                for (i, size) in launch.group_size.iter().enumerate() {
                    assert_eq!(state.get(reg::NUM_THREAD_X + i as u16), Some(*size));
                }
                let granules = state.get(reg::PGM_RSRC2).unwrap() >> 15 & 0x1FF;
                assert_eq!(granules, launch.lds_bytes.div_ceil(512));
                let first = if target == Gfx::Gfx1030 { 4 } else { 0 };
                let lo = u64::from(state.user_data(first).unwrap());
                let hi = u64::from(state.user_data(first + 1).unwrap());
                assert_eq!(lo | hi << 32, 0x7E00_0000_0000 + launch.kernarg_offset);
            }
        }
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    (0..3_u8).prop_map(|n| [Scope::None, Scope::Agent, Scope::System][usize::from(n)])
}

fn header(kind: PacketType) -> impl Strategy<Value = Header> {
    (any::<bool>(), scope(), scope()).prop_map(move |(barrier, acquire, release)| Header {
        kind,
        barrier,
        acquire,
        release,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dispatch_packets_round_trip(
        header in header(PacketType::KernelDispatch),
        size in (1..=16_u16, 1..=8_u16, 1..=8_u16),
        grid in (1..u32::MAX, 1..u32::MAX, 1..u32::MAX),
        segments in any::<(u32, u32, u64)>(),
        addresses in (1..u64::MAX >> 6, 0..u64::MAX >> 4, 0..u64::MAX >> 6),
    ) {
        let row = KernelDispatch {
            dimensions: 3,
            workgroup_size: [size.0, size.1, size.2],
            grid_size: [grid.0, grid.1, grid.2],
            private_segment_size: segments.0,
            group_segment_size: segments.1,
            kernel_object: addresses.0 << 6,
            kernarg_address: addresses.1 << 4,
            correlation: segments.2,
            completion_signal: addresses.2 << 6,
        };
        let encoded = aql::kernel_dispatch(header, &row).unwrap();
        let decoded = decode(&encoded.bytes());
        prop_assert_eq!(Header::from_bits(decoded.header), Ok(header));
        prop_assert_eq!(decoded.packet, AqlPacket::KernelDispatch(row));
        prop_assert_eq!(decode(encoded.body()).packet, AqlPacket::Invalid);
    }

    #[test]
    fn barrier_packets_round_trip(
        and in any::<bool>(),
        row in (any::<[u32; 5]>(), any::<u64>(), any::<u32>()),
    ) {
        let kind = if and { PacketType::BarrierAnd } else { PacketType::BarrierOr };
        let row = Barrier {
            dep_signal: row.0.map(|n| u64::from(n) << 6),
            correlation: row.1,
            completion_signal: u64::from(row.2) << 6,
        };
        let decoded = decode(&aql::barrier(Header::system(kind), &row).unwrap().bytes());
        let want = if and { AqlPacket::BarrierAnd(row) } else { AqlPacket::BarrierOr(row) };
        prop_assert_eq!(decoded.packet, want);
    }

    #[test]
    fn vendor_packets_round_trip(
        address in 1..1_u64 << 46,
        dwords in 1..=0xF_FFFF_u32,
        policy in 0..=3_u8,
        signal in any::<u32>(),
    ) {
        let row = Pm4Ib {
            address: address << 2,
            dwords,
            policy,
            completion_signal: u64::from(signal) << 6,
        };
        let header = Header::system(PacketType::VendorSpecific);
        let decoded = decode(&aql::pm4_ib(header, &row).unwrap().bytes());
        let AqlPacket::Pm4Ib { packet, .. } = decoded.packet else { panic!() };
        prop_assert_eq!(packet, row);
    }

    #[test]
    fn headers_accept_exactly_the_legal_bits(bits in any::<u16>()) {
        let legal = bits & 0xFF < 6 && bits >> 13 == 0 && bits >> 9 & 3 != 3 && bits >> 11 & 3 != 3;
        let found = Header::from_bits(bits);
        prop_assert_eq!(found.is_ok(), legal);
        if let Ok(header) = found {
            prop_assert_eq!(header.bits(), bits);
        }
    }
}
