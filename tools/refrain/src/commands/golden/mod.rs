//! `refrain golden`: list, verify, seal, explain, package and reproduce sealed records.

mod archive;
mod seal;
mod show;
mod world;

use crate::cli::{Format, GoldenArgs, GoldenCommand, VerifyArgs};
use crate::exit::CliError;
use crate::output;
use refrain_golden::{Matrix, Recipe, Registry, Route, verify};
use refrain_lower::Transport;
use refrain_replay::prove::ProveOptions;
use show::{Row, explain, in_a_line};
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
        let is =
            |recipe: &Recipe, name: &String| *name == recipe.model || *name == recipe.to_string();
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
        output::note(&format!(
            "{} of {all} records hold, {seconds:.1} s",
            all - failed
        ));
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
