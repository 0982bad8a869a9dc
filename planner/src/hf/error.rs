//! What can be wrong with the JSON files of a Hugging Face model: both values and the remedy.

/// Why a configuration, tokenizer or index was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON, or a key twice.
    #[error("cannot be read as JSON: {message}; fetch the file again")]
    Json {
        /// Line, column and cause.
        message: String,
    },
    /// A model type that no row knows.
    #[error("model_type is {found}, known are {known}; use a model of one of them")]
    ModelType {
        /// Value.
        found: String,
        /// Known types.
        known: String,
    },
    /// A field that must be there.
    #[error("{key} is missing; take the config.json that was published with the weights")]
    Missing {
        /// Field.
        key: String,
    },
    /// A field of another form.
    #[error(
        "{key} is {found}, it must be {rule}; take the config.json that was published with the weights"
    )]
    Form {
        /// Field.
        key: String,
        /// Value.
        found: String,
        /// What is accepted.
        rule: String,
    },
    /// Two fields that cannot both be right.
    #[error(
        "{first} is {first_value} and {second} is {second_value}: {rule}; take the config.json that was published with the weights"
    )]
    Contradiction {
        /// Field.
        first: &'static str,
        /// Its value.
        first_value: String,
        /// Other field.
        second: &'static str,
        /// Its value.
        second_value: String,
        /// How they belong together.
        rule: &'static str,
    },
    /// A field that asks for other mathematics.
    #[error(
        "{key} is {found}, which means {meaning}; this build plans {model_type} only with {neutral}"
    )]
    Refused {
        /// Field.
        key: &'static str,
        /// Value.
        found: String,
        /// What it means.
        meaning: &'static str,
        /// Model type.
        model_type: String,
        /// Accepted value.
        neutral: &'static str,
    },
    /// A tied head with weights of its own, or an untied one without.
    #[error("tie_word_embeddings is {tied} and lm_head.weight is {head}; {remedy}")]
    Tied {
        /// The field.
        tied: bool,
        /// `there` or `missing`.
        head: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// An element type that cannot become the one that is needed.
    #[error(
        "tensor {tensor} is {found}, {needed} are needed; convert the model, or take its GGUF file"
    )]
    Dtype {
        /// Tensor.
        tensor: String,
        /// Type.
        found: &'static str,
        /// Types that can be used.
        needed: &'static str,
    },
    /// Experts as Hugging Face stores them.
    #[error("tensor {tensor} is {found}, it must be {rule}; fetch all files of one model")]
    Experts {
        /// Tensor.
        tensor: String,
        /// Type and shape.
        found: String,
        /// What it must be.
        rule: String,
    },
    /// A tokenizer that byte-level BPE does not cover.
    #[error("{what} is {found}, {rule}; take the GGUF file of this model")]
    Tokenizer {
        /// Part of the tokenizer.
        what: String,
        /// Value.
        found: String,
        /// What is needed.
        rule: &'static str,
    },
    /// An index that names no file of the folder.
    #[error(
        "the shard of {tensor} is {found:?}, it must be the name of a .safetensors file of the same folder; fetch the index again"
    )]
    ShardName {
        /// Tensor.
        tensor: String,
        /// Name.
        found: String,
    },
    /// Index and shard disagree.
    #[error(
        "tensor {tensor}: the index says {index}, it lies in {shard}; fetch index and shards of one model"
    )]
    Shard {
        /// Tensor.
        tensor: String,
        /// Shard by the index.
        index: String,
        /// Shard that has it.
        shard: String,
    },
}
