//! Which forms of step a plan has: its steps with the host by type, columns and what they add, and the
//! launches of another plan of the same model that read the same matrices.

pub(super) use refrain_offload::advice::Occurrence;
use refrain_offload::advice::Timing;
use refrain_offload::share::{Form, Kind, Shape};
use refrain_planner::plan::{HostAdd, Plan, Region, StepId, Tensor};

/// A step with the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostForm {
    /// Its index in the plan.
    pub(super) step: StepId,
    /// What it is timed as.
    pub(super) shape: Shape,
    /// Rows of all its matrices.
    pub(super) rows: u32,
    /// Rows of them that the GPU computes beside the host.
    pub(super) gpu_rows: u32,
    /// Names of its matrices, which two plans of one model have in common.
    pub(super) tensors: Vec<String>,
}

/// Every step with the host, in the plan's order.
pub(super) fn host_steps(plan: &Plan) -> Vec<HostForm> {
    let steps = (0..).zip(&plan.steps);
    steps
        .filter_map(|(step, planned)| {
            let host = planned.body.host()?;
            let tensors: Vec<&Tensor> = host
                .parts
                .iter()
                .filter_map(|part| plan.model.tensors.get(part.tensor as usize))
                .collect();
            let first = tensors.first()?;
            let rows = tensors.iter().map(|tensor| tensor.rows).sum::<u32>();
            let own = host.parts.iter().map(|part| part.rows()).sum::<u32>();
            let adds = host.parts.iter().any(|part| part.add != HostAdd::Nothing);
            Some(HostForm {
                step,
                shape: Shape {
                    dtype: first.dtype,
                    k: first.cols,
                    form: match (tensors.len(), adds) {
                        (1, false) => Form::Gemv,
                        (1, true) => Form::Residual,
                        _ => Form::Several,
                    },
                },
                rows,
                gpu_rows: rows.saturating_sub(own),
                tensors: tensors.iter().map(|tensor| tensor.name.clone()).collect(),
            })
        })
        .collect()
}

/// The different forms among steps, and how often a token has each.
pub(super) fn occurrences(steps: &[HostForm]) -> Vec<Occurrence> {
    let mut found: Vec<Occurrence> = Vec::new();
    for step in steps {
        let known = found
            .iter_mut()
            .find(|known| known.shape == step.shape && known.rows == step.rows);
        match known {
            Some(known) => known.per_token += 1,
            None => found.push(Occurrence {
                shape: step.shape,
                rows: step.rows,
                per_token: 1,
            }),
        }
    }
    found
}

/// For each step with the host, the steps of a plan without one that read its matrices. What those are
/// fused with is timed with them. `None` if one also reads another step's matrices: then its time
/// cannot be told apart.
pub(super) fn reading(plan: &Plan, steps: &[HostForm]) -> Vec<Option<Vec<StepId>>> {
    let owner = |region: &Region| {
        let tensor = plan.model.tensors.iter().find(|tensor| {
            let (first, end) = region.bound();
            tensor.buffer == region.buffer
                && first < tensor.offset + tensor.bytes
                && tensor.offset < end
        })?;
        steps
            .iter()
            .position(|step| step.tensors.contains(&tensor.name))
    };
    let mut readers: Vec<Option<Vec<StepId>>> = steps.iter().map(|_| Some(Vec::new())).collect();
    for (index, planned) in (0..).zip(&plan.steps) {
        let reads = planned
            .body
            .launches()
            .iter()
            .flat_map(|launch| &launch.reads);
        let mut owners: Vec<usize> = reads.filter_map(owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let shared = owners.len() > 1;
        for owner in owners {
            match readers.get_mut(owner) {
                Some(slot) if shared => *slot = None,
                Some(Some(steps)) => steps.push(index),
                _ => {}
            }
        }
    }
    readers
        .into_iter()
        .map(|steps| steps.filter(|steps| !steps.is_empty()))
        .collect()
}

/// Walls by form, kind and rows of the GPU.
#[derive(Debug, Default)]
pub(super) struct Timings(Vec<Timing>);

impl Timings {
    /// Adds the walls of one step to those of its form.
    pub(super) fn add(&mut self, step: &HostForm, kind: Kind, gpu_rows: u32, walls: &[u64]) {
        let same = self.0.iter_mut().find(|timing| {
            timing.shape == step.shape
                && timing.rows == step.rows
                && timing.kind == kind
                && timing.gpu_rows == gpu_rows
        });
        match same {
            Some(timing) => timing.walls_ns.extend_from_slice(walls),
            None => self.0.push(Timing {
                shape: step.shape,
                rows: step.rows,
                kind,
                gpu_rows,
                walls_ns: walls.to_vec(),
            }),
        }
    }

    /// All of them.
    pub(super) fn into_vec(self) -> Vec<Timing> {
        self.0
    }
}
