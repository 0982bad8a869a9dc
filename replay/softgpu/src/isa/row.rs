//! One row of an instruction table, and the index from format and opcode to rows.

use super::op::Op;
use super::shape::Shape;
use super::{Generation, Target, gfx11, gfx12};
use std::sync::OnceLock;

/// Encoding families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Scalar, one source.
    Sop1,
    /// Scalar, two sources.
    Sop2,
    /// Scalar compare.
    Sopc,
    /// Scalar with a 16-bit immediate.
    Sopk,
    /// Scalar program control.
    Sopp,
    /// Scalar memory.
    Smem,
    /// Vector, one source.
    Vop1,
    /// Vector, two sources.
    Vop2,
    /// Vector compare.
    Vopc,
    /// Vector, three sources and modifiers; also the long form of VOP1, VOP2 and VOPC.
    Vop3,
    /// VOP3 with a scalar destination.
    Vop3sd,
    /// Packed vector.
    Vop3p,
    /// Two vector operations in one instruction.
    Vopd,
    /// LDS.
    Ds,
    /// Global memory.
    Global,
    /// Buffer memory (cache control only).
    Mubuf,
}

const FORMATS: usize = 16;

/// One opcode.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) format: Format,
    pub(crate) opcode: u16,
    /// LLVM's mnemonic, without `_e32`, `_e64` and `_dpp`.
    pub(crate) mnemonic: &'static str,
    pub(crate) shape: Shape,
    pub(crate) op: Op,
    /// Only on targets with scalar floating point.
    pub(crate) scalar_float: bool,
}

/// A row of every target of the set.
pub(super) const fn row(
    format: Format,
    opcode: u16,
    mnemonic: &'static str,
    shape: &str,
    op: Op,
) -> Row {
    Row {
        format,
        opcode,
        mnemonic,
        shape: Shape::parse(shape),
        op,
        scalar_float: false,
    }
}

/// A row of the targets that have scalar floating point.
pub(super) const fn scalar_float(
    format: Format,
    opcode: u16,
    mnemonic: &'static str,
    shape: &str,
    op: Op,
) -> Row {
    Row {
        format,
        opcode,
        mnemonic,
        shape: Shape::parse(shape),
        op,
        scalar_float: true,
    }
}

/// All rows of an instruction set.
pub(crate) fn table(generation: Generation) -> &'static [Row] {
    match generation {
        Generation::Gfx11 => gfx11::TABLE,
        Generation::Gfx12 => gfx12::TABLE,
    }
}

type Index = [Vec<Option<&'static Row>>; FORMATS];

fn index(generation: Generation) -> &'static Index {
    static INDEX: [OnceLock<Index>; 2] = [const { OnceLock::new() }; 2];
    let slot = match generation {
        Generation::Gfx11 => &INDEX[0],
        Generation::Gfx12 => &INDEX[1],
    };
    slot.get_or_init(|| {
        let mut built: Index = Default::default();
        for row in table(generation) {
            let list = &mut built[row.format as usize];
            let at = usize::from(row.opcode);
            if list.len() <= at {
                list.resize(at + 1, None);
            }
            list[at] = Some(row);
        }
        built
    })
}

/// The row of an opcode on a target.
pub(crate) fn find(target: Target, format: Format, opcode: u32) -> Option<&'static Row> {
    let list = &index(target.generation())[format as usize];
    let row = (*list.get(opcode as usize)?)?;
    (!row.scalar_float || target.has_scalar_float()).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::{Format, Generation, Target, find, table};
    use std::collections::HashSet;

    #[test]
    fn opcodes_and_names_are_unique_per_format() {
        for generation in [Generation::Gfx11, Generation::Gfx12] {
            let mut codes = HashSet::new();
            let mut names = HashSet::new();
            for row in table(generation) {
                assert!(codes.insert((row.format, row.opcode)), "{row:?}");
                assert!(names.insert((row.format, row.mnemonic)), "{row:?}");
            }
            assert!(codes.len() > 700);
        }
    }

    #[test]
    fn scalar_float_is_absent_on_gfx1100() {
        assert!(find(Target::Gfx1100, Format::Sop2, 64).is_none());
        for target in [Target::Gfx1151, Target::Gfx1201] {
            assert_eq!(
                find(target, Format::Sop2, 64).unwrap().mnemonic,
                "s_add_f32"
            );
        }
        assert!(find(Target::Gfx1201, Format::Sop2, 9999).is_none());
    }
}
