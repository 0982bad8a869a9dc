//! How many rows of a step the GPU computes over the link and how many the CPU, learned from the times
//! of the steps themselves.
//!
//! A step of a spilled matrix can run three ways ([`Kind`]): all rows on the GPU over the link, all on the CPU,
//! or split. A [`Controller`] belongs to one [`Shape`]; for each number of rows it
//!
//! 1. times both arms alone and together,
//! 2. moves the split to where both arms end together: `g = r_gpu / (r_gpu + r_cpu)` with rates measured
//!    while both run, corrected for what each arm costs before its first row,
//! 3. compares the walls of all three, copies and joins included, until they differ by more than noise,
//! 4. freezes the best, watches it, and reopens when confirmed samples no longer fit.
//!
//! It never reads a clock or a device: the executor asks [`Controller::plan`], runs the step so, and tells
//! [`Controller::observe`]. All of it is O(1) a step. What the numbers mean for a whole plan is `advice`'s.

mod controller;
mod frozen;
mod seed;
mod shape;
mod stats;
mod tracker;

pub use controller::{Controller, Counters, MAX_ROW_COUNTS, ShareTable};
pub use seed::{Seed, SeedError, Seeds};
pub use shape::{DEFAULT_SHARE, Decision, Form, Kind, Probe, ROW_STEP, Sample, Shape};
