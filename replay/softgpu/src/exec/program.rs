//! Machine code, decoded once into micro-operations with resolved branches.

use super::level::Speed;
use super::lower::Lowering;
use super::modified::Modifier;
use super::strict::Code;
use super::uop::Uop;
use super::wave::Row;
use crate::isa::op::Op;
use crate::isa::operand::VGPR;
use crate::isa::{Format, Inst, IsaError, Target, decode, disassemble, words_of};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Largest code that is accepted, in bytes.
const MAX_CODE: usize = 1 << 26;

/// No instruction begins at this dword.
const NONE: u32 = u32::MAX;

/// Machine code of one `.text`, decoded for one target. Immutable; shared by dispatches.
pub struct Program {
    target: Target,
    base: u64,
    words: Vec<u32>,
    pub(crate) uops: Vec<Uop>,
    pub(crate) constants: Vec<Row>,
    pub(crate) modifiers: Vec<Modifier>,
    /// Dword offset of each micro-operation's instruction.
    at: Vec<u32>,
    /// Micro-operation of each dword offset.
    index: Vec<u32>,
    /// Where control goes after each micro-operation.
    edges: Vec<Edge>,
    /// Vector registers that each micro-operation needs.
    tops: Vec<u16>,
    kernels: Mutex<HashMap<u32, Arc<KernelInfo>>>,
    /// The code as strict mode runs it; made when first asked for.
    strict: OnceLock<Box<Code>>,
    speed: Speed,
}

/// Where control can go after a micro-operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Fall,
    Branch(u32),
    Either(u32),
    Stop,
    /// Anywhere: a jump to a computed address.
    Indirect,
}

/// What is known of the code that one entry reaches.
#[derive(Debug)]
pub(crate) struct KernelInfo {
    /// Vector registers used, counted from v0.
    pub(crate) vgprs: u32,
    /// Mean instructions per wave of earlier runs; 0 before the first.
    pub(crate) cost: AtomicU64,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("target", &self.target)
            .field("base", &self.base)
            .field("dwords", &self.words.len())
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Decodes `code`, which the guest sees at `code_va`. Words that do not decode are kept and
    /// reported only when a wave reaches them. Errors: a length that is no whole number of dwords,
    /// or too long.
    pub fn decode(target: Target, code_va: u64, code: &[u8]) -> Result<Self, IsaError> {
        Self::decode_at(target, code_va, code, Speed::detect())
    }

    /// As [`Self::decode`] with the handlers that every CPU of this architecture can run. Results
    /// are the same; for tests and measurements.
    pub fn decode_baseline(target: Target, code_va: u64, code: &[u8]) -> Result<Self, IsaError> {
        Self::decode_at(target, code_va, code, Speed::Base)
    }

    fn decode_at(target: Target, base: u64, code: &[u8], speed: Speed) -> Result<Self, IsaError> {
        if !code.len().is_multiple_of(4) {
            return Err(IsaError::Length { len: code.len() });
        }
        if code.len() > MAX_CODE {
            return Err(IsaError::TooLong {
                len: code.len(),
                max: MAX_CODE,
            });
        }
        let words = words_of(code);
        let built = Builder::build(target, &words, speed, true);
        if built.lowering.full() {
            return Err(IsaError::TooLong {
                len: code.len(),
                max: MAX_CODE,
            });
        }
        Ok(Self::assembled(target, base, words, built))
    }

    /// The same code with a micro-operation for every wait and cache operation, which the fast
    /// path has no use for.
    pub(super) fn unfolded(&self) -> Self {
        let built = Builder::build(self.target, &self.words, self.speed, false);
        Self::assembled(self.target, self.base, self.words.clone(), built)
    }

    /// The code as strict mode runs it.
    pub(super) fn strict(&self) -> &Code {
        self.strict.get_or_init(|| Box::new(Code::new(self)))
    }

    fn assembled(target: Target, base: u64, words: Vec<u32>, built: Builder) -> Self {
        Self {
            target,
            base,
            words,
            speed: built.lowering.speed,
            uops: built.lowering.uops,
            constants: built.lowering.constants,
            modifiers: built.lowering.modifiers,
            at: built.at,
            index: built.index,
            edges: built.edges,
            tops: built.tops,
            kernels: Mutex::default(),
            strict: OnceLock::new(),
        }
    }

    /// The target that it was decoded for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Guest address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    /// Whether there is no code.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The micro-operation at a guest address.
    pub(crate) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        if !offset.is_multiple_of(4) {
            return None;
        }
        let found = *self.index.get(usize::try_from(offset / 4).ok()?)?;
        (found != NONE).then_some(found)
    }

    /// Guest address of a micro-operation's instruction.
    pub(crate) fn address_of(&self, index: u32) -> u64 {
        let dword = self.at.get(index as usize).copied().unwrap_or(0);
        self.base.wrapping_add(u64::from(dword) * 4)
    }

    /// The instruction of a micro-operation.
    pub(super) fn instruction(&self, index: u32) -> Option<Inst> {
        let dword = *self.at.get(index as usize)? as usize;
        decode(self.target, self.words.get(dword..)?).ok()
    }

    /// The bytes of a micro-operation's instruction and some after it.
    pub(crate) fn bytes_at(&self, index: u32) -> Vec<u8> {
        let dword = self.at.get(index as usize).map_or(0, |d| *d as usize);
        self.words
            .iter()
            .skip(dword)
            .take(4)
            .flat_map(|w| w.to_le_bytes())
            .collect()
    }

    /// Text of a micro-operation's instruction, or why its words are none.
    pub(crate) fn text_of(&self, index: u32) -> String {
        match disassemble(self.target, self.address_of(index), &self.bytes_at(index)) {
            Ok(lines) => match lines.into_iter().next().map(|l| l.text) {
                Some(Ok(text)) => text,
                Some(Err(e)) => e.to_string(),
                None => "end of the code".to_owned(),
            },
            Err(e) => e.to_string(),
        }
    }

    /// The number of `u`, which must be one of this program's.
    fn number_of(&self, u: &Uop) -> u32 {
        let offset = std::ptr::from_ref(u)
            .addr()
            .wrapping_sub(self.uops.as_ptr().addr());
        (offset / size_of::<Uop>()) as u32
    }

    /// Guest address after the instruction of `u`.
    pub(crate) fn next_address(&self, u: &Uop) -> u64 {
        let index = self.number_of(u);
        let dwords = self.instruction(index).map_or(1, |i| u64::from(i.dwords));
        self.address_of(index).wrapping_add(4 * dwords)
    }

    /// Guest address that the relative branch `u` names.
    pub(crate) fn branch_address(&self, u: &Uop) -> u64 {
        let index = self.number_of(u);
        let offset = self
            .instruction(index)
            .map_or(0, |i| 4 * i64::from(i.imm as i16));
        self.address_of(index)
            .wrapping_add(4)
            .wrapping_add_signed(offset)
    }

    /// What the code from this micro-operation needs.
    pub(crate) fn kernel(&self, entry: u32) -> Arc<KernelInfo> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let info = kernels.entry(entry).or_insert_with(|| {
            Arc::new(KernelInfo {
                vgprs: self.reachable_vgprs(entry),
                cost: AtomicU64::new(0),
            })
        });
        Arc::clone(info)
    }

    fn reachable_vgprs(&self, entry: u32) -> u32 {
        let mut seen = vec![false; self.uops.len()];
        let mut open = vec![entry];
        let mut top = 0;
        while let Some(i) = open.pop() {
            let i = i as usize;
            if seen.get(i).copied().unwrap_or(true) {
                continue;
            }
            seen[i] = true;
            top = top.max(u32::from(self.tops[i]));
            match self.edges[i] {
                Edge::Fall => open.push(i as u32 + 1),
                Edge::Branch(t) => open.push(t),
                Edge::Either(t) => open.extend([t, i as u32 + 1]),
                Edge::Stop => {}
                Edge::Indirect => {
                    return self.tops.iter().copied().max().map_or(0, u32::from);
                }
            }
        }
        top
    }
}

impl KernelInfo {
    /// Takes a finished run into the mean.
    pub(crate) fn learn(&self, instructions: u64, waves: u64) {
        if let Some(mean) = instructions.checked_div(waves) {
            self.cost.store(mean.max(1), Ordering::Relaxed);
        }
    }
}

struct Builder {
    lowering: Lowering,
    at: Vec<u32>,
    index: Vec<u32>,
    edges: Vec<Edge>,
    tops: Vec<u16>,
}

impl Builder {
    /// `fold`: waits and cache operations are only counted, as no-ops are.
    fn build(target: Target, words: &[u32], speed: Speed, fold: bool) -> Self {
        let mut b = Self {
            lowering: Lowering::new(target, speed),
            at: Vec::new(),
            index: vec![NONE; words.len()],
            edges: Vec::new(),
            tops: Vec::new(),
        };
        let insts = decode_all(target, words);
        let targets: HashSet<u32> = insts
            .iter()
            .filter_map(|(at, inst)| branch_target(*at, inst.as_ref()?))
            .collect();
        let mut branches = Vec::new();
        for (at, inst) in &insts {
            let first = b.lowering.uops.len();
            match inst {
                Some(inst) if b.folds(*at, inst, &targets, fold) => {
                    if let Some(last) = b.lowering.uops.last_mut() {
                        last.count += 1;
                    }
                    continue;
                }
                Some(inst) => b.lowering.push(inst),
                None => b.lowering.undecodable(),
            }
            b.index[*at as usize] = first as u32;
            let top = inst.as_ref().map_or(0, vector_top);
            for _ in first..b.lowering.uops.len() {
                b.at.push(*at);
                b.edges.push(Edge::Fall);
                b.tops.push(top);
            }
            if let Some(last) = b.edges.last_mut() {
                *last = inst.as_ref().map_or(Edge::Stop, edge);
            }
            if let Some(to) = inst.as_ref().and_then(|i| branch_target(*at, i)) {
                branches.push((b.lowering.uops.len() - 1, to));
            }
        }
        // Running off the end stops the wave.
        b.lowering.undecodable();
        b.at.push(words.len() as u32);
        b.edges.push(Edge::Stop);
        b.tops.push(0);
        for (uop, to) in branches {
            b.resolve(uop, to);
        }
        b
    }

    fn resolve(&mut self, uop: usize, to: u32) {
        let index = self.index.get(to as usize).copied().unwrap_or(NONE);
        self.lowering.uops[uop].imm = if index == NONE {
            super::control::NOWHERE
        } else {
            index as i32
        };
        let stop = index == NONE;
        self.edges[uop] = match self.edges[uop] {
            Edge::Either(_) if stop => Edge::Fall,
            Edge::Either(_) => Edge::Either(index),
            _ if stop => Edge::Stop,
            _ => Edge::Branch(index),
        };
    }

    /// Whether a no-op is counted on its predecessor: nothing may jump to it, and kernel entries
    /// (256-byte aligned) stay.
    fn folds(&self, at: u32, inst: &Inst, targets: &HashSet<u32>, all: bool) -> bool {
        let no_op = match inst.row.op {
            // One of these rows waits after all.
            Op::SNop => all || inst.row.mnemonic != "s_wait_idle",
            Op::DsNop | Op::VNop => true,
            Op::SWait | Op::SInv | Op::GCache => all,
            _ => false,
        };
        no_op
            && !at.is_multiple_of(64)
            && !targets.contains(&at)
            && self.edges.last() == Some(&Edge::Fall)
            && self
                .lowering
                .uops
                .last()
                .is_some_and(|u| u.count < u16::MAX)
    }
}

fn decode_all(target: Target, words: &[u32]) -> Vec<(u32, Option<Inst>)> {
    let mut insts = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let inst = decode(target, &words[at..]).ok();
        insts.push((at as u32, inst));
        at += inst.map_or(1, |i| usize::from(i.dwords));
    }
    insts
}

/// Dword offset that a relative branch goes to; one past the largest offset when outside.
fn branch_target(at: u32, inst: &Inst) -> Option<u32> {
    match edge(inst) {
        Edge::Branch(_) | Edge::Either(_) => {
            let to = i64::from(at) + 1 + i64::from(inst.imm as i16);
            Some(u32::try_from(to).unwrap_or(u32::MAX))
        }
        _ => None,
    }
}

/// Where an instruction goes; targets are filled in later.
fn edge(inst: &Inst) -> Edge {
    match inst.row.op {
        Op::SBranch | Op::SCallB64 => Edge::Branch(0),
        Op::SCbranchScc0
        | Op::SCbranchScc1
        | Op::SCbranchVccz
        | Op::SCbranchVccnz
        | Op::SCbranchExecz
        | Op::SCbranchExecnz => Edge::Either(0),
        Op::SEndpgm | Op::STrap | Op::SCodeEnd => Edge::Stop,
        Op::SSetpcB64 | Op::SSwappcB64 => Edge::Indirect,
        _ => Edge::Fall,
    }
}

/// One past the highest vector register that an instruction names.
fn vector_top(inst: &Inst) -> u16 {
    let mut top = 0;
    let mut see = |code: u16, regs: u32| {
        if code >= VGPR && regs > 0 {
            top = top.max(code - VGPR + regs as u16);
        }
    };
    see(inst.dst, inst.row.shape.dst.regs());
    for (k, (code, ty)) in inst.src.into_iter().zip(inst.row.shape.src).enumerate() {
        let lane_address = inst.format == Format::Global && k == 0;
        let regs = if lane_address {
            2 - u32::from(inst.scalar_address())
        } else {
            ty.regs()
        };
        see(code, regs);
    }
    if let Some(y) = inst.second {
        see(y.dst, 1);
        for (code, ty) in y.src.into_iter().zip(y.row.shape.src) {
            see(code, ty.regs());
        }
    }
    top
}
