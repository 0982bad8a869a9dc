//! Operations to kernels: which rows of the table a step uses, and what their arguments are.
//!
//! Fusions are tried where they are not switched off and every kernel they need exists for the
//! target, the types and the head size; an operation for which nothing exists is an error.

use super::LowerError;
use super::layout::BufferIds;
use super::table::{FUSED, On, PLAIN, Row, Source};
use crate::arch::RopeStyle;
use crate::graph::{Graph, Node, ValueId};
use crate::plan::{Arg, BufferId, Geometry, Options, Tensor};
use refrain_kernels::{Dtype, KernelRow, Op as KernelOp, Target, catalog, code_object, find_op};

/// Tables that arguments point into.
pub(super) struct Tables<'a> {
    pub geometry: &'a Geometry,
    pub options: &'a Options,
    pub tensors: &'a [Tensor],
    pub ids: &'a BufferIds,
    /// First buffer id of the values; value `v` is buffer `values + v`.
    pub values: BufferId,
    pub target: Target,
    pub rope: RopeStyle,
    /// Fusions that are switched off.
    pub no_fuse: &'a [String],
}

/// One launch to be.
pub(super) struct Selected {
    pub name: String,
    pub layer: Option<u32>,
    pub row: &'static KernelRow,
    /// Arguments in the kernel's order.
    pub args: Vec<Arg>,
}

/// Kernels and arguments of a run of operations between which no barrier lies.
pub(super) fn select(tables: &Tables<'_>, graph: &Graph) -> Result<Vec<Selected>, LowerError> {
    for name in tables.no_fuse {
        if !FUSED.iter().any(|row| row.name == name) {
            let known = FUSED.iter().map(|row| row.name).collect::<Vec<_>>();
            return Err(LowerError::UnknownFusion {
                found: name.clone(),
                known: known.join(", "),
            });
        }
    }
    let last_reads = last_reads(graph);
    let mut selected = Vec::with_capacity(graph.nodes.len());
    let mut at = 0;
    while let Some(rest) = graph.nodes.get(at..).filter(|rest| !rest.is_empty()) {
        let fused = FUSED.iter().find_map(|row| {
            let nodes = rest.get(..row.ops.len())?;
            let window = Window {
                tables,
                graph,
                row,
                nodes,
            };
            let kernel = window.fits(at + nodes.len(), &last_reads)?;
            Some((window, kernel))
        });
        let (window, kernel) = match fused {
            Some(found) => found,
            None => {
                let nodes = &rest[..1];
                let row = plain(&nodes[0])?;
                let window = Window {
                    tables,
                    graph,
                    row,
                    nodes,
                };
                let kernel = window.demand_kernel()?;
                (window, kernel)
            }
        };
        selected.push(window.launch(kernel)?);
        at += window.nodes.len();
    }
    Ok(selected)
}

/// The table's row for one operation.
fn plain(node: &Node) -> Result<&'static Row, LowerError> {
    let row = PLAIN.iter().find(|row| row.ops == [node.op]);
    row.ok_or_else(|| LowerError::NoRow {
        step: node.name.clone(),
        op: format!("{:?}", node.op),
    })
}

/// Position of the last operation that reads each value.
fn last_reads(graph: &Graph) -> Vec<Option<usize>> {
    let mut last = vec![None; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        for value in &node.reads {
            last[*value] = Some(index);
        }
    }
    last
}

/// A row of the table laid over operations.
struct Window<'a> {
    tables: &'a Tables<'a>,
    graph: &'a Graph,
    row: &'static Row,
    nodes: &'a [Node],
}

/// The catalog's type, head size.
type Specialisation = (Option<Dtype>, Option<u32>);

impl Window<'_> {
    /// The kernel, if this fusion may stand for the operations up to `end`.
    fn fits(&self, end: usize, last_reads: &[Option<usize>]) -> Option<&'static KernelRow> {
        let same_ops = self
            .nodes
            .iter()
            .map(|node| node.op)
            .eq(self.row.ops.iter().copied());
        let layer = self.nodes.first()?.layer;
        let one_layer = self.nodes.iter().all(|node| node.layer == layer);
        let enabled = !self.tables.no_fuse.iter().any(|name| name == self.row.name);
        if !(same_ops && one_layer && enabled) {
            return None;
        }
        let same = |(a, b): &(Source, Source)| self.value(*a) == self.value(*b);
        if !self.row.same.iter().all(same) {
            return None;
        }
        let lost = self
            .row
            .dead
            .iter()
            .filter_map(|source| self.value(*source));
        let mut lost = lost.chain(self.unbound());
        if lost.any(|value| last_reads[value].is_some_and(|reader| reader >= end)) {
            return None;
        }
        if self.first_other_type().is_some() {
            return None;
        }
        let (dtype, head_dim) = self.specialisation();
        let kernel = find_op(self.row.kernel, dtype, head_dim)?;
        code_object(self.tables.target).kernel(kernel.symbol)?;
        let args = self.args(kernel).ok()?;
        kernel.check(&super::effects::immediates(&args)).ok()?;
        Some(kernel)
    }

    /// Values written by the operations that no argument takes.
    fn unbound(&self) -> impl Iterator<Item = ValueId> {
        let bound: Vec<_> = self
            .row
            .args
            .iter()
            .filter_map(|(_, s)| self.value(*s))
            .collect();
        let written = self
            .nodes
            .iter()
            .flat_map(|node| node.writes.iter().copied());
        written.filter(move |value| !bound.contains(value))
    }

    /// The kernel of a single operation, or what is missing.
    fn demand_kernel(&self) -> Result<&'static KernelRow, LowerError> {
        if let Some(dtype) = self.first_other_type() {
            let exists = Dtype::F32.to_string();
            return Err(self.no_kernel(format!("weight type {dtype}"), exists));
        }
        let (dtype, head_dim) = self.specialisation();
        let Some(row) = find_op(self.row.kernel, dtype, head_dim) else {
            let exists = catalog().iter().filter(|row| row.op == self.row.kernel);
            let exists: Vec<_> = exists
                .map(|row| describe(row.dtype, row.head_dim))
                .collect();
            let exists = if exists.is_empty() {
                "none".to_owned()
            } else {
                exists.join(", ")
            };
            return Err(self.no_kernel(describe(dtype, head_dim), exists));
        };
        if code_object(self.tables.target).kernel(row.symbol).is_none() {
            return Err(LowerError::NotInObject {
                step: self.step(),
                symbol: row.symbol,
                target: self.tables.target,
            });
        }
        Ok(row)
    }

    fn no_kernel(&self, wanted: String, exists: String) -> LowerError {
        let op: KernelOp = self.row.kernel;
        LowerError::NoKernel {
            step: self.step(),
            op: format!("{op:?}"),
            wanted,
            target: self.tables.target,
            exists,
        }
    }

    /// Name of the step: the operation's own, or the fusion's in its layer.
    fn step(&self) -> String {
        match self.nodes {
            [node] => node.name.clone(),
            _ => match self.nodes.first().and_then(|node| node.layer) {
                Some(layer) => format!("blk.{layer}.{}", self.row.name),
                None => self.row.name.to_owned(),
            },
        }
    }

    fn launch(&self, kernel: &'static KernelRow) -> Result<Selected, LowerError> {
        let args = self.args(kernel)?;
        let imms = super::effects::immediates(&args);
        kernel.check(&imms).map_err(|source| LowerError::Shape {
            step: self.step(),
            source,
        })?;
        Ok(Selected {
            name: self.step(),
            layer: self.nodes.first().and_then(|node| node.layer),
            row: kernel,
            args,
        })
    }

    /// Weight operands of the row with their tensors.
    fn weights(&self) -> impl Iterator<Item = ((usize, usize), &Tensor)> {
        self.row
            .args
            .iter()
            .filter_map(|(_, source)| match *source {
                Source::Weight(op, slot) => Some(((op, slot), self.tensor(op, slot)?)),
                _ => None,
            })
    }

    /// First weight type that the row does not take where it stands.
    fn first_other_type(&self) -> Option<Dtype> {
        let (specialised, _) = self.specialisation();
        let other = |(place, tensor): ((usize, usize), &Tensor)| {
            let wanted = match self.row.on {
                On::Weights(places) if places.contains(&place) => specialised?,
                _ => Dtype::F32,
            };
            (tensor.dtype != wanted).then_some(tensor.dtype)
        };
        self.weights().find_map(other)
    }

    fn specialisation(&self) -> Specialisation {
        let cache = Some(self.tables.options.kv_dtype);
        match self.row.on {
            On::Nothing => (None, None),
            On::Weights(places) => {
                let first = places
                    .first()
                    .and_then(|(op, slot)| self.tensor(*op, *slot));
                (first.map(|tensor| tensor.dtype), None)
            }
            On::Cache => (cache, None),
            On::CacheAndHead => (cache, Some(self.tables.geometry.head_dim)),
        }
    }

    fn args(&self, kernel: &'static KernelRow) -> Result<Vec<Arg>, LowerError> {
        let bind = |arg: &refrain_kernels::Arg| {
            let mut named = self.row.args.iter().filter(|(name, _)| *name == arg.name);
            named
                .find_map(|(_, source)| self.arg(*source))
                .ok_or_else(|| LowerError::UnknownArgument {
                    step: self.step(),
                    symbol: kernel.symbol,
                    arg: arg.name,
                })
        };
        kernel.args.iter().map(bind).collect()
    }

    fn arg(&self, source: Source) -> Option<Arg> {
        let region = |buffer| Some(Arg::Region { buffer, offset: 0 });
        let (t, ids) = (self.tables, self.tables.ids);
        let layer = || self.nodes.first()?.layer.map(|layer| layer as usize);
        match source {
            Source::In(..) | Source::Out(..) => region(t.values + self.value(source)? as BufferId),
            Source::Weight(op, slot) => {
                let Tensor { buffer, offset, .. } = *self.tensor(op, slot)?;
                Some(Arg::Region { buffer, offset })
            }
            Source::Rows(op, slot) => Some(Arg::Imm(self.tensor(op, slot)?.rows)),
            Source::Cols(op, slot) => Some(Arg::Imm(self.tensor(op, slot)?.cols)),
            Source::Len(op, slot) => {
                let value = self.value(Source::Out(op, slot))?;
                Some(Arg::Imm(self.graph.values.get(value)?.len))
            }
            Source::Size(dim) => Some(Arg::Imm(dim.of(t.geometry))),
            Source::Zero => Some(Arg::Imm(0)),
            Source::Control => Some(Arg::WordAddr { offset: 0 }),
            Source::Prompt => region(ids.prompt),
            Source::Ring => region(ids.ring),
            Source::Rotation => region(ids.rope),
            Source::Interleaved => Some(Arg::Imm(u32::from(t.rope == RopeStyle::AdjacentPairs))),
            Source::Eps => Some(Arg::Imm(t.geometry.norm_eps.to_bits())),
            Source::Scale => {
                let scale = 1.0 / libm::sqrt(f64::from(t.geometry.head_dim));
                Some(Arg::Imm((scale as f32).to_bits()))
            }
            Source::Keys => region(*ids.state.get(layer()?)?.first()?),
            Source::Values => region(*ids.state.get(layer()?)?.get(1)?),
            Source::State(number) => region(*ids.state.get(layer()?)?.get(number)?),
        }
    }

    fn value(&self, source: Source) -> Option<ValueId> {
        match source {
            Source::In(op, slot) => self.nodes.get(op)?.reads.get(slot).copied(),
            Source::Out(op, slot) => self.nodes.get(op)?.writes.get(slot).copied(),
            _ => None,
        }
    }

    fn tensor(&self, op: usize, slot: usize) -> Option<&Tensor> {
        let weight = self.nodes.get(op)?.weights.get(slot)?;
        self.tables.tensors.get(*weight)
    }
}

fn describe(dtype: Option<Dtype>, head_dim: Option<u32>) -> String {
    match (dtype, head_dim) {
        (None, None) => "any type".to_owned(),
        (None, Some(dims)) => format!("head_dim {dims}"),
        (Some(dtype), None) => dtype.to_string(),
        (Some(dtype), Some(dims)) => format!("{dtype} head_dim {dims}"),
    }
}
