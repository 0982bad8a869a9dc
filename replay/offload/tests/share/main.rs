//! The share controller against a deterministic host whose best split is known by trying all of them.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed unwrap is a failed test; the worst cases are printed"
)]

mod host;
mod many;
mod scenarios;
