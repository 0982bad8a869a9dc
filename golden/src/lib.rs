//! The golden registry: sealed records of what a model on a machine is and does, and their checks.
//!
//! | file | does |
//! |---|---|
//! | `recipe` | what a record is about: model file, machine, options; the matrix of all records |
//! | `record` | a record as canonical TOML with its own digest |
//! | `facts` | what planner and lowering say about a recipe today |
//! | `world` | what this crate asks of its caller: planning, proving, running tokens |
//! | `verify` | the checks of a record, in a fixed order; names and classifies a mismatch |
//! | `seal` | makes a record, or says why it may not be made |
//! | `registry` | the folder of records and proofs |
//! | `archive` | one reproducible file with all that another machine needs |
//! | `attest` | what another machine made of such a file |
//!
//! It executes nothing: plans, proofs and tokens come through [`World`], which the command line
//! fills, so that this crate needs no device. It never writes a record that it cannot verify.
#![forbid(unsafe_code)]

pub mod archive;
pub mod attest;
pub mod facts;
pub mod recipe;
pub mod record;
pub mod registry;
pub mod seal;
pub mod verify;
pub mod world;

pub use archive::{Archive, ArchiveError};
pub use attest::{Attestation, Grade, attest};
pub use facts::Facts;
pub use recipe::{Matrix, Recipe, RecipeError};
pub use record::{Kind, RECORD_SCHEMA, Record, RecordError, Tokens};
pub use registry::{Registry, RegistryError};
pub use seal::{SealError, Sealed, seal};
pub use verify::{Check, Class, Layer, Mismatch, State, Verified, VerifyError, verify};
pub use world::{Planned, ProofFacts, Route, World, WorldError};
