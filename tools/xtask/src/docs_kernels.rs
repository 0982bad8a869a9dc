//! Generates `docs/kernels.md` from the catalog and the code objects' metadata.

use std::fmt::Write;

use anyhow::{Context, Result};
use refrain_kernels::{
    Access, ArgKind, Effect, Factor, Grid, KernelRow, Need, Span, Term, WORDS, Writer, catalog,
};

use crate::bless::Generated;
use crate::manifest::{self, Built};
use crate::repo::Repo;

const PAGE: &str = "docs/kernels.md";

/// The page.
pub(crate) fn generate(repo: &Repo) -> Result<Vec<Generated>> {
    Ok(vec![(PAGE, page(&manifest::objects(repo)?)?)])
}

fn page(objects: &[Built]) -> Result<String> {
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
        write!(out, " {0} SGPR/VGPR |", object.target)?;
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
            let facts =
                facts.with_context(|| format!("{} has no {}", object.target, row.symbol))?;
            write!(out, " {}/{} |", facts.sgprs, facts.vgprs)?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    Ok(())
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
