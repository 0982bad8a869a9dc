//! Damaged files of every format: refused or read, never a panic, never more memory than the file
//! can justify. `REFRAIN_LONG=1` tries ten times as many.

use crate::fixture::{HF_LLAMA, repository, safetensors};
use proptest::prelude::{ProptestConfig, any, prop, proptest};
use refrain_planner::ModelSource;
use refrain_planner::hfq::HfqHeader;
use refrain_planner::safetensors::SafetensorsHeader;
use refrain_planner::source::OpenOptions;
use std::path::Path;

fn cases() -> u32 {
    match std::env::var_os("REFRAIN_LONG") {
        Some(_) => 2560,
        None => 256,
    }
}

/// A position from the start of the file, more often near its head.
fn at(place: f64, length: usize) -> usize {
    ((place * place) * length as f64) as usize % length.max(1)
}

fn small() -> Vec<u8> {
    let tensor = |name: &str, shape: &[u64]| {
        let bytes = vec![1; shape.iter().product::<u64>() as usize * 2];
        (name.to_owned(), "BF16".to_owned(), shape.to_vec(), bytes)
    };
    safetensors(&[
        tensor("a", &[2, 3]),
        tensor("b.weight", &[4]),
        tensor("c", &[]),
    ])
}

/// Whatever is accepted lies inside the file, each tensor apart from the others.
fn accepted(header: &SafetensorsHeader, length: u64) {
    let mut placed: Vec<(u64, u64)> = header.tensors.iter().map(|t| (t.offset, t.bytes)).collect();
    placed.sort_unstable();
    for pair in placed.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0);
    }
    assert!(
        placed
            .iter()
            .all(|(offset, bytes)| offset + bytes <= length)
    );
}

#[test]
fn every_byte_of_a_safetensors_header_flipped() {
    let good = small();
    let head = 8 + u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    for at in 8..head {
        for flip in [1u8, 2, 0x10, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            if let Ok(header) = SafetensorsHeader::parse(&bytes[8..head], good.len() as u64, false)
            {
                accepted(&header, good.len() as u64);
            }
        }
    }
    for length in 8..head {
        assert!(SafetensorsHeader::parse(&good[8..length], good.len() as u64, false).is_err());
    }
}

fn damaged(good: &Path, name: &str, edits: &[(f64, u8)], length: f64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(good).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let mut bytes = std::fs::read(folder.path().join(name)).unwrap();
    for (place, value) in edits {
        let at = at(*place, bytes.len());
        bytes[at] = *value;
    }
    bytes.truncate((length * bytes.len() as f64) as usize);
    std::fs::write(folder.path().join(name), bytes).unwrap();
    folder
}

fn edits() -> impl proptest::strategy::Strategy<Value = Vec<(f64, u8)>> {
    prop::collection::vec((0.0..1.0, any::<u8>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damaged_configurations_never_panic(edits in edits(), cut in 0.5f64..1.0) {
        let folder = damaged(&repository(HF_LLAMA), "config.json", &edits, cut);
        if let Ok(source) = ModelSource::open(folder.path()) {
            let _either = crate::fixture::plan(&source);
        }
    }

    #[test]
    fn edited_words_of_configurations_never_panic(field in 0usize..40, value in any::<i64>(), list in any::<bool>()) {
        let folder = damaged(&repository(HF_LLAMA), "config.json", &[], 1.0);
        let path = folder.path().join("config.json");
        let mut config = crate::fixture::read_json(&path);
        let object = config.as_object_mut().unwrap();
        let key = object.keys().nth(field % object.len()).unwrap().clone();
        object[&key] = match list {
            true => serde_json::json!([value, "x"]),
            false => serde_json::json!(value),
        };
        std::fs::write(&path, config.to_string()).unwrap();
        for recipe in [None, refrain_planner::source::Recipe::find("q8_0")] {
            let options = OpenOptions { recipe, header_only: false };
            if let Ok(source) = ModelSource::open_with(folder.path(), options) {
                let _either = crate::fixture::plan(&source);
            }
        }
    }

    #[test]
    fn damaged_safetensors_never_panic(edits in edits(), length in any::<u16>(), only in any::<bool>()) {
        let mut bytes = small();
        for (place, value) in edits {
            let at = at(place, bytes.len() - 8) + 8;
            bytes[at] = value;
        }
        let length = usize::from(length) % (bytes.len() - 7) + 8;
        let head = (8 + u64::from_le_bytes(bytes[..8].try_into().unwrap())) as usize;
        let header = &bytes[8..head.min(length)];
        if let Ok(header) = SafetensorsHeader::parse(header, length as u64, only) {
            accepted(&header, header.file_bytes);
        }
    }

    #[test]
    fn damaged_hfq_never_panics(edits in edits(), only in any::<bool>()) {
        let mut bytes = hfq();
        for (place, value) in edits {
            let at = at(place, bytes.len());
            bytes[at] = value;
        }
        let _either = HfqHeader::parse(&bytes, bytes.len() as u64, only);
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _either = SafetensorsHeader::parse(&bytes, 200, true);
        let _either = HfqHeader::parse(&bytes, 200, true);
        let with_magic = [b"HFQM", &bytes[..]].concat();
        let _either = HfqHeader::parse(&with_magic, 204, true);
    }
}

/// A small HFQ head: two tensors.
fn hfq() -> Vec<u8> {
    let mut out = b"HFQM".to_vec();
    for word in [1u32, 1, 2] {
        out.extend(word.to_le_bytes());
    }
    out.extend(32u64.to_le_bytes());
    out.extend(4096u64.to_le_bytes());
    out.extend(b"{\"config\":{\"a\":[1,2]}}");
    out.extend(2u32.to_le_bytes());
    for name in ["a", "b"] {
        out.extend(1u16.to_le_bytes());
        out.extend(name.as_bytes());
        out.extend([13, 2]);
        for word in [2u32, 256, 256] {
            out.extend(word.to_le_bytes());
        }
        out.extend(272u64.to_le_bytes());
    }
    out.resize(4096 + 544, 0);
    out
}
