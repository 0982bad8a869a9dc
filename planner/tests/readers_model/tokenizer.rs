//! `tokenizer.json` of byte-level BPE: the same tokenizer as from GGUF metadata, and refusals.

use crate::fixture::{Folder, HF_LLAMA, repository, says};
use refrain_planner::ModelSource;
use refrain_planner::tokenizer::{PreRule, SpecialTokens, TokenKind, Tokenizer};
use serde_json::{Value as Json, json};

const AUSTEN_JSON: &str = include_str!("../data/austen-tokenizer.json");

/// A folder whose model has as many tokens as the tokenizer, and `more` rows beside them.
fn folder(more: u64, edit: impl FnOnce(&mut Json)) -> Folder {
    let folder = Folder::of(HF_LLAMA);
    let mut tokenizer: Json = serde_json::from_str(AUSTEN_JSON).unwrap();
    edit(&mut tokenizer);
    folder.write("tokenizer.json", tokenizer.to_string().as_bytes());
    let rows = 1024 + more;
    let mut tensors = crate::fixture::tensors(&folder.at("model.safetensors"));
    for (name, _, shape, bytes) in &mut tensors {
        if name.contains("embed_tokens") || name.contains("lm_head") {
            shape[0] = rows;
            bytes.resize(rows as usize * 256, 0);
        }
    }
    folder.write("model.safetensors", &crate::fixture::safetensors(&tensors));
    folder.config(|config| {
        config["vocab_size"] = json!(rows);
        config["bos_token_id"] = Json::Null;
        config["eos_token_id"] = json!(0);
    });
    folder
}

fn tokenizer(source: &ModelSource) -> Tokenizer {
    Tokenizer::from_metadata(source.metadata())
        .unwrap()
        .unwrap()
}

#[test]
fn ids_equal_those_of_the_same_tokenizer_in_gguf() {
    let folder = folder(0, |_| {});
    let ours = tokenizer(&folder.open().unwrap());
    let gguf = repository("golden/models/austen-qwen3-4m.q8_0.gguf");
    let theirs = tokenizer(&ModelSource::open(gguf).unwrap());
    assert_eq!(ours.rule(), theirs.rule());
    assert_eq!(
        (ours.len(), ours.merge_count()),
        (theirs.len(), theirs.merge_count())
    );
    assert_eq!(ours.end_tokens(), theirs.end_tokens());
    for id in 0..ours.len() as u32 {
        assert_eq!(ours.token_bytes(id), theirs.token_bytes(id), "{id}");
        assert_eq!(ours.kind(id), theirs.kind(id), "{id}");
    }
    let cases: Json =
        serde_json::from_str(include_str!("../data/austen-tokenizer-cases.json")).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(
            ours.encode(text, SpecialTokens::Parse).unwrap(),
            expected,
            "{text:?}"
        );
    }
    assert!(folder.plan().is_ok());
}

#[test]
fn rows_without_a_token_are_padding() {
    let folder = folder(8, |_| {});
    let found = tokenizer(&folder.open().unwrap());
    assert_eq!(found.len(), 1032);
    assert_eq!(found.kind(1031), Some(TokenKind::Unused));
    assert_eq!(found.token_bytes(1031), Some(&b"[PAD1031]"[..]));
    assert!(folder.plan().is_ok());
}

/// Two rules may have the same expressions and differ in whether whole tokens are taken.
#[test]
fn the_rule_takes_whole_pieces_only_where_the_file_does() {
    let passes = PreRule::find("llama-bpe").unwrap().passes;
    assert_eq!(PreRule::find("dbrx").unwrap().passes, passes);
    for (whole, name) in [(true, "llama-bpe"), (false, "dbrx")] {
        let folder = folder(0, |t| {
            t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": passes[0]});
            t["model"]["ignore_merges"] = json!(whole);
        });
        let found = tokenizer(&folder.open().unwrap());
        assert_eq!(
            (found.rule().name(), found.rule().ignore_merges),
            (name, whole)
        );
    }
}

#[test]
fn a_vocabulary_that_is_mostly_padding_is_refused() {
    let folder = folder(70_000, |_| {});
    says(
        &folder.open().unwrap_err(),
        &["tokenizer.json", "1024 tokens", "twice"],
    );
}

#[test]
fn a_template_says_whether_a_first_token_is_added() {
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    });
    let folder = folder(0, |t| {
        t["post_processor"] = json!({"type": "Sequence", "processors": [template]})
    });
    let found = tokenizer(&folder.open().unwrap());
    assert_eq!((found.bos(), found.adds_bos()), (Some(0), true));
    folder.config(|config| config["bos_token_id"] = json!(5));
    says(
        &folder.open().unwrap_err(),
        &["tokenizer.json", "first token", "token 0", "bos_token_id"],
    );
}

#[test]
fn what_is_not_byte_level_bpe_is_refused() {
    type Edit = fn(&mut Json);
    let cases: &[(Edit, &[&str])] = &[
        (
            |t| t["model"]["type"] = json!("Unigram"),
            &["model.type is Unigram"],
        ),
        (
            |t| t["model"]["byte_fallback"] = json!(true),
            &["model.byte_fallback is true"],
        ),
        (
            |t| t["normalizer"] = json!({"type": "Lowercase"}),
            &["normalizer is Lowercase"],
        ),
        (
            |t| t["decoder"] = json!({"type": "WordPiece"}),
            &["decoder is WordPiece"],
        ),
        (
            |t| t["pre_tokenizer"] = json!({"type": "Metaspace"}),
            &["pre_tokenizer is Metaspace"],
        ),
        (
            |t| t["pre_tokenizer"] = Json::Null,
            &["pre_tokenizer", "no row"],
        ),
        (
            |t| t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "\\w+"}),
            &["no row of the table", "w+"],
        ),
        (
            |t| t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Removed"),
            &["must isolate"],
        ),
        (
            |t| t["model"]["vocab"]["!"] = json!(2),
            &["token 2", "an id names one token"],
        ),
        (
            |t| t["model"]["vocab"]["!"] = json!(-1),
            &["token \"!\" is -1"],
        ),
        (
            |t| t["model"]["vocab"]["!"] = json!(1024),
            &["1025 tokens", "vocab_size"],
        ),
        (
            |t| t["model"]["vocab"] = Json::Null,
            &["model.vocab is missing"],
        ),
        (|t| t["model"]["merges"] = json!([3]), &["merge 0 is 3"]),
        (
            |t| t["model"]["merges"] = json!([["a b", "c"]]),
            &["merge 0", "without spaces"],
        ),
        (
            |t| t["added_tokens"][0]["content"] = json!("other"),
            &["token 0", "an id names one token"],
        ),
        (
            |t| t["added_tokens"][0]["id"] = Json::Null,
            &["added_tokens"],
        ),
    ];
    for (edit, words) in cases {
        let error = folder(0, edit).open().unwrap_err();
        says(&error, words);
        says(&error, &["tokenizer.json"]);
    }
}
