//! Clauses that decide between almost equal streams: each row breaks one thing and names the rule and
//! subject that must fire, or changes something harmless and names the rule that must stay quiet.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "tests fail by panicking, and their tables are long"
)]

mod common;

use common::{BUFFER, CODE, DATA, IB, KERNARG, RING, SIGNAL, World};
use refrain_packet::Gfx;
use refrain_packet::kd::property;
use refrain_packet::lint::{
    Context, Event, FINDINGS_KEPT, Finding, Holds, InFlight, Part, Place, Range, Region, Report,
    Rule, Severity, lint_ib, lint_ring,
};
use refrain_packet::tables::opcodes::op;
use refrain_packet::tables::registers::reg;

const T: Gfx = Gfx::Gfx1151;
const T10: Gfx = Gfx::Gfx1030;
const T12: Gfx = Gfx::Gfx1201;
const LO: u32 = (DATA + 0x8_0000) as u32;
const HI: u32 = (DATA >> 32) as u32;

type Edit = fn(&mut World) -> Report;

/// Inserts words in front of the first dispatch.
fn insert(w: &mut World, words: &[u32]) -> Report {
    let at = w.nth(op::DISPATCH_DIRECT, 0);
    w.insert(at, words);
    w.lint_alone()
}

fn dword(w: &mut World, opcode: u8, nth: usize, word: usize, value: u32) -> Report {
    let at = w.nth(opcode, nth);
    w.words[at + word] = value;
    w.lint_alone()
}

fn release(w: &mut World, control: u32, select: u32) -> Report {
    insert(w, &[0xC006_4900, control, select, LO, HI, 1, 0, 0])
}

fn write_to(w: &mut World, address: u64) -> Report {
    let (lo, hi) = (address as u32, (address >> 32) as u32);
    insert(w, &[0xC003_3700, 5 << 8 | 1 << 20, lo, hi, 1])
}

fn copy(w: &mut World, control: u32) -> Report {
    insert(w, &[0xC004_4000, control, LO + 64, HI, LO, HI])
}

fn wait_mem(w: &mut World, control: u32, address: u32) -> Report {
    let write = [0xC003_3700, 5 << 8 | 1 << 20, LO, HI, 1];
    let wait = [0xC005_3C00, control, address, HI, 1, u32::MAX, 4];
    insert(w, &[&write[..], &wait[..]].concat())
}

fn set(w: &mut World, register: u16, value: u32) -> Report {
    w.set_register(0, register, value);
    w.lint_alone()
}

fn property_bit(w: &mut World, bits: u16) -> Report {
    w.kernels[0].descriptor.properties |= bits;
    w.lint_alone()
}

fn poke(w: &mut World, index: usize, at: usize, value: u8) -> Report {
    w.ring[index][at] = value;
    w.lint_ring()
}

/// Puts a write of DATA, and whatever stands behind it, in front of dispatch 1, which reads it.
fn produced(w: &mut World, control: u32, rest: &[u32]) -> Report {
    let address = DATA + 0x10_0000;
    // Nothing else that asks for the acquire.
    w.nodes[1].reads = vec![Region::new(address, 4)];
    let at = w.nth(op::EVENT_WRITE, 0);
    let (lo, hi) = (address as u32, (address >> 32) as u32);
    // Behind dispatch 0, in front of its wait, or between wait and acquire.
    let mut words = vec![0xC003_3700, control, lo, hi, 1];
    words.extend(rest);
    w.insert(at, &words);
    w.lint_alone()
}

/// Replaces the wait in front of dispatch 1 by RELEASE_MEM and WAIT_REG_MEM.
fn timeline(w: &mut World, release: [u32; 4], wait: [u32; 3]) -> Report {
    let at = w.nth(op::EVENT_WRITE, 0);
    w.blank(at);
    let [control, select, address, data] = release;
    let [function, from, reference] = wait;
    let mut words = vec![0xC006_4900, control, select, address, HI, data, 0, 0];
    words.extend([0xC005_3C00, function, from, HI, reference, u32::MAX, 4]);
    w.insert(at, &words);
    w.lint_alone()
}

/// A release that writes what dispatch 1 reads, between dispatch 0 and its wait.
fn released(w: &mut World, wait: bool) -> Report {
    w.nodes[1].reads.push(Region::new(DATA + 0x8_0000, 4));
    let at = w.nth(op::EVENT_WRITE, 0);
    let mut words = vec![0xC006_4900, 0x528, 1 << 29, LO, HI, 1, 0, 0];
    if wait {
        words.extend([0xC005_3C00, 0x13, LO, HI, 1, u32::MAX, 4]);
    }
    w.insert(at, &words);
    w.lint_alone()
}

const FIRES: &[(&str, Rule, &str, Gfx, Edit)] = &[
    // Values of register writes that run over the end of the 16-bit offset.
    ("offset at the end", Rule::P04, "SET_SH_REG", T, |w| {
        insert(w, &[0xC001_7600, 0xFFFF, 1])
    }),
    ("offset over the end", Rule::P04, "SET_SH_REG", T, |w| {
        insert(w, &[0xC002_7600, 0xFFFE, 1, 1])
    }),
    ("offset wraps", Rule::P04, "SET_SH_REG", T, |w| {
        insert(w, &[0xC002_7600, 0xFFFF, 1, 1])
    }),
    // What the packet processor may write.
    ("write over code", Rule::P09, "WRITE_DATA", T, |w| {
        write_to(w, CODE + 0x2000)
    }),
    ("write over the buffer", Rule::P09, "WRITE_DATA", T, |w| {
        write_to(w, IB)
    }),
    ("write over the ring", Rule::P09, "WRITE_DATA", T, |w| {
        write_to(w, RING)
    }),
    ("write over kernargs", Rule::P09, "WRITE_DATA", T, |w| {
        write_to(w, KERNARG + 64)
    }),
    ("code modified", Rule::H10, "code", T, |w| {
        write_to(w, CODE + 0x2000)
    }),
    ("buffer modified", Rule::H10, "indirect buffer", T, |w| {
        write_to(w, IB)
    }),
    ("ring modified", Rule::H10, "ring", T, |w| write_to(w, RING)),
    (
        "kernargs modified",
        Rule::H10,
        "kernargs of dispatch 1",
        T,
        |w| write_to(w, KERNARG + 64),
    ),
    (
        "descriptor modified",
        Rule::H10,
        "descriptor of kernel_1",
        T,
        |w| {
            w.allocations[0].holds = Holds::Data;
            write_to(w, CODE + 64)
        },
    ),
    (
        "write under a running reader",
        Rule::H01,
        "WRITE_DATA",
        T,
        |w| {
            let at = w.nth(op::EVENT_WRITE, 0);
            let address = DATA as u32;
            w.insert(at, &[0xC003_3700, 5 << 8 | 1 << 20, address, HI, 1]);
            w.lint_alone()
        },
    ),
    ("unconfirmed write", Rule::H02, "WR_CONFIRM", T, |w| {
        produced(w, 5 << 8, &[])
    }),
    ("write not acquired", Rule::H02, "GLV_INV", T, |w| {
        let report = produced(w, 5 << 8 | 1 << 20, &[]);
        assert!(!report.has(Rule::H02), "{report:#?}");
        let at = w.nth(op::ACQUIRE_MEM, 1);
        w.blank(at);
        w.lint_alone()
    }),
    // RELEASE_MEM.
    ("release GLM_WB", Rule::P08, "RELEASE_MEM", T12, |w| {
        release(w, 0x1528, 1 << 29)
    }),
    ("release GLM_INV", Rule::P08, "RELEASE_MEM", T12, |w| {
        release(w, 0x2528, 1 << 29)
    }),
    ("release GL1_INV", Rule::P08, "RELEASE_MEM", T12, |w| {
        release(w, 0x8528, 1 << 29)
    }),
    ("release GL2_DISCARD", Rule::P08, "GL2_DISCARD", T, |w| {
        release(w, 0x8_0528, 1 << 29)
    }),
    ("release GL2_RANGE", Rule::P08, "GL2_RANGE", T, |w| {
        release(w, 0x2_0528, 1 << 29)
    }),
    ("release PWS", Rule::P08, "PWS_ENABLE", T, |w| {
        release(w, 0x8000_0528, 1 << 29)
    }),
    ("release WAIT_SYNC", Rule::P08, "WAIT_SYNC", T, |w| {
        release(w, 0x5A8, 1 << 29)
    }),
    ("release WAIT_SYNC", Rule::P08, "RELEASE_MEM", T10, |w| {
        release(w, 0x5A8, 1 << 29)
    }),
    ("release GLK_INV", Rule::P08, "RELEASE_MEM", T10, |w| {
        release(w, 0x4000_0528, 1 << 29)
    }),
    ("release GLM_WB alone", Rule::P08, "GLM_WB", T, |w| {
        release(w, 0x1528, 1 << 29)
    }),
    ("release SEQ", Rule::P08, "SEQ", T, |w| {
        release(w, 0xC0_0528, 1 << 29)
    }),
    ("release event", Rule::P08, "EVENT_TYPE", T, |w| {
        release(w, 0x53F, 1 << 29)
    }),
    ("release event kind", Rule::P08, "EVENT_TYPE", T, |w| {
        release(w, 0x507, 1 << 29)
    }),
    ("release index", Rule::P08, "EVENT_INDEX", T, |w| {
        release(w, 0x428, 1 << 29)
    }),
    ("release INT_SEL", Rule::P09, "INT_SEL", T, |w| {
        release(w, 0x528, 7 << 24 | 1 << 29)
    }),
    ("release DATA_SEL", Rule::P09, "DATA_SEL", T, |w| {
        release(w, 0x528, 5 << 29)
    }),
    ("release DST_SEL", Rule::P09, "DST_SEL", T, |w| {
        release(w, 0x528, 3 << 16 | 1 << 29)
    }),
    // Destinations.
    ("write to 1", Rule::P09, "DST_SEL", T, |w| {
        insert(w, &[0xC003_3700, 1 << 8 | 1 << 20, LO, HI, 1])
    }),
    ("write to 15", Rule::P09, "DST_SEL", T, |w| {
        insert(w, &[0xC003_3700, 15 << 8 | 1 << 20, LO, HI, 1])
    }),
    ("copy to 4", Rule::P09, "DST_SEL", T, |w| {
        copy(w, 9 | 4 << 8)
    }),
    ("copy from 3", Rule::P09, "SRC_SEL", T, |w| {
        copy(w, 3 | 5 << 8)
    }),
    ("copy from nowhere", Rule::P09, "COPY_DATA source", T, |w| {
        insert(w, &[0xC004_4000, 2 | 5 << 8, 0x1000, 0, LO, HI])
    }),
    // Waits of the packet processor.
    ("wait that writes", Rule::P10, "OPERATION", T, |w| {
        wait_mem(w, 0x55, LO)
    }),
    ("wait operation", Rule::P10, "OPERATION", T, |w| {
        wait_mem(w, 0x95, LO)
    }),
    ("wait misaligned", Rule::P10, "WAIT_REG_MEM", T, |w| {
        w.host.signals.push(Range::new(DATA, 1 << 20));
        wait_mem(w, 0x15, LO + 1)
    }),
    ("acquire SEQ", Rule::P08, "SEQ", T, |w| {
        dword(w, op::ACQUIRE_MEM, 1, 7, 0x3_0380)
    }),
    ("acquire RANGE_IS_PA", Rule::P08, "GCR_CNTL", T, |w| {
        dword(w, op::ACQUIRE_MEM, 1, 7, 0x4_0380)
    }),
    ("acquire bit 19", Rule::P08, "ACQUIRE_MEM", T, |w| {
        dword(w, op::ACQUIRE_MEM, 1, 7, 0x8_0380)
    }),
    // Registers.
    ("PGM_HI", Rule::D02, "PGM_HI", T, |w| {
        w.set_register(0, reg::PGM_HI, 0x17F);
        lint_ib(&w.words, &Context::bare(T))
    }),
    ("TMPRING reserved", Rule::D09, "TMPRING_SIZE", T, |w| {
        let report = insert(w, &[0xC001_7600, 0x218, 1 << 31 | 2 << 12 | 8]);
        only_errors(report)
    }),
    (
        "base reserved",
        Rule::D09,
        "DISPATCH_SCRATCH_BASE_HI",
        T,
        |w| only_errors(insert(w, &[0xC001_7600, 0x211, 0x100])),
    ),
    ("limits reserved", Rule::D13, "RESOURCE_LIMITS", T, |w| {
        only_errors(set(w, reg::RESOURCE_LIMITS, 0xF800_0000))
    }),
    ("too many registers", Rule::D04, "VGPRS", T, |w| {
        w.facts(0).vgpr_count = 8;
        w.lint_alone()
    }),
    // Descriptor properties.
    ("property 7", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 7)
    }),
    ("property 8", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 8)
    }),
    ("property 9", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 9)
    }),
    ("wave groups", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 12)
    }),
    ("wave groups", Rule::D10, "kernel_0", T, |w| {
        property_bit(w, 1 << 12)
    }),
    ("property 13", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 13)
    }),
    ("property 15", Rule::D08, "properties", T, |w| {
        property_bit(w, 1 << 15)
    }),
    (
        "scratch descriptor",
        Rule::D08,
        "PRIVATE_SEGMENT_BUFFER",
        T,
        |w| property_bit(w, property::PRIVATE_SEGMENT_BUFFER),
    ),
    ("gfx11 flag on gfx12", Rule::D12, "PGM_RSRC1", T12, |w| {
        w.facts(0).target = Some(Gfx::Gfx1100);
        let word = w.get_register(0, reg::PGM_RSRC1) | 1 << 21;
        only_errors(set(w, reg::PGM_RSRC1, word))
    }),
    // The ring.
    ("hole", Rule::A01, "type", T, |w| {
        only_errors(poke(w, 0, 0, 1))
    }),
    ("entry misaligned", Rule::A06, "kernel_0", T, |w| {
        w.kernels[0].descriptor.entry_byte_offset += 64;
        w.lint_ring()
    }),
    (
        "kernarg above 48 bits",
        Rule::A08,
        "kernarg_address",
        T,
        |w| {
            w.ring[0][46] = 1;
            lint_ring(&w.ring, &Context::bare(T))
        },
    ),
    (
        "kernargs of another launch",
        Rule::A08,
        "kernarg_address",
        T,
        |w| {
            w.ring[0][40..44].copy_from_slice(&(KERNARG as u32 + 0x4000).to_le_bytes());
            w.lint_ring()
        },
    ),
    (
        "completion misaligned",
        Rule::A12,
        "completion_signal",
        T,
        |w| {
            let last = w.ring.len() - 1;
            w.ring[last][56] = 8;
            lint_ring(&w.ring, &Context::bare(T))
        },
    ),
    ("store without a wait", Rule::A12, "signal", T, |w| {
        w.events.push(Event::SignalStore {
            handle: SIGNAL + 64,
        });
        w.lint_ring()
    }),
    // Order.
    ("timeline of another value", Rule::H01, "wait", T10, |w| {
        timeline(w, [0x52F, 1 << 29, LO, 1], [0x15, LO, 2])
    }),
    (
        "timeline of another value",
        Rule::P10,
        "WAIT_REG_MEM",
        T10,
        |w| timeline(w, [0x52F, 1 << 29, LO, 1], [0x15, LO, 2]),
    ),
    (
        "timeline that an older value meets",
        Rule::H01,
        "wait",
        T10,
        |w| timeline(w, [0x52F, 1 << 29, LO, 2], [0x15, LO, 1]),
    ),
    ("timeline of another address", Rule::H01, "wait", T10, |w| {
        timeline(w, [0x52F, 1 << 29, LO + 4, 1], [0x15, LO, 1])
    }),
    ("timeline without data", Rule::H01, "wait", T10, |w| {
        timeline(w, [0x52F, 0, LO, 1], [0x15, LO, 1])
    }),
    (
        "timeline that waits for anything",
        Rule::H01,
        "wait",
        T10,
        |w| timeline(w, [0x52F, 1 << 29, LO, 1], [0x10, LO, 1]),
    ),
    ("release not waited for", Rule::H02, "WR_CONFIRM", T, |w| {
        released(w, false)
    }),
    (
        "overwrite of an unconfirmed write",
        Rule::H01,
        "WR_CONFIRM",
        T,
        |w| {
            let address = DATA + 0x8_0000;
            w.nodes[1].writes.push(Region::new(address, 4));
            let at = w.nth(op::EVENT_WRITE, 0);
            w.insert(at, &[0xC003_3700, 5 << 8, LO, HI, 1]);
            w.lint_alone()
        },
    ),
    (
        "timeline of a part of the value",
        Rule::H01,
        "wait",
        T10,
        |w| {
            timeline(w, [0x52F, 1 << 29, LO, 1], [0x15, LO, 1]);
            dword(w, op::WAIT_REG_MEM, 0, 5, 0xFFFF)
        },
    ),
    ("timeline met before", Rule::H01, "wait", T10, |w| {
        timeline(w, [0x52F, 1 << 29, LO, 1], [0x13, LO, 1]);
        insert(w, &[0xC003_3700, 5 << 8 | 1 << 20, LO, HI, 1])
    }),
    (
        "timeline in memory of unknown value",
        Rule::H01,
        "wait",
        T10,
        |w| {
            timeline(w, [0x52F, 1 << 29, LO, 1], [0x13, LO, 1]);
            copy(w, 0x10_0502)
        },
    ),
    (
        "copy from a crooked address",
        Rule::P09,
        "COPY_DATA source",
        T,
        |w| insert(w, &[0xC004_4000, 0x11_0502, LO + 4, HI, LO, HI]),
    ),
    ("wait on address 0", Rule::P10, "WAIT_REG_MEM", T, |w| {
        insert(w, &[0xC005_3C00, 0x10, 0, 0, 1, u32::MAX, 4])
    }),
    ("acquire of nothing", Rule::H08, "ACQUIRE_MEM", T, |w| {
        // Write after write asks for a wait only.
        for node in &mut w.nodes {
            node.reads.clear();
            node.writes = vec![Region::new(DATA, 64)];
        }
        w.lint_alone()
    }),
    ("second terminal wait", Rule::H08, "wait", T, |w| {
        let last = w.launches.len() - 1;
        let at = w.nth(op::EVENT_WRITE, last);
        w.insert(at, &[0xC000_4600, 0x407]);
        w.lint_alone()
    }),
    (
        "scratch wave size needs its top bits",
        Rule::D09,
        "TMPRING_SIZE",
        T10,
        |w| {
            // gfx10.3: 13 bits of 1 KiB; a size of bit 25 alone is none.
            w.kernels[0].descriptor.private_segment_fixed_size = 16;
            let word = w.get_register(0, reg::PGM_RSRC2) | 1;
            w.set_register(0, reg::PGM_RSRC2, word);
            insert(w, &[0xC001_7600, 0x218, 1 << 25 | 8])
        },
    ),
    (
        "release 64-bit atomic width",
        Rule::P09,
        "RELEASE_MEM",
        T,
        |w| insert(w, &[0xC006_4900, 0x528, 7 << 29, LO + 2, HI, 1, 0, 0]),
    ),
    ("head without writeback", Rule::H03, "ACQUIRE_MEM", T, |w| {
        dword(w, op::ACQUIRE_MEM, 0, 7, 0x1_43F1)
    }),
    (
        "register write behind the last wait",
        Rule::H04,
        "last packet",
        T,
        |w| {
            let last = w.launches.len() - 1;
            let at = w.nth(op::EVENT_WRITE, last) + 2;
            w.insert(at, &[0xC001_7600, 0x215, 0]);
            w.lint_alone()
        },
    ),
    ("WGS_DISPATCH", Rule::D03, "WGS_DISPATCH", T, |w| {
        dword(w, op::DISPATCH_DIRECT, 1, 4, 0x8_8005)
    }),
    ("RSRC3 of gfx12", Rule::D02, "PGM_RSRC3", T12, |w| {
        let word = w.get_register(0, reg::PGM_RSRC3) | 1 << 13;
        set(w, reg::PGM_RSRC3, word)
    }),
    ("ring exactly overrun", Rule::A03, "ring", T, |w| {
        let at = w.events.len();
        w.events.insert(1, Event::Body { id: 64 });
        w.events.truncate(at);
        w.lint_ring()
    }),
    ("debugger attached", Rule::A17, "queue", T, |w| {
        w.queue.properties = 1 << 2;
        w.lint_ring()
    }),
    ("trap handler", Rule::A17, "queue", T, |w| {
        w.queue.properties = 1;
        w.lint_ring()
    }),
];

/// The report without warnings, so that a row asks for more than one.
fn only_errors(mut report: Report) -> Report {
    report
        .findings
        .retain(|row| row.severity == Severity::Error);
    report
}

#[test]
fn clauses_fire() {
    let mut missed = Vec::new();
    for (name, rule, subject, target, edit) in FIRES {
        let report = edit(&mut World::new(*target));
        let hit = report
            .findings
            .iter()
            .any(|row| row.rule == *rule && row.subject == *subject);
        if !hit {
            let id = rule.row().id;
            missed.push(format!(
                "{target} {name}: {id} {subject}: {:?}",
                report.findings
            ));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

const QUIET: &[(&str, Gfx, Edit)] = &[
    ("release", T12, |w| {
        release(w, 0x528 | 1 << 14 | 3 << 20, 1 << 29)
    }),
    ("release GLK_INV", T, |w| release(w, 0x4000_0528, 1 << 29)),
    ("release of CS_DONE", T, |w| {
        release(w, 0x62F, 2 << 29 | 2 << 24)
    }),
    ("32-bit atomic of the release", T, |w| {
        insert(w, &[0xC006_4900, 0x528, 7 << 29, LO + 4, HI, 1, 0, 0])
    }),
    ("release of 32 bits", T, |w| {
        insert(w, &[0xC006_4900, 0x528, 1 << 29, LO + 4, HI, 1, 0, 0])
    }),
    ("write to L2", T, |w| {
        insert(w, &[0xC003_3700, 2 << 8 | 1 << 20, LO, HI, 1])
    }),
    ("copy of a clock", T, |w| copy(w, 0x11_0509)),
    ("copy of memory", T, |w| copy(w, 0x10_0502)),
    ("wait on an earlier write", T, |w| wait_mem(w, 0x15, LO)),
    ("preemptable wait", T, |w| wait_mem(w, 0xD5, LO)),
    ("produced, confirmed and acquired", T, |w| {
        produced(w, 5 << 8 | 1 << 20, &[])
    }),
    ("timeline wait", T10, |w| {
        timeline(w, [0x52F, 1 << 29, LO, 1], [0x13, LO, 1])
    }),
    ("timeline wait of at least", T10, |w| {
        timeline(w, [0x528, 1 << 29, LO, 2], [0x15, LO, 2])
    }),
    ("release waited for", T, |w| released(w, true)),
    ("produced for vector loads", T, |w| {
        dword(w, op::ACQUIRE_MEM, 1, 7, 0x300);
        w.nodes
            .iter_mut()
            .for_each(|node| node.reads[0].scalar = false);
        let at = w.nth(op::EVENT_WRITE, 0);
        w.insert(at, &[0xC003_3700, 5 << 8 | 1 << 20, LO, HI, 1]);
        let region = Region::new(DATA + 0x8_0000, 4);
        w.nodes[1].reads.push(Region {
            scalar: false,
            ..region
        });
        w.lint_alone()
    }),
    ("timeline after another value", T10, |w| {
        timeline(w, [0x52F, 1 << 29, LO, 2], [0x13, LO, 2]);
        insert(w, &[0xC004_4000, 0x10_0505, 1, 0, LO, HI])
    }),
    ("wait on 64 bits of an immediate", T, |w| {
        w.nodes.clear();
        let copy = [0xC004_4000, 0x11_0505, 1, 0, LO, HI];
        let wait = [0xC005_3C00, 0x15, LO, HI, 1, u32::MAX, 4];
        let report = insert(w, &[&copy[..], &wait[..]].concat());
        // Without nodes only their number is wrong.
        let mut report = report;
        report.findings.retain(|row| row.rule != Rule::D05);
        report
    }),
    ("waited, then stored", T, |w| {
        w.events.retain(|e| !matches!(e, Event::Complete { .. }));
        w.events.push(Event::Waited {
            handle: SIGNAL + 64,
        });
        w.events.push(Event::SignalStore {
            handle: SIGNAL + 64,
        });
        w.lint_ring()
    }),
    ("empty slots at the end", T, |w| {
        w.ring.push(refrain_packet::aql::encode::invalid().bytes());
        let mut report = w.lint_ring();
        report
            .findings
            .retain(|row| row.rule != Rule::A01 || row.severity == Severity::Error);
        report
    }),
    ("scratch of gfx10.3 in units of 1 KiB", T10, |w| {
        w.kernels[0].descriptor.private_segment_fixed_size = 32;
        w.kernels[0].descriptor.rsrc2 |= 1;
        for index in [0, 2] {
            let word = w.get_register(index, reg::PGM_RSRC2) | 1;
            w.set_register(index, reg::PGM_RSRC2, word);
        }
        insert(w, &[0xC001_7600, 0x218, 1 << 12 | 8])
    }),
    ("scratch of gfx12 with a wide wave size", T12, |w| {
        w.kernels[0].descriptor.private_segment_fixed_size = 1 << 18;
        w.kernels[0].descriptor.rsrc2 |= 1;
        for index in [0, 2] {
            let word = w.get_register(index, reg::PGM_RSRC2) | 1;
            w.set_register(index, reg::PGM_RSRC2, word);
        }
        // 32 lanes of 256 KiB are 2^15 units: bit 27 of the word.
        insert(
            w,
            &[
                0xC001_7600,
                0x218,
                1 << 27 | 8,
                0xC002_7600,
                0x210,
                0x1000,
                0,
            ],
        )
    }),
    ("hints in RSRC3 of gfx12", T12, |w| {
        let word = w.get_register(0, reg::PGM_RSRC3) | 0x8000_0FF0;
        set(w, reg::PGM_RSRC3, word)
    }),
    ("sixteenth user register", T, |w| {
        insert(w, &[0xC001_7600, 0x24F, 0])
    }),
    ("body one short of the ring", T, |w| {
        w.events.insert(1, Event::Body { id: 63 });
        w.lint_ring()
    }),
];

#[test]
fn near_misses_stay_quiet() {
    let mut noisy = Vec::new();
    for (name, target, edit) in QUIET {
        let report = edit(&mut World::new(*target));
        if report.rejects(&[]) {
            noisy.push(format!("{target} {name}: {:?}", report.findings));
        }
    }
    assert!(noisy.is_empty(), "{}", noisy.join("\n"));
}

#[test]
fn three_words_at_the_end_of_the_offset_field() {
    for words in [
        [0xC001_7600_u32, 0xFFFF, 1].as_slice(),
        &[0xC002_7600, 0xFFFE, 1, 1],
        &[0xC002_7600, 0xFFFF, 1, 1],
        &[0xC001_9B00, 0xFFFF, 1],
    ] {
        for target in Gfx::ALL {
            assert!(lint_ib(words, &Context::bare(target)).has(Rule::P04));
        }
    }
    // A run over the end of the block writes only what lies inside.
    let words = [0xC003_7600, 0x27E, 5, 6, 7, 0xC003_1500, 1, 1, 1, 0x8005];
    let shots = refrain_packet::state::snapshots(&words).unwrap();
    let set: Vec<_> = shots[0].state.iter().collect();
    assert_eq!(set, [(0x27E, 5), (0x27F, 6)]);
}

#[test]
fn registers_up_to_the_end_of_the_block_are_modelled() {
    let words = [
        0xC001_7600,
        0x24F,
        9,
        0xC001_7600,
        0x250,
        8,
        0xC003_1500,
        1,
        1,
        1,
        5,
    ];
    let state = refrain_packet::state::snapshots(&words).unwrap()[0].state;
    assert_eq!((state.get(0x24F), state.get(0x250)), (Some(9), Some(8)));
}

#[test]
fn a_buffer_longer_than_its_size_field_is_rejected() {
    let mut words = vec![0xFFFF_1000_u32; 0xF_FFFF];
    assert!(!lint_ib(&words, &Context::bare(T)).has(Rule::P06));
    words.push(0xFFFF_1000);
    let report = lint_ib(&words, &Context::bare(T));
    assert!(report.has(Rule::P06) && report.rejects(&[]));
}

#[test]
fn acquires_go_between_dispatches_that_share_data_only() {
    // A clean world has neither a redundant acquire nor a redundant wait.
    for target in Gfx::ALL {
        assert_eq!(World::new(target).lint_ib().findings, []);
    }
    let mut w = World::new(T);
    w.nodes[2].reads = vec![Region::new(DATA + BUFFER * 90, 4)];
    assert!(w.lint_alone().has(Rule::H08));
}

#[test]
fn messages_are_right() {
    let mut w = World::new(T);
    let report = dword(&mut w, op::ACQUIRE_MEM, 1, 4, 1);
    let text = report.findings[0].to_string();
    assert!(text.contains("0x00FFFFFF_FFFFFFFF"), "{text}");
    let error = refrain_packet::decode::packets(&[0x8000_0001])
        .next()
        .unwrap()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        !text.contains("only types 2 and 3") && text.contains("0x80000000"),
        "{text}"
    );
    let error = refrain_packet::decode::packets(&[0xC001_4600, 0, 0])
        .next()
        .unwrap()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("expected 2 dwords") && !text.contains("Fixed"),
        "{text}"
    );
    // A mask write of its own is no sign of the wrong map; zero is.
    let mut w = World::new(T12);
    let report = insert(&mut w, &[0xC001_7600, 0x216, u32::MAX]);
    let row = report
        .findings
        .iter()
        .find(|row| row.rule == Rule::P05)
        .unwrap();
    assert!(!row.to_string().contains("wrong gfx12 map"), "{row}");
    assert_eq!(row.subject, "STATIC_THREAD_MGMT_SE0");
    let mut w = World::new(T12);
    let report = insert(&mut w, &[0xC001_7600, 0x216, 5, 0xC001_7600, 0x223, 0]);
    let hits = report.findings.iter().filter(|row| row.rule == Rule::P05);
    assert_eq!(
        hits.filter(|row| row.found.contains("wrong gfx12 map"))
            .count(),
        2
    );
    let mut w = World::new(T);
    w.host.reads.push(Range::new(DATA, 4));
    let report = w.lint_alone();
    let row = report
        .findings
        .iter()
        .find(|row| row.rule == Rule::H04)
        .unwrap();
    assert_ne!(row.place, Place::Whole);
}

#[test]
fn buffers_in_flight_meet_in_both_directions() {
    type Share = fn(&World) -> (Vec<Range>, Vec<Range>);
    let rows: [(&str, Share); 3] = [
        ("input", |w| (vec![], vec![w.nodes[1].reads[0].range])),
        ("their input", |w| {
            (vec![w.nodes[1].writes[0].range], vec![])
        }),
        ("output", |w| (vec![], vec![w.nodes[1].writes[0].range])),
    ];
    for (subject, share) in rows {
        let mut w = World::new(T);
        // Apart from each other, so that one region has one role.
        w.nodes[1].reads = vec![Region::new(DATA + BUFFER * 80, 4)];
        w.nodes[1].writes = vec![Region::new(DATA + BUFFER * 81, 4)];
        let (reads, writes) = share(&w);
        w.in_flight = vec![InFlight {
            reads,
            writes,
            ..InFlight::default()
        }];
        let report = w.lint_alone();
        let hits: Vec<_> = report
            .findings
            .iter()
            .filter(|row| row.rule == Rule::H09)
            .collect();
        assert_eq!(hits.len(), 1, "{subject}: {hits:?}");
        assert_eq!(hits[0].subject, subject);
        let dword = w.nth(op::DISPATCH_DIRECT, 1) as u32;
        assert_eq!(hits[0].place, Place::Dispatch { index: 1, dword });
        // Two readers share freely.
        w.in_flight[0].reads = vec![w.nodes[1].reads[0].range];
        w.in_flight[0].writes.clear();
        assert!(!w.lint_alone().has(Rule::H09));
    }
}

#[test]
fn a_declared_target_may_be_written() {
    let mut w = World::new(T);
    w.allocations
        .push(common::range("signals", SIGNAL, 4096, Holds::Aperture));
    assert!(write_to(&mut w, SIGNAL + 8).has(Rule::P09));
    let mut w = World::new(T);
    w.host.targets.push(Range::new(SIGNAL + 8, 8));
    let report = write_to(&mut w, SIGNAL + 8);
    assert!(!report.rejects(&[]), "{report:#?}");
    assert!(write_to(&mut w, SIGNAL + 16).has(Rule::P09));
}

#[test]
fn findings_are_bounded_and_counted() {
    let words: Vec<u32> = [0xC003_1500, 1, 1, 1, 0x8005].repeat(5_000);
    let report = lint_ib(&words, &Context::bare(T));
    assert!(report.findings.len() <= 2_000, "{}", report.findings.len());
    let kept = report
        .findings
        .iter()
        .filter(|row| row.rule == Rule::D01)
        .count();
    assert_eq!(kept, FINDINGS_KEPT);
    // Nine registers are unset at each dispatch.
    assert_eq!(
        report.more[&(Rule::D01, Severity::Error)],
        45_000 - FINDINGS_KEPT
    );
    assert!(report.count(Severity::Error) >= 45_000);
    assert!(report.to_string().contains("D01 error: 44900 more"));
    let json: serde_json::Value = serde_json::from_str(&report.to_json(&[])).unwrap();
    assert_eq!(json["more"][0]["count"], 44_900);
    // A milder finding of the same rule never hides a harder one.
    let mut words = [0xC001_7600, 0x215, 1, 0xC003_1500, 1, 1, 1, 0x8005].repeat(200);
    words.extend([
        0xC001_7600,
        0x215,
        0xF800_0000,
        0xC003_1500,
        1,
        1,
        1,
        0x8005,
    ]);
    let report = lint_ib(&words, &Context::bare(T));
    let hard = |row: &&Finding| row.rule == Rule::D13 && row.severity == Severity::Error;
    assert_eq!(report.findings.iter().filter(hard).count(), 1);
}

#[test]
fn reports_say_what_was_judged_in_part() {
    let w = World::new(T);
    let text = lint_ib(&w.words, &Context::bare(T)).to_string();
    assert!(
        text.contains("judged in part: D05 (kernels unknown)"),
        "{text}"
    );
    assert!(text.contains("not judged: H01 (nodes unknown)"), "{text}");
    // Kernels without metadata are known in part.
    let mut w = World::new(T);
    w.kernels[1].facts = None;
    let report = w.lint_ib();
    let ids = report
        .partly_checked
        .iter()
        .filter(|row| row.1 == Part::Facts);
    let ids: Vec<_> = ids.map(|row| row.0.row().id).collect();
    assert_eq!(ids, ["D04", "D05", "D10", "D12"]);
    let report = w.lint_ring();
    let ids = report
        .partly_checked
        .iter()
        .filter(|row| row.1 == Part::Facts);
    assert_eq!(
        ids.map(|row| row.0.row().id).collect::<Vec<_>>(),
        ["A05", "A06"]
    );
}

#[test]
fn dependencies_are_aligned() {
    use refrain_packet::aql::{Barrier, Header, PacketType, encode};
    let header = Header::system(PacketType::BarrierAnd);
    let mut bytes = encode::barrier(header, &Barrier::default())
        .unwrap()
        .bytes();
    assert!(!lint_ring(&[bytes], &Context::bare(T)).rejects(&[]));
    bytes[8] = 8;
    assert!(lint_ring(&[bytes], &Context::bare(T)).has(Rule::A11));
}

#[test]
fn dumps_show_each_word_once() {
    use refrain_packet::dump::{DumpContext, dump_ib, dump_packets};
    let cx = DumpContext::bare(T);
    let text = dump_ib(&[0xC004_FE00, 1, 2, 3, 4, 0x55], &cx).to_string();
    assert_eq!(text.lines().count(), 6, "{text}");
    let mut bytes = [0xFF; 64];
    bytes[0] = 9;
    let text = dump_packets(&[bytes], &cx).to_string();
    let last = text.lines().last().unwrap();
    assert!(last.trim_start().starts_with("+60"), "{text}");
    let mut bytes = [0; 64];
    bytes[2] = 2;
    bytes[32] = 3;
    let text = dump_packets(&[bytes], &cx).to_string();
    assert!(
        text.contains("BARRIER_VALUE") && text.contains("COND"),
        "{text}"
    );
    assert!(lint_ring(&[bytes], &Context::bare(T)).has(Rule::A14));
}

#[test]
fn tables_agree_with_the_code_that_uses_them() {
    use refrain_packet::aql::{Header, PacketType, Scope};
    use refrain_packet::tables::objects::{
        DW_CNT_REMAIN, HEADER_FIELDS, IB_JUMP0_WORD, PROPERTIES, VENDOR_FORMATS,
    };
    use refrain_packet::tables::opcodes::{header, opcode};
    assert_eq!(header::type3(op::INDIRECT_BUFFER, 4), IB_JUMP0_WORD);
    assert_eq!(DW_CNT_REMAIN, 10);
    let row = Header {
        kind: PacketType::BarrierOr,
        barrier: true,
        acquire: Scope::System,
        release: Scope::Agent,
    };
    let bits = u32::from(row.bits());
    let found: Vec<u32> = HEADER_FIELDS.iter().map(|field| field.get(bits)).collect();
    assert_eq!(found, [5, 1, 2, 1]);
    for (name, bit) in [
        ("PRIVATE_SEGMENT_BUFFER", property::PRIVATE_SEGMENT_BUFFER),
        ("DISPATCH_PTR", property::DISPATCH_PTR),
        ("QUEUE_PTR", property::QUEUE_PTR),
        ("KERNARG_SEGMENT_PTR", property::KERNARG_SEGMENT_PTR),
        ("DISPATCH_ID", property::DISPATCH_ID),
        ("FLAT_SCRATCH_INIT", property::FLAT_SCRATCH_INIT),
        ("PRIVATE_SEGMENT_SIZE", property::PRIVATE_SEGMENT_SIZE),
        ("WAVEFRONT_SIZE32", property::WAVEFRONT_SIZE32),
        ("USES_DYNAMIC_STACK", property::USES_DYNAMIC_STACK),
        ("ENABLE_WAVEGROUP", property::ENABLE_WAVEGROUP),
    ] {
        let row = PROPERTIES.iter().find(|row| row.name == name).unwrap();
        assert_eq!(1 << row.bit, bit, "{name}");
    }
    let formats: Vec<u8> = VENDOR_FORMATS.iter().map(|row| row.0).collect();
    assert_eq!(formats, [1, 2, 3, 200]);
    let packed = opcode(0xBC).unwrap();
    assert!(packed.gens.has(T12.generation()) && !packed.gens.has(T.generation()));
    // A privilege policy speaks of gfx11 only, a pacing policy of what was measured on gfx12.
    for row in refrain_packet::pm4::POLICIES {
        let gfx11 = row.gens.has(T.generation());
        let gfx12 = row.gens.has(T12.generation());
        assert_eq!(!gfx12, row.name.contains("priv"), "{}", row.name);
        assert_eq!(!gfx11, row.name.contains("nop"), "{}", row.name);
    }
}

#[test]
fn target_names_are_exact() {
    assert_eq!(Gfx::from_name("gfx1201"), Some(Gfx::Gfx1201));
    assert_eq!(
        Gfx::from_name("amdgcn-amd-amdhsa--gfx1201"),
        Some(Gfx::Gfx1201)
    );
    for name in [
        "bogus-gfx1201",
        "-gfx1201",
        "amdgcn-amd-amdhsa-gfx1201",
        "gfx1201 ",
    ] {
        assert_eq!(Gfx::from_name(name), None, "{name}");
    }
}

#[test]
fn descriptors_leave_dispatcher_bits_alone() {
    use refrain_packet::kd::Refusal;
    for (bits, name) in [
        (1 << 22, "DEBUG_MODE"),
        (1 << 10, "PRIORITY"),
        (2 << 10, "PRIORITY"),
        (1 << 20, "PRIV"),
        (1 << 24, "BULKY"),
        (1 << 25, "CDBG_USER"),
    ] {
        for target in Gfx::ALL {
            let mut row = common::descriptor(target, 0);
            assert_eq!(row.check(target), Ok(()));
            row.rsrc1 |= bits;
            let want = Refusal::DispatcherBits { word: 1, bits };
            assert_eq!(row.check(target), Err(want), "{target} {name}");
        }
    }
}

#[test]
fn encoders_refuse_every_cache_control_that_does_not_exist() {
    use refrain_packet::pm4::{Policy, encode_ib};
    use refrain_packet::{Before, EncodeError};
    for target in Gfx::ALL {
        let images = common::images(target, 1);
        let mut launches = common::launches(target, 1, 2);
        for bit in 19..32 {
            launches[1].before = Before::WaitAcquire(0x180 | 1 << bit);
            let error = encode_ib(target, Policy::DEFAULT, &images, &launches).unwrap_err();
            let EncodeError::Gcr { bits, launch, .. } = error else {
                panic!("{error}");
            };
            assert_eq!((bits, launch), (1 << bit, 1));
        }
    }
}

#[test]
fn layouts_cover_every_byte() {
    use refrain_packet::tables::objects::OBJECTS;
    for object in OBJECTS.iter().filter(|object| object.bytes == 64) {
        let mut end = 0;
        for slot in object.slots {
            assert_eq!(slot.offset, end, "{} {}", object.name, slot.name);
            end += slot.bytes;
        }
        assert_eq!(end, object.bytes, "{}", object.name);
    }
}

#[test]
fn waits_are_weighed_against_the_value_that_was_written() {
    let meets: [fn(u32, u32) -> bool; 7] = [
        |_, _| true,
        |a, b| a < b,
        |a, b| a <= b,
        |a, b| a == b,
        |a, b| a != b,
        |a, b| a >= b,
        |a, b| a > b,
    ];
    for (function, meets) in meets.iter().enumerate() {
        for value in 0..3 {
            let write = [0xC003_3700, 5 << 8 | 1 << 20, LO, HI, value];
            let control = 0x10 | function as u32;
            let wait = [0xC005_3C00, control, LO, HI, 1, u32::MAX, 4];
            let words = [&write[..], &wait[..]].concat();
            let report = only_errors(insert(&mut World::new(T), &words));
            let legal = meets(value, 1);
            assert_eq!(
                !report.has(Rule::P10),
                legal,
                "{function} {value}: {report:?}"
            );
            // Another agent may write a value that meets it.
            let mut w = World::new(T);
            w.host.signals.push(Range::new(DATA + 0x8_0000, 4));
            assert!(!only_errors(insert(&mut w, &words)).has(Rule::P10));
        }
    }
    // Without a host contract nobody can say, and a function that does not exist is one.
    let wait = [0xC005_3C00, 0x17, LO, HI, 1, u32::MAX, 4];
    let report = lint_ib(&wait, &Context::bare(T));
    let subjects: Vec<_> = report
        .findings
        .iter()
        .map(|row| row.subject.as_str())
        .collect();
    assert_eq!(subjects, ["FUNCTION"]);
}

#[test]
fn a_wait_in_front_of_a_write_is_judged_with_the_write() {
    let redundant = |report: &Report| {
        let mut rows = report.findings.iter();
        rows.any(|row| row.rule == Rule::H08 && row.subject == "wait")
    };
    let mut w = World::new(T);
    w.nodes[2].reads[0] = Region::new(DATA + BUFFER * 100, 0);
    assert!(redundant(&w.lint_alone()));
    let at = w.nth(op::DISPATCH_DIRECT, 2);
    w.insert(at, &[0xC003_3700, 5 << 8 | 1 << 20, LO, HI, 1]);
    assert!(!redundant(&w.lint_alone()));
}

#[test]
fn launches_without_a_node_are_not_called_redundant() {
    let mut w = World::new(T);
    w.nodes[2].reads[0] = Region::new(DATA + BUFFER * 100, 0);
    assert!(w.lint_alone().has(Rule::H08));
    w.nodes.truncate(2);
    let report = w.lint_alone();
    let rows = report.findings.iter().filter(|row| row.rule == Rule::H08);
    assert_eq!(rows.collect::<Vec<_>>(), [] as [&Finding; 0]);
}
