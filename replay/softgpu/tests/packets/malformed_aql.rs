//! One row per way in which an AQL packet can be wrong: what is changed, the text and the queue
//! error.

use crate::harness::{BARRIER_AND, Packet, Rig, put};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{Kind, Rights};

struct Base {
    dispatch: Packet,
    barrier: Packet,
    vendor: Packet,
}

type Change = fn(&Rig, &Base) -> Packet;

fn base(rig: &Rig) -> Base {
    let data = rig.memory("data", &[0; 64]);
    let kernarg = rig.memory("kernargs", &[data as u32, (data >> 32) as u32, 64, 0]);
    let ib = rig.memory("ib", &[0xFFFF_1000; 16]);
    let signal = rig.gpu.create_signal(1).unwrap();
    Base {
        dispatch: rig.dispatch("add_one", 2, kernarg, signal),
        barrier: Rig::barrier(BARRIER_AND, &[], signal),
        vendor: Rig::vendor(ib, 16, signal),
    }
}

fn with(packet: &Packet, offset: usize, bytes: &[u8]) -> Packet {
    let mut packet = *packet;
    put(&mut packet, offset, bytes);
    packet
}

fn refused(rig: &Rig, base: &Base, name: &str) -> Packet {
    let kernel = rig.object.find(name).unwrap();
    with(&base.dispatch, 32, &kernel.descriptor_va.to_le_bytes())
}

/// An address in memory that was allocated and freed.
fn freed(rig: &Rig) -> u64 {
    let memory = rig.gpu.memory();
    let va = memory
        .alloc("freed kernargs", 64, 16, Rights::SHARED, Kind::Kernarg)
        .unwrap();
    memory.free(va).unwrap();
    va
}

/// A live address without the execute right.
fn data_only(rig: &Rig) -> u64 {
    rig.gpu
        .memory()
        .alloc("not executable", 4096, 16, Rights::SHARED, Kind::Host)
        .unwrap()
}

const ROWS: &[(&str, Change, &str, u32)] = &[
    (
        "reserved header bits",
        |_, b| with(&b.dispatch, 1, &[0x80]),
        "bits 15:13",
        0x20,
    ),
    (
        "acquire scope 3",
        |_, b| with(&b.dispatch, 1, &[0x07]),
        "acquire fence scope is 3",
        0x20,
    ),
    (
        "release scope 3",
        |_, b| with(&b.dispatch, 1, &[0x18]),
        "release fence scope is 3",
        0x20,
    ),
    (
        "agent dispatch",
        |_, b| with(&b.dispatch, 0, &[4]),
        "packet type 4",
        0x20,
    ),
    (
        "unknown type",
        |_, b| with(&b.dispatch, 0, &[77]),
        "packet type 77",
        0x20,
    ),
    (
        "no dimension",
        |_, b| with(&b.dispatch, 2, &[0]),
        "setup is 0x0",
        2,
    ),
    (
        "four dimensions",
        |_, b| with(&b.dispatch, 2, &[4]),
        "setup is 0x4",
        2,
    ),
    (
        "setup bits",
        |_, b| with(&b.dispatch, 3, &[1]),
        "setup is 0x101",
        2,
    ),
    (
        "group size 0",
        |_, b| with(&b.dispatch, 4, &[0, 0]),
        "work-group size [0, 1, 1]",
        0x40,
    ),
    (
        "group too large",
        |_, b| with(&b.dispatch, 4, &[64, 0]),
        "product at most 32",
        0x40,
    ),
    (
        "unused group dimension",
        |_, b| with(&b.dispatch, 6, &[2, 0]),
        "work-group size [32, 2, 1]",
        0x40,
    ),
    (
        "reserved0",
        |_, b| with(&b.dispatch, 10, &[1]),
        "reserved0 at byte 10 is 0x1",
        0x20,
    ),
    (
        "grid 0",
        |_, b| with(&b.dispatch, 12, &[0; 4]),
        "grid [0, 1, 1]",
        2,
    ),
    (
        "partial group",
        |_, b| with(&b.dispatch, 12, &[33]),
        "partial work-groups are not executed",
        2,
    ),
    (
        "unused grid dimension",
        |_, b| with(&b.dispatch, 16, &[2]),
        "grid [64, 2, 1]",
        2,
    ),
    (
        "a grid like a hang",
        |_, b| with(&b.dispatch, 12, &[0, 0, 0, 0xf0]),
        "125829120 work-groups are more than",
        2,
    ),
    (
        "scratch",
        |_, b| with(&b.dispatch, 24, &[16]),
        "private_segment_size is 16",
        0x401,
    ),
    (
        "too much LDS",
        |_, b| with(&b.dispatch, 28, &[1, 0, 1, 0]),
        "group_segment_size is 65537",
        4,
    ),
    (
        "null kernel",
        |_, b| with(&b.dispatch, 32, &[0; 8]),
        "kernel_object 0x0",
        8,
    ),
    (
        "not a descriptor",
        |_, b| with(&b.dispatch, 32, &[b.dispatch[32] ^ 0x20]),
        "not the descriptor",
        8,
    ),
    (
        "scratch kernel",
        |r, b| refused(r, b, "needs_scratch"),
        "needs 272 bytes of scratch",
        8,
    ),
    (
        "hidden argument",
        |r, b| refused(r, b, "needs_hostcall"),
        "hidden_hostcall_buffer",
        8,
    ),
    (
        "dispatch pointer",
        |r, b| refused(r, b, "needs_dispatch_ptr"),
        "dispatch pointer",
        8,
    ),
    (
        "null kernarg",
        |_, b| with(&b.dispatch, 40, &[0; 8]),
        "takes 12 bytes aligned to 16",
        0x20,
    ),
    (
        "misaligned kernarg",
        |_, b| with(&b.dispatch, 40, &[8]),
        "takes 12 bytes aligned to 16",
        0x20,
    ),
    (
        "wild kernarg",
        |_, b| with(&b.dispatch, 40, &[0, 0, 0, 0, 0, 0, 0, 0x40]),
        "kernarg_address: read of 12 bytes",
        0x2000_0000,
    ),
    (
        "freed kernarg",
        |r, b| with(&b.dispatch, 40, &freed(r).to_le_bytes()),
        "`freed kernargs`",
        0x2000_0000,
    ),
    (
        "not a signal",
        |_, b| with(&b.dispatch, 56, &[1]),
        "completion_signal",
        0x20,
    ),
    (
        "doorbell as signal",
        |r, b| with(&b.dispatch, 56, &r.queue.doorbell_signal().to_le_bytes()),
        "completion_signal",
        0x20,
    ),
    (
        "barrier reserved0",
        |_, b| with(&b.barrier, 2, &[1]),
        "reserved0 at byte 2",
        0x20,
    ),
    (
        "barrier reserved1",
        |_, b| with(&b.barrier, 4, &[1]),
        "reserved1 at byte 4",
        0x20,
    ),
    (
        "wild dependency",
        |_, b| with(&b.barrier, 24, &[8]),
        "dep_signal[2] 0x8",
        0x20,
    ),
    (
        "barrier completion",
        |_, b| with(&b.barrier, 56, &[1]),
        "completion_signal",
        0x20,
    ),
    (
        "vendor format 2",
        |_, b| with(&b.vendor, 2, &[2]),
        "vendor packet format 2",
        0x100,
    ),
    (
        "zeroed slot",
        |_, _| [0; 64],
        "vendor packet format 0",
        0x100,
    ),
    (
        "vendor byte 3",
        |_, b| with(&b.vendor, 3, &[1]),
        "ven_hdr byte 3",
        0x20,
    ),
    (
        "compute bit in jump",
        |_, b| with(&b.vendor, 4, &[2]),
        "ib_jump[0]",
        0x20,
    ),
    (
        "misaligned IB",
        |_, b| with(&b.vendor, 8, &[2]),
        "ib_jump[1]",
        0x20,
    ),
    (
        "IB above 48 bits",
        |_, b| with(&b.vendor, 14, &[1]),
        "ib_jump[2]",
        0x20,
    ),
    (
        "empty IB",
        |_, b| with(&b.vendor, 16, &[0, 0]),
        "ib_jump[3]",
        0x20,
    ),
    (
        "IB not valid",
        |_, b| with(&b.vendor, 18, &[0]),
        "ib_jump[3]",
        0x20,
    ),
    (
        "IB chain",
        |_, b| with(&b.vendor, 18, &[0x90]),
        "ib_jump[3]",
        0x20,
    ),
    (
        "IB vmid",
        |_, b| with(&b.vendor, 19, &[1]),
        "ib_jump[3]",
        0x20,
    ),
    (
        "IB priv",
        |_, b| with(&b.vendor, 19, &[0x80]),
        "ib_jump[3]",
        0x20,
    ),
    (
        "dwords remaining",
        |_, b| with(&b.vendor, 20, &[9]),
        "dw_cnt_remain",
        0x20,
    ),
    (
        "vendor reserved",
        |_, b| with(&b.vendor, 55, &[1]),
        "reserved at byte 48",
        0x20,
    ),
    (
        "IB past its buffer",
        |_, b| with(&b.vendor, 16, &[17]),
        "ends 4 bytes past it",
        0x2000_0000,
    ),
    (
        "IB not executable",
        |r, _| Rig::vendor(data_only(r), 16, 0),
        "`not executable`",
        0x2000_0000,
    ),
    (
        "wild IB",
        |_, _| Rig::vendor(0x1000, 4, 0),
        "indirect buffer: instruction fetch",
        0x2000_0000,
    ),
];

#[test]
fn every_malformed_packet_stops_the_queue_with_its_own_words() {
    for &(name, change, text, code) in ROWS {
        let rig = Rig::new(Target::Gfx1201);
        let packet = change(&rig, &base(&rig));
        rig.submit(&[packet]);
        let fault = rig.fault();
        let words = fault.to_string();
        assert!(words.contains(text), "{name}: {words}");
        assert!(words.starts_with("queue 1, packet 0 ("), "{name}: {words}");
        assert_eq!(fault.code, code, "{name}: {words}");
        assert_eq!(
            rig.gpu.load_signal(rig.queue.inactive_signal()),
            Ok(i64::from(code)),
            "{name}"
        );
        assert_eq!(rig.gpu.fault(), Some(words), "{name}");
        assert!(rig.queue.is_poisoned(), "{name}");
    }
}

#[test]
fn the_unchanged_packets_are_accepted() {
    let rig = Rig::new(Target::Gfx1201);
    let Base {
        dispatch,
        barrier,
        vendor,
    } = base(&rig);
    let signal = u64::from_le_bytes(dispatch[56..].try_into().unwrap());
    rig.gpu.store_signal(signal, 3).unwrap();
    rig.run(&[dispatch, barrier, vendor], signal);
    assert_eq!(rig.gpu.fault(), None);
}

#[test]
fn a_stopped_queue_runs_nothing_more_and_others_go_on() {
    let rig = Rig::new(Target::Gfx1201);
    let Base { dispatch, .. } = base(&rig);
    let other = rig
        .gpu
        .create_queue(64, std::sync::Arc::new(|_| {}))
        .unwrap();
    rig.submit(&[with(&dispatch, 2, &[0]), dispatch]);
    rig.fault();
    assert_eq!(
        rig.queue.load_read_index(),
        0,
        "the faulty packet keeps its slot"
    );
    let signal = u64::from_le_bytes(dispatch[56..].try_into().unwrap());
    assert_eq!(rig.gpu.load_signal(signal), Ok(1));
    let second = Rig {
        queue: other,
        ..rig
    };
    second.submit(&[Rig::barrier(BARRIER_AND, &[], signal)]);
    let value = second.gpu.wait_signal(
        signal,
        refrain_softgpu::Condition::Lt,
        1,
        crate::harness::DEADLINE,
    );
    assert_eq!(value, Ok(0));
}

#[test]
fn misused_doorbells_are_named() {
    let rig = Rig::new(Target::Gfx1201);
    rig.queue.add_write_index(1);
    rig.ring(1);
    let words = rig.fault().to_string();
    assert!(
        words.contains("rang for packet 1 but only ids below 1 are reserved"),
        "{words}"
    );

    let rig = Rig::new(Target::Gfx1201);
    rig.queue.add_write_index(2000);
    rig.ring(1999);
    let words = rig.fault().to_string();
    assert!(
        words.contains("the ring of 1024 packets was overrun"),
        "{words}"
    );
}
