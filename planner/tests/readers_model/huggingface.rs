//! Hugging Face folders: the tensors and the plan of the same model as GGUF, whole or sharded.

use crate::fixture::{
    Folder, HF_LLAMA, HF_QWEN35, NANO_LLAMA, NANO_QWEN35, Raw, plan, repository, safetensors, says,
    tensors,
};
use refrain_planner::arch::ARCHS;
use refrain_planner::identity::Layer;
use refrain_planner::source::LoadOp;
use refrain_planner::{CheckedPlan, ModelSource};
use serde_json::json;

fn open(path: &str) -> ModelSource {
    ModelSource::open(repository(path)).unwrap()
}

/// llama.cpp's converter made the GGUF file from the folder, so it judges names, types, order and
/// arithmetic of every tensor.
fn same_tensors(folder: &str, gguf: &str) {
    let (ours, theirs) = (open(folder), open(gguf));
    assert_eq!(ours.table().tensors.len(), theirs.table().tensors.len());
    for expected in &theirs.table().tensors {
        let found = ours.table().find_tensor(&expected.name).unwrap();
        assert_eq!(
            (found.ty.name(), &found.dims),
            (expected.ty.name(), &expected.dims),
            "{}",
            expected.name
        );
        let (found, expected_bytes) = (
            ours.tensor_bytes(found).unwrap(),
            theirs.tensor_bytes(expected).unwrap(),
        );
        if expected.name.ends_with("ssm_a") {
            // -exp() in f32 there, in f64 and rounded once here: one unit in the last place.
            close(&found, &expected_bytes);
        } else {
            assert!(found == expected_bytes, "{}", expected.name);
        }
    }
}

fn close(found: &[u8], expected: &[u8]) {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.chunks(4).zip(expected.chunks(4)) {
        assert!(word(a).abs_diff(word(b)) <= 1, "{a:?} {b:?}");
    }
}

#[test]
fn llama_tensors_equal_the_converted_ones() {
    same_tensors(HF_LLAMA, NANO_LLAMA);
}

#[test]
fn qwen35_tensors_equal_the_converted_ones() {
    same_tensors(HF_QWEN35, NANO_QWEN35);
}

#[test]
fn metadata_equals_the_converted_one() {
    for (folder, gguf) in [(HF_LLAMA, NANO_LLAMA), (HF_QWEN35, NANO_QWEN35)] {
        let (ours, theirs) = (open(folder), open(gguf));
        let arch = theirs.table().architecture().unwrap().to_owned();
        assert_eq!(ours.table().architecture().unwrap(), arch);
        for (key, expected) in theirs.metadata().iter() {
            let planned = key.starts_with(&arch) && !key.ends_with("rope.dimension_count");
            if planned {
                let found = ours.metadata().entry(key);
                let found = found.map(|entry| &entry.value);
                assert_eq!(found, Some(&expected.value), "{key}");
            }
        }
    }
}

fn same_plan(ours: &CheckedPlan, theirs: &CheckedPlan) {
    for layer in [Layer::Structure, Layer::Schedule, Layer::Artifacts] {
        assert_eq!(
            ours.identity().layer(layer),
            theirs.identity().layer(layer),
            "{}",
            layer.name()
        );
    }
    for (ours, theirs) in ours.model.tensors.iter().zip(&theirs.model.tensors) {
        assert_eq!(ours.name, theirs.name);
        assert_eq!(ours.digest, theirs.digest, "{}", ours.name);
    }
}

#[test]
fn plan_of_a_folder_is_the_plan_of_its_gguf_file() {
    let ours = plan(&open(HF_LLAMA)).unwrap();
    let theirs = plan(&open(NANO_LLAMA)).unwrap();
    same_plan(&ours, &theirs);
    // Only the end token differs, which llama.cpp leaves out without a vocabulary.
    assert_eq!((ours.model.eos, theirs.model.eos), (Some(2), None));
    assert_eq!(ours.model.files.len(), 2);
    let query = ours
        .model
        .tensors
        .iter()
        .find(|t| t.name == "blk.0.attn_q.weight");
    assert_eq!(query.unwrap().load, [LoadOp::PairRows { head_rows: 32 }]);
}

/// Loading does all that llama.cpp's converter does, so plans are equal where the architecture is
/// declared.
#[test]
fn plan_of_a_folder_with_gated_delta_layers_is_the_plan_of_its_gguf_file() {
    if ARCHS.iter().any(|arch| arch.name == "qwen35") {
        same_plan(
            &plan(&open(HF_QWEN35)).unwrap(),
            &plan(&open(NANO_QWEN35)).unwrap(),
        );
    }
}

/// The model in `parts` shards with an index.
fn sharded(parts: usize) -> Folder {
    let folder = Folder::of(HF_LLAMA);
    let all = tensors(&folder.at("model.safetensors"));
    folder.remove("model.safetensors");
    let mut map = serde_json::Map::new();
    for (at, part) in all.chunks(all.len().div_ceil(parts)).enumerate() {
        let name = format!("model-{:05}-of-{parts:05}.safetensors", at + 1);
        folder.write(&name, &safetensors(part));
        for (tensor, ..) in part {
            map.insert(tensor.clone(), json!(name));
        }
    }
    let index = json!({"metadata": {"total_size": 1}, "weight_map": map});
    folder.write("model.safetensors.index.json", index.to_string().as_bytes());
    folder
}

#[test]
fn shards_give_the_same_plan_from_any_of_their_files() {
    let whole = plan(&open(HF_LLAMA)).unwrap();
    let folder = sharded(3);
    let first = folder.plan().unwrap();
    same_plan(&first, &whole);
    assert_eq!(first.model.files.len(), 4);
    assert_eq!(first.identity(), whole.identity());
    for name in [
        "config.json",
        "model.safetensors.index.json",
        "model-00002-of-00003.safetensors",
    ] {
        let source = ModelSource::open(folder.at(name)).unwrap();
        assert!(
            plan(&source).unwrap().to_bytes() == first.to_bytes(),
            "{name}"
        );
    }
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    const INDEX: &str = "model.safetensors.index.json";
    const SECOND: &str = "model-00002-of-00003.safetensors";
    let edit = |folder: &Folder, change: fn(&mut serde_json::Value)| {
        let mut index = crate::fixture::read_json(&folder.at(INDEX));
        change(&mut index);
        folder.write(INDEX, index.to_string().as_bytes());
    };
    let folder = sharded(3);
    folder.remove(SECOND);
    says(&folder.open().unwrap_err(), &[SECOND, "fetch it"]);

    let folder = sharded(3);
    edit(&folder, |index| {
        index["weight_map"]["lm_head.weight"] = json!(SECOND);
    });
    says(
        &folder.open().unwrap_err(),
        &[
            "lm_head.weight",
            SECOND,
            "model-00001-of-00003.safetensors",
            INDEX,
        ],
    );

    let folder = sharded(3);
    edit(&folder, |index| {
        index["weight_map"]["extra"] = json!(SECOND)
    });
    says(&folder.open().unwrap_err(), &["extra", "no shard"]);

    let folder = sharded(3);
    edit(&folder, |index| {
        index["weight_map"]
            .as_object_mut()
            .unwrap()
            .remove("lm_head.weight");
    });
    says(&folder.open().unwrap_err(), &["lm_head.weight", "nothing"]);

    let folder = sharded(3);
    folder.remove(INDEX);
    let error = ModelSource::open(folder.at(SECOND)).unwrap_err();
    says(&error.to_string(), &[INDEX, "a shard needs"]);

    for outside in [
        "../other.safetensors",
        "deeper/other.safetensors",
        "/other.safetensors",
        "/etc/passwd",
        "model.bin",
        ".safetensors",
    ] {
        let folder = sharded(3);
        let mut index = crate::fixture::read_json(&folder.at(INDEX));
        index["weight_map"]["lm_head.weight"] = json!(outside);
        folder.write(INDEX, index.to_string().as_bytes());
        says(
            &folder.open().unwrap_err(),
            &["lm_head.weight", outside, "same folder"],
        );
    }

    let folder = sharded(3);
    let first = tensors(&folder.at("model-00001-of-00003.safetensors"));
    let mut second = tensors(&folder.at(SECOND));
    second.push(first[0].clone());
    folder.write(SECOND, &safetensors(&second));
    says(&folder.open().unwrap_err(), &[&first[0].0, "twice"]);

    let folder = sharded(3);
    let whole = std::fs::read(repository(HF_LLAMA).join("model.safetensors")).unwrap();
    folder.write("model.safetensors", &whole);
    says(
        &folder.open().unwrap_err(),
        &["both", "model.safetensors", INDEX],
    );
}

/// Names with the prefix of a multimodal model, other towers beside them.
#[test]
fn text_of_a_multimodal_model_is_read() {
    let folder = Folder::of(HF_LLAMA);
    let mut all = tensors(&folder.at("model.safetensors"));
    for (name, ..) in &mut all {
        *name = name.replace("model.", "model.language_model.");
    }
    let other = |name: &str| -> Raw { (name.to_owned(), "F8_E4M3".into(), vec![2], vec![0, 0]) };
    all.push(other("model.visual.patch_embed.proj.weight"));
    all.push(other("mtp.layers.0.norm.weight"));
    folder.write("model.safetensors", &safetensors(&all));
    folder.config(|config| {
        let text = config.take();
        *config = json!({"model_type": "llava", "text_config": text});
    });
    same_plan(&folder.plan().unwrap(), &plan(&open(NANO_LLAMA)).unwrap());
}

type Edit = fn(&mut Vec<Raw>);

/// A change of the tensors, and words of the refusal.
const UNUSABLE: &[(Edit, &[&str])] = &[
    (
        |t| t.retain(|t| t.0 != "model.layers.2.mlp.up_proj.weight"),
        &["blk.2.ffn_up.weight", "missing"],
    ),
    (
        |t| t.retain(|t| t.0 != "lm_head.weight"),
        &["tie_word_embeddings is false", "lm_head.weight is missing"],
    ),
    (
        |t| {
            t.push((
                "model.layers.0.new.weight".into(),
                "BF16".into(),
                vec![1],
                vec![0; 2],
            ))
        },
        &["model.layers.0.new.weight", "not part of llama"],
    ),
    (
        |t| {
            t.push((
                "model.layers.00.self_attn.q_proj.weight".into(),
                "BF16".into(),
                vec![1],
                vec![0; 2],
            ))
        },
        &["model.layers.00.self_attn.q_proj.weight"],
    ),
    (
        |t| {
            t.push((
                "model.layers.0.mlp.experts.3.up_proj.weight".into(),
                "BF16".into(),
                vec![1],
                vec![0; 2],
            ))
        },
        &["num_experts is missing"],
    ),
    (
        |t| {
            let norm = t.iter_mut().find(|t| t.0 == "model.norm.weight").unwrap();
            (norm.1, norm.3) = ("I16".into(), norm.3.clone());
        },
        &["model.norm.weight", "I16", "F32, F16 or BF16"],
    ),
    (
        |t| {
            let up = t
                .iter_mut()
                .find(|t| t.0.ends_with("1.mlp.up_proj.weight"))
                .unwrap();
            up.1 = "I16".into();
        },
        &["blk.1.ffn_up.weight", "I16", "layer 1"],
    ),
    (
        |t| {
            let up = t
                .iter_mut()
                .find(|t| t.0.ends_with("1.mlp.up_proj.weight"))
                .unwrap();
            up.2.reverse();
        },
        &["blk.1.ffn_up.weight", "[256, 128]", "[128, 256]"],
    ),
];

#[test]
fn tensors_that_cannot_be_used_are_refused_by_name() {
    for (edit, words) in UNUSABLE {
        let folder = Folder::of(HF_LLAMA);
        let mut all = tensors(&folder.at("model.safetensors"));
        edit(&mut all);
        folder.write("model.safetensors", &safetensors(&all));
        says(&folder.plan().unwrap_err(), words);
    }
}

#[test]
fn a_tied_head_beside_its_own_weights_is_a_contradiction() {
    let folder = Folder::of(HF_LLAMA);
    folder.config(|config| config["tie_word_embeddings"] = json!(true));
    says(
        &folder.open().unwrap_err(),
        &["tie_word_embeddings is true", "there", "config.json"],
    );
}
