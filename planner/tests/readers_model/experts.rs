//! Experts one by one, in shards, or fused: the stacked tensors that GGUF has.

use crate::fixture::{Folder, HF_QWEN35, Raw, read_json, repository, safetensors, says};
use refrain_planner::ModelSource;
use serde_json::json;

const EXPERTS: usize = 3;
const WIDTH: usize = 4;
const HIDDEN: usize = 8;

/// A matrix of bytes that no other expert or projection has.
fn matrix(expert: usize, projection: usize) -> Vec<u8> {
    let start = (expert * 3 + projection) * WIDTH * HIDDEN;
    (0..WIDTH * HIDDEN)
        .flat_map(|i| ((start + i) as u16).to_le_bytes())
        .collect()
}

fn raw(name: &str, shape: &[usize], bytes: Vec<u8>) -> Raw {
    let shape = shape.iter().map(|dim| *dim as u64).collect();
    (name.to_owned(), "BF16".to_owned(), shape, bytes)
}

const PREFIX: &str = "model.language_model.layers.2.mlp.experts";

fn one_by_one() -> Vec<Raw> {
    let mut all = Vec::new();
    // Not in the order of the experts, as names sort.
    for expert in [1, 0, 2] {
        for (at, name) in ["down_proj", "gate_proj", "up_proj"].iter().enumerate() {
            let shape = if at == 0 {
                [HIDDEN, WIDTH]
            } else {
                [WIDTH, HIDDEN]
            };
            let projection = [2, 0, 1][at];
            let name = format!("{PREFIX}.{expert}.{name}.weight");
            all.push(raw(&name, &shape, matrix(expert, projection)));
        }
    }
    all
}

fn fused() -> Vec<Raw> {
    let gate_up = (0..EXPERTS)
        .flat_map(|e| [matrix(e, 0), matrix(e, 1)].concat())
        .collect();
    let down = (0..EXPERTS).flat_map(|e| matrix(e, 2)).collect();
    vec![
        raw(
            &format!("{PREFIX}.gate_up_proj"),
            &[EXPERTS, 2 * WIDTH, HIDDEN],
            gate_up,
        ),
        raw(
            &format!("{PREFIX}.down_proj"),
            &[EXPERTS, HIDDEN, WIDTH],
            down,
        ),
    ]
}

fn folder(experts: &[Raw]) -> Folder {
    let folder = Folder::empty();
    let mut config = read_json(&repository(HF_QWEN35).join("config.json"));
    for (key, value) in [
        ("model_type", json!("qwen3_5_moe_text")),
        ("num_experts", json!(EXPERTS)),
        ("num_experts_per_tok", json!(2)),
        ("moe_intermediate_size", json!(WIDTH)),
        ("shared_expert_intermediate_size", json!(WIDTH)),
    ] {
        config[key] = value;
    }
    folder.write("config.json", config.to_string().as_bytes());
    folder.write("model.safetensors", &safetensors(experts));
    folder
}

#[test]
fn one_by_one_and_fused_are_the_same_stack() {
    for (experts, pieces) in [(one_by_one(), EXPERTS), (fused(), EXPERTS)] {
        let source = ModelSource::open(folder(&experts).path()).unwrap();
        for (projection, name) in ["gate", "up", "down"].iter().enumerate() {
            let name = format!("blk.2.ffn_{name}_exps.weight");
            let tensor = source.table().find_tensor(&name).unwrap();
            let expected: Vec<u8> = (0..EXPERTS).flat_map(|e| matrix(e, projection)).collect();
            assert!(source.tensor_bytes(tensor).unwrap() == expected, "{name}");
            let (row, rows) = if projection == 2 {
                (WIDTH, HIDDEN)
            } else {
                (HIDDEN, WIDTH)
            };
            assert_eq!(tensor.dims, [row as u64, rows as u64, EXPERTS as u64]);
            let whole = projection == 2 && experts.len() == 2;
            assert_eq!(tensor.pieces().count(), if whole { 1 } else { pieces });
        }
        assert_eq!(source.table().tensors.len(), 3);
    }
}

#[test]
fn experts_that_do_not_make_a_stack_are_refused() {
    type Edit = fn(&mut Vec<Raw>);
    let cases: &[(Edit, &[&str])] = &[
        (
            |t| t.retain(|t| !t.0.ends_with("experts.2.up_proj.weight")),
            &[
                "layers.2.mlp.experts.2.up_proj.weight is missing",
                "num_experts 3",
            ],
        ),
        (
            |t| t[0].0 = t[0].0.replace("experts.1.", "experts.3."),
            &["experts.3.down_proj", "below num_experts 3"],
        ),
        (
            |t| t[0].0 = t[0].0.replace("experts.1.", "experts.01."),
            &["experts.1.down_proj", "missing"],
        ),
        (
            |t| t[0].2.reverse(),
            &["experts.1.down_proj", "[4, 8]", "[8, 4]"],
        ),
        (
            |t| {
                let (one, mut other) = (t[0].clone(), t[0].clone());
                other.0 = one.0.replace("model.language_model.", "model.");
                t.push(other);
            },
            &["experts.1.down_proj", "given once"],
        ),
        (
            |t| t[0].2 = vec![32],
            &["experts.1.down_proj", "[32]", "a matrix"],
        ),
        (
            |t| {
                *t = fused();
                (t[0].2, t[0].3) = (vec![2, 12, 8], t[0].3.clone());
            },
            &["gate_up_proj", "[2, 12, 8]", "num_experts 3"],
        ),
        (
            |t| {
                *t = fused();
                t[0].2 = vec![3, 1, 64];
            },
            &["gate_up_proj", "[3, 1, 64]"],
        ),
    ];
    for (edit, words) in cases {
        let mut all = one_by_one();
        edit(&mut all);
        says(&folder(&all).open().unwrap_err(), words);
    }
}
