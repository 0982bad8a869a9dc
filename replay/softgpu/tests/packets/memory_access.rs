//! PM4 packets by which the packet processor reads and writes memory: what they do, when, and what
//! they may not ask for.

use crate::harness::{Ib, Rig};
use refrain_softgpu::isa::Target;
use refrain_softgpu::{Condition, SoftConfig};
use std::time::{Duration, Instant};

const WRITE_DATA: u32 = 0x37;
const WAIT_REG_MEM: u32 = 0x3C;
const COPY_DATA: u32 = 0x40;
const RELEASE_MEM: u32 = 0x49;
/// Memory through L2, write confirmed.
const L2: u32 = 2 << 8 | 1 << 20;
/// Timestamp at the bottom of the pipe, index 5.
const BOTTOM: u32 = 0x28 | 5 << 8;
const SHORT: Duration = Duration::from_millis(40);

fn halves(va: u64) -> [u32; 2] {
    [va as u32, (va >> 32) as u32]
}

struct Scene {
    rig: Rig,
    /// 16 words, counted up from 100.
    data: u64,
    kernarg: u64,
    signal: u64,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::with(SoftConfig {
            threads: 1,
            keep_packet_log: true,
            ..SoftConfig::new(Target::Gfx1201)
        });
        let words: Vec<u32> = (100..116).collect();
        let data = rig.memory("data", &words);
        let [lo, hi] = halves(data);
        let kernarg = rig.memory("kernargs", &[lo, hi, 1, 0]);
        let signal = rig.gpu.create_signal(1).unwrap();
        Self {
            rig,
            data,
            kernarg,
            signal,
        }
    }

    fn submit(&self, ib: &Ib) {
        let va = self.rig.memory("ib", &ib.0);
        self.rig.submit(&[Rig::vendor(va, ib.0.len(), self.signal)]);
    }

    fn run(&self, ib: &Ib) {
        self.submit(ib);
        self.rig.wait(self.signal);
    }

    fn blocked(&self) -> bool {
        let value = self
            .rig
            .gpu
            .wait_signal(self.signal, Condition::Lt, 1, SHORT);
        value.unwrap() == 1 && !self.rig.queue.is_poisoned()
    }

    fn at(&self, index: u64) -> u64 {
        self.data + 4 * index
    }

    fn word(&self, index: u64) -> u32 {
        self.rig.read(self.at(index), 1)[0]
    }

    /// The state and one launch that adds 1 to word 0.
    fn launch(&self, ib: &mut Ib) {
        ib.state(&self.rig, "add_one", self.kernarg).launch(1);
    }

    fn wait(&self, ib: &mut Ib, function: u32, index: u64, reference: u32, mask: u32) {
        let [lo, hi] = halves(self.at(index));
        ib.packet(
            WAIT_REG_MEM,
            &[function | 1 << 4, lo, hi, reference, mask, 4],
        );
    }

    fn release(&self, ib: &mut Ib, select: u32, index: u64, data: u64) {
        let ([lo, hi], [a, b]) = (halves(self.at(index)), halves(data));
        ib.packet(RELEASE_MEM, &[BOTTOM, select << 29, lo, hi, a, b, 0]);
    }
}

#[test]
fn write_data_writes_words_or_one_word_again_and_again() {
    let scene = Scene::new();
    let mut ib = Ib::default();
    let [lo, hi] = halves(scene.at(2));
    ib.packet(WRITE_DATA, &[L2, lo, hi, 7, 8, 9]);
    let [lo, hi] = halves(scene.at(8));
    ib.packet(WRITE_DATA, &[5 << 8 | 1 << 16, lo, hi, 1, 2, 3]);
    scene.run(&ib);
    let expected = [100, 101, 7, 8, 9, 105, 106, 107, 3, 109];
    assert_eq!(scene.rig.read(scene.data, 10), expected);
}

#[test]
fn copy_data_copies_memory_and_immediates() {
    let scene = Scene::new();
    let mut ib = Ib::default();
    let mut copy = |control: u32, src: u64, dst: u64| {
        let ([a, b], [c, d]) = (halves(src), halves(dst));
        ib.packet(COPY_DATA, &[control, a, b, c, d]);
    };
    copy(2 | L2, scene.at(5), scene.at(0));
    copy(2 | L2 | 1 << 16, scene.at(6), scene.at(2));
    copy(5 | L2, 0xAABB_CCDD_1122_3344, scene.at(10));
    copy(5 | L2 | 1 << 16, 0xAABB_CCDD_1122_3344, scene.at(12));
    scene.run(&ib);
    assert_eq!(scene.rig.read(scene.data, 4), [105, 101, 106, 107]);
    assert_eq!(
        scene.rig.read(scene.at(10), 4),
        [0x1122_3344, 111, 0x1122_3344, 0xAABB_CCDD]
    );
}

/// RELEASE_MEM writes behind the launch in front of it, and a wait for it is a wait for the launch.
#[test]
fn a_timeline_stands_for_a_flush() {
    let scene = Scene::new();
    let mut ib = Ib::default();
    scene.launch(&mut ib);
    scene.release(&mut ib, 1, 8, 55);
    // Without a wait the processor goes on: the copy still sees the words before the launch.
    let ([a, b], [c, d]) = (halves(scene.at(0)), halves(scene.at(9)));
    ib.packet(COPY_DATA, &[2 | L2, a, b, c, d]);
    scene.wait(&mut ib, 3, 8, 55, u32::MAX);
    let [c, d] = halves(scene.at(10));
    ib.packet(COPY_DATA, &[2 | L2, a, b, c, d]);
    scene.run(&ib);
    assert_eq!([0, 8, 9, 10].map(|at| scene.word(at)), [101, 55, 100, 101]);
    let log = scene.rig.gpu.packet_log();
    assert_eq!(log.last().unwrap().dispatches.len(), 1);
}

#[test]
fn releases_store_32_or_64_bits_or_add() {
    let scene = Scene::new();
    let mut ib = Ib::default();
    scene.launch(&mut ib);
    scene.release(&mut ib, 1, 4, 0x5_0000_0001);
    scene.release(&mut ib, 2, 6, 0x5_0000_0002);
    scene.release(&mut ib, 7, 8, 1000);
    scene.release(&mut ib, 0, 10, 1);
    ib.flush();
    scene.run(&ib);
    assert_eq!(
        scene.rig.read(scene.at(4), 8),
        [1, 105, 2, 5, 1108, 109, 110, 111]
    );
}

/// A released value that nobody waits for leaves the launch in flight at the end of the buffer, and
/// so does a wait that memory met before.
#[test]
fn a_timeline_that_proves_nothing_is_no_wait() {
    let scenes: [fn(&Scene, &mut Ib); 3] = [
        |_, _| {},
        |scene, ib| scene.wait(ib, 5, 8, 50, u32::MAX),
        |scene, ib| scene.wait(ib, 4, 9, 0, u32::MAX),
    ];
    for wait in scenes {
        let scene = Scene::new();
        let mut ib = Ib::default();
        scene.launch(&mut ib);
        scene.release(&mut ib, 1, 8, 55);
        wait(&scene, &mut ib);
        scene.submit(&ib);
        let words = scene.rig.fault().to_string();
        assert!(words.contains("the IB ends while waves"), "{words}");
    }
}

#[test]
fn every_function_of_a_wait() {
    // (function, reference, mask) against the word 100 that pass at once.
    let passing = [
        (0, 5, u32::MAX),
        (1, 101, u32::MAX),
        (2, 100, u32::MAX),
        (3, 100, u32::MAX),
        (4, 99, u32::MAX),
        (5, 100, u32::MAX),
        (6, 99, u32::MAX),
        // 100 is 0x64: reference and value are masked alike.
        (3, 0xF4, 0x0F),
    ];
    for (function, reference, mask) in passing {
        let scene = Scene::new();
        let mut ib = Ib::default();
        scene.wait(&mut ib, function, 0, reference, mask);
        scene.run(&ib);
    }
    let waiting = [(1, 100), (2, 99), (3, 101), (4, 100), (5, 101), (6, 100)];
    for (function, reference) in waiting {
        let scene = Scene::new();
        let mut ib = Ib::default();
        scene.wait(&mut ib, function, 0, reference, u32::MAX);
        scene.submit(&ib);
        assert!(scene.blocked(), "function {function} of {reference}");
    }
}

/// A buffer waits for the host in its middle, with its launches before the wait done, and goes on
/// from there: nothing runs twice.
#[test]
fn a_buffer_waits_for_the_host() {
    let scene = Scene::new();
    let mut ib = Ib::default();
    scene.launch(&mut ib);
    scene.wait(&mut ib, 3, 8, 1, u32::MAX);
    ib.launch(1).flush();
    scene.wait(&mut ib, 3, 9, 2, u32::MAX);
    ib.launch(1).flush();
    scene.submit(&ib);
    assert!(scene.blocked());
    assert_eq!(scene.word(0), 101);
    scene.rig.write(scene.at(8), &[1]);
    assert!(scene.blocked());
    assert_eq!(scene.word(0), 102);
    scene.rig.write(scene.at(9), &[2]);
    scene.rig.wait(scene.signal);
    assert_eq!(scene.word(0), 103);
    let log = scene.rig.gpu.packet_log();
    assert_eq!(
        log.last().unwrap().dispatches.len(),
        3,
        "the entry stays open while it waits"
    );
}

#[test]
fn a_waiting_buffer_holds_up_its_queue_only_and_is_destroyed() {
    let mut scene = Scene::new();
    let mut ib = Ib::default();
    scene.wait(&mut ib, 3, 8, 1, u32::MAX);
    scene.submit(&ib);
    assert!(scene.blocked());
    let other = scene
        .rig
        .gpu
        .create_queue(64, std::sync::Arc::new(|_| {}))
        .unwrap();
    let waiting = std::mem::replace(&mut scene.rig.queue, other);
    let done = scene.rig.gpu.create_signal(1).unwrap();
    let packet = scene.rig.dispatch("add_one", 1, scene.kernarg, done);
    scene.rig.run(&[packet], done);
    assert_eq!(scene.word(0), 101);
    let start = Instant::now();
    waiting.destroy();
    assert!(start.elapsed() < Duration::from_secs(2));
}

/// The body of a packet from the addresses of the data and of a kernel's code.
type Body = fn([u32; 2], [u32; 2]) -> Vec<u32>;

const REFUSED: &[(u32, Body, &str)] = &[
    (
        WRITE_DATA,
        |[lo, hi], _| vec![L2 | 0x20, lo, hi, 1],
        "bits 0x00000020 are reserved",
    ),
    (
        WRITE_DATA,
        |[lo, hi], _| vec![0, lo, hi, 1],
        "DST_SEL 0x0 is not written",
    ),
    (
        WRITE_DATA,
        |[lo, hi], _| vec![L2, lo | 2, hi, 1],
        "must be a multiple of 4 and not 0",
    ),
    (WRITE_DATA, |_, _| vec![L2, 0, 0, 1], "address 0x0 must be"),
    (WRITE_DATA, |_, [lo, hi]| vec![L2, lo, hi, 1], "code object"),
    (
        WRITE_DATA,
        |[lo, hi], _| vec![L2, lo + 60, hi, 1, 2],
        "`data`",
    ),
    (
        COPY_DATA,
        |[lo, hi], _| vec![9 | L2, 0, 0, lo, hi],
        "SRC_SEL 0x9 is not read",
    ),
    (
        COPY_DATA,
        |[lo, hi], _| vec![2 | L2 | 1 << 16, lo | 4, hi, lo, hi],
        "must be a multiple of 8",
    ),
    (
        COPY_DATA,
        |[lo, hi], _| vec![2, lo, hi, 0x216, 0],
        "DST_SEL 0x0 is not written",
    ),
    (
        RELEASE_MEM,
        |d, _| release(7 | 4 << 8, 1 << 29, d),
        "EVENT_TYPE 0x7 is not an end of pipe",
    ),
    (
        RELEASE_MEM,
        |d, _| release(BOTTOM | 1 << 19, 1 << 29, d),
        "GL2_DISCARD",
    ),
    (
        RELEASE_MEM,
        |d, _| release(BOTTOM | 1 << 12, 1 << 29, d),
        "reserved bits 0x1000 must be 0",
    ),
    (
        RELEASE_MEM,
        |d, _| release(BOTTOM, 3 << 29, d),
        "DATA_SEL 0x3 is not written; clocks",
    ),
    (
        RELEASE_MEM,
        |d, _| release(BOTTOM, 1 << 29 | 1 << 24, d),
        "INT_SEL",
    ),
    (
        RELEASE_MEM,
        |[lo, hi], _| release(BOTTOM, 2 << 29, [lo | 4, hi]),
        "must be a multiple of 8",
    ),
    (
        WAIT_REG_MEM,
        |[lo, hi], _| vec![3, lo, hi, 0, 0, 4],
        "MEM_SPACE 0x0 is not read",
    ),
    (
        WAIT_REG_MEM,
        |[lo, hi], _| vec![0x53, lo, hi, 0, 0, 4],
        "OPERATION 0x1 is not executed",
    ),
    (
        WAIT_REG_MEM,
        |[lo, hi], _| vec![0x17, lo, hi, 0, 0, 4],
        "FUNCTION 0x7 does not exist",
    ),
    (
        WAIT_REG_MEM,
        |[lo, hi], _| vec![0x13, lo, hi, 0, 0, 1 << 16],
        "bits 0x00010000 are reserved",
    ),
];

fn release(control: u32, select: u32, [lo, hi]: [u32; 2]) -> Vec<u32> {
    vec![control, select, lo, hi, 0, 0, 0]
}

#[test]
fn what_the_processor_may_not_do_is_named() {
    for &(opcode, body, words) in REFUSED {
        let scene = Scene::new();
        let code = scene.rig.object.find("add_one").unwrap().entry_va;
        let mut ib = Ib::default();
        ib.packet(opcode, &body(halves(scene.data), halves(code)));
        scene.submit(&ib);
        let text = scene.rig.fault().to_string();
        assert!(text.contains(words), "{text}\nlacks {words}");
        let expected: Vec<u32> = (100..116).collect();
        assert_eq!(scene.rig.read(scene.data, 16), expected, "{words}");
    }
}
