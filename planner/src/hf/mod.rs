//! Hugging Face models: a configuration, tensor names and a tokenizer, brought into the metadata
//! keys and tensor names of GGUF.
//!
//! Everything that differs by architecture is a row: fields in `keys`, tensor names and what is done
//! to a tensor in `names`. HFQ files hold the same names and configuration and come through here, too.
//! Geometry and shapes are judged by `arch` afterwards, as for GGUF.

mod config;
mod error;
mod experts;
mod json;
mod keys;
mod names;
mod rope;
mod shards;
mod tokenizer;

pub use error::ConfigError;
pub(crate) use json::Json;
pub(crate) use names::always_wide;
pub(crate) use shards::shard_names;

use crate::arch;
use crate::gguf::Value;
use crate::safetensors::SafetensorsHeader;
use crate::source::{
    FileHead, FolderFiles, Format, ModelTable, OpenOptions, ReadError, SourceFile, TensorEntry,
    TensorType,
};
use config::Config;
use std::path::Path;

/// Longest `config.json` that is read, in bytes.
const CONFIG_BYTES: u64 = 4 << 20;
/// Longest `tokenizer.json` that is read; published ones have up to 35 MB.
const TOKENIZER_BYTES: u64 = 64 << 20;

/// A tensor as its file has it.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Hugging Face name.
    pub name: String,
    pub ty: TensorType,
    /// Dimensions, the contiguous one last.
    pub shape: Vec<u64>,
    /// First byte, through all files.
    pub offset: u64,
    pub bytes: u64,
}

/// Opens a folder.
pub(crate) fn open(
    folder: &FolderFiles,
    options: OpenOptions,
) -> Result<(Vec<SourceFile>, ModelTable), ReadError> {
    let (config_file, config_json) = document(&folder.config, CONFIG_BYTES)?;
    let mut files = vec![config_file];
    let mut tokens = None;
    if let Some(path) = &folder.tokenizer {
        let (file, json) = document(path, TOKENIZER_BYTES)?;
        files.push(file);
        tokens = Some((path.as_path(), json));
    }
    let mut heads: Vec<FileHead> = files.iter().map(whole).collect();
    let mut base: u64 = heads.iter().map(|head| head.bytes).sum();
    let mut stored = Vec::new();
    let mut shards = Vec::new();
    for path in &folder.weights {
        let file = SourceFile::open(path)?;
        let header = SafetensorsHeader::read(&file, options.header_only)
            .map_err(|error| error.in_file(path))?;
        for tensor in &header.tensors {
            stored.push(Stored {
                name: tensor.name.clone(),
                ty: tensor.ty,
                shape: tensor.shape.clone(),
                offset: base.saturating_add(tensor.offset),
                bytes: tensor.bytes,
            });
        }
        heads.push(FileHead {
            bytes: header.file_bytes,
            header_bytes: header.data_offset,
        });
        base = base.saturating_add(header.file_bytes);
        files.push(file);
        shards.push((path.as_path(), header));
    }
    if let Some(index) = folder.index.as_ref().filter(|_| !shards.is_empty()) {
        shards::check(index, &shards)?;
    }
    let format = match options.recipe {
        Some(_) => Format::Recipe,
        None => Format::Safetensors,
    };
    let tokens = tokens.as_ref().map(|(path, json)| (*path, json));
    let made = table(format, &config_json, tokens, stored, heads, options);
    Ok((files, made.map_err(|error| named(error, &folder.config))?))
}

/// Errors of a configuration name its file; those that name their own stay as they are.
fn named(error: ReadError, config: &Path) -> ReadError {
    match error {
        error @ (ReadError::Config(_) | ReadError::Arch(_)) => error.in_file(config),
        other => other,
    }
}

fn whole(file: &SourceFile) -> FileHead {
    FileHead {
        bytes: file.bytes(),
        header_bytes: file.bytes(),
    }
}

fn document(path: &Path, limit: u64) -> Result<(SourceFile, Json), ReadError> {
    let file = SourceFile::open(path)?;
    let bytes = file.read_all(limit)?;
    let json = serde_json::from_slice(&bytes).map_err(|error| {
        ReadError::from(ConfigError::Json {
            message: error.to_string(),
        })
        .in_file(path)
    })?;
    Ok((file, json))
}

/// The table of a configuration and its tensors; with a recipe the tensors are declared instead.
pub(crate) fn table(
    format: Format,
    config: &Json,
    tokenizer: Option<(&Path, &Json)>,
    stored: Vec<Stored>,
    files: Vec<FileHead>,
    options: OpenOptions,
) -> Result<ModelTable, ReadError> {
    let config = Config::of(config)?;
    let mut metadata = keys::metadata(&config)?;
    let vocabulary = config.count("vocab_size")?;
    match tokenizer {
        Some((path, json)) => tokenizer::add(&mut metadata, json, vocabulary)
            .map_err(|error| ReadError::from(error).in_file(path))?,
        None => config::insert(
            &mut metadata,
            "tokenizer.ggml.model",
            Value::String("none".into()),
        ),
    }
    let factors = rope::factors(&config)?;
    let tensors = match options.recipe {
        None => bind_names(&config, stored)?,
        Some(recipe) => {
            let bare = ModelTable::new(format, metadata, Vec::new(), files.clone(), options)?;
            let declared = arch::declared(&bare, config.tied()?).map_err(Box::new)?;
            metadata = bare.metadata;
            recipe.tensors(declared)?
        }
    };
    let mut table = ModelTable::new(format, metadata, tensors, files, options)?;
    table.rope_factors = factors;
    Ok(table)
}

/// Tensors under GGUF names, with what must be done to them.
fn bind_names(config: &Config<'_>, stored: Vec<Stored>) -> Result<Vec<TensorEntry>, ReadError> {
    let rows = names::Names::of(config)?;
    let mut stacked = experts::Experts::default();
    let mut tensors = Vec::with_capacity(stored.len());
    for tensor in stored {
        if names::ignored(&tensor.name) {
            continue;
        }
        match experts::part(names::stripped(&tensor.name)) {
            Some(part) => stacked.add(part, tensor, config.count("num_experts")?)?,
            None => tensors.push(rows.bind(tensor)?),
        }
    }
    tensors.extend(stacked.finish(config.opt_count("num_experts")?.unwrap_or(0))?);
    config.check_embedding(&tensors)?;
    config.check_tie(&tensors)?;
    Ok(tensors)
}
