//! What is kept of a measured shape in a machine profile: where a controller starts, never where it stays.

use refrain_kernels::Dtype;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::shape::{Form, Kind, Shape};

/// One measured shape and number of rows. A controller that starts from it still measures, and leaves it
/// when its own samples say otherwise; only a share given by the user is pinned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// Type of the weights, by its name in the catalog.
    pub dtype: String,
    /// Elements of a row.
    pub k: u32,
    /// Form of the step.
    pub form: Form,
    /// Rows of the step.
    pub rows: u32,
    /// The kind that was fastest.
    pub kind: Kind,
    /// The GPU's share at which a split was fastest, from 0 to 1.
    pub share: f64,
    /// Walls in nanoseconds, as far as they were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_ns: Option<u64>,
    /// As `pcie_ns`, all rows on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// As `pcie_ns`, split at `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_ns: Option<u64>,
    /// Relative standard deviation of the fastest kind's walls.
    pub spread: f64,
}

/// The section of a machine profile.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    /// One table a shape and number of rows.
    #[serde(default)]
    pub offload: Vec<Seed>,
}

/// A seed that no measurement gives.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SeedError {
    /// A type that the catalog does not have.
    #[error("offload seed {index}: {dtype} is not a weight type of this version; measure again")]
    Dtype {
        /// Index of the seed.
        index: usize,
        /// Its type.
        dtype: String,
    },
    /// A number outside its range.
    #[error("offload seed {index}: {name} is {found}, not within {range}; measure again")]
    Range {
        /// Index of the seed.
        index: usize,
        /// Name of the field.
        name: &'static str,
        /// Its value.
        found: f64,
        /// What it has to be.
        range: &'static str,
    },
}

impl Seed {
    /// The shape, if the catalog has its type.
    #[must_use]
    pub fn shape(&self) -> Option<Shape> {
        Some(Shape {
            dtype: Dtype::parse(&self.dtype)?,
            k: self.k,
            form: self.form,
        })
    }
}

impl Seeds {
    /// Checks every seed.
    ///
    /// # Errors
    /// [`SeedError`] for the first that is out of range.
    pub fn check(&self) -> Result<(), SeedError> {
        for (index, seed) in self.offload.iter().enumerate() {
            if seed.shape().is_none() {
                return Err(SeedError::Dtype {
                    index,
                    dtype: seed.dtype.clone(),
                });
            }
            let most = f64::MAX;
            for (name, found, least, most, range) in [
                ("share", seed.share, 0.0, 1.0, "0 and 1"),
                ("spread", seed.spread, 0.0, most, "0 and infinity"),
                ("k", f64::from(seed.k), 1.0, most, "1 and 2^32"),
                ("rows", f64::from(seed.rows), 1.0, most, "1 and 2^32"),
            ] {
                if !(least..=most).contains(&found) {
                    return Err(SeedError::Range {
                        index,
                        name,
                        found,
                        range,
                    });
                }
            }
        }
        Ok(())
    }
}
