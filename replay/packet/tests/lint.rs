//! The table of cases: every rule has one that triggers it and one near miss that does not.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::{BUFFER, CODE, DATA, IB, KERNARG, RING, SIGNAL, World, log, range};
use refrain_packet::Gfx;
use refrain_packet::aql::encode as aql;
use refrain_packet::aql::{Barrier, Header, KernelDispatch, PacketType, Scope};
use refrain_packet::kd::{KernelFacts, property};
use refrain_packet::lint::{
    Context, Event, Holds, InFlight, Place, RULES, Range, Region, Report, Rule, Severity, lint_ib,
    lint_ring,
};
use refrain_packet::pm4::Policy;
use refrain_packet::tables::opcodes::op;
use refrain_packet::tables::registers::reg;

type Edit = fn(&mut World) -> Report;

struct Case {
    rule: Rule,
    target: Gfx,
    trigger: Edit,
    near: Edit,
}

const fn case(rule: Rule, target: Gfx, trigger: Edit, near: Edit) -> Case {
    Case {
        rule,
        target,
        trigger,
        near,
    }
}

/// A target without special rules for most cases.
const T: Gfx = Gfx::Gfx1151;
const T12: Gfx = Gfx::Gfx1201;

/// Edits byte `at` of ring packet `index`.
fn poke(world: &mut World, index: usize, at: usize, value: u8) -> Report {
    world.ring[index][at] = value;
    world.lint_ring()
}

fn poke32(world: &mut World, index: usize, at: usize, value: u32) -> Report {
    world.ring[index][at..at + 4].copy_from_slice(&value.to_le_bytes());
    world.lint_ring()
}

fn vendor(world: &World) -> usize {
    world.ring.len() - 1
}

/// Replaces the header scopes of a ring packet.
fn header(world: &mut World, index: usize, edit: fn(&mut Header)) {
    let bits = u16::from_le_bytes([world.ring[index][0], world.ring[index][1]]);
    let mut row = Header::from_bits(bits).unwrap();
    edit(&mut row);
    world.ring[index][..2].copy_from_slice(&row.bits().to_le_bytes());
}

fn barrier(signals: [u64; 5], completion: u64) -> [u8; 64] {
    let header = Header::system(PacketType::BarrierAnd);
    let row = Barrier {
        dep_signal: signals,
        completion_signal: completion,
        ..Barrier::default()
    };
    aql::barrier(header, &row).unwrap().bytes()
}

/// Puts a barrier in front of the ring and keeps the log right.
fn prepend(world: &mut World, packet: [u8; 64]) -> Report {
    world.ring.insert(0, packet);
    world.events = log(world.ring.len() as u64);
    world.lint_ring()
}

fn append(world: &mut World, packet: [u8; 64]) -> Report {
    world.ring.push(packet);
    world.events = log(world.ring.len() as u64);
    world.lint_ring()
}

/// Inserts an event in front of the completions.
fn event(world: &mut World, event: Event) -> Report {
    let at = world
        .events
        .iter()
        .position(|e| matches!(e, Event::Complete { .. }))
        .unwrap();
    world.events.insert(at, event);
    world.lint_ring()
}

fn set(world: &mut World, index: usize, register: u16, value: u32) -> Report {
    world.set_register(index, register, value);
    world.lint_alone()
}

fn or(world: &mut World, index: usize, register: u16, bits: u32) -> Report {
    let value = world.get_register(index, register) | bits;
    set(world, index, register, value)
}

/// Edits dword `word` of the `nth` packet of an opcode.
fn dword(world: &mut World, opcode: u8, nth: usize, word: usize, value: u32) -> Report {
    let at = world.nth(opcode, nth);
    world.words[at + word] = value;
    world.lint_alone()
}

fn insert(world: &mut World, words: &[u32]) -> Report {
    let at = world.nth(op::DISPATCH_DIRECT, 0);
    world.insert(at, words);
    world.lint_alone()
}

fn drop_nth(world: &mut World, opcode: u8, nth: usize) -> Report {
    let at = world.nth(opcode, nth);
    world.blank(at);
    world.lint_alone()
}

/// Drops the SET_SH_REG that writes a register for the first dispatch.
fn drop_register(world: &mut World, register: u16) -> Report {
    let value = world.register_word(0, register);
    let first = (value.saturating_sub(18)..=value)
        .rev()
        .find(|at| world.words[*at] & 0xC000_FF00 == 0xC000_7600)
        .unwrap();
    world.blank(first);
    world.lint_alone()
}

const A: &[Case] = &[
    case(
        Rule::A01,
        T,
        |w| poke(w, 0, 1, 0x35),
        |w| poke(w, 0, 1, 0x15),
    ),
    case(
        Rule::A02,
        T,
        |w| {
            w.events.swap(1, 2);
            w.lint_ring()
        },
        |w| {
            // Bodies of two packets before both headers is fine.
            w.events.swap(2, 3);
            w.lint_ring()
        },
    ),
    case(
        Rule::A03,
        T,
        |w| event(w, Event::Doorbell { value: 99 }),
        |w| {
            let value = w.ring.len() as u64 - 1;
            event(w, Event::Doorbell { value })
        },
    ),
    case(
        Rule::A04,
        T,
        |w| {
            w.queue.size = 96;
            w.lint_ring()
        },
        |w| {
            w.queue.size = 131_072;
            w.queue.base = 0x7F70_0000_0000;
            w.lint_ring()
        },
    ),
    case(
        Rule::A05,
        T,
        |w| poke32(w, 0, 12, 0),
        |w| poke32(w, 0, 12, 7),
    ),
    case(
        Rule::A06,
        T,
        |w| poke32(w, 0, 32, CODE as u32 + 0x80),
        |w| poke32(w, 0, 32, CODE as u32 + 0x40),
    ),
    case(
        Rule::A07,
        T,
        |w| poke32(w, 0, 28, 65_537),
        |w| poke32(w, 0, 28, 65_536),
    ),
    case(
        Rule::A08,
        T,
        |w| poke32(w, 0, 40, KERNARG as u32 + 8),
        |w| {
            w.nodes[0].kernarg.base = KERNARG + 0x8000;
            poke32(w, 0, 40, KERNARG as u32 + 0x8000)
        },
    ),
    case(
        Rule::A09,
        T,
        |w| poke32(w, 1, 40, KERNARG as u32 + 32),
        |w| {
            w.nodes[1].kernarg.base = KERNARG + 48;
            poke32(w, 1, 40, KERNARG as u32 + 48)
        },
    ),
    case(Rule::A10, T, |w| poke(w, 0, 10, 1), |w| poke(w, 0, 48, 1)),
    case(
        Rule::A11,
        T,
        |w| prepend(w, barrier([SIGNAL, 0, 0, 0, 0], 0)),
        |w| append(w, barrier([SIGNAL, 0, 0, 0, 0], 0)),
    ),
    case(
        Rule::A12,
        T,
        |w| {
            w.signals[0].value = 0;
            w.lint_ring()
        },
        |w| {
            w.signals[0].value = 2;
            w.lint_ring()
        },
    ),
    case(
        Rule::A13,
        T,
        |w| {
            header(w, 2, |h| h.barrier = false);
            w.lint_ring()
        },
        |w| {
            header(w, 2, |h| h.acquire = Scope::None);
            w.lint_ring()
        },
    ),
    case(
        Rule::A14,
        T,
        |w| poke32(w, vendor(w), 20, 9),
        |w| poke32(w, vendor(w), 20, 10),
    ),
    case(
        Rule::A15,
        T,
        |w| {
            let size = w.words.len() as u32;
            poke32(w, vendor(w), 16, size | 1 << 23 | 1 << 20)
        },
        |w| {
            let size = w.words.len() as u32;
            poke32(w, vendor(w), 16, size | 1 << 23 | 3 << 28)
        },
    ),
    case(
        Rule::A16,
        T,
        |w| {
            event(
                w,
                Event::Store {
                    range: Range::new(IB + 64, 4),
                },
            )
        },
        |w| {
            let end = IB + w.ib.range.bytes;
            event(
                w,
                Event::Store {
                    range: Range::new(end, 4),
                },
            )
        },
    ),
    case(
        Rule::A17,
        T,
        |w| {
            w.queue.properties = 1 << 3;
            w.lint_ring()
        },
        |w| {
            w.queue.properties = 1 << 1;
            w.lint_ring()
        },
    ),
];

const P: &[Case] = &[
    case(
        Rule::P01,
        T,
        |w| {
            let at = w.nth(op::DISPATCH_DIRECT, 0);
            w.words[at] |= 1;
            w.lint_alone()
        },
        |w| {
            // The shader-type bit on every packet is a foreign style, not an error.
            let mut at = 0;
            while at < w.words.len() {
                let next = at + 2 + (w.words[at] >> 16 & 0x3FFF) as usize;
                if w.words[at] == 0xFFFF_1000 {
                    w.words[at] |= 2;
                    at += 1;
                    continue;
                }
                w.words[at] |= 2;
                at = next;
            }
            w.lint_alone()
        },
    ),
    case(
        Rule::P02,
        T,
        |w| insert(w, &[0xC001_4600, 0x407, 0]),
        |w| insert(w, &[0xC001_1000, 0x407, 0]),
    ),
    case(
        Rule::P03,
        T,
        |w| insert(w, &[0xC002_3F00, 0x1000, 0, 0x0080_0010]),
        |w| insert(w, &[0xC002_1000, 0x1000, 0, 0x0080_0010]),
    ),
    case(
        Rule::P04,
        T,
        |w| insert(w, &[0xC001_7600, 0x250, 0]),
        |w| insert(w, &[0xC001_7600, 0x24F, 0]),
    ),
    case(
        Rule::P05,
        T12,
        |w| insert(w, &[0xC001_7600, 0x223, 0]),
        // The burst that some encoders write from PIPELINESTAT_ENABLE, all zero.
        |w| insert(w, &[0xC002_7600, 0x20A, 0, 0]),
    ),
    case(
        Rule::P06,
        T,
        |w| {
            w.ib.declared += 1;
            w.lint_alone()
        },
        |w| {
            w.insert(0, &[0xFFFF_1000; 8]);
            w.lint_alone()
        },
    ),
    case(
        Rule::P07,
        T,
        |w| insert(w, &[0xC000_4600, 0x528]),
        |w| dword(w, op::EVENT_WRITE, 0, 1, 0x8000_0407),
    ),
    case(
        Rule::P08,
        T12,
        |w| dword(w, op::ACQUIRE_MEM, 0, 7, 0x1_C1D1),
        |w| dword(w, op::ACQUIRE_MEM, 0, 7, 0x1_C1C1),
    ),
    case(
        Rule::P09,
        T,
        |w| insert(w, &[0xC003_3700, 5 << 8, 0x1002, 0, 1]),
        |w| {
            insert(
                w,
                &[
                    0xC003_3700,
                    5 << 8 | 1 << 20,
                    DATA as u32 + 0x8_0000,
                    (DATA >> 32) as u32,
                    1,
                ],
            )
        },
    ),
    case(
        Rule::P10,
        T,
        |w| {
            insert(
                w,
                &[
                    0xC005_3C00,
                    0x15,
                    DATA as u32,
                    (DATA >> 32) as u32,
                    1,
                    u32::MAX,
                    4,
                ],
            )
        },
        |w| {
            w.host.signals.push(Range::new(DATA, 4));
            insert(
                w,
                &[
                    0xC005_3C00,
                    0x15,
                    DATA as u32,
                    (DATA >> 32) as u32,
                    1,
                    u32::MAX,
                    4,
                ],
            )
        },
    ),
];

const D: &[Case] = &[
    case(
        Rule::D01,
        T,
        |w| drop_register(w, reg::PGM_RSRC3),
        // START need not be written with FORCE_START_AT_000.
        |w| drop_register(w, reg::START_X),
    ),
    case(
        Rule::D02,
        T,
        |w| or(w, 1, reg::PGM_RSRC1, 1 << 26),
        |w| or(w, 1, reg::PGM_RSRC3, 0x8000_0010),
    ),
    case(
        Rule::D03,
        T,
        |w| dword(w, op::DISPATCH_DIRECT, 0, 4, 0x800D),
        |w| dword(w, op::DISPATCH_DIRECT, 0, 4, 0x8045),
    ),
    case(
        Rule::D04,
        T,
        |w| dword(w, op::DISPATCH_DIRECT, 0, 4, 0x0005),
        |w| {
            w.facts(0).vgpr_count = 9;
            w.lint_alone()
        },
    ),
    case(
        Rule::D05,
        T,
        |w| dword(w, op::DISPATCH_DIRECT, 0, 2, 0),
        |w| {
            // Work-items instead of groups, as the WSL translator sends them.
            dword(w, op::DISPATCH_DIRECT, 0, 4, 0x8025);
            dword(w, op::DISPATCH_DIRECT, 0, 1, 96 * 256)
        },
    ),
    case(
        Rule::D06,
        T,
        |w| set(w, 0, reg::START_Y, 1),
        |w| set(w, 0, reg::START_Y, 0),
    ),
    case(
        Rule::D07,
        T,
        |w| {
            let word = w.get_register(0, reg::PGM_RSRC2) - (1 << 15);
            set(w, 0, reg::PGM_RSRC2, word)
        },
        |w| {
            // Fewer bytes, but the same number of granules.
            w.nodes[0].lds_bytes = 1025;
            w.lint_alone()
        },
    ),
    case(
        Rule::D08,
        T,
        |w| {
            let value = w.get_register(1, reg::USER_DATA_0) + 0x40;
            set(w, 1, reg::USER_DATA_0, value)
        },
        |w| {
            w.nodes[1].kernarg.base += 0x400;
            let value = w.get_register(1, reg::USER_DATA_0) + 0x400;
            set(w, 1, reg::USER_DATA_0, value)
        },
    ),
    case(
        Rule::D09,
        T,
        |w| {
            w.kernels[0].descriptor.rsrc2 |= 1;
            or(w, 0, reg::PGM_RSRC2, 1)
        },
        |w| {
            w.kernels[0].descriptor.rsrc2 |= 1;
            for index in [0, 2] {
                or(w, index, reg::PGM_RSRC2, 1);
            }
            // 2 units of 256 bytes for 8 waves, and a base.
            insert(
                w,
                &[
                    0xC001_7600,
                    0x218,
                    2 << 12 | 8,
                    0xC002_7600,
                    0x210,
                    0x1000,
                    0,
                ],
            )
        },
    ),
    case(
        Rule::D10,
        T,
        |w| {
            w.facts(0).printf = true;
            w.lint_alone()
        },
        |w| {
            w.facts(0).normal = true;
            w.lint_alone()
        },
    ),
    case(
        Rule::D11,
        Gfx::Gfx1100,
        |w| {
            let word = w.get_register(0, reg::PGM_RSRC1) & !(1 << 20);
            set(w, 0, reg::PGM_RSRC1, word)
        },
        |w| or(w, 0, reg::PGM_RSRC1, 1 << 20),
    ),
    case(
        Rule::D12,
        T,
        |w| {
            w.facts(0).target = Some(Gfx::Gfx1100);
            w.lint_alone()
        },
        |w| {
            w.facts(0).target = None;
            w.lint_alone()
        },
    ),
    case(
        Rule::D13,
        T,
        |w| set(w, 0, reg::RESOURCE_LIMITS, 0x3FF),
        |w| set(w, 0, reg::RESOURCE_LIMITS, 0),
    ),
];

/// Makes node `reader` read what node `writer` writes, and nothing else.
fn depend(world: &mut World, reader: usize, writer: usize) {
    world.nodes[reader].reads = vec![world.nodes[writer].writes[0]];
}

const H: &[Case] = &[
    case(
        Rule::H01,
        T,
        |w| drop_nth(w, op::EVENT_WRITE, 0),
        |w| {
            w.nodes[1].reads[0] = Region::new(DATA + BUFFER * 100, BUFFER);
            drop_nth(w, op::EVENT_WRITE, 0)
        },
    ),
    case(
        Rule::H02,
        T,
        |w| dword(w, op::ACQUIRE_MEM, 2, 7, 0x300),
        |w| {
            // Vector loads only: the scalar cache may stay.
            for node in &mut w.nodes {
                node.reads[0].scalar = false;
            }
            dword(w, op::ACQUIRE_MEM, 2, 7, 0x300)
        },
    ),
    case(
        Rule::H03,
        T,
        |w| drop_nth(w, op::ACQUIRE_MEM, 0),
        |w| {
            w.header = Some(Header::system(PacketType::VendorSpecific));
            drop_nth(w, op::ACQUIRE_MEM, 0)
        },
    ),
    case(
        Rule::H04,
        T,
        |w| {
            let waits = w.launches.len() - 1;
            drop_nth(w, op::EVENT_WRITE, waits)
        },
        |w| {
            // Cache maintenance behind the last wait is fine.
            let waits = w.launches.len() - 1;
            let at = w.nth(op::EVENT_WRITE, waits) + 2;
            w.insert(
                at,
                &[0xC006_5800, 0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, 0x8000],
            );
            w.lint_alone()
        },
    ),
    case(
        Rule::H05,
        T12,
        |w| {
            w.nodes[3].writes = vec![w.nodes[2].reads[0]];
            dword(w, op::ACQUIRE_MEM, 3, 7, 0x80)
        },
        |w| {
            w.nodes[3].writes = vec![w.nodes[2].reads[0]];
            w.lint_alone()
        },
    ),
    case(
        Rule::H06,
        T,
        |w| {
            w.allocations[4].generation = 1;
            w.lint_alone()
        },
        |w| {
            w.allocations[4].generation = 1;
            for node in &mut w.nodes {
                for region in node.reads.iter_mut().chain(&mut node.writes) {
                    region.generation = 1;
                }
            }
            w.lint_alone()
        },
    ),
    case(
        Rule::H07,
        T,
        |w| {
            let at = w.register_word(2, reg::NUM_THREAD_X);
            w.words[at] = 64;
            w.lint_ib()
        },
        |w| {
            *w = World::with(T, Policy::named("elide").unwrap(), 4);
            w.lint_ib()
        },
    ),
    case(
        Rule::H08,
        T,
        |w| {
            w.nodes[1].reads[0] = Region::new(DATA + BUFFER * 100, BUFFER);
            w.lint_alone()
        },
        |w| {
            depend(w, 3, 2);
            w.lint_alone()
        },
    ),
    case(
        Rule::H09,
        T,
        |w| {
            let writes = vec![w.nodes[0].writes[0].range];
            w.in_flight.push(InFlight {
                writes,
                ..InFlight::default()
            });
            w.lint_alone()
        },
        |w| {
            let writes = vec![w.nodes[0].writes[0].range];
            w.in_flight.push(InFlight {
                writes,
                ..InFlight::default()
            });
            w.header = Some(Header::system(PacketType::VendorSpecific));
            w.lint_alone()
        },
    ),
    case(
        Rule::H10,
        T,
        |w| {
            w.nodes[0].writes.push(Region::new(KERNARG + 64, 16));
            w.lint_alone()
        },
        |w| {
            // Behind the last launch's kernargs: nobody's.
            w.nodes[0].writes.push(Region::new(KERNARG + 64 * 512, 16));
            w.lint_alone()
        },
    ),
];

fn cases() -> impl Iterator<Item = &'static Case> {
    A.iter().chain(P).chain(D).chain(H)
}

#[test]
fn every_rule_has_its_two_cases() {
    let mut ids: Vec<Rule> = cases().map(|case| case.rule).collect();
    ids.sort_unstable();
    let all: Vec<Rule> = RULES.iter().map(|row| row.rule).collect();
    assert_eq!(ids, all);
    assert_eq!(all.len(), 50);
}

#[test]
fn each_rule_fires_on_its_case_and_not_on_the_near_miss() {
    for case in cases() {
        let id = case.rule.row().id;
        let report = (case.trigger)(&mut World::new(case.target));
        let hit = report.findings.iter().find(|row| row.rule == case.rule);
        let Some(hit) = hit else {
            panic!("{id} did not fire: {:#?}", report.findings)
        };
        let text = hit.to_string();
        for part in [
            id,
            hit.severity.name(),
            "found",
            "expected",
            case.rule.row().remedy,
        ] {
            assert!(text.contains(part), "{id}: {text}");
        }
        let report = (case.near)(&mut World::new(case.target));
        assert!(
            !report.has(case.rule),
            "{id} fired on its near miss: {:#?}",
            report.findings
        );
        assert!(
            !report.rejects(&[]),
            "{id} near miss is rejected: {:#?}",
            report.findings
        );
    }
}

#[test]
fn absent_context_is_counted_and_never_passed() {
    let world = World::new(T);
    let bare = Context::bare(T);
    let ib = lint_ib(&world.words, &bare);
    assert_eq!(ib.checked + ib.not_checked.len(), 33);
    let names: Vec<&str> = ib.not_checked.iter().map(|row| row.0.row().id).collect();
    assert_eq!(
        names,
        [
            "D04", "H01", "H02", "H05", "H06", "H07", "H08", "H09", "H10"
        ]
    );
    let ring = lint_ring(&world.ring, &bare);
    let names: Vec<&str> = ring.not_checked.iter().map(|row| row.0.row().id).collect();
    assert_eq!(names, ["A02", "A03", "A04", "A09", "A13", "A16", "A17"]);
    assert!(!ring.partly_checked.is_empty());
}

#[test]
fn the_wrong_gfx12_map_is_named() {
    // What two public encoders sent: RSRC3 at 0x223, TMPRING at 0x216, masks at 0x230.
    for (offset, values, right) in [
        (0x223, vec![0], "PGM_RSRC3 lies at 0x228"),
        (0x216, vec![0], "TMPRING_SIZE lies at 0x218"),
        (0x230, vec![u32::MAX; 4], "RELAUNCH and WAVE_RESTORE"),
    ] {
        let mut world = World::new(T12);
        let mut words = vec![0xC000_7600 | (values.len() as u32) << 16, offset];
        words.extend(values);
        let report = insert(&mut world, &words);
        let hits: Vec<_> = report
            .findings
            .iter()
            .filter(|row| row.rule == Rule::P05)
            .collect();
        assert!(!hits.is_empty());
        for hit in hits {
            assert_eq!(hit.severity, Severity::Error);
            assert!(hit.to_string().contains("the wrong gfx12 map"), "{hit}");
            assert!(hit.to_string().contains(right), "{hit}");
        }
    }
    // On gfx11 the same offsets are forbidden too, but it is not a gfx12 mistake there.
    let mut world = World::new(T);
    let report = insert(&mut world, &[0xC001_7600, 0x216, 0]);
    assert!(report.has(Rule::P05) && !report.findings[0].to_string().contains("gfx12"));
}

#[test]
fn forbidden_registers_of_every_generation_are_refused() {
    use refrain_packet::tables::registers::{REGISTERS, Writer};
    for target in Gfx::ALL {
        for row in REGISTERS
            .iter()
            .filter(|row| row.gens.has(target.generation()))
        {
            let mut world = World::new(target);
            let report = insert(&mut world, &[0xC001_7600, u32::from(row.offset), 1]);
            let refused = report.has(Rule::P05) || report.has(Rule::P04);
            let ours = matches!(row.writer, Writer::Dispatch | Writer::Scratch);
            assert_eq!(refused, !ours, "{target} {}", row.name);
        }
    }
}

#[test]
fn mislabelled_order_mode_is_a_warning_only_when_asked_for() {
    let mut world = World::new(T);
    world.bug_compatible = true;
    let report = dword(&mut world, op::DISPATCH_DIRECT, 0, 4, 0x800D);
    assert!(report.has(Rule::D03) && !report.rejects(&[]));
}

#[test]
fn hazards_can_be_waived_and_errors_cannot() {
    let mut world = World::new(T12);
    world.nodes[3].writes = vec![world.nodes[2].reads[0]];
    let report = dword(&mut world, op::ACQUIRE_MEM, 3, 7, 0x80);
    assert!(report.has(Rule::H05) && report.has(Rule::H02));
    let mut only = report.clone();
    only.findings.retain(|row| row.rule == Rule::H05);
    assert!(only.rejects(&[]) && !only.rejects(&[Rule::H05]));
    only.findings = report.findings;
    assert!(only.rejects(&[Rule::H02, Rule::H05]));
}

/// Further clauses of rules, each with the finding's subject.
#[test]
fn clauses() {
    type Clause = (Rule, &'static str, Gfx, Edit);
    const CLAUSES: &[Clause] = &[
        (Rule::A01, "fence scope", T, |w| poke(w, 0, 1, 0x1F)),
        (Rule::A01, "type", T, |w| poke(w, 0, 0, 9)),
        (Rule::A01, "type", T, |w| poke(w, 0, 0, 4)),
        (Rule::A01, "type", T, |w| poke(w, 0, 0, 1)),
        (Rule::A02, "header store", T, |w| {
            w.events[2] = Event::Header {
                id: 0,
                bits: 16,
                release: true,
            };
            w.lint_ring()
        }),
        (Rule::A02, "header store", T, |w| {
            w.events.remove(1);
            w.lint_ring()
        }),
        (Rule::A03, "ring", T, |w| {
            w.events.insert(0, Event::Reserve { count: 65 });
            w.lint_ring()
        }),
        (Rule::A03, "ring", T, |w| event(w, Event::Body { id: 70 })),
        (Rule::A03, "doorbell", T, |w| {
            event(w, Event::Doorbell { value: 0 })
        }),
        (Rule::A03, "doorbell", T, |w| {
            w.events.insert(0, Event::Reserve { count: 1 });
            let value = w.ring.len() as u64;
            event(w, Event::Doorbell { value })
        }),
        (Rule::A04, "ring base", T, |w| {
            w.queue.base = RING + 64;
            w.lint_ring()
        }),
        (Rule::A05, "setup", T, |w| poke(w, 0, 2, 4)),
        (Rule::A05, "unused dimension 2", T, |w| {
            poke(w, 0, 2, 2);
            poke(w, 0, 8, 2)
        }),
        (Rule::A05, "workgroup_size", T, |w| poke(w, 0, 4, 1)),
        (Rule::A05, "workgroup_size", T, |w| {
            w.facts(0).reqd_workgroup_size = Some([64, 1, 1]);
            poke(w, 0, 5, 1)
        }),
        (Rule::A06, "kernel_object", T, |w| poke(w, 0, 32, 1)),
        (Rule::A06, "kernel_0", T, |w| {
            w.kernels[0].reserved_zero = false;
            w.lint_ring()
        }),
        (Rule::A06, "kernel_0", T, |w| {
            w.facts(0).target = Some(Gfx::Gfx1100);
            w.lint_ring()
        }),
        (Rule::A07, "private_segment_size", T, |w| {
            w.kernels[0].descriptor.private_segment_fixed_size = 4;
            w.lint_ring()
        }),
        (Rule::A08, "kernarg_address", T, |w| {
            poke32(w, 0, 44, 0);
            poke32(w, 0, 40, 0)
        }),
        (Rule::A08, "kernarg_address", T, |w| poke32(w, 0, 44, 1)),
        (Rule::A09, "kernarg range", T, |w| {
            poke32(w, 0, 44, (RING >> 32) as u32)
        }),
        (Rule::A09, "kernarg range", T, |w| {
            w.nodes[2].writes.push(Region::new(KERNARG, 4));
            w.lint_ring()
        }),
        (Rule::A11, "dep_signal", T, |w| {
            append(w, barrier([SIGNAL + 0x4000, 0, 0, 0, 0], 0))
        }),
        (Rule::A11, "dep_signal", T, |w| {
            // Two queues that wait for each other.
            w.peers = vec![vec![barrier([SIGNAL + 192, 0, 0, 0, 0], SIGNAL + 128)]];
            prepend(w, barrier([SIGNAL + 128, 0, 0, 0, 0], SIGNAL + 192))
        }),
        (Rule::A12, "completion_signal", T, |w| {
            w.signals[0].kind = -1;
            w.lint_ring()
        }),
        (Rule::A12, "completion_signal", T, |w| {
            w.signals[0].live = false;
            w.lint_ring()
        }),
        (Rule::A12, "completion_signal", T, |w| {
            append(w, barrier([0; 5], SIGNAL))
        }),
        (Rule::A12, "signal", T, |w| {
            event(w, Event::SignalStore { handle: SIGNAL })
        }),
        (Rule::A13, "acquire", T, |w| {
            header(w, 0, |h| h.acquire = Scope::None);
            w.lint_ring()
        }),
        (Rule::A13, "release", T, |w| {
            let last = w.nodes.len();
            w.host.reads.push(w.nodes[last - 1].writes[0].range);
            w.ring.truncate(last);
            header(w, last - 1, |h| h.release = Scope::Agent);
            w.lint_ring()
        }),
        (Rule::A14, "vendor packet", T, |w| poke(w, vendor(w), 2, 2)),
        (Rule::A14, "ven_hdr byte 3", T, |w| poke(w, vendor(w), 3, 1)),
        (Rule::A14, "ib_jump[0]", T, |w| poke(w, vendor(w), 4, 2)),
        (Rule::A14, "RESERVED", T, |w| poke(w, vendor(w), 30, 2)),
        (Rule::A15, "IB_SIZE", T, |w| {
            poke32(w, vendor(w), 16, 1 << 23)
        }),
        (Rule::A15, "VALID", T, |w| poke32(w, vendor(w), 16, 8)),
        (Rule::A15, "IB_BASE", T, |w| poke32(w, vendor(w), 8, 2)),
        (Rule::A16, "indirect buffer", T, |w| {
            poke32(w, vendor(w), 12, 0x7F50)
        }),
        (Rule::A16, "indirect buffer", T, |w| {
            event(
                w,
                Event::Free {
                    range: Range::new(IB, 4096),
                },
            )
        }),
        (Rule::A17, "queue", T, |w| {
            w.queue.intercepted = true;
            w.lint_ring()
        }),
        (Rule::P01, "header", T, |w| {
            w.words.push(0x0000_7600);
            w.lint_alone()
        }),
        (Rule::P01, "shader-type bit", T, |w| {
            let at = w.nth(op::DISPATCH_DIRECT, 0);
            w.words[at] |= 2;
            w.lint_alone()
        }),
        (Rule::P02, "DISPATCH_DIRECT", T, |w| {
            w.words.push(0xC003_1500);
            w.lint_alone()
        }),
        (Rule::P03, "unknown opcode", T, |w| {
            insert(w, &[0xC000_0100, 0])
        }),
        (Rule::P03, "INDIRECT_BUFFER", T, |w| {
            insert(w, &[0xC002_3F00, 1, 0, 0])
        }),
        (Rule::P03, "DISPATCH_DIRECT_INTERLEAVED", T, |w| {
            insert(w, &[0xC000_A700, 0])
        }),
        (Rule::P04, "SET_SH_REG", T, |w| {
            insert(w, &[0xC001_7600, 0x1000_0240, 0])
        }),
        (Rule::P04, "SET_SH_REG", T, |w| {
            insert(w, &[0xC001_7600, 0x0040_0240, 0])
        }),
        (Rule::P04, "SET_SH_REG", T, |w| {
            insert(w, &[0xC000_7600, 0x240])
        }),
        (Rule::P04, "SET_SH_REG", T, |w| {
            insert(w, &[0xC001_7600, 0x1FF, 0])
        }),
        (Rule::P05, "no register", T, |w| {
            insert(w, &[0xC001_7600, 0x234, 0])
        }),
        (Rule::P05, "PERFCOUNT_ENABLE", T, |w| {
            insert(w, &[0xC001_7600, 0x20B, 1])
        }),
        (Rule::P06, "length", T, |w| {
            w.words.clear();
            w.lint_alone()
        }),
        (Rule::P06, "length", T, |w| {
            w.words.push(0xFFFF_1000);
            w.ib.declared += 1;
            w.lint_alone()
        }),
        (Rule::P07, "unknown event", T, |w| {
            insert(w, &[0xC000_4600, 0x401])
        }),
        (Rule::P07, "EVENT_WRITE", T, |w| {
            insert(w, &[0xC000_4600, 0x1407])
        }),
        (Rule::P08, "GL1_INV", T12, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x380)
        }),
        (Rule::P08, "GCR_CNTL", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x2380)
        }),
        (Rule::P08, "GCR_CNTL", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x382)
        }),
        (Rule::P08, "GLI_INV", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x383)
        }),
        (Rule::P08, "GLM_WB", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x390)
        }),
        (Rule::P08, "dword 1", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 1, 1 << 31)
        }),
        (Rule::P08, "range", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 4, 1)
        }),
        (Rule::P08, "ACQUIRE_MEM", T, |w| {
            dword(w, op::ACQUIRE_MEM, 1, 7, 0x8_0380)
        }),
        (Rule::P09, "WRITE_DATA", T, |w| {
            insert(w, &[0xC003_3700, 0, 0x1000, 0, 1])
        }),
        (Rule::P09, "COPY_DATA", T, |w| {
            insert(w, &[0xC004_4000, 5, 1, 0, 0x1000, 0])
        }),
        (Rule::P09, "COPY_DATA", T, |w| {
            insert(
                w,
                &[
                    0xC004_4000,
                    0x1_0509,
                    0,
                    0,
                    DATA as u32 + 4,
                    (DATA >> 32) as u32,
                ],
            )
        }),
        (Rule::P09, "ATOMIC_MEM", T, |w| {
            insert(
                w,
                &[
                    0xC007_1E00,
                    0x2F,
                    DATA as u32 + 4,
                    (DATA >> 32) as u32,
                    1,
                    0,
                    0,
                    0,
                    0,
                ],
            )
        }),
        (Rule::P09, "ATOMIC_MEM", T, |w| {
            insert(w, &[0xC007_1E00, 0x0F, 0x1000, 0, 1, 0, 0, 0, 0])
        }),
        (Rule::P09, "RELEASE_MEM", T, |w| {
            insert(
                w,
                &[
                    0xC006_4900,
                    0x528,
                    2 << 29,
                    DATA as u32 + 4,
                    (DATA >> 32) as u32,
                    0,
                    0,
                    0,
                ],
            )
        }),
        (Rule::P08, "RELEASE_MEM", T, |w| {
            insert(w, &[0xC006_4900, 0x528 | 1 << 6, 0, 0, 0, 0, 0, 0])
        }),
        (Rule::P10, "WAIT_REG_MEM", T, |w| {
            insert(
                w,
                &[0xC005_3C00, 0x17, DATA as u32, (DATA >> 32) as u32, 1, 1, 4],
            )
        }),
        (Rule::P10, "WAIT_REG_MEM", T, |w| {
            insert(w, &[0xC005_3C00, 5, 0x100, 0, 1, 1, 4])
        }),
        (Rule::P10, "WAIT_REG_MEM", T, |w| {
            insert(w, &[0xC005_3C00, 0x13, 0x100, 0, 1, 1, 4])
        }),
        (Rule::D01, "START", T, |w| {
            drop_register(w, reg::START_X);
            dword(w, op::DISPATCH_DIRECT, 0, 4, 0x8001)
        }),
        (Rule::D01, "USER_DATA_0", T, |w| {
            drop_register(w, reg::USER_DATA_0)
        }),
        (Rule::D02, "PGM_HI", T, |w| set(w, 1, reg::PGM_HI, 0x17F)),
        (Rule::D02, "PGM", T, |w| set(w, 1, reg::PGM_LO, 7)),
        (Rule::D02, "PGM", T, |w| {
            w.kernels[1].descriptor.entry_byte_offset += 64;
            w.lint_alone()
        }),
        (Rule::D03, "COMPUTE_SHADER_EN", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8004)
        }),
        (Rule::D03, "DISPATCH_INITIATOR", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8085)
        }),
        (Rule::D03, "PING_PONG_EN", T12, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x9005)
        }),
        (Rule::D03, "SCALAR_L1_INV_VOL", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8405)
        }),
        (Rule::D04, "VGPRS", T, |w| {
            w.facts(0).vgpr_count = 17;
            w.lint_alone()
        }),
        (Rule::D05, "launches", T, |w| {
            w.nodes.pop();
            w.lint_alone()
        }),
        (Rule::D05, "PARTIAL_TG_EN", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8007)
        }),
        (Rule::D05, "NUM_THREAD_X", T, |w| {
            or(w, 1, reg::NUM_THREAD_X, 1 << 16)
        }),
        (Rule::D05, "NUM_THREAD_X", T12, |w| {
            or(w, 1, reg::NUM_THREAD_X, 1 << 13)
        }),
        (Rule::D05, "NUM_THREAD", T, |w| {
            set(w, 1, reg::NUM_THREAD_X, 2048)
        }),
        (Rule::D05, "NUM_THREAD", T, |w| {
            w.facts(0).reqd_workgroup_size = Some([64, 1, 1]);
            w.lint_alone()
        }),
        (Rule::D05, "DIM", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8025)
        }),
        (Rule::D05, "DIM", T12, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 3, 65_536)
        }),
        (Rule::D06, "FORCE_START_AT_000", T, |w| {
            dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8001)
        }),
        (Rule::D07, "LDS_SIZE", T, |w| {
            or(w, 1, reg::PGM_RSRC2, 0x1FF << 15)
        }),
        (Rule::D08, "USER_SGPR", T, |w| {
            or(w, 1, reg::PGM_RSRC2, 0x1F << 1)
        }),
        (Rule::D08, "USER_SGPR", T, |w| {
            let word = w.get_register(1, reg::PGM_RSRC2) & !0x3E;
            set(w, 1, reg::PGM_RSRC2, word)
        }),
        (Rule::D08, "properties", T, |w| {
            w.kernels[0].descriptor.properties |= property::QUEUE_PTR;
            w.lint_alone()
        }),
        (Rule::D08, "kernarg pointer", T, |w| {
            set(w, 1, reg::USER_DATA_0, 0);
            set(w, 1, reg::USER_DATA_0 + 1, 0)
        }),
        (Rule::D08, "kernarg pointer", T, |w| {
            set(w, 1, reg::USER_DATA_0 + 1, 0x7F50)
        }),
        (Rule::D08, "USER_DATA_0", Gfx::Gfx1030, |w| {
            set(w, 1, reg::USER_DATA_0, 5)
        }),
        (Rule::D09, "SCRATCH_EN", T, |w| {
            w.kernels[0].descriptor.private_segment_fixed_size = 4;
            w.lint_alone()
        }),
        (Rule::D09, "TMPRING_SIZE", T, |w| {
            insert(w, &[0xC001_7600, 0x218, 0])
        }),
        (Rule::D09, "DISPATCH_SCRATCH_BASE", T, |w| {
            or(w, 0, reg::PGM_RSRC2, 1)
        }),
        (Rule::D10, "trap and exception bits", T, |w| {
            or(w, 1, reg::PGM_RSRC2, 1 << 6)
        }),
        (Rule::D10, "DYNAMIC_VGPR", T12, |w| {
            or(w, 1, reg::PGM_RSRC2, 1 << 6)
        }),
        (Rule::D10, "kernel_0", T, |w| {
            w.kernels[0].descriptor.kernarg_preload = 1;
            w.lint_alone()
        }),
        (Rule::D11, "PRIV", T12, |w| {
            or(w, 1, reg::PGM_RSRC1, 1 << 20)
        }),
        (Rule::D12, "PGM_RSRC1", T12, |w| {
            or(w, 1, reg::PGM_RSRC1, 1 << 21 | 1 << 23)
        }),
        (Rule::H02, "GLV_INV", T, |w| drop_nth(w, op::ACQUIRE_MEM, 2)),
        (Rule::H02, "GL1_INV", T, |w| {
            dword(w, op::ACQUIRE_MEM, 2, 7, 0x180)
        }),
        (Rule::H02, "GLV_INV", T, |w| {
            // The invalidate in front of the wait covers nothing.
            let at = w.nth(op::EVENT_WRITE, 1);
            w.words[at..at + 10].rotate_left(2);
            w.lint_alone()
        }),
        (Rule::H04, "host-read outputs", T, |w| {
            w.host.reads.push(Range::new(DATA, 4));
            w.lint_alone()
        }),
        (Rule::H06, "region", T, |w| {
            w.allocations[4].live = false;
            w.lint_alone()
        }),
        (Rule::H06, "region", T, |w| {
            w.allocations[4].holds = Holds::Aperture;
            w.lint_alone()
        }),
        (Rule::H07, "dispatches", T, |w| {
            let at = w.nth(op::DISPATCH_DIRECT, 3);
            w.blank(at);
            w.lint_ib()
        }),
        (Rule::H07, "reference stream", T, |w| {
            w.reference[0] = 0;
            w.lint_ib()
        }),
        (Rule::H07, "register file", T, |w| {
            let at = w.nth(op::DISPATCH_DIRECT, 1);
            w.words[at + 1] += 1;
            w.lint_ib()
        }),
        (Rule::A02, "header store", T, |w| {
            w.events[2] = Event::Header {
                id: 0,
                bits: 32,
                release: false,
            };
            w.lint_ring()
        }),
        (Rule::A04, "ring size", T, |w| {
            w.queue.size = 32;
            w.lint_ring()
        }),
        (Rule::A04, "ring base", T, |w| {
            w.queue.base = 0;
            w.lint_ring()
        }),
        (Rule::A04, "ring base", T, |w| {
            w.queue.base = RING + 8;
            w.lint_ring()
        }),
        (Rule::A05, "unused dimension 1", T, |w| {
            poke(w, 0, 2, 1);
            poke(w, 0, 16, 2)
        }),
        (Rule::A08, "kernarg_address", T, |w| {
            w.allocations[1].gpu_visible = false;
            w.lint_ring()
        }),
        (Rule::A13, "barrier", T, |w| {
            header(w, 1, |h| h.barrier = false);
            header(w, 2, |h| h.barrier = false);
            w.nodes[1].reads = vec![Region::new(DATA + BUFFER * 99, 4)];
            w.nodes[2].reads = vec![w.nodes[0].writes[0]];
            w.lint_ring()
        }),
        (Rule::A15, "IB_BASE", T, |w| {
            poke32(w, vendor(w), 8, 0);
            poke32(w, vendor(w), 12, 0)
        }),
        (Rule::A15, "IB_BASE", T, |w| {
            poke32(w, vendor(w), 12, 0x1_0000)
        }),
        (Rule::A16, "indirect buffer", T, |w| {
            w.allocations[2].executable = false;
            w.lint_ring()
        }),
        (Rule::P03, "TIMESTAMP", Gfx::Gfx1030, |w| {
            insert(w, &[0xC000_B200, 0])
        }),
        (Rule::P09, "COPY_DATA", T, |w| {
            insert(w, &[0xC004_4000, 0x0509, 0, 0, 0, 0])
        }),
        (Rule::P09, "RELEASE_MEM", T, |w| {
            insert(
                w,
                &[
                    0xC006_4900,
                    0x528,
                    1 << 29,
                    DATA as u32 + 2,
                    (DATA >> 32) as u32,
                    0,
                    0,
                    0,
                ],
            )
        }),
        (Rule::D04, "CS_W32_EN", T, |w| {
            w.kernels[0].descriptor.properties &= !property::WAVEFRONT_SIZE32;
            w.lint_alone()
        }),
        (Rule::D04, "VGPRS", T, |w| {
            w.kernels[0].descriptor.properties &= !property::WAVEFRONT_SIZE32;
            w.facts(0).vgpr_count = 9;
            w.lint_alone()
        }),
        (Rule::D09, "TMPRING_SIZE", T, |w| {
            // Room for 32 lanes of 16 bytes, asked for with 64 lanes.
            w.kernels[0].descriptor.private_segment_fixed_size = 16;
            dword(w, op::DISPATCH_DIRECT, 0, 4, 0x0005);
            or(w, 0, reg::PGM_RSRC2, 1);
            insert(
                w,
                &[
                    0xC001_7600,
                    0x218,
                    2 << 12 | 8,
                    0xC002_7600,
                    0x210,
                    0x1000,
                    0,
                ],
            )
        }),
        (Rule::D09, "TMPRING_SIZE", T, |w| {
            or(w, 0, reg::PGM_RSRC2, 1);
            insert(w, &[0xC001_7600, 0x218, 8, 0xC002_7600, 0x210, 0x1000, 0])
        }),
        (Rule::D10, "kernel_0", T, |w| {
            w.kernels[0].descriptor.properties |= property::USES_DYNAMIC_STACK;
            w.lint_alone()
        }),
        (Rule::H03, "ACQUIRE_MEM", T, |w| {
            // Without host data the kernargs still ask for L0 and scalar invalidates.
            w.host.writes.clear();
            dword(w, op::ACQUIRE_MEM, 0, 7, 0x8000)
        }),
        (Rule::H08, "wait", T, |w| {
            w.nodes[2].reads[0] = Region::new(DATA + BUFFER * 100, 0);
            w.lint_alone()
        }),
        (Rule::D02, "PGM_RSRC3", T, |w| or(w, 1, reg::PGM_RSRC3, 1)),
        (Rule::H01, "wait", T, |w| {
            // Write after read.
            w.nodes[1].reads.clear();
            w.nodes[1].writes = vec![w.nodes[0].reads[0]];
            drop_nth(w, op::EVENT_WRITE, 0)
        }),
        (Rule::H01, "wait", T, |w| {
            // Write after write.
            w.nodes[1].reads.clear();
            w.nodes[1].writes = vec![w.nodes[0].writes[0]];
            drop_nth(w, op::EVENT_WRITE, 0)
        }),
        (Rule::H08, "GCR_CNTL", T, |w| {
            dword(w, op::ACQUIRE_MEM, 2, 7, 0xC380)
        }),
        (Rule::H09, "kernargs", T, |w| {
            let kernargs = vec![w.nodes[0].kernarg];
            w.in_flight.push(InFlight {
                kernargs,
                ..InFlight::default()
            });
            w.lint_alone()
        }),
        (Rule::H09, "queue scratch", T, |w| {
            w.kernels[0].descriptor.private_segment_fixed_size = 4;
            w.in_flight.push(InFlight {
                scratch: true,
                ..InFlight::default()
            });
            w.lint_alone()
        }),
        (Rule::H10, "indirect buffer", T, |w| {
            w.nodes[0].writes.push(Region::new(IB, 4));
            w.lint_alone()
        }),
        (Rule::H10, "ring", T, |w| {
            w.nodes[0].writes.push(Region::new(RING, 4));
            w.lint_alone()
        }),
        (Rule::H10, "code", T, |w| {
            w.nodes[0].writes.push(Region::new(CODE, 4));
            w.lint_alone()
        }),
    ];
    for (number, (rule, subject, target, edit)) in CLAUSES.iter().enumerate() {
        let report = edit(&mut World::new(*target));
        let hit = report
            .findings
            .iter()
            .any(|row| row.rule == *rule && row.subject == *subject);
        let id = rule.row().id;
        assert!(
            hit,
            "clause {number}: {id} on {subject}: {:#?}",
            report.findings
        );
    }
}

#[test]
fn findings_name_their_place() {
    let mut world = World::new(T);
    let at = world.nth(op::DISPATCH_DIRECT, 2) as u32;
    let report = dword(&mut world, op::DISPATCH_DIRECT, 2, 1, 0);
    let row = report
        .findings
        .iter()
        .find(|row| row.rule == Rule::D05)
        .unwrap();
    assert_eq!(
        row.place,
        Place::Dispatch {
            index: 2,
            dword: at
        }
    );
    assert!(
        row.to_string()
            .contains(&format!("dispatch 2 (dword {at})"))
    );
    assert_eq!(Rule::named("P05"), Some(Rule::P05));
    assert_eq!(Rule::named("Z99"), None);
}

#[test]
fn declared_self_modification_is_allowed() {
    let mut world = World::new(T);
    world.nodes[0].writes.push(Region::new(KERNARG + 64, 16));
    world.nodes[0].declared_self_modifying = true;
    assert!(!world.lint_alone().has(Rule::H10));
    world
        .allocations
        .push(range("more", 0x7F80_0000_0000, 64, Holds::Data));
    assert!(!world.lint_alone().rejects(&[]));
}

#[test]
fn dispatch_without_kernarg_and_or_barriers() {
    let mut world = World::new(T);
    let header = Header::system(PacketType::BarrierOr);
    let row = Barrier {
        dep_signal: [0, SIGNAL, 0, 0, 0],
        ..Barrier::default()
    };
    let report = append(&mut world, aql::barrier(header, &row).unwrap().bytes());
    assert!(!report.rejects(&[]), "{:#?}", report.findings);
    let none = Barrier::default();
    let report = append(&mut world, aql::barrier(header, &none).unwrap().bytes());
    assert!(!report.rejects(&[]));
    let packet = KernelDispatch {
        dimensions: 1,
        workgroup_size: [64, 1, 1],
        grid_size: [64, 1, 1],
        kernel_object: CODE,
        ..KernelDispatch::default()
    };
    world.kernels[0].descriptor.properties &= !property::KERNARG_SEGMENT_PTR;
    world.kernels[0].descriptor.kernarg_size = 0;
    let header = Header::system(PacketType::KernelDispatch);
    let report = append(
        &mut world,
        aql::kernel_dispatch(header, &packet).unwrap().bytes(),
    );
    assert!(!report.has(Rule::A08), "{:#?}", report.findings);
}

/// Streams in the styles of public producers, written from descriptions of them: shader-type
/// bit on register writes, 8-bit size, TMPRING written, mislabelled order mode, state kept.
fn foreign(target: Gfx, wrong_map: bool) -> Vec<u32> {
    let (limits, initiator, groups) = if wrong_map {
        (0x3FF, 0x8025, 24_576)
    } else {
        (0, 0x800D, 96)
    };
    let gfx12 = target == T12;
    let mut words = vec![0xC006_5800, 0, u32::MAX, 0xFF, 0, 0, 4];
    words.push(if gfx12 { 0x1_0180 } else { 0x1_C3F1 });
    words.extend([0xC002_7602, 0x20C, 0x1234_5678, 0x7F]);
    words.extend([0xC002_7602, 0x212, 0x600F_0001, 0x84]);
    words.extend([0xC001_7602, if wrong_map { 0x223 } else { 0x228 }, 0]);
    words.extend([0xC001_7602, if wrong_map { 0x216 } else { 0x218 }, 0]);
    words.extend([0xC003_7602, 0x207, 256, 1, 1, 0xC001_7602, 0x215, limits]);
    if wrong_map {
        words.extend([0xC004_7602, 0x230, u32::MAX, u32::MAX, u32::MAX, u32::MAX]);
    }
    words.extend([0xC002_7602, 0x240, 0xAABB_CC00, 0x7F00]);
    let dispatch = [0xC003_1502, groups, 1, 1, initiator, 0xC000_4600, 0x407];
    words.extend(dispatch);
    words.extend([0xC006_5800, 0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, 0x380]);
    words.extend(dispatch);
    words
}

#[test]
fn foreign_streams_are_judged_as_the_rules_say() {
    // A stateful gfx11 stream runs: only warnings once its mislabelled bit is tolerated.
    let words = foreign(T, false);
    let strict = lint_ib(&words, &Context::bare(T));
    assert!(strict.rejects(&[]));
    let errors = strict
        .findings
        .iter()
        .filter(|row| row.severity == Severity::Error);
    assert!(errors.clone().count() == 2 && errors.clone().all(|row| row.rule == Rule::D03));
    let cx = Context {
        bug_compatible: true,
        ..Context::bare(T)
    };
    let report = lint_ib(&words, &cx);
    assert!(!report.rejects(&[]), "{:#?}", report.findings);
    assert!(report.has(Rule::D03) && report.has(Rule::D09) && report.has(Rule::P01));
    // The gfx12 sibling with the wrong map is rejected by P05, and for no register it may write.
    let report = lint_ib(&foreign(T12, true), &cx12());
    let hits: Vec<String> = report
        .findings
        .iter()
        .filter(|row| row.rule == Rule::P05)
        .map(ToString::to_string)
        .collect();
    assert_eq!(hits.len(), 6);
    assert!(hits.iter().all(|text| text.contains("the wrong gfx12 map")));
    // RSRC3 was never written where the hardware looks for it.
    let unset = report
        .findings
        .iter()
        .any(|row| row.rule == Rule::D01 && row.subject == "PGM_RSRC3");
    assert!(unset);
}

fn cx12() -> Context<'static> {
    Context {
        bug_compatible: true,
        ..Context::bare(T12)
    }
}

#[test]
fn host_readers_are_served_by_header_or_by_a_writeback() {
    let asks = || {
        let mut world = World::new(T);
        world.host.reads.push(Range::new(DATA, 4));
        world
    };
    assert!(asks().lint_alone().has(Rule::H04));
    let mut world = asks();
    world.header = Some(Header::system(PacketType::VendorSpecific));
    assert!(!world.lint_alone().has(Rule::H04));
    for tail in [
        // ACQUIRE_MEM and RELEASE_MEM with GL2_WB.
        vec![0xC006_5800, 0, u32::MAX, 0x00FF_FFFF, 0, 0, 0xA, 0x8000],
        vec![0xC006_4900, 0x528 | 1 << 21, 0, 0, 0, 0, 0, 0],
    ] {
        let mut world = asks();
        let waits = world.launches.len() - 1;
        let at = world.nth(op::EVENT_WRITE, waits) + 2;
        world.insert(at, &tail);
        assert!(!world.lint_alone().has(Rule::H04));
    }
}

#[test]
fn a_wait_may_rely_on_an_earlier_packet() {
    let address = [DATA as u32 + 0x8_0000, (DATA >> 32) as u32];
    let write = [0xC003_3700, 5 << 8 | 1 << 20, address[0], address[1], 1];
    let wait = [0xC005_3C00, 0x15, address[0], address[1], 1, u32::MAX, 4];
    let mut world = World::new(T);
    let report = insert(&mut world, &[&write[..], &wait[..]].concat());
    assert!(!report.has(Rule::P10), "{:#?}", report.findings);
    let mut world = World::new(T);
    let report = insert(&mut world, &[&wait[..], &write[..]].concat());
    assert!(report.has(Rule::P10) && report.count(Severity::Error) == 1);
}

#[test]
fn linter_survives_missing_parts_of_a_context() {
    // Every part alone, and everything but one part: no panic, and coverage adds up.
    let world = World::new(T12);
    let full = world.context();
    let bare = Context::bare(T12);
    let contexts = [
        Context {
            allocations: full.allocations,
            ..bare
        },
        Context {
            kernels: full.kernels,
            ..bare
        },
        Context {
            nodes: full.nodes,
            ..bare
        },
        Context {
            events: full.events,
            ..bare
        },
        Context {
            queue: full.queue,
            ..bare
        },
        Context {
            signals: full.signals,
            ..bare
        },
        Context {
            allocations: None,
            ..full
        },
        Context {
            kernels: None,
            ..full
        },
        Context {
            nodes: None,
            ..full
        },
        Context {
            queue: None,
            ..full
        },
        Context {
            signals: None,
            ..full
        },
        Context { host: None, ..full },
    ];
    for cx in contexts {
        let ib = lint_ib(&world.words, &cx);
        assert_eq!(ib.checked + ib.not_checked.len(), 33);
        assert!(!ib.rejects(&[]), "{:#?}", ib.findings);
        let ring = lint_ring(&world.ring, &cx);
        assert_eq!(ring.checked + ring.not_checked.len(), 17);
        assert!(!ring.rejects(&[]), "{:#?}", ring.findings);
    }
}

#[test]
fn ranges_touch_without_overlapping() {
    let a = Range::new(0x1000, 0x100);
    assert!(!a.overlaps(&Range::new(0x1100, 1)) && !Range::new(0x1100, 1).overlaps(&a));
    assert!(a.overlaps(&Range::new(0x10FF, 1)) && Range::new(0x10FF, 1).overlaps(&a));
    assert!(!a.overlaps(&Range::new(0x1080, 0)) && !Range::new(0x1080, 0).overlaps(&a));
    assert!(a.contains(&a) && !a.contains(&Range::new(0x1000, 0x101)));
    assert!(Range::new(u64::MAX - 4, 100).overlaps(&Range::new(u64::MAX - 1, 1)));
}

#[test]
fn only_caches_that_exist_are_asked_for() {
    // gfx12 has no GL1: a vector-only acquire misses the scalar cache and nothing else.
    let mut world = World::new(T12);
    let report = dword(&mut world, op::ACQUIRE_MEM, 2, 7, 0x100);
    let stale: Vec<&str> = report
        .findings
        .iter()
        .filter(|row| row.rule == Rule::H02)
        .map(|row| row.subject.as_str())
        .collect();
    assert_eq!(stale, ["GLK_INV"]);
}

#[test]
fn a_barrier_packet_between_orders_what_lies_before() {
    // Packet 2 has no barrier bit, but packet 1 had it: node 0 is done.
    let mut world = World::new(T);
    header(&mut world, 2, |h| h.barrier = false);
    world.nodes[2].reads = vec![world.nodes[0].writes[0]];
    assert!(!world.lint_ring().has(Rule::A13));
    world.nodes[2].reads = vec![world.nodes[1].writes[0]];
    assert!(world.lint_ring().has(Rule::A13));
}

#[test]
fn facts_that_are_unknown_are_not_held_against_a_launch() {
    // No metadata at all, no kernarg pointer, a filler, and a required shape that is kept.
    let mut world = World::new(T);
    for (kernel, size) in world.kernels.iter_mut().zip([[256, 1, 1], [128, 1, 1]]) {
        kernel.facts = Some(KernelFacts {
            reqd_workgroup_size: Some(size),
            ..KernelFacts::default()
        });
        kernel.descriptor.properties &= !property::KERNARG_SEGMENT_PTR;
        kernel.descriptor.kernarg_size = 0;
    }
    for index in 0..world.launches.len() {
        for register in [reg::USER_DATA_0, reg::USER_DATA_1] {
            world.set_register(index, register, 0);
        }
        let size = if index % 2 == 0 { 256 } else { 128 };
        world.set_register(index, reg::NUM_THREAD_X, size);
        world.nodes[index].group_size[0] = size;
        world.ring[index][4..6].copy_from_slice(&(size as u16).to_le_bytes());
        world.ring[index][40..48].fill(0);
        world.nodes[index].kernarg = Range::default();
    }
    let report = insert(&mut world, &[0x8000_0000]);
    assert_eq!(report.findings, []);
    // The ring's vendor packet still names the length before the filler.
    let report = world.lint_ring();
    assert_eq!(report.findings, []);
    // A log without a doorbell, a store of a signal that no packet uses, and none at all.
    world
        .events
        .retain(|row| !matches!(row, Event::Doorbell { .. }));
    for handle in [SIGNAL + 128, 0] {
        let report = event(&mut world, Event::SignalStore { handle });
        assert_eq!(report.findings, []);
    }
    event(
        &mut world,
        Event::Store {
            range: Range::new(IB, 4),
        },
    );
    let blind = Context {
        allocations: None,
        signals: None,
        ..world.context()
    };
    assert_eq!(lint_ring(&world.ring, &blind).findings, []);
}

#[test]
fn fences_may_stand_on_another_packet() {
    // Acquired by packet 0 for packet 1, released by the last packet for all before.
    let mut world = World::new(T);
    header(&mut world, 1, |h| h.acquire = Scope::None);
    world.host.writes.push(world.nodes[1].reads[0].range);
    world.host.reads.push(world.nodes[0].writes[0].range);
    assert!(!world.lint_ring().has(Rule::A13));
}
