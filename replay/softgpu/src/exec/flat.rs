//! FLAT and SCRATCH memory. A flat address is in the LDS or scratch aperture by its upper half, else
//! global; lanes of one instruction may differ. Scratch is a poisoned, bounded area per lane that
//! ends with the wave. Global and LDS accesses themselves are those of `global`, `lds`, `atomic`.
//!
//! Aperture bases are those that the Linux driver sets on gfx9 and later (KFD, `kfd_flat_memory.c`).

use super::context::{Ctx, Fault};
use super::global::addresses;
use super::level::Level;
use super::uop::{Exec, Flow, Handler, Src, Uop};
use super::wave::{Row, SCRATCH, Wave};
use super::{atomic, lds};
use crate::isa::op::{Load, Store};
use crate::isa::operand::{EXEC, M0};
use std::marker::PhantomData;

/// Upper half of addresses in the LDS aperture.
pub(super) const SHARED_APERTURE: u32 = 0x0001_0000;
/// Upper half of addresses in the scratch aperture.
pub(super) const PRIVATE_APERTURE: u32 = 0x0002_0000;

/// First or last address of an aperture, in the order of the registers that hold them: LDS base and
/// limit, scratch base and limit.
pub(super) fn aperture(register: u16) -> u64 {
    let upper = if register < 2 {
        SHARED_APERTURE
    } else {
        PRIVATE_APERTURE
    };
    let low = if register.is_multiple_of(2) {
        0
    } else {
        u32::MAX
    };
    u64::from(upper) << 32 | u64::from(low)
}

/// Scratch row of LDS addresses, above those of the modifier wrapper.
const LDS_ADDRESS: u16 = SCRATCH + 20;

/// Scratch memory of a wave: the bytes of its lanes, one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Private {
    bytes: Vec<u8>,
    each: usize,
}

impl Private {
    /// Makes room for `each` bytes for each lane.
    pub(super) fn reserve(&mut self, each: u32) {
        let bytes = 32 * each as usize;
        self.bytes.reserve(bytes.saturating_sub(self.bytes.len()));
    }

    /// `each` bytes for each lane, all poison.
    pub(super) fn reset(&mut self, each: u32, poison: u32) {
        self.each = each as usize;
        if each == 0 {
            return;
        }
        self.bytes.clear();
        self.bytes.resize(32 * self.each, 0);
        let (words, rest) = self.bytes.as_chunks_mut::<4>();
        words.fill(poison.to_le_bytes());
        rest.fill(poison as u8);
    }

    fn range(&self, lane: usize, at: u32, length: usize) -> Option<std::ops::Range<usize>> {
        let end = (at as usize).checked_add(length)?;
        let base = lane * self.each;
        (end <= self.each).then_some(base + at as usize..base + end)
    }

    fn get(&self, lane: usize, at: u32, length: usize) -> Option<&[u8]> {
        self.bytes.get(self.range(lane, at, length)?)
    }

    fn get_mut(&mut self, lane: usize, at: u32, length: usize) -> Option<&mut [u8]> {
        let range = self.range(lane, at, length)?;
        self.bytes.get_mut(range)
    }
}

/// Loads in the order of their numbers in `Uop::sdst`.
const LOADS: [Load; 14] = [
    Load::U8,
    Load::I8,
    Load::U16,
    Load::I16,
    Load::B32,
    Load::B64,
    Load::B96,
    Load::B128,
    Load::U8D16,
    Load::U8D16Hi,
    Load::I8D16,
    Load::I8D16Hi,
    Load::U16D16,
    Load::U16D16Hi,
];

/// Stores in the order of their numbers in `Uop::sdst`.
const STORES: [Store; 8] = [
    Store::B8,
    Store::B16,
    Store::B32,
    Store::B64,
    Store::B96,
    Store::B128,
    Store::B8D16Hi,
    Store::B16D16Hi,
];

/// The number of a load for `Uop::sdst`.
pub(super) fn load_number(load: Load) -> Option<u16> {
    LOADS.iter().position(|v| *v == load).map(|k| k as u16)
}

/// The number of a store for `Uop::sdst`.
pub(super) fn store_number(store: Store) -> Option<u16> {
    STORES.iter().position(|v| *v == store).map(|k| k as u16)
}

/// Registers of one lane from memory; `old` is the first one's content.
fn unpacked(load: Load, bytes: &[u8], old: u32) -> ([u32; 4], usize) {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
        let mut room = [0; 4];
        room[..chunk.len()].copy_from_slice(chunk);
        *word = u32::from_le_bytes(room);
    }
    let first = words[0];
    let signed = match load {
        Load::I8 | Load::I8D16 | Load::I8D16Hi => i32::from(first as i8) as u32,
        Load::I16 => i32::from(first as i16) as u32,
        _ => first,
    };
    words[0] = match load {
        Load::U8D16 | Load::I8D16 | Load::U16D16 => old & 0xffff_0000 | signed & 0xffff,
        Load::U8D16Hi | Load::I8D16Hi | Load::U16D16Hi => old & 0xffff | signed << 16,
        _ => signed,
    };
    (words, bytes.len().div_ceil(4))
}

fn outside(w: &Wave, x: &mut Ctx<'_>, lane: usize, at: u32, length: usize) -> Flow {
    x.stop(Fault::Scratch {
        lane: lane as u32,
        address: at,
        length: length as u32,
        size: w.private.each as u32,
    })
}

/// Calls `act` for each lane of `mask`; stops at the first lane that faults.
fn each_lane(mask: u32, mut act: impl FnMut(usize) -> Result<(), Flow>) -> Flow {
    let mut left = mask;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        if let Err(flow) = act(i) {
            return flow;
        }
    }
    Flow::NEXT
}

fn load_private(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>, at: &Row, mask: u32, load: Load) -> Flow {
    let length = load.bytes() as usize;
    let dst = usize::from(u.dst);
    each_lane(mask, |i| {
        let old = w.v[dst & 511][i];
        let Some(bytes) = w.private.get(i, at[i], length) else {
            return Err(outside(w, x, i, at[i], length));
        };
        let (words, count) = unpacked(load, bytes, old);
        for (r, word) in words.into_iter().take(count).enumerate() {
            w.v[(dst + r) & 511][i] = word;
        }
        Ok(())
    })
}

fn store_private(
    w: &mut Wave,
    u: &Uop,
    x: &mut Ctx<'_>,
    at: &Row,
    mask: u32,
    store: Store,
) -> Flow {
    let length = store.bytes() as usize;
    let from = usize::from(u.c.0);
    let high = matches!(store, Store::B8D16Hi | Store::B16D16Hi);
    each_lane(mask, |i| {
        let mut data = [0; 16];
        for (r, chunk) in data.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let word = w.v[(from + r) & 511][i];
            *chunk = if high { word >> 16 } else { word }.to_le_bytes();
        }
        let Some(to) = w.private.get_mut(i, at[i], length) else {
            return Err(outside(w, x, i, at[i], length));
        };
        to.copy_from_slice(&data[..length]);
        Ok(())
    })
}

/// What a flat instruction does.
pub(super) const LOAD: u8 = 0;
pub(super) const STORE: u8 = 1;
pub(super) const ATOMIC: u8 = 2;

/// A flat access whose global lanes `G` handles.
pub(super) struct Flat<G, const KIND: u8>(PhantomData<G>);

impl<G: Exec, const KIND: u8> Exec for Flat<G, KIND> {
    #[inline(always)]
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let at = addresses::<false>(w, u, x);
        let exec = w.exec();
        let (shared, private) = apertures(&at, exec);
        if shared | private == 0 {
            return G::run::<L>(w, u, x);
        }
        let mut flow = Flow::NEXT;
        if exec & !(shared | private) != 0 {
            w.set(EXEC, exec & !(shared | private));
            flow = G::run::<L>(w, u, x);
        }
        let low = at.map(|a| a as u32);
        if shared != 0 && flow == Flow::NEXT {
            w.set(EXEC, shared);
            flow = in_lds::<L>(w, u, x, &low, KIND);
        }
        w.set(EXEC, exec);
        if private != 0 && flow == Flow::NEXT {
            flow = in_scratch(w, u, x, &low, private, KIND);
        }
        flow
    }
}

/// Active lanes in the LDS and in the scratch aperture.
pub(super) fn apertures(at: &[u64; 32], exec: u32) -> (u32, u32) {
    let (mut shared, mut private) = (0, 0);
    for (i, address) in at.iter().enumerate() {
        let upper = (address >> 32) as u32;
        shared |= u32::from(upper == SHARED_APERTURE) << i;
        private |= u32::from(upper == PRIVATE_APERTURE) << i;
    }
    (shared & exec, private & exec)
}

#[inline(never)]
fn in_lds<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>, low: &Row, kind: u8) -> Flow {
    w.v[usize::from(LDS_ADDRESS)] = *low;
    let number = usize::from(u.sdst);
    let picked: Option<(Handler, u16)> = match kind {
        LOAD => LOADS.get(number).and_then(|l| lds::load(*l, L::SPEED)),
        STORE => STORES.get(number).map(|s| lds::store(*s, L::SPEED)),
        _ => Some((atomic::lds(L::SPEED), u.ext)),
    };
    let Some((run, ext)) = picked else {
        return x.stop(Fault::Unsupported("a flat access of this width in LDS"));
    };
    let inner = Uop {
        run,
        imm: 0,
        a: Src(LDS_ADDRESS),
        b: u.c,
        c: Src(u.c.0 + atomic::registers(u.ext)),
        ext,
        ..*u
    };
    // SAFETY: the handler was chosen for this level, which the caller runs at.
    unsafe { run(w, &inner, x) }
}

fn in_scratch(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>, low: &Row, mask: u32, kind: u8) -> Flow {
    let number = usize::from(u.sdst);
    match (kind, LOADS.get(number), STORES.get(number)) {
        (LOAD, Some(load), _) => load_private(w, u, x, low, mask, *load),
        (STORE, _, Some(store)) => store_private(w, u, x, low, mask, *store),
        _ => x.stop(Fault::Unsupported(
            "an atomic on scratch memory, which has no atomics",
        )),
    }
}

/// A scratch access at lane address `a` plus scalar `b` plus the immediate.
pub(super) struct Scratch<const KIND: u8>;

impl<const KIND: u8> Exec for Scratch<KIND> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let base = w.scalar(x, u.b).wrapping_add(u.imm as u32);
        let mut room = [0; 32];
        let at = w.lanes(x, u.a, &mut room).map(|a| a.wrapping_add(base));
        let mask = w.exec();
        in_scratch(w, u, x, &at, mask, KIND)
    }
}

/// Global access at scalar pair `b` plus the immediate plus four times the lane.
pub(super) struct ByLane<G>(PhantomData<G>);

impl<G: Exec> Exec for ByLane<G> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        w.v[usize::from(LDS_ADDRESS)] = std::array::from_fn(|i| 4 * i as u32);
        let inner = Uop {
            a: Src(LDS_ADDRESS),
            ..*u
        };
        G::run::<L>(w, &inner, x)
    }
}

/// LDS access at M0 plus the immediate plus four times the lane.
pub(super) struct LdsByLane<G>(PhantomData<G>);

impl<G: Exec> Exec for LdsByLane<G> {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let base = w.s[usize::from(M0)] & 0xffff;
        w.v[usize::from(LDS_ADDRESS)] = std::array::from_fn(|i| base + 4 * i as u32);
        let inner = Uop {
            a: Src(LDS_ADDRESS),
            ..*u
        };
        G::run::<L>(w, &inner, x)
    }
}
