//! One file with all that another machine needs but the model: plan, code objects, record, proof and a
//! list of them. A plain tar archive with sorted names and no times, owners or modes of its own, so
//! that packing the same things twice gives the same bytes.

use refrain_planner::identity::hex;
use std::collections::BTreeMap;
use std::io::Read;
use tar::{Builder, EntryType, Header};

/// Name of the list inside.
const LIST: &str = "list.txt";
/// First line of the list.
const SCHEMA: &str = "refrain.archive.v1";
/// Longest archive that is read, in bytes.
pub const ARCHIVE_BYTES_MAX: u64 = 256 << 20;
/// Most files of an archive.
const FILES_MAX: usize = 64;

/// Why bytes are no archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Not a tar archive, or cut.
    #[error("not an archive: {0}; package it again")]
    Tar(#[from] std::io::Error),
    /// An entry that does not belong.
    #[error("archive entry {name:?}: {why}; package it again")]
    Entry {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A file that is needed is not there.
    #[error("the archive has no {0}; package it again")]
    Absent(&'static str),
}

/// An archive's files by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Archive {
    files: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    /// Adds a file.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) {
        self.files.insert(name.to_owned(), bytes);
    }

    /// A file's bytes.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    /// As [`Self::file`].
    ///
    /// # Errors
    /// [`ArchiveError::Absent`].
    pub fn needed(&self, name: &'static str) -> Result<&[u8], ArchiveError> {
        self.file(name).ok_or(ArchiveError::Absent(name))
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    fn list(&self) -> String {
        let mut text = format!("{SCHEMA}\n");
        for (name, bytes) in &self.files {
            let digest = hex(blake3::hash(bytes).as_bytes());
            text += &format!("{digest} {} {name}\n", bytes.len());
        }
        text
    }

    /// The archive's bytes.
    ///
    /// # Errors
    /// A name that tar cannot hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut builder = Builder::new(Vec::new());
        let list = self.list();
        let files = self.files.iter().map(|(name, bytes)| (&**name, &**bytes));
        for (name, bytes) in [(LIST, list.as_bytes())].into_iter().chain(files) {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            builder.append_data(&mut header, name, bytes)?;
        }
        Ok(builder.into_inner()?)
    }

    /// Reads an archive's bytes. Every file must be listed with its digest, and the whole must be what
    /// [`Self::to_bytes`] writes.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let mut archive = Self::default();
        let mut list = None;
        for entry in tar::Archive::new(bytes).entries()? {
            let mut entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let wrong = |why: &str| ArchiveError::Entry {
                name: name.clone(),
                why: why.to_owned(),
            };
            if entry.header().entry_type() != EntryType::Regular {
                return Err(wrong("only plain files belong here"));
            }
            if crate::recipe::path(&name).is_err() {
                return Err(wrong("the name leaves the archive"));
            }
            if archive.files.len() == FILES_MAX {
                return Err(wrong("one file too many"));
            }
            // Bounded by the bytes at hand, whatever the header says.
            let mut content = Vec::new();
            entry
                .by_ref()
                .take(bytes.len() as u64)
                .read_to_end(&mut content)?;
            if name == LIST && list.is_none() {
                list = Some(content);
            } else if archive.files.insert(name.clone(), content).is_some() {
                return Err(wrong("stands twice"));
            }
        }
        let list = list.ok_or(ArchiveError::Absent(LIST))?;
        let wrong = |why: &str| ArchiveError::Entry {
            name: LIST.to_owned(),
            why: why.to_owned(),
        };
        if list != archive.list().as_bytes() {
            return Err(wrong("the digests are not those of the files"));
        }
        if archive.to_bytes()? != bytes {
            return Err(wrong("the archive is not in canonical form"));
        }
        Ok(archive)
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    fn archive() -> Archive {
        let mut archive = Archive::default();
        archive.add("record.toml", b"a = 1\n".to_vec());
        archive.add("plan", vec![7; 700]);
        archive.add("objects/ab.co", vec![0; 3]);
        archive
    }

    #[test]
    fn packing_twice_gives_the_same_bytes_whatever_the_order() {
        let bytes = archive().to_bytes().unwrap();
        let mut other = Archive::default();
        other.add("objects/ab.co", vec![0; 3]);
        other.add("plan", vec![7; 700]);
        other.add("record.toml", b"a = 1\n".to_vec());
        assert_eq!(other.to_bytes().unwrap(), bytes);
        assert_eq!(Archive::from_bytes(&bytes).unwrap(), archive());
        let names: Vec<&str> = other.names().collect();
        assert_eq!(names, ["objects/ab.co", "plan", "record.toml"]);
    }

    proptest! {
        #[test]
        fn any_changed_or_cut_byte_is_refused(
            at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<bool>()
        ) {
            let good = archive().to_bytes().unwrap();
            let mut bytes = good.clone();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = value }
            prop_assert_eq!(Archive::from_bytes(&bytes).is_ok(), bytes == good);
        }
    }
}
