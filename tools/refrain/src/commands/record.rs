//! `refrain record`: a plan is recorded at three positions by two executors, reconciled, and its
//! tape kept as a finished file or none.

use crate::cli::RecordArgs;
use crate::{input, output};
use anyhow::Context;
use refrain_recorder::{EmbeddedObjects, FileSource, file};
use std::sync::Arc;

pub(super) fn run(args: &RecordArgs) -> anyhow::Result<()> {
    let plan = Arc::new(input::open_plan(&args.plan)?);
    input::require_weights(&plan)?;
    let model = input::model_of(&plan, &args.plan, args.model_file.as_deref())?;
    super::not_an_input(&args.output, &[&args.plan, &model])?;
    let source = FileSource::open(&model).with_context(|| model.display().to_string())?;
    for file in source.paths() {
        super::not_an_input(&args.output, &[file])?;
    }
    let opened = super::open_device(&args.device, None)?;
    let reconciled = refrain_replay::record(&opened, &plan, &source, &EmbeddedObjects)?;
    file::store(&args.output, reconciled.recording())?;
    output::note(&format!(
        "{}: {} launches at positions {:?} by {} executors on {}, reconciled with plan {}",
        args.output.display(),
        plan.steps.len(),
        reconciled.recording().positions(),
        reconciled.recording().executors(),
        opened.spec,
        refrain_planner::identity::hex(plan.id()),
    ));
    Ok(())
}
