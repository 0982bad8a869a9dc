//! The tokenizer: ids against Hugging Face `tokenizers`, splitting rules against its splitters, errors, streaming.

#![expect(clippy::expect_used, reason = "a fixture that fails, fails its test")]

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use refrain_planner::gguf::{Array, GgufFile, Metadata, StringList, Value};
use refrain_planner::tokenizer::{
    PRE_RULES, PreRule, SpecialTokens, Splitter, StreamDecoder, TokenKind, Tokenizer,
    TokenizerError,
};
use serde_json::Value as Json;

fn austen() -> &'static Tokenizer {
    static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = folder.join("../golden/models/austen-qwen3-4m.q8_0.gguf");
        let file = GgufFile::open(path).expect("model");
        Tokenizer::from_gguf(file.header())
            .expect("tokenizer")
            .expect("not none")
    });
    &TOKENIZER
}

fn fixture(text: &str) -> Json {
    serde_json::from_str(text).expect("fixture")
}

fn ids(json: &Json) -> Vec<u32> {
    serde_json::from_value(json.clone()).expect("ids")
}

fn cases() -> Vec<(String, Vec<u32>, Vec<u32>)> {
    let json = fixture(include_str!("data/austen-tokenizer-cases.json"));
    let list = json["cases"].as_array().expect("cases").clone();
    let case = |case: Json| {
        let text = case["text"].as_str().expect("text").to_owned();
        let parsed = ids(&case["ids"]);
        let as_text = case.get("as_text").map_or(parsed.clone(), ids);
        (text, parsed, as_text)
    };
    list.into_iter().map(case).collect()
}

#[test]
fn ids_equal_hugging_face() {
    let (tokenizer, cases) = (austen(), cases());
    assert_eq!(cases.len(), 200);
    for (text, parsed, as_text) in cases {
        assert_eq!(
            tokenizer.encode(&text, SpecialTokens::Parse).expect("ids"),
            parsed,
            "{text:?}"
        );
        assert_eq!(
            tokenizer.encode(&text, SpecialTokens::AsText).expect("ids"),
            as_text,
            "{text:?}"
        );
        assert_eq!(
            tokenizer.decode(&parsed).expect("bytes"),
            text.as_bytes(),
            "{text:?}"
        );
    }
}

#[test]
fn oracle_prompts_have_the_oracle_ids() {
    let tokenizer = austen();
    let prompts = fixture(include_str!("data/austen-prompts.json"));
    let prompts = prompts.as_array().expect("prompts");
    assert_eq!(prompts.len(), 3);
    for prompt in prompts {
        let text = prompt["prompt"].as_str().expect("prompt");
        assert_eq!(
            tokenizer
                .encode_prompt(text, SpecialTokens::AsText)
                .expect("ids"),
            ids(&prompt["prompt_ids"])
        );
    }
}

#[test]
fn splitting_rules_equal_hugging_face() {
    let json = fixture(include_str!("data/splitting-cases.json"));
    let rules = json["rules"].as_object().expect("rules");
    let texts = cases();
    for rule in PRE_RULES.iter().filter(|rule| rule.name() != "dbrx") {
        let name = rule.name();
        let splitter = Splitter::new(rule).expect(name);
        let expected = rules.get(name).expect(name).as_array().expect("list");
        assert_eq!(expected.len(), texts.len());
        for ((text, ..), lengths) in texts.iter().zip(expected) {
            let found: Vec<u32> = splitter
                .split(text)
                .expect("pieces")
                .iter()
                .map(|piece| piece.len() as u32)
                .collect();
            assert_eq!(found, ids(lengths), "{}: {text:?}", rule.name());
        }
    }
    // The one rule without pieces of its own shares its expression with another.
    let passes = |name| PreRule::find(name).expect(name).passes;
    assert_eq!(passes("dbrx"), passes("llama-bpe"));
}

#[test]
fn rule_names_are_unique_and_unknown_ones_list_them() {
    let mut names: Vec<&str> = PRE_RULES
        .iter()
        .flat_map(|rule| rule.names)
        .copied()
        .collect();
    let message = PreRule::find("qwen9").expect_err("unknown").to_string();
    for name in &names {
        assert!(message.contains(name), "{name} not in {message}");
    }
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn facts_of_the_repository_tokenizer() {
    let tokenizer = austen();
    assert_eq!((tokenizer.len(), tokenizer.merge_count()), (1024, 767));
    assert_eq!(
        (
            tokenizer.bos(),
            tokenizer.adds_bos(),
            tokenizer.end_tokens()
        ),
        (None, false, &[0][..])
    );
    assert_eq!(
        (tokenizer.kind(0), tokenizer.kind(1), tokenizer.kind(1024)),
        (Some(TokenKind::Control), Some(TokenKind::Normal), None)
    );
    assert!(
        tokenizer.check_embedding_rows(1024).is_ok()
            && tokenizer.check_embedding_rows(1280).is_ok()
    );
    let message = tokenizer
        .check_embedding_rows(1023)
        .expect_err("too few")
        .to_string();
    assert!(
        message.contains("1024 tokens") && message.contains("1023 rows"),
        "{message}"
    );
    let error = tokenizer.decode(&[5, 1024]).expect_err("outside");
    assert!(matches!(
        error,
        TokenizerError::TokenOutOfRange {
            position: 1,
            id: 1024,
            tokens: 1024
        }
    ));
}

#[test]
fn long_runs_stay_within_the_step_budget() {
    let tokenizer = austen();
    for unit in [" ", "\n", "a", "9", "!", "é", " a", "\t x", "a\u{301}"] {
        let text = unit.repeat(1 << 17);
        let ids = tokenizer.encode(&text, SpecialTokens::Parse).expect(unit);
        assert_eq!(tokenizer.decode(&ids).expect("bytes"), text.as_bytes());
    }
}

/// Metadata of a tiny tokenizer: 256 byte tokens would hide errors, so only a few.
fn tiny() -> Vec<(&'static str, Value)> {
    let list =
        |items: &[&str]| Value::Array(Array::String(items.iter().copied().collect::<StringList>()));
    vec![
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("llama-bpe".into())),
        (
            "tokenizer.ggml.tokens",
            list(&["a", "b", "Ġ", "ab", "<s>", "  ", "</s>", "abab"]),
        ),
        (
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(vec![1, 1, 1, 1, 3, 4, 3, 1])),
        ),
        ("tokenizer.ggml.merges", list(&["a b", "Ġ Ġ"])),
        ("tokenizer.ggml.bos_token_id", Value::U32(4)),
        ("tokenizer.ggml.eos_token_id", Value::U32(6)),
    ]
}

fn metadata(entries: Vec<(&'static str, Value)>) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, value) in entries {
        metadata.insert(key.to_owned(), 0, value).expect("once");
    }
    metadata
}

#[test]
fn specials_bos_and_whole_pieces() {
    let tokenizer = Tokenizer::from_metadata(&metadata(tiny()))
        .expect("valid")
        .expect("not none");
    let encode = |text, special| tokenizer.encode(text, special).expect("ids");
    // llama-bpe takes a whole piece that is a token although no merge reaches it.
    assert_eq!(encode("abab", SpecialTokens::AsText), [7]);
    assert_eq!(encode("ababa", SpecialTokens::AsText), [3, 3, 0]);
    // User-defined tokens are always found, control tokens when asked for; merges may lead to a user-defined one.
    assert_eq!(encode("a  b", SpecialTokens::AsText), [0, 5, 1]);
    assert_eq!(encode("<s>a</s>", SpecialTokens::Parse), [4, 0, 6]);
    assert!(matches!(
        tokenizer.encode("ab<s>", SpecialTokens::AsText),
        Err(TokenizerError::ByteWithoutToken { byte: b'<', at: 2 })
    ));
    assert_eq!(
        tokenizer
            .encode_prompt("a", SpecialTokens::Parse)
            .expect("ids"),
        [4, 0]
    );
    assert_eq!(tokenizer.end_tokens(), [6]);
    let mut stream = StreamDecoder::new(&tokenizer);
    let mut text = String::new();
    for id in [4, 0, 5, 6] {
        stream.push(id, &mut text).expect("inside");
    }
    assert!(matches!(
        stream.push(8, &mut text),
        Err(TokenizerError::TokenOutOfRange {
            position: 4,
            id: 8,
            ..
        })
    ));
    assert_eq!(text, "a  ");
    let mut text = String::new();
    StreamDecoder::new(&tokenizer)
        .with_control_text()
        .push(4, &mut text)
        .expect("inside");
    assert_eq!(text, "<s>");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn each_bad_vocabulary_is_refused_by_name() {
    let list =
        |items: &[&str]| Value::Array(Array::String(items.iter().copied().collect::<StringList>()));
    let cases = [
        (
            "tokenizer.ggml.model",
            Some(Value::String("llama".into())),
            "tokenizer.ggml.model is \"llama\"",
        ),
        (
            "tokenizer.ggml.model",
            None,
            "key tokenizer.ggml.model (string) is missing",
        ),
        (
            "tokenizer.ggml.pre",
            Some(Value::String("nope".into())),
            "tokenizer.ggml.pre is \"nope\", known are qwen2",
        ),
        (
            "tokenizer.ggml.pre",
            None,
            "key tokenizer.ggml.pre (string) is missing",
        ),
        (
            "tokenizer.ggml.tokens",
            Some(list(&[])),
            "tokenizer.ggml.tokens is empty",
        ),
        (
            "tokenizer.ggml.tokens",
            Some(Value::U32(3)),
            "is u32, expected array of string",
        ),
        (
            "tokenizer.ggml.tokens",
            Some(list(&["a", "b", "Ġ", "ab", "<s>", "  ", "</s>", "a"])),
            "token 7 and token 0 are both \"a\"",
        ),
        (
            "tokenizer.ggml.tokens",
            Some(list(&["a", "b", "Ġ", "ab", "<s>", "  ", "</s>", "<s>"])),
            "token 7 and token 4 are both \"<s>\"",
        ),
        (
            "tokenizer.ggml.token_type",
            Some(Value::Array(Array::I32(vec![1; 7]))),
            "has 7 elements, tokenizer.ggml.tokens has 8",
        ),
        (
            "tokenizer.ggml.token_type",
            Some(Value::Array(Array::I32(vec![1, 1, 7, 1, 1, 1, 1, 1]))),
            "token 2 has type 7",
        ),
        (
            "tokenizer.ggml.merges",
            None,
            "key tokenizer.ggml.merges (array of string) is missing",
        ),
        (
            "tokenizer.ggml.merges",
            Some(list(&["a b", "ab"])),
            "merge 1 is \"ab\"",
        ),
        (
            "tokenizer.ggml.merges",
            Some(list(&["a b c"])),
            "merge 0 is \"a b c\"",
        ),
        (
            "tokenizer.ggml.merges",
            Some(list(&[" a"])),
            "merge 0 is \" a\"",
        ),
        (
            "tokenizer.ggml.merges",
            Some(list(&["a c"])),
            "merge 0 (\"a c\"): \"c\" is no token",
        ),
        (
            "tokenizer.ggml.merges",
            Some(list(&["b a"])),
            "merge 0 (\"b a\"): \"ba\" is no token",
        ),
        (
            "tokenizer.ggml.bos_token_id",
            Some(Value::U32(8)),
            "tokenizer.ggml.bos_token_id is 8, the vocabulary has 8 tokens",
        ),
        (
            "tokenizer.ggml.eos_token_id",
            Some(Value::I32(-2)),
            "tokenizer.ggml.eos_token_id is -2",
        ),
    ];
    for (key, value, part) in cases {
        let mut entries = tiny();
        entries.retain(|(other, _)| *other != key);
        entries.extend(value.map(|value| (key, value)));
        let message = Tokenizer::from_metadata(&metadata(entries))
            .expect_err(part)
            .to_string();
        assert!(message.contains(part) && message.contains(';'), "{message}");
    }
    let mut entries = tiny();
    entries.retain(|(key, _)| *key != "tokenizer.ggml.bos_token_id");
    entries.push(("tokenizer.ggml.add_bos_token", Value::Bool(true)));
    assert!(matches!(
        Tokenizer::from_metadata(&metadata(entries)),
        Err(TokenizerError::NoBos)
    ));
    let none = metadata(vec![("tokenizer.ggml.model", Value::String("none".into()))]);
    assert!(Tokenizer::from_metadata(&none).expect("valid").is_none());
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(text in "\\PC{0,40}|[ \\t\\r\\n'a-z0-9<|>éß\u{301}🙂]{0,60}") {
        let tokenizer = austen();
        for special in [SpecialTokens::Parse, SpecialTokens::AsText] {
            let ids = tokenizer.encode(&text, special).expect("ids");
            prop_assert_eq!(tokenizer.decode(&ids).expect("bytes"), text.as_bytes());
            let (mut stream, mut streamed) = (StreamDecoder::new(tokenizer).with_control_text(), String::new());
            for id in ids {
                stream.push(id, &mut streamed).expect("inside");
            }
            stream.finish(&mut streamed);
            prop_assert_eq!(&streamed, &text);
        }
    }

    #[test]
    fn any_ids_stream_as_lossy_text(ids in proptest::collection::vec(0u32..1024, 0..40)) {
        let tokenizer = austen();
        let (mut stream, mut streamed) = (StreamDecoder::new(tokenizer).with_control_text(), String::new());
        for id in &ids {
            stream.push(*id, &mut streamed).expect("inside");
        }
        stream.finish(&mut streamed);
        let bytes = tokenizer.decode(&ids).expect("bytes");
        prop_assert_eq!(streamed, String::from_utf8_lossy(&bytes));
    }
}
