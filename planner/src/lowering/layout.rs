//! Buffers of a plan: which exist, how large they are, and where each weight lies.
//!
//! Weights lie in few owners: one per layer and one for embedding, head and final norm, because an
//! allocation costs its granularity. Scratch is sized by `arena` once the steps are ordered.

use super::LowerError;
use crate::arch::Bound;
use crate::plan::{Buffer, BufferId, BufferKind, Digest, Options, Tensor};
use refrain_kernels::{CONTROL_BYTES, RingEntry};

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
    /// Keys and values of each layer.
    pub kv: Vec<(BufferId, BufferId)>,
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
    rope: Vec<u8>,
) -> Result<Layout, LowerError> {
    let mut buffers = Buffers(Vec::new());
    let context = u64::from(options.context);
    let ring_bytes = u64::from(options.ring_entries) * RingEntry::BYTES;
    let control = buffers.add("control", BufferKind::Control, CONTROL_BYTES);
    let prompt = buffers.add("prompt", BufferKind::Prompt, context * 4);
    let ring = buffers.add("ring", BufferKind::TokenRing, ring_bytes);
    let table = buffers.add("rope", BufferKind::Constant, rope.len() as u64);
    buffers.0[table as usize].content = rope;
    let scratch = buffers.add("scratch", BufferKind::Scratch, 0);
    let mut tensors = Vec::with_capacity(bound.weights.len());
    place(
        bound,
        None,
        "weights.model",
        digests,
        &mut buffers,
        &mut tensors,
    )?;
    let geometry = &bound.geometry;
    let kv_dim = u64::from(geometry.kv_heads) * u64::from(geometry.head_dim);
    let kv_bytes = options
        .kv_dtype
        .device_bytes(context, kv_dim)
        .map_err(|source| LowerError::Shape {
            step: "KV cache".to_owned(),
            source,
        })?;
    let mut kv = Vec::with_capacity(geometry.layers as usize);
    for layer in 0..geometry.layers {
        let name = format!("weights.{layer}");
        place(
            bound,
            Some(layer),
            &name,
            digests,
            &mut buffers,
            &mut tensors,
        )?;
        let keys = buffers.add(&format!("kv.k.{layer}"), BufferKind::Kv, kv_bytes);
        let values = buffers.add(&format!("kv.v.{layer}"), BufferKind::Kv, kv_bytes);
        kv.push((keys, values));
    }
    // Steps index tensors by their position in `bound.weights`; upload order is free.
    tensors.sort_by_key(|(index, _)| *index);
    let tensors = tensors.into_iter().map(|(_, tensor)| tensor).collect();
    let ids = BufferIds {
        control,
        prompt,
        ring,
        rope: table,
        scratch,
        kv,
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
}

/// Places the weights of one layer, or those outside the layers, in one buffer.
fn place(
    bound: &Bound,
    layer: Option<u32>,
    name: &str,
    digests: &[Option<Digest>],
    buffers: &mut Buffers,
    tensors: &mut Vec<(usize, Tensor)>,
) -> Result<(), LowerError> {
    let buffer = buffers.add(name, BufferKind::Weights, 0);
    let mut end = 0u64;
    for (index, weight) in bound.weights.iter().enumerate() {
        if weight.layer != layer {
            continue;
        }
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
            digest: digests.get(index).copied().flatten(),
            buffer,
            offset,
            bytes,
        };
        tensors.push((index, tensor));
    }
    buffers.0[buffer as usize].bytes = end;
    Ok(())
}
