//! One row of the instruction table, and the index from format and opcode to rows.

use super::op::Op;
use super::shape::Shape;
use super::table::PARTS;
use super::{Generation, Target};
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
    /// Memory whose segment (global, LDS, scratch) the address decides.
    Flat,
    /// Global memory.
    Global,
    /// Scratch memory of the lane.
    Scratch,
    /// Buffer memory (cache control only).
    Mubuf,
}

impl Format {
    /// All formats, in the order of the table.
    pub const ALL: [Self; 18] = [
        Self::Sop1,
        Self::Sop2,
        Self::Sopc,
        Self::Sopk,
        Self::Sopp,
        Self::Smem,
        Self::Vop1,
        Self::Vop2,
        Self::Vopc,
        Self::Vop3,
        Self::Vop3sd,
        Self::Vop3p,
        Self::Vopd,
        Self::Ds,
        Self::Flat,
        Self::Global,
        Self::Scratch,
        Self::Mubuf,
    ];
}

/// No opcode: the set lacks the instruction.
const ABSENT: u16 = u16::MAX;

/// One instruction.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) format: Format,
    /// Opcode number in gfx11 and in gfx12.
    opcode: [u16; 2],
    /// LLVM's mnemonic, without `_e32`, `_e64` and `_dpp`.
    pub(crate) mnemonic: &'static str,
    pub(crate) shape: Shape,
    pub(crate) op: Op,
    /// Only on targets with scalar floating point.
    pub(crate) scalar_float: bool,
}

impl Row {
    const fn new(
        format: Format,
        opcode: [u16; 2],
        mnemonic: &'static str,
        shape: &str,
        op: Op,
        scalar_float: bool,
    ) -> Self {
        Self {
            format,
            opcode,
            mnemonic,
            shape: Shape::parse(shape),
            op,
            scalar_float,
        }
    }

    /// Its opcode number in a set, if the set has it.
    pub(crate) fn opcode(&self, generation: Generation) -> Option<u16> {
        let number = self.opcode[column(generation)];
        (number != ABSENT).then_some(number)
    }
}

const fn column(generation: Generation) -> usize {
    match generation {
        Generation::Gfx11 => 0,
        Generation::Gfx12 => 1,
    }
}

/// Declares the row constructors: name, what it is for, the opcode columns, scalar float.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident($($opcode:ident),+) => [$a:expr, $b:expr], $float:expr;)*) => {$(
        $(#[$doc])*
        pub(super) const fn $name(
            format: Format,
            $($opcode: u16,)+
            mnemonic: &'static str,
            shape: &str,
            op: Op,
        ) -> Row {
            Row::new(format, [$a, $b], mnemonic, shape, op, $float)
        }
    )*};
}

constructors! {
    /// Both sets, one number.
    both(n) => [n, n], false;
    /// Both sets, different numbers (gfx11, gfx12).
    moved(n, m) => [n, m], false;
    /// RDNA3 and RDNA3.5 only.
    gfx11(n) => [n, ABSENT], false;
    /// RDNA4 only.
    gfx12(n) => [ABSENT, n], false;
    /// RDNA3.5 and RDNA4.
    scalar_float(n) => [n, n], true;
    /// RDNA3.5 only.
    gfx11_scalar_float(n) => [n, ABSENT], true;
}

#[derive(Default)]
struct Set {
    rows: Vec<&'static Row>,
    /// Per format, rows by opcode.
    index: [Vec<Option<&'static Row>>; Format::ALL.len()],
}

fn set(generation: Generation) -> &'static Set {
    static SETS: [OnceLock<Set>; 2] = [const { OnceLock::new() }; 2];
    SETS[column(generation)].get_or_init(|| {
        let mut built = Set::default();
        for row in PARTS.iter().copied().flatten() {
            let Some(at) = row.opcode(generation).map(usize::from) else {
                continue;
            };
            built.rows.push(row);
            let list = &mut built.index[row.format as usize];
            if list.len() <= at {
                list.resize(at + 1, None);
            }
            list[at] = Some(row);
        }
        built
    })
}

/// All rows of an instruction set.
pub(crate) fn table(generation: Generation) -> &'static [&'static Row] {
    &set(generation).rows
}

/// The row of an opcode on a target.
pub(crate) fn find(target: Target, format: Format, opcode: u32) -> Option<&'static Row> {
    let list = &set(target.generation()).index[format as usize];
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
                let code = row.opcode(generation).unwrap();
                assert!(codes.insert((row.format, code)), "{row:?}");
                assert!(names.insert((row.format, row.mnemonic)), "{row:?}");
            }
            assert!(codes.len() > 1000);
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
