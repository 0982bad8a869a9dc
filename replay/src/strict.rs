//! A plan's declared effects as the software GPU's strict mode takes them: addresses of one instance
//! and, where a range moves with a control word, the address of that word.

use refrain_kernels::find;
use refrain_planner::plan::{Arg, BufferId, Extent, Launch, Plan, Region};
use refrain_recorder::Instance;
use refrain_softgpu::strict::{
    DeclaredArg, DeclaredBuffer, DeclaredExtent, DeclaredLaunch, DeclaredRange,
};
use std::sync::Arc;

pub use refrain_softgpu::strict::{
    Declarations, Footprint, Report, ReportKind, Reports, StrictConfig, read_footprints,
    write_footprints,
};

/// Declarations of one token of the instance's plan, for [`refrain_softgpu::SoftGpu::declare`].
pub fn declarations(instance: &Instance) -> Declarations {
    let plan = instance.plan();
    let buffers = (0..).zip(&plan.buffers).map(|(id, buffer)| DeclaredBuffer {
        name: Arc::from(buffer.name.as_str()),
        va: instance.base(id),
        len: buffer.bytes,
    });
    let launches = plan.launches().map(|(step, launch)| {
        let step = plan.steps.get(step as usize);
        let step = step.map_or("", |step| step.name.as_str());
        let kernel = plan.kernels.get(launch.kernel as usize);
        let symbol = kernel.map_or("", |kernel| kernel.symbol.as_str());
        DeclaredLaunch {
            step: Arc::from(step),
            kernel: Arc::from(symbol),
            args: arguments(plan, launch, symbol, &|id| instance.base(id)),
        }
    });
    Declarations {
        buffers: buffers.collect(),
        launches: launches.collect(),
    }
}

/// The pointer arguments, each with the regions that begin at or after it and before the next one
/// in the same buffer. Which argument a region is shown with has no influence on what is allowed.
fn arguments(
    plan: &Plan,
    launch: &Launch,
    symbol: &str,
    base: &dyn Fn(BufferId) -> u64,
) -> Vec<DeclaredArg> {
    let names = find(symbol).map_or(&[] as &[_], |row| row.args);
    let control = plan.control_buffer();
    let mut args = Vec::new();
    // Buffer and offset that each entry of `args` points to.
    let mut places = Vec::new();
    for (index, arg) in launch.args.iter().enumerate() {
        let place = match (*arg, control) {
            (Arg::Region { buffer, offset }, _) => (buffer, offset),
            (Arg::WordAddr { offset }, Some(control)) => (control, u64::from(offset)),
            _ => continue,
        };
        let name = names.get(index).map_or("", |row| row.name);
        places.push(place);
        args.push(DeclaredArg {
            name: Arc::from(name),
            va: base(place.0).wrapping_add(place.1),
            ..DeclaredArg::default()
        });
    }
    for (regions, write) in [(&launch.reads, false), (&launch.writes, true)] {
        for region in regions {
            let owner = owner(&places, region).unwrap_or_else(|| {
                places.push((region.buffer, region.offset));
                args.push(DeclaredArg::default());
                args.len() - 1
            });
            let range = range(region, base, control);
            if let Some(arg) = args.get_mut(owner) {
                let list = if write {
                    &mut arg.writes
                } else {
                    &mut arg.reads
                };
                list.push(range);
            }
        }
    }
    args
}

fn owner(places: &[(BufferId, u64)], region: &Region) -> Option<usize> {
    let inside = places
        .iter()
        .enumerate()
        .filter(|(_, (buffer, offset))| *buffer == region.buffer && *offset <= region.offset);
    inside
        .max_by_key(|(_, (_, offset))| *offset)
        .map(|(index, _)| index)
}

fn range(
    region: &Region,
    base: &dyn Fn(BufferId) -> u64,
    control: Option<BufferId>,
) -> DeclaredRange {
    let word_at = |offset: u32| control.map_or(0, base).wrapping_add(u64::from(offset));
    let extent = match region.extent {
        Extent::Fixed { bytes } => DeclaredExtent::Bytes(bytes),
        Extent::Row {
            word,
            stride,
            bytes,
            count,
        } => DeclaredExtent::Row {
            word: word_at(word),
            stride,
            bytes,
            count,
        },
        Extent::RowsTo {
            word,
            stride,
            count,
        } => DeclaredExtent::RowsTo {
            word: word_at(word),
            stride,
            count,
        },
    };
    DeclaredRange {
        va: base(region.buffer).wrapping_add(region.offset),
        extent,
    }
}
