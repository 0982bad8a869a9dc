//! Why a model file does not fit any declaration. Each error names both values and the remedy.

use crate::gguf::GgufError;

/// Errors of binding a model file to an architecture.
#[derive(Debug, thiserror::Error)]
pub enum ArchError {
    /// The file's metadata lacks a key or has another type for it.
    #[error(transparent)]
    File(#[from] GgufError),
    /// No declaration has this name.
    #[error("architecture \"{found}\" is not declared; known: {known}: use a model of one of them")]
    UnknownArch {
        /// `general.architecture` of the file.
        found: String,
        /// Declared names.
        known: String,
    },
    /// A shape fact is outside what kernels and plan can hold.
    #[error(
        "{key} is {found}; it must be {rule}: the file is damaged or this build too small for it"
    )]
    Geometry {
        /// Metadata key or derived quantity.
        key: String,
        /// Value in the file.
        found: String,
        /// Accepted values.
        rule: String,
    },
    /// A per-layer key whose layers differ.
    #[error(
        "{key} is {first} in layer 0 and {other} in layer {layer}; layers of {arch} are planned \
         alike: use a model with one value"
    )]
    LayersDiffer {
        /// Metadata key.
        key: String,
        /// Architecture.
        arch: &'static str,
        /// Value of layer 0.
        first: u32,
        /// Differing value.
        other: u32,
        /// Its layer.
        layer: usize,
    },
    /// A key that asks for mathematics outside the declaration.
    #[error(
        "{key} is {found}, which means {meaning}; this build plans {arch} only with {neutral} or \
         without the key"
    )]
    Refused {
        /// Metadata key.
        key: String,
        /// Value in the file.
        found: String,
        /// What it means.
        meaning: &'static str,
        /// Architecture.
        arch: &'static str,
        /// Accepted value.
        neutral: &'static str,
    },
    /// A declared tensor is absent.
    #[error(
        "tensor {tensor} {shape} of {arch} is missing: the file is incomplete, convert it again"
    )]
    MissingTensor {
        /// Name.
        tensor: String,
        /// Expected shape.
        shape: String,
        /// Architecture.
        arch: &'static str,
    },
    /// A tensor has another shape than declared.
    #[error(
        "tensor {tensor} is {found}, the metadata asks for {expected} ({expression}): file and \
         metadata do not belong together, convert it again"
    )]
    Shape {
        /// Name.
        tensor: String,
        /// Dimensions in the file, contiguous first.
        found: String,
        /// Dimensions by the declaration, contiguous first.
        expected: String,
        /// The declaration's expressions.
        expression: String,
    },
    /// A tensor has an element type that no kernel reads.
    #[error(
        "tensor {tensor}{} is {found}; supported types: {known}: quantise the model to one of them",
        layer.map_or_else(String::new, |layer| format!(" of layer {layer}"))
    )]
    Dtype {
        /// Name.
        tensor: String,
        /// Layer it belongs to.
        layer: Option<u32>,
        /// ggml type.
        found: String,
        /// Types with kernels.
        known: String,
    },
    /// A bias that the declaration does not add.
    #[error(
        "tensor {tensor}: {arch} is declared without biases, leaving it out would change every \
         number: use a model without biases"
    )]
    Bias {
        /// Name.
        tensor: String,
        /// Architecture.
        arch: &'static str,
    },
    /// A tensor that the declaration does not use.
    #[error(
        "tensor {tensor} {shape} is not part of {arch} as declared, leaving it out would change \
         the model: use a model converted for plain {arch}"
    )]
    UnexpectedTensor {
        /// Name.
        tensor: String,
        /// Dimensions in the file.
        shape: String,
        /// Architecture.
        arch: &'static str,
    },
    /// Vocabulary sizes that contradict each other.
    #[error(
        "{first_of} has {first} entries, {second_of} has {second}: tokens would be misread, \
         convert the model again"
    )]
    Vocabulary {
        /// Source of the first number.
        first_of: String,
        /// First number.
        first: u64,
        /// Source of the second number.
        second_of: String,
        /// Second number.
        second: u64,
    },
    /// A rotation factor that cannot divide.
    #[error(
        "tensor {tensor}: factor {index} is {value}; factors are finite and positive: convert the model again"
    )]
    RopeFactor {
        /// Name.
        tensor: String,
        /// Position.
        index: usize,
        /// Value.
        value: f32,
    },
}
