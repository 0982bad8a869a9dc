//! The golden registry's room: sealed records of identity digests for a model on a machine.
//!
//! Nothing is sealed yet; `golden/models` holds the model that the tests and the README run. When the
//! registry arrives it compares identity layers, in a fixed order, with what planner and lowering
//! compute. It executes nothing itself: execution goes through a trait that the command line fills, so
//! that this crate needs no device. It never writes a record that it cannot verify.
#![forbid(unsafe_code)]
