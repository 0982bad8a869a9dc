//! The planner: from a model file and a machine profile to a checked plan of one decode step.
//!
//! Data flows one way: `source` reads a model of any format (`gguf`, `safetensors` with `hf`, `hfq`)
//! into one table, `machine` a profile; `arch` binds the table to a declaration, `graph`
//! repeats its operations, `lowering` turns them into launches and buffers, `schedule` orders them,
//! `container` checks the plan and makes it a file, `identity` digests it, `inspect` prints it.
//! Nothing here talks to a device; running plans is the recorder's and replay's business.
#![forbid(unsafe_code)]

pub mod arch;
mod compile;
pub mod container;
pub mod diff;
pub mod durable;
pub mod gguf;
pub mod graph;
pub mod hf;
pub mod hfq;
pub mod identity;
mod inspect;
pub mod lowering;
pub mod machine;
pub mod memory;
pub mod placement;
pub mod plan;
pub mod safetensors;
pub mod schedule;
pub mod source;
pub mod tokenizer;

pub use compile::{
    CompileOptions, DEFAULT_CONTEXT, DEFAULT_RING_ENTRIES, FillError, PlanError, compile,
    compile_family, fill,
};
pub use container::{CheckError, CheckedPlan, ContainerError, LoadError};
pub use identity::{Identity, Layer, SequenceHash};
pub use inspect::{explain, inspect};
pub use source::ModelSource;
