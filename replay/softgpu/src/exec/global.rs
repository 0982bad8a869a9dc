//! Global memory: loads and stores of vector registers, and scalar loads.
//!
//! Three ways through a load or store: all lanes active at consecutive addresses (one check, one
//! block), all lanes active in one allocation (one check, then lane by lane), anything else (a check
//! per lane, in lane order, so that the first bad lane is the one reported).

use super::context::{Ctx, Fault};
use super::flat::{self, ByLane, Flat};
use super::guest;
use super::lanes::each64;
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{Row, Wave};
use crate::isa::op::{Load, Store};
use crate::memory::{Access, Rights};

/// How one lane's bytes become register values.
trait Element: Copy {
    /// Registers per lane.
    const REGS: usize;
    /// What memory holds.
    type Bytes: Copy;
    /// Registers from memory; `old` is what the first register held.
    fn unpack(bytes: Self::Bytes, old: u32) -> [u32; 4];
    /// Memory from registers.
    fn pack(regs: [u32; 4]) -> Self::Bytes;
}

macro_rules! elements {
    ($($name:ident $bytes:ty, $regs:literal |$b:ident, $old:ident| $unpack:expr, |$r:ident| $pack:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;
            impl Element for $name {
                const REGS: usize = $regs;
                type Bytes = $bytes;
                #[inline(always)]
                fn unpack($b: $bytes, $old: u32) -> [u32; 4] {
                    $unpack
                }
                #[inline(always)]
                fn pack($r: [u32; 4]) -> $bytes {
                    $pack
                }
            }
        )*
    };
}

const fn one(x: u32) -> [u32; 4] {
    [x, 0, 0, 0]
}

const fn low(old: u32, half: u32) -> [u32; 4] {
    one(old & 0xffff_0000 | half & 0xffff)
}

const fn high(old: u32, half: u32) -> [u32; 4] {
    one(old & 0xffff | half << 16)
}

elements! {
    U8 u8, 1 |b, _old| one(b as u32), |r| r[0] as u8;
    I8 i8, 1 |b, _old| one(b as i32 as u32), |r| r[0] as i8;
    U16 u16, 1 |b, _old| one(b as u32), |r| r[0] as u16;
    I16 i16, 1 |b, _old| one(b as i32 as u32), |r| r[0] as i16;
    B32 u32, 1 |b, _old| one(b), |r| r[0];
    B64 [u32; 2], 2 |b, _old| [b[0], b[1], 0, 0], |r| [r[0], r[1]];
    B96 [u32; 3], 3 |b, _old| [b[0], b[1], b[2], 0], |r| [r[0], r[1], r[2]];
    B128 [u32; 4], 4 |b, _old| b, |r| r;
    U8Low u8, 1 |b, old| low(old, b as u32), |r| r[0] as u8;
    I8Low i8, 1 |b, old| low(old, b as i32 as u32), |r| r[0] as i8;
    U16Low u16, 1 |b, old| low(old, b as u32), |r| r[0] as u16;
    U8High u8, 1 |b, old| high(old, b as u32), |r| (r[0] >> 16) as u8;
    I8High i8, 1 |b, old| high(old, b as i32 as u32), |r| (r[0] >> 16) as i8;
    U16High u16, 1 |b, old| high(old, b as u32), |r| (r[0] >> 16) as u16;
}

const fn size<E: Element>() -> u64 {
    size_of::<E::Bytes>() as u64
}

/// Lane addresses. `SCALAR`: scalar pair `b` plus 32-bit lane offset `a`; else 64-bit lanes `a`.
#[inline(always)]
pub(super) fn addresses<const SCALAR: bool>(w: &Wave, u: &Uop, x: &Ctx<'_>) -> [u64; 32] {
    let offset = i64::from(u.imm) as u64;
    let mut room = [0; 32];
    let low = w.lanes(x, u.a, &mut room);
    if SCALAR {
        let base = w.scalar64(x, u.b).wrapping_add(offset);
        each64(|i| base.wrapping_add(u64::from(low[i])))
    } else {
        let mut room = [0; 32];
        let high = w.lanes(x, u.a.next(), &mut room);
        each64(|i| (u64::from(low[i]) | u64::from(high[i]) << 32).wrapping_add(offset))
    }
}

/// Whether lane i is at `first + i * step`.
#[inline(always)]
fn consecutive(at: &[u64; 32], step: u64) -> bool {
    let first = at[0];
    let mut wrong = 0;
    for (i, a) in at.iter().enumerate() {
        wrong |= a ^ first.wrapping_add(i as u64 * step);
    }
    wrong == 0
}

/// Loads 16 bytes per lane into four rows, with what every CPU of the architecture has.
///
/// # Safety
/// 16 bytes at each address were checked for reading.
#[inline(always)]
pub(super) unsafe fn gather_wide(at: &[u64; 32], rows: &mut [Row; 4]) {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::memory::pointer;
        use std::arch::x86_64::{
            __m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_unpackhi_epi32, _mm_unpackhi_epi64,
            _mm_unpacklo_epi32, _mm_unpacklo_epi64,
        };
        let [r0, r1, r2, r3] = rows.each_mut().map(|r| r.as_mut_ptr());
        for k in (0..32).step_by(4) {
            // SAFETY: the four loads are the caller's promise; the stores cover lanes k..k+4 of
            // rows of 32. SSE2 is part of x86-64.
            unsafe {
                let load = |i: usize| _mm_loadu_si128(pointer(at[k + i]).cast::<__m128i>());
                let (a, b, c, d) = (load(0), load(1), load(2), load(3));
                let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
                let (ef, gh) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
                let put = |row: *mut u32, v| _mm_storeu_si128(row.add(k).cast::<__m128i>(), v);
                put(r0, _mm_unpacklo_epi64(ab, cd));
                put(r1, _mm_unpackhi_epi64(ab, cd));
                put(r2, _mm_unpacklo_epi64(ef, gh));
                put(r3, _mm_unpackhi_epi64(ef, gh));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        for (i, at) in at.iter().enumerate() {
            // SAFETY: the caller's promise.
            let block: [u32; 4] = unsafe { guest::read(*at) };
            for (row, word) in rows.iter_mut().zip(block) {
                row[i] = word;
            }
        }
    }
}

struct GlobalLoad<E, const SCALAR: bool>(std::marker::PhantomData<E>);

impl<E: Element, const SCALAR: bool> Exec for GlobalLoad<E, SCALAR> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let exec = w.exec();
        let at = addresses::<SCALAR>(w, u, x);
        if exec != u32::MAX {
            return load_some::<E>(w, u, x, &at, exec);
        }
        let each = size::<E>();
        let dst = usize::from(u.dst & 511);
        if E::REGS < 4
            && at[1] == at[0].wrapping_add(each)
            && consecutive(&at, each)
            && x.allows(u.hit, at[0], 32 * each, Rights::READ)
        {
            // SAFETY: the block of 32 elements was checked just above.
            let block: [E::Bytes; 32] = unsafe { guest::read(at[0]) };
            scatter::<E>(w, dst, &block);
            return Flow::NEXT;
        }
        if !x.allows_all(u.hit, &at, each, Rights::READ) {
            return load_some::<E>(w, u, x, &at, exec);
        }
        if E::REGS == 4
            && let Some(rows) = w.v.get_mut(dst..).and_then(|tail| tail.first_chunk_mut())
        {
            // SAFETY: all lanes were checked just above.
            unsafe { L::gather_wide(&at, rows) };
            return Flow::NEXT;
        }
        // SAFETY: all lanes were checked just above.
        let block: [E::Bytes; 32] = std::array::from_fn(|i| unsafe { guest::read(at[i]) });
        scatter::<E>(w, dst, &block);
        Flow::NEXT
    }
}

/// Spreads one element per lane over the registers from `dst`.
#[inline(always)]
fn scatter<E: Element>(w: &mut Wave, dst: usize, block: &[E::Bytes; 32]) {
    for r in 0..E::REGS {
        let row = &mut w.v[(dst + r) & 511];
        for i in 0..32 {
            row[i] = E::unpack(block[i], row[i])[r];
        }
    }
}

#[inline(never)]
fn load_some<E: Element>(
    w: &mut Wave,
    u: &Uop,
    x: &mut Ctx<'_>,
    at: &[u64; 32],
    exec: u32,
) -> Flow {
    let mut left = exec;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        if !x.allows(u.hit, at[i], size::<E>(), Rights::READ) {
            return bad(x, i, at[i], size::<E>(), Access::Read);
        }
        // SAFETY: this lane's bytes were checked just above.
        let bytes: E::Bytes = unsafe { guest::read(at[i]) };
        let dst = usize::from(u.dst & 511);
        let regs = E::unpack(bytes, w.v[dst][i]);
        for (r, value) in regs.into_iter().enumerate().take(E::REGS) {
            w.v[(dst + r) & 511][i] = value;
        }
    }
    Flow::NEXT
}

/// Stops the wave because of one lane's address.
#[cold]
pub(super) fn bad(x: &mut Ctx<'_>, lane: usize, address: u64, length: u64, access: Access) -> Flow {
    x.stop(Fault::Memory {
        lane: lane as u32,
        address,
        length,
        access,
    })
}

struct GlobalStore<E, const SCALAR: bool>(std::marker::PhantomData<E>);

impl<E: Element, const SCALAR: bool> Exec for GlobalStore<E, SCALAR> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let exec = w.exec();
        let at = addresses::<SCALAR>(w, u, x);
        let each = size::<E>();
        if exec == u32::MAX
            && at[1] == at[0].wrapping_add(each)
            && consecutive(&at, each)
            && x.allows(u.hit, at[0], 32 * each, Rights::WRITE)
        {
            let block: [E::Bytes; 32] = std::array::from_fn(|i| E::pack(registers(w, u, i)));
            // SAFETY: the block of 32 elements was checked just above.
            unsafe { guest::write(at[0], block) };
            return Flow::NEXT;
        }
        let mut left = exec;
        while left != 0 {
            let i = left.trailing_zeros() as usize;
            left &= left - 1;
            if !x.allows(u.hit, at[i], each, Rights::WRITE) {
                return bad(x, i, at[i], each, Access::Write);
            }
            // SAFETY: this lane's bytes were checked just above.
            unsafe { guest::write(at[i], E::pack(registers(w, u, i))) };
        }
        Flow::NEXT
    }
}

/// The four registers from `c` of one lane; an element takes the ones that it needs.
#[inline(always)]
fn registers(w: &Wave, u: &Uop, lane: usize) -> [u32; 4] {
    std::array::from_fn(|r| w.v[(usize::from(u.c.0) + r) & 511][lane])
}

/// Scalar load of `N` dwords from pair `a` plus register `b` plus the immediate.
struct ScalarLoad<const N: usize>;

pub(super) fn scalar_address(w: &Wave, u: &Uop, x: &Ctx<'_>) -> u64 {
    let offset = (i64::from(u.imm) as u64).wrapping_add(u64::from(w.scalar(x, u.b)));
    w.scalar64(x, u.a).wrapping_add(offset)
}

impl<const N: usize> Exec for ScalarLoad<N> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        // Dword loads ignore the low two address bits (RDNA ISA, scalar memory).
        let at = scalar_address(w, u, x) & !3;
        if !x.allows(u.hit, at, N as u64 * 4, Rights::READ) {
            return bad(x, 0, at, N as u64 * 4, Access::Read);
        }
        // SAFETY: the block was checked just above.
        let block: [u32; N] = unsafe { guest::read(at) };
        for (k, value) in block.into_iter().enumerate() {
            w.set(u.dst + k as u16, value);
        }
        Flow::NEXT
    }
}

/// Scalar load of less than a dword (gfx12).
struct ScalarLoadPart<E>(std::marker::PhantomData<E>);

impl<E: Element> Exec for ScalarLoadPart<E> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let at = scalar_address(w, u, x) & !(size::<E>() - 1);
        if !x.allows(u.hit, at, size::<E>(), Rights::READ) {
            return bad(x, 0, at, size::<E>(), Access::Read);
        }
        // SAFETY: the bytes were checked just above.
        let bytes: E::Bytes = unsafe { guest::read(at) };
        w.set(u.dst, E::unpack(bytes, 0)[0]);
        Flow::NEXT
    }
}

/// Scalar load of `N` dwords through the buffer descriptor `a`; dwords outside the buffer are 0
/// (RDNA ISA, scalar buffer loads).
struct BufferLoad<const N: usize>;

/// Base address and size of a buffer descriptor, in bytes.
pub(super) fn buffer(w: &Wave, src: super::uop::Src) -> (u64, u64) {
    let at = |k: u16| w.s[usize::from((src.0 + k) & 0xff)];
    let base = u64::from(at(0)) | u64::from(at(1) & 0xffff) << 32;
    let stride = u64::from(at(1) >> 16 & 0x3fff);
    (base, u64::from(at(2)) * stride.max(1))
}

impl<const N: usize> Exec for BufferLoad<N> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (base, size) = buffer(w, u.a);
        let offset = (i64::from(u.imm) as u64).wrapping_add(u64::from(w.scalar(x, u.b))) & !3;
        for k in 0..N {
            let at = offset.wrapping_add(4 * k as u64);
            let mut value = 0;
            if at.checked_add(4).is_some_and(|end| end <= size) {
                let va = base.wrapping_add(at);
                if !x.allows(u.hit, va, 4, Rights::READ) {
                    return bad(x, 0, va, 4, Access::Read);
                }
                // SAFETY: the dword was checked just above.
                value = unsafe { guest::read(va) };
            }
            w.set(u.dst + k as u16, value);
        }
        Flow::NEXT
    }
}

/// As [`BufferLoad`], of less than a dword (gfx12).
struct BufferLoadPart<E>(std::marker::PhantomData<E>);

impl<E: Element> Exec for BufferLoadPart<E> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (base, limit) = buffer(w, u.a);
        let each = size::<E>();
        let offset = (i64::from(u.imm) as u64).wrapping_add(u64::from(w.scalar(x, u.b)));
        let offset = offset & !(each - 1);
        let mut value = 0;
        if offset.checked_add(each).is_some_and(|end| end <= limit) {
            let va = base.wrapping_add(offset);
            if !x.allows(u.hit, va, each, Rights::READ) {
                return bad(x, 0, va, each, Access::Read);
            }
            // SAFETY: the bytes were checked just above.
            let bytes: E::Bytes = unsafe { guest::read(va) };
            value = E::unpack(bytes, 0)[0];
        }
        w.set(u.dst, value);
        Flow::NEXT
    }
}

/// A function from load to handler: whole dwords by `$whole`, less than one by `$part`.
macro_rules! scalar_loads {
    ($(#[$doc:meta])* $name:ident: $whole:ident, $part:ident) => {
        $(#[$doc])*
        pub(super) fn $name(load: Load, speed: Speed) -> Option<Handler> {
            Some(match load {
                Load::B32 => handler::<$whole<1>>(speed),
                Load::B64 => handler::<$whole<2>>(speed),
                Load::B96 => handler::<$whole<3>>(speed),
                Load::B128 => handler::<$whole<4>>(speed),
                Load::B256 => handler::<$whole<8>>(speed),
                Load::B512 => handler::<$whole<16>>(speed),
                Load::U8 => handler::<$part<U8>>(speed),
                Load::I8 => handler::<$part<I8>>(speed),
                Load::U16 => handler::<$part<U16>>(speed),
                Load::I16 => handler::<$part<I16>>(speed),
                _ => return None,
            })
        }
    };
}

scalar_loads! {
    /// The handler of a scalar load.
    scalar_load: ScalarLoad, ScalarLoadPart
}

scalar_loads! {
    /// The handler of a scalar load through a buffer descriptor.
    buffer_load: BufferLoad, BufferLoadPart
}

/// The handler of a load at scalar address plus the lane's own four bytes.
pub(super) fn load_by_lane(speed: Speed) -> Handler {
    handler::<ByLane<GlobalLoad<B32, true>>>(speed)
}

/// The handler of a store at scalar address plus the lane's own four bytes.
pub(super) fn store_by_lane(speed: Speed) -> Handler {
    handler::<ByLane<GlobalStore<B32, true>>>(speed)
}

/// The handler of a flat load.
pub(super) fn flat_load(load: Load, speed: Speed) -> Option<Handler> {
    macro_rules! pick {
        ($e:ident) => {
            handler::<Flat<GlobalLoad<$e, false>, { flat::LOAD }>>(speed)
        };
    }
    Some(match load {
        Load::U8 => pick!(U8),
        Load::I8 => pick!(I8),
        Load::U16 => pick!(U16),
        Load::I16 => pick!(I16),
        Load::B32 => pick!(B32),
        Load::B64 => pick!(B64),
        Load::B96 => pick!(B96),
        Load::B128 => pick!(B128),
        Load::U8D16 => pick!(U8Low),
        Load::U8D16Hi => pick!(U8High),
        Load::I8D16 => pick!(I8Low),
        Load::I8D16Hi => pick!(I8High),
        Load::U16D16 => pick!(U16Low),
        Load::U16D16Hi => pick!(U16High),
        Load::B256 | Load::B512 => return None,
    })
}

/// The handler of a flat store.
pub(super) fn flat_store(store: Store, speed: Speed) -> Handler {
    macro_rules! pick {
        ($e:ident) => {
            handler::<Flat<GlobalStore<$e, false>, { flat::STORE }>>(speed)
        };
    }
    match store {
        Store::B8 => pick!(U8),
        Store::B16 => pick!(U16),
        Store::B32 => pick!(B32),
        Store::B64 => pick!(B64),
        Store::B96 => pick!(B96),
        Store::B128 => pick!(B128),
        Store::B8D16Hi => pick!(U8High),
        Store::B16D16Hi => pick!(U16High),
    }
}

/// The handler of a vector load.
pub(super) fn load(load: Load, scalar: bool, speed: Speed) -> Option<Handler> {
    macro_rules! pick {
        ($e:ident) => {
            if scalar {
                handler::<GlobalLoad<$e, true>>(speed)
            } else {
                handler::<GlobalLoad<$e, false>>(speed)
            }
        };
    }
    Some(match load {
        Load::U8 => pick!(U8),
        Load::I8 => pick!(I8),
        Load::U16 => pick!(U16),
        Load::I16 => pick!(I16),
        Load::B32 => pick!(B32),
        Load::B64 => pick!(B64),
        Load::B96 => pick!(B96),
        Load::B128 => pick!(B128),
        Load::U8D16 => pick!(U8Low),
        Load::U8D16Hi => pick!(U8High),
        Load::I8D16 => pick!(I8Low),
        Load::I8D16Hi => pick!(I8High),
        Load::U16D16 => pick!(U16Low),
        Load::U16D16Hi => pick!(U16High),
        Load::B256 | Load::B512 => return None,
    })
}

/// The handler of a vector store.
pub(super) fn store(store: Store, scalar: bool, speed: Speed) -> Handler {
    macro_rules! pick {
        ($e:ident) => {
            if scalar {
                handler::<GlobalStore<$e, true>>(speed)
            } else {
                handler::<GlobalStore<$e, false>>(speed)
            }
        };
    }
    match store {
        Store::B8 => pick!(U8),
        Store::B16 => pick!(U16),
        Store::B32 => pick!(B32),
        Store::B64 => pick!(B64),
        Store::B96 => pick!(B96),
        Store::B128 => pick!(B128),
        Store::B8D16Hi => pick!(U8High),
        Store::B16D16Hi => pick!(U16High),
    }
}
