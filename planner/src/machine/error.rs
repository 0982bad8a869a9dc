//! What can be wrong with a machine profile.

use std::path::PathBuf;

/// Why a machine profile was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// Neither a built-in name nor a file.
    #[error(
        "no machine {name:?}: built in are {known}; give one of these or the path of a profile"
    )]
    Unknown {
        /// Name that was asked for.
        name: String,
        /// Built-in names, separated by commas.
        known: String,
    },
    /// The file could not be read.
    #[error("cannot read machine profile {path}: {source}; check that it exists and is readable")]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause given by the operating system.
        source: std::io::Error,
    },
    /// The file is too long to be a profile.
    #[error("machine profile {path} has {found} bytes, at most {limit} are read; give a profile")]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// Longest accepted in bytes.
        limit: u64,
    },
    /// Not UTF-8.
    #[error("machine profile {origin}: byte {offset} is not UTF-8; save it as UTF-8")]
    Utf8 {
        /// File or built-in name.
        origin: String,
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// Not TOML, or a field is missing, unknown or of the wrong type.
    #[error(
        "machine profile {origin}, line {line}, column {column}: {message}; compare with a built-in profile"
    )]
    Toml {
        /// File or built-in name.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// A format version that is not known.
    #[error(
        "machine profile {origin}, line {line}: version {found}, this build reads {known}; probe the machine again"
    )]
    Version {
        /// File or built-in name.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Version in the file.
        found: i64,
        /// Version that is read.
        known: u32,
    },
    /// A value outside its range or table.
    #[error(
        "machine profile {origin}, line {line}: {field} is {found}, expected {expected}; correct it"
    )]
    Value {
        /// File or built-in name.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// Field, with its table: `host.cores`.
        field: &'static str,
        /// Value in the file.
        found: String,
        /// What would be accepted.
        expected: String,
    },
    /// Two fields that cannot both be true.
    #[error(
        "machine profile {origin}: {first} and {second} contradict each other; correct one of them"
    )]
    Contradiction {
        /// File or built-in name.
        origin: String,
        /// One field with its value.
        first: String,
        /// The other field with its value.
        second: String,
    },
}
