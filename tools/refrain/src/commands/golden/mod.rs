//! `refrain golden`: list, verify, seal, explain, package and reproduce sealed records.

mod archive;
mod seal;
mod world;

use crate::cli::{Format, GoldenArgs, GoldenCommand, VerifyArgs};
use crate::exit::CliError;
use crate::output;
use refrain_golden::{Kind, Matrix, Recipe, Record, Registry, Route, State, Verified, verify};
use refrain_lower::Transport;
use refrain_replay::prove::ProveOptions;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use world::Files;

/// The registry below a root.
const FOLDER: &str = "golden/registry";

pub(super) fn run(args: &GoldenArgs) -> anyhow::Result<()> {
    match &args.command {
        GoldenCommand::Reproduce(reproduce) => archive::reproduce(reproduce),
        command => {
            let home = Home::find(args.root.as_deref())?;
            match command {
                GoldenCommand::List => home.list(),
                GoldenCommand::Verify(args) => home.verify(args),
                GoldenCommand::Seal(args) => seal::run(&home, args),
                GoldenCommand::Explain { record } => home.explain(record),
                GoldenCommand::Package(args) => archive::package(&home, args),
                GoldenCommand::Reproduce(args) => archive::reproduce(args),
            }
        }
    }
}

/// The root of models and registry.
pub(super) struct Home {
    root: PathBuf,
    registry: Registry,
    matrix: Matrix,
}

impl Home {
    /// The root given, or the nearest folder upwards that holds a registry.
    fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        let root = match given {
            Some(root) => root.to_owned(),
            None => {
                let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
                let holds = |folder: &&Path| folder.join(FOLDER).join("matrix.toml").is_file();
                let found = here.ancestors().find(holds);
                let none = || CliError::NoInput {
                    path: format!("{FOLDER}/matrix.toml, here or above; name its root with --root"),
                };
                found.ok_or_else(none)?.to_owned()
            }
        };
        let registry = Registry::at(root.join(FOLDER));
        let matrix = registry.matrix()?;
        Ok(Self {
            root,
            registry,
            matrix,
        })
    }

    fn world(&self) -> Files {
        Files {
            root: self.root.clone(),
            model: None,
            prove: ProveOptions::default(),
        }
    }

    /// The recipes named, as `MODEL` or `MODEL/CELL`, or all.
    fn chosen(&self, names: &[String], all: bool) -> anyhow::Result<Vec<&Recipe>> {
        if names.is_empty() && !all {
            let text = "name records as MODEL or MODEL/MACHINE-RESIDENCY, or say --all".to_owned();
            return Err(CliError::Usage(text).into());
        }
        let is = |recipe: &Recipe, name: &String| *name == recipe.model || *name == recipe.to_string();
        for name in names {
            if !self.matrix.recipes.iter().any(|recipe| is(recipe, name)) {
                let text = format!("no record {name:?}: `refrain golden list` names them");
                return Err(CliError::Usage(text).into());
            }
        }
        let recipes = self.matrix.recipes.iter();
        let wanted = |recipe: &&Recipe| all || names.iter().any(|name| is(recipe, name));
        Ok(recipes.filter(wanted).collect())
    }

    fn list(&self) -> anyhow::Result<()> {
        let mut text = String::new();
        for recipe in &self.matrix.recipes {
            let line = match self.registry.record(recipe)? {
                None => "not sealed".to_owned(),
                Some(record) => in_a_line(&record),
            };
            writeln!(text, "{recipe:<44} {line}")?;
        }
        Ok(output::result(&text)?)
    }

    fn verify(&self, args: &VerifyArgs) -> anyhow::Result<()> {
        let routes: &[Route] = match (args.no_tokens, args.all_routes) {
            (true, _) => &[],
            (false, false) => &[Route::Retained(Transport::Pm4)],
            (false, true) => &Route::ALL,
        };
        let (world, start) = (self.world(), Instant::now());
        let mut rows = Vec::new();
        for recipe in self.chosen(&args.records, args.all)? {
            let Some(record) = self.registry.record(recipe)? else {
                rows.push(Row::absent(recipe));
                continue;
            };
            if args.dry_run {
                output::note(&format!("would verify {recipe}: {}", in_a_line(&record)));
                continue;
            }
            let proof = self.registry.proof(recipe)?;
            let verified = verify(&record, proof.as_deref(), &world, routes)?;
            rows.push(Row::of(recipe, &verified));
        }
        if args.all {
            let strays = self.registry.strays(&self.matrix)?;
            rows.extend(strays.iter().map(|path| Row::stray(path)));
        }
        let text = match args.format {
            Format::Json => serde_json::to_string(&rows)? + "\n",
            Format::Text => rows.iter().map(Row::in_words).collect(),
        };
        output::result(&text)?;
        let failed = rows.iter().filter(|row| row.mismatch.is_some()).count();
        let seconds = start.elapsed().as_secs_f64();
        let all = rows.len();
        output::note(&format!("{} of {all} records hold, {seconds:.1} s", all - failed));
        match failed {
            0 => Ok(()),
            _ => Err(CliError::GoldenDiffers { failed, all }.into()),
        }
    }

    fn explain(&self, name: &str) -> anyhow::Result<()> {
        let mut text = String::new();
        for recipe in self.chosen(&[name.to_owned()], false)? {
            writeln!(text, "{recipe}")?;
            match self.registry.record(recipe)? {
                None => writeln!(text, "  not sealed")?,
                Some(record) => explain(&record, &mut text)?,
            }
        }
        Ok(output::result(&text)?)
    }
}

fn in_a_line(record: &Record) -> String {
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

fn explain(record: &Record, text: &mut String) -> std::fmt::Result {
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
        if recipe.is_shape() { ", without weights" } else { "" }
    )?;
    writeln!(
        text,
        "  plan        {}, {} of its layers on the GPU, {} for the others, KV {}",
        recipe.machine, recipe.gpu_layers, recipe.exec, recipe.kv
    )?;
    if let Some(code) = &record.refusal {
        writeln!(text, "  refused     {code}: the page is `refrain explain {code}`")?;
    }
    if record.kind != Kind::Refused {
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
    }
    for encoding in &facts.encodings {
        let (transport, dwords) = (&encoding.transport, encoding.dwords);
        writeln!(text, "  {transport:<11} {} ({dwords} dwords, {})", encoding.digest, encoding.policy)?;
    }
    if let Some(tokens) = &record.tokens {
        let (digest, sampler) = (&tokens.digest, &tokens.sampler);
        writeln!(text, "  tokens      {digest} ({} {sampler})", tokens.generated)?;
    }
    if let Some(proof) = &record.proof {
        writeln!(text, "  proof       {} by {}", proof.digest, proof.tool)?;
    }
    writeln!(text, "  compiler    {}", provenance.compiler)?;
    writeln!(text, "  evidence    {}, sealed with {}", provenance.evidence, provenance.sealed_with)?;
    match record.floors.is_empty() {
        true => writeln!(text, "  floors      none: no card was measured"),
        false => record.floors.iter().try_for_each(|floor| {
            writeln!(text, "  floor       {}: report {}", floor.card, floor.report)
        }),
    }
}

/// A record's line in the output of `verify`.
#[derive(Debug, Serialize)]
struct Row {
    record: String,
    /// `layer: state`, in order.
    checks: Vec<String>,
    mismatch: Option<String>,
    class: Option<&'static str>,
}

impl Row {
    fn of(recipe: &Recipe, verified: &Verified) -> Self {
        let check = |check: &refrain_golden::Check| {
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

    fn absent(recipe: &Recipe) -> Self {
        Self {
            record: recipe.to_string(),
            checks: Vec::new(),
            mismatch: Some("the matrix names it and nothing is sealed".to_owned()),
            class: None,
        }
    }

    fn stray(path: &Path) -> Self {
        Self {
            record: path.display().to_string(),
            checks: Vec::new(),
            mismatch: Some("the matrix does not name it".to_owned()),
            class: None,
        }
    }

    fn in_words(&self) -> String {
        match &self.mismatch {
            Some(mismatch) => format!("DIFFERS {}\n  {mismatch}\n", self.record),
            None => format!("holds   {:<44} {}\n", self.record, self.checks.join(", ")),
        }
    }
}
