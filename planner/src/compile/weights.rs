//! What a plan takes from the bytes of a model: digests, and factors of the rotation.

use super::PlanError;
use crate::arch::{ArchError, Bound};
use crate::lowering;
use crate::plan::{Digest, ModelFile};
use crate::source::{ModelSource, ReadError, TensorEntry};

/// Bytes read from the model at once while it is digested.
const READ_BYTES: usize = 1 << 20;

/// The rotation table.
pub(super) fn rope(source: &ModelSource, bound: &Bound) -> Result<Vec<u8>, PlanError> {
    let computed = source.table().rope_factors.as_deref();
    let factors = match &bound.rope_factors {
        None => None,
        Some(info) if info.ty.name() != "F32" => {
            return Err(PlanError::Arch(ArchError::Dtype {
                tensor: info.name.clone(),
                layer: None,
                found: info.ty.name().to_owned(),
                known: "f32".to_owned(),
            }));
        }
        Some(info) => Some(lowering::rope_factors(
            &info.name,
            &source.tensor_bytes(info)?,
        )?),
    };
    let factors = factors.as_deref().or(computed);
    Ok(lowering::rope_table(&bound.geometry, factors))
}

/// The files of the model with the digests of their heads.
pub(super) fn files(source: &ModelSource) -> Result<Vec<ModelFile>, ReadError> {
    let mut base = 0u64;
    let mut files = Vec::with_capacity(source.table().files.len());
    for head in &source.table().files {
        files.push(ModelFile {
            bytes: head.bytes,
            header_bytes: head.header_bytes,
            header_digest: digest(source, base, head.header_bytes)?,
        });
        base = base.saturating_add(head.bytes);
    }
    Ok(files)
}

/// Digest of each bound weight as it is once loaded; `None` where the weights are not there. How they
/// are loaded is judged either way, once their types are known to have kernels.
pub(super) fn digests(
    source: &ModelSource,
    bound: &Bound,
) -> Result<Vec<Option<Digest>>, ReadError> {
    let weights = bound.weights.iter().map(|weight| &weight.info);
    for info in weights.clone() {
        info.check_loading()?;
    }
    if !source.table().weights {
        return Ok(weights.map(|_| None).collect());
    }
    weights.map(|info| tensor(source, info).map(Some)).collect()
}

fn tensor(source: &ModelSource, info: &TensorEntry) -> Result<Digest, ReadError> {
    if info.ops.is_empty() && info.more.is_empty() && info.ty == info.stored {
        return digest(source, info.offset, info.bytes);
    }
    let bytes = source.tensor_bytes(info)?;
    Ok(*blake3::hash(&bytes).as_bytes())
}

/// Digest of `bytes` bytes of the model from `offset` on.
fn digest(source: &ModelSource, offset: u64, bytes: u64) -> Result<Digest, ReadError> {
    let mut window = vec![0; bytes.min(READ_BYTES as u64) as usize];
    let mut hasher = blake3::Hasher::new();
    let (mut at, end) = (offset, offset.saturating_add(bytes));
    while at < end {
        let take = (end - at).min(READ_BYTES as u64);
        let part = window.get_mut(..take as usize).unwrap_or_default();
        source.read_at(at, part)?;
        hasher.update(part);
        at += take;
    }
    Ok(*hasher.finalize().as_bytes())
}
