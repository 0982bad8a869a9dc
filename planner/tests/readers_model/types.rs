//! Every ggml type in a tensor of a layer: planned, or refused by type, tensor and layer.

use crate::fixture::{Folder, plan, repository, says};
use refrain_kernels::{Dtype, Op, find_op};
use refrain_planner::ModelSource;
use refrain_planner::gguf::{GgmlType, REMOVED_TYPES};

const TENSOR: &str = "blk.1.ffn_up.weight";

/// The trained model with another type number in one tensor's record.
fn with_type(good: &[u8], id: u32) -> Folder {
    let mut bytes = good.to_vec();
    let name = TENSOR.as_bytes();
    let at = bytes
        .windows(name.len())
        .position(|part| part == name)
        .unwrap();
    // Two dimensions of u64 after their count.
    let at = at + name.len() + 4 + 16;
    bytes[at..at + 4].copy_from_slice(&id.to_le_bytes());
    let folder = Folder::empty();
    folder.write("m.gguf", &bytes);
    folder
}

fn has_kernels(dtype: Dtype) -> bool {
    find_op(Op::Gemv, Some(dtype), None).is_some()
}

#[test]
fn a_type_without_a_kernel_is_refused_by_name_tensor_and_layer() {
    let good = std::fs::read(repository("golden/models/austen-qwen3-4m.q8_0.gguf")).unwrap();
    let room = GgmlType::Q8_0.row_bytes(256);
    let mut refused = 0;
    for ty in GgmlType::ALL {
        // A larger type would reach into the next tensor, which the reader refuses.
        if ty.row_bytes(256) > room {
            continue;
        }
        let folder = with_type(&good, ty.id());
        let source = ModelSource::open(folder.at("m.gguf")).unwrap();
        let found = source.table().find_tensor(TENSOR).unwrap();
        assert_eq!(found.bytes, ty.row_bytes(256).unwrap() * 512, "{ty}");
        match Dtype::parse(&ty.name().to_ascii_lowercase()) {
            Some(dtype) if has_kernels(dtype) => assert!(plan(&source).is_ok(), "{ty}"),
            Some(dtype) => {
                let error = plan(&source).unwrap_err().to_string();
                says(&error, &["blk.1", "no kernel for", dtype.name(), "gfx"]);
            }
            None => {
                let error = plan(&source).unwrap_err().to_string();
                says(&error, &[TENSOR, "layer 1", ty.name(), "supported types"]);
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
    for (id, name, instead) in REMOVED_TYPES {
        let folder = with_type(&good, *id);
        let error = ModelSource::open(folder.at("m.gguf")).unwrap_err();
        says(&error.to_string(), &[TENSOR, name, instead]);
    }
}
