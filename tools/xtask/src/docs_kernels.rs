//! Generates `docs/kernels.md` from the catalog and the code objects' metadata.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol};
use refrain_kernels::{
    Access, ArgKind, Effect, Factor, Grid, KernelRow, Need, Op, Span, Term, WORDS, Writer, catalog,
};

use crate::bless::Generated;
use crate::manifest::{self, Built};
use crate::repo::Repo;

const PAGE: &str = "docs/kernels.md";

/// The page.
pub(crate) fn generate(repo: &Repo) -> Result<Vec<Generated>> {
    let all = manifest::objects(repo)?;
    let targets: Vec<Built> = all.into_iter().filter(Built::is_target).collect();
    let counted = String::from_utf8(repo.read(COUNTED)?)?;
    Ok(vec![(PAGE, page(&targets, &counted)?)])
}

/// Instructions per weight as the software GPU counted them: written by its test `kernels_cost`.
const COUNTED: &str = "kernels/objects/cost.txt";

fn page(objects: &[Built], counted: &str) -> Result<String> {
    let mut out = String::from(
        "# Kernels\n\nWritten by `cargo xtask bless` from the catalog (`kernels/src/rows.rs`) and \
         the code objects (`kernels/objects`).\nFormulas and summation orders stand in \
         `kernels/hip`.\n\n",
    );
    let compiler = &objects.first().context("no target")?.facts.compiler;
    writeln!(
        out,
        "Compiler: {compiler}. All kernels: wave32, no scratch, no spills.\n"
    )?;
    resources(&mut out, objects)?;
    weights(&mut out, objects, counted)?;
    control(&mut out)?;
    writeln!(out, "## Arguments and effects\n")?;
    writeln!(
        out,
        "Byte ranges are relative to the argument's pointer, and upper bounds. `imm` names are \
         immediates,\n`[word]` names are words of the control block.\n"
    )?;
    for row in catalog() {
        kernel(&mut out, row)?;
    }
    Ok(out)
}

fn resources(out: &mut String, objects: &[Built]) -> Result<()> {
    writeln!(out, "## Resources\n")?;
    write!(out, "| kernel | block | grid | kernarg B | LDS B |")?;
    for object in objects {
        write!(out, " {0} SGPR/VGPR |", object.isa)?;
    }
    writeln!(
        out,
        "\n|---|--:|---|--:|--:|{}",
        "--:|".repeat(objects.len())
    )?;
    for row in catalog() {
        let (bytes, lds) = (row.kernarg_bytes(), row.lds_bytes);
        write!(
            out,
            "| `{}` | {} | {} | {bytes} | {lds} |",
            row.symbol,
            row.block,
            grid(row)
        )?;
        for object in objects {
            let facts = object.facts.kernels.iter().find(|k| k.name == row.symbol);
            let facts = facts.with_context(|| format!("{} has no {}", object.isa, row.symbol))?;
            write!(out, " {}/{} |", facts.sgprs, facts.vgprs)?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    Ok(())
}

/// Kernels that read weights: bytes and wave-instructions per weight, and how wide they load.
fn weights(out: &mut String, objects: &[Built], counted: &str) -> Result<()> {
    writeln!(
        out,
        "## Weights\n\nBytes of the device layout per weight; vector loads of 16 bytes, and all \
         others, in the machine code of gfx1201;\nwave-instructions per weight, counted on the \
         software GPU at 32 rows of 4,096 columns (no time, and no\nGPU's): `kernels/objects/cost.txt`.\n"
    )?;
    writeln!(
        out,
        "| kernel | B / weight | 16-byte loads | other loads | gfx1100 | gfx1201 |\n\
         |---|--:|--:|--:|--:|--:|"
    )?;
    let object = objects.last().context("no target")?;
    let loads = loads(object)?;
    for row in catalog().iter().filter(|row| reads_weights(row)) {
        let Some(dtype) = row.dtype else { continue };
        let bytes = dtype.device_bytes(1, 256)? as f64 / 256.0;
        let (wide, other) = loads.get(row.symbol).copied().unwrap_or_default();
        let each = |target: &str| {
            let prefix = format!("{target} {} ", row.symbol);
            let mut lines = counted.lines();
            let found = lines.find_map(|line| line.strip_prefix(&prefix));
            found.unwrap_or("").to_owned()
        };
        writeln!(
            out,
            "| `{}` | {bytes:.4} | {wide} | {other} | {} | {} |",
            row.symbol,
            each("gfx1100"),
            each("gfx1201")
        )?;
    }
    writeln!(out)?;
    Ok(())
}

fn reads_weights(row: &KernelRow) -> bool {
    let mut effects = row.effects.iter();
    row.op != Op::Embed && effects.any(|effect| matches!(effect.span, Span::Activation(_)))
}

/// Vector loads of 16 bytes and others, by kernel.
fn loads(built: &Built) -> Result<BTreeMap<String, (usize, usize)>> {
    let file = object::File::parse(&*built.bytes)?;
    let text = file.section_by_name(".text").context("no .text")?;
    let target = refrain_softgpu::isa::Target::ALL
        .into_iter()
        .find(|target| target.name() == built.isa.name)
        .context("not a target of the software GPU")?;
    let lines = refrain_softgpu::isa::disassemble(target, text.address(), text.data()?)
        .map_err(|error| anyhow::anyhow!("{}: {error}", built.isa))?;
    let mut found = BTreeMap::new();
    for symbol in file.dynamic_symbols() {
        let range = symbol.address()..symbol.address() + symbol.size();
        let inside = lines.iter().filter(|line| range.contains(&line.address));
        let texts = inside.filter_map(|line| line.text.as_ref().ok());
        let loads: Vec<_> = texts
            .filter(|text| text.starts_with("global_load_"))
            .collect();
        let wide = loads
            .iter()
            .filter(|text| text.starts_with("global_load_b128"))
            .count();
        found.insert(symbol.name()?.to_owned(), (wide, loads.len() - wide));
    }
    Ok(found)
}

fn grid(row: &KernelRow) -> String {
    match row.grid {
        Grid::One => "1".into(),
        Grid::Rows { per_block } => format!("(r1 - r0) / {per_block}"),
        Grid::Elements { count, per_block } => format!("{count} / {per_block}"),
        Grid::Sum(names) => names.join(" + "),
        Grid::SumOf { counts, per_block } => format!("({}) / {per_block}", counts.join(" + ")),
        Grid::Product {
            counts,
            per_block: 1,
        } => counts.join(" * "),
        Grid::Product { counts, per_block } => format!("{} / {per_block}", counts.join(" * ")),
    }
}

fn control(out: &mut String) -> Result<()> {
    writeln!(
        out,
        "## Control block\n\n| offset | word | written by |\n|--:|---|---|"
    )?;
    for row in WORDS {
        let writer = match row.writer {
            Writer::Host => "host".into(),
            Writer::Kernels(symbols) => format!("host once, then `{}`", symbols.join("` or `")),
        };
        writeln!(out, "| {} | `{}` | {writer} |", row.offset, row.name)?;
    }
    writeln!(out)?;
    Ok(())
}

fn kernel(out: &mut String, row: &KernelRow) -> Result<()> {
    writeln!(out, "### `{}`\n", row.symbol)?;
    let args = row.layout().map(|(arg, offset)| {
        let kind = match arg.kind {
            ArgKind::Pointer(access) => access.name(),
            ArgKind::U32 => "u32",
            ArgKind::F32Bits => "f32 bits",
        };
        format!("{offset} `{}` {kind}", arg.name)
    });
    writeln!(out, "Kernarg: {}.", args.collect::<Vec<_>>().join(", "))?;
    if !row.needs.is_empty() {
        let needs: Vec<String> = row.needs.iter().map(need).collect();
        writeln!(out, "Needs: {}.", needs.join(", "))?;
    }
    if row.idle_when_done {
        writeln!(out, "Writes nothing once `done` is set.")?;
    }
    for (a, b) in row.may_alias {
        writeln!(out, "`{a}` and `{b}` may be the same address.")?;
    }
    for access in [Access::Read, Access::Write, Access::ReadWrite] {
        let effects = row.effects.iter().filter(|effect| effect.access == access);
        let spans: Vec<String> = effects
            .map(|effect| format!("`{}` {}", effect.arg, span(effect)))
            .collect();
        if !spans.is_empty() {
            let verb = match access {
                Access::Read => "Reads",
                Access::Write => "Writes",
                Access::ReadWrite => "Reads and writes",
            };
            writeln!(out, "{verb}: {}.", spans.join("; "))?;
        }
    }
    writeln!(out)?;
    Ok(())
}

fn need(need: &Need) -> String {
    match need {
        Need::Positive(a) => format!("{a} > 0"),
        Need::MultipleOf(a, n) => format!("{a} % {n} = 0"),
        Need::MultipleOfImm(a, b) => format!("{a} % {b} = 0"),
        Need::Below(a, b) => format!("{a} < {b}"),
        Need::AtMost(a, b) => format!("{a} <= {b}"),
        Need::Flag(a) => format!("{a} is 0 or 1"),
        Need::UpTo(a, n) => format!("{a} <= {n}"),
        Need::PowerOfTwo(a) => format!("{a} is a power of two"),
    }
}

fn span(effect: &Effect) -> String {
    match effect.span {
        Span::Bytes { start, end } => format!("{} .. {}", sum(start), sum(end)),
        Span::Plane {
            plane, start, end, ..
        } => format!("plane {plane}, rows {} .. {}", sum(start), sum(end)),
        Span::Matrix { rows, cols } => {
            format!("all of [{}][{}]", product(rows), product(&[cols]))
        }
        Span::Activation(count) => format!("{} elements", product(count)),
        Span::Word(word) => format!("word `{}`", word.name()),
        Span::NextRingEntry => "8 at ([seq] & [ring_mask]) * 8".into(),
    }
}

fn product(factors: &[Factor]) -> String {
    let factors = factors.iter().map(|factor| match factor {
        Factor::Imm(name) => (*name).to_owned(),
        Factor::Word(word) => format!("[{}]", word.name()),
    });
    factors.collect::<Vec<_>>().join(" * ")
}

fn sum(terms: &[Term]) -> String {
    if terms.is_empty() {
        return "0".into();
    }
    let terms = terms.iter().map(|term| {
        let mut text: Vec<String> = Vec::new();
        if term.times != 1 || term.factors.is_empty() {
            text.push(term.times.to_string());
        }
        if !term.factors.is_empty() {
            text.push(product(term.factors));
        }
        let over = if term.over == 1 {
            String::new()
        } else {
            format!(" / {}", term.over)
        };
        format!("{}{over}", text.join(" * "))
    });
    terms.collect::<Vec<_>>().join(" + ")
}
