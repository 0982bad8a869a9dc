//! Read-modify-write on global memory and LDS, lane by lane in lane order. Global ones are real
//! atomics of the host, so that work-groups on other threads see each as one step.

use super::context::{Ctx, Fault};
use super::flat::{self, Flat};
use super::float::{bf16, d, f, h, half_num, max_num, max64, min_num, min64, num, to_bf16};
use super::global::{addresses, bad};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::Wave;
use crate::isa::Generation;
use crate::isa::op::{Atomic, Wide};
use crate::memory::{Access, Rights, pointer};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `Uop::ext`: [4:0] function, [5] 64-bit, [6] returns the old value, [7] gfx11's float extremes.
pub(super) fn flags(function: Atomic, wide: Wide, returns: bool, generation: Generation) -> u16 {
    let k = FUNCTIONS.iter().position(|v| *v == function).unwrap_or(0) as u16;
    k | u16::from(wide == Wide::B64) << 5
        | u16::from(returns) << 6
        | u16::from(generation == Generation::Gfx11) << 7
}

const FUNCTIONS: [Atomic; 26] = [
    Atomic::Add,
    Atomic::Sub,
    Atomic::Rsub,
    Atomic::Inc,
    Atomic::Dec,
    Atomic::MinI,
    Atomic::MaxI,
    Atomic::MinU,
    Atomic::MaxU,
    Atomic::And,
    Atomic::Or,
    Atomic::Xor,
    Atomic::Swap,
    Atomic::CmpSwap,
    Atomic::CmpStore,
    Atomic::AddF,
    Atomic::MinF,
    Atomic::MaxF,
    Atomic::MskOr,
    Atomic::Wrap,
    Atomic::CmpStoreF,
    Atomic::CmpSwapF,
    Atomic::SubClamp,
    Atomic::CondSub,
    Atomic::PkAddF16,
    Atomic::PkAddBf16,
];

/// Registers of one operand.
pub(super) const fn registers(ext: u16) -> u16 {
    if ext & 32 != 0 { 2 } else { 1 }
}

/// What `Uop::ext` says.
#[derive(Clone, Copy)]
struct Function {
    kind: Atomic,
    /// Float extremes by `<` and `>` alone (gfx11) instead of `min_num` and `max_num`.
    plain: bool,
}

fn function(ext: u16) -> Function {
    Function {
        kind: FUNCTIONS[usize::from(ext & 31).min(FUNCTIONS.len() - 1)],
        plain: ext & 128 != 0,
    }
}

/// The integer functions, at one width.
macro_rules! integer {
    ($kind:expr, $old:expr, $data:expr, $other:expr, $signed:ty, $unsigned:ty) => {{
        let (old, data, other) = ($old, $data, $other);
        match $kind {
            Atomic::Add => old.wrapping_add(data),
            Atomic::Sub => old.wrapping_sub(data),
            Atomic::Rsub => data.wrapping_sub(old),
            Atomic::Inc if old >= data => 0,
            Atomic::Inc => old + 1,
            Atomic::Dec if old == 0 || old > data => data,
            Atomic::Dec => old - 1,
            Atomic::MinI => (old as $signed).min(data as $signed) as $unsigned,
            Atomic::MaxI => (old as $signed).max(data as $signed) as $unsigned,
            Atomic::MinU => old.min(data),
            Atomic::MaxU => old.max(data),
            Atomic::And => old & data,
            Atomic::Or => old | data,
            Atomic::Xor => old ^ data,
            Atomic::Swap => data,
            Atomic::CmpSwap | Atomic::CmpStore if old == other => data,
            Atomic::MskOr => old & !data | other,
            Atomic::Wrap if old >= data => old - data,
            Atomic::Wrap => old.wrapping_add(other),
            Atomic::SubClamp => old.saturating_sub(data),
            Atomic::CondSub if old >= data => old - data,
            _ => old,
        }
    }};
}

/// The new value of a 32-bit cell. `other` is the compare value, or the second operand of the
/// functions that have two.
fn next32(function: Function, old: u32, data: u32, other: u32) -> u32 {
    match function.kind {
        Atomic::AddF => num(f(old) + f(data)),
        Atomic::MinF if function.plain => {
            if f(data) < f(old) {
                data
            } else {
                old
            }
        }
        Atomic::MaxF if function.plain => {
            if f(data) > f(old) {
                data
            } else {
                old
            }
        }
        Atomic::MinF => min_num(data, old),
        Atomic::MaxF => max_num(data, old),
        Atomic::CmpStoreF | Atomic::CmpSwapF => {
            if f(old) == f(other) {
                data
            } else {
                old
            }
        }
        Atomic::PkAddF16 => both(old, data, |a, b| half_num(h(a) + h(b))),
        Atomic::PkAddBf16 => both(old, data, |a, b| to_bf16(bf16(a) + bf16(b))),
        kind => integer!(kind, old, data, other, i32, u32),
    }
}

/// A function of halves on both halves.
fn both(a: u32, b: u32, part: impl Fn(u32, u32) -> u32) -> u32 {
    part(a & 0xffff, b & 0xffff) & 0xffff | part(a >> 16, b >> 16) << 16
}

/// The new value of a 64-bit cell, as [`next32`].
fn next64(function: Function, old: u64, data: u64, other: u64) -> u64 {
    match function.kind {
        Atomic::MinF if function.plain => {
            if d(data) < d(old) {
                data
            } else {
                old
            }
        }
        Atomic::MaxF if function.plain => {
            if d(data) > d(old) {
                data
            } else {
                old
            }
        }
        Atomic::MinF => min64(data, old, false),
        Atomic::MaxF => max64(data, old, false),
        Atomic::CmpStoreF | Atomic::CmpSwapF => {
            if d(old) == d(other) {
                data
            } else {
                old
            }
        }
        kind => integer!(kind, old, data, other, i64, u64),
    }
}

fn wide(w: &Wave, row: u16, lane: usize) -> u64 {
    let at = |r: u16| u64::from(w.v[usize::from(r & 511)][lane]);
    at(row) | at(row + 1) << 32
}

fn put(w: &mut Wave, row: u16, lane: usize, value: u64, is_wide: bool) {
    w.v[usize::from(row & 511)][lane] = value as u32;
    if is_wide {
        w.v[usize::from((row + 1) & 511)][lane] = (value >> 32) as u32;
    }
}

struct GlobalAtomic<const SCALAR: bool>;

impl<const SCALAR: bool> Exec for GlobalAtomic<SCALAR> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let at = addresses::<SCALAR>(w, u, x);
        let (function, is_wide) = (function(u.ext), u.ext & 32 != 0);
        let each = if is_wide { 8 } else { 4 };
        let data = u.c.0;
        let mut left = w.exec();
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            if !x.allows(u.hit, at[i], each, Rights::READ_WRITE) {
                return bad(x, i, at[i], each, Access::Atomic);
            }
            if !at[i].is_multiple_of(each) {
                return x.stop(Fault::Unsupported(
                    "an atomic at an address that is not aligned to its size",
                ));
            }
            let old = if is_wide {
                let (value, compare) = (wide(w, data, i), wide(w, data + 2, i));
                // SAFETY: 8 aligned bytes that were checked just above.
                let cell = unsafe { AtomicU64::from_ptr(pointer(at[i]).cast()) };
                update64(cell, |old| next64(function, old, value, compare))
            } else {
                let lane = |r: u16| w.v[usize::from(r & 511)][i];
                let (value, compare) = (lane(data), lane(data + 1));
                // SAFETY: 4 aligned bytes that were checked just above.
                let cell = unsafe { AtomicU32::from_ptr(pointer(at[i]).cast()) };
                u64::from(update32(cell, |old| next32(function, old, value, compare)))
            };
            if u.ext & 64 != 0 {
                put(w, u.dst, i, old, is_wide);
            }
        }
        Flow::NEXT
    }
}

fn update32(cell: &AtomicU32, next: impl Fn(u32) -> u32) -> u32 {
    let mut old = cell.load(Ordering::SeqCst);
    loop {
        match cell.compare_exchange_weak(old, next(old), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) => return before,
            Err(now) => old = now,
        }
    }
}

fn update64(cell: &AtomicU64, next: impl Fn(u64) -> u64) -> u64 {
    let mut old = cell.load(Ordering::SeqCst);
    loop {
        match cell.compare_exchange_weak(old, next(old), Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) => return before,
            Err(now) => old = now,
        }
    }
}

struct LdsAtomic;

impl Exec for LdsAtomic {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        let (function, is_wide) = (function(u.ext), u.ext & 32 != 0);
        let mut left = w.exec();
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            let at = base[i].wrapping_add(u.imm as u32);
            let (data, compare) = (wide(w, u.b.0, i), wide(w, u.c.0, i));
            let Some(old) = lds_update(x.lds, at, is_wide, |old| {
                if is_wide {
                    next64(function, old, data, compare)
                } else {
                    u64::from(next32(function, old as u32, data as u32, compare as u32))
                }
            }) else {
                let length = if is_wide { 8 } else { 4 };
                return x.stop(Fault::Lds {
                    lane: i as u32,
                    address: at,
                    length,
                });
            };
            if u.ext & 64 != 0 {
                put(w, u.dst, i, old, is_wide);
            }
        }
        Flow::NEXT
    }
}

fn lds_update(lds: &mut [u8], at: u32, is_wide: bool, next: impl Fn(u64) -> u64) -> Option<u64> {
    let tail = lds.get_mut(at as usize..)?;
    if is_wide {
        let cell = tail.first_chunk_mut::<8>()?;
        let old = u64::from_le_bytes(*cell);
        *cell = next(old).to_le_bytes();
        Some(old)
    } else {
        let cell = tail.first_chunk_mut::<4>()?;
        let old = u64::from(u32::from_le_bytes(*cell));
        *cell = (next(old) as u32).to_le_bytes();
        Some(old)
    }
}

/// Two dwords of 8 aligned bytes, each exchanged if the top bit of its operand is set.
struct ConditionalExchange;

impl Exec for ConditionalExchange {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        let mut left = w.exec();
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            let at = base[i].wrapping_add(u.imm as u32) & 0xfff8;
            let data = wide(w, u.b.0, i);
            let Some(old) = lds_update(x.lds, at, true, |old| {
                let part = |shift: u32| {
                    let (d, o) = ((data >> shift) as u32, (old >> shift) as u32);
                    u64::from(if d >> 31 == 1 { d & 0x7fff_ffff } else { o }) << shift
                };
                part(0) | part(32)
            }) else {
                return x.stop(Fault::Lds {
                    lane: i as u32,
                    address: at,
                    length: 8,
                });
            };
            put(w, u.dst, i, old, true);
        }
        Flow::NEXT
    }
}

/// The handler of `ds_condxchg32_rtn_b64`.
pub(super) fn conditional_exchange(speed: Speed) -> Handler {
    handler::<ConditionalExchange>(speed)
}

/// The handler of a flat atomic.
pub(super) fn flat(speed: Speed) -> Handler {
    handler::<Flat<GlobalAtomic<false>, { flat::ATOMIC }>>(speed)
}

/// The handler of a global atomic.
pub(super) fn global(scalar: bool, speed: Speed) -> Handler {
    if scalar {
        handler::<GlobalAtomic<true>>(speed)
    } else {
        handler::<GlobalAtomic<false>>(speed)
    }
}

/// The handler of an LDS atomic.
pub(super) fn lds(speed: Speed) -> Handler {
    handler::<LdsAtomic>(speed)
}
