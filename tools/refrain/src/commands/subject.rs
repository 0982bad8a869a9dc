//! What a command runs on: a model that is planned now, or a plan file with its model.

use crate::cli::CompileArgs;
use crate::exit::CliError;
use crate::input::{self, Kind};
use anyhow::Context;
use refrain_planner::compile;
use refrain_planner::container::CheckedPlan;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A plan and the model that its weights come from.
pub(super) struct Subject {
    pub(super) plan: Arc<CheckedPlan>,
    pub(super) model: PathBuf,
}

/// Refuses early what is neither a model nor a plan, before a device is opened.
pub(super) fn check(path: &Path) -> anyhow::Result<()> {
    match input::kind(path)? {
        Kind::Plan => input::require_weights(&input::open_plan(path)?).map_err(Into::into),
        Kind::Other => input::open_model(path).map(drop),
        Kind::Tape => Err(CliError::Kind {
            path: path.display().to_string(),
            found: "tape",
            takes: "a model or a plan",
        }
        .into()),
    }
}

/// Opens a plan, or plans a model for `target` unless a machine is named.
pub(super) fn open(
    path: &Path,
    choices: &CompileArgs,
    model_file: Option<&Path>,
    target: &str,
) -> anyhow::Result<Subject> {
    if input::kind(path)? == Kind::Plan {
        super::run::fixed_by_plan(choices, path)?;
        let plan = input::open_plan(path)?;
        input::require_weights(&plan)?;
        let model = input::model_of(&plan, path, model_file)?;
        let plan = Arc::new(plan);
        return Ok(Subject { plan, model });
    }
    let source = input::open_model(path)?;
    let machine = super::profile(choices, target)?;
    let plan = compile(&source, &machine, &super::compile_options(choices)?)
        .with_context(|| path.display().to_string())?;
    Ok(Subject {
        plan: Arc::new(plan),
        model: path.to_owned(),
    })
}
