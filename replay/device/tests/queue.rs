//! The AQL queue over the software GPU: order of publication, wrap-around, room, deadlines, errors.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use refrain_device::sys::hsa::{HsaAgent, HsaQueue, HsaSignal, HsaStatus, QueueCallback};
use refrain_device::{Device, DeviceError, PACKET_BYTES, Queue, Signal};
use refrain_softgpu::isa::Target;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);
/// Barrier-and, barrier bit, system fences.
const BARRIER: u32 = 3 | 1 << 8 | 2 << 9 | 2 << 11;

type Create = unsafe extern "C" fn(
    HsaAgent,
    u32,
    u32,
    Option<QueueCallback>,
    *mut c_void,
    u32,
    u32,
    *mut *mut HsaQueue,
) -> HsaStatus;

thread_local! {
    static ORIGINAL: Cell<Option<Create>> = const { Cell::new(None) };
    static RING: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" fn spying_create(
    agent: HsaAgent,
    packets: u32,
    kind: u32,
    callback: Option<QueueCallback>,
    data: *mut c_void,
    private: u32,
    group: u32,
    out: *mut *mut HsaQueue,
) -> HsaStatus {
    let original = ORIGINAL.get().expect("set by the test");
    // SAFETY: the arguments are the caller's own.
    let status = unsafe { original(agent, packets, kind, callback, data, private, group, out) };
    // SAFETY: on success `out` holds a live queue, which the tests take for granted.
    RING.set(unsafe { (**out).base_address }.expose_provenance());
    status
}

/// A device whose next queue's ring address lands in `RING`.
fn spied() -> Arc<Device> {
    let gpu = common::gpu(Target::Gfx1201);
    let runtime = common::changed(&gpu, |_, hsa, _| {
        ORIGINAL.set(Some(hsa.hsa_queue_create));
        hsa.hsa_queue_create = spying_create;
    });
    Device::open(runtime, 0).expect("opens")
}

/// One 32-bit word of a ring.
fn word(ring: usize, id: u64, index: usize) -> &'static AtomicU32 {
    let at =
        std::ptr::with_exposed_provenance_mut::<u32>(ring + (id as usize % 64) * 64 + index * 4);
    // SAFETY: inside the ring of a queue that the test keeps alive, aligned, used through atomics.
    unsafe { AtomicU32::from_ptr(at) }
}

fn barrier(completion: u64) -> [u8; PACKET_BYTES] {
    let mut packet = [0; PACKET_BYTES];
    packet[..4].copy_from_slice(&BARRIER.to_le_bytes());
    packet[56..].copy_from_slice(&completion.to_le_bytes());
    packet
}

#[test]
fn the_header_stays_invalid_until_it_is_published_in_one_store() {
    let device = spied();
    let queue = Queue::new(&device, 64).unwrap();
    let ring = RING.get();
    let first = queue.reserve(3).unwrap();
    assert_eq!(first, 0);
    let mut packet = barrier(0);
    packet[8] = 0xab;
    queue.write_body(1, &packet).unwrap();
    assert_eq!(
        word(ring, 1, 0).load(Ordering::Acquire),
        1,
        "header is INVALID after the body"
    );
    assert_eq!(word(ring, 1, 2).load(Ordering::Acquire), 0xab);
    assert_eq!(word(ring, 0, 0).load(Ordering::Acquire), 1);
    queue.publish(1, BARRIER).unwrap();
    assert_eq!(word(ring, 1, 0).load(Ordering::Acquire), BARRIER);
    assert_eq!(word(ring, 2, 0).load(Ordering::Acquire), 1);
}

#[test]
fn whoever_sees_the_header_sees_the_whole_body() {
    let device = spied();
    for round in 0..40u32 {
        let queue = Queue::new(&device, 64).unwrap();
        let ring = RING.get();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..64 {
                    while word(ring, id, 0).load(Ordering::Acquire) == 1 {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                    let expected = round << 8 | id as u32;
                    for index in 1..16 {
                        let found = word(ring, id, index).load(Ordering::Relaxed);
                        assert_eq!(found, expected, "word {index} of packet {id}");
                    }
                }
            });
            queue.reserve(64).unwrap();
            for id in 0..64u64 {
                let mut packet = [0; PACKET_BYTES];
                for chunk in packet.chunks_exact_mut(4) {
                    chunk.copy_from_slice(&(round << 8 | id as u32).to_le_bytes());
                }
                queue.write_body(id, &packet).unwrap();
                queue.publish(id, BARRIER).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_ring_of_64_wraps_and_completes_everything_in_order() {
    let (gpu, device) = common::device(Target::Gfx1201);
    let queue = Queue::new(&device, 64).unwrap();
    let signal = Signal::new(&device, 1000).unwrap();
    let packet = barrier(signal.handle());
    for index in 0..1000u64 {
        assert_eq!(queue.submit(&[packet]).unwrap(), index);
    }
    signal.wait_lt(1, WAIT).unwrap();
    assert_eq!(signal.load(), 0);
    let log = common::log(&gpu, 1000);
    assert_eq!(log.len(), 1000);
    assert!(
        (0..).zip(&log).all(|(id, packet)| packet.packet_id == id),
        "in order"
    );
    queue.check().unwrap();
}

thread_local! {
    static RUNG: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn recorded_doorbell(_doorbell: HsaSignal, value: i64) {
    RUNG.with_borrow_mut(|rung| rung.push(value));
}

#[test]
fn a_doorbell_never_goes_back() {
    let gpu = common::gpu(Target::Gfx1201);
    let runtime = common::changed(&gpu, |_, hsa, _| {
        hsa.hsa_signal_store_screlease = recorded_doorbell
    });
    let device = Device::open(runtime, 0).unwrap();
    let queue = Queue::new(&device, 64).unwrap();
    queue.reserve(8).unwrap();
    for id in [0, 5, 2, 5, 7, 6] {
        queue.ring(id).unwrap();
    }
    assert_eq!(RUNG.take(), [0, 5, 5, 5, 7, 7]);
}

#[test]
fn several_producers_share_a_ring() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let queue = Queue::new(&device, 64).unwrap();
    let signal = Signal::new(&device, 4 * 3 * 100).unwrap();
    let packet = barrier(signal.handle());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    queue.submit(&[packet; 3]).unwrap();
                }
            });
        }
    });
    signal.wait_lt(1, WAIT).unwrap();
    assert_eq!(signal.load(), 0);
}

#[test]
fn a_full_ring_waits_for_room_and_says_when_there_is_none() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let queue = Queue::new(&device, 64).unwrap();
    let signal = Signal::new(&device, 64).unwrap();
    let first = queue.reserve(64).unwrap();
    for id in first..first + 64 {
        queue.write_body(id, &barrier(signal.handle())).unwrap();
        queue.publish(id, BARRIER).unwrap();
    }
    let start = Instant::now();
    let error = queue
        .reserve_within(1, Duration::from_millis(60))
        .unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert!(
        matches!(
            error,
            DeviceError::DeadlineExceeded {
                what: "room in the ring",
                last: 0,
                ..
            }
        ),
        "{error}"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| queue.reserve(2));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        queue.ring(63).unwrap();
        assert_eq!(
            waiting.join().unwrap().unwrap(),
            64,
            "the refused reserve took no id"
        );
    });
    signal.wait_lt(1, WAIT).unwrap();
}

#[test]
fn misuse_of_ids_is_refused_with_the_numbers() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let queue = Queue::new(&device, 64).unwrap();
    let refused = |result: Result<(), DeviceError>| {
        let error = result.unwrap_err();
        assert!(
            matches!(error, DeviceError::Ring { size: 64, .. }),
            "{error}"
        );
    };
    refused(queue.reserve(65).map(drop));
    refused(queue.reserve(0).map(drop));
    refused(queue.submit(&[]).map(drop));
    refused(queue.write_body(0, &barrier(0)));
    refused(queue.publish(0, BARRIER));
    refused(queue.ring(0));
    let signal = Signal::new(&device, 1).unwrap();
    queue.submit(&[barrier(signal.handle())]).unwrap();
    signal.wait_lt(1, WAIT).unwrap();
    let start = Instant::now();
    while queue.read_index() == 0 && start.elapsed() < WAIT {
        std::thread::yield_now();
    }
    refused(queue.write_body(0, &barrier(0)));
    for size in [0, 1, 63, 96, 262_144] {
        let error = Queue::new(&device, size).unwrap_err();
        assert_eq!(error.status(), Some(0x1002), "{error}");
        assert!(
            error
                .to_string()
                .contains(&format!("a ring of {size} packets")),
            "{error}"
        );
    }
}

#[test]
fn a_wait_ends_at_its_deadline_with_the_last_value() {
    let (_gpu, device) = common::device(Target::Gfx1201);
    let signal = Signal::new(&device, 7).unwrap();
    let start = Instant::now();
    let error = signal.wait_lt(7, Duration::from_millis(50)).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(
        matches!(error, DeviceError::DeadlineExceeded { last: 7, .. }),
        "{error}"
    );
    signal.wait_lt(8, Duration::ZERO).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            signal.store(-1);
        });
        signal.wait_lt(0, WAIT).unwrap();
    });
}

#[test]
fn a_bad_packet_stops_the_queue_and_every_wait_with_a_sentence() {
    // (first dword, status of the callback, a word of the sentence)
    let cases = [
        (4 | 1 << 8, 0x1009, "AGENT_DISPATCH"),
        (2 | 1 << 8 | 3 << 16, 0x1010, "kernel_object"),
        (3 << 16, 0x1000, "vendor"),
    ];
    for (header, status, word) in cases {
        let (_gpu, device) = common::device(Target::Gfx1201);
        let queue = Queue::new(&device, 64).unwrap();
        let signal = Signal::new(&device, 1).unwrap();
        let mut packet = barrier(signal.handle());
        packet[..4].copy_from_slice(&u32::to_le_bytes(header));
        queue.submit(&[packet]).unwrap();
        let start = Instant::now();
        let error = signal.wait_lt(1, WAIT).unwrap_err();
        assert!(start.elapsed() < WAIT / 2, "noticed early");
        assert_eq!(error.status(), Some(status), "{error}");
        assert!(matches!(error, DeviceError::Queue { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.to_lowercase().contains(&word.to_lowercase()),
            "{header:#x}: {text}"
        );
        assert!(queue.check().is_err());
        assert!(queue.reserve(1).is_err(), "a stopped queue takes nothing");
        // A second queue of the device is not stopped, but waits on the device are told.
        let other = Queue::new(&device, 64).unwrap();
        other.check().unwrap();
    }
}
