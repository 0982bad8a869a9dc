//! The folder of records: `matrix.toml`, and per model a folder of `MACHINE-RESIDENCY.toml` with the
//! proof beside each whole record.

use crate::recipe::{Matrix, Recipe, RecipeError};
use crate::record::{RECORD_BYTES_MAX, Record, RecordError};
use refrain_planner::durable::{self, WriteError};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest matrix or proof that is read, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// Why the registry cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file is longer than any of its kind.
    #[error("{path} is longer than {limit} bytes; it is none of the registry's")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Limit.
        limit: u64,
    },
    /// The matrix.
    #[error(transparent)]
    Matrix(#[from] RecipeError),
    /// A record.
    #[error("{path}: {source}")]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: RecordError,
    },
    /// A file was not written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A registry on disk.
#[derive(Debug, Clone)]
pub struct Registry {
    folder: PathBuf,
}

impl Registry {
    /// The registry in a folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// The matrix of all recipes.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn matrix(&self) -> Result<Matrix, RegistryError> {
        let path = self.folder.join("matrix.toml");
        let bytes = read(&path, BYTES_MAX)?;
        Ok(Matrix::parse(&String::from_utf8_lossy(&bytes))?)
    }

    /// Where a recipe's record lies.
    pub fn record_path(&self, recipe: &Recipe) -> PathBuf {
        let folder = self.folder.join(&recipe.model);
        folder.join(format!("{}.toml", recipe.cell()))
    }

    /// Where a recipe's proof lies.
    pub fn proof_path(&self, recipe: &Recipe) -> PathBuf {
        let folder = self.folder.join(&recipe.model);
        folder.join(format!("{}.proof", recipe.cell()))
    }

    /// The record of a recipe; `None` where nothing is sealed.
    ///
    /// # Errors
    /// A file that is there and is no record, also one that is about something else.
    pub fn record(&self, recipe: &Recipe) -> Result<Option<Record>, RegistryError> {
        let path = self.record_path(recipe);
        let Some(bytes) = absent_is_none(read(&path, RECORD_BYTES_MAX))? else {
            return Ok(None);
        };
        let record = Record::from_bytes(&bytes).and_then(|record| {
            let (found, wanted) = (record.recipe.to_string(), recipe.to_string());
            match found == wanted {
                true => Ok(record),
                false => Err(RecordError::Inconsistent(format!(
                    "it is about {found} and lies where {wanted} belongs"
                ))),
            }
        });
        let record = record.map_err(|source| RegistryError::Record { path, source })?;
        Ok(Some(record))
    }

    /// The proof beside a record; `None` where there is none.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn proof(&self, recipe: &Recipe) -> Result<Option<Vec<u8>>, RegistryError> {
        absent_is_none(read(&self.proof_path(recipe), BYTES_MAX))
    }

    /// Writes a record, and its proof first.
    ///
    /// # Errors
    /// [`RegistryError::Write`], [`RegistryError::Io`].
    pub fn write(&self, record: &Record, proof: Option<&[u8]>) -> Result<(), RegistryError> {
        let path = self.record_path(&record.recipe);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(|source| RegistryError::Io {
            path: folder.to_owned(),
            source,
        })?;
        if let Some(proof) = proof {
            durable::write(&self.proof_path(&record.recipe), proof)?;
        }
        Ok(durable::write(&path, &record.to_bytes())?)
    }

    /// Files under model folders that belong to no recipe of the matrix, sorted.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn strays(&self, matrix: &Matrix) -> Result<Vec<PathBuf>, RegistryError> {
        let known: Vec<PathBuf> = matrix
            .recipes
            .iter()
            .flat_map(|recipe| [self.record_path(recipe), self.proof_path(recipe)])
            .collect();
        let mut strays = Vec::new();
        for folder in entries(&self.folder)?
            .into_iter()
            .filter(|path| path.is_dir())
        {
            let files = entries(&folder)?;
            strays.extend(files.into_iter().filter(|file| !known.contains(file)));
        }
        strays.sort();
        Ok(strays)
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, RegistryError> {
    let failed = |source| RegistryError::Io {
        path: folder.to_owned(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    entries
        .map(|entry| Ok(entry.map_err(failed)?.path()))
        .collect()
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, RegistryError> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_end(&mut bytes));
    read.map_err(|source| RegistryError::Io {
        path: path.to_owned(),
        source,
    })?;
    if bytes.len() as u64 > limit {
        let path = path.to_owned();
        return Err(RegistryError::TooLong { path, limit });
    }
    Ok(bytes)
}

fn absent_is_none(read: Result<Vec<u8>, RegistryError>) -> Result<Option<Vec<u8>>, RegistryError> {
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(RegistryError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
