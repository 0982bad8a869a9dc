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

#[test]
fn malformed_headers_are_refused() {
    let with = |rest: &str| format!("{{{A},{rest}}}");
    let only = |fields: &str| format!(r#"{{"a":{{{fields}}}}}"#);
    let cases: &[(String, usize, &[&str])] = &[
        (
            with(r#""a":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}"#),
            20,
            &["\"a\" is given twice"],
        ),
        (
            with(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}"#),
            16,
            &["tensor b", "before the end of a"],
        ),
        (
            with(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[20,24]}"#),
            24,
            &["belong to no tensor"],
        ),
        (
            with(r#""b":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}"#),
            16,
            &["tensor b ends at byte", "cut off"],
        ),
        (format!("{{{A}}}"), 17, &["belong to no tensor"]),
        (
            only(r#""dtype":"F32","shape":[4],"data_offsets":[0,15]"#),
            16,
            &["tensor a", "0 to 15", "16 bytes"],
        ),
        (
            only(r#""dtype":"F32","shape":[4],"data_offsets":[16,0]"#),
            16,
            &["tensor a", "16 to 0"],
        ),
        (
            only(r#""dtype":"Q4","shape":[4],"data_offsets":[0,16]"#),
            16,
            &["tensor a", "\"Q4\"", "BF16"],
        ),
        (
            only(r#""shape":[4],"data_offsets":[0,16]"#),
            16,
            &["tensor a", "dtype is missing"],
        ),
        (
            only(r#""dtype":"F32","shape":[-4],"data_offsets":[0,16]"#),
            16,
            &["shape", "list"],
        ),
        (
            only(r#""dtype":"F32","shape":[4.0],"data_offsets":[0,16]"#),
            16,
            &["shape", "list"],
        ),
        (
            only(r#""dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]"#),
            16,
            &["at most 8"],
        ),
        (
            only(r#""dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]"#),
            16,
            &["2^40"],
        ),
        (
            only(r#""dtype":"F32","shape":[4],"data_offsets":[0,8,16]"#),
            16,
            &["data_offsets", "two"],
        ),
        (
            only(
                r#""dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]"#,
            ),
            16,
            &["tensor a", "ends at byte"],
        ),
        (r#"{"a":3}"#.into(), 0, &["tensor a", "dtype is missing"]),
        ("[1,2]".into(), 0, &["a list of 2", "object"]),
        ("{".into(), 0, &["JSON"]),
        (String::new(), 0, &["JSON"]),
        (
            format!("{}1{}", "[".repeat(1000), "]".repeat(1000)),
            0,
            &["recursion"],
        ),
    ];
    for (header, data, words) in cases {
        says(&parse(header, *data).unwrap_err(), words);
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
