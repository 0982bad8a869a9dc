//! Read-modify-write on global memory and LDS, lane by lane in lane order. Global ones are real
//! atomics of the host, so that work-groups on other threads see each as one step.

use super::context::{Ctx, Fault};
use super::float::{f, max_num, min_num, num};
use super::global::{addresses, bad};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::Wave;
use crate::isa::op::{Atomic, Wide};
use crate::memory::{Access, Rights, pointer};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether a function is modelled at a width.
pub(super) fn known(function: Atomic, wide: Wide) -> bool {
    let float = matches!(function, Atomic::AddF | Atomic::MinF | Atomic::MaxF);
    FUNCTIONS.contains(&function) && !(float && wide == Wide::B64)
}

/// `Uop::ext`: [4:0] function, [5] 64-bit, [6] returns the old value.
pub(super) fn flags(function: Atomic, wide: Wide, returns: bool) -> u16 {
    let k = FUNCTIONS.iter().position(|v| *v == function).unwrap_or(0) as u16;
    k | u16::from(wide == Wide::B64) << 5 | u16::from(returns) << 6
}

const FUNCTIONS: [Atomic; 18] = [
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
];

fn function(ext: u16) -> Atomic {
    FUNCTIONS[usize::from(ext & 31).min(FUNCTIONS.len() - 1)]
}

/// The new value of a 32-bit cell. `compare` only matters to the compare functions.
fn next32(function: Atomic, old: u32, data: u32, compare: u32) -> u32 {
    match function {
        Atomic::Add => old.wrapping_add(data),
        Atomic::Sub => old.wrapping_sub(data),
        Atomic::Rsub => data.wrapping_sub(old),
        Atomic::Inc => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        Atomic::Dec => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        Atomic::MinI => (old as i32).min(data as i32) as u32,
        Atomic::MaxI => (old as i32).max(data as i32) as u32,
        Atomic::MinU => old.min(data),
        Atomic::MaxU => old.max(data),
        Atomic::And => old & data,
        Atomic::Or => old | data,
        Atomic::Xor => old ^ data,
        Atomic::Swap => data,
        Atomic::CmpSwap | Atomic::CmpStore => {
            if old == compare {
                data
            } else {
                old
            }
        }
        Atomic::AddF => num(f(old) + f(data)),
        Atomic::MinF => min_num(old, data),
        Atomic::MaxF => max_num(old, data),
        // Refused by `known` before it comes here.
        _ => old,
    }
}

/// The new value of a 64-bit cell.
fn next64(function: Atomic, old: u64, data: u64, compare: u64) -> u64 {
    match function {
        Atomic::Add => old.wrapping_add(data),
        Atomic::Sub => old.wrapping_sub(data),
        Atomic::Rsub => data.wrapping_sub(old),
        Atomic::Inc => {
            if old >= data {
                0
            } else {
                old + 1
            }
        }
        Atomic::Dec => {
            if old == 0 || old > data {
                data
            } else {
                old - 1
            }
        }
        Atomic::MinI => (old as i64).min(data as i64) as u64,
        Atomic::MaxI => (old as i64).max(data as i64) as u64,
        Atomic::MinU => old.min(data),
        Atomic::MaxU => old.max(data),
        Atomic::And => old & data,
        Atomic::Or => old | data,
        Atomic::Xor => old ^ data,
        Atomic::Swap => data,
        Atomic::CmpSwap | Atomic::CmpStore => {
            if old == compare {
                data
            } else {
                old
            }
        }
        // No row of the tables has a 64-bit float atomic.
        // Refused by `known` before it comes here.
        _ => old,
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
