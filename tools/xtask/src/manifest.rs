//! What is generated from the code objects: `kernels/objects/manifest.toml` for people and tools,
//! `kernels/src/objects_table.rs` for the catalog. Both say the same.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use refrain_kernels::{ISAS, Isa, unpack};

use crate::metadata::{self, ObjectFacts};
use crate::repo::{self, Repo};

pub(crate) const MANIFEST: &str = "kernels/objects/manifest.toml";
pub(crate) const TABLE: &str = "kernels/src/objects_table.rs";

/// One architecture's object as it lies on disk.
pub(crate) struct Built {
    pub(crate) isa: &'static Isa,
    /// The unpacked object.
    pub(crate) bytes: Vec<u8>,
    /// Length of the packed one.
    pub(crate) packed: usize,
    pub(crate) digest: blake3::Hash,
    pub(crate) facts: ObjectFacts,
}

impl Built {
    /// Whether it is a target's own object, whose kernels are recorded one by one.
    pub(crate) fn is_target(&self) -> bool {
        self.isa == self.isa.like.isa()
    }
}

/// Reads every architecture's object. All must come from one compiler.
pub(crate) fn objects(repo: &Repo) -> Result<Vec<Built>> {
    let built: Vec<Built> = ISAS
        .iter()
        .map(|isa| {
            let path = repo.object(isa);
            let file = repo::read(&path)?;
            let bytes =
                unpack(&file).with_context(|| format!("{}: not a zlib stream", path.display()))?;
            let facts = metadata::read(&bytes).with_context(|| path.display().to_string())?;
            Ok(Built {
                isa,
                packed: file.len(),
                digest: blake3::hash(&bytes),
                bytes,
                facts,
            })
        })
        .collect::<Result<_>>()?;
    for pair in built.windows(2) {
        let (a, b) = (&pair[0].facts.compiler, &pair[1].facts.compiler);
        ensure!(
            a == b,
            "objects by two compilers, {a} and {b}: run cargo xtask kernels"
        );
    }
    Ok(built)
}

/// Both generated files. `sources` is the digest of the sources and flags that the objects were
/// built from.
pub(crate) fn render(objects: &[Built], sources: &str) -> Result<[(&'static str, String); 2]> {
    let compiler = &objects.first().context("no target")?.facts.compiler;
    Ok([
        (MANIFEST, manifest(objects, compiler, sources)?),
        (TABLE, table(objects, compiler)?),
    ])
}

/// The sources' digest that the committed manifest records.
pub(crate) fn recorded_sources(repo: &Repo) -> Result<String> {
    let text = String::from_utf8(repo.read(MANIFEST)?)?;
    let table: toml::Table = toml::from_str(&text).context(MANIFEST)?;
    let sources = table.get("sources").and_then(toml::Value::as_str);
    Ok(sources
        .with_context(|| format!("{MANIFEST} has no `sources`"))?
        .to_owned())
}

fn manifest(objects: &[Built], compiler: &str, sources: &str) -> Result<String> {
    let mut out = String::from("# Written by `cargo xtask kernels`.\n\n");
    writeln!(out, "compiler = \"{compiler}\"")?;
    writeln!(out, "flags = \"{}\"", crate::kernels::FLAGS.join(" "))?;
    writeln!(
        out,
        "# BLAKE3 over the flags and the names and bytes of kernels/hip"
    )?;
    writeln!(out, "sources = \"{sources}\"")?;
    for object in objects {
        writeln!(out, "\n[{}]", object.isa)?;
        writeln!(out, "blake3 = \"{}\"", object.digest.to_hex())?;
        writeln!(out, "bytes = {}", object.bytes.len())?;
        writeln!(out, "packed = {}", object.packed)?;
        for k in object.facts.kernels.iter().filter(|_| object.is_target()) {
            writeln!(
                out,
                "kernels.{} = {{ kernarg = {}, lds = {}, scratch = {}, sgprs = {}, vgprs = {} }}",
                k.name, k.kernarg_bytes, k.lds_bytes, k.scratch_bytes, k.sgprs, k.vgprs
            )?;
        }
    }
    Ok(out)
}

fn table(objects: &[Built], compiler: &str) -> Result<String> {
    let mut out = String::from(
        "//! table: what each code object's metadata says. Written by `cargo xtask kernels`.\n\n\
         use crate::KernelFacts;\nuse crate::objects::ObjectTable;\n\n\
         const fn facts(\n    symbol: &'static str,\n    kernarg_bytes: u32,\n    lds_bytes: u32,\n    \
         scratch_bytes: u32,\n    sgprs: u32,\n    vgprs: u32,\n) -> KernelFacts {\n    \
         KernelFacts {\n        symbol,\n        kernarg_bytes,\n        lds_bytes,\n        \
         scratch_bytes,\n        sgprs,\n        vgprs,\n    }\n}\n\n",
    );
    writeln!(out, "pub(crate) const COMPILER: &str = \"{compiler}\";")?;
    writeln!(
        out,
        "\n/// In the order of `ISAS`; kernels of the targets themselves.\n#[rustfmt::skip]\n\
         pub(crate) const OBJECTS: [&ObjectTable; {}] = [",
        objects.len()
    )?;
    for object in objects {
        writeln!(out, "    &{},", object.isa.name.to_uppercase())?;
    }
    writeln!(out, "];")?;
    for object in objects {
        let name = object.isa.name.to_uppercase();
        writeln!(
            out,
            "\n#[rustfmt::skip]\nconst {name}: ObjectTable = ObjectTable {{"
        )?;
        writeln!(out, "    digest: {:?},", object.digest.as_bytes())?;
        writeln!(out, "    kernels: &[")?;
        for k in object.facts.kernels.iter().filter(|_| object.is_target()) {
            writeln!(
                out,
                "        facts(\"{}\", {}, {}, {}, {}, {}),",
                k.name, k.kernarg_bytes, k.lds_bytes, k.scratch_bytes, k.sgprs, k.vgprs
            )?;
        }
        writeln!(out, "    ],\n}};")?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{objects, recorded_sources, render};
    use crate::kernels::source_digest;
    use crate::repo::Repo;

    #[test]
    fn generated_files_agree_with_the_objects() {
        let repo = Repo::of_this_crate();
        let sources = recorded_sources(&repo).unwrap();
        for (path, text) in render(&objects(&repo).unwrap(), &sources).unwrap() {
            assert_eq!(
                String::from_utf8(repo.read(path).unwrap()).unwrap(),
                text,
                "{path}"
            );
        }
    }

    #[test]
    fn objects_were_built_from_these_sources() {
        let repo = Repo::of_this_crate();
        assert_eq!(
            recorded_sources(&repo).unwrap(),
            source_digest(&repo).unwrap(),
            "kernels/hip changed after the objects were built: run cargo xtask kernels"
        );
    }
}
