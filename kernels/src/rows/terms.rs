//! Words of the table: constructors of arguments, factors of spans, and the macros that spell an
//! effect in one line. The macros name types of the file that uses them.

use crate::{Access, Arg, ArgKind, Factor, Word};

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
/// The whole of a weight `[$rows][$k]` or `[$n][$rows][$k]`, in the device layout of its dtype.
macro_rules! whole {
    (F32 $arg:literal $($f:ident)*) => { bytes!(Read $arg, [], [4 $(* $f)*]) };
    (F16 $arg:literal $($f:ident)*) => { bytes!(Read $arg, [], [2 $(* $f)*]) };
    (BF16 $arg:literal $($f:ident)*) => { bytes!(Read $arg, [], [2 $(* $f)*]) };
    (Q8_0 $arg:literal $($f:ident)*) => { bytes!(Read $arg, [], [17 $(* $f)* / 16]) };
}
/// Elements that a row of the dtype must hold a multiple of.
macro_rules! granule {
    (Q8_0) => {
        32
    };
    ($other:ident) => {
        16
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
