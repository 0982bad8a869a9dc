//! `cargo xtask bless`: one table of generators, each from committed files to committed files.

use std::io::Write;

use anyhow::{Context, Result, ensure};

use crate::repo::{self, Repo};
use crate::{docs_kernels, manifest};

/// A generated file: path in the repository and contents.
pub(crate) type Generated = (&'static str, String);

/// Makes a generator's files, without writing them.
type Generate = fn(&Repo) -> Result<Vec<Generated>>;

/// What can be regenerated. A new generated file is a new row.
const GENERATORS: [(&str, Generate); 4] = [
    ("kernel manifest and table", kernel_tables),
    ("kernel page", docs_kernels::generate),
    ("packet page", packet_page),
    ("instruction coverage page", coverage_page),
];

fn packet_page(_: &Repo) -> Result<Vec<Generated>> {
    Ok(vec![("docs/packets.md", refrain_packet::docs::markdown())])
}

fn coverage_page(_: &Repo) -> Result<Vec<Generated>> {
    let page = refrain_softgpu::isa::coverage::markdown();
    Ok(vec![("docs/isa-coverage.md", page)])
}

/// The sources' digest is kept: only a build may vouch for it.
fn kernel_tables(repo: &Repo) -> Result<Vec<Generated>> {
    let sources = manifest::recorded_sources(repo)?;
    Ok(manifest::render(&manifest::objects(repo)?, &sources)?.into())
}

/// Writes every generated file, or with `check` compares.
pub(crate) fn run(repo: &Repo, check: bool, out: &mut impl Write) -> Result<()> {
    let mut stale = Vec::new();
    for (name, generate) in GENERATORS {
        for (path, text) in generate(repo).with_context(|| name.to_owned())? {
            if repo.read(path).is_ok_and(|bytes| bytes == text.as_bytes()) {
                continue;
            }
            if check {
                stale.push(path);
            } else {
                repo::write(&repo.path(path), text.as_bytes())?;
                writeln!(out, "wrote {path}")?;
            }
        }
    }
    ensure!(
        stale.is_empty(),
        "stale: {}; run cargo xtask bless",
        stale.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::run;
    use crate::repo::Repo;

    #[test]
    fn committed_files_are_fresh() {
        run(&Repo::of_this_crate(), true, &mut Vec::new()).unwrap();
    }

    #[test]
    fn a_repository_without_objects_is_an_error() {
        let empty = tempfile::tempdir().unwrap();
        let error = run(&Repo::at(empty.path()), true, &mut Vec::new()).unwrap_err();
        assert!(format!("{error:#}").contains("manifest.toml"), "{error:#}");
    }
}
