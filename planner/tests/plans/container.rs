//! The plan file: every damaged file is refused with a section's name, none panics.

use crate::fixture::sample;
use proptest::prelude::{ProptestConfig, any, proptest};
use refrain_planner::container::codec::CodecError;
use refrain_planner::container::{
    FORMAT, PlanFile, RawSection, decode, encode, encode_file, encode_sections, split,
};
use refrain_planner::plan::Plan;
use refrain_planner::{CheckedPlan, ContainerError, LoadError};
use std::sync::OnceLock;

fn sample_file() -> &'static (Plan, Vec<u8>) {
    static SAMPLE: OnceLock<(Plan, Vec<u8>)> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let plan = sample();
        let bytes = encode(&plan);
        (plan, bytes)
    })
}

/// Tag of the section that holds a byte, `section table` or `header`.
fn section_of(bytes: &[u8], at: usize) -> String {
    let sections = split(bytes).unwrap();
    if at < 64 {
        return "header".to_owned();
    }
    let mut end = 64 * (1 + sections.len());
    if at < end {
        return "section table".to_owned();
    }
    for section in &sections {
        end = (end + section.body.len()).next_multiple_of(64);
        if at < end {
            return section.tag.escape_ascii().to_string();
        }
    }
    panic!("byte {at} is past the last section");
}

#[test]
fn round_trip() {
    let (plan, bytes) = sample_file();
    let file = decode(bytes).unwrap();
    assert_eq!(file.plan, *plan);
    assert_eq!(encode_file(&file), *bytes);
    let checked = CheckedPlan::from_bytes(bytes).unwrap();
    assert_eq!(checked.to_bytes(), *bytes);
    assert_eq!(checked.id(), CheckedPlan::check(plan.clone()).unwrap().id());
}

#[test]
fn every_flipped_byte_is_refused_with_its_section() {
    let (_, bytes) = sample_file();
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        // All 255 other values in the header, one elsewhere.
        let masks: Vec<u8> = if at < 64 {
            (1..=255).collect()
        } else {
            vec![1 << (at % 8)]
        };
        for mask in masks {
            damaged[at] ^= mask;
            let error = decode(&damaged).expect_err("a flipped byte was accepted");
            damaged[at] ^= mask;
            let expected = section_of(bytes, at);
            let found = error.section();
            // A damaged count shifts the table; a damaged row may be noticed as a damaged section.
            let noticed = match expected.as_str() {
                "header" if at >= 32 => error == ContainerError::FileDigest,
                "header" => found == "header" || found == "section table",
                "section table" => found != "header" || matches!(error, ContainerError::FileDigest),
                body => found == body,
            };
            assert!(noticed, "byte {at} of {expected}: {error}");
            assert!(
                error.to_string().contains(found),
                "{error} does not name {found}"
            );
        }
    }
}

#[test]
fn every_truncation_and_any_tail_is_refused() {
    let (_, bytes) = sample_file();
    for len in 0..bytes.len() {
        let error = decode(&bytes[..len]).expect_err("a truncated file was accepted");
        assert_eq!(error.section(), "header", "{len}: {error}");
    }
    for tail in [&[0][..], &[0; 64], b"x"] {
        let longer = [bytes, tail].concat();
        assert!(matches!(
            decode(&longer),
            Err(ContainerError::Length { .. })
        ));
    }
}

/// Same values on every run: a 64-bit linear generator (Knuth's MMIX constants).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

#[test]
fn ten_thousand_edits_are_refused() {
    let (_, bytes) = sample_file();
    let mut seeded = Seeded(1);
    for round in 0..10_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + seeded.below(16) {
            let at = seeded.below(damaged.len());
            match seeded.below(4) {
                0 => damaged[at] = seeded.below(256) as u8,
                1 => drop(damaged.remove(at)),
                2 => damaged.insert(at, seeded.below(256) as u8),
                _ => {
                    let end = (at + seeded.below(32)).min(damaged.len());
                    damaged[at..end].fill(0xFF);
                }
            }
        }
        if damaged == *bytes {
            continue;
        }
        let error = CheckedPlan::from_bytes(&damaged).expect_err("a damaged file was accepted");
        let LoadError::Container(error) = error else {
            panic!("{round}: {error}")
        };
        assert!(!error.section().is_empty());
    }
}

/// Edits below the digests: bodies are damaged and sealed again, so only reader and checks stand
/// between them and the plan. What is accepted must be exactly what was written.
#[test]
fn edits_under_valid_digests_never_panic_and_stay_canonical() {
    let (_, bytes) = sample_file();
    let sections = split(bytes).unwrap();
    let mut seeded = Seeded(2);
    let mut accepted = 0;
    for _ in 0..4_000 {
        let mut edited = sections.clone();
        let body = &mut edited[seeded.below(sections.len())].body;
        for _ in 0..1 + seeded.below(4) {
            let at = seeded.below(body.len());
            match seeded.below(3) {
                0 => body[at] ^= 1 << seeded.below(8),
                1 => body.truncate(at.max(1)),
                _ => body[at] = seeded.below(256) as u8,
            }
        }
        let file = encode_sections(FORMAT.1, edited);
        match CheckedPlan::from_bytes(&file) {
            Ok(plan) => {
                assert_eq!(plan.to_bytes(), file);
                accepted += 1;
            }
            Err(error) => {
                let text = error.to_string();
                let named = sections
                    .iter()
                    .any(|s| text.contains(&*s.tag.escape_ascii().to_string()));
                assert!(named, "no section named: {text}");
            }
        }
    }
    // Digests, offsets in the model file and texts may be anything.
    assert!(
        (1..2_000).contains(&accepted),
        "{accepted} of 4000 accepted"
    );
}

#[test]
fn another_major_is_refused_by_version() {
    let (_, bytes) = sample_file();
    let mut other = bytes.clone();
    other[8..12].copy_from_slice(&[1, 0, 0, 0]);
    assert_eq!(
        decode(&other).unwrap_err().to_string(),
        "header: made by plan format 1.0, this build reads 4.x: re-run `refrain plan`"
    );
}

#[test]
fn a_newer_minor_with_an_optional_section_is_carried_along() {
    let (plan, bytes) = sample_file();
    let mut sections = split(bytes).unwrap();
    sections.push(RawSection {
        tag: *b"note",
        version: 7,
        body: b"kept".to_vec(),
    });
    let newer = encode_sections(FORMAT.1 + 3, sections.clone());
    let file = decode(&newer).unwrap();
    assert_eq!((file.minor, &file.plan), (FORMAT.1 + 3, plan));
    assert_eq!(encode_file(&file), newer);
    assert_eq!(CheckedPlan::from_bytes(&newer).unwrap().to_bytes(), newer);

    sections.last_mut().unwrap().tag = *b"Note";
    let error = decode(&encode_sections(FORMAT.1, sections)).unwrap_err();
    assert_eq!(
        error,
        ContainerError::UnknownSection {
            section: "Note".into(),
            version: 7
        }
    );
}

/// Builds a file by hand so that each rule of the layout can be broken under valid digests.
#[test]
fn layout_rules() {
    let (_, bytes) = sample_file();
    let sections = split(bytes).unwrap();
    let reseal = |mut file: Vec<u8>| {
        let mut hasher = blake3::Hasher::new_derive_key("refrain.plan-file.v1");
        hasher.update(&file[..32]);
        hasher.update(&file[64..]);
        let digest = hasher.finalize();
        file[32..64].copy_from_slice(digest.as_bytes());
        decode(&file).unwrap_err()
    };
    let with = |at: usize, value: u8| {
        let mut file = bytes.clone();
        file[at] = value;
        file
    };
    // Reserved bytes of the header and of a row.
    assert!(matches!(
        reseal(with(24, 1)),
        ContainerError::Reserved { at: 24, .. }
    ));
    assert!(matches!(
        reseal(with(64 + 6, 1)),
        ContainerError::Reserved { .. }
    ));
    assert!(matches!(
        reseal(with(64 + 24, 1)),
        ContainerError::Reserved { .. }
    ));
    // A section 64 bytes further on, one longer than the file, tags out of order or odd.
    assert!(matches!(
        reseal(with(64 + 8, bytes[64 + 8].wrapping_add(64))),
        ContainerError::Layout { .. }
    ));
    assert!(matches!(
        reseal(with(64 + 22, 1)),
        ContainerError::PastEnd { .. }
    ));
    assert!(matches!(
        reseal(with(64, b'Z')),
        ContainerError::Order { .. }
    ));
    assert!(matches!(reseal(with(64, b'-')), ContainerError::Tag { .. }));
    // Another version of a section, a missing section, padding that is not zero.
    assert!(matches!(
        reseal(with(64 + 4, 9)),
        ContainerError::UnknownSection { version: 9, .. }
    ));
    let less = encode_sections(FORMAT.1, sections[1..].to_vec());
    assert!(matches!(
        decode(&less),
        Err(ContainerError::MissingSection { .. })
    ));
    let start = 64 * (1 + sections.len());
    let gap = sections.iter().scan(start, |end, section| {
        let at = *end + section.body.len();
        *end = at.next_multiple_of(64);
        Some((at, *end))
    });
    let (at, _) = gap.into_iter().find(|(at, end)| at < end).unwrap();
    assert!(matches!(
        reseal(with(at, 1)),
        ContainerError::Padding { .. }
    ));
    // A tag twice, and bytes after the last section that the length counts.
    let mut twice = sections.clone();
    twice.insert(0, sections[0].clone());
    let file = encode_sections(FORMAT.1, twice);
    assert!(matches!(decode(&file), Err(ContainerError::Order { .. })));
    let mut longer = [bytes, &[0; 64][..]].concat();
    let len = longer.len() as u64;
    longer[16..24].copy_from_slice(&len.to_le_bytes());
    assert!(matches!(reseal(longer), ContainerError::Length { .. }));
    // Too many sections to believe.
    assert!(matches!(reseal(with(14, 1)), ContainerError::Limit { .. }));
}

/// Values that have more than one encoding, or none, are refused by the reader itself.
#[test]
fn bodies_have_one_form() {
    let (plan, bytes) = sample_file();
    let edited = |tag: &[u8; 4], edit: &dyn Fn(&mut Vec<u8>)| {
        let mut sections = split(bytes).unwrap();
        edit(
            &mut sections
                .iter_mut()
                .find(|section| section.tag == *tag)
                .unwrap()
                .body,
        );
        match decode(&encode_sections(FORMAT.1, sections)) {
            Err(ContainerError::Body { section, source }) => {
                assert_eq!(section.as_bytes(), tag);
                source
            }
            other => panic!("{other:?}"),
        }
    };
    let eps = plan.model.geometry.norm_eps.to_le_bytes();
    let nan = edited(b"MODL", &|body| {
        let at = body.windows(4).position(|four| four == eps).unwrap();
        body[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    assert!(matches!(nan, CodecError::Nan { .. }));
    let trailing = edited(b"OPTS", &|body| body.push(0));
    assert!(matches!(trailing, CodecError::Trailing { extra: 1, .. }));
    let short = edited(b"OPTS", &|body| body.truncate(7));
    assert!(matches!(
        short,
        CodecError::Truncated { at: 4, need: 1, .. }
    ));
    let tag = edited(b"ELIG", &|body| body[0] = 9);
    assert!(matches!(tag, CodecError::UnknownTag { tag: 9, .. }));
    // A count is compared with the bytes left before anything is allocated.
    let count = edited(b"STEP", &|body| body[..4].fill(0xFF));
    assert!(matches!(
        count,
        CodecError::TooMany {
            at: 0,
            count: 0xFFFF_FFFF,
            ..
        }
    ));
    let text = edited(b"META", &|body| body[4] = 0xFF);
    assert!(matches!(text, CodecError::Utf8 { at: 4 }));
    // Sources of machine facts ascend; the first field's name becomes the last.
    let order = edited(b"MACH", &|body| {
        let first = plan.machine.provenance.keys().next().unwrap().as_bytes();
        let at = body
            .windows(first.len())
            .position(|part| part == first)
            .unwrap();
        body[at] = b'~';
    });
    assert!(matches!(order, CodecError::Value { .. }));
}

#[test]
fn unlikely_inputs() {
    for input in [
        &b""[..],
        b"REFRPLAN",
        b"GGUF\x03\0\0\0",
        &[0; 64],
        &[0xFF; 4096],
    ] {
        assert_eq!(decode(input).unwrap_err().section(), "header");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn random_sections_never_panic(tag in any::<[u8; 4]>(), body in any::<Vec<u8>>()) {
        let file = encode_sections(FORMAT.1, vec![RawSection { tag, version: 1, body }]);
        assert!(decode(&file).is_err());
    }

    #[test]
    fn section_bodies_survive(bodies in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
        let sections: Vec<RawSection> = bodies
            .into_iter()
            .zip(b'a'..)
            .map(|(body, letter)| RawSection { tag: [letter; 4], version: u16::from(letter), body })
            .collect();
        assert_eq!(split(&encode_sections(FORMAT.1, sections.clone())).unwrap(), sections);
    }
}

/// The whole value is compared, so this needs no list of fields.
#[test]
fn plan_files_differ_where_plans_do() {
    let (plan, bytes) = sample_file();
    let mut other = plan.clone();
    other.producer.push('x');
    let file = PlanFile {
        minor: FORMAT.1,
        plan: other.clone(),
        unknown: Vec::new(),
    };
    assert_ne!(encode_file(&file), *bytes);
    assert_eq!(decode(&encode_file(&file)).unwrap().plan, other);
}
