//! Steps of a plan: arguments against the catalog row, grid, declared regions, bounds, aliasing.

use super::error::{CheckError, Place};
use super::host;
use crate::lowering::{Effects, WordRanges, declare, immediates, kind_matches};
use crate::plan::{Arg, BufferId, BufferKind, Launch, Plan, Region, Step, Tensor};
use refrain_kernels::{ArgKind, KernelRow, Target, find};
use std::collections::HashMap;

pub(super) fn check(plan: &Plan, target: Target) -> Result<(), CheckError> {
    if plan.steps.is_empty() {
        let place = Place::Step(0, "none".to_owned());
        return Err(CheckError::mismatch(place, "steps", 0, "at least one"));
    }
    let ranges = WordRanges::of(&plan.model.geometry, &plan.options);
    let mut tensors: HashMap<BufferId, Vec<&Tensor>> = HashMap::new();
    for tensor in &plan.model.tensors {
        tensors.entry(tensor.buffer).or_default().push(tensor);
    }
    let mut used = vec![false; plan.kernels.len()];
    for (id, step) in plan.steps.iter().enumerate() {
        let id = id as u32;
        let layers = plan.model.geometry.layers;
        if step.layer.is_some_and(|layer| layer >= layers) {
            let place = Place::Step(id, step.name.clone());
            let found = format!("{:?}", step.layer);
            return Err(CheckError::mismatch(place, "layer", found, layers));
        }
        for launch in step.body.launches() {
            let checker = Checker {
                plan,
                tensors: &tensors,
                step,
                launch,
                id,
            };
            checker.check(&ranges, target)?;
            used[launch.kernel as usize] = true;
        }
        host::check(plan, id, step)?;
    }
    if let Some(kernel) = used.iter().position(|used| !used) {
        let place = Place::Kernel(plan.kernels[kernel].symbol.clone());
        return Err(CheckError::mismatch(place, "launches", 0, "at least one"));
    }
    Ok(())
}

struct Checker<'a> {
    plan: &'a Plan,
    /// Tensors by buffer; each owner holds those of one layer.
    tensors: &'a HashMap<BufferId, Vec<&'a Tensor>>,
    step: &'a Step,
    launch: &'a Launch,
    id: u32,
}

impl Checker<'_> {
    fn place(&self) -> Place {
        Place::Step(self.id, self.step.name.clone())
    }

    fn wrong(
        &self,
        what: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> CheckError {
        CheckError::mismatch(self.place(), what, found, expected)
    }

    fn check(&self, ranges: &WordRanges, target: Target) -> Result<(), CheckError> {
        let kernel = self.plan.kernels.get(self.launch.kernel as usize);
        let Some(row) = kernel.and_then(|kernel| find(&kernel.symbol)) else {
            let expected = format!("below {}, in the {target} catalog", self.plan.kernels.len());
            return Err(self.wrong("kernel", self.launch.kernel, expected));
        };
        self.plan.kernarg_layout_of(self.id, self.launch)?;
        for (decl, arg) in row.args.iter().zip(&self.launch.args) {
            self.argument(decl.kind, arg)?;
        }
        let imms = immediates(&self.launch.args);
        let catalog = |source| CheckError::Catalog {
            place: self.place(),
            source,
        };
        row.check(&imms).map_err(catalog)?;
        let grid = [row.blocks(&imms).map_err(catalog)?, 1, 1];
        if self.launch.grid != grid || grid[0] == 0 {
            let found = format!("{:?}", self.launch.grid);
            return Err(self.wrong("grid", found, format!("{grid:?}, none 0")));
        }
        let control = self.plan.control_buffer().unwrap_or_default();
        let effects = declare(row, &self.launch.args, ranges, control).map_err(catalog)?;
        let (reads, writes) = effects.regions();
        if self.launch.reads != reads {
            return Err(self.wrong(
                "reads",
                first_other(&self.launch.reads, &reads),
                "the catalog's",
            ));
        }
        if self.launch.writes != writes {
            let found = first_other(&self.launch.writes, &writes);
            return Err(self.wrong("writes", found, "the catalog's"));
        }
        for region in &reads {
            self.bounds("read", region)?;
        }
        for region in &writes {
            self.bounds("write", region)?;
        }
        self.aliases(row, &effects)
    }

    fn argument(&self, kind: ArgKind, arg: &Arg) -> Result<(), CheckError> {
        if !kind_matches(kind, arg) {
            return Err(self.wrong("argument", format!("{arg:?}"), format!("{kind:?}")));
        }
        match *arg {
            Arg::Imm(_) => Ok(()),
            Arg::WordAddr { offset } => {
                // Kernels take the block's base; a shifted one would name other words.
                if offset == 0 {
                    Ok(())
                } else {
                    Err(self.wrong("word address", offset, 0))
                }
            }
            Arg::Region { buffer, offset } => {
                let Some(found) = self.plan.buffers.get(buffer as usize) else {
                    let expected = format!("below {}", self.plan.buffers.len());
                    return Err(self.wrong("buffer of an argument", buffer, expected));
                };
                if found.kind == BufferKind::Control {
                    return Err(self.wrong("argument", "control by region", "by word address"));
                }
                // 16-byte vector loads: refrain_kernels' sources state the need.
                if !offset.is_multiple_of(16) || offset >= found.bytes {
                    let expected = format!("a multiple of 16 below {}", found.bytes);
                    return Err(self.wrong("offset of an argument", offset, expected));
                }
                Ok(())
            }
        }
    }

    fn bounds(&self, access: &'static str, region: &Region) -> Result<(), CheckError> {
        let Some(buffer) = self.plan.buffers.get(region.buffer as usize) else {
            let expected = format!("below {}", self.plan.buffers.len());
            return Err(self.wrong("buffer of a region", region.buffer, expected));
        };
        let (begin, end) = region.bound();
        if end > buffer.bytes || begin > end {
            return Err(CheckError::OutOfBounds {
                place: self.place(),
                access,
                buffer: buffer.name.clone(),
                begin,
                end,
                bytes: buffer.bytes,
            });
        }
        if buffer.kind.holds_weights() {
            let of_buffer = self
                .tensors
                .get(&region.buffer)
                .map_or(&[][..], Vec::as_slice);
            let inside =
                |tensor: &&Tensor| tensor.offset <= begin && end <= tensor.offset + tensor.bytes;
            if !of_buffer.iter().any(inside) {
                let found = format!("{begin}..{end} of {}", buffer.name);
                return Err(self.wrong("weight region", found, "inside one tensor"));
            }
        }
        if buffer.kind == BufferKind::SpilledWeights {
            // `tables` found the number to be at most the layers.
            let layers = self.plan.model.geometry.layers;
            let prefix = layers.saturating_sub(self.plan.options.gpu_layers);
            if self.step.layer.is_none_or(|layer| layer >= prefix) {
                let found = format!("{:?} in {}", self.step.layer, buffer.name);
                let expected = format!("below {prefix}, the spilled ones");
                return Err(self.wrong("layer of a spilled weight", found, expected));
            }
        }
        let constant = buffer.kind.holds_weights()
            || matches!(buffer.kind, BufferKind::Constant | BufferKind::Prompt);
        if access == "write" && constant {
            let found = buffer.name.clone();
            return Err(self.wrong("written buffer", found, "one that steps may write"));
        }
        Ok(())
    }

    /// Two arguments may meet only if neither is written or the row allows the pair.
    fn aliases(&self, row: &'static KernelRow, effects: &Effects) -> Result<(), CheckError> {
        let all = effects.reads.iter().chain(&effects.writes);
        for (a, written) in &effects.writes {
            for (b, other) in all.clone().filter(|(b, _)| a != b) {
                if !written.may_overlap(other) {
                    continue;
                }
                let name = |position: usize| row.args.get(position).map_or("", |arg| arg.name);
                let (first, second) = (name(*a), name(*b));
                let allowed =
                    |pair: &(&str, &str)| *pair == (first, second) || *pair == (second, first);
                // An allowed pair is the same address, not a shifted one.
                if row.may_alias.iter().any(allowed) && written.offset == other.offset {
                    continue;
                }
                let buffer = self.plan.buffers.get(written.buffer as usize);
                return Err(CheckError::Alias {
                    place: self.place(),
                    kernel: row.symbol,
                    first,
                    second,
                    buffer: buffer.map_or_else(String::new, |buffer| buffer.name.clone()),
                });
            }
        }
        Ok(())
    }
}

fn first_other(found: &[Region], expected: &[Region]) -> String {
    let index = found.iter().zip(expected).position(|(a, b)| a != b);
    match index {
        Some(index) => format!("{:?} (entry {index})", found[index]),
        None => format!("{} regions", found.len()),
    }
}
