//! Runs one row of the table on operand sets: 31 at a time in the lanes of a wave, the last lane
//! inactive; scalar rows one by one.

use super::operands::Set;
use crate::exec::context::{Ctx, HITS};
use crate::exec::level::Speed;
use crate::exec::lower::Lowering;
use crate::exec::moded::ORDINARY;
use crate::exec::program::Program;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::op::{Op, Wide};
use crate::isa::operand::{EXEC, NULL, VCC, VGPR};
use crate::isa::shape::Ty;
use crate::isa::{Dpp, Format, Generation, Inst, Mods, Row as TableRow, Target};
use crate::memory::{AddressSpace, Kind, LastHit, Rights, View};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Both speeds.
pub(super) const SPEEDS: [fn() -> Speed; 2] = [|| Speed::Base, Speed::detect];

/// Sets in flight at once.
const BATCH: usize = 31;

/// What an operation leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The destination; NaNs are canonical.
    pub(super) result: u64,
    /// The lane's bit of a mask, or an atomic's memory cell.
    pub(super) mask: u64,
    pub(super) scc: u8,
    pub(super) exec: u32,
}

impl Outcome {
    /// As the digest takes it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = self.result.to_le_bytes().to_vec();
        out.extend(self.mask.to_le_bytes());
        out.push(self.scc);
        out.extend(self.exec.to_le_bytes());
        out
    }
}

/// One row, ready to run.
pub(super) struct Runner {
    target: Target,
    speed: Speed,
    row: &'static TableRow,
    w: Box<Wave>,
    lds: Vec<u8>,
    view: Arc<View>,
    memory: AddressSpace,
    cells: u64,
}

fn scalar(row: &TableRow) -> bool {
    matches!(
        row.format,
        Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk
    )
}

/// An atomic's width, if the row is one.
fn atomic(row: &TableRow) -> Option<usize> {
    match row.op {
        Op::DsAtomic(_, wide, _) | Op::GAtomic(_, wide) | Op::FlatAtomic(_, wide) => {
            Some(if wide == Wide::B64 { 8 } else { 4 })
        }
        _ => None,
    }
}

impl Runner {
    pub(super) fn new(target: Target, speed: Speed, row: &'static TableRow) -> Self {
        let memory = AddressSpace::new();
        let cells = memory
            .alloc("cells", 1024, 16, Rights::READ_WRITE, Kind::Device)
            .unwrap();
        Self {
            target,
            speed,
            row,
            w: Wave::new(),
            lds: vec![0; 1024],
            view: memory.view(),
            memory,
            cells,
        }
    }

    /// A register form of the instruction: sources in v10, v20, v30 or s10, s20, s30, destination
    /// v40 or s40, masks in s50 and VCC.
    fn instruction(&self, set: &Set) -> Inst {
        let row = self.row;
        let scalar = scalar(row);
        let base = if scalar { 0 } else { VGPR };
        let mut src = [base + 10, base + 20, base + 30];
        for (code, ty) in src.iter_mut().zip(row.shape.src) {
            match ty {
                Ty::Mask => *code = VCC,
                Ty::None | Ty::Imm16 => *code = 0,
                _ => {}
            }
        }
        if row.shape.dst == Ty::Sgpr && !scalar {
            src[0] = 10;
        }
        let dst = match row.shape.dst {
            Ty::None => NULL,
            Ty::Mask | Ty::Sgpr => 40,
            _ => base + 40,
        };
        let imm_at = row.shape.src.iter().position(|t| *t == Ty::Imm16);
        Inst {
            row,
            format: row.format,
            dwords: 1,
            dst,
            sdst: 50,
            src,
            saddr: NULL,
            literal: 0,
            mods: Mods {
                opsel_hi: if row.format == Format::Vop3p { 7 } else { 0 },
                ..Mods::default()
            },
            dpp: Dpp::None,
            imm: imm_at.map_or(0, |k| i32::from(set.sources[k] as u16 as i16)),
            imm2: 0,
            // Global atomics return the old value.
            cache: match self.target.generation() {
                Generation::Gfx11 => 1,
                Generation::Gfx12 => 4,
            },
            second: None,
        }
    }

    /// The outcomes of `sets`.
    pub(super) fn run(&mut self, sets: &[Set]) -> Vec<Outcome> {
        if !scalar(self.row) && self.row.shape.dst != Ty::Sgpr {
            return sets.chunks(BATCH).flat_map(|b| self.lanes(b)).collect();
        }
        let fixed = !self.row.shape.src.contains(&Ty::Imm16);
        let mut lowering = self.lowered(&sets[0]);
        let mut out = Vec::new();
        for set in sets {
            if !fixed {
                lowering = self.lowered(set);
            }
            for (k, value) in set.sources.into_iter().chain([set.old]).enumerate() {
                let at = 10 * (k + 1);
                self.w.s[at] = value as u32;
                self.w.s[at + 1] = (value >> 32) as u32;
            }
            self.start(1, set.scc, set.vcc);
            self.execute(&lowering);
            let wide = self.row.shape.dst.regs() == 2;
            let high = if wide {
                u64::from(self.w.s[41]) << 32
            } else {
                0
            };
            let result = match self.row.shape.dst {
                Ty::None => 0,
                Ty::F16 => u64::from(self.w.s[40] & 0xffff),
                _ => u64::from(self.w.s[40]) | high,
            };
            out.push(Outcome {
                result: canonical(self.row, result),
                mask: 0,
                scc: self.w.s[usize::from(SCC_SLOT)] as u8,
                exec: self.w.exec(),
            });
        }
        out
    }

    fn lowered(&self, set: &Set) -> Lowering {
        let mut lowering = Lowering::new(self.target, self.speed);
        lowering.push(&self.instruction(set));
        lowering
    }

    fn start(&mut self, exec: u32, scc: u32, vcc: u32) {
        self.w.s[usize::from(SCC_SLOT)] = scc;
        self.w.s[usize::from(VCC)] = vcc;
        self.w.s[usize::from(EXEC)] = exec;
        self.w.s[usize::from(EXEC) + 1] = 0;
        let ieee = u32::from(self.target.generation() == Generation::Gfx11) << 9;
        self.w.mode = ORDINARY | 1 << 8 | ieee;
    }

    fn execute(&mut self, lowering: &Lowering) {
        let mut program = Program::decode(self.target, 0, &[]).unwrap();
        program.modifiers = lowering.modifiers.clone();
        let mut x = Ctx {
            program: &program,
            constants: &lowering.constants,
            view: &self.view,
            stop: &AtomicBool::new(false),
            lds: &mut self.lds,
            hits: &mut [LastHit::default(); HITS],
            fault: None,
            alive: 1,
            signals: 0,
            completed: false,
        };
        for u in &lowering.uops {
            // SAFETY: `speed` was detected, or is the baseline.
            unsafe { (u.run)(&mut self.w, u, &mut x) };
        }
        assert!(x.fault.is_none(), "{}: {:?}", self.row.mnemonic, x.fault);
    }

    /// At most 31 sets in the lanes of a wave.
    fn lanes(&mut self, sets: &[Set]) -> Vec<Outcome> {
        let lowering = self.lowered(&sets[0]);
        let inactive = 0x5a5a_0001;
        for at in [10, 20, 30, 40] {
            self.w.v[at] = [inactive; 32];
            self.w.v[at + 1] = [inactive; 32];
        }
        let mut vcc = 0;
        for (i, set) in sets.iter().enumerate() {
            for (k, value) in set.sources.into_iter().chain([set.old]).enumerate() {
                let at = 10 * (k + 1);
                self.w.v[at][i] = value as u32;
                self.w.v[at + 1][i] = (value >> 32) as u32;
            }
            vcc |= (set.vcc & 1) << i;
        }
        if let Some(bytes) = atomic(self.row) {
            self.cells_before(sets, bytes);
        }
        self.start(((1u64 << sets.len()) - 1) as u32, 0, vcc);
        self.execute(&lowering);
        if self.row.shape.dst != Ty::None && self.row.format != Format::Vopc {
            let kept = (self.w.v[40][31], self.w.v[41][31]);
            assert_eq!(
                kept,
                (inactive, inactive),
                "{}: inactive lane",
                self.row.mnemonic
            );
        }
        (0..sets.len()).map(|i| self.outcome(&sets[i], i)).collect()
    }

    fn cells_before(&mut self, sets: &[Set], bytes: usize) {
        for (i, set) in sets.iter().enumerate() {
            let at = 16 * i;
            let cell = set.old.to_le_bytes();
            self.lds[at..at + bytes].copy_from_slice(&cell[..bytes]);
            let va = self.cells + at as u64;
            self.memory.write_bytes(va, &cell[..bytes]).unwrap();
            let address = if self.row.format == Format::Ds {
                at as u64
            } else {
                va
            };
            self.w.v[10][i] = address as u32;
            self.w.v[11][i] = (address >> 32) as u32;
        }
    }

    fn cell_after(&self, lane: usize, bytes: usize) -> u64 {
        let mut cell = [0; 8];
        if self.row.format == Format::Ds {
            cell[..bytes].copy_from_slice(&self.lds[16 * lane..16 * lane + bytes]);
        } else {
            let va = self.cells + 16 * lane as u64;
            self.memory.read_bytes(va, &mut cell[..bytes]).unwrap();
        }
        u64::from_le_bytes(cell)
    }

    fn outcome(&self, set: &Set, lane: usize) -> Outcome {
        let row = self.row;
        let (low, high) = (self.w.v[40][lane], self.w.v[41][lane]);
        let wide = row.shape.dst.regs() == 2;
        let value = u64::from(low) | if wide { u64::from(high) << 32 } else { 0 };
        let compares = row.format == Format::Vopc;
        let to_exec = matches!(row.op, Op::VCmpx(..));
        let exec = self.w.exec() >> lane & 1;
        let carries = row.format == Format::Vop3sd || row.mnemonic.contains("_co_ci_");
        let mask = match atomic(row) {
            Some(bytes) => cell(row, self.cell_after(lane, bytes)),
            None if to_exec => u64::from(exec),
            None if compares => u64::from(self.w.s[40] >> lane & 1),
            None if carries => u64::from(self.w.s[50] >> lane & 1),
            None => 0,
        };
        let has_result = row.shape.dst != Ty::None && !compares;
        Outcome {
            result: if has_result { canonical(row, value) } else { 0 },
            mask,
            scc: set.scc as u8,
            exec,
        }
    }
}

/// A memory cell with canonical NaNs.
fn cell(row: &TableRow, value: u64) -> u64 {
    let name = row.mnemonic;
    match () {
        () if name.contains("pk_add_f16") => nan(Ty::Packed, value),
        () if name.contains("cmpst") || name.contains("cmpsw") => {
            // The cell is old or new data, unchanged; the text calls it a float.
            let float = if name.ends_with("f32") {
                Ty::F32
            } else if name.ends_with("f64") {
                Ty::F64
            } else {
                Ty::B32
            };
            nan(float, value)
        }
        () if name.ends_with("f32") => nan(Ty::F32, value),
        () if name.ends_with("f64") => nan(Ty::F64, value),
        () => value,
    }
}

/// A result whose NaN, if it is one, is the canonical one.
pub(super) fn canonical(row: &TableRow, value: u64) -> u64 {
    match row.shape.dst {
        Ty::Sgpr if row.mnemonic.ends_with("f16") => nan(Ty::F16, value & 0xffff),
        Ty::Sgpr => nan(Ty::F32, value),
        ty => nan(ty, value),
    }
}

fn nan(ty: Ty, value: u64) -> u64 {
    let half = |v: u64| if v & 0x7fff > 0x7c00 { 0x7e00 } else { v };
    match ty {
        Ty::F32 if value & 0x7fff_ffff > 0x7f80_0000 => 0x7fc0_0000,
        Ty::F64 if f64::from_bits(value).is_nan() => 0x7ff8 << 48,
        Ty::F16 => value & 0xffff_0000 | half(value & 0xffff),
        Ty::Packed => half(value >> 16 & 0xffff) << 16 | half(value & 0xffff),
        _ => value,
    }
}

/// Whether two outcomes differ by at most one unit in the last place of a result of one sign.
pub(super) fn near(row: &TableRow, a: &Outcome, b: &Outcome) -> bool {
    let rest = |o: &Outcome| (o.mask, o.scc, o.exec);
    let small = |v: u64| {
        let turns = row.mnemonic.contains("_sin_") || row.mnemonic.contains("_cos_");
        // Close to a zero of sine the argument's own rounding decides the digits.
        turns && f32::from_bits(v as u32).abs() < 1.0e-6
    };
    rest(a) == rest(b) && (a.result.abs_diff(b.result) <= 1 || (small(a.result) && small(b.result)))
}
