//! The retained host path allocates nothing and writes no kernarg byte per token. This binary has
//! an allocator that counts allocations of the thread under test; other threads (the software
//! GPU's) are not counted.

mod common;

use common::{PROMPT, plan, session};
use refrain_kernels::Target;
use refrain_replay::{Route, Transport};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn note() {
    // Thread-locals may be gone while a thread ends; such an allocation is not ours.
    let counting = COUNTING.try_with(Cell::get).unwrap_or(false);
    if counting {
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    }
}

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.set(0);
    COUNTING.set(true);
    work();
    COUNTING.set(false);
    COUNT.get()
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1_u8; 100]))) >= 1);
    assert_eq!(allocations(|| {}), 0);
}

#[test]
fn retained_tokens_allocate_nothing_and_write_no_kernarg() {
    let plan = plan(Target::Gfx1201, 64);
    for transport in Transport::ALL {
        let mut session = session(&plan, transport, 8);
        let mut tokens = Vec::with_capacity(64);
        session.start(&PROMPT, 40).unwrap();
        session
            .advance(Route::Retained, 8, &mut |token| tokens.push(token))
            .unwrap();
        let kernargs = session.replayer().unwrap().arena_bytes().unwrap();
        let count = allocations(|| {
            session
                .advance(Route::Retained, 32, &mut |token| tokens.push(token))
                .unwrap();
        });
        assert_eq!(tokens.len(), 40 - 3);
        assert_eq!(count, 0, "{transport}: allocations in 32 tokens");
        assert_eq!(
            session.replayer().unwrap().arena_bytes().unwrap(),
            kernargs,
            "{transport}"
        );
    }
}
