//! Writing a file so that its final name holds either the old bytes or all of the new ones.
//!
//! Write to a temporary file in the same folder, fsync it, rename it, fsync the folder. A crash at
//! any point leaves the final name whole; at worst a temporary file stays behind. A symbolic link
//! stays one: what it leads to is replaced. Only regular files are replaced, so that no device node,
//! pipe or socket becomes a file by mistake. Whether an output is also an input is for the caller to
//! ask ([`same_file`]). Owner and further hard links of a replaced file are not carried over.

use std::fs::{File, FileType, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Most links followed to a file that does not exist yet (as in Linux, path_resolution(7)).
const LINKS: u32 = 40;
/// Permission bits of a new file before the process's umask is taken off (as in creat(2)).
const NEW_MODE: u32 = 0o666;
/// Permission bits that a replaced file hands on; set-id and sticky bits fall as in a plain write.
const KEPT_MODE: u32 = 0o777;

/// Why a file was not written; the final name holds what it held before.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}; check the folder, its rights and its space")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer, without the temporary file's name.
        source: io::Error,
    },
    /// Something else than a regular file has the name.
    #[error("cannot write {path}: it is a {kind} and only files are replaced; name another output")]
    NotAFile {
        /// As given.
        path: PathBuf,
        /// Its type: `directory`, `fifo`, `socket`, `character device` or `block device`.
        kind: &'static str,
    },
}

/// Writes `bytes` under `path`, or under what it leads to if it is a symbolic link.
///
/// An existing file keeps its permission bits, a new one gets 0666 less the umask.
///
/// # Errors
/// [`WriteError::NotAFile`] before anything is touched; [`WriteError::Io`] with the action that failed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let error = |action, path: &Path, source| WriteError::Io {
        action,
        path: path.to_owned(),
        source: without_name(source),
    };
    let (target, replaced) = target(path)?;
    let folder = folder(&target);
    let mut file = tempfile::Builder::new()
        .prefix(".refrain-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(NEW_MODE))
        .tempfile_in(folder)
        .map_err(|source| error("create a file in", folder, source))?;
    if let Some(old) = replaced {
        // Not at creation, where the umask would take bits off.
        let mode = Permissions::from_mode(old.mode() & KEPT_MODE);
        let set = file.as_file().set_permissions(mode);
        set.map_err(|source| error("keep the mode of", path, source))?;
    }
    file.as_file_mut()
        .write_all(bytes)
        .map_err(|source| error("write beside", path, source))?;
    let synced = file.as_file().sync_all();
    synced.map_err(|source| error("sync", path, source))?;
    file.persist(&target)
        .map_err(|failed| error("rename to", path, failed.error))?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| error("sync folder", folder, source))
}

/// Whether both names lead to one existing file, by device and inode; links are followed.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let key = |path: &Path| {
        let found = path.metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    key(a).is_some_and(|a| key(b) == Some(a))
}

/// The name to replace, with links resolved, and the regular file that has it now.
fn target(path: &Path) -> Result<(PathBuf, Option<Metadata>), WriteError> {
    let error = |source| WriteError::Io {
        action: "look up",
        path: path.to_owned(),
        source,
    };
    // The type is the system's answer: links under /proc lead to pipes that no path names.
    match path.metadata() {
        Ok(found) if found.is_file() => {
            let target = path.canonicalize().map_err(error)?;
            Ok((target, Some(found)))
        }
        Ok(found) => Err(WriteError::NotAFile {
            path: path.to_owned(),
            kind: kind(found.file_type()),
        }),
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
            Ok((end_of_links(path).map_err(error)?, None))
        }
        Err(source) => Err(error(source)),
    }
}

/// The name at which a link to nothing ends; `path` itself if it is no link.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..LINKS {
        match at.symlink_metadata() {
            Ok(found) if found.is_symlink() => at = folder(&at).join(at.read_link()?),
            _ => return Ok(at),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn kind(of: FileType) -> &'static str {
    if of.is_dir() {
        "directory"
    } else if of.is_fifo() {
        "fifo"
    } else if of.is_socket() {
        "socket"
    } else if of.is_char_device() {
        "character device"
    } else {
        "block device"
    }
}

/// The error without the name of the temporary file, which nobody knows. `tempfile` appends it as
/// text (` at path "..."`) and does not give the system's error out.
fn without_name(error: io::Error) -> io::Error {
    match error.to_string().rsplit_once(" at path ") {
        Some((system, _)) => io::Error::new(error.kind(), system),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{WriteError, same_file, write};
    use std::fs::{Permissions, read, read_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::process::Command;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    fn entries(folder: &Path) -> usize {
        read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("plan");
        write(&target, b"old").unwrap();
        write(&target, b"new").unwrap();
        assert_eq!(read(&target).unwrap(), b"new");
        // A name that cannot be: the rename fails after the temporary file was written.
        let slash = folder.path().join("absent/");
        let error = write(&slash, b"x").expect_err("no file has a slash at the end");
        assert!(error.to_string().contains("rename to"), "{error}");
        assert_eq!(entries(folder.path()), 1);
        let inside = folder.path().join("absent/plan");
        let error = write(&inside, b"x").expect_err("no folder").to_string();
        assert!(error.starts_with("cannot create a file in "), "{error}");
        assert!(error.contains("os error 2"), "{error}");
        assert!(!error.contains(".refrain-"), "a name nobody knows: {error}");
    }

    #[test]
    fn what_is_no_file_is_refused_by_type_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("directory")).unwrap();
        let made = Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(made.success());
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for kind in ["directory", "fifo", "socket"] {
            symlink(at(kind), at(&format!("link-{kind}"))).unwrap();
            let before = entries(folder.path());
            for name in [kind.to_owned(), format!("link-{kind}")] {
                let was = at(&name).symlink_metadata().unwrap().file_type();
                let error = write(&at(&name), b"x").expect_err(kind);
                let WriteError::NotAFile { kind: found, .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!(*found, kind);
                let text = error.to_string();
                assert!(text.contains(&format!("it is a {kind}")), "{text}");
                assert_eq!(at(&name).symlink_metadata().unwrap().file_type(), was);
            }
            assert_eq!(entries(folder.path()), before);
        }
    }

    #[test]
    fn links_stay_and_what_they_lead_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("deep")).unwrap();
        write(&at("deep/plan"), b"old").unwrap();
        // Relative to the link's own folder, through a second link, to a file and to none yet.
        symlink("deep/plan", at("link")).unwrap();
        symlink("link", at("link-to-link")).unwrap();
        symlink("deep/later", at("dangling")).unwrap();
        for (link, file) in [
            ("link", "deep/plan"),
            ("link-to-link", "deep/plan"),
            ("dangling", "deep/later"),
        ] {
            write(&at(link), link.as_bytes()).unwrap();
            assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link}");
            assert_eq!(read(at(file)).unwrap(), link.as_bytes());
            assert!(at(file).symlink_metadata().unwrap().is_file(), "{file}");
        }
        symlink("round", at("round")).unwrap();
        let error = write(&at("round"), b"x").expect_err("a link to itself");
        assert!(error.to_string().starts_with("cannot look up"), "{error}");
        assert_eq!((entries(folder.path()), entries(&at("deep"))), (5, 2));
    }

    #[test]
    fn modes_are_kept_and_new_ones_are_as_any_new_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // What the umask of this process makes of 0666.
        std::fs::write(at("plain"), b"").unwrap();
        write(&at("new"), b"x").unwrap();
        assert_eq!(mode(&at("new")), mode(&at("plain")));
        for kept in [0o600, 0o644, 0o666, 0o777, 0o640] {
            set_permissions(at("new"), Permissions::from_mode(kept)).unwrap();
            write(&at("new"), b"y").unwrap();
            assert_eq!(mode(&at("new")), kept, "{kept:o}");
        }
        set_permissions(at("new"), Permissions::from_mode(0o4755)).unwrap();
        write(&at("new"), b"z").unwrap();
        assert_eq!(mode(&at("new")), 0o755);
    }

    #[test]
    fn one_file_under_two_names_is_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("a"), b"same").unwrap();
        write(&at("b"), b"same").unwrap();
        symlink("a", at("link")).unwrap();
        std::fs::hard_link(at("a"), at("hard")).unwrap();
        for (other, same) in [
            ("a", true),
            ("./a", true),
            ("link", true),
            ("hard", true),
            ("b", false),
            ("absent", false),
        ] {
            assert_eq!(same_file(&at("a"), &at(other)), same, "{other}");
            assert_eq!(same_file(&at(other), &at("a")), same, "{other}");
        }
        assert!(!same_file(&at("absent"), &at("absent")));
    }
}
