//! Why the calling thread's last call failed, in words: statuses alone cannot say which attribute
//! or flag is not modelled. Both APIs share it; the device crate reads it right after a failure.

use std::cell::RefCell;
use std::fmt::Display;

thread_local! {
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the reason of a failed call; the last one counts.
pub(super) fn set(call: &str, what: impl Display) {
    REASON.with_borrow_mut(|reason| *reason = Some(format!("{call}: {what}")));
}

/// Takes the reason.
pub(super) fn take() -> Option<String> {
    REASON.with_borrow_mut(Option::take)
}

/// Copies `text` to `capacity` bytes at `out`, cut at a character; returns the bytes written.
///
/// # Safety
/// `out` is valid for writes of `capacity` bytes.
pub(super) unsafe fn copy_out(text: &str, out: *mut u8, capacity: usize) -> usize {
    let mut len = text.len().min(capacity);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: the caller vouches for `out`; `len` is at most `capacity` and the text's length.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), out, len) };
    len
}

#[cfg(test)]
mod tests {
    use super::{copy_out, set, take};

    #[test]
    fn reasons_belong_to_their_thread_and_are_taken_once() {
        set("hipMalloc", "too much");
        let other = std::thread::spawn(take).join().unwrap();
        assert_eq!(other, None);
        assert_eq!(take().as_deref(), Some("hipMalloc: too much"));
        assert_eq!(take(), None);
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        let mut out = [0u8; 4];
        // SAFETY: the capacity is that of the array.
        let len = unsafe { copy_out("aé€", out.as_mut_ptr(), out.len()) };
        assert_eq!(&out[..len], "aé".as_bytes());
    }
}
