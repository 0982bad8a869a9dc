//! Registers named relative to M0. A register outside the wave's allocation stops the wave: what lies
//! there on a card belongs to another wave.

use super::context::{Ctx, Fault};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Src, Uop, handler};
use super::wave::Wave;
use crate::isa::op::Op;
use crate::isa::operand::{M0, VCC};

const OUTSIDE: &str = "a register relative to M0 that the wave does not have";

/// How far M0 moves the source and the destination.
fn offsets(op_bits: u8, m0: u32) -> (u32, u32) {
    match op_bits {
        SOURCE => (m0, 0),
        DESTINATION => (0, m0),
        BOTH => (m0, m0),
        _ => (m0 & 0x3ff, m0 >> 16 & 0x3ff),
    }
}

const SOURCE: u8 = 0;
const DESTINATION: u8 = 1;
const BOTH: u8 = 2;
/// Bits [9:0] for the source, [25:16] for the destination.
const TWO: u8 = 3;

/// Vector row `base + by`, if the wave has it.
fn row(w: &Wave, base: u16, by: u32) -> Option<u16> {
    let at = u32::from(base).checked_add(by)?;
    (base < 256 && at < w.vgprs.min(256)).then_some(at as u16)
}

struct Vector<const HOW: u8>;

impl<const HOW: u8> Exec for Vector<HOW> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (from, to) = offsets(HOW, w.s[usize::from(M0)]);
        let mut room = [0; 32];
        let value = if HOW == DESTINATION {
            *w.lanes(x, u.a, &mut room)
        } else {
            match row(w, u.a.0, from) {
                Some(at) => w.v[usize::from(at)],
                None => return x.stop(Fault::Unsupported(OUTSIDE)),
            }
        };
        let Some(at) = row(w, u.dst, to) else {
            return x.stop(Fault::Unsupported(OUTSIDE));
        };
        w.put(at, &value);
        Flow::NEXT
    }
}

/// Exchanges two registers.
struct Swap;

impl Exec for Swap {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (from, to) = offsets(TWO, w.s[usize::from(M0)]);
        let (Some(a), Some(b)) = (row(w, u.a.0, from), row(w, u.dst, to)) else {
            return x.stop(Fault::Unsupported(OUTSIDE));
        };
        let (first, second) = (w.v[usize::from(a)], w.v[usize::from(b)]);
        w.put(b, &first);
        w.put(a, &second);
        Flow::NEXT
    }
}

/// Scalar slot `base + by`, if it is one of s0..s105 with room for `words`.
fn slot(base: u16, by: u32, words: u16) -> Option<u16> {
    let at = u32::from(base).checked_add(by)?;
    let last = at.checked_add(u32::from(words) - 1)?;
    (last < u32::from(VCC) && at.is_multiple_of(u32::from(words))).then_some(at as u16)
}

struct Scalar<const HOW: u8, const WORDS: u16>;

impl<const HOW: u8, const WORDS: u16> Exec for Scalar<HOW, WORDS> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (from, to) = offsets(HOW, w.s[usize::from(M0)]);
        let source = if HOW == DESTINATION {
            Some(u.a)
        } else {
            let is_register = u.a.0 >= Src::SCALAR;
            slot(u.a.0 & 0xff, from, WORDS)
                .filter(|_| is_register)
                .map(|at| Src(Src::SCALAR + at))
        };
        let (Some(source), Some(at)) = (source, slot(u.dst, to, WORDS)) else {
            return x.stop(Fault::Unsupported(OUTSIDE));
        };
        if WORDS == 2 {
            let value = w.scalar64(x, source);
            w.set64(at, value);
        } else {
            let value = w.scalar(x, source);
            w.set(at, value);
        }
        Flow::NEXT
    }
}

/// Whether an operation reads or writes vector registers that only M0 knows.
pub(super) const fn reaches_any(op: Op) -> bool {
    matches!(
        op,
        Op::VMovreldB32 | Op::VMovrelsB32 | Op::VMovrelsdB32 | Op::VMovrelsd2B32 | Op::VSwaprelB32
    )
}

/// The handler of an operation on relative registers.
pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::VMovrelsB32 => handler::<Vector<SOURCE>>(speed),
        Op::VMovreldB32 => handler::<Vector<DESTINATION>>(speed),
        Op::VMovrelsdB32 => handler::<Vector<BOTH>>(speed),
        Op::VMovrelsd2B32 => handler::<Vector<TWO>>(speed),
        Op::VSwaprelB32 => handler::<Swap>(speed),
        Op::SMovrelsB32 => handler::<Scalar<SOURCE, 1>>(speed),
        Op::SMovrelsB64 => handler::<Scalar<SOURCE, 2>>(speed),
        Op::SMovreldB32 => handler::<Scalar<DESTINATION, 1>>(speed),
        Op::SMovreldB64 => handler::<Scalar<DESTINATION, 2>>(speed),
        Op::SMovrelsd2B32 => handler::<Scalar<TWO, 1>>(speed),
        _ => return None,
    })
}
