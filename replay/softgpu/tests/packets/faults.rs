//! Injected faults as the packet processor does them: what is reported, what goes on, and that a
//! queue whose launch never ends is still destroyed.

use crate::harness::{BARRIER_AND, BARRIER_BIT, Ib, Rig, put};
use refrain_softgpu::isa::Target;
use refrain_softgpu::{Condition, SoftConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time that killing anything may take.
const KILL: Duration = Duration::from_secs(2);
const SYSTEM: u16 = 2 << 9 | 2 << 11;

struct Scene {
    rig: Rig,
    data: u64,
    kernarg: u64,
    signal: u64,
}

fn scene(script: &str) -> Scene {
    let rig = Rig::with(SoftConfig {
        threads: 1,
        keep_packet_log: true,
        faults: script.parse().unwrap(),
        ..SoftConfig::new(Target::Gfx1201)
    });
    let data = rig.memory("data", &[5; 64]);
    let kernarg = rig.memory("kernargs", &[data as u32, (data >> 32) as u32, 32, 0]);
    let signal = rig.gpu.create_signal(3).unwrap();
    Scene {
        rig,
        data,
        kernarg,
        signal,
    }
}

impl Scene {
    fn packet(&self) -> [u8; 64] {
        self.rig.dispatch("add_one", 1, self.kernarg, self.signal)
    }

    fn ib(&self, launches: u32) -> [u8; 64] {
        let mut ib = Ib::default();
        ib.state(&self.rig, "add_one", self.kernarg);
        for _ in 0..launches {
            ib.launch(1).flush();
        }
        let va = self.rig.memory("ib", &ib.0);
        Rig::vendor(va, ib.0.len(), self.signal)
    }

    /// The signal after everything that will happen has happened.
    fn settled(&self) -> i64 {
        let wait = Duration::from_millis(100);
        let value = self
            .rig
            .gpu
            .wait_signal(self.signal, Condition::Lt, 1, wait);
        value.unwrap()
    }

    fn first(&self) -> u32 {
        self.rig.read(self.data, 1)[0]
    }
}

/// What a script does to three identical dispatches: additions done, signal left, error bits.
#[test]
fn scripts_against_three_dispatches() {
    let rows: &[(&str, u32, i64, u32, &str)] = &[
        ("", 3, 0, 0, ""),
        (
            "lost@packet:2",
            1,
            2,
            0x8000_0000,
            "the device was lost before packet 1",
        ),
        (
            "lost@launch:3",
            2,
            1,
            0x8000_0000,
            "the device was lost at the launch of kernel `add_one`",
        ),
        (
            "lost@submit:1",
            0,
            3,
            0x8000_0000,
            "the device was lost at doorbell",
        ),
        ("reject@packet:3", 2, 1, 0x20, "packet 2 of queue"),
        (
            "hang@launch:2",
            1,
            2,
            0,
            "kernel `add_one` of packet 1 of queue",
        ),
        ("stuck@completion:2", 3, 1, 0, "packet 1 of queue"),
        ("fail@submit:1", 0, 3, 0, "doorbell of queue"),
        // Bit 64 * 4 * 8 would be beyond; 14 is the highest reserved bit but one of the header.
        ("flip@ring:2.14", 1, 2, 0x20, "bit 14 of packet 1"),
        ("flip@ring:2.526", 1, 2, 0x20, "bit 14 of packet 1"),
        // A completion signal that is none.
        ("flip@ring:1.500", 0, 3, 0x20, "bit 500 of packet 0"),
        // The pointer's bit 46: out of bounds.
        (
            "flip@kernarg:2.46",
            1,
            2,
            0x2000_0000,
            "bit 46 of the arguments of kernel `add_one`",
        ),
    ];
    for &(script, sum, left, code, words) in rows {
        let scene = scene(script);
        let rig = &scene.rig;
        rig.submit(&[scene.packet(), scene.packet(), scene.packet()]);
        assert_eq!(scene.settled(), left, "{script}");
        assert_eq!(scene.first(), 5 + sum, "{script}");
        let faults = rig.faults.lock().unwrap().clone();
        assert_eq!(
            faults.first().map_or(0, |fault| fault.code),
            code,
            "{script}: {faults:?}"
        );
        let inactive = rig.gpu.load_signal(rig.queue.inactive_signal()).unwrap();
        assert_eq!(inactive, i64::from(code), "{script}");
        let injected = rig.gpu.injected_faults();
        if script.is_empty() {
            assert!(injected.is_empty());
        } else {
            assert!(injected[0].what.contains(words), "{script}: {injected:?}");
            assert_eq!(injected.len(), 1);
        }
    }
}

#[test]
fn scripts_against_an_indirect_buffer() {
    let rows: &[(&str, u32, i64, u32)] = &[
        ("", 3, 2, 0),
        ("lost@packet:1", 0, 3, 0x8000_0000),
        ("lost@launch:3", 2, 3, 0x8000_0000),
        ("hang@launch:3", 2, 3, 0),
        ("stuck@completion:1", 3, 3, 0),
        // Bits 31:30 of the first word are the packet type; 1 is none.
        ("flip@ib:1.31", 0, 3, 0x20),
        ("flip@kernarg:2.46", 1, 3, 0x2000_0000),
    ];
    for &(script, sum, left, code) in rows {
        let scene = scene(script);
        scene.rig.submit(&[scene.ib(3)]);
        let start = Instant::now();
        while scene.rig.gpu.load_signal(scene.signal).unwrap() != left
            || scene
                .rig
                .faults
                .lock()
                .unwrap()
                .first()
                .map_or(0, |fault| fault.code)
                != code
        {
            assert!(
                start.elapsed() < KILL,
                "{script}: {:?}",
                scene.rig.gpu.fault()
            );
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(
            scene.rig.gpu.load_signal(scene.signal),
            Ok(left),
            "{script}"
        );
        assert_eq!(scene.first(), 5 + sum, "{script}");
        let injected = scene.rig.gpu.injected_faults();
        assert_eq!(injected.len(), usize::from(!script.is_empty()), "{script}");
    }
}

/// A hung queue is destroyed at once, and another queue of the device goes on.
#[test]
fn a_hung_queue_is_killable_and_alone() {
    let mut scene = scene("hang@launch:1");
    scene.rig.submit(&[scene.packet()]);
    assert_eq!(scene.settled(), 3);
    assert!(scene.rig.queue.is_stuck() && !scene.rig.queue.is_poisoned());
    let other = scene.rig.gpu.create_queue(64, Arc::new(|_| {})).unwrap();
    let hung = std::mem::replace(&mut scene.rig.queue, other);
    let done = scene.rig.gpu.create_signal(1).unwrap();
    let packet = scene.rig.dispatch("add_one", 1, scene.kernarg, done);
    scene.rig.submit(&[packet]);
    let value = scene.rig.gpu.wait_signal(done, Condition::Lt, 1, KILL);
    assert_eq!(value, Ok(0));
    let start = Instant::now();
    hung.destroy();
    assert!(start.elapsed() < KILL);
}

/// Every queue of a lost device is told, those with nothing to do as well, and later ones too.
#[test]
fn a_lost_device_stops_all_queues() {
    let scene = scene("lost@packet:1");
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = Arc::clone(&told);
    let sink = move |fault: &refrain_softgpu::cp::QueueFault| {
        sink.lock().unwrap().push(fault.to_string());
    };
    let idle = scene.rig.gpu.create_queue(64, Arc::new(sink)).unwrap();
    scene.rig.submit(&[scene.packet()]);
    let words = scene.rig.fault().to_string();
    assert!(words.contains("(injected: lost@packet:1)"), "{words}");
    let start = Instant::now();
    while told.lock().unwrap().is_empty() {
        assert!(start.elapsed() < KILL);
        std::thread::yield_now();
    }
    assert!(idle.is_poisoned());
    assert!(told.lock().unwrap()[0].contains("the device was lost"));
    assert!(scene.rig.gpu.lost().is_some());
}

/// A kernel that really runs for ever holds up neither the destruction of its queue nor that of the
/// device, and its end by destruction is no fault.
#[test]
fn an_endless_kernel_is_given_up_when_its_queue_goes() {
    for target in [Target::Gfx1100, Target::Gfx1201] {
        let rig = Rig::new(target);
        let kernarg = rig.memory("kernargs", &[0; 4]);
        let signal = rig.gpu.create_signal(1).unwrap();
        let packet = rig.dispatch("spin", 64, kernarg, signal);
        rig.submit(&[packet]);
        let wait = Duration::from_millis(50);
        assert_eq!(rig.gpu.wait_signal(signal, Condition::Lt, 1, wait), Ok(1));
        let start = Instant::now();
        rig.queue.destroy();
        assert!(start.elapsed() < KILL, "{target}: {:?}", start.elapsed());
        assert_eq!(rig.gpu.fault(), None);
        let again = rig.gpu.create_queue(64, Arc::new(|_| {})).unwrap();
        let rig = Rig {
            queue: again,
            ..rig
        };
        let packet = rig.dispatch("spin", 64, kernarg, signal);
        rig.submit(&[packet]);
        std::thread::sleep(wait);
        let start = Instant::now();
        drop(rig);
        assert!(start.elapsed() < KILL, "{target}: {:?}", start.elapsed());
    }
}

/// A barrier behind a completion that is withheld waits on, and the queue is still destroyed.
#[test]
fn a_barrier_behind_a_stuck_signal_waits() {
    let scene = scene("stuck@completion:1");
    let first = scene.rig.gpu.create_signal(1).unwrap();
    let mut packet = scene.packet();
    put(&mut packet, 56, &first.to_le_bytes());
    let barrier = Rig::barrier(BARRIER_AND | BARRIER_BIT | SYSTEM, &[first], scene.signal);
    scene.rig.submit(&[packet, barrier]);
    assert_eq!(scene.settled(), 3);
    assert_eq!(scene.first(), 6);
    scene.rig.queue.destroy();
}
