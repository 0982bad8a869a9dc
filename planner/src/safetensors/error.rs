//! What can be wrong with the head of a safetensors file. Offsets count from the start of the file.

/// Why a safetensors file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// Not even the length of the header.
    #[error(
        "byte 0: the file has {have} bytes, the length of a safetensors header takes 8; fetch it again"
    )]
    Short {
        /// Bytes.
        have: u64,
    },
    /// A header longer than any published one.
    #[error(
        "byte 0: the header has {found} bytes by its length field, at most {limit} are read; this is no safetensors file, or it is damaged: fetch it again"
    )]
    HeaderLimit {
        /// Length stated.
        found: u64,
        /// Limit.
        limit: u64,
    },
    /// The file ends inside the header.
    #[error("byte 8: the header has {stated} bytes, {have} are left in the file; fetch it again")]
    HeaderCut {
        /// Length stated.
        stated: u64,
        /// Bytes after the length.
        have: u64,
    },
    /// Not JSON, or a name twice.
    #[error("byte 8: the header cannot be read as JSON: {message}; fetch the file again")]
    Json {
        /// Line, column and cause.
        message: String,
    },
    /// JSON, but no object.
    #[error("byte 8: the header is {found} instead of a JSON object; fetch the file again")]
    NoObject {
        /// What it is.
        found: String,
    },
    /// A field of a tensor that is missing or of another form.
    #[error("tensor {tensor}: {what} is {found}, it must be {rule}; write the file again")]
    Field {
        /// Tensor.
        tensor: String,
        /// Field.
        what: &'static str,
        /// Value.
        found: String,
        /// What is needed.
        rule: &'static str,
    },
    /// An element type that the format does not know.
    #[error(
        "tensor {tensor}: dtype is {found:?}, known are {known}; convert the model to one of them"
    )]
    Dtype {
        /// Tensor.
        tensor: String,
        /// Type.
        found: String,
        /// Known types.
        known: String,
    },
    /// Offsets that do not give the bytes of the shape.
    #[error(
        "tensor {tensor}: data_offsets {begin} to {end} do not hold the {need} bytes of {dtype} {shape:?}; write the file again"
    )]
    Size {
        /// Tensor.
        tensor: String,
        /// First offset.
        begin: u64,
        /// Second offset.
        end: u64,
        /// Bytes needed.
        need: u64,
        /// Type.
        dtype: &'static str,
        /// Dimensions.
        shape: Vec<u64>,
    },
    /// A tensor past the end of the file.
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
    /// Two tensors share bytes.
    #[error(
        "tensor {tensor} starts at byte {start}, before the end of {other} at {other_end}; write the file again"
    )]
    Overlap {
        /// The later one.
        tensor: String,
        /// Its first byte.
        start: u64,
        /// The earlier one.
        other: String,
        /// End of the earlier one.
        other_end: u64,
    },
    /// Bytes that no tensor claims.
    #[error("bytes {from} to {to} belong to no tensor; the file is damaged, fetch it again")]
    Unclaimed {
        /// First byte.
        from: u64,
        /// First byte after them.
        to: u64,
    },
}
