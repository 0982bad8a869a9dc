//! Placement: which weights lie in device memory and which are spilled to the host.
//!
//! The last layers stay on the GPU and a contiguous prefix is spilled, so that a token crosses the
//! link in one run. Of a spilled layer only the matrices move; norms, biases, convolutions, keys,
//! values and states stay, as do embedding, output norm and head. The choice is made once, from
//! the model and the machine profile, and stored in the plan as its number of layers; live free
//! memory only admits or refuses. Bytes are `memory`'s, refusing a plan on a real device the
//! recorder's.

use crate::arch::{Bound, Op};
use crate::graph::Graph;
use crate::machine::Machine;
use crate::plan::{Exec, Share};
use refrain_kernels::Dtype;
use std::fmt;
use std::str::FromStr;

/// How many layers stay on the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuLayers {
    /// All of them.
    #[default]
    All,
    /// So many, counted from the last.
    Last(u32),
    /// As many as the machine profile's device memory holds.
    Auto,
}

impl FromStr for GpuLayers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            number => number.parse().map(Self::Last).map_err(|error| {
                format!("{error}: give a number of layers, `all` or `auto`, found {number:?}")
            }),
        }
    }
}

/// Who is asked to multiply spilled matrices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum ExecChoice {
    /// The GPU, over the link.
    #[default]
    Pcie,
    /// The host.
    Cpu,
    /// Rows divided between both; the GPU's part of them, 0 to 1, or measured at run time.
    Passback(Option<f32>),
}

impl ExecChoice {
    /// What a plan stores.
    pub fn exec(self) -> Exec {
        match self {
            Self::Pcie => Exec::Pcie,
            Self::Cpu => Exec::Cpu,
            Self::Passback(share) => Exec::Passback {
                share: share.map_or(Share::Auto, Share::pinned),
            },
        }
    }
}

impl fmt::Display for ExecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcie => f.write_str("pcie"),
            Self::Cpu => f.write_str("cpu"),
            Self::Passback(None) => f.write_str("passback"),
            Self::Passback(Some(share)) => write!(f, "passback:{share}"),
        }
    }
}

impl FromStr for ExecChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, share) = match text.split_once(':') {
            Some((name, share)) => (name, Some(share)),
            None => (text, None),
        };
        let share = share.map(|text| {
            let share = text.parse::<f32>().ok();
            share
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| format!("share {text:?}: give the GPU's part of the rows, 0 to 1"))
        });
        match (name, share.transpose()?) {
            ("pcie", None) => Ok(Self::Pcie),
            ("cpu", None) => Ok(Self::Cpu),
            ("passback", share) => Ok(Self::Passback(share)),
            ("pcie" | "cpu", Some(_)) => Err(format!("{name} takes no share, only passback does")),
            _ => Err(format!(
                "no execution {name:?}: known are pcie, cpu and passback[:SHARE]"
            )),
        }
    }
}

/// Why weights cannot be placed as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// More layers than the model has.
    #[error("{found} layers on the GPU: the model has {layers}, give 0 to that, `all` or `auto`")]
    Layers {
        /// Asked for.
        found: u32,
        /// Layers of the model.
        layers: u32,
    },
    /// Spilling where device and host share one memory.
    #[error(
        "{spilled} layers would be spilled, but on {machine} GPU and host share one memory and \
         nothing is gained: keep all layers, or plan a shorter context"
    )]
    Unified {
        /// Layers to spill.
        spilled: u32,
        /// Name of the profile.
        machine: String,
    },
    /// A spilled layer with experts.
    #[error(
        "layer {layer} would be spilled and has {experts} experts, which only run from device \
         memory: keep all {layers} layers on the GPU, or plan a smaller model"
    )]
    Experts {
        /// First such layer.
        layer: u32,
        /// Experts.
        experts: u32,
        /// Layers of the model.
        layers: u32,
    },
    /// Execution on the host of a matrix that the host cannot read.
    #[error(
        "{exec} has the host multiply {tensor}, which is {dtype}: the host has no reader for rotated \
         weights; use --exec pcie, or convert the model to a type that is not rotated"
    )]
    HostExec {
        /// What was asked for.
        exec: Exec,
        /// First such matrix.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// Execution on the host of products with int8 activations.
    #[error(
        "{exec} has the host multiply in exact mode, and {activations} activations were asked for: use \
         --exec pcie, or leave --activations out"
    )]
    HostActivations {
        /// What was asked for.
        exec: Exec,
        /// Form of activations that was asked for.
        activations: &'static str,
    },
    /// More pinned bytes than the host can give.
    #[error(
        "the plan pins {needed} bytes of host memory, {machine} can pin {available}: keep more \
         layers on the GPU, or raise host.pinned_bytes in the profile if the host allows more"
    )]
    Pinned {
        /// Bytes of pinned memory in whole pages.
        needed: u64,
        /// Name of the profile.
        machine: String,
        /// Most bytes it can pin.
        available: u64,
    },
}

/// A placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Layers, from the last, that stay on the GPU.
    pub gpu_layers: u32,
    /// Who multiplies what is spilled; `None` where nothing is.
    pub exec: Option<Exec>,
    /// Whether each of `Bound::weights` is spilled.
    pub spilled: Vec<bool>,
}

impl Placement {
    /// Keeps the last `gpu_layers` layers on the GPU.
    ///
    /// # Errors
    /// [`PlacementError`], all but those about bytes.
    pub fn new(
        bound: &Bound,
        graph: &Graph,
        machine: &Machine,
        gpu_layers: u32,
        exec: ExecChoice,
    ) -> Result<Self, PlacementError> {
        let layers = bound.geometry.layers;
        let Some(prefix) = layers.checked_sub(gpu_layers) else {
            return Err(PlacementError::Layers {
                found: gpu_layers,
                layers,
            });
        };
        let mut spilled = vec![false; bound.weights.len()];
        if prefix == 0 {
            return Ok(Self {
                gpu_layers,
                exec: None,
                spilled,
            });
        }
        if machine.unified_memory {
            return Err(PlacementError::Unified {
                spilled: prefix,
                machine: machine.name.clone(),
            });
        }
        let exec = exec.exec();
        for node in &graph.nodes {
            let Some(layer) = node.layer.filter(|layer| *layer < prefix) else {
                continue;
            };
            match node.op {
                Op::Gemv | Op::GemvAdd | Op::GemvBias => {
                    // The matrix is the first weight of these operations. Its bias goes with it where
                    // the host adds it.
                    let with_bias = exec != Exec::Pcie;
                    let weights = node.weights.iter().take(1 + usize::from(with_bias));
                    for at in weights {
                        host_reads(bound, *at, exec)?;
                        let weight = spilled.get_mut(*at);
                        weight.into_iter().for_each(|weight| *weight = true);
                    }
                }
                Op::ExpertGemv | Op::ExpertsDown => {
                    return Err(PlacementError::Experts {
                        layer,
                        experts: bound.geometry.experts,
                        layers,
                    });
                }
                _ => {}
            }
        }
        Ok(Self {
            gpu_layers,
            exec: Some(exec),
            spilled,
        })
    }
}

/// Whether the host multiplies matrices of a type: all but those whose vector must be rotated first,
/// for which it has no reader.
pub fn host_multiplies(dtype: Dtype) -> bool {
    !dtype.format().rotated
}

fn host_reads(bound: &Bound, weight: usize, exec: Exec) -> Result<(), PlacementError> {
    let Some(weight) = bound.weights.get(weight) else {
        return Ok(());
    };
    if exec == Exec::Pcie || host_multiplies(weight.dtype) {
        return Ok(());
    }
    Err(PlacementError::HostExec {
        exec,
        tensor: weight.info.name.clone(),
        dtype: weight.dtype,
    })
}

/// The largest number in `0..=most` for which `fits` answers true, where it is true for all smaller
/// ones; `None` where it is true for none.
///
/// # Errors
/// The first error of `fits`.
pub fn largest<E>(
    most: u32,
    mut fits: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    if fits(most)? {
        return Ok(Some(most));
    }
    // Invariant: everything below `low` fits, `high` does not.
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low.checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::{ExecChoice, GpuLayers, host_multiplies, largest};
    use refrain_kernels::Dtype;

    #[test]
    fn the_host_reads_every_type_that_is_not_rotated() {
        let refused: Vec<&str> = Dtype::ALL
            .iter()
            .filter(|dtype| !host_multiplies(**dtype))
            .map(|dtype| dtype.name())
            .collect();
        let expected = Dtype::ALL
            .iter()
            .filter(|dtype| dtype.name().starts_with("mq"));
        let expected: Vec<&str> = expected.map(|dtype| dtype.name()).collect();
        assert_eq!(refused, expected);
        assert!(!refused.is_empty());
    }

    #[test]
    fn the_largest_number_that_fits_is_found() {
        for most in 0..20u32 {
            for bound in 0..=most + 1 {
                let found: Result<_, ()> = largest(most, |n| Ok(n < bound));
                assert_eq!(found, Ok(bound.checked_sub(1)), "{most} {bound}");
            }
        }
    }

    #[test]
    fn choices_are_parsed_and_shares_outside_their_range_are_refused() {
        let good = [
            ("pcie", ExecChoice::Pcie),
            ("cpu", ExecChoice::Cpu),
            ("passback", ExecChoice::Passback(None)),
            ("passback:0", ExecChoice::Passback(Some(0.0))),
            ("passback:0.25", ExecChoice::Passback(Some(0.25))),
            ("passback:1", ExecChoice::Passback(Some(1.0))),
        ];
        for (text, expected) in good {
            assert_eq!(text.parse(), Ok(expected));
            assert_eq!(expected.to_string(), text);
        }
        let bad = [
            "passback:1.01",
            "passback:-0.1",
            "passback:NaN",
            "passback:",
            "pcie:1",
            "gpu",
            "",
        ];
        for text in bad {
            assert!(text.parse::<ExecChoice>().is_err(), "{text}");
        }
        assert_eq!("7".parse(), Ok(GpuLayers::Last(7)));
        assert_eq!("auto".parse(), Ok(GpuLayers::Auto));
        assert!("-1".parse::<GpuLayers>().is_err());
    }
}
