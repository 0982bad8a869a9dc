//! The program as its users meet it: processes, exit codes, stdout and stderr.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod bad_input;
mod bench;
mod devices;
mod edges;
mod formats;
mod golden;
mod main_job;
mod offload;
mod packets;
mod placement;
mod prove;
mod strict;
mod support;
