//! `refrain explain`: what a plan costs, the page of a refusal code, or the list of codes.

use crate::cli::ExplainArgs;
use crate::exit::CliError;
use crate::{input, output};
use refrain_replay::{Code, refusal::TABLE};
use std::fmt::Write;
use std::path::Path;

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let mut text = String::new();
    match &args.subject {
        None => {
            for row in TABLE {
                writeln!(text, "{}  {}", row.code, row.title)?;
            }
        }
        Some(given) if Code::parse(given).is_none() && Path::new(given).exists() => {
            text = refrain_planner::explain(&input::open_plan(Path::new(given))?);
        }
        Some(given) => {
            let Some(code) = Code::parse(given) else {
                let known = "run `refrain explain` for the list of codes";
                let what = format!("no plan file and no refusal code {given:?}: {known}");
                return Err(CliError::Usage(what).into());
            };
            let row = code.row();
            writeln!(
                text,
                "{code}: {}\n\n{}\n\nWhat to do: {}",
                row.title, row.page, row.remedy
            )?;
        }
    }
    Ok(output::result(&text)?)
}
