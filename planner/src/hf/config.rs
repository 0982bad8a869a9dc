//! Typed access to a configuration, with the field's name in every error.

use super::keys::{self, Kind};
use super::{ConfigError, Json};
use crate::gguf::{Metadata, Value};
use crate::source::TensorEntry;

/// A `config.json`; of a multimodal model, its `text_config` with the outer object behind it.
#[derive(Debug)]
pub(super) struct Config<'a> {
    fields: &'a Json,
    outer: &'a Json,
    /// What differs by architecture.
    pub(super) kind: &'static Kind,
    /// `model_type`.
    pub(super) model_type: &'a str,
}

pub(super) fn insert(metadata: &mut Metadata, key: &str, value: Value) {
    // Rows name each key once; a second value would be a second row.
    let _first_stays = metadata.insert(key.to_owned(), 0, value);
}

impl<'a> Config<'a> {
    pub(super) fn of(outer: &'a Json) -> Result<Self, ConfigError> {
        if outer.object().is_none() {
            return Err(ConfigError::Form {
                key: "the configuration".to_owned(),
                found: outer.shown(),
                rule: "a JSON object".to_owned(),
            });
        }
        let fields = outer.some("text_config").unwrap_or(outer);
        let stated = fields
            .some("model_type")
            .or_else(|| outer.some("model_type"));
        let stated = stated.ok_or_else(|| missing("model_type"))?;
        let kind = stated.text().and_then(|found| {
            let kinds = keys::KINDS.iter();
            let mut kinds = kinds.filter(|kind| kind.model_types.contains(&found));
            kinds.next().map(|kind| (kind, found))
        });
        let Some((kind, model_type)) = kind else {
            let known: Vec<_> = keys::KINDS
                .iter()
                .flat_map(|kind| kind.model_types)
                .collect();
            let known: Vec<&str> = known.into_iter().copied().collect();
            return Err(ConfigError::ModelType {
                found: stated.shown(),
                known: known.join(", "),
            });
        };
        Ok(Self {
            fields,
            outer,
            kind,
            model_type,
        })
    }

    /// A field that is there and not null.
    pub(super) fn some(&self, key: &str) -> Option<&'a Json> {
        self.fields.some(key)
    }

    /// A whole number from 0.
    pub(super) fn opt_count(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        let Some(value) = self.some(key) else {
            return Ok(None);
        };
        let count = value.unsigned().and_then(|n| u32::try_from(n).ok());
        let rule = "a whole number below 2^32";
        count.map(Some).ok_or_else(|| form(key, value, rule))
    }

    pub(super) fn count(&self, key: &str) -> Result<u32, ConfigError> {
        self.opt_count(key)?.ok_or_else(|| missing(key))
    }

    /// A number from 1, so that it can be divided by.
    pub(super) fn positive(&self, key: &str) -> Result<u32, ConfigError> {
        match self.count(key)? {
            0 => Err(form(key, &Json::Integer(0), "at least 1")),
            count => Ok(count),
        }
    }

    pub(super) fn float(&self, key: &str) -> Result<f32, ConfigError> {
        let value = self.some(key).ok_or_else(|| missing(key))?;
        let number = value.float().ok_or_else(|| form(key, value, "a number"))?;
        Ok(number as f32)
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool, ConfigError> {
        match self.some(key) {
            None => Ok(default),
            Some(value) => value
                .boolean()
                .ok_or_else(|| form(key, value, "true or false")),
        }
    }

    /// Elements of a head.
    pub(super) fn head_dim(&self) -> Result<u32, ConfigError> {
        if let Some(stated) = self.opt_count("head_dim")? {
            return match stated {
                0 => Err(form("head_dim", &Json::Integer(0), "at least 1")),
                stated => Ok(stated),
            };
        }
        if self.kind.needs_head_dim {
            return Err(missing("head_dim"));
        }
        let (hidden, heads) = (
            self.count("hidden_size")?,
            self.positive("num_attention_heads")?,
        );
        if !hidden.is_multiple_of(heads) {
            return Err(ConfigError::Contradiction {
                first: "hidden_size",
                first_value: hidden.to_string(),
                second: "num_attention_heads",
                second_value: heads.to_string(),
                rule: "without head_dim the first must be a multiple of the second",
            });
        }
        Ok(hidden / heads)
    }

    /// Whether the head is the embedding.
    pub(super) fn tied(&self) -> Result<bool, ConfigError> {
        let keys = ["tie_word_embeddings", "tie_embedding"];
        let found = |from: &'a Json| keys.iter().find_map(|key| from.some(key));
        let stated = found(self.fields).or_else(|| found(self.outer));
        match stated {
            None => Ok(self.kind.tied_by_default),
            Some(value) => {
                let flag = value.boolean();
                flag.ok_or_else(|| form("tie_word_embeddings", value, "true or false"))
            }
        }
    }

    /// The embedding must have a row for each token of the vocabulary and the width of the model.
    pub(super) fn check_embedding(&self, tensors: &[TensorEntry]) -> Result<(), ConfigError> {
        let mut named = tensors
            .iter()
            .filter(|tensor| tensor.name == "token_embd.weight");
        let Some(&[width, rows]) = named.next().map(|embedding| &embedding.dims[..]) else {
            return Ok(());
        };
        let fields = [
            ("vocab_size", "rows of embed_tokens.weight", rows),
            ("hidden_size", "columns of embed_tokens.weight", width),
        ];
        for (first, second, found) in fields {
            let stated = self.count(first)?;
            if u64::from(stated) != found {
                return Err(ConfigError::Contradiction {
                    first,
                    first_value: stated.to_string(),
                    second,
                    second_value: found.to_string(),
                    rule: "both must be the same",
                });
            }
        }
        Ok(())
    }

    pub(super) fn check_tie(&self, tensors: &[TensorEntry]) -> Result<(), ConfigError> {
        let tied = self.tied()?;
        let head = tensors.iter().any(|tensor| tensor.name == "output.weight");
        match (tied, head) {
            (true, true) => Err(ConfigError::Tied {
                tied,
                head: "there",
                remedy: "remove the tensor, or correct the field",
            }),
            (false, false) => Err(ConfigError::Tied {
                tied,
                head: "missing",
                remedy: "fetch all shards, or correct the field",
            }),
            _ => Ok(()),
        }
    }

    /// Kind of each layer, if the configuration lists them.
    pub(super) fn layer_types(&self, layers: u32) -> Result<Option<Vec<&'a str>>, ConfigError> {
        let Some(value) = self.some("layer_types") else {
            return Ok(None);
        };
        let names = value.list().map(|list| list.iter().map(Json::text));
        let names: Option<Vec<&str>> = names.and_then(Iterator::collect);
        let names = names.ok_or_else(|| form("layer_types", value, "a list of texts"))?;
        if names.len() != layers as usize {
            return Err(ConfigError::Contradiction {
                first: "num_hidden_layers",
                first_value: layers.to_string(),
                second: "layer_types",
                second_value: value.shown(),
                rule: "there must be one type per layer",
            });
        }
        Ok(Some(names))
    }

    /// Token ids of a field that holds one or a list.
    pub(super) fn tokens(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
        let Some(value) = self.some(key).or_else(|| self.outer.some(key)) else {
            return Ok(Vec::new());
        };
        let id = |value: &Json| value.unsigned().and_then(|id| u32::try_from(id).ok());
        let ids = match value {
            Json::List(list) => list.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        ids.ok_or_else(|| form(key, value, "a token id or a list of them"))
    }
}

pub(super) fn missing(key: &str) -> ConfigError {
    ConfigError::Missing {
        key: key.to_owned(),
    }
}

pub(super) fn form(key: &str, found: &Json, rule: &str) -> ConfigError {
    ConfigError::Form {
        key: key.to_owned(),
        found: found.shown(),
        rule: rule.to_owned(),
    }
}
