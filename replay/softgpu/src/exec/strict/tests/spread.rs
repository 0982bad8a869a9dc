//! The spread of poison, against execution: what is marked as defined does not depend on any value
//! that is marked as undefined. For every row that touches registers only, with and without DPP.
//! (That no more is marked than must be is what the silent kernels and twins show.)

use super::noise::{Noise, instance, rounds};
use crate::exec::level::Speed;
use crate::exec::strict::code::{Known, relative};
use crate::exec::strict::effects::effects;
use crate::exec::strict::poison::{Step, crossbar, spread};
use crate::exec::strict::regs::code;
use crate::exec::strict::track::Track;
use crate::exec::tests::Machine;
use crate::exec::uop::Flow;
use crate::exec::wave::{SCC_SLOT, Wave};
use crate::isa::op::Op;
use crate::isa::operand::{EXEC, NULL, SCC, VGPR};
use crate::isa::{Dpp, Format, Inst, Target, table};

/// Poisons a random part of these registers, and returns a wave that differs there.
fn poisoned(w: &Wave, touched: &[u16], t: &mut Track, noise: &mut Noise) -> Wave {
    let mut other = w.clone();
    for &number in touched {
        let lanes = match noise.pick(4) {
            0 => u32::MAX,
            1 => noise.bits(),
            2 => 1 << noise.pick(32),
            _ => 0,
        };
        match code(number) {
            EXEC | NULL => t.set_bits(code(number), 0),
            SCC => {
                t.set_scc(lanes & 1 == 1);
                other.s[usize::from(SCC_SLOT)] ^= lanes & 1 & noise.bits();
            }
            c if c >= VGPR => {
                t.set_lanes(c, lanes, u32::MAX);
                for i in (0..32).filter(|i| lanes >> i & 1 == 1) {
                    other.v[usize::from(c - VGPR)][i] = noise.word();
                }
            }
            c => {
                t.set_bits(c, lanes);
                other.s[usize::from(c)] ^= lanes & noise.bits();
            }
        }
    }
    other
}

/// The first register whose defined part differs between two waves.
fn difference(a: &Wave, b: &Wave, touched: &[u16], t: &Track) -> Option<String> {
    for &number in touched {
        match code(number) {
            NULL => {}
            SCC => {
                let slot = usize::from(SCC_SLOT);
                if t.bits(SCC) == 0 && a.s[slot] != b.s[slot] {
                    return Some("SCC".to_owned());
                }
            }
            c if c >= VGPR => {
                let row = usize::from(c - VGPR);
                let lanes = t.lanes(c, 1);
                let bad = (0..32).find(|i| lanes >> i & 1 == 0 && a.v[row][*i] != b.v[row][*i]);
                if let Some(lane) = bad {
                    return Some(format!("v{row} lane {lane}"));
                }
            }
            c => {
                let s = usize::from(c);
                if (a.s[s] ^ b.s[s]) & !t.bits(c) != 0 {
                    return Some(format!("scalar {s}"));
                }
            }
        }
    }
    None
}

fn check(m: &mut Machine, inst: &Inst, noise: &mut Noise) -> Result<bool, String> {
    let generation = m.target().generation();
    let known = Known {
        inst: *inst,
        effects: effects(generation, inst),
        waits: &[],
    };
    let all = known.effects.reads.union(&known.effects.writes);
    let touched: Vec<u16> = (0..384).filter(|n| all.contains(*n)).collect();
    noise.fill(&mut m.w, touched.iter().copied());
    let exec = if noise.pick(2) == 0 {
        u32::MAX
    } else {
        noise.bits()
    };
    m.exec(exec);
    let a = m.w.clone();
    let mut t = Track::new();
    let b = poisoned(&a, &touched, &mut t, noise);
    let step = Step {
        inst,
        w: &a,
        generation,
    };
    if inst.format == Format::Ds {
        let lanes = crossbar(&step, &t);
        t.set_lanes(inst.dst, lanes, exec);
    } else if t.is_hot(&all) && spread(&step, &known, &mut t).is_some() {
        // Reported: what follows depends on it.
        return Ok(false);
    }
    if m.step(inst) != Flow::NEXT {
        return Ok(false);
    }
    let from_a = std::mem::replace(&mut m.w, Box::new(b));
    m.step(inst);
    difference(&from_a, &m.w, &touched, &t).map_or(Ok(true), Err)
}

/// Rows whose result keeps part of the old register: that part counts as defined on purpose.
fn keeps_half(inst: &Inst) -> bool {
    inst.row.shape.dst.is_half()
        // One byte of four.
        || inst.row.mnemonic.contains("cvt_sr_")
        || inst.row.mnemonic.contains("fma_mixlo")
        || inst.row.mnemonic.contains("fma_mixhi")
}

#[test]
fn what_is_defined_depends_on_nothing_undefined() {
    for target in [Target::Gfx1151, Target::Gfx1201] {
        let mut wrong = Vec::new();
        let mut checked = 0;
        for row in table(target.generation()) {
            let registers_only = match row.format {
                Format::Smem
                | Format::Flat
                | Format::Global
                | Format::Scratch
                | Format::Mubuf
                | Format::Sopp => false,
                Format::Ds => matches!(
                    row.op,
                    Op::DsBpermuteB32 | Op::DsPermuteB32 | Op::DsSwizzleB32
                ),
                _ => true,
            };
            let mut m = Machine::new(target, Speed::detect());
            let inst = instance(&m, row);
            if !registers_only || keeps_half(&inst) || relative(row.op).is_some() {
                continue;
            }
            let dpp = matches!(row.format, Format::Vop1 | Format::Vop2 | Format::Vopc);
            let mut noise = Noise(
                0x9_8765_4321 ^ u64::from(row.opcode(target.generation()).unwrap_or(0)) << 24,
            );
            let mut ran = false;
            for round in 0..4 * rounds() {
                let mut inst = inst;
                if dpp && round % 3 == 2 {
                    let ctrls = [0x1b, 0x101, 0x118, 0x121, 0x140, 0x141, 0x153, 0x161];
                    inst.dpp = Dpp::Row16 {
                        ctrl: ctrls[noise.pick(8) as usize],
                        fetch_inactive: noise.pick(2) == 1,
                        bound_ctrl: noise.pick(2) == 1,
                        row_mask: if noise.pick(2) == 1 { 15 } else { 5 },
                        bank_mask: if noise.pick(2) == 1 { 15 } else { 9 },
                    };
                }
                match check(&mut m, &inst, &mut noise) {
                    Ok(done) => ran |= done,
                    Err(what) => {
                        let name = row.mnemonic;
                        wrong.push(format!("{target} {:?} {name}: {what}", row.format));
                        break;
                    }
                }
            }
            checked += usize::from(ran);
        }
        assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
        assert!(checked > 350, "{target}: {checked}");
    }
}
