//! `llvm-objdump -d` text of a code object, as kernels and instructions.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

const OBJDUMP: &str = "llvm-objdump-19";

/// One kernel's instructions, in address order.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) symbol: String,
    pub(crate) instructions: Vec<Instruction>,
}

/// One instruction. A VOPD pair is one instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) mnemonic: String,
    /// Operands and modifiers as printed, commas dropped.
    pub(crate) operands: Vec<String>,
    /// Index of the branch target in its listing.
    pub(crate) target: Option<usize>,
    /// The line without its encoding, for reports.
    pub(crate) text: String,
}

/// Disassembles a code object.
pub(crate) fn disassemble(path: &Path) -> Result<Vec<Listing>> {
    let output = Command::new(OBJDUMP)
        .arg("-d")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {OBJDUMP}: install the apt package llvm-19"))?;
    ensure!(
        output.status.success(),
        "{OBJDUMP} {}: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the text. Lines look like
/// `\ts_cbranch_execz 8   // 000000012B14: BFA50008 <advance+0x38>`.
pub(crate) fn parse(text: &str) -> Result<Vec<Listing>> {
    let mut listings: Vec<(Listing, Vec<Option<u64>>, u64)> = Vec::new();
    for line in text.lines() {
        if let Some((address, symbol)) = label(line) {
            let listing = Listing {
                symbol: symbol.to_owned(),
                instructions: Vec::new(),
            };
            listings.push((listing, Vec::new(), address));
        } else if line.starts_with('\t') {
            let Some((listing, targets, base)) = listings.last_mut() else {
                bail!("an instruction before the first symbol: {line:?}");
            };
            let (instruction, target) = instruction(line, &listing.symbol, *base)?;
            listing.instructions.push(instruction);
            targets.push(target);
        }
    }
    ensure!(!listings.is_empty(), "the disassembly holds no symbol");
    listings
        .into_iter()
        .map(|(listing, targets, _)| resolve(listing, &targets))
        .collect()
}

/// `0000000000008600 <symbol>:`
fn label(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.split_once(" <")?;
    let symbol = rest.strip_suffix(">:")?;
    Some((u64::from_str_radix(address, 16).ok()?, symbol))
}

fn instruction(line: &str, kernel: &str, base: u64) -> Result<(Instruction, Option<u64>)> {
    let (code, comment) = line
        .split_once("//")
        .context("an instruction without encoding")?;
    let text = code.trim().to_owned();
    let mut words = text.split_whitespace();
    let mnemonic = words.next().context("an empty instruction")?.to_owned();
    let operands = words
        .map(|word| word.trim_end_matches(',').to_owned())
        .collect();
    let (address, rest) = comment.trim().split_once(':').context("no address")?;
    let address = u64::from_str_radix(address, 16).context("address is not hexadecimal")?;
    let target = mnemonic
        .contains("branch")
        .then(|| {
            let (_, symbol) = rest.split_once('<').context("a branch without a target")?;
            let symbol = symbol.trim_end().trim_end_matches('>');
            let (symbol, offset) = symbol.rsplit_once("+0x").unwrap_or((symbol, "0"));
            ensure!(symbol == kernel, "a branch into another symbol");
            u64::from_str_radix(offset, 16)
                .map(|offset| base + offset)
                .context("branch target")
        })
        .transpose()
        .with_context(|| line.to_owned())?;
    Ok((
        Instruction {
            address,
            mnemonic,
            operands,
            target: None,
            text,
        },
        target,
    ))
}

fn resolve(mut listing: Listing, targets: &[Option<u64>]) -> Result<Listing> {
    let index: BTreeMap<u64, usize> = listing
        .instructions
        .iter()
        .enumerate()
        .map(|(i, inst)| (inst.address, i))
        .collect();
    for (instruction, target) in listing.instructions.iter_mut().zip(targets) {
        if let Some(address) = target {
            instruction.target = index.get(address).copied();
            if instruction.target.is_none() {
                bail!("{}: {} leaves the kernel", listing.symbol, instruction.text);
            }
        }
    }
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::parse;

    const TEXT: &str = "
k.co:\tfile format elf64-amdgpu

Disassembly of section .text:

0000000000001000 <k>:
\ts_cmp_eq_u32 s0, 0                                         // 000000001000: BF068000
\ts_cbranch_scc1 1                                           // 000000001004: BFA20001 <k+0xc>
\tv_dual_mov_b32 v0, 0 :: v_dual_mov_b32 v1, v2              // 000000001008: CA100080 00000102
\ts_endpgm                                                   // 00000000100C: BFB00000
";

    #[test]
    fn branches_resolve_to_indices() {
        let text = TEXT.replace("<k+0xc>", "<k+0xC>");
        let listings = parse(&text).unwrap();
        assert_eq!(listings.len(), 1);
        let k = &listings[0];
        assert_eq!(k.symbol, "k");
        assert_eq!(k.instructions.len(), 4);
        assert_eq!(k.instructions[1].target, Some(3));
        assert_eq!(
            k.instructions[2].operands,
            ["v0", "0", "::", "v_dual_mov_b32", "v1", "v2"]
        );
    }

    #[test]
    fn odd_text_is_refused() {
        for (from, to) in [
            ("<k+0xc>", "<other+0xc>"),
            ("<k+0xc>", "<k+0x2>"),
            ("<k+0xc>", ""),
            ("<k>:", ""),
            ("// 0", "; "),
        ] {
            assert!(parse(&TEXT.replace(from, to)).is_err(), "{from} -> {to}");
        }
    }
}
