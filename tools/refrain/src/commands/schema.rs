//! `refrain schema`: the JSON schema of an output, generated from the types that are written.

use crate::bench::args::{SchemaArgs, SchemaOf};
use crate::bench::report::Report;
use crate::output;

pub(super) fn run(args: &SchemaArgs) -> anyhow::Result<()> {
    let schema = match args.output {
        SchemaOf::Bench => schemars::schema_for!(Report),
    };
    output::result(&(serde_json::to_string_pretty(&schema)? + "\n"))?;
    Ok(())
}
