//! Plans without weights: from the head of a file, or from a configuration and a recipe.

use crate::fixture::{Folder, HF_LLAMA, NANO_LLAMA, plan, repository, says};
use crate::tiny::{Meta, Tiny};
use refrain_planner::identity::Layer;
use refrain_planner::plan::Model;
use refrain_planner::source::{OpenOptions, RECIPES, Recipe};
use refrain_planner::{CheckedPlan, ModelSource, fill, inspect};

const HEADER_ONLY: OpenOptions = OpenOptions {
    header_only: true,
    recipe: None,
};

fn absent(model: &Model) -> bool {
    !model.has_weights() && model.tensors.iter().all(|tensor| tensor.digest.is_none())
}

/// Same launches, memory, waits and code; another model layer, because the weights are unknown.
fn same_but_for_weights(without: &CheckedPlan, with: &CheckedPlan) {
    assert!(absent(&without.model));
    assert!(with.model.has_weights());
    assert_eq!(
        without.identity().differing(with.identity()),
        [Layer::Model]
    );
    assert_eq!(without.identity().sequence, with.identity().sequence);
    let text = inspect(without);
    assert!(text.contains("weights: absent"), "{text}");
    assert!(!inspect(with).contains("weights: absent"));
    let again = CheckedPlan::from_bytes(&without.to_bytes()).unwrap();
    assert!(absent(&again.model));
}

#[test]
fn the_head_of_a_gguf_file_is_enough() {
    let bytes = std::fs::read(repository(NANO_LLAMA)).unwrap();
    let whole = plan(&ModelSource::open(repository(NANO_LLAMA)).unwrap()).unwrap();
    let head = whole.model.files[0].header_bytes as usize;
    let folder = Folder::empty();
    for length in [head, head + 1000, bytes.len() - 1, bytes.len()] {
        folder.write("cut.gguf", &bytes[..length]);
        let source = ModelSource::open_with(folder.at("cut.gguf"), HEADER_ONLY).unwrap();
        let cut = plan(&source).unwrap();
        same_but_for_weights(&cut, &whole);
        assert_eq!(cut.model.files, whole.model.files, "{length}");
        let error = source.tensor_bytes(&source.table().tensors[3]);
        assert_eq!(error.is_err(), length < head + 300_000, "{length}");
    }
    folder.write("cut.gguf", &bytes[..head]);
    let error = ModelSource::open(folder.at("cut.gguf")).unwrap_err();
    says(&error.to_string(), &["cut off", "--header-only"]);
    folder.write("cut.gguf", &bytes[..head - 40]);
    let error = ModelSource::open_with(folder.at("cut.gguf"), HEADER_ONLY).unwrap_err();
    says(&error.to_string(), &["ends inside"]);
}

#[test]
fn the_head_of_a_safetensors_file_is_enough() {
    let folder = Folder::of(HF_LLAMA);
    let whole = folder.plan().unwrap();
    let bytes = std::fs::read(folder.at("model.safetensors")).unwrap();
    let head = whole.model.files[1].header_bytes as usize;
    folder.write("model.safetensors", &bytes[..head]);
    let source = ModelSource::open_with(folder.path(), HEADER_ONLY).unwrap();
    same_but_for_weights(&plan(&source).unwrap(), &whole);
    says(&folder.open().unwrap_err(), &["cut off", "--header-only"]);
}

/// Factors of the rotation are part of the plan, so their bytes must be there.
#[test]
fn rotation_factors_are_needed_even_without_weights() {
    /// Bytes of the embedding, the only tensor after the factors.
    const EMBEDDING: usize = 80 * 64 * 2;
    let mut model = Tiny::new("llama");
    model.tensor("rope_freqs", &[16], crate::tiny::F32);
    let ones: Vec<u8> = (0..16).flat_map(|_| 1f32.to_le_bytes()).collect();
    model.tensors.get_mut("rope_freqs.weight").unwrap().2 = ones;
    let bytes = model.bytes();
    let folder = Folder::empty();
    folder.write("whole.gguf", &bytes);
    let whole = plan(&ModelSource::open(folder.at("whole.gguf")).unwrap()).unwrap();
    folder.write("cut.gguf", &bytes[..bytes.len() - 1]);
    let cut = ModelSource::open_with(folder.at("cut.gguf"), HEADER_ONLY).unwrap();
    same_but_for_weights(&plan(&cut).unwrap(), &whole);
    folder.write("cut.gguf", &bytes[..bytes.len() - EMBEDDING - 1]);
    let cut = ModelSource::open_with(folder.at("cut.gguf"), HEADER_ONLY).unwrap();
    says(
        &plan(&cut).unwrap_err().to_string(),
        &["rope_freqs.weight", "whole model"],
    );
}

fn by_recipe(folder: &Folder, name: &str) -> Result<ModelSource, String> {
    let options = OpenOptions {
        recipe: Recipe::find(name),
        header_only: false,
    };
    assert!(options.recipe.is_some(), "{name}");
    ModelSource::open_with(folder.at("config.json"), options).map_err(|error| error.to_string())
}

#[test]
fn a_configuration_and_a_recipe_are_enough() {
    let folder = Folder::of(HF_LLAMA);
    folder.remove("model.safetensors");
    // bf16 is what the folder's own weights are.
    let whole = plan(&ModelSource::open(repository(HF_LLAMA)).unwrap()).unwrap();
    let declared = plan(&by_recipe(&folder, "bf16").unwrap()).unwrap();
    same_but_for_weights(&declared, &whole);
    assert_eq!(declared.model.files.len(), 1);

    let quantised = plan(&by_recipe(&folder, "q8_0").unwrap()).unwrap();
    let tensor = |name: &str| {
        let tensors = quantised.model.tensors.iter();
        let mut named = tensors.filter(|tensor| tensor.name == name);
        named.next().unwrap().dtype.name()
    };
    assert_eq!(tensor("blk.1.ffn_up.weight"), "q8_0");
    assert_eq!(tensor("blk.1.ffn_norm.weight"), "f32");
}

#[test]
fn a_plan_is_filled_only_by_the_model_it_was_made_for() {
    let folder = Folder::of(HF_LLAMA);
    let whole = folder.open().unwrap();
    let expected = plan(&whole).unwrap();
    let declared = plan(&by_recipe(&folder, "bf16").unwrap()).unwrap();
    let filled = fill(&declared, &whole).unwrap();
    assert!(filled.to_bytes() == expected.to_bytes());
    // The same weights in another format fill it, too, as far as they say the same.
    folder.config(|config| config["eos_token_id"] = serde_json::Value::Null);
    let declared = plan(&by_recipe(&folder, "bf16").unwrap()).unwrap();
    let gguf = ModelSource::open(repository(NANO_LLAMA)).unwrap();
    let filled = fill(&declared, &gguf).unwrap();
    assert_eq!(filled.identity(), plan(&gguf).unwrap().identity());

    let refused =
        |plan: &CheckedPlan, source: &ModelSource| fill(plan, source).unwrap_err().to_string();
    says(&refused(&filled, &gguf), &["--fill"]);
    says(
        &refused(&declared, &by_recipe(&folder, "bf16").unwrap()),
        &["whole model"],
    );
    says(
        &refused(&declared, &whole),
        &["end token", "Some(2)", "None"],
    );
    let q8 = plan(&by_recipe(&folder, "q8_0").unwrap()).unwrap();
    says(&refused(&q8, &gguf), &["token_embd.weight", "bf16", "q8_0"]);
    folder.config(|config| config["rope_parameters"]["rope_theta"] = 1e4.into());
    let other = plan(&by_recipe(&folder, "bf16").unwrap()).unwrap();
    says(&refused(&other, &gguf), &["geometry", "500000", "10000"]);
}

#[test]
fn a_tied_model_is_declared_without_a_head() {
    let folder = Folder::of(HF_LLAMA);
    folder.config(|config| config["tie_word_embeddings"] = true.into());
    let source = by_recipe(&folder, "q8_0").unwrap();
    assert!(source.table().find_tensor("output.weight").is_none());
    assert!(plan(&source).is_ok());
}

#[test]
fn every_recipe_declares_the_types_it_names() {
    let folder = Folder::of(HF_LLAMA);
    folder.config(|config| {
        config["hidden_size"] = 512.into();
        config["head_dim"] = 64.into();
        config["num_attention_heads"] = 8.into();
    });
    for recipe in RECIPES {
        let source = by_recipe(&folder, recipe.name).unwrap();
        let ty = |name: &str| source.table().find_tensor(name).unwrap().ty.name();
        assert_eq!(ty("blk.0.ffn_up.weight"), recipe.matrix.name());
        assert_eq!(ty("output.weight"), recipe.head.name());
        assert_eq!(ty("output_norm.weight"), "F32");
        if let Err(error) = plan(&source) {
            // No kernel for it yet: by step and type.
            let matrix = recipe.matrix.name().to_lowercase();
            let matrix = matrix.as_str();
            says(&error.to_string(), &[matrix, "no kernel for", "there is"]);
        }
    }
}

#[test]
fn what_a_recipe_cannot_do_is_said() {
    let folder = Folder::of(HF_LLAMA);
    says(
        &by_recipe(&folder, "q4_k").unwrap_err(),
        &["q4_k", "128", "256", "token_embd.weight"],
    );
    let options = OpenOptions {
        recipe: Recipe::find("q8_0"),
        header_only: false,
    };
    let error = ModelSource::open_with(repository(NANO_LLAMA), options).unwrap_err();
    says(&error.to_string(), &["recipe", "GGUF"]);
    assert!(Recipe::find("q9").is_none());
}

#[test]
fn a_header_that_asks_for_an_absurd_file_is_refused() {
    let mut model = Tiny::new("llama");
    model.set("filler", Meta::U32(1));
    let mut bytes = model.bytes();
    // The offset of the last tensor record.
    let name = b"output_norm.weight";
    let at = bytes
        .windows(name.len())
        .position(|part| part == name)
        .unwrap();
    let offset = at + name.len() + 4 + 8 + 4;
    bytes[offset..offset + 8].copy_from_slice(&(1u64 << 47).to_le_bytes());
    let folder = Folder::empty();
    folder.write("far.gguf", &bytes);
    let error = ModelSource::open_with(folder.at("far.gguf"), HEADER_ONLY).unwrap_err();
    says(
        &error.to_string(),
        &["output_norm.weight", &(1u64 << 46).to_string()],
    );
}
