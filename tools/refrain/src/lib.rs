//! Refrain as a library: the crates behind the command line under one name, and the command line
//! itself, so that tests and tools can drive both without a process.
//!
//! The work is done elsewhere: `planner` makes plans, `recorder` records, `replay` runs. This crate
//! only parses arguments, prints, and turns errors into exit codes.
#![forbid(unsafe_code)]

pub use refrain_cpu as cpu;
pub use refrain_device as device;
pub use refrain_golden as golden;
pub use refrain_kernels as kernels;
pub use refrain_lower as lower;
pub use refrain_packet as packet;
pub use refrain_planner as planner;
pub use refrain_recorder as recorder;
pub use refrain_replay as replay;
pub use refrain_softgpu as softgpu;

pub mod bench;
pub mod cli;
pub mod commands;
pub mod exit;
pub mod host;
pub mod input;
pub mod output;
