//! A program as strict mode runs it: the same instructions, with waits and cache operations kept as
//! micro-operations of their own, and beside each micro-operation what strict mode must know of it.

use super::counters::{Field, wait_fields};
use super::effects::{Effects, effects};
use super::regs::RegSet;
use crate::exec::program::Program;
use crate::isa::op::Op;
use crate::isa::{Format, Inst};

/// What strict mode does at a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Registers only: a look at it when one of them is hot.
    Plain,
    /// Scalar load, global access, LDS access, or lane exchange through the LDS unit.
    Scalar,
    Global,
    Lds,
    Crossbar,
    /// Wait for counters.
    Wait,
    /// Cache invalidation.
    Cache,
    Barrier,
}

/// One micro-operation.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Site {
    /// Registers that the instruction reads or writes; empty for all but its first
    /// micro-operation.
    pub(super) touched: RegSet,
    pub(super) class: Class,
    /// Index of its instruction in `Code::insts`.
    pub(super) inst: u32,
}

/// An instruction with what was worked out about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) inst: Inst,
    pub(super) effects: Effects,
    pub(super) waits: &'static [Field],
}

/// A program and its sites.
pub(crate) struct Code {
    pub(super) program: Program,
    pub(super) sites: Vec<Site>,
    pub(super) insts: Vec<Known>,
}

impl Code {
    /// Decodes the machine code of `program` again.
    pub(crate) fn new(program: &Program) -> Self {
        let program = program.unfolded();
        let generation = program.target().generation();
        let mut code = Self {
            sites: Vec::with_capacity(program.uops.len()),
            insts: Vec::new(),
            program,
        };
        let mut last = u64::MAX;
        for index in 0..code.program.uops.len() as u32 {
            let address = code.program.address_of(index);
            let again = address == last;
            last = address;
            let site = match code.program.instruction(index) {
                Some(inst) if !again => {
                    let effects = effects(generation, &inst);
                    code.insts.push(Known {
                        inst,
                        effects,
                        waits: wait_fields(inst.row).unwrap_or(&[]),
                    });
                    Site {
                        touched: effects.reads.union(&effects.writes),
                        class: class(&inst),
                        inst: code.insts.len() as u32 - 1,
                    }
                }
                _ => Site {
                    touched: RegSet::EMPTY,
                    class: Class::Plain,
                    inst: (code.insts.len() as u32).saturating_sub(1),
                },
            };
            code.sites.push(site);
        }
        code
    }
}

fn class(inst: &Inst) -> Class {
    match inst.row.op {
        _ if wait_fields(inst.row).is_some() => Class::Wait,
        Op::SInv | Op::GCache => Class::Cache,
        Op::SBarrier | Op::SBarrierWait | Op::SBarrierSignal | Op::SBarrierSignalIsfirst => {
            Class::Barrier
        }
        Op::SLoad(_) => Class::Scalar,
        Op::GLoad(_) | Op::GStore(_) | Op::GAtomic(..) => Class::Global,
        Op::DsLoad(_) | Op::DsStore(_) | Op::DsLoad2(..) | Op::DsStore2(..) | Op::DsAtomic(..) => {
            Class::Lds
        }
        _ if inst.format == Format::Ds => Class::Crossbar,
        _ => Class::Plain,
    }
}
