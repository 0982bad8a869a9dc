//! `tokenizer.json` of a byte-level BPE tokenizer, as the metadata that GGUF has for it.
//!
//! What is outside byte-level BPE (other models, normalisers, decoders) is refused by name. Building
//! and checking the tokenizer is left to `crate::tokenizer`.

use super::config::insert;
use super::{ConfigError, Json};
use crate::gguf::{Array, Metadata, StringList, Value};
use crate::tokenizer::{PRE_RULES, PreRule};
use std::collections::HashMap;

/// Kinds of tokens, `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

/// Largest vocabulary, in tokens.
const MOST_TOKENS: u32 = 1 << 24;
/// Rows without a token that even a small vocabulary may have.
const MOST_PADDING: u64 = 1 << 16;

/// Adds the keys of a tokenizer for a model of `vocabulary` tokens.
pub(super) fn add(
    metadata: &mut Metadata,
    json: &Json,
    vocabulary: u32,
) -> Result<(), ConfigError> {
    let model = json.some("model").unwrap_or(&Json::Null);
    judge(json, model)?;
    let rule = rule(json, model)?;
    let mut tokens = tokens(json, model)?;
    let most = tokens.keys().max().map_or(0, |id| id + 1);
    if most > vocabulary || vocabulary > MOST_TOKENS {
        return Err(bad(
            "the vocabulary",
            format!("{most} tokens"),
            "it must fit vocab_size of config.json",
        ));
    }
    // Padding rounds up; more of it than tokens, and than this, is no padding.
    let padding = u64::from(vocabulary) - tokens.len().min(vocabulary as usize) as u64;
    if padding > (tokens.len() as u64).max(MOST_PADDING) {
        return Err(bad(
            "the vocabulary",
            format!("{} tokens", tokens.len()),
            "vocab_size of config.json asks for more than twice as many",
        ));
    }
    let mut list = StringList::default();
    let mut kinds = Vec::with_capacity(vocabulary as usize);
    for id in 0..vocabulary {
        // Rows of the embedding without a token, named as llama.cpp's converter names them.
        let (text, kind) = tokens
            .remove(&id)
            .unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED));
        list.push(&text);
        kinds.push(kind);
    }
    let text = |text: &str| Value::String(text.to_owned());
    insert(metadata, "tokenizer.ggml.model", text("gpt2"));
    insert(metadata, "tokenizer.ggml.pre", text(rule.name()));
    insert(
        metadata,
        "tokenizer.ggml.tokens",
        Value::Array(Array::String(list)),
    );
    insert(
        metadata,
        "tokenizer.ggml.token_type",
        Value::Array(Array::I32(kinds)),
    );
    insert(
        metadata,
        "tokenizer.ggml.merges",
        Value::Array(Array::String(merges(model)?)),
    );
    let first = first_token(json)?;
    if let Some(id) = first {
        match metadata.opt::<u32>("tokenizer.ggml.bos_token_id") {
            Ok(Some(stated)) if stated != id => {
                let found = format!("token {id}");
                let rule = "bos_token_id of config.json names another token";
                return Err(bad("the first token", found, rule));
            }
            _ => insert(metadata, "tokenizer.ggml.bos_token_id", Value::U32(id)),
        }
    }
    insert(
        metadata,
        "tokenizer.ggml.add_bos_token",
        Value::Bool(first.is_some()),
    );
    Ok(())
}

fn bad(what: impl Into<String>, found: String, rule: &'static str) -> ConfigError {
    ConfigError::Tokenizer {
        what: what.into(),
        found,
        rule,
    }
}

fn kind(json: Option<&Json>) -> String {
    let name = json.and_then(|json| json.some("type")).and_then(Json::text);
    name.unwrap_or("none").to_owned()
}

/// Refuses what byte-level BPE without further ado is not.
fn judge(json: &Json, model: &Json) -> Result<(), ConfigError> {
    let named = [
        ("model.type", kind(Some(model)), &["BPE"][..]),
        (
            "decoder",
            kind(json.some("decoder")),
            &["ByteLevel", "none"],
        ),
        // Texts are taken as they are, which is NFC for almost every prompt.
        (
            "normalizer",
            kind(json.some("normalizer")),
            &["none", "NFC"],
        ),
    ];
    for (what, found, known) in named {
        if !known.contains(&found.as_str()) {
            return Err(bad(what, found, "only byte-level BPE is read"));
        }
    }
    let neutral = |field: &str| match model.some(field) {
        None | Some(Json::Bool(false)) => true,
        Some(value) => value.text() == Some(""),
    };
    for field in [
        "continuing_subword_prefix",
        "end_of_word_suffix",
        "byte_fallback",
        "dropout",
    ] {
        if !neutral(field) {
            let found = model.some(field).map_or_else(String::new, Json::shown);
            return Err(bad(
                format!("model.{field}"),
                found,
                "only byte-level BPE is read",
            ));
        }
    }
    Ok(())
}

/// The splitting rule whose expressions are those of the file.
fn rule(json: &Json, model: &Json) -> Result<&'static PreRule, ConfigError> {
    let pre = json.some("pre_tokenizer");
    let steps: Vec<&Json> = match pre.and_then(|pre| pre.some("pretokenizers")) {
        Some(list) => list.list().unwrap_or_default().iter().collect(),
        None => pre.into_iter().collect(),
    };
    let mut passes: Vec<&str> = Vec::new();
    let mut bytes = false;
    for step in steps {
        let flag = |field: &str| step.some(field).and_then(Json::boolean);
        match kind(Some(step)).as_str() {
            "Split" if flag("invert") != Some(true) => {
                let isolated = step.some("behavior").and_then(Json::text) == Some("Isolated");
                let pattern = step
                    .some("pattern")
                    .and_then(|pattern| pattern.some("Regex"));
                match pattern.and_then(Json::text).filter(|_| isolated) {
                    Some(pattern) => passes.push(pattern),
                    None => {
                        return Err(bad(
                            "pre_tokenizer",
                            "another Split".into(),
                            "splits must isolate the matches of an expression",
                        ));
                    }
                }
            }
            "Digits" if flag("individual_digits") == Some(true) => passes.push(r"\p{N}"),
            "ByteLevel" if flag("add_prefix_space") != Some(true) => {
                bytes = true;
                if flag("use_regex").unwrap_or(true) {
                    passes.push(crate::tokenizer::GPT2);
                }
            }
            other => {
                return Err(bad(
                    "pre_tokenizer",
                    other.to_owned(),
                    "known are Split, Digits and ByteLevel without a space in front",
                ));
            }
        }
    }
    let whole = model
        .some("ignore_merges")
        .and_then(Json::boolean)
        .unwrap_or(false);
    let mut rules = PRE_RULES.iter();
    let found = rules.find(|rule| bytes && rule.passes == passes && rule.ignore_merges == whole);
    found.ok_or_else(|| {
        let found = Json::Text(passes.join(" then ")).shown();
        bad(
            "pre_tokenizer",
            found,
            "no row of the table of splitting rules has these expressions",
        )
    })
}

type Tokens = HashMap<u32, (String, i32)>;

fn id(value: Option<&Json>) -> Option<u32> {
    let id = u32::try_from(value?.unsigned()?).ok()?;
    (id < MOST_TOKENS).then_some(id)
}

fn tokens(json: &Json, model: &Json) -> Result<Tokens, ConfigError> {
    let vocab = model.some("vocab").and_then(Json::object);
    let vocab = vocab.ok_or_else(|| {
        bad(
            "model.vocab",
            "missing".into(),
            "an object of token ids is needed",
        )
    })?;
    let mut tokens = Tokens::with_capacity(vocab.len());
    for (text, value) in vocab {
        let number = id(Some(value));
        let number = number.ok_or_else(|| {
            bad(
                format!("token {text:?}"),
                value.shown(),
                "a token id is a whole number below 2^24",
            )
        })?;
        if let Some((first, _)) = tokens.insert(number, (text.clone(), NORMAL)) {
            return Err(bad(
                format!("token {number}"),
                format!("{first:?} and {text:?}"),
                "an id names one token",
            ));
        }
    }
    let added = json
        .some("added_tokens")
        .and_then(Json::list)
        .unwrap_or_default();
    for token in added {
        let text = token.some("content").and_then(Json::text);
        let (Some(number), Some(text)) = (id(token.some("id")), text) else {
            return Err(bad(
                "added_tokens",
                token.shown(),
                "each has an id below 2^24 and a content",
            ));
        };
        let flag = |field: &str| token.some(field).and_then(Json::boolean) == Some(true);
        let special = flag("special");
        if !special && (flag("lstrip") || flag("rstrip") || flag("single_word")) {
            return Err(bad(
                format!("added token {text:?}"),
                "stripped or matched by word".into(),
                "tokens that are text must be taken as they are",
            ));
        }
        let kind = if special { CONTROL } else { USER_DEFINED };
        match tokens.insert(number, (text.to_owned(), kind)) {
            Some((first, _)) if first != text => {
                return Err(bad(
                    format!("token {number}"),
                    format!("{first:?} and {text:?}"),
                    "an id names one token",
                ));
            }
            _ => {}
        }
    }
    Ok(tokens)
}

fn merges(model: &Json) -> Result<StringList, ConfigError> {
    let list = model.some("merges").and_then(Json::list);
    let list = list.ok_or_else(|| {
        bad(
            "model.merges",
            "missing".into(),
            "a list of pairs is needed",
        )
    })?;
    let mut merges = StringList::default();
    for (index, merge) in list.iter().enumerate() {
        match merge {
            Json::Text(text) => merges.push(text),
            Json::List(pair) => match &pair[..] {
                // A space inside a part would be taken for the one between the parts.
                [Json::Text(left), Json::Text(right)]
                    if !left.contains(' ') && !right.contains(' ') =>
                {
                    merges.push(&format!("{left} {right}"));
                }
                _ => {
                    return Err(bad(
                        format!("merge {index}"),
                        merge.shown(),
                        "a merge has two parts without spaces",
                    ));
                }
            },
            other => {
                return Err(bad(
                    format!("merge {index}"),
                    other.shown(),
                    "a merge has two parts",
                ));
            }
        }
    }
    Ok(merges)
}

/// The token that the template puts before a single text.
fn first_token(json: &Json) -> Result<Option<u32>, ConfigError> {
    let Some(post) = json.some("post_processor") else {
        return Ok(None);
    };
    let inner = post.some("processors").and_then(Json::list);
    let mut steps: Vec<&Json> = inner.map_or_else(|| vec![post], |list| list.iter().collect());
    steps.retain(|step| kind(Some(step)) == "TemplateProcessing");
    let single = steps
        .first()
        .and_then(|step| step.some("single"))
        .and_then(Json::list);
    let Some(special) = single
        .and_then(<[Json]>::first)
        .and_then(|first| first.some("SpecialToken"))
    else {
        return Ok(None);
    };
    let name = special.some("id").and_then(Json::text).unwrap_or_default();
    let added = json
        .some("added_tokens")
        .and_then(Json::list)
        .unwrap_or_default();
    let mut named = added
        .iter()
        .filter(|token| token.some("content").and_then(Json::text) == Some(name));
    let found = named.next().and_then(|token| id(token.some("id")));
    let missing = || {
        bad(
            "post_processor",
            format!("first token {name:?}"),
            "it must be one of added_tokens",
        )
    };
    found.map(Some).ok_or_else(missing)
}
