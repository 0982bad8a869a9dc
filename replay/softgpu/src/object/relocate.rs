//! Applies the dynamic relocations of a code object to its image (LLVM AMDGPUUsage, "Relocation
//! Records"). What has no row here, or needs a symbol that the object does not define, is refused
//! by name.

use super::elf::{Relocation, Symbol};
use super::error::ObjectError;

/// How a relocation's value is computed and stored. S: symbol, A: addend, B: image base.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// B + A, 64 bits.
    Relative64,
    /// S + A, 64 bits.
    Abs64,
    /// Low half of S + A.
    Abs32Lo,
    /// High half of S + A.
    Abs32Hi,
    /// Nothing to do.
    None,
    /// Known by name, never written by a linker into a dynamic table that we accept.
    Refused,
}

const RULES: &[(u32, &str, Rule)] = &[
    (0, "R_AMDGPU_NONE", Rule::None),
    (1, "R_AMDGPU_ABS32_LO", Rule::Abs32Lo),
    (2, "R_AMDGPU_ABS32_HI", Rule::Abs32Hi),
    (3, "R_AMDGPU_ABS64", Rule::Abs64),
    (4, "R_AMDGPU_REL32", Rule::Refused),
    (5, "R_AMDGPU_REL64", Rule::Refused),
    (6, "R_AMDGPU_ABS32", Rule::Refused),
    (7, "R_AMDGPU_GOTPCREL", Rule::Refused),
    (8, "R_AMDGPU_GOTPCREL32_LO", Rule::Refused),
    (9, "R_AMDGPU_GOTPCREL32_HI", Rule::Refused),
    (10, "R_AMDGPU_REL32_LO", Rule::Refused),
    (11, "R_AMDGPU_REL32_HI", Rule::Refused),
    (13, "R_AMDGPU_RELATIVE64", Rule::Relative64),
    (14, "R_AMDGPU_REL16", Rule::Refused),
];

/// Applies one relocation. `image` holds the bytes of file addresses `origin..origin +
/// image.len()`, and `bias` is what turns a file address into a GPU address.
pub(crate) fn apply(
    relocation: &Relocation,
    symbols: &[Symbol],
    image: &mut [u8],
    origin: u64,
    bias: u64,
) -> Result<(), ObjectError> {
    let row = RULES.iter().find(|row| row.0 == relocation.kind);
    let symbol = symbols
        .get(relocation.symbol)
        .filter(|_| relocation.symbol != 0);
    let refuse = |what| {
        Err(ObjectError::Relocation {
            name: row.map_or_else(
                || format!("type {}", relocation.kind),
                |row| row.1.to_owned(),
            ),
            offset: relocation.offset,
            symbol: symbol.map_or("-", |symbol| &symbol.name).to_owned(),
            what,
        })
    };
    let Some((_, _, rule)) = row else {
        return refuse("this relocation type is not known");
    };
    let absolute = match (rule, symbol) {
        (Rule::None, _) => return Ok(()),
        (Rule::Refused, _) => {
            return refuse(
                "this relocation type is not applied when loading; link the object fully",
            );
        }
        (Rule::Relative64, _) => bias,
        (_, Some(symbol)) if symbol.defined => symbol.address.wrapping_add(bias),
        _ => return refuse("the symbol is not defined in this object; link its definition in"),
    };
    let value = absolute.wrapping_add_signed(relocation.addend);
    let bytes = value.to_le_bytes();
    let field: &[u8] = match rule {
        Rule::Abs32Lo => &bytes[..4],
        Rule::Abs32Hi => &bytes[4..],
        _ => &bytes,
    };
    let start = relocation
        .offset
        .checked_sub(origin)
        .and_then(|start| usize::try_from(start).ok());
    let range = start.and_then(|start| start.checked_add(field.len()).map(|end| start..end));
    match range.and_then(|range| image.get_mut(range)) {
        Some(target) => target.copy_from_slice(field),
        None => return refuse("it patches bytes outside the loaded segments"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_and_each_refusal() {
        let symbol = |name: &str, defined| Symbol {
            name: name.to_owned(),
            address: 0x40,
            size: 8,
            defined,
        };
        let symbols = [
            symbol("", false),
            symbol("table", true),
            symbol("missing", false),
        ];
        let run = |kind, symbol, offset| {
            let mut image = [0_u8; 16];
            let relocation = Relocation {
                offset,
                kind,
                symbol,
                addend: 8,
            };
            apply(&relocation, &symbols, &mut image, 0x1000, 0x7f_0000_0000)
                .map(|()| u64::from_le_bytes(image[..8].try_into().unwrap()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(run(13, 0, 0x1000), Ok(0x7f_0000_0008));
        assert_eq!(run(3, 1, 0x1000), Ok(0x7f_0000_0048));
        assert_eq!(run(1, 1, 0x1000), Ok(0x48));
        assert_eq!(run(2, 1, 0x1000), Ok(0x7f));
        assert_eq!(run(0, 0, 0x1000), Ok(0));
        for (kind, symbol, offset, text) in [
            (3, 2, 0x1000, "`missing`|symbol missing"),
            (10, 1, 0x1000, "R_AMDGPU_REL32_LO"),
            (77, 1, 0x1000, "type 77"),
            (13, 0, 0x100c, "outside"),
            (13, 0, 0xff8, "outside"),
        ] {
            let error = run(kind, symbol, offset).unwrap_err();
            assert!(text.split('|').any(|part| error.contains(part)), "{error}");
        }
    }
}
