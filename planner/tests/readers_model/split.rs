//! Split GGUF models: the plan of the whole file from any part, and parts that do not belong together.

use crate::fixture::{Folder, plan, says};
use crate::tiny::{Meta, Tiny};
use refrain_planner::ModelSource;
use refrain_planner::source::OpenOptions;
use std::collections::BTreeMap;

const PARTS: usize = 3;

fn name(part: usize) -> String {
    format!("tiny-{part:05}-of-{PARTS:05}.gguf")
}

/// The parts of a tiny model as llama-gguf-split makes them; all metadata in the first.
fn parts() -> Vec<Tiny> {
    let whole = Tiny::new("llama");
    let tensors: Vec<_> = whole.tensors.iter().collect();
    let mut parts = Vec::new();
    for (at, chunk) in tensors.chunks(tensors.len().div_ceil(PARTS)).enumerate() {
        let mut meta = BTreeMap::new();
        if at == 0 {
            meta.clone_from(&whole.meta);
        }
        meta.insert("split.no".into(), Meta::U32(at as u32));
        meta.insert("split.count".into(), Meta::U32(PARTS as u32));
        meta.insert(
            "split.tensors.count".into(),
            Meta::U32(tensors.len() as u32),
        );
        let chunk = chunk
            .iter()
            .map(|(name, tensor)| ((*name).clone(), (*tensor).clone()));
        let tensors = chunk.collect();
        parts.push(Tiny { meta, tensors });
    }
    parts
}

fn write(parts: &[Tiny]) -> Folder {
    let folder = Folder::empty();
    for (at, part) in parts.iter().enumerate() {
        folder.write(&name(at + 1), &part.bytes());
    }
    folder
}

fn open(folder: &Folder, part: usize) -> Result<ModelSource, String> {
    ModelSource::open(folder.at(&name(part))).map_err(|error| error.to_string())
}

#[test]
fn any_part_opens_the_whole_model() {
    let folder = write(&parts());
    let whole = plan(&Tiny::new("llama").open()).unwrap();
    let first = plan(&open(&folder, 1).unwrap()).unwrap();
    assert_eq!(first.identity(), whole.identity());
    assert_eq!(first.model.files.len(), PARTS);
    for part in 2..=PARTS {
        let other = plan(&open(&folder, part).unwrap()).unwrap();
        assert!(other.to_bytes() == first.to_bytes());
    }
}

/// `llama-gguf-split --no-tensor-first-split`.
#[test]
fn the_first_part_may_hold_no_tensors() {
    let mut split = parts();
    let moved = std::mem::take(&mut split[0].tensors);
    split[1].tensors.extend(moved);
    let folder = write(&split);
    let found = plan(&open(&folder, 2).unwrap()).unwrap();
    let whole = plan(&Tiny::new("llama").open()).unwrap();
    assert_eq!(found.identity(), whole.identity());
}

#[test]
fn parts_that_do_not_belong_together_are_refused_by_name() {
    type Edit = fn(&mut Vec<Tiny>);
    let cases: &[(Edit, &[&str])] = &[
        (
            |p| p[1].set("split.no", Meta::U32(2)),
            &["tiny-00002-of-00003.gguf", "split.no is 2", "it is 1"],
        ),
        (
            |p| p[2] = p[0].clone(),
            &[
                "tiny-00001-of-00003.gguf and",
                "tiny-00003-of-00003.gguf both hold part 1 of 3",
            ],
        ),
        (
            |p| p[2].set("split.count", Meta::U32(4)),
            &["tiny-00003-of-00003.gguf", "split.count is 4", "it is 3"],
        ),
        (
            |p| {
                p[2].meta.remove("split.count");
            },
            &["tiny-00003-of-00003.gguf", "split.count is none", "it is 3"],
        ),
        (
            |p| p[1].set("general.architecture", Meta::Text("qwen3")),
            &[
                "tiny-00002-of-00003.gguf",
                "general.architecture is qwen3",
                "it is llama",
            ],
        ),
        (
            |p| {
                let (name, tensor) = p[0].tensors.pop_first().unwrap();
                p[1].tensors.insert(name.clone(), tensor.clone());
                p[2].tensors.insert(name, tensor);
            },
            &["split.tensors.count is 21", "have 22 tensors"],
        ),
        (
            |p| {
                let (name, tensor) = p[0].tensors.pop_first().unwrap();
                p[1].tensors.insert(name.clone(), tensor.clone());
                p[2].tensors.insert(name, tensor);
                p[2].tensors.pop_last();
            },
            &["blk.0.attn_k.weight", "twice"],
        ),
    ];
    for (edit, words) in cases {
        let mut split = parts();
        edit(&mut split);
        let folder = write(&split);
        for part in 1..=PARTS {
            says(&open(&folder, part).unwrap_err(), words);
        }
    }
}

#[test]
fn missing_parts_are_named() {
    let folder = write(&parts());
    folder.remove(&name(2));
    says(
        &open(&folder, 3).unwrap_err(),
        &["part 2 of 3 is missing (1 in all)", &name(2)],
    );
    folder.remove(&name(1));
    says(
        &open(&folder, 3).unwrap_err(),
        &["part 1 of 3", "2 in all", &name(1)],
    );
}

#[test]
fn a_renamed_part_says_what_it_should_be_called() {
    let folder = write(&parts());
    std::fs::rename(folder.at(&name(2)), folder.at("second.gguf")).unwrap();
    let error = ModelSource::open(folder.at("second.gguf")).unwrap_err();
    says(
        &error.to_string(),
        &["second.gguf", "part 2 of 3", "-00002-of-00003.gguf"],
    );
}

#[test]
fn errors_inside_a_part_name_it() {
    let folder = write(&parts());
    let bytes = std::fs::read(folder.at(&name(3))).unwrap();
    folder.write(&name(3), &bytes[..bytes.len() - 200]);
    says(&open(&folder, 1).unwrap_err(), &[&name(3), "cut off"]);
    let options = OpenOptions {
        header_only: true,
        ..OpenOptions::default()
    };
    let cut = ModelSource::open_with(folder.at(&name(1)), options).unwrap();
    let cut = plan(&cut).unwrap();
    let whole = plan(&Tiny::new("llama").open()).unwrap();
    assert_eq!(cut.identity().sequence, whole.identity().sequence);
}
