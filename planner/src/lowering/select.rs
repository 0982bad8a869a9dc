//! Operations to kernels: what each operation asks of the catalog and which value each of the
//! kernel's arguments gets.
//!
//! Arguments are bound by name, so a kernel of the same operation that takes fewer or more of them
//! needs no code here.

use super::LowerError;
use super::layout::BufferIds;
use crate::arch::RopeStyle;
use crate::graph::{Node, Op, ValueId, WeightId};
use crate::plan::{Arg, BufferId, Geometry, Options, Tensor};
use refrain_kernels::{Dtype, KernelRow, Op as KernelOp, Target, catalog, code_object, find_op};

/// A value for the kernel argument of that name.
type Binding = (&'static str, Arg);

/// The control block's base, which every kernel that reads words takes.
const CONTROL: Binding = ("control", Arg::WordAddr { offset: 0 });

const fn imm(name: &'static str, value: u32) -> Binding {
    (name, Arg::Imm(value))
}

/// What a node asks for: operation, specialisation, and arguments by name.
struct Request {
    op: KernelOp,
    dtype: Option<Dtype>,
    head_dim: Option<u32>,
    args: Vec<Binding>,
}

impl Request {
    fn new(op: KernelOp, args: Vec<Binding>) -> Self {
        Self {
            op,
            dtype: None,
            head_dim: None,
            args,
        }
    }

    fn on(self, dtype: Dtype) -> Self {
        Self {
            dtype: Some(dtype),
            ..self
        }
    }
}

/// Tables that arguments point into.
pub(super) struct Tables<'a> {
    pub geometry: &'a Geometry,
    pub options: &'a Options,
    pub tensors: &'a [Tensor],
    pub ids: &'a BufferIds,
    /// First buffer id of the values; value `v` is buffer `values + v`.
    pub values: BufferId,
    pub target: Target,
}

/// Kernel and arguments, in the row's order, of a node.
pub(super) fn select(
    tables: &Tables<'_>,
    node: &Node,
) -> Result<(&'static KernelRow, Vec<Arg>), LowerError> {
    let request = tables.request(node)?;
    let step = || node.name.clone();
    let row = find_op(request.op, request.dtype, request.head_dim)
        .ok_or_else(|| tables.no_kernel(&node.name, &request))?;
    if code_object(tables.target).kernel(row.symbol).is_none() {
        let (symbol, target) = (row.symbol, tables.target);
        return Err(LowerError::NotInObject {
            step: step(),
            symbol,
            target,
        });
    }
    let bind = |arg: &refrain_kernels::Arg| {
        let found = request.args.iter().find(|(name, _)| *name == arg.name);
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| LowerError::UnknownArgument {
                step: step(),
                symbol: row.symbol,
                arg: arg.name,
            })
    };
    let args = row.args.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let imms = super::effects::immediates(&args);
    row.check(&imms).map_err(|source| LowerError::Shape {
        step: step(),
        source,
    })?;
    Ok((row, args))
}

impl Tables<'_> {
    fn request(&self, node: &Node) -> Result<Request, LowerError> {
        match node.op {
            Op::Embed { table, out } => {
                let weight = self.tensor(table);
                let args = vec![
                    ("table", self.weight(table)),
                    CONTROL,
                    ("out", self.value(out)),
                    imm("e", weight.cols),
                    imm("rows", weight.rows),
                ];
                Ok(Request::new(KernelOp::Embed, args).on(weight.dtype))
            }
            Op::RmsNorm { x, weight, out } => {
                self.demand_f32(node, KernelOp::RmsNorm, weight)?;
                let args = vec![
                    ("x", self.value(x)),
                    ("w", self.weight(weight)),
                    ("y", self.value(out)),
                    imm("n", self.tensor(weight).cols),
                    imm("eps", self.geometry.norm_eps.to_bits()),
                ];
                Ok(Request::new(KernelOp::RmsNorm, args))
            }
            Op::Gemv {
                weight,
                x,
                residual,
                out,
            } => Ok(self.gemv(weight, x, residual, out)),
            Op::QkNorm {
                q,
                k,
                q_weight,
                k_weight,
            } => {
                self.demand_f32(node, KernelOp::QkNorm, q_weight)?;
                self.demand_f32(node, KernelOp::QkNorm, k_weight)?;
                let mut args = vec![
                    ("q", self.value(q)),
                    ("k", self.value(k)),
                    ("qw", self.weight(q_weight)),
                    ("kw", self.weight(k_weight)),
                    imm("eps", self.geometry.norm_eps.to_bits()),
                ];
                args.extend(self.heads());
                Ok(Request::new(KernelOp::QkNorm, args))
            }
            _ => Ok(self.weightless(node)),
        }
    }

    fn gemv(
        &self,
        weight: WeightId,
        x: ValueId,
        residual: Option<ValueId>,
        out: ValueId,
    ) -> Request {
        let tensor = self.tensor(weight);
        let mut args = vec![
            ("w", self.weight(weight)),
            ("x", self.value(x)),
            ("y", self.value(out)),
            imm("r0", 0),
            imm("r1", tensor.rows),
            imm("k", tensor.cols),
            imm("rows", tensor.rows),
        ];
        args.extend(residual.map(|value| ("residual", self.value(value))));
        let op = if residual.is_some() {
            KernelOp::GemvAdd
        } else {
            KernelOp::Gemv
        };
        Request::new(op, args).on(tensor.dtype)
    }

    /// Operations that read no weight.
    fn weightless(&self, node: &Node) -> Request {
        let g = self.geometry;
        let layer = node.layer.unwrap_or_default();
        match node.op {
            Op::Rope { q, k, style } => {
                let mut args = vec![
                    ("q", self.value(q)),
                    ("k", self.value(k)),
                    (
                        "table",
                        Arg::Region {
                            buffer: self.ids.rope,
                            offset: 0,
                        },
                    ),
                    CONTROL,
                    imm("rot_dim", g.rope_dims),
                    imm("interleaved", u32::from(style == RopeStyle::AdjacentPairs)),
                ];
                args.extend(self.heads());
                Request::new(KernelOp::Rope, args)
            }
            Op::KvWrite { k, v } => {
                let mut args = vec![("k", self.value(k)), ("v", self.value(v)), CONTROL];
                args.extend(self.caches(layer));
                args.push(imm("kv_dim", g.kv_heads.saturating_mul(g.head_dim)));
                Request::new(KernelOp::KvWrite, args).on(self.options.kv_dtype)
            }
            Op::Attention { q, out } => {
                let scale = (1.0 / libm::sqrt(f64::from(g.head_dim))) as f32;
                let mut args = vec![("q", self.value(q)), ("out", self.value(out)), CONTROL];
                args.extend(self.caches(layer));
                args.extend(self.heads());
                args.push(imm("scale", scale.to_bits()));
                let request = Request::new(KernelOp::AttnDecode, args).on(self.options.kv_dtype);
                Request {
                    head_dim: Some(g.head_dim),
                    ..request
                }
            }
            Op::SiluMul { gate, up, out } => {
                let args = vec![
                    ("gate", self.value(gate)),
                    ("up", self.value(up)),
                    ("out", self.value(out)),
                    imm("n", g.ffn),
                ];
                Request::new(KernelOp::SiluMul, args)
            }
            Op::Argmax { logits } => {
                let args = vec![("logits", self.value(logits)), CONTROL, imm("n", g.vocab)];
                Request::new(KernelOp::Argmax, args)
            }
            _ => {
                let prompt = (
                    "prompt",
                    Arg::Region {
                        buffer: self.ids.prompt,
                        offset: 0,
                    },
                );
                let ring = (
                    "ring",
                    Arg::Region {
                        buffer: self.ids.ring,
                        offset: 0,
                    },
                );
                Request::new(KernelOp::Advance, vec![CONTROL, prompt, ring])
            }
        }
    }

    fn heads(&self) -> [Binding; 3] {
        let g = self.geometry;
        [
            imm("heads", g.heads),
            imm("kv_heads", g.kv_heads),
            imm("head_dim", g.head_dim),
        ]
    }

    fn tensor(&self, weight: WeightId) -> &Tensor {
        &self.tensors[weight]
    }

    fn weight(&self, weight: WeightId) -> Arg {
        let tensor = self.tensor(weight);
        Arg::Region {
            buffer: tensor.buffer,
            offset: tensor.offset,
        }
    }

    fn value(&self, value: ValueId) -> Arg {
        Arg::Region {
            buffer: self.values + value as BufferId,
            offset: 0,
        }
    }

    fn caches(&self, layer: u32) -> [Binding; 2] {
        let (keys, values) = self.ids.kv[layer as usize];
        [
            (
                "kcache",
                Arg::Region {
                    buffer: keys,
                    offset: 0,
                },
            ),
            (
                "vcache",
                Arg::Region {
                    buffer: values,
                    offset: 0,
                },
            ),
        ]
    }

    /// Norm kernels read f32 weights only; the catalog does not specialise them on a type.
    fn demand_f32(&self, node: &Node, op: KernelOp, weight: WeightId) -> Result<(), LowerError> {
        let dtype = self.tensor(weight).dtype;
        if dtype == Dtype::F32 {
            return Ok(());
        }
        Err(LowerError::NoKernel {
            step: node.name.clone(),
            op: format!("{op:?}"),
            wanted: format!("weight type {dtype}"),
            target: self.target,
            exists: Dtype::F32.to_string(),
        })
    }

    fn no_kernel(&self, step: &str, request: &Request) -> LowerError {
        let describe = |dtype: Option<Dtype>, head_dim: Option<u32>| {
            let parts = [
                dtype.map(|d| d.to_string()),
                head_dim.map(|d| format!("head_dim {d}")),
            ];
            let text: Vec<String> = parts.into_iter().flatten().collect();
            if text.is_empty() {
                "any type".to_owned()
            } else {
                text.join(" ")
            }
        };
        let exists = catalog()
            .iter()
            .filter(|row| row.op == request.op)
            .map(|row| describe(row.dtype, row.head_dim))
            .collect::<Vec<_>>();
        LowerError::NoKernel {
            step: step.to_owned(),
            op: format!("{:?}", request.op),
            wanted: describe(request.dtype, request.head_dim),
            target: self.target,
            exists: if exists.is_empty() {
                "none".to_owned()
            } else {
                exists.join(", ")
            },
        }
    }
}
