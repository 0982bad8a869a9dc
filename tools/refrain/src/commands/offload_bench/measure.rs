//! Runs a plan's tokens step by step and takes the wall of the steps that are asked for.

use refrain_device::Device;
use refrain_planner::container::CheckedPlan;
use refrain_planner::plan::StepId;
use refrain_recorder::{EagerExecutor, EmbeddedObjects, FileSource, Instance};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Tokens before the first that counts: code is loaded, pages are touched, clocks are up.
const WARM_UP: u32 = 2;

/// Walls of each step in nanoseconds, one per repeat.
pub(super) type Walls = BTreeMap<StepId, Vec<u64>>;

/// Runs one token per repeat at position 0, every step in its place, so that each reads its own weights
/// and not what the step before left in a cache. A wall is from the device being idle until it is idle
/// again, copies and joins included.
pub(super) fn time(
    device: &Arc<Device>,
    plan: &Arc<CheckedPlan>,
    weights: &FileSource,
    wanted: &[StepId],
    repeats: u32,
) -> anyhow::Result<Walls> {
    let mut instance = Instance::new(device, plan, weights)?;
    let executor = EagerExecutor::new(&instance, &EmbeddedObjects)?;
    let mut walls: Walls = wanted.iter().map(|step| (*step, Vec::new())).collect();
    for repeat in 0..repeats + WARM_UP {
        instance.reset_at(0)?;
        for step in (0..).take(plan.steps.len()) {
            let Some(walls) = walls.get_mut(&step) else {
                executor.submit_step(&instance, step, &mut device.stream())?;
                continue;
            };
            executor.wait()?;
            let began = Instant::now();
            executor.submit_step(&instance, step, &mut device.stream())?;
            executor.wait()?;
            let wall = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if repeat >= WARM_UP {
                walls.push(wall);
            }
        }
        executor.wait()?;
    }
    Ok(walls)
}

/// The walls of several steps that together do what one step of another plan does, repeat by repeat.
pub(super) fn sums(walls: &Walls, steps: &[StepId]) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for walls in steps.iter().filter_map(|step| walls.get(step)) {
        sums.resize(walls.len(), 0);
        for (sum, wall) in sums.iter_mut().zip(walls) {
            *sum = sum.saturating_add(*wall);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::{Walls, sums};

    #[test]
    fn steps_are_summed_repeat_by_repeat() {
        let walls = Walls::from([(3, vec![1, 2]), (4, vec![10, 20]), (9, vec![5, 5])]);
        assert_eq!(sums(&walls, &[3, 4]), [11, 22]);
        assert_eq!(sums(&walls, &[9]), [5, 5]);
        assert_eq!(sums(&walls, &[7]), [0; 0]);
    }
}
