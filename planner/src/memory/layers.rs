//! Bytes of each layer by tier.
//!
//! A buffer belongs to a layer if the steps of that layer and no other touch it: its weights, keys,
//! values and states. What several layers share (activations, words, prompt, hand-off) and what lies
//! outside of them (embedding, head, ring) is one row of its own.

use crate::plan::{BufferId, Plan, Tier};
use std::collections::BTreeMap;

/// Requested bytes of the buffers of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerBytes {
    /// The layer; `None` for what belongs to none alone.
    pub layer: Option<u32>,
    /// Bytes of device memory.
    pub device: u64,
    /// Bytes of pinned host memory.
    pub pinned: u64,
}

/// One row per layer, ascending, after that of what belongs to none. The kernarg arena and indirect
/// buffers of a retained form are no plan buffers and stand in [`super::Memory`] alone.
pub fn by_layer(plan: &Plan) -> Vec<LayerBytes> {
    let mut owners: BTreeMap<BufferId, Option<u32>> = BTreeMap::new();
    for step in &plan.steps {
        let (reads, writes) = step.effects();
        for region in reads.chain(writes) {
            let owner = owners.entry(region.buffer).or_insert(step.layer);
            if *owner != step.layer {
                *owner = None;
            }
        }
    }
    let mut rows: BTreeMap<Option<u32>, LayerBytes> = BTreeMap::new();
    for (id, buffer) in (0..).zip(&plan.buffers) {
        let layer = owners.get(&id).copied().flatten();
        let row = rows.entry(layer).or_insert(LayerBytes {
            layer,
            ..LayerBytes::default()
        });
        let sum = match buffer.kind.tier() {
            Tier::Device => &mut row.device,
            Tier::HostCoherent => &mut row.pinned,
        };
        *sum = sum.saturating_add(buffer.bytes);
    }
    rows.into_values().collect()
}
