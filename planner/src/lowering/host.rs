//! Which operations are the host's, and the step that does them.
//!
//! A matrix product is the host's if its matrix is spilled and the execution gives the host rows of
//! it. Products of one vector that follow each other in a layer are one step: one barrier, one copy of
//! the vector. Rows of the GPU become plain launches of that step. No fusion spans it, so a spilled
//! gate/up pair is SiLU times up in a launch of its own, and a spilled down-projection a product with
//! its residual.

use super::forms::Form;
use super::layout::ALIGN;
use super::select::{Call, Selected, Selection, Tables};
use super::{LowerError, immediates};
use crate::graph::{Node, Op, ValueId};
use crate::plan::{
    ACTIVATION_BYTES, Arg, At, BufferId, Exec, HostAdd, HostGemv, HostStep, HostWhy, Region, Step,
    Tensor, Transfer,
};

/// Matrices below this many bytes are not divided: the host's join of about 10 µs outlasts their
/// whole transfer over a link of 6.5 GB/s and more.
pub const MIN_SPLIT_BYTES: u64 = 64 << 10;

/// The matrix of a product whose matrix is spilled, and who multiplies how much of it.
fn division<'a>(tables: &Tables<'a>, node: &Node) -> Option<(usize, &'a Tensor, u32, HostWhy)> {
    if !matches!(node.op, Op::Gemv | Op::GemvAdd | Op::GemvBias) {
        return None;
    }
    let exec = tables.options.exec?;
    let index = *node.weights.first()?;
    let tensor = tables.tensors.get(index)?;
    if !tables.spilled.get(index).copied().unwrap_or_default() {
        return None;
    }
    let rows = exec.gpu_rows(tensor.rows);
    let (rows, why) = match exec {
        Exec::Pcie => return None,
        Exec::Cpu => (0, HostWhy::Asked),
        // The ends of the range ask for one side alone, whatever the size.
        Exec::Passback { .. } if exec.gpu_rows(u32::MAX) == 0 => (0, HostWhy::Asked),
        Exec::Passback { .. } if exec.gpu_rows(u32::MAX) == u32::MAX => return None,
        Exec::Passback { .. } if tensor.bytes < MIN_SPLIT_BYTES => (0, HostWhy::TooSmall),
        Exec::Passback { .. } => (rows, HostWhy::Shared),
    };
    (rows < tensor.rows).then_some((index, tensor, rows, why))
}

/// Whether the host computes some rows of an operation.
pub(super) fn divides(tables: &Tables<'_>, node: &Node) -> bool {
    division(tables, node).is_some()
}

/// How many of the next operations are one step of the host; 0 if the first is not the host's.
pub(super) fn run(tables: &Tables<'_>, rest: &[Node]) -> usize {
    let Some(first) = rest.first().filter(|node| divides(tables, node)) else {
        return 0;
    };
    // A residual is a value of its own, so such a product stands alone.
    if first.op == Op::GemvAdd {
        return 1;
    }
    let joins = |node: &&Node| {
        node.layer == first.layer
            && node.op != Op::GemvAdd
            && node.reads.first() == first.reads.first()
            && divides(tables, node)
    };
    rest.iter().take_while(joins).count()
}

/// A step of the host that is being made.
struct Builder<'a, 'b> {
    selection: &'a Selection<'b>,
    /// Hand-off buffer, and the end of what is placed in it.
    hand_off: BufferId,
    end: u64,
    /// The vector, once it is copied down.
    x: Option<At>,
    host: HostStep,
    calls: Vec<Call>,
}

/// The step of the host for operations that [`run`] counted.
pub(super) fn step(selection: &Selection<'_>, nodes: &[Node]) -> Result<Selected, LowerError> {
    let tables = selection.tables();
    let first = nodes.first().ok_or_else(|| none(""))?;
    let hand_off = tables.ids.hand_off.ok_or_else(|| none(&first.name))?;
    let mut builder = Builder {
        selection,
        hand_off,
        end: 0,
        x: None,
        host: HostStep::default(),
        calls: Vec::new(),
    };
    for node in nodes {
        builder.product(node)?;
    }
    let Builder {
        mut host, calls, ..
    } = builder;
    (host.reads, host.writes) = host.effects(tables.tensors);
    let name = match nodes.len() {
        1 => first.name.clone(),
        several => format!("{}.host{several}", first.name),
    };
    Ok(Selected {
        name,
        layer: first.layer,
        calls,
        host: Some(host),
    })
}

/// A declaration whose product lacks an operand.
fn none(step: &str) -> LowerError {
    LowerError::NoRow {
        step: step.to_owned(),
        op: "a step of the host".to_owned(),
    }
}

impl Builder<'_, '_> {
    /// The next bytes of the hand-off buffer.
    fn place(&mut self, bytes: u64) -> At {
        let offset = self.end.next_multiple_of(u64::from(ALIGN));
        self.end = offset + bytes;
        At {
            buffer: self.hand_off,
            offset,
        }
    }

    /// Bytes of a value, copied down.
    fn down(&mut self, from: At, bytes: u64) -> At {
        let to = self.place(bytes);
        self.host.down.push(Transfer { from, to, bytes });
        to
    }

    /// The place of a value's element.
    fn value(&self, node: &Node, value: Option<&ValueId>, row: u32) -> Result<At, LowerError> {
        let value = value.ok_or_else(|| none(&node.name))?;
        Ok(At {
            buffer: self.selection.value(*value),
            offset: u64::from(row) * ACTIVATION_BYTES,
        })
    }

    fn product(&mut self, node: &Node) -> Result<(), LowerError> {
        let tables = self.selection.tables();
        let divided = division(tables, node).ok_or_else(|| none(&node.name))?;
        let (index, tensor, rows, why) = divided;
        let form = Form::wanted(
            tables.options,
            refrain_kernels::Op::Gemv,
            Some(tensor.dtype),
        );
        if let Some((_, _, name)) = form.made() {
            return Err(LowerError::HostForm {
                step: node.name.clone(),
                dtype: tensor.dtype,
                form: name,
            });
        }
        let x = match self.x {
            Some(x) => x,
            None => {
                let from = self.value(node, node.reads.first(), 0)?;
                self.down(from, HostGemv::x_bytes(tensor))
            }
        };
        self.x = Some(x);
        let bytes = u64::from(tensor.rows - rows) * ACTIVATION_BYTES;
        let add = match node.op {
            Op::GemvAdd => {
                let from = self.value(node, node.reads.get(1), rows)?;
                HostAdd::Rows(self.down(from, bytes))
            }
            Op::GemvBias => {
                let bias = node.weights.get(1);
                let bias = bias.and_then(|bias| tables.tensors.get(*bias));
                let Tensor { buffer, offset, .. } = *bias.ok_or_else(|| none(&node.name))?;
                let offset = offset + u64::from(rows) * ACTIVATION_BYTES;
                HostAdd::Rows(At { buffer, offset })
            }
            _ => HostAdd::Nothing,
        };
        let y = self.place(bytes);
        let to = self.value(node, node.writes.first(), rows)?;
        self.host.up.push(Transfer { from: y, to, bytes });
        self.host.parts.push(HostGemv {
            tensor: index as u32,
            first: rows,
            end: tensor.rows,
            x,
            add,
            y,
            why,
        });
        if rows > 0 {
            self.calls.push(arm(self.selection, node, rows)?);
        }
        Ok(())
    }
}

/// The launch of rows `[0, rows)` of a product.
fn arm(selection: &Selection<'_>, node: &Node, rows: u32) -> Result<Call, LowerError> {
    let mut call = selection.plain(node)?;
    let last = call.row.args.iter().position(|arg| arg.name == "r1");
    let last = last.and_then(|at| call.args.get_mut(at));
    let last = last.ok_or_else(|| LowerError::UnknownArgument {
        step: node.name.clone(),
        symbol: call.row.symbol,
        arg: "r1",
    })?;
    *last = Arg::Imm(rows);
    let shape = |source| LowerError::Shape {
        step: node.name.clone(),
        source,
    };
    call.row.check(&immediates(&call.args)).map_err(shape)?;
    Ok(call)
}

/// Bytes that the largest step of the host uses of the hand-off buffer.
pub(super) fn hand_off_bytes(steps: &[Step], hand_off: BufferId) -> u64 {
    let regions = steps.iter().filter_map(|step| step.body.host());
    let regions = regions.flat_map(|host| host.reads.iter().chain(&host.writes));
    let own = regions.filter(|region: &&Region| region.buffer == hand_off);
    own.map(|region| region.bound().1).max().unwrap_or_default()
}
