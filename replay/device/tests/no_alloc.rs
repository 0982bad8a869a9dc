//! The host path of a replayed token allocates nothing: reserve, body, publish, doorbell, signal.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step of a test is a failed test"
)]

mod common;

use refrain_device::{Device, MemoryKind, PACKET_BYTES, Queue, Signal};
use refrain_softgpu::isa::Target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing (a const
// thread-local without destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

fn packets(completion: u64) -> [[u8; PACKET_BYTES]; 8] {
    let mut packet = [0; PACKET_BYTES];
    packet[..4].copy_from_slice(&HEADER.to_le_bytes());
    let mut all = [packet; 8];
    all[7][56..].copy_from_slice(&completion.to_le_bytes());
    all
}

/// Barrier-and, barrier bit, system fences.
const HEADER: u32 = 3 | 1 << 8 | 2 << 9 | 2 << 11;

#[test]
fn publishing_ringing_and_waiting_allocate_nothing() {
    assert!(
        allocations(|| drop(std::hint::black_box(Box::new(1u8)))) > 0,
        "the counter works"
    );
    let (_gpu, device): (_, Arc<Device>) = common::device(Target::Gfx1201);
    let queue = Queue::new(&device, 64).unwrap();
    let signal = Signal::new(&device, 0).unwrap();
    let buffer = device
        .alloc(MemoryKind::HostCoherent, "ring", 4096, 64)
        .unwrap();
    let packets = packets(signal.handle());
    let round = || {
        signal.store(1);
        let first = queue.reserve(8).unwrap();
        for (id, packet) in (first..).zip(&packets) {
            queue.write_body(id, packet).unwrap();
        }
        for id in first..first + 8 {
            queue.publish(id, HEADER).unwrap();
        }
        queue.ring(first + 7).unwrap();
        signal.wait_lt(1, Duration::from_secs(20)).unwrap();
        signal.store(1);
        queue.submit(&packets).unwrap();
        signal.wait_lt(1, Duration::from_secs(20)).unwrap();
        buffer.store_u32_release(8, 1).unwrap();
        assert_eq!(buffer.load_u64(8).unwrap() as u32, 1);
        buffer.write(24, &[1, 2, 3]).unwrap();
    };
    // The first use of a lock or thread handle may allocate once.
    round();
    assert_eq!(allocations(|| (0..1000).for_each(|_| round())), 0);
}
