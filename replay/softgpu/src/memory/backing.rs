//! The host bytes behind one guest allocation. Guest address and host address are the same number.
//! Bounds and rights are checked by the callers (`AddressSpace`, `View`); nothing here checks them.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// One block of host memory, freed when the last user (address space or view) drops it.
#[derive(Debug)]
pub(super) struct Backing {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is plain bytes that belong to nobody's Rust reference. All accesses go through
// raw pointers, as those of a device would; two guests racing for a byte is a guest's data race.
unsafe impl Send for Backing {}
// SAFETY: as above; `&Backing` gives out an address, never a reference to the bytes.
unsafe impl Sync for Backing {}

impl Backing {
    /// `len` bytes at a multiple of `align`, each set to `poison`. `None`: the host has none left.
    pub(super) fn new(len: usize, align: usize, poison: u8) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), align).ok()?;
        // SAFETY: the layout's size is at least 1.
        let ptr = NonNull::new(unsafe { alloc(layout) })?;
        // SAFETY: the block just allocated has `layout.size()` writable bytes.
        unsafe { ptr.as_ptr().write_bytes(poison, layout.size()) };
        Some(Self { ptr, layout })
    }

    /// Address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.ptr.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: `ptr` came from `alloc` with exactly this layout and is freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}
