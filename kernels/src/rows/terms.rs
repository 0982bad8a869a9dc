//! Words of the table: constructors of arguments, factors of spans, and the macros that spell an
//! effect in one line. The macros name types of the file that uses them.

use crate::format::Coding;
use crate::{Access, Arg, ArgKind, Dtype, Effect, Factor, Habit, Need, Span, Term, Word};

pub(super) const fn input(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::Pointer(Access::Read),
    }
}
pub(super) const fn output(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::Pointer(Access::Write),
    }
}
pub(super) const fn inout(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::Pointer(Access::ReadWrite),
    }
}
pub(super) const fn int(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::U32,
    }
}
pub(super) const fn float(name: &'static str) -> Arg {
    Arg {
        name,
        kind: ArgKind::F32Bits,
    }
}

pub(super) const E: Factor = Factor::Imm("e");
pub(super) const HEAD_DIM: Factor = Factor::Imm("head_dim");
pub(super) const HEADS: Factor = Factor::Imm("heads");
pub(super) const K: Factor = Factor::Imm("k");
pub(super) const KV_DIM: Factor = Factor::Imm("kv_dim");
pub(super) const KV_HEADS: Factor = Factor::Imm("kv_heads");
pub(super) const N: Factor = Factor::Imm("n");
pub(super) const R0: Factor = Factor::Imm("r0");
pub(super) const R1: Factor = Factor::Imm("r1");
pub(super) const ROT_DIM: Factor = Factor::Imm("rot_dim");
pub(super) const ROWS: Factor = Factor::Imm("rows");
pub(super) const EXPERTS: Factor = Factor::Imm("experts");
pub(super) const M: Factor = Factor::Imm("m");
pub(super) const M0: Factor = Factor::Imm("m0");
pub(super) const M1: Factor = Factor::Imm("m1");
pub(super) const M2: Factor = Factor::Imm("m2");
pub(super) const M3: Factor = Factor::Imm("m3");
pub(super) const NK: Factor = Factor::Imm("nk");
pub(super) const NV: Factor = Factor::Imm("nv");
pub(super) const Q_STRIDE: Factor = Factor::Imm("q_stride");
pub(super) const SPLITS: Factor = Factor::Imm("splits");
pub(super) const TOP_K: Factor = Factor::Imm("top_k");
pub(super) const POS: Factor = Factor::Word(Word::Pos);
pub(super) const PROMPT_LEN: Factor = Factor::Word(Word::PromptLen);
pub(super) const TOKEN: Factor = Factor::Word(Word::Token);

/// Rows of a launch lie in its weight.
pub(super) const IN_ROWS: Need = Need::AtMost("r1", "rows");

/// Form of the int8 activation that the type is multiplied with.
pub(super) const fn habit_of(dtype: Dtype) -> Option<Habit> {
    dtype.format().habit
}

/// Elements that a row of the type must hold a multiple of.
pub(super) const fn granule(dtype: Dtype) -> u32 {
    let block = dtype.format().block as u32;
    if block < 16 { 16 } else { block }
}

/// Planes of the type's device layout.
pub(super) const fn planes(dtype: Dtype) -> usize {
    match &dtype.format().coding {
        Coding::Plain(_) => 1,
        Coding::Blocks(blocks) => blocks.planes.len(),
    }
}

/// Reads of the rows `[start, end)` of each weight in `weights`, one per plane, then `rest`.
/// `rows` and `cols` are the shape of the weights.
pub(super) const fn weight_rows<const N: usize>(
    dtype: Dtype,
    weights: &[&'static str],
    (start, end): (&'static [Term], &'static [Term]),
    (rows, cols): (Factor, Factor),
    rest: &[Effect],
) -> [Effect; N] {
    let mut effects = [rest[0]; N];
    let (mut next, mut weight) = (0, 0);
    while weight < weights.len() {
        let mut plane = 0;
        while plane < planes(dtype) {
            effects[next] = Effect {
                arg: weights[weight],
                access: Access::Read,
                span: Span::Plane {
                    plane,
                    start,
                    end,
                    rows,
                    cols,
                },
            };
            plane += 1;
            next += 1;
        }
        weight += 1;
    }
    let mut i = 0;
    while i < rest.len() {
        effects[next] = rest[i];
        i += 1;
        next += 1;
    }
    effects
}

/// `bytes!(Read "x", [start terms], [end terms])`, a term being `times * factor * factor / over`.
macro_rules! bytes {
    ($access:ident $arg:literal, [$($start:tt)*], [$($end:tt)*]) => {
        Effect {
            arg: $arg,
            access: Access::$access,
            span: Span::Bytes { start: terms!($($start)*), end: terms!($($end)*) },
        }
    };
}
macro_rules! terms {
    ($($times:literal $(* $factor:ident)* $(/ $over:literal)?),*) => {
        &[$(Term { times: $times, over: 1 $(* $over)?, factors: &[$($factor),*] }),*]
    };
}
/// The whole of a weight of the kernel's type, `[product of factors][cols]`.
macro_rules! whole {
    ($arg:literal, [$($f:ident),*] $cols:ident) => {
        Effect {
            arg: $arg,
            access: Access::Read,
            span: Span::Matrix { rows: &[$($f),*], cols: $cols },
        }
    };
}
/// An activation in the kernel's form.
macro_rules! activation {
    ($access:ident $arg:literal, $($f:ident),*) => {
        Effect {
            arg: $arg,
            access: Access::$access,
            span: Span::Activation(&[$($f),*]),
        }
    };
}
/// A row per format that has every kernel: `$row!(symbol, dtype, habit, [arguments more],
/// [needs more], ...)`.
macro_rules! full_formats {
    ($row:ident, $name:literal, $($t:tt)*) => {
        [
            $row!(concat!($name, "_f32"), F32, None, [], [], $($t)*),
            $row!(concat!($name, "_f16"), F16, None, [], [], $($t)*),
            $row!(concat!($name, "_bf16"), BF16, None, [], [], $($t)*),
            $row!(concat!($name, "_q8_0"), Q8_0, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q4_0"), Q4_0, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q4_k"), Q4_K, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q6_k"), Q6_K, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q8_0_i8"), Q8_0, habit_of(Dtype::Q8_0), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q4_0_i8"), Q4_0, habit_of(Dtype::Q4_0), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q4_k_i8"), Q4_K, habit_of(Dtype::Q4_K), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q6_k_i8"), Q6_K, habit_of(Dtype::Q6_K), [int("rows")], [IN_ROWS], $($t)*),
        ]
    };
}
/// The same for the formats that have only what a model cannot do without.
macro_rules! core_formats {
    ($row:ident, $name:literal, $($t:tt)*) => {
        [
            $row!(concat!($name, "_q4_1"), Q4_1, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_0"), Q5_0, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_1"), Q5_1, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_k"), Q5_K, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_iq4_nl"), IQ4_NL, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mxfp4"), MXFP4, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_hfq4_g256"), HFQ4_G256, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mq4_g256_v2"), MQ4_G256_V2, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mq4c_g256"), MQ4C_G256, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_hfq6_g256"), HFQ6_G256, None, [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q4_1_i8"), Q4_1, habit_of(Dtype::Q4_1), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_0_i8"), Q5_0, habit_of(Dtype::Q5_0), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_1_i8"), Q5_1, habit_of(Dtype::Q5_1), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_q5_k_i8"), Q5_K, habit_of(Dtype::Q5_K), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_iq4_nl_i8"), IQ4_NL, habit_of(Dtype::IQ4_NL), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mxfp4_i8"), MXFP4, habit_of(Dtype::MXFP4), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_hfq4_g256_i8"), HFQ4_G256, habit_of(Dtype::HFQ4_G256), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mq4_g256_v2_i8"), MQ4_G256_V2, habit_of(Dtype::MQ4_G256_V2), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_mq4c_g256_i8"), MQ4C_G256, habit_of(Dtype::MQ4C_G256), [int("rows")], [IN_ROWS], $($t)*),
            $row!(concat!($name, "_hfq6_g256_i8"), HFQ6_G256, habit_of(Dtype::HFQ6_G256), [int("rows")], [IN_ROWS], $($t)*),
        ]
    };
}
/// The same for the formats of embedding tables.
macro_rules! table_formats {
    ($row:ident, $name:literal) => {
        [
            $row!(concat!($name, "_q8_0"), Q8_0),
            $row!(concat!($name, "_q4_0"), Q4_0),
            $row!(concat!($name, "_q4_1"), Q4_1),
            $row!(concat!($name, "_q5_0"), Q5_0),
            $row!(concat!($name, "_q5_1"), Q5_1),
            $row!(concat!($name, "_q4_k"), Q4_K),
            $row!(concat!($name, "_q5_k"), Q5_K),
            $row!(concat!($name, "_q6_k"), Q6_K),
            $row!(concat!($name, "_iq4_nl"), IQ4_NL),
            $row!(concat!($name, "_mxfp4"), MXFP4),
            $row!(concat!($name, "_hfq4_g256"), HFQ4_G256),
            $row!(concat!($name, "_hfq6_g256"), HFQ6_G256),
        ]
    };
}
macro_rules! word {
    ($access:ident $word:ident) => {
        Effect {
            arg: "control",
            access: Access::$access,
            span: Span::Word(Word::$word),
        }
    };
}
