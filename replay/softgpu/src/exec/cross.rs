//! Operations across lanes: readlane family, permlane, and the LDS crossbar (bpermute, permute,
//! swizzle), which touches no LDS memory.

use super::context::Ctx;
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{Row, Wave};
use crate::isa::op::Op;

macro_rules! crossings {
    ($($name:ident |$w:ident, $u:ident, $x:ident| $value:expr;)*) => {
        $(
            struct $name;
            impl Exec for $name {
                fn run<L: Level>($w: &mut Wave, $u: &Uop, $x: &mut Ctx<'_>) -> Flow {
                    $value;
                    Flow::NEXT
                }
            }
        )*
        /// The handler of a cross-lane operation.
        pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
            match op {
                $(Op::$name => Some(handler::<$name>(speed)),)*
                _ => None,
            }
        }
    };
}

/// The lanes of a vector operand, by value.
fn copy(w: &Wave, x: &Ctx<'_>, src: super::uop::Src) -> Row {
    let mut room = [0; 32];
    *w.lanes(x, src, &mut room)
}

/// `v_permlane16` and `v_permlanex16`: each lane of a row of 16 picks a lane of its own or of the
/// other row, by 4 selector bits. `ext` bit 0 fetches from inactive lanes, bit 1 is bound_ctrl.
fn permlane(w: &mut Wave, u: &Uop, x: &Ctx<'_>, cross: usize) {
    let from = copy(w, x, u.a);
    let select = u64::from(w.scalar(x, u.b)) | u64::from(w.scalar(x, u.c)) << 32;
    let exec = w.exec();
    let mut out = w.v[usize::from(u.dst & 511)];
    for (i, lane) in out.iter_mut().enumerate() {
        let source = ((i & 16) ^ cross) | (select >> (4 * (i & 15)) & 15) as usize;
        if u.ext & 1 == 1 || exec >> source & 1 == 1 {
            *lane = from[source];
        } else if u.ext & 2 == 2 {
            *lane = 0;
        }
    }
    w.put(u.dst, &out);
}

/// As [`permlane`], with the lane number in a vector register.
fn permlane_var(w: &mut Wave, u: &Uop, x: &Ctx<'_>, cross: usize) {
    let (from, select) = (copy(w, x, u.a), copy(w, x, u.b));
    let exec = w.exec();
    let mut out = w.v[usize::from(u.dst & 511)];
    for (i, lane) in out.iter_mut().enumerate() {
        let source = ((i & 16) ^ cross) | (select[i] & 15) as usize;
        if u.ext & 1 == 1 || exec >> source & 1 == 1 {
            *lane = from[source];
        } else if u.ext & 2 == 2 {
            *lane = 0;
        }
    }
    w.put(u.dst, &out);
}

/// Lane that `ds_swizzle_b32` reads (RDNA ISA: swizzle modes).
pub(super) fn swizzle_lane(pattern: u32, i: u32) -> u32 {
    if pattern >= 0xe000 {
        // FFT: reverse the lane number, drop as many bits as the mask has.
        let mask = pattern & 31;
        let j = i.reverse_bits() >> 27;
        return j >> mask.count_ones() | i & mask;
    }
    if pattern >= 0xc000 {
        // Rotate: by bits [9:5], bit 10 to the right, lanes of mask [4:0] stay.
        let mask = pattern & 31;
        let by = pattern >> 5 & 31;
        let moved = if pattern >> 10 & 1 == 1 {
            i.wrapping_sub(by)
        } else {
            i + by
        };
        return i & mask | moved & !mask & 31;
    }
    if pattern & 0x8000 != 0 {
        return i & !3 | pattern >> (2 * (i & 3)) & 3;
    }
    let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
    ((i & and) | or) ^ xor
}

crossings! {
    VReadfirstlaneB32 |w, u, x| {
        let exec = w.exec();
        let lane = if exec == 0 { 0 } else { exec.trailing_zeros() };
        let value = copy(w, x, u.a)[(lane & 31) as usize];
        w.set(u.dst, value)
    };
    VReadlaneB32 |w, u, x| {
        let lane = w.scalar(x, u.b) & 31;
        let value = copy(w, x, u.a)[lane as usize];
        w.set(u.dst, value)
    };
    VWritelaneB32 |w, u, x| {
        let (value, lane) = (w.scalar(x, u.a), w.scalar(x, u.b) & 31);
        w.v[usize::from(u.dst & 511)][lane as usize] = value
    };
    VSwapB32 |w, u, x| {
        // The source of a swap is a register by the decoder's check of its type.
        let from = copy(w, x, u.a);
        let to = w.v[usize::from(u.dst & 511)];
        w.put(u.dst, &from);
        w.put(u.a.0, &to)
    };
    VSwapB16 |w, u, x| {
        let (high_from, high_to) = (u.ext & 1 == 1, u.ext & 8 == 8);
        let from = copy(w, x, u.a);
        let to = w.v[usize::from(u.dst & 511)];
        let part = |row: &Row, high: bool| row.map(|v| if high { v >> 16 } else { v & 0xffff });
        let (a, b) = (part(&from, high_from), part(&to, high_to));
        let place = |row: &Row, half: &Row, high: bool| -> Row {
            std::array::from_fn(|i| if high {
                row[i] & 0xffff | half[i] << 16
            } else {
                row[i] & 0xffff_0000 | half[i]
            })
        };
        // Both halves of one register may trade places.
        w.put(u.dst, &place(&to, &a, high_to));
        let from = copy(w, x, u.a);
        w.put(u.a.0, &place(&from, &b, high_from))
    };
    VPermlane16B32 |w, u, x| permlane(w, u, x, 0);
    VPermlanex16B32 |w, u, x| permlane(w, u, x, 16);
    VPermlane16VarB32 |w, u, x| permlane_var(w, u, x, 0);
    VPermlanex16VarB32 |w, u, x| permlane_var(w, u, x, 16);
    DsBpermuteFiB32 |w, u, x| {
        let (address, data) = (copy(w, x, u.a), copy(w, x, u.b));
        let out = std::array::from_fn(|i| {
            let lane = address[i].wrapping_add(u.imm as u32) / 4 % 32;
            data[lane as usize]
        });
        w.put(u.dst, &out)
    };
    DsBpermuteB32 |w, u, x| {
        let (address, data) = (copy(w, x, u.a), copy(w, x, u.b));
        let exec = w.exec();
        let out = std::array::from_fn(|i| {
            let lane = address[i].wrapping_add(u.imm as u32) / 4 % 32;
            if exec >> lane & 1 == 1 { data[lane as usize] } else { 0 }
        });
        w.put(u.dst, &out)
    };
    DsPermuteB32 |w, u, x| {
        let (address, data) = (copy(w, x, u.a), copy(w, x, u.b));
        let exec = w.exec();
        let mut out = [0; 32];
        for i in 0..32 {
            if exec >> i & 1 == 1 {
                let lane = address[i].wrapping_add(u.imm as u32) / 4 % 32;
                out[lane as usize] = data[i];
            }
        }
        w.put(u.dst, &out)
    };
    DsSwizzleB32 |w, u, x| {
        let data = copy(w, x, u.a);
        let exec = w.exec();
        let out = std::array::from_fn(|i| {
            let lane = swizzle_lane(u.imm as u32 & 0xffff, i as u32) & 31;
            if exec >> lane & 1 == 1 { data[lane as usize] } else { 0 }
        });
        w.put(u.dst, &out)
    };
}
