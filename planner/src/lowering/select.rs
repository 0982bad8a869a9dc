//! Operations to launches: which rows of the table a step uses, and what their arguments are.
//!
//! A fusion is taken where it is not switched off and every kernel it needs exists for the target,
//! the types and the shape; an operation for which nothing exists is an error that says what does.

use super::LowerError;
use super::effects::immediates;
use super::forms::{Form, Forms, Int8, activation};
use super::host;
use super::layout::BufferIds;
use super::row::{On, Part, Row, Source, When};
use super::table::{FUSED, PLAIN};
use crate::arch::RopeStyle;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::plan::{Arg, BufferId, Geometry, HostStep, Options, Tensor};
use refrain_kernels::{ArgKind, Dtype, Habit, KernelRow, Target, catalog, code_object, find_form};

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
    /// Parts that attention splits the context into.
    pub splits: u32,
    /// Fusions that are switched off.
    pub no_fuse: &'a [String],
    /// Whether each of the tensors is spilled.
    pub spilled: &'a [bool],
}

/// One launch to be.
pub(super) struct Call {
    pub row: &'static KernelRow,
    /// Arguments in the kernel's order.
    pub args: Vec<Arg>,
}

/// One step to be: a launch, or a step of the host with the launches beside it.
pub(super) struct Selected {
    pub name: String,
    pub layer: Option<u32>,
    pub calls: Vec<Call>,
    pub host: Option<HostStep>,
}

/// Names of all fusions, in the order in which they are tried.
pub fn fusions() -> impl Iterator<Item = &'static str> {
    FUSED.iter().map(|row| row.name)
}

/// Steps for all operations, and the values they use: those of the graph, then what fusions added. No
/// fusion takes an operation of the host.
pub(super) fn select(
    tables: &Tables<'_>,
    graph: &Graph,
) -> Result<(Vec<Selected>, Vec<Value>), LowerError> {
    if let Some(name) = tables
        .no_fuse
        .iter()
        .find(|name| !fusions().any(|f| f == **name))
    {
        return Err(LowerError::UnknownFusion {
            found: name.clone(),
            known: fusions().collect::<Vec<_>>().join(", "),
        });
    }
    let mut selection = Selection {
        tables,
        graph,
        last_reads: last_reads(graph),
        current: (0..graph.values.len()).collect(),
        values: graph.values.clone(),
        forms: Forms::default(),
        launches: Vec::with_capacity(graph.nodes.len()),
    };
    let mut at = 0;
    while at < graph.nodes.len() {
        at += selection.step(at)?;
    }
    Ok((selection.launches, selection.values))
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

fn plain_row(node: &Node) -> Result<&'static Row, LowerError> {
    let row = PLAIN.iter().find(|row| row.ops == [node.op]);
    row.ok_or_else(|| no_row(node))
}

fn no_row(node: &Node) -> LowerError {
    LowerError::NoRow {
        step: node.name.clone(),
        op: format!("{:?}", node.op),
    }
}

pub(super) struct Selection<'a> {
    tables: &'a Tables<'a>,
    graph: &'a Graph,
    last_reads: Vec<Option<usize>>,
    /// Value that stands for each of the graph's, where a fusion made a new one of it.
    current: Vec<ValueId>,
    values: Vec<Value>,
    /// Forms of the values besides f32.
    forms: Forms,
    launches: Vec<Selected>,
}

impl Selection<'_> {
    /// Adds the launches of the operations at `at`; how many operations those are.
    fn step(&mut self, at: usize) -> Result<usize, LowerError> {
        let rest = &self.graph.nodes[at..];
        let hosted = host::run(self.tables, rest);
        if hosted > 0 {
            let step = host::step(self, &rest[..hosted])?;
            self.launches.push(step);
            return Ok(hosted);
        }
        let wanted = self.wanted(at);
        let fused = FUSED.iter().find_map(|row| {
            let window = self.window(row, rest.get(..row.ops.len())?, wanted);
            window.fits(at + row.ops.len(), &self.last_reads)
        });
        let laid = match fused {
            Some(found) => found,
            None => {
                let node = &rest[0];
                let row = plain_row(node)?;
                self.window(row, &rest[..1], wanted).launches()?
            }
        };
        let launches = laid.launches.iter();
        let written: Vec<_> = launches.flat_map(|launch| self.written(launch)).collect();
        written
            .into_iter()
            .for_each(|value| self.forms.forget(value));
        for (value, form, holder) in laid.forms {
            self.forms.add(value, form, holder);
        }
        self.launches.extend(laid.launches);
        self.values.extend(laid.added);
        for (old, new) in laid.renamed {
            self.current[old] = new;
        }
        Ok(laid.operations)
    }

    /// The plain launch of one operation.
    pub(super) fn plain(&self, node: &Node) -> Result<Call, LowerError> {
        let row = plain_row(node)?;
        let laid = self
            .window(row, std::slice::from_ref(node), Form::PLAIN)
            .launches()?;
        let mut launches = laid.launches.into_iter().flat_map(|step| step.calls);
        launches.next().ok_or_else(|| no_row(node))
    }

    /// The value that stands for one of the graph's.
    pub(super) fn value(&self, value: ValueId) -> BufferId {
        let current = self.current.get(value).copied().unwrap_or(value);
        self.tables.values + current as BufferId
    }

    pub(super) const fn tables(&self) -> &Tables<'_> {
        self.tables
    }

    /// The int8 form in which a later operation wants what the operation at `at` writes.
    fn wanted(&self, at: usize) -> Form {
        let nodes = &self.graph.nodes;
        let Some(value) = nodes.get(at).and_then(|node| node.writes.first()) else {
            return Form::PLAIN;
        };
        let end = self.last_reads.get(*value).copied().flatten();
        let readers = nodes.get(at + 1..end.map_or(0, |end| end + 1));
        let mut forms = readers.into_iter().flatten().filter_map(|node| {
            let row = PLAIN.iter().find(|row| row.ops == [node.op])?;
            let window = self.window(row, std::slice::from_ref(node), Form::PLAIN);
            let part = row.parts.first()?;
            let reads = window.operand(window.multiplied(part)?)?;
            (reads == *value).then(|| window.form(part))
        });
        let int8 = forms.find(|form| form.int8.is_some() && !form.rotated);
        int8.unwrap_or(Form::PLAIN)
    }

    /// Values that a launch writes.
    fn written(&self, launch: &Selected) -> impl Iterator<Item = ValueId> {
        let calls = launch.calls.iter();
        let args = calls.flat_map(|call| call.row.args.iter().zip(&call.args));
        let values = self.tables.values;
        args.filter_map(move |(arg, given)| match (arg.kind, given) {
            (ArgKind::Pointer(access), Arg::Region { buffer, .. })
                if access.writes() && *buffer >= values =>
            {
                Some((buffer - values) as ValueId)
            }
            _ => None,
        })
    }

    fn window<'a>(&'a self, row: &'static Row, nodes: &'a [Node], wanted: Form) -> Window<'a> {
        Window {
            tables: self.tables,
            current: &self.current,
            values: &self.values,
            forms: &self.forms,
            wanted,
            row,
            nodes,
        }
    }
}

/// What a window comes to.
struct Laid {
    launches: Vec<Selected>,
    /// Operations that they do.
    operations: usize,
    /// Values that they use beyond the graph's.
    added: Vec<Value>,
    /// Values of the graph, and those that later operations read in their place.
    renamed: Vec<(ValueId, ValueId)>,
    /// Forms that now exist, and what holds them.
    forms: Vec<(ValueId, Form, ValueId)>,
}

/// Forms of values that a window makes.
struct Made {
    /// Id of the first value that holds one.
    first: ValueId,
    values: Vec<Value>,
    launches: Vec<Selected>,
    forms: Vec<(ValueId, Form, ValueId)>,
}

/// A row of the table laid over operations.
struct Window<'a> {
    tables: &'a Tables<'a>,
    current: &'a [ValueId],
    values: &'a [Value],
    forms: &'a Forms,
    /// The int8 form in which later operations want what the first operation writes.
    wanted: Form,
    row: &'static Row,
    nodes: &'a [Node],
}

impl Window<'_> {
    /// What is launched, if this fusion may stand for the operations up to `end`.
    fn fits(&self, end: usize, last_reads: &[Option<usize>]) -> Option<Laid> {
        let ops = self.nodes.iter().map(|node| node.op);
        let layer = self.nodes.first()?.layer;
        let applies = ops.eq(self.row.ops.iter().copied())
            && self.nodes.iter().all(|node| node.layer == layer)
            && !self
                .nodes
                .iter()
                .any(|node| host::divides(self.tables, node))
            && !self.tables.no_fuse.iter().any(|name| name == self.row.name)
            && match self.row.when {
                When::Always => true,
                When::Split => self.tables.splits > 1,
                When::Int8 => self.wanted.int8.is_some(),
            };
        if !applies {
            return None;
        }
        let same = |(a, b): &(Source, Source)| self.operand(*a) == self.operand(*b);
        if !self.row.same.iter().all(same) {
            return None;
        }
        let dead = self
            .row
            .dead
            .iter()
            .filter_map(|source| self.operand(*source));
        let mut lost = dead.chain(self.unbound());
        if lost.any(|value| last_reads[value].is_some_and(|reader| reader >= end)) {
            return None;
        }
        self.launches().ok()
    }

    /// Values written by the operations that no argument takes.
    fn unbound(&self) -> impl Iterator<Item = ValueId> {
        let bound: Vec<_> = self
            .sources()
            .filter_map(|source| self.operand(source))
            .collect();
        let written = self
            .nodes
            .iter()
            .flat_map(|node| node.writes.iter().copied());
        written.filter(move |value| !bound.contains(value))
    }

    fn sources(&self) -> impl Iterator<Item = Source> {
        let args = self.row.parts.iter().flat_map(|part| part.args);
        args.map(|(_, source)| *source)
    }

    /// Every launch of the row, or what is missing.
    fn launches(&self) -> Result<Laid, LowerError> {
        let mut made = Made {
            first: self.values.len() + self.row.temps.len() + self.fresh().count(),
            values: Vec::new(),
            launches: Vec::new(),
            forms: Vec::new(),
        };
        if let Some(value) = self.nodes.first().and_then(|node| node.writes.first())
            && self.row.when == When::Int8
        {
            self.hold(*value, self.wanted, "int8", &mut made)?;
        }
        for part in self.row.parts {
            if let Some(source) = self.multiplied(part)
                && let Some(value) = self.operand(source)
            {
                let value = self.current.get(value).copied().unwrap_or(value);
                self.make(part, value, self.form(part), &mut made)?;
            }
        }
        let launches = self.row.parts.iter().map(|part| self.launch(part, &made));
        let launches = launches.collect::<Result<Vec<_>, _>>()?;
        let launches = made.launches.into_iter().chain(launches).collect();
        let temps = self.row.temps.iter().map(|(name, times, dim)| Value {
            name,
            len: dim
                .of(self.tables.geometry)
                .saturating_mul(*times)
                .saturating_mul(self.tables.splits),
        });
        let renamed: Vec<_> = self
            .fresh()
            .enumerate()
            .filter_map(|(index, source)| Some((self.operand(source)?, self.fresh_id(index))))
            .collect();
        let fresh = renamed
            .iter()
            .filter_map(|(old, _)| self.values.get(*old).cloned());
        let added = temps.chain(fresh).chain(made.values).collect();
        Ok(Laid {
            launches,
            operations: self.nodes.len(),
            added,
            renamed,
            forms: made.forms,
        })
    }

    /// The form in which a part's kernel takes its activation.
    fn form(&self, part: &Part) -> Form {
        match part.on {
            On::Weights(_) => {
                let (dtype, _) = self.specialisation(part);
                Form::wanted(self.tables.options, part.kernel, dtype)
            }
            _ => Form::PLAIN,
        }
    }

    /// Where the activation of a part that multiplies matrices comes from.
    fn multiplied(&self, part: &Part) -> Option<Source> {
        if !matches!(part.on, On::Weights(_)) {
            return None;
        }
        let name = activation(self.kernel(part).ok()?)?;
        let mut args = part.args.iter();
        args.find_map(|(arg, source)| (*arg == name).then_some(*source))
    }

    /// The value that holds a form, if there is one already.
    fn holder(&self, value: ValueId, form: Form, made: &Made) -> Option<ValueId> {
        let mut new = made.forms.iter();
        let new = new.find(|(of, as_form, _)| (*of, *as_form) == (value, form));
        new.map(|(_, _, holder)| *holder)
            .or_else(|| self.forms.get(value, form))
    }

    /// A new value for a form.
    fn hold(
        &self,
        value: ValueId,
        form: Form,
        name: &'static str,
        made: &mut Made,
    ) -> Result<ValueId, LowerError> {
        let len = self.values.get(value).map_or(0, |value| value.len);
        let len = form.words(len).ok_or_else(|| LowerError::TooLarge {
            what: format!("the {name} form of {len} elements"),
        })?;
        let holder = made.first + made.values.len();
        made.values.push(Value { name, len });
        made.forms.push((value, form, holder));
        Ok(holder)
    }

    /// Makes a form of a value, unless there is one.
    fn make(
        &self,
        part: &Part,
        value: ValueId,
        form: Form,
        made: &mut Made,
    ) -> Result<ValueId, LowerError> {
        if let Some(holder) = self.holder(value, form, made) {
            return Ok(holder);
        }
        let Some((from, op, name)) = form.made() else {
            return Ok(value);
        };
        let x = self.make(part, value, from, made)?;
        let step = format!("{}.{name}", self.step(part));
        let row = find_form(op, None, form.int8.map(Int8::habit), None);
        let row = row.ok_or_else(|| LowerError::NoRow {
            step: step.clone(),
            op: format!("{op:?}"),
        })?;
        let n = self.values.get(value).map_or(0, |value| value.len);
        row.check(&[n]).map_err(|source| LowerError::Shape {
            step: step.clone(),
            source,
        })?;
        let holder = self.hold(value, form, name, made)?;
        let region = |value: ValueId| Arg::Region {
            buffer: self.tables.values + value as BufferId,
            offset: 0,
        };
        made.launches.push(Selected {
            name: step,
            layer: self.nodes.first().and_then(|node| node.layer),
            calls: vec![Call {
                row,
                args: vec![region(x), region(holder), Arg::Imm(n)],
            }],
            host: None,
        });
        Ok(holder)
    }

    fn fresh(&self) -> impl Iterator<Item = Source> {
        self.sources()
            .filter(|source| matches!(source, Source::Fresh(..)))
    }

    const fn fresh_id(&self, index: usize) -> ValueId {
        self.values.len() + self.row.temps.len() + index
    }

    fn launch(&self, part: &Part, made: &Made) -> Result<Selected, LowerError> {
        let row = self.kernel(part)?;
        let multiplied = self.multiplied(part);
        let bind = |arg: &refrain_kernels::Arg| {
            let mut named = part.args.iter().filter(|(name, _)| *name == arg.name);
            named
                .find_map(|(_, source)| {
                    if Some(*source) == multiplied {
                        self.formed(part, *source, made)
                    } else {
                        self.arg(*source, made)
                    }
                })
                .ok_or_else(|| LowerError::UnknownArgument {
                    step: self.step(part),
                    symbol: row.symbol,
                    arg: arg.name,
                })
        };
        let args = row.args.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        row.check(&immediates(&args))
            .map_err(|source| LowerError::Shape {
                step: self.step(part),
                source,
            })?;
        Ok(Selected {
            name: self.step(part),
            layer: self.nodes.first().and_then(|node| node.layer),
            calls: vec![Call { row, args }],
            host: None,
        })
    }

    fn kernel(&self, part: &Part) -> Result<&'static KernelRow, LowerError> {
        let no_kernel = |wanted: String, exists: String| LowerError::NoKernel {
            step: self.step(part),
            op: format!("{:?}", part.kernel),
            wanted,
            target: self.tables.target,
            exists,
        };
        if let Some(dtype) = self.first_other_type(part) {
            let exists = Dtype::F32.to_string();
            return Err(no_kernel(format!("weight type {dtype}"), exists));
        }
        if let Some((dim, length)) = part.fixed {
            let found = dim.of(self.tables.geometry);
            if found != length {
                let say = |length: u32| format!("{} {length}", dim.text());
                return Err(no_kernel(say(found), say(length)));
            }
        }
        let (dtype, head_dim) = self.specialisation(part);
        let habit = match part.on {
            On::Wanted => self.wanted.int8,
            _ => self.form(part).int8,
        };
        let habit: Option<Habit> = habit.map(Int8::habit);
        let Some(row) = find_form(part.kernel, dtype, habit, head_dim) else {
            let exists = catalog().iter();
            let exists = exists.filter(|row| row.op == part.kernel && row.habit == habit);
            let exists: Vec<_> = exists
                .map(|row| describe(row.dtype, row.head_dim))
                .collect();
            let exists = if exists.is_empty() {
                "none".to_owned()
            } else {
                exists.join(", ")
            };
            return Err(no_kernel(describe(dtype, head_dim), exists));
        };
        if code_object(self.tables.target).kernel(row.symbol).is_none() {
            return Err(LowerError::NotInObject {
                step: self.step(part),
                symbol: row.symbol,
                target: self.tables.target,
            });
        }
        Ok(row)
    }

    /// Name of the step: the operation's own; of a fusion its name in the layer, after the first
    /// weight where several weights of a layer may be fused so.
    fn step(&self, part: &Part) -> String {
        let Some(first) = self.nodes.first() else {
            return String::new();
        };
        if self.row.name.is_empty() {
            return first.name.clone();
        }
        let mut name = match first.layer {
            Some(layer) if first.weights.is_empty() || self.row.ops.len() > 4 => {
                format!("blk.{layer}.{}", self.row.name)
            }
            _ => format!("{}.{}", first.name, self.row.name),
        };
        if !part.suffix.is_empty() {
            name = format!("{name}.{}", part.suffix);
        }
        name
    }

    /// First weight type that the kernel does not take where it stands.
    fn first_other_type(&self, part: &Part) -> Option<Dtype> {
        let (specialised, _) = self.specialisation(part);
        part.args.iter().find_map(|(_, source)| {
            let Source::Weight(op, slot) = *source else {
                return None;
            };
            let wanted = match part.on {
                On::Weights(places) if places.contains(&(op, slot)) => specialised?,
                _ => Dtype::F32,
            };
            let dtype = self.tensor(op, slot)?.dtype;
            (dtype != wanted).then_some(dtype)
        })
    }

    fn specialisation(&self, part: &Part) -> (Option<Dtype>, Option<u32>) {
        let cache = Some(self.tables.options.kv_dtype);
        match part.on {
            On::Nothing | On::Wanted => (None, None),
            On::Weights(places) => {
                let first = places
                    .first()
                    .and_then(|(op, slot)| self.tensor(*op, *slot));
                (first.map(|tensor| tensor.dtype), None)
            }
            On::Cache => (cache, None),
            On::CacheAndHead => (cache, Some(self.tables.geometry.head_dim)),
            On::StateHead => (None, Some(self.tables.geometry.state_dim)),
        }
    }

    /// An activation in the form that the part's kernel takes.
    fn formed(&self, part: &Part, source: Source, made: &Made) -> Option<Arg> {
        let value = self.operand(source)?;
        let value = self.current.get(value).copied().unwrap_or(value);
        let holder = self.holder(value, self.form(part), made)?;
        Some(Arg::Region {
            buffer: self.tables.values + holder as BufferId,
            offset: 0,
        })
    }

    fn arg(&self, source: Source, made: &Made) -> Option<Arg> {
        let region = |buffer| Some(Arg::Region { buffer, offset: 0 });
        let value = |value: ValueId| region(self.tables.values + value as BufferId);
        let inverse_root = |n: u32| {
            let scale = 1.0 / libm::sqrt(f64::from(n));
            Some(Arg::Imm((scale as f32).to_bits()))
        };
        let (g, ids) = (self.tables.geometry, self.tables.ids);
        match source {
            Source::In(..) => value(*self.current.get(self.operand(source)?)?),
            Source::Out(..) => value(self.operand(source)?),
            Source::Fresh(..) => {
                let index = self.fresh().position(|fresh| fresh == source)?;
                value(self.fresh_id(index))
            }
            Source::Temp(index) => value(self.values.len() + index),
            Source::Int8(op, slot) => {
                let written = self.operand(Source::Out(op, slot))?;
                value(self.holder(written, self.wanted, made)?)
            }
            Source::Weight(op, slot) => {
                let Tensor { buffer, offset, .. } = *self.tensor(op, slot)?;
                Some(Arg::Region { buffer, offset })
            }
            Source::Rows(op, slot) => Some(Arg::Imm(self.tensor(op, slot)?.rows)),
            Source::Cols(op, slot) => Some(Arg::Imm(self.tensor(op, slot)?.cols)),
            Source::Len(op, slot) => {
                let value = self.operand(Source::Out(op, slot))?;
                Some(Arg::Imm(self.values.get(value)?.len))
            }
            Source::Size(dim) => Some(Arg::Imm(dim.of(g))),
            Source::Number(number) => Some(Arg::Imm(number)),
            Source::Context => Some(Arg::Imm(self.tables.options.context)),
            Source::Splits => Some(Arg::Imm(self.tables.splits)),
            Source::Control => Some(Arg::WordAddr { offset: 0 }),
            Source::Prompt => region(ids.prompt),
            Source::Ring => region(ids.ring),
            Source::Rotation => region(ids.rope),
            Source::Interleaved => Some(Arg::Imm(u32::from(
                self.tables.rope == RopeStyle::AdjacentPairs,
            ))),
            Source::Eps => Some(Arg::Imm(g.norm_eps.to_bits())),
            Source::Scale => inverse_root(g.head_dim),
            Source::StateScale => inverse_root(g.state_dim),
            Source::State(number) => {
                let layer = self.nodes.first()?.layer? as usize;
                region(*ids.state.get(layer)?.get(number)?)
            }
        }
    }

    /// The graph's value of an operand.
    fn operand(&self, source: Source) -> Option<ValueId> {
        match source {
            Source::In(op, slot) | Source::Fresh(op, slot) => {
                self.nodes.get(op)?.reads.get(slot).copied()
            }
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
