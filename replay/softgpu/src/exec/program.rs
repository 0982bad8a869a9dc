//! Machine code, decoded once into micro-operations with resolved branches.

use super::level::Speed;
use super::lower::Lowering;
use super::moded::is_ordinary;
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

/// Flag in a micro-operation's register count: M0 can name other registers.
const RELATIVE: u16 = 1 << 15;

/// No instruction begins at this dword.
const NONE: u32 = u32::MAX;

/// Machine code of one `.text`, decoded for one target. Immutable; shared by dispatches.
pub struct Program {
    target: Target,
    base: u64,
    words: Vec<u32>,
    speed: Speed,
    pub(crate) uops: Vec<Uop>,
    pub(crate) constants: Vec<Row>,
    pub(crate) modifiers: Vec<Modifier>,
    /// For waves with an unusual MODE; made when the first one runs.
    pub(super) moded: OnceLock<Moded>,
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
    /// Entries of kernels by address, ascending.
    symbols: OnceLock<Vec<(u64, Arc<str>)>>,
    /// Waits and cache operations are counted on their predecessor.
    fold: bool,
}

/// Micro-operations that follow MODE. They refer to the same constants and have the same numbers.
pub(super) struct Moded {
    pub(super) uops: Vec<Uop>,
    pub(super) modifiers: Vec<Modifier>,
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
    /// Whether M0 can name others.
    pub(crate) relative: bool,
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
        let built = Builder::build(Lowering::new(target, speed), &words, true);
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
        let built = Builder::build(Lowering::new(self.target, self.speed), &self.words, false);
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
            fold: built.fold,
            moded: OnceLock::new(),
            uops: built.lowering.uops,
            constants: built.lowering.constants,
            modifiers: built.lowering.modifiers,
            at: built.at,
            index: built.index,
            edges: built.edges,
            tops: built.tops,
            kernels: Mutex::default(),
            strict: OnceLock::new(),
            symbols: OnceLock::new(),
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

    fn moded(&self) -> &Moded {
        self.moded.get_or_init(|| {
            let lowering = Lowering::moded(self.target, self.speed);
            let built = Builder::build(lowering, &self.words, self.fold);
            Moded {
                uops: built.lowering.uops,
                modifiers: built.lowering.modifiers,
            }
        })
    }

    /// The micro-operations for a wave with this MODE.
    #[inline(always)]
    pub(crate) fn uops_for(&self, mode: u32) -> &[Uop] {
        if is_ordinary(mode) {
            &self.uops
        } else {
            &self.moded().uops
        }
    }

    /// The modifiers of the ordinary micro-operations, or of those that follow MODE.
    #[inline(always)]
    pub(crate) fn modifiers(&self, moded: bool) -> &[Modifier] {
        if moded {
            &self.moded().modifiers
        } else {
            &self.modifiers
        }
    }

    /// Says once which kernels begin where.
    pub(crate) fn name_entries(&self, mut entries: Vec<(u64, Arc<str>)>) {
        entries.sort();
        // A second list is of the same object.
        let _ = self.symbols.set(entries);
    }

    /// A guest address inside the code as kernel and offset.
    pub(crate) fn symbol(&self, address: u64) -> Option<(Arc<str>, u64)> {
        let end = self.base.saturating_add(self.len());
        if !(self.base..end).contains(&address) {
            return None;
        }
        let entries = self.symbols.get()?;
        let after = entries.partition_point(|(entry, _)| *entry <= address);
        let (entry, name) = entries.get(after.checked_sub(1)?)?;
        Some((Arc::clone(name), address - entry))
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
        let at = std::ptr::from_ref(u);
        let other = self.moded.get().map(|m| m.uops.as_slice());
        let own = match other {
            Some(uops) if uops.as_ptr_range().contains(&at) => uops,
            _ => &self.uops,
        };
        let offset = at.addr().wrapping_sub(own.as_ptr().addr());
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
            let (vgprs, relative) = self.reachable_vgprs(entry);
            Arc::new(KernelInfo {
                vgprs,
                relative,
                cost: AtomicU64::new(0),
            })
        });
        Arc::clone(info)
    }

    /// Vector registers that the code from `entry` on names, and whether M0 can name others.
    fn reachable_vgprs(&self, entry: u32) -> (u32, bool) {
        let mut seen = vec![false; self.uops.len()];
        let mut open = vec![entry];
        let (mut top, mut relative) = (0, false);
        while let Some(i) = open.pop() {
            let i = i as usize;
            if seen.get(i).copied().unwrap_or(true) {
                continue;
            }
            seen[i] = true;
            top = top.max(u32::from(self.tops[i] & !RELATIVE));
            relative |= self.tops[i] & RELATIVE != 0;
            match self.edges[i] {
                Edge::Fall => open.push(i as u32 + 1),
                Edge::Branch(t) => open.push(t),
                Edge::Either(t) => open.extend([t, i as u32 + 1]),
                Edge::Stop => {}
                Edge::Indirect => {
                    let names = self.tops.iter().map(|t| u32::from(*t & !RELATIVE));
                    let any = self.tops.iter().any(|t| t & RELATIVE != 0);
                    return (names.max().unwrap_or(0), any);
                }
            }
        }
        (top, relative)
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
    fold: bool,
    at: Vec<u32>,
    index: Vec<u32>,
    edges: Vec<Edge>,
    tops: Vec<u16>,
}

impl Builder {
    /// `fold`: waits and cache operations are only counted, as no-ops are.
    fn build(lowering: Lowering, words: &[u32], fold: bool) -> Self {
        let target = lowering.target;
        let mut b = Self {
            lowering,
            fold,
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
                Some(inst) if b.folds(*at, inst, &targets) => {
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
    fn folds(&self, at: u32, inst: &Inst, targets: &HashSet<u32>) -> bool {
        let all = self.fold;
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
        let regs = match inst.format {
            Format::Flat if k == 0 => 2,
            Format::Global if k == 0 => 2 - u32::from(inst.scalar_address()),
            _ => ty.regs(),
        };
        see(code, regs);
    }
    if let Some(y) = inst.second {
        see(y.dst, 1);
        for (code, ty) in y.src.into_iter().zip(y.row.shape.src) {
            see(code, ty.regs());
        }
    }
    if super::relative::reaches_any(inst.row.op) {
        top |= RELATIVE;
    }
    top
}
