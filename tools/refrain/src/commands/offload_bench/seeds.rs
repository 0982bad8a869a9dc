//! Seeds in a machine profile: the tables `[[offload]]` at its end, which the planner passes over.

use super::shown;
use crate::exit::CliError;
use crate::input;
use anyhow::Context;
use refrain_offload::share::Seeds;
use refrain_planner::durable;
use refrain_planner::machine::Machine;
use std::path::Path;

/// Longest profile that is read, in bytes.
const PROFILE_BYTES: u64 = 64 << 10;

/// First line of what this command writes.
const HEADING: &str =
    "# Written by `refrain offload-bench --write`: where controllers start; pins nothing.";

/// Refuses a file that is no machine profile, before anything is measured.
pub(super) fn check_profile(path: &Path) -> anyhow::Result<()> {
    read(path).map(drop)
}

/// Replaces the profile's seeds.
pub(super) fn store(path: &Path, seeds: &Seeds) -> anyhow::Result<()> {
    let text = with_seeds(&read(path)?, seeds)?;
    Machine::parse(&shown(path), &text)?;
    Ok(durable::write(path, text.as_bytes())?)
}

fn read(path: &Path) -> anyhow::Result<String> {
    let bytes = input::read_up_to(path, PROFILE_BYTES)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        CliError::Usage(format!(
            "{} is no text; give a machine profile",
            path.display()
        ))
    })?;
    Machine::parse(&shown(path), &text)?;
    Ok(text)
}

/// The text without what an earlier run wrote, and the new seeds at its end.
fn with_seeds(text: &str, seeds: &Seeds) -> anyhow::Result<String> {
    let kept = match text.find(HEADING) {
        Some(at) => &text[..at],
        None => text,
    };
    anyhow::ensure!(
        !kept.contains("[[offload]]"),
        "the profile has [[offload]] tables that this command did not write; remove them"
    );
    seeds.check()?;
    let tables = toml::to_string(seeds).context("seeds as text")?;
    Ok(format!("{}\n\n{HEADING}\n{tables}", kept.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::with_seeds;
    use refrain_offload::share::{Form, Kind, Seed, Seeds};
    use refrain_planner::machine::Machine;

    fn seeds(share: f64) -> Seeds {
        let seed = Seed {
            dtype: "q8_0".into(),
            k: 192,
            form: Form::Residual,
            rows: 512,
            kind: Kind::Split,
            share,
            pcie_ns: Some(5),
            cpu_ns: None,
            split_ns: Some(4),
            spread: 0.01,
        };
        Seeds {
            offload: vec![seed.clone(), seed],
        }
    }

    #[test]
    fn seeds_stand_at_the_end_of_a_profile_and_are_replaced() {
        let machine = Machine::load("gfx1201").unwrap();
        let text = machine.to_toml();
        let once = with_seeds(&text, &seeds(0.25)).unwrap();
        let twice = with_seeds(&once, &seeds(0.5)).unwrap();
        assert_eq!(twice.matches("[[offload]]").count(), 2);
        assert!(twice.contains("share = 0.5") && !twice.contains("share = 0.25"));
        assert!(twice.starts_with(text.trim_end()));
        let read = Machine::parse("seeded", &twice).unwrap();
        assert_eq!(read.to_toml(), text, "the planner's profile is the same");
        assert!(with_seeds("[[offload]]", &seeds(0.5)).is_err());
        assert!(with_seeds(&text, &seeds(1.5)).is_err());
    }
}
