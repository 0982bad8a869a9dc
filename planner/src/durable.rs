//! Writing a file so that its final name holds either the old bytes or all of the new ones.
//!
//! Write to a temporary file in the same folder, fsync it, rename it, fsync the folder. A crash at
//! any point leaves the final name whole; at worst a temporary file stays behind.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Why a file was not written; the final name holds what it held before.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}; check the folder, its rights and its space")]
pub struct WriteError {
    /// What was being done.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's answer.
    pub source: std::io::Error,
}

/// Writes `bytes` under `path`.
///
/// # Errors
/// [`WriteError`] with the action that failed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let error = |action, path: &Path, source| WriteError { action, path: path.to_owned(), source };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".refrain-")
        .suffix(".tmp")
        .tempfile_in(folder)
        .map_err(|source| error("create a file in", folder, source))?;
    file.write_all(bytes).map_err(|source| error("write beside", path, source))?;
    file.as_file().sync_all().map_err(|source| error("sync", path, source))?;
    file.persist(path).map_err(|failed| error("rename to", path, failed.error))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| error("sync folder", folder, source))
}

#[cfg(test)]
mod tests {
    use super::write;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("plan");
        write(&target, b"old").unwrap();
        write(&target, b"new").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
        // A folder under the final name cannot be replaced by a file.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        let error = write(&taken, b"x").expect_err("a folder is in the way").to_string();
        assert!(error.contains("rename to") && error.contains("taken"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let error = write(&folder.path().join("absent/plan"), b"x").expect_err("no folder");
        assert_eq!(error.action, "create a file in");
    }
}
