//! The kernel catalog: what every kernel takes, where it runs, which bytes it may touch, and the
//! machine code built from it.
//!
//! Everything is data. A [`KernelRow`] names a kernel's arguments, block and grid rule, needs and
//! [`Effect`]s; [`CodeObject`] carries the bytes built for one [`Target`] with the facts read from
//! its metadata; a [`Format`] says how weights of a type are stored and what their codes mean. Policy
//! elsewhere reads rows and never a kernel's name.
//!
//! Left to others: choosing kernels for a model (planner), loading code objects (device), and
//! checking that a kernel's accesses stay inside its declared effects (the software GPU).
#![forbid(unsafe_code)]

mod catalog;
mod control;
mod dtype;
mod effect;
mod error;
pub mod format;
mod layout;
mod objects;
mod objects_table;
mod rows;
mod target;

pub use catalog::{
    Arg, ArgKind, ArgValue, Grid, KernelRow, Need, Op, POINTER_ALIGN, catalog, find, find_form,
    find_op,
};
pub use control::{
    CONTROL_BYTES, NOT_A_TOKEN, RingEntry, StopReason, WORDS, Word, WordRow, WordValues, Writer,
};
pub use dtype::Dtype;
pub use effect::{Access, Effect, Factor, Span, Term};
pub use error::CatalogError;
pub use format::{Format, Habit, quantise};
pub use layout::{decode_row, file_layout, plane_offset, relayout};
pub use objects::{CodeObject, KernelFacts, code_object, code_objects, unpack};
pub use target::{ISAS, Isa, Target, WAVE_LANES};
