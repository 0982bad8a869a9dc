//! A GGUF model in one file or in parts, as one table. The keys of a split file are llama.cpp's
//! (`LLM_KV_SPLIT_*`): `split.no` from 0, `split.count`, `split.tensors.count`. Part 0 has the metadata.

use super::locate::part_name;
use super::table::{FileHead, Format, ModelTable, TensorEntry};
use super::{ModelSource, OpenOptions, ReadError, SourceFile};
use crate::gguf::{GgufFile, GgufHeader, Metadata};
use std::path::{Path, PathBuf};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";
const ARCHITECTURE: &str = "general.architecture";

pub(super) fn open(paths: &[PathBuf], options: OpenOptions) -> Result<ModelSource, ReadError> {
    let mut parts = Vec::with_capacity(paths.len());
    for path in paths {
        let opened = match options.header_only {
            false => GgufFile::open(path),
            true => GgufFile::open_header(path),
        };
        let opened = opened.map_err(ReadError::from);
        parts.push(match paths.len() {
            1 => opened?,
            _ => opened.map_err(|error| error.in_file(path))?,
        });
    }
    let headers: Vec<_> = parts
        .iter()
        .map(|part| (part.path(), part.header()))
        .collect();
    check(&headers)?;
    join(parts, options)
}

fn number(metadata: &Metadata, key: &str) -> Result<Option<u64>, ReadError> {
    Ok(metadata.opt(key)?)
}

/// Each part must be the one that its name says, of the same model.
fn check(parts: &[(&Path, &GgufHeader)]) -> Result<(), ReadError> {
    let count = parts.len() as u64;
    if let [(path, header)] = parts {
        let parts = number(&header.metadata, COUNT)?.unwrap_or(1);
        if parts <= 1 || part_name(path).is_some() {
            return Ok(());
        }
        let part = number(&header.metadata, NUMBER)?.unwrap_or(0) + 1;
        return Err(ReadError::PartName {
            path: (*path).to_owned(),
            part,
            parts,
        });
    }
    let first = parts.first().map(|(_, header)| &header.metadata);
    let architecture = first.and_then(|first| first.opt::<&str>(ARCHITECTURE).ok()?);
    for (at, (path, header)) in parts.iter().enumerate() {
        let metadata = &header.metadata;
        let mismatch = |key, found: Option<String>, expected: String| ReadError::PartMismatch {
            path: (*path).to_owned(),
            key,
            found: found.unwrap_or_else(|| "none".to_owned()),
            expected,
        };
        let found = number(metadata, COUNT)?;
        if found != Some(count) {
            let found = found.map(|found| found.to_string());
            return Err(mismatch(COUNT, found, count.to_string()));
        }
        let found = number(metadata, NUMBER)?;
        if found != Some(at as u64) {
            // A copy of an earlier part under this name is the likely mistake.
            if let Some((first, _)) = found
                .and_then(|n| parts.get(n as usize))
                .filter(|_| found < Some(at as u64))
            {
                return Err(ReadError::DuplicatePart {
                    first: (*first).to_owned(),
                    second: (*path).to_owned(),
                    part: found.unwrap_or_default() + 1,
                    parts: count,
                });
            }
            let found = found.map(|found| found.to_string());
            return Err(mismatch(NUMBER, found, at.to_string()));
        }
        let found = metadata.opt::<&str>(ARCHITECTURE)?;
        if found.is_some() && found != architecture {
            let expected = architecture.unwrap_or("none").to_owned();
            return Err(mismatch(ARCHITECTURE, found.map(str::to_owned), expected));
        }
    }
    let found: u64 = parts
        .iter()
        .map(|(_, header)| header.tensors.len() as u64)
        .sum();
    match first
        .map(|first| number(first, TENSORS))
        .transpose()?
        .flatten()
    {
        Some(expected) if expected != found => Err(ReadError::PartTensors {
            found,
            expected,
            parts: count,
        }),
        _ => Ok(()),
    }
}

/// One model of its parts; the metadata is the first one's.
fn join(parts: Vec<GgufFile>, options: OpenOptions) -> Result<ModelSource, ReadError> {
    let mut metadata = None;
    let (mut tensors, mut heads, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let mut base = 0u64;
    for part in parts {
        let (path, file, header) = part.into_parts();
        for info in header.tensors {
            tensors.push(TensorEntry {
                name: info.name,
                dims: info.dims,
                ty: info.ty.into(),
                stored: info.ty.into(),
                ops: Vec::new(),
                offset: base.saturating_add(info.offset),
                bytes: info.bytes,
                more: Vec::new(),
            });
        }
        heads.push(FileHead {
            bytes: header.file_bytes,
            // A part without tensors may end before its padding.
            header_bytes: header.data_offset.min(header.file_bytes),
        });
        base = base.saturating_add(header.file_bytes);
        metadata.get_or_insert(header.metadata);
        // Where it ends early, a read past its end says so.
        let bytes = file.metadata().map_or(header.file_bytes, |meta| meta.len());
        files.push(SourceFile::of(path, file, bytes));
    }
    let metadata = metadata.unwrap_or_default();
    let table = ModelTable::new(Format::Gguf, metadata, tensors, heads, options)?;
    Ok(ModelSource { files, table })
}
