//! From the graph to buffers, kernels and ordered launches.
//!
//! First every value gets a buffer of its own, so that only true dependences exist; the steps are
//! ordered by them (`schedule::order`); then the values move into one scratch arena (`arena`). What
//! a launch touches comes from its catalog row (`effects`), never from knowledge of a kernel here.
//! Edges and waits of the result are `schedule`'s, judging it is `container::CheckedPlan`'s.

mod arena;
mod effects;
mod error;
mod layout;
mod rope;
mod select;

pub use effects::{Effects, WordRanges, declare, immediates, kind_matches};
pub use error::LowerError;
pub use layout::{ALIGN, BufferIds};
pub use rope::{factors as rope_factors, table as rope_table};

use crate::arch::Bound;
use crate::graph::{Graph, Node};
use crate::plan::{
    Buffer, BufferId, Digest, Kernel, KernelId, Launch, Options, Step, StepBody, Tensor,
};
use crate::schedule;
use refrain_kernels::{Dtype, KernelRow, Target, code_object};
use std::collections::BTreeMap;

/// What lowering makes.
#[derive(Debug)]
pub struct Lowered {
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Tensors, in the order of `Bound::weights`.
    pub tensors: Vec<Tensor>,
    /// Kernels, by symbol.
    pub kernels: Vec<Kernel>,
    /// Launches in order.
    pub steps: Vec<Step>,
}

/// Lowers the graph of a bound model. `digests` are of `bound.weights`, `rope` is the rotation table.
pub fn lower(
    bound: &Bound,
    graph: &Graph,
    options: &Options,
    target: Target,
    digests: &[Option<Digest>],
    rope: Vec<u8>,
) -> Result<Lowered, LowerError> {
    let layout = layout::layout(bound, options, digests, rope)?;
    let layout::Layout {
        mut buffers,
        tensors,
        ids,
    } = layout;
    let values = buffers.len() as BufferId;
    let tables = select::Tables {
        geometry: &bound.geometry,
        options,
        tensors: &tensors,
        ids: &ids,
        values,
        target,
    };
    let ranges = WordRanges {
        vocab: bound.geometry.vocab,
        context: options.context,
        ring_entries: options.ring_entries,
    };
    let (mut steps, kernels) = launches(graph, &tables, &ranges)?;
    let order = schedule::order(&steps);
    steps = order
        .iter()
        .map(|step| steps[*step as usize].clone())
        .collect();
    let levels = schedule::levels(&steps);
    let bytes_of = |len: u32| Dtype::F32.device_bytes(1, u64::from(len));
    let sizes = graph
        .values
        .iter()
        .map(|value| bytes_of(value.len))
        .collect::<Result<Vec<u64>, _>>()
        .map_err(|source| LowerError::Shape {
            step: "scratch".to_owned(),
            source,
        })?;
    check_capacity(&steps, values, graph, &sizes)?;
    let align = u64::from(ALIGN);
    buffers[ids.scratch as usize].bytes =
        arena::place(&mut steps, &levels, values, &sizes, ids.scratch, align);
    Ok(Lowered {
        buffers,
        tensors,
        kernels,
        steps,
    })
}

/// Demands that no launch reaches past the end of a value, whatever the words are.
fn check_capacity(
    steps: &[Step],
    values: BufferId,
    graph: &Graph,
    sizes: &[u64],
) -> Result<(), LowerError> {
    for step in steps {
        let (reads, writes) = step.effects();
        for region in reads
            .iter()
            .chain(writes)
            .filter(|region| region.buffer >= values)
        {
            let value = (region.buffer - values) as usize;
            let (end, bytes) = (
                region.bound().1,
                sizes.get(value).copied().unwrap_or_default(),
            );
            if end > bytes {
                let value = graph.values.get(value).map_or("", |value| value.name);
                return Err(LowerError::Capacity {
                    step: step.name.clone(),
                    value,
                    end,
                    bytes,
                });
            }
        }
    }
    Ok(())
}

/// One launch per node, and the kernels they use, sorted by symbol.
fn launches(
    graph: &Graph,
    tables: &select::Tables<'_>,
    ranges: &WordRanges,
) -> Result<(Vec<Step>, Vec<Kernel>), LowerError> {
    let selected = graph
        .nodes
        .iter()
        .map(|node| select::select(tables, node).map(|(row, args)| (node, row, args)))
        .collect::<Result<Vec<_>, _>>()?;
    let rows: BTreeMap<&str, &KernelRow> = selected
        .iter()
        .map(|(_, row, _)| (row.symbol, *row))
        .collect();
    let position: BTreeMap<&str, KernelId> = rows
        .keys()
        .enumerate()
        .map(|(index, symbol)| (*symbol, index as KernelId))
        .collect();
    let kernels = rows
        .values()
        .map(|row| kernel(row, tables.target))
        .collect();
    let step = |(node, row, args): (&Node, &'static KernelRow, Vec<_>)| {
        let shape = |source| LowerError::Shape {
            step: node.name.clone(),
            source,
        };
        let effects = declare(row, &args, ranges, tables.ids.control).map_err(shape)?;
        let (reads, writes) = effects.regions();
        let groups = row.blocks(&immediates(&args)).map_err(shape)?;
        let kernel = position.get(row.symbol).copied().unwrap_or_default();
        let launch = Launch {
            kernel,
            grid: [groups, 1, 1],
            args,
            reads,
            writes,
        };
        Ok(Step {
            name: node.name.clone(),
            layer: node.layer,
            body: StepBody::Launch(launch),
        })
    };
    let steps = selected
        .into_iter()
        .map(step)
        .collect::<Result<Vec<_>, LowerError>>()?;
    Ok((steps, kernels))
}

/// The plan's record of a catalog row on a target.
pub fn kernel(row: &KernelRow, target: Target) -> Kernel {
    Kernel {
        symbol: row.symbol.to_owned(),
        target,
        object: code_object(target).digest,
        kernarg_bytes: row.kernarg_bytes(),
        lds_bytes: row.lds_bytes,
        block: [row.block, 1, 1],
    }
}
