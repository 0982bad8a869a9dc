//! LDS loads and stores. The bytes belong to the work-group, whose waves take turns on one thread.

use super::context::{Ctx, Fault};
use super::flat::LdsByLane;
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::Wave;
use crate::isa::op::{Load, Store, Wide};

/// Up to 16 bytes of LDS.
#[inline(always)]
fn bytes<const N: usize>(lds: &[u8], at: u32) -> Option<[u8; N]> {
    lds.get(at as usize..)?.first_chunk::<N>().copied()
}

#[inline(always)]
fn bytes_mut<const N: usize>(lds: &mut [u8], at: u32) -> Option<&mut [u8; N]> {
    lds.get_mut(at as usize..)?.first_chunk_mut::<N>()
}

#[cold]
fn bad(x: &mut Ctx<'_>, lane: usize, address: u32, length: u32) -> Flow {
    x.stop(Fault::Lds {
        lane: lane as u32,
        address,
        length,
    })
}

/// Calls `act` for each active lane.
macro_rules! each_lane {
    ($w:expr, $i:ident, $body:block) => {
        let mut left = $w.exec();
        while left != 0 {
            let $i = left.trailing_zeros() as usize;
            left &= left - 1;
            $body
        }
    };
}

/// `N` dwords per lane.
struct LoadDwords<const N: usize>;

impl<const N: usize> Exec for LoadDwords<N> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        each_lane!(w, i, {
            let at = base[i].wrapping_add(u.imm as u32);
            for r in 0..N {
                let Some(word) = bytes::<4>(x.lds, at.saturating_add(4 * r as u32)) else {
                    return bad(x, i, at, 4 * N as u32);
                };
                w.v[(usize::from(u.dst) + r) & 511][i] = u32::from_le_bytes(word);
            }
        });
        Flow::NEXT
    }
}

struct StoreDwords<const N: usize>;

impl<const N: usize> Exec for StoreDwords<N> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        each_lane!(w, i, {
            let at = base[i].wrapping_add(u.imm as u32);
            for r in 0..N {
                let value = w.v[(usize::from(u.b.0) + r) & 511][i];
                let Some(word) = bytes_mut::<4>(x.lds, at.saturating_add(4 * r as u32)) else {
                    return bad(x, i, at, 4 * N as u32);
                };
                *word = value.to_le_bytes();
            }
        });
        Flow::NEXT
    }
}

/// Two elements of `N` dwords per lane, at byte offsets `imm` and the 32-bit value split over
/// `sdst` (low) and `ext` (high).
struct LoadTwo<const N: usize>;

/// Second byte offset of a two-address instruction.
const fn second_offset(u: &Uop) -> u32 {
    u.sdst as u32 | (u.ext as u32) << 16
}

impl<const N: usize> Exec for LoadTwo<N> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        each_lane!(w, i, {
            for (half, offset) in [u.imm as u32, second_offset(u)].into_iter().enumerate() {
                let at = base[i].wrapping_add(offset);
                for r in 0..N {
                    let Some(word) = bytes::<4>(x.lds, at.saturating_add(4 * r as u32)) else {
                        return bad(x, i, at, 4 * N as u32);
                    };
                    let row = (usize::from(u.dst) + half * N + r) & 511;
                    w.v[row][i] = u32::from_le_bytes(word);
                }
            }
        });
        Flow::NEXT
    }
}

struct StoreTwo<const N: usize>;

impl<const N: usize> Exec for StoreTwo<N> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        each_lane!(w, i, {
            for (data, offset) in [(u.b, u.imm as u32), (u.c, second_offset(u))] {
                let at = base[i].wrapping_add(offset);
                for r in 0..N {
                    let value = w.v[(usize::from(data.0) + r) & 511][i];
                    let Some(word) = bytes_mut::<4>(x.lds, at.saturating_add(4 * r as u32)) else {
                        return bad(x, i, at, 4 * N as u32);
                    };
                    *word = value.to_le_bytes();
                }
            }
        });
        Flow::NEXT
    }
}

/// Exchanges two elements of `N` dwords per lane; operands as for the other two-address forms.
struct SwapTwo<const N: usize>;

impl<const N: usize> Exec for SwapTwo<N> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        each_lane!(w, i, {
            let parts = [(u.b, u.imm as u32), (u.c, second_offset(u))];
            // Both are read before either is written (RDNA ISA pseudocode).
            let mut old = [[0; 2]; 2];
            for (k, (_, offset)) in parts.into_iter().enumerate() {
                let at = base[i].wrapping_add(offset);
                for (r, old) in old[k].iter_mut().enumerate().take(N) {
                    let Some(word) = bytes::<4>(x.lds, at.saturating_add(4 * r as u32)) else {
                        return bad(x, i, at, 4 * N as u32);
                    };
                    *old = u32::from_le_bytes(word);
                }
            }
            for (data, offset) in parts {
                let at = base[i].wrapping_add(offset);
                for r in 0..N {
                    let value = w.v[(usize::from(data.0) + r) & 511][i];
                    if let Some(word) = bytes_mut::<4>(x.lds, at.saturating_add(4 * r as u32)) {
                        *word = value.to_le_bytes();
                    }
                }
            }
            for (k, words) in old.into_iter().enumerate() {
                for (r, word) in words.into_iter().take(N).enumerate() {
                    w.v[(usize::from(u.dst) + k * N + r) & 511][i] = word;
                }
            }
        });
        Flow::NEXT
    }
}

/// Parts of a dword; the kind is in `ext`.
struct LoadPart;

impl Exec for LoadPart {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        let (wide, signed, place) = (u.ext & 1 != 0, u.ext & 2 != 0, u.ext >> 2);
        each_lane!(w, i, {
            let at = base[i].wrapping_add(u.imm as u32);
            let raw = if wide {
                bytes::<2>(x.lds, at).map(|b| u32::from(u16::from_le_bytes(b)))
            } else {
                bytes::<1>(x.lds, at).map(|b| u32::from(b[0]))
            };
            let Some(raw) = raw else {
                return bad(x, i, at, 1 + u32::from(wide));
            };
            let value = match (signed, wide) {
                (false, _) => raw,
                (true, true) => i32::from(raw as i16) as u32,
                (true, false) => i32::from(raw as i8) as u32,
            };
            let lane = &mut w.v[usize::from(u.dst & 511)][i];
            *lane = match place {
                0 => value,
                1 => *lane & 0xffff_0000 | value & 0xffff,
                _ => *lane & 0xffff | value << 16,
            };
        });
        Flow::NEXT
    }
}

/// Bytes or halves; `ext` bit 0: half, bit 1: from the high half of the register.
struct StorePart;

impl Exec for StorePart {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let mut room = [0; 32];
        let base = *w.lanes(x, u.a, &mut room);
        let (wide, shift) = (u.ext & 1 != 0, if u.ext & 2 != 0 { 16 } else { 0 });
        each_lane!(w, i, {
            let at = base[i].wrapping_add(u.imm as u32);
            let value = w.v[usize::from(u.b.0 & 511)][i] >> shift;
            let done = if wide {
                bytes_mut::<2>(x.lds, at).map(|b| *b = (value as u16).to_le_bytes())
            } else {
                bytes_mut::<1>(x.lds, at).map(|b| *b = [value as u8])
            };
            if done.is_none() {
                return bad(x, i, at, 1 + u32::from(wide));
            }
        });
        Flow::NEXT
    }
}

/// The handler of an LDS load, and the value of `Uop::ext` that it wants.
pub(super) fn load(load: Load, speed: Speed) -> Option<(Handler, u16)> {
    let part = |ext| Some((handler::<LoadPart>(speed), ext));
    match load {
        Load::B32 => Some((handler::<LoadDwords<1>>(speed), 0)),
        Load::B64 => Some((handler::<LoadDwords<2>>(speed), 0)),
        Load::B96 => Some((handler::<LoadDwords<3>>(speed), 0)),
        Load::B128 => Some((handler::<LoadDwords<4>>(speed), 0)),
        Load::U8 => part(0),
        Load::U16 => part(1),
        Load::I8 => part(2),
        Load::I16 => part(3),
        Load::U8D16 => part(4),
        Load::U16D16 => part(5),
        Load::I8D16 => part(6),
        Load::U8D16Hi => part(8),
        Load::U16D16Hi => part(9),
        Load::I8D16Hi => part(10),
        Load::B256 | Load::B512 => None,
    }
}

/// The handler of an LDS store, and the value of `Uop::ext` that it wants.
pub(super) fn store(store: Store, speed: Speed) -> (Handler, u16) {
    match store {
        Store::B32 => (handler::<StoreDwords<1>>(speed), 0),
        Store::B64 => (handler::<StoreDwords<2>>(speed), 0),
        Store::B96 => (handler::<StoreDwords<3>>(speed), 0),
        Store::B128 => (handler::<StoreDwords<4>>(speed), 0),
        Store::B8 => (handler::<StorePart>(speed), 0),
        Store::B16 => (handler::<StorePart>(speed), 1),
        Store::B8D16Hi => (handler::<StorePart>(speed), 2),
        Store::B16D16Hi => (handler::<StorePart>(speed), 3),
    }
}

/// The handlers of two-address forms.
pub(super) fn load_two(wide: Wide, speed: Speed) -> Handler {
    match wide {
        Wide::B32 => handler::<LoadTwo<1>>(speed),
        Wide::B64 => handler::<LoadTwo<2>>(speed),
    }
}

/// The handlers of two-address forms.
pub(super) fn swap_two(wide: Wide, speed: Speed) -> Handler {
    match wide {
        Wide::B32 => handler::<SwapTwo<1>>(speed),
        Wide::B64 => handler::<SwapTwo<2>>(speed),
    }
}

/// Load from M0 plus the lane's own four bytes.
pub(super) fn load_by_lane(speed: Speed) -> Handler {
    handler::<LdsByLane<LoadDwords<1>>>(speed)
}

/// Store to M0 plus the lane's own four bytes.
pub(super) fn store_by_lane(speed: Speed) -> Handler {
    handler::<LdsByLane<StoreDwords<1>>>(speed)
}

/// The handlers of two-address forms.
pub(super) fn store_two(wide: Wide, speed: Speed) -> Handler {
    match wide {
        Wide::B32 => handler::<StoreTwo<1>>(speed),
        Wide::B64 => handler::<StoreTwo<2>>(speed),
    }
}
