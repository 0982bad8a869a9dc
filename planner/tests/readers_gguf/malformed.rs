//! Every way in which a GGUF file can be malformed: the variant, the offset, and a message with a remedy.

use super::builder::{Builder, Built, array, string};
use refrain_planner::gguf::{GgufError, GgufFile, GgufHeader, REMOVED_TYPES, limits};

fn parse(built: &Built) -> Result<GgufHeader, GgufError> {
    GgufHeader::parse(&built.bytes, built.bytes.len() as u64)
}

/// Name of the variant.
fn variant(error: &GgufError) -> String {
    let debug = format!("{error:?}");
    debug
        .split([' ', '{', '('])
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// What to break, the variant expected, and the field (plus bytes) at whose offset.
type Case = (
    &'static str,
    fn(&mut Builder),
    &'static str,
    &'static str,
    u64,
);

const CASES: &[Case] = &[
    ("wrong magic", |b| b.magic = *b"GGML", "Magic", "", 0),
    ("zip", |b| b.magic = *b"PK\x03\x04", "Magic", "", 0),
    ("version 0", |b| b.version = 0, "Version", "", 4),
    ("version 1", |b| b.version = 1, "VersionOne", "", 4),
    ("version 4", |b| b.version = 4, "Version", "", 4),
    (
        "big-endian",
        |b| b.version = 3u32.swap_bytes(),
        "BigEndian",
        "",
        4,
    ),
    (
        "big-endian v2",
        |b| b.version = 2u32.swap_bytes(),
        "BigEndian",
        "",
        4,
    ),
    (
        "tensors 2^60",
        |b| b.tensor_count = Some(1 << 60),
        "Limit",
        "tensor count",
        0,
    ),
    (
        "entries 2^60",
        |b| b.entry_count = Some(1 << 60),
        "Limit",
        "entry count",
        0,
    ),
    (
        "more tensors",
        |b| b.tensor_count = Some(limits::MAX_TENSORS),
        "Truncated",
        "entries",
        0,
    ),
    (
        "more entries",
        |b| b.entry_count = Some(limits::MAX_KEY_VALUES),
        "Truncated",
        "entries",
        0,
    ),
    (
        "empty key",
        |b| b.entries[1].key.clear(),
        "EmptyName",
        "entry 1 key",
        0,
    ),
    (
        "long key",
        |b| b.entries[1].key = vec![b'k'; 65_536],
        "Limit",
        "entry 1 key",
        0,
    ),
    (
        "key not UTF-8",
        |b| b.entries[1].key[2] = 0xff,
        "Utf8",
        "entry 1 key",
        8,
    ),
    (
        "key twice",
        |b| b.entries[2].key = b"flag".to_vec(),
        "DuplicateKey",
        "entry 2 key",
        0,
    ),
    (
        "value type 13",
        |b| b.entries[1].ty = 13,
        "ValueType",
        "entry 1 type",
        0,
    ),
    (
        "boolean 2",
        |b| b.entries[1].payload = vec![2],
        "Bool",
        "entry 1 value",
        0,
    ),
    (
        "boolean in array",
        |b| list(b, 7, 3, &[0, 1, 7]),
        "Bool",
        "entry 2 value",
        14,
    ),
    (
        "array of type 99",
        |b| list(b, 99, 1, &[0; 4]),
        "ValueType",
        "entry 2 value",
        0,
    ),
    (
        "array of arrays",
        |b| list(b, 9, 1, &array(0, 1, &[0])),
        "NestedArray",
        "entry 2 value",
        0,
    ),
    (
        "array of 2^60",
        |b| list(b, 4, 1 << 60, &[]),
        "Limit",
        "entry 2 value",
        4,
    ),
    (
        "array too long",
        |b| list(b, 12, 1 << 20, &[0; 8]),
        "Truncated",
        "entry 2 value",
        12,
    ),
    (
        "strings too long",
        |b| list(b, 8, 1 << 20, &[0; 8]),
        "Truncated",
        "entry 2 value",
        12,
    ),
    (
        "string of 2^63",
        |b| text(b, &(1u64 << 63).to_le_bytes()),
        "Limit",
        "entry 0 value",
        0,
    ),
    (
        "string too long",
        |b| text(b, &(1u64 << 20).to_le_bytes()),
        "Truncated",
        "entry 0 value",
        8,
    ),
    (
        "string not UTF-8",
        |b| text(b, &string(b"\xc3\x28")),
        "Utf8",
        "entry 0 value",
        8,
    ),
    (
        "alignment 0",
        |b| alignment(b, 0),
        "Alignment",
        "entry 3 key",
        0,
    ),
    (
        "alignment 24",
        |b| alignment(b, 24),
        "Alignment",
        "entry 3 key",
        0,
    ),
    (
        "alignment 2^31",
        |b| alignment(b, 1 << 31),
        "Alignment",
        "entry 3 key",
        0,
    ),
    (
        "alignment text",
        |b| _ = b.entry("general.alignment", 8, &string(b"32")),
        "KeyType",
        "entry 3 key",
        0,
    ),
    (
        "empty name",
        |b| b.tensors[1].name.clear(),
        "EmptyName",
        "tensor 1 record",
        0,
    ),
    (
        "long name",
        |b| b.tensors[1].name = vec![b'n'; 257],
        "Limit",
        "tensor 1 record",
        0,
    ),
    (
        "name not UTF-8",
        |b| b.tensors[1].name = vec![0x80],
        "Utf8",
        "tensor 1 record",
        8,
    ),
    (
        "name twice",
        |b| b.tensors[1].name = b"a".to_vec(),
        "DuplicateTensor",
        "tensor 1 record",
        0,
    ),
    (
        "no dimension",
        |b| b.tensors[1].dims.clear(),
        "DimensionCount",
        "tensor 1 dimension count",
        0,
    ),
    (
        "5 dimensions",
        |b| b.tensors[1].dims = vec![1; 5],
        "DimensionCount",
        "tensor 1 dimension count",
        0,
    ),
    (
        "dimension 0",
        |b| b.tensors[0].dims = vec![64, 0],
        "ZeroDimension",
        "tensor 0 dims",
        8,
    ),
    (
        "dims 2^60",
        |b| b.tensors[0].dims = vec![1 << 60],
        "ElementCount",
        "tensor 0 dims",
        0,
    ),
    (
        "dims overflow",
        |b| b.tensors[0].dims = vec![1 << 40, 1 << 40],
        "ElementCount",
        "tensor 0 dims",
        0,
    ),
    (
        "type 200",
        |b| b.tensors[0].ty = 200,
        "UnknownType",
        "tensor 0 type",
        0,
    ),
    (
        "type 43",
        |b| b.tensors[0].ty = 43,
        "UnknownType",
        "tensor 0 type",
        0,
    ),
    (
        "type Q4_2",
        |b| b.tensors[0].ty = 4,
        "RemovedType",
        "tensor 0 type",
        0,
    ),
    (
        "part of a block",
        |b| b.tensors[0].dims = vec![63, 2],
        "RowBlocks",
        "tensor 0 dims",
        0,
    ),
    (
        "K-quant row of 64",
        |b| b.tensors[0].ty = 12,
        "RowBlocks",
        "tensor 0 dims",
        0,
    ),
    (
        "misaligned",
        |b| b.tensors[1].offset = 161,
        "Misaligned",
        "tensor 1 offset",
        0,
    ),
    (
        "past the end",
        |b| b.tensors[1].offset = 1 << 20,
        "PastEnd",
        "tensor 1 offset",
        0,
    ),
    (
        "offset 2^64-32",
        |b| b.tensors[1].offset = u64::MAX - 31,
        "PastEnd",
        "tensor 1 offset",
        0,
    ),
    (
        "last byte missing",
        |b| b.data.truncate(179),
        "PastEnd",
        "tensor 1 offset",
        0,
    ),
    (
        "overlap",
        |b| b.tensors[1].offset = 128,
        "Overlap",
        "tensor 1 offset",
        0,
    ),
    (
        "same place",
        |b| b.tensors[1].offset = 0,
        "Overlap",
        "tensor 0 offset",
        0,
    ),
];

fn list(builder: &mut Builder, ty: u32, count: u64, elements: &[u8]) {
    builder.entries[2].payload = array(ty, count, elements);
}

fn text(builder: &mut Builder, payload: &[u8]) {
    builder.entries[0].payload = payload.to_vec();
}

fn alignment(builder: &mut Builder, bytes: u32) {
    builder.entry("general.alignment", 4, &bytes.to_le_bytes());
}

#[test]
fn each_malformed_file_is_refused_by_variant_and_offset() {
    for (what, damage, expected, mark, plus) in CASES {
        let mut builder = Builder::small();
        damage(&mut builder);
        let built = builder.build();
        let error = parse(&built).expect_err(what);
        assert_eq!(variant(&error), *expected, "{what}: {error}");
        let at = built.marks.get(*mark).copied().unwrap_or(0) + plus;
        assert_eq!(error.offset(), Some(at), "{what}: {error}");
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("byte {at}")),
            "{what}: {message}"
        );
        // The remedy: the last clause tells what to do.
        assert!(message.contains(';'), "{what}: no remedy in {message}");
    }
}

#[test]
fn a_file_on_disk_is_refused_as_its_bytes_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    for (what, damage, expected, ..) in CASES {
        let mut builder = Builder::small();
        damage(&mut builder);
        let built = builder.build();
        std::fs::write(&path, &built.bytes).expect("written");
        let from_file = GgufFile::open(&path).expect_err(what);
        let from_bytes = parse(&built).expect_err(what);
        assert_eq!(variant(&from_file), *expected, "{what}");
        assert_eq!(from_file.to_string(), from_bytes.to_string(), "{what}");
    }
    let error = GgufFile::open(folder.path().join("missing.gguf")).expect_err("missing");
    let GgufError::Io { path, .. } = &error else {
        panic!("{error}")
    };
    assert!(path.ends_with("missing.gguf"));
}

#[test]
fn every_withdrawn_type_is_named() {
    for (id, name, instead) in REMOVED_TYPES {
        let mut builder = Builder::small();
        builder.tensors[0].ty = *id;
        let message = parse(&builder.build()).expect_err(name).to_string();
        assert!(
            message.contains(name) && message.contains(instead),
            "{message}"
        );
    }
}

#[test]
fn every_truncation_is_refused() {
    let built = Builder::small().build();
    let header_end = built.marks["header end"] as usize;
    for len in 0..built.bytes.len() {
        let cut = &built.bytes[..len];
        let error = GgufHeader::parse(cut, len as u64).expect_err("cut");
        let expected = if len < header_end {
            "Truncated"
        } else {
            "PastEnd"
        };
        assert_eq!(variant(&error), expected, "{len}: {error}");
        // With the true length, a cut header asks for more bytes; a whole one needs no data.
        let whole = built.bytes.len() as u64;
        match GgufHeader::parse(cut, whole) {
            Ok(header) => {
                assert!(len >= header_end);
                assert_eq!(header, parse(&built).expect("whole"));
            }
            Err(error) => {
                assert!(len < header_end, "{len}: {error}");
                assert_eq!(variant(&error), "HeaderIncomplete", "{len}: {error}");
            }
        }
    }
}

/// Peak resident memory of this process in bytes, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib << 10)
}

#[test]
fn flipped_headers_never_panic_and_take_little_memory() {
    let before = peak_memory();
    let built = Builder::small().build();
    let header_end = built.marks["header end"] as usize;
    for at in 0..header_end {
        for value in 0..=u8::MAX {
            let mut bytes = built.bytes.clone();
            bytes[at] = value;
            match GgufHeader::parse(&bytes, bytes.len() as u64) {
                Ok(header) => check_invariants(&header),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        assert!(after - before < 64 << 20, "{} bytes more", after - before);
    }
}

/// What an accepted header promises.
pub fn check_invariants(header: &GgufHeader) {
    let mut spans = Vec::new();
    for tensor in &header.tensors {
        assert!((1..=4).contains(&tensor.dims.len()));
        assert!(tensor.offset.is_multiple_of(header.alignment));
        assert!(tensor.offset >= header.data_offset);
        assert_eq!(
            tensor
                .ty
                .row_bytes(tensor.row_elements())
                .map(|row| row * tensor.rows()),
            Some(tensor.bytes)
        );
        spans.push((tensor.offset, tensor.offset + tensor.bytes));
        assert_eq!(header.tensor(&tensor.name).expect("by name"), tensor);
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    assert!(
        spans
            .last()
            .is_none_or(|(_, end)| *end <= header.file_bytes)
    );
}
