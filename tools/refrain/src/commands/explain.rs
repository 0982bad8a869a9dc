//! `refrain explain`: the page of a refusal code, or the list of codes.

use crate::cli::ExplainArgs;
use crate::exit::CliError;
use crate::output;
use refrain_replay::{Code, refusal::TABLE};
use std::fmt::Write;

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let mut text = String::new();
    match &args.code {
        None => {
            for row in TABLE {
                writeln!(text, "{}  {}", row.code, row.title)?;
            }
        }
        Some(given) => {
            let Some(code) = Code::parse(given) else {
                let known = "run `refrain explain` for the list";
                return Err(CliError::Usage(format!("no refusal code {given:?}: {known}")).into());
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
