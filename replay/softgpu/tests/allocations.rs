//! A batch that has run before allocates nothing: work-groups reuse waves and LDS.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use refrain_softgpu::isa::Target;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Args, Gpu};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

#[test]
fn a_repeated_batch_allocates_nothing() {
    let mut gpu = Gpu::shipped(Target::Gfx1201);
    let (rows, k) = (512u32, 256u32);
    let w = gpu.f32s("w", &vec![0.5; (rows * k) as usize]);
    let x = gpu.f32s("x", &vec![0.25; k as usize]);
    let y = gpu.empty("y", u64::from(rows) * 4);
    let args = Args::default().ptr(w).ptr(x).ptr(y).u32(0).u32(rows).u32(k);
    let norm = Args::default().ptr(x).ptr(x).ptr(y).u32(k).f32(1e-6);
    let batch = [
        gpu.dispatch("gemv_f32", rows / 16, 256, &args),
        gpu.dispatch("rmsnorm", 1, 256, &norm),
    ];
    for threads in [1, 2] {
        gpu.config.threads = threads;
        // Room does not depend on which thread meets which work-group, so two batches are enough:
        // the first starts the threads and learns what the kernels cost.
        for _ in 0..2 {
            gpu.go(&batch).unwrap();
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..100 {
            gpu.go(&batch).unwrap();
        }
        assert_eq!(
            ALLOCATIONS.load(Ordering::Relaxed) - before,
            0,
            "{threads} threads"
        );
    }
}
