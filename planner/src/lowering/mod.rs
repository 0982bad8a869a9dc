//! From the graph to buffers, kernels and ordered launches.
//!
//! First every value gets a buffer of its own, so that only true dependences exist; the steps are
//! ordered by them (`schedule::order`); then the values move into one scratch arena (`arena`). What
//! a launch touches comes from its catalog row (`effects`), never from knowledge of a kernel here.
//! Edges and waits of the result are `schedule`'s, judging it is `container::CheckedPlan`'s.

mod arena;
mod effects;
mod error;
mod forms;
mod host;
mod layout;
mod rope;
mod row;
mod select;
mod table;

pub use effects::{Effects, WordRanges, declare, immediates, kind_matches};
pub use error::LowerError;
pub use layout::{ALIGN, BufferIds};
pub use rope::{factors as rope_factors, table as rope_table};
pub use select::fusions;

use crate::arch::Bound;
use crate::graph::{Graph, Value};
use crate::plan::{
    Buffer, BufferId, BufferKind, Digest, Exec, HostStep, Kernel, KernelId, Launch, Options,
    SplitStep, Step, StepBody, Tensor,
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

/// What is lowered, for which machine.
#[derive(Debug)]
pub struct Input<'a> {
    /// The model.
    pub bound: &'a Bound,
    /// Its step.
    pub graph: &'a Graph,
    /// Digests of `bound.weights`.
    pub digests: &'a [Option<Digest>],
    /// The rotation table.
    pub rope: &'a [u8],
    /// Options of the plan.
    pub options: &'a Options,
    /// Target of the kernels.
    pub target: Target,
    /// Compute units that a launch should fill.
    pub compute_units: u32,
    /// Fusions that are switched off, by name.
    pub no_fuse: &'a [String],
    /// Whether each of `bound.weights` is spilled to the host.
    pub spilled: &'a [bool],
}

/// Positions that one group of an attention launch goes over in one pass: eight waves, a tile of 32
/// positions each (kernels/hip/attention.hip).
const POSITIONS_PER_PASS: u32 = 256;

impl Input<'_> {
    /// Whether the host may have rows of spilled matrices to multiply.
    fn on_host(&self) -> bool {
        let rows = |exec: Exec| exec.gpu_rows(u32::MAX) < u32::MAX;
        self.options.exec.is_some_and(rows)
    }

    /// Parts that attention splits the context into: as many as give every compute unit a group, but
    /// none that has less than one pass to do at the bucket's end. A power of two, as the kernels ask.
    fn splits(&self) -> u32 {
        let passes = self.options.bucket.div_ceil(POSITIONS_PER_PASS);
        let groups = self.compute_units / self.bound.geometry.heads;
        match passes.min(groups) {
            0 => 1,
            most => 1 << most.ilog2(),
        }
    }
}

/// Lowers the step of a bound model.
pub fn lower(input: &Input<'_>) -> Result<Lowered, LowerError> {
    let Input { bound, options, .. } = *input;
    let layout::Layout {
        mut buffers,
        tensors,
        ids,
    } = layout::layout(input)?;
    let first_value = buffers.len() as BufferId;
    let tables = select::Tables {
        geometry: &bound.geometry,
        options,
        tensors: &tensors,
        ids: &ids,
        values: first_value,
        target: input.target,
        rope: input.graph.rope,
        splits: input.splits(),
        spilled: input.spilled,
        no_fuse: input.no_fuse,
    };
    let ranges = WordRanges::of(&bound.geometry, options);
    let (selected, values) = select::select(&tables, input.graph)?;
    let (steps, kernels) = launches(selected, &tables, &ranges)?;
    let order = schedule::order(&steps);
    let mut steps: Vec<Step> = schedule::arrange(steps, &order);
    let levels = schedule::levels(&steps);
    let sizes = values
        .iter()
        .map(|value| Dtype::F32.device_bytes(1, u64::from(value.len)))
        .collect::<Result<Vec<u64>, _>>()
        .map_err(|source| LowerError::Shape {
            step: "scratch".to_owned(),
            source,
        })?;
    check_capacity(&steps, first_value, &values, &sizes)?;
    let align = u64::from(ALIGN);
    if let Some(hand_off) = ids.hand_off {
        buffers[hand_off as usize].bytes = host::hand_off_bytes(&steps, hand_off);
    }
    buffers[ids.scratch as usize].bytes =
        arena::place(&mut steps, &levels, first_value, &sizes, ids.scratch, align);
    if buffers
        .last()
        .is_some_and(|last| last.kind == BufferKind::HandOff && last.bytes == 0)
    {
        buffers.pop();
    }
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
    first_value: BufferId,
    values: &[Value],
    sizes: &[u64],
) -> Result<(), LowerError> {
    for step in steps {
        let (reads, writes) = step.effects();
        for region in reads
            .chain(writes)
            .filter(|region| region.buffer >= first_value)
        {
            let value = (region.buffer - first_value) as usize;
            let (end, bytes) = (
                region.bound().1,
                sizes.get(value).copied().unwrap_or_default(),
            );
            if end > bytes {
                let value = values.get(value).map_or("", |value| value.name);
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

/// The launches in decode order, and the kernels they use, sorted by symbol.
fn launches(
    selected: Vec<select::Selected>,
    tables: &select::Tables<'_>,
    ranges: &WordRanges,
) -> Result<(Vec<Step>, Vec<Kernel>), LowerError> {
    let rows: BTreeMap<&str, &KernelRow> = selected
        .iter()
        .flat_map(|step| &step.calls)
        .map(|call| (call.row.symbol, call.row))
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
    let step = |selected: select::Selected| {
        let select::Selected {
            name,
            layer,
            calls,
            host,
        } = selected;
        let launch = |call: select::Call| {
            let select::Call { row, args } = call;
            let shape = |source| LowerError::Shape {
                step: name.clone(),
                source,
            };
            let effects = declare(row, &args, ranges, tables.ids.control).map_err(shape)?;
            let (reads, writes) = effects.regions();
            let groups = row.blocks(&immediates(&args)).map_err(shape)?;
            let kernel = position.get(row.symbol).copied().unwrap_or_default();
            Ok(Launch {
                kernel,
                grid: [groups, 1, 1],
                args,
                reads,
                writes,
            })
        };
        let launches = calls.into_iter().map(launch);
        let launches = launches.collect::<Result<Vec<_>, LowerError>>()?;
        let body = body(launches, host).ok_or_else(|| LowerError::NoRow {
            step: name.clone(),
            op: "a step without launches and products".to_owned(),
        })?;
        Ok(Step { name, layer, body })
    };
    let steps = selected
        .into_iter()
        .map(step)
        .collect::<Result<Vec<_>, LowerError>>()?;
    Ok((steps, kernels))
}

/// A launch, a step of the host, or both at once; `None` of nothing.
fn body(mut launches: Vec<Launch>, host: Option<HostStep>) -> Option<StepBody> {
    match host {
        Some(host) if launches.is_empty() => Some(StepBody::Cpu(host)),
        Some(host) => Some(StepBody::Split(SplitStep { launches, host })),
        None => launches.pop().map(StepBody::Launch),
    }
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
