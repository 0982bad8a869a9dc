//! The text form of a machine profile: TOML of version 1, every field known, every value in range.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Feature, Host, Link, LinkKind, Machine, MachineError};

/// Version of the text form.
pub const PROFILE_VERSION: u32 = 1;

/// Reads the version alone, so that a profile of another version is refused by its version
/// and not by the first field that differs.
#[derive(Deserialize)]
struct Probe {
    version: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(rename = "version")]
    _version: i64,
    name: Spanned<String>,
    card: String,
    target: Spanned<String>,
    wave_size: Spanned<u32>,
    compute_units: Spanned<u32>,
    lds_bytes_per_group: Spanned<u32>,
    vram_bytes: Spanned<u64>,
    vram_mb_per_s: Spanned<u64>,
    unified_memory: bool,
    host: HostText,
    link: LinkText,
    #[serde(default)]
    provenance: BTreeMap<Spanned<String>, String>,
    /// Measured starting points of the share controller. They shape no plan and are no part of a machine.
    #[serde(default, rename = "offload")]
    _offload: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostText {
    cores: Spanned<u32>,
    memory_bytes: Spanned<u64>,
    pinned_bytes: Spanned<u64>,
    features: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkText {
    kind: Spanned<String>,
    mb_per_s: Spanned<u64>,
}

/// `text` as a TOML string: quotes, backslashes and control characters escaped.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text form, fields in the order of the built-in profiles.
pub(super) fn write(machine: &Machine) -> String {
    let Machine { host, link, .. } = machine;
    let features: Vec<String> = host.features.iter().map(|f| quoted(f.name())).collect();
    let mut lines = vec![
        format!("version = {PROFILE_VERSION}"),
        format!("name = {}", quoted(&machine.name)),
        format!("card = {}", quoted(&machine.card)),
        format!("target = {}", quoted(&machine.target)),
        format!("wave_size = {}", machine.wave_size),
        format!("compute_units = {}", machine.compute_units),
        format!("lds_bytes_per_group = {}", machine.lds_bytes_per_group),
        format!("vram_bytes = {}", machine.vram_bytes),
        format!("vram_mb_per_s = {}", machine.vram_mb_per_s),
        format!("unified_memory = {}", machine.unified_memory),
        String::new(),
        "[host]".to_owned(),
        format!("cores = {}", host.cores),
        format!("memory_bytes = {}", host.memory_bytes),
        format!("pinned_bytes = {}", host.pinned_bytes),
        format!("features = [{}]", features.join(", ")),
        String::new(),
        "[link]".to_owned(),
        format!("kind = {}", quoted(link.kind.name())),
        format!("mb_per_s = {}", link.mb_per_s),
        String::new(),
        "[provenance]".to_owned(),
    ];
    let sources = machine.provenance.iter();
    lines.extend(sources.map(|(fact, source)| format!("{fact} = {}", quoted(source))));
    lines.push(String::new());
    lines.join("\n")
}

/// Fields that a provenance entry may name.
const FACTS: &[&str] = &[
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

/// The text being read and what to call it.
struct Reader<'a> {
    origin: &'a str,
    text: &'a str,
}

/// Parses `text`; `origin` names it in errors.
pub(super) fn parse(origin: &str, text: &str) -> Result<Machine, MachineError> {
    let reader = Reader { origin, text };
    let probe: Probe = toml::from_str(text).map_err(|error| reader.toml(&error))?;
    if *probe.version.get_ref() != i64::from(PROFILE_VERSION) {
        return Err(MachineError::Version {
            origin: origin.to_owned(),
            line: reader.position(probe.version.span().start).0,
            found: *probe.version.get_ref(),
            known: PROFILE_VERSION,
        });
    }
    let raw: Text = toml::from_str(text).map_err(|error| reader.toml(&error))?;
    reader.machine(raw)
}

impl Reader<'_> {
    /// Line and column, from 1, of a byte offset in the text.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self
            .text
            .get(..offset.min(self.text.len()))
            .unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }

    fn toml(&self, error: &toml::de::Error) -> MachineError {
        let (line, column) = self.position(error.span().map_or(0, |span| span.start));
        let message = error.message().to_owned();
        MachineError::Toml {
            origin: self.origin.to_owned(),
            line,
            column,
            message,
        }
    }

    /// Refuses `value` unless `good`.
    fn check<T: ToString>(
        &self,
        field: &'static str,
        value: &Spanned<T>,
        good: bool,
        expected: &str,
    ) -> Result<(), MachineError> {
        if good {
            return Ok(());
        }
        Err(MachineError::Value {
            origin: self.origin.to_owned(),
            line: self.position(value.span().start).0,
            field,
            found: value.get_ref().to_string(),
            expected: expected.to_owned(),
        })
    }

    fn at_least_one(&self, field: &'static str, value: &Spanned<u64>) -> Result<u64, MachineError> {
        self.check(field, value, *value.get_ref() > 0, "at least 1")?;
        Ok(*value.get_ref())
    }

    fn machine(&self, raw: Text) -> Result<Machine, MachineError> {
        let name_ok = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = raw.name.get_ref();
        let good = !name.is_empty() && name.len() <= 64 && name.chars().all(name_ok);
        self.check(
            "name",
            &raw.name,
            good,
            "1 to 64 letters, digits, '-', '_', '.'",
        )?;
        let digits = raw.target.get_ref().strip_prefix("gfx").unwrap_or_default();
        let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        let good = (3..=5).contains(&digits.len()) && digits.chars().all(hex);
        self.check(
            "target",
            &raw.target,
            good,
            "gfx and three to five digits, for example gfx1201",
        )?;
        let wave = *raw.wave_size.get_ref();
        self.check(
            "wave_size",
            &raw.wave_size,
            matches!(wave, 32 | 64),
            "32 or 64",
        )?;
        let units = *raw.compute_units.get_ref();
        self.check(
            "compute_units",
            &raw.compute_units,
            (1..=1024).contains(&units),
            "1 to 1024",
        )?;
        let lds = *raw.lds_bytes_per_group.get_ref();
        let good = (1024..=1 << 20).contains(&lds) && lds.is_multiple_of(1024);
        self.check(
            "lds_bytes_per_group",
            &raw.lds_bytes_per_group,
            good,
            "KiB up to 1 MiB",
        )?;
        let vram_bytes = self.at_least_one("vram_bytes", &raw.vram_bytes)?;
        let vram_mb_per_s = self.at_least_one("vram_mb_per_s", &raw.vram_mb_per_s)?;
        let (host, link) = (self.host(&raw.host)?, self.link(&raw.link)?);
        if raw.unified_memory != (link.kind == LinkKind::Unified) {
            return Err(MachineError::Contradiction {
                origin: self.origin.to_owned(),
                first: format!("unified_memory = {}", raw.unified_memory),
                second: format!("link.kind = {:?}", link.kind.name()),
            });
        }
        self.provenance(&raw.provenance)?;
        let provenance = raw.provenance.into_iter();
        Ok(Machine {
            name: raw.name.into_inner(),
            card: raw.card,
            target: raw.target.into_inner(),
            wave_size: wave,
            compute_units: units,
            lds_bytes_per_group: lds,
            vram_bytes,
            vram_mb_per_s,
            unified_memory: raw.unified_memory,
            host,
            link,
            provenance: provenance
                .map(|(fact, source)| (fact.into_inner(), source))
                .collect(),
        })
    }

    fn host(&self, raw: &HostText) -> Result<Host, MachineError> {
        let cores = *raw.cores.get_ref();
        self.check(
            "host.cores",
            &raw.cores,
            (1..=4096).contains(&cores),
            "1 to 4096",
        )?;
        let memory_bytes = self.at_least_one("host.memory_bytes", &raw.memory_bytes)?;
        let pinned_bytes = *raw.pinned_bytes.get_ref();
        let expected = format!("at most host.memory_bytes, {memory_bytes}");
        let good = pinned_bytes <= memory_bytes;
        self.check("host.pinned_bytes", &raw.pinned_bytes, good, &expected)?;
        let mut features = Vec::new();
        for name in &raw.features {
            let known = Feature::ALL
                .iter()
                .copied()
                .find(|feature| feature.name() == name.get_ref());
            let all: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
            self.check("host.features", name, known.is_some(), &all.join(", "))?;
            features.extend(known);
        }
        features.sort_unstable();
        features.dedup();
        Ok(Host {
            cores,
            memory_bytes,
            pinned_bytes,
            features,
        })
    }

    fn link(&self, raw: &LinkText) -> Result<Link, MachineError> {
        let kind = LinkKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == raw.kind.get_ref());
        let all: Vec<&str> = LinkKind::ALL.iter().map(|kind| kind.name()).collect();
        self.check("link.kind", &raw.kind, kind.is_some(), &all.join(", "))?;
        let mb_per_s = self.at_least_one("link.mb_per_s", &raw.mb_per_s)?;
        Ok(Link {
            kind: kind.unwrap_or(LinkKind::Unified),
            mb_per_s,
        })
    }

    fn provenance(&self, entries: &BTreeMap<Spanned<String>, String>) -> Result<(), MachineError> {
        for fact in entries.keys() {
            let good = FACTS.contains(&fact.get_ref().as_str());
            self.check("provenance", fact, good, &FACTS.join(", "))?;
        }
        Ok(())
    }
}
