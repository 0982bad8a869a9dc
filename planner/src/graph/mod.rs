//! The operations of one decode step in order, over values that are written once.
//!
//! Made from a declaration by repeating its layer operations; each time an operation names a value
//! as output, a new instance begins. Operations that change a value in place keep its instance.
//! Which kernel does an operation and where values lie is `lowering`'s business.

use crate::arch::{Bound, OpDecl, RopeStyle, ValueDecl, WeightDecl, each_op};
use std::collections::HashMap;

/// Index into [`Graph::values`].
pub type ValueId = usize;
/// Index into [`Bound::weights`].
pub type WeightId = usize;

/// One decode step.
#[derive(Debug)]
pub struct Graph {
    /// Activation vectors of f32.
    pub values: Vec<Value>,
    /// Operations in decode order.
    pub nodes: Vec<Node>,
}

/// One instance of an activation vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Declared name, e.g. `q`.
    pub name: &'static str,
    /// Elements.
    pub len: u32,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Unique name, e.g. `blk.0.attn_q`.
    pub name: String,
    /// Layer, if it belongs to one.
    pub layer: Option<u32>,
    /// What is done.
    pub op: Op,
}

/// An operation over values and weights. Mathematics: models.md 2.3, kernel catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "fields are those of arch::OpDecl, resolved to indices"
)]
pub enum Op {
    /// `out = table[token]`.
    Embed { table: WeightId, out: ValueId },
    /// RMS norm.
    RmsNorm {
        x: ValueId,
        weight: WeightId,
        out: ValueId,
    },
    /// Matrix times vector, plus residual if there is one.
    Gemv {
        weight: WeightId,
        x: ValueId,
        residual: Option<ValueId>,
        out: ValueId,
    },
    /// RMS norm per head, in place.
    QkNorm {
        q: ValueId,
        k: ValueId,
        q_weight: WeightId,
        k_weight: WeightId,
    },
    /// Rotation, in place.
    Rope {
        q: ValueId,
        k: ValueId,
        style: RopeStyle,
    },
    /// Append to the layer's cache.
    KvWrite { k: ValueId, v: ValueId },
    /// Attention over the layer's cache.
    Attention { q: ValueId, out: ValueId },
    /// `out = silu(gate) * up`.
    SiluMul {
        gate: ValueId,
        up: ValueId,
        out: ValueId,
    },
    /// Greedy choice.
    Argmax { logits: ValueId },
    /// Next position.
    Advance,
}

/// A declaration that contradicts itself; a test runs every declaration through [`build`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// An operation reads a value that nothing wrote before.
    #[error(
        "declaration of {arch}: {op} reads {value} before anything writes it: correct the declaration"
    )]
    Unwritten {
        /// Architecture.
        arch: &'static str,
        /// Operation.
        op: String,
        /// Value.
        value: &'static str,
    },
    /// A weight that binding did not provide.
    #[error(
        "declaration of {arch}: {op} reads {weight}, which was not bound: correct the declaration"
    )]
    Unbound {
        /// Architecture.
        arch: &'static str,
        /// Operation.
        op: String,
        /// Weight.
        weight: String,
    },
}

/// Builds the step of a bound model.
pub fn build(bound: &Bound) -> Result<Graph, GraphError> {
    let mut builder = Builder {
        bound,
        graph: Graph {
            values: Vec::new(),
            nodes: Vec::new(),
        },
        current: HashMap::new(),
    };
    for (layer, decl) in each_op(bound.arch, bound.geometry.layers) {
        builder.add(layer, decl)?;
    }
    Ok(builder.graph)
}

struct Builder<'a> {
    bound: &'a Bound,
    graph: Graph,
    /// Latest instance of each declared value.
    current: HashMap<&'static str, ValueId>,
}

impl Builder<'_> {
    fn add(&mut self, layer: Option<u32>, decl: &'static OpDecl) -> Result<(), GraphError> {
        let name = step_name(layer, decl);
        let op = match *decl {
            OpDecl::Embed { table, out } => Op::Embed {
                table: self.weight(&name, layer, table)?,
                out: self.write(out),
            },
            OpDecl::RmsNorm { x, weight, out } => Op::RmsNorm {
                x: self.read(&name, x)?,
                weight: self.weight(&name, layer, weight)?,
                out: self.write(out),
            },
            OpDecl::Gemv {
                weight,
                x,
                residual,
                out,
            } => Op::Gemv {
                weight: self.weight(&name, layer, weight)?,
                x: self.read(&name, x)?,
                residual: residual.map(|value| self.read(&name, value)).transpose()?,
                out: self.write(out),
            },
            OpDecl::QkNorm {
                q,
                k,
                q_weight,
                k_weight,
            } => Op::QkNorm {
                q: self.read(&name, q)?,
                k: self.read(&name, k)?,
                q_weight: self.weight(&name, layer, q_weight)?,
                k_weight: self.weight(&name, layer, k_weight)?,
            },
            OpDecl::Rope { q, k } => Op::Rope {
                q: self.read(&name, q)?,
                k: self.read(&name, k)?,
                style: self.bound.arch.rope,
            },
            OpDecl::KvWrite { k, v } => Op::KvWrite {
                k: self.read(&name, k)?,
                v: self.read(&name, v)?,
            },
            OpDecl::Attention { q, out } => Op::Attention {
                q: self.read(&name, q)?,
                out: self.write(out),
            },
            OpDecl::SiluMul { gate, up, out } => Op::SiluMul {
                gate: self.read(&name, gate)?,
                up: self.read(&name, up)?,
                out: self.write(out),
            },
            OpDecl::Argmax { logits } => Op::Argmax {
                logits: self.read(&name, logits)?,
            },
            OpDecl::Advance => Op::Advance,
        };
        self.graph.nodes.push(Node { name, layer, op });
        Ok(())
    }

    fn read(&self, op: &str, value: &'static ValueDecl) -> Result<ValueId, GraphError> {
        self.current
            .get(value.name)
            .copied()
            .ok_or_else(|| GraphError::Unwritten {
                arch: self.bound.arch.name,
                op: op.to_owned(),
                value: value.name,
            })
    }

    fn write(&mut self, value: &'static ValueDecl) -> ValueId {
        let id = self.graph.values.len();
        let len = value.len.of(&self.bound.geometry);
        self.graph.values.push(Value {
            name: value.name,
            len,
        });
        self.current.insert(value.name, id);
        id
    }

    fn weight(
        &self,
        op: &str,
        layer: Option<u32>,
        decl: &'static WeightDecl,
    ) -> Result<WeightId, GraphError> {
        self.bound
            .weight(decl, layer)
            .ok_or_else(|| GraphError::Unbound {
                arch: self.bound.arch.name,
                op: op.to_owned(),
                weight: decl.file_name(layer),
            })
    }
}

/// Name of the step: that of its weight where it has one, else of the operation.
fn step_name(layer: Option<u32>, decl: &OpDecl) -> String {
    let stem = match decl {
        OpDecl::Embed { .. } => "embed",
        OpDecl::RmsNorm { weight, .. } | OpDecl::Gemv { weight, .. } => weight.name,
        OpDecl::QkNorm { .. } => "blk.{}.qk_norm",
        OpDecl::Rope { .. } => "blk.{}.rope",
        OpDecl::KvWrite { .. } => "blk.{}.kv_write",
        OpDecl::Attention { .. } => "blk.{}.attention",
        OpDecl::SiluMul { .. } => "blk.{}.silu_mul",
        OpDecl::Argmax { .. } => "argmax",
        OpDecl::Advance => "advance",
    };
    layer.map_or_else(
        || stem.to_owned(),
        |layer| stem.replace("{}", &layer.to_string()),
    )
}
