//! The GGUF reader: the model of this repository, files of every value type and tensor type, and malformed ones.

#![expect(clippy::expect_used, reason = "a fixture that fails, fails its test")]

mod builder;
mod malformed;

use builder::{Builder, array, string};
use proptest::prelude::*;
use refrain_planner::gguf::{Array, GgmlType, GgufError, GgufFile, GgufHeader, StringList, Value};

fn model_path() -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("../golden/models/austen-qwen3-4m.q8_0.gguf")
}

#[test]
fn the_repository_model_reads_as_it_was_written() {
    let file = GgufFile::open(model_path()).expect("the model");
    let header = file.header();
    // Numbers as gguf-py reads them from the same file.
    assert_eq!(
        (header.version, header.alignment, header.data_offset),
        (3, 32, 31_552)
    );
    assert_eq!((header.metadata.len(), header.tensors.len()), (25, 68));
    assert_eq!(
        header
            .tensors
            .iter()
            .map(|tensor| tensor.bytes)
            .sum::<u64>(),
        4_055_040
    );
    assert_eq!(header.file_bytes, 4_086_592);
    assert_eq!(header.architecture().expect("architecture"), "qwen3");
    assert_eq!(
        header
            .metadata
            .get::<u32>("qwen3.block_count")
            .expect("layers"),
        6
    );
    assert_eq!(
        header
            .metadata
            .get::<f32>("qwen3.rope.freq_base")
            .expect("theta"),
        10_000.0
    );
    assert!(
        !header
            .metadata
            .get::<bool>("tokenizer.ggml.add_bos_token")
            .expect("bos")
    );
    let tokens: &StringList = header
        .metadata
        .get("tokenizer.ggml.tokens")
        .expect("tokens");
    assert_eq!(
        (tokens.len(), tokens.get(0), tokens.get(1024)),
        (1024, Some("<|endoftext|>"), None)
    );
    malformed::check_invariants(header);
}

#[test]
fn the_repository_model_has_its_tensors_where_they_were_written() {
    let file = GgufFile::open(model_path()).expect("the model");
    let header = file.header();
    let rows: [(&str, &[u64], GgmlType, u64, u64); 4] = [
        (
            "token_embd.weight",
            &[256, 1024],
            GgmlType::Q8_0,
            31_552,
            278_528,
        ),
        (
            "blk.0.attn_norm.weight",
            &[256],
            GgmlType::F32,
            310_080,
            1_024,
        ),
        (
            "blk.0.ffn_down.weight",
            &[512, 256],
            GgmlType::Q8_0,
            311_104,
            139_264,
        ),
        (
            "blk.0.attn_k_norm.weight",
            &[64],
            GgmlType::F32,
            729_920,
            256,
        ),
    ];
    for (name, dims, ty, offset, bytes) in rows {
        let tensor = header.tensor(name).expect(name);
        assert_eq!(
            (&tensor.dims[..], tensor.ty, tensor.offset, tensor.bytes),
            (dims, ty, offset, bytes)
        );
        assert_eq!(tensor.elements(), dims.iter().product::<u64>());
    }
}

#[test]
fn tensor_bytes_are_those_of_the_file() {
    let whole = std::fs::read(model_path()).expect("the model");
    let file = GgufFile::open(model_path()).expect("the model");
    for tensor in &file.header().tensors {
        let (start, end) = (
            tensor.offset as usize,
            (tensor.offset + tensor.bytes) as usize,
        );
        assert_eq!(
            file.tensor_bytes(tensor).expect("bytes"),
            whole[start..end],
            "{}",
            tensor.name
        );
    }
    // The header alone, without the weights, gives the same.
    let head = file.header().data_offset as usize;
    let header = GgufHeader::parse(&whole[..head], whole.len() as u64).expect("head");
    assert_eq!(&header, file.header());
}

#[test]
fn what_the_system_refuses_is_said_with_its_remedy() {
    use std::io::{Error, ErrorKind};
    for (kind, expected) in [
        (
            ErrorKind::PermissionDenied,
            "permission denied; get the right to read the file (chmod or its owner)",
        ),
        (ErrorKind::NotFound, "entity not found; check the path"),
        (
            ErrorKind::UnexpectedEof,
            "byte 7: the file became shorter while it was read; copy or download it again",
        ),
        (
            ErrorKind::TimedOut,
            "byte 7: timed out; check the disk or share that holds the file",
        ),
    ] {
        let (path, source) = ("model.gguf".into(), Error::from(kind));
        let error = GgufError::Io {
            path,
            offset: 7,
            source,
        };
        assert_eq!(error.to_string(), expected);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let error = GgufFile::open(folder.path().join("absent")).expect_err("no file");
    assert!(error.to_string().ends_with("; check the path"), "{error}");
}

#[test]
fn a_file_that_shrinks_after_opening_is_an_error() {
    let built = Builder::small().build();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, &built.bytes).expect("written");
    let file = GgufFile::open(&path).expect("opened");
    let last = file.header().tensor("b").expect("b").clone();
    std::fs::write(&path, &built.bytes[..built.bytes.len() - 1]).expect("shrunk");
    assert!(
        matches!(file.tensor_bytes(&last), Err(GgufError::Io { offset, .. }) if offset == last.offset)
    );
    let mut other = last;
    other.bytes = u64::MAX;
    assert!(matches!(
        file.tensor_bytes(&other),
        Err(GgufError::PastEnd { end: u64::MAX, .. })
    ));
}

#[test]
fn a_header_longer_than_a_window_reads_the_same_from_disk() {
    let mut builder = Builder::small();
    let strings: Vec<u8> = (0..300_000u32)
        .flat_map(|n| string(n.to_string().as_bytes()))
        .collect();
    builder.entry("strings", 9, &array(8, 300_000, &strings));
    builder.entry("numbers", 9, &array(6, 1_000_000, &vec![0x3f; 4_000_000]));
    let built = builder.build();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, &built.bytes).expect("written");
    let file = GgufFile::open(&path).expect("opened");
    let parsed = GgufHeader::parse(&built.bytes, built.bytes.len() as u64).expect("parsed");
    assert_eq!(file.header(), &parsed);
    let strings: &StringList = parsed.metadata.get("strings").expect("strings");
    assert!(strings.iter().eq((0..300_000u32).map(|n| n.to_string())));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn getters_name_key_and_both_types() {
    let mut builder = Builder::small();
    builder.entry("minus", 5, &(-7i32).to_le_bytes());
    builder.entry("wide", 10, &(1u64 << 40).to_le_bytes());
    builder.entry(
        "heads",
        9,
        &array(5, 3, &[4, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]),
    );
    let built = builder.build();
    let header = GgufHeader::parse(&built.bytes, built.bytes.len() as u64).expect("parsed");
    let metadata = &header.metadata;
    let cases = [
        (
            metadata.get::<u32>("flag").map(|_| ()),
            "byte",
            "key flag is bool, expected u32",
        ),
        (
            metadata.get::<f32>("list").map(|_| ()),
            "byte",
            "key list is array of u32, expected f32",
        ),
        (
            metadata.get::<u32>("minus").map(|_| ()),
            "byte",
            "key minus is -7, which does not fit u32",
        ),
        (
            metadata.get::<u32>("wide").map(|_| ()),
            "byte",
            "key wide is 1099511627776",
        ),
        (
            metadata.get::<&str>("none").map(|_| ()),
            "key",
            "key none (string) is missing",
        ),
        (
            metadata.per_layer("heads", 2).map(|_| ()),
            "byte",
            "key heads has 3 elements for 2 layers",
        ),
        (
            metadata.per_layer("heads", 4).map(|_| ()),
            "byte",
            "key heads has 3 elements for 4 layers",
        ),
        (
            metadata.per_layer("none", 4).map(|_| ()),
            "key",
            "key none (u32 or array of u32) is missing",
        ),
        (
            header.tensor("c").map(|_| ()),
            "tensor",
            "tensor c is missing",
        ),
    ];
    for (result, start, part) in cases {
        let message = result.expect_err(part).to_string();
        assert!(
            message.starts_with(start) && message.contains(part),
            "{message}"
        );
    }
    assert_eq!(metadata.per_layer("heads", 3).expect("heads"), [4, 0, 2]);
    assert_eq!(
        metadata.per_layer("wide", 2).err().and_then(|e| e.offset()),
        metadata.entry("wide").map(|e| e.offset)
    );
    assert_eq!(metadata.get::<u64>("wide").expect("wide"), 1 << 40);
    assert_eq!(metadata.get::<i32>("minus").expect("minus"), -7);
    assert_eq!(metadata.opt::<u32>("none").expect("none"), None);
}

/// A metadata value as the reader should give it, with the bytes that a writer makes of it.
fn value() -> impl Strategy<Value = (u32, Vec<u8>, Value)> {
    macro_rules! scalar {
        ($id:literal, $variant:ident, $rust:ty) => {
            any::<$rust>()
                .prop_map(|v| ($id, v.to_le_bytes().to_vec(), Value::$variant(v)))
                .boxed()
        };
    }
    macro_rules! list {
        ($id:literal, $variant:ident, $rust:ty) => {
            proptest::collection::vec(any::<$rust>(), 0..6)
                .prop_map(|v| {
                    let bytes: Vec<u8> = v.iter().flat_map(|n| n.to_le_bytes()).collect();
                    (
                        9,
                        array($id, v.len() as u64, &bytes),
                        Value::Array(Array::$variant(v)),
                    )
                })
                .boxed()
        };
    }
    let text = any::<String>()
        .prop_map(|v| (8, string(v.as_bytes()), Value::String(v)))
        .boxed();
    let texts = proptest::collection::vec(any::<String>(), 0..6).prop_map(|v| {
        let bytes: Vec<u8> = v.iter().flat_map(|text| string(text.as_bytes())).collect();
        let list = v.iter().map(String::as_str).collect::<StringList>();
        (
            9,
            array(8, v.len() as u64, &bytes),
            Value::Array(Array::String(list)),
        )
    });
    let flag = any::<bool>()
        .prop_map(|v| (7, vec![u8::from(v)], Value::Bool(v)))
        .boxed();
    let flags = proptest::collection::vec(any::<bool>(), 0..6).prop_map(|v| {
        let bytes: Vec<u8> = v.iter().map(|flag| u8::from(*flag)).collect();
        (
            9,
            array(7, v.len() as u64, &bytes),
            Value::Array(Array::Bool(v)),
        )
    });
    proptest::strategy::Union::new([
        scalar!(0, U8, u8),
        scalar!(1, I8, i8),
        scalar!(2, U16, u16),
        scalar!(3, I16, i16),
        scalar!(4, U32, u32),
        scalar!(5, I32, i32),
        scalar!(6, F32, f32),
        scalar!(10, U64, u64),
        scalar!(11, I64, i64),
        scalar!(12, F64, f64),
        list!(0, U8, u8),
        list!(1, I8, i8),
        list!(2, U16, u16),
        list!(3, I16, i16),
        list!(4, U32, u32),
        list!(5, I32, i32),
        list!(6, F32, f32),
        list!(10, U64, u64),
        list!(11, I64, i64),
        list!(12, F64, f64),
        text,
        texts.boxed(),
        flag,
        flags.boxed(),
    ])
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        version in 2u32..4,
        values in proptest::collection::vec(value(), 0..8),
        shapes in proptest::collection::vec((0usize..100, 1u64..4, proptest::collection::vec(1u64..5, 0..4)), 0..8),
        align_log2 in 3u32..8,
    ) {
        let alignment = 1u64 << align_log2;
        let mut builder = Builder { version, alignment, ..Builder::default() };
        builder.entry("general.alignment", 4, &(alignment as u32).to_le_bytes());
        for (index, (ty, payload, _)) in values.iter().enumerate() {
            builder.entry(&format!("key.{index}"), *ty, payload);
        }
        let (mut at, mut expected) = (0u64, Vec::new());
        for (index, (ty, blocks, rest)) in shapes.iter().enumerate() {
            let ty = GgmlType::ALL[ty % GgmlType::ALL.len()];
            let mut dims = vec![blocks * ty.block_elements()];
            dims.extend(rest);
            let bytes = blocks * rest.iter().product::<u64>() * ty.block_bytes();
            builder.tensor(&format!("t{index}"), &dims, ty.id(), at);
            expected.push((dims, ty, at, bytes));
            at = (at + bytes).next_multiple_of(alignment);
        }
        builder.data = vec![0; at as usize];
        let built = builder.build();
        let header = GgufHeader::parse(&built.bytes, built.bytes.len() as u64).expect("valid");
        prop_assert_eq!((header.version, header.alignment, header.data_offset), (version, alignment, built.marks["data"]));
        for (index, (_, _, value)) in values.iter().enumerate() {
            let entry = header.metadata.entry(&format!("key.{index}")).expect("entry");
            // By text, so that NaN equals NaN.
            prop_assert_eq!(format!("{:?}", &entry.value), format!("{value:?}"));
            prop_assert_eq!(entry.offset, built.marks[&format!("entry {} key", index + 1)]);
        }
        for (tensor, (dims, ty, offset, bytes)) in header.tensors.iter().zip(&expected) {
            prop_assert_eq!((&tensor.dims, tensor.ty, tensor.bytes), (dims, *ty, *bytes));
            prop_assert_eq!(tensor.offset, header.data_offset + offset);
        }
        malformed::check_invariants(&header);
    }

    #[test]
    fn random_bytes_after_the_magic_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 2u8..4) {
        let head = [b'G', b'G', b'U', b'F', version, 0, 0, 0];
        bytes.splice(0..0, head);
        let _ = GgufHeader::parse(&bytes, bytes.len() as u64);
    }
}
