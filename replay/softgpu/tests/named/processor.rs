//! The packet processor's own accesses: what WRITE_DATA, COPY_DATA, RELEASE_MEM and WAIT_REG_MEM
//! must be ordered with, and what they order.

use crate::harness::{Ib, Rig, put};
use crate::rig::{ACQUIRE_SYSTEM, AGENT_GCR, Named, SYSTEM, both, verdict};
use refrain_softgpu::isa::Target;
use refrain_softgpu::memory::{Kind, Rights};
use refrain_softgpu::strict::ReportKind::{
    KernargChanged, PacketMemoryWritten, PacketRejected, ReadAfterWrite, StaleRead,
    UninitialisedRead, WriteAfterRead, WriteAfterWrite,
};
use std::sync::Arc;

/// Through the L2, confirmed.
const L2: u32 = 2 << 8 | CONFIRM;
const CONFIRM: u32 = 1 << 20;
/// RELEASE_MEM: bottom of the pipe, index 5; GLV_INV, GL1_INV and GLK_INV in addition.
const BOTTOM: u32 = 0x28 | 5 << 8;
const VECTOR: u32 = 1 << 14 | 1 << 15;
const SCALAR: u32 = 1 << 30;

fn halves(va: u64) -> [u32; 2] {
    [va as u32, (va >> 32) as u32]
}

trait Processor {
    fn write_data(&mut self, control: u32, va: u64, data: &[u32]) -> &mut Self;
    fn copy_data(&mut self, control: u32, src: u64, dst: u64) -> &mut Self;
    fn release(&mut self, caches: u32, va: u64, value: u32) -> &mut Self;
    fn wait_equal(&mut self, va: u64, value: u32) -> &mut Self;
}

impl Processor for Ib {
    fn write_data(&mut self, control: u32, va: u64, data: &[u32]) -> &mut Self {
        let [lo, hi] = halves(va);
        let body: Vec<u32> = [control, lo, hi].into_iter().chain(data.to_vec()).collect();
        self.packet(0x37, &body)
    }

    fn copy_data(&mut self, control: u32, src: u64, dst: u64) -> &mut Self {
        let ([a, b], [c, d]) = (halves(src), halves(dst));
        self.packet(0x40, &[control, a, b, c, d])
    }

    fn release(&mut self, caches: u32, va: u64, value: u32) -> &mut Self {
        let [lo, hi] = halves(va);
        // gfx12 has no L1 to name.
        self.packet(0x49, &[BOTTOM | caches, 1 << 29, lo, hi, value, 0, 0])
    }

    fn wait_equal(&mut self, va: u64, value: u32) -> &mut Self {
        let [lo, hi] = halves(va);
        self.packet(0x3C, &[3 | 1 << 4, lo, hi, value, u32::MAX, 4])
    }
}

fn caches(target: Target) -> u32 {
    match target {
        Target::Gfx1201 => VECTOR & !(1 << 15) | SCALAR,
        _ => VECTOR | SCALAR,
    }
}

#[test]
fn write_data_does_not_wait_for_the_launch_that_reads() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]))
            .launch(1);
        if !fault {
            ib.flush();
        }
        ib.write_data(L2, x + 8, &[9, 9]).flush();
        gpu.run_ib(&ib);
        let names = [
            "packet WRITE_DATA (queue 1, packet 0, dword",
            "x bytes 8..16",
            "other: kernel copy",
            "CS_PARTIAL_FLUSH",
        ];
        verdict("write", fault, &gpu.reports(), WriteAfterRead, &names);
    });
}

#[test]
fn write_data_over_what_a_launch_in_flight_writes() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 64);
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "fill", gpu.args(&[out], &[7])).launch(1);
        // The twin writes its neighbour.
        ib.write_data(L2, if fault { out + 124 } else { out + 128 }, &[9]);
        ib.flush();
        gpu.run_ib(&ib);
        let names = ["WRITE_DATA", "out bytes 124..128", "other: kernel fill"];
        verdict(
            "two writers",
            fault,
            &gpu.reports(),
            WriteAfterWrite,
            &names,
        );
    });
}

#[test]
fn copy_data_reads_what_a_launch_in_flight_writes() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, to) = (gpu.buffer("x", 32), gpu.buffer("to", 32));
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "fill", gpu.args(&[x], &[7])).launch(1);
        if !fault {
            ib.flush();
        }
        ib.copy_data(2 | L2, x + 4, to).flush();
        gpu.run_ib(&ib);
        let names = ["packet COPY_DATA", "x bytes 4..8", "other: kernel fill"];
        verdict("copy", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn a_position_by_write_data_needs_an_invalidation_before_its_readers() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (pos, out) = (gpu.buffer("pos", 1), gpu.buffer("out", 32));
        let mut ib = Ib::default();
        ib.write_data(L2, pos, &[5]);
        ib.acquire(if fault { 0x300 } else { AGENT_GCR });
        ib.state(&gpu.rig, "broadcast", gpu.args(&[out, pos], &[]));
        ib.launch(1).flush();
        gpu.run_ib(&ib);
        let names = [
            "kernel broadcast",
            "pos bytes 0..4",
            "scalar cache",
            "other: packet WRITE_DATA",
            "GLK_INV",
        ];
        verdict("position", fault, &gpu.reports(), StaleRead, &names);
    });
}

#[test]
fn a_write_without_confirmation_races_with_the_next_launch() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let mut ib = Ib::default();
        ib.copy_data(if fault { 5 | L2 & !CONFIRM } else { 5 | L2 }, 77, x);
        ib.acquire(AGENT_GCR);
        ib.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        ib.launch(1).flush();
        gpu.run_ib(&ib);
        let names = ["kernel copy", "x bytes 0..4", "COPY_DATA", "WR_CONFIRM"];
        verdict("confirm", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn copy_data_of_bytes_that_nobody_wrote() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, to) = (gpu.empty("x", 32), gpu.empty("to", 32));
        let mut ib = Ib::default();
        if !fault {
            ib.write_data(L2, x, &[1]);
        }
        ib.copy_data(2 | L2, x, to);
        gpu.run_ib(&ib);
        let names = ["packet COPY_DATA", "x bytes 0..4"];
        verdict(
            "undefined",
            fault,
            &gpu.reports(),
            UninitialisedRead,
            &names,
        );
    });
}

#[test]
fn copy_data_of_what_the_host_wrote_needs_the_l2_invalidated() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, to) = (gpu.buffer("x", 32), gpu.buffer("to", 32));
        let mut ib = Ib::default();
        ib.copy_data(2 | L2, x, to);
        let acquire = if fault { 0 } else { ACQUIRE_SYSTEM };
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        gpu.rig
            .run(&[gpu.vendor(&ib, acquire | 2 << 11, signal)], signal);
        let names = ["packet COPY_DATA", "x bytes 0..4", "L2", "the host"];
        verdict("host copy", fault, &gpu.reports(), StaleRead, &names);
    });
}

/// RELEASE_MEM and a wait for what it writes are a wait for the launches in front of it, and its
/// cache bits take effect in between.
#[test]
fn a_timeline_waits_only_for_the_value_that_only_it_writes() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let done = gpu.buffer("done", 2);
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "fill", gpu.args(&[x], &[7])).launch(1);
        ib.release(caches(target), done, 1);
        // The second word of `done` is 1 already: nothing is waited for.
        ib.wait_equal(if fault { done + 4 } else { done }, 1);
        ib.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        ib.launch(1).flush();
        gpu.run_ib(&ib);
        let names = ["kernel copy", "x bytes 0..128", "other: kernel fill"];
        verdict("timeline", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn a_timeline_without_cache_bits_leaves_lines_stale() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let done = gpu.buffer("done", 1);
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "fill", gpu.args(&[x], &[7])).launch(1);
        let bits = if fault { SCALAR } else { caches(target) };
        ib.release(bits, done, 1).wait_equal(done, 1);
        ib.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        ib.launch(1).flush();
        gpu.run_ib(&ib);
        let names = ["kernel copy", "x bytes 0..128", "GLV_INV"];
        verdict("cache bits", fault, &gpu.reports(), StaleRead, &names);
    });
}

/// A replay whose timeline word nobody sets back waits for nothing the second time.
#[test]
fn a_timeline_word_must_be_set_back_between_replays() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let done = gpu.buffer("done", 1);
        let (fill, copy) = (gpu.args(&[x], &[7]), gpu.args(&[out, x], &[]));
        let mut ib = Ib::default();
        for replay in 0..2 {
            if replay == 0 || !fault {
                ib.write_data(L2, done, &[0]);
            }
            ib.state(&gpu.rig, "fill", fill).launch(1);
            ib.release(caches(target), done, 1).wait_equal(done, 1);
            ib.state(&gpu.rig, "copy", copy).launch(1).flush();
        }
        gpu.run_ib(&ib);
        let names = ["kernel copy", "x bytes 0..128", "other: kernel fill"];
        verdict("set back", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn two_queues_meet_at_a_word() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, to, done) = (
            gpu.buffer("x", 32),
            gpu.buffer("to", 1),
            gpu.buffer("done", 1),
        );
        let second = Rig {
            gpu: Arc::clone(&gpu.rig.gpu),
            object: Arc::clone(&gpu.rig.object),
            queue: gpu.rig.gpu.create_queue(64, Arc::new(|_| {})).unwrap(),
            faults: Arc::default(),
        };
        let mut produce = Ib::default();
        produce
            .state(&gpu.rig, "fill", gpu.args(&[x], &[7]))
            .launch(1);
        produce.release(0, done, 1).flush();
        let mut consume = Ib::default();
        if !fault {
            consume.wait_equal(done, 1);
        }
        consume.copy_data(2 | L2, x, to);
        gpu.rig.submit(&[gpu.vendor(&produce, SYSTEM, 0)]);
        // Finished, but no one is told.
        while gpu.rig.gpu.counters().launches == 0 {
            std::thread::yield_now();
        }
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        second.run(&[gpu.vendor(&consume, SYSTEM, signal)], signal);
        let names = [
            "COPY_DATA (queue 2",
            "x bytes 0..4",
            "other: kernel fill (queue 1",
            "RELEASE_MEM",
        ];
        verdict("two queues", fault, &gpu.reports(), ReadAfterWrite, &names);
    });
}

#[test]
fn write_data_into_an_indirect_buffer() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let kind = if fault {
            Kind::IndirectBuffer
        } else {
            Kind::Device
        };
        let memory = gpu.rig.gpu.memory();
        let rights = Rights::SHARED.union(Rights::WRITE);
        let packets = memory.alloc("packets", 256, 256, rights, kind).unwrap();
        let mut ib = Ib::default();
        ib.write_data(L2, packets + 8, &[1]);
        gpu.run_ib(&ib);
        let names = [
            "packet WRITE_DATA",
            "packets bytes 8..12",
            "an indirect buffer",
        ];
        verdict(
            "packets",
            fault,
            &gpu.reports(),
            PacketMemoryWritten,
            &names,
        );
    });
}

#[test]
fn write_data_into_arguments_in_flight() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let out = gpu.buffer("out", 32);
        let (args, idle) = (gpu.args(&[out], &[7]), gpu.args(&[out], &[7]));
        let mut ib = Ib::default();
        ib.state(&gpu.rig, "fill", args).launch(1);
        ib.write_data(L2, if fault { args } else { idle } + 8, &[8])
            .flush();
        gpu.run_ib(&ib);
        let (changed, raced): (Vec<_>, Vec<_>) = gpu
            .reports()
            .into_iter()
            .partition(|report| report.kind == KernargChanged);
        verdict(
            "arguments",
            fault,
            &changed,
            KernargChanged,
            &["kernel fill"],
        );
        let names = ["packet WRITE_DATA", "arguments bytes 8..12", "kernel fill"];
        verdict("arguments", fault, &raced, WriteAfterRead, &names);
    });
}

/// Two vendor packets without barrier bits: the first buffer must end with a wait, or it is refused;
/// with it the second is ordered behind it.
#[test]
fn indirect_buffers_back_to_back_are_ordered_by_the_wait_at_their_end() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let (mut first, mut second) = (Ib::default(), Ib::default());
        first
            .state(&gpu.rig, "fill", gpu.args(&[x], &[7]))
            .launch(1);
        if !fault {
            first.flush();
        }
        second.acquire(AGENT_GCR);
        second.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        second.launch(1).flush();
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        let mut packets = [
            gpu.vendor(&first, SYSTEM, 0),
            gpu.vendor(&second, SYSTEM, signal),
        ];
        for packet in &mut packets {
            put(packet, 0, &SYSTEM.to_le_bytes());
        }
        gpu.rig.submit(&packets);
        if fault {
            gpu.rig.fault();
        } else {
            gpu.rig.wait(signal);
        }
        let names = ["kernel fill (queue 1, packet 0", "end of the IB"];
        verdict(
            "back to back",
            fault,
            &gpu.reports(),
            PacketRejected,
            &names,
        );
    });
}

/// The same without the invalidation that the second buffer needs all the same.
#[test]
fn indirect_buffers_back_to_back_need_an_invalidation_between() {
    both(|target, fault| {
        let gpu = Named::new(target);
        let (x, out) = (gpu.buffer("x", 32), gpu.buffer("out", 32));
        let (mut first, mut second) = (Ib::default(), Ib::default());
        first
            .state(&gpu.rig, "fill", gpu.args(&[x], &[7]))
            .launch(1)
            .flush();
        if !fault {
            second.acquire(AGENT_GCR);
        }
        second.state(&gpu.rig, "copy", gpu.args(&[out, x], &[]));
        second.launch(1).flush();
        let signal = gpu.rig.gpu.create_signal(1).unwrap();
        let mut packets = [
            gpu.vendor(&first, SYSTEM, 0),
            gpu.vendor(&second, SYSTEM, signal),
        ];
        // No barrier bit; no fence of the second packet.
        put(&mut packets[0], 0, &SYSTEM.to_le_bytes());
        put(&mut packets[1], 0, &(2_u16 << 11).to_le_bytes());
        gpu.rig.run(&packets, signal);
        let names = [
            "kernel copy (queue 1, packet 1",
            "x bytes 0..128",
            "kernel fill",
        ];
        verdict("back to back", fault, &gpu.reports(), StaleRead, &names);
    });
}
