//! Operations that the pseudocode vectors do not cover: modifiers, DPP, cross-lane, packed,
//! division, memory, LDS, atomics. Each against a plain statement of its effect.

use super::context::{Ctx, Fault, HITS};
use super::level::Speed;
use super::lower::Lowering;
use super::moded::{ORDINARY, is_ordinary};
use super::program::{Moded, Program};
use super::uop::Flow;
use super::wave::{Row, Wave};
use crate::isa::operand::{EXEC, NULL, VGPR};

use crate::isa::{Dpp, Format, Inst, Mods, Target, table};
use crate::memory::{LastHit, View};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// One wave that executes single instructions.
pub(super) struct Machine {
    target: Target,
    speed: Speed,
    pub(super) w: Box<Wave>,
    pub(super) lds: Vec<u8>,
    view: Arc<View>,
    fault: Option<Fault>,
}

/// A vector register's operand code.
const fn v(n: u16) -> u16 {
    VGPR + n
}

impl Machine {
    pub(super) fn new(target: Target, speed: Speed) -> Self {
        let mut w = Wave::new();
        w.s[usize::from(EXEC)] = u32::MAX;
        w.mode = ORDINARY | 1 << 8 | 1 << 9;
        Self {
            target,
            speed,
            w,
            lds: vec![0; 1024],
            view: Arc::default(),
            fault: None,
        }
    }

    /// An instruction by name with register operands; sources are operand codes.
    pub(super) fn inst(&self, mnemonic: &str, dst: u16, src: &[u16]) -> Inst {
        let row = table(self.target.generation())
            .iter()
            .find(|r| r.mnemonic == mnemonic)
            .unwrap_or_else(|| panic!("no {mnemonic}"));
        let at = |k: usize| src.get(k).copied().unwrap_or(0);
        Inst {
            row,
            format: row.format,
            dwords: 2,
            dst,
            sdst: 50,
            src: [at(0), at(1), at(2)],
            saddr: NULL,
            literal: 0,
            mods: Mods {
                opsel_hi: if row.format == Format::Vop3p { 7 } else { 0 },
                ..Mods::default()
            },
            dpp: Dpp::None,
            imm: 0,
            imm2: 0,
            cache: 0,
            second: None,
        }
    }

    /// The name that this target has for an instruction of gfx11.
    fn spelled(&self, name: &str) -> String {
        let known = |n: &str| {
            table(self.target.generation())
                .iter()
                .any(|r| r.mnemonic == n)
        };
        if known(name) {
            name.to_owned()
        } else {
            name.replace("v_mad_u64_u32", "v_mad_co_u64_u32")
        }
    }

    pub(super) fn step(&mut self, inst: &Inst) -> Flow {
        let usual = is_ordinary(self.w.mode);
        let mut lowering = if usual {
            Lowering::new(self.target, self.speed)
        } else {
            Lowering::moded(self.target, self.speed)
        };
        lowering.push(inst);
        let mut program = Program::decode(self.target, 0, &[]).unwrap();
        let modifiers = std::mem::take(&mut lowering.modifiers);
        if usual {
            program.modifiers = modifiers;
        } else {
            let uops = Vec::new();
            assert!(program.moded.set(Moded { uops, modifiers }).is_ok());
        }
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
        let mut flow = Flow::NEXT;
        for u in &lowering.uops {
            // SAFETY: `speed` was detected, or is the baseline.
            flow = unsafe { (u.run)(&mut self.w, u, &mut x) };
        }
        self.fault = x.fault.take();
        flow
    }

    fn ok(&mut self, inst: &Inst) {
        assert_eq!(
            self.step(inst),
            Flow::NEXT,
            "{}: {:?}",
            inst.row.mnemonic,
            self.fault
        );
    }

    pub(super) fn target(&self) -> Target {
        self.target
    }

    pub(super) fn exec(&mut self, mask: u32) {
        self.w.s[usize::from(EXEC)] = mask;
    }
}

/// Both speeds on both instruction sets.
fn everywhere(check: impl Fn(&mut Machine)) {
    for target in Target::ALL {
        for speed in [Speed::Base, Speed::detect()] {
            check(&mut Machine::new(target, speed));
        }
    }
}

fn lanes(f: impl Fn(u32) -> u32) -> Row {
    std::array::from_fn(|i| f(i as u32))
}

fn random_row(seed: &mut u64) -> Row {
    std::array::from_fn(|_| {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 11) as u32
    })
}

fn dpp(ctrl: u16) -> Dpp {
    Dpp::Row16 {
        ctrl,
        fetch_inactive: false,
        bound_ctrl: false,
        row_mask: 15,
        bank_mask: 15,
    }
}

mod alu;
mod memory;
mod modes;
mod wide;
