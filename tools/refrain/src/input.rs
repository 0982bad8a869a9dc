//! Finding inputs: is a file a model or a plan, and where is the model of a plan.

use crate::exit::CliError;
use anyhow::Context;
use refrain_planner::container::CheckedPlan;
use refrain_planner::gguf::GgufFile;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// First bytes of a plan file.
const PLAN_MAGIC: &[u8; 8] = b"REFRPLAN";
/// Longest plan file that is read, in bytes: a plan of 20,000 steps has about 8 MB.
const PLAN_BYTES_MAX: u64 = 256 << 20;

/// An error for a path that does not exist or is a folder.
///
/// # Errors
/// [`CliError`].
pub fn require_file(path: &Path) -> Result<(), CliError> {
    let shown = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(CliError::Io {
            path: shown,
            source: std::io::ErrorKind::IsADirectory.into(),
        }),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(CliError::NoInput { path: shown })
        }
        Err(source) => Err(CliError::Io {
            path: shown,
            source,
        }),
    }
}

/// Whether a file begins like a plan.
///
/// # Errors
/// [`CliError`] where it cannot be read.
pub fn is_plan(path: &Path) -> Result<bool, CliError> {
    require_file(path)?;
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(PLAN_MAGIC.len() as u64).read_to_end(&mut head))
        .map_err(|source| CliError::Io {
            path: path.display().to_string(),
            source,
        })?;
    Ok(head == PLAN_MAGIC)
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

/// The model of a plan: the one given, or a `.gguf` file beside the plan or in the current folder
/// that has the length the plan states. Digests are checked when its tensors are uploaded.
///
/// # Errors
/// [`CliError::ModelNotFound`].
pub fn model_of(plan: &CheckedPlan, path: &Path, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        require_file(given)?;
        return Ok(given.to_owned());
    }
    let bytes = plan.model.file_bytes;
    let beside = path.parent().map(Path::to_owned).unwrap_or_default();
    let folders = [beside, PathBuf::from(".")];
    let candidates = folders.iter().flat_map(|folder| {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let mut found: Vec<_> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| file.extension().is_some_and(|ext| ext == "gguf"))
            .filter(|file| std::fs::metadata(file).is_ok_and(|meta| meta.len() == bytes))
            .collect();
        found.sort();
        found
    });
    let missing = || CliError::ModelNotFound {
        plan: path.display().to_string(),
        bytes,
    };
    Ok(candidates.into_iter().next().ok_or_else(missing)?)
}
