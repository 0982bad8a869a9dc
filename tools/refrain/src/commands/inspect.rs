//! `refrain inspect`: what a plan file holds.

use crate::cli::InspectArgs;
use crate::{input, output};

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<()> {
    let plan = input::open_plan(&args.file)?;
    Ok(output::result(&refrain_planner::inspect(&plan))?)
}
