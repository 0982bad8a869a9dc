//! The operations of one decode step in order, over values that are written once.
//!
//! Made from a declaration by writing its layers out; each time an operation names a value as
//! output, a new instance begins. Operations that change a value in place keep its instance. Which
//! kernel does which operations and where values lie is `lowering`'s business.

pub use crate::arch::Op;

use crate::arch::{Bound, OpDecl, Operands, RopeStyle, ValueDecl, WeightDecl, each_op};
use std::collections::HashMap;

/// Index into [`Graph::values`].
pub type ValueId = usize;
/// Index into [`Bound::weights`].
pub type WeightId = usize;

/// One decode step.
#[derive(Debug)]
pub struct Graph {
    /// Activation vectors of 4-byte elements.
    pub values: Vec<Value>,
    /// Operations in decode order.
    pub nodes: Vec<Node>,
    /// Which elements of a head one rotation turns.
    pub rope: RopeStyle,
}

/// One instance of an activation vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Declared name, e.g. `q`.
    pub name: &'static str,
    /// Elements.
    pub len: u32,
}

/// One operation; operands in the order of [`OpDecl::operands`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Unique name, e.g. `blk.0.attn_q`.
    pub name: String,
    /// Layer, if it belongs to one.
    pub layer: Option<u32>,
    /// What is done.
    pub op: Op,
    /// Values read (or changed in place).
    pub reads: Vec<ValueId>,
    /// Values written whole.
    pub writes: Vec<ValueId>,
    /// Weights.
    pub weights: Vec<WeightId>,
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
            rope: bound.arch.rope,
        },
        current: HashMap::new(),
    };
    for (layer, decl) in each_op(bound.arch, &bound.kinds) {
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
        let Operands {
            op,
            reads,
            writes,
            weights,
        } = decl.operands();
        let name = step_name(layer, op, weights.first().copied(), writes.first().copied());
        let reads = reads.into_iter().map(|value| self.read(&name, value));
        let reads = reads.collect::<Result<_, _>>()?;
        let weights = weights.into_iter().map(|w| self.weight(&name, layer, w));
        let weights = weights.collect::<Result<_, _>>()?;
        let writes = writes.into_iter().map(|value| self.write(value)).collect();
        self.graph.nodes.push(Node {
            name,
            layer,
            op,
            reads,
            writes,
            weights,
        });
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

/// Name of the step: that of its weight where one weight is all it has, else of the operation, with
/// the output of one that a layer does more than once.
fn step_name(
    layer: Option<u32>,
    op: Op,
    weight: Option<&'static WeightDecl>,
    out: Option<&'static ValueDecl>,
) -> String {
    let of_weight = || weight.map_or("", |weight| weight.stem());
    let stem = match op {
        Op::RmsNorm | Op::Gemv | Op::GemvAdd | Op::GemvBias | Op::ExpertGemv => of_weight(),
        Op::Embed => "embed",
        Op::SplitGate => "blk.{}.split_gate",
        Op::QkNorm => "blk.{}.qk_norm",
        Op::Rope => "blk.{}.rope",
        Op::KvWrite => "blk.{}.kv_write",
        Op::Attention => "blk.{}.attention",
        Op::GateMul => "blk.{}.gate_mul",
        Op::SiluMul => match out.map(|value| value.name) {
            Some("shared_act") => "blk.{}.shared_silu_mul",
            Some("expert_act") => "blk.{}.expert_silu_mul",
            _ => "blk.{}.silu_mul",
        },
        Op::ShortConv => "blk.{}.short_conv",
        Op::ConvSilu => "blk.{}.conv_silu",
        Op::DeltaGates => "blk.{}.delta_gates",
        Op::L2Norm => "blk.{}.l2_norm",
        Op::DeltaStep => "blk.{}.delta_step",
        Op::GatedNorm => "blk.{}.gated_norm",
        Op::TopK => "blk.{}.top_k",
        Op::ExpertsDown => "blk.{}.experts_down",
        Op::GatedAdd => "blk.{}.gated_add",
        Op::Argmax => "argmax",
        Op::Advance => "advance",
    };
    layer.map_or_else(
        || stem.to_owned(),
        |layer| stem.replace("{}", &layer.to_string()),
    )
}
