//! `refrain golden seal`: makes records again from their recipes, one command for all of them.

use super::Home;
use super::show::in_a_line;
use crate::cli::SealArgs;
use crate::output;
use refrain_golden::{SealError, seal};
use refrain_replay::Refusal;
use refrain_replay::refusal::Code;
use std::process::Command;
use std::time::Instant;

pub(super) fn run(home: &Home, args: &SealArgs) -> anyhow::Result<()> {
    let recipes = home.chosen(&args.records, args.all)?;
    if !args.allow_dirty {
        clean(home)?;
    }
    let world = home.world();
    for recipe in recipes {
        let start = Instant::now();
        let before = match args.reprove {
            true => None,
            false => home.registry.proof(recipe)?,
        };
        let sealed = seal(recipe, &world, before).map_err(refusal)?;
        let path = home.registry.record_path(recipe);
        // A record that cannot be read is replaced like one that differs.
        let old = home.registry.record(recipe).ok().flatten();
        let same = old.as_ref() == Some(&sealed.record);
        let state = match (args.dry_run, same) {
            (_, true) => "unchanged",
            (true, false) => "would be written",
            (false, false) => "written",
        };
        if !args.dry_run {
            home.registry
                .write(&sealed.record, sealed.proof.as_deref())?;
        }
        let (shown, seconds) = (path.display(), start.elapsed().as_secs_f64());
        let line = in_a_line(&sealed.record);
        output::result(&format!("{shown}: {state}, {line}\n"))?;
        output::note(&format!("{recipe}: {seconds:.1} s"));
    }
    Ok(())
}

/// What says that a record may not be is a refusal; what could not be asked is an error.
fn refusal(error: SealError) -> anyhow::Error {
    match error {
        SealError::Nondeterministic { .. }
        | SealError::NoTokens
        | SealError::Unproved(_)
        | SealError::Record(_) => Refusal::new(Code::SealRefused, error).into(),
        SealError::ShareNotPinned => Refusal::new(Code::ShareNotPinned, error).into(),
        other => other.into(),
    }
}

/// Uncommitted changes outside the registry could not be named by a record. Outside of a git
/// repository nothing can be said, and nothing is demanded.
fn clean(home: &Home) -> anyhow::Result<()> {
    let arguments = [
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ".",
        ":!golden/registry",
    ];
    let status = Command::new("git")
        .arg("-C")
        .arg(&home.root)
        .args(arguments)
        .output();
    let changed = match status {
        Ok(status) if status.status.success() => {
            String::from_utf8_lossy(&status.stdout).into_owned()
        }
        _ => return Ok(()),
    };
    match changed.lines().next() {
        None => Ok(()),
        Some(first) => {
            let (count, first) = (changed.lines().count(), first.trim());
            let detail = format!(
                "the working tree has {count} uncommitted changes, the first: {first}; commit them, or say --allow-dirty"
            );
            Err(Refusal::new(Code::SealRefused, detail).into())
        }
    }
}
