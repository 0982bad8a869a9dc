//! Raw access to guest memory, after the bounds and rights were checked.
//!
//! Guest memory is shared between the threads that run work-groups, as it is on the card. Two
//! guests that race for the same bytes race here too: what is read is one of the values written or
//! a mixture by bytes, and nothing else is affected, because these bytes are only ever reached
//! through raw pointers and never hold Rust values.

use crate::memory::pointer;

/// Reads a value that need not be aligned.
///
/// # Safety
/// The caller has checked that `size_of::<T>()` bytes at `va` lie in one live allocation that a
/// view keeps alive, and `T` is an integer or an array of integers.
#[inline(always)]
pub(super) unsafe fn read<T: Copy>(va: u64) -> T {
    // SAFETY: by the function's contract; all bit patterns are values of `T`.
    unsafe { pointer(va).cast::<T>().read_unaligned() }
}

/// Writes a value that need not be aligned.
///
/// # Safety
/// As for [`read`], with the write right checked.
#[inline(always)]
pub(super) unsafe fn write<T: Copy>(va: u64, value: T) {
    // SAFETY: by the function's contract.
    unsafe { pointer(va).cast::<T>().write_unaligned(value) };
}
