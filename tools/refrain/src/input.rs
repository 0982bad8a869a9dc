//! Finding inputs: is a file a model or a plan, and where is the model of a plan.

use crate::exit::CliError;
use anyhow::Context;
use refrain_planner::container::{self, CheckedPlan};
use refrain_planner::durable;
use refrain_planner::gguf::GgufFile;
use refrain_recorder::FileSource;
use refrain_recorder::file as tape;
use refrain_recorder::source::check_header;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest plan file that is read, in bytes: a plan of 20,000 steps has about 8 MB.
const PLAN_BYTES_MAX: u64 = 256 << 20;

/// What a file is by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plan.
    Plan,
    /// A tape.
    Tape,
    /// Anything else; a model, if it is one, says so when it is read.
    Other,
}

/// An error for a path that does not exist or is not a regular file.
///
/// # Errors
/// [`CliError`].
pub fn require_file(path: &Path) -> Result<(), CliError> {
    let shown = path.display().to_string();
    let kind = match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => return Ok(()),
        Ok(meta) if meta.is_dir() => "a folder",
        Ok(_) => "no regular file (a pipe, socket or device)",
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::NoInput { path: shown });
        }
        Err(source) => {
            return Err(CliError::Io {
                path: shown,
                source,
            });
        }
    };
    Err(CliError::NotAFile { path: shown, kind })
}

/// What kind of file it is.
///
/// # Errors
/// [`CliError`] where it cannot be read.
pub fn kind(path: &Path) -> Result<Kind, CliError> {
    require_file(path)?;
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(container::MAGIC.len() as u64)
                .read_to_end(&mut head)
        })
        .map_err(|source| CliError::Io {
            path: path.display().to_string(),
            source,
        })?;
    Ok(match head {
        head if head == container::MAGIC => Kind::Plan,
        head if head == tape::MAGIC => Kind::Tape,
        _ => Kind::Other,
    })
}

/// Opens a model file.
///
/// # Errors
/// A missing file, or the reader's error.
pub fn open_model(path: &Path) -> anyhow::Result<GgufFile> {
    require_file(path)?;
    GgufFile::open(path).with_context(|| path.display().to_string())
}

/// A whole file, if it is not longer than `limit` bytes.
///
/// # Errors
/// [`CliError`] for a file that is absent, unreadable or too long.
pub fn read_up_to(path: &Path, limit: u64) -> Result<Vec<u8>, CliError> {
    require_file(path)?;
    let shown = path.display().to_string();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(|source| CliError::Io {
        path: shown.clone(),
        source,
    })?;
    if bytes.len() as u64 > limit {
        return Err(CliError::TooLong { path: shown, limit });
    }
    Ok(bytes)
}

/// Reads and checks a plan file.
///
/// # Errors
/// A missing file, or the container's error.
pub fn open_plan(path: &Path) -> anyhow::Result<CheckedPlan> {
    let bytes = read_up_to(path, PLAN_BYTES_MAX)?;
    CheckedPlan::from_bytes(&bytes).with_context(|| path.display().to_string())
}

/// The model of a plan: the one given, or the `.gguf` file beside the plan or in the current folder
/// that has the length and header the plan states. Weights are checked when they are uploaded.
///
/// # Errors
/// [`CliError::ModelNotFound`] or [`CliError::ModelAmbiguous`].
pub fn model_of(plan: &CheckedPlan, path: &Path, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        require_file(given)?;
        return Ok(given.to_owned());
    }
    let here = PathBuf::from(".");
    let beside = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let beside = beside.map_or_else(|| here.clone(), Path::to_owned);
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in [beside, here] {
        for file in models_in(&folder, plan) {
            if !found.iter().any(|known| durable::same_file(known, &file)) {
                found.push(file);
            }
        }
    }
    let plan_path = path.display().to_string();
    let bytes = plan.model.file_bytes;
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(CliError::ModelNotFound {
            plan: plan_path,
            bytes,
        }
        .into()),
        several => {
            let names = several.iter().map(|file| file.display().to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            Err(CliError::ModelAmbiguous {
                plan: plan_path,
                names,
            }
            .into())
        }
    }
}

/// Model files of a folder that look like the plan's, by name order.
fn models_in(folder: &Path, plan: &CheckedPlan) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|ext| ext == "gguf"))
        .filter(|file| {
            std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.len() == plan.model.file_bytes)
        })
        .filter(|file| has_header(file, plan))
        .collect();
    found.sort();
    found
}

fn has_header(file: &Path, plan: &CheckedPlan) -> bool {
    FileSource::open(file).is_ok_and(|source| check_header(&source, &plan.model).is_ok())
}
