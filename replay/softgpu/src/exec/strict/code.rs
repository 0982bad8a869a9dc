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
    /// Scalar load, global, flat, scratch or LDS access, or lane exchange through the LDS unit.
    Scalar,
    Global,
    Flat,
    Scratch,
    Lds,
    Crossbar,
    /// Wait for counters.
    Wait,
    /// Cache invalidation.
    Cache,
    Barrier,
    /// Registers counted from M0.
    Relative,
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

/// What an operation on registers counted from M0 does once they are known, and how M0 moves the
/// source and the destination (as `exec::relative`).
pub(super) const fn relative(op: Op) -> Option<(Op, [Move; 2])> {
    use Move::{All, High, Low, Not};
    Some(match op {
        Op::SMovrelsB32 => (Op::SMovB32, [All, Not]),
        Op::SMovrelsB64 => (Op::SMovB64, [All, Not]),
        Op::SMovreldB32 => (Op::SMovB32, [Not, All]),
        Op::SMovreldB64 => (Op::SMovB64, [Not, All]),
        Op::SMovrelsd2B32 => (Op::SMovB32, [Low, High]),
        Op::VMovrelsB32 => (Op::VMovB32, [All, Not]),
        Op::VMovreldB32 => (Op::VMovB32, [Not, All]),
        Op::VMovrelsdB32 => (Op::VMovB32, [All, All]),
        Op::VMovrelsd2B32 => (Op::VMovB32, [Low, High]),
        Op::VSwaprelB32 => (Op::VSwapB32, [Low, High]),
        _ => return None,
    })
}

/// How M0 moves a register number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Not,
    All,
    /// By bits [9:0].
    Low,
    /// By bits [25:16].
    High,
}

impl Move {
    pub(super) const fn by(self, m0: u32) -> u32 {
        match self {
            Self::Not => 0,
            Self::All => m0,
            Self::Low => m0 & 0x3ff,
            Self::High => m0 >> 16 & 0x3ff,
        }
    }
}

fn class(inst: &Inst) -> Class {
    match inst.row.op {
        _ if wait_fields(inst.row).is_some() => Class::Wait,
        Op::SInv | Op::GCache => Class::Cache,
        Op::SBarrier | Op::SBarrierWait | Op::SBarrierSignal | Op::SBarrierSignalIsfirst => {
            Class::Barrier
        }
        Op::SLoad(_) | Op::SBufferLoad(_) => Class::Scalar,
        Op::GLoad(_) | Op::GStore(_) | Op::GAtomic(..) | Op::GLoadAddtid | Op::GStoreAddtid => {
            Class::Global
        }
        Op::FlatLoad(_) | Op::FlatStore(_) | Op::FlatAtomic(..) => Class::Flat,
        Op::ScratchLoad(_) | Op::ScratchStore(_) => Class::Scratch,
        Op::DsLoad(_)
        | Op::DsStore(_)
        | Op::DsLoad2(..)
        | Op::DsStore2(..)
        | Op::DsSwap2(..)
        | Op::DsCondxchg32RtnB64
        | Op::DsLoadAddtidB32
        | Op::DsStoreAddtidB32
        | Op::DsAtomic(..) => Class::Lds,
        op if relative(op).is_some() => Class::Relative,
        _ if inst.format == Format::Ds => Class::Crossbar,
        _ => Class::Plain,
    }
}
