//! Launch order: independent steps side by side, so that few waits are needed.

use super::dependences;
use crate::plan::{Step, StepId};

/// Length of the longest dependence chain that ends before each step, in steps.
pub fn levels(steps: &[Step]) -> Vec<u32> {
    let mut levels = vec![0; steps.len()];
    for edge in dependences(steps) {
        let after = levels[edge.from as usize] + 1;
        let level = &mut levels[edge.to as usize];
        *level = (*level).max(after);
    }
    levels
}

/// Positions of `steps` in an order that keeps every dependence and sorts by level, then by the
/// given order. With one wait between levels, waits number the longest chain less one.
pub fn order(steps: &[Step]) -> Vec<StepId> {
    let levels = levels(steps);
    let mut order: Vec<StepId> = (0..steps.len() as StepId).collect();
    order.sort_by_key(|step| levels[*step as usize]);
    order
}

/// Steps in the given order.
pub fn arrange(steps: Vec<Step>, order: &[StepId]) -> Vec<Step> {
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let taken = order
        .iter()
        .map(|step| steps.get_mut(*step as usize)?.take());
    taken.flatten().collect()
}
