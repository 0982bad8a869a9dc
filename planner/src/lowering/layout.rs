//! Buffers of a plan: which exist, how large they are, and where each weight lies.
//!
//! Weights lie in few owners: one per layer and one for embedding, head and final norm, because an
//! allocation costs its granularity. Scratch is sized by `arena` once the steps are ordered.

use super::LowerError;
use crate::arch::{Bound, Dim, State};
use crate::plan::{Buffer, BufferId, BufferKind, Digest, Options, Tensor};
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

/// Lays out everything but scratch. `digests` are those of `bound.weights`.
pub fn layout(
    bound: &Bound,
    options: &Options,
    digests: &[Option<Digest>],
    rope: &[u8],
) -> Result<Layout, LowerError> {
    let mut buffers = Buffers(Vec::new());
    let context = u64::from(options.context);
    let ring_bytes = u64::from(options.ring_entries) * RingEntry::BYTES;
    let control = buffers.add("control", BufferKind::Control, CONTROL_BYTES);
    let prompt = buffers.add("prompt", BufferKind::Prompt, context * 4);
    let ring = buffers.add("ring", BufferKind::TokenRing, ring_bytes);
    let table = buffers.add("rope", BufferKind::Constant, rope.len() as u64);
    buffers.0[table as usize].content = rope.to_vec();
    let scratch = buffers.add("scratch", BufferKind::Scratch, 0);
    let mut weights = Weights::new(bound, digests);
    weights.place(None, "weights.model", &mut buffers)?;
    let mut state = Vec::with_capacity(bound.geometry.layers as usize);
    for layer in 0..bound.geometry.layers {
        weights.place(Some(layer), &format!("weights.{layer}"), &mut buffers)?;
        state.push(buffers.add_state(bound, options, layer)?);
    }
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
    bound: &'a Bound,
    digests: &'a [Option<Digest>],
    /// Positions in `bound.weights` by layer.
    by_layer: BTreeMap<Option<u32>, Vec<usize>>,
    /// Tensors with their positions in `bound.weights`.
    placed: Vec<(usize, Tensor)>,
}

impl<'a> Weights<'a> {
    fn new(bound: &'a Bound, digests: &'a [Option<Digest>]) -> Self {
        let mut by_layer: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (index, weight) in bound.weights.iter().enumerate() {
            by_layer.entry(weight.layer).or_default().push(index);
        }
        Self {
            bound,
            digests,
            by_layer,
            placed: Vec::with_capacity(bound.weights.len()),
        }
    }

    /// Places the weights of one layer, or those outside the layers, in one buffer.
    fn place(
        &mut self,
        layer: Option<u32>,
        name: &str,
        buffers: &mut Buffers,
    ) -> Result<(), LowerError> {
        let buffer = buffers.add(name, BufferKind::Weights, 0);
        let mut end = 0u64;
        for index in self.by_layer.remove(&layer).unwrap_or_default() {
            let weight = &self.bound.weights[index];
            let bytes = weight
                .dtype
                .device_bytes(u64::from(weight.rows), u64::from(weight.cols))
                .map_err(|source| LowerError::Shape {
                    step: weight.info.name.clone(),
                    source,
                })?;
            let offset = end.next_multiple_of(u64::from(ALIGN));
            end = offset
                .checked_add(bytes)
                .filter(|end| *end <= crate::container::limits::BUFFER_BYTES)
                .ok_or_else(|| LowerError::TooLarge {
                    what: format!("buffer {name}"),
                })?;
            let tensor = Tensor {
                name: weight.info.name.clone(),
                dtype: weight.dtype,
                stored: weight.stored,
                load: weight.info.ops.clone(),
                rows: weight.rows,
                cols: weight.cols,
                file_offset: weight.info.offset,
                file_bytes: weight.info.bytes,
                more: weight.info.more.clone(),
                digest: self.digests.get(index).copied().flatten(),
                buffer,
                offset,
                bytes,
            };
            self.placed.push((index, tensor));
        }
        buffers.0[buffer as usize].bytes = end;
        Ok(())
    }
}
