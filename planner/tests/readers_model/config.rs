//! Configurations: missing and contradictory fields, and what they mean.

use crate::fixture::{Folder, HF_LLAMA, HF_QWEN35, says};
use refrain_planner::ModelSource;
use refrain_planner::gguf::Value;
use serde_json::{Value as Json, json};

type Edit = fn(&mut Json);

fn refusals(model: &str, cases: &[(Edit, &[&str])]) {
    for (edit, words) in cases {
        let folder = Folder::of(model);
        folder.config(*edit);
        let error = folder.open().unwrap_err();
        says(&error, words);
        says(&error, &["config.json"]);
    }
}

fn remove(config: &mut Json, key: &str) {
    config.as_object_mut().unwrap().remove(key);
}

/// A change of the configuration, and words of the refusal.
const LLAMA: &[(Edit, &[&str])] = &[
    (|c| remove(c, "hidden_size"), &["hidden_size is missing"]),
    (|c| remove(c, "vocab_size"), &["vocab_size is missing"]),
    (|c| remove(c, "rms_norm_eps"), &["rms_norm_eps is missing"]),
    (|c| remove(c, "rope_parameters"), &["rope_theta is missing"]),
    (|c| remove(c, "model_type"), &["model_type is missing"]),
    (
        |c| c["model_type"] = json!("gpt5"),
        &["\"gpt5\"", "llama", "qwen3_5"],
    ),
    (
        |c| c["hidden_size"] = json!("128"),
        &["hidden_size is \"128\"", "whole number"],
    ),
    (
        |c| c["num_hidden_layers"] = json!(-4),
        &["num_hidden_layers is -4"],
    ),
    (
        |c| c["num_hidden_layers"] = json!(0),
        &["num_hidden_layers is 0", "at least 1"],
    ),
    (
        |c| c["vocab_size"] = json!(1e9),
        &["vocab_size is 1000000000"],
    ),
    (
        |c| c["num_attention_heads"] = json!(0),
        &["num_attention_heads is 0"],
    ),
    (
        |c| c["num_key_value_heads"] = json!(3),
        &[
            "num_attention_heads is 4",
            "num_key_value_heads is 3",
            "multiple",
        ],
    ),
    (
        |c| c["num_key_value_heads"] = json!(0),
        &["num_key_value_heads is 0"],
    ),
    (
        |c| {
            remove(c, "head_dim");
            c["num_attention_heads"] = json!(6);
        },
        &["num_attention_heads is 6", "multiple"],
    ),
    (
        |c| c["rope_theta"] = json!(1e4),
        &["rope_theta is 10000", "500000"],
    ),
    (
        |c| c["rope_parameters"]["rope_theta"] = json!(0),
        &["rope_theta is 0", "above 0"],
    ),
    (
        |c| c["rope_parameters"]["rope_type"] = json!("yarn"),
        &["rope_type is \"yarn\"", "default"],
    ),
    (
        |c| c["rope_parameters"]["rope_type"] = json!("llama3"),
        &["factor is missing"],
    ),
    (
        |c| c["hidden_act"] = json!("gelu"),
        &["hidden_act is \"gelu\"", "silu"],
    ),
    (
        |c| c["attention_bias"] = json!(true),
        &["attention_bias is true", "biases"],
    ),
    (
        |c| c["sliding_window"] = json!(4096),
        &["sliding_window is 4096"],
    ),
    (
        |c| c["quantization_config"] = json!({"bits": 4}),
        &["quantization_config", "quantisation"],
    ),
    (
        |c| c["layer_types"] = json!(["full_attention"]),
        &["num_hidden_layers is 4", "layer_types is a list of 1"],
    ),
    (
        |c| c["layer_types"] = vec!["sliding_attention"; 4].into(),
        &["sliding_attention", "full_attention"],
    ),
    (
        |c| c["eos_token_id"] = json!(256),
        &["eos_token_id is 256", "vocab_size is 256"],
    ),
    (
        |c| c["eos_token_id"] = json!([2, "x"]),
        &["eos_token_id is a list of 2"],
    ),
    (
        |c| c["tie_word_embeddings"] = json!("no"),
        &["tie_word_embeddings is \"no\"", "true or false"],
    ),
    (|c| *c = json!([1]), &["a list of 1", "JSON object"]),
];

#[test]
fn fields_of_llama_are_judged() {
    refusals(HF_LLAMA, LLAMA);
}

#[test]
fn fields_of_qwen35_are_judged() {
    refusals(
        HF_QWEN35,
        &[
            (|c| remove(c, "head_dim"), &["head_dim is missing"]),
            (
                |c| remove(c, "linear_num_key_heads"),
                &["linear_num_key_heads is missing"],
            ),
            (
                |c| c["linear_num_value_heads"] = json!(3),
                &["linear_num_value_heads is 3", "linear_num_key_heads is 2"],
            ),
            (
                |c| c["full_attention_interval"] = json!(2),
                &["full_attention_interval is 2", "layer 1"],
            ),
            (
                |c| c["rope_parameters"]["partial_rotary_factor"] = json!(1.5),
                &["partial_rotary_factor is 1.5"],
            ),
            (
                |c| c["attn_output_gate"] = json!(false),
                &["attn_output_gate is false", "gate"],
            ),
            (
                |c| c["rope_parameters"]["mrope_section"] = json!([1, 2, 3, 4, 5]),
                &["mrope_section"],
            ),
        ],
    );
}

#[test]
fn a_field_given_twice_is_refused() {
    let folder = Folder::of(HF_LLAMA);
    let text = std::fs::read_to_string(folder.at("config.json")).unwrap();
    let twice = text.replace("\"head_dim\": 32,", "\"head_dim\": 32, \"head_dim\": 64,");
    assert_ne!(text, twice);
    folder.write("config.json", twice.as_bytes());
    says(
        &folder.open().unwrap_err(),
        &["head_dim", "twice", "config.json", "line"],
    );
}

#[test]
fn files_that_must_be_there_are_named() {
    let folder = Folder::of(HF_LLAMA);
    folder.remove("config.json");
    says(
        &folder.open().unwrap_err(),
        &["config.json", "no such file"],
    );
    let folder = Folder::of(HF_LLAMA);
    folder.remove("model.safetensors");
    says(
        &folder.open().unwrap_err(),
        &["model.safetensors", "recipe"],
    );
    let folder = Folder::of(HF_LLAMA);
    let long = std::fs::File::options()
        .write(true)
        .open(folder.at("config.json"))
        .unwrap();
    long.set_len(5 << 20).unwrap();
    says(&folder.open().unwrap_err(), &["5242880", "4194304"]);
}

/// Factors of Llama 3.2 1B against `convert_hf_to_gguf.py` (its `rope_freqs.weight`).
#[test]
fn llama3_factors_equal_the_converted_ones() {
    let folder = Folder::of(HF_LLAMA);
    folder.config(|c| {
        c["head_dim"] = json!(64);
        c["rope_parameters"] = json!({
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        });
    });
    folder.write("model.safetensors", &crate::fixture::safetensors(&[]));
    let recipe = refrain_planner::source::Recipe::find("f16");
    let options = refrain_planner::source::OpenOptions {
        recipe,
        ..Default::default()
    };
    let source = ModelSource::open_with(folder.path(), options).unwrap();
    let factors = source.table().rope_factors.clone().unwrap();
    assert_eq!(factors.len(), 32);
    assert_eq!((factors[0], factors[31]), (1.0, 32.0));
    // Computed with numpy in f64 from the formula of models.md 2.3.
    let near = |at: usize, expected: f32| {
        assert!(
            (factors[at] - expected).abs() < 1e-4 * expected,
            "{at}: {}",
            factors[at]
        );
    };
    near(15, 1.651329);
    near(16, 3.292262);
    near(17, 9.666729);
}

/// They reach the rotation table of the plan: frequencies are turns as a sum of two f32.
#[test]
fn llama3_factors_are_in_the_plan() {
    let slowest = |scaled: bool| {
        let folder = Folder::of(HF_LLAMA);
        if scaled {
            folder.config(|c| {
                c["rope_parameters"] = json!({
                    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
                });
            });
        }
        let plan = folder.plan().unwrap();
        let rope = plan
            .buffers
            .iter()
            .find(|buffer| buffer.name == "rope")
            .unwrap();
        let last = rope.content.as_chunks::<8>().0.last().unwrap();
        f32::from_le_bytes(last[..4].try_into().unwrap())
    };
    assert_eq!(slowest(false) / slowest(true), 8.0);
}

#[test]
fn several_end_tokens_are_kept() {
    let folder = Folder::of(HF_LLAMA);
    folder.config(|c| c["eos_token_id"] = json!([7, 9]));
    let source = folder.open().unwrap();
    let key = |key: &str| {
        source
            .metadata()
            .entry(key)
            .map(|entry| entry.value.clone())
    };
    assert_eq!(key("tokenizer.ggml.eos_token_id"), Some(Value::U32(7)));
    assert_eq!(key("tokenizer.ggml.eot_token_id"), Some(Value::U32(9)));
}
