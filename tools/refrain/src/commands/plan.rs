//! `refrain plan`: a model file becomes a plan file.

use crate::cli::PlanArgs;
use crate::{input, output};
use anyhow::Context;
use refrain_planner::{compile, durable};
use refrain_replay::DeviceSpec;

pub(super) fn run(args: &PlanArgs) -> anyhow::Result<()> {
    super::not_an_input(&args.output, &[&args.model])?;
    let machine = super::machine(&args.compile, DeviceSpec::DEFAULT_SOFT.name())?;
    let source = input::open_model(&args.model)?;
    let plan = compile(&source, &machine, &super::compile_options(&args.compile))
        .with_context(|| args.model.display().to_string())?;
    let bytes = plan.to_bytes();
    durable::write(&args.output, &bytes)?;
    output::note(&format!(
        "{}: {} steps for {}, {} bytes, plan {}, sequence {}",
        args.output.display(),
        plan.steps.len(),
        plan.machine.target,
        bytes.len(),
        refrain_planner::identity::hex(plan.id()),
        plan.identity().sequence,
    ));
    Ok(())
}
