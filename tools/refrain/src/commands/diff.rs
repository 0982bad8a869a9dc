//! `refrain diff`: where two plans part.

use crate::cli::{DiffArgs, Format};
use crate::exit::CliError;
use crate::{input, output};
use refrain_planner::Layer;
use refrain_planner::diff::{Difference, LayerDifference, diff};
use refrain_planner::identity::hex;
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<()> {
    let (first, second) = (
        input::open_plan(&args.first)?,
        input::open_plan(&args.second)?,
    );
    let found = diff(&first, &second);
    let text = match args.format {
        Format::Text => text(&found)?,
        Format::Json => {
            let value = json!({
                "first": hex(first.id()),
                "second": hex(second.id()),
                "layers": found.iter().map(layer).collect::<Vec<_>>(),
            });
            format!("{value}\n")
        }
    };
    output::result(&text)?;
    if found.is_empty() {
        return Ok(());
    }
    let layers: Vec<&str> = found.iter().map(|row| row.layer.name()).collect();
    Err(CliError::PlansDiffer {
        first: args.first.display().to_string(),
        second: args.second.display().to_string(),
        layers: layers.join(", "),
    }
    .into())
}

fn text(found: &[LayerDifference]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for layer in Layer::ALL {
        let row = found.iter().find(|row| row.layer == layer);
        let name = layer.name();
        match row {
            None => writeln!(text, "{name:<10} same")?,
            Some(row) => {
                writeln!(text, "{name:<10} differs at {}", sentence(&row.first))?;
                if let Some(step) = &row.step {
                    writeln!(text, "{:<10} first step: {}", "", sentence(step))?;
                }
            }
        }
    }
    Ok(text)
}

fn sentence(found: &Difference) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let text = format!(
        "{}: {} is {} and {}",
        found.place,
        found.field,
        value(&found.first),
        value(&found.second)
    );
    // Names come from files and must not steer a terminal.
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

fn layer(row: &LayerDifference) -> Value {
    let part = |found: &Difference| {
        json!({
            "place": found.place,
            "step": found.step,
            "field": found.field,
            "first": found.first,
            "second": found.second,
        })
    };
    json!({
        "layer": row.layer.name(),
        "difference": part(&row.first),
        "first_step": row.step.as_ref().map(part),
    })
}
