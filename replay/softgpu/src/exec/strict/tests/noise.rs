//! Random register contents and plain instances of table rows.

use crate::exec::strict::regs::code;
use crate::exec::tests::Machine;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::operand::{EXEC, NULL, SCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Format, Inst, Row};

/// A repeatable source of register contents.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    pub(super) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as u32
    }

    /// Below `n`.
    pub(super) fn pick(&mut self, n: u32) -> u32 {
        (self.bits() >> 4) % n
    }

    /// A word; small and equal values are frequent, as they decide comparisons, shifts, selections.
    pub(super) fn word(&mut self) -> u32 {
        match self.pick(16) {
            0..3 => self.bits() & 3,
            3..5 => 0x3f80_0000 | self.bits() & 0x80ff_ffff,
            _ => self.bits(),
        }
    }

    /// Gives a register new contents; EXEC and NULL stay.
    pub(super) fn replace(&mut self, w: &mut Wave, number: u16) {
        match code(number) {
            SCC => w.s[usize::from(SCC_SLOT)] = self.word() & 1,
            c if c >= VGPR => {
                for lane in &mut w.v[usize::from(c - VGPR)] {
                    *lane = self.word();
                }
            }
            EXEC | NULL => {}
            c => w.s[usize::from(c)] = self.word(),
        }
    }

    /// Gives registers new contents.
    pub(super) fn fill(&mut self, w: &mut Wave, registers: impl IntoIterator<Item = u16>) {
        for number in registers {
            self.replace(w, number);
        }
    }
}

/// Rounds of a random check: more with `REFRAIN_LONG=1`.
pub(super) fn rounds() -> u32 {
    if std::env::var_os("REFRAIN_LONG").is_some() {
        200
    } else {
        12
    }
}

/// An instruction of this row on registers that do not overlap, where its format can name such.
pub(super) fn instance(m: &Machine, row: &'static Row) -> Inst {
    let vector = matches!(
        row.format,
        Format::Vop1
            | Format::Vop2
            | Format::Vopc
            | Format::Vop3
            | Format::Vop3sd
            | Format::Vop3p
            | Format::Vopd
            | Format::Ds
    );
    let mut inst = m.inst(row.mnemonic, 0, &[0; 3]);
    inst.row = row;
    inst.format = row.format;
    let place = |ty: Ty, k: u16| match ty {
        Ty::None | Ty::Imm16 => 0,
        Ty::Mask | Ty::Sgpr => 20 + 8 * k,
        _ if vector => VGPR + 20 + 8 * k,
        _ => 20 + 8 * k,
    };
    inst.src = std::array::from_fn(|k| place(row.shape.src[k], k as u16));
    inst.dst = match row.shape.dst {
        Ty::None => NULL,
        ty => place(ty, 4),
    };
    inst.sdst = 60;
    inst.imm = 12;
    inst
}
