//! Result layer: each table entry that the safe layer needs as one method whose status has become a
//! `Result`. This is the only place of the crate where table entries are invoked, so it is also
//! where launches, copies and memsets are observed. Ownership, bounds and lifetimes are left to the
//! safe layer, which states them at each `unsafe` call.

pub(crate) mod hip;
pub(crate) mod hsa;

pub(crate) use hip::Hip;
pub(crate) use hsa::Hsa;

/// Longest text taken over from the software GPU, bytes.
const TEXT_BYTES: usize = 4096;

/// Reads one text through an entry with the contract of `refrain_take_reason`.
fn text(read: impl FnOnce(*mut u8, usize) -> usize) -> Option<String> {
    let mut buffer = vec![0u8; TEXT_BYTES];
    let len = read(buffer.as_mut_ptr(), buffer.len()).min(TEXT_BYTES);
    (len > 0).then(|| String::from_utf8_lossy(&buffer[..len]).into_owned())
}

/// A reason that begins with the name of its call, without it: the error says the name already.
fn without_call(call: &str, reason: String) -> String {
    match reason
        .strip_prefix(call)
        .and_then(|rest| rest.strip_prefix(": "))
    {
        Some(rest) => rest.to_owned(),
        None => reason,
    }
}
