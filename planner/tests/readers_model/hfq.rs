//! HFQ containers, written here as the format is described: read, planned, refused.

use crate::fixture::{Folder, HF_LLAMA, Raw, plan, read_json, repository, says, tensors};
use refrain_kernels::Dtype;
use refrain_planner::ModelSource;
use refrain_planner::hfq::{HfqHeader, TYPES};
use refrain_planner::source::OpenOptions;
use serde_json::{Value as Json, json};

/// Name, type, dimensions, group, bytes.
type Tensor = (String, u8, Vec<u32>, u32, Vec<u8>);

/// What a file holds; tests change it before it is written.
struct Hfq {
    version: u32,
    architecture: u32,
    metadata: Vec<u8>,
    tensors: Vec<Tensor>,
    index_count: Option<u32>,
    size: Option<u64>,
}

impl Hfq {
    /// The nano llama weights as a qwen2 or qwen3 file would hold them.
    fn new(model_type: &str, architecture: u32) -> Self {
        let mut config = read_json(&repository(HF_LLAMA).join("config.json"));
        config["model_type"] = json!(model_type);
        let mut raw = tensors(&repository(HF_LLAMA).join("model.safetensors"));
        if model_type == "qwen3" {
            let norm =
                |name: String| -> Raw { (name, "BF16".into(), vec![32], [0x80, 0x3f].repeat(32)) };
            for layer in 0..4 {
                for name in ["q_norm", "k_norm"] {
                    raw.push(norm(format!(
                        "model.layers.{layer}.self_attn.{name}.weight"
                    )));
                }
            }
        }
        let tensors = raw.into_iter().map(|(name, _, shape, bytes)| {
            (
                name,
                16,
                shape.iter().map(|dim| *dim as u32).collect(),
                0,
                bytes,
            )
        });
        Self {
            version: 1,
            architecture,
            metadata: json!({"config": config, "note": "}{"})
                .to_string()
                .into_bytes(),
            tensors: tensors.collect(),
            index_count: None,
            size: None,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"HFQM".to_vec();
        let count = self.tensors.len() as u32;
        for word in [self.version, self.architecture, count] {
            out.extend(word.to_le_bytes());
        }
        out.extend(32u64.to_le_bytes());
        out.extend([0; 8]);
        out.extend(&self.metadata);
        out.extend(self.index_count.unwrap_or(count).to_le_bytes());
        for (name, ty, dims, group, bytes) in &self.tensors {
            out.extend((name.len() as u16).to_le_bytes());
            out.extend(name.as_bytes());
            out.extend([*ty, dims.len() as u8]);
            dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(group.to_le_bytes());
            out.extend(self.size.unwrap_or(bytes.len() as u64).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(4096), 0);
        let data = out.len() as u64;
        out[24..32].copy_from_slice(&data.to_le_bytes());
        self.tensors.iter().for_each(|tensor| out.extend(&tensor.4));
        out
    }

    fn open(&self) -> Result<ModelSource, String> {
        open(&self.bytes(), OpenOptions::default())
    }
}

fn open(bytes: &[u8], options: OpenOptions) -> Result<ModelSource, String> {
    let folder = Folder::empty();
    folder.write("model.hfq", bytes);
    ModelSource::open_with(folder.at("model.hfq"), options).map_err(|error| error.to_string())
}

#[test]
fn a_file_has_the_plan_of_the_same_folder() {
    let file = Hfq::new("qwen3", 1);
    let from_file = plan(&file.open().unwrap()).unwrap();
    let folder = Folder::of(HF_LLAMA);
    folder.config(|config| config["model_type"] = json!("qwen3"));
    let raw: Vec<Raw> = file
        .tensors
        .iter()
        .map(|(name, _, dims, _, bytes)| {
            let shape = dims.iter().map(|dim| u64::from(*dim)).collect();
            (name.clone(), "BF16".to_owned(), shape, bytes.clone())
        })
        .collect();
    folder.write("model.safetensors", &crate::fixture::safetensors(&raw));
    let from_folder = folder.plan().unwrap();
    assert_eq!(from_file.identity(), from_folder.identity());
    assert_eq!(from_file.model.files.len(), 1);

    let bytes = file.bytes();
    let head = from_file.model.files[0].header_bytes as usize;
    let options = OpenOptions {
        header_only: true,
        recipe: None,
    };
    let cut = plan(&open(&bytes[..head], options).unwrap()).unwrap();
    assert_eq!(cut.identity().sequence, from_file.identity().sequence);
    assert!(!cut.model.has_weights());
}

#[test]
fn types_without_a_kernel_are_refused_by_name_tensor_and_layer() {
    for (number, ty) in TYPES.iter().filter(|(_, ty)| ty.block_elements() == 256) {
        let mut file = Hfq::new("qwen3", 1);
        let down = file
            .tensors
            .iter_mut()
            .find(|t| t.0 == "model.layers.2.mlp.down_proj.weight");
        let down = down.unwrap();
        (down.1, down.3) = (*number, 256);
        down.4 = vec![0; (128 * ty.block_bytes()) as usize];
        let source = file.open().unwrap();
        let Err(error) = plan(&source) else { continue };
        let error = error.to_string();
        let lower = ty.name().to_lowercase();
        if Dtype::parse(&lower).is_some() {
            says(&error, &["blk.2", "no kernel for", &lower]);
        } else {
            let tensor = "blk.2.ffn_down.weight";
            says(&error, &[tensor, "layer 2", ty.name(), "supported types"]);
        }
    }
}

#[test]
fn malformed_files_are_refused() {
    type Edit = fn(&mut Hfq);
    let cases: &[(Edit, &[&str])] = &[
        (|f| f.version = 2, &["byte 4", "version 2", "knows 1"]),
        (
            |f| f.architecture = 8,
            &["byte 8", "architecture 8", "1, 5, 7, 11"],
        ),
        (|f| f.architecture = 5, &["architecture 5", "\"qwen3\""]),
        (
            |f| f.metadata = b"{\"config\": 3".to_vec(),
            &["byte 32", "JSON"],
        ),
        (
            |f| f.metadata = b"[1]".to_vec(),
            &["byte 32", "a list of 1"],
        ),
        (|f| f.metadata = b"{}".to_vec(), &["\"config\""]),
        (
            |f| f.metadata = b"{\"a\":1,\"a\":2}".to_vec(),
            &["byte 32", "twice"],
        ),
        (
            |f| f.index_count = Some(9),
            &["index has 9", "header says 47"],
        ),
        (
            |f| f.tensors[0].1 = 99,
            &["lm_head.weight", "99", "13 MQ4_G256"],
        ),
        (|f| f.tensors[0].1 = 21, &["lm_head.weight", "HFP4"]),
        (
            |f| f.size = Some(7),
            &["lm_head.weight", "the index says 7"],
        ),
        (|f| f.tensors[0].2[0] = 0, &["lm_head.weight", "[0, 128]"]),
        (|f| f.tensors[0].0.clear(), &["name", "empty"]),
        (
            |f| {
                f.tensors[0].1 = 6;
                f.tensors[0].2 = vec![1, 256];
                f.tensors[0].4 = vec![0; 136];
                f.tensors[0].3 = 128;
            },
            &["lm_head.weight", "group size 128", "256"],
        ),
        (
            |f| f.tensors[1].0 = "lm_head.weight".into(),
            &["output.weight", "twice"],
        ),
        (
            |f| {
                f.tensors.remove(0);
            },
            &["tie_word_embeddings is false", "lm_head.weight"],
        ),
    ];
    for (edit, words) in cases {
        let mut file = Hfq::new("qwen3", 1);
        edit(&mut file);
        says(&file.open().unwrap_err(), words);
    }
}

#[test]
fn offsets_and_lengths_are_checked() {
    let good = Hfq::new("qwen3", 1).bytes();
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        open(&bytes, OpenOptions::default()).unwrap_err()
    };
    says(&with(16, 31), &["metadata offset is 31", "byte 16"]);
    says(&with(16, 1 << 40), &["metadata offset is 1099511627776"]);
    says(&with(24, 4097), &["data offset is 4097", "4096"]);
    says(&with(24, 1 << 40), &["data offset", "multiple of 4096"]);
    let mut long = Hfq::new("qwen3", 1);
    let note = " ".repeat(5000);
    long.metadata.splice(1..1, note.bytes());
    let mut long = long.bytes();
    assert!(long[24..32] > 4096u64.to_le_bytes()[..]);
    long[24..32].copy_from_slice(&4096u64.to_le_bytes());
    says(
        &open(&long, OpenOptions::default()).unwrap_err(),
        &["byte 32", "JSON"],
    );
    let cut = open(&good[..good.len() - 1], OpenOptions::default()).unwrap_err();
    says(&cut, &["ends at byte", "cut off"]);
    let long = [&good[..], &[0]].concat();
    says(
        &open(&long, OpenOptions::default()).unwrap_err(),
        &["the tensors end at byte"],
    );
    let head = HfqHeader::parse(b"GGUF", 4, false).unwrap_err().to_string();
    says(&head, &["GGUF", "HFQM"]);
    for length in 0..40 {
        assert!(HfqHeader::parse(&good[..length], length as u64, true).is_err());
    }
}

/// The metadata's end is where its object closes, whatever stands in its texts.
#[test]
fn metadata_ends_where_its_object_closes() {
    let mut file = Hfq::new("qwen2", 7);
    let mut json: Json = serde_json::from_slice(&file.metadata).unwrap();
    json["tricky"] = json!({"a": ["}}}", "\"}", {"b": "{"}]});
    file.metadata = json.to_string().into_bytes();
    let source = file.open().unwrap();
    assert_eq!(source.table().architecture().unwrap(), "qwen2");
    assert_eq!(source.table().tensors.len(), 39);
}

/// Value heads of gated DeltaNet move by whole heads, which a group of 256 columns spans.
#[test]
fn a_type_is_refused_before_the_order_that_it_could_not_take() {
    let mut config = read_json(&repository(crate::fixture::HF_QWEN35).join("config.json"));
    config["model_type"] = json!("qwen3_5");
    let path = repository(crate::fixture::HF_QWEN35).join("model.safetensors");
    let mut file = Hfq::new("qwen3", 5);
    file.metadata = json!({"config": config}).to_string().into_bytes();
    let tensor = |(name, _, shape, bytes): Raw| {
        let dims = shape.iter().map(|dim| *dim as u32).collect();
        (name, 16, dims, 0, bytes)
    };
    file.tensors = tensors(&path).into_iter().map(tensor).collect();
    assert!(file.open().is_ok());
    let out = "model.layers.0.linear_attn.out_proj.weight";
    let out = file
        .tensors
        .iter_mut()
        .find(|tensor| tensor.0 == out)
        .unwrap();
    // 128 columns in groups of 128, heads of 32.
    (out.1, out.3, out.4) = (40, 128, vec![0; 128 * 34]);
    let source = file.open().unwrap();
    let entry = source.table().find_tensor("blk.0.ssm_out.weight").unwrap();
    says(
        &entry.check_loading().unwrap_err().to_string(),
        &["blk.0.ssm_out.weight", "TQ2_G128"],
    );
    if let Err(error) = plan(&source) {
        assert!(!error.to_string().contains("TileColumns"), "{error}");
    }
}
