//! Why the files of a model cannot be read as one, with both values and the remedy.

use super::load::LoadError;
use crate::arch::ArchError;
use crate::gguf::GgufError;
use crate::hf::ConfigError;
use crate::hfq::HfqError;
use crate::safetensors::SafetensorsError;
use std::io;
use std::path::{Path, PathBuf};

/// Errors of opening or reading a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A file could not be opened or read.
    #[error("{}: {}", path.display(), unread(*offset, source))]
    Io {
        /// The file.
        path: PathBuf,
        /// Byte offset of the read.
        offset: u64,
        /// Cause given by the operating system.
        source: io::Error,
    },
    /// What a single GGUF file is refused for.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// What one of several files is refused for.
    #[error("{}: {source}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<ReadError>,
    },
    /// A safetensors header.
    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
    /// A Hugging Face configuration, tokenizer or index.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An HFQ container.
    #[error(transparent)]
    Hfq(#[from] HfqError),
    /// A recipe for an architecture that cannot be planned.
    #[error(transparent)]
    Arch(#[from] Box<ArchError>),
    /// A file that is longer than its kind can be.
    #[error(
        "{}: {found} bytes, at most {limit} are read of such a file; check that it is the right one",
        path.display()
    )]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// Bytes.
        limit: u64,
    },
    /// A file that a folder of a model must have.
    #[error("{}: no such file; {what}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// What it is for and what to do.
        what: &'static str,
    },
    /// Parts of a split GGUF file that are not there.
    #[error(
        "part {part} of {parts} is missing ({missing} in all): no file {}; fetch it into the same folder",
        path.display()
    )]
    MissingPart {
        /// First missing part, from 1.
        part: u64,
        /// Parts by the file names.
        parts: u64,
        /// Missing parts.
        missing: u64,
        /// Name of the first.
        path: PathBuf,
    },
    /// A part whose name does not say so.
    #[error(
        "{}: the file says it is part {part} of {parts}, its name does not end in \
         -{part:05}-of-{parts:05}.gguf; give all parts their names back",
        path.display()
    )]
    PartName {
        /// The file.
        path: PathBuf,
        /// Part by the file, from 1.
        part: u64,
        /// Parts by the file.
        parts: u64,
    },
    /// A part whose content belongs to another place.
    #[error(
        "{}: {key} is {found}, by the file names it is {expected}; fetch the parts of one model",
        path.display()
    )]
    PartMismatch {
        /// The file.
        path: PathBuf,
        /// Key that disagrees.
        key: &'static str,
        /// Value in the file, `none` without the key.
        found: String,
        /// Value by the names of the parts or by part 1.
        expected: String,
    },
    /// Two files with the content of one part.
    #[error(
        "{} and {} both hold part {part} of {parts}; fetch the one that is a copy again",
        first.display(), second.display()
    )]
    DuplicatePart {
        /// Earlier file.
        first: PathBuf,
        /// Later file.
        second: PathBuf,
        /// Part by both, from 1.
        part: u64,
        /// Parts.
        parts: u64,
    },
    /// Parts that do not add up.
    #[error(
        "split.tensors.count is {expected}, the {parts} parts have {found} tensors; fetch the parts of one model"
    )]
    PartTensors {
        /// Tensors in all parts.
        found: u64,
        /// Tensors by the key.
        expected: u64,
        /// Parts.
        parts: u64,
    },
    /// The same tensor in two files.
    #[error(
        "tensor {tensor} is there twice; the files do not belong to one model, fetch them again"
    )]
    DuplicateTensor {
        /// Tensor.
        tensor: String,
    },
    /// Two ways in which a folder holds its weights.
    #[error(
        "{} holds both {first} and {second}; remove the one that is not meant", folder.display()
    )]
    Ambiguous {
        /// The folder.
        folder: PathBuf,
        /// One file.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A recipe for a format that has its own types.
    #[error(
        "a recipe stands in for the weights of a Hugging Face configuration, {} is {found}; leave the recipe out",
        path.display()
    )]
    RecipeFormat {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// A row that the recipe's type cannot hold.
    #[error(
        "recipe {recipe}: a row of tensor {tensor} has {row} elements, no multiple of the {block} of a {ty} block; take another recipe"
    )]
    RecipeBlocks {
        /// Recipe.
        recipe: &'static str,
        /// Tensor.
        tensor: String,
        /// Elements.
        row: u64,
        /// Elements of a block.
        block: u64,
        /// Type.
        ty: &'static str,
    },
    /// A tensor that cannot be brought into the form of the plan.
    #[error("tensor {tensor}: {source}")]
    Load {
        /// Tensor.
        tensor: String,
        /// Why.
        source: LoadError,
    },
    /// Bytes that are not there.
    #[error("the bytes of tensor {tensor} are needed and not there; give the whole model")]
    WeightsAbsent {
        /// Tensor.
        tensor: String,
    },
    /// A tensor of another model.
    #[error("tensor {tensor} ends at byte {end}, the model has {bytes}: it is of another model")]
    Foreign {
        /// Tensor.
        tensor: String,
        /// End.
        end: u64,
        /// Bytes of all files.
        bytes: u64,
    },
}

impl ReadError {
    pub(crate) fn io(path: &Path, offset: u64, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            offset,
            source,
        }
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::InFile {
            path: path.to_owned(),
            source: Box::new(self),
        }
    }

    /// The system's answer, if a file could not be read.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } | Self::Gguf(GgufError::Io { source, .. }) => {
                Some(source.kind())
            }
            Self::Missing { .. } | Self::MissingPart { .. } => Some(io::ErrorKind::NotFound),
            Self::InFile { source, .. } => source.io_kind(),
            _ => None,
        }
    }
}

/// The system's answer with what can be done about it.
fn unread(offset: u64, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => format!("{source}; check the path"),
        io::ErrorKind::PermissionDenied => {
            format!("{source}; get the right to read the file (chmod or its owner)")
        }
        io::ErrorKind::UnexpectedEof => {
            format!("the file ends before byte {offset} is read; copy or download it again")
        }
        _ => format!("byte {offset}: {source}; check the disk or share that holds the file"),
    }
}
