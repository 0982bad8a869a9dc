//! Malformed safetensors files: the cause, both values, the tensor's name.

use crate::fixture::{file, says};
use refrain_planner::safetensors::{MAX_HEADER_BYTES, SafetensorsHeader, TYPES};
use refrain_planner::source::SourceFile;

const A: &str = r#""a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}"#;

fn parse(header: &str, data: usize) -> Result<SafetensorsHeader, String> {
    let length = 8 + (header.len() + data) as u64;
    SafetensorsHeader::parse(header.as_bytes(), length, false).map_err(|error| error.to_string())
}

#[test]
fn a_small_file_is_read() {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},{A},"b":{{"dtype":"BF16","shape":[],"data_offsets":[16,18]}}}}"#
    );
    let found = parse(&header, 18).unwrap();
    assert_eq!(found.data_offset, 8 + header.len() as u64);
    assert_eq!(found.tensors.len(), 2);
    assert_eq!(found.tensors[1].offset, found.data_offset + 16);
    assert_eq!(
        (found.tensors[1].bytes, &found.tensors[1].shape[..]),
        (2, &[][..])
    );
    // Without its data it is a header all the same.
    let cut = SafetensorsHeader::parse(header.as_bytes(), found.data_offset, true).unwrap();
    assert_eq!(cut.tensors, found.tensors);
    assert_eq!(cut.file_bytes, found.file_bytes);
}

/// Fields of the only tensor of a file with 16 bytes of data, and words of the refusal.
const FIELDS: &[(&str, &[&str])] = &[
    (
        r#""dtype":"F32","shape":[4],"data_offsets":[0,15]"#,
        &["0 to 15", "16 bytes"],
    ),
    (
        r#""dtype":"F32","shape":[4],"data_offsets":[16,0]"#,
        &["16 to 0"],
    ),
    (
        r#""dtype":"Q4","shape":[4],"data_offsets":[0,16]"#,
        &["\"Q4\"", "BF16"],
    ),
    (
        r#""shape":[4],"data_offsets":[0,16]"#,
        &["dtype is missing"],
    ),
    (
        r#""dtype":"F32","shape":[-4],"data_offsets":[0,16]"#,
        &["shape", "list"],
    ),
    (
        r#""dtype":"F32","shape":[4.0],"data_offsets":[0,16]"#,
        &["shape", "list"],
    ),
    (
        r#""dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]"#,
        &["at most 8"],
    ),
    (
        r#""dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]"#,
        &["2^40"],
    ),
    (
        r#""dtype":"F32","shape":[4],"data_offsets":[0,8,16]"#,
        &["data_offsets", "two"],
    ),
    (
        r#""dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]"#,
        &["ends at byte"],
    ),
];

#[test]
fn malformed_tensors_are_refused() {
    for (fields, words) in FIELDS {
        let error = parse(&format!(r#"{{"a":{{{fields}}}}}"#), 16).unwrap_err();
        says(&error, words);
        says(&error, &["tensor a"]);
    }
}

/// A second tensor after `A`, bytes of data, and words of the refusal.
const SECOND: &[(&str, usize, &[&str])] = &[
    (
        r#""a":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}"#,
        20,
        &["\"a\" is given twice"],
    ),
    (
        r#""b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}"#,
        16,
        &["tensor b", "before the end of a"],
    ),
    (
        r#""b":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}"#,
        24,
        &["belong to no tensor"],
    ),
    (
        r#""b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}"#,
        16,
        &["tensor b ends at byte", "cut off"],
    ),
    (r#""b":3"#, 16, &["tensor b", "dtype is missing"]),
];

#[test]
fn malformed_headers_are_refused() {
    for (second, data, words) in SECOND {
        says(
            &parse(&format!("{{{A},{second}}}"), *data).unwrap_err(),
            words,
        );
    }
    let nested = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
    let cases: [(&str, usize, &[&str]); 5] = [
        (&format!("{{{A}}}"), 17, &["belong to no tensor"]),
        ("[1,2]", 0, &["a list of 2", "object"]),
        ("{", 0, &["JSON"]),
        ("", 0, &["JSON"]),
        (&nested, 0, &["recursion"]),
    ];
    for (header, data, words) in cases {
        says(&parse(header, data).unwrap_err(), words);
    }
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let read = |bytes: &[u8]| {
        let path = folder.path().join("x");
        std::fs::write(&path, bytes).unwrap();
        let file = SourceFile::open(&path).unwrap();
        SafetensorsHeader::read(&file, false)
            .unwrap_err()
            .to_string()
    };
    says(&read(&[]), &["0 bytes", "takes 8"]);
    says(&read(&[1, 2, 3]), &["3 bytes"]);
    says(&read(&100u64.to_le_bytes()), &["100 bytes", "0 are left"]);
    says(
        &read(&u64::MAX.to_le_bytes()),
        &[&u64::MAX.to_string(), "33554432"],
    );
    // 100 MB of header, all of it there: a sparse file.
    let length = 100_000_000u64;
    assert!(length > MAX_HEADER_BYTES);
    let path = folder.path().join("long");
    std::fs::write(&path, length.to_le_bytes()).unwrap();
    let long = std::fs::File::options().write(true).open(&path).unwrap();
    long.set_len(8 + length).unwrap();
    let error = SafetensorsHeader::read(&SourceFile::open(&path).unwrap(), false).unwrap_err();
    says(&error.to_string(), &["100000000", "33554432"]);
    says(&read(&file(b"{}", &[0; 4])), &["belong to no tensor"]);
}

#[test]
fn types_are_known_once() {
    for (at, ty) in TYPES.iter().enumerate() {
        assert!(
            TYPES[..at].iter().all(|other| other.name() != ty.name()),
            "{}",
            ty.name()
        );
        assert_eq!(ty.block_elements(), 1);
    }
}
