//! What can be wrong with a GGUF file: one variant per cause, with byte offset, both values and the remedy.

use std::io;
use std::path::PathBuf;

/// Why a GGUF file was refused. `offset` is always a byte offset from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file could not be opened or read.
    #[error("{}", unread(*offset, source))]
    Io {
        /// File being read; not in the text, as every error here is about that file.
        path: PathBuf,
        /// Byte offset of the read.
        offset: u64,
        /// Cause given by the operating system.
        source: io::Error,
    },
    /// The file ends inside the header.
    #[error(
        "byte {offset}: the file ends inside {what}: {need} bytes needed, {have} left; copy or download it again"
    )]
    Truncated {
        /// Where the missing item starts.
        offset: u64,
        /// The item.
        what: &'static str,
        /// Bytes that the item needs, at least.
        need: u64,
        /// Bytes left in the file.
        have: u64,
    },
    /// The caller gave only the first bytes of the file, and the header is longer.
    #[error(
        "byte {offset}: the header goes on past the {given} bytes given: {what} needs {need}; give more of the file"
    )]
    HeaderIncomplete {
        /// Where the missing item starts.
        offset: u64,
        /// The item.
        what: &'static str,
        /// Bytes that the item needs, at least.
        need: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// The file does not start with `GGUF`.
    #[error("byte 0: this is no GGUF file: magic {found:02x?} instead of \"GGUF\"{hint}")]
    Magic {
        /// First four bytes.
        found: [u8; 4],
        /// What the bytes suggest instead, starting with punctuation.
        hint: &'static str,
    },
    /// The file was written in big-endian byte order.
    #[error(
        "byte 4: big-endian GGUF (version field reads {raw:#010x}, byte-swapped {swapped}); convert it with gguf_convert_endian.py MODEL little"
    )]
    BigEndian {
        /// The version field, read as little-endian.
        raw: u32,
        /// The version, byte-swapped.
        swapped: u32,
    },
    /// GGUF version 1, which has 32-bit counts and which no current writer makes.
    #[error(
        "byte 4: GGUF version 1 is not read, only 2 and 3; convert the model again with a current convert_hf_to_gguf.py"
    )]
    VersionOne,
    /// A version other than 2 and 3.
    #[error(
        "byte 4: GGUF version {found}, this reader knows 2 and 3; write the file with a version 3 converter"
    )]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// A count or length is above a named limit of [`super::limits`].
    #[error(
        "byte {offset}: {what} is {found}, above the limit of {limit}; the file is damaged, fetch it again"
    )]
    Limit {
        /// Where the number stands.
        offset: u64,
        /// What it counts.
        what: &'static str,
        /// Number in the file.
        found: u64,
        /// Largest number accepted.
        limit: u64,
    },
    /// A string is not UTF-8.
    #[error(
        "byte {offset}: {what} is not UTF-8 (valid up to byte {valid} of {len}); the file is damaged, fetch it again"
    )]
    Utf8 {
        /// Where the string's bytes start.
        offset: u64,
        /// The string.
        what: &'static str,
        /// Valid bytes before the first bad one.
        valid: u64,
        /// Length of the string in bytes.
        len: u64,
    },
    /// A metadata key or a tensor name of no bytes.
    #[error("byte {offset}: {what} is empty; write the file again with a current converter")]
    EmptyName {
        /// Where the length stands.
        offset: u64,
        /// Key or tensor name.
        what: &'static str,
    },
    /// The same metadata key twice.
    #[error("byte {offset}: key {key} was already given at byte {first}; remove one of them")]
    DuplicateKey {
        /// Second occurrence.
        offset: u64,
        /// The key.
        key: String,
        /// First occurrence.
        first: u64,
    },
    /// A value type id outside 0..=12.
    #[error(
        "byte {offset}: key {key} has value type {found}, known are 0 to 12; the file is damaged or too new"
    )]
    ValueType {
        /// Where the type id stands.
        offset: u64,
        /// The key.
        key: String,
        /// Type id in the file.
        found: u32,
    },
    /// An array of arrays.
    #[error(
        "byte {offset}: key {key} is an array of arrays, which this reader does not take; flatten it"
    )]
    NestedArray {
        /// Where the element type id stands.
        offset: u64,
        /// The key.
        key: String,
    },
    /// A boolean other than 0 and 1.
    #[error(
        "byte {offset}: key {key} holds boolean {found}, only 0 and 1 are allowed; the file is damaged"
    )]
    Bool {
        /// Where the byte stands.
        offset: u64,
        /// The key.
        key: String,
        /// Byte in the file.
        found: u8,
    },
    /// `general.alignment` is no power of two in range.
    #[error(
        "byte {offset}: general.alignment is {found}, it must be a power of two from 1 to {limit}; write the file again"
    )]
    Alignment {
        /// Where the key stands.
        offset: u64,
        /// Alignment in the file.
        found: u64,
        /// Largest alignment accepted.
        limit: u64,
    },
    /// No or too many dimensions.
    #[error(
        "byte {offset}: tensor {tensor} has {found} dimensions, 1 to {limit} are allowed; the file is damaged"
    )]
    DimensionCount {
        /// Where the count stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Count in the file.
        found: u32,
        /// Largest count accepted.
        limit: u32,
    },
    /// A dimension of 0.
    #[error(
        "byte {offset}: tensor {tensor} has dimensions {dims:?}: none may be 0; the file is damaged"
    )]
    ZeroDimension {
        /// Where the dimension stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Dimensions, contiguous one first.
        dims: Vec<u64>,
    },
    /// The product of the dimensions is absurd.
    #[error(
        "byte {offset}: tensor {tensor} of dimensions {dims:?} has more than {limit} elements; the file is damaged"
    )]
    ElementCount {
        /// Where the dimensions stand.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Dimensions, contiguous one first.
        dims: Vec<u64>,
        /// Largest element count accepted.
        limit: u64,
    },
    /// A ggml type id that no table row knows.
    #[error(
        "byte {offset}: tensor {tensor} has ggml type {found}, which is unknown; quantise the model to a listed type, for example Q8_0"
    )]
    UnknownType {
        /// Where the type id stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Type id in the file.
        found: u32,
    },
    /// A ggml type that was withdrawn from the format.
    #[error(
        "byte {offset}: tensor {tensor} has ggml type {found} ({name}), withdrawn from GGUF; quantise the model again, for example to {instead}"
    )]
    RemovedType {
        /// Where the type id stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Type id in the file.
        found: u32,
        /// Former name of the type.
        name: &'static str,
        /// Type to use in its place.
        instead: &'static str,
    },
    /// A row is no whole number of blocks.
    #[error(
        "byte {offset}: tensor {tensor}: a row of {row} elements is no multiple of the {block} elements of a {ty} block; use another type for it"
    )]
    RowBlocks {
        /// Where the first dimension stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Row length in elements.
        row: u64,
        /// Elements of one block.
        block: u64,
        /// Type name.
        ty: &'static str,
    },
    /// A tensor offset is no multiple of the alignment.
    #[error(
        "byte {offset}: tensor {tensor} starts at {found} of the data, which is no multiple of the alignment {alignment}; write the file again"
    )]
    Misaligned {
        /// Where the tensor offset stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// Offset from the start of the data.
        found: u64,
        /// Alignment in bytes.
        alignment: u64,
    },
    /// A tensor reaches past the end of the file.
    #[error(
        "byte {offset}: tensor {tensor} ends at byte {end}, the file has {file_bytes}; it was cut off, fetch it again (to plan without weights: --header-only)"
    )]
    PastEnd {
        /// Where the tensor offset stands.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// First byte after the tensor (saturated at `u64::MAX`).
        end: u64,
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "byte {offset}: tensor {tensor} starts at byte {start}, inside {other}, which ends at byte {other_end}; write the file again"
    )]
    Overlap {
        /// Where the tensor offset stands.
        offset: u64,
        /// The later tensor.
        tensor: String,
        /// Its first byte in the file.
        start: u64,
        /// The tensor that it overlaps.
        other: String,
        /// First byte after the other tensor.
        other_end: u64,
    },
    /// The same tensor name twice.
    #[error(
        "byte {offset}: tensor {tensor} was already declared at byte {first}; remove one of them"
    )]
    DuplicateTensor {
        /// Second occurrence.
        offset: u64,
        /// Tensor name.
        tensor: String,
        /// First occurrence.
        first: u64,
    },
    /// A metadata key that the caller needs is missing.
    #[error("key {key} ({expected}) is missing; convert the model again with a current converter")]
    MissingKey {
        /// The key.
        key: String,
        /// Type that was asked for.
        expected: &'static str,
    },
    /// A metadata value has another type than the caller needs.
    #[error(
        "byte {offset}: key {key} is {found}, expected {expected}; convert the model again with a current converter"
    )]
    KeyType {
        /// Where the key stands.
        offset: u64,
        /// The key.
        key: String,
        /// Type that was asked for.
        expected: &'static str,
        /// Type in the file.
        found: &'static str,
    },
    /// A metadata integer does not fit the type that the caller needs.
    #[error(
        "byte {offset}: key {key} is {found}, which does not fit {expected}; the file is damaged"
    )]
    KeyRange {
        /// Where the key stands.
        offset: u64,
        /// The key.
        key: String,
        /// Type that was asked for.
        expected: &'static str,
        /// Number in the file.
        found: i128,
    },
    /// A per-layer array has another length than the model has layers.
    #[error(
        "byte {offset}: key {key} has {found} elements for {expected} layers; the file is damaged"
    )]
    KeyLength {
        /// Where the key stands.
        offset: u64,
        /// The key.
        key: String,
        /// Number of layers.
        expected: usize,
        /// Elements in the file.
        found: usize,
    },
    /// A tensor that the caller needs is missing.
    #[error(
        "tensor {tensor} is missing; the file is incomplete or of another architecture than it says"
    )]
    MissingTensor {
        /// Tensor name.
        tensor: String,
    },
}

/// The system's answer with what can be done about it.
fn unread(offset: u64, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => format!("{source}; check the path"),
        io::ErrorKind::PermissionDenied => {
            format!("{source}; get the right to read the file (chmod or its owner)")
        }
        io::ErrorKind::UnexpectedEof => format!(
            "byte {offset}: the file became shorter while it was read; copy or download it again"
        ),
        _ => format!("byte {offset}: {source}; check the disk or share that holds the file"),
    }
}

impl GgufError {
    /// Byte offset in the file that the error is about; `None` for what is missing as a whole.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        use GgufError as E;
        Some(match self {
            E::Io { offset, .. }
            | E::Truncated { offset, .. }
            | E::HeaderIncomplete { offset, .. }
            | E::Limit { offset, .. }
            | E::Utf8 { offset, .. }
            | E::EmptyName { offset, .. }
            | E::DuplicateKey { offset, .. }
            | E::ValueType { offset, .. }
            | E::NestedArray { offset, .. }
            | E::Bool { offset, .. }
            | E::Alignment { offset, .. }
            | E::DimensionCount { offset, .. }
            | E::ZeroDimension { offset, .. }
            | E::ElementCount { offset, .. }
            | E::UnknownType { offset, .. }
            | E::RemovedType { offset, .. }
            | E::RowBlocks { offset, .. }
            | E::Misaligned { offset, .. }
            | E::PastEnd { offset, .. }
            | E::Overlap { offset, .. }
            | E::DuplicateTensor { offset, .. }
            | E::KeyType { offset, .. }
            | E::KeyRange { offset, .. }
            | E::KeyLength { offset, .. } => *offset,
            E::Magic { .. } => 0,
            E::BigEndian { .. } | E::VersionOne | E::Version { .. } => 4,
            E::MissingKey { .. } | E::MissingTensor { .. } => return None,
        })
    }
}
