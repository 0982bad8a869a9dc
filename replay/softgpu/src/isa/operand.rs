//! Operand codes: the 9-bit source numbers of the ISA documents (0..255 scalar side, 256..511
//! vector registers), used for every operand of a decoded instruction.

use super::shape::Ty;

/// First vector register.
pub(crate) const VGPR: u16 = 256;
/// VCC, low half.
pub(crate) const VCC: u16 = 106;
/// First trap temporary.
pub(crate) const TTMP: u16 = 108;
/// Reads as zero, swallows writes; as a memory offset it means "none".
pub(crate) const NULL: u16 = 124;
pub(crate) const M0: u16 = 125;
/// EXEC, low half.
pub(crate) const EXEC: u16 = 126;
pub(crate) const SCC: u16 = 253;
pub(crate) const LITERAL: u16 = 255;

/// First of the aperture registers: base and limit of LDS, base and limit of scratch.
pub(crate) const APERTURE_FIRST: u16 = 235;
pub(crate) const APERTURE_LAST: u16 = 238;
const APERTURES: [&str; 4] = [
    "src_shared_base",
    "src_shared_limit",
    "src_private_base",
    "src_private_limit",
];

const INT_0: u16 = 128;
const INT_64: u16 = 192;
const INT_NEG_16: u16 = 208;
const FLOAT_FIRST: u16 = 240;
const FLOAT_LAST: u16 = 248;

/// Inline floating-point constants, codes 240..=248: text, half, single, double.
const FLOATS: [(&str, u16, u32, u64); 9] = [
    ("0.5", 0x3800, 0x3f00_0000, 0x3fe0_0000_0000_0000),
    ("-0.5", 0xb800, 0xbf00_0000, 0xbfe0_0000_0000_0000),
    ("1.0", 0x3c00, 0x3f80_0000, 0x3ff0_0000_0000_0000),
    ("-1.0", 0xbc00, 0xbf80_0000, 0xbff0_0000_0000_0000),
    ("2.0", 0x4000, 0x4000_0000, 0x4000_0000_0000_0000),
    ("-2.0", 0xc000, 0xc000_0000, 0xc000_0000_0000_0000),
    ("4.0", 0x4400, 0x4080_0000, 0x4010_0000_0000_0000),
    ("-4.0", 0xc400, 0xc080_0000, 0xc010_0000_0000_0000),
    ("0.15915494", 0x3118, 0x3e22_f983, 0x3fc4_5f30_6dc9_c882),
];

/// Whether the code is a vector register.
pub(crate) const fn is_vgpr(code: u16) -> bool {
    code >= VGPR
}

/// The value of an inline constant as an operand of type `ty` (literals are not inline).
pub(crate) fn inline_constant(code: u16, ty: Ty) -> Option<u64> {
    let int = match code {
        INT_0..=INT_64 => i64::from(code - INT_0),
        c if c > INT_64 && c <= INT_NEG_16 => -i64::from(c - INT_64),
        FLOAT_FIRST..=FLOAT_LAST => {
            let (_, half, single, double) = FLOATS[usize::from(code - FLOAT_FIRST)];
            return Some(match ty {
                Ty::F16 | Ty::B16 => u64::from(half),
                // Packed halves read the constant in the low half (LLVM AMDGPU operand notes).
                Ty::Packed => u64::from(half),
                // A bfloat16 is the high half of a single; packed, it sits in the low half.
                Ty::Bf16 | Ty::PackedBf16 => u64::from(single >> 16),
                Ty::F64 | Ty::B64 | Ty::I64 => double,
                _ => u64::from(single),
            });
        }
        _ => return None,
    };
    Some(match ty.regs() {
        2 => int as u64,
        _ => u64::from(int as u32),
    })
}

/// The value of a 32-bit literal as an operand of type `ty`.
pub(crate) const fn literal_value(word: u32, ty: Ty) -> u64 {
    match ty {
        Ty::F64 => (word as u64) << 32,
        Ty::I64 => word as i32 as i64 as u64,
        _ => word as u64,
    }
}

/// Why `code` cannot be a source of `regs` registers, or `None` when it can.
pub(crate) fn source_problem(code: u16, regs: u32) -> Option<&'static str> {
    let regs16 = regs as u16;
    match code {
        VGPR.. => (code - VGPR + regs16 > 256).then_some("vector registers past v255"),
        0..=127 => scalar_problem(code, regs),
        INT_0..=INT_NEG_16 | FLOAT_FIRST..=FLOAT_LAST | LITERAL | SCC => None,
        APERTURE_FIRST..=APERTURE_LAST => None,
        _ => Some("a source code with no meaning here"),
    }
}

/// Why `code` cannot be a scalar operand of `regs` registers.
pub(crate) fn scalar_problem(code: u16, regs: u32) -> Option<&'static str> {
    let last = code + (regs as u16).max(1) - 1;
    if code == NULL {
        return None;
    }
    if regs > 1 && !code.is_multiple_of(2) {
        return Some("an odd scalar register as the first of several");
    }
    let fits = match code {
        0..=105 => last < VCC,
        VCC | 107 => last < TTMP,
        TTMP..=123 => last < NULL,
        M0 => regs == 1,
        EXEC | 127 => last < INT_0,
        _ => false,
    };
    (!fits).then_some("scalar registers past the end of their file")
}

/// LLVM's spelling of an operand of `regs` registers.
pub(crate) fn name(code: u16, regs: u32, literal: u32) -> String {
    let last = code + (regs as u16).max(1) - 1;
    let range = |letter: &str, first: u16| match regs {
        0 | 1 => format!("{letter}{}", code - first),
        _ => format!("{letter}[{}:{}]", code - first, last - first),
    };
    match code {
        VGPR.. => range("v", VGPR),
        0..=105 => range("s", 0),
        VCC if regs > 1 => "vcc".to_owned(),
        VCC => "vcc_lo".to_owned(),
        107 => "vcc_hi".to_owned(),
        TTMP..=123 => range("ttmp", TTMP),
        NULL => "null".to_owned(),
        M0 => "m0".to_owned(),
        EXEC if regs > 1 => "exec".to_owned(),
        EXEC => "exec_lo".to_owned(),
        127 => "exec_hi".to_owned(),
        INT_0..=INT_64 => (code - INT_0).to_string(),
        193..=INT_NEG_16 => format!("-{}", code - INT_64),
        // LLVM prints 1/(2 pi) with the digits of the operand's width.
        FLOAT_LAST if regs == 2 => "0.15915494309189532".to_owned(),
        APERTURE_FIRST..=APERTURE_LAST => APERTURES[usize::from(code - APERTURE_FIRST)].to_owned(),
        FLOAT_FIRST..=FLOAT_LAST => FLOATS[usize::from(code - FLOAT_FIRST)].0.to_owned(),
        SCC => "src_scc".to_owned(),
        LITERAL => format!("{literal:#x}"),
        _ => format!("<operand {code}>"),
    }
}

#[cfg(test)]
mod tests {
    use super::{LITERAL, Ty, inline_constant, literal_value, name, source_problem};

    #[test]
    fn constants_widen_by_type() {
        let cases = [
            (128, Ty::B32, 0),
            (192, Ty::F32, 64),
            (193, Ty::B32, 0xffff_ffff),
            (193, Ty::B64, u64::MAX),
            (208, Ty::I64, (-16i64) as u64),
            (242, Ty::B32, 0x3f80_0000),
            (242, Ty::F64, 1.0f64.to_bits()),
            (242, Ty::F16, 0x3c00),
            (242, Ty::Bf16, 0x3f80),
            (248, Ty::F32, 0x3e22_f983),
        ];
        for (code, ty, want) in cases {
            assert_eq!(inline_constant(code, ty), Some(want), "{code} {ty:?}");
        }
        assert_eq!(inline_constant(LITERAL, Ty::B32), None);
        assert_eq!(literal_value(0x8000_0000, Ty::B64), 0x8000_0000);
        assert_eq!(literal_value(0x8000_0000, Ty::I64), 0xffff_ffff_8000_0000);
        assert_eq!(literal_value(0x3ff0_0000, Ty::F64), 1.0f64.to_bits());
    }

    #[test]
    fn registers_stay_inside_their_files() {
        for (code, regs, ok) in [
            (511, 1, true),
            (511, 2, false),
            (105, 1, true),
            (104, 4, false),
            (3, 2, false),
            (106, 2, true),
            (125, 2, false),
            (124, 8, true),
            (210, 1, false),
            (249, 1, false),
        ] {
            assert_eq!(source_problem(code, regs).is_none(), ok, "{code} {regs}");
        }
    }

    #[test]
    fn names_are_llvm_names() {
        for (code, regs, want) in [
            (256, 1, "v0"),
            (258, 4, "v[2:5]"),
            (2, 2, "s[2:3]"),
            (106, 2, "vcc"),
            (117, 1, "ttmp9"),
            (208, 1, "-16"),
            (255, 1, "0x12"),
            (235, 2, "src_shared_base"),
            (238, 2, "src_private_limit"),
        ] {
            assert_eq!(name(code, regs, 0x12), want);
        }
    }
}
