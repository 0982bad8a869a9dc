//! `refrain plan`: a model, or its head alone, becomes a plan file.

use crate::cli::PlanArgs;
use crate::{input, output};
use anyhow::Context;
use refrain_planner::source::OpenOptions;
use refrain_planner::{compile, durable, fill};
use refrain_replay::DeviceSpec;

pub(super) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    super::not_an_input(&args.output, &[&args.model])?;
    let machine = super::profile(&args.compile, DeviceSpec::DEFAULT_SOFT.name())?;
    let options = OpenOptions {
        header_only: args.header_only,
        recipe: args.recipe,
    };
    let source = input::open_model_with(&args.model, options)?;
    for file in source.paths() {
        super::not_an_input(&args.output, &[&file])?;
    }
    let plan = match &args.fill {
        None => compile(&source, &machine, &super::compile_options(&args.compile)?),
        Some(path) => {
            super::not_an_input(&args.output, &[path])?;
            fill(&input::open_plan(path)?, &source)
        }
    };
    let plan = plan.with_context(|| args.model.display().to_string())?;
    let bytes = plan.to_bytes();
    durable::write(&args.output, &bytes)?;
    output::note(&format!(
        "{}: {} steps for {}, {} bytes, plan {}, sequence {}{}",
        args.output.display(),
        plan.steps.len(),
        plan.machine.target,
        bytes.len(),
        refrain_planner::identity::hex(plan.id()),
        plan.identity().sequence,
        match plan.model.has_weights() {
            true => "",
            false => "; weights: absent, the plan cannot run",
        },
    ));
    Ok(())
}
