//! Strict mode on faults with a name: each case is reported with the right names, and its twin
//! without the fault stays silent. The kernels are `tests/fixtures/named.hip` and
//! `tests/fixtures/waves.hip`.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[expect(
    dead_code,
    reason = "each test binary uses another part of the harness"
)]
#[path = "../packets/harness.rs"]
mod harness;

mod arguments;
mod caches;
mod faults;
mod memory;
mod order;
mod packets;
mod processor;
mod rig;
mod waves;
