//! Records and verdicts in words.

use refrain_golden::{Check, Kind, Recipe, Record, State, Verified};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// A record in one line.
pub(super) fn in_a_line(record: &Record) -> String {
    let (identity, counts) = (&record.facts.identity, &record.facts.counts);
    let short = identity.sequence.get(..16).unwrap_or_default();
    match record.kind {
        Kind::Refused => format!("refused {}", record.refusal.as_deref().unwrap_or_default()),
        kind => format!(
            "{:<9} {short} {:>4} launches {:>4} waits",
            kind.name(),
            counts.launches,
            counts.waits
        ),
    }
}

/// Everything that a record holds, in lines.
pub(super) fn explain(record: &Record, text: &mut String) -> std::fmt::Result {
    let Record {
        recipe,
        facts,
        provenance,
        ..
    } = record;
    writeln!(text, "  kind        {}", record.kind.name())?;
    writeln!(
        text,
        "  model       {}{}",
        recipe.file,
        if recipe.is_shape() {
            ", without weights"
        } else {
            ""
        }
    )?;
    writeln!(
        text,
        "  plan        {}, {} of its layers on the GPU, {} for the others, KV {}",
        recipe.machine, recipe.gpu_layers, recipe.exec, recipe.kv
    )?;
    if let Some(code) = &record.refusal {
        writeln!(
            text,
            "  refused     {code}: the page is `refrain explain {code}`"
        )?;
    }
    if record.kind != Kind::Refused {
        identity(record, text)?;
    }
    for encoding in &facts.encodings {
        let (transport, dwords) = (&encoding.transport, encoding.dwords);
        writeln!(
            text,
            "  {transport:<11} {} ({dwords} dwords, {})",
            encoding.digest, encoding.policy
        )?;
    }
    if let Some(tokens) = &record.tokens {
        let (digest, sampler) = (&tokens.digest, &tokens.sampler);
        writeln!(
            text,
            "  tokens      {digest} ({} {sampler})",
            tokens.generated
        )?;
    }
    if let Some(proof) = &record.proof {
        writeln!(text, "  proof       {} by {}", proof.digest, proof.tool)?;
    }
    writeln!(text, "  compiler    {}", provenance.compiler)?;
    writeln!(
        text,
        "  evidence    {}, sealed with {}",
        provenance.evidence, provenance.sealed_with
    )?;
    match record.floors.is_empty() {
        true => writeln!(text, "  floors      none: no card was measured"),
        false => record.floors.iter().try_for_each(|floor| {
            writeln!(
                text,
                "  floor       {}: report {}",
                floor.card, floor.report
            )
        }),
    }
}

fn identity(record: &Record, text: &mut String) -> std::fmt::Result {
    let facts = &record.facts;
    let counts = &facts.counts;
    writeln!(
        text,
        "  per token   {} launches, {} kernels, {} waits ({} invalidate), context {}",
        counts.launches, counts.kernels, counts.waits, counts.invalidations, counts.context
    )?;
    let identity = &facts.identity;
    for (name, digest) in [
        ("plan", &identity.plan),
        ("model", &identity.model),
        ("structure", &identity.structure),
        ("schedule", &identity.schedule),
        ("artifacts", &identity.artifacts),
        ("sequence", &identity.sequence),
    ] {
        writeln!(text, "  {name:<11} {digest}")?;
    }
    Ok(())
}

/// A record's line in the output of `verify`.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    record: String,
    /// `layer: state`, in order.
    checks: Vec<String>,
    pub(super) mismatch: Option<String>,
    class: Option<&'static str>,
}

impl Row {
    pub(super) fn of(recipe: &Recipe, verified: &Verified) -> Self {
        let check = |check: &Check| {
            let state = match &check.state {
                State::Same => "same",
                State::Differs(_) => "differs",
                State::Skipped(why) => why,
            };
            format!("{}: {state}", check.layer.name())
        };
        let mismatch = verified.mismatch();
        Self {
            record: recipe.to_string(),
            checks: verified.checks.iter().map(check).collect(),
            mismatch: mismatch.map(ToString::to_string),
            class: mismatch.map(|mismatch| mismatch.class.name()),
        }
    }

    pub(super) fn absent(recipe: &Recipe) -> Self {
        Self {
            record: recipe.to_string(),
            checks: Vec::new(),
            mismatch: Some("the matrix names it and nothing is sealed".to_owned()),
            class: None,
        }
    }

    pub(super) fn stray(path: &Path) -> Self {
        Self {
            record: path.display().to_string(),
            checks: Vec::new(),
            mismatch: Some("the matrix does not name it".to_owned()),
            class: None,
        }
    }

    pub(super) fn in_words(&self) -> String {
        match &self.mismatch {
            Some(mismatch) => format!("DIFFERS {}\n  {mismatch}\n", self.record),
            None => format!("holds   {:<44} {}\n", self.record, self.checks.join(", ")),
        }
    }
}
