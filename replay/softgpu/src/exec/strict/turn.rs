//! One time slice of one wave: its micro-operations, and before each what strict mode has to check.

use super::code::{Class, Code, Known, Move, Site, relative};
use super::counters::Counter;
use super::effects::effects;
use super::group::Barrier;
use super::poison::{Reached, Step, blame, spread};
use super::regs::code as operand_code;
use super::shadow::Shadow;
use super::track::Track;
use crate::exec::context::{Ctx, Fault};
use crate::exec::uop::{Flow, Uop};
use crate::exec::wave::Wave;
use crate::isa::op::Op;
use crate::isa::operand::{M0, NULL, name};
use crate::isa::{Format, Generation, Inst, table};
use crate::strict::hook::{Company, Watch, WaveFinding, WaveInvalidate, Who};
use std::sync::atomic::Ordering;

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The slice is used up.
    Slice,
    /// The wave ended.
    End,
    /// The wave waits at its barrier.
    Barrier,
    /// `Ctx::fault` says why the wave cannot go on.
    Fault,
}

/// A wave at work.
pub(super) struct Turn<'a, 'v, W: ?Sized> {
    pub(super) w: &'a mut Wave,
    pub(super) t: &'a mut Track,
    pub(super) x: &'a mut Ctx<'v>,
    pub(super) shadow: &'a mut Shadow,
    pub(super) barrier: &'a mut Barrier,
    pub(super) code: &'a Code,
    pub(super) watch: &'a mut W,
    pub(super) launch: u32,
    pub(super) group: u32,
    /// The group has one wave.
    pub(super) alone: bool,
    pub(super) generation: Generation,
}

impl<W: Watch + ?Sized> Turn<'_, '_, W> {
    /// Runs up to `limit` micro-operations.
    pub(super) fn run(&mut self, limit: u32, budget: u64) -> Outcome {
        if self.x.stop.load(Ordering::Relaxed) {
            self.x.stop(Fault::Stopped);
            return Outcome::Fault;
        }
        let code = self.code;
        let mut pc = self.w.pc as usize;
        let mut count = self.w.count;
        let mut left = limit;
        let mut uops = code.program.uops_for(self.w.mode);
        let outcome = loop {
            if left == 0 {
                break Outcome::Slice;
            }
            left -= 1;
            let (Some(u), Some(site)) = (uops.get(pc), code.sites.get(pc)) else {
                self.x.stop(Fault::Undecodable);
                break Outcome::Fault;
            };
            count += u64::from(u.count);
            let flow = if site.class == Class::Plain {
                if self.t.is_hot(&site.touched) {
                    self.look(site, pc as u32);
                }
                self.execute(u)
            } else {
                self.special(site, u, pc as u32)
            };
            if flow == Flow::NEXT {
                pc += 1;
            } else if flow.0 >= Flow::JUMP {
                pc = (flow.0 - Flow::JUMP) as usize;
                if count > budget {
                    self.x.stop(Fault::Budget);
                    break Outcome::Fault;
                }
            } else if flow == Flow::MODE {
                uops = code.program.uops_for(self.w.mode);
                pc += 1;
            } else if flow == Flow::END {
                break Outcome::End;
            } else if flow == Flow::BARRIER {
                pc += 1;
                break Outcome::Barrier;
            } else {
                break Outcome::Fault;
            }
        };
        self.w.pc = pc as u32;
        self.w.count = count;
        outcome
    }

    /// Executes a micro-operation of the program.
    #[inline(always)]
    pub(super) fn execute(&mut self, u: &Uop) -> Flow {
        // SAFETY: the program's handlers were chosen for this CPU when it was decoded.
        unsafe { (u.run)(self.w, u, self.x) }
    }

    #[inline(never)]
    fn look(&mut self, site: &Site, pc: u32) {
        let code = self.code;
        let Some(known) = code.insts.get(site.inst as usize) else {
            return;
        };
        self.early(known, None, pc);
        let step = Step {
            inst: &known.inst,
            w: self.w,
            generation: self.generation,
        };
        if let Some(reached) = spread(&step, known, self.t) {
            self.poison(reached, pc);
        }
    }

    #[inline(never)]
    fn special(&mut self, site: &Site, u: &Uop, pc: u32) -> Flow {
        let code = self.code;
        let Some(known) = code.insts.get(site.inst as usize) else {
            return Flow::NEXT;
        };
        match site.class {
            Class::Wait => self.wait(known),
            Class::Cache => self.cache(&known.inst, pc),
            Class::Barrier => return self.at_barrier(known, u, pc),
            Class::Scalar => return self.scalar_load(known, u, pc),
            Class::Global => return self.global(known, u, pc),
            Class::Flat => return self.flat(known, u, pc),
            Class::Scratch => return self.scratch(known, u, pc),
            Class::Lds => return self.lds(known, u, pc),
            Class::Crossbar => return self.crossbar(known, u, pc),
            Class::Relative => self.relative(known, pc),
            Class::Plain => {}
        }
        self.execute(u)
    }

    /// Registers counted from M0: the same move, with the registers that M0 names now.
    fn relative(&mut self, known: &Known, pc: u32) {
        let Some((op, moves)) = relative(known.inst.row.op) else {
            return;
        };
        self.early(known, None, pc);
        if self.t.bits(M0) != 0 {
            self.t.set_bits(M0, 0);
            let reached = Reached {
                code: M0,
                regs: 1,
                place: "register number",
                lanes: 1,
            };
            self.poison(reached, pc);
        }
        let m0 = self.w.s[usize::from(M0)];
        let Some(row) = table(self.generation).iter().find(|r| r.op == op) else {
            return;
        };
        let moved = |code: u16, by: Move| code.saturating_add(by.by(m0).min(0x200) as u16).min(511);
        let mut inst = known.inst;
        inst.row = row;
        inst.src[0] = moved(inst.src[0], moves[0]);
        inst.dst = moved(inst.dst, moves[1]);
        let known = Known {
            effects: effects(self.generation, &inst),
            inst,
            waits: &[],
        };
        self.early(&known, None, pc);
        let step = Step {
            inst: &known.inst,
            w: self.w,
            generation: self.generation,
        };
        if let Some(reached) = spread(&step, &known, self.t) {
            self.poison(reached, pc);
        }
    }

    /// Reports registers of an instruction that are still in flight.
    pub(super) fn early(&mut self, known: &Known, exempt: Option<Counter>, pc: u32) {
        let e = &known.effects;
        while let Some(early) = self.t.early(&e.reads, &e.writes, exempt, self.generation) {
            self.t.arrive(early.register);
            let finding = WaveFinding::MissingWait {
                register: name(operand_code(early.register), 1, 0),
                counter: early.counter.name(self.generation),
                at_most: early.at_most,
                load: self.code.program.address_of(early.uop),
            };
            self.found(finding, pc);
        }
    }

    pub(super) fn poison(&mut self, reached: Reached, pc: u32) {
        let finding = WaveFinding::Poison {
            register: name(reached.code, reached.regs, 0),
            place: reached.place,
            lanes: reached.lanes,
        };
        self.found(finding, pc);
    }

    pub(super) fn found(&mut self, finding: WaveFinding, pc: u32) {
        let who = self.who(pc);
        self.watch.found(who, finding);
    }

    /// How the wave stands to the others of its group.
    pub(super) fn company(&self) -> Company {
        if self.alone {
            Company::Alone
        } else if self.t.signalled.is_some() {
            Company::Between
        } else {
            Company::Among
        }
    }

    pub(super) fn who(&self, pc: u32) -> Who {
        Who {
            launch: self.launch,
            group: self.group,
            wave: self.w.index,
            pc: self.code.program.address_of(pc),
        }
    }

    fn wait(&mut self, known: &Known) {
        let inst = &known.inst;
        let register = match (inst.format, inst.src[0]) {
            (Format::Sopk, code @ 0..NULL) => self.w.s[usize::from(code)],
            _ => 0,
        };
        for field in known.waits {
            let allowed = field.allowed(inst.imm as u32).saturating_add(register);
            self.t.wait(field, allowed, self.generation);
        }
    }

    fn cache(&mut self, inst: &Inst, pc: u32) {
        let who = self.who(pc);
        let scope = inst.cache & 3;
        let all: &[WaveInvalidate] = match inst.row.mnemonic {
            "buffer_gl0_inv" => &[WaveInvalidate::L0],
            "buffer_gl1_inv" | "s_gl1_inv" => &[WaveInvalidate::L1],
            "s_dcache_inv" => &[WaveInvalidate::Scalar],
            "global_inv" | "global_wbinv" if scope >= 1 => {
                &[WaveInvalidate::L0, WaveInvalidate::L1]
            }
            "global_inv" | "global_wbinv" => &[WaveInvalidate::L0],
            _ => &[],
        };
        for what in all {
            self.watch.invalidate(who, *what);
        }
        // On gfx12 these are counted (LLVM SIInsertWaitcnts); on gfx11 they are not.
        match inst.row.mnemonic {
            "global_inv" => self.issued(Counter::Load, NULL, 0, pc),
            "global_wb" | "global_wbinv" => self.issued(Counter::Store, NULL, 0, pc),
            _ => {}
        }
    }

    fn at_barrier(&mut self, known: &Known, u: &Uop, pc: u32) -> Flow {
        let op = known.inst.row.op;
        self.early(known, None, pc);
        let id = match op {
            Op::SBarrier => -1,
            Op::SBarrierWait => u.imm,
            _ => self.w.scalar(self.x, u.a) as i32,
        };
        if id != -1 {
            // The handler says what is not modelled.
            return self.execute(u);
        }
        if op == Op::SBarrierSignalIsfirst {
            let first = self.barrier.signals == 0;
            self.w.set_scc(first);
            self.t.set_scc(false);
        }
        if op != Op::SBarrierWait {
            self.t.signal_uop = pc;
            self.t.signal_done = self.t.lds_done;
            self.t.signalled = Some(self.barrier.signal());
            self.x.signals = self.barrier.signals;
        }
        if matches!(op, Op::SBarrierSignal | Op::SBarrierSignalIsfirst) {
            return Flow::NEXT;
        }
        // The group decides after this slice whether the wave may pass. A wait without a signal is
        // for the next completion.
        self.t.signalled.get_or_insert(self.barrier.phase + 1);
        Flow::BARRIER
    }

    /// Reports poisoned lanes of an address operand and takes it as defined.
    pub(super) fn address(&mut self, code: u16, regs: u32, lanes: u32, pc: u32) {
        let bad = self.t.lanes(code, regs) & lanes;
        if bad != 0 {
            self.t.define(code, regs);
            self.poison(
                Reached {
                    code,
                    regs,
                    place: "address",
                    lanes: bad,
                },
                pc,
            );
        }
    }

    /// Reports where an undefined source of this instruction goes.
    pub(super) fn blame(&mut self, inst: &Inst, place: &'static str, lanes: u32, pc: u32) {
        if let Some(reached) = blame(inst, place, lanes, self.t) {
            self.poison(reached, pc);
        }
    }
}
