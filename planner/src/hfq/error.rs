//! What can be wrong with the head of an HFQ file.

/// Why an HFQ file was refused. Offsets count from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HfqError {
    /// Another magic.
    #[error(
        "byte 0: this is no HFQ file: it starts with \"{found}\" instead of \"HFQM\"; give the path of one"
    )]
    Magic {
        /// First bytes.
        found: String,
    },
    /// Another version.
    #[error("byte 4: HFQ version {found}, this reader knows 1; write the file with that version")]
    Version {
        /// Version in the file.
        found: u32,
    },
    /// An architecture that is not known.
    #[error("byte 8: architecture {found}, known are {known}; take a model of one of them")]
    Architecture {
        /// Number.
        found: u32,
        /// Known numbers.
        known: String,
    },
    /// Header and configuration disagree.
    #[error(
        "byte 8: architecture {found} is {kinds}, the configuration in the file says {model_type:?}; write the file again"
    )]
    OtherArchitecture {
        /// Number.
        found: u32,
        /// Its model types.
        kinds: String,
        /// `model_type`.
        model_type: String,
    },
    /// An offset that cannot be.
    #[error(
        "byte {offset}: {what} is {found}, it must be {rule}; the file is damaged, fetch it again"
    )]
    Offset {
        /// Name.
        what: &'static str,
        /// Where it stands.
        offset: u64,
        /// Value.
        found: u64,
        /// What is accepted.
        rule: String,
    },
    /// The head ends inside an item.
    #[error(
        "byte {offset}: the part before the tensor data ends inside {what}: {need} bytes needed, {have} left; fetch the file again"
    )]
    Truncated {
        /// Where the item starts.
        offset: u64,
        /// The item.
        what: &'static str,
        /// Bytes needed.
        need: u64,
        /// Bytes left.
        have: u64,
    },
    /// Metadata that is no JSON object.
    #[error("byte {offset}: the metadata cannot be read as JSON: {message}; fetch the file again")]
    Json {
        /// Where it starts.
        offset: u64,
        /// Cause.
        message: String,
    },
    /// No configuration.
    #[error(
        "the metadata has no \"config\" object, so the model's shape is unknown; write the file again"
    )]
    NoConfig,
    /// Two counts that differ.
    #[error(
        "byte {offset}: the index has {index} tensors, the header says {header}; fetch the file again"
    )]
    Count {
        /// By the header.
        header: u32,
        /// Where the index starts.
        offset: u64,
        /// By the index.
        index: u32,
    },
    /// A name that is empty or no UTF-8.
    #[error("byte {offset}: tensor name \"{found}\" is empty or not UTF-8; fetch the file again")]
    Name {
        /// Where the entry starts.
        offset: u64,
        /// The name, escaped.
        found: String,
    },
    /// A type that is not known.
    #[error(
        "tensor {tensor} has quant type {found}, which is not read; read are {known}: quantise the model to one of them"
    )]
    Type {
        /// Tensor.
        tensor: String,
        /// Number, and name where it is known.
        found: String,
        /// Known types.
        known: String,
    },
    /// A byte size that type and shape do not give.
    #[error(
        "tensor {tensor}: {ty} {shape:?} takes {need:?} bytes, the index says {stated}; the file is damaged, fetch it again"
    )]
    Size {
        /// Tensor.
        tensor: String,
        /// Type.
        ty: &'static str,
        /// Dimensions.
        shape: Vec<u64>,
        /// By the index.
        stated: u64,
        /// By type and shape; `None` where a row is no whole number of groups.
        need: Option<u64>,
    },
    /// A group size that is not the type's.
    #[error(
        "tensor {tensor}: group size {found}, {ty} has groups of {expected}; write the file again"
    )]
    Group {
        /// Tensor.
        tensor: String,
        /// Type.
        ty: &'static str,
        /// By the index.
        found: u32,
        /// By the type.
        expected: u64,
    },
    /// An index that reaches into the data.
    #[error(
        "the index ends at byte {end}, after the start of the data at {data_offset}; fetch the file again"
    )]
    IndexEnd {
        /// End of the index.
        end: u64,
        /// Start of the data.
        data_offset: u64,
    },
    /// A tensor past the end.
    #[error(
        "tensor {tensor} ends at byte {end}, the file has {file_bytes}; it was cut off, fetch it again (to plan without weights: --header-only)"
    )]
    PastEnd {
        /// Tensor.
        tensor: String,
        /// End.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// Bytes after the last tensor.
    #[error(
        "the tensors end at byte {end}, the file has {file_bytes}; it is damaged, fetch it again"
    )]
    Trailing {
        /// End of the last tensor.
        end: u64,
        /// Length of the file.
        file_bytes: u64,
    },
}
