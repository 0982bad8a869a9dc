//! Micro-operations: what a decoded instruction becomes, ready to be called. One instruction is one
//! micro-operation, except VOPD (two or three) and runs of no-ops (counted on their predecessor).

use super::context::Ctx;
use super::level::{Avx2, Base, Level, Speed};
use super::wave::Wave;

/// Where an operand comes from.
///
/// `0..512` vector row, `CONST + k` row `k` of the program's constants, `SCALAR + s` scalar slot
/// `s`, broadcast. A 64-bit operand continues at the next number, whatever the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Src(pub(crate) u16);

impl Src {
    pub(crate) const CONST: u16 = 0x4000;
    pub(crate) const SCALAR: u16 = 0x8000;

    /// The operand's next 32 bits.
    #[inline(always)]
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What happens after a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow(pub(crate) u32);

impl Flow {
    /// Fall through.
    pub(crate) const NEXT: Self = Self(0);
    /// The wave ended.
    pub(crate) const END: Self = Self(1);
    /// The wave waits at its barrier; it resumes after this micro-operation.
    pub(crate) const BARRIER: Self = Self(2);
    /// `Ctx::fault` says why the wave cannot go on.
    pub(crate) const FAULT: Self = Self(3);
    /// Fall through; MODE was written, so the micro-operations to use may be others.
    pub(crate) const MODE: Self = Self(4);
    /// First value that means a jump.
    pub(crate) const JUMP: u32 = 16;

    #[inline(always)]
    pub(crate) const fn jump(index: u32) -> Self {
        Self(index + Self::JUMP)
    }
}

/// Code of one micro-operation. Unsafe to call: the fast variants need the CPU features that were
/// detected when the program was decoded.
pub(crate) type Handler = unsafe fn(&mut Wave, &Uop, &mut Ctx<'_>) -> Flow;

/// One micro-operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uop {
    pub(crate) run: Handler,
    /// Immediate, byte offset, or branch target as micro-operation index.
    pub(crate) imm: i32,
    pub(crate) a: Src,
    pub(crate) b: Src,
    pub(crate) c: Src,
    /// Vector row or scalar slot.
    pub(crate) dst: u16,
    /// Scalar slot of a second result.
    pub(crate) sdst: u16,
    /// Index into the program's modifier table, or handler-specific flags.
    pub(crate) ext: u16,
    /// Architectural instructions that this stands for.
    pub(crate) count: u16,
    /// Which of the wave's last-hit slots a memory access uses.
    pub(crate) hit: u8,
}

/// An operation that compiles for every speed.
pub(crate) trait Exec {
    /// Executes; always inlined, so that it is compiled with the caller's CPU features.
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow;
}

fn run_base<E: Exec>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
    E::run::<Base>(w, u, x)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<E: Exec>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
    E::run::<Avx2>(w, u, x)
}

/// The handler of `E` for a speed that this CPU has.
pub(crate) fn handler<E: Exec>(speed: Speed) -> Handler {
    match speed {
        Speed::Base => run_base::<E>,
        #[cfg(target_arch = "x86_64")]
        Speed::Avx2 => run_avx2::<E>,
        #[cfg(not(target_arch = "x86_64"))]
        Speed::Avx2 => run_base::<E>,
    }
}
