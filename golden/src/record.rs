//! A sealed record: canonical TOML whose first line after the schema is the digest of the rest.
//!
//! Reading renders what was read again and compares bytes, so a record that was edited by hand, cut or
//! damaged is seen before anything in it is believed. A record holds no date, no host and no path
//! outside the root: sealing the same thing twice gives the same bytes.

use crate::facts::{Counts, Encoding, Facts, Identities};
use crate::recipe::{self, Recipe};
use refrain_planner::identity::hex;
use serde::Deserialize;
use std::fmt::Write;

/// Schema of the records that are written, and the only one that is read.
pub const RECORD_SCHEMA: &str = "refrain.golden.v1";
/// Domain of a record's digest.
const DOMAIN: &str = "refrain.golden.record.v1";
/// Longest record that is read, in bytes.
pub const RECORD_BYTES_MAX: u64 = 4 << 20;

/// What a record promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everything, tokens and proof included.
    Whole,
    /// Plan and packets of a shape without weights; nothing ran.
    Structure,
    /// The machine takes no such plan, by this refusal.
    Refused,
}

impl Kind {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Whole, "whole"),
        (Self::Structure, "structure"),
        (Self::Refused, "refused"),
    ];

    /// Name in records.
    pub fn name(self) -> &'static str {
        let row = Self::ALL.iter().find(|row| row.0 == self);
        row.map_or("", |row| row.1)
    }
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not TOML of this shape.
    #[error("not a record: {0}; seal it again")]
    Syntax(String),
    /// Another schema.
    #[error("record of schema {found:?}, this program reads {RECORD_SCHEMA:?}; seal it again")]
    Schema {
        /// In the file.
        found: String,
    },
    /// The digest is not that of the rest.
    #[error(
        "the record's digest is {found}, its content has {expected}; it was changed or cut: seal it again or restore it"
    )]
    Digest {
        /// In the file.
        found: String,
        /// Of the content.
        expected: String,
    },
    /// The bytes are not those that the content is written as.
    #[error(
        "the record is not in canonical form from byte {offset} on; seal it again or restore it"
    )]
    NotCanonical {
        /// First byte that differs.
        offset: usize,
    },
    /// Parts contradict each other.
    #[error("the record contradicts itself: {0}; seal it again")]
    Inconsistent(String),
}

/// Tokens of the fixed prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Sampler.
    pub sampler: String,
    /// Prompt token ids.
    pub prompt: Vec<u32>,
    /// Tokens asked for.
    pub asked: u32,
    /// Tokens generated: fewer where the model ended the text.
    pub generated: u32,
    /// Digest of the generated ids, hex.
    pub digest: String,
}

impl Tokens {
    /// Describes generated tokens.
    pub fn of(recipe: &Recipe, tokens: &[u32]) -> Self {
        let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
        Self {
            sampler: "greedy".to_owned(),
            prompt: recipe.prompt.clone(),
            asked: recipe.tokens,
            generated: tokens.len() as u32,
            digest: hex(&blake3::derive_key("refrain.golden.tokens.v1", &bytes)),
        }
    }
}

/// The proof that a record stands on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProofSeal {
    /// Digest of the proof's content, hex; the file lies beside the record.
    pub digest: String,
    /// Program that made it.
    pub tool: String,
}

/// Where a record comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Program that sealed it.
    pub sealed_with: String,
    /// Compiler of the code objects.
    pub compiler: String,
    /// What tokens and proof were executed on.
    pub evidence: String,
}

/// A speed that hardware showed. Only a measurement's report may bring one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// Card.
    pub card: String,
    /// Digest of the measurement's report, hex.
    pub report: String,
    /// Tokens per second of the retained form, in thousandths.
    pub retained_mtok_s: u64,
    /// Tokens per second of eager launches in the same run, in thousandths.
    pub eager_mtok_s: u64,
}

/// A sealed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it promises.
    pub kind: Kind,
    /// What it is about.
    pub recipe: Recipe,
    /// The refusal's code, for a [`Kind::Refused`].
    pub refusal: Option<String>,
    /// Plan and packets, except for a [`Kind::Refused`].
    pub facts: Facts,
    /// Tokens, for a [`Kind::Whole`].
    pub tokens: Option<Tokens>,
    /// Proof, for a [`Kind::Whole`].
    pub proof: Option<ProofSeal>,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Floors by card.
    pub floors: Vec<Floor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    schema: String,
    digest: String,
    kind: String,
    refusal: Option<String>,
    recipe: RawRecipe,
    identity: Option<Identities>,
    counts: Option<Counts>,
    #[serde(default)]
    encoding: Vec<Encoding>,
    steps: Option<RawSteps>,
    tokens: Option<Tokens>,
    proof: Option<ProofSeal>,
    provenance: Provenance,
    #[serde(default)]
    floor: Vec<Floor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecipe {
    model: String,
    file: String,
    quant: String,
    machine: String,
    residency: String,
    gpu_layers: String,
    exec: String,
    kv: String,
    context: u32,
    unbounded: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSteps {
    waits: String,
    digests: Vec<String>,
}

impl Record {
    /// The file's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.render(&hex(&self.content_digest())).into_bytes()
    }

    /// Digest of the record's content.
    pub fn content_digest(&self) -> [u8; 32] {
        blake3::derive_key(DOMAIN, self.render("").as_bytes())
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`RecordError`] for anything that [`Self::to_bytes`] does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            RecordError::Syntax(format!("byte {}: no UTF-8", error.valid_up_to()))
        })?;
        let raw: Raw = toml::from_str(text)
            .map_err(|error| RecordError::Syntax(error.message().to_owned()))?;
        if raw.schema != RECORD_SCHEMA {
            return Err(RecordError::Schema { found: raw.schema });
        }
        let found = raw.digest.clone();
        let record = Self::of_raw(raw)?;
        let expected = hex(&record.content_digest());
        if found != expected {
            return Err(RecordError::Digest { found, expected });
        }
        let again = record.to_bytes();
        if again != bytes {
            let differs = again.iter().zip(bytes).position(|(a, b)| a != b);
            let offset = differs.unwrap_or_else(|| again.len().min(bytes.len()));
            return Err(RecordError::NotCanonical { offset });
        }
        record.consistent()?;
        Ok(record)
    }

    fn of_raw(raw: Raw) -> Result<Self, RecordError> {
        let kind = Kind::ALL.iter().find(|row| row.1 == raw.kind);
        let kind = kind.ok_or_else(|| RecordError::Syntax(format!("kind {:?}", raw.kind)))?;
        let (waits, steps) = match raw.steps {
            Some(steps) => (steps.waits, steps.digests),
            None => (String::new(), Vec::new()),
        };
        let RawRecipe {
            model,
            file,
            quant,
            machine,
            residency,
            gpu_layers,
            exec,
            kv,
            context,
            unbounded,
        } = raw.recipe;
        let tokens = raw.tokens.as_ref();
        Ok(Self {
            kind: kind.0,
            recipe: Recipe {
                model,
                file,
                quant,
                machine,
                residency,
                gpu_layers,
                exec,
                kv,
                context,
                unbounded,
                prompt: tokens.map_or_else(Vec::new, |tokens| tokens.prompt.clone()),
                tokens: tokens.map_or(0, |tokens| tokens.asked),
            },
            refusal: raw.refusal,
            facts: Facts {
                identity: raw.identity.unwrap_or_default(),
                counts: raw.counts.unwrap_or_default(),
                encodings: raw.encoding,
                steps,
                waits,
            },
            tokens: raw.tokens,
            proof: raw.proof,
            provenance: raw.provenance,
            floors: raw.floor,
        })
    }

    /// Whether the record has exactly the parts of its kind, and its own parts agree.
    ///
    /// # Errors
    /// [`RecordError::Inconsistent`].
    pub fn consistent(&self) -> Result<(), RecordError> {
        let wrong = |text: &str| Err(RecordError::Inconsistent(text.to_owned()));
        let (whole, refused) = (self.kind == Kind::Whole, self.kind == Kind::Refused);
        for (what, text) in [
            ("model", &self.recipe.model),
            ("machine", &self.recipe.machine),
            ("residency", &self.recipe.residency),
        ] {
            recipe::name(what, text)
                .map_err(|error| RecordError::Inconsistent(error.to_string()))?;
        }
        recipe::path(&self.recipe.file)
            .map_err(|error| RecordError::Inconsistent(error.to_string()))?;
        if self.tokens.is_some() != whole || self.proof.is_some() != whole {
            return wrong("tokens and proof belong to a whole record, and to no other");
        }
        if self.refusal.is_some() != refused {
            return wrong("a refusal belongs to a refused record, and to no other");
        }
        if self.recipe.is_shape() && whole {
            return wrong("a shape without weights cannot be sealed whole");
        }
        if !whole && !self.floors.is_empty() {
            return wrong("a floor needs a record that ran");
        }
        let names: Vec<&str> = self.facts.encodings.iter().map(|e| &*e.transport).collect();
        let forms: &[&str] = if refused { &[] } else { &["aql", "pm4"] };
        if names != forms {
            return wrong("the encodings are aql and pm4, in this order");
        }
        let digests = crate::facts::step_digests(&self.facts.steps).len() as u64;
        if digests == 0 && !refused {
            return wrong("there are no steps");
        }
        let waits = self.facts.waits.split_whitespace();
        let invalidations = waits.clone().filter(|wait| wait.ends_with('a')).count() as u64;
        let counts = &self.facts.counts;
        if (waits.count() as u64, invalidations) != (counts.waits, counts.invalidations) {
            return wrong("the waits are not as many as are counted");
        }
        let slower = |floor: &Floor| floor.retained_mtok_s < floor.eager_mtok_s;
        if self.floors.iter().any(slower) {
            return wrong("a floor's retained form is slower than its eager run");
        }
        Ok(())
    }

    fn render(&self, digest: &str) -> String {
        let mut out = Text::default();
        out.line("# Sealed by `refrain golden seal`, checked by `refrain golden verify`; not edited by hand.");
        out.text("schema", RECORD_SCHEMA);
        out.text("digest", digest);
        out.text("kind", self.kind.name());
        if let Some(refusal) = &self.refusal {
            out.text("refusal", refusal);
        }
        self.render_recipe(&mut out);
        if self.kind != Kind::Refused {
            self.render_facts(&mut out);
        }
        if let Some(tokens) = &self.tokens {
            out.table("[tokens]");
            out.text("sampler", &tokens.sampler);
            let ids: Vec<String> = tokens.prompt.iter().map(u32::to_string).collect();
            out.raw("prompt", &format!("[{}]", ids.join(", ")));
            out.number("asked", u64::from(tokens.asked));
            out.number("generated", u64::from(tokens.generated));
            out.text("digest", &tokens.digest);
        }
        if let Some(proof) = &self.proof {
            out.table("[proof]");
            out.text("digest", &proof.digest);
            out.text("tool", &proof.tool);
        }
        out.table("[provenance]");
        out.text("sealed_with", &self.provenance.sealed_with);
        out.text("compiler", &self.provenance.compiler);
        out.text("evidence", &self.provenance.evidence);
        for floor in &self.floors {
            out.table("[[floor]]");
            out.text("card", &floor.card);
            out.text("report", &floor.report);
            out.number("retained_mtok_s", floor.retained_mtok_s);
            out.number("eager_mtok_s", floor.eager_mtok_s);
        }
        out.0
    }

    fn render_recipe(&self, out: &mut Text) {
        let recipe = &self.recipe;
        out.table("[recipe]");
        for (key, value) in [
            ("model", &recipe.model),
            ("file", &recipe.file),
            ("quant", &recipe.quant),
            ("machine", &recipe.machine),
            ("residency", &recipe.residency),
            ("gpu_layers", &recipe.gpu_layers),
            ("exec", &recipe.exec),
            ("kv", &recipe.kv),
        ] {
            out.text(key, value);
        }
        out.number("context", u64::from(recipe.context));
        out.raw("unbounded", if recipe.unbounded { "true" } else { "false" });
    }

    fn render_facts(&self, out: &mut Text) {
        let Facts {
            identity,
            counts,
            encodings,
            steps,
            waits,
        } = &self.facts;
        out.table("[identity]");
        for (key, value) in [
            ("plan", &identity.plan),
            ("model", &identity.model),
            ("structure", &identity.structure),
            ("schedule", &identity.schedule),
            ("artifacts", &identity.artifacts),
            ("sequence", &identity.sequence),
        ] {
            out.text(key, value);
        }
        out.table("[counts]");
        for (key, value) in [
            ("context", counts.context),
            ("bucket", counts.bucket),
            ("launches", counts.launches),
            ("barriers", counts.barriers),
            ("kernels", counts.kernels),
            ("waits", counts.waits),
            ("invalidations", counts.invalidations),
            ("device_bytes", counts.device_bytes),
            ("host_bytes", counts.host_bytes),
        ] {
            out.number(key, value);
        }
        for encoding in encodings {
            out.table("[[encoding]]");
            out.text("transport", &encoding.transport);
            out.text("policy", &encoding.policy);
            out.number("dwords", encoding.dwords);
            out.text("digest", &encoding.digest);
        }
        out.table("[steps]");
        out.text("waits", waits);
        out.line("# Layer, then four bytes of each step's digest.");
        out.line("digests = [");
        for line in steps {
            out.line(&format!("  {},", quoted(line)));
        }
        out.line("]");
    }
}

/// TOML as it is written here.
#[derive(Default)]
struct Text(String);

impl Text {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn table(&mut self, head: &str) {
        self.line("");
        self.line(head);
    }

    fn raw(&mut self, key: &str, value: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{key} = {value}");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    fn number(&mut self, key: &str, value: u64) {
        self.raw(key, &value.to_string());
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
