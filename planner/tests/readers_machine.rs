//! Machine profiles: the built-in cards, the text form, its errors, and the canonical form.

#![expect(clippy::expect_used, reason = "a fixture that fails, fails its test")]

use refrain_planner::machine::{Feature, LinkKind, Machine, MachineError};

const GFX1201: &str = include_str!("../machines/gfx1201.toml");

#[test]
fn built_in_cards_carry_every_source() {
    let names: Vec<&str> = Machine::built_in_names().collect();
    assert_eq!(names, ["gfx1100", "gfx1151", "gfx1201"]);
    // compute units, VRAM GiB, VRAM GB/s, unified, link
    let facts = [
        (96, 24, 960, false, LinkKind::Pcie4x16),
        (40, 96, 256, true, LinkKind::Unified),
        (64, 16, 640, false, LinkKind::Pcie5x16),
    ];
    for (name, (units, gib, gb_per_s, unified, link)) in names.into_iter().zip(facts) {
        let machine = Machine::load(name).expect(name);
        assert_eq!(
            (machine.name.as_str(), machine.target.as_str()),
            (name, name)
        );
        assert_eq!((machine.wave_size, machine.compute_units), (32, units));
        assert_eq!(
            (machine.vram_bytes, machine.vram_mb_per_s),
            (gib << 30, gb_per_s * 1000)
        );
        assert_eq!((machine.unified_memory, machine.link.kind), (unified, link));
        let sources = [
            "target",
            "wave_size",
            "compute_units",
            "lds_bytes_per_group",
            "vram_bytes",
            "vram_mb_per_s",
            "unified_memory",
            "host",
            "link",
        ];
        for fact in sources {
            let source = machine.provenance.get(fact).expect(fact);
            let kinds = ["documented: ", "calculated: ", "assumed: "];
            assert!(
                kinds.iter().any(|kind| source.starts_with(kind)),
                "{name}.{fact}: {source}"
            );
        }
    }
}

#[test]
fn a_path_reads_as_the_text_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, GFX1201).expect("written");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(
        Machine::load(path).expect("read"),
        Machine::load("gfx1201").expect("built in")
    );
    std::fs::write(path, vec![b'#'; 70_000]).expect("written");
    assert!(matches!(
        Machine::load(path),
        Err(MachineError::TooLong { found: 65_537, .. })
    ));
    std::fs::write(path, b"version = 1\n# \xff").expect("written");
    assert!(matches!(
        Machine::load(path),
        Err(MachineError::Utf8 { offset: 14, .. })
    ));
    assert!(matches!(
        Machine::load("./missing.toml"),
        Err(MachineError::Io { .. })
    ));
    let message = Machine::load("gfx9").expect_err("unknown").to_string();
    assert!(
        message.contains("\"gfx9\"") && message.contains("gfx1100, gfx1151, gfx1201"),
        "{message}"
    );
}

/// The text with one line changed, and that line's number.
fn changed(from: &str, to: &str) -> (String, usize) {
    let line = GFX1201
        .lines()
        .position(|line| line.contains(from))
        .expect(from)
        + 1;
    (GFX1201.replacen(from, to, 1), line)
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn each_bad_field_is_refused_with_its_line() {
    let cases = [
        ("name = \"gfx1201\"", "name = \"a b\"", "name is a b"),
        (
            "target = \"gfx1201\"",
            "target = \"sm_90\"",
            "target is sm_90",
        ),
        (
            "target = \"gfx1201\"",
            "target = \"gfx12010000\"",
            "target is gfx12010000",
        ),
        (
            "wave_size = 32",
            "wave_size = 33",
            "wave_size is 33, expected 32 or 64",
        ),
        (
            "compute_units = 64",
            "compute_units = 0",
            "compute_units is 0",
        ),
        (
            "lds_bytes_per_group = 65_536",
            "lds_bytes_per_group = 65_537",
            "lds_bytes_per_group is 65537",
        ),
        (
            "vram_bytes = 17_179_869_184",
            "vram_bytes = 0",
            "vram_bytes is 0",
        ),
        (
            "vram_bytes = 17_179_869_184",
            "vram_bytes = -1",
            "invalid value",
        ),
        (
            "vram_mb_per_s = 640_000",
            "vram_mb_per_s = 640.5",
            "invalid type",
        ),
        ("cores = 8", "cores = 0", "host.cores is 0"),
        (
            "pinned_bytes = 17_179_869_184",
            "pinned_bytes = 34_359_738_369",
            "host.pinned_bytes is 34359738369",
        ),
        ("\"fma\"", "\"mmx\"", "host.features is mmx"),
        ("kind = \"pcie5x16\"", "kind = \"agp\"", "link.kind is agp"),
        ("mb_per_s = 63_015", "mb_per_s = 0", "link.mb_per_s is 0"),
        (
            "host = \"assumed",
            "hosts = \"assumed",
            "provenance is hosts",
        ),
        (
            "cores = 8",
            "cores = 8\nthreads = 16",
            "unknown field `threads`",
        ),
        (
            "version = 1",
            "version = 2",
            "version 2, this build reads 1",
        ),
        ("version = 1", "version = \"1\"", "invalid type"),
        ("wave_size = 32", "wave_size = ", ""),
        (
            "wave_size = 32",
            "wave_size = 32\nwave_size = 32",
            "duplicate key",
        ),
    ];
    for (from, to, part) in cases {
        let (text, line) = changed(from, to);
        let message = Machine::parse("mine", &text).expect_err(to).to_string();
        let lines = [
            format!("line {line}"),
            format!("line {}", line + to.matches('\n').count()),
        ];
        assert!(
            lines.iter().any(|line| message.contains(line)),
            "{to}: {message}"
        );
        assert!(message.contains(part), "{to}: {message}");
        assert!(
            message.starts_with("machine profile mine") && message.contains(';'),
            "{message}"
        );
    }
    let (missing, _) = changed("compute_units = 64", "");
    let message = Machine::parse("mine", &missing)
        .expect_err("missing")
        .to_string();
    assert!(
        message.contains("missing field `compute_units`"),
        "{message}"
    );
    let (contradiction, _) = changed("unified_memory = false", "unified_memory = true");
    let message = Machine::parse("mine", &contradiction)
        .expect_err("unified")
        .to_string();
    assert!(
        message.contains("unified_memory = true and link.kind = \"pcie5x16\""),
        "{message}"
    );
}

#[test]
fn the_digest_follows_facts_and_nothing_else() {
    let base = Machine::load("gfx1201").expect("built in");
    let same: [fn(&mut Machine); 4] = [
        |m| m.name = "other".into(),
        |m| m.card = "other".into(),
        |m| m.provenance.clear(),
        |m| m.host.features.reverse(),
    ];
    for change in same {
        let mut machine = base.clone();
        change(&mut machine);
        assert_eq!(machine.digest(), base.digest());
    }
    let different: [fn(&mut Machine); 13] = [
        |m| m.target = "gfx1200".into(),
        |m| m.wave_size = 64,
        |m| m.compute_units += 1,
        |m| m.lds_bytes_per_group *= 2,
        |m| m.vram_bytes += 1,
        |m| m.vram_mb_per_s += 1,
        |m| m.unified_memory = true,
        |m| m.host.cores += 1,
        |m| m.host.memory_bytes += 1,
        |m| m.host.pinned_bytes += 1,
        |m| m.host.features.push(Feature::Avx512f),
        |m| m.link.kind = LinkKind::Pcie4x16,
        |m| m.link.mb_per_s += 1,
    ];
    let mut digests = vec![base.digest()];
    for change in different {
        let mut machine = base.clone();
        change(&mut machine);
        digests.push(machine.digest());
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 14);
}

#[test]
fn the_canonical_form_is_pinned() {
    let bytes = Machine::load("gfx1201")
        .expect("built in")
        .canonical_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "01000000",
        "07000000",
        "67667831323031", // version, "gfx1201"
        "20000000",
        "40000000",
        "00000100", // wave 32, 64 units, 64 KiB
        "0000000004000000",
        "00c4090000000000",
        "00", // 16 GiB, 640,000 MB/s, discrete
        "08000000",
        "0000000008000000",
        "0000000004000000", // 8 cores, 32 GiB, 16 GiB
        "03000000",
        "000102",
        "09",
        "27f6000000000000", // three features, pcie5x16, 63,015 MB/s
    );
    assert_eq!(hex, expected);
}

proptest::proptest! {
    /// What is written is read again as the same machine, whatever names and sources hold.
    #[test]
    fn a_written_profile_is_the_machine_it_was_written_from(
        card in ".*", source in ".*", cores in 1u32..=4096, built_in in 0usize..3,
    ) {
        let name = Machine::built_in_names().nth(built_in).unwrap();
        let mut machine = Machine::load(name).unwrap();
        machine.card = card;
        machine.host.cores = cores;
        machine.provenance.insert("host".to_owned(), source);
        proptest::prop_assert_eq!(Machine::parse("written", &machine.to_toml()).unwrap(), machine);
    }
}
