//! `model.safetensors.index.json`: which shard holds which tensor.

use super::{ConfigError, Json, document};
use crate::safetensors::SafetensorsHeader;
use crate::source::ReadError;
use std::collections::BTreeSet;
use std::path::Path;

/// Longest index that is read, in bytes.
const INDEX_BYTES: u64 = 64 << 20;

fn map(index: &Path) -> Result<Vec<(String, String)>, ReadError> {
    let refuse = |error: ConfigError| ReadError::from(error).in_file(index);
    let (_, json) = document(index, INDEX_BYTES)?;
    let map = json.some("weight_map").ok_or_else(|| {
        refuse(ConfigError::Missing {
            key: "weight_map".to_owned(),
        })
    })?;
    let Some(fields) = map.object().filter(|fields| !fields.is_empty()) else {
        return Err(refuse(ConfigError::Form {
            key: "weight_map".to_owned(),
            found: map.shown(),
            rule: "an object from tensors to files".to_owned(),
        }));
    };
    let shard = |(tensor, file): &(String, Json)| match file.text() {
        Some(name) if plain(name) => Ok((tensor.clone(), name.to_owned())),
        _ => Err(refuse(ConfigError::ShardName {
            tensor: tensor.clone(),
            found: file.shown(),
        })),
    };
    fields.iter().map(shard).collect()
}

/// A name that cannot lead out of the folder.
fn plain(name: &str) -> bool {
    name.ends_with(".safetensors") && !name.contains(['/', '\\', '\0']) && !name.starts_with('.')
}

/// Names of all shards, ascending.
pub(crate) fn shard_names(index: &Path) -> Result<Vec<String>, ReadError> {
    let names: BTreeSet<String> = map(index)?.into_iter().map(|(_, shard)| shard).collect();
    Ok(names.into_iter().collect())
}

/// Demands that index and shards agree on every tensor, both ways.
pub(super) fn check(index: &Path, shards: &[(&Path, SafetensorsHeader)]) -> Result<(), ReadError> {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let mut held = std::collections::BTreeMap::new();
    for (path, header) in shards {
        let shard = name(path).unwrap_or_default();
        for tensor in &header.tensors {
            if held.insert(tensor.name.clone(), shard.clone()).is_some() {
                return Err(ReadError::DuplicateTensor {
                    tensor: tensor.name.clone(),
                });
            }
        }
    }
    let refuse = |tensor: &str, index_says: &str, shard: &str| {
        Err(ReadError::from(ConfigError::Shard {
            tensor: tensor.to_owned(),
            index: index_says.to_owned(),
            shard: shard.to_owned(),
        })
        .in_file(index))
    };
    for (tensor, stated) in map(index)? {
        match held.remove(&tensor) {
            Some(shard) if shard == stated => {}
            Some(shard) => return refuse(&tensor, &stated, &shard),
            None => return refuse(&tensor, &stated, "no shard"),
        }
    }
    match held.first_key_value() {
        None => Ok(()),
        Some((tensor, shard)) => refuse(tensor, "nothing", shard),
    }
}
