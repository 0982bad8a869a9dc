//! Why a plan is refused after its bytes were read.

use crate::container::ContainerError;
use crate::plan::{KernargError, StepId};
use crate::schedule::Violation;
use refrain_kernels::CatalogError;
use std::fmt;

/// Where in a plan something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Producer, machine.
    Machine,
    /// Architecture, geometry.
    Model,
    /// Options.
    Options,
    /// A tensor.
    Tensor(String),
    /// A buffer.
    Buffer(String),
    /// A kernel.
    Kernel(String),
    /// A step.
    Step(StepId, String),
    /// Eligibility.
    Eligibility,
    /// Bytes by tier.
    Memory,
}

impl Place {
    /// Tag of the file section that holds it.
    pub const fn section(&self) -> &'static str {
        match self {
            Self::Machine => "MACH",
            Self::Model => "MODL",
            Self::Options => "OPTS",
            Self::Tensor(_) => "TENS",
            Self::Buffer(_) => "BUFF",
            Self::Kernel(_) => "KERN",
            Self::Step(..) => "STEP",
            Self::Eligibility => "ELIG",
            Self::Memory => "MMRY",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section {}", self.section())?;
        match self {
            Self::Tensor(name) | Self::Buffer(name) | Self::Kernel(name) => write!(f, ", {name}"),
            Self::Step(id, name) => write!(f, ", step {id} ({name})"),
            _ => Ok(()),
        }
    }
}

/// A contradiction in a plan, or between it and this build.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A list or size above its limit.
    #[error("{what}: {found}, the limit is {limit}: plan a smaller model or context")]
    Limit {
        /// What is too large.
        what: &'static str,
        /// Its size.
        found: u64,
        /// Limit.
        limit: u64,
    },
    /// A value that must be another one.
    #[error("{place}: {what} is {found}, it must be {expected}: re-run `refrain plan`")]
    Mismatch {
        /// Where.
        place: Place,
        /// Which fact.
        what: &'static str,
        /// Value in the plan.
        found: String,
        /// Value or rule it must satisfy.
        expected: String,
    },
    /// A region that can leave its buffer for some word value.
    #[error(
        "{place}: {access} of bytes {begin}..{end} of {buffer}, which has {bytes}: re-run `refrain plan`"
    )]
    OutOfBounds {
        /// Step.
        place: Place,
        /// `read` or `write`.
        access: &'static str,
        /// Buffer.
        buffer: String,
        /// First byte over all word values.
        begin: u64,
        /// End over all word values.
        end: u64,
        /// Size of the buffer.
        bytes: u64,
    },
    /// Two arguments of one launch that meet although one is written.
    #[error(
        "{place}: {first} and {second} share bytes of {buffer} and one is written, which {kernel} \
         does not allow: re-run `refrain plan`"
    )]
    Alias {
        /// Step.
        place: Place,
        /// Kernel.
        kernel: &'static str,
        /// Argument.
        first: &'static str,
        /// Argument.
        second: &'static str,
        /// Buffer.
        buffer: String,
    },
    /// A launch that its catalog row does not admit.
    #[error("{place}: {source}")]
    Catalog {
        /// Where.
        place: Place,
        /// Cause.
        source: CatalogError,
    },
    /// Arguments that are not those of the catalog row.
    #[error("section STEP: {0}")]
    Kernarg(#[from] KernargError),
    /// A hazard without a wait, or a malformed schedule.
    #[error("section SCHD: {0}")]
    Schedule(Box<Violation>),
}

impl From<Violation> for CheckError {
    fn from(violation: Violation) -> Self {
        Self::Schedule(Box::new(violation))
    }
}

impl CheckError {
    pub(super) fn mismatch(
        place: Place,
        what: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        Self::Mismatch {
            place,
            what,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }
}

/// Why a plan file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The bytes are not a plan file of this format.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// The plan contradicts itself or this build.
    #[error(transparent)]
    Check(#[from] CheckError),
}
