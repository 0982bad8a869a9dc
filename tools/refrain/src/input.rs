//! Finding inputs: is a file a model or a plan, and where is the model of a plan.

use crate::exit::CliError;
use anyhow::Context;
use refrain_planner::ModelSource;
use refrain_planner::container::{self, CheckedPlan};
use refrain_planner::durable;
use refrain_planner::source::{OpenOptions, locate};
use refrain_recorder::FileSource;
use refrain_recorder::file as tape;
use refrain_recorder::source::{TensorSource, check_header, check_weights};
use refrain_replay::Refusal;
use refrain_replay::refusal::Code;
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
        Ok(meta) if meta.is_dir() && has_config(path) => "a folder",
        Ok(meta) if meta.is_dir() => "a folder without config.json",
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
    require_model(path)?;
    if path.is_dir() {
        return Ok(Kind::Other);
    }
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

/// Whether it is a folder that may hold a Hugging Face model.
fn has_config(path: &Path) -> bool {
    path.join("config.json").is_file()
}

/// An error for a path that is neither a regular file nor a folder of a model.
fn require_model(path: &Path) -> Result<(), CliError> {
    match has_config(path) {
        true => Ok(()),
        false => require_file(path),
    }
}

/// Opens a whole model.
///
/// # Errors
/// A missing file, or the reader's error.
pub fn open_model(path: &Path) -> anyhow::Result<ModelSource> {
    open_model_with(path, OpenOptions::default())
}

/// Opens a model, perhaps without its weights.
///
/// # Errors
/// A missing file, or the reader's error.
pub fn open_model_with(path: &Path, options: OpenOptions) -> anyhow::Result<ModelSource> {
    require_model(path)?;
    ModelSource::open_with(path, options).with_context(|| path.display().to_string())
}

/// The refusal of a plan that was made without weights, before a model is looked for.
///
/// # Errors
/// [`Refusal`] of [`Code::WeightsAbsent`].
pub fn require_weights(plan: &CheckedPlan) -> Result<(), Refusal> {
    check_weights(&plan.model).map_err(|error| Refusal::new(Code::WeightsAbsent, error))
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

/// The model of a plan: the one given, or the one beside the plan or in the current folder that has
/// the length and headers the plan states. Weights are checked when they are uploaded.
///
/// # Errors
/// [`CliError::ModelNotFound`] or [`CliError::ModelAmbiguous`].
pub fn model_of(plan: &CheckedPlan, path: &Path, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(given) = given {
        require_model(given)?;
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
    let bytes = plan.model.file_bytes();
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

/// Models of a folder that look like the plan's, by name order; of one in several files, the first.
fn models_in(folder: &Path, plan: &CheckedPlan) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| may_be_model(path))
        .collect();
    names.sort();
    let mut first_files: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for path in names {
        let Ok(files) = locate(&path).map(|located| located.files()) else {
            continue;
        };
        let Some(first) = files.first().filter(|first| !first_files.contains(first)) else {
            continue;
        };
        first_files.push(first.clone());
        if is_of(&path, plan) {
            found.push(path);
        }
    }
    found
}

/// Extensions of models; a folder may hold one, too.
fn may_be_model(path: &Path) -> bool {
    const EXTENSIONS: [&str; 5] = ["gguf", "hfq", "mq4", "mq4r", "mq6"];
    let extension = path.extension().and_then(|ext| ext.to_str());
    match path.is_dir() {
        true => has_config(path),
        false => {
            extension.is_some_and(|ext| EXTENSIONS.contains(&ext))
                || path.file_name().is_some_and(|name| name == "config.json")
        }
    }
}

fn is_of(path: &Path, plan: &CheckedPlan) -> bool {
    FileSource::open(path).is_ok_and(|source| {
        source
            .file_bytes()
            .is_ok_and(|bytes| bytes == plan.model.file_bytes())
            && check_header(&source, &plan.model).is_ok()
    })
}
