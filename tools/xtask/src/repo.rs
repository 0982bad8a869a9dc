//! Where things lie in the repository, and reading them with errors that name the path.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use refrain_kernels::Isa;

/// The checkout this xtask was built from.
pub(crate) struct Repo {
    root: PathBuf,
}

impl Repo {
    pub(crate) fn of_this_crate() -> Repo {
        Repo {
            root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        }
    }

    /// A repository elsewhere.
    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Repo {
        Repo {
            root: root.to_path_buf(),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The packed code object of an architecture.
    pub(crate) fn object(&self, isa: &Isa) -> PathBuf {
        self.path(&format!("kernels/objects/{isa}/refrain.co.z"))
    }

    pub(crate) fn read(&self, relative: &str) -> Result<Vec<u8>> {
        read(&self.path(relative))
    }
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Writes a file and its folders.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
