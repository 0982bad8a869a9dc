//! Plans from end to end: compiling, the plan file, its checks, schedule and identity.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on says so; the lint's own exception covers only #[test] functions"
)]

mod architectures;
mod checks;
mod compiling;
mod container;
mod fixture;
mod fusions;
mod host;
mod identity;
mod placement;
mod schedules;
mod shapes;
