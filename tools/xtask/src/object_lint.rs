//! Lint of one code object: its metadata against the catalog, its instructions against the rules.
//!
//! Rules: the catalog's kernels and no others; kernarg layout, LDS and block as declared; wave32;
//! no scratch, dynamic stack or spills; no hidden arguments; no instruction whose result may differ
//! between cards or that is outside what the software GPU models; no cross-lane instruction under a
//! narrowed EXEC (`exec_lint`).

use refrain_kernels::{ArgKind, Isa, KernelRow, WAVE_LANES, catalog};

use crate::disasm::Listing;
use crate::exec_lint::narrowed_cross_lane;
use crate::metadata::{Kernel, ObjectFacts};

/// Mnemonic prefixes that must not appear, and why.
const BANNED: [(&str, &str); 14] = [
    ("v_rcp", INEXACT),
    ("v_rsq", INEXACT),
    ("v_sqrt", INEXACT),
    ("v_exp_", INEXACT),
    ("v_log", INEXACT),
    ("v_sin", INEXACT),
    ("v_cos", INEXACT),
    ("v_div_", INEXACT),
    ("v_s_", INEXACT),
    ("scratch_", SCRATCH),
    ("buffer_load", SCRATCH),
    ("buffer_store", SCRATCH),
    ("flat_", "its address space is known only at run time"),
    ("s_swappc", "control flow leaves the kernel"),
];
const INEXACT: &str = "its bits may differ between cards: use the exact arithmetic of refrain.hpp";
const SCRATCH: &str = "it needs scratch memory";

/// Everything wrong with the metadata, one line each.
pub(crate) fn metadata(isa: &Isa, facts: &ObjectFacts) -> Vec<String> {
    let mut findings = Vec::new();
    if facts.mach != isa.mach {
        findings.push(format!(
            "e_flags mach {:#x}, not {:#x}",
            facts.mach, isa.mach
        ));
    }
    for row in catalog() {
        match facts
            .kernels
            .iter()
            .find(|kernel| kernel.name == row.symbol)
        {
            Some(kernel) => kernel_metadata(row, kernel, &mut findings),
            None => findings.push(format!("{}: in the catalog, not in the object", row.symbol)),
        }
    }
    for kernel in &facts.kernels {
        if !catalog().iter().any(|row| row.symbol == kernel.name) {
            findings.push(format!(
                "{}: in the object, not in the catalog",
                kernel.name
            ));
        }
    }
    findings
}

fn kernel_metadata(row: &KernelRow, kernel: &Kernel, findings: &mut Vec<String>) {
    let equal = [
        ("kernarg bytes", kernel.kernarg_bytes, row.kernarg_bytes()),
        ("LDS bytes", kernel.lds_bytes, row.lds_bytes),
        ("threads per work-group", kernel.block, row.block),
        ("lanes per wave", kernel.wave, WAVE_LANES),
        ("scratch bytes", kernel.scratch_bytes, 0),
        ("dynamic stack", u32::from(kernel.dynamic_stack), 0),
        ("SGPR spills", kernel.sgpr_spills, 0),
        ("VGPR spills", kernel.vgpr_spills, 0),
    ];
    for (what, built, declared) in equal {
        if built != declared {
            findings.push(format!(
                "{}: {what} {built}, must be {declared}",
                row.symbol
            ));
        }
    }
    let declared: Vec<(u32, u32, &str)> = row
        .layout()
        .map(|(arg, offset)| {
            let kind = match arg.kind {
                ArgKind::Pointer(_) => "global_buffer",
                ArgKind::U32 | ArgKind::F32Bits => "by_value",
            };
            (offset, arg.kind.bytes(), kind)
        })
        .collect();
    let built: Vec<(u32, u32, &str)> = kernel
        .args
        .iter()
        .map(|arg| (arg.offset, arg.size, arg.kind.as_str()))
        .collect();
    if built != declared {
        let symbol = row.symbol;
        findings.push(format!(
            "{symbol}: arguments {built:?}, declared {declared:?}"
        ));
    }
}

/// Everything wrong with the instructions, one line each.
pub(crate) fn instructions(listings: &[Listing]) -> Vec<String> {
    let mut findings = Vec::new();
    for listing in listings {
        for instruction in &listing.instructions {
            // A VOPD pair holds its second mnemonic among the operands.
            let halves = std::iter::once(&instruction.mnemonic).chain(&instruction.operands);
            for (prefix, why) in BANNED {
                if halves.clone().any(|half| half.starts_with(prefix)) {
                    findings.push(format!("{}: {}: {why}", listing.symbol, instruction.text));
                }
            }
            if instruction.mnemonic.contains("_atomic_") && instruction.mnemonic.contains("_f") {
                let text = &instruction.text;
                findings.push(format!(
                    "{}: {text}: its order is not fixed",
                    listing.symbol
                ));
            }
        }
        for text in narrowed_cross_lane(listing) {
            findings.push(format!(
                "{}: {text}: cross-lane under a narrowed EXEC",
                listing.symbol
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use refrain_kernels::{Target, code_object, code_objects};

    use super::{instructions, metadata};
    use crate::disasm::parse;
    use crate::metadata::read;

    #[test]
    fn committed_objects_agree_with_the_catalog() {
        for object in code_objects() {
            let facts = read(object.bytes()).unwrap();
            assert_eq!(metadata(object.isa, &facts), [""; 0], "{}", object.isa);
        }
    }

    #[test]
    fn each_metadata_rule_can_fail() {
        type Break = fn(&mut crate::metadata::ObjectFacts);
        let breaks: [(&str, Break); 9] = [
            ("mach", |facts| facts.mach = 0x36),
            ("scratch", |facts| facts.kernels[0].scratch_bytes = 16),
            ("lanes", |facts| facts.kernels[0].wave = 64),
            ("VGPR spills", |facts| facts.kernels[0].vgpr_spills = 1),
            ("dynamic stack", |facts| {
                facts.kernels[0].dynamic_stack = true
            }),
            ("arguments", |facts| {
                facts.kernels[0].args[1].kind = "hidden_block_count_x".into()
            }),
            ("LDS", |facts| facts.kernels[0].lds_bytes += 4),
            ("not in the object", |facts| facts.kernels.truncate(1)),
            ("not in the catalog", |facts| {
                facts.kernels[0].name.push('x')
            }),
        ];
        for (word, break_it) in breaks {
            let mut facts = read(code_object(Target::Gfx1100).bytes()).unwrap();
            break_it(&mut facts);
            let findings = metadata(Target::Gfx1100.isa(), &facts);
            assert!(
                findings.iter().any(|line| line.contains(word)),
                "{word}: {findings:?}"
            );
        }
    }

    #[test]
    fn banned_instructions_are_found() {
        let cases = [
            ("v_rcp_iflag_f32_e32 v1, v2", 1),
            ("v_s_exp_f32 s1, s2", 1),
            ("v_div_scale_f32 v1, null, v2, v3, v4", 1),
            ("scratch_load_b32 v1, off, off", 1),
            ("global_atomic_add_f32 v1, v2, s[0:1]", 1),
            ("v_permlanex16_b32 v1, v1, s4, s5", 0),
            ("global_atomic_add_u32 v1, v2, s[0:1]", 0),
            ("v_cvt_f32_f16_e32 v1, v2", 0),
        ];
        for (instruction, count) in cases {
            let text = format!("0000000000000000 <k>:\n\t{instruction} // 000000000000: 00\n");
            let listings = parse(&text).unwrap();
            assert_eq!(instructions(&listings).len(), count, "{instruction}");
        }
    }
}
