//! Named upper bounds of the GGUF reader, checked before anything is allocated.
//! Each is far above what any published model uses; a larger number in a file means that the file is damaged.

/// Metadata entries in one file. Published models have about 20 to 60.
pub const MAX_KEY_VALUES: u64 = 1 << 16;
/// Tensors in one file. The largest published mixture-of-experts files have a few thousand.
pub const MAX_TENSORS: u64 = 1 << 18;
/// Bytes of a metadata key (the format's own bound, "ggml GGUF specification").
pub const MAX_KEY_BYTES: u64 = 65_535;
/// Bytes of a tensor name. ggml itself stops at 64.
pub const MAX_TENSOR_NAME_BYTES: u64 = 256;
/// Bytes of one string value, for example a chat template.
pub const MAX_STRING_BYTES: u64 = 16 << 20;
/// Elements of one array value, for example the vocabulary (about 250,000) or its merges.
pub const MAX_ARRAY_ELEMENTS: u64 = 1 << 24;
/// Bytes of everything before the tensor data.
pub const MAX_HEADER_BYTES: u64 = 512 << 20;
/// Dimensions of a tensor (`GGML_MAX_DIMS`).
pub const MAX_DIMENSIONS: u32 = 4;
/// Elements of one tensor: the product of its dimensions.
pub const MAX_TENSOR_ELEMENTS: u64 = 1 << 40;
/// `general.alignment`, in bytes. The default is 32.
pub const MAX_ALIGNMENT: u64 = 1 << 20;
/// Length of a file of which only the header is there: where its last tensor may end.
pub const MAX_FILE_BYTES: u64 = 1 << 46;
