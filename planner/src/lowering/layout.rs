//! Buffers of a plan: which exist, how large they are, and where each weight lies.
//!
//! Weights lie in few owners: one per tier for so many layers as `memory::GRANULES` says and one for
//! embedding, head and final norm, because an allocation costs its granularity. Scratch is sized by
//! `arena` once the steps are ordered, the hand-off buffer by the largest host step.

use super::{Input, LowerError};
use crate::arch::{Bound, Dim, State};
use crate::memory::Granules;
use crate::plan::{Buffer, BufferId, BufferKind, Options, Tensor};
use refrain_kernels::{CONTROL_BYTES, Dtype, RingEntry};
use std::collections::BTreeMap;

/// Alignment of buffers and of tensors in them: a cache line is 128 bytes on these targets, and
/// memory channels interleave at 256.
pub const ALIGN: u32 = 256;

/// Ids of the buffers that steps refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferIds {
    /// Control block.
    pub control: BufferId,
    /// Prompt.
    pub prompt: BufferId,
    /// Token ring.
    pub ring: BufferId,
    /// Rotation table.
    pub rope: BufferId,
    /// Activations.
    pub scratch: BufferId,
    /// Activations of host steps; `None` where the host does nothing.
    pub hand_off: Option<BufferId>,
    /// What each layer keeps from token to token, in the order of its declaration; keys come before
    /// values.
    pub state: Vec<Vec<BufferId>>,
}

/// Buffers and the tensors in them.
#[derive(Debug)]
pub struct Layout {
    /// Buffers; scratch has no size yet.
    pub buffers: Vec<Buffer>,
    /// Tensors in upload order, the order of `Bound::weights`.
    pub tensors: Vec<Tensor>,
    /// Ids.
    pub ids: BufferIds,
}

/// Lays out everything but scratch.
pub(super) fn layout(input: &Input<'_>) -> Result<Layout, LowerError> {
    let Input {
        bound,
        options,
        rope,
        ..
    } = *input;
    let mut buffers = Buffers(Vec::new());
    let context = u64::from(options.context);
    let ring_bytes = u64::from(options.ring_entries) * RingEntry::BYTES;
    let control = buffers.add("control", BufferKind::Control, CONTROL_BYTES);
    let prompt = buffers.add("prompt", BufferKind::Prompt, context * 4);
    let ring = buffers.add("ring", BufferKind::TokenRing, ring_bytes);
    let table = buffers.add("rope", BufferKind::Constant, rope.len() as u64);
    buffers.0[table as usize].content = rope.to_vec();
    let scratch = buffers.add("scratch", BufferKind::Scratch, 0);
    let mut weights = Weights::new(input);
    weights.place(None, "weights.model", &mut buffers)?;
    let per_owner = Granules::of(input.target).layers_per_owner.max(1);
    let mut state = Vec::with_capacity(bound.geometry.layers as usize);
    for layer in 0..bound.geometry.layers {
        if layer.is_multiple_of(per_owner) {
            let group = Some(layer / per_owner);
            weights.place(group, &format!("weights.{layer}"), &mut buffers)?;
        }
        state.push(buffers.add_state(bound, options, layer)?);
    }
    // Last, so that it can be taken away again where no step uses it.
    let hand_off = input
        .on_host()
        .then(|| buffers.add("handoff", BufferKind::HandOff, 0));
    let mut tensors = weights.placed;
    // Steps index tensors by their position in `bound.weights`; upload order is free.
    tensors.sort_by_key(|(index, _)| *index);
    let tensors = tensors.into_iter().map(|(_, tensor)| tensor).collect();
    let ids = BufferIds {
        control,
        prompt,
        ring,
        rope: table,
        scratch,
        hand_off,
        state,
    };
    Ok(Layout {
        buffers: buffers.0,
        tensors,
        ids,
    })
}

struct Buffers(Vec<Buffer>);

impl Buffers {
    fn add(&mut self, name: &str, kind: BufferKind, bytes: u64) -> BufferId {
        let name = name.to_owned();
        self.0.push(Buffer {
            name,
            kind,
            bytes,
            align: ALIGN,
            content: Vec::new(),
        });
        (self.0.len() - 1) as BufferId
    }

    /// What a layer keeps from token to token.
    fn add_state(
        &mut self,
        bound: &Bound,
        options: &Options,
        layer: u32,
    ) -> Result<Vec<BufferId>, LowerError> {
        let g = &bound.geometry;
        let mut ids = Vec::new();
        for state in bound.kind(layer).state {
            let (names, kind, dtype, rows, cols) = match *state {
                State::KeyValue => (
                    &["kv.k", "kv.v"][..],
                    BufferKind::Kv,
                    options.kv_dtype,
                    options.context,
                    Dim::KeyValue.of(g),
                ),
                State::Columns(dim) => (
                    &["conv"][..],
                    BufferKind::State,
                    Dtype::F32,
                    // A ring, so that no column is read and written in one launch.
                    g.conv_taps.next_power_of_two(),
                    dim.of(g),
                ),
                State::Recurrent => (
                    &["state"][..],
                    BufferKind::State,
                    Dtype::F32,
                    Dim::StateValue.of(g),
                    g.state_dim,
                ),
            };
            for name in names {
                let name = format!("{name}.{layer}");
                let bytes = dtype.device_bytes(u64::from(rows), u64::from(cols));
                let bytes = bytes.map_err(|source| LowerError::Shape {
                    step: name.clone(),
                    source,
                })?;
                ids.push(self.add(&name, kind, bytes));
            }
        }
        Ok(ids)
    }
}

/// Weights to place, and those that are.
struct Weights<'a> {
    input: &'a Input<'a>,
    /// Positions in `bound.weights` by group of layers and by whether they are spilled.
    by_owner: BTreeMap<(Option<u32>, bool), Vec<usize>>,
    /// Tensors with their positions in `bound.weights`.
    placed: Vec<(usize, Tensor)>,
}

impl<'a> Weights<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let per_owner = Granules::of(input.target).layers_per_owner.max(1);
        let mut by_owner: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, weight) in input.bound.weights.iter().enumerate() {
            let group = weight.layer.map(|layer| layer / per_owner);
            let spilled = input.spilled.get(index).copied().unwrap_or_default();
            by_owner.entry((group, spilled)).or_default().push(index);
        }
        Self {
            input,
            by_owner,
            placed: Vec::with_capacity(input.bound.weights.len()),
        }
    }

    /// Places the weights of one group of layers, or those outside the layers, in one buffer per
    /// tier.
    fn place(
        &mut self,
        group: Option<u32>,
        name: &str,
        buffers: &mut Buffers,
    ) -> Result<(), LowerError> {
        let tiers = [
            (false, name.to_owned(), BufferKind::Weights),
            (true, format!("{name}.host"), BufferKind::SpilledWeights),
        ];
        for (spilled, name, kind) in tiers {
            let Some(members) = self.by_owner.remove(&(group, spilled)) else {
                continue;
            };
            let buffer = buffers.add(&name, kind, 0);
            let mut end = 0u64;
            for index in members {
                let tensor = self.tensor(index, buffer, end, &name)?;
                end = tensor.offset + tensor.bytes;
                self.placed.push((index, tensor));
            }
            buffers.0[buffer as usize].bytes = end;
        }
        Ok(())
    }

    /// A tensor behind the first `end` bytes of a buffer.
    fn tensor(
        &self,
        index: usize,
        buffer: BufferId,
        end: u64,
        owner: &str,
    ) -> Result<Tensor, LowerError> {
        let weight = &self.input.bound.weights[index];
        let bytes = weight
            .dtype
            .device_bytes(u64::from(weight.rows), u64::from(weight.cols))
            .map_err(|source| LowerError::Shape {
                step: weight.info.name.clone(),
                source,
            })?;
        let offset = end.next_multiple_of(u64::from(ALIGN));
        offset
            .checked_add(bytes)
            .filter(|end| *end <= crate::container::limits::BUFFER_BYTES)
            .ok_or_else(|| LowerError::TooLarge {
                what: format!("buffer {owner}"),
            })?;
        Ok(Tensor {
            name: weight.info.name.clone(),
            dtype: weight.dtype,
            stored: weight.stored,
            load: weight.info.ops.clone(),
            rows: weight.rows,
            cols: weight.cols,
            file_offset: weight.info.offset,
            file_bytes: weight.info.bytes,
            more: weight.info.more.clone(),
            digest: self.input.digests.get(index).copied().flatten(),
            buffer,
            offset,
            bytes,
        })
    }
}
