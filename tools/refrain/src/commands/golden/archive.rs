//! `refrain golden package` and `reproduce`: one file for another machine, and that machine's word.

use super::{FOLDER, Home, world::Files};
use crate::cli::{PackageArgs, ReproduceArgs};
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use refrain_golden::archive::{ARCHIVE_BYTES_MAX, Archive};
use refrain_golden::{Grade, Kind, Planned, Record, Route, World, attest};
use refrain_planner::container::CheckedPlan;
use refrain_planner::durable;
use refrain_planner::identity::hex;
use refrain_replay::prove::ProveOptions;
use std::path::PathBuf;

const RECORD: &str = "record.toml";
const PROOF: &str = "proof.json";
const PLAN: &str = "model.plan";
const ENVIRONMENT: &str = "environment.txt";

pub(super) fn package(home: &Home, args: &PackageArgs) -> anyhow::Result<()> {
    let recipes = home.chosen(std::slice::from_ref(&args.record), false)?;
    let [recipe] = recipes[..] else {
        let text = format!(
            "{} names several records; add the machine and residency",
            args.record
        );
        return Err(CliError::Usage(text).into());
    };
    let absent = || CliError::NoInput {
        path: home.registry.record_path(recipe).display().to_string(),
    };
    let record = home.registry.record(recipe)?.ok_or_else(absent)?;
    let world = home.world();
    let mut archive = Archive::default();
    archive.add(RECORD, record.to_bytes());
    if let Some(proof) = home.registry.proof(recipe)? {
        archive.add(PROOF, proof);
    }
    if let Planned::Plan(plan) = world.plan(recipe).map_err(anyhow::Error::from_boxed)? {
        let (sealed, found) = (&record.facts.identity.plan, plan.id_hex());
        if *sealed != found {
            let text = format!("{recipe}: plan {found}, sealed {sealed}; run golden verify");
            return Err(CliError::Golden(text).into());
        }
        archive.add(PLAN, plan.to_bytes());
        for kernel in &plan.kernels {
            if let Some(bytes) = world.object(&kernel.object) {
                archive.add(
                    &format!("objects/{}.co", hex(&kernel.object)),
                    bytes.to_vec(),
                );
            }
        }
    }
    archive.add(ENVIRONMENT, environment(&record).into_bytes());
    let bytes = archive.to_bytes()?;
    let names: Vec<&str> = archive.names().collect();
    let (shown, names) = (args.output.display(), names.join(", "));
    if args.dry_run {
        output::note(&format!(
            "would write {shown}: {} bytes, {names}",
            bytes.len()
        ));
        return Ok(());
    }
    durable::write(&args.output, &bytes)?;
    output::note(&format!("{shown}: {} bytes, {names}", bytes.len()));
    Ok(())
}

/// Advisory: no digest of identity depends on it.
fn environment(record: &Record) -> String {
    let provenance = &record.provenance;
    format!(
        "program {}\ncompiler {}\nevidence {}\nmodel {}\n",
        provenance.sealed_with, provenance.compiler, provenance.evidence, record.recipe.file
    )
}

pub(super) fn reproduce(args: &ReproduceArgs) -> anyhow::Result<()> {
    let shown = || args.archive.display().to_string();
    let bytes = input::read_up_to(&args.archive, ARCHIVE_BYTES_MAX)?;
    let archive = Archive::from_bytes(&bytes).with_context(shown)?;
    let record = Record::from_bytes(archive.needed(RECORD)?).with_context(shown)?;
    checked(&archive, &record).with_context(shown)?;
    let model = model(args, &record)?;
    if args.dry_run {
        let (recipe, model) = (&record.recipe, model.display());
        output::note(&format!(
            "would plan {model} as {recipe} and run it by every route"
        ));
        return Ok(());
    }
    let world = Files {
        root: PathBuf::from("."),
        model: Some(model),
        prove: ProveOptions::default(),
    };
    let found = attest(&record, archive.file(PROOF), &world, &Route::ALL)?;
    let why = match &found.mismatch {
        Some(mismatch) => format!(": {mismatch}"),
        None => String::new(),
    };
    output::result(&format!("{} {}{why}\n", record.recipe, found.grade.name()))?;
    match found.grade {
        Grade::Failed => Err(CliError::GoldenDiffers { failed: 1, all: 1 }.into()),
        Grade::Exact | Grade::RouteCompatible => Ok(()),
    }
}

/// The archive's plan and code objects must be those that its own record names.
fn checked(archive: &Archive, record: &Record) -> anyhow::Result<()> {
    if record.kind == Kind::Refused {
        return Ok(());
    }
    let plan = CheckedPlan::from_bytes(archive.needed(PLAN)?)?;
    let (sealed, found) = (&record.facts.identity.plan, plan.id_hex());
    if *sealed != found {
        let text =
            format!("the archive's plan is {found}, its record names {sealed}; package it again");
        return Err(CliError::Golden(text).into());
    }
    for kernel in &plan.kernels {
        let name = format!("objects/{}.co", hex(&kernel.object));
        let digest = archive
            .file(&name)
            .map(|bytes| *blake3::hash(bytes).as_bytes());
        if digest != Some(kernel.object) {
            let text = format!("{name} is absent or another; package it again");
            return Err(CliError::Golden(text).into());
        }
    }
    Ok(())
}

/// The model given, or the record's file here.
fn model(args: &ReproduceArgs, record: &Record) -> anyhow::Result<PathBuf> {
    if let Some(model) = &args.model_file {
        return Ok(model.clone());
    }
    let file = PathBuf::from(&record.recipe.file);
    if file.exists() {
        return Ok(file);
    }
    let text = format!(
        "no {} below {FOLDER}'s root here: name the model with --model-file",
        record.recipe.file
    );
    Err(CliError::Usage(text).into())
}
