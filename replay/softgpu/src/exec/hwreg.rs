//! Hardware registers: MODE can be read and written, the aperture register read; all others are
//! refused by name, clocks among them, because a value that was made up would be worse.

use super::context::{Ctx, Fault};
use super::flat::{PRIVATE_APERTURE, SHARED_APERTURE};
use super::level::{Level, Speed};
use super::uop::{Exec, Flow, Handler, Uop, handler};
use super::wave::{MODE_DX10_CLAMP, MODE_FP16_OVFL, MODE_IEEE, Wave};
use crate::isa::Generation;
use crate::isa::op::Op;

const MODE: u32 = 1;
const SH_MEM_BASES: u32 = 15;

/// Registers that are refused: number, sets that have it (gfx11, gfx12), why.
const REFUSED: [(u32, bool, bool, &str); 15] = [
    (
        2,
        true,
        true,
        "the hardware register STATUS is not modelled",
    ),
    (
        3,
        true,
        false,
        "the hardware register TRAPSTS is not modelled",
    ),
    (
        4,
        false,
        true,
        "the hardware register STATE_PRIV is not modelled",
    ),
    (
        5,
        true,
        true,
        "the hardware register GPR_ALLOC is not modelled",
    ),
    (
        6,
        true,
        true,
        "the hardware register LDS_ALLOC is not modelled",
    ),
    (
        7,
        true,
        true,
        "the hardware register IB_STS is not modelled",
    ),
    (
        17,
        false,
        true,
        "the hardware register EXCP_FLAG_PRIV is not modelled",
    ),
    (
        18,
        false,
        true,
        "the hardware register EXCP_FLAG_USER is not modelled",
    ),
    (
        20,
        true,
        false,
        "the hardware register FLAT_SCR_LO is not modelled",
    ),
    (
        21,
        true,
        false,
        "the hardware register FLAT_SCR_HI is not modelled",
    ),
    (
        23,
        true,
        true,
        "the hardware register HW_ID1 names a place on a card",
    ),
    (
        24,
        true,
        true,
        "the hardware register HW_ID2 names a place on a card",
    ),
    (
        26,
        false,
        true,
        "the hardware register SCHED_MODE is not modelled",
    ),
    (29, true, true, "the clock SHADER_CYCLES is not modelled"),
    (
        30,
        false,
        true,
        "the clock SHADER_CYCLES_HI is not modelled",
    ),
];

/// Register number, first bit and number of bits of the immediate.
const fn field(imm: i32) -> (u32, u32, u32) {
    let imm = imm as u32;
    (imm & 63, imm >> 6 & 31, (imm >> 11 & 31) + 1)
}

fn refuse(x: &mut Ctx<'_>, register: u32) -> Flow {
    let gfx11 = x.program.target().generation() == Generation::Gfx11;
    let found = REFUSED
        .iter()
        .find(|(number, on11, on12, _)| *number == register && if gfx11 { *on11 } else { *on12 });
    let unknown = "a hardware register that the documents do not name";
    x.stop(Fault::Unsupported(found.map_or(unknown, |row| row.3)))
}

struct SGetregB32;

impl Exec for SGetregB32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let (register, first, bits) = field(u.imm);
        let gfx11 = x.program.target().generation() == Generation::Gfx11;
        let value = match register {
            MODE => w.mode,
            SH_MEM_BASES if gfx11 => PRIVATE_APERTURE >> 16 | SHARED_APERTURE,
            _ => return refuse(x, register),
        };
        let kept = u64::from(value) >> first & ((1 << bits) - 1);
        w.set(u.dst, kept as u32);
        Flow::NEXT
    }
}

/// Writes bits of MODE.
fn write(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>, value: u32) -> Flow {
    let (register, first, bits) = field(u.imm);
    if register != MODE {
        return refuse(x, register);
    }
    let mask = (((1u64 << bits) - 1) << first) as u32;
    let mode = w.mode & !mask | value << first & mask;
    let modelled = match x.program.target().generation() {
        Generation::Gfx11 => 0xff | MODE_DX10_CLAMP | MODE_IEEE | MODE_FP16_OVFL,
        Generation::Gfx12 => 0xff | MODE_FP16_OVFL,
    };
    if (mode ^ w.mode) & !modelled != 0 {
        return x.stop(Fault::Unsupported(
            "bits of MODE beyond rounding, denormals, DX10_CLAMP, IEEE and FP16_OVFL are not modelled",
        ));
    }
    w.mode = mode;
    Flow::MODE
}

struct SSetregB32;

impl Exec for SSetregB32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let value = w.scalar(x, u.a);
        write(w, u, x, value)
    }
}

/// The literal is operand `b`.
struct SSetregImm32B32;

impl Exec for SSetregImm32B32 {
    fn run<L: Level>(w: &mut Wave, u: &Uop, x: &mut Ctx<'_>) -> Flow {
        let value = w.scalar(x, u.b);
        write(w, u, x, value)
    }
}

/// The handler of an access to a hardware register.
pub(super) fn find(op: Op, speed: Speed) -> Option<Handler> {
    Some(match op {
        Op::SGetregB32 => handler::<SGetregB32>(speed),
        Op::SSetregB32 => handler::<SSetregB32>(speed),
        Op::SSetregImm32B32 => handler::<SSetregImm32B32>(speed),
        _ => return None,
    })
}
