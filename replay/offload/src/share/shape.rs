//! What a controller is asked and told: shapes of steps, kinds of execution, decisions and samples.

use std::fmt;
use std::str::FromStr;

use refrain_kernels::Dtype;
use serde::{Deserialize, Serialize};

/// Rows are shared in units of 16: a tile of the GPU kernels, and whole cache lines of results.
pub const ROW_STEP: u32 = 16;

/// The GPU's share of a split step before anything is known.
pub const DEFAULT_SHARE: f64 = 0.375;

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($(#[$what:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$what])* #[serde(rename = $name)] $variant,)*
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            /// The name in profiles and reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<$type, String> {
                Self::ALL.iter().copied().find(|item| item.name() == name).ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|item| item.name()).collect();
                    format!("{name} is none of {}", names.join(", "))
                })
            }
        }
    };
}

named! {
    /// What a step does beside the matrix-vector product: it changes the time before the first row.
    Form {
        /// One matrix.
        Gemv = "gemv",
        /// One matrix, the result added to a residual.
        Residual = "residual",
        /// Several matrices over the same activations.
        Several = "several",
    }
}

named! {
    /// Who multiplies a spilled matrix.
    Kind {
        /// The GPU, reading all rows over the link.
        Pcie = "pcie",
        /// The CPU, all rows.
        Cpu = "cpu",
        /// Both at once.
        Split = "passback",
    }
}

named! {
    /// What a step is run for, beside its result.
    Probe {
        /// To know this arm at all.
        Seed = "seed",
        /// To find where both arms end together.
        Search = "search",
        /// To tell which kind is faster.
        Compare = "compare",
        /// To see whether a kind that is not used has become faster.
        Refresh = "refresh",
    }
}

/// Steps that share a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Type of the weights.
    pub dtype: Dtype,
    /// Elements of a row.
    pub k: u32,
    /// What else the step does.
    pub form: Form,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} k={} {}", self.dtype, self.k, self.form)
    }
}

/// How the next step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Rows of the step.
    pub rows: u32,
    /// Rows `[0, gpu_rows)` are the GPU's, the others the CPU's. All, none, or a multiple of
    /// [`ROW_STEP`] between.
    pub gpu_rows: u32,
    /// Who computes them.
    pub kind: Kind,
    /// What it is measured for; `None` if it is simply the best known. A probe may be run as the step
    /// itself (every kind gives the same rows in exact mode) or beside it, into scratch.
    pub probe: Option<Probe>,
}

impl Decision {
    /// The GPU's share of the rows.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.rows == 0 {
            return 0.0;
        }
        f64::from(self.gpu_rows) / f64::from(self.rows)
    }
}

/// How long one step took, in nanoseconds, measured with a real synchronise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// The GPU arm, launch to completion; `None` if the device gives no time. A split step's is then
    /// taken from the join, a step of kind [`Kind::Pcie`] is its wall.
    pub gpu_ns: Option<u64>,
    /// The CPU arm; unused for [`Kind::Pcie`].
    pub cpu_ns: u64,
    /// From the end of the CPU arm until the host knew that both arms had ended.
    pub join_ns: u64,
    /// Activations down and result up.
    pub copy_ns: u64,
    /// From inputs ready to result usable by the next step, copies and join included.
    pub wall_ns: u64,
}
